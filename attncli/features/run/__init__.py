"""`attn run`: attention on a text.

The other features begin with it: its request, what a run costs, the shapes that flow through it.
"""
