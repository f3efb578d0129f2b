"""How a corpus is counted: a plan, shards, workers, and what they add up to.

A feature that outgrew its folder: `command`, `document` and `screen` as in the others, beside what
works shard by shard, goes on where it stopped, and adds up alike in any order.
"""
