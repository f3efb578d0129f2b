"""Parts of documents that several features share, or that the engine makes: heads and layers of a
run, regions, metrics and labels of heads, masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType, field

from attncli.documents import (
    Count,
    Numbers,
    Part,
    PlacedHead,
    Share,
    Size,
    TopLink,
    Weight,
    axes,
    describe,
    index_of,
)
from attncli.language import contextual, message

Stages = Annotated[dict[str, Numbers], describe("With --full: every stage by name.")]


Projections = Annotated[
    dict[str, Numbers],
    describe("With --show W_Q and the like: the weights by which rows are multiplied, [in, out]."),
]


class MeanWithInterval(Part, frozen=True, kw_only=True):
    """A mean with its 95% interval; no ends where there are too few numbers for one."""

    mean: float
    low: float | None
    high: float | None

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield an error unless the interval has two ends, or none."""
        if (self.low is None) != (self.high is None):
            yield "high", message("an interval with one end")


class RunHead(Part, frozen=True, kw_only=True):
    """One head of a run: absent members were not kept."""

    head: Count
    scores: Annotated[
        Numbers | UnsetType,
        axes("query", "key", meaning="what enters the softmax; null where masked."),
    ] = UNSET
    weights: Annotated[
        Numbers | UnsetType,
        axes(
            "query",
            "key",
            meaning=(
                "each row sums to 1, to less with a learned sink, or is all 0 where nothing is"
                " visible."
            ),
        ),
    ] = UNSET
    output: Annotated[
        Numbers | UnsetType, axes("query", "", meaning="weights times values, of width d_v.")
    ] = UNSET
    stages: Stages | UnsetType = UNSET
    projections: Projections | UnsetType = UNSET


class HashProducts(Part, frozen=True, kw_only=True):
    """How the `lsh` mask of one head hashes the tokens' queries and keys: the bucket of a vector x
    is the place of the largest number in [xR; −xR], with a random matrix R for each round.
    """

    layer: Count
    head: Count
    query: Annotated[Numbers, axes("", "token", "", meaning="qR by round and column of R.")]
    key: Annotated[Numbers, axes("", "token", "", meaning="kR by round and column of R.")]


class RunLayer(Part, frozen=True, kw_only=True):
    """One layer of a run."""

    layer: Count
    heads: list[RunHead]
    output: Annotated[
        Numbers | UnsetType, axes("query", "", meaning="the output of the attention.")
    ] = UNSET
    stages: Stages | UnsetType = UNSET
    projections: Projections | UnsetType = UNSET
    hidden: Annotated[
        Numbers | UnsetType, axes("query", "", meaning="what leaves the layer, of width d_model.")
    ] = UNSET


class StrongestLink(PlacedHead, frozen=True, kw_only=True):
    """The strongest link of a head, null where it has none."""

    link: TopLink | None


class PooledMap(PlacedHead, frozen=True, kw_only=True):
    """The weights of a head in cells of pool × pool, each cell the largest."""

    pool: Size
    weights: Annotated[Numbers, axes("", "")]


class HeadRegions(PlacedHead, frozen=True, kw_only=True):
    """What one head does with the regions."""

    share: Annotated[
        Numbers, axes("region", meaning="of what the query looks at, the part in each region.")
    ]
    even: Annotated[
        Numbers, axes("region", meaning="the part that even attention to all it sees would give.")
    ]
    share_beyond_rest: Annotated[
        Numbers | UnsetType,
        axes("region", meaning="the part on each region's keys where heads do not rest."),
    ] = UNSET
    even_beyond_rest: Annotated[
        Numbers | UnsetType, axes("region", meaning="even attention's part of the same keys.")
    ] = UNSET


class RegionLink(PlacedHead, frozen=True, kw_only=True):
    """What one region's tokens give another region in one head."""

    query: Annotated[Count, index_of("region", "The region that looks.")]
    key: Annotated[Count, index_of("region", "The region that is looked at.")]
    weight: Annotated[
        float, describe("Summed over the keys of the region, the mean over the tokens that look.")
    ]
    even: Annotated[float, describe("The same with even attention.")]


class RegionPart(Part, frozen=True, kw_only=True):
    """How the weights are shared out over the regions. Regions may share tokens; then their shares
    add up to more than 1."""

    query: Annotated[
        Count, index_of("token", "The token that looks: that of --query, else the last.")
    ]
    share: Annotated[
        Numbers,
        axes(
            "region",
            meaning=(
                "of what the query looks at, the mean part over layers and heads; null for none."
            ),
        ),
    ]
    even: Annotated[
        Numbers, axes("region", meaning="the part that even attention to all it sees would give.")
    ]
    layers: Annotated[list[Count], describe("The layers that ran, in the order of `by_layer`.")]
    by_layer: Annotated[
        Numbers, axes("", "region", meaning="the same share, the mean over each layer's heads.")
    ]
    between: Annotated[
        Numbers,
        axes(
            "region",
            "region",
            meaning=(
                "from the tokens of one region to another: means over its tokens, layers, heads."
            ),
        ),
    ]
    between_even: Annotated[
        Numbers, axes("region", "region", meaning="the same with even attention.")
    ]
    heads: Annotated[list[HeadRegions], describe("Every head that ran.")]
    rest: Annotated[
        float | UnsetType | None,
        describe(
            "Of what the query looks at, the mean part on keys where heads rest whatever the text"
            " says: the first token, special tokens, line breaks and separators; 0 of weights that"
            " are not learned."
        ),
    ] = UNSET
    even_rest: Annotated[
        float | UnsetType | None, describe("Even attention's part of the same keys.")
    ] = UNSET
    share_beyond_rest: Annotated[
        Numbers | UnsetType,
        axes("region", meaning="the mean part on each region's keys where heads do not rest."),
    ] = UNSET
    even_beyond_rest: Annotated[
        Numbers | UnsetType, axes("region", meaning="even attention's part of the same keys.")
    ] = UNSET
    by_layer_beyond_rest: Annotated[
        Numbers | UnsetType,
        axes("", "region", meaning="`by_layer` on each region's keys where heads do not rest."),
    ] = UNSET
    rest_by_layer: Annotated[
        Numbers | UnsetType, axes("", meaning="the part of each layer on keys where heads rest.")
    ] = UNSET
    between_beyond_rest: Annotated[
        Numbers | UnsetType,
        axes("region", "region", meaning="`between` on the keys where heads do not rest."),
    ] = UNSET
    rest_between: Annotated[
        Numbers | UnsetType,
        axes("region", meaning="of the tokens of a region, the part on keys where heads rest."),
    ] = UNSET
    links: Annotated[
        list[RegionLink] | UnsetType,
        describe(
            "The strongest links between regions without common tokens, `rest` left out; strongest"
            " first."
        ),
    ] = UNSET


LABEL_NAMES = {
    "previous-token": contextual("label", "previous-token"),
    "next-token": contextual("label", "next-token"),
    "self": contextual("label", "self"),
    "positional": contextual("label", "positional"),
    "first-token sink": contextual("label", "first-token sink"),
    "special-token": contextual("label", "special-token"),
    "punctuation": contextual("label", "punctuation"),
    "duplicate-token": contextual("label", "duplicate-token"),
    "induction": contextual("label", "induction"),
    "broad": contextual("label", "broad"),
}
"""What people call each; in JSON, and where a label is looked up, it keeps its English name."""


def label_name(label: str, lang: str) -> str:
    """The name of a head's label in this language; the offset behind a positional label stays as it
    is: `positional -2` is `固定偏移 -2`. A label that is not listed is returned unchanged.
    """
    if label in LABEL_NAMES:
        return LABEL_NAMES[label].translation(lang)
    name, _, detail = label.rpartition(" ")
    if name in LABEL_NAMES:
        return f"{LABEL_NAMES[name].translation(lang)} {detail}"
    return label


class MetricValue(Part, frozen=True, kw_only=True):
    """A metric's value, null where no row could be used."""

    value: float | None
    rows: Annotated[Count, describe("Rows that the mean is over.")]


Metrics = Annotated[
    dict[str, MetricValue], describe("Metrics by name; `attn explain metric NAME` defines them.")
]


class LabelScore(Part, frozen=True, kw_only=True):
    """The score that earned a label."""

    name: str
    score: float
    threshold: float
    detail: Annotated[str | None, describe("Such as −3.")]
    state: Annotated[
        bool, describe("Whether it says where the head rests, beside what it does.")
    ] = False
    share: Annotated[
        float | None,
        describe(
            "Share of the head's weight that the score is measured on, the first token left out; null"
            " of labels that say where a head rests."
        ),
    ] = None


class Merge(Part, frozen=True, kw_only=True):
    """Two rows of the distances, or earlier merges counted after them, that join."""

    a: Count
    b: Count
    height: Annotated[
        float, Meta(ge=0, le=1.00001, description="The distance at which they join, 0 to 1.")
    ]


class MaskWords(Part, frozen=True, kw_only=True):
    """A mask in words."""

    en: str
    zh: str


class KeysPerQuery(Part, frozen=True, kw_only=True):
    """How many keys a query sees."""

    least: Count
    mean: float
    most: Count


class ShareMap(Part, frozen=True, kw_only=True):
    """Which share of its pairs each cell shows."""

    block: Annotated[Size, describe("Each cell stands for block × block pairs.")]
    share: Annotated[Numbers, axes("cell", "cell")]


class MaskPart(Part, frozen=True, kw_only=True):
    """What one mask shows."""

    spec: Annotated[str, describe("As --mask spells it.")]
    words: MaskWords = field(name="says")
    everything: Annotated[bool, describe("Whether nothing is hidden.")]
    pairs: Annotated[Count, describe("Visible pairs.")]
    share: Annotated[Share, describe("Of all pairs, 0 to 1.")]
    keys_per_query: KeysPerQuery
    empty_rows: Annotated[
        list[Annotated[Count, index_of("position")]], describe("Queries that see nothing.")
    ]
    unseen_keys: list[Annotated[Count, index_of("position")]]
    map: ShareMap
    form: Annotated[str | UnsetType, describe("How such masks are written.")] = UNSET


class TargetToken(Part, frozen=True, kw_only=True):
    """An entry of the vocabulary."""

    id: Count
    text: str
    word: Annotated[
        str | UnsetType,
        describe("What was asked for, where that is several entries and this the first of them."),
    ] = UNSET


class NextToken(Part, frozen=True, kw_only=True):
    """A token that would come next, and with which probability."""

    token: TargetToken
    probability: Weight


class Weighed(Part, frozen=True, kw_only=True):
    """Keys whose attention weights were multiplied before rows were scaled to sum to 1 again."""

    name: Annotated[str, describe("The region, or the words.")]
    keys: Annotated[list[Annotated[Count, index_of("token")]], Meta(min_length=1)]
    factor: Annotated[float, Meta(ge=0)]
    heads: Annotated[list[PlacedHead] | None, describe("In which heads; null for all.")]
