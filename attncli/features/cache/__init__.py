"""`attn cache`: what a cache of keys with a budget keeps of what is looked at."""
