"""The screen of `attn.explain/1`: a derivation's steps and the shapes that flow through them, or
another topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from msgspec import UNSET
from msgspec.structs import replace

from attncli.draw.lines import FAINT, Line, Lines, Piece, clip_lines, remark, stack, stack_spaced
from attncli.draw.names import arrow
from attncli.draw.numbers import brief, root_of
from attncli.draw.safe import cells, pad, spell
from attncli.draw.screen_header import header, shown_tokens
from attncli.draw.tables import vectors
from attncli.draw.view import Parts, ScreenPart, View, never, parts_shown
from attncli.features.explain.derivation_screen import ALL_KEYS, SHORT, Derivation, lead_remark
from attncli.features.explain.document import (
    AttentionTopic,
    ExplainDocument,
    Products,
    Scores,
    SoftmaxRow,
)
from attncli.features.run.screen import shapes_part
from attncli.features.run.stage_tables import SHOWN, why_absent
from attncli.language import say

# The five steps of attention as a whole: the flow of their shapes as a small diagram, and each
# one's line of code.

LIBRARIES = {"numpy": "np", "torch": "torch"}
"""The libraries that steps are written in, and the name that each is imported by."""


def flow_part(document: AttentionTopic, view: View) -> Lines:
    """A diagram of the computation with the shape below each array: X → Q, K, V → 1 QKᵀ → 2 scale →
    3 mask → 4 softmax → 5 A·V → O."""
    # the shape of each array, such as "4×64"; one for queries, keys and values where they share it
    sizes = {row.step: "×".join(map(str, row.shape[-2:])) for row in document.shapes}
    square = sizes.get("weights", "")
    out = sizes.get("mixed", "")
    vectors = sizes.get("q", "")
    if len({sizes.get(name, vectors) for name in ("q", "k", "v")}) > 1:
        vectors = ", ".join(sizes.get(name, "") for name in ("q", "k", "v"))
    steps = [
        ("X", sizes.get("hidden", "")),
        ("Q, K, V", vectors),
        ("1 QKᵀ", square),
        (f"2 {say(view, 'scale')}", square),
        (f"3 {say(view, 'mask')}", square),
        ("4 softmax", square),
        ("5 A·V", ""),
        ("O", out),
    ]

    # pairs of lines, the names above the shapes, with an arrow before each name but the first; a new
    # pair begins where the screen ends
    rows: list[Line] = []
    names: list[Piece] = []
    shapes: list[Piece] = []
    row_width = 0
    before = ""
    for step_name, step_shape in steps:
        name = spell(step_name, ascii=view.ascii)
        shape = spell(step_shape, ascii=view.ascii)
        room = max(cells(name), cells(shape))
        if row_width and row_width + cells(before) + room > view.width:
            rows += [tuple(names), tuple(shapes)]
            names = []
            shapes = []
            row_width = 0
        names += [(before, FAINT), (pad(name, room), "bold")]
        shapes += [(" " * cells(before), ""), (pad(shape, room), FAINT)]
        row_width += cells(before) + room
        before = arrow(view)
    return Lines((*rows, tuple(names), tuple(shapes)))


def code_lines(document: AttentionTopic, library: str) -> dict[str, Sequence[str]]:
    """The lines of code that compute each step, by the step's name; all together compute a head's
    output `o` from its `q`, `k` and `v`. In them `bias` is what positions add to the scores,
    `visible` what the mask lets a query see, and `sink` the logit of a learned sink.

    library: "numpy" or "torch".
    """
    name = LIBRARIES[library]
    scores = document.step(Scores)
    softmax = document.step(SoftmaxRow)
    model = document.model

    # a scale such as 1/√64 is written as a root
    root = root_of(scores.scale, model.d_k or 0, model.d_model or 0).removeprefix("1/√")
    if root and library == "numpy":
        scaled = [f"s = s / {name}.sqrt({root})"]
    elif root:
        scaled = [f"s = s / {root} ** 0.5"]
    else:
        scaled = [f"s = s * {scores.scale!r}"]
    if scores.softcap is not None:
        # the short form, unless it is another number
        cap = brief(scores.softcap)
        if float(cap) != scores.softcap:
            cap = repr(scores.softcap)
        scaled.append(f"s = {cap} * {name}.tanh(s / {cap})")
    if scores.bias is not None:
        scaled.append("s = s + bias")

    hidden = f"{name}.where(visible, s, -{name}.inf)"
    weights = _softmax_code(library, sink=softmax.sink is not None, empty=bool(document.empty_rows))
    return {
        "similarity": ["s = q @ k.T"],
        "scaled": scaled,
        "masked": [f"s = {hidden}"],
        "softmax": weights,
        "output": ["o = a @ v"],
    }


def _softmax_code(library: str, *, sink: bool, empty: bool) -> list[str]:
    """The lines of code that turn scores `s` into weights `a` by a softmax over each row.

    library: "numpy" or "torch".
    sink: whether a learned sink is in its sum.
    empty: whether a row may have no visible key, whose weights are set to 0.
    """
    # beside a sink scores are not shifted by their maximum, which would have to count the sink, too
    if library == "torch" and not sink:
        lines = ["a = torch.softmax(s, dim=-1)"]
    elif library == "torch":
        lines = ["e = torch.exp(s)", "a = e / (e.sum(-1, keepdim=True) + torch.exp(sink))"]
    elif sink:
        lines = ["e = np.exp(s)", "a = e / (e.sum(-1, keepdims=True) + np.exp(sink))"]
    else:
        lines = ["e = np.exp(s - s.max(-1, keepdims=True))", "a = e / e.sum(-1, keepdims=True)"]
    if empty:
        return [*lines, f"a = {LIBRARIES[library]}.nan_to_num(a)"]
    return lines


TWICE = {"scores": ("scaled", "masked")}
"""Names of several parts together."""


def explain_screen(document: ExplainDocument, view: View) -> Lines:
    """The whole screen of an `attn.explain/1` document, of whichever topic."""
    return stack_spaced(*explain_blocks(document, view))


def explain_blocks(document: ExplainDocument, view: View) -> list[Lines]:
    """The screen as a list of blocks, one per step (`--step` waits between them); the answer alone
    in a brief view.
    """
    match document:
        case AttentionTopic():
            blocks = _derivation_blocks(document, view)
        case _:
            from attncli.features.explain.layer_screens import TOPIC_SCREENS

            topic_blocks, _ = TOPIC_SCREENS[type(document)]
            blocks = [block for block in topic_blocks(document, view) if block.rows]
            if view.brief:
                # the last block is the answer
                blocks = blocks[-1:]
    return [clip_lines(block, view.width, ascii=view.ascii) for block in blocks]


def _derivation_blocks(document: AttentionTopic, view: View) -> list[Lines]:
    """The parts of a derivation's screen that are shown and draw something, in order."""
    # without --show and --full the screen is short
    compact = view.show is None and not view.full
    all_keys = ALL_KEYS  # up to so many keys each has its own line
    if compact:
        all_keys = SHORT
    code: dict[str, Sequence[str]] = {}
    if view.code:
        code = code_lines(document, view.code)
    derivation = Derivation(document, view, all_keys, compact, leads=True, code=code)

    # names of several parts are replaced by these parts
    named_view = view
    if view.show is not None:
        parts = [part for name in view.show for part in TWICE.get(name, (name,))]
        named_view = replace(view, show=frozenset(parts))

    blocks: list[Lines] = []
    for part in parts_shown(EXPLAIN_PARTS, derivation, named_view):
        block = part.draw(derivation, view)
        if compact and part.name == "further" and blocks:
            # no blank line before it, so that a short screen has less than sixty lines
            blocks[-1] = stack(blocks[-1], block)
        elif block.rows:
            blocks.append(block)
    return blocks


def _is_full(derivation: Derivation, view: View) -> bool:
    """Whether tokens, shapes and matrices are shown without --show: in a full view."""
    return view.full


def _shows_residual(derivation: Derivation, view: View) -> bool:
    """Whether the part on the residual is shown without being asked for: in a full view, or where
    the model is no checkpoint and was given a residual or a norm."""
    after = derivation.document.after
    has_residual = after is not UNSET and not (after.sum is UNSET and after.norm is UNSET)
    return view.full or (derivation.document.model.source != "checkpoint" and has_residual)


def _header_part(derivation: Derivation, view: View) -> Lines:
    """The header of the document, which query is worked out, and how numbers are rounded or what
    shows more.
    """
    if derivation.compact:
        precision_note = say(view, "more: --full, --step, --code numpy, --show matrices")
    else:
        precision_note = say(
            view,
            "Numbers are rounded to {digits} digits. Columns of terms have as many more as they "
            "need to add up to the printed totals.",
            digits=view.precision,
        )
    blocks = (
        header(derivation.document, view),
        stack(derivation.place(), remark(precision_note, view)),
    )
    if derivation.compact:
        return stack(*blocks)
    return stack_spaced(*blocks)


def _projection_part(name: str, derivation: Derivation, view: View) -> Lines:
    """The table of one of the head's weight matrices, such as W_Q, or a line that says why there is
    none.
    """
    document = derivation.document
    projections = document.projections or {}
    if name not in projections:
        return remark(
            why_absent(name, document.shapes, document.model.source, document.attention.position),
            view,
        )
    return vectors(projections[name], (), view, title=name, note=SHOWN[name].note)


def _step_part(name: str, derivation: Derivation, view: View) -> Lines:
    """The part of the screen drawn by the method `name` of the derivation."""
    lines: Lines = getattr(derivation, name)()
    return lines


def _part_after_steps(name: str, derivation: Derivation, view: View) -> Lines:
    """The part of the screen drawn by the derivation's method `name`, with an introductory
    sentence; no lines where it draws none."""
    lines = _step_part(name, derivation, view)
    if lines.rows:
        return stack(lead_remark(name, derivation.quoted_query, view), lines)
    return Lines()


EXPLAIN_PARTS: Parts[Derivation] = (
    ScreenPart("header", _header_part),
    ScreenPart("flow", lambda derivation, view: flow_part(derivation.document, view)),
    ScreenPart(
        "tokens", lambda derivation, view: shown_tokens(derivation.document, view), _is_full
    ),
    ScreenPart(
        "shapes", lambda derivation, view: shapes_part(derivation.document.shapes, view), _is_full
    ),
    ScreenPart("W_Q", partial(_projection_part, "W_Q"), never),
    ScreenPart("W_K", partial(_projection_part, "W_K"), never),
    ScreenPart("W_V", partial(_projection_part, "W_V"), never),
    ScreenPart("W_O", partial(_projection_part, "W_O"), never),
    ScreenPart("projections", partial(_step_part, "projections")),
    ScreenPart("similarity", partial(_step_part, "similarity")),
    ScreenPart("scaled", partial(_step_part, "scaled")),
    ScreenPart("masked", partial(_step_part, "masked")),
    ScreenPart(
        "scores", lambda derivation, view: Lines(), never
    ),  # stands for several parts, see `TWICE`
    ScreenPart("softmax", partial(_step_part, "softmax")),
    ScreenPart("output", partial(_step_part, "output")),
    ScreenPart("further", partial(_step_part, "further")),
    ScreenPart("residual", partial(_part_after_steps, "residual"), _shows_residual),
    ScreenPart("matrices", partial(_part_after_steps, "matrices"), _is_full),
    ScreenPart("answer", lambda derivation, view: derivation.answer()),
)


def explain_page(document: ExplainDocument, lang: str) -> bytes | None:
    """The page of a derivation, its steps side by side with their pictures; None for another
    topic."""
    if not isinstance(document, AttentionTopic):
        return None
    from attncli.features.explain.page import derivation_page

    return derivation_page(document, lang)


def explain_rows(document: ExplainDocument) -> Iterable[list[object]]:
    """Yield the table for `--plain`: the names of its columns, then the numbers of the derivation, a
    row for each key; or the table of another topic."""
    if not isinstance(document, AttentionTopic):
        from attncli.features.explain.layer_screens import TOPIC_SCREENS

        _, topic_rows = TOPIC_SCREENS[type(document)]
        yield from topic_rows(document)
        return
    scores = document.step(Scores)
    softmax = document.step(SoftmaxRow)
    texts = [token.text for token in document.tokens]
    yield ["key", "text", "raw", "scaled", "score", "shifted", "exponential", "weight"]
    for index, raw in enumerate(document.step(Products).raw):
        text = None  # a learned key, behind the tokens
        if index < len(texts):
            text = texts[index]
        yield [
            index,
            text,
            float(raw),
            float(scores.scaled[index]),
            scores.scores[index],
            softmax.shifted[index],
            softmax.exponentials[index],
            float(softmax.weights[index]),
        ]
