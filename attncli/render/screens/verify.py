"""The screen of `attn.verify/1`: how far a checkpoint's run is from transformers' own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from attncli.analysis.documents.verify import Float32Distance, LayerDifference, VerifyDocument
from attncli.render.headings import remark
from attncli.render.lines import Lines, finished, line, spaced, stack
from attncli.render.numbers import brief
from attncli.render.safe import cut, safe
from attncli.render.screens.header import counted, fact
from attncli.render.tables import table
from attncli.render.view import View

COLUMNS = ("side", "layer", "weights", "worst head", "cross", "vectors", "relative")


def verify_screen(document: VerifyDocument, view: View) -> Lines:
    """One row per layer with its largest differences, then both verdicts."""
    wide, single = document.float64, document.float32
    top = stack(
        (
            line((cut(safe(document.name, ascii=view.ascii), view.width, ascii=view.ascii), "bold")),
            fact(
                "compared",
                ["transformers, eager", f"attn on {document.backend}", counted(document.tokens, "token")],
                view,
            ),
            fact("text", [safe(document.text, ascii=view.ascii)], view),
        )
    )
    rows = [[layer.side, str(layer.layer), *_numbers(layer)] for layer in document.layers]
    align = ["left", *["right"] * (len(COLUMNS) - 1)]
    body = table(list(COLUMNS), rows, view, align=align, title="largest |difference| from transformers, float64")
    verdict = "equal within the limits" if document.passed else "NOT equal within the limits"
    told = [
        f"float64: at most {wide.worst:.1e} relative, allowed {wide.limit:.0e}.",
        f"float32: {_single(single)}",
    ]
    end = stack(
        (line((verdict, "bold green" if document.passed else "bold red")), *(remark(said, view) for said in told))
    )
    return finished(spaced((top, body, end)), view)


def verify_rows(document: VerifyDocument) -> Iterator[Sequence[object]]:
    """One row per layer and head for `--plain`, cross-attention after self-attention."""
    yield ("side", "layer", "attention", "head", "weights", "vectors", "relative")
    for layer in document.layers:
        for kind, heads in (("self", layer.weights), ("cross", layer.cross)):
            for head, difference in enumerate(heads):
                yield (layer.side, layer.layer, kind, head, difference, layer.hidden, layer.relative)


def _single(found: Float32Distance) -> str:
    """What float32 gave; a distance is null, or no number, where numbers left its range."""
    ours, theirs, ratio = (getattr(found, name) for name in ("ours", "theirs", "ratio"))
    if any(one is None or not isfinite(one) for one in (ours, theirs)):
        return "some numbers are too large for it."
    times = "unboundedly many" if ratio is None or not isfinite(ratio) else brief(round(ratio, 3))
    said = f"{ours:.1e} from float64 (root mean square), {times} times transformers' own {theirs:.1e}"
    return f"{said}, allowed {brief(found.limit)} times."


def _numbers(layer: LayerDifference) -> list[str]:
    weights = layer.weights
    worst = max(range(len(weights)), key=lambda head: weights[head])
    cross = f"{max(layer.cross):.1e}" if layer.cross else "-"
    hidden = "-" if layer.hidden is None else f"{layer.hidden:.1e}"
    return [f"{weights[worst]:.1e}", str(worst), cross, hidden, f"{layer.relative:.1e}"]
