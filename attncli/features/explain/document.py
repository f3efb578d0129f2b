"""`attn.explain/1`: one query's derivation, or another topic explained; `topic` tells which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, TypeVar, get_args

from msgspec import UNSET, UnsetType, field

from attncli.documents import (
    AttentionPart,
    Count,
    Document,
    EmptyRows,
    Header,
    ModelPart,
    Numbers,
    Part,
    ShapeRows,
    Size,
    TokenRow,
    Weight,
    axes,
    describe,
    index_of,
    keys_of,
    position_errors,
)
from attncli.documents.parts import HashProducts
from attncli.language import listing, message

# The topic `attention` of `attn.explain/1`: one query's attention, step by step.

Values = list[float | None]


class Projections(Part, tag_field="step", tag="projections", frozen=True, kw_only=True):
    """q, k and v of the token and of every key."""

    formula: str
    x: Annotated[Numbers, axes("width")]
    q: Annotated[Numbers, axes("dim")]
    column: Annotated[
        Numbers | UnsetType, axes("width", meaning="what x is multiplied with for q's first entry.")
    ] = UNSET
    bias: Annotated[float | UnsetType, describe("What is added to q's first entry.")] = UNSET
    k: Annotated[Numbers, axes("key", "dim")]
    v: Annotated[Numbers, axes("key", "v_dim")]


class Products(Part, tag_field="step", tag="similarity", frozen=True, kw_only=True):
    """q·k, product by product."""

    formula: str
    products: Annotated[Numbers, axes("key", "dim", meaning="q_i·k_ji.")]
    raw: Annotated[Numbers, axes("key", meaning="their sums.")]


class Scores(Part, tag_field="step", tag="scores", frozen=True, kw_only=True):
    """What becomes of the sums before the softmax."""

    formula: str
    scale: float
    softcap: float | None
    scaled: Annotated[Numbers, axes("key")]
    capped: Annotated[Numbers, axes("key")] | None
    bias: Annotated[Numbers, axes("key")] | None
    visible: Annotated[list[bool], axes("key")]
    scores: Annotated[Values, axes("key", meaning="what enters the softmax; null where hidden.")]


class SoftmaxRow(Part, tag_field="step", tag="softmax", frozen=True, kw_only=True):
    """The softmax, exponential by exponential."""

    formula: str
    highest: float | None
    shifted: Annotated[Values, axes("key")]
    exponentials: Annotated[Values, axes("key")]
    sink: Annotated[float | None, describe("Exponential of a learned sink.")]
    sum: float
    weights: Annotated[Numbers, axes("key")]


class OutputSum(Part, tag_field="step", tag="output", frozen=True, kw_only=True):
    """The values, weighted and added."""

    formula: str
    terms: Annotated[Numbers, axes("key", "v_dim", meaning="w_j·v_j.")]
    output: Annotated[Numbers, axes("v_dim", meaning="their sum.")]


Step = Projections | Products | Scores | SoftmaxRow | OutputSum
Kind = TypeVar("Kind", Projections, Products, Scores, SoftmaxRow, OutputSum)


class After(Part, frozen=True, kw_only=True):
    """The token's vector after the heads."""

    x: Annotated[
        Numbers,
        axes("width", meaning="what entered the layer, or its norm where that is added to."),
    ]
    heads: Annotated[
        Numbers | UnsetType,
        axes(
            "every head", "width", meaning="of several heads: each one's O_h times its rows of W_O."
        ),
    ] = UNSET
    bias: Annotated[Numbers | UnsetType, axes("width", meaning="b_O.")] = UNSET
    out: Annotated[
        Numbers, axes("concat", meaning="concat(O₁ … O_h), times W_O where there is one.")
    ]
    branch: Annotated[
        Numbers | UnsetType,
        axes(
            "width",
            meaning=(
                "what is added to x, if not out: out after a norm or factor, a mixer's part"
                " beside it."
            ),
        ),
    ] = UNSET
    sum: Annotated[
        Numbers | UnsetType, axes("width", meaning="x + out, or x + branch where there is one.")
    ] = UNSET
    norm: Annotated[Numbers | UnsetType, axes("width", meaning="the norm of the sum.")] = UNSET

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield (field, message) where vectors that are added differ in width."""
        if self.sum is not UNSET and len(self.out) != len(self.x):
            yield (
                "sum",
                message("x of width {x} and out of {out}", x=len(self.x), out=len(self.out)),
            )


class Matrices(Part, frozen=True, kw_only=True):
    """The matrices that the steps are a row of."""

    x: Annotated[Numbers | UnsetType, axes("token", "width", meaning="the input X.")] = UNSET
    raw: Annotated[Numbers | UnsetType, axes("token", "key", meaning="S = Q·Kᵀ.")] = UNSET
    scaled: Annotated[Numbers | UnsetType, axes("token", "key", meaning="S × scale.")] = UNSET
    scores: Annotated[Numbers, axes("token", "key")]
    weights: Annotated[Numbers, axes("token", "key")]
    output: Annotated[Numbers, axes("token", "v_dim")]


class AttentionTopic(Header, tag="attn.explain/1", frozen=True, kw_only=True):
    """One query's attention, step by step."""

    topic: Literal["attention"]
    layer: Count
    head: Count
    query: Annotated[Count, index_of("token")]
    extra_keys: Annotated[Count, describe("Learned keys after those of the tokens.")]
    rotated: Annotated[bool, describe("Whether q and k are shown after rotation by position.")]
    shapes: ShapeRows
    steps: Annotated[list[Step], describe("The steps in order; keys in the order of the text.")]
    matrices: Matrices
    projections: Annotated[
        dict[str, Numbers] | UnsetType,
        describe("With --show W_Q and the like: the head's weights, [in, out]."),
    ] = UNSET
    after: After | UnsetType = UNSET
    agreement: Annotated[
        float, describe("Largest difference between the steps and the run's own numbers.")
    ]
    empty_rows: EmptyRows
    warnings: list[str]

    def lengths(self) -> Mapping[str, int | range]:
        """Lengths of the axes of the arrays: the tokens, and "key", the tokens and the learned keys
        after them.
        """
        return {**super().lengths(), "key": len(self.tokens) + self.extra_keys}

    def step(self, kind: type[Kind]) -> Kind:
        """The document's step of this class; each class has exactly one."""
        return next(step for step in self.steps if isinstance(step, kind))

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield (field, message) for each fault: the five steps must be there in order, each once."""
        yield from super().validation_errors()
        order = [type(step) for step in self.steps]
        if order != [Projections, Products, Scores, SoftmaxRow, OutputSum]:
            yield (
                "steps",
                message("the steps are not projections, similarity, scores, softmax and output"),
            )


# The topics of `attn.explain/1` that are about a whole layer: positions, masks, several heads,
# residual and norm.


class PositionWay(Part, frozen=True, kw_only=True):
    """One way of telling attention where tokens stand, and what it makes of the query's weights."""

    position: str
    enters: Annotated[
        Literal["nowhere", "input", "queries and keys", "scores"],
        describe("Where in the layer the positions come in."),
    ]
    formula: str
    table: Annotated[
        Numbers | UnsetType,
        axes(
            "token",
            "",
            meaning=(
                "what comes in: vectors added to the input, angles in radians by pair of entries,"
                " or what is added to the scores of each key."
            ),
        ),
    ] = UNSET
    pairing: Annotated[
        Literal["half", "adjacent"] | UnsetType,
        describe(
            "Which entries turn as pair m, of d that turn: m and m + d/2 (half), or 2m and 2m + 1"
            " (adjacent)."
        ),
    ] = UNSET
    slopes: Annotated[
        Numbers | UnsetType,
        axes("every head", meaning="of ALiBi: what a step of distance takes off a score."),
    ] = UNSET
    weights: Annotated[Numbers, axes("key", meaning="the query's weights.")]
    moved: Annotated[
        float, describe("Largest |difference| of the query's weights from those of the first way.")
    ]


class PositionTopic(Header, tag="attn.explain/1", frozen=True, kw_only=True):
    """Ways of telling attention where tokens stand."""

    topic: Literal["position"]
    layer: Count
    head: Count
    query: Annotated[Count, index_of("token")]
    ways: list[PositionWay]
    warnings: list[str]


class PaddedText(Part, frozen=True, kw_only=True):
    """A text of a padded batch."""

    text: str
    tokens: list[TokenRow]
    weights: Annotated[Numbers, axes("padded", meaning="of its last token, padding included.")]
    agreement: Annotated[
        float, describe("Largest |difference| of its weights from those that it has alone.")
    ]


class MaskTopic(Header, tag="attn.explain/1", frozen=True, kw_only=True):
    """What a mask does between scores and weights; with several texts, how padding is masked."""

    topic: Literal["mask"]
    layer: Count
    head: Count
    query: Annotated[Count, index_of("token")]
    scores: Annotated[Numbers, axes("token", "key", meaning="as they are before the mask.")]
    masked: Annotated[
        Numbers, axes("token", "key", meaning="what enters the softmax; null where hidden.")
    ]
    before: Annotated[Numbers, axes("token", "key", meaning="softmax of each row of `scores`.")]
    after: Annotated[Numbers, axes("token", "key", meaning="softmax of each row of `masked`.")]
    hidden: Annotated[
        Weight, describe("What the query's hidden keys have of its weights before the mask.")
    ]
    batch: Annotated[
        list[PaddedText] | UnsetType, describe("With several texts: each, padded to the longest.")
    ] = UNSET
    hashing: Annotated[
        list[HashProducts] | UnsetType,
        describe("Under an `lsh` mask: what decides the buckets of queries and keys."),
    ] = UNSET
    warnings: list[str]


class HeadPart(Part, frozen=True, kw_only=True):
    """What one head looks at, and what it gives."""

    head: Count
    weights: Annotated[Numbers, axes("key", meaning="the query's weights.")]
    output: Annotated[Numbers, axes("v_dim", meaning="the query's row of A·V.")]
    share: Annotated[
        Numbers | UnsetType, axes("width", meaning="its output times its rows of W_O.")
    ] = UNSET


class SingleHead(Part, frozen=True, kw_only=True):
    """One query's attention worked out without heads: softmax(q·kᵀ × scale)·v."""

    weights: Annotated[Numbers, axes("key")]
    output: Annotated[Numbers, axes("v_dim")]
    agreement: Annotated[
        float, describe("Largest |difference| of both from those of the run's one head.")
    ]


class HeadLink(Part, frozen=True, kw_only=True):
    """The strongest link of one head between two words that are no neighbours."""

    head: Count
    query: Annotated[Count, index_of("token")]
    key: Annotated[Count, index_of("token")]
    weight: Weight


class MultiheadTopic(Header, tag="attn.explain/1", frozen=True, kw_only=True):
    """Several heads side by side: their weights, outputs, and concat(O₁ … O_h)·W_O."""

    topic: Literal["multihead"]
    layer: Count
    query: Annotated[Count, index_of("token")]
    heads: list[HeadPart]
    average: Annotated[Numbers, axes("key", meaning="of the heads' weights.")]
    entropies: Annotated[list[float], describe("Of each head's row, in nats.")]
    average_entropy: Annotated[
        float, describe("Of the averaged row, in nats; never below the mean of the heads' own.")
    ]
    roles: Annotated[
        list[HeadLink] | UnsetType,
        describe(
            "Of learned weights: at most two heads that each give more than half of a word's weight"
            " to another word, no neighbour and no place where heads rest; two different links."
        ),
    ] = UNSET
    single: Annotated[SingleHead | UnsetType, describe("Of one head: the same without heads.")] = (
        UNSET
    )
    concat: Annotated[Numbers, axes("concat", meaning="the heads' outputs side by side.")]
    bias: Annotated[Numbers | UnsetType, axes("width", meaning="b_O.")] = UNSET
    out: Annotated[Numbers, axes("out", meaning="concat·W_O, or concat where there is no W_O.")]
    agreement: Annotated[
        float,
        describe("Largest |difference| of the heads' shares, added up, from the run's own output."),
    ]
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield (field, message) for each fault: there must be heads, each with its entropy, and
        either all or none with its share of the output."""
        yield from super().validation_errors()
        if not self.heads or len(self.entropies) != len(self.heads):
            yield "entropies", f"{len(self.entropies)} of {len(self.heads)} heads"
        if len({head.share is UNSET for head in self.heads}) > 1:
            yield "heads", message("shares of some heads only")
        if any(head.share is not UNSET and len(head.share) != len(self.out) for head in self.heads):
            yield "out", message("{out} wide, and shares of another width", out=len(self.out))


class NormStep(Part, frozen=True, kw_only=True):
    """A norm of one vector, number by number."""

    place: Annotated[str, describe("attn.sum: after the residual; attn.in: before the attention.")]
    kind: Literal["layer", "rms"]
    eps: float
    vector: Annotated[Numbers, axes("width", meaning="the vector that is normed.")] = field(
        name="given"
    )
    mean: Annotated[float, describe("Of its entries; subtracted by a layer norm alone.")]
    variance: Annotated[
        float, describe("Mean square of the entries, after the mean is subtracted where it is.")
    ]
    scaled: Annotated[Numbers, axes("width", meaning="(x − mean) / √(variance + eps).")]
    normed: Annotated[
        Numbers, axes("width", meaning="times the learned weight, plus the learned bias.")
    ]


class ResidualTopic(Header, tag="attn.explain/1", frozen=True, kw_only=True):
    """The residual connection and the norm, for one query."""

    topic: Literal["residual"]
    layer: Count
    query: Annotated[Count, index_of("token")]
    width: Size
    x: Annotated[Numbers, axes("width", meaning="what entered the layer.")]
    out: Annotated[Numbers, axes("width", meaning="what attention adds.")]
    sum: Annotated[Numbers, axes("width", meaning="x + out.")]
    weights: Annotated[
        Numbers | UnsetType,
        axes("key", meaning="the most that the query gives each key in any head."),
    ] = UNSET
    cosine: Annotated[
        float, describe("Between x and x + out: 1 where attention changes no direction.")
    ]
    norm: NormStep | None
    agreement: Annotated[
        float, describe("Largest |difference| of x + out and its norm from the run's own.")
    ]
    warnings: list[str]


# The topic `qkv` of `attn.explain/1`: why queries, keys and values have a matrix each.

ViewName = Literal["x", "q", "k", "v"]
"""Of a word: its input, query, key or value."""


class WordView(Part, frozen=True, kw_only=True):
    """One word seen through one matrix: which other word is nearest to it there."""

    view: Annotated[ViewName, describe("The input, or its query, key or value.")]
    nearest: Annotated[Count, index_of("token")]
    cosine: Annotated[float, describe("Between the vectors of both words in this view.")]


class SharedQueryKey(Part, frozen=True, kw_only=True):
    """What the scores are where the queries are the keys: one matrix for both."""

    key: Annotated[Count, index_of("token")]
    forward: Annotated[float, describe("q·k × scale of the query with this key, as the model is.")]
    backward: Annotated[float, describe("The same of this key's word with the query's key.")]
    shared: Annotated[float, describe("Either with one matrix: k·k × scale.")]
    weights: Annotated[Numbers, axes("key", meaning="the query's weights with one matrix.")]
    words: Annotated[Count, describe("How many words see more than themselves.")]
    self_first: Annotated[
        Count, describe("How many of them look more at themselves than at any other.")
    ]
    shared_self_first: Annotated[Count, describe("How many would with one matrix.")]


class SharedKeyValue(Part, frozen=True, kw_only=True):
    """What the output is where the values are the keys: one matrix for both."""

    output: Annotated[Numbers, axes("v_dim", meaning="Σ w_j·v_j, as the model is.")]
    shared: Annotated[Numbers, axes("v_dim", meaning="Σ w_j·k_j.")]
    cosine: Annotated[float, describe("Between the two outputs.")]
    query_cosine: Annotated[float, describe("Between q and the output.")]
    shared_query_cosine: Annotated[float, describe("Between q and the output made of keys.")]


class QkvTopic(Header, tag="attn.explain/1", frozen=True, kw_only=True):
    """Attention as a search, and what is lost where two of its three matrices are one."""

    topic: Literal["qkv"]
    layer: Count
    head: Count
    query: Annotated[Count, index_of("token")]
    extra_keys: Annotated[Count, describe("Learned keys after those of the tokens.")]
    rotated: Annotated[bool, describe("Whether q and k are those after rotation by position.")]
    normed: Annotated[
        Literal["layer", "rms"] | UnsetType,
        describe("The norm of their own after which q and k are given; absent without one."),
    ] = UNSET
    biased: Annotated[
        list[Literal["q", "k", "v"]] | UnsetType,
        describe("Those of q, k and v to which a bias is added, x·W + b; absent where none is."),
    ] = UNSET
    latent: Annotated[
        list[str] | UnsetType,
        describe(
            "How q, k and v come from narrow vectors in latent attention, a formula each; absent"
            " in any other."
        ),
    ] = UNSET
    q: Annotated[Numbers, axes("dim", meaning="the word's query.")]
    k: Annotated[Numbers, axes("dim", meaning="the word's key.")]
    v: Annotated[Numbers, axes("v_dim", meaning="the word's value.")]
    views: list[WordView]
    scores: Annotated[Values, axes("key", meaning="what enters the softmax; null where hidden.")]
    weights: Annotated[Numbers, axes("key")]
    value_lengths: Annotated[Numbers, axes("key", meaning="|v_j|.")]
    brought: Annotated[Numbers, axes("key", meaning="|w_j·v_j|: what each word hands over.")]
    shared_query_key: Annotated[
        SharedQueryKey | UnsetType,
        describe("Absent where the query sees no other word, or keys have a norm of their own."),
    ] = UNSET
    shared_key_value: Annotated[
        SharedKeyValue | UnsetType,
        describe("Absent where keys and values differ in width, or keys have a norm of their own."),
    ] = UNSET
    warnings: list[str]

    def lengths(self) -> Mapping[str, int | range]:
        """Lengths of the axes of the arrays: the tokens, and "key", the tokens and the learned keys
        after them.
        """
        return {**super().lengths(), "key": len(self.tokens) + self.extra_keys}


# The topic `seq2seq` of `attn.explain/1`: one vector for a sentence against a soft search.


class Bottleneck(Part, frozen=True, kw_only=True):
    """How much of sentences of one length is read back, with random vectors as their words."""

    words: Annotated[Size, describe("In each sentence.")]
    reads: Annotated[Size, describe("How many words were asked for, over several sentences.")]
    vector: Annotated[Weight, describe("Share that one vector, the sum of all, gives back.")]
    search: Annotated[Weight, describe("Share that a softmax over all annotations gives back.")]


class Seq2seqTopic(Document, tag="attn.explain/1", frozen=True, kw_only=True):
    """An encoder-decoder: one vector for the whole sentence against annotations and a search."""

    topic: Literal["seq2seq"]
    query_text: Annotated[str, describe("What the decoder says.")]
    key_text: Annotated[str, describe("What the encoder has read.")]
    queries: Annotated[
        list[TokenRow],
        axes(
            "query",
            meaning="the tokens of the query text; each is said at its place, or seeded weights read"
            " it there.",
        ),
    ]
    keys: Annotated[list[TokenRow], axes("key token", meaning="the tokens of the key text.")]
    model: ModelPart
    attention: AttentionPart
    layer: Count
    head: Count
    weights: Annotated[Numbers, axes("query", "key", meaning="the search of each query.")]
    cosine: Annotated[
        float | UnsetType,
        describe("Mean over pairs of queries, between what each takes; absent for one query."),
    ] = UNSET
    width: Annotated[Size, describe("Of the vectors that words have, here and in `bottleneck`.")]
    vocabulary: Annotated[Size, describe("Among how many words one is read back.")]
    seed: Annotated[Count, describe("Of the random vectors.")]
    bottleneck: list[Bottleneck]
    warnings: list[str]

    def lengths(self) -> Mapping[str, int | range]:
        """How many entries the axes have that the fields of this document name: the tokens of either
        text, "query", and "key", which may have learned keys after the tokens.
        """
        return {
            "query": len(self.queries),
            message("query token"): len(self.queries),
            message("key token"): len(self.keys),
            "key": keys_of(len(self.keys)),
        }

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield (field, message) for each token that does not lie in its text."""
        yield from position_errors(self.queries, self.query_text, "queries")
        yield from position_errors(self.keys, self.key_text, "keys")


# The topic `training` of `attn.explain/1`: how the error reaches W_Q and W_K, and one step.


class CheckedEntry(Part, frozen=True, kw_only=True):
    """The gradient of one entry of a matrix, beside a difference of the loss."""

    matrix: Literal["W_Q", "W_K"]
    entry: Annotated[Count, describe("Its row: the entry of x that it is multiplied with.")]
    dim: Annotated[Count, describe("Its column: the entry of q or k that it adds to.")]
    gradient: Annotated[float, describe("By the chain rule.")]
    difference: Annotated[
        float,
        describe(
            "Of the loss, this entry a little larger and a little smaller, by their distance."
        ),
    ]


class TrainingTopic(Header, tag="attn.explain/1", frozen=True, kw_only=True):
    """The loss −ln w of the weight that a query gives a target, its gradients, and one step."""

    topic: Literal["training"]
    layer: Count
    head: Count
    query: Annotated[Count, index_of("token")]
    target: list[Annotated[Count, index_of("token")]]
    learning_rate: Annotated[float, describe("What the gradients are multiplied by in the step.")]
    scale: Annotated[float, describe("What q·k is multiplied by.")]
    x: Annotated[Numbers, axes("token", "width", meaning="what W_Q and W_K are multiplied with.")]
    scores: Annotated[Values, axes("token", meaning="what enters the softmax; null where hidden.")]
    weights: Annotated[Numbers, axes("token", meaning="of the query.")]
    loss: Annotated[float, describe("−ln of the weights of the target, added up.")]
    weight_gradient: Annotated[Numbers, axes("token", meaning="∂L/∂w.")]
    score_gradient: Annotated[Numbers, axes("token", meaning="∂L/∂s.")]
    q: Annotated[Numbers, axes("dim", meaning="of the query.")]
    k: Annotated[Numbers, axes("token", "dim")]
    query_gradient: Annotated[Numbers, axes("dim", meaning="∂L/∂q.")]
    key_gradient: Annotated[Numbers, axes("token", "dim", meaning="∂L/∂k of each key.")]
    query_matrix_gradient: Annotated[Numbers, axes("width", "dim", meaning="∂L/∂W_Q.")]
    key_matrix_gradient: Annotated[Numbers, axes("width", "dim", meaning="∂L/∂W_K.")]
    checks: Annotated[
        list[CheckedEntry], describe("The largest gradients of each matrix, and by differences.")
    ]
    new_scores: Annotated[Values, axes("token", meaning="after the step.")]
    new_weights: Annotated[Numbers, axes("token", meaning="after the step.")]
    new_loss: Annotated[
        float | None, describe("After the step; null where the target then gets no weight at all.")
    ]
    warnings: list[str]


Order = Annotated[
    list[Annotated[Count, index_of("token")]],
    axes("token", meaning="for each new place the position of the token that moves there."),
]


class SoftmaxTopic(Document, tag="attn.explain/1", frozen=True, kw_only=True):
    """Softmax of given numbers."""

    topic: Literal["softmax"]
    numbers: Annotated[list[float], axes("score")] = field(name="given")
    temperature: float
    scores: Annotated[
        list[float], axes("score", meaning="what was given, divided by the temperature.")
    ]
    exponentials: Annotated[
        list[float | None],
        axes("score", meaning="exp of the scores; null where too large for a float."),
    ]
    sum: float | None
    highest: float
    shifted: Annotated[list[float | None], axes("score")]
    shifted_exponentials: Annotated[list[float | None], axes("score")]
    shifted_sum: float
    weights: Annotated[list[float], axes("score")]
    entropy: Annotated[float, describe("Nats.")]
    gradient: Annotated[float, describe("Frobenius norm of diag(w) - w·wT.")]
    agreement: float
    warnings: list[str]


SCALES = ("none", "sqrt-dk", "sqrt-dmodel")


class ScaleVariance(Part, frozen=True, kw_only=True):
    """The variance of q·k under one scale."""

    scale: str
    mean: float
    mean_error: float
    variance: float
    variance_error: Annotated[float, describe("Standard error of the variance.")]
    theory: float
    standard_errors: float | None


class ScaleSoftmax(Part, frozen=True, kw_only=True):
    """What a softmax makes of one scale; means over the queries."""

    scale: Annotated[str, describe("A scale, or `uniform` for weights that are all alike.")]
    largest: float
    entropy: float
    gradient: float


class ScalingTopic(Document, tag="attn.explain/1", frozen=True, kw_only=True):
    """The variance of q·k, and a softmax with and without scaling."""

    topic: Literal["scaling"]
    d_k: Size
    d_model: Size | None
    samples: Size
    keys: Size
    queries: Size
    seed: Count
    variance: list[ScaleVariance]
    softmax: Annotated[list[ScaleSoftmax], describe("Means over the queries.")]
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield (field, message) for each fault: variances and softmaxes must be of the same scales."""
        # the third scale is 1/√d_model
        scales = list(SCALES)
        if self.d_model is None:
            scales = scales[:2]
        if [row.scale for row in self.variance] != scales:
            yield "variance", message("the scales are not {scales}", scales=listing(scales))
        if [row.scale for row in self.softmax] != [*scales, "uniform"]:
            yield "softmax", message("the scales are not {scales}, uniform", scales=listing(scales))


class MatrixSoftmaxTopic(Header, tag="attn.explain/1", frozen=True, kw_only=True):
    """Softmax by rows and over the whole matrix."""

    topic: Literal["matrix-softmax"]
    layer: Count
    head: Count
    scores: Annotated[Numbers, axes("token", "key")]
    row_softmax: Annotated[Numbers, axes("token", "key", meaning="softmax of each row.")] = field(
        name="rows"
    )
    whole: Annotated[Numbers, axes("token", "key", meaning="softmax over all entries.")]
    row_sums: Annotated[Numbers, axes("token", meaning="of `whole`.")]
    warnings: list[str]


class OrderRow(Part, frozen=True, kw_only=True):
    """What one model makes of one order."""

    mask: str
    position: str
    dtype: str
    order: Order
    max_difference: float
    token: Annotated[Count, index_of("token")]
    tolerance: Annotated[float, describe("What float rounding may make of equal outputs.")]
    equal: bool
    per_token: Annotated[Numbers, axes("token")]
    outputs: Annotated[
        Numbers | UnsetType,
        axes("token", "entry", meaning="the first entries, 8 at most, of each token's output."),
    ] = UNSET
    moved_outputs: Annotated[
        Numbers | UnsetType,
        axes("token", "entry", meaning="the same in the other order, token for token."),
    ] = UNSET
    weights: Annotated[
        Numbers | UnsetType,
        axes("token", meaning="of the query in the layer's first head, by key."),
    ] = UNSET
    moved_weights: Annotated[
        Numbers | UnsetType,
        axes("token", meaning="the same in the other order, key for key."),
    ] = UNSET
    slopes: Annotated[
        Numbers | UnsetType,
        axes("every head", meaning="of ALiBi: what a step of distance takes off a score."),
    ] = UNSET


class OrderTopic(Header, tag="attn.explain/1", frozen=True, kw_only=True):
    """The same tokens in two orders."""

    topic: Literal["order"]
    layer: Count
    order: Order
    reversed: Annotated[
        bool,
        describe(
            "Whether the other order is the tokens read backwards, which keeps every distance."
        ),
    ]
    moved: Annotated[list[TokenRow], axes("token", meaning="the tokens in the other order.")]
    query: Annotated[
        Annotated[Count, index_of("token")] | UnsetType,
        describe("The first word, whose weights are told."),
    ] = UNSET
    order_rows: list[OrderRow] = field(name="rows")
    warnings: list[str]


class MetricExample(Part, frozen=True, kw_only=True):
    """A metric of one small head, and of uniform attention."""

    weights: Annotated[Numbers, axes("query", "query")]
    value: float | None
    uniform: float | None
    rows: Count


class MetricTopic(Document, tag="attn.explain/1", frozen=True, kw_only=True):
    """What a metric means."""

    topic: Literal["metric"]
    name: str
    says: str
    formula: str
    low: int | float | None
    high: int | float | None
    range: str
    unit: str
    row_kind: str = field(name="rows")
    note: str | None
    source: str
    needs: str | None
    example: MetricExample
    warnings: list[str]


class RuleExample(Part, frozen=True, kw_only=True):
    """The rows of a rule in a short text."""

    tokens: list[str]
    weights: Annotated[
        Numbers,
        axes("query", "query", meaning="rows sum to 1; causal, but for rules that look ahead."),
    ]


class RuleTopic(Document, tag="attn.explain/1", frozen=True, kw_only=True):
    """What a rule of `attn heads --rules` means."""

    topic: Literal["rule"]
    name: str
    says: Annotated[str, describe("Where a head of this rule looks, in words.")]
    formula: Annotated[str, describe("Which keys j the query i prefers.")]
    example: RuleExample
    warnings: list[str]


TaughtTopic = (
    SoftmaxTopic
    | ScalingTopic
    | MatrixSoftmaxTopic
    | OrderTopic
    | MetricTopic
    | RuleTopic
    | PositionTopic
    | MaskTopic
    | MultiheadTopic
    | ResidualTopic
    | QkvTopic
    | Seq2seqTopic
    | TrainingTopic
)
ExplainDocument = AttentionTopic | TaughtTopic
TOPICS: tuple[type[Document], ...] = get_args(ExplainDocument)
"""What an explanation may be about, told apart by `topic`."""
