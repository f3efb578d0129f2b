"""`attn view`: a saved document or tensor file, shown again without running anything."""
