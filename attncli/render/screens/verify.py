"""The screen of `attn.verify/1`: how far a checkpoint's run is from transformers' own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from attncli.analysis.documents.verify import Float32Distance, LayerDifference, VerifyDocument
from attncli.render.headings import remark
from attncli.render.lines import Lines, fit_to_view, line, stack, stack_spaced
from attncli.render.numbers import brief
from attncli.render.phrases import say, say_each
from attncli.render.safe import cut, safe
from attncli.render.screens.header import count_phrase, fact
from attncli.render.tables import table
from attncli.render.view import View

COLUMNS = ("side", "layer", "weights", "head", "cross", "vectors", "relative")


def verify_screen(document: VerifyDocument, view: View) -> Lines:
    """One row per layer with its largest differences, then both verdicts."""
    wide, single = document.float64, document.float32
    top = stack(
        (
            line((cut(safe(document.name, ascii=view.ascii), view.width, ascii=view.ascii), "bold")),
            fact(
                "compared",
                ["transformers, eager", f"attn on {document.backend}", count_phrase(document.tokens, "token")],
                view,
            ),
            fact("text", [safe(document.text, ascii=view.ascii)], view),
        )
    )
    rows = [[say(view, f"verify.side.{layer.side}"), str(layer.layer), *_numbers(layer)] for layer in document.layers]
    align = ["left", *["right"] * (len(COLUMNS) - 1)]
    names = say_each(view, "verify.column", *COLUMNS)
    body = table(names, rows, view, align=align, title=say(view, "verify.title"))
    verdict = say(view, "verify.equal" if document.passed else "verify.unequal")
    notes = [say(view, "verify.float64", f"{wide.worst:.1e}", f"{wide.limit:.0e}"), _single(single, view)]
    end = stack(
        (line((verdict, "bold green" if document.passed else "bold red")), *(remark(note, view) for note in notes))
    )
    return fit_to_view(end if view.brief else stack_spaced((top, body, end)), view)


def verify_rows(document: VerifyDocument) -> Iterator[Sequence[object]]:
    """One row per layer and head for `--plain`, cross-attention after self-attention."""
    yield ("side", "layer", "attention", "head", "weights", "vectors", "relative")
    for layer in document.layers:
        for kind, heads in (("self", layer.weights), ("cross", layer.cross)):
            for head, difference in enumerate(heads):
                yield (layer.side, layer.layer, kind, head, difference, layer.hidden, layer.relative)


def _single(distance: Float32Distance, view: View) -> str:
    """What float32 gave; a distance is null, or no number, where numbers left its range."""
    run_distance, reference_distance, ratio = (getattr(distance, name) for name in ("ours", "theirs", "ratio"))
    if any(value is None or not isfinite(value) for value in (run_distance, reference_distance)):
        return say(view, "verify.float32.large")
    is_unbounded = ratio is None or not isfinite(ratio)
    times = say(view, "verify.float32.unbounded") if is_unbounded else brief(round(ratio, 3))
    return say(view, "verify.float32", f"{run_distance:.1e}", times, f"{reference_distance:.1e}", brief(distance.limit))


def _numbers(layer: LayerDifference) -> list[str]:
    weights = layer.weights
    worst = max(range(len(weights)), key=lambda head: weights[head])
    cross = f"{max(layer.cross):.1e}" if layer.cross else "-"
    hidden = "-" if layer.hidden is None else f"{layer.hidden:.1e}"
    return [f"{weights[worst]:.1e}", str(worst), cross, hidden, f"{layer.relative:.1e}"]
