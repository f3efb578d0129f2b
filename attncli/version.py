"""The version of `attn`, which every document and page names; it imports nothing."""

__version__ = "0.1.0"
