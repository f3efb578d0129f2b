"""`attn.scan/1`, `attn.scan_compare/1`, `attn.scan_verify/1`: what every head does over a corpus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from attncli.documents import Count, Document, Part, PlacedHead, Size, axes, describe
from attncli.features.rules.document import (
    RuledHead,
    RuleMeaning,
    RuleOverlaps,
    RuleStability,
    mixture_faults,
)
from attncli.language import message

Share = Annotated[float, Meta(ge=0, le=1)]
LEAST_TEXTS = 30
"""Texts, or clusters of them, from which on means have intervals: those of fewer hold the truth
less often (`tests/benchmarks/intervals.py`)."""
Interval = Annotated[list[float], Meta(min_length=2, max_length=2)]
KINDS = {
    "sink": message("the first token, where heads rest"),
    "special": message("special tokens"),
    "punctuation": message("punctuation"),
    "word_start": message("starts of words"),
    "same_word": message("the rest of its own word"),
    "self": message("itself"),
    "distance_1": message("1 token away"),
    "distance_2_4": message("2 to 4 tokens away"),
    "distance_5_16": message("5 to 16 tokens away"),
    "distance_17": message("17 tokens away or more"),
}
"""What the metrics are called that tell what a head looks at, in the order in which they are told.
"""
SKIP_NOTES = {
    "empty": message("{count} empty"),
    "long": message("{count} too long"),
    "undecodable": message("{count} undecodable"),
    "duplicate": message("{count} repeated"),
    message("not drawn"): message("{count} not drawn"),
    "unknown": message("{count} with unknown words"),
    "untokenized": message("{count} that the tokenizer fails on"),
}
"""How many texts were left out, by the reason that the document tells."""


class PlanPart(Part, frozen=True, kw_only=True):
    """What the numbers depend on; all of it is in the scan's plan.json."""

    digest: Annotated[str, describe("sha256 of the plan.")]
    model: Annotated[str, describe("As it was asked for.")]
    model_digest: Annotated[str, describe("sha256 over the weights, their config and adapters.")]
    adapters: Annotated[list[str] | UnsetType, describe("Adapters merged into the weights.")] = (
        UNSET
    )
    layers: Size
    corpus: Annotated[list[str], describe("The files, in order; positions in them count from 0.")]
    seed: Count
    dtype: str
    threads: Size
    isa: Annotated[
        list[str],
        describe(
            "Instruction sets of the machines that computed the shards; several are a mixed fleet."
        ),
    ]
    labels: Annotated[bool, describe("Whether heads were labelled.")]
    words: Annotated[bool, describe("Whether pieces were merged to words.")]
    exclude: Annotated[
        list[str] | UnsetType,
        describe("Kinds of pairs of query and key that no number counts; absent for none."),
    ] = UNSET
    find: list[str]
    effects: Annotated[list[str], describe("How heads were taken away, and which; empty for none.")]
    why: Annotated[
        list[str] | UnsetType, describe("The heads whose strongest links were taken apart.")
    ] = UNSET
    sample_memory: Annotated[
        Count | UnsetType,
        describe("Bytes that samples and pairs of tokens take of a worker's memory, at most."),
    ] = UNSET

    def model_with_adapters(self, model: str) -> str:
        """The name `model`, followed by " + " and the folder name of each adapter merged into it."""
        return " + ".join([model, *(Path(adapter).name for adapter in self.adapters or ())])


class FailedShard(Part, frozen=True, kw_only=True):
    """A shard that is not in the numbers."""

    shard: Count
    reason: str


class DonePart(Part, frozen=True, kw_only=True):
    """How much of the scan is done."""

    shards: Annotated[
        list[Count],
        Meta(min_length=2, max_length=2),
        describe("Shards that are done, of how many."),
    ]
    texts: Annotated[Count, describe("Texts in the numbers.")]
    tokens: Count
    truncated: Annotated[
        Count, describe("Texts in the numbers that were cut to the model's length.")
    ]
    unknown_texts: Annotated[
        Count | UnsetType,
        describe("Texts in the numbers with words that the model does not know; absent for none."),
    ] = UNSET
    unknown_tokens: Annotated[
        Count | UnsetType,
        describe("Tokens in the numbers that the model does not know; absent for none."),
    ] = UNSET
    failed: list[FailedShard]
    skipped: Annotated[
        dict[str, Count], describe("Records that are not in the numbers, by reason.")
    ]


class Stratum(Part, frozen=True, kw_only=True):
    """Texts of like length."""

    most: Annotated[
        int | None, describe("Tokens of the longest text that belongs here; null for no bound.")
    ]
    texts: Count
    mean: float


class ScanMetric(Part, frozen=True, kw_only=True):
    """A metric of one head over all texts. sd, quantiles and ci95 are of the texts' own means."""

    texts: Annotated[Count, describe("Texts that have the metric.")]
    rows: Annotated[Count, describe("Query rows in them that it is taken over.")]
    mean_texts: Annotated[float | None, describe("Mean over texts, each counted once.")]
    mean_rows: Annotated[float | None, describe("Mean over query rows: long texts count more.")]
    sd: float | None
    quantiles: Annotated[dict[str, float | None], describe("By percent, from a histogram.")]
    quantile_error: Annotated[
        float,
        describe(
            "The most that a bin puts a quantile off: absolute for shares, else relative; sizes"
            " below 0.0001 and signed distances within 0.001 are told as 0."
        ),
    ]
    ci95: Annotated[
        Interval | None,
        describe(
            "95% interval of mean_texts by a skewed t; null of fewer than 30 texts or clusters,"
            " where one makes it, or where they hardly differ."
        ),
    ]
    baseline: Annotated[float | None, describe("The same mean for uniform attention.")]
    strata: list[Stratum]


class ScanLabel(Part, frozen=True, kw_only=True):
    """A kind that a head is of, in at least one text."""

    name: str
    detail: Annotated[str | None, describe("Such as the offset of a positional head.")]
    score: Annotated[float | None, describe("The mean of the number that decides.")]
    threshold: Annotated[float, Meta(gt=0)]
    texts: Annotated[
        Share | None,
        describe("Share of texts that earn the label; null where it is decided on random repeats."),
    ]
    texts_ci95: Annotated[Interval | None, describe("Wilson's 95% interval of that share.")]
    ci95: Annotated[Interval | None, describe("95% interval of the score.")]
    earned: Annotated[
        bool,
        describe(
            "Whether the score over the corpus reaches the threshold and its margin over uniform."
        ),
    ]
    borderline: Annotated[
        bool,
        describe(
            "Whether the interval of the score holds what the label takes; where there is none,"
            " whether that of the share of texts holds a half, or is not known either. A label that"
            " every text earns is settled."
        ),
    ]
    state: Annotated[
        bool, describe("Whether it says where the head rests, beside what else it does.")
    ] = False
    share: Annotated[
        Share | None,
        describe(
            "Share of the head's weight that the score is of: what is not on the first token; null"
            " where it is of all."
        ),
    ] = None


class ScanExample(Part, frozen=True, kw_only=True):
    """One of the texts in which a head's metric is largest."""

    metric: str
    value: float
    shard: Count
    file: Annotated[Count, describe("Which file of the plan's corpus.")]
    line: Annotated[Count, describe("Line of the file, from 0.")]
    text: str
    query: Annotated[
        int | None,
        describe("The head's strongest link in this text; null where the text went by in blocks."),
    ]
    key: int | None


class ScanText(Part, frozen=True, kw_only=True):
    """A text that examples are told by."""

    shard: Count
    file: Annotated[Count, describe("Which file of the plan's corpus.")]
    line: Annotated[Count, describe("Line of the file, from 0.")]
    text: str


class StratumExample(Part, frozen=True, kw_only=True):
    """A text of a head's uniform sample that stands for a part of a metric's distribution."""

    metric: str
    decile: Annotated[
        Annotated[int, Meta(ge=1, le=10)] | None,
        describe(
            "1 for the tenth of the texts with the smallest numbers; null for one of any texts."
        ),
    ]
    value: float
    text: Annotated[Count, describe("Which of the document's texts.")]
    query: Annotated[
        int | None,
        describe("The head's strongest link in this text; null where the text went by in blocks."),
    ]
    key: int | None


class FrequentToken(Part, frozen=True, kw_only=True):
    """A token of the vocabulary."""

    id: Count
    text: str


class FrequentLink(Part, frozen=True, kw_only=True):
    """A pair of tokens: how often a row of the first has its strongest weight on one of the second."""

    query: FrequentToken
    key: FrequentToken
    links: Annotated[Count, describe("Query rows with this strongest link.")]
    most: Annotated[
        Count, describe("The most that they can be: more only where a shard let the pair go.")
    ]
    texts: Annotated[Count, describe("Texts with one at least.")]
    share_ci95: Annotated[
        Interval | None,
        describe("Wilson's 95% interval of the share of texts with one, or of documents."),
    ]
    chance: Annotated[
        float,
        describe(
            "Links that rows of the first would have if each drew its key as keys are drawn over"
            " the corpus by rows that are even over what they see."
        ),
    ]
    lift: Annotated[float | None, describe("links over chance; null where chance gives none.")]
    lift_ci95: Annotated[
        Interval | None,
        describe(
            "95% interval of the lift over other texts, tokens as frequent as here; null where"
            " fewer than 10 texts have the pair, texts hardly differ, or its number is not exact."
        ),
    ]


class ScanEffect(Part, frozen=True, kw_only=True):
    """How far the vector at the end of a text turns without the head, 1 − cos, over all texts."""

    texts: Count
    mean: float | None
    sd: float | None
    quantiles: Annotated[
        dict[str, float | None], describe("By percent, to 1%; what is below 0.0001 is 0.")
    ]
    ci95: Interval | None


class ScanWhyPart(Part, frozen=True, kw_only=True):
    """A part of the scores of a head's strongest links; see `attn.why/1`."""

    kind: str
    layer: Count | None
    attention: str | None
    head: Count | None
    place: str | None
    query_share: Annotated[
        float, describe("As part of the query: what it adds over all texts, over their advantages.")
    ]
    query_ci95: Interval | None
    key_share: Annotated[float, describe("As part of the key.")]
    key_ci95: Interval | None


class ScanWhy(Part, frozen=True, kw_only=True):
    """Why a head looks where it looks most, over the strongest link of each text: shares of either
    side sum to 1.
    """

    texts: Annotated[
        Count, describe("Texts with a link whose score is above what its row expects.")
    ]
    advantage: Annotated[
        float | None, describe("Mean over these texts: the score over what the row expects.")
    ]
    parts: Annotated[list[ScanWhyPart], describe("In the order of the model.")]


class AlikeHead(PlacedHead, frozen=True, kw_only=True):
    """A head that is like another."""

    value: Annotated[float, describe("A distance, or what two subspaces have in common.")]
    ci95: Annotated[Interval | None, describe("Over texts; null of fewer than 30.")]


class AlikeHeads(Part, frozen=True, kw_only=True):
    """The heads most like one, nearest first."""

    texts: Annotated[Count, describe("Texts that they are compared over.")]
    by_doing: Annotated[
        list[AlikeHead], describe("√(JS / ln 2) of their weights: 0 for the same, at most 1.")
    ]
    by_weights: Annotated[
        list[AlikeHead],
        describe(
            "The projection kernel of what values read and of what heads write, the mean of both, 0"
            " to 1."
        ),
    ]
    chance: Annotated[
        float | None,
        describe("That of random subspaces; null where a head's weights are not known."),
    ]


class ScanHead(PlacedHead, frozen=True, kw_only=True):
    """One head over the corpus."""

    metrics: dict[str, ScanMetric]
    labels: list[ScanLabel]
    effect: ScanEffect | UnsetType = UNSET
    why: ScanWhy | UnsetType = UNSET
    top: list[ScanExample]
    sample: Annotated[
        list[StratumExample] | UnsetType,
        describe("Texts of each decile of each metric, then of all."),
    ] = UNSET
    links: Annotated[
        list[FrequentLink] | UnsetType,
        describe("The most frequent pairs of tokens that strongest links go between."),
    ] = UNSET
    alike: Annotated[
        AlikeHeads | UnsetType,
        describe("With `attn scan show --head --alike`, which runs the model."),
    ] = UNSET


class ScanLayer(Part, frozen=True, kw_only=True):
    """The vectors that leave a layer, over the corpus."""

    layer: Count
    massive: Annotated[
        ScanMetric, describe("Numbers far above all others in a text's vectors: how many.")
    ]
    share: Annotated[Share | None, describe("Share of texts with one at least.")]
    share_ci95: Annotated[Interval | None, describe("Wilson's 95% interval of that share.")]
    top: Annotated[list[ScanExample], describe("The texts with the most.")]


class ScanRuleTexts(Part, frozen=True, kw_only=True):
    """The texts by what they are for, which a hash of each decides, or of its document where
    texts are grouped."""

    fitted: Annotated[Count, describe("Texts that weights were fitted to.")]
    choosing: Annotated[Count, describe("Texts that decided which rules stay.")]
    measured: Annotated[Count, describe("Texts that overlaps were measured on.")]
    chosen_rows: Annotated[
        Count, describe("Query rows kept to choose by, at most those there are.")
    ]
    measured_rows: Annotated[
        Count, describe("Query rows kept to measure on, at most those there are.")
    ]


class ScanRules(Part, frozen=True, kw_only=True):
    """Every head as a mixture of rules that need no model, as `attn.rules/1` has it, over the
    corpus; the model is not run with rules in place of heads."""

    texts: ScanRuleTexts
    rules: Annotated[list[RuleMeaning], describe("Those that heads were compared with.")]
    heads: Annotated[
        list[RuledHead],
        describe("In the order of layers; none where too few texts are fitted to or measured on."),
    ]
    overlap: RuleOverlaps | UnsetType = UNSET
    stability: Annotated[
        RuleStability | UnsetType,
        describe("Absent where the texts that are measured on are too few to be fitted to."),
    ] = UNSET


class ConditionHead(PlacedHead, frozen=True, kw_only=True):
    """A head with links that a condition of `--find` looks for."""

    texts: Annotated[Count, describe("Texts in which it has such a link.")]
    possible: Annotated[
        Count, describe("Texts in which it sees such a query and key, whatever the weight.")
    ]
    share: Annotated[Share, describe("The one as a share of the other.")]
    share_ci95: Annotated[Interval, describe("Wilson's 95% interval of that share.")]
    weight: Annotated[
        Share, describe("The largest such weight of each text that has one, mean over these.")
    ]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield (field, message) for more texts with a link than texts that could have one."""
        if self.texts > self.possible:
            what = message("there are {possible:,} such texts", possible=self.possible)
            yield "texts", what


class ScanCondition(Part, frozen=True, kw_only=True):
    """What was found of one `--find`."""

    condition: Annotated[str, describe("As it was asked.")]
    searched: Annotated[Count, describe("Heads that were searched.")]
    possible: Annotated[
        Count | UnsetType,
        describe("The most texts in which one of them sees such a query and key."),
    ] = UNSET
    first_keys: Annotated[
        Count | UnsetType,
        describe(
            "Texts in which the key that it names is the first token, on which trained heads put"
            " weight whatever the text says; absent for none."
        ),
    ] = UNSET
    counts_rest: Annotated[
        bool,
        describe(
            "Whether links to keys where heads rest count: the first token, special tokens that it"
            " does not name, line breaks; with `rest=yes`, and in scans of earlier versions."
        ),
    ] = True
    heads: Annotated[
        list[ConditionHead],
        describe("Those with such a link in some text, the largest share first."),
    ]


class TogetherHead(PlacedHead, frozen=True, kw_only=True):
    """A head with links that at least one condition of several `--find` looks for."""

    texts: Annotated[Count, describe("Texts in which it has a link of at least one of them.")]
    possible: Annotated[
        Count,
        describe("Texts in which it sees a query and key of at least one, whatever the weight."),
    ]
    share: Annotated[Share, describe("The one as a share of the other.")]
    share_ci95: Annotated[Interval, describe("Wilson's 95% interval of that share.")]
    shares: Annotated[
        list[Share | None],
        axes("", meaning="of each condition in the order of `find`; null where there is no text."),
    ]


class ScanTogether(Part, frozen=True, kw_only=True):
    """One ranking of heads over several `--find`."""

    searched: Annotated[Count, describe("Heads that were searched by at least one of them.")]
    heads: Annotated[
        list[TogetherHead],
        describe("Those with such a link in some text, the largest share first."),
    ]


class ScanDocument(Document, tag="attn.scan/1", frozen=True, kw_only=True):
    """What every head does over a corpus: means with intervals, labels, strongest examples."""

    plan: PlanPart
    done: DonePart
    heads: list[ScanHead]
    layers: Annotated[
        list[ScanLayer] | UnsetType, describe("With the metric `massive`, which is a layer's.")
    ] = UNSET
    link_rows: Annotated[
        Count | UnsetType,
        describe(
            "Query rows of each head whose strongest links are counted: those that see 2 keys."
        ),
    ] = UNSET
    texts: Annotated[list[ScanText] | UnsetType, describe("The texts of the heads' samples.")] = (
        UNSET
    )
    rules: Annotated[ScanRules | UnsetType, describe("With `attn scan --rules`.")] = UNSET
    find: Annotated[
        list[ScanCondition] | UnsetType,
        describe("With `attn scan --find`; absent where an earlier version computed a shard."),
    ] = UNSET
    find_together: Annotated[
        ScanTogether | UnsetType, describe("With several `--find`: one ranking over them.")
    ] = UNSET
    digest: Annotated[
        str | None,
        describe(
            "sha256 over sums, histograms and examples: equal for equal scans; null for a mixed"
            " fleet."
        ),
    ]
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield (field, message) for each head with other metrics than the first head, each example
        that refers to a text which is not there, and each fault of the rules."""
        for number, head in enumerate(self.heads):
            if head.metrics.keys() != self.heads[0].metrics.keys():
                yield (
                    f"heads[{number}].metrics",
                    message("other metrics than those of the first head"),
                )
            if self.texts is UNSET:
                texts = 0
            else:
                texts = len(self.texts)
            for place, example in enumerate(() if head.sample is UNSET else head.sample):
                if example.text >= texts:
                    yield (
                        f"heads[{number}].sample[{place}].text",
                        message("there are {texts:,} texts", texts=texts),
                    )
        if self.rules is not UNSET:
            for where, fault in mixture_faults(self.rules.heads, self.rules.rules):
                yield f"rules.{where}", fault


# `attn.scan_compare/1`: how two scans differ, head by head.


class ScanDifference(PlacedHead, frozen=True, kw_only=True):
    """One metric of one head in both scans; differences are a − b."""

    metric: str
    a: Annotated[
        float, describe("Mean over texts, each stratum weighted as in both scans together.")
    ]
    b: float
    difference: float
    ci95: Annotated[
        Interval | None,
        describe(
            "95% interval of the difference: of pairs from replicates, else from the spread of"
            " texts within strata."
        ),
    ]
    cohens_d: Annotated[
        float | None, describe("The difference over the pooled standard deviation of texts.")
    ]
    cliffs_delta: Annotated[float | None, describe("P(a > b) − P(a < b) of a text's value.")]
    cliffs_error: Annotated[float | None, describe("How far off equal bins may put it.")]
    z: Annotated[float | None, describe("The difference in standard errors, as a normal deviate.")]
    p: Annotated[Share | None, describe("Probability of such a difference by chance.")]
    q: Annotated[
        Share | None, describe("p adjusted for all heads and metrics (Benjamini–Hochberg).")
    ]


class ScanCompareDocument(Document, tag="attn.scan_compare/1", frozen=True, kw_only=True):
    """Two scans side by side, largest effect first."""

    a: PlanPart
    b: PlanPart
    texts: Annotated[list[Count], describe("Texts of a and of b.")]
    paired: Annotated[
        bool, describe("Whether both saw the same texts, so that their replicates are paired.")
    ]
    strata: Annotated[
        list[Annotated[int, Meta(ge=1)] | None],
        describe("Common strata: tokens of the longest text of each."),
    ]
    differences: list[ScanDifference]
    warnings: list[str]


# `attn.scan_verify/1`: shards of a scan computed again.


class VerifiedShard(Part, frozen=True, kw_only=True):
    """A shard computed again beside its file."""

    shard: Count
    same_bits: Annotated[bool, describe("Whether every number is the same, to the last bit.")]
    difference: Annotated[
        float, describe("The largest |difference| of a mean over the shard's texts.")
    ]
    counts_equal: Annotated[
        bool, describe("Whether texts, tokens and skipped records are as many.")
    ]


class ScanVerifyDocument(Document, tag="attn.scan_verify/1", frozen=True, kw_only=True):
    """Whether a scan's numbers are what its plan gives on this machine."""

    plan: Annotated[str, describe("sha256 of the plan.")]
    shards: list[VerifiedShard]
    same_machine: Annotated[
        bool,
        describe("Whether this machine is of the kind that computed them; else bits may differ."),
    ]
    tolerance: Annotated[float, describe("What a mean may differ by where bits may.")]
    passed: bool
    warnings: list[str]
