"""`attn logits`: what each head adds to a token's logit."""
