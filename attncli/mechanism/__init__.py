"""What attention is: Spec, masks, positions, the one softmax, one layer, streaming.

Here belongs whatever changes the numbers of a layer. Nothing here knows a family of models, a file
or a screen.
"""
