"""attn: inspect attention on text, step by step."""

__version__ = "0.1.0"
