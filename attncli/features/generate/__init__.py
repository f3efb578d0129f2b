"""`--generate`: a text continued token by token."""
