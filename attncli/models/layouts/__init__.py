"""How weight files spell one attention: recognised by their tensors' names, read into canonical names, written
again."""
