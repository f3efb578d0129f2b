"""Parts of documents that several builders make: the header, the model, the attention, tokens,
shapes, layers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Literal, TypedDict, assert_never, cast

import numpy as np
from msgspec import UNSET, UnsetType

from attncli.arrays.backend import Backend
from attncli.documents import (
    AttentionPart,
    EmptyRow,
    Header,
    ModelPart,
    Numbers,
    Resources,
    ShapeRow,
    TokenRow,
    token_facts,
)
from attncli.documents.parts import RunHead, RunLayer
from attncli.errors import AttnError, InputError
from attncli.inputs.token import Token, bytes_name
from attncli.inputs.word_groups import Words, identities, token_notes
from attncli.language import listing, message
from attncli.mechanism.mask import Mask, parse_mask, shows_all
from attncli.mechanism.spec import (
    ADDED,
    Alibi,
    Attention,
    Disentangled,
    FirstBlockAgain,
    Latent,
    Position,
    RelativeBuckets,
    RelativeSines,
    Rope,
)
from attncli.mechanism.trace import (
    SQUARE,
    STAGES,
    LayerTrace,
    Shape,
    formula_with_bias,
    order_stages,
    shapes_of,
)
from attncli.models.family import layer_roles
from attncli.models.model import Model
from attncli.version import __version__


class Heading(TypedDict):
    """The fields of a `Header` (what every document about a text begins with), as a dictionary for
    its constructor.
    """

    version: str
    text: str
    tokens: list[TokenRow]
    model: ModelPart
    attention: AttentionPart
    pieces: list[TokenRow] | UnsetType


def header(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    words: Words | None = None,
    *,
    computing: Backend | None = None,
) -> Heading:
    """The members that every document about a text begins with: version, text, tokens, model,
    attention.

    words: the words that the tokens are merged to; they then take the place of the tokens in the
        document, whose `pieces` are the tokens. None where tokens are not merged.
    computing: the backend that the text was computed in; None for the one that the model chooses
        for a text of this length.
    """
    return {
        "version": __version__,
        "text": text,
        "tokens": token_rows(tokens if words is None else words.words),
        "model": model_part(model),
        "attention": attention_part(model, computing or model.compute_backend(len(tokens))),
        "pieces": UNSET if words is None else token_rows(tokens),
    }


def heading_of(document: Header) -> Heading:
    """The fields of `Header` taken from an existing document, for another document about the same
    text.
    """
    return cast(Heading, {name: getattr(document, name) for name in Heading.__annotations__})


def token_rows(tokens: Iterable[Token]) -> list[TokenRow]:
    """Tokens as rows of a document."""
    return [TokenRow(**token_facts(token)) for token in tokens]


def tokens_of(rows: Iterable[TokenRow]) -> list[Token]:
    """The tokens that rows of a document stand for. Members that a row leaves out are 0
    or false.
    """
    return [
        Token(
            row.index,
            row.text,
            row.id,
            row.start,
            row.end,
            special=row.special,
            unknown=bool(row.unknown),
            added=bool(row.added),
            segment=row.segment or 0,
        )
        for row in rows
    ]


SHOWN = ("masked", "weights", "mixed", "out")
"""Stages of which a run's document has the numbers without all of them being asked for."""
OF_ALL_HEADS = ("hidden", "concat", "out", "sum", "norm")
"""Stages of a layer that its heads have in common; of the others each head has its own."""
ENCODER = message(
    "this is the encoder reading the text; attn cross shows how the decoder looks at it"
)


def resources(model: Model, before: int, estimate: int) -> Resources:
    """What a run takes, as a part of documents: bytes of weights read, less `before` (those read
    earlier), and its estimated memory, `estimate` bytes.

    What a process took is measured and differs from run to run, so it stands in no document: the
    same input gives the same bytes.
    """
    return Resources(bytes_read=model.store.bytes_read() - before, memory_estimate=estimate)


def notes(model: Model, text: str, tokens: Sequence[Token]) -> list[str]:
    """The warnings of a run about its weights and text: how a file was read, what loading found
    odd, which words the model does not know."""
    side_notes = []
    if model.spec.decoder is not None:
        side_notes.append(ENCODER)
    return [
        *model.warnings,
        *side_notes,
        *token_notes(text, tokens),
        *_length_notes(model, tokens),
        *_separator_notes(model, tokens),
        *_segment_notes(model, tokens),
        *_type_notes(model, tokens),
    ]


def _length_notes(model: Model, tokens: Sequence[Token]) -> list[str]:
    """The warning that a text is longer than the model is made for by its config; none where it is
    not, or the config does not say."""
    limit = model.spec.stated_positions
    if limit is None or len(tokens) <= limit:
        return []
    return [
        message(
            "{tokens:,} tokens are more than the {limit:,} positions that this model is made for:"
            " what it does beyond, it has not learned",
            tokens=len(tokens),
            limit=limit,
        )
    ]


def _segment_notes(model: Model, tokens: Sequence[Token]) -> list[str]:
    """The warning that attn leaves out how a model scores keys of another segment than the query's,
    for a text of several segments; none for other models and texts. (In some vocabularies a special
    token has a segment of its own.)"""
    if not tokens or not model.spec.scores_segments:
        return []
    stranger = next((token for token in tokens if token.segment != tokens[0].segment), None)
    if stranger is None:
        return []
    return [
        message(
            "this model scores keys of another segment otherwise, and {token} is of another: attn"
            " leaves that out, and its weights are those of one segment",
            token=repr(stranger.text),
        )
    ]


def _type_notes(model: Model, tokens: Sequence[Token]) -> list[str]:
    """The warning that the tokenizer gives a token a type other than 0, for a model that has only
    one type; none for other models and texts."""
    if model.spec.embedding.types != 1:
        return []
    stranger = next((token for token in tokens if token.segment), None)
    if stranger is None:
        return []
    return [
        message(
            "the tokenizer gives {token} the type {segment}, and this model has the type 0 alone:"
            " every token is read as of type 0",
            token=repr(bytes_name(stranger.text)),
            segment=stranger.segment,
        )
    ]


def _separator_notes(model: Model, tokens: Sequence[Token]) -> list[str]:
    """The warning that a separator spelled in the text begins no second segment, for a model that
    tells segments apart; empty where the text holds no separator.
    """
    if model.spec.embedding.types <= 1:
        return []
    # the ids that the tokenizer puts around a text; one of them typed within it is a separator
    ends = {token.id for token in tokens if token.added}
    last = max((place for place, token in enumerate(tokens) if not token.special), default=0)
    # a separator behind the last word separates nothing
    for token in tokens[:last]:
        if token.typed and token.id in ends:
            return [
                message(
                    "what follows {token} in the text is still of the first segment, and this model"
                    " tells segments apart: --pair TEXT gives it a second",
                    token=repr(token.text),
                )
            ]
    return []


def warnings_of_sides(a: Sequence[str], b: Sequence[str]) -> list[str]:
    """The warnings of the two sides of a comparison in one list. A warning of one side alone begins
    with that side's name, A or B; one of both stands once.

    Args:
        a: The warnings of side A.
        b: Those of side B.

    Returns:
        A's, then those of B that A lacks.
    """
    warnings = []
    for warning in dict.fromkeys(a):
        if warning in b:
            warnings.append(warning)
        else:
            warnings.append(message("A: {warning}", warning=warning))
    for warning in dict.fromkeys(b):
        if warning not in a:
            warnings.append(message("B: {warning}", warning=warning))
    return warnings


SIZES_IN_COMMON = ("family", "d_model", "layers", "heads", "kv_heads", "d_k", "d_v")
"""What two descriptions of one model have in common, wherever its file lies."""


def is_same_model(a: ModelPart, b: ModelPart) -> bool:
    """Whether two documents are of one model: of one family and size, and with the same weights
    where a digest of both is known."""
    same_size = all(getattr(a, field) == getattr(b, field) for field in SIZES_IN_COMMON)
    if a.digest is None or b.digest is None:
        return same_size
    return same_size and a.digest == b.digest


def model_part(model: Model) -> ModelPart:
    """The part of a document that says which weights ran, and their sizes; heads and widths are
    those of the first layer that attends."""
    first = model.spec.blocks[model.spec.attending()[0]].attention
    identity = model.identity
    return ModelPart(
        source=identity.source,
        name=identity.name,
        family=identity.family,
        seed=identity.seed,
        drawn=list(identity.drawn) or UNSET,
        d_model=model.spec.d_model,
        layers=len(model.spec.blocks),
        heads=first.heads,
        kv_heads=first.kv_heads,
        d_k=first.head_dim,
        d_v=first.v_dim,
        digest=identity.digest,
        quantization=identity.quantization or UNSET,
        adapters=list(identity.adapters) or UNSET,
        idle=model.spec.idle_layers() or UNSET,
    )


def attention_part(model: Model, computing: Backend) -> AttentionPart:
    """The conventions of the attention that ran: scale, mask, position encoding, types. Where
    layers differ, each mask and position encoding comes with the numbers of its layers; scale,
    softcap and hashing are those of the first layer with attention (every model has one).

    computing: the backend that the text was computed in.
    """
    numbers = model.spec.attending()
    layers = [model.spec.blocks[number].attention for number in numbers]
    first = layers[0]
    # positions that are added to the input vectors, such as "learned"; None where there are none
    input_positions = model.spec.embedding.positions
    return AttentionPart(
        scale=first.scale,
        softcap=first.softcap,
        mask=_texts_by_layer([layer.mask.spec() for layer in layers], numbers),
        mask_says=_masks_in_words([layer.mask for layer in layers], numbers),
        position=input_positions
        or _texts_by_layer([position_name(layer.position) for layer in layers], numbers),
        backend=model.backend.name,
        dtype=model.backend.dtype,
        compute_dtype=UNSET if computing.dtype == model.backend.dtype else computing.dtype,
        hashing=UNSET if first.hashing is None else first.hashing.spec,
    )


def _texts_by_layer(texts: Sequence[str], numbers: Sequence[int]) -> str:
    """One text if all layers have the same, else each different text with the layers that have it:
    "causal (1, 3-5), window:4 (0, 2)".

    numbers: those of the layers, in the order of the texts.
    """
    layers = _layers_by_text(texts, numbers)
    if len(layers) == 1:
        return texts[0]
    return ", ".join(f"{text} ({ranges(layers[text])})" for text in layers)


def _layers_by_text(texts: Sequence[str], numbers: Sequence[int]) -> dict[str, list[int]]:
    """Group layers by their text: for each different text, the numbers of the layers that have it.

    texts: one for each layer.
    numbers: those of the layers, in the same order.
    """
    layers: dict[str, list[int]] = {}
    for text, number in zip(texts, numbers, strict=True):
        layers.setdefault(text, []).append(number)
    return layers


def _masks_in_words(masks: Sequence[Mask], numbers: Sequence[int]) -> str:
    """The sentence that describes the layers' masks: one for all if all are alike, else one for
    each mask behind the numbers of its layers.

    masks: one for each layer.
    numbers: those of the layers, in the same order.
    """
    texts = [mask.describe() for mask in masks]
    layers = _layers_by_text(texts, numbers)
    if len(layers) == 1:
        return texts[0]
    return _mask_sentences({ranges(places): text for text, places in layers.items()})


LAYERS_OF_SPEC = re.compile(r"(?P<spec>.+?) \((?P<layers>[0-9, -]+)\)(?:, |$)")
"""A mask of some layers in `AttentionPart.mask`: "window:4 (0, 2-5)"."""


LONGEST_MASK = 10_000
"""Characters of a saved mask that is read again; to search a longer one would take too long."""


def mask_meaning(attention: AttentionPart) -> str:
    """The sentence on what a query sees, for a document that was read from a file. It is written
    anew from the masks, so that it can be translated; where that differs from the sentence in the
    file, the file's stands.
    """
    saved_sentence = attention.mask_says or ""  # a document may leave it out
    if len(attention.mask) > LONGEST_MASK:
        return saved_sentence
    parts = [match.group("spec", "layers") for match in LAYERS_OF_SPEC.finditer(attention.mask)]
    try:
        if parts:
            sentence_anew = _mask_sentences(
                {layers: parse_mask(spec).describe() for spec, layers in parts}
            )
        else:
            sentence_anew = parse_mask(attention.mask).describe()
    except AttnError:
        return saved_sentence
    if sentence_anew == saved_sentence:
        return sentence_anew
    return saved_sentence


def _mask_sentences(texts: Mapping[str, str]) -> str:
    """Sentences on what masks show, each behind its layers.

    texts: the sentence of each mask, by its layers, such as "0, 2-5".
    """
    parts = [
        message(
            "layer {layers}: {text}" if layers.isdecimal() else "layers {layers}: {text}",
            layers=listing(layers.split(", ")),
            text=text,
        )
        for layers, text in texts.items()
    ]
    return listing(parts, "; ")


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as text, numbers in a row as a range: [0, 2, 3, 4, 5] is "0, 2-5"."""
    # cut where a number does not follow the one before
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    texts = []
    for run in np.split(np.asarray(numbers), cuts):
        if len(run) == 1:
            texts.append(str(run[0]))
        elif len(run) > 1:  # no numbers at all are one run of none
            texts.append(f"{run[0]}-{run[-1]}")
    return listing(texts)


def position_name(position: Position) -> str:
    """A position encoding as `--position` spells it."""
    match position:
        case None:
            return "none"
        case Rope(theta=theta):
            if theta == 10000.0:  # the usual base, which need not be written
                return "rope"
            return f"rope:{theta:g}"
        case Alibi():
            return "alibi"
        case RelativeBuckets():
            return "t5-buckets"
        case Disentangled():
            return "disentangled"
        case RelativeSines():
            return "relative-sines"
        case FirstBlockAgain():
            return "first-block-again"
        case _:
            assert_never(position)


def position_stages(position: Position) -> tuple[str, ...]:
    """The names of the stages of attention that hold the parts of scores which come from positions
    alone.
    """
    if isinstance(position, RelativeSines):
        return ("content_position",)
    if not isinstance(position, Disentangled):
        return ()
    # queries that meet positions, and positions that meet keys: a model may have one term alone
    terms = {"content_position": position.asks, "position_content": position.answers}
    return tuple(name for name, is_present in terms.items() if is_present)


MODULES = {stage.name: stage.name for stage in STAGES.values() if stage.bias} | {"out": "o"}
"""What the weights that a stage multiplies with are called in a layer's roles, by stage."""
NARROW_MODULES = ("q_down", "kv_down", "kv")
"""What latent attention (MLA) multiplies with besides, by the names of a layer's roles."""


def biased_modules(
    model: Model, layer: int, part: Literal["attn", "cross"] = "attn"
) -> frozenset[str]:
    """The weights of a layer's attention to whose product the model adds a bias, such as "q" and
    "o", by their names in a layer's roles.

    part: which attention; the cross-attention is the decoder's where the model has two sides.
    """
    names = (*MODULES.values(), *NARROW_MODULES)
    # a seeded, given or captured attention is one layer, whose weights are in memory
    if model.identity.source != "checkpoint":
        weights = model.store.layer(model.backend, layer)
        return frozenset(name for name in names if weights(f"attn.{name}.bias") is not None)
    spec = model.spec
    if part == "cross":
        spec = spec.decoder or spec
    # the spec of a model that runs through transformers lists each bias that a test run found
    if not model.own_layers:
        return frozenset(name for name in names if f"{part}.{name}" in spec.biases)
    # else the family's roles tell
    roles = {role.name for role in layer_roles(spec, spec.blocks[layer])}
    return frozenset(name for name in names if f"{part}.{name}.bias" in roles)


def projection_formulas(
    model: Model, layer: int, part: Literal["attn", "cross"] = "attn"
) -> dict[str, str]:
    """The formulas of a layer's queries, keys, values and output, by stage, where they are not the
    plain ones: with the biases that the model adds, and by way of narrow vectors in latent
    attention (MLA).

    part: which attention: "attn" for self-attention, "cross" for a decoder's cross-attention.
    """
    biased = biased_modules(model, layer, part)
    formulas = {
        stage: formula_with_bias(stage) for stage, name in MODULES.items() if name in biased
    }
    latent = model.spec.blocks[layer].attention.latent
    if part == "attn" and latent is not None:
        formulas |= latent_formulas(latent, biased)
    return formulas


def word_formula(formula: str) -> str:
    """The formula of one word's vector, q = x·W_Q, from the formula of all words' vectors, Q =
    X·W_Q."""
    return formula[:1].lower() + formula[1:].replace("X·", "x·")


def latent_formulas(latent: Latent, biased: Collection[str]) -> dict[str, str]:
    """How queries, keys and values come from narrow vectors, by stage: D leads down to them, U up
    from them; KR gives the entries of a key that carry its position.

    biased: the weights to whose product a bias is added, by name, such as "q" or "kv_down".

    Source: DeepSeek-AI, DeepSeek-V2, 2024, appendix C.
    """

    def product(vectors: str, name: str, symbol: str) -> str:
        """The formula of vectors times a matrix, and its bias where there is one.

        name: of the matrix, as `biased` has it.
        symbol: what stands behind W_ and b_.
        """
        if name in biased:
            return f"{vectors}·W_{symbol} + b_{symbol}"
        return f"{vectors}·W_{symbol}"

    if latent.query is None:
        queries = product("X", "q", "Q")
    else:
        queries = product(f"norm({product('X', 'q_down', 'DQ')})", "q", "UQ")
    narrow = f"norm({product('X', 'kv_down', 'DKV')})"
    keys = product(narrow, "kv", "UK")
    if latent.straight:  # a key's last entries come from the input at once
        keys = f"[{keys}, {product('X', 'kv_down', 'KR')}]"
    return {"q": f"Q = {queries}", "k": f"K = {keys}", "v": f"V = {product(narrow, 'kv', 'UV')}"}


def shape_rows(
    trace: LayerTrace,
    attention: Attention,
    projections: Mapping[str, str],
    *,
    leading: tuple[str, ...] = (),
) -> list[ShapeRow]:
    """The shape trace of a layer: every stage that its attention has, whether or not the numbers
    were kept.

    projections: the formulas that differ from the plain ones, as `projection_formulas` gives them.
    leading: names of the axes before the usual ones, such as ("batch",).
    """
    # for stages that not every attention has, whether this one lacks them
    absent = {
        "capped": attention.softcap is None,
        "biased": not isinstance(attention.position, ADDED),  # no position adds to the scores
        "masked": shows_all(attention.mask) and attention.hashing is None,
    }
    formulas = dict(projections)
    if attention.hashing is not None:
        absent |= {"raw": True, "scaled": True}  # its scores are computed within buckets
        # a token's key is its own query, scaled to one length
        formulas |= {"k": "K = Q / rms(Q) / √d", "masked": message("−∞ where not compared")}
    if "concat" not in trace.stages:  # no W_O: the heads' outputs are the output
        formulas.pop("out", None)
    # all stages with a number per pair have the shape of the weights; this array takes no memory
    queries = trace.stages["q"].shape[-2]
    keys = trace.stages["k"].shape[-2]
    square = dict.fromkeys(
        (*SQUARE, *position_stages(attention.position)),
        np.broadcast_to(np.zeros(1), (*trace.stages["q"].shape[:-2], queries, keys)),
    )
    stages = {
        name: array
        for name, array in {**trace.stages, **square}.items()
        if not absent.get(name, False)
    }
    return [shape_row(row, formulas.get(row.step)) for row in shapes_of(stages, leading=leading)]


def shape_row(row: Shape, formula: str | None = None) -> ShapeRow:
    """A step of the shape trace as a row of a document.

    formula: what to show in place of the step's own formula; None for that.
    """
    return ShapeRow(
        step=row.step, axes=list(row.axes), shape=list(row.shape), formula=formula or row.formula
    )


def layer_part(
    backend: Backend, trace: LayerTrace, heads: Sequence[int], *, stages: bool = False
) -> RunLayer:
    """One layer of a run as a part of a document: of each head its scores (what enters the softmax,
    null where hidden), weights and output, and the layer's output.

    heads: the numbers of the heads that the trace holds, in its order.
    stages: whether to add every stage by name.
    """
    names = [name for name in order_stages(trace.stages) if stages or name in SHOWN]
    values = {name: backend.numpy(trace.stages[name]) for name in names}
    by_head = {name: array for name, array in values.items() if name not in OF_ALL_HEADS}
    parts = []
    for place, head in enumerate(heads):
        head_stages: dict[str, Numbers] | UnsetType = UNSET
        if stages:
            # of keys and values there are fewer than heads where heads in a row share them: each
            # head shows the ones that it uses
            head_stages = {
                name: array[place * len(array) // len(heads)] for name, array in by_head.items()
            }
        parts.append(
            RunHead(
                head=head,
                scores=values["masked"][place] if "masked" in values else UNSET,
                weights=values["weights"][place] if "weights" in values else UNSET,
                output=values["mixed"][place],
                stages=head_stages,
            )
        )
    layer_stages: dict[str, Numbers] | UnsetType = UNSET
    hidden: Numbers | UnsetType = UNSET
    if stages:
        layer_stages = {name: array for name, array in values.items() if name in OF_ALL_HEADS}
        hidden = backend.numpy(trace.after)
    return RunLayer(
        layer=trace.layer, heads=parts, output=values["out"], stages=layer_stages, hidden=hidden
    )


def empty_rows(backend: Backend, trace: LayerTrace, heads: Sequence[int]) -> list[EmptyRow]:
    """The queries that see nothing, one entry per layer, head and query.

    Args:
        backend: what the trace's arrays are of.
        trace: one layer's; its `empty_rows` are [head, query].
        heads: the number in the model of each head of the trace.
    """
    is_empty = backend.numpy(trace.empty_rows)
    return [
        EmptyRow(layer=trace.layer, head=heads[int(place)], query=int(query))
        for place, query in zip(*np.nonzero(is_empty), strict=True)
    ]


def overflow(backend: Backend, trace: LayerTrace) -> list[str]:
    """A list with one warning where a layer's numbers overflowed its data type, so that rows are
    NaN (null in JSON); else an empty list."""
    # [head, query]: whether the head's mixture of values there is finite
    rows = np.isfinite(np.asarray(backend.numpy(trace.stages["mixed"]))).all(-1)
    heads, queries = np.nonzero(~rows)
    if not heads.size:
        return []
    all_heads, all_queries = rows.shape
    affected = message(
        "{count} of {queries} queries in {head_count} of {heads} heads",
        count=len(set(queries.tolist())),
        queries=all_queries,
        head_count=len(set(heads.tolist())),
        heads=all_heads,
    )
    where = message(
        "layer {layer}: {affected} have no finite output", layer=trace.layer, affected=affected
    )
    return [
        message(
            "{place}: their numbers are too large for {dtype}; a smaller --scale or a wider"
            " --dtype",
            place=where,
            dtype=backend.dtype,
        )
    ]


def refuse_lost_rows(backend: Backend, trace: LayerTrace) -> LayerTrace:
    """The layer's trace unchanged. Raises InputError where numbers overflowed, as `overflow` finds."""
    if warnings := overflow(backend, trace):
        raise InputError(warnings[0], expected="numbers that can be written out")
    return trace


def identities_of(document: Header, tokens: Sequence[Token]) -> list[Hashable]:
    """A value for each token of a document that is equal for equal tokens: its id, or for a word
    the ids of its pieces."""
    if document.pieces is UNSET:
        return identities(tokens)
    values: list[Hashable] = []
    for word in tokens:
        # the pieces whose characters lie within the word; special tokens have no characters
        inside = []
        for piece in document.pieces:
            if None in (word.start, word.end, piece.start, piece.end):
                continue
            # none of the four is None from here on, which a type checker does not see
            if (word.start or 0) <= (piece.start or 0) < (piece.end or 0) <= (word.end or 0):
                inside.append(piece.id)
        if inside:
            values.append(tuple(inside))
        elif word.id is None:
            values.append(word.text)
        else:
            values.append(word.id)
    return values
