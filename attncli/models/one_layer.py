"""The one-layer model: one block of seeded weights, the same path as every checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from itertools import islice
from typing import Any, ClassVar, Literal

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from attncli.arrays.backend import Array, Backend, numpy_backend
from attncli.arrays.numpy_backend import uniform
from attncli.errors import InputError, UsageError
from attncli.inputs.files import refuse_half_characters
from attncli.inputs.token import Token, Tokenizer
from attncli.language import message
from attncli.mechanism.context import Weights
from attncli.mechanism.mask import Everywhere, Mask
from attncli.mechanism.spec import (
    Alibi,
    Attention,
    Block,
    Embedding,
    Norm,
    Place,
    Position,
    Rope,
    Spec,
)
from attncli.models.model import Identity, Model, Source
from attncli.models.run import EmbeddingVectors, with_positions

Tensors = Mapping[str, np.ndarray[Any, Any]]

TABLE = "embedding.weight"
TOKENS = "tokens"
LONGEST_LIST = 2**24
"""Characters of the token list; a longer one is refused before it is parsed."""


class Vocabulary(Struct, frozen=True, eq=False):
    """The embeddings of a weight file.

    rows: [entry, d_model].
    places: the row of each token text, None where rows go by token id.
    """

    rows: np.ndarray[Any, Any]
    places: Mapping[str, int] | None

    def vector(self, token: Token) -> np.ndarray[Any, Any]:
        """The embedding of a token. Raises InputError for one that has none."""
        count = len(self.rows)
        text = repr(token.text)
        if self.places is not None:
            if token.text not in self.places:
                raise InputError(
                    "the weight file has no embedding for the token {token}",
                    where=TABLE,
                    expected="one of its {count} tokens: {places}",
                    token=text,
                    count=count,
                    places=_first_texts(self.places),
                )
            return self.rows[self.places[token.text]]

        # by token id
        if token.id is None:
            what = message(
                "the weight file has embeddings by token id, and the token {token} has none",
                token=text,
            )
            expected = message(
                "a tokenizer with ids, or token texts in the file's metadata `tokens`"
            )
            raise InputError(
                what, where=TABLE, expected=expected, hint="--tokenizer tokenizer.json"
            )
        if not 0 <= token.id < count:
            raise InputError(
                "the token {token} has the id {id}",
                where=TABLE,
                expected="0 to {last}: {count} rows",
                token=text,
                id=token.id,
                last=count - 1,
                count=count,
            )
        return self.rows[token.id]


def vocabulary_of(
    rows: np.ndarray[Any, Any], metadata: Mapping[str, str], where: str
) -> Vocabulary:
    """The embeddings [entry, d_model] of a file, with the token texts that its metadata entry
    `tokens` holds as a JSON list.

    Raises InputError for a list that is malformed, repeats a text or is not as long as the table.
    """
    if TOKENS not in metadata:
        return Vocabulary(rows, places=None)

    # a long list, or one that is no JSON, counts as malformed
    try:
        if len(metadata[TOKENS]) <= LONGEST_LIST:
            texts = json.loads(metadata[TOKENS])
        else:
            texts = None
    except (ValueError, RecursionError):
        texts = None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError(
            "the metadata `tokens` are no JSON list of texts",
            where=where,
            expected='["the", "animal"]',
        )
    refuse_half_characters(texts, f"{where}: {TOKENS}")
    if len(texts) != len(rows):
        what = message(
            "the metadata name {texts} tokens, {table} has {rows} rows",
            texts=len(texts),
            table=TABLE,
            rows=len(rows),
        )
        raise InputError(what, where=where, expected="one token per row")

    places = {text: place for place, text in enumerate(texts)}
    if len(places) != len(texts):
        # of a text that comes twice, `places` holds the later place
        twice = next(text for place, text in enumerate(texts) if places[text] != place)
        raise InputError(
            "the metadata name the token {twice} twice",
            where=where,
            expected="each token once",
            twice=repr(twice),
        )
    return Vocabulary(rows, places)


def tokens_text(texts: Sequence[str]) -> str:
    """Token texts as the metadata entry holds them; lone surrogates are escaped, so any text
    survives.
    """
    return json.dumps(list(texts))


def _first_texts(texts: Mapping[str, int], most: int = 12) -> str:
    """The first `most` of these texts in one line, with "…" where there are more."""
    return " ".join(islice(texts, most)) + (" …" if len(texts) > most else "")


BIAS_DEVIATION = 0.1
"""Standard deviation of seeded biases: small beside the projections' unit deviation."""


SCALE = "sqrt-dk"
"""How scores are scaled where nothing else is said."""


class Settings(Struct, frozen=True):
    """What the options say about the one-layer model, whose weights are seeded or a file's.

    kv_heads: heads of keys and values; None for as many as query heads.
    d_k, d_v: per head; None for d_model / heads.
    bias: None for none, or a file's own.
    residual, layer_norm: whether X is added to the attention's output, and the sum normed.
    output_projection: None for "where there are several heads", or a file's own.
    position: "none", "sinusoidal", "learned", "alibi", "rope" or "rope:THETA".
    scale: "sqrt-dk", "sqrt-dmodel", "none" or a number; None for `SCALE`, or what a file's class
        uses.
    softcap: the bound of the scores, above 0; None for none.
    """

    d_model: int = 64
    heads: int = 1
    kv_heads: int | None = None
    d_k: int | None = None
    d_v: int | None = None
    bias: bool | None = None
    residual: bool = False
    layer_norm: bool = False
    output_projection: bool | None = None
    position: str = "none"
    scale: str | None = None
    softcap: float | None = None
    mask: Mask = field(default_factory=Everywhere)

    @property
    def head_dim(self) -> int:
        """The width of a head's queries and keys."""
        if self.d_k is None:
            return self.d_model // self.heads
        return self.d_k

    @property
    def v_dim(self) -> int:
        """The width of a head's values."""
        if self.d_v is None:
            return self.d_model // self.heads
        return self.d_v

    @property
    def projects(self) -> bool:
        """Whether there is an output projection."""
        if self.output_projection is None:
            return self.heads > 1
        return self.output_projection


def spec_of(settings: Settings) -> Spec:
    """The Spec of the one-layer model with these settings. Raises UsageError for sizes that do not
    fit together."""
    d_model = settings.d_model
    heads = settings.heads
    for name, value in {
        "d_model": d_model,
        "num_heads": heads,
        "d_k": settings.d_k,
        "d_v": settings.d_v,
    }.items():
        if value is not None and value < 1:
            raise UsageError(
                "{name} is {value}", expected="a whole number, at least 1", name=name, value=value
            )
    if d_model % heads and (settings.d_k is None or settings.d_v is None):
        raise UsageError(
            "d_model {d_model} is not divisible by {heads} heads",
            expected=(
                "d_model divisible by the heads ({d_model} % {heads} = {d_model_2}), or both widths:"
                " --d-k and --d-v"
            ),
            hint=f"--num-heads {_nearest_divisor(d_model, heads)}",
            d_model=d_model,
            heads=heads,
            d_model_2=d_model % heads,
        )
    if not settings.projects:
        check_width(settings, heads * settings.v_dim, hint="--output-projection")

    attention = Attention(
        heads=heads,
        kv_heads=settings.kv_heads or heads,
        head_dim=settings.head_dim,
        v_dim=settings.v_dim,
        scale=scale_number(settings.scale or SCALE, settings.head_dim, d_model),
        mask=settings.mask,
        position=_position_encoding(settings.position, settings.head_dim),
        softcap=settings.softcap,
    )
    if settings.layer_norm:
        norms: dict[Place, Norm] = {"attn.sum": Norm("layer", 1e-5)}  # ε as in `nn.LayerNorm`
    else:
        norms = {}
    # positions that are added to the embeddings; the others act within the attention. (A mapping
    # of names to themselves, since `settings.position` is any text to the type checker.)
    added: dict[str, Literal["learned", "sinusoidal"]] = {
        "learned": "learned",
        "sinusoidal": "sinusoidal",
    }
    return Spec(
        family="one-layer",
        d_model=d_model,
        vocabulary=0,
        blocks=(Block(attention, norms=norms, residual=settings.residual),),
        embedding=Embedding(positions=added.get(settings.position)),
    )


def check_width(settings: Settings, width: int, hint: str) -> None:
    """Raise UsageError where `settings` ask for a residual connection or a norm and `width`, that of
    the attention's output, is not d_model.

    hint: of the error.
    """
    d_model = settings.d_model
    if width != d_model and (settings.residual or settings.layer_norm):
        if settings.residual:
            subject = message("a residual adds X (width {d_model}) to", d_model=d_model)
            option = "--residual"
        else:
            subject = message("a normalization of width {d_model} follows", d_model=d_model)
            option = "--layer-norm"
        what = message("{subject} an output of width {width}", subject=subject, width=width)
        raise UsageError(
            what, expected=message("equal widths, or no {option}", option=option), hint=hint
        )


def _nearest_divisor(d_model: int, heads: int) -> int:
    """The divisor of `d_model` closest to `heads`, the smaller of two equally close."""
    # each divisor up to the square root has a partner above it
    low = [n for n in range(1, math.isqrt(d_model) + 1) if d_model % n == 0]
    return min(low + [d_model // n for n in low], key=lambda n: (abs(n - heads), n))


def scale_number(scale: str, d_k: int, d_model: int) -> float:
    """The number that multiplies q·k for a `--scale` value. Raises UsageError."""
    match scale:
        case "sqrt-dk":
            return 1 / math.sqrt(d_k)
        case "sqrt-dmodel":
            return 1 / math.sqrt(d_model)
        case "none":
            return 1.0
        case _:
            try:
                number = float(scale)
            except ValueError:
                number = math.nan  # refused below
            if math.isfinite(number):
                return number
            what = message("scale is {scale}", scale=repr(scale))
            raise UsageError(
                what, expected="sqrt-dk, sqrt-dmodel, none or a number that multiplies q·k"
            )


LARGEST_BASE = 1e12
"""Of rotary positions: beyond, float32 turns by nothing."""


def _position_encoding(name: str, d_k: int) -> Position:
    """The position encoding within attention that a `--position` value names; None for "none", and
    for "sinusoidal" and "learned", which are added to the embeddings. Raises UsageError for any other
    value."""
    kind, colon, theta = name.partition(":")
    # "rope:500000": kind rope, base 500000
    match kind:
        case "rope":
            if d_k % 2:
                raise UsageError(
                    "rotary position turns pairs of entries, and d_k is {d_k}",
                    expected="an even d_k",
                    hint=f"--d-k {d_k + 1}",
                    d_k=d_k,
                )
            try:
                if colon:
                    base = float(theta)
                else:
                    base = 10000.0
            except ValueError:
                base = math.nan  # refused below
            if not 1 <= base <= LARGEST_BASE:
                expected = message("1 to {largest_base:,.0f}", largest_base=LARGEST_BASE)
                raise UsageError(
                    "rope's base is {theta}",
                    expected=expected,
                    hint="--position rope:10000",
                    theta=repr(theta),
                )
            return Rope(d_k, base)
        case "alibi" if not colon:
            return Alibi(symmetric=True)  # without a mask, queries see later keys, too
        case "none" | "sinusoidal" | "learned" if not colon:
            return None
        case _:
            what = message("unknown position encoding {name}", name=repr(name))
            raise UsageError(what, expected="none, sinusoidal, rope, rope:THETA, alibi or learned")


def drawing_bytes(settings: Settings) -> int:
    """About how much memory it takes to draw the weights: as integers first, then as float64."""
    # q and k have heads · d_k rows, v and, if there is one, the output projection heads · d_v
    widths = 2 * settings.head_dim + settings.v_dim * (1 + settings.projects)
    entries = settings.d_model * settings.heads * widths
    return entries * (4 + 8)


def seeded_weights(settings: Settings, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Seeded weights by canonical name, float32, as `nn.Linear` stores them ([out, in]).

    Uniform with variance 1/fan-in, so that queries, keys and scaled scores have variance
    near 1 whatever the sizes are; layer normalization starts at weight 1 and bias 0.
    """
    heads = settings.heads
    d_model = settings.d_model
    kv_heads = settings.kv_heads or heads
    sizes = {
        "q": (heads * settings.head_dim, d_model),
        "k": (kv_heads * settings.head_dim, d_model),
        "v": (kv_heads * settings.v_dim, d_model),
    }
    if settings.projects:
        sizes["o"] = (d_model, heads * settings.v_dim)

    weights = {}
    for name, (out, fan_in) in sizes.items():
        weights[f"{name}.weight"] = uniform(seed, f"{name}.weight", (out, fan_in), fan_in**-0.5)
        if settings.bias:
            weights[f"{name}.bias"] = uniform(seed, f"{name}.bias", (out,), BIAS_DEVIATION)

    if settings.layer_norm:
        if settings.projects:
            width = d_model
        else:
            width = heads * settings.v_dim
        weights |= {
            "norm.weight": np.ones(width, np.float32),
            "norm.bias": np.zeros(width, np.float32),
        }
    return weights


def digest(weights: Tensors) -> str:
    """sha256 over names, shapes and float32 values of the weights, in the order of the names."""
    hasher = sha256()
    for name in sorted(weights):
        array = np.ascontiguousarray(weights[name], "<f4")
        hasher.update(f"{name} {list(array.shape)}\n".encode())
        hasher.update(array.tobytes())
    return hasher.hexdigest()


@cache
def _seeded_vector(seed: int, name: str, width: int) -> np.ndarray[Any, Any]:
    """A vector of random numbers, [width], the same at every call for one seed and name."""
    return uniform(seed, name, (width,))


class OneLayerStore(Struct, frozen=True, eq=False):
    """`Store` of the one-layer model: canonical weights, and embeddings by seed and token text.

    embedding: given vectors [token, d_model] for exactly this text (`--embeddings`), or None.
    vocabulary: vectors by token text or id, from a weight file, or None; a token without one is an
        error.
    """

    spec: Spec
    weights: Tensors
    seed: int
    embedding: np.ndarray[Any, Any] | None = None
    vocabulary: Vocabulary | None = None

    row_by_row: ClassVar[bool] = False

    def embed(self, backend: Backend, tokens: Sequence[Token]) -> Array:
        """The vectors of the tokens and their positions, added in float64, [token, width]."""
        exact = numpy_backend("float64")
        return backend.array(self._with_positions(exact, exact.array(self._token_vectors(tokens))))

    def embed_parts(self, backend: Backend, tokens: Sequence[Token]) -> list[EmbeddingVectors]:
        """The tokens' vectors, and their position vectors where positions are added to the
        embedding.
        """
        x = self._token_vectors(tokens)
        exact = numpy_backend("float64")
        parts = [EmbeddingVectors("token", backend.array(x))]
        if self.spec.embedding.positions is not None:
            # what is added to vectors of zeros are the position vectors alone
            positions = self._with_positions(exact, exact.array(x * 0.0))
            parts.append(EmbeddingVectors("position", backend.array(positions)))
        return parts

    def _token_vectors(self, tokens: Sequence[Token]) -> np.ndarray[Any, Any]:
        """The vector of each token, [token, d_model], float64."""
        width = self.spec.d_model
        if self.embedding is not None:
            if self.embedding.shape != (len(tokens), width):
                raise InputError(
                    "the embeddings have shape {shape}, the text has {tokens} tokens and d_model is"
                    " {width}",
                    where="--embeddings",
                    expected="[{tokens}, {width}], one row per token",
                    shape=list(self.embedding.shape),
                    tokens=len(tokens),
                    width=width,
                )
            return self.embedding.astype(np.float64)
        if self.vocabulary is not None:
            return np.stack([self.vocabulary.vector(token) for token in tokens]).astype(np.float64)
        # each token text has a stream of random numbers of its own, with a name that no weight has
        names = [f"embedding\0{token.text}" for token in tokens]
        return np.stack([_seeded_vector(self.seed, name, width) for name in names]).astype(
            np.float64
        )

    def _with_positions(self, exact: Backend, x: Array) -> Array:
        """Token vectors, [token, d_model], with their position vectors added, in `exact`; unchanged
        where the model adds none."""
        places = range(x.shape[-2])

        def learned_rows() -> Array:
            """A seeded vector for each position, [token, d_model]."""
            names = [f"position\0{place}" for place in places]  # which no weight is called
            return exact.array(
                np.stack([_seeded_vector(self.seed, name, self.spec.d_model) for name in names])
            )

        return with_positions(exact, self.spec.embedding, x, places, learned_rows)

    def expect(self, layers: range) -> None:
        """Nothing to prepare: the weights are in memory."""

    def layer(self, backend: Backend, index: int) -> Weights:
        """The weights of the one layer, which are in memory."""

        def weights(role: str) -> Array | None:
            """The matrix or the bias that plays a role, None where the layer has none."""
            # "attn.q.weight" is stored as "q.weight", the norm "attn.sum.weight" as "norm.weight"
            name = role.replace("attn.sum.", "norm.").removeprefix("attn.")
            if name in self.weights:
                return backend.array(self.weights[name])
            return None

        return weights

    def outer(self, backend: Backend) -> Weights:
        """No weights: one layer has nothing outside it."""
        return lambda role: None

    def bytes_read(self) -> int:
        """The bytes of the weights, all in memory from the start."""
        return sum(array.nbytes for array in self.weights.values())


def seeded_model(
    settings: Settings,
    seed: int,
    source: Source,
    tokenizer: Tokenizer,
    backend: Backend,
    *,
    embedding: np.ndarray[Any, Any] | None = None,
) -> Model:
    """The one-layer model with seeded weights.

    source: "seeded", or "random" for a seed that was drawn.
    embedding: the vectors of exactly the text that will run, [token, d_model]; None for seeded ones.
    """
    spec = spec_of(settings)
    weights = seeded_weights(settings, seed)
    identity = Identity(source, seed=seed, digest=digest(weights))
    return Model(spec, OneLayerStore(spec, weights, seed, embedding), tokenizer, backend, identity)


def split_embedding(
    model: Model, tokens: Sequence[Token]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None:
    """A one-layer model's embeddings of a text, split into token vectors and position vectors, both
    [token, d_model] in float64. None where no positions are added, and for a checkpoint, whose
    embeddings may be scaled and normed besides."""
    embedding = model.spec.embedding
    if not isinstance(model.store, OneLayerStore) or embedding.positions is None:
        return None
    # the same store for a model that adds no positions
    spec_without_positions = replace(model.spec, embedding=replace(embedding, positions=None))
    store_without_positions = replace(model.store, spec=spec_without_positions)
    exact = numpy_backend("float64")
    vectors = np.asarray(exact.numpy(store_without_positions.embed(exact, tokens)))
    sums = np.asarray(exact.numpy(model.store.embed(exact, tokens)))
    return vectors, sums - vectors
