"""`attn learn`: a small model trained in seconds; its tasks stand in tasks/."""
