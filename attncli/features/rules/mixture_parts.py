"""The parts of documents that tell of mixtures: of a head, of their means, of their stability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attncli.features.rules.document import (
    LEAST_OVERLAP,
    RuledHead,
    RuleMeaning,
    RuleOverlaps,
    RulePart,
    RuleStability,
    known_share,
)
from attncli.features.rules.head_rules import HeadRule

Floats = np.ndarray[Any, np.dtype[np.float64]]


def rule_meanings(rules: Sequence[HeadRule], found_shares: Floats) -> list[RuleMeaning]:
    """The document's list of rules, each with its formula and its meaning in words.

    found_shares: the share of rows in which each finds a key of its own, [rule], NaN without rows.
    """
    return [
        RuleMeaning(
            name=rule.name,
            formula=rule.formula,
            sentence=str(rule.sentence),
            found_share=known_share(float(share)),
        )
        for rule, share in zip(rules, found_shares, strict=True)
    ]


def ruled_heads(
    places: Sequence[tuple[int, int]], names: Sequence[str], mixtures: Floats, overlaps: Floats
) -> list[RuledHead]:
    """The document's list of heads, each with its rules and overlaps.

    places: layer and head of each.
    names: of the rules.
    mixtures: [head, rule].
    overlaps: of each head with its mixture, the first token, an even spread, and its own mean by
        distance, [4, head].
    """
    return [
        _ruled_head(layer, head, names, mixtures[place], overlaps[:, place])
        for place, (layer, head) in enumerate(places)
    ]


def _ruled_head(
    layer: int, head: int, names: Sequence[str], mixture: Floats, overlaps: Floats
) -> RuledHead:
    """The document's row of one head.

    names: of the rules.
    mixture: the weight of each rule, [rule]; those of 0 are left out.
    overlaps: with the mixture, the first token, an even spread, the mean by distance, [4].
    """
    order = [place for place in np.argsort(-mixture, kind="stable").tolist() if mixture[place] > 0]
    by_rules, first, even, distance = overlaps.tolist()
    return RuledHead(
        layer=layer,
        head=head,
        parts=[RulePart(rule=names[place], weight=float(mixture[place])) for place in order],
        overlap=by_rules,
        overlap_first=first,
        overlap_even=even,
        overlap_distance=distance,
        has_rule=by_rules >= LEAST_OVERLAP,
    )


def mean_overlaps(overlaps: Floats) -> RuleOverlaps:
    """The means over heads of their overlaps.

    overlaps: of each head with its mixture, the first token, an even spread, and its own mean by
        distance, [4, head].
    """
    rules, first, even, distance = overlaps.mean(-1).tolist()
    return RuleOverlaps(rules=rules, first=first, even=even, distance=distance)


def rule_stability(mixtures: Floats, others: Floats) -> RuleStability:
    """How alike the mixtures are that were fitted to two halves of the texts: what weight they have
    in common, and in what share of the heads the strongest rule is the same.

    mixtures, others: of each half, [head, rule].
    """
    return RuleStability(
        weights=float(np.minimum(mixtures, others).sum(-1).mean()),
        strongest=float((mixtures.argmax(-1) == others.argmax(-1)).mean()),
    )
