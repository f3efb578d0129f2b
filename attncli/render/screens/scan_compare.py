"""The screen of `attn.scan_compare/1`: where two scans differ most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attncli.analysis.documents.scan_compare import ScanCompareDocument
from attncli.render.headings import remark, sentences
from attncli.render.lines import Lines, clipped, spaced
from attncli.render.phrases import say
from attncli.render.safe import cells, safe
from attncli.render.screens.scan import number
from attncli.render.tables import GAP, table
from attncli.render.view import View

FALSE_RATE = 0.05
"""The share of false discoveries that is borne."""


def scan_compare_screen(document: ScanCompareDocument, view: View) -> Lines:
    """The whole screen: the largest effects, and how many are news."""
    if view.brief:
        return clipped(_answer(document, view), view.width, ascii=view.ascii)
    shown = document.differences if view.full else document.differences[: view.top]
    columns = {
        "head": [f"L{one.layer} H{one.head}" for one in shown],
        "metric": [one.metric for one in shown],
        "a": [number(one.a, view) for one in shown],
        "b": [number(one.b, view) for one in shown],
        "difference": [number(one.difference, view) for one in shown],
        "delta": [number(one.cliffs_delta, view) for one in shown],
        "d": [number(one.cohens_d, view) for one in shown],
        "q": ["-" if one.q is None else f"{one.q:.2g}" for one in shown],
    }
    names = {name: name if name in ("a", "b") else say(view, f"scan.column.{name}") for name in columns}
    left_out = _left_out(names, columns, view.width)
    kept = [name for name in columns if name not in left_out]
    body = table(
        [names[name] for name in kept],
        list(zip(*(columns[name] for name in kept), strict=True)),
        view,
        align=["left", "left", *["right"] * (len(kept) - 2)],
        title=say(view, "scan.compare.title", safe(document.a.model), safe(document.b.model)),
        note=say(view, "scan.compare.note"),
    )
    told = [remark(safe(said), view) for said in document.warnings]
    if left_out:
        comma = say(view, "scan.comma")
        told.append(remark(say(view, "scan.compare.narrow", comma.join(names[name] for name in left_out)), view))
    every = len(document.differences)
    if len(shown) < every:
        told.append(remark(say(view, "scan.compare.more", f"{len(shown):,}", f"{every:,}", every), view))
    return clipped(spaced((body, *told, _answer(document, view))), view.width, ascii=view.ascii)


def _left_out(names: Mapping[str, str], columns: Mapping[str, Sequence[str]], width: int) -> list[str]:
    """The columns that are left out so that the others fit; none where not even that would do."""
    wide = {name: max(map(cells, [names[name], *some])) + GAP for name, some in columns.items()}
    for left_out in ([], ["d"], ["a", "b", "d"]):
        if sum(one for name, one in wide.items() if name not in left_out) - GAP <= width:
            return left_out
    return left_out


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
    said = [say(view, "scan.compare.answer", f"{news:,}", f"{len(document.differences):,}")]
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
