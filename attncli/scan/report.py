"""The document of a scan, from its totals, and the shading of its texts; two scans against each
other.

A comparison tells effect sizes first, then which differences chance would hardly make.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET, Struct, UnsetType, json
from msgspec.structs import replace

from attncli.documents.reading import check
from attncli.errors import AttnError, InputError, UsageError
from attncli.inputs.files import read_regular
from attncli.language import listing, message
from attncli.measure.labels import LABELS, LEAST_SHARE, MARGIN, STATES, Label
from attncli.measure.layer_metrics import MASSIVE, MOVED
from attncli.measure.metric import OFFSETS
from attncli.measure.row_facts import Bools, Floats, Ints
from attncli.mechanism.spec import head_name
from attncli.scan.condition_counts import TOGETHER_ARRAYS, first_key_name
from attncli.scan.document import (
    LEAST_TEXTS,
    AlikeHeads,
    ConditionHead,
    DonePart,
    FailedShard,
    FrequentLink,
    FrequentToken,
    PlanPart,
    ScanCompareDocument,
    ScanCondition,
    ScanDifference,
    ScanDocument,
    ScanEffect,
    ScanExample,
    ScanHead,
    ScanLabel,
    ScanLayer,
    ScanMetric,
    ScanRules,
    ScanText,
    ScanTogether,
    ScanWhy,
    ScanWhyPart,
    Stratum,
    StratumExample,
    TogetherHead,
)
from attncli.scan.frequent_links import PairCount, pairs_memory
from attncli.scan.plan import EFFECT, EXPECTED, LABEL_COLUMNS, ScanPlan, read_json, read_plan
from attncli.scan.rule_report import rule_warnings, scan_rules
from attncli.scan.rule_rows import rule_memory
from attncli.scan.shard_files import (
    PLANNING,
    ShardOutcome,
    failure_reasons,
    synced_writer,
)
from attncli.scan.statistics import (
    EVENER,
    UNIT,
    benjamini_hochberg,
    cliffs_delta,
    clusters,
    cohens_d,
    correlation,
    design_effect,
    deviate,
    mean_interval,
    mean_variance,
    quantiles,
    ratio_interval,
    reach,
    rests_on_few,
    skewness,
    two_sided,
    variance,
    wilson,
)
from attncli.scan.text_sample import DRAWN, sample_memory, sample_strata
from attncli.scan.text_sample import MOST as NO_HASH
from attncli.scan.totals import (
    METRIC_LABELS,
    NONE,
    STRATA,
    Totals,
    bins_of,
    column_of_label,
    least_deviation,
    scale_named,
    total,
)
from attncli.scan.why_shares import parse_part_key
from attncli.scan.worker import SKIPPED, UNKNOWN, UNTOKENIZED
from attncli.version import __version__

NAME = "scan.json"
LARGEST = 2**30
"""Bytes of a scan's document, at most."""
REPEATED = 0.75
"""Where fewer than this share of the texts vary by themselves, they are repeated, and count as
clusters.
"""
QUANTILES = {"5": 0.05, "25": 0.25, "50": 0.5, "75": 0.75, "95": 0.95}
FREQUENT = 20
"""Pairs of tokens that are told of each head."""
COUNTED_WORDS = ("texts", "tokens", "unknown_texts", "unknown_tokens")
MIXED = message(
    "machines of different kinds computed this scan: last digits may differ from another run's, and"
    " it has no digest"
)


def scan_document(totals: Totals, failed_shards: Sequence[ShardOutcome] = ()) -> ScanDocument:
    """The `attn.scan/1` document of what the finished shards add up to.

    failed_shards: shards that were given up.
    """
    plan = totals.plan
    # by shard number, why it failed or cannot be read
    reasons = {outcome.shard: outcome.reason for outcome in failed_shards} | totals.broken
    rules = _rules(totals)
    # these two reasons stand in the document only where a scan could have them
    skipped = {reason: totals.counts.get(reason, 0) for reason in SKIPPED}
    for reason in (UNKNOWN, UNTOKENIZED):
        if reason in totals.counts:
            skipped[reason] = totals.counts[reason]
    warnings = _unknown_word_warnings(totals.counts)
    if totals.is_mixed_fleet:
        warnings.insert(0, MIXED)
    if rules is not UNSET:
        warnings += rule_warnings(rules)
    return ScanDocument(
        version=__version__,
        plan=_plan_part(totals),
        done=DonePart(
            shards=[len(totals.done_shards), len(plan.shards)],
            texts=totals.counts.get("texts", 0),
            tokens=totals.counts.get("tokens", 0),
            truncated=totals.counts.get("truncated", 0),
            failed=[
                FailedShard(shard=shard, reason=reason) for shard, reason in sorted(reasons.items())
            ],
            unknown_texts=totals.counts.get("unknown_texts", UNSET),
            unknown_tokens=totals.counts.get("unknown_tokens", UNSET),
            skipped=skipped,
        ),
        **_head_fields(totals),
        rules=rules,
        find=_conditions(totals),
        find_together=_together(totals),
        digest=totals.digest() if totals.done_shards else None,  # nothing done has none
        warnings=warnings,
    )


def _rules(totals: Totals) -> ScanRules | UnsetType:
    """The document's part that describes heads by rules; unset where that was not asked for, and
    before a shard is done."""
    plan = totals.plan.measures.rules
    if plan is None or not totals.done_shards:
        return UNSET
    return scan_rules(totals, plan)


def _conditions(totals: Totals) -> list[ScanCondition] | UnsetType:
    """What each `--find` condition found; unset where none was asked for, before a shard is done,
    and where an earlier version, which did not count this, computed a shard."""
    measures = totals.plan.measures
    if not measures.find or not totals.done_shards or totals.uncounted:
        return UNSET
    # each [condition, head]: texts in which the head has such a link, texts in which it could have
    # one, and the sum over texts of the weight of the largest
    linked = totals.count_total("find_linked")
    possible = totals.count_total("find_possible")
    weight = totals.float_total("find_weight")
    parts = []
    conditions = zip(measures.find, measures.conditions, strict=True)
    for number, (text, condition) in enumerate(conditions):
        heads = []
        for place, (layer, head) in enumerate(totals.plan.heads):
            texts = int(linked[number, place])
            all_texts = int(possible[number, place])
            if not texts:  # a head without such a link is not listed
                continue
            interval = wilson(texts, all_texts)
            assert interval is not None  # as there are texts
            part = ConditionHead(
                layer=layer,
                head=head,
                texts=texts,
                possible=all_texts,
                share=texts / all_texts,
                share_ci95=interval,
                weight=float(weight[number, place]) / texts,
            )
            heads.append(part)
        heads.sort(key=lambda row: (-row.share, -row.texts, -row.weight, row.layer, row.head))
        # a condition that names no heads searches all
        searched = len(set(condition.heads)) or len(totals.plan.heads)
        parts.append(
            ScanCondition(
                condition=text,
                searched=searched,
                possible=int(possible[number].max(initial=0)),
                first_keys=totals.counts.get(first_key_name(number), UNSET),
                counts_rest=condition.rest,
                heads=heads,
            )
        )
    return parts


def _together(totals: Totals) -> ScanTogether | UnsetType:
    """The document's ranking of heads by links of at least one of several `--find` conditions;
    unset for a single condition, before a shard is done, and where an earlier version, which did
    not count this, computed a shard."""
    measures = totals.plan.measures
    if len(measures.find) < 2 or not totals.done_shards or totals.uncounted_together:
        return UNSET
    # in how many texts heads have, and could have, such a link: [head], and of each condition
    # [condition, head]
    linked, possible = (totals.count_total(name) for name in TOGETHER_ARRAYS)
    each_linked = totals.count_total("find_linked")
    each_possible = totals.count_total("find_possible")
    heads = []
    for place, (layer, head) in enumerate(totals.plan.heads):
        texts = int(linked[place])
        all_texts = int(possible[place])
        if not texts:
            continue
        # the share of texts with a link of each condition alone; None where none could have one
        shares: list[float | None] = []
        for count, most in zip(each_linked[:, place], each_possible[:, place], strict=True):
            shares.append(float(count / most) if most else None)
        interval = wilson(texts, all_texts)
        assert interval is not None  # as there are texts
        heads.append(
            TogetherHead(
                layer=layer,
                head=head,
                texts=texts,
                possible=all_texts,
                share=texts / all_texts,
                share_ci95=interval,
                shares=shares,
            )
        )
    heads.sort(key=lambda row: (-row.share, -row.texts, row.layer, row.head))
    searched: set[tuple[int, int]] = set()
    for condition in measures.conditions:
        searched |= set(condition.heads or totals.plan.heads)
    return ScanTogether(searched=len(searched), heads=heads)


def _head_fields(totals: Totals) -> dict[str, Any]:
    """The document's fields about heads, layers and texts by name; before a shard is done there are
    no heads.
    """
    if not totals.done_shards:
        return {"heads": []}
    heads = _Heads(totals)
    head_parts = heads.parts()  # which fills `heads.sampled`
    texts = []
    for file, line in heads.sampled:
        shard = totals.shards[file, line]
        texts.append(ScanText(shard=shard, file=file, line=line, text=totals.texts[file, line]))
    return {
        "heads": head_parts,
        "layers": heads.layers() if MASSIVE in totals.columns else UNSET,
        "texts": texts,
        "link_rows": totals.links.rows if totals.plan.measures.links else UNSET,
    }


def _unknown_word_warnings(counts: Mapping[str, int]) -> list[str]:
    """One warning that texts hold words unknown to the model, in a list; an empty list where it
    knows all.

    counts: the counts of `COUNTED_WORDS`, by name.
    """
    texts = counts.get("unknown_texts", 0)
    tokens = counts.get("unknown_tokens", 0)
    if not texts:
        return []
    return [
        message(
            "words that are unknown to this model: {texts:,} of {texts_2:,} texts, {tokens:,} of "
            "{tokens_2:,} tokens; --skip-unknown leaves such texts out",
            texts=texts,
            texts_2=counts["texts"],
            tokens=tokens,
            tokens_2=counts["tokens"],
        )
    ]


def write(document: ScanDocument, folder: Path) -> None:
    """Replace `scan.json` with this document, unless it holds just that already: whole or not at
    all.
    """
    raw = json.encode(document, enc_hook=str)  # a message is written in English
    with suppress(AttnError):  # there is none yet, or it cannot be read
        if read_regular(folder / NAME, what=EXPECTED, limit=LARGEST) == raw:
            return
    with synced_writer(folder / NAME, PLANNING) as stream:
        stream.write(raw)


def read_report(folder: Path) -> ScanDocument:
    """The document in `scan.json` of a scan's folder. Raises InputError where there is none, or it
    is damaged.
    """
    path = folder / NAME
    missing = message("there is no finished scan here: {strerror}")
    document = read_json(
        path,
        ScanDocument,
        missing=missing,
        damaged=message("this is no document of a scan: {error}"),
    )
    check(document, str(path))
    # A file has its warnings in English alone. A message equals its English, so that the warnings
    # which this document can have, made again, stand in for those of the file: they translate.
    # A scan in which no word was unknown has none of these counts: they are UNSET, which is false.
    counts = {name: getattr(document.done, name) or 0 for name in COUNTED_WORDS}
    possible_warnings = [MIXED, *_unknown_word_warnings(counts)]
    if document.rules is not UNSET:
        possible_warnings += rule_warnings(document.rules)
    messages = {text: text for text in possible_warnings}
    return replace(document, warnings=[messages.get(text, text) for text in document.warnings])


def failures(folder: Path) -> list[ShardOutcome]:
    """The failed outcome of each shard that any part of a scan gave up and that was not done since,
    ascending.
    """
    return [
        ShardOutcome(shard, reason) for shard, reason in sorted(failure_reasons(folder).items())
    ]


def _plan_part(totals: Totals) -> PlanPart:
    """The document's part about the plan, with the machines that computed the shards."""
    plan = totals.plan
    measures = totals.plan.measures
    heads = len(totals.plan.heads)
    # the bytes that samples, pairs of tokens and rules take in a worker
    memory = sample_memory(len(totals.columns), heads, DRAWN * measures.examples)
    if measures.links:
        memory += pairs_memory(heads)
    if measures.rules is not None:
        places = plan.head_kinds
        memory += rule_memory(places.count, len(measures.rules.versions), places.kind_count)
    # a machine is a tuple of its facts' names and values, such as its kind and instruction set
    machines = [dict(machine) for machine in totals.machines]
    # an unset field stands in no file: what was not asked for leaves a document as it was before
    # such a field was there
    return PlanPart(
        digest=plan.digest,
        model=plan.model.name,
        model_digest=plan.model.digest,
        adapters=list(plan.model.adapters) or UNSET,
        layers=plan.model.layers,
        corpus=[file.name for file in plan.files],
        seed=plan.seed,
        dtype=plan.dtype,
        threads=plan.threads,
        isa=sorted({f"{machine['machine']} · {machine['isa']}" for machine in machines}),
        labels=measures.labels,
        words=measures.words,
        exclude=list(measures.exclude) or UNSET,
        find=list(measures.find),
        effects=list(measures.effects),
        why=[head_name(layer, head) for layer, head, _ in measures.why] or UNSET,
        sample_memory=memory or UNSET,
    )


def head_document(
    document: ScanDocument, place: tuple[int, int], alike: AlikeHeads | None
) -> ScanDocument:
    """The document reduced to the head at `place` (layer, head), the texts of its sample, and its
    layer.

    alike: the heads most like it, added where not None.
    """
    (head,) = (head for head in document.heads if (head.layer, head.head) == place)
    if alike is not None:
        head = replace(head, alike=alike)

    # only the texts of this head's sample stay, so that their indices change
    new_indices: dict[int, int] = {}  # by the index in the whole document
    if head.sample:
        sample = []
        for example in head.sample:
            # the next index for a text that comes for the first time
            new_index = new_indices.setdefault(example.text, len(new_indices))
            sample.append(replace(example, text=new_index))
        head = replace(head, sample=sample)
    texts = document.texts
    if texts is not UNSET:
        texts = [texts[index] for index in new_indices]

    layer_number, _ = place
    layers = document.layers
    if layers is not UNSET:
        layers = [layer for layer in layers if layer.layer == layer_number]
    return replace(
        document,
        heads=[head],
        texts=texts,
        layers=layers,
        rules=_rules_of(document.rules, place),
        find=_conditions_of(document.find, place),
        find_together=_together_of(document.find_together, place),
    )


def _conditions_of(
    conditions: list[ScanCondition] | UnsetType, place: tuple[int, int]
) -> list[ScanCondition] | UnsetType:
    """What each `--find` condition found, reduced to the head at `place` (layer, head)."""
    if conditions is UNSET:
        return UNSET
    return [
        replace(condition, heads=[row for row in condition.heads if (row.layer, row.head) == place])
        for condition in conditions
    ]


def _together_of(
    together: ScanTogether | UnsetType, place: tuple[int, int]
) -> ScanTogether | UnsetType:
    """The ranking over several `--find` conditions, reduced to the head at `place` (layer,
    head)."""
    if together is UNSET:
        return UNSET
    heads = [row for row in together.heads if (row.layer, row.head) == place]
    return replace(together, heads=heads)


def _rules_of(rules: ScanRules | UnsetType, place: tuple[int, int]) -> ScanRules | UnsetType:
    """The document's part about rules, reduced to the head at `place` (layer, head)."""
    if rules is UNSET:
        return UNSET
    heads = [head for head in rules.heads if (head.layer, head.head) == place]
    return replace(rules, heads=heads)


COUNTED = ("histogram", "rows", "strata_texts", "label_texts", "label_offsets")
"""Totals that are counts and that a document looks at head by head."""


class _Heads:
    """Makes the document's parts about heads and layers from the totals of a scan.

    Its methods call a head by its place, the index among all heads of the model, and a metric or
    score by its column. Arrays are [column, head] unless said otherwise.

    sampled: by (file, line), the index of each text among the document's texts; filled as the parts
        of heads are made.
    """

    def __init__(self, totals: Totals) -> None:
        """Compute what the parts of all heads are made from; arrays are [column, head]."""
        self.totals = totals
        self.columns = totals.columns
        self.bins = bins_of(totals.columns)  # of each column its slice of the histogram's bins
        self.texts = totals.float_total("texts")

        # by (layer, head), [duplicate, induction]: the scores on random repeated tokens
        plan = totals.plan
        self._repeats = {(layer, head): scores for layer, head, *scores in plan.repeats}
        # a plan of an earlier version has no shares: then this is empty
        self._repeat_shares = dict(zip(self._repeats, plan.repeat_shares, strict=False))

        # each is the size of a scan's tables: made once, not for every head; a scan without labels
        # has fewer of them
        self.counts = {name: totals.count_total(name) for name in COUNTED if name in totals.low}
        self.strata_value = totals.float_total("strata_value")
        with np.errstate(invalid="ignore", divide="ignore"):
            self.mean = totals.float_total("value") / self.texts
            # the mean over all rows of weights, where `mean` is over texts
            self.by_row = totals.row_value / totals.float_total("row_norm")
            self.baseline = totals.float_total("baseline") / self.texts
            squares = totals.strata_square.sum(0)  # over all lengths
            self.deviation = np.sqrt(variance(self.texts, totals.float_total("value"), squares))
        # ends of intervals, [2, column, head], and independent texts or clusters, [column, head]
        self.interval, self.units = self._intervals()

        # the number of independent texts as a share of all, the median over metrics and heads: 1
        # unless texts of one document, or equal ones, belong together
        self.alone = 1.0
        if self.texts.any():
            with np.errstate(invalid="ignore", divide="ignore"):
                share = float(np.nanmedian(self.units / self.texts))
            if not np.isnan(share):
                self.alone = share

        self.sampled: dict[tuple[int, int], int] = {}
        values = totals.sample.values / UNIT
        # the histogram bin of each number of the samples, [column, head, place in the sample]
        self._sample_bins = np.stack(
            [scale_named(name).bins(values[column]) for column, name in enumerate(self.columns)]
        )

    def _intervals(self) -> tuple[Floats, Floats]:
        """The 95% interval of each mean over texts, [2, column, head], and the number of
        independent units (texts, or clusters of texts) behind it, [column, head]."""
        # single texts, each a unit of its own
        units = self.texts
        deviation = self.deviation
        rests_on_one = np.zeros(self.texts.shape, bool)

        # Clusters of texts, where a field groups them or where texts are repeated so often that
        # bootstrap replicates vary as those of fewer texts do. Replicates of single, different
        # texts seldom look like a quarter fewer. `times`: how many texts each replicate drew,
        # [replicate, column, head].
        times = self.totals.float_total("replicate_texts")
        cluster_count = clusters(self.texts, times)
        is_clustered = bool(self.totals.plan.choice.cluster)
        with np.errstate(invalid="ignore", divide="ignore"):
            if self.texts.any() and np.nanmedian(cluster_count / self.texts) < REPEATED:
                is_clustered = True
            if is_clustered:
                units = cluster_count
                means = self.totals.float_total("replicate_value") / times
                # replicates vary as means of units do, less by (units − 1) / units
                deviation = means.std(0, ddof=1) * np.sqrt(units * units / (units - 1))
                rests_on_one = rests_on_few(means)

        intervals = []
        for column, name in enumerate(self.columns):
            scale = scale_named(name)
            # Clusters are given the skewness of their texts, too: their own is not known, and
            # intervals that take it for 0 hold the truth less often.
            text_skewness = skewness(
                self.counts["histogram"][:, self.bins[column]], scale.centres()
            )
            known_skewness = np.where(deviation[column] > 0, text_skewness, np.nan)
            is_share = scale.kind == "share"
            least = least_deviation(name)
            # shares of clusters that hardly differ get a wider interval: a rare cluster may be unseen
            is_even = deviation[column] < EVENER * least
            is_doubtful = rests_on_one[column] | (is_share & is_clustered & is_even)
            intervals.append(
                mean_interval(
                    self.mean[column],
                    deviation[column],
                    known_skewness,
                    units[column],
                    share=is_share,
                    least=least,
                    is_doubtful=is_doubtful,
                )
            )
        return np.stack(intervals, 1), units

    def parts(self) -> list[ScanHead]:
        """The document's part about every head, in the plan's order."""
        return [
            ScanHead(
                layer=layer,
                head=head,
                metrics={
                    name: self._metric(column, place)
                    for column, name in enumerate(self.totals.plan.metrics)
                    if name != MASSIVE
                },
                labels=self._labels(place) if self.totals.plan.measures.labels else [],
                effect=self._effect(place),
                why=self._why(layer, head),
                top=self._examples(place),
                sample=self._sample(place),
                links=self._links(place, layer),
            )
            for place, (layer, head) in enumerate(self.totals.plan.heads)
        ]

    def layers(self) -> list[ScanLayer]:
        """The document's part about each layer: its massive activations, whose totals are stored in
        the column of its head 0."""
        column = self.columns.index(MASSIVE)
        parts = []
        for place, (layer, head) in enumerate(self.totals.plan.heads):
            if head > 0:
                continue
            texts = int(self.texts[column, place])
            # bin 0 of the column's histogram holds the texts that have none
            histogram = self.counts["histogram"][place, self.bins[column]]
            texts_with_one = texts - int(histogram[0])
            part = ScanLayer(
                layer=layer,
                massive=self._metric(column, place),
                share=texts_with_one / texts if texts else None,
                share_ci95=wilson(texts_with_one * self.alone, texts * self.alone),
                top=[example for example in self._examples(place, is_layer=True) if example.value],
            )
            parts.append(part)
        return parts

    def _metric(self, column: int, place: int) -> ScanMetric:
        """The document's part about the metric in one column, of one head."""
        # these two are about vectors, which uniform weights alone do not decide
        baseline = None
        if self.columns[column] not in (MOVED, MASSIVE):
            baseline = _known_number(self.baseline[column, place])
        return ScanMetric(
            texts=int(self.texts[column, place]),
            rows=int(self.counts["rows"][column, place]),
            mean_texts=_known_number(self.mean[column, place]),
            mean_rows=_known_number(self.by_row[column, place]),
            sd=_known_number(self.deviation[column, place]),
            quantiles=self._quantiles(column, place),
            quantile_error=scale_named(self.columns[column]).error,
            ci95=_known_interval(self.interval[:, column, place]),
            baseline=baseline,
            strata=self._strata(column, place),
        )

    def _quantiles(self, column: int, place: int) -> dict[str, float | None]:
        """Quantiles of a column of a head by name, from its histogram; where all texts have the
        same value, exactly that value."""
        if self.deviation[column, place] == 0:
            return dict.fromkeys(QUANTILES, _known_number(self.mean[column, place]))
        histogram = self.counts["histogram"][place, self.bins[column]]
        values = quantiles(histogram, scale_named(self.columns[column]), tuple(QUANTILES.values()))
        return dict(zip(QUANTILES, values, strict=True))

    def _effect(self, place: int) -> ScanEffect | UnsetType:
        """The effect of removing a head, over all texts; unset for a head that was not removed."""
        if EFFECT not in self.columns:
            return UNSET
        column = self.columns.index(EFFECT)
        if not self.texts[column, place]:
            return UNSET
        return ScanEffect(
            texts=int(self.texts[column, place]),
            mean=_known_number(self.mean[column, place]),
            sd=_known_number(self.deviation[column, place]),
            quantiles=self._quantiles(column, place),
            ci95=_known_interval(self.interval[:, column, place]),
        )

    def _why(self, layer: int, head: int) -> ScanWhy | UnsetType:
        """How the scores of a head's strongest links divide into parts, as shares with intervals;
        unset for a head whose scores were not decomposed."""
        # the plan has (layer, head, names of the parts) of each such head; the arrays are in its
        # order
        plan = self.totals.plan.measures.why
        heads = [(planned_layer, planned_head) for planned_layer, planned_head, _ in plan]
        if (layer, head) not in heads:
            return UNSET
        number = heads.index((layer, head))
        _, _, names = plan[number]

        # of each part the sum over texts of what it adds as a query and as a key, [2, part], and
        # the sum of the advantages that all parts make up
        texts = int(self.totals.count_total("why_texts")[number])
        total = self.totals.float_total("why_total")[number]
        values = self.totals.float_total("why_value")[:, number, : len(names)]
        if not texts:
            return ScanWhy(texts=0, advantage=None, parts=[])
        shares = values / total

        # the same of each bootstrap replicate that drew a text with such a link
        totals = self.totals.float_total("why_replicate_total")[:, number]
        replicates = self.totals.float_total("why_replicate_value")[:, :, number, : len(names)]
        is_drawn = totals > 0
        replicate_shares = replicates[is_drawn] / totals[is_drawn, None, None]
        # independent texts: no more than there are with such a link
        units = min(texts, int(np.nanmin(self.units)))
        ends = ratio_interval(shares, replicate_shares, units)  # [2, query or key, part]
        rows = [
            ScanWhyPart(
                **parse_part_key(name)._asdict(),
                query_share=float(shares[0, place]),
                query_ci95=_known_interval(ends[:, 0, place]),
                key_share=float(shares[1, place]),
                key_ci95=_known_interval(ends[:, 1, place]),
            )
            for place, name in enumerate(names)
            if values[:, place].any()  # parts that add nothing are left out
        ]
        return ScanWhy(texts=texts, advantage=float(total / texts), parts=rows)

    def _strata(self, column: int, place: int) -> list[Stratum]:
        """The mean of a metric of a head over the texts of each stratum (a range of text lengths)
        that has texts.
        """
        # the last stratum has no longest text
        counts = self.counts["strata_texts"][:, column, place]
        values = self.strata_value[:, column, place]
        return [
            Stratum(most=most, texts=int(count), mean=float(value / count))
            for most, count, value in zip((*STRATA, None), counts, values, strict=True)
            if count
        ]

    def _labels(self, place: int) -> list[ScanLabel]:
        """The labels of a head: those that it earns over the corpus, is borderline for, or earns in
        some text. A label about the weight beyond the first token is left out where that is less
        than `LEAST_SHARE` of the head's weight.
        """
        labels: list[ScanLabel] = []
        for rule in LABELS.values():
            if rule.score.startswith("repeats_"):
                label = self._repeat_label(rule, place)
            else:
                label = self._metric_label(rule, place)
            if label is not None and (label.share is None or label.share >= LEAST_SHARE):
                labels.append(label)
        return labels

    def _repeat_label(self, label: Label, place: int) -> ScanLabel | None:
        """The label (duplicate or induction) that scores on random repeated tokens decide; None for
        a head below its threshold, or without such scores."""
        scores = self._repeats.get(self.totals.plan.heads[place])
        if scores is None:
            return None
        # only these two labels are decided so
        duplicate, induction = scores
        if label.score == "repeats_induction":
            score = induction
        else:
            score = duplicate
        if score < label.threshold:
            return None
        return ScanLabel(
            name=label.name,
            detail=None,
            score=score,
            threshold=label.threshold,
            texts=None,
            texts_ci95=None,
            ci95=None,
            earned=True,
            borderline=False,
            state=False,
            share=self._repeat_shares.get(self.totals.plan.heads[place]),
        )

    def _metric_label(self, label: Label, place: int) -> ScanLabel | None:
        """The label that a metric's mean decides; None for a head that does not earn it, is not
        borderline, and earns it in no text."""
        column = self.columns.index(column_of_label(label))
        earned_in = int(self.counts["label_texts"][METRIC_LABELS.index(label), place])
        texts = int(self.texts[column, place])
        score = self.mean[column, place]
        even = self.baseline[column, place]
        between = _known_interval(self.interval[:, column, place])

        # the mean over the corpus must reach the threshold, and be well above uniform attention;
        # a head is broad because it is like uniform attention
        if label.name == "broad":
            least = label.threshold
        else:
            least = max(label.threshold, MARGIN * even)
        is_earned = bool(score >= least)

        # is the decision certain, from the interval or from the share of texts that earn it?
        # `alone`: independent texts as a share of the texts that have the number
        if texts:
            alone = float(self.units[column, place] / texts)
        else:
            alone = 0.0
        share_ci95 = wilson(earned_in * alone, texts * alone)
        is_earned_in_all = is_earned and earned_in == texts
        borderline = not is_earned_in_all and _is_undecided(is_earned, between, share_ci95, least)
        # without an interval a label that no text earns is not told, though it is in doubt
        if not is_earned and not earned_in and (between is None or not borderline):
            return None

        # of a positional head the offset that most texts have, such as "-2" of "offset-2"
        detail = None
        if label.score == "positional":
            offsets = self.counts["label_offsets"][place]
            if offsets.any():
                detail = tuple(OFFSETS)[int(offsets.argmax())].removeprefix("offset")
        return ScanLabel(
            name=label.name,
            detail=detail,
            score=_known_number(score),
            threshold=label.threshold,
            texts=earned_in / texts if texts else None,
            texts_ci95=share_ci95,
            ci95=between,
            earned=is_earned,
            borderline=borderline,
            state=label.name in STATES,
            share=self._share_beyond(place) if label.name in LABEL_COLUMNS else None,
        )

    def _share_beyond(self, place: int) -> float | None:
        """The share of a head's weight that is not on the first token, mean over texts."""
        sink = self.mean[self.columns.index("sink"), place]
        return _known_number(1 - sink)

    def _sample(self, place: int) -> list[StratumExample] | UnsetType:
        """The sampled texts of a head to show: for each metric some of each decile of its values,
        then some whatever their value; unset where no sample was asked for."""
        if not self.totals.plan.measures.examples:
            return UNSET
        without_sample = (*LABEL_COLUMNS.values(), MASSIVE)  # and all metrics of single offsets
        examples = []
        for column, name in enumerate(self.columns):
            if name not in without_sample and not name.startswith("offset"):
                examples += self._sample_of_metric(place, column)
        return examples

    def _sample_of_metric(self, place: int, column: int) -> list[StratumExample]:
        """The sampled texts of a head to show for the metric in one column."""
        sample = self.totals.sample
        values = sample.values[column, place]
        has_value = (sample.table[0, place] != NO_HASH) & (values != NONE)
        strata = sample_strata(
            self.counts["histogram"][place, self.bins[column]],
            self._sample_bins[column, place],
            has_value,
            self.totals.plan.measures.examples,
        )
        examples = []
        for decile, index in strata:
            # the first field is the hash by which texts are drawn
            _, file, line, query, key = sample.table[:, place, index].tolist()
            if decile is not None:
                decile += 1  # documents count deciles from 1
            text_number = self.sampled.setdefault((file, line), len(self.sampled))
            examples.append(
                StratumExample(
                    metric=self.columns[column],
                    decile=decile,
                    value=float(values[index]) / UNIT,
                    text=text_number,
                    query=_position_or_none(query),
                    key=_position_or_none(key),
                )
            )
        return examples

    def _links(self, place: int, layer: int) -> list[FrequentLink] | UnsetType:
        """The most frequent (query token, key token) pairs of a head's strongest links; unset where
        links were not counted."""
        links = self.totals.links
        masks = self.totals.plan.measures.links  # by layer, the index of its mask
        if not masks:
            return UNSET
        texts = self.totals.counts.get("texts", 0)
        alone = self.alone  # the number of independent texts as a share of all
        return [
            FrequentLink(
                query=FrequentToken(id=pair.query, text=links.texts[pair.query]),
                key=FrequentToken(id=pair.key, text=links.texts[pair.key]),
                links=pair.links,
                most=pair.most,
                texts=pair.texts,
                share_ci95=wilson(pair.texts * alone, texts * alone),
                chance=pair.chance,
                lift=pair.links / pair.chance if pair.chance > 0 else None,
                lift_ci95=lift_interval(pair, texts, alone),
            )
            for pair in links.most_frequent(place, masks[layer], FREQUENT)
        ]

    def _examples(self, place: int, *, is_layer: bool = False) -> list[ScanExample]:
        """The texts in which each metric of a head is largest, for each metric the largest first.

        is_layer: return the texts with the layer's most massive activations instead.
        """
        arrays = self.totals.examples
        totals = self.totals
        examples = []
        for column, name in enumerate(self.columns):
            # the scores that decide labels have no examples of their own; massive activations are
            # the layer's, all other columns the head's
            if name in LABEL_COLUMNS.values() or (name == MASSIVE) != is_layer:
                continue
            for rank in range(arrays["value"].shape[-1]):
                value, file, line, query, key = (
                    int(arrays[field][column, place, rank])
                    for field in ("value", "file", "line", "query", "key")
                )
                if value == NONE:  # there are fewer texts than ranks
                    break
                examples.append(
                    ScanExample(
                        metric=name,
                        value=value / UNIT,
                        shard=totals.shards[file, line],
                        file=file,
                        line=line,
                        text=totals.texts[file, line],
                        query=_position_or_none(query),
                        key=_position_or_none(key),
                    )
                )
        return examples


FEWEST = 10
"""Texts with a pair, from which on its lift has an interval."""
LEAST_SPREAD = 5
"""Squares of what texts' numbers of a pair differ by, in all: below, nearly all have equally many,
and the rare others would decide."""


def lift_interval(pair: PairCount, texts: int, alone: float) -> list[float] | None:
    """The 95% interval of a pair's lift (its links divided by those that chance makes), from how
    texts' numbers of links vary; None where texts are too few or hardly differ, the number of links
    is not exact, or chance makes none.

    The number of links in a text varies with a variance that is estimated from the sum of squares.
    The interval is that of the logarithm of their mean, whose standard error is the relative one.

    texts: of the corpus.
    alone: the number of independent texts as a share of all, below 1 where texts belong together.
    """
    units = texts * alone
    has_few_texts = units < LEAST_TEXTS or pair.texts * alone < FEWEST
    if has_few_texts or pair.most > pair.links or pair.chance <= 0:
        return None
    # Σ (n − mean)² of the numbers n of links in each text
    squares = pair.squares - pair.links**2 / texts
    if squares * alone < LEAST_SPREAD:
        return None
    # the standard error of the number of links in all texts, larger where texts belong together
    error = math.sqrt(squares * texts / (texts - 1) / alone)
    width = reach(units - 1) * error / pair.links
    lift = pair.links / pair.chance
    return [lift * math.exp(-width), lift * math.exp(width)]


def _is_undecided(
    is_earned: bool,
    between: Sequence[float] | None,
    share_ci95: Sequence[float] | None,
    least: float,
) -> bool:
    """Whether more texts might change a label: its threshold lies within the interval of its score;
    or, without an interval, it is not certain on which side of a half the share of texts that earn
    it lies.

    is_earned: whether the label is earned now.
    between: the interval of its score; None where there is none.
    share_ci95: the interval of the share of texts that earn it; None without texts.
    least: what the score must reach.
    """
    if between is not None:
        return bool(between[0] < least <= between[1])
    if share_ci95 is None:
        return True
    low, high = share_ci95
    if is_earned:
        return low <= SURE
    return high >= SURE


SURE = 0.5
"""The share of texts that decide a label alone, where too few differ for an interval of the score:
on one side of it with its own interval, the label is not in doubt."""


def _known_number(value: Floats | float) -> float | None:
    """The number as a float; None for NaN."""
    if np.isnan(value):
        return None
    return float(value)


def _position_or_none(position: int) -> int | None:
    """A position in a text as documents hold it; None for −1, which means that there is none."""
    if position < 0:
        return None
    return position


def _known_interval(ends: Floats) -> list[float] | None:
    """The interval [low, high] as a list; None where an end is NaN."""
    if np.isnan(ends).any():
        return None
    return ends.tolist()


FEWER = 0.75
"""What replicates of single texts may tell of their number by chance, as a share."""


def scan_compare_document(a: Path, b: Path) -> ScanCompareDocument:
    """The `attn.scan_compare/1` document of two scans' folders.

    Means are compared within strata of length that both have, as many numbers depend on it. Raises
    InputError for an unfinished scan, UsageError for scans that share no heads or metrics.
    """
    first = _read_totals(a)
    second = _read_totals(b)
    if first.plan.model.heads != second.plan.model.heads:
        raise UsageError(
            "one scan has {heads} heads, the other {heads_2}",
            expected="models of as many layers and heads",
            heads=len(first.plan.heads),
            heads_2=len(second.plan.heads),
        )
    common = [
        name for name in first.plan.metrics if name in second.plan.metrics and name != MASSIVE
    ]
    if not common:
        raise UsageError("the scans have no metric in common", expected=listing(first.plan.metrics))
    is_paired = _text_selection(first) == _text_selection(second)
    a_side = _Side(first)
    b_side = _Side(second)
    has_texts = a_side.has_texts & b_side.has_texts
    differences = []
    for name in common:
        for place in range(len(first.plan.heads)):
            row = _difference_of_head(name, place, a_side, b_side, is_paired=is_paired)
            if row is not None:
                differences.append(row)

    # q values are p values adjusted for all heads and metrics together, in the order of the rows
    # that have a p value; a row without a p value gets no q value
    p_values = [row.p for row in differences if row.p is not None]
    q_values = iter(benjamini_hochberg(p_values))
    rows = []
    for row in differences:
        if row.p is not None:
            row = replace(row, q=next(q_values))
        rows.append(row)
    # the largest effect first; one that is not known counts as none
    rows.sort(
        key=lambda row: (
            -abs(row.cliffs_delta or 0.0),
            -abs(row.difference),
            row.layer,
            row.head,
            row.metric,
        )
    )
    return ScanCompareDocument(
        version=__version__,
        a=scan_document(first).plan,
        b=scan_document(second).plan,
        texts=[first.counts["texts"], second.counts["texts"]],
        paired=is_paired,
        strata=list(compress((*STRATA, None), has_texts)),
        differences=rows,
        warnings=_differences_of_plans(first.plan, second.plan),
    )


def _differences_of_plans(first: ScanPlan, second: ScanPlan) -> list[str]:
    """Warnings of what differs between two scans besides model and texts."""
    warnings: list[str] = []
    if first.dtype != second.dtype:
        warnings.append(message("the scans computed in different types"))
    if first.measures.exclude != second.measures.exclude:
        sides = [listing(plan.measures.exclude) or "-" for plan in (first, second)]
        warnings.append(
            message("the scans leave out different pairs: {a} and {b}", a=sides[0], b=sides[1])
        )
    return warnings


def _text_selection(totals: Totals) -> tuple[object, ...]:
    """The values that decide which texts a scan counted and how bootstrap replicates draw them,
    such as the corpus's digests and the seed; equal for two scans of the same texts."""
    plan = totals.plan
    choice = totals.plan.choice
    files = tuple((file.sha256, file.size) for file in plan.files)
    selection = (choice.sample, choice.threshold, choice.duplicates, choice.cluster)
    return files, plan.seed, selection, len(totals.done_shards), totals.counts["texts"]


def _read_totals(folder: Path) -> Totals:
    """The totals of a scan's finished shards. Raises InputError where there are none, or none can
    be read.
    """
    totals = total(read_plan(folder), folder)
    if not totals.done_shards and totals.broken:
        shard, reason = min(totals.broken.items())  # the first of them stands for all
        raise InputError(
            "no shard of this scan can be read; shard {shard}: {reason}",
            where=str(folder),
            shard=shard,
            reason=reason,
        )
    if not totals.done_shards:
        raise InputError(
            "nothing of this scan is done",
            where=str(folder),
            expected="a scan with finished shards",
        )
    return totals


class _Side:
    """One of two compared scans: its totals as float arrays over all columns and heads. What each
    holds is told at `_MetricOfHead`, which is cut out of them.

    has_texts: whether each stratum (range of text lengths) has texts, booleans [stratum].
    """

    def __init__(self, totals: Totals) -> None:
        """Take from a scan's totals the arrays that a comparison needs."""
        self.totals = totals
        self.bins = bins_of(totals.columns)  # of each column its slice of the histogram's bins
        texts = totals.count_total("strata_texts")
        # strata_texts is [stratum, column, head]; a stratum has texts if some column and head does
        self.has_texts: Bools = texts.max(axis=(1, 2)) > 0
        # texts, the sum of their values and the sum of squares: [3, stratum, column, head]
        self.strata: Floats = np.stack(
            [texts.astype(np.float64), totals.float_total("strata_value"), totals.strata_square]
        )
        self.times = totals.float_total("replicate_texts")  # [replicate, column, head]
        self.composition = totals.float_total("replicate_strata")  # [replicate, stratum, column]
        # a replicate that drew no texts has no mean
        with np.errstate(invalid="ignore", divide="ignore"):
            self.replicates = totals.float_total("replicate_value") / self.times
        self.histogram = totals.count_total("histogram")  # [head, bin], of all columns

    def metric_of_head(self, name: str, place: int) -> _MetricOfHead:
        """The numbers of one metric of one head.

        place: of the head among all of the model.
        """
        column = self.totals.columns.index(name)
        return _MetricOfHead(
            strata=np.ascontiguousarray(self.strata[:, :, column, place]),
            times=self.times[:, column, place],
            replicates=self.replicates[:, column, place],
            composition=self.composition[:, :, column],
            histogram=self.histogram[place, self.bins[column]],
            is_clustered=bool(self.totals.plan.choice.cluster),
        )


class _MetricOfHead(Struct, frozen=True, eq=False):
    """The numbers of one metric of one head in one scan.

    strata: how many texts have it, the sum of their values and of the squares, [3, stratum].
    times, replicates: of each bootstrap replicate how many texts it drew, and their mean.
    composition: how many from each stratum (a range of text lengths), [replicate, stratum].
    histogram: [bin].
    is_clustered: whether texts are grouped, as by document.
    """

    strata: Floats
    times: Floats
    replicates: Floats
    composition: Floats
    histogram: Ints
    is_clustered: bool

    @property
    def units(self) -> float:
        """How many independent units there are: the texts; where texts are grouped, the effective
        number of clusters divided by `FEWER`, the most that replicates may have understated it by
        chance."""
        texts = self.strata[0].sum(keepdims=True)
        if self.is_clustered:
            return float(clusters(texts, self.times)[0]) / FEWER
        return float(texts[0])


def _difference_of_head(
    name: str, place: int, a: _Side, b: _Side, *, is_paired: bool
) -> ScanDifference | None:
    """The difference a − b of a metric of one head within strata of text lengths; None where no
    stratum has texts in both scans. Its q is left None, since that depends on all differences.

    name: of the metric.
    place: of the head among all of the model.
    is_paired: whether both scans saw the same texts.
    """
    a_side = a.metric_of_head(name, place)
    b_side = b.metric_of_head(name, place)
    sides = (a_side, b_side)
    # row 0 of `strata` holds how many texts each stratum has
    strata = np.flatnonzero((a_side.strata[0] > 0) & (b_side.strata[0] > 0))
    if not strata.size:
        return None

    # of each side the number of texts, the sum of values and of squares in these strata, [3,
    # stratum]; its mean weights strata by the texts of both sides together
    within = [side.strata[:, strata] for side in sides]
    (a_texts, _, _), (b_texts, _, _) = within
    share = (a_texts + b_texts) / (a_texts + b_texts).sum()
    means = []
    for texts, values, _ in within:
        means.append(float((values / texts * share).sum()))
    difference = means[0] - means[1]

    # its interval, and how improbable it is by chance; without either where texts are few, or a
    # replicate drew none
    has_few_texts = min(side.units for side in sides) < LEAST_TEXTS
    if has_few_texts or any(np.isnan(side.replicates).any() for side in sides):
        z = None
        between = None
    elif is_paired:
        units = float(clusters(a_side.strata[0].sum(keepdims=True), a_side.times)[0])
        z, between = _paired_interval(a_side.replicates - b_side.replicates, difference, units)
    else:
        z, between = _unpaired_interval(sides, within, share, difference)

    # sizes of the effect; Cliff's delta is None where a side has no values
    delta, delta_error = cliffs_delta(a_side.histogram, b_side.histogram) or (None, None)
    spreads = [float(np.sqrt(variance(*sums.sum(1)))) for sums in within]
    counts = [int(a_texts.sum()), int(b_texts.sum())]
    layer, head = a.totals.plan.heads[place]
    if z is None:
        probability = None
    else:
        probability = two_sided(z)
    return ScanDifference(
        layer=layer,
        head=head,
        metric=name,
        a=means[0],
        b=means[1],
        difference=difference,
        ci95=between,
        cohens_d=cohens_d((means[0], means[1]), (spreads[0], spreads[1]), (counts[0], counts[1])),
        cliffs_delta=delta,
        cliffs_error=delta_error,
        z=z,
        p=probability,
        q=None,
    )


def _unpaired_interval(
    sides: Sequence[_MetricOfHead], within: Sequence[Floats], share: Floats, difference: float
) -> tuple[float | None, list[float] | None]:
    """z of a difference between scans that are not of the same texts, and its 95% interval; None
    for both where texts are too few.

    within: of each side the texts, sum and sum of squares in the strata that both have, [3,
        stratum].
    share: of each of these strata among the texts of both sides.
    difference: of the two means.

    Source: for the degrees of freedom Satterthwaite, An approximate distribution of estimates of
    variance, 1946.
    """
    # the variance of each side's mean, larger by the design effect where texts are clustered
    variances = []
    replicates = []
    uncertainties = 0.0
    for side, sums in zip(sides, within, strict=True):
        # each replicate's mean around what it would be if each of its texts were the mean of the
        # text's stratum; `composition` has the texts that a replicate drew of each stratum, and
        # `times` those that it drew in all
        texts, values, _ = side.strata
        expected = side.composition @ (values / np.maximum(texts, 1))
        replicates.append(side.replicates - expected / side.times)
        spread, uncertainty = mean_variance(share, sums[0], variance(*sums))
        if side.is_clustered:
            effect = design_effect(replicates[-1], _variance_alone(side.strata))
        else:
            effect = 1.0
        variances.append(float(spread) * effect)
        uncertainties += float(uncertainty) * effect**2
    total = variances[0] + variances[1]
    if math.isnan(total):
        return None, None

    # the standard error of the difference: scans of different corpora may still share texts, which
    # move both means the same way
    shared = correlation(replicates, [side.times for side in sides])
    covariance = shared * math.sqrt(variances[0] * variances[1])
    error = math.sqrt(max(total - 2 * covariance, 0.0))  # rounding may leave less than 0

    # how many standard errors the interval reaches depends on how well the variances are known
    if uncertainties > 0:
        degrees_of_freedom = total * total / uncertainties
    else:
        degrees_of_freedom = math.inf
    if error > 0:
        width = reach(degrees_of_freedom) * error
    else:
        width = 0.0
    if math.isinf(width):
        return None, None
    if error > 0:
        z = deviate(difference / error, degrees_of_freedom)
    else:
        z = None
    return z, [difference - width, difference + width]


def _variance_alone(strata: Floats) -> float:
    """The variance of a scan's mean within strata, [3, stratum] as of `_MetricOfHead`, if its texts
    were drawn one by one."""
    sums = strata[:, strata[0] > 0]
    return float(mean_variance(sums[0] / sums[0].sum(), sums[0], variance(*sums))[0])


def _paired_interval(
    differences: Floats, difference: float, units: float
) -> tuple[float | None, list[float] | None]:
    """z of a difference between scans of the same texts, and its 95% interval, from the differences
    of bootstrap replicates [replicate]; None for both where there are too few units.

    difference: of the two means.
    units: how many texts, or clusters of them, there are.
    """
    # `units` may be estimated from the replicates, which may tell fewer than there are
    if units < LEAST_TEXTS * FEWER:
        return None, None
    degrees_of_freedom = units - 1
    # replicates vary as means of units do, less by (units − 1) / units
    error = float(differences.std(ddof=1)) * math.sqrt(units / degrees_of_freedom)
    width = reach(degrees_of_freedom) * error
    if error > 0:
        z = deviate(difference / error, degrees_of_freedom)
    else:  # all replicates differ alike: no distribution to compare with
        z = None
    return z, [difference - width, difference + width]
