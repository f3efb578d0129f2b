"""`attn explain`: the derivation of attention, step by step, and its topics."""
