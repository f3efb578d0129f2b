"""The screen of `attn.explain/1`: a derivation's steps and the shapes that flow through them, or another topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import UNSET

from attncli.documents import Numbers
from attncli.draw.lines import (
    FAINT,
    Line,
    Lines,
    Piece,
    clip_lines,
    heading,
    line,
    line_width,
    remark,
    sentences,
    stack,
    stack_spaced,
)
from attncli.draw.numbers import adding_digits, bar, brief, percent, root_of
from attncli.draw.safe import cells, label, pad, spell
from attncli.draw.screen_header import header, shown_tokens
from attncli.draw.sentence import not_learned_note, shaded_sentence
from attncli.draw.shaded_matrix import matrix, visible
from attncli.draw.tables import PROJECTIONS, SHOWN, WHY, ledger, projection_table, vector_sum, vectors
from attncli.draw.token_names import position_and_text, quoted_token, short
from attncli.draw.view import PARTS_OF, View
from attncli.features.explain.document import (
    AttentionTopic,
    ExplainDocument,
    OutputSum,
    Products,
    Projections,
    Scores,
    SoftmaxRow,
)
from attncli.features.run.screen import shapes_part
from attncli.language import say

# The five steps of attention as a whole: the flow of their shapes as a small diagram, and each one's line of code.

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


PARTS = PARTS_OF["explain"]
"""Every part of a derivation, in the order of the screen."""
DEFAULT = ("header", "flow", "projections", "similarity", "scaled", "masked", "softmax", "output", "answer")
"""Those that are shown where none are named: the five steps of one query."""
TWICE = {"scores": ("scaled", "masked")}
"""Names of several parts together."""
LED = ("residual", "matrices")
"""Those that follow the steps; a sentence leads to them."""


def explain_screen(document: ExplainDocument, view: View) -> Lines:
    """The whole screen of an `attn.explain/1` document, of whichever topic."""
    return stack_spaced(explain_blocks(document, view))


def explain_blocks(document: ExplainDocument, view: View) -> list[Lines]:
    """The steps of the screen, one after the other; of a brief one, the answer alone."""
    match document:
        case AttentionTopic():
            blocks = _derivation(document, view)
        case _:
            from attncli.features.explain.layer_screens import topic_blocks

            blocks = [block for block in topic_blocks(document, view) if block.rows]
            blocks = blocks[-1:] if view.brief else blocks
    return [clip_lines(block, view.width, ascii=view.ascii) for block in blocks]


def _is_part_shown(part: str, document: AttentionTopic, view: View) -> bool:
    """Whether a part is shown: those named, or of a full view all, else the five steps, and what was asked to follow
    them."""
    if view.brief:
        return part == "answer"
    if view.show is not None:
        return part in view.show or any(part in TWICE[name] for name in TWICE if name in view.show)
    # a checkpoint always has a residual; of weights of one layer somebody asked for it
    follows = part == "residual" and document.model.source != "checkpoint" and _has_residual(document)
    return view.full or part in DEFAULT or follows


def _has_residual(document: AttentionTopic) -> bool:
    """Whether the input is added to the output, or the sum is normalized."""
    after = document.after
    return after is not UNSET and not (after.sum is UNSET and after.norm is UNSET)


def _derivation(document: AttentionTopic, view: View) -> list[Lines]:
    compact = view.show is None and not view.full
    keys = SHORT if compact else ALL_KEYS
    code = code_lines(document, view.code) if view.code else {}
    derivation_parts = Derivation(document, view, keys, compact, leads=True, code=code)
    blocks: list[Lines] = []
    for part in PARTS:
        if not _is_part_shown(part, document, view):
            continue
        match part:
            case _ if part in PROJECTIONS:
                blocks.append(_projection(part, document, view) if view.show is not None else Lines())
            case "header":
                precision_note = say(view, "explain.more") if compact else say(view, "kept", view.precision)
                place = stack((derivation_parts.place(), remark(precision_note, view)))
                blocks.append(
                    stack((header(document, view), place)) if compact else stack_spaced((header(document, view), place))
                )
            case "flow":
                blocks.append(flow_part(document, view))
            case "tokens":
                blocks.append(shown_tokens(document, view))
            case "shapes":
                blocks.append(shapes_part(document.shapes, view))
            case "answer":
                blocks.append(derivation_parts.answer())
            case _ if part in TWICE:
                continue
            case _:
                part_lines = getattr(derivation_parts, part)()
                lead_sentence = (
                    say(view, f"lead.{part}", say(view, "quoted", derivation_parts.query)) if part in LED else ""
                )
                blocks += [stack((remark(lead_sentence, view, style=""), part_lines))] if part_lines.rows else []
    return blocks


def _projection(part: str, document: AttentionTopic, view: View) -> Lines:
    """One of the head's matrices of weights; that there is none, where there is none."""
    projections = document.projections or {}
    if part not in projections:
        return remark(WHY.get(part, f"this run has no {part}"), view)
    return projection_table(part, projections[part], SHOWN[part].note, view)


def explain_rows(document: ExplainDocument) -> Iterable[list[object]]:
    """The worked numbers as a table with a header line, for `--plain`."""
    if not isinstance(document, AttentionTopic):
        from attncli.features.explain.layer_screens import topic_rows

        yield from topic_rows(document)
        return
    scores, softmax = document.step(Scores), document.step(SoftmaxRow)
    texts = [token.text for token in document.tokens]
    yield ["key", "text", "raw", "scaled", "score", "shifted", "exponential", "weight"]
    for index, raw in enumerate(document.step(Products).raw):
        yield [
            index,
            texts[index] if index < len(texts) else None,
            float(raw),
            float(scores.scaled[index]),
            scores.scores[index],
            softmax.shifted[index],
            softmax.exponentials[index],
            float(softmax.weights[index]),
        ]


# The screen of a derivation: one query's attention step by step, the matrices around it, what it adds up to.

ALL_KEYS, NAME = 16, 14
"""Keys of which each has its own line; of more, the strongest have. And cells of a name."""
SHORT = 4
"""The same on a short screen, unless so many were asked for."""
ROOMY = 72
"""Columns from which on a short screen says of each step in a sentence what it does."""
CODE = "cyan"
"""The style of a line of code."""


@dataclass(frozen=True)
class Derivation:
    """An `attn.explain/1` document about a query, in its view; each method is one part of the screen.

    all_keys: up to so many keys each has its own line. compact: whether parts are short: one key stands for all where
    a step does the same to each. leads: whether each step says first, in a sentence, what it does. code: each step's
    lines of code.
    """

    document: AttentionTopic
    view: View
    all_keys: int = ALL_KEYS
    compact: bool = False
    leads: bool = False
    code: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @cached_property
    def names(self) -> list[str]:
        """The keys' texts; learned keys come after the tokens."""
        learned_names = (f"bias_k {index}" for index in range(self.document.extra_keys))
        return [*(token.text for token in self.document.tokens), *learned_names]

    @property
    def query(self) -> str:
        return short(self.names[self.document.query], NAME, self.view)

    @cached_property
    def weights(self) -> np.ndarray[Any, Any]:
        return np.asarray(self.document.step(SoftmaxRow).weights, np.float64)

    @cached_property
    def keys_shown(self) -> list[int]:
        """The keys with a line of their own, by position."""
        if self.view.full or len(self.names) <= self.all_keys:
            return list(range(len(self.names)))
        most = SHORT - 1 if self.compact and self.view.few else self.view.top  # the others take a line, too
        return sorted(int(index) for index in np.argsort(-self.weights, kind="stable")[:most])

    @cached_property
    def rest(self) -> list[int]:
        return sorted(set(range(len(self.names))) - set(self.keys_shown))

    def key(self, index: int) -> str:
        """A key's position and text."""
        return position_and_text(index, self.names[index], NAME, self.view)

    def _title(self, number: int, part: str, note: str) -> Lines:
        """A step's number and name, its formula with the code beside it, and what it does in a sentence."""
        view = self.view
        title = f"{number} {say(view, part, self.query)}" if number else say(view, part)
        top = heading(title, note, view)
        lines = [spell(text, ascii=view.ascii) for text in self.code.get(part, ())]
        if lines and len(top.rows) == 1 and line_width(top.rows[0]) + 3 + cells("; ".join(lines)) <= view.width:
            top = line(*top.rows[0], ("   ", ""), ("; ".join(lines), CODE))
        elif lines:
            top = stack((top, *(line((f"  {text}", CODE)) for text in lines)))
        # the mask says itself what it hides, and a narrow screen has room for the formulas alone
        leads = self.leads and part != "masked" and not (self.compact and view.width < ROOMY)
        lead_sentence = say(view, f"lead.{part}", say(view, "quoted", self.query)) if leads else ""
        return stack((top, remark(lead_sentence, view, style="")))

    def place(self) -> Lines:
        """Which layer, head and query."""
        document = self.document
        place_text = say(self.view, "place", document.layer, document.head, document.query, self.query)
        return heading(place_text, "", self.view)

    def projections(self) -> Lines:
        """The query's q, and every key's k and v."""
        step, view = self.document.step(Projections), self.view
        rows = self.keys_shown
        names = [self.names[index] for index in rows]
        title = self._title(0, "projections", say(view, "projections.note"))
        rotation_note = remark(say(view, "projections.rotated") if self.document.rotated else "", view)
        if self.compact:
            return stack((title, rotation_note, first_sum(step, self.query, view)))
        q = vectors([step.q], [self.names[self.document.query]], view, title="q", row_numbers=[self.document.query])
        k, v = (
            vectors(np.asarray(getattr(step, name))[rows], names, view, title=name, row_numbers=rows)
            for name in ("k", "v")
        )
        worked_entry = first_entry(step, self.query, view)
        return stack((title, rotation_note, stack_spaced((q, worked_entry, k, v))))

    def similarity(self) -> Lines:
        """q·k for every key, entry by entry; what does not fit is summed in one column, so that rows add up."""
        step, view = self.document.step(Products), self.view
        products, raw = np.asarray(step.products, np.float64), np.asarray(step.raw, np.float64)
        room = view.width - max(cells(self.key(index)) for index in self.keys_shown) - 2
        digits, dims, parts = view.precision, 1, [0.0]
        for _ in range(2):  # more digits take room: settle on both
            slot = digits + 5
            dims = products.shape[1] if view.full or products.shape[1] <= room // slot - 1 else max(room // slot - 2, 1)
            parts = products[:, dims:].sum(axis=1).tolist()
            sums = [
                ([*products[index, :dims], *([parts[index]] if dims < products.shape[1] else [])], raw[index])
                for index in self.keys_shown
            ]
            digits = adding_digits([(list(map(float, terms)), float(total)) for terms, total in sums], view.precision)
        short = dims < products.shape[1]
        columns = [say(view, "column.key"), *map(str, range(dims))]
        columns += [say(view, "rest.dims", products.shape[1] - dims)] if short else []
        rows = [
            [
                self.key(index),
                *(f"{value:.{digits}f}" for value in products[index, :dims]),
                *([f"{parts[index]:.{digits}f}"] if short else []),
                f"{raw[index]:.{view.precision}f}",
            ]
            for index in self.keys_shown
        ]
        title = self._title(1, "similarity", say(view, "similarity.note"))
        return stack((title, ledger([*columns, "q·k"], rows, [], view), self._left_out()))

    def scaled(self) -> Lines:
        """From q·k to the score: scale, soft cap, bias; one key worked out where the screen is short."""
        step, view = self.document.step(Scores), self.view
        model = self.document.model
        root = root_of(step.scale, model.d_k or 0, model.d_model or 0).removeprefix("1/√")
        name = "scores.none" if step.scale == 1 else "scores.root" if root else "scores.note"
        title = self._title(2, "scaled", say(view, name, brief(step.scale), root))
        raw = self.document.step(Products).raw
        plain = step.capped is None and step.bias is None
        if self.compact:
            index = int(np.argmax(self.weights))
            return stack((title, score_of_key(step, self.key(index), index, float(raw[index]), root, view)))
        columns = [say(view, "column.key"), "q·k", *([] if plain else [say(view, "column.scaled")])]
        columns += [say(view, "column.capped")] if step.capped is not None else []
        columns += [say(view, "column.bias")] if step.bias is not None else []
        sums = (step.capped if step.capped is not None else step.scaled) + (0.0 if step.bias is None else step.bias)
        rows = []
        for index in self.keys_shown:
            row = [self.key(index), self._number(raw[index]), *([] if plain else [self._number(step.scaled[index])])]
            row += [self._number(step.capped[index])] if step.capped is not None else []
            row += [self._number(step.bias[index])] if step.bias is not None else []
            rows.append([*row, self._number(sums[index])])
        return stack((title, ledger([*columns, say(view, "column.score")], rows, [], view)))

    def masked(self) -> Lines:
        """Which keys the mask hides from the query, by name."""
        step, view = self.document.step(Scores), self.view
        query_text = quoted_token(self.document.tokens, self.document.query, view)
        hidden_note = hidden_keys(step, query_text, self.key, view)
        return stack((self._title(3, "masked", say(view, "masked.note")), hidden_note))

    def softmax(self) -> Lines:
        """Maximum, exponentials, sum, quotients."""
        step, view = self.document.step(SoftmaxRow), self.view
        title = self._title(4, "softmax", say(view, "softmax.note"))
        if step.highest is None:
            return stack((title, remark(say(view, "empty"), view)))
        exponentials_of_keys = np.asarray(step.exponentials, np.float64)
        exponentials = [
            *exponentials_of_keys[self.keys_shown],
            *([exponentials_of_keys[self.rest].sum()] if self.rest else []),
            *([step.sink] if step.sink is not None else []),
        ]
        shares = [value / step.sum for value in exponentials]
        # two columns that must add up, each with as many digits as that takes
        exp_digits = adding_digits([(list(map(float, exponentials)), float(step.sum))], view.precision)
        digits = adding_digits([(list(map(float, shares)), 1.0)], view.precision)
        columns = [
            say(view, "column.key"),
            say(view, "column.score"),
            "s − max",
            say(view, "column.exp"),
            say(view, "column.weight"),
            "",
        ]
        room = max(min(view.width - 62, 24), 0)
        rows = []
        row_names = [*map(self.key, self.keys_shown), *([say(view, "others", len(self.rest))] if self.rest else [])]
        row_names += [say(view, "softmax.sink")] if step.sink is not None else []
        for place, name in enumerate(row_names):
            index = self.keys_shown[place] if place < len(self.keys_shown) else None
            is_visible = index is not None and step.shifted[index] is not None
            score = self.document.step(Scores).scores[index] if index is not None and is_visible else None
            hidden = spell("−∞", ascii=view.ascii) if index is not None else ""
            rows.append(
                [
                    name,
                    hidden if score is None else self._number(score),
                    self._number(step.shifted[index]) if index is not None and is_visible else hidden,
                    f"{exponentials[place]:.{exp_digits}f}",
                    f"{shares[place]:.{digits}f}",
                    bar(shares[place], room, ascii=view.ascii),
                ]
            )
        ends = [" " * (count - view.precision) for count in (exp_digits, digits)]  # decimal points stay in line
        total = [say(view, "sum"), "", "", self._number(step.sum) + ends[0], self._number(1.0) + ends[1], ""]
        strong = int(np.argmax(shares[: len(self.keys_shown)]))
        body = ledger(
            columns[: 6 if room else 5],
            [row[: 6 if room else 5] for row in rows],
            total[: 6 if room else 5],
            view,
            strong=strong,
            bars=5 if room > 0 else None,
        )
        sink = say(view, "softmax.sink.note") if step.sink is not None else ""
        return stack(
            (
                title,
                body,
                remark("" if self.compact else say(view, "softmax.max", self._number(step.highest)), view),
                remark(sink, view),
            )
        )

    def output(self) -> Lines:
        """The weighted sum, term by term; every printed column adds up."""
        step, view = self.document.step(OutputSum), self.view
        terms, output = np.asarray(step.terms, np.float64), np.asarray(step.output, np.float64)
        room = view.width - max(cells(self.key(index)) for index in self.keys_shown) - 2 - view.precision - 5
        digits, dims = view.precision, 1
        for _ in range(2):
            dims = len(output) if view.full else max(min(len(output), room // (digits + 5)), 1)
            columns = [
                (
                    [*terms[self.keys_shown, index], *([terms[self.rest, index].sum()] if self.rest else [])],
                    output[index],
                )
                for index in range(dims)
            ]
            digits = adding_digits(
                [(list(map(float, terms_of_column)), float(total)) for terms_of_column, total in columns],
                view.precision,
            )
        names = [say(view, "column.key"), "w", *map(str, range(dims))]
        rows = [
            [
                self.key(index),
                self._number(self.weights[index]),
                *(f"{value:.{digits}f}" for value in terms[index, :dims]),
            ]
            for index in self.keys_shown
        ]
        if self.rest:
            rest_terms = terms[self.rest].sum(axis=0)[:dims]
            rows.append(
                [
                    say(view, "others", len(self.rest)),
                    self._number(self.weights[self.rest].sum()),
                    *(f"{value:.{digits}f}" for value in rest_terms),
                ]
            )
        total = ["o", "", *(self._number(value) + " " * (digits - view.precision) for value in output[:dims])]
        title = self._title(5, "output", say(view, "output.note"))
        more = say(view, "shown.dims", dims - 1, len(output)) if dims < len(output) and not self.compact else ""
        return stack((title, ledger(names, rows, total, view), remark(more, view)))

    def matrices(self) -> Lines:
        """The same numbers for every query, the worked one marked, and how far the two agree."""
        return derivation_matrices(self.document, self.names, self.view)

    def residual(self) -> Lines:
        """What follows the heads: concat·W_O, the residual, the norm."""
        return residual(self.document, self.view)

    def answer(self) -> Lines:
        """The sentence, and what the query looks at most."""
        return explain_answer(self.document, self.view)

    def _number(self, value: float | None) -> str:
        text = "" if value is None else f"{value:.{self.view.precision}f}"
        return text[1:] if text.startswith("-") and not text.strip("-0.") else text

    def _left_out(self) -> Lines:
        """How many keys have a line of their own, where not all have."""
        name = "shown.few" if self.compact else "shown.keys"
        return remark(say(self.view, name, len(self.keys_shown), len(self.names)) if self.rest else "", self.view)


# The matrices that a derivation is a row of: X, S, scaled and masked, A and O, for all queries.

MATRIX_NAME = 14
"""Cells of a name."""


def derivation_matrices(document: AttentionTopic, names: Sequence[str], view: View) -> Lines:
    """The same numbers for every query, the worked one marked, and how far the two agree. names: the keys' texts."""
    matrices, query = document.matrices, document.query
    texts = names[: len(document.tokens)]
    mark = spell("▸", ascii=view.ascii)
    rows = [f"{mark}{text}" if index == query else text for index, text in enumerate(texts)]
    # as many digits as let every key have its column, so that the worked row can be found again
    slot = (view.width - MATRIX_NAME - 4) // max(len(names), 1)
    close = view if view.full else replace(view, precision=max(min(view.precision, slot - 5), min(view.precision, 2)))
    blocks = [heading(say(view, "matrices"), say(view, "matrices.note", query), view)]

    def vectors_of(name: str, values: Numbers) -> Lines:
        return vectors(values, rows, close, title=say(view, f"matrix.{name}"), note=say(view, f"matrix.{name}.note"))

    if matrices.x is not UNSET:
        blocks.append(vectors_of("x", matrices.x))
    for name, values in _squares(document):
        blocks.append(
            matrix(
                visible(values, matrices.scores if name in ("scores", "weights") else UNSET),
                rows,
                names,
                close,
                limits=(0.0, 1.0) if name == "weights" else None,
                signed=name != "weights",
                title=say(view, f"matrix.{name}"),
                note=say(view, f"matrix.{name}.note"),
            )
        )
    blocks.append(vectors_of("output", matrices.output))
    return stack((stack_spaced(blocks), remark(say(view, "agrees", f"{document.agreement:.1e}"), view)))


def _squares(document: AttentionTopic) -> list[tuple[str, object]]:
    """The matrices [query, key] in order, without those that the next step leaves as they are."""
    matrices = document.matrices
    squares: list[tuple[str, object]] = []
    if matrices.raw is not UNSET and matrices.scaled is not UNSET:
        if not np.array_equal(matrices.raw, matrices.scaled):
            squares.append(("raw", matrices.raw))
        if not np.array_equal(matrices.scaled, matrices.scores):
            squares.append(("scaled", matrices.scaled))
    return [*squares, ("scores", matrices.scores), ("weights", matrices.weights)]


# What a derivation adds to the steps: one entry of q worked out, the residual and layer norm, the answer.

TERMS = 6
"""Products of one entry that have a line of their own."""
MENTIONED = 6
"""Hidden keys that are named; of more, the number is told."""
PRODUCTS = 1
"""The same where an entry is told in one line."""


def first_entry(step: Projections, name: str, view: View) -> Lines:
    """q_0 = Σ x_i·W_Q[i, 0] + bias, the largest products line by line; nothing where the document has no column of
    W_Q."""
    column = step.column
    if column is UNSET:
        return Lines()
    x, weights = np.asarray(step.x, np.float64), np.asarray(column, np.float64)
    products = x * weights
    largest_indices = (
        sorted(np.argsort(-np.abs(products), kind="stable")[:TERMS].tolist()) if not view.full else range(len(x))
    )
    rest = float(products.sum() - products[list(largest_indices)].sum())
    bias = None if step.bias is UNSET else step.bias
    total = float(products.sum() + (bias or 0.0))
    terms = (
        [float(products[index]) for index in largest_indices]
        + ([rest] if len(largest_indices) < len(x) else [])
        + ([bias] if bias is not None else [])
    )
    digits = adding_digits([(terms, total)], view.precision)
    write = f"{{:.{view.precision}f}}".format
    exact = f"{{:.{digits}f}}".format
    rows = [[str(index), write(x[index]), write(weights[index]), exact(products[index])] for index in largest_indices]
    if len(largest_indices) < len(x):
        rows.append([say(view, "others", len(x) - len(largest_indices)), "", "", exact(rest)])
    if bias is not None:
        rows.append([say(view, "worked.bias"), "", "", exact(bias)])
    ends = " " * (digits - view.precision)
    return ledger(
        ["i", "x_i", "W_Q[i, 0]", "x_i · W_Q[i, 0]"],
        rows,
        [say(view, "worked.total"), "", "", write(total) + ends],
        view,
        title=say(view, "worked.title", name),
        note=say(view, "worked.note"),
    )


def first_sum(step: Projections, name: str, view: View) -> Lines:
    """q_0 in one line, its first product written out; where the document has no column of W_Q, q itself."""
    column = step.column
    if column is UNSET:
        return vectors([step.q], [name], view, title="q")
    x, weights = np.asarray(step.x, np.float64), np.asarray(column, np.float64)
    bias = 0.0 if step.bias is UNSET else step.bias
    write = f"{{:.{view.precision}f}}".format

    def factor(value: float) -> str:
        return f"({write(value)})" if value < 0 else write(value)

    terms = [f"{factor(x[index])}·{factor(weights[index])}" for index in range(min(len(x), PRODUCTS))]
    terms += [say(view, "worked.others", len(x) - PRODUCTS)] if len(x) > PRODUCTS else []
    terms += [factor(bias)] if step.bias is not UNSET else []
    sum_text = f"{' + '.join(terms)} = {write(float(x @ weights) + bias)}"
    return remark(spell(say(view, "worked.line", name, sum_text), ascii=view.ascii), view)


def score_of_key(step: Scores, name: str, index: int, raw: float, root: str, view: View) -> Lines:
    """The score of one key in a line: q·k scaled, capped, and with what its position adds. root: of what it is divided
    by the square root, if it is."""

    def write(value: float) -> str:
        return f"{value:.{view.precision}f}"

    value = raw
    parts = [write(value)]
    if step.scale != 1:
        parts.append(
            f"{write(value)} {f'/ √{root}' if root else f'× {brief(step.scale)}'} = {write(step.scaled[index])}"
        )
        value = float(step.scaled[index])
    if step.capped is not None:
        cap = brief(step.softcap or 0.0)
        parts.append(f"{cap}·tanh({write(value)} / {cap}) = {write(step.capped[index])}")
        value = float(step.capped[index])
    if step.bias is not None:
        bias_sum = f"{write(value)} + {write(step.bias[index])} = {write(value + float(step.bias[index]))}"
        parts.append(bias_sum.replace("+ -", "− "))
    score_text = say(view, "scaled.worked", name, say(view, "multihead.and").join(parts))
    return remark(spell(score_text, ascii=view.ascii), view)


def hidden_keys(step: Scores, query_text: str, name: Callable[[int], str], view: View) -> Lines:
    """Which keys the mask hides from the query, the first by name; or that it hides none."""
    hidden = [index for index, is_visible in enumerate(step.visible) if not is_visible]
    if not hidden:
        return remark(say(view, "masked.none", query_text, len(step.visible)), view, style="")
    most = len(hidden) if view.full else MENTIONED
    names = say(view, "list.comma").join(name(index) for index in hidden[:most])
    more = say(view, "masked.more", len(hidden) - most) if len(hidden) > most else ""
    hidden_sentence = say(view, "masked.hidden", query_text, len(hidden), len(step.visible), f"{names}{more}")
    return remark(spell(hidden_sentence, ascii=view.ascii), view, style="")


def residual(document: AttentionTopic, view: View) -> Lines:
    """The query's row after the heads: each head's part of concat·W_O, then x + o and its norm where the layer has
    them."""
    after = document.after
    if after is UNSET:
        return Lines()
    mixed = Lines()
    if after.heads is not UNSET:
        terms = [(say(view, "multihead.share", index), share) for index, share in enumerate(after.heads)]
        terms += [("b_O", after.bias)] if after.bias is not UNSET else []
        title, note = say(view, "after.heads"), say(view, "after.heads.note")
        mixed = vector_sum(terms, ("O", after.out), view, title=title, note=note)
    rows = [("x", after.x), ("out", after.out), ("sum", after.sum), ("norm", after.norm)]
    vectors_by_name = [(say(view, f"after.{name}"), values) for name, values in rows if values is not UNSET]
    if len(vectors_by_name) < 3:  # neither residual nor norm
        return mixed
    query = label(document.tokens[document.query].text, ascii=view.ascii)
    title = say(view, "after", query)
    note = say(view, "after.note.norm" if after.norm is not UNSET else "after.note")
    return stack_spaced(
        (
            mixed,
            vectors(
                [values for _, values in vectors_by_name],
                [name for name, _ in vectors_by_name],
                view,
                title=title,
                note=note,
            ),
        )
    )


def explain_answer(document: AttentionTopic, view: View) -> Lines:
    """The sentence tinted by the query's weights, and what it looks at most."""
    tokens, query = document.tokens, document.query
    softmax = document.step(SoftmaxRow)
    weights: Sequence[float] = [float(value) for value in softmax.weights[: len(tokens)]]
    tinted_sentence = shaded_sentence(document.text, tokens, weights, view, query=query, tint="answer.tint.row")
    best = int(np.argmax(weights))
    query_text, sought = (quoted_token(tokens, at, view, beside=(query, best)) for at in (query, best))
    link_sentence = say(view, "answer.blind", query_text)
    if weights[best] > 0:
        link_sentence = say(view, "answer.looks.one", query_text, sought, percent(weights[best]))
    return stack((tinted_sentence, sentences((link_sentence, not_learned_note(document.model, view)), view)))
