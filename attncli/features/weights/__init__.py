"""`attn weights`: writes, lists and converts weight files."""
