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
    """The arrow between the query and the key of a link, between before and after, with a blank at each side."""
    return f" {bare_arrow(view)} "


def bare_arrow(view: View) -> str:
    """The arrow without blanks, for a column of its own."""
    return spell(ARROW, ascii=view.ascii)


def link_label(query: str, key: str, view: View) -> str:
    """The name of a link on screens, of its ends as they are written there."""
    return f"{query}{arrow(view)}{key}"


def link_title(query: str, key: str) -> str:
    """The name of a link above a figure, set wider."""
    return f"{query}  {ARROW}  {key}"
