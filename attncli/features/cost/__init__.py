"""`attn cost`: operations, memory and pairs, computed and measured."""
