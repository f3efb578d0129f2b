"""Tables of the stages of attention: what is on the way from embeddings to the output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET, Struct

from attncli.documents import Numbers, ShapeRow
from attncli.draw.lines import (
    Lines,
    remark,
    stack_spaced,
)
from attncli.draw.shaded_matrix import (
    as_matrix,
    matrix,
)
from attncli.draw.tables import vectors
from attncli.draw.token_names import key_names
from attncli.draw.view import View
from attncli.language import listing, message, term
from attncli.mechanism.spec import spoken_head
from attncli.mechanism.trace import STAGES, formula_with_bias

if TYPE_CHECKING:
    from attncli.documents.parts import RunHead, RunLayer
    from attncli.features.run.document import RunDocument


class StageTable(Struct, frozen=True):
    """How the table of a stage (an array on the way to the output, such as the scores) is shown.

    stage: its name in the document.
    title, note: its heading in English.

    square: whether it is [query, key]; else it has a vector in each row.
    head: whether each head has its own.
    """

    stage: str
    title: str
    note: str
    square: bool = False
    head: bool = True


SHOWN = {
    "embedding": StageTable("embedding", "embeddings E", "one vector per token", head=False),
    "positions": StageTable("position", "positions P", "one vector per position", head=False),
    "input": StageTable(
        "hidden", "input X", "X = E + P where positions are added, else X = E", head=False
    ),
    "W_Q": StageTable("W_Q", "W_Q", "what a row x is multiplied with to give q"),
    "W_K": StageTable("W_K", "W_K", "what a row x is multiplied with to give k"),
    "W_V": StageTable("W_V", "W_V", "what a row x is multiplied with to give v"),
    "W_O": StageTable(
        "W_O", "W_O", "what the heads' outputs, side by side, are multiplied with", head=False
    ),
    "q": StageTable("q", "queries Q", "Q = X·W_Q"),
    "k": StageTable("k", "keys K", "K = X·W_K"),
    "v": StageTable("v", "values V", "V = X·W_V"),
    "raw": StageTable("raw", "similarity S", "S = Q·Kᵀ, before scaling", square=True),
    "scaled": StageTable("scaled", "scaled S", "S / √d_k, or as --scale says", square=True),
    "capped": StageTable("capped", "capped S", "c·tanh(S / c)", square=True),
    "biased": StageTable("biased", "biased S", "S plus what depends on the distance", square=True),
    "masked": StageTable(
        "masked", "masked S", "−∞ where hidden: what enters the softmax", square=True
    ),
    "concat": StageTable(
        "out",
        "output of all heads",
        "concat(O₁ … O_h)·W_O, or without W_O as they stand",
        head=False,
    ),
    "sum": StageTable(
        "sum", "residual X + O", "the input added to what attention gives", head=False
    ),
    "norm": StageTable(
        "norm", "layer norm of X + O", "each row to mean 0 and variance 1", head=False
    ),
}
"""The parts that `--show` may name beyond those that are always there, in the order of the
computation.
"""


PROJECTIONS = ("W_Q", "W_K", "W_V", "W_O")
"""The parts that are weights of the model, not results of the run."""


SCORES = ("raw", "scaled", "capped", "biased", "masked")
"""The parts that hold a number for every pair of query and key."""


WHY = {
    "W_O": message("no W_O here; --num-heads 2 or --output-projection has one"),
    "embedding": message(
        "no positions are added here, so E is the input X; --position sinusoidal adds them"
    ),
    "positions": message("no positions are added here; --position sinusoidal adds them"),
    "capped": message("no soft cap here; --softcap 5 adds one"),
    "biased": message("no bias here; --position alibi adds one"),
    "masked": message("nothing is masked here; --mask causal masks"),
    "sum": message("no residual here; --residual adds one"),
    "norm": message("no layer norm here; --residual --layer-norm adds one"),
}


TURNED = message(
    "rope adds no vector to the input: it turns queries and keys by angles that grow with their"
    " position (attn explain position)"
)
SUBTRACTED = message(
    "alibi adds no vector to the input: it subtracts slope × distance from the scores"
    " (attn explain position)"
)


def stage_part(part: str, document: RunDocument, view: View) -> Lines:
    """The table of a stage of attention (such as the scores) of a run: of the first head, or of all
    in a full view; where the run has none, a remark that says why.

    part: the stage, by its name in `SHOWN`.
    """
    stage_table = SHOWN[part]
    if document.pieces is not UNSET:
        return remark(message("words have no {part}: only weights are merged", part=part), view)
    if view.full:
        layers = document.layers
    else:
        layers = document.layers[:1]
    blocks = []
    for layer in layers:
        # a stage is held by each head, or once by the layer (None)
        heads: Sequence[RunHead | None] = [None]
        if stage_table.head:
            heads = layer.heads if view.full else layer.heads[:1]
        for head in heads:
            if head is None:
                holder: RunHead | RunLayer = layer
                place = message("layer {layer}", layer=layer.layer)
            else:
                holder = head
                place = spoken_head(layer.layer, head.head)
            note = listing((place, term(_formula(stage_table, document))), " · ")
            arrays = holder.projections if part in PROJECTIONS else holder.stages
            stages = arrays or {}
            values = stages.get(stage_table.stage)
            if values is not None and part in PROJECTIONS:
                # (): the rows of a weight matrix are no tokens
                blocks.append(vectors(values, (), view, title=stage_table.title, note=note))
            elif values is not None and not _did_nothing(part, stages):
                blocks.append(_stage_values(stage_table, values, note, document, view))
    if not document.layers:
        return remark("tables of stages are those of one layer: --layer L --head H", view)
    if not blocks:
        return remark(
            why_absent(part, document.shapes, document.model.source, document.attention.position),
            view,
        )
    return stack_spaced(*blocks)


def why_absent(part: str, shapes: Sequence[ShapeRow], source: str, position: str) -> str:
    """The remark on why there is no table of a stage: which option adds it to a run, or that it was
    not kept.

    part: the stage's name, such as "scaled".
    shapes, source: the run's shape trace, and where its weights come from.
    position: its position encoding.
    """
    if part in ("embedding", "positions") and position.startswith("rope"):
        return TURNED
    if part in ("embedding", "positions") and position.startswith("alibi"):
        return SUBTRACTED
    names = {row.step for row in shapes}
    is_not_kept = part == "W_O" and "concat" in names  # the run had it, a saved document has not
    # a checkpoint has what it has: only its scores are changed by options
    is_of_options = source != "checkpoint" or part in SCORES
    if part in WHY and is_of_options and not is_not_kept:
        return WHY[part]
    return message("no {part} is kept here", part=part)


def _formula(stage_table: StageTable, document: RunDocument) -> str:
    """The formula of a stage below its table, as `_own_formula` has it; of queries and keys that rope
    rotates, that too."""
    stage = stage_table.stage
    formula = _own_formula(stage_table, document)
    if stage not in ("q", "k") or not document.attention.position.startswith("rope"):
        return formula
    # layers with other positions are named with theirs: "rope (0, 2), none (1)"
    if " " in document.attention.position:
        rotated = message("after rotation by position in layers that have rope")
    else:
        rotated = message("after rotation by position (rope)")
    return listing((formula, rotated), ", ")


def _own_formula(stage_table: StageTable, document: RunDocument) -> str:
    """The formula of a stage before positions turn it: with a bias where the projection has one, else
    the table's own note."""
    stage = stage_table.stage
    formulas = {row.step: row.formula for row in document.shapes}
    if stage not in formulas or not STAGES[stage].bias:
        return stage_table.note
    # the shape trace has another formula than the declared one where there is a bias
    if stage != "out" and formulas[stage] != STAGES[stage].formula:
        return formulas[stage]
    if formulas[stage] == formula_with_bias(stage):  # "out", whose note is longer than its formula
        return message("concat(O₁ … O_h)·W_O + b_O")
    return stage_table.note


def _did_nothing(part: str, stages: Mapping[str, Numbers]) -> bool:
    """Whether a step (soft cap, bias or mask) changed none of the scores, so that its table would
    repeat the one before.

    part: the stage after that step, such as "capped".
    stages: arrays of a head by name.
    """
    before = {"capped": "scaled", "biased": "capped", "masked": "biased"}
    if part not in before:
        return False
    # the step before may not be kept: then the scaled scores, which every step begins with
    earlier = stages.get(before[part], stages.get("scaled"))
    return earlier is not None and np.array_equal(
        as_matrix(stages[part]), as_matrix(earlier), equal_nan=True
    )


def _stage_values(
    stage_table: StageTable, values: Numbers, note: str, document: RunDocument, view: View
) -> Lines:
    """A table of the numbers of a stage: a matrix of queries and keys, or a vector in each row.

    note: beside the title: which head or layer, and the formula.
    """
    texts = [token.text for token in document.tokens]
    # rows are all tokens, or the document's queries
    numbers = None
    rows = texts
    if len(values) != len(texts) and document.queries is not UNSET:
        numbers = document.queries
        rows = [texts[index] for index in numbers]
    if stage_table.square:
        names = key_names(texts, values)
        return matrix(
            values,
            rows,
            names,
            view,
            signed=True,
            title=stage_table.title,
            note=note,
            row_numbers=numbers,
        )
    return vectors(values, rows, view, title=stage_table.title, note=note, row_numbers=numbers)
