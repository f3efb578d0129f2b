"""`attn models`: known families, aliases, cached models, and what a model is."""
