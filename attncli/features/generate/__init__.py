"""`attn run --generate`: the text continued, and where each new token looks."""
