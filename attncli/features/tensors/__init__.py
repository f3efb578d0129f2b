"""`attn tensors`: attention over q, k and v from a file."""
