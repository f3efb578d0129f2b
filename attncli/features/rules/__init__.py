"""`attn heads --rules`: how much of a head a mixture of simple rules says, and what that costs."""
