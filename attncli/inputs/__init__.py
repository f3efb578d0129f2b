"""Where text and numbers come from: files, tokenizers, checkpoints, downloads.

Here belongs whatever reads what somebody else wrote, within bounds, and refuses it in the user's
words. What the numbers mean to a model is said in `models`.
"""
