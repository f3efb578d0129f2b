"""What a number is: the few array operations `attn` needs, on NumPy and on torch."""
