"""How a result looks: text, tables, matrices, the shaded sentence; figures/ and page/ beside them.

Here belongs whatever several screens share, as `Lines` laid out to the cell. What one command alone
shows stands in the `screen.py` of its feature. Text of users and models goes through `safe`.
"""
