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
    """transformers' hidden states and attention weights for these token ids: of a model of one
    stack of layers, or of encoder and decoder where there is a `target`.

    dtype: "float64" or "float32", which is transformers' own float32.
    everywhere: positions of the global tokens of a Longformer and its like; None for those that the
        class that saved it implies.
    states: an encoder's output, [token, width], over which the decoder alone runs, on `ids`.

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
    cannot load it, UnsupportedError where transformers is not installed.
    """
    torch = library.import_torch()
    transformers = library.import_transformers()
    is_float64 = dtype == "float64"
    try:
        config, tensors = _config_and_tensors(folder)
        # model classes by config; T5 and its like have one for a file with the encoder alone
        model_classes = transformers.MODEL_MAPPING
        if not both and type(config) in transformers.MODEL_FOR_TEXT_ENCODING_MAPPING:
            model_classes = transformers.MODEL_FOR_TEXT_ENCODING_MAPPING
        # None in place of a folder: the tensors are handed over
        model = model_classes[type(config)].from_pretrained(
            None,
            config=config,
            state_dict=tensors,
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
    # some classes make parameters float32 whatever is asked for, XLNet also where less is asked for
    if is_float64 or hasattr(model, "relative_positional_encoding"):
        for weight in model.parameters():
            weight.data = weight.data.to(getattr(torch, dtype))
    _count_alibi_once(torch, model.eval())  # Falcon's own attention adds it twice
    precision = _float64_throughout(torch, model) if is_float64 else nullcontext()
    with torch.no_grad(), precision:
        yield model


def run_reference(
    model: Any,
    ids: Sequence[int],
    target: Sequence[int] | None = None,
    everywhere: Sequence[int] | None = None,
) -> tuple[ReferenceSide, ...]:
    """Run a model of transformers on these token ids, and return its hidden states and attention
    weights: of a model of one stack of layers, or of encoder and decoder where there is a `target`.

    everywhere: positions of global tokens (which see every token and are seen by all), for a
        Longformer and its like; None for the model's usual ones.
    """
    torch = import_module("torch")
    inputs: dict[str, Any] = {"input_ids": torch.tensor([list(ids)])}
    if target is not None:
        inputs["decoder_input_ids"] = torch.tensor([list(target)])

    run_short_text_whole(model, len(ids))
    if gives_weights_by_distance(model):
        # Longformer and LED take a mask of global tokens, and no use_cache
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
        weights = _reference_weights(model, out, side="encoder_", everywhere=everywhere)
        return ReferenceSide(_first_entries(out.encoder_hidden_states), weights), _decoder_side(out)
    if runs_by_blocks(model):
        # BigBird lengthens the text to whole blocks: what belongs to the padding is cut off
        hidden = tuple(layer[: len(ids)] for layer in _first_entries(out.hidden_states))
        weights = tuple(
            whole_weights(model, layer, len(ids)) for layer in _first_entries(out.attentions)
        )
        return (ReferenceSide(hidden, weights),)
    weights = _reference_weights(model, out, side="", everywhere=everywhere)
    return (ReferenceSide(_first_entries(out.hidden_states), weights),)


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
    """The decoder's hidden states, attention weights and cross-attention weights, from transformers'
    output of an encoder-decoder."""
    outputs = (out.decoder_hidden_states, out.decoder_attentions, out.cross_attentions)
    return ReferenceSide(*map(_first_entries, outputs))


def _reference_weights(
    model: Any, out: Any, side: str, everywhere: Sequence[int] | None
) -> tuple[Floats, ...]:
    """The attention weights of each layer that attends, [head, query, key], from a transformers
    output.

    side: "encoder_", or "" for a model of one side.
    everywhere: positions of global tokens.
    """
    weights = _first_entries(out[f"{side}attentions"])
    kinds = getattr(model.config, "layer_types", None) or ()
    # MiniMax gives the states of linear attention among the weights
    if len(weights) == len(kinds) and "linear_attention" in kinds:
        return tuple(
            array for array, kind in zip(weights, kinds, strict=True) if kind != "linear_attention"
        )
    if not gives_weights_by_distance(model):
        return weights

    # Longformer: windows, and the rows of global tokens in arrays of their own
    global_rows: tuple[Floats | None, ...] = (None,) * len(weights)
    if everywhere:
        global_rows = _first_entries(out[f"{side}global_attentions"])
    return tuple(
        weights_by_key(windows, everywhere or (), rows)
        for windows, rows in zip(weights, global_rows, strict=True)
    )


def _config_and_tensors(folder: Path) -> tuple[Any, dict[str, Any]]:
    """transformers' config of a checkpoint, and every tensor by name, as the family's own files have
    them: a GGUF file or packed weights are converted, other files read by the safetensors library.
    """
    torch = library.import_torch()
    transformers = library.import_transformers()
    file = gguf_file(folder)
    # `packed`: quantised weights are no error here
    if file is None and is_packed(Checkpoint.describe(folder, packed=True).config):
        checkpoint = open_checkpoint(folder)
        values = checkpoint.config
        arrays = {name: checkpoint.read(name, "float32") for name in checkpoint.names()}
    elif file is None:  # nothing to convert: none of attn's code takes part
        config = transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        return config, _read_tensors(folder)
    else:
        from attncli.models.gguf import open_gguf

        stored = open_gguf(file)
        unpack = gguf_library()
        if unpack is not None:  # else attn's own code unpacks the blocks
            stored.unpack = unpack
        values, arrays = stored.for_family()
    # transformers' default ids may lie beyond the vocabulary; some classes must have one for padding
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
    """A function that unpacks the blocks of a GGUF file with llama.cpp's own `gguf` package; None
    where that is not installed: the reference is then unpacked by attn's code, and no independent
    check of it.
    """
    try:
        library_of_blocks: Any = import_module("gguf")
    except ImportError:
        return None

    def unpack(kind: BlockKind, raw: Floats) -> Floats:
        """The numbers of some blocks, float32 [number], from their bytes, [byte]."""
        number = library_of_blocks.GGMLQuantizationType[kind.name]
        # NumPy need not warn: whoever reads the tensor checks its numbers
        with np.errstate(over="ignore", invalid="ignore"):
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
    """Every tensor of a checkpoint, by name, read by the safetensors library itself, from bytes in
    memory, not a mapped file; pickled checkpoints are read by attn."""
    checkpoint = Checkpoint.open(folder)
    if isinstance(checkpoint, TorchCheckpoint):
        backend = choose("torch", device="cpu", dtype="float32")
        return {name: backend.array_as_is(checkpoint.read(name)) for name in checkpoint.names()}
    reader: Any = import_module("safetensors.torch")
    tensors: dict[str, Any] = {}
    for path in sorted({info.file for info in find_tensors(folder.resolve()).values()}):
        tensors |= reader.load(read_regular(path, what="a .safetensors file", limit=LARGEST_FILE))
    return tensors


def _first_entries(tensors: Sequence[Any]) -> tuple[Floats, ...]:
    """The first batch entry of each tensor, as NumPy arrays in float64."""
    return tuple(np.asarray(tensor[0].double().numpy()) for tensor in tensors)


def _count_alibi_once(torch: Any, model: Any) -> None:
    """Make transformers' Falcon add ALiBi to its scores once: its eager attention adds it to a mask
    that holds it already."""

    def leave_out(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Called before the attention runs: its arguments, with ALiBi zero where the mask holds it
        already, that is, where it has numbers other than 0 and the lowest one."""
        mask = kwargs.get("attention_mask")
        alibi = kwargs.get("alibi")
        if mask is not None and alibi is not None:
            is_bias = (mask != 0) & (mask > torch.finfo(mask.dtype).min / 2)
            if bool(is_bias.any()):
                kwargs = {**kwargs, "alibi": torch.zeros_like(alibi)}
        return args, kwargs

    for module in model.modules():
        if hasattr(module, "inv_norm_factor"):  # Falcon's attention alone has it
            module.register_forward_pre_hook(leave_out, with_kwargs=True)


@contextmanager
def _float64_throughout(torch: Any, model: Any) -> Iterator[None]:
    """Context manager: transformers computes in float64 even what it casts to float32, and its
    rotary angles as well."""
    single = torch.float32
    double = torch.float64
    # transformers calls these with float32 numbers, which are made float64 first
    widened_functions = {
        torch.sqrt,
        torch.log,
        torch.log1p,
        torch.cos,
        torch.sin,
        torch.Tensor.cos,
        torch.Tensor.sin,
    }

    class Widening(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        """Within this mode a call that casts a float64 tensor to float32 leaves it float64; with
        `everything`, float64 replaces float32 in every call.
        """

        def __init__(self, *, everything: bool) -> None:
            super().__init__()
            self.everything = everything

        def __torch_function__(
            self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            """Called by torch for each of its functions: call it with float64 in place of float32.

            types: part of torch's protocol, not used.
            """
            kwargs = dict(kwargs or {})
            tensors = [item for item in args if torch.is_tensor(item)]
            if self.everything or any(tensor.dtype == double for tensor in tensors):
                args = tuple(double if item is single else item for item in args)
                kwargs = {
                    name: double if value is single else value for name, value in kwargs.items()
                }
                if function is torch.Tensor.float:
                    function = torch.Tensor.double
            if function in widened_functions:
                args = (args[0].double(), *args[1:])
            if function is torch.polar:  # of a length and an angle, which must be of one type
                args = tuple(item.double() for item in args)
            return function(*args, **kwargs)

    def in_float64(compute: Callable[..., Any]) -> Callable[..., Any]:
        """The function, wrapped so that it computes in float64; of a tuple of results (frequencies
        and a factor) the first is rounded once to float32, in which the models hold it.
        """

        def compute_rounded(*args: Any, **kwargs: Any) -> Any:
            """Call `compute` in float64, and round the first of a tuple of results."""
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
    """Replace what a module of transformers has computed in float32 for positions (rotary
    frequencies, tables of sines, MiniMax's decay) by the same computed in float64 and rounded once.

    widening: the mode of `_float64_throughout`, in which torch computes in float64.
    """
    buffers = dict(module.named_buffers(recurse=False))

    # rotary frequencies: those of a new module of the same class
    if any(name.endswith("inv_freq") for name in buffers):
        with widening(everything=True):
            fresh = dict(type(module)(config=module.config).named_buffers(recurse=False))
        for name in buffers:
            setattr(module, name, fresh[name].float())

    # how fast MiniMax's linear attention fades, by head, [head, 1, 1]; the file may have it rounded.
    # The formula is the library's own, with its 1e-5 against a division by 0
    if hasattr(module, "get_slope_rate"):
        head_numbers = torch.arange(1, module.num_attention_heads + 1).double()
        slopes = 2.0 ** (-8.0 / module.num_attention_heads * head_numbers)
        share = 1 - module.layer_idx / (module.num_hidden_layers - 1 + 1e-5) + 1e-5
        module.slope_rate = (slopes * share)[:, None, None]
        tables = module.decay_factors(module.slope_rate)
        module.query_decay, module.key_decay, module.diagonal_decay = tables

    # XLNet's sinusoids of distances
    if hasattr(module, "relative_positional_encoding"):
        sinusoids = module.relative_positional_encoding

        def widened_sinusoids(*args: Any, **kwargs: Any) -> Any:
            """Called in place of the model's own function for sinusoids: the same in float64."""
            with widening(everything=True):
                return sinusoids(*args, **kwargs)

        module.relative_positional_encoding = widened_sinusoids

    # M2M-100's table of sines, which it makes again for a text that is longer
    if "weights" in buffers and hasattr(module, "make_weights"):

        def make_table(count: int, width: int, padding: int | None = None) -> None:
            """Set the module's table of sines for `count` positions, computed in float64; the row of
            the padding is zero.
            """
            half = width // 2
            frequencies = (10000.0 ** (-np.arange(half) / (half - 1))).astype(np.float32)
            angles = (np.arange(count, dtype=np.float32)[:, None] * frequencies).astype(np.float64)
            sines = np.concatenate(
                (np.sin(angles), np.cos(angles), np.zeros((count, width % 2))), axis=1
            )
            if padding is not None:
                sines[padding] = 0.0
            module.weights = torch.from_numpy(sines.astype(np.float32))

        module.make_weights = make_table
        make_table(len(buffers["weights"]), buffers["weights"].shape[1], module.padding_idx)

    # GPT-J's table, recognised by its numbers: up to 5.23 transformers keeps it in the attention of
    # each layer, since then in a module of its own
    for name, buffer in buffers.items():
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


def weights_by_key(
    by_distance: Floats, tokens: Sequence[int], global_rows: Floats | None
) -> Floats:
    """The weights [head, query, key] of a Longformer layer, from those that transformers gives by
    distance.

    by_distance: [head, query, global + window]: the columns of the global tokens first, then one for
        each distance j − i, from −reach to reach; rows of global tokens are 0.
    tokens: the positions of the global tokens, ascending.
    global_rows: [head, key, global], the rows of the global tokens; None without any.
    """
    heads, count, columns = by_distance.shape
    global_count = len(tokens)
    reach = (columns - global_count) // 2
    weights = np.zeros((heads, count, count), by_distance.dtype)
    for query in range(count):
        low = max(query - reach, 0)
        high = min(query + reach + 1, count)
        middle = global_count + reach - query  # the column of key 0, if it were within reach
        weights[:, query, low:high] = by_distance[:, query, middle + low : middle + high]
        weights[:, query, list(tokens)] = by_distance[:, query, :global_count]
    if global_rows is not None:
        weights[:, list(tokens)] = global_rows[:, :count].swapaxes(1, 2)
    return weights


def runs_by_blocks(model: Any) -> bool:
    """Whether a transformers BigBird is set to block-sparse attention, which pads a text to whole
    blocks.
    """
    return getattr(model, "attention_type", "") == "block_sparse"


def run_short_text_whole(model: Any, count: int) -> None:
    """Switch a transformers BigBird to full attention for a text of `count` tokens that is too short
    for blocks; by itself it switches too late to return that run's weights."""
    if not runs_by_blocks(model):
        return
    # transformers' own bound: of these many blocks a query sees all
    blocks = 5 + 2 * model.config.num_random_blocks
    if count <= blocks * model.config.block_size:
        model.set_attention_type("original_full")


def whole_weights(model: Any, weights: Floats, count: int) -> Floats:
    """The weights [head, query, key] of a block-sparse BigBird layer without padding.

    Outside training each random block is the first one, whose keys then stand in the softmax of
    the middle queries several times; they get the sum of these equal weights.
    weights: of the text lengthened to whole blocks, in which such a key has the weight that it was
        given once.
    count: tokens of the text.
    """
    size = model.config.block_size
    random_blocks = model.config.num_random_blocks
    last_block = (weights.shape[1] // size - 1) * size  # its first query
    result = weights.copy()
    result[:, size:last_block, :size] *= 1 + random_blocks
    return result[:, :count, :count]


LIMIT = 1e-10
"""Largest relative difference in float64."""

RATIO = 2.0
"""How many times as far from float64 as transformers' float32 the run's float32 may be."""

STATE_COUNT = 40
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
    """Compare a checkpoint's run with transformers' own, in float64 layer by layer and head by head,
    in float32 as a whole. A decoder without its encoder attends to random vectors from a seed.

    text: the text, or token ids.
    target: the text of an encoder-decoder's decoder; None for the same text.
    backend: attn's own, "numpy" or "torch". ignore: keys of config.json to leave out.

    Raises as `load` and `reference`; UnsupportedError without transformers.
    """
    foreign = foreign_family(text_model(open_checkpoint(folder))) is not None
    if foreign:  # transformers has no other
        backend = "torch"
    models = {
        dtype: load(folder, dtype=dtype, backend=backend, ignore=ignore)
        for dtype in ("float64", "float32")
    }

    # a decoder without its encoder
    states = None
    if any(block.cross is not None for block in models["float64"].spec.blocks):
        width = models["float64"].spec.d_model
        states = normal(0, "states", (STATE_COUNT, width)).astype(np.float64)
        models = {dtype: model.decoder_over(states) for dtype, model in models.items()}
    model = models["float64"]

    tokens = _tokens(model, text)
    target_tokens = _target_tokens(model, text, target)
    if not foreign:  # raises for the tokenizer of another model, where torch's index would crash
        model.store.embed(model.backend, tokens)
    ids = _ids(tokens)
    target_ids = None
    if target_tokens is not None:
        target_ids = _ids(target_tokens)

    def reference_sides(dtype: str) -> list[ReferenceSide]:
        """transformers' run in this type: encoder and decoder, or the only stack of layers."""
        stacks = reference(folder, ids, target_ids, dtype, states=states)
        return [_with_idle_layers(stack, model.spec) for stack in stacks]

    exact = reference_sides("float64")
    single = reference_sides("float32")
    names: tuple[SideName, ...]
    if target_tokens is not None:
        names = ("encoder", "decoder")
    elif states is not None:
        names = ("decoder",)
    else:
        names = ("self",)
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
    """How far each layer of a run in float64 is from transformers', in the encoder (or the only
    stack of layers), then in the decoder.

    target: the decoder's text; None for a model without one.
    exact: transformers' own run of each, in this order.
    """
    # where transformers runs the model's layers for attn, they must be float64 throughout, too
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
    """The differences of a run of `model` and transformers' run `exact`, array by array: of all that
    is compared, and again of attention weights alone.

    target: the decoder's text; None for a model without one.
    """
    differences: list[Floats] = []
    weight_differences: list[Floats] = []
    for side, reference_side in zip(_sides(model, tokens, target), exact, strict=True):
        for trace, hidden in side:
            gaps = [
                array - expected
                for array, expected in _with_reference(trace, hidden, reference_side)
            ]
            differences += gaps
            # weights come first: the layer's own, then those of its cross-attention
            weight_arrays = 1
            if trace.cross is not None:
                weight_arrays = 2
            weight_differences += gaps[:weight_arrays]
    return differences, weight_differences


def _tokens(model: Model, text: str | Sequence[int]) -> list[Token]:
    """The tokens of a text, or of a list of token ids."""
    if isinstance(text, str):
        return model.encode(text)
    return model.encode(model.tokenizer.ids_to_tokens(text))


def _target_tokens(
    model: Model, text: str | Sequence[int], target: str | Sequence[int] | None
) -> list[Token] | None:
    """The tokens that an encoder-decoder's decoder reads: those of the target, or without one of the
    text, shifted right behind the start token; token ids are taken as they are. None for a model
    without a decoder, for which a target raises UnsupportedError."""
    if model.spec.decoder is None:
        if target is not None:
            raise UnsupportedError(
                "a {family} model takes one text",
                expected="no target text",
                family=model.spec.family,
            )
        return None
    if target is None:
        target = text
    if isinstance(target, str) and model.spec.decoder.start is not None:
        tokens = model.encode(target)
        # the start token is no word of the text, but one that the model puts before it
        (start,) = model.tokenizer.ids_to_tokens([model.spec.decoder.start])
        start = replace(start, special=True, unknown=False, added=True)
        # the last token is only predicted
        return [start, *(replace(token, index=token.index + 1) for token in tokens[:-1])]
    return _tokens(model, target)


def _ids(tokens: Sequence[Token]) -> list[int]:
    """The tokens' ids in the vocabulary. Raises InputError for a token without one."""
    ids = [token.id for token in tokens if token.id is not None]
    if len(ids) != len(tokens):
        raise InputError("a token has no id to give to the reference")
    return ids


def _sides(
    model: Model, tokens: list[Token], target: list[Token] | None
) -> Iterator[Iterator[tuple[LayerTrace, Floats]]]:
    """For a model or its encoder, and then for its decoder on `target`, an iterator over the layers:
    each layer's trace and the vectors that leave it (`_traces_with_vectors`)."""
    yield _traces_with_vectors(model, tokens)
    if target is not None:
        yield _traces_with_vectors(model.decoder(tokens), target)


def _traces_with_vectors(model: Model, tokens: list[Token]) -> Iterator[tuple[LayerTrace, Floats]]:
    """Each layer's trace with the vectors that leave it, [token, width]; the last layer's after the
    final norm, or [0, width] where transformers runs the model."""
    last = len(model.spec.blocks) - 1
    if not model.own_layers:  # what transformers runs has no final norm that could be applied here
        for trace in model.trace(tokens, keep=("weights",)):
            vectors = model.backend.numpy(trace.after)
            if trace.layer == last:
                vectors = vectors[:0]
            yield trace, vectors
        return
    for trace in model.trace(tokens, keep=("weights",), idle=True):
        leaving = trace.after
        if trace.layer == last:
            leaving = model.finish(leaving)
        yield trace, model.backend.numpy(leaving)


def _with_idle_layers(side: ReferenceSide, spec: Spec) -> ReferenceSide:
    """transformers' results with an empty array of weights, [0, query, key], put in for each layer
    without attention, which transformers leaves out."""
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
    """Yield pairs of a layer's numbers and the reference's: weights and cross weights, [head, query,
    key], and the vectors that leave the layer, [token, width], where both have the same shape.

    hidden: the layer's own vectors; [0, width] where there is nothing to compare them with.
    """
    yield np.asarray(trace.stages["weights"], np.float64), reference_side.weights[trace.layer]
    if trace.cross is not None:
        yield (
            np.asarray(trace.cross.stages["weights"], np.float64),
            reference_side.cross[trace.layer],
        )
    # transformers' first hidden state is what enters layer 0
    if hidden.shape == reference_side.hidden[trace.layer + 1].shape:
        yield np.asarray(hidden, np.float64), reference_side.hidden[trace.layer + 1]


def _layer_distance(
    side: SideName, trace: LayerTrace, hidden: Floats, reference_side: ReferenceSide
) -> LayerDistance:
    """The largest differences of a layer's weights and vectors from transformers', in float64.

    hidden: the vectors that leave the layer, [token, width].
    """
    pairs = list(_with_reference(trace, hidden, reference_side))
    gaps = [np.abs(array - expected) for array, expected in pairs]
    # relative to the largest number of an array, but to 1 where all are smaller, as weights are
    relative = max(
        float(gap.max(initial=0)) / max(1.0, float(np.abs(expected).max(initial=0)))
        for gap, (_, expected) in zip(gaps, pairs, strict=True)
    )

    # in the order of the pairs: weights, cross-attention's weights, vectors
    weights = tuple(float(head.max()) for head in gaps.pop(0))
    if trace.cross is not None:
        cross = tuple(float(head.max()) for head in gaps.pop(0))
    else:
        cross = ()
    largest_hidden = float(gaps[0].max()) if gaps else None
    return LayerDistance(side, trace.layer, weights, cross, largest_hidden, relative)


def _side_differences(
    single: Sequence[ReferenceSide], exact: Sequence[ReferenceSide]
) -> Iterator[Floats]:
    """Yield the differences between transformers' float32 and float64 results, array by array: each
    layer's weights, cross-attention's weights, and vectors, but for the embeddings."""
    yield from _weight_differences(single, exact)
    for stack, exact_stack in zip(single, exact, strict=True):
        for vectors, exact_vectors in zip(stack.hidden[1:], exact_stack.hidden[1:], strict=True):
            yield vectors - exact_vectors


def _weight_differences(
    single: Sequence[ReferenceSide], exact: Sequence[ReferenceSide]
) -> Iterator[Floats]:
    """Yield the differences between the attention weights of transformers' float32 and float64
    results: each layer's, and then its cross-attention's."""
    for stack, exact_stack in zip(single, exact, strict=True):
        weights = (*stack.weights, *stack.cross)
        exact_weights = (*exact_stack.weights, *exact_stack.cross)
        for array, exact_array in zip(weights, exact_weights, strict=True):
            yield array - exact_array


def _largest(differences: Iterable[Floats]) -> float:
    """The largest absolute value of these arrays; 0 without any."""
    return max((float(np.abs(gap).max(initial=0)) for gap in differences), default=0.0)


def _root_mean_square(differences: Sequence[Floats]) -> float:
    """The root mean square of all numbers of these arrays; 0 without any."""
    count = sum(difference.size for difference in differences)
    squares = sum(float(np.sum(difference * difference)) for difference in differences)
    return float(np.sqrt(squares / max(count, 1)))
