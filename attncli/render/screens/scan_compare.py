"""The screen of `attn.scan_compare/1`: where two scans differ most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attncli.analysis.documents.scan_compare import ScanCompareDocument
from attncli.render.headings import remark, sentences
from attncli.render.lines import Lines, clip_lines, stack_spaced
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
        return clip_lines(_comparison_answer(document, view), view.width, ascii=view.ascii)
    differences = document.differences if view.full else document.differences[: view.top]
    columns = {
        "head": [f"L{difference.layer} H{difference.head}" for difference in differences],
        "metric": [difference.metric for difference in differences],
        "a": [number(difference.a, view) for difference in differences],
        "b": [number(difference.b, view) for difference in differences],
        "difference": [number(difference.difference, view) for difference in differences],
        "delta": [number(difference.cliffs_delta, view) for difference in differences],
        "d": [number(difference.cohens_d, view) for difference in differences],
        "q": ["-" if difference.q is None else f"{difference.q:.2g}" for difference in differences],
    }
    names = {name: name if name in ("a", "b") else say(view, f"scan.column.{name}") for name in columns}
    hidden_columns = _columns_left_out(names, columns, view.width)
    columns_shown = [name for name in columns if name not in hidden_columns]
    body = table(
        [names[name] for name in columns_shown],
        list(zip(*(columns[name] for name in columns_shown), strict=True)),
        view,
        align=["left", "left", *["right"] * (len(columns_shown) - 2)],
        title=say(view, "scan.compare.title", safe(document.a.model), safe(document.b.model)),
        note=say(view, "scan.compare.note"),
    )
    notes = [remark(safe(warning_text), view) for warning_text in document.warnings]
    if hidden_columns:
        comma = say(view, "scan.comma")
        notes.append(remark(say(view, "scan.compare.narrow", comma.join(names[name] for name in hidden_columns)), view))
    total = len(document.differences)
    if len(differences) < total:
        notes.append(remark(say(view, "scan.compare.more", f"{len(differences):,}", f"{total:,}", total), view))
    return clip_lines(stack_spaced((body, *notes, _comparison_answer(document, view))), view.width, ascii=view.ascii)


def _columns_left_out(names: Mapping[str, str], columns: Mapping[str, Sequence[str]], width: int) -> list[str]:
    """The columns that are left out so that the others fit; none where not even that would do."""
    wide = {name: max(map(cells, [names[name], *column])) + GAP for name, column in columns.items()}
    for hidden_columns in ([], ["d"], ["a", "b", "d"]):
        if sum(column_width for name, column_width in wide.items() if name not in hidden_columns) - GAP <= width:
            return hidden_columns
    return hidden_columns


def scan_compare_rows(document: ScanCompareDocument) -> Iterator[Sequence[object]]:
    """Every difference, for `--plain`."""
    yield ("layer", "head", "metric", "a", "b", "difference", "low", "high", "cohens_d", "cliffs_delta", "z", "p", "q")
    for difference in document.differences:
        low, high = difference.ci95 or (None, None)
        yield (
            difference.layer, difference.head, difference.metric, difference.a, difference.b, difference.difference,
            low, high, difference.cohens_d, difference.cliffs_delta, difference.z, difference.p, difference.q,
        )  # fmt: skip


def _comparison_answer(document: ScanCompareDocument, view: View) -> Lines:
    news = sum(difference.q is not None and difference.q < FALSE_RATE for difference in document.differences)
    answer_sentences = [say(view, "scan.compare.answer", f"{news:,}", f"{len(document.differences):,}")]
    first = document.differences[0] if document.differences else None
    if first is not None and not any(
        difference.difference or difference.cliffs_delta for difference in document.differences
    ):
        return remark(say(view, "scan.compare.same"), view, style="")
    if first is not None:
        answer_sentences.append(
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
    return sentences(answer_sentences, view)
