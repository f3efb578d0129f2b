"""`attn ablate`: what changes when a head, or a link, is taken away."""
