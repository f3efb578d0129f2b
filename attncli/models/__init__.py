"""How families differ: config, tensor names, families/, running layer by layer.

Here belongs the way from a checkpoint to a Spec with weights, and the run of one text through it.
What is true of one family alone stands in its file in `families`.
"""
