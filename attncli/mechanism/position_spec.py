"""How positions enter attention, as plain frozen data: rotations, biases by distance, scores of their own."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from attncli.mechanism.norm import Norm


class Linear(Struct, frozen=True):
    """Position interpolation: frequencies divided by `factor`."""

    factor: float


class Dynamic(Struct, frozen=True):
    """Dynamic NTK: the base grows once the text is longer than `original` positions."""

    factor: float
    original: int


class Llama3(Struct, frozen=True):
    """Llama 3.1: long wavelengths divided by `factor`, short ones kept, a ramp between."""

    factor: float
    low: float
    high: float
    original: int


class Yarn(Struct, frozen=True):
    """YaRN: interpolate slow dimensions, keep fast ones, and scale cos and sin.

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
    """LongRoPE: one divisor per frequency, from the short or the long list by text length."""

    short: tuple[float, ...]
    long: tuple[float, ...]
    original: int
    magnitude: float


RopeScaling: TypeAlias = Linear | Dynamic | Llama3 | Yarn | LongRope | None


class Rope(Struct, frozen=True):
    """Rotary position embedding of the first `dims` entries of each query and key.

    pairing: "half" rotates (k, k + dims/2), "adjacent" rotates (2k, 2k + 1). first: the entry at which the rotated ones
    begin.
    """

    dims: int
    theta: float = 10000.0
    pairing: Literal["half", "adjacent"] = "half"
    scaling: RopeScaling = None
    first: int = 0


class Alibi(Struct, frozen=True):
    """A bias −m·(i − j) on the scores with one slope m per head; −m·|i − j| if `symmetric`.

    factor: multiplies the bias; Falcon scales it together with the scores. coarse: whether positions, slopes and their
    products are rounded to bfloat16, as Falcon has them whatever it computes in.
    """

    symmetric: bool = False
    factor: float = 1.0
    coarse: bool = False


class RelativeBuckets(Struct, frozen=True):
    """T5: a learned bias per head and bucket of j − i (role `buckets.weight`, [bucket, head])."""

    buckets: int
    max_distance: int
    bidirectional: bool


class Disentangled(Struct, frozen=True):
    """DeBERTa: scores of content with position and of position with content, added to those of content with content.

    span: how many buckets of i − j there are on either side, each with a vector (role `relative`, [2·span, width]).
    furthest: distances beyond span / 2 share buckets up to this one, by their logarithms; None for a bucket of each.
    asks, answers: whether queries meet positions, and positions keys. own: whether positions have projections of their
    own (roles `relative_k`, `relative_q`), not those of the content. norm: of the vectors (role `relative_norm`).
    Source: He et al., DeBERTa, 2021.
    """

    span: int
    furthest: int | None
    asks: bool
    answers: bool
    own: bool
    norm: Norm | None


class RelativeSines(Struct, frozen=True):
    """Transformer-XL: scores of content with the sinusoid of the distance i − j, added to those with content.

    A projection of their own (role `relative_k`) makes keys of the sinusoids, and queries meet them with a bias (role
    `relative_q`) in place of the one they meet content with. furthest: distances beyond it count as it; None for none.
    Source: Dai et al., Transformer-XL, 2019.
    """

    furthest: int | None


class FirstBlockAgain(Struct, frozen=True):
    """BigBird outside training, where every block that a query would draw at random is the first one.

    A key of the first block then stands in the softmax 1 + times times, for queries that are in neither the first block
    nor the last: ln(1 + times) is added to its score. size: of a block. longest: texts up to there are seen whole, each
    key once. Source: Zaheer et al., Big Bird, 2020, as transformers runs it.
    """

    times: int
    size: int
    longest: int


Position: TypeAlias = Rope | Alibi | RelativeBuckets | Disentangled | RelativeSines | FirstBlockAgain | None
ADDED = (Alibi, RelativeBuckets, Disentangled, RelativeSines, FirstBlockAgain)
"""Those that add to the scores."""
