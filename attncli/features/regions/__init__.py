"""Which region of a long prompt the answer draws on."""
