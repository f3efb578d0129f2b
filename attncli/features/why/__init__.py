"""`attn why`: a score of a head as the sum of what earlier heads and layers wrote."""
