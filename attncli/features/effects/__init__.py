"""`attn ablate`, `attn logits`, `attn patch`: which heads matter, and how much.

What they measure with, a sweep of changed runs, serves `find`, `scan` and the explorer, too.
"""
