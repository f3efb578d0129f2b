"""`attn series`: what heads do over the checkpoints of one model."""
