"""`attn mask`: masks drawn, counted, described and combined."""
