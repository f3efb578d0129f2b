"""`attn weights`: weight files written, listed and converted."""
