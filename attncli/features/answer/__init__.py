"""`attn answer`: which regions of a prompt the whole answer used, by exact cuts."""
