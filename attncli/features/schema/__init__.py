"""`attn schema`: the JSON Schema of every document."""
