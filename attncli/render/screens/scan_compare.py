"""The screen of `attn.scan_compare/1`: where two scans differ most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attncli.analysis.documents.scan_compare import ScanCompareDocument
from attncli.render.headings import remark, sentences
from attncli.render.lines import Lines, clipped, spaced
from attncli.render.phrases import say, say_each
from attncli.render.safe import safe
from attncli.render.screens.scan import number
from attncli.render.tables import table
from attncli.render.view import View

FALSE_RATE = 0.05
"""The share of false discoveries that is borne."""


def scan_compare_screen(document: ScanCompareDocument, view: View) -> Lines:
    """The whole screen: the largest effects, and how many are news."""
    if view.brief:
        return clipped(_answer(document, view), view.width, ascii=view.ascii)
    shown = document.differences if view.full else document.differences[: view.top]
    rows = [
        [
            f"L{one.layer} H{one.head}",
            one.metric,
            number(one.a, view),
            number(one.b, view),
            number(one.difference, view),
            number(one.cliffs_delta, view),
            number(one.cohens_d, view),
            "-" if one.q is None else f"{one.q:.2g}",
        ]
        for one in shown
    ]
    names = say_each(view, "scan.column", "head", "metric")
    names += ["a", "b", *say_each(view, "scan.column", "difference", "delta", "d", "q")]
    body = table(
        names,
        rows,
        view,
        align=["left", "left", *["right"] * 6],
        title=say(view, "scan.compare.title", safe(document.a.model), safe(document.b.model)),
        note=say(view, "scan.compare.note"),
    )
    told = [remark(safe(said), view) for said in document.warnings]
    if len(shown) < len(document.differences):
        told.append(remark(say(view, "scan.compare.more", len(shown), len(document.differences)), view))
    return clipped(spaced((body, *told, _answer(document, view))), view.width, ascii=view.ascii)


def scan_compare_rows(document: ScanCompareDocument) -> Iterator[Sequence[object]]:
    """Every difference, for `--plain`."""
    yield ("layer", "head", "metric", "a", "b", "difference", "low", "high", "cohens_d", "cliffs_delta", "z", "p", "q")
    for one in document.differences:
        low, high = one.ci95 or (None, None)
        yield (
            one.layer, one.head, one.metric, one.a, one.b, one.difference, low, high, one.cohens_d, one.cliffs_delta,
            one.z, one.p, one.q,
        )  # fmt: skip


def _answer(document: ScanCompareDocument, view: View) -> Lines:
    news = sum(one.q is not None and one.q < FALSE_RATE for one in document.differences)
    said = [say(view, "scan.compare.answer", news, len(document.differences))]
    first = document.differences[0] if document.differences else None
    if first is not None and not any(one.difference or one.cliffs_delta for one in document.differences):
        return remark(say(view, "scan.compare.same"), view, style="")
    if first is not None:
        said.append(
            say(
                view,
                "scan.compare.largest",
                f"L{first.layer} H{first.head}",
                first.metric,
                number(first.a, view),
                number(first.b, view),
                number(first.cliffs_delta, view),
            )
        )
    return sentences(said, view)
