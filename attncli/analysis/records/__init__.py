"""Records: what a viewer needs of every head of a run, small enough to be kept, and exact enough to make the weights
again."""
