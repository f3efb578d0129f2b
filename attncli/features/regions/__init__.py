"""`attn ablate --each-region`: what the answer loses when a region of the text is cut off."""
