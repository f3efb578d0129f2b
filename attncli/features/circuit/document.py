"""`attn.circuit/1`: which parts of a model carry a difference, through which edges, how faithfully."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

from attncli.documents import Count, Document, ModelPart, Part, Share, Size, describe
from attncli.features.effects.document import Difference
from attncli.language import message

CircuitReads = Literal["q", "k", "v", "mlp", "logits"]


class CircuitMeasure(Part, frozen=True, kw_only=True):
    """m = logit(answer) − logit(versus) at the last token, means over all pairs."""

    clean: Annotated[float, describe("After the clean texts.")]
    corrupt: Annotated[float, describe("After the corrupt texts.")]
    right: Annotated[Share, describe("Share of pairs whose m_clean is above 0.")]


class CircuitPairs(Part, frozen=True, kw_only=True):
    """The pairs: no pair is in both groups."""

    name: Annotated[str, describe("The file of pairs, or the task of the package.")]
    choice: Annotated[Size, describe("Pairs that edges were scored on.")]
    held_out: Annotated[Size, describe("Other pairs, on which circuits were tested.")]
    left_out: Annotated[Count, describe("Pairs that do not fit the model, and repeated ones.")]


class NodeRule(Part, frozen=True, kw_only=True):
    """The strongest rule of a head over the clean texts."""

    rule: Annotated[str, describe("Its name, as in `attn explain rule`.")]
    weight: Annotated[Share, describe("Its part of the head's mixture of rules.")]
    overlap: Annotated[
        Share,
        describe("Of the head's weights, what the mixture says on texts it was not fitted to."),
    ]


class CircuitNode(Part, frozen=True, kw_only=True):
    """A part of the model that carries something in the circuit. Ids: embed, L5H3, L5MLP, logits."""

    id: str
    kind: Literal["embedding", "head", "mlp", "logits"]
    layer: Count | None
    head: Count | None
    strength: Annotated[float, describe("Σ |score| over its edges to later parts.")]
    reads: Annotated[str | None, describe("The node whose edge to it is strongest.")]
    writes: Annotated[str | None, describe("The reader of its strongest edge.")]
    labels: Annotated[
        list[str] | UnsetType,
        describe("Of a head: what its attention looks like, over clean texts and random repeats."),
    ] = UNSET
    rule: Annotated[
        NodeRule | UnsetType,
        describe("Of a head of which rules say half or more; not below six clean texts."),
    ] = UNSET
    difference: Annotated[
        Difference | UnsetType,
        describe(
            "Of a head: what m loses with its values of the corrupt text; held: by what it writes."
        ),
    ] = UNSET


class CircuitEdge(Part, frozen=True, kw_only=True):
    """An edge of the circuit."""

    writer: Annotated[str, describe("The node that writes.")] = field(name="from")
    to: Annotated[
        str,
        describe("The node that reads; L5KV1 is a key-value head that several heads share."),
    ]
    reads: CircuitReads
    score: Annotated[
        float, describe("About what m changes by where the edge carries the corrupt value.")
    ]
    positions: Annotated[
        list[float] | UnsetType,
        describe(
            "With --by-position: the score at each token, a mean over all pairs of the choice; of the"
            " circuit's edges the sum is the score."
        ),
    ] = UNSET


class CircuitSize(Part, frozen=True, kw_only=True):
    """A circuit of one size, tested on the held-out pairs."""

    share: Annotated[Share, describe("Of all edges.")]
    edges: Size
    live: Annotated[
        Count, describe("Edges from the embedding up to the logits; others do nothing.")
    ]
    faithfulness: Annotated[
        float,
        describe("(m(circuit) − m(corrupt)) / (m(clean) − m(corrupt)), sums over held-out pairs."),
    ]
    low: Annotated[
        float | None,
        describe("End of its 95% interval; null below 20 pairs, and where all give the same."),
    ]
    high: float | None
    random: Annotated[float, describe("The same for as many edges drawn at random.")]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield (field, message) for an interval of which only one end is given."""
        if (self.low is None) != (self.high is None):
            yield "high", message("an interval with one end")


class EdgeCut(CircuitEdge, frozen=True, kw_only=True):
    """An edge cut alone, by an exact run."""

    exact: Annotated[float, describe("What m changes by on the pairs of the cuts.")]


class ExactCuts(Part, frozen=True, kw_only=True):
    """The strongest edges, each cut alone, beside their scores on the same pairs."""

    pairs: Size
    edges: list[EdgeCut]
    correlation: Annotated[
        float | None, describe("Of scores and exact changes; null where one does not vary.")
    ]


class SizedNode(Part, frozen=True, kw_only=True):
    """A part of the model, and from which size on it carries something."""

    id: Annotated[str, Meta(pattern=r"^(embed|logits|L[0-9]{1,6}(H[0-9]{1,6}|MLP))$")]
    least: Annotated[Size, describe("Edges of the smallest size in which it carries something.")]


class SizedEdge(CircuitEdge, frozen=True, kw_only=True):
    """An edge, and from which size on it is live."""

    to: Annotated[str, Meta(pattern=r"^(logits|L[0-9]{1,6}((H|KV)[0-9]{1,6}|MLP))$")]
    least: Annotated[Size, describe("Edges of the smallest size in which it is live.")]


class CircuitGraph(Part, frozen=True, kw_only=True):
    """What a picture draws of circuits of all sizes: the curve's, and the chosen one."""

    most: Annotated[Size, describe("Edges that are listed of each size, the strongest live ones.")]
    nodes: Annotated[list[SizedNode], describe("Every part that is in any of them.")]
    edges: Annotated[list[SizedEdge], describe("The strongest first, each once.")]


class CircuitDocument(Document, tag="attn.circuit/1", frozen=True, kw_only=True):
    """A circuit: edges chosen by EAP-IG on some pairs, and tested by exact replacement on others."""

    model: ModelPart
    dtype: str
    measure: CircuitMeasure
    pairs: CircuitPairs
    graph_edges: Annotated[Size, describe("Edges of the whole model.")]
    chosen: Annotated[CircuitSize, describe("The circuit whose nodes and edges follow.")]
    chosen_by: Annotated[
        Literal["keeps", "size"],
        describe("keeps: the smallest of the sizes that keeps 80% on the pairs of the choice."),
    ]
    nodes: Annotated[list[CircuitNode], describe("In the order in which they run.")]
    role_pairs: Annotated[
        Count | UnsetType,
        describe("Pairs of the choice on which heads were replaced, for their difference."),
    ] = UNSET
    edges: Annotated[list[CircuitEdge], describe("Live ones, the strongest first.")]
    curve: Annotated[list[CircuitSize], Meta(min_length=1)]
    all: Annotated[float, describe("Faithfulness of all edges, against the model's own runs: 1.")]
    none: Annotated[float, describe("The same of no edges: 0.")]
    cpr: Annotated[float, describe("Area below the curve.")]
    cmd: Annotated[float, describe("Area between the curve and 1.")]
    stability: Annotated[
        Share | None,
        describe(
            "Mean share of the edges of either that two circuits have both, over circuits of this"
            " size chosen on pairs drawn again; null below two pairs."
        ),
    ]
    cuts: Annotated[ExactCuts, describe("On pairs of the choice.")] = field(name="exact")
    graph: Annotated[
        CircuitGraph | UnsetType, describe("Circuits of all sizes, for a picture.")
    ] = UNSET
    tokens: Annotated[
        list[str] | UnsetType,
        describe("With --by-position: the tokens of the first clean text of the choice."),
    ] = UNSET
    steps: Annotated[Size, describe("Inputs between corrupt and clean, for the scores.")]
    seed: Count
    warnings: list[str]


# `attn.circuit_compare/1`: how much two circuits overlap.


class CircuitSide(Part, frozen=True, kw_only=True):
    """One of two circuits."""

    name: Annotated[str, describe("Its file.")]
    model: str
    pairs: Annotated[str, describe("The file of pairs, or the task of the package.")]
    seed: Count
    edges: Annotated[Size, describe("Live edges of the whole circuit.")]
    stability: Annotated[
        Share | None,
        describe("What circuits of its size chosen on pairs drawn again share; null for one pair."),
    ]


class Overlap(Part, frozen=True, kw_only=True):
    """What two sets have in common."""

    both: Count
    either: Count
    share: Annotated[Share | None, describe("both / either (Jaccard); null where neither has any.")]


class CircuitCompareDocument(Document, tag="attn.circuit_compare/1", frozen=True, kw_only=True):
    """Two circuits side by side, at equal sizes."""

    a: CircuitSide
    b: CircuitSide
    size: Annotated[Size, describe("The strongest edges of each that are compared.")]
    edges: Overlap
    heads: Annotated[Overlap, describe("Heads that write to these edges.")]
    only_a: Annotated[list[str], describe("Heads that a has and b has not, the strongest first.")]
    only_b: list[str]
    correlation: Annotated[
        float | None,
        describe("Of the ranks of |score| over the edges of both (Spearman); null below three."),
    ]
    chance: Annotated[
        Share, describe("The share that two circuits of as many edges drawn at random have.")
    ]
    warnings: list[str]
