"""`attn tensors`: attention over captured q, k and v arrays."""
