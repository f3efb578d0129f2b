"""How a result looks: text, tables, matrices, the shaded sentence; figures and the page."""
