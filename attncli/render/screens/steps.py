"""The five steps of attention as a whole: the flow of their shapes as a small diagram, and each one's line of code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attncli.analysis.documents.derivation import Scores, SoftmaxRow
from attncli.render.glyphs import spell
from attncli.render.headings import FAINT
from attncli.render.lines import Line, Lines, Piece
from attncli.render.numbers import brief, root_of
from attncli.render.phrases import say
from attncli.render.safe import cells, pad
from attncli.render.view import View

if TYPE_CHECKING:
    from attncli.analysis.documents.derivation import AttentionTopic

LIBRARIES = {"numpy": "np", "torch": "torch"}
"""The libraries that steps are written in, and the name that each is imported by."""


def flow_part(document: AttentionTopic, view: View) -> Lines:
    """X → Q, K, V → 1 QKᵀ → 2 scale → 3 mask → 4 softmax → 5 A·V → O, each with its shape below it."""
    sizes = {row.step: "×".join(map(str, row.shape[-2:])) for row in document.shapes}
    square, out = sizes.get("weights", ""), sizes.get("mixed", "")
    vectors = sizes.get("q", "")
    # one size where queries, keys and values share it
    if len({sizes.get(name, vectors) for name in ("q", "k", "v")}) > 1:
        vectors = ", ".join(sizes.get(name, "") for name in ("q", "k", "v"))
    steps = [
        ("X", sizes.get("hidden", "")), ("Q, K, V", vectors), ("1 QKᵀ", square),
        (f"2 {say(view, 'flow.scale')}", square), (f"3 {say(view, 'flow.mask')}", square),
        ("4 softmax", square), ("5 A·V", ""), ("O", out),
    ]  # fmt: skip
    arrow = spell(" → ", ascii=view.ascii)
    rows: list[Line] = []
    names: list[Piece] = []
    shapes: list[Piece] = []
    row_width = 0
    for index, (name, shape) in enumerate(
        (spell(name_text, ascii=view.ascii), spell(shape_text, ascii=view.ascii)) for name_text, shape_text in steps
    ):
        room = max(cells(name), cells(shape))
        before = arrow if index else ""
        if row_width and row_width + cells(before) + room > view.width:
            rows += [tuple(names), tuple(shapes)]
            names, shapes, row_width = [], [], 0
        names += [(before, FAINT), (pad(name, room), "bold")]
        shapes += [(" " * cells(before), ""), (pad(shape, room), FAINT)]
        row_width += cells(before) + room
    return Lines((*rows, tuple(names), tuple(shapes)))


def code_lines(document: AttentionTopic, library: str) -> dict[str, Sequence[str]]:
    """Each step's lines of code, by the part of the screen that they stand in: one after the other they compute the
    head's output `o` from its `q`, `k` and `v`, for all queries.

    What the run adds by its positions is called `bias`, what may be seen `visible`, a learned sink's logit `sink`.
    library: "numpy" or "torch".
    """
    name = LIBRARIES[library]
    scores, softmax = document.step(Scores), document.step(SoftmaxRow)
    model = document.model
    root = root_of(scores.scale, model.d_k or 0, model.d_model or 0).removeprefix("1/√")
    by = f"s / {name}.sqrt({root})" if root and library == "numpy" else f"s / {root} ** 0.5" if root else ""
    scaled = [f"s = {by or f's * {scores.scale!r}'}"]
    if scores.softcap is not None:
        cap = brief(scores.softcap) if float(brief(scores.softcap)) == scores.softcap else repr(scores.softcap)
        scaled.append(f"s = {cap} * {name}.tanh(s / {cap})")
    if scores.bias is not None:
        scaled.append("s = s + bias")
    hidden = f"{name}.where(visible, s, -{name}.inf)"
    weights = _weights(library, sink=softmax.sink is not None, empty=bool(document.empty_rows))
    return {
        "similarity": ["s = q @ k.T"],
        "scaled": scaled,
        "masked": [f"s = {hidden}"],
        "softmax": weights,
        "output": ["o = a @ v"],
    }


def _weights(library: str, *, sink: bool, empty: bool) -> list[str]:
    """The softmax of each row; with a learned sink in its sum, and 0 for a row that sees nothing."""
    if library == "torch" and not sink:
        lines = ["a = torch.softmax(s, dim=-1)"]
    elif library == "torch":
        lines = ["e = torch.exp(s)", "a = e / (e.sum(-1, keepdim=True) + torch.exp(sink))"]
    elif sink:
        lines = ["e = np.exp(s)", "a = e / (e.sum(-1, keepdims=True) + np.exp(sink))"]
    else:
        lines = ["e = np.exp(s - s.max(-1, keepdims=True))", "a = e / e.sum(-1, keepdims=True)"]
    return [*lines, f"a = {LIBRARIES[library]}.nan_to_num(a)"] if empty else lines
