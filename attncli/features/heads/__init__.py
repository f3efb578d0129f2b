"""`attn heads`: all heads of a run beside each other."""
