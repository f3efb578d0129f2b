"""HOW IT LOOKS: data in, text out. Nothing here computes attention.

Every screen is a function of a document (the dict that `--json` prints) and a `View` (the
terminal it is for), and returns `Lines`, a plain value that Rich can print.
"""
