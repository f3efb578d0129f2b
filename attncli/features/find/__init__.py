"""`attn find`: which heads send one token to another.

A small feature with all four files: one to follow.
"""
