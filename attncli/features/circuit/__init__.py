"""`attn circuit`: which heads through which edges, tested exactly on pairs not used for the choice."""
