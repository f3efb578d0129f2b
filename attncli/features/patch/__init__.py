"""`attn patch`: which heads carry the difference between two texts."""
