"""`attn why`: why a head looks there."""
