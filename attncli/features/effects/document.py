"""The documents of effects: of `attn ablate`, over one text and over many; of `attn logits`; of
`attn patch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, assert_never

from msgspec import UNSET, Meta, UnsetType, field

from attncli.documents import (
    AttentionPart,
    Count,
    Document,
    Header,
    ModelPart,
    Part,
    PlacedHead,
    Share,
    Size,
    TokenRow,
    Weight,
    describe,
    index_of,
    members,
    position_errors,
)
from attncli.documents.parts import MeanWithInterval, NextToken, TargetToken
from attncli.language import listing, message
from attncli.mechanism.spec import head_label

AttentionKind = Annotated[
    Literal["self", "cross"],
    describe("Whether the head looks at the text itself, or at the text that a decoder reads."),
]


IntervalEnd = Annotated[
    float | UnsetType | None,
    describe(
        "With pairs: end of the 95% interval over pairs; null below 20, and where all give the same."
    ),
]
SignShare = Annotated[
    float | UnsetType, describe("With pairs: the share of pairs with the sign of the mean.")
]


class AttentionHead(Part, frozen=True, kw_only=True):
    """A head of either attention by its place, for parts that say something of one."""

    attention: AttentionKind
    layer: Count
    head: Count


Measure = Literal["vector", "logprob", "kl", "difference"]
MeasureNames = Annotated[list[Measure], Meta(min_length=1)]
Reading = Literal["cosine", "norm", "logprob", "kl", "difference"]
"""A number of a measure: `vector` has two of them."""


def readings_of(measures: Sequence[Measure]) -> list[Reading]:
    """The names of the numbers that these measures give, in their order: "vector" gives two,
    "cosine" and "norm", the others one of their own name. Heads are ranked by the first."""
    readings: list[Reading] = []
    for measure in measures:
        match measure:
            case "vector":
                readings += ["cosine", "norm"]
            case "logprob" | "kl" | "difference":
                readings.append(measure)
            case _:
                assert_never(measure)
    return readings


class VectorChange(Part, frozen=True, kw_only=True):
    """How far the last vector turned and moved; null where a vector of length 0 has no direction."""

    cosine: Annotated[float | None, describe("1 − cos(x, x′), 0 to 2.")]
    norm: Annotated[float | None, describe("‖x − x′‖ / ‖x‖.")]


class Difference(Part, frozen=True, kw_only=True):
    """What the difference of two logits loses: m of the unchanged run less m of the changed one."""

    all: Annotated[float | None, describe("Below 0 where the change adds to the difference.")]
    writes: Annotated[
        float | UnsetType | None,
        describe("With --hold attention: the same while every head attends as in the own run."),
    ] = field(default=UNSET, name="held")
    moved: Annotated[
        float | UnsetType | None,
        describe("all − held: by moving where later heads look, interaction included."),
    ] = UNSET
    low: IntervalEnd = UNSET
    high: IntervalEnd = UNSET
    sign_share: SignShare = UNSET
    writes_low: IntervalEnd = field(default=UNSET, name="held_low")
    writes_high: IntervalEnd = field(default=UNSET, name="held_high")

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield a (field, fault) unless `held` comes with `moved`, and an interval has two ends."""
        if (self.writes is UNSET) != (self.moved is UNSET):
            yield "moved", message("one of held and moved without the other")
        if isinstance(self.low, float) != isinstance(self.high, float):
            yield "high", message("an interval with one end")


class Measures(Part, frozen=True, kw_only=True):
    """What changed, by the measures asked for."""

    vector: VectorChange | UnsetType = UNSET
    logprob: Annotated[
        float | UnsetType | None, describe("log p′ − log p of the target, in nats; below 0: rarer.")
    ] = UNSET
    kl: Annotated[float | UnsetType | None, describe("KL(p ‖ p′) of the next token, in nats.")] = (
        UNSET
    )
    difference: Difference | UnsetType = UNSET


class Prediction(Part, frozen=True, kw_only=True):
    """What one run would say next."""

    probability: Annotated[Weight, describe("Of the target.")]
    top: Annotated[list[NextToken], describe("The likeliest first.")]


class Predictions(Part, frozen=True, kw_only=True):
    """What would come next in the unchanged run, and in changed ones."""

    target: Annotated[TargetToken, describe("Whose probability is told.")]
    own: Annotated[Prediction, describe("In the unchanged run.")]
    without: Annotated[
        Prediction | None, describe("Without the first of the effects; null without effects.")
    ]
    probabilities: Annotated[
        list[Weight] | UnsetType,
        describe(
            "The target's probability without each of the effects, in their order; absent where the"
            " last token is not measured."
        ),
    ] = UNSET
    together: Annotated[Prediction, describe("Without all of these heads at once.")]
    random: Annotated[
        float | UnsetType,
        describe(
            "Beside a difference of two logits: what changes of the same size in random directions"
            " make of the target's log-probability in place of the first effect, the mean of 8 draws."
        ),
    ] = UNSET


class PairsSummary(Part, frozen=True, kw_only=True):
    """The pairs that effects are means over, and m = logit(answer) − logit(versus) after the clean
    texts."""

    name: Annotated[str, describe("The file of pairs, or the task of the package.")]
    count: Size
    right: Annotated[Share, describe("Share of pairs with m above 0.")]
    mean: Annotated[float, describe("Of m.")]
    low: Annotated[
        float | None,
        describe("End of its 95% interval; null below 20 pairs, and where all give the same."),
    ]
    high: float | None
    left_out: Annotated[Count, describe("Pairs of the file that do not fit the model.")]


class Looks(Part, frozen=True, kw_only=True):
    """The key that the token measured at looks at most, and its weight."""

    key: Count
    weight: Weight


LooksBeyondRest = Annotated[
    Looks | UnsetType | None,
    describe(
        "The same without keys where heads rest: the first token, special tokens, line breaks and"
        " separators; null where all weight is there, absent where nothing rests."
    ),
]
SourceTokens = Annotated[
    list[TokenRow], describe("Of the text that cross-attention looks at, where it is read.")
]


def telling_look(row: EffectRow | LogitPart) -> Looks | None:
    """The key that a head looks at most, where the document has it among the keys that are not
    resting keys (the first token and special tokens, on which heads put weight when they look for
    nothing); None for no key.
    """
    if row.looks_beyond_rest is UNSET:
        looks = row.looks
    else:
        looks = row.looks_beyond_rest
    return None if looks is UNSET else looks


def key_tokens(
    tokens: list[TokenRow], source: list[TokenRow] | UnsetType, attention: AttentionKind
) -> list[TokenRow]:
    """The tokens that keys of a head are positions in: `source` of cross-attention, none where that
    is not known, else the text's own `tokens`."""
    if attention == "self":
        return tokens
    if source is UNSET:
        return []
    return source


class TokenPlace(Part, frozen=True, kw_only=True):
    """The token measured at; of a span, its first one and its last."""

    token: Annotated[Count, index_of("token")]
    last: Annotated[
        Annotated[Count, index_of("token")] | UnsetType, describe("Absent for one token.")
    ] = UNSET


class LinkPlace(Part, frozen=True, kw_only=True):
    """A link that was cut: every query to every key."""

    query: (
        Annotated[list[Annotated[Count, index_of("token")]], describe("The tokens that look.")]
        | Annotated[Count, index_of("token")]
    )
    key: (
        Annotated[
            list[Count],
            describe("The tokens looked at, of the other text where the link is `cross`."),
        ]
        | Count
    )
    attention: AttentionKind | UnsetType = UNSET
    text: Annotated[str | UnsetType, describe("The keys' text, where it is the other text's.")] = (
        UNSET
    )


class Interval(MeanWithInterval, frozen=True, kw_only=True):
    """A mean over texts with its 95% interval by Student's t; null ends with one text."""

    texts: Annotated[
        Size, describe("How many of the texts it is the mean of: those where it is defined.")
    ]


class MeanMeasures(Part, frozen=True, kw_only=True):
    """Measures over texts, by name; null where no text defines one."""

    cosine: Interval | UnsetType | None = UNSET
    norm: Interval | UnsetType | None = UNSET
    logprob: Interval | UnsetType | None = UNSET
    kl: Interval | UnsetType | None = UNSET
    difference: Interval | UnsetType | None = UNSET

    def mean(self, name: Reading) -> Interval | None:
        """The mean over texts of one number by name, such as "cosine"; None where no text defines
        it, or it was not measured."""
        interval: Interval | UnsetType | None = getattr(self, name)
        if interval is UNSET:
            return None
        return interval


class MeanEffect(AttentionHead, frozen=True, kw_only=True):
    """What one head's removal changes, over texts."""

    measures: MeanMeasures


class NamedLink(Part, frozen=True, kw_only=True):
    """The link that was cut, by the words that name it in every text."""

    query: str = field(name="from")
    key: str = field(name="to")


class EffectsDocument(Document, tag="attn.effects/1", frozen=True, kw_only=True):
    """What changes when a head is taken away, or a link cut: the mean over texts of
    `attn.ablate/1`.
    """

    texts: Annotated[Size, describe("How many texts there were.")]
    model: ModelPart
    attention: AttentionPart
    by: Literal["zero", "mean", "resample", "knockout"]
    measures: MeasureNames
    place: Annotated[
        str, describe("Where it was measured: `mean`, `last`, or the word that names a token.")
    ] = field(name="at")
    link: NamedLink | None
    effects: Annotated[list[MeanEffect], describe("By the size of the mean, the largest first.")]
    together: Annotated[MeanMeasures, describe("All of these heads at once.")]
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield a (field, fault) unless every mean is of the same measures."""
        readings = set(readings_of(self.measures))
        rows = [
            (f"effects[{number}].measures", row.measures) for number, row in enumerate(self.effects)
        ]
        for place, measures in (("together", self.together), *rows):
            if {name for name, _ in members(measures)} != readings:
                yield (
                    place,
                    message(
                        "means of other measures than {measures}", measures=listing(self.measures)
                    ),
                )


# How effects of heads differ between two sets of texts, or two models.


class DifferenceSide(Part, frozen=True, kw_only=True):
    """One side: its file, how many texts it had, which model."""

    name: str
    texts: Size
    model: str | None


class DifferentHead(AttentionHead, frozen=True, kw_only=True):
    """One head on both sides."""

    a: float
    b: float
    difference: Annotated[float, describe("B − A.")]
    low: Annotated[
        float | None,
        describe("End of the 95% interval of the difference, by Welch's t; null with one text."),
    ]
    high: float | None

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield a (field, fault) unless the difference's interval has two ends, or none."""
        if (self.low is None) != (self.high is None):
            yield "high", message("an interval with one end")


class DifferenceDocument(Document, tag="attn.difference/1", frozen=True, kw_only=True):
    """Two `attn.effects/1` documents compared by their first measure, head by head."""

    a: DifferenceSide
    b: DifferenceSide
    measure: Annotated[str, describe("cosine, logprob, kl or difference.")]
    heads: Annotated[
        list[DifferentHead], Meta(min_length=1), describe("The largest difference first.")
    ]
    warnings: list[str]


# `attn.ablate/1`: what changes when a head, or a link, is taken away.


class EffectRow(AttentionHead, frozen=True, kw_only=True):
    """What one head's removal changes."""

    vector: VectorChange | UnsetType = UNSET
    logprob: float | UnsetType | None = UNSET
    kl: float | UnsetType | None = UNSET
    difference: Difference | UnsetType = UNSET
    weight: Annotated[
        Weight | None, describe("The weight that the cut link had; null without a link.")
    ]
    looks: Annotated[
        Looks | None,
        describe("Of several tokens: what their mean row looks at; null for a learned key."),
    ]
    looks_beyond_rest: LooksBeyondRest = UNSET
    random: Annotated[
        Measures | None,
        describe(
            "The same for changes of the same size in random directions, the mean of 8 draws; null"
            " where not drawn."
        ),
    ]


def reading_of(row: EffectRow | Measures, name: Reading) -> float | None:
    """A number of a row by name ("cosine", "norm", "logprob", "kl" or "difference"); None where it
    is undefined, or was not measured."""
    if name == "difference":
        return None if row.difference is UNSET else row.difference.all
    part = row.vector if name in ("cosine", "norm") else row
    if part is UNSET:
        value: float | UnsetType | None = UNSET
    else:
        value = getattr(part, name)
    return None if value is UNSET else value


class AblateDocument(Header, tag="attn.ablate/1", frozen=True, kw_only=True):
    """What changes when a head is taken away, or a link cut, one head at a time; these effects do
    not add up.
    """

    by: Annotated[
        Literal["zero", "mean", "resample", "knockout"],
        describe(
            "What stands for a head: nothing, a mean, another text's values; or it without the"
            " link."
        ),
    ]
    measures: MeasureNames
    place: Annotated[TokenPlace | Literal["mean"], describe("Whose last vector turns.")] = field(
        name="at"
    )
    every: Annotated[
        bool, describe("Whether logprob is the mean over all positions of the token that follows.")
    ]
    position: Annotated[
        Count | None,
        describe("After which token logprob and kl are taken; null where they are not."),
    ]
    target: Annotated[TargetToken | None, describe("What logprob is about; null where it is not.")]
    answer: Annotated[
        list[TargetToken] | UnsetType,
        describe("All tokens of a target of several, the first of which is `target`."),
    ] = UNSET
    versus: Annotated[
        TargetToken | UnsetType,
        describe("With --versus: whose logit is taken away from the target's."),
    ] = UNSET
    m_clean: Annotated[
        float | UnsetType,
        describe("With --versus: the difference of the two logits in the unchanged run."),
    ] = UNSET
    pairs: Annotated[
        PairsSummary | UnsetType,
        describe("With --pairs: what effects are means over; `text` is the first clean text."),
    ] = UNSET
    predictions: Annotated[
        Predictions | UnsetType, describe("Of a decoder, after `position`, of one text.")
    ] = UNSET
    link: Annotated[
        LinkPlace | None, describe("The link that was cut; null where heads were taken away.")
    ]
    effects: Annotated[list[EffectRow], describe("By size, the largest first.")]
    together: Annotated[Measures, describe("All of these heads at once.")]
    source_tokens: SourceTokens | UnsetType = UNSET
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield (field, fault) pairs where effects differ in their measures, a key looked at is not
        in the text, or a cut link has no weight."""
        yield from super().validation_errors()
        rows = [(f"effects[{number}]", row) for number, row in enumerate(self.effects)]
        random_rows = [
            (f"{place}.random", row.random) for place, row in rows if row.random is not None
        ]
        # each has the document's measures, and no others
        for place, measures in (("together", self.together), *rows, *random_rows):
            for name in ("vector", "logprob", "kl", "difference"):
                is_there = getattr(measures, name) is not UNSET
                if name in self.measures and not is_there:
                    yield place, message("{name} is {value}", name=name, value="missing")
                elif is_there and name not in self.measures:
                    value = message("not among the measures")
                    yield place, message("{name} is {value}", name=name, value=value)
        link = self.link
        if link is not None and link.attention in (UNSET, "self"):
            for key in link.key if isinstance(link.key, list) else [link.key]:
                if key >= len(self.tokens):
                    yield "link.key", message("there is no token {key}", key=key)
        for place, row in rows:
            if row.looks is not None and not self._has_key(row.attention, row.looks.key):
                yield f"{place}.looks.key", message("there is no token {key}", key=row.looks.key)
            if (row.weight is None) != (self.link is None):
                yield (
                    f"{place}.weight",
                    message("a weight belongs to a link that was cut, and to each"),
                )

    def _has_key(self, attention: AttentionKind, key: int) -> bool:
        """Whether a key is a token of its text; true for keys of another text whose tokens the
        document does not have."""
        if attention == "cross" and self.source_tokens is UNSET:
            return True
        return key < len(self.keys(attention))

    def keys(self, attention: AttentionKind) -> list[TokenRow]:
        """The tokens that keys of a head are positions in: the other text's of cross-attention, else
        the text's own."""
        return key_tokens(self.tokens, self.source_tokens, attention)


# `attn.logits/1`: what each part of a model adds to a token's logit.


class LogitSource(Part, frozen=True, kw_only=True):
    """What a head adds from one token."""

    source: Annotated[
        Count, describe("The token whose value it carries; learned keys come after the tokens.")
    ]
    value: float


class LogitPart(Part, frozen=True, kw_only=True):
    """What one part adds."""

    part: Literal["embedding", "head", "mixer", "mlp", "bias"]
    attention: Annotated[AttentionKind | None, describe("Of a head; null for other parts.")]
    layer: Annotated[
        Count | None,
        describe("Null for the embedding, and for the biases of the final norm and the head."),
    ]
    head: Count | None
    value: float
    looks: Annotated[
        Looks | UnsetType, describe("Of a head: what the token at `at` looks at most there.")
    ] = UNSET
    looks_beyond_rest: LooksBeyondRest = UNSET
    sources: Annotated[
        list[LogitSource] | UnsetType,
        describe("With --by token, of a head: what it adds from each token."),
    ] = UNSET
    low: IntervalEnd = UNSET
    high: IntervalEnd = UNSET
    sign_share: SignShare = UNSET

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield a (field, fault) for a head without attention, layer and number, or a feed-forward
        part or mixer without layer."""
        has_head_place = None not in (self.attention, self.layer, self.head)
        lacks_head = self.part == "head" and not has_head_place
        lacks_layer = self.part in ("mixer", "mlp") and self.layer is None
        if lacks_head or lacks_layer:
            yield "part", message("{part} without its place", part=repr(self.part))


def _head_label(part: LogitPart) -> str:
    """The name of a part that is a head, such as "L5 H11"."""
    assert part.layer is not None
    assert part.head is not None
    return head_label(part.layer, part.head)


def logit_part_name(part: LogitPart) -> str:
    """The name of a part in tables and figures, such as "L5 H11"."""
    match part.part:
        case "head" if part.attention == "cross":
            return message("{head} cross", head=_head_label(part))
        case "head":
            return _head_label(part)
        case "mlp":
            return message("L{layer} feed-forward", layer=part.layer)
        case "mixer":
            return message("L{layer} mixer", layer=part.layer)
        case "bias":
            if part.layer is None:
                return message("last biases")
            return message("L{layer} biases", layer=part.layer)
        case "embedding":
            return message("embedding")
        case _:
            assert_never(part.part)


LensStage = Literal["before attention", "after attention", "end"]
LENS_STAGES = {
    "before attention": message("before attention"),
    "after attention": message("after attention"),
    "end": message("at the end"),
}
"""What a row of the lens is called."""


class LensRow(Part, frozen=True, kw_only=True):
    """What would come next if the model ended here: these vectors through its final norm and output
    head.
    """

    layer: Annotated[Count | None, describe("Null after the last layer.")]
    stage: LensStage
    top: Annotated[list[NextToken], describe("The likeliest first.")]
    rank: Annotated[Size, describe("Of the target, from 1.")]
    probability: Annotated[Weight, describe("Of the target.")]


class WordPart(Part, frozen=True, kw_only=True):
    """What one word of the text adds, its place included."""

    word: str
    first: Annotated[Count, index_of("token", "Its first token.")]
    last: Annotated[Count, index_of("token", "Its last token.")]
    value: float


class DeletionStep(Part, frozen=True, kw_only=True):
    """The logit, or the difference, of the text with words taken out."""

    removed: Annotated[Count, describe("How many words are taken out.")]
    value: Annotated[float, describe("Of those that add most, the largest first.")]
    random: Annotated[float, describe("Of as many random words, the mean of several orders.")]
    random_orders: Annotated[
        list[float] | UnsetType, describe("Of as many random words, by each of these orders.")
    ] = UNSET


class WordsPart(Part, frozen=True, kw_only=True):
    """A logit as a sum over the words of the text, with attention weights, the statistics of norms
    and gates as they were in this run; in float64."""

    words: Annotated[list[WordPart], describe("In the order of the text.")]
    biases: Annotated[float, describe("What all biases of the model add.")]
    sum: Annotated[float, describe("Of the words and the biases.")]
    logit: Annotated[float, describe("The model's own, in float64.")]
    deletion: Annotated[
        list[DeletionStep], describe("Words taken out one after the other, beside random ones.")
    ]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield where the steps have different numbers of random orders, and what is wrong."""
        orders = [step.random_orders for step in self.deletion if step.random_orders is not UNSET]
        if len({len(values) for values in orders}) > 1:
            yield "deletion", message("steps of different numbers of random orders")


class LogitsDocument(Header, tag="attn.logits/1", frozen=True, kw_only=True):
    """What each part adds to a logit, the statistics of every norm being those of this run; the
    parts sum to it.
    """

    position: Annotated[Count, index_of("token", "After which token.")] = field(name="at")
    target: Annotated[TargetToken, describe("With pairs, that of the first of them.")]
    versus: Annotated[
        TargetToken | None, describe("Whose logit is taken away from the target's; null for none.")
    ]
    pairs: Annotated[
        PairsSummary | UnsetType,
        describe("With --pairs: what parts are means over; `text` is the first clean text."),
    ] = UNSET
    softcap: Annotated[
        float | None,
        describe("The bound that the model puts on its logits after this; null for none."),
    ]
    logit: Annotated[float, describe("The model's own, after its scale and before a soft cap.")]
    sum: Annotated[float, describe("The sum of the parts.")]
    prediction: Annotated[
        Prediction | UnsetType, describe("What comes next, and how likely the target is.")
    ] = UNSET
    parts: Annotated[list[LogitPart], describe("In the order of the model.")]
    words: Annotated[
        WordsPart | UnsetType, describe("With --by word: the same as a sum over words.")
    ] = UNSET
    lens: Annotated[
        list[LensRow] | UnsetType,
        describe("With --lens: what each layer would say next, in the order of the model."),
    ] = UNSET
    source_tokens: SourceTokens | UnsetType = UNSET
    warnings: list[str]

    def keys(self, attention: AttentionKind) -> list[TokenRow]:
        """The tokens that keys of a head are positions in: the other text's of cross-attention, else
        the text's own."""
        return key_tokens(self.tokens, self.source_tokens, attention)

    def target_name(self) -> str:
        """The text of the target; over pairs, which have one each, `answer`."""
        if self.pairs is UNSET:
            return self.target.text
        return "answer"

    def versus_name(self) -> str | None:
        """The text of what is taken away; over pairs `versus`; None for none."""
        if self.versus is None:
            return None
        if self.pairs is UNSET:
            return self.versus.text
        return "versus"


# `attn.patch/1`: which heads carry the difference between two texts.


class PatchRow(AttentionHead, frozen=True, kw_only=True):
    """How much of the clean text's answer one head brings back."""

    recovered: Annotated[
        float, describe("0 as in the corrupt text, 1 as in the clean one; beyond both is possible.")
    ]
    low: IntervalEnd = UNSET
    high: IntervalEnd = UNSET
    sign_share: SignShare = UNSET


class PatchPredictions(Part, frozen=True, kw_only=True):
    """What would come next in both texts, and in the corrupt one with one head's values put in."""

    target: Annotated[TargetToken, describe("Whose probability is told.")]
    clean: Prediction
    corrupt: Prediction
    patched: Annotated[
        Prediction | None,
        describe("With the first of the effects put in; null without effects."),
    ]


class ToldHead(PlacedHead, frozen=True, kw_only=True):
    """A head that is told what earlier heads make of the clean text, by its queries, keys or
    values.
    """

    side: Literal["q", "k", "v"]


class PatchDocument(Header, tag="attn.patch/1", frozen=True, kw_only=True):
    """The corrupt text run with what one head mixes in the clean one put in. `tokens` are those of
    the clean text.
    """

    clean: str
    corrupt: str
    corrupt_tokens: list[TokenRow]
    places: Annotated[
        list[Annotated[Count, index_of("token")]], describe("The tokens that got the clean text's.")
    ] = field(name="at")
    query: Annotated[
        list[Annotated[Count, index_of("token")]],
        Meta(min_length=1, description="The tokens measured at; of logits, the last of them."),
    ]
    measure: Literal["logit difference", "log probability", "cosine"]
    target: TargetToken | None
    versus: TargetToken | None
    into: Annotated[
        list[ToldHead] | UnsetType,
        describe("With --into: the only heads that are told; absent where all are."),
    ] = UNSET
    pairs: Annotated[
        PairsSummary | UnsetType,
        describe(
            "With --pairs: `recovered` is what all pairs together bring back over what they differ"
            " by; both texts are the first pair's."
        ),
    ] = UNSET
    m_clean: Annotated[float, describe("With pairs, the mean.")]
    m_corrupt: Annotated[float, describe("With pairs, the mean.")]
    predictions: Annotated[
        PatchPredictions | UnsetType,
        describe("Of a decoder, and of what predicts: next tokens after the last of `query`."),
    ] = UNSET
    effects: Annotated[list[PatchRow], describe("By what they recover, the largest first.")]
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield (field, fault) pairs for tokens that do not lie in their texts."""
        yield from position_errors(self.tokens, self.clean, "tokens")
        yield from position_errors(self.corrupt_tokens, self.corrupt, "corrupt_tokens")
