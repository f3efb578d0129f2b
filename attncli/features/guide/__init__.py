"""`attn guide`: the pages of `language/guide` in the terminal."""
