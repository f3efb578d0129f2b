"""`Spec`: what a model does, as plain frozen data. No arrays, no tensor names.

There is one `Block` per layer, so that layers may differ freely and `len(spec.blocks)` is
the depth. Which tensor plays which role is the business of `models/families`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Literal, TypeAlias, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, Selection, is_selected, numbers_of
from attncli.errors import InputError, UsageError
from attncli.language import Message, listing, message, plural, term
from attncli.mechanism.mask import Everywhere, Mask
from attncli.mechanism.reformer import Reformer

# How positions enter attention, as plain frozen data: rotations, biases by distance, scores of
# their own.


class Norm(Struct, frozen=True):
    """Layer normalization ("layer") or root-mean-square normalization ("rms").

    eps: ε, added to the variance, or to the mean square, before its root is taken.
    unit_offset: the stored weight w multiplies as 1 + w (Gemma).
    affine: whether there is a stored weight at all.
    """

    kind: Literal["layer", "rms"]
    eps: float
    unit_offset: bool = False
    affine: bool = True


class Linear(Struct, frozen=True):
    """Position interpolation: frequencies divided by `factor`."""

    factor: float


class Dynamic(Struct, frozen=True):
    """Dynamic NTK: the base grows once the text is longer than `original` positions, by `factor` and
    the text's length."""

    factor: float
    original: int


class Llama3(Struct, frozen=True):
    """Llama 3.1: the frequencies of long wavelengths divided by `factor`, those of short ones kept, a
    ramp between.

    low, high: the ramp's ends, as how often a pair turns within the original length.
    original: that length, in positions.
    """

    factor: float
    low: float
    high: float
    original: int


class Yarn(Struct, frozen=True):
    """YaRN: interpolate slow dimensions, keep fast ones, and scale cos and sin.

    factor: what the frequencies of slow dimensions are divided by.
    original: the positions before scaling.
    fast, slow: the ramp's ends, as how often a pair turns within the original positions.
    magnitude: the factor on cos and sin; None for 0.1·ln(factor) + 1.
    truncate: whether the ramp's ends are rounded to whole dimensions.
    """

    factor: float
    original: int
    fast: float = 32.0
    slow: float = 1.0
    magnitude: float | None = None
    truncate: bool = True


class LongRope(Struct, frozen=True):
    """LongRoPE: one divisor per frequency, from the short or the long list by text length.

    original: the longest text, in tokens, for which the short list counts.
    magnitude: the factor on cos and sin.
    """

    short: tuple[float, ...]
    long: tuple[float, ...]
    original: int
    magnitude: float


RopeScaling: TypeAlias = Linear | Dynamic | Llama3 | Yarn | LongRope | None


class Rope(Struct, frozen=True):
    """Rotary position embedding of `dims` entries of each query and key.

    theta: the base of the frequencies.
    scaling: how they change for longer texts; None for not.
    pairing: "half" rotates (k, k + dims/2), "adjacent" rotates (2k, 2k + 1).
    first: the entry at which the rotated ones begin.
    """

    dims: int
    theta: float = 10000.0
    pairing: Literal["half", "adjacent"] = "half"
    scaling: RopeScaling = None
    first: int = 0


class Alibi(Struct, frozen=True):
    """A bias −m·(i − j) on the scores with one slope m per head; −m·|i − j| if `symmetric`.

    factor: multiplies the bias; Falcon scales it together with the scores.
    coarse: whether positions, slopes and their products are rounded to bfloat16, as Falcon has them
        whatever it computes in.
    """

    symmetric: bool = False
    factor: float = 1.0
    coarse: bool = False


class RelativeBuckets(Struct, frozen=True):
    """T5: a learned bias per head and bucket of j − i (role `buckets.weight`, [bucket, head]).

    buckets: how many.
    max_distance: from which distance on all share the last bucket.
    bidirectional: whether later keys have buckets of their own, half of all.
    """

    buckets: int
    max_distance: int
    bidirectional: bool


class Disentangled(Struct, frozen=True):
    """DeBERTa: scores of content with position and of position with content, added to those of
    content with content.

    span: how many buckets of i − j there are on either side, each with a vector (role `relative`,
        [2·span, width]).
    furthest: distances beyond span / 2 share buckets up to this one, by their logarithms; None for
        a bucket of each.
    asks, answers: whether queries meet positions, and positions keys.
    own: whether positions have projections of their own (roles `relative_k`, `relative_q`), not
        those of the content.
    norm: of the vectors (role `relative_norm`).

    Source: He et al., DeBERTa, 2021.
    """

    span: int
    furthest: int | None
    asks: bool
    answers: bool
    own: bool
    norm: Norm | None


class RelativeSines(Struct, frozen=True):
    """Transformer-XL: scores of content with the sinusoid of the distance i − j, added to those
    with content.

    A projection of their own (role `relative_k`) makes keys of the sinusoids, and queries meet them
    with a bias (role `relative_q`) in place of the one they meet content with. furthest: distances
    beyond it count as it; None for none.
    Source: Dai et al., Transformer-XL, 2019.
    """

    furthest: int | None


class FirstBlockAgain(Struct, frozen=True):
    """BigBird outside training, where every block that a query would draw at random is the first
    one.

    A key of the first block then stands in the softmax 1 + times times, for queries that are in
    neither the first block nor the last: ln(1 + times) is added to its score.

    size: of a block.
    longest: texts up to there are seen whole, each key once.

    Source: Zaheer et al., Big Bird, 2020, as transformers runs it.
    """

    times: int
    size: int
    longest: int


Position: TypeAlias = (
    Rope | Alibi | RelativeBuckets | Disentangled | RelativeSines | FirstBlockAgain | None
)
ADDED = (Alibi, RelativeBuckets, Disentangled, RelativeSines, FirstBlockAgain)
"""Those that add to the scores."""


class QkNorm(Struct, frozen=True):
    """Normalization of queries and keys before the position encoding.

    over: "head" normalizes each head with weights that all heads share, "own" each head with
        weights of its own, "width" all heads at once.
    after: whether it follows the position encoding (Llama 4).
    """

    norm: Norm
    over: Literal["head", "own", "width"] = "head"
    after: bool = False


class Latent(Struct, frozen=True):
    """Latent attention (MLA): queries, keys and values are projected from narrow vectors.

    query: the width of the vector from which a token's queries come; None where they come from its
        input at once.
    keys: the width of the one from which its keys and values come.
    norm: of both.
    straight: how many entries of each key, the last ones, come from the input at once and are the
        same for all heads: those that carry the position.

    Source: DeepSeek-AI, DeepSeek-V2, 2024.
    """

    query: int | None
    keys: int
    norm: Norm
    straight: int


class Temperature(Struct, frozen=True):
    """Queries that grow with their position p: multiplied by 1 + scale·ln(1 + ⌊(p + first)/floor⌋).

    first: what the first position counts as, 1 (Llama 4) or 0 (Ministral 3).
    """

    floor: int
    scale: float
    first: int = 1


class Attention(Struct, frozen=True):
    """One multi-head attention. Also called MHA, MQA (kv_heads = 1) or GQA (1 < kv_heads < heads).

    scale: the number that multiplies q·k.
    softcap: None or the bound of the soft cap, above 0.
    sinks: whether a learned sink logit per head (role `sinks`) takes part in the softmax.
    hashing: Reformer's hash attention in place of the dense one: keys are the normalised queries,
        `scale` is 1.
    clip: queries, keys and values are cut off at ±clip as they leave their projections; None for
        not.
    latent: how queries, keys and values come from narrow vectors; None where each has one
        projection.
    temperature: how queries grow with their position; None for not.
    own_global: positions of tokens whose queries have a projection of their own, and meet keys and
        values of their own (roles `global_q`, `global_k`, `global_v`); None for a model without
        such roles. The mask says what they see (Longformer).
    source_width: of the vectors that keys and values are made from; None for those of the queries.
    gated: whether each entry of what heads mix is let through by a sigmoid of a projection of the
        query's input (role `gate`), before the output projection.
    shared: the number of the earlier layer whose keys and values these are; None for its own.

    Raises UsageError for another softcap.
    """

    heads: int
    kv_heads: int
    head_dim: int
    v_dim: int
    scale: float
    mask: Mask = field(default_factory=Everywhere)
    position: Position = None
    qk_norm: QkNorm | None = None
    softcap: float | None = None
    sinks: bool = False
    hashing: Reformer | None = None
    clip: float | None = None
    latent: Latent | None = None
    temperature: Temperature | None = None
    own_global: tuple[int, ...] | None = None
    source_width: int | None = None
    gated: bool = False
    shared: int | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for a soft cap that is no positive number."""
        if self.softcap is not None and not (math.isfinite(self.softcap) and self.softcap > 0):
            raise UsageError(
                "softcap is {softcap}", expected="a positive number", softcap=self.softcap
            )


Activation: TypeAlias = Literal[
    "gelu", "gelu_tanh", "gelu_bloom", "relu", "silu", "quick_gelu", "relu2", "tanh"
]


class Bounded(Struct, frozen=True):
    """A gate with bounds: g = min(gate x, limit), u = up x cut off at ±limit; g·sigmoid(slope·g)·(u
    + 1) goes down.

    Source: OpenAI, gpt-oss model card, 2025.
    """

    limit: float
    slope: float


class Mlp(Struct, frozen=True):
    """The feed-forward part of a block: down(act(up x)), or down(act(gate x) · up x) if `gated`.

    width: of act's result.
    bounded: what takes the place of act and product; None for these.
    """

    width: int
    activation: Activation
    gated: bool = False
    bounded: Bounded | None = None


class Convolution(Struct, frozen=True):
    """A convolution beside a layer (DeBERTa 2): act(conv(what entered the layer)) is added to the
    layer's result, then normed.

    kernel: tokens, odd; zeros beyond the text.
    groups: parts of each vector that do not mix.
    """

    kernel: int
    activation: Activation
    norm: Norm
    groups: int = 1


class Routing(Struct, frozen=True):
    """How a router's scores of the experts become the weights with which a token's chosen experts
    are summed.

    score: a softmax over all experts, or a sigmoid of each.
    factor: multiplies the shares in the end.
    groups: experts are chosen among those of the best `groups_chosen` of so many groups in a row; a
        group is as good as its best `group_by`.
    corrected: whether a learned number for each expert is added where the best are sought, but not
        to their shares.
    of_input: whether a share multiplies what an expert reads, not what it gives.
    slack: what is added to the sum that shares are divided by.
    """

    score: Literal["softmax", "sigmoid"] = "softmax"
    factor: float = 1.0
    groups: int = 1
    groups_chosen: int = 1
    group_by: int = 1
    corrected: bool = False
    of_input: bool = False
    slack: float = 0.0


class Experts(Struct, frozen=True):
    """A mixture of `count` feed-forward parts, of which the router's best `chosen` serve each
    token.

    width, activation: of each expert.
    renormalise: whether the shares of the chosen ones are made to sum to 1.
    shared: a part that serves every token besides; None for none.
    shared_share: whether the token decides, by a sigmoid of its own, how much of it is added.
    routing: how shares come about.
    bounded, gated: as for `Mlp`.
    narrow: the width of the vectors that experts read and write, which one map makes of the token's
        and one leads back; None for its own.
    """

    count: int
    chosen: int
    width: int
    activation: Activation
    renormalise: bool
    shared: Mlp | None = None
    shared_share: bool = False
    routing: Routing = field(default_factory=Routing)
    bounded: Bounded | None = None
    gated: bool = True
    narrow: int | None = None


class ShortConvolution(Struct, frozen=True):
    """C ⊙ conv(B ⊙ x), with B, C and x from the input and a sum over the last `kernel` tokens.
    Source: Liquid AI, LFM2, 2025."""

    name: ClassVar[str] = "short convolution"
    kernel: int


class StateSpace(Struct, frozen=True):
    """Mamba 2: `heads` states of `head_dim` × `state` numbers, each fading by one number a token.
    Source: Dao and Gu,
    2024.

    groups: heads in a row share what they write and read by.
    kernel: tokens of the convolution before.
    activation: of the convolution.
    gate_first: whether the gate comes before the norm.
    norm: of each group's part of what leaves; None for none.
    limits: the least and largest step; None for no largest.
    factors: what the gate, the values, k, q and the steps are multiplied with before the
        convolution; None for nothing.
    """

    name: ClassVar[str] = "Mamba 2"
    heads: int
    head_dim: int
    state: int
    groups: int
    kernel: int
    activation: Activation
    norm: Norm | None
    gate_first: bool = True
    limits: tuple[float, float | None] = (0.0, None)
    factors: tuple[float, float, float, float, float] | None = None


class SelectiveScan(Struct, frozen=True):
    """Mamba: `inner` states of `state` numbers, each number fading by its own. Source: Gu and Dao,
    2023.

    rank: the width from which steps come.
    kernel, activation: tokens of the convolution before, and its activation.
    norm: of steps and of what is written and read by; None for none.
    """

    name: ClassVar[str] = "Mamba"
    inner: int
    state: int
    rank: int
    kernel: int
    activation: Activation
    norm: Norm | None


class DeltaRule(Struct, frozen=True):
    """The gated delta rule: `heads` states of `key_dim` × `v_dim` numbers; each token writes the
    difference between its value and what the state holds for its key. Source: Yang et al., Gated
    delta networks, 2024.

    key_heads: heads of queries and keys; each is shared by heads of values in a row.
    kernel, activation: tokens of the convolution before, and its activation.
    norm: of what leaves each head.
    """

    name: ClassVar[str] = "gated delta rule"
    heads: int
    key_heads: int
    key_dim: int
    v_dim: int
    kernel: int
    activation: Activation
    norm: Norm


class LinearAttention(Struct, frozen=True):
    """Lightning attention: `heads` states of `dim` × `dim` numbers to which each token adds v·kᵀ,
    and which head h of H lets fade by exp(−share·2^(−8h/H)) a token, h from 1. Source: Qin et al.,
    Lightning attention 2, 2024.

    activation: of queries, keys and values.
    norm: of what leaves all heads, before the gate.
    """

    name: ClassVar[str] = "lightning attention"
    heads: int
    dim: int
    share: float
    activation: Activation
    norm: Norm


class KimiDelta(Struct, frozen=True):
    """The gated delta rule with a rate for each entry of a key: `heads` states of `dim` × `dim`
    numbers.

    Steps and gates come from vectors of `dim` entries.

    kernel, activation: tokens of the convolutions before, and their activation.
    norm: of what leaves each head, before the gate, a sigmoid.
    Source: Kimi Team, Kimi Linear, 2025.
    """

    name: ClassVar[str] = "Kimi delta attention"
    heads: int
    dim: int
    kernel: int
    activation: Activation
    norm: Norm


Mixer: TypeAlias = (
    ShortConvolution | StateSpace | SelectiveScan | DeltaRule | LinearAttention | KimiDelta
)
"""What mixes tokens without weights to show."""

Recurrence: TypeAlias = StateSpace | DeltaRule | LinearAttention | KimiDelta
"""Those whose heads each have one number for each pair of tokens: implicit weights."""


def state_size(mixer: Mixer) -> int:
    """How many numbers of recurrent state a mixer updates for each token."""
    match mixer:
        case ShortConvolution():
            return 0
        case StateSpace(heads, head_dim, state):
            return heads * head_dim * state
        case SelectiveScan(inner, state):
            return inner * state
        case DeltaRule(heads, _, key_dim, v_dim):
            return heads * key_dim * v_dim
        case LinearAttention(heads, dim) | KimiDelta(heads, dim):
            return heads * dim * dim
        case _:
            assert_never(mixer)


Place: TypeAlias = Literal[
    "attn.in",
    "attn.out",
    "attn.sum",
    "cross.in",
    "cross.out",
    "cross.sum",
    "mlp.in",
    "mlp.out",
    "mlp.sum",
]
"""Where a norm may sit: before a branch (in), on its result (out), after the residual sum (sum)."""


class Block(Struct, frozen=True):
    """One layer: attention, optionally cross-attention and a feed-forward part.

    norms: which places carry a norm; pre-norm, post-norm and sandwich norm are sets of places.
    parallel: attention and feed-forward read the same input and are added together (GPT-J).
    residual: whether each branch is added to its input.
    branch_scale: multiplies what a branch adds.
    convolution: what is added at the layer's end; None for nothing.
    mixer: what mixes tokens besides the attention, or in its place; None for nothing.
    instead: what the layer does in place of attention, in words; "" where it attends. `attention`
        then has no heads, and says nothing else.
    factors: what weights and biases are multiplied with as they are read, by role; 1 for those that
        are not there.
    normed: whether branches are added to what the norm before attention gives, not to what enters
        the layer (MiniMax).
    """

    attention: Attention
    mlp: Mlp | Experts | None = None
    norms: Mapping[Place, Norm] = field(default_factory=dict)
    parallel: bool = False
    residual: bool = True
    branch_scale: float = 1.0
    cross: Attention | None = None
    convolution: Convolution | None = None
    mixer: Mixer | None = None
    instead: str = ""
    factors: Mapping[str, float] = field(default_factory=dict)
    normed: bool = False

    def with_mixer(self, mixer: Mixer) -> Block:
        """The layer with this mixer (such as Mamba) in place of its attention."""
        return replace(
            self, attention=without_heads(self.attention), mixer=mixer, instead=mixer.name
        )

    def only(self, part: Mlp | Experts) -> Block:
        """A copy of the layer that has only this feed-forward part and the norm before it: no
        attention and no other norms."""
        norms: Mapping[Place, Norm] = {"mlp.in": self.norms["mlp.in"]}
        if isinstance(part, Mlp):
            name = "feed-forward part alone"
        else:
            name = "experts alone"
        return replace(
            self, attention=without_heads(self.attention), mlp=part, norms=norms, instead=name
        )


def without_heads(attention: Attention) -> Attention:
    """The attention with no heads, for a layer that does not attend."""
    return replace(
        attention, heads=0, kv_heads=0, qk_norm=None, position=None, sinks=False, gated=False
    )


class Embedding(Struct, frozen=True):
    """How token ids become vectors.

    width: of the token table; None for d_model.
    projection: what a linear map takes from there to d_model: "tokens" their vectors alone, "sum"
        the normed sum with positions and types.
    scale: multiplies the token vectors.
    positions: how absolute positions are added: "learned" from a table in which row
        `position_offset` is position 0, "sinusoidal" with sines in even entries, "halves" with all
        sines before all cosines, "timescales" the same with wavelengths that reach 10000·2π.
    padding: the id of a token that is counted out of the positions and takes the row of its own
        number; None where every token has a position.
    types: how many token-type vectors there are; 0 for none.
    norm: applied to the sum.
    """

    width: int | None = None
    projection: Literal["tokens", "sum"] | None = None
    scale: float = 1.0
    positions: Literal["learned", "sinusoidal", "halves", "timescales"] | None = None
    position_offset: int = 0
    padding: int | None = None
    types: int = 0
    norm: Norm | None = None


class Head(Struct, frozen=True):
    """How the last vectors become logits over the vocabulary. Also called unembedding.

    tied: whether the token table is the matrix where a file has none of its own.
    scale: multiplies the logits.
    softcap: their bound, None for none.
    projection: whether a linear map takes the vectors to the width of a narrower table first.
    offsets: whether a row of numbers, one per entry, may be added to the logits.
    """

    tied: bool
    scale: float = 1.0
    softcap: float | None = None
    projection: bool = False
    offsets: bool = False


class MaskedHead(Struct, frozen=True):
    """How an encoder's last vector of a token becomes logits of the word that stands there: a linear
    map, an activation, a norm, then the token table or a matrix of the head's own. Also called
    masked-language-model head.

    width: of the vectors after the map.
    """

    width: int
    activation: Activation
    norm: Norm


HEAD_ADDRESS = re.compile(
    r"l(\d{1,6})\s*h(\d{1,6})"  # L5H11, L5 H11
    r"|(\d{1,6})\.(\d{1,6})"  # 5.11
    r"|layer\s*(\d{1,6})\s*head\s*(\d{1,6})"
    r"|第\s*(\d{1,6})\s*层\s*第\s*(\d{1,6})\s*头",
    re.IGNORECASE,
)
"""Every way in which screens, pages, figures and errors name a head."""


def parse_head(text: str) -> tuple[int, int] | None:
    """The layer and the head of a name in any of its printed forms, such as `L5H11`, `L5 H11`,
    `5.11` or `layer 5 head 11`; None for what is no such name.
    """
    match = HEAD_ADDRESS.fullmatch(text.strip())
    if match is None:
        return None
    # the two numbers of the form that matched; those of the other forms are None
    layer, head = (int(number) for number in match.groups() if number is not None)
    return layer, head


def head_name(layer: int, head: int) -> str:
    """The name of a head, as `--head` takes it: "L5H11"."""
    return f"L{layer}H{head}"


def head_label(layer: int, head: int) -> str:
    """The name of a head in tables: "L5 H11"."""
    return f"L{layer} H{head}"


def spoken_head(layer: int | str, head: int | str) -> Message:
    """The name of a head in sentences and titles: "layer 5 head 11". With texts in place of numbers,
    such as "{0}", it is a template of that."""
    return message("layer {layer} head {head}", layer=layer, head=head)


ARROW = "→"
"""Stands between the two ends of a link, and between before and after."""


def plain_link(query: str, key: str) -> str:
    """The name of a link where no screen is at hand, in errors and titles: "it → animal"."""
    return f"{query} {ARROW} {key}"


class HeadSelection(Struct, frozen=True):
    """A selection of heads: these heads in each of these layers, or (layer, head) pairs.

    A public function takes it as `heads`, and takes what its members may be as well: `layers` and
    `heads` of every function of `attncli` are written so, from 0.

        5                           one layer, or this head of every layer
        [0, 3], range(4)            several
        "0,2-5"                     the same as a text, as --layer and --head take it
        "L5H11", (5, 11)            head 11 of layer 5, where no layers are named beside it
        ["L5H11", (3, 1)]           several of these; "L5H11,L3H1" as one text
        [5, 11]                     two heads of every layer

    Left out, all are meant. `ablate`, `patch`, `why` and the functions of pairs take any heads, the
    others the same heads in every layer that is named.

    layers, heads: their numbers.
    pairs: each a layer and a head; where there are any, they count alone.
    """

    layers: Selection = EVERY
    heads: Selection = EVERY
    pairs: Collection[tuple[int, int]] = ()

    def has(self, layer: int, head: int) -> bool:
        """Whether the selection holds this head of this layer."""
        if self.pairs:
            return (layer, head) in self.pairs
        return is_selected(self.layers, layer) and is_selected(self.heads, head)

    def layers_and_heads(self, option: str = "", *, hint: str = "") -> tuple[Selection, Selection]:
        """The selected layers, and the heads that are selected in each of them, the same in every
        layer.

        Args:
            option: The command line's option that named them; empty in Python.
            hint: What to try where the heads differ; the first of them where it is empty.

        Raises:
            UsageError: The heads that are named are not the same ones in each of their layers.
        """
        if not self.pairs:
            return self.layers, self.heads
        layers = sorted({layer for layer, _ in self.pairs})
        heads = sorted({head for _, head in self.pairs})
        # fewer pairs than layers times heads: some layer lacks one of the heads
        if len(layers) * len(heads) != len(set(self.pairs)):
            words = [head_name(layer, head) for layer, head in self.pairs]
            if option and not hint:
                hint = f"{option} {words[0]}"
            raise UsageError(
                "{words} names other heads in each layer",
                where=option,
                expected="the same heads in every layer named here; ablate, patch and why take any",
                hint=hint,
                words=",".join(words),
            )
        return layers, heads


class Spec(Struct, frozen=True, kw_only=True):
    """A whole model: embedding, blocks, final norm.

    family: its `model_type`.
    d_model: the width of the vectors between layers.
    vocabulary: entries of the token table; 0 for a model without one.
    max_positions: the longest text that the position table allows; None if unlimited.
    stated_positions: the longest text that the config says the model is made for, where no table
        limits it; None where it says nothing.
    head: None for a model that predicts no next token.
    masked: None for a model that tells no masked word; its file may lack that head, too.
    decoder: the other side of an encoder-decoder, whose blocks have cross-attention; `start` is the
        id its texts begin with.
    biases: patterns of the roles that add a bias, such as "attn.[qkv]"; "*" for all.
    """

    family: str = ""
    d_model: int
    vocabulary: int
    blocks: tuple[Block, ...]
    embedding: Embedding = field(default_factory=Embedding)
    final_norm: Norm | None = None
    max_positions: int | None = None
    stated_positions: int | None = None
    head: Head | None = None
    masked: MaskedHead | None = None
    decoder: Spec | None = None
    start: int | None = None
    biases: tuple[str, ...] = ()

    @property
    def scores_segments(self) -> bool:
        """Whether keys of another segment than the query's are scored otherwise, which is not
        computed."""
        return any(isinstance(block.attention.position, RelativeSines) for block in self.blocks)

    def attending(self, layers: Selection = EVERY) -> list[int]:
        """The numbers of the layers with attention, ascending, among those chosen.

        Args:
            layers: Which layers; all that attend where nothing is chosen.

        Returns:
            Numbers from 0.

        Raises:
            InputError: For a layer that does not exist or does not attend.
        """
        every = [layer for layer, block in enumerate(self.blocks) if not block.instead]
        if layers is EVERY:
            return every
        # the count, 0 here, would only be asked for by EVERY
        for layer in sorted(set(numbers_of(layers, 0))):
            if not 0 <= layer < len(self.blocks):
                count = len(self.blocks)
                what = message("there is no layer {layer}", layer=layer)
                raise InputError(
                    what,
                    expected=message("0 to {last} ({count} layers)", last=count - 1, count=count),
                )
            if self.blocks[layer].instead:
                raise InputError(
                    "layer {layer} attends to nothing: it is {instead}",
                    expected="one of the layers that attend: {every}",
                    hint=(
                        message("attn run --show implicit shows what such a recurrence amounts to")
                        if isinstance(self.blocks[layer].mixer, Recurrence)
                        else ""
                    ),
                    layer=layer,
                    instead=term(self.blocks[layer].instead),
                    every=listing(map(str, every)),
                )
        return sorted(set(numbers_of(layers, 0)))

    def idle_layers(self) -> dict[str, list[int]]:
        """The numbers of the layers without attention, grouped by what they do instead, in words."""
        layers_by_kind: dict[str, list[int]] = {}
        for layer, block in enumerate(self.blocks):
            if block.instead:
                layers_by_kind.setdefault(block.instead, []).append(layer)
        return layers_by_kind

    def layer_notes(self) -> tuple[Message, ...]:
        """Sentences for the user on layers without attention and on heads with gates."""
        gated = any(block.attention.gated for block in self.blocks)
        note = message(
            "what a head mixes passes a gate, O ⊙ σ(X·W_G), before W_O; W_OV leaves the gate out"
        )
        idle = tuple(
            plural(
                "layer {layers} ({kind}): no attention to show",
                "layers {layers} ({kind}): no attention to show",
                count=len(layers),
                layers=listing(map(str, layers)),
                kind=term(kind),
            )
            for kind, layers in self.idle_layers().items()
        )
        if gated:
            return (*idle, note)
        return idle


def most_heads(spec: Spec) -> int:
    """The largest number of heads that any attention of the model has."""
    return max(map(heads_of, spec.blocks))


def heads_of(block: Block) -> int:
    """How many heads this layer has, the larger number where self- and cross-attention differ; 0
    for a layer that does not attend."""
    return max((attention.heads for _, attention in attentions(block)), default=0)


def attentions(block: Block) -> Sequence[tuple[Literal["self", "cross"], Attention]]:
    """A layer's attentions as (kind, attention), "self" before "cross", in the order in which they
    run; empty for a layer that does not attend."""
    if block.instead:
        return []
    parts: list[tuple[Literal["self", "cross"], Attention]] = [("self", block.attention)]
    if block.cross is not None:
        parts.append(("cross", block.cross))
    return parts
