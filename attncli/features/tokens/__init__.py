"""`attn tokens`: tokens, ids, spans and bytes of a text."""
