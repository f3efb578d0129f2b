"""`attn guide`: the pages of the guide, in the terminal."""
