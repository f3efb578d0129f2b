"""The screen of `attn.scan/1`: a metric of every head, labels with their intervals, examples of one head."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from attncli.analysis.documents.scan import LEAST_TEXTS, ScanDocument, ScanEffect, ScanHead, ScanLabel
from attncli.render.glyphs import spell
from attncli.render.head_grid import drawn_grid, head_grid
from attncli.render.headings import heading, remark, sentences
from attncli.render.lines import Lines, clipped, spaced, stack
from attncli.render.numbers import percent
from attncli.render.phrases import say, say_each
from attncli.render.phrases.head_labels import label_name
from attncli.render.safe import label, safe
from attncli.render.screen_parts import PARTS_OF
from attncli.render.tables import table
from attncli.render.view import View

PARTS = PARTS_OF["scan"]
"""Every part, in the order of the screen."""
RESTING = ("special-token", "first-token sink")
"""Labels of heads that rest where there is nothing to say."""
EXAMPLES = 5
SPACED = 64
"""Columns of a terminal from which on intervals have spaces around their dash; labels are whole in narrower ones."""


def scan_screen(
    document: ScanDocument, view: View, *, metric: str | None = None, head: tuple[int, int] | None = None
) -> Lines:
    """The whole screen. metric: of the grid and the examples, None for the first. head: one to show closely."""
    shown = metric or next(iter(document.heads[0].metrics), "") if document.heads else ""
    default = (
        {"header", "metrics", "effects", "examples", "answer"}
        if head is not None
        else {"header", "grid", "labels", "effects", "answer"}
    )
    wanted = {"answer"} if view.brief else default if view.show is None else view.show
    chosen = next((one for one in document.heads if (one.layer, one.head) == head), None)
    blocks = []
    for part in PARTS:
        if part not in wanted:
            continue
        match part:
            case "header":
                blocks.append(_header(document, view))
            case "grid" if document.heads and shown in document.heads[0].metrics:
                blocks.append(_grid(document, shown, view))
            case "labels" if document.heads and document.plan.labels:
                blocks.append(_labels(document, view))
            case "effects" if document.plan.effects and (chosen is None or chosen.effect):
                blocks.append(_effects(document, [chosen] if chosen is not None else document.heads, view))
            case "metrics" if chosen is not None:
                blocks.append(_metrics(chosen, view))
            case "examples" if chosen is not None:
                blocks.append(_examples(chosen, shown, view))
            case "answer":
                blocks.append(_answer(document, view) if chosen is None else _answer_of(chosen, document, view))
            case _:
                pass
    return clipped(spaced(blocks), view.width, ascii=view.ascii)


def scan_rows(document: ScanDocument) -> Iterator[Sequence[object]]:
    """Every metric of every head, for `--plain`."""
    yield ("layer", "head", "metric", "texts", "rows", "mean_texts", "mean_rows", "sd", "low", "high", "baseline")
    for head in document.heads:
        for name, one in head.metrics.items():
            low, high = one.ci95 or (None, None)
            yield (
                head.layer, head.head, name, one.texts, one.rows, one.mean_texts, one.mean_rows, one.sd, low, high,
                one.baseline,
            )  # fmt: skip


def _header(document: ScanDocument, view: View) -> Lines:
    done = document.done
    skipped = [say(view, f"scan.{reason}", f"{count:,}") for reason, count in done.skipped.items() if count]
    if done.truncated:
        skipped.append(say(view, "scan.truncated", f"{done.truncated:,}"))
    corpus = document.plan.corpus
    names = ", ".join(safe(name) for name in corpus[:3]) + (f" … ({len(corpus)})" if len(corpus) > 3 else "")
    rows = [
        [say(view, "scan.model"), f"{safe(document.plan.model)} · {document.plan.dtype}"],
        [say(view, "scan.corpus"), names],
        [
            say(view, "scan.done"),
            say(
                view,
                "scan.done.value",
                *done.shards,
                _texts(document, view),
                say(view, "scan.tokens", f"{done.tokens:,}"),
            ),
        ],
    ]
    if skipped:
        rows.append([say(view, "scan.skipped"), " · ".join(skipped)])
    rows += [[say(view, "scan.failed"), f"{one.shard}: {safe(one.reason)}"] for one in done.failed[:5]]
    if document.digest is not None:
        rows.append([say(view, "scan.digest"), document.digest[:16]])
    told = [remark(safe(said), view) for said in document.warnings]
    return stack((table(["", ""], rows, view, title=say(view, "scan.title", f"{done.texts:,}"), faint=(0,)), *told))


def _grid(document: ScanDocument, name: str, view: View) -> Lines:
    grid = head_grid((one.layer, one.head, one.metrics[name].mean_texts) for one in document.heads)
    return drawn_grid(grid, view, title=name, note=say(view, "scan.grid.note"))


def _labels(document: ScanDocument, view: View) -> Lines:
    found = [(head, one) for head in document.heads for one in head.labels if one.earned or _between(one)]
    if not found:
        return heading(say(view, "scan.labels"), say(view, "scan.none"), view)
    shown = found if view.full else sorted(found, key=lambda pair: -_strength(pair[1]))[: view.top]
    rows = [
        [
            f"L{head.layer} H{head.head}",
            _label(one, view),
            number(one.score, view),
            _interval(one.ci95, view),
            say(view, "scan.repeats") if one.texts is None else _share(one.texts, one.texts_ci95, view),
            "" if not one.borderline else say(view, "scan.borderline" if _between(one) else "scan.undecided"),
        ]
        for head, one in sorted(shown, key=lambda pair: (pair[0].layer, pair[0].head))
    ]
    interval = "interval" if view.width >= SPACED else "between"
    names = [*say_each(view, "scan.column", "head", "label", "score", interval, "texts"), ""]
    if not any(row[-1] for row in rows):
        names, rows = names[:-1], [row[:-1] for row in rows]
    body = table(
        names,
        rows,
        view,
        align=["left", "left", "right", "left", "right", "left"],
        title=say(view, "scan.labels"),
        note=say(view, "scan.labels.note"),
    )
    if len(shown) == len(found):
        return body
    return stack((body, remark(say(view, "scan.labels.more", len(shown), len(found)), view)))


def _label(one: ScanLabel, view: View) -> str:
    """A label with its offset; in another language with its English name, by which it is looked up."""
    name = f"{one.name} {one.detail}" if one.detail else one.name
    said = label_name(name, view.lang)
    return name if said == name else f"{said} {one.name}"


def _effects(document: ScanDocument, heads: Sequence[ScanHead], view: View) -> Lines:
    found = [(head, head.effect) for head in heads if isinstance(head.effect, ScanEffect)]
    rows = [
        [
            f"L{head.layer} H{head.head}",
            _turn(one.mean, view),
            _interval(one.ci95, view, _turn),
            _turn(one.sd, view),
            _turn(one.quantiles.get("50"), view),
        ]
        for head, one in sorted(found, key=lambda pair: -(pair[1].mean or 0.0))
    ]
    return table(
        say_each(view, "scan.column", "head", "mean", "interval", "sd", "median"),
        rows,
        view,
        align=["left", "right", "left", "right", "right"],
        title=say(view, "scan.effects"),
        note=say(view, f"scan.effects.{document.plan.effects[0]}"),
    )


def _strength(one: ScanLabel) -> float:
    return (one.score or 0.0) / one.threshold


def number(value: float | None, view: View) -> str:
    """A statistic, with a digit more than the view's: intervals are narrow."""
    return "-" if value is None else f"{value:.{view.precision + 1}f}"


def _turn(value: float | None, view: View) -> str:
    """An effect, with two more digits: most heads turn a vector by thousandths."""
    return number(value, replace(view, precision=view.precision + 2))


def _interval(between: list[float] | None, view: View, written: Callable[[float | None, View], str] = number) -> str:
    if between is None:
        return "-"
    space = "" if view.width < SPACED and between[0] >= 0 else " "
    return f"{space}{spell('–', ascii=view.ascii)}{space}".join(written(end, view) for end in between)


def _share(share: float, between: list[float] | None, view: View) -> str:
    """A share in percents, with its interval."""
    if between is None:
        return percent(share)
    ends = spell("–", ascii=view.ascii).join(f"{100 * end:.0f}" for end in between)
    return f"{percent(share)} ({ends})"


def _metrics(head: ScanHead, view: View) -> Lines:
    rows = [
        [
            name,
            number(one.mean_texts, view),
            _interval(one.ci95, view),
            number(one.mean_rows, view),
            number(one.sd, view),
            number(one.quantiles.get("50"), view),
            number(one.baseline, view),
        ]
        for name, one in head.metrics.items()
        if not name.startswith("offset") or view.full
    ]
    names = ("metric", "mean", "interval", "rows", "sd", "median", "uniform")
    return table(
        say_each(view, "scan.column", *names),
        rows,
        view,
        align=["left", "right", "left", "right", "right", "right", "right"],
        title=say(view, "scan.metrics", f"L{head.layer} H{head.head}"),
        note=say(view, "scan.metrics.note"),
    )


def _examples(head: ScanHead, name: str, view: View) -> Lines:
    found = [one for one in head.top if one.metric == name][: None if view.full else EXAMPLES if view.few else view.top]
    written = number if name in head.metrics else _turn
    rows = [
        [written(one.value, view), f"{one.file}:{one.line + 1}", label(one.text, ascii=view.ascii)] for one in found
    ]
    return table(
        [say(view, "scan.column.value"), "", say(view, "scan.column.text")],
        rows,
        view,
        align=["right", "left", "left"],
        title=say(view, "scan.examples", f"L{head.layer} H{head.head}", name),
        note=say(view, "scan.examples.note"),
        faint=(1,),
    )


def _answer(document: ScanDocument, view: View) -> Lines:
    done, total = document.done.shards
    said = []
    if document.heads:
        labelled = sum(any(one.earned for one in head.labels) for head in document.heads)
        between = sum(any(map(_between, head.labels)) for head in document.heads)
        few = _few(document, view)
        name = "scan.answer" if document.plan.labels else "scan.answer.unlabelled"
        told = say(view, "scan.open") if few else say(view, "scan.between", between)
        said.append(say(view, name, labelled, len(document.heads), _texts(document, view), told))
        said += [*few, *_even(document.heads, document, view)]
        resting = sum(any(one.earned and one.name in RESTING for one in head.labels) for head in document.heads)
        if resting:
            said.append(say(view, "scan.answer.sink", resting))
    if done < total:
        said.append(say(view, "scan.unfinished", done, total))
    return sentences(said, view)


def _between(one: ScanLabel) -> bool:
    """Whether a label's interval holds what it takes."""
    return one.borderline and one.ci95 is not None


def _few(document: ScanDocument, view: View) -> list[str]:
    """That the texts are too few for intervals, where no number has one."""
    if any(one.ci95 for head in document.heads for one in head.metrics.values()):
        return []
    return [say(view, "scan.few", document.done.texts, LEAST_TEXTS)]


def _even(heads: Sequence[ScanHead], document: ScanDocument, view: View) -> list[str]:
    """How many means have no interval, of texts that are enough for some."""
    missing = sum(one.ci95 is None and one.texts >= LEAST_TEXTS for head in heads for one in head.metrics.values())
    return [say(view, "scan.even", missing)] if missing and not _few(document, view) else []


def _texts(document: ScanDocument, view: View) -> str:
    return say(view, "scan.texts", f"{document.done.texts:,}")


def _answer_of(head: ScanHead, document: ScanDocument, view: View) -> Lines:
    earned = [f"{_label(one, view)} ({number(one.score, view)})" for one in head.labels if one.earned]
    name = "scan.answer.head" if earned else "scan.answer.head.none"
    comma = say(view, "scan.comma")
    said = say(view, name, head.layer, head.head, comma.join(earned), _texts(document, view))
    return sentences([said, *_few(document, view), *_even([head], document, view)], view)
