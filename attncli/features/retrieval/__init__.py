"""`attn heads --retrieval`: the heads that fetch a fact from within the text."""
