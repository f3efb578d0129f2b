"""`attn cross`: one text attending to another."""
