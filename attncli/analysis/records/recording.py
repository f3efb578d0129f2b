"""Records of a run that is made for something else, taken from what it computes: nothing runs twice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from attncli.analysis.links import kinds_left_out
from attncli.analysis.records.feeding import arithmetic, feed, feed_whole
from attncli.analysis.records.head import HeadRecord, LayerRecords, Sides
from attncli.analysis.words import identities
from attncli.arrays.backend import EVERY, Selection, numbers_of
from attncli.inputs.token import Token
from attncli.mechanism.attend import RowBlock
from attncli.mechanism.trace import LayerTrace
from attncli.models.model import Model

STAGES = ("weights", "entropy", "capped", "biased")
"""What is needed of each block: the last two differ by the bias."""
WHOLE = ("weights", "masked", "capped", "biased")
"""What is needed of a layer that is computed at once."""


class Recording:
    """Traces a model as `Model.trace` does, and keeps a record of each head on the way.

    heads: which; exact: as for `LayerRecords`. Records of layers that are not traced do not come. Nothing
    n × n is held that the run does not hold itself, but weights that queries and keys do not give.
    """

    def __init__(self, model: Model, tokens: Sequence[Token], heads: Selection = EVERY, *, exact: bool = False) -> None:
        self._model, self._heads, self._exact = model, heads, exact
        token_list = list(tokens)
        self.sides = Sides(token_list, token_list, names=identities(tokens, None))
        self._layers: dict[int, LayerRecords] = {}
        self._records: list[HeadRecord] = []

    def take_records(self) -> Iterator[HeadRecord]:
        """The records that are there, which are let go."""
        records, self._records = self._records, []
        yield from records

    def trace(
        self,
        tokens: Sequence[Token],
        *,
        layers: Selection = EVERY,
        heads: Selection = EVERY,
        keep: Collection[str] = (),
        rows: int | None = None,
        on_block: Callable[[int, str, RowBlock], None] | None = None,
    ) -> Iterator[LayerTrace]:
        """The layers asked for, as `Model.trace` gives them; records of all of them are there when they are."""
        model = self._model

        def both(layer: int, kind: str, block: RowBlock) -> None:
            if kind == "self":
                feed(model.backend, self._layer(layer), block)
            if on_block is not None:
                on_block(layer, kind, block)

        stage_names = WHOLE if rows is None else STAGES
        for trace in model.trace(
            tokens, layers=layers, keep={*keep, *stage_names}, rows=rows, on_block=None if rows is None else both
        ):
            if rows is None:
                feed_whole(model.backend, self._layer(trace.layer), trace.stages, None)
            attention = model.spec.blocks[trace.layer].attention
            terms = arithmetic(model.backend, trace.stages, attention.scale, attention.softcap)
            self._records += self._layers.pop(trace.layer).records(terms)
            yield model.only(trace, heads)

    def _layer(self, layer: int) -> LayerRecords:
        if layer not in self._layers:
            model = self._model
            head_numbers = numbers_of(self._heads, model.spec.blocks[layer].attention.heads)
            leave_out = kinds_left_out(self.sides.keys, is_learned=model.identity.source == "checkpoint")
            self._layers[layer] = LayerRecords(
                model.backend, layer, self.sides, head_numbers, leave_out=leave_out, exact=self._exact
            )
        return self._layers[layer]
