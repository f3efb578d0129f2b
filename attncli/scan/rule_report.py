"""The part of a scan's document about rules: chosen from what all shards have added up to."""

from __future__ import annotations

import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from attncli.features.rules.attention_rows import HeadKinds
from attncli.features.rules.built_in_rules import BUILT_IN
from attncli.features.rules.document import RuleMeaning, RuleStability, known_share
from attncli.features.rules.mixture_parts import (
    mean_overlaps,
    rule_stability,
    ruled_heads,
)
from attncli.features.rules.rule_fit import ChoiceRows, RuleSums
from attncli.language import Message, message
from attncli.measure.row_facts import Bools, Floats
from attncli.scan.document import ScanRules, ScanRuleTexts
from attncli.scan.plan import RulePlan
from attncli.scan.rule_rows import (
    CHOOSES,
    CHOOSING,
    FITTED,
    MEASURED,
    KeptTable,
    RulePairs,
    rows_under,
    table_height,
)
from attncli.scan.totals import Totals


def scan_rules(totals: Totals, plan: RulePlan) -> ScanRules:
    """Every head described by a mixture of rules, from the totals of a scan; no heads where there
    are too few texts to fit weights to, to choose rules by, or to measure on."""
    places = totals.plan.head_kinds
    names = [name for name, _ in plan.versions]
    height = table_height(places.count, len(names), places.kind_count)
    choosing = totals.rules.table(0, height)
    measured = totals.rules.table(1, height)
    counts = totals.count_total("rule_texts").tolist()
    # the first table holds the texts that choose; all of the second are measured on, and the part
    # of them that would choose decides only how stable the rules are
    choosing_rows = _rows_under_each_mask(choosing, places, len(names), choosing.lines[CHOOSES] > 0)
    every_pair = np.ones(measured.lines.shape[1], bool)
    measured_rows = _rows_under_each_mask(measured, places, len(names), every_pair)
    first = _sums(totals, places, len(names), half=0)
    # the answer without heads
    described = ScanRules(
        texts=ScanRuleTexts(
            fitted=counts[FITTED],
            choosing=counts[CHOOSING],
            measured=counts[MEASURED],
            chosen_rows=max(rows.count for rows in choosing_rows),
            measured_rows=max(rows.count for rows in measured_rows),
        ),
        rules=_meanings(plan, first.found_shares()),
        heads=[],
    )
    # without texts to fit to, or without rows under some mask, heads stay undescribed
    has_rows = all(rows.count for rows in (*choosing_rows, *measured_rows))
    if not counts[FITTED] or not has_rows:
        return described
    # the mixture of each head, chosen and fitted by the first half, measured on the second
    mixtures, _ = first.choose(_samples(choosing_rows, places))
    overlaps = _overlaps(mixtures, first.profile(), measured_rows, places, names)

    # the same chosen and fitted anew by the second half: how like the two mixtures are tells how
    # stable rules are
    second_rows = _rows_under_each_mask(measured, places, len(names), measured.lines[CHOOSES] > 0)
    stability: RuleStability | UnsetType = UNSET
    if all(rows.count for rows in second_rows):
        second = _sums(totals, places, len(names), half=1)
        second_mixtures, _ = second.choose(_samples(second_rows, places))
        stability = rule_stability(mixtures, second_mixtures)
    return replace(
        described,
        heads=ruled_heads(places.names(), names, mixtures, overlaps),
        overlap=mean_overlaps(overlaps),
        stability=stability,
    )


def rule_warnings(rules: ScanRules) -> list[Message]:
    """The warning that rules lack texts or rows; none where heads have them."""
    if rules.heads:
        return []
    texts = rules.texts
    if texts.fitted and texts.choosing and texts.measured:
        return [message("no head has rules: no row was kept whose query sees two tokens or more")]
    return [
        message(
            "too few texts for rules: {fitted} to fit to, {choosing} to choose by, {measured} to"
            " measure on",
            fitted=texts.fitted,
            choosing=texts.choosing,
            measured=texts.measured,
        )
    ]


def _meanings(plan: RulePlan, found_shares: Floats) -> list[RuleMeaning]:
    """The document's entries on what each rule of a plan means, in the plan's order.

    found_shares: the share of rows in which each rule finds a key that it looks at, [rule].
    """
    meaning_by_name = {rule.name: (rule.formula, str(rule.sentence)) for rule in BUILT_IN}
    for file in plan.files:
        for name, formula, sentence in file.rules:
            meaning_by_name[name] = formula, sentence
    meanings = []
    for (name, _), share in zip(plan.versions, found_shares.tolist(), strict=True):
        # a later version may know other rules than the one that made the plan
        formula, sentence = meaning_by_name.get(name, ("", ""))
        meanings.append(
            RuleMeaning(
                name=name, formula=formula, sentence=sentence, found_share=known_share(float(share))
            )
        )
    return meanings


def _sums(totals: Totals, places: HeadKinds, rules: int, half: int) -> RuleSums:
    """The sums that rules are fitted to, over the texts of one half of the corpus.

    rules: how many rules there are.
    half: 0 for the texts that are fitted to and choose, 1 for those that are measured on, of which
        fewer sums are kept.
    """
    sums = RuleSums(places, rules)
    for name in sums.arrays:
        full_name = f"rule_{half}_{name}"
        if full_name in totals.low:
            sums.arrays[name] = totals.float_total(full_name)
    return sums


def _rows_under_each_mask(
    table: KeptTable, places: HeadKinds, rules: int, which: Bools
) -> list[RulePairs]:
    """The kept rows of weights under each of the model's masks, in their order.

    which: the pairs of the table that count, booleans [pair].
    """
    return [rows_under(table, places, rules, kind, which) for kind in range(places.kind_count)]


def _samples(rows: list[RulePairs], places: HeadKinds) -> list[ChoiceRows]:
    """The rows of weights of each head, as rules are chosen by or measured on them.

    rows: of all heads, under each mask.
    """
    return [
        ChoiceRows(rows[kind].weights[head], rows[kind].rules, rows[kind].shares)
        for head, kind in enumerate(places.head_kinds().tolist())
    ]


def _overlaps(
    mixtures: Floats,
    profile: Floats,
    rows: list[RulePairs],
    places: HeadKinds,
    names: list[str],
) -> Floats:
    """How much of each head's attention four descriptions match, from 0 to 1, [4, head]: its
    mixture of rules, the first token alone, an even spread, and its own mean weight by distance.

    mixtures: the weight of each rule, [head, rule].
    profile: mean weight by distance, [head, distance].
    rows: of all heads, under each mask.
    names: of the rules.
    """
    single_rules = np.eye(len(names))  # row r is the mixture of rule r alone
    overlaps = np.zeros((4, places.count))
    samples = _samples(rows, places)
    for head, kind in enumerate(places.head_kinds().tolist()):
        overlaps[0, head] = samples[head].overlap(mixtures[head])
        overlaps[1, head] = samples[head].overlap(single_rules[names.index("first")])
        overlaps[2, head] = samples[head].overlap(single_rules[names.index("even")])
        overlaps[3, head] = rows[kind].distance_overlap(head, profile[head])
    return overlaps
