"""What ablate, logits and patch share: places, changes, measures, the sweep over heads, and how effects are drawn."""
