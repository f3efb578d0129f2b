"""How a link is written on a screen and in a figure.

The arrow itself and the names that documents and errors take as well, `plain_link` of a link and
`head_name`, `head_label`, `spoken_head` of a head, are in `attncli.mechanism.spec`; what tokens are
called is in `attncli.draw.token_names`.
"""

from __future__ import annotations

from attncli.draw.safe import spell
from attncli.draw.view import View
from attncli.mechanism.spec import ARROW


def arrow(view: View) -> str:
    """The arrow, with a blank on each side, from a link's query to its key, or from a state before
    to one after; `->` in ASCII."""
    return f" {bare_arrow(view)} "


def bare_arrow(view: View) -> str:
    """The arrow without blanks, for a column of its own; `->` in ASCII."""
    return spell(ARROW, ascii=view.ascii)


def link_label(query: str, key: str, view: View) -> str:
    """The name of a link on screens, `it → cat`, from its query and key as they are written there."""
    return f"{query}{arrow(view)}{key}"


def link_title(query: str, key: str) -> str:
    """The name of a link above a figure: `it  →  cat`, with two blanks on each side of the arrow."""
    return f"{query}  {ARROW}  {key}"
