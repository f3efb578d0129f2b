"""`attn learn`: train a small attention model on a task, and see it form."""
