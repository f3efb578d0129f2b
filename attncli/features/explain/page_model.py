"""A small model as a page carries it: sizes, weights and the way to cut a text, so that the page's
own script can run it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import Array, numpy_backend
from attncli.inputs.script_words import UNSPACED
from attncli.inputs.tokenize import BUILTIN
from attncli.language import Message, message
from attncli.mechanism.context import Weights
from attncli.mechanism.mask import AllOf, Causal, Everywhere, Mask, Window
from attncli.mechanism.projection import alibi_slopes, frequencies
from attncli.mechanism.spec import Alibi, Attention, Block, Mlp, Norm, Rope, Spec
from attncli.models.model import Model
from attncli.models.one_layer import BIAS_DEVIATION, OneLayerStore

MOST_NUMBERS = 1 << 20
"""Numbers that a page carries of a model: 4 MB before they are packed."""
MOST_DRAWN = 1 << 22
"""Numbers that a page draws by a seed: about two seconds of its script."""
ACTIVATIONS = frozenset({"gelu", "gelu_tanh", "gelu_bloom", "relu", "silu", "tanh"})
"""Those of a feed-forward part that the page's script knows."""
PLACES = frozenset({"attn.in", "attn.out", "attn.sum", "mlp.in", "mlp.out", "mlp.sum"})
"""Where the page's script knows a norm."""
ROLES = (
    "attn.q",
    "attn.k",
    "attn.v",
    "attn.o",
    "mlp.up",
    "mlp.gate",
    "mlp.down",
    *sorted(PLACES),
)


class PageModel(Struct, frozen=True, eq=False):
    """A model that a page can run.

    facts: its sizes, layers and tokenizer, as plain data for the JSON that the script reads.
    numbers: the weights that it carries, float32 in the order of `facts["arrays"]`; empty for
        seeded weights, which the script draws itself.
    """

    facts: dict[str, Any]
    numbers: np.ndarray[Any, Any]


class _TooMuchError(Exception):
    """Raised for a model that the page's script cannot run; `reason` is a sentence for the reader."""

    def __init__(self, reason: Message) -> None:
        super().__init__(str(reason))
        self.reason = reason


def page_model(model: Model) -> PageModel | Message:
    """Pack a model so that a page can run it in its script; where the script cannot, return a
    sentence that says why.

    Args:
        model: Of any kind.

    Returns:
        Sizes, weights and tokenizer; or the reason, such as too many weights.
    """
    try:
        return _page_model(model)
    except _TooMuchError as error:
        return error.reason


def _page_model(model: Model) -> PageModel:
    """Pack a model so that a page can run it in its script: sizes, weights and tokenizer. Raises
    _TooMuchError where the script cannot run it."""
    spec = model.spec
    if not model.own_layers or spec.decoder is not None or model.memory is not None:
        raise _TooMuchError(message("its layers are not computed here alone"))

    # what embeds a text: a table, or vectors that the script draws by a seed, as it may draw the
    # weights of the layers, too
    store = model.store
    tables: dict[str, Array | None] = {}
    draws_layers = False
    places = None  # by a token's text its row in the table; None where ids tell
    positions: str | None = None
    norm = None
    offset = 0  # the row of the table of positions that is that of position 0
    is_embedded_by_seed = False
    if isinstance(store, OneLayerStore):
        if store.embedding is not None:
            raise _TooMuchError(message("the input vectors were given for this text alone"))
        draws_layers = model.identity.source in ("seeded", "random")
        is_embedded_by_seed = store.vocabulary is None
        if store.vocabulary is not None:
            places = store.vocabulary.places
            tables["tokens.weight"] = store.vocabulary.rows
        positions = spec.embedding.positions
        seed = store.seed
    else:
        _refuse_size(_count_numbers(spec), MOST_NUMBERS)
        tables, offset = _tables(model)
        if tables["positions.weight"] is not None:
            positions = "table"
        norm = _norm_facts(spec.embedding.norm)
        seed = 0

    arrays, numbers = _arrays(model, tables, draws_layers=draws_layers)
    facts = {
        "source": model.identity.source,
        "drawn": draws_layers,
        "seed": seed,
        "width": spec.d_model,
        "positions": positions,
        "offset": offset,
        "longest": spec.max_positions,
        "blocks": [_block_facts(block, arrays, layer) for layer, block in enumerate(spec.blocks)],
        "tokenizer": _tokenizer_facts(model, places),
        "arrays": arrays,
        "seeded": is_embedded_by_seed,
        "norm": norm,
    }
    return PageModel(facts, numbers)


def _count_numbers(spec: Spec) -> int:
    """About how many numbers the weights of a checkpoint hold, from its sizes alone."""
    # the table of tokens, projections of queries, keys, values and outputs, and feed-forward parts
    count = spec.vocabulary * spec.d_model
    for block in spec.blocks:
        attention = block.attention
        heads = attention.heads + attention.kv_heads
        count += spec.d_model * heads * (attention.head_dim + attention.v_dim)
        if isinstance(block.mlp, Mlp):
            # up and down, and a third matrix for a gate
            matrices = 2
            if block.mlp.gated:
                matrices = 3
            count += matrices * spec.d_model * block.mlp.width
    return count


def _refuse_size(count: int, most: int) -> None:
    """Raise _TooMuchError where `count` numbers are more than the `most` that a page may carry or
    draw."""
    if count > most:
        raise _TooMuchError(
            message("it has {count:,} weights, and a page takes {most:,}", count=count, most=most)
        )


def _tables(model: Model) -> tuple[dict[str, Array | None], int]:
    """The tables by which a checkpoint embeds a text, by role (token vectors, position vectors or
    None, the norm of their sum), and which row of the table of positions is that of position 0.
    Raises _TooMuchError where anything else enters the embedding."""
    embedding = model.spec.embedding
    if (
        embedding.projection is not None
        or embedding.padding is not None
        or embedding.positions not in (None, "learned")
    ):
        raise _TooMuchError(
            message("its embedding is more than a table of tokens and one of positions")
        )
    outer = model.store.outer(numpy_backend("float64"))
    tokens = outer("tokens.weight")
    assert tokens is not None, "a checkpoint has vectors of its tokens"
    tokens = np.asarray(tokens, np.float64) * embedding.scale
    if embedding.types:
        # all tokens of a single text have type 0
        types = outer("types.weight")
        assert types is not None, "a checkpoint with token types has their vectors"
        tokens = tokens + np.asarray(types, np.float64)[0]
    tables: dict[str, Array | None] = {"tokens.weight": tokens, "positions.weight": None}
    if embedding.positions is not None:
        tables["positions.weight"] = outer("positions.weight")
    if embedding.norm is not None:
        tables |= {name: outer(name) for name in ("embed.norm.weight", "embed.norm.bias")}
    return tables, embedding.position_offset


def _arrays(
    model: Model, tables: dict[str, Array | None], *, draws_layers: bool
) -> tuple[list[dict[str, Any]], np.ndarray[Any, Any]]:
    """List the arrays that the page's script needs, and collect the numbers of those that the page
    carries.

    tables: of the embedding, which are always carried.
    draws_layers: whether the script draws the weights of layers itself, by their seed.

    Returns: an entry for each array in order, with its name, size and number of rows, and for drawn
        ones how to draw it; and the carried numbers, one array after another, float32.
    """
    arrays: list[dict[str, Any]] = []
    carried_numbers: list[np.ndarray[Any, Any]] = []

    def carry(name: str, array: Array | None) -> None:
        """Add an array to those that the page carries; nothing for None."""
        if array is None:
            return
        numbers = np.asarray(array, np.float64).astype(np.float32).reshape(-1)
        arrays.append({"name": name, "size": numbers.size, "rows": len(array)})
        carried_numbers.append(numbers)

    for name, table in tables.items():
        carry(name, table)
    backend = numpy_backend("float64")
    for layer in range(len(model.spec.blocks)):
        weights = model.store.layer(backend, layer)
        for name, array in _layer_arrays(model.spec.blocks[layer], weights):
            if not draws_layers:
                carry(f"{layer}.{name}", array)
                continue
            entry = {"name": f"{layer}.{name}", "size": array.size, "rows": len(array)}
            arrays.append({**entry, **_drawing_rule(name, array)})
    _refuse_size(sum(map(len, carried_numbers)), MOST_NUMBERS)
    _refuse_size(sum(entry["size"] for entry in arrays), MOST_DRAWN)
    if not carried_numbers:
        return arrays, np.zeros(0, np.float32)
    return arrays, np.concatenate(carried_numbers)


def _layer_arrays(block: Block, weights: Weights) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield the matrices and vectors of a layer with their roles, such as "attn.q.weight"; without
    those of a feed-forward part that adds nothing, and of norms that the layer does not have."""
    norms: dict[str, Norm] = dict(block.norms.items())
    for role in ROLES:
        # the norm "mlp.sum" is applied to the stream, whatever the feed-forward part adds
        is_of_mlp = role.startswith("mlp.") and role != "mlp.sum"
        if is_of_mlp and (block.mlp is None or _adds_nothing(block, weights)):
            continue
        norm = norms.get(role)
        if role in PLACES and (norm is None or not norm.affine):
            continue
        for suffix in ("weight", "bias"):
            array = weights(f"{role}.{suffix}")
            if array is None:
                continue
            numbers = np.asarray(array, np.float64)
            # such a norm multiplies by 1 + weight; the script multiplies by what it is given
            if norm is not None and norm.unit_offset and suffix == "weight":
                numbers = numbers + 1.0
            yield f"{role}.{suffix}", numbers


def _adds_nothing(block: Block, weights: Weights) -> bool:
    """Whether the last matrix and bias of a layer's feed-forward part are all zeros, so that it adds
    nothing: so attn stores models that were trained without one."""
    if "mlp.out" in block.norms:
        return False
    for suffix in ("weight", "bias"):
        array = weights(f"mlp.down.{suffix}")
        if array is not None and np.any(np.asarray(array)):
            return False
    return True


def _drawing_rule(name: str, array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """How the script makes an array of seeded weights: the name of its random stream and the standard
    deviation, or for norms the number that fills it.

    name: such as "attn.q.weight".
    """
    role, _, suffix = name.rpartition(".")
    if role in PLACES:
        # a norm begins with weights 1 and biases 0
        fill = 0.0
        if suffix == "weight":
            fill = 1.0
        return {"fill": fill}
    stream = name.removeprefix("attn.")
    if suffix == "bias":
        return {"stream": stream, "scale": BIAS_DEVIATION}
    # 1/√ of how many numbers enter the matrix, which is [out, in]
    return {"stream": stream, "scale": array.shape[1] ** -0.5}


def _block_facts(block: Block, arrays: list[dict[str, Any]], layer: int) -> dict[str, Any]:
    """What the page's script needs to know to recompute a layer, beside its arrays. Raises
    _TooMuchError for a layer that the script cannot compute.

    arrays: the entries of all arrays that the script has, of all layers.
    """
    attention = block.attention
    mlp = block.mlp
    # (`normed`: attention is added to the normed vector, not to what entered)
    other_parts = (block.cross, block.convolution, block.mixer)
    if any(part is not None for part in other_parts) or block.instead or block.normed:
        raise _TooMuchError(message("a layer of it does more than attend and feed forward"))
    if not block.norms.keys() <= PLACES:
        raise _TooMuchError(message("a layer of it does more than attend and feed forward"))
    # a feed-forward part that adds nothing has no arrays, and is left out
    if not any(entry["name"].startswith(f"{layer}.mlp.down") for entry in arrays):
        mlp = None
    elif not isinstance(mlp, Mlp) or mlp.bounded is not None or mlp.activation not in ACTIVATIONS:
        raise _TooMuchError(
            message("its feed-forward part is of a kind that the page does not know")
        )
    # without a feed-forward part there is no sum behind it to norm; behind one that adds nothing there
    # is, and it is normed
    places = [place for place in block.norms if block.mlp is not None or place != "mlp.sum"]
    return {
        **_attention_facts(attention),
        "norms": {place: _norm_facts(block.norms[place]) for place in places},
        "parallel": block.parallel,
        "residual": block.residual,
        "factor": block.branch_scale,
        "mlp": None if mlp is None else {"act": mlp.activation, "gated": mlp.gated},
    }


def _attention_facts(attention: Attention) -> dict[str, Any]:
    """What the page's script needs to know to recompute a layer's attention. Raises _TooMuchError
    for a layer that the script cannot compute."""
    # what the script does not compute
    unknown = (
        attention.qk_norm,
        attention.hashing,
        attention.clip,
        attention.latent,
        attention.temperature,
        attention.own_global,
        attention.source_width,
        attention.shared,
    )
    position = attention.position
    if any(part is not None for part in unknown) or attention.sinks or attention.gated:
        raise _TooMuchError(message("its attention is of a kind that the page does not know"))

    # how positions enter: rotations, or slopes of a bias
    rope = slopes = None
    match position:
        case None:
            pass
        case Rope(scaling=None):
            # without scaling they do not depend on the text's length, and have the factor 1
            per_pair, _ = frequencies(position, 1)
            half = position.pairing == "half"
            rope = {"frequencies": per_pair.tolist(), "half": half, "first": position.first}
        case Alibi(coarse=False, factor=factor):
            slopes = (factor * alibi_slopes(attention.heads)).tolist()
        case _:
            raise _TooMuchError(message("its positions enter in a way that the page does not know"))
    return {
        "heads": attention.heads,
        "kv": attention.kv_heads,
        "dk": attention.head_dim,
        "dv": attention.v_dim,
        "scale": attention.scale,
        "cap": attention.softcap,
        "mask": list(_windows(attention.mask)),
        "rope": rope,
        "slopes": slopes,
        "symmetric": isinstance(position, Alibi) and position.symmetric,
    }


def _windows(mask: Mask) -> Iterator[tuple[int | None, int | None]]:
    """Yield for each part of a mask how many tokens to the left and to the right a query sees, None
    for all; nothing for a mask that hides nothing. Raises _TooMuchError for a mask of another kind.
    """
    match mask:
        case Everywhere():
            return
        case Causal():
            yield None, 0
        case Window(left, right):
            yield left, right
        case AllOf(parts):
            for part in parts:
                yield from _windows(part)
        case _:
            raise _TooMuchError(message("its mask is neither causal nor a window"))


def _norm_facts(norm: Norm | None) -> dict[str, Any] | None:
    """What the page's script needs to know about a norm; None for no norm."""
    if norm is None:
        return None
    return {"kind": norm.kind, "eps": norm.eps}


def _tokenizer_facts(model: Model, places: Any) -> dict[str, Any]:
    """What the page's script needs to know to cut a text into tokens. Raises _TooMuchError for a
    tokenizer whose rules the script does not have.

    places: by a token's text its row in the table of tokens, for a weight file with such a table;
        None for others.
    """
    tokenizer = model.tokenizer
    name = getattr(tokenizer, "name", "")
    # ranges of letters of scripts without spaces, as a class of a JavaScript regular expression
    unspaced = "".join(f"\\u{{{ord(first):x}}}-\\u{{{ord(last):x}}}" for first, last in UNSPACED)
    facts = {
        "kind": name,
        "unspaced": f"[{unspaced}]",
        "ids": None if places is None else dict(places),
        "unknown": None,
    }
    if any(isinstance(tokenizer, kind) for kind in BUILTIN.values()):
        return facts

    # of tokenizers from a file: a list of whole words, cut at blanks or into letters
    hf = getattr(tokenizer, "hf", None)  # the tokenizer as the library tokenizers has it
    if hf is None:
        raise _TooMuchError(message("its tokenizer has rules that the page does not know"))
    file = json.loads(hf.to_str())
    splitter = file.get("pre_tokenizer") or {}
    kind = {"WhitespaceSplit": "whitespace", "Split": "letter"}.get(splitter.get("type", ""))
    # the pattern matches any single letter
    splits_letters = splitter.get("pattern", {}).get("Regex") == r"[\s\S]"
    can_split = kind == "whitespace" or (kind == "letter" and splits_letters)
    has_more_rules = any(
        file.get(part) for part in ("normalizer", "post_processor", "added_tokens")
    )
    vocabulary = file["model"]
    if vocabulary.get("type") != "WordLevel" or has_more_rules or not can_split:
        raise _TooMuchError(message("its tokenizer has rules that the page does not know"))
    ids = vocabulary["vocab"]
    return {**facts, "kind": kind, "ids": ids, "unknown": ids.get(vocabulary.get("unk_token"))}
