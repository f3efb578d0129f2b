"""What the heads of a circuit do: where they look, in the words of labels, and whether they write to
the answer or move where later heads look.

Source: Wang et al., Interpretability in the wild, 2022, for roles of heads in a circuit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from attncli.errors import UnsupportedError
from attncli.features.circuit.document import NodeRule
from attncli.features.effects.ablation import Removal, remove, text_for_sweep
from attncli.features.effects.document import Difference
from attncli.features.effects.measures import MeasureRequest
from attncli.features.effects.pair_effects import mean_differences
from attncli.features.effects.places import may_start_late
from attncli.features.effects.sweep import resample_from
from attncli.features.rules.compute import LEAST_TEXTS, rules
from attncli.measure.labels import NEEDED, label_text, labels_of, repeat_scores
from attncli.measure.metric import Measured
from attncli.measure.pair_measure import TokenPair
from attncli.measure.text_metrics import measure_texts
from attncli.mechanism.spec import HeadSelection
from attncli.models.estimate import free_memory
from attncli.models.model import Model

ROLE_PAIRS = 4
"""Pairs of the choice on which heads are taken away to tell what they do."""

SAID_TWICE = ("positional +0", "positional -1", "positional +1")
"""Labels that say what self, previous-token and next-token say already."""

Place = tuple[int, int]


class HeadRole(Struct, frozen=True):
    """What a head does in the texts of a circuit.

    labels: of its attention in the clean texts and on random repeats; none where it earns none.
    difference: what m loses where its values are those of the corrupt text, and how much of it by
        what it writes.
    rule: the strongest of those that say half of its weights; None where none do.
    """

    labels: tuple[str, ...]
    difference: Difference
    rule: NodeRule | None


def head_roles(
    model: Model,
    pairs: Sequence[TokenPair],
    heads: Sequence[Place],
    on_pair: Callable[[], None],
) -> dict[Place, HeadRole]:
    """Find out what each head of a circuit does: the labels and the rule of its attention, and what
    is lost without it.

    Args:
        model: A decoder whose layers run natively.
        pairs: The pairs of texts that edges were chosen on. Labels and rules are measured on all
            their clean texts, losses on the first `ROLE_PAIRS` pairs.
        heads: Which heads, each (layer, head).
        on_pair: Called after the losses of each pair.

    Returns:
        The role of each head by (layer, head).
    """
    if not heads:
        return {}
    labels = _labels(model, pairs, heads)
    differences = _differences(model, pairs[:ROLE_PAIRS], heads, on_pair)
    strongest = _strongest_rules(model, pairs)
    return {
        place: HeadRole(labels[place], differences[place], strongest.get(place)) for place in heads
    }


def _strongest_rules(model: Model, pairs: Sequence[TokenPair]) -> dict[Place, NodeRule]:
    """The strongest rule of each head by (layer, head), such as "previous token", as `attn
    heads --rules` fits them to the clean texts. Heads of whose weights rules explain less than half are left out.
    Empty for fewer texts than `LEAST_TEXTS`, and for a model whose mask no rule can describe."""
    # pairs may have the same clean text: each counts once
    texts = {tuple(token.id for token in pair.clean): pair.clean for pair in pairs}
    if len(texts) < LEAST_TEXTS:
        return {}
    # `shares` of heads would be run with rules in their place, which nobody asks for here
    try:
        document = rules(model, list(texts.values()), shares=())
    except UnsupportedError:
        return {}
    # the rule with the largest weight comes first
    return {
        (head.layer, head.head): NodeRule(
            rule=head.parts[0].rule, weight=head.parts[0].weight, overlap=head.overlap
        )
        for head in document.heads
        if head.has_rule
    }


def _differences(
    model: Model, pairs: Sequence[TokenPair], heads: Sequence[Place], on_pair: Callable[[], None]
) -> dict[Place, Difference]:
    """What the logit difference loses, as a mean over pairs, where one head has its values of the
    corrupt text, by (layer, head): once as the model then runs, and once with the attention of all
    heads held as in the clean text, so that only what the head writes counts.

    on_pair: called after each pair.
    """
    results = []
    for pair in pairs:
        start = 0
        if may_start_late(model.spec):
            # tokens before the first that differs are the same in both texts
            start = pair.first_difference
        # one head after the other, without random directions to compare with; `hold` measures each
        # a second time, with all attention as in the clean text
        removal = Removal(
            HeadSelection(pairs=heads),
            # the corrupt text's own run alone: no branch with a head changed
            resample_from(text_for_sweep(model, pair.corrupt, branches=[])),
            baseline="none",
            hold=True,
            start=start,
        )
        # the difference of the two answers' logits after the last token
        last = len(pair.clean) - 1
        request = MeasureRequest(
            measures=("difference",),
            positions=(last,),
            position=last,
            target=pair.answer,
            versus=pair.versus,
        )
        results.append(remove(model, pair.clean, removal, request, memory=free_memory().bytes))
        on_pair()
    # every pair has the effects of the same heads in the same order; `readings` are the losses as the
    # model then runs, `holding` those with the attention held
    places = [(effect.place.layer, effect.place.head) for effect in results[0].effects]
    differences = mean_differences(
        [[effect.readings for effect in result.effects] for result in results],
        [[effect.holding for effect in result.effects] for result in results],
    )
    return dict(zip(places, differences, strict=True))


def _labels(
    model: Model, pairs: Sequence[TokenPair], heads: Sequence[Place]
) -> dict[Place, tuple[str, ...]]:
    """The labels that each head's attention earns, such as "previous-token" or "induction", by
    (layer, head): from metrics over all clean texts and from texts of repeated random tokens."""
    layers = sorted({layer for layer, _ in heads})
    repeats = repeat_scores(model, layers)
    texts = [pair.clean for pair in pairs]
    # layers of as many heads are measured together, as their results form one array
    layers_by_heads: dict[int, list[int]] = {}
    for layer in layers:
        layers_by_heads.setdefault(model.spec.blocks[layer].attention.heads, []).append(layer)
    names_of_heads: dict[Place, tuple[str, ...]] = {}
    for group in layers_by_heads.values():
        # of each text the same metrics, by name
        measured = list(measure_texts(model, texts, metrics=NEEDED, layers=group))
        for row, layer in enumerate(group):
            results = {name: _mean([text[name] for text in measured], row) for name in measured[0]}
            heads_of_layer = [head for layer_of_head, head in heads if layer_of_head == layer]
            for head in heads_of_layer:
                labels = labels_of(results, head, repeats=repeats.get((layer, head)))
                names = [label_text(label) for label in labels]
                names_of_heads[layer, head] = tuple(
                    name for name in names if name not in SAID_TWICE
                )
    return names_of_heads


def _mean(texts: Sequence[Measured], row: int) -> Measured:
    """The mean of one metric over texts, for the heads of one layer. Texts in which a head has no
    row that the metric can be measured on do not count; NaN for a head that has none in any text.

    texts: the metric in each text.
    row: the index of the layer in them.
    """
    rows = np.stack([text.rows[row] for text in texts])
    # [text, head]
    value = np.stack([text.value[row] for text in texts])
    baseline = np.stack([text.baseline[row] for text in texts])
    has_value = np.isfinite(value)
    count = np.maximum(has_value.sum(0), 1)  # NaN follows where it is 0: 1 avoids the division
    # of both over the same texts, those in which the head has a value
    mean_value, mean_baseline = (
        np.where(has_value.any(0), np.where(has_value, numbers, 0.0).sum(0) / count, np.nan)
        for numbers in (value, baseline)
    )
    return Measured(texts[0].metric, mean_value, rows.sum(0), mean_baseline)
