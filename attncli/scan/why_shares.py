"""Why chosen heads look where they look most, over a corpus: which share of the advantage each part
adds.

Of each text it is the head's strongest link, as `attn heads` lists it, taken apart as `attn why`
does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attncli.errors import InputError
from attncli.features.effects.ablation import refuse_foreign
from attncli.features.effects.contributions import Contributions, Link, LinkPart, contributions
from attncli.features.effects.sweep import SweepText
from attncli.features.why.compute import StrongestLinks, refuse_hashing
from attncli.inputs.token import Token
from attncli.measure.row_facts import Floats, Ints
from attncli.models.model import Model
from attncli.models.run import rows_for
from attncli.scan.intake import REPLICATES, replicate_counts
from attncli.scan.statistics import to_fixed

FIELDS = ("kind", "layer", "attention", "head", "place")
"""The fields of `PlannedPart`, in the order in which a part's string has them."""
SEPARATOR = "|"
PLANNED_TOKENS = 3
"""Tokens of the text by which the parts of a model are listed: enough for two keys that differ in
distance.
"""
WhyPlan = tuple[tuple[int, int, tuple[str, ...]], ...]
"""Of each head its layer, its number and the names of its parts."""


class PlannedPart(NamedTuple):
    """What identifies a part of a score (what one embedding, head or layer adds to it): the part's
    kind, and the layer, attention, head and place that wrote it, None where they do not apply."""

    kind: str
    layer: int | None
    attention: str | None
    head: int | None
    place: str | None


def part_key(part: LinkPart) -> str:
    """The string that a plan names a part of a score by, the same in every text, such as
    "head|3|self|5|" for what layer 3, head 5 wrote; `parse_part_key` reads it.
    """
    values: list[object] = [part.kind]
    for field in FIELDS[1:]:  # of the part of the stream; what positions add comes from none
        if part.stream is None:
            values.append(None)
        else:
            values.append(getattr(part.stream, field))
    return SEPARATOR.join("" if value is None else str(value) for value in values)


def parse_part_key(name: str) -> PlannedPart:
    """The part of a score that a string from `part_key` stands for."""
    kind, layer, attention, head, place = name.split(SEPARATOR)
    return PlannedPart(
        kind,
        int(layer) if layer else None,
        attention or None,
        int(head) if head else None,
        place or None,
    )


def plan_parts(model: Model, heads: Sequence[tuple[int, int]]) -> WhyPlan:
    """For each (layer, head), the names of the parts that its scores are sums of: they follow from
    the model, so that any short text shows them.

    Raises UnsupportedError for a model whose layers cannot be run one by one, or that attends by
    hashes.
    """
    refuse_foreign(model)
    refuse_hashing(model.spec)
    tokens = model.tokenizer.ids_to_tokens([0] * PLANNED_TOKENS)
    planned = []
    for layer, head in heads:
        query = PLANNED_TOKENS - 1  # the link of the last token to itself, as good as any
        link = Link(layer, "self", head, query, query)
        whole = contributions(SweepText(model, tokens, model.backend), link)
        # a bias of scores may be absent from this link, and not from others
        bias = LinkPart("score_bias", None, "both")
        names = dict.fromkeys(part_key(part) for part in (*whole.parts, bias))
        planned.append((layer, head, tuple(names)))
    return tuple(planned)


def why_shapes(plan: WhyPlan) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays that `WhyTallies` adds up, by name."""
    if not plan:
        return {}
    heads = len(plan)
    most = max(len(parts) for _, _, parts in plan)
    # a value for each part of the query and of the key, and the same of each bootstrap replicate
    return {
        "why_texts": (heads,),
        "why_total": (heads,),
        "why_value": (2, heads, most),
        "why_replicate_total": (REPLICATES, heads),
        "why_replicate_value": (REPLICATES, 2, heads, most),
    }


WHY_VALUES = frozenset({"why_total", "why_value", "why_replicate_total", "why_replicate_value"})
"""Totals that are multiples of 2⁻²⁴."""


class WhyTallies:
    """Sums over texts of what each part adds to the score of a head's strongest link.

    arrays: integers by name, see `why_shapes`; sums are in multiples of 2⁻²⁴. `why_texts`: how many
        texts had a link whose score is above its row's expectation; how far it is above is its
        advantage. `why_total`: the sum of the advantages. `why_value`: what each part adds as part
        of the query and of the key. The others are the same of bootstrap replicates.
    """

    def __init__(self, plan: WhyPlan) -> None:
        self.arrays: dict[str, Ints] = {
            name: np.zeros(shape, np.int64) for name, shape in why_shapes(plan).items()
        }

    def add(self, head: int, values: Floats, total: float, text_hash: int) -> None:
        """Add one text's link.

        head: its index in the plan.
        values: what each part adds as part of the query and of the key, [2, part].
        total: the advantage of the link.
        text_hash: decides how often the text counts in each replicate.
        """
        fixed_values = to_fixed(values)
        fixed_total = int(to_fixed(np.array(total)))
        parts = fixed_values.shape[1]  # the arrays have room for the head with the most
        (times,) = replicate_counts([text_hash])  # how often the text counts, [replicate]
        replicate_values = times[:, None, None] * fixed_values[None]
        self.arrays["why_texts"][head] += 1
        self.arrays["why_total"][head] += fixed_total
        self.arrays["why_value"][:, head, :parts] += fixed_values
        self.arrays["why_replicate_total"][:, head] += times * fixed_total
        self.arrays["why_replicate_value"][:, :, head, :parts] += replicate_values


class WhyShares:
    """Decomposes the score of each planned head's strongest link in a text into its parts.

    model: with its weights in memory.
    """

    def __init__(self, plan: WhyPlan, model: Model) -> None:
        self._plan = plan
        self._model = model
        # for each head, by the name of a part, its index
        self._places = [{name: place for place, name in enumerate(parts)} for _, _, parts in plan]

    def take(self, tokens: Sequence[Token], text_hash: int, tallies: WhyTallies) -> None:
        """Run a text, and add the parts of each planned head's strongest link to the tallies;
        nothing for a head without a link whose score is above what its row expects.

        text_hash: decides how often the text counts in replicates.
        """
        # run the model once, only for `links` to see the weights as they go by
        layers = sorted({layer for layer, _, _ in self._plan})
        heads = [(layer, head) for layer, head, _ in self._plan]
        links = StrongestLinks(self._model.backend, heads, tokens)
        rows = rows_for(self._model.spec, len(tokens))
        for _ in self._model.trace(
            tokens, layers=layers, keep=("weights",), rows=rows, on_block=links.on_block
        ):
            pass

        text = SweepText(self._model, tokens, self._model.backend)
        for number, (layer, head, parts) in enumerate(self._plan):
            query_and_key = links.of_head(layer, head)
            if query_and_key is None:  # the head has no link in this text
                continue
            query, key = query_and_key
            try:
                whole = contributions(text, Link(layer, "self", head, query, key))
            except InputError:  # the mask hides the key after all, or a score is not finite
                continue
            total = whole.total()
            if total > 0:
                tallies.add(number, self._sides(number, whole, len(parts)), total, text_hash)

    def _sides(self, number: int, whole: Contributions, count: int) -> Floats:
        """What each planned part adds to a link's score above its row's expectation, as part of the
        query and as part of the key: [2, part].

        number: the head's index in the plan.
        whole: the contributions of all parts to the link.
        count: how many parts the plan has for the head.
        """
        values = np.zeros((2, count))
        for side, sums in enumerate((whole.query_sums, whole.key_sums)):
            # `centre` takes off what the row expects of each part
            for part, value in zip(whole.parts, whole.centre(sums).tolist(), strict=True):
                values[side, self._places[number][part_key(part)]] += value
        return values
