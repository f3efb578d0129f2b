"""`attn find`: the heads that send one token to another."""
