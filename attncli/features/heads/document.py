"""`attn.heads/1`: all heads compared on one text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Annotated, Literal

from msgspec import UNSET, UnsetType, field

from attncli.documents import (
    Count,
    EmptyRows,
    Entropy,
    Header,
    LeftOut,
    Numbers,
    Part,
    PlacedHead,
    Regions,
    Resources,
    Size,
    TopLink,
    axes,
    describe,
    index_of,
    keys_of,
)
from attncli.documents.parts import LabelScore, Merge, Metrics, RegionPart
from attncli.features.rules.document import HeadMixture
from attncli.language import message

ACROSS = ("rollout", "flow", "similarity", "circuits")
"""What `--across` can add, in the order of the screen."""


class MovedMetrics(Part, frozen=True, kw_only=True):
    """The same with weight × size of the transformed value in place of weight, rows scaled to sum
    to 1.
    """

    metrics: Metrics
    top_link: TopLink | None


class HeadMetrics(PlacedHead, frozen=True, kw_only=True):
    """One head with its metrics, strongest link and labels."""

    metrics: Metrics
    baseline: (
        Annotated[
            Metrics, describe("The same metrics if every row were uniform over what it may see.")
        ]
        | UnsetType
    ) = UNSET
    top_link: TopLink | None
    sorted_by: Annotated[
        float | UnsetType | None, describe("With --sort: the value that orders the heads.")
    ] = UNSET
    labels: Annotated[
        list[str] | UnsetType,
        describe("With --labels: what the head looks like, such as previous-token."),
    ] = UNSET
    label_scores: Annotated[
        list[LabelScore] | UnsetType, describe("The score that earned each label.")
    ] = UNSET
    pool: Annotated[
        Size | UnsetType,
        describe(
            "Of a text too long for whole weights: each cell is the largest of pool × pool weights."
        ),
    ] = UNSET
    weights: Annotated[
        Numbers | UnsetType,
        axes("query", "key", meaning="without what was excluded; or cells of pool × pool."),
    ] = UNSET
    moved: Annotated[MovedMetrics | UnsetType, describe("With --moved.")] = UNSET
    rules: Annotated[
        HeadMixture | UnsetType,
        describe("With --rules-of: the simple rules that were fitted to it on other texts."),
    ] = UNSET


class LayerMassive(Part, frozen=True, kw_only=True):
    """The vectors that leave a layer."""

    layer: Count
    massive: Annotated[
        Count, describe("Numbers above 100 and 1,000 times the median of all that leave the layer.")
    ]


class AverageHead(Part, frozen=True, kw_only=True):
    """The mean of the heads' weights of the last layer."""

    weights: Annotated[Numbers, axes("query", "key")]
    entropy: (
        Annotated[Entropy, describe("Of the average, in nats, mean over rows that see something.")]
        | UnsetType
    ) = UNSET
    heads_entropy: (
        Annotated[
            Entropy,
            describe(
                "Of its heads, their mean; `entropy` less this is what averaging hides, 0 where all"
                " are alike."
            ),
        ]
        | UnsetType
    ) = UNSET


ExcludedKind = Literal["first", "special", "self", "neighbours", "punctuation", "separators"]


class Excluded(Part, frozen=True, kw_only=True):
    """What no number of the document counts."""

    names: list[ExcludedKind]
    renormalised: bool


class Order(Part, frozen=True, kw_only=True):
    """The order of the heads."""

    metric: str
    rising: bool


class WhichHead(PlacedHead, frozen=True, kw_only=True):
    """A head by its place."""


class Rollout(Part, frozen=True, kw_only=True):
    """Layers multiplied; and the same of uniform attention."""

    weights: Annotated[Numbers, axes("token", "token")]
    uniform: Annotated[Numbers, axes("token", "token")]


class Flow(Part, frozen=True, kw_only=True):
    """Maximum flow through the layers, rows scaled to sum to 1."""

    weights: Annotated[Numbers, axes("token", "token")]


class Similarity(Part, frozen=True, kw_only=True):
    """How alike heads are."""

    heads: Annotated[
        list[WhichHead],
        axes("head alike", meaning="the heads in the order of the rows of `distances`."),
    ]
    distances: Annotated[
        Numbers,
        axes("head alike", "head alike", meaning="√(Jensen–Shannon / ln 2) between heads, 0 to 1."),
    ]
    order: Annotated[
        list[Annotated[Count, index_of("head alike")]],
        axes("head alike", meaning="rows in the order of the tree's leaves."),
    ]
    tree: Annotated[list[Merge], describe("Average linkage: rows, then earlier merges, join.")]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield (field, message) for each fault: the merges must be a tree of all heads, and the
        order that of its leaves.
        """
        # the heads of each cluster: single ones first, then those of each merge; [] once joined
        clusters = [[row] for row in range(len(self.heads))]
        for number, merge in enumerate(self.tree):
            is_missing = max(merge.a, merge.b) >= len(clusters) or merge.a == merge.b
            if is_missing or not clusters[merge.a] or not clusters[merge.b]:
                yield f"tree[{number}]", message("it joins what is not there, or is joined already")
                return
            clusters.append([*clusters[merge.a], *clusters[merge.b]])
            clusters[merge.a] = clusters[merge.b] = []
        leaves = [row for cluster in clusters for row in cluster]
        left = sum(1 for cluster in clusters if cluster)
        if leaves != self.order or left > 1:
            yield "order", message("these are not the leaves of the tree in their order")


class CircuitHead(PlacedHead, frozen=True, kw_only=True):
    """What the weights of a head do by themselves."""

    copying: Annotated[float | None, describe("Re Σλ / Σ|λ| of W_OV, −1 to 1.")]
    qk_norm: Annotated[float, describe("‖W_QK‖, scale included.")]
    ov_norm: Annotated[float, describe("‖W_OV‖.")]


Subspace = Literal["q", "k", "v", "o"]
Kernel = Annotated[
    float | None,
    describe(
        "‖UᵀV‖² of orthonormal bases over the smaller rank, 0 to 1: what two subspaces have in"
        " common."
    ),
]


class Composition(Part, frozen=True, kw_only=True):
    """How strongly one head reads another's output."""

    way: Literal["q", "k", "v"]
    strength: float | None
    kernel: Annotated[
        Kernel | UnsetType,
        describe("Of what the earlier head writes and what the later one reads."),
    ] = UNSET
    before: WhichHead = field(name="from")
    after: WhichHead = field(name="to")


class Chance(Part, frozen=True, kw_only=True):
    """The composition of random matrices."""

    q: float
    k: float
    v: float


class Likeness(Part, frozen=True, kw_only=True):
    """Two heads whose weights have much in common."""

    space: Annotated[
        Subspace,
        describe("What the queries, keys or values read of the stream, or what is written to it."),
    ]
    kernel: Kernel
    a: WhichHead
    b: WhichHead


class KernelChance(Part, frozen=True, kw_only=True):
    """What random subspaces of that rank have in common."""

    mean: float
    largest: Annotated[float, describe("Of all draws.")]
    draws: Size


class Circuits(Part, frozen=True, kw_only=True):
    """Copying scores, norms, compositions, and how alike heads are by their weights."""

    heads: list[CircuitHead]
    compositions: Annotated[
        list[Composition], describe("The strongest between heads of different layers.")
    ]
    chance: Chance | None
    likeness: Annotated[
        list[Likeness] | UnsetType,
        describe("Of each subspace the pairs of heads that are most alike."),
    ] = UNSET
    kernel_chance: KernelChance | UnsetType | None = UNSET


class DirectionToken(Part, frozen=True, kw_only=True):
    """A token whose vector lies near a direction."""

    id: Count
    text: str
    cosine: float


class DirectionEnd(Part, frozen=True, kw_only=True):
    """A direction by the tokens nearest to it, and nearest to its opposite: it has no sign."""

    toward: list[DirectionToken]
    opposite: list[DirectionToken]


class Direction(Part, frozen=True, kw_only=True):
    """A singular direction of what a head does."""

    circuit: Annotated[
        Literal["ov", "qk"],
        describe("ov: what is read becomes what is written; qk: queries meet keys."),
    ]
    size: Annotated[float, describe("The singular value.")]
    share: Annotated[float, describe("Of the squared norm of the whole.")]
    reads: Annotated[
        DirectionEnd, describe("Of ov: what is read; of qk: what asks. By embeddings.")
    ]
    writes: Annotated[
        DirectionEnd,
        describe(
            "Of ov: what is written, by the output head if there is one; of qk: what answers."
        ),
    ]


class HeadDirections(PlacedHead, frozen=True, kw_only=True):
    """The strongest directions of one head."""

    directions: list[Direction]


Role = Literal[
    "previous token",
    "first-token rest",
    "duplicate token",
    "induction",
    "retrieval",
    "copying",
    "successor",
]


class RankedHead(PlacedHead, frozen=True, kw_only=True):
    """A head with its score."""

    score: float


class RoleRank(Part, frozen=True, kw_only=True):
    """The heads that do most of one thing."""

    role: Role
    metric: Annotated[str, describe("The metric that scores it.")]
    chance: Annotated[
        float | None, describe("What even attention, or a head that writes at random, would have.")
    ]
    heads: Annotated[list[RankedHead], describe("The highest score first, at most ten.")]


class HeadsDocument(Header, tag="attn.heads/1", frozen=True, kw_only=True):
    """Heads compared on one text. Positions, layers and heads count from 0."""

    heads: list[HeadMetrics]
    layers: Annotated[
        list[LayerMassive] | UnsetType, describe("With the metric `massive`, which is a layer's.")
    ] = UNSET
    average: AverageHead | UnsetType | None = UNSET
    empty_rows: EmptyRows | UnsetType = UNSET
    warnings: list[str]
    links_leave_out: LeftOut | UnsetType = UNSET
    excluded: Annotated[
        Excluded | UnsetType, describe("With --exclude: what no number here counts.")
    ] = UNSET
    sort: Annotated[Order | UnsetType, describe("With --sort: the order of `heads`.")] = UNSET
    rollout: Rollout | UnsetType = UNSET
    flow: Flow | UnsetType = UNSET
    similarity: Similarity | UnsetType = UNSET
    circuits: Circuits | UnsetType = UNSET
    directions: Annotated[list[HeadDirections] | UnsetType, describe("With --directions.")] = UNSET
    roles: Annotated[
        list[RoleRank] | UnsetType, describe("With --roles: the heads in the order of each role.")
    ] = UNSET
    resources: Resources | UnsetType = UNSET
    regions: Regions | UnsetType = UNSET
    region_shares: Annotated[
        RegionPart | UnsetType, describe("With --region: what goes to each region, head by head.")
    ] = UNSET
    heads_in_all: Annotated[
        Size | UnsetType,
        describe(
            "With --top: how many heads there were; `heads` holds the first by their order, or those"
            " of the strongest links."
        ),
    ] = UNSET

    def lengths(self) -> Mapping[str, int | range]:
        """How many entries the axes have that the fields of this document name: "query" and "key"
        one for each token, or in pooled maps one for each `pool` tokens; "region"; and those of
        every document.
        """
        count = len(self.tokens)
        # all heads have the same pool
        pool = next((head.pool for head in self.heads if head.pool is not UNSET), 1)
        cells = ceil(count / pool)
        keys: int | range = cells
        if pool == 1:
            # whole weights may have learned keys behind the tokens
            keys = keys_of(cells)
        regions = 0
        if self.regions is not UNSET:
            regions = len(self.regions)
        return {**super().lengths(), "query": cells, "key": keys, "region": regions}

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield (field, message) for each fault: the document must hold the weights of all heads, in
        one size, or of none.
        """
        yield from super().validation_errors()
        if len({(head.weights is UNSET, head.pool) for head in self.heads}) > 1:
            yield "heads", message("weights of some heads only, or cells of several sizes")
