"""What is compared: the two sides, the words that differ, what ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attncli.render.headings import localize, remark
from attncli.render.lines import Lines, line, stack
from attncli.render.safe import cut, safe
from attncli.render.screens.header import SIDE, count_phrase, fact, warning
from attncli.render.screens.side_differences import difference_names
from attncli.render.sentence import sentence, words
from attncli.render.token_names import quoted_token
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.compare import CompareDocument, CompareSide

DIFFERS = 0.6
"""The tint of words that differ."""
MOST_NAMES = 8
"""Words that only one side has that are named."""


def compared_sides(document: CompareDocument, view: View) -> Lines:
    """The two sides, their words that differ tinted; what ran, once where it is the same; in what they differ."""
    blocks = []
    same = _run_facts(document.a, view) == _run_facts(document.b, view)
    texts = "text" in document.differs
    for letter in "ab":
        side = getattr(document, letter)
        blocks.append(line((letter.upper(), "bold"), "  ", (localize(safe(side.name, ascii=view.ascii), view), "bold")))
        if texts:
            only_here = frozenset(getattr(document.only, letter))
            shares = [DIFFERS if index in only_here else 0.0 for index in range(len(side.tokens))]
            blocks.append(sentence(words(side.text, side.tokens, shares, frozenset()), view))
        blocks += [] if same else [fact("ran", _run_facts(side, view), view)]
    if not texts:
        text = cut(safe(document.a.text, ascii=view.ascii), max(view.width - SIDE, 10), ascii=view.ascii)
        blocks.append(fact("text", [text], view, is_ours=False))
    blocks += _alignment_notes(document, view)
    blocks += [fact("ran", _run_facts(document.a, view), view)] if same else []
    blocks.append(fact("differs in", difference_names(document.differs), view))
    blocks += [warning(warning_text, view) for warning_text in document.warnings]
    return stack(blocks)


def _run_facts(side: CompareSide, view: View) -> list[str]:
    """What computed a side's weights, in parts."""
    model, attention = side.model, side.attention
    facts = [
        safe(model.source, ascii=view.ascii),
        f"seed {model.seed}" if model.source in ("seeded", "random") else "",
        safe(model.name or "", ascii=view.ascii),
        f"scale {attention.scale:.6g}" if attention.scale is not None else "",
        f"mask {safe(attention.mask, ascii=view.ascii)}",
        f"position {safe(attention.position, ascii=view.ascii)}",
        f"hash attention {safe(attention.hashing, ascii=view.ascii)}" if attention.hashing else "",
        f"{attention.backend} {attention.dtype}",
    ]
    return [part for part in facts if part]


def _alignment_notes(document: CompareDocument, view: View) -> list[Lines]:
    """Which tokens are compared, where not all are."""
    only = document.only
    if not only.a and not only.b:
        has_moved = any(left != right for left, right in document.aligned)
        return (
            [remark("the same tokens in another order: each is compared with itself, in the order of A", view)]
            if has_moved
            else []
        )
    notes = []
    for letter in "ab":
        if places := getattr(only, letter):
            tokens = getattr(document, letter).tokens
            token_names = [
                quoted_token(tokens, index, view) for index in places[: len(places) if view.full else MOST_NAMES]
            ]
            more = len(places) - len(token_names)
            token_names += [f"… (+{more})"] if more else []
            notes.append(fact(f"only in {letter.upper()}", [" ".join(token_names)], view, is_ours=False))
    notes.append(remark(f"compared: {count_phrase(len(document.aligned), 'token')} that both texts have", view))
    return notes
