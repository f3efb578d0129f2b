"""Which heads fetch a fact from the text: needles in haystacks."""
