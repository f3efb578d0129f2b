"""Parity: a checkpoint run by `attn` and by transformers, head by head and layer by layer.

In float64 both must agree to 1e-10, relative to the largest number of each array. In float32 the
two round differently; there the root mean square distance from the float64 reference may be at
most twice that of transformers' own float32.

The reference imports transformers and torch, when called and only then. In float64 it is float64
throughout, but for the angles of rotary embeddings: transformers computes norms, softmax and
positions in float32 whatever the model's type. Here those casts keep float64; rotary frequencies
are computed in float64 and rounded to float32 once, angles are their float32 products with the
positions, and cos and sin are taken in float64. That is what
`attncli.mechanism.projection.rotation` does, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import choose
from attncli.arrays.numpy_backend import normal
from attncli.errors import AttnError, InputError, UnsupportedError, first_sentence
from attncli.inputs.checkpoint import Checkpoint, TorchCheckpoint, find_tensors, is_packed
from attncli.inputs.files import LARGEST_FILE, read_regular
from attncli.inputs.ggml_blocks import BlockKind
from attncli.inputs.hub import gguf_file
from attncli.inputs.token import Token
from attncli.mechanism.spec import Spec
from attncli.mechanism.trace import LayerTrace
from attncli.models import transformers_model as library
from attncli.models.gguf_tensors import Unpack
from attncli.models.load import foreign_family, load, open_checkpoint, text_model
from attncli.models.model import Model

Floats = np.ndarray[Any, Any]


class ReferenceSide(Struct, frozen=True, eq=False):
    """One stack of layers.

    hidden: the embeddings, then what leaves each layer, the last after the final norm, [token,
        width].
    weights, cross: [head, query, key] by layer; cross is empty but for decoders that have it.
    """

    hidden: tuple[Floats, ...]
    weights: tuple[Floats, ...]
    cross: tuple[Floats, ...] = ()


def reference(
    folder: Path,
    ids: Sequence[int],
    target: Sequence[int] | None = None,
    dtype: str = "float64",
    *,
    everywhere: Sequence[int] | None = None,
    states: Floats | None = None,
) -> tuple[ReferenceSide, ...]:
    """transformers' hidden states and weights for these token ids: one side, or encoder and decoder
    where there is a `target`.

    dtype: "float64" or "float32", which is transformers' own float32.
    everywhere: positions of the global tokens of a model that knows such; None for those that the
        class that saved it has.
    states: what an encoder made, [token, width], for a decoder that reads it; then `ids` are the
        decoder's, and its side alone is given.

    Raises UnsupportedError without transformers, InputError where transformers cannot load the
    folder.
    """
    with reference_model(
        folder, both=target is not None or states is not None, dtype=dtype
    ) as model:
        if states is None:
            return run_reference(model, ids, target, everywhere)
        return (decoder_over_states(model, ids, states),)


@contextmanager
def reference_model(folder: Path, *, both: bool, dtype: str = "float64") -> Iterator[Any]:
    """transformers' own model of the checkpoint, ready to run; within, float64 is float64
    throughout.

    both: whether an encoder-decoder runs with its decoder. Raises InputError where transformers
    cannot load it, and as `reference`.
    """
    torch = library.import_torch()
    transformers = library.import_transformers()
    wide = dtype == "float64"
    try:
        config, state = _config_and_tensors(folder)
        # of an encoder-decoder's family, what a file with the encoder alone needs; for others the
        # same class
        encoder = not both and type(config) in transformers.MODEL_FOR_TEXT_ENCODING_MAPPING
        if encoder:
            kinds = transformers.MODEL_FOR_TEXT_ENCODING_MAPPING
        else:
            kinds = transformers.MODEL_MAPPING
        model = kinds[type(config)].from_pretrained(
            None,
            config=config,
            state_dict=state,
            attn_implementation="eager",
            experts_implementation="eager",
            dtype=getattr(torch, dtype),
        )
    except (AttnError, MemoryError):
        raise
    except Exception as error:  # safetensors and torch raise errors of their own
        raise InputError(
            "transformers cannot load this checkpoint: {error}",
            where=str(folder),
            error=first_sentence(error),
        ) from error
    if wide or hasattr(model, "relative_positional_encoding"):
        for weight in model.parameters():
            weight.data = weight.data.to(
                getattr(torch, dtype)
            )  # XLNet makes some of float32 whatever is asked for
    _count_alibi_once(torch, model.eval())
    with torch.no_grad(), _float64_throughout(torch, model) if wide else nullcontext():
        yield model


def run_reference(
    model: Any,
    ids: Sequence[int],
    target: Sequence[int] | None = None,
    everywhere: Sequence[int] | None = None,
) -> tuple[ReferenceSide, ...]:
    """Run a model of transformers on these tokens: its hidden states and weights, of one side, or
    of encoder and decoder where there is a `target`.

    everywhere: positions of global tokens (which see every token and are seen by all), for a
        Longformer and its like; None for the model's usual ones.
    """
    torch = import_module("torch")
    inputs: dict[str, Any] = {"input_ids": torch.tensor([list(ids)])}
    if target is not None:
        inputs["decoder_input_ids"] = torch.tensor([list(target)])
    run_short_text_whole(model, len(ids))
    if gives_weights_by_distance(model):
        # Longformer and LED need to be told which tokens are global, and take no use_cache
        if everywhere is None:
            everywhere = usual_globals(model)
        else:
            everywhere = sorted(everywhere)
        inputs["global_attention_mask"] = torch.tensor(
            [[int(place in everywhere) for place in range(len(ids))]]
        )
    else:
        inputs["use_cache"] = False
    out = model(**inputs, output_attentions=True, output_hidden_states=True)
    if target is not None:
        weights = _reference_weights(model, out, "encoder_", everywhere)
        return ReferenceSide(_first_entries(out.encoder_hidden_states), weights), _decoder_side(out)
    if runs_by_blocks(model):
        # BigBird lengthens the text to whole blocks: what belongs to the padding is cut off
        hidden = tuple(layer[: len(ids)] for layer in _first_entries(out.hidden_states))
        weights = tuple(
            whole_weights(model, layer, len(ids)) for layer in _first_entries(out.attentions)
        )
        return (ReferenceSide(hidden, weights),)
    return (
        ReferenceSide(
            _first_entries(out.hidden_states), _reference_weights(model, out, "", everywhere)
        ),
    )


def decoder_over_states(model: Any, ids: Sequence[int], states: Floats) -> ReferenceSide:
    """transformers' decoder run on these token ids over given encoder output `states`, [token,
    width].
    """
    torch = import_module("torch")
    encoder_states = torch.from_numpy(np.asarray(states, np.float64))[None].to(model.dtype)
    inputs = {
        "decoder_input_ids": torch.tensor([list(ids)]),
        "encoder_outputs": (encoder_states,),
        "use_cache": False,
    }
    return _decoder_side(model(**inputs, output_attentions=True, output_hidden_states=True))


def _decoder_side(out: Any) -> ReferenceSide:
    """The decoder's side of an encoder-decoder's output."""
    outputs = (out.decoder_hidden_states, out.decoder_attentions, out.cross_attentions)
    return ReferenceSide(*map(_first_entries, outputs))


def _reference_weights(
    model: Any, out: Any, side: str, everywhere: Sequence[int] | None
) -> tuple[Floats, ...]:
    """Each layer's attention weights, [head, query, key], from a transformers output.

    side: "encoder_", or "" for a model of one side.
    everywhere: positions of global tokens.
    """
    near = _first_entries(out[f"{side}attentions"])
    kinds = getattr(model.config, "layer_types", None) or ()
    if (
        len(near) == len(kinds) and "linear_attention" in kinds
    ):  # MiniMax gives the states of those layers, too
        return tuple(
            array for array, kind in zip(near, kinds, strict=True) if kind != "linear_attention"
        )
    if not gives_weights_by_distance(model):
        return near
    apart = _first_entries(out[f"{side}global_attentions"]) if everywhere else (None,) * len(near)
    return tuple(
        weights_by_key(windows, everywhere or (), rows)
        for windows, rows in zip(near, apart, strict=True)
    )


def _config_and_tensors(folder: Path) -> tuple[Any, dict[str, Any]]:
    """transformers' config of a checkpoint and every tensor; of a GGUF file as its family's own
    files have them.
    """
    torch = library.import_torch()
    transformers = library.import_transformers()
    file = gguf_file(folder)
    if file is None and is_packed(Checkpoint.describe(folder, packed=True).config):
        checkpoint = open_checkpoint(folder)
        values = checkpoint.config
        arrays = {name: checkpoint.read(name, "float32") for name in checkpoint.names()}
    elif file is None:
        config = transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        return config, _read_tensors(folder)
    else:
        from attncli.models.gguf import open_gguf

        stored = open_gguf(file)
        unpack = gguf_library()
        if unpack is not None:
            stored.unpack = unpack
        values, arrays = stored.for_family()
    # by silence some lie beyond the vocabulary; one that pads some classes must have
    ids: dict[str, int | None] = {
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": 0 if file else None,
    }
    config = transformers.AutoConfig.for_model(**(values | ids))
    return config, {
        name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()
    }


def gguf_library() -> Unpack | None:
    """A function that unpacks the blocks of a GGUF file by the `gguf` package, llama.cpp's own;
    None where it is not installed, and the reference has to be read by the code that is compared
    with it.
    """
    try:
        library_of_blocks: Any = import_module("gguf")
    except ImportError:
        return None

    def unpack(kind: BlockKind, raw: Floats) -> Floats:
        """The numbers of some blocks, float32 [number], from their bytes, [byte]."""
        number = library_of_blocks.GGMLQuantizationType[kind.name]
        with np.errstate(over="ignore", invalid="ignore"):  # told by whoever reads the tensor
            numbers = library_of_blocks.quants.dequantize(raw, number)
        return np.asarray(numbers, np.float32).reshape(-1)

    return unpack


def blocks_by(folder: Path) -> Literal["gguf", "attn"] | None:
    """Which code unpacks quantised blocks for the reference: the `gguf` package's or, where that is
    not installed, attn's own; None for a checkpoint that is no GGUF file.
    """
    if gguf_file(folder) is None:
        return None
    if gguf_library() is None:
        return "attn"
    return "gguf"


def _read_tensors(folder: Path) -> dict[str, Any]:
    """Every tensor of a checkpoint, read by the safetensors library itself, from bytes in memory,
    not a mapped file; pickled checkpoints as attn reads them."""
    checkpoint = Checkpoint.open(folder)
    if isinstance(checkpoint, TorchCheckpoint):
        backend = choose("torch", device="cpu", dtype="float32")
        return {name: backend.keep(checkpoint.read(name)) for name in checkpoint.names()}
    reader: Any = import_module("safetensors.torch")
    tensors: dict[str, Any] = {}
    for path in sorted({info.file for info in find_tensors(folder.resolve()).values()}):
        tensors |= reader.load(read_regular(path, what="a .safetensors file", limit=LARGEST_FILE))
    return tensors


def _first_entries(tensors: Sequence[Any]) -> tuple[Floats, ...]:
    """The first batch entry of each tensor as a float64 NumPy array."""
    return tuple(np.asarray(tensor[0].double().numpy()) for tensor in tensors)


def _count_alibi_once(torch: Any, model: Any) -> None:
    """Falcon's eager attention adds ALiBi to scores whose mask holds it already, its other
    attentions do not: count it once."""

    def leave_out(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """A module's arguments, with ALiBi zero where the mask holds it already."""
        mask = kwargs.get("attention_mask")
        alibi = kwargs.get("alibi")
        if mask is None or alibi is None:
            holds_some = None
        else:
            holds_some = (mask != 0) & (mask > torch.finfo(mask.dtype).min / 2)
        if holds_some is not None and bool(holds_some.any()):
            kwargs = {**kwargs, "alibi": torch.zeros_like(alibi)}
        return args, kwargs

    for module in model.modules():
        if hasattr(module, "inv_norm_factor"):
            module.register_forward_pre_hook(leave_out, with_kwargs=True)


@contextmanager
def _float64_throughout(torch: Any, model: Any) -> Iterator[None]:
    """Context manager: transformers computes in float64 even what it casts to float32, and its
    rotary angles as well."""
    single = torch.float32
    double = torch.float64
    functions = {
        torch.sqrt,
        torch.log,
        torch.log1p,
        torch.cos,
        torch.sin,
        torch.Tensor.cos,
        torch.Tensor.sin,
    }

    class Widening(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        """Casts to float32 stay float64: of float64 tensors, or of everything where `everything` is
        set.
        """

        def __init__(self, *, everything: bool) -> None:
            super().__init__()
            self.everything = everything

        def __torch_function__(
            self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            tensors = [item for item in args if torch.is_tensor(item)]
            if self.everything or any(tensor.dtype == double for tensor in tensors):
                args = tuple(double if item is single else item for item in args)
                kwargs = {
                    name: double if value is single else value for name, value in kwargs.items()
                }
                if function is torch.Tensor.float:
                    function = torch.Tensor.double
            if function in functions:
                args = (args[0].double(), *args[1:])
            if function is torch.polar:
                args = tuple(item.double() for item in args)
            return function(*args, **kwargs)

    def in_float64(compute: Callable[..., Any]) -> Callable[..., Any]:
        """A wrapper that computes the function in float64; of a tuple of results the first is
        rounded to float32.
        """

        def compute_rounded(*args: Any, **kwargs: Any) -> Any:
            """The result computed in float64; of a tuple of results the first is rounded to
            float32.
            """
            usual = torch.get_default_dtype()
            torch.set_default_dtype(double)
            try:
                with Widening(everything=True):
                    result = compute(*args, **kwargs)
            finally:
                torch.set_default_dtype(usual)
            if not isinstance(result, tuple):
                return result
            # through NumPy, since a cast to float32 within the context stays float64
            return torch.from_numpy(result[0].numpy().astype(np.float32)), *result[1:]

        return compute_rounded

    rotary: Any = import_module("transformers.modeling_rope_utils")
    bloom: Any = import_module("transformers.models.bloom.modeling_bloom")
    formulas = dict(rotary.ROPE_INIT_FUNCTIONS)
    slopes = bloom.build_alibi_tensor
    try:
        rotary.ROPE_INIT_FUNCTIONS.update(
            {name: in_float64(compute) for name, compute in formulas.items()}
        )
        bloom.build_alibi_tensor = in_float64(slopes)
        for module in model.modules():
            _exact_frequencies(torch, module, Widening)
        with Widening(everything=False):
            yield
    finally:
        rotary.ROPE_INIT_FUNCTIONS.update(formulas)
        bloom.build_alibi_tensor = slopes


def _exact_frequencies(torch: Any, module: Any, widening: Any) -> None:
    """Replace a module's rotary frequencies, or GPT-J's table of sines, by ones computed in float64
    and rounded once."""
    buffers = dict(module.named_buffers(recurse=False))
    if any(name.endswith("inv_freq") for name in buffers):
        with widening(everything=True):
            fresh = dict(type(module)(config=module.config).named_buffers(recurse=False))
        for name in buffers:
            setattr(module, name, fresh[name].float())
    if hasattr(
        module, "get_slope_rate"
    ):  # how fast MiniMax's linear attention fades, perhaps rounded in the file
        places = torch.arange(1, module.num_attention_heads + 1).double()
        share = 1 - module.layer_idx / (module.num_hidden_layers - 1 + 1e-5) + 1e-5
        module.slope_rate = (2.0 ** (-8.0 / module.num_attention_heads * places) * share)[
            :, None, None
        ]
        tables = module.decay_factors(module.slope_rate)
        module.query_decay, module.key_decay, module.diagonal_decay = tables
    if hasattr(module, "relative_positional_encoding"):  # XLNet's sinusoids of distances
        sinusoids = module.relative_positional_encoding

        def widened_sinusoids(*args: Any, **kwargs: Any) -> Any:
            """The model's own sinusoids in float64."""
            with widening(everything=True):
                return sinusoids(*args, **kwargs)

        module.relative_positional_encoding = widened_sinusoids
    if "weights" in buffers and hasattr(module, "make_weights"):  # M2M-100's table of sines

        def table(
            count: int, width: int, padding: int | None = None
        ) -> None:  # again for a text that is longer
            """The table of sines for `count` positions, computed in float64; the row of the padding
            is zero.
            """
            half = width // 2
            frequencies = (10000.0 ** (-np.arange(half) / (half - 1))).astype(np.float32)
            angles = (np.arange(count, dtype=np.float32)[:, None] * frequencies).astype(np.float64)
            sines = np.concatenate(
                (np.sin(angles), np.cos(angles), np.zeros((count, width % 2))), axis=1
            )
            sines[[] if padding is None else padding] = 0.0
            module.weights = torch.from_numpy(sines.astype(np.float32))

        module.make_weights = table
        table(len(buffers["weights"]), buffers["weights"].shape[1], module.padding_idx)
    for name, buffer in buffers.items():
        # known by its numbers: up to 5.23 transformers keeps the table in the attention of each
        # layer, since then in a module of its own
        if buffer.ndim == 2 and buffer.shape[1] % 2 == 0 and buffer.is_floating_point():
            sines = _sines_and_cosines(torch, *buffer.shape)
            rounding = ROUNDING * len(buffer)
            if torch.allclose(buffer.double(), sines, rtol=0.0, atol=rounding):
                setattr(module, name, sines)


ROUNDING = 1e-6
"""How far a sine of float32 may be from that of float64, for each position before it."""


def _sines_and_cosines(torch: Any, count: int, dims: int) -> Any:
    """GPT-J's table for `count` positions, [position, sines and then cosines], in float64 of angles
    that are rounded to float32 once."""
    frequencies = (10000.0 ** (-torch.arange(0, dims, 2).double() / dims)).float()
    angles = (torch.arange(count).float()[:, None] * frequencies).double()
    return torch.cat((torch.sin(angles), torch.cos(angles)), dim=1)


# Weights that transformers gives by distance, as for windows, or by blocks, brought into rows and
# columns.


def gives_weights_by_distance(model: Any) -> bool:
    """Whether a transformers model is a Longformer or the like, which takes global tokens and gives
    attention weights by distance, not by key."""
    return "global_attention_mask" in signature(model.forward).parameters


def usual_globals(model: Any) -> Sequence[int]:
    """The positions of global tokens that the model's class implies: (0,) for a classifier, else
    ().
    """
    architectures = getattr(model.config, "architectures", None) or ()
    if any(name.endswith("ForSequenceClassification") for name in architectures):
        return (0,)
    return ()


def weights_by_key(near: Floats, tokens: Sequence[int], apart: Floats | None) -> Floats:
    """The weights [head, query, key] of a Longformer layer, from those that transformers gives by
    distance.

    near: [head, query, global + window]: of the global tokens first, then by j − i, whose middle is
        the query itself; rows of global tokens are 0.
    tokens: their positions, ascending.
    apart: [head, key, global], their own rows; None without any.
    """
    heads, count, columns = near.shape
    first = len(tokens)
    reach = (columns - first) // 2
    weights = np.zeros((heads, count, count), near.dtype)
    for query in range(count):
        low = max(query - reach, 0)
        high = min(query + reach + 1, count)
        weights[:, query, low:high] = near[
            :, query, first + low - query + reach : first + high - query + reach
        ]
        weights[:, query, list(tokens)] = near[:, query, :first]
    if apart is not None:
        weights[:, list(tokens)] = apart[:, :count].swapaxes(1, 2)
    return weights


def runs_by_blocks(model: Any) -> bool:
    """Whether a transformers BigBird is set to block-sparse attention, which pads a text to whole
    blocks.
    """
    return getattr(model, "attention_type", "") == "block_sparse"


def run_short_text_whole(model: Any, count: int) -> None:
    """Switch a transformers BigBird to full attention for a text too short for blocks; by itself it
    switches too late to return that run's weights."""
    if (
        runs_by_blocks(model)
        and count <= (5 + 2 * model.config.num_random_blocks) * model.config.block_size
    ):
        model.set_attention_type("original_full")


def whole_weights(model: Any, weights: Floats, count: int) -> Floats:
    """The weights [head, query, key] of a block-sparse BigBird layer without padding; a first-block
    key that stood in the softmax several times gets their sum.

    weights: of the lengthened text; a key of the first block that stood in the softmax several
    times has what it was given once.
    """
    size = model.config.block_size
    random_blocks = model.config.num_random_blocks
    last = (weights.shape[1] // size - 1) * size
    result = weights.copy()
    result[:, size:last, :size] *= 1 + random_blocks
    return result[:, :count, :count]


LIMIT = 1e-10
"""Largest relative difference in float64."""

RATIO = 2.0
"""How many times as far from float64 as transformers' float32 the run's float32 may be."""

READ = 40
"""How many random states a decoder without its encoder reads."""


SideName = Literal["self", "encoder", "decoder"]


class LayerDistance(Struct, frozen=True):
    """Largest |difference| in float64 of one layer.

    side: "self", "encoder" or "decoder".

    weights: by head.
    cross: by head of the cross-attention, empty without one.
    hidden: of the vectors that leave the layer, the last layer's after the final norm; None where
        the reference gives another width.
    relative: the largest of all, each relative to the largest number of its array or 1.
    """

    side: SideName
    layer: int
    weights: tuple[float, ...]
    cross: tuple[float, ...]
    hidden: float | None
    relative: float


class Verification(Struct, frozen=True):
    """What a comparison found.

    run_distance, reference_distance: root mean square distance of our float32 weights and vectors,
        and of the library's, from the float64 reference.
    largest_weight, reference_weight: the largest difference of a float32 weight from it, ours and
        the library's.
    blocks: which code unpacked quantised blocks for the reference, the `gguf` package's or attn's
        own; None for a checkpoint that is no GGUF file.
    """

    tokens: int
    backend: str
    layers: tuple[LayerDistance, ...]
    run_distance: float
    reference_distance: float
    largest_weight: float
    reference_weight: float
    blocks: Literal["gguf", "attn"] | None = None

    @property
    def worst(self) -> float:
        """The largest relative difference in float64."""
        return max(layer.relative for layer in self.layers)

    @property
    def ratio(self) -> float:
        """How many times larger attn's float32 error is than transformers'; 0 where attn's is 0,
        infinite where only transformers' is."""
        if self.run_distance == 0:
            return 0.0
        if self.reference_distance:
            return self.run_distance / self.reference_distance
        return float("inf")

    @property
    def is_within_limits(self) -> bool:
        """Whether the largest relative difference and the ratio of float32 distances are within
        their limits.
        """
        return self.worst <= LIMIT and self.ratio <= RATIO


def verify(
    folder: Path,
    text: str | Sequence[int],
    *,
    target: str | Sequence[int] | None = None,
    backend: str = "numpy",
    ignore: Sequence[str] = (),
) -> Verification:
    """Compare a checkpoint's run with transformers' own.

    text: the text, or token ids.
    target: an encoder-decoder's other text; None for the same text. A decoder without its encoder
        reads random states, seeded.

    Raises as `load` and `reference`; UnsupportedError without transformers.
    """
    foreign = foreign_family(text_model(open_checkpoint(folder))) is not None
    backend = "torch" if foreign else backend
    models = {
        dtype: load(folder, dtype=dtype, backend=backend, ignore=ignore)
        for dtype in ("float64", "float32")
    }
    states = None
    if any(block.cross is not None for block in models["float64"].spec.blocks):
        states = normal(0, "states", (READ, models["float64"].spec.d_model)).astype(np.float64)
        models = {dtype: model.decoder_over(states) for dtype, model in models.items()}
    model = models["float64"]
    tokens = _tokens(model, text)
    target_tokens = _target_tokens(model, text, target)
    if not foreign:  # a tokenizer of another model is told here, not by an index out of range
        model.store.embed(model.backend, tokens)
    ids = _ids(tokens)
    target_ids = None
    if target_tokens is not None:
        target_ids = _ids(target_tokens)
    exact, single = (
        [
            _with_idle_layers(side, model.spec)
            for side in reference(folder, ids, target_ids, dtype, states=states)
        ]
        for dtype in ("float64", "float32")
    )
    alone: SideName = "self" if states is None else "decoder"
    if target_tokens is None:
        names: tuple[SideName, ...] = (alone,)
    else:
        names = ("encoder", "decoder")
    layers = _layer_distances(model, tokens, target_tokens, dict(zip(names, exact, strict=True)))
    differences, weight_differences = _differences(models["float32"], tokens, target_tokens, exact)
    return Verification(
        tokens=len(tokens),
        backend=model.backend.name,
        layers=tuple(layers),
        run_distance=_root_mean_square(differences),
        reference_distance=_root_mean_square(list(_side_differences(single, exact))),
        largest_weight=_largest(weight_differences),
        reference_weight=_largest(_weight_differences(single, exact)),
        blocks=blocks_by(folder),
    )


def _layer_distances(
    model: Model,
    tokens: list[Token],
    target: list[Token] | None,
    exact: Mapping[SideName, ReferenceSide],
) -> list[LayerDistance]:
    """How far each layer of a run in float64 is from transformers', of the text and of the target.

    exact: transformers' own run of each side, in their order.
    """
    # what transformers runs of the model is float64 throughout, as the reference is
    throughout: AbstractContextManager[object] = nullcontext()
    if not model.own_layers:
        throughout = _float64_throughout(library.import_torch(), cast(Any, model).hf_model)
    layers = []
    with throughout:
        sides = _sides(model, tokens, target)
        for side, (name, reference_side) in zip(sides, exact.items(), strict=True):
            for trace, hidden in side:
                layers.append(_layer_distance(name, trace, hidden, reference_side))
    return layers


def _differences(
    model: Model,
    tokens: list[Token],
    target: list[Token] | None,
    exact: Sequence[ReferenceSide],
) -> tuple[list[Floats], list[Floats]]:
    """A run less transformers' own: all arrays that are compared, and those of weights alone."""
    differences: list[Floats] = []
    weight_differences: list[Floats] = []
    for side, reference_side in zip(_sides(model, tokens, target), exact, strict=True):
        for trace, hidden in side:
            gaps = [a - b for a, b in _with_reference(trace, hidden, reference_side)]
            differences += gaps
            # weights come first: the layer's own, then those of its cross-attention
            weights = 1
            if trace.cross is not None:
                weights = 2
            weight_differences += gaps[:weights]
    return differences, weight_differences


def _tokens(model: Model, text: str | Sequence[int]) -> list[Token]:
    """The tokens of a text, or of token ids."""
    if isinstance(text, str):
        return model.encode(text)
    return model.encode(model.tokenizer.ids_to_tokens(text))


def _target_tokens(
    model: Model, text: str | Sequence[int], target: str | Sequence[int] | None
) -> list[Token] | None:
    """What an encoder-decoder's decoder reads: the target's tokens, those of the text without a
    target, shifted right behind the start token; ids are taken as they are given. None for a model
    without a decoder."""
    if model.spec.decoder is None:
        if target is not None:
            raise UnsupportedError(
                "a {family} model takes one text",
                expected="no target text",
                family=model.spec.family,
            )
        return None
    if target is None:
        target_text = text
    else:
        target_text = target
    if isinstance(target_text, str) and model.spec.decoder.start is not None:
        tokens = model.encode(target_text)
        (start,) = model.tokenizer.ids_to_tokens([model.spec.decoder.start])
        start = replace(start, special=True, unknown=False, added=True)
        # the last token is only predicted
        return [start, *(replace(token, index=token.index + 1) for token in tokens[:-1])]
    return _tokens(model, target_text)


def _ids(tokens: Sequence[Token]) -> list[int]:
    """The tokens' ids in the vocabulary. Raises InputError for a token without one."""
    ids = [token.id for token in tokens if token.id is not None]
    if len(ids) != len(tokens):
        raise InputError("a token has no id to give to the reference")
    return ids


def _sides(
    model: Model, tokens: list[Token], target: list[Token] | None
) -> Iterator[Iterator[tuple[LayerTrace, Floats]]]:
    """For each side of a model (its encoder, then its decoder on `target`), an iterator over
    layers, as `_traces_with_vectors` gives them."""
    yield _traces_with_vectors(model, tokens)
    if target is not None:
        yield _traces_with_vectors(model.decoder(tokens), target)


def _traces_with_vectors(model: Model, tokens: list[Token]) -> Iterator[tuple[LayerTrace, Floats]]:
    """Each layer's trace with the vectors that leave it, [token, width]; the last layer's after the
    final norm, or [0, width] where transformers runs the model."""
    last = len(model.spec.blocks) - 1
    if not model.own_layers:
        for trace in model.trace(tokens, keep=("weights",)):
            yield trace, model.backend.numpy(trace.after)[: 0 if trace.layer == last else None]
        return
    for trace in model.trace(tokens, keep=("weights",), idle=True):
        yield (
            trace,
            model.backend.numpy(trace.after if trace.layer < last else model.finish(trace.after)),
        )


def _with_idle_layers(side: ReferenceSide, spec: Spec) -> ReferenceSide:
    """A reference side with an empty weight array, [0, query, key], for each layer without
    attention, which transformers leaves out."""
    attending = spec.attending()
    count = len(side.hidden[0])
    if len(attending) == len(spec.blocks):
        return side
    weights = [np.zeros((0, count, count)) for _ in spec.blocks]
    for layer, array in zip(attending, side.weights, strict=True):
        weights[layer] = array
    return replace(side, weights=tuple(weights))


def _with_reference(
    trace: LayerTrace, hidden: Floats, reference_side: ReferenceSide
) -> Iterator[tuple[Floats, Floats]]:
    """Yield pairs of a layer's numbers and the reference's: weights, cross weights, and the layer's
    output where the widths agree.
    """
    yield np.asarray(trace.stages["weights"], np.float64), reference_side.weights[trace.layer]
    if trace.cross is not None:
        yield (
            np.asarray(trace.cross.stages["weights"], np.float64),
            reference_side.cross[trace.layer],
        )
    if hidden.shape == reference_side.hidden[trace.layer + 1].shape:
        yield np.asarray(hidden, np.float64), reference_side.hidden[trace.layer + 1]


def _layer_distance(
    side: SideName, trace: LayerTrace, hidden: Floats, reference_side: ReferenceSide
) -> LayerDistance:
    """The largest differences of a layer's weights and vectors from transformers', in float64."""
    pairs = list(_with_reference(trace, hidden, reference_side))
    gaps = [np.abs(a - b) for a, b in pairs]
    relative = max(
        float(gap.max(initial=0)) / max(1.0, float(np.abs(b).max(initial=0)))
        for gap, (_, b) in zip(gaps, pairs, strict=True)
    )
    weights = tuple(float(head.max()) for head in gaps.pop(0))
    if trace.cross is not None:
        cross = tuple(float(head.max()) for head in gaps.pop(0))
    else:
        cross = ()
    return LayerDistance(
        side, trace.layer, weights, cross, float(gaps[0].max()) if gaps else None, relative
    )


def _side_differences(
    single: Sequence[ReferenceSide], exact: Sequence[ReferenceSide]
) -> Iterator[Floats]:
    """The differences between transformers' float32 and float64 results: weights, cross weights and
    vectors, by layer."""
    for a, b in zip(single, exact, strict=True):
        for first_arrays, second_arrays in (
            (a.weights, b.weights),
            (a.cross, b.cross),
            (a.hidden[1:], b.hidden[1:]),
        ):
            yield from (
                first - second for first, second in zip(first_arrays, second_arrays, strict=True)
            )


def _weight_differences(
    single: Sequence[ReferenceSide], exact: Sequence[ReferenceSide]
) -> Iterator[Floats]:
    """The differences between the weights of transformers' float32 and float64 results, by layer."""
    for a, b in zip(single, exact, strict=True):
        for first_arrays, second_arrays in ((a.weights, b.weights), (a.cross, b.cross)):
            yield from (
                first - second for first, second in zip(first_arrays, second_arrays, strict=True)
            )


def _largest(differences: Iterable[Floats]) -> float:
    """The largest absolute value of these arrays; 0 without any."""
    return max((float(np.abs(gap).max(initial=0)) for gap in differences), default=0.0)


def _root_mean_square(differences: Sequence[Floats]) -> float:
    """The root mean square of all numbers of these arrays; 0 without any."""
    count = sum(difference.size for difference in differences)
    return float(
        np.sqrt(
            sum(float(np.sum(difference * difference)) for difference in differences)
            / max(count, 1)
        )
    )
