"""`attn series`: when heads form over the checkpoints of one model."""
