"""`attn run`: attention on a text, as tables, shapes and links."""
