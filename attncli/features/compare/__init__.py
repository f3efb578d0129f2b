"""`attn compare`: what differs between two texts, heads, masks, models or files."""
