"""`attn models`: which models there are, what one does, parity with transformers."""
