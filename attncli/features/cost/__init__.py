"""`attn cost`: pairs, operations and memory of attention and its relatives."""
