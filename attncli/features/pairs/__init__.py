"""`attn pairs`: files of pairs of texts, what does not fit a model, and how often it is right."""
