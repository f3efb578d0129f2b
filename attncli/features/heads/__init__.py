"""`attn heads`: all heads of a text compared, within layers and across them."""
