"""What a number is: one set of array operations, on NumPy and on torch.

Here belongs whatever the two libraries do differently, and nothing about attention. `backend` is
the protocol, the other files implement it; torch is imported nowhere else.
"""
