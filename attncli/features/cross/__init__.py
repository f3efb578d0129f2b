"""`attn cross`: cross-attention between two texts."""
