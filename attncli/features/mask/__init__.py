"""`attn mask`: masks and their combinations, drawn and described."""
