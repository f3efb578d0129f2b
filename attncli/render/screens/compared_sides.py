"""What is compared: the two sides, the words that differ, what ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attncli.render.headings import own, remark
from attncli.render.lines import Lines, line, stack
from attncli.render.safe import cut, safe
from attncli.render.screens.header import SIDE, counted, fact, warning
from attncli.render.screens.side_differences import in_words
from attncli.render.sentence import sentence, words
from attncli.render.token_names import quoted_token
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.compare import CompareDocument, CompareSide

DIFFERS = 0.6
"""The tint of words that differ."""
NAMED = 8
"""Words that only one side has that are named."""


def compared_sides(document: CompareDocument, view: View) -> Lines:
    """The two sides, their words that differ tinted; what ran, once where it is the same; in what they differ."""
    blocks = []
    same = _ran(document.a, view) == _ran(document.b, view)
    texts = "text" in document.differs
    for letter in "ab":
        side = getattr(document, letter)
        blocks.append(line((letter.upper(), "bold"), "  ", (own(safe(side.name, ascii=view.ascii), view), "bold")))
        if texts:
            alone = frozenset(getattr(document.only, letter))
            tinted = [DIFFERS if at in alone else 0.0 for at in range(len(side.tokens))]
            blocks.append(sentence(words(side.text, side.tokens, tinted, frozenset()), view))
        blocks += [] if same else [fact("ran", _ran(side, view), view)]
    if not texts:
        text = cut(safe(document.a.text, ascii=view.ascii), max(view.width - SIDE, 10), ascii=view.ascii)
        blocks.append(fact("text", [text], view, ours=False))
    blocks += _aligned(document, view)
    blocks += [fact("ran", _ran(document.a, view), view)] if same else []
    blocks.append(fact("differs in", in_words(document.differs), view))
    blocks += [warning(said, view) for said in document.warnings]
    return stack(blocks)


def _ran(side: CompareSide, view: View) -> list[str]:
    """What computed a side's weights, in parts."""
    model, attention = side.model, side.attention
    found = [
        safe(model.source, ascii=view.ascii),
        f"seed {model.seed}" if model.source in ("seeded", "random") else "",
        safe(model.name or "", ascii=view.ascii),
        f"scale {attention.scale:.6g}" if attention.scale is not None else "",
        f"mask {safe(attention.mask, ascii=view.ascii)}",
        f"position {safe(attention.position, ascii=view.ascii)}",
        f"hash attention {safe(attention.hashing, ascii=view.ascii)}" if attention.hashing else "",
        f"{attention.backend} {attention.dtype}",
    ]
    return [part for part in found if part]


def _aligned(document: CompareDocument, view: View) -> list[Lines]:
    """Which tokens are compared, where not all are."""
    only = document.only
    if not only.a and not only.b:
        moved = any(left != right for left, right in document.aligned)
        return (
            [remark("the same tokens in another order: each is compared with itself, in the order of A", view)]
            if moved
            else []
        )
    found = []
    for letter in "ab":
        if places := getattr(only, letter):
            tokens = getattr(document, letter).tokens
            named = [quoted_token(tokens, at, view) for at in places[: len(places) if view.full else NAMED]]
            more = len(places) - len(named)
            named += [f"… (+{more})"] if more else []
            found.append(fact(f"only in {letter.upper()}", [" ".join(named)], view, ours=False))
    found.append(remark(f"compared: {counted(len(document.aligned), 'token')} that both texts have", view))
    return found
