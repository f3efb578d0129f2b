"""How a corpus is counted: a plan, shards that are pure functions of it, workers, and what all of them add up to."""
