"""`attn next`: the next word that a decoder would say, from which layer on, and without some heads."""
