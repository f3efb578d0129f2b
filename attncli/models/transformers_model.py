"""A model of transformers' own: the library, building it from a checkpoint, and what stands in
place of its attention.

The library is given a config without what could lead it elsewhere, and tensors that were read here:
it opens no file, runs no code and fetches nothing that the checkpoint names. What its Python does
with absurd numbers is bounded by the checkpoint. A function registered with the library's attention
interface takes the queries, keys, values, mask and scale that the model made, and hands back what
it is answered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from math import prod
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct

from attncli.arrays.backend import ITEM, Array, choose, torch_is_installed
from attncli.errors import AttnError, InputError, LimitError, UnsupportedError, first_sentence
from attncli.extras import install_command
from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.files import read_regular
from attncli.inputs.token import Token, token_types
from attncli.language import Message, listing, message
from attncli.mechanism.spec import Latent, Norm
from attncli.models.config import MOST_LAYERS
from attncli.models.estimate import MemoryBudget, free_memory
from attncli.models.families import MODEL_TYPES
from attncli.models.family import FLOATS

if TYPE_CHECKING:
    from attncli.arrays.torch_backend import Tensor

LEADS_ELSEWHERE = re.compile(
    r"auto_map|transformers_weights|_?(attn|experts)_implementation.*|quantization_config|.*kernel.*_config|fusion_config"
)
"""Keys of a config that name code, files or ways to compute."""
DEPTH_KEY = re.compile(r"(.*_)?(layers?|depth|blocks)")
"""Keys that are numbers of layers."""
PARAMETERS_PER_TENSOR = 4
"""How many parameters may come of one stored tensor, and numbers of one stored number: of tied
tables, of projections kept as one."""
BESIDES = (1000, 2**20)
"""Parameters and numbers that need not be stored: of a pooler, which comes after all attention."""


def build(
    checkpoint: Checkpoint, family: str, *, attention: str, dtype: str
) -> tuple[Any, list[str]]:
    """A transformers model on the CPU with the checkpoint's weights, and the names of parameters
    that the checkpoint lacks, which hold arbitrary numbers.

    attention: the name under which the function that computes attention is registered with
        transformers.
    dtype: what the model computes in, such as "float32".

    Raises UnsupportedError for a family that transformers does not know or cannot build from this
    config, InputError for a config of more than the checkpoint holds or for tensors that are
    damaged, LimitError for a model larger than the free memory.
    """
    torch = import_torch()
    model_class, config = library_model(checkpoint, family)
    settings = {
        "config": config,
        "attn_implementation": attention,
        "experts_implementation": "eager",  # the plain way, which every device can compute
        "dtype": getattr(torch, dtype),
    }
    with library_errors(family, str(checkpoint.folder)), checkpoint:
        tensors = _torch_tensors(checkpoint, dtype)
        fill_model = partial(_filled_model, torch, model_class, checkpoint, settings)
        model, missing = fill_model(tensors)
        prefix = f"{model_class.base_model_prefix}."
        if missing and any(name.startswith(prefix) for name in tensors):
            # the library renames "….norm." in layers, and by mistake "model.norm.", too, which is
            # then missing; names without the prefix it leaves as they are
            del model  # not two models in memory at once
            model, missing = fill_model(
                {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
            )
    return model.eval(), missing


def _filled_model(
    torch: Any,
    model_class: Any,
    checkpoint: Checkpoint,
    settings: Mapping[str, Any],
    tensors: dict[str, Array],
) -> tuple[Any, list[str]]:
    """Build a transformers model of this class from these tensors; returns it and the names of the
    parameters that no tensor fills.

    settings: further arguments of `from_pretrained`.
    """
    with _bounded_model(torch, checkpoint):
        # None in place of a folder: the tensors are handed over
        model, notes = model_class.from_pretrained(
            None, state_dict=tensors, output_loading_info=True, **settings
        )
    return model, sorted(notes["missing_keys"])


def held_bytes(checkpoint: Checkpoint, dtype: str) -> int:
    """How many bytes the weights of a model that transformers runs take in memory, all at once, by
    the headers of its files.

    dtype: what it computes in, which all floats are brought to; other numbers stay as stored.
    """
    return sum(
        prod(info.shape) * ITEM[dtype] if "float" in info.dtype else info.bytes
        for info in checkpoint.names().values()
    )


def refuse_held(checkpoint: Checkpoint, family: str, dtype: str, limit: MemoryBudget) -> None:
    """Raise LimitError for a model that transformers runs whose weights take more than `limit`;
    reads none of them and imports nothing large."""
    needed = held_bytes(checkpoint, dtype)
    if needed > limit.bytes:
        raise LimitError(
            "transformers holds all weights of a {family} model at once: {needed:,} bytes in"
            " {dtype}, the limit is {allowed:,} ({source})",
            where=str(checkpoint.folder),
            expected="a smaller model, a narrower --dtype, or a higher --max-memory",
            hint=message("attn cost --model and attn models show read no weights"),
            family=repr(family),
            needed=needed,
            dtype=dtype,
            allowed=limit.bytes,
            source=limit.source,
        )


def library_model(checkpoint: Checkpoint, family: str) -> tuple[Any, Any]:
    """The class and the config object that transformers has for a checkpoint's config; nothing is
    built yet.

    Raises UnsupportedError for a family that transformers does not know, cannot read this config
    of, or that reads more than text, InputError for an absurd number of layers.
    """
    transformers = import_transformers()
    where = str(checkpoint.folder)
    with library_errors(family, where):
        configs = transformers.CONFIG_MAPPING
        models = transformers.MODEL_MAPPING
        if family not in configs or configs[family] not in models:
            raise UnsupportedError(
                "transformers knows no model of the family {family}",
                where=where,
                expected=message(
                    "a family that it knows, or one that runs natively: {model_types}",
                    model_types=listing(MODEL_TYPES),
                ),
                family=repr(family),
            )
        config = configs[family].from_dict(_harmless_keys(checkpoint.config, where))
        model_class = models[configs[family]]
        if isinstance(model_class, tuple):  # Funnel has a second class, without a decoder
            model_class = model_class[0]

        reads = _modalities(model_class)
        if reads != ["text"]:
            what = message(
                "a {family} model reads {reads}, not text alone",
                family=repr(family),
                reads=listing(reads, " and "),
            )
            raise UnsupportedError(what, where=where, expected="a model of text")
    return model_class, config


OTHER_INPUTS = ("pixel_", "input_features", "input_values", "image_", "video_")
"""How the arguments of transformers' models begin that are no text."""


def _modalities(model_class: Any) -> list[str]:
    """The kinds of input that a class of transformers' reads, such as "text" and "image".

    The class's own attribute says so. A text model that inherits the attribute of a model of text
    and images is judged by the arguments of its `forward` instead.
    """
    stated = model_class.input_modalities
    if isinstance(stated, str):
        reads = [stated]
    else:
        reads = list(stated)
    if "input_modalities" in vars(model_class):  # its own, not inherited
        return reads
    names = list(signature(model_class.forward).parameters)
    if "input_ids" in names and not any(name.startswith(OTHER_INPUTS) for name in names):
        return ["text"]
    return reads


@contextmanager
def library_errors(family: str, where: str) -> Iterator[None]:
    """Context manager: any exception of transformers' becomes an UnsupportedError; attn's own
    errors and MemoryError pass."""
    try:
        yield
    except (AttnError, MemoryError):
        raise
    except Exception as error:  # it may raise any exception on a config that it does not expect
        what = message(
            "transformers cannot run this {family} model: {error}",
            family=repr(family),
            error=first_sentence(error),
        )
        raise UnsupportedError(what, where=where) from error


def _harmless_keys(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The config without keys that name other code, files or ways to compute. Raises InputError for
    an absurd number of layers."""
    harmless: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, int) and value > MOST_LAYERS and DEPTH_KEY.fullmatch(key):
            what = message("config.json sets {key} to {value:,}", key=key, value=value)
            raise InputError(
                what,
                where=where,
                expected=message("at most {most_layers:,}", most_layers=MOST_LAYERS),
            )
        if not LEADS_ELSEWHERE.fullmatch(key):
            harmless[key] = _harmless_keys(value, where) if isinstance(value, dict) else value
    return harmless


def _torch_tensors(checkpoint: Checkpoint, dtype: str) -> dict[str, Array]:
    """Every tensor of the checkpoint as a torch tensor, by name. For a model in float32 or float64
    floats are read in that type; else tensors keep the type in which they are stored, and
    transformers converts them.
    """
    backend = choose("torch", device="cpu", dtype=dtype)
    tensor_infos = checkpoint.names()
    checkpoint.ahead(list(tensor_infos))  # a thread reads the next ones meanwhile
    float_dtype = dtype if dtype in ("float32", "float64") else None  # None: as stored
    tensors = {}
    for name, info in tensor_infos.items():
        numbers = checkpoint.read(name, float_dtype if info.dtype in FLOATS else None)
        tensors[name] = backend.array_as_is(numbers)
    return tensors


@contextmanager
def _bounded_model(torch: Any, checkpoint: Checkpoint) -> Iterator[None]:
    """Context manager: raise where a model that is built has more parameters than the checkpoint
    can fill or more bytes than memory is free."""
    shapes = [info.shape for info in checkpoint.names().values()]
    stored_numbers = sum(map(prod, shapes))
    # tied tables come of one tensor, and some parameters, as of a pooler, of none
    tensors_besides, numbers_besides = BESIDES
    most_tensors = PARAMETERS_PER_TENSOR * len(shapes) + tensors_besides
    most_numbers = PARAMETERS_PER_TENSOR * stored_numbers + numbers_besides
    free = free_memory()
    registered_names: set[tuple[int, str]] = set()  # by module and name, of all tensors so far
    numbers = 0  # of all parameters so far
    size = 0  # bytes of all tensors so far

    def count_parameter(module: Any, name: str, tensor: Any) -> None:
        """Called when a parameter is registered: count it and its numbers. Raises InputError for
        more than the weights can fill.
        """
        nonlocal numbers
        # filling a parameter registers it again; None is a parameter that the module does without
        if tensor is None or (id(module), name) in registered_names:
            return
        numbers += tensor.numel()
        if len(registered_names) >= most_tensors or numbers > most_numbers:
            raise InputError(
                "config.json describes a model of more than {registered_names:,} tensors and"
                " {numbers:,} numbers",
                where=str(checkpoint.folder),
                expected=(
                    "what its weights can fill: {tensor_infos:,} tensors, {tensor_infos_2:,}"
                    " numbers"
                ),
                registered_names=len(registered_names),
                numbers=numbers,
                tensor_infos=len(shapes),
                tensor_infos_2=stored_numbers,
            )
        count_bytes(module, name, tensor)

    def count_bytes(module: Any, name: str, tensor: Any) -> None:
        """Called when a buffer is registered, and for each parameter: count its bytes. Raises
        LimitError beyond what memory is free.
        """
        nonlocal size
        if tensor is None or (id(module), name) in registered_names:
            return
        registered_names.add((id(module), name))
        size += tensor.numel() * tensor.element_size()
        if size > free.bytes:
            what = message(
                "the model that config.json describes takes more than {size:,} bytes of memory",
                size=size,
            )
            expected = message("at most {bytes:,} ({source})", bytes=free.bytes, source=free.source)
            raise LimitError(what, where=str(checkpoint.folder), expected=expected)

    modules = torch.nn.modules.module
    on_parameter = modules.register_module_parameter_registration_hook(count_parameter)
    on_buffer = modules.register_module_buffer_registration_hook(count_bytes)
    with on_parameter, on_buffer:  # each hook is removed at the end
        yield


# The layers of a model of transformers' own while it runs: what enters and leaves each, and what
# its attention adds.
#
# A layer is a member of the outermost list of modules that holds a module which attends; the
# members that attend to nothing (recurrences, convolutions, feed-forward parts) count as layers,
# too. Layers are numbered as they run.


class Passage:
    """The record of one layer while transformers runs it: vectors in and out, and what its
    attention was given and gave.

    entering, leaving: [token, width].

    streams: how many vectors a token has between layers; of several, both are the mean.
    rotating: whether it was handed the angles of a rotary embedding.
    out: what the output projection made of its attention's heads, by call, None where no projection
        was noticed.
    attention_inputs: what each attention was given, [token, width].
    awaited_count: how many numbers the input of the output projection will have, by which it is
        recognised; None while none is awaited.
    maps: the linear maps that ran in its attentions, by call: those before the heads attend, and
        the output projection, None where none was noticed.
    maps_so_far: the linear maps that ran since the last attention.
    """

    def __init__(
        self, module: Any, entering: Array | None, *, streams: int, rotating: bool
    ) -> None:
        """The record of a layer that begins.

        module: the layer. entering: its vectors, [token, width]. streams: vectors of each token.
        rotating: whether it gets the angles of a rotary embedding.
        """
        self.module = module
        self.entering = entering
        self.streams = streams
        self.rotating = rotating
        # filled while the layer runs; out, inputs and maps get an entry for each of its attentions
        self.leaving: Array | None = None
        self.out: list[Array | None] = []
        self.attention_inputs: list[Array | None] = []
        self.awaited_count: int | None = None
        self.maps: list[tuple[list[Any], Any]] = []
        self.maps_so_far: list[Any] = []


class Passages:
    """The records of all layers of one run by transformers, in order, and the modules that
    attended.

    family: the model's, for errors.
    token_count: tokens of the text.
    memory_count: vectors of the encoder that a decoder attends to, 0 without.
    attending: the modules that called attention, as keys.
    attention_input: vectors that entered the attention module that ran last, [token, width].
    """

    def __init__(self, family: str, token_count: int, memory_count: int = 0) -> None:
        self.family = family
        self.token_count = token_count
        self.memory_count = memory_count
        self.passages: list[Passage] = []
        self.attending: dict[Any, None] = {}  # a set that keeps its order
        self.attention_input: Array | None = None
        self._depth = 0  # how many modules, one in the other, are running

    def enter(self, module: Any, entering: Array | None, *, streams: int, rotating: bool) -> None:
        """Record that a layer begins, or a module of a list nested in it, which gets no record of
        its own.
        """
        if self._depth == 0:
            self.passages.append(Passage(module, entering, streams=streams, rotating=rotating))
        self._depth += 1

    def leave(self, leaving: Array | None) -> None:
        """Record that the layer, or the nested module, that began last has ended.

        leaving: what it returned.
        """
        self._depth -= 1
        if self._depth == 0:
            self.passages[-1].leaving = leaving

    def check_attention(
        self, query: Array, key: Array, value: Array, mask: Array | None, sinks: Array | None
    ) -> None:
        """Raise UnsupportedError where what a layer hands to attention has another shape than one
        query, key and value for each token and head.

        Args:
            query: Expected [1, head, token, dim].
            key: Expected [1, kv, token, dim], of a decoder's look at its encoder [1, kv, memory,
                dim]; the number of heads is a multiple of kv.
            value: Expected [1, kv, as many as keys, v_dim].
            mask: Floats that broadcast to [1, head, token, at least as many as keys]; None for none.
            sinks: One for each head; None for none.
        """
        queries = message("queries")
        keys = message("keys")
        values = message("values")

        # a batch of one, no empty axis, one query for each token
        for name, tensor in ((queries, query), (keys, key), (values, value)):
            if tensor.ndim != 4 or tensor.shape[0] != 1 or 0 in tensor.shape:
                self.refuse(name, tensor, "[1, heads, tokens, width]")
        heads = query.shape[1]
        kv_heads = key.shape[1]
        if query.shape[2] != self.token_count:
            self.refuse(queries, query, f"[1, heads, {self.token_count}, width]")

        # a decoder layer's second call is cross-attention, with keys of the encoder's vectors
        is_cross = self.current is not None and len(self.current.out) > 0
        if is_cross and self.memory_count:
            key_count = self.memory_count
        else:
            key_count = self.token_count
        if key.shape[2] != key_count:
            self.refuse(keys, key, f"[1, heads, {key_count}, width]")
        if heads % kv_heads or key.shape[3] != query.shape[3]:
            self.refuse(keys, key, f"[1, a divisor of {heads}, tokens, {query.shape[3]}]")
        if value.shape[1:3] != key.shape[1:3]:
            self.refuse(values, value, f"[1, {kv_heads}, {key.shape[2]}, width]")
        if sinks is not None and tuple(sinks.shape) != (heads,):
            self.refuse(message("sinks"), sinks, f"[{heads}]")
        if mask is not None and not _covers(mask, heads, query.shape[2], key.shape[2]):
            self.refuse(
                message("a mask"), mask, f"[1, 1 or {heads}, {query.shape[2]}, {key.shape[2]}]"
            )

    def refuse(self, name: Message, tensor: Array, expected: str) -> NoReturn:
        """Raise UnsupportedError for a tensor of an unexpected shape.

        name: what it is, such as "keys". expected: the shape, in words.
        """
        what = message(
            "layer {layer} of this {family} model hands attention {name} of shape {shape}",
            layer=len(self.passages) - 1,
            family=repr(self.family),
            name=name,
            shape=list(tensor.shape),
        )
        # a model that pools or compresses keys has fewer of them than tokens (a message is equal to
        # its English text)
        if name == "keys" and tensor.ndim == 4 and tensor.shape[2] != self.token_count:
            one_key = message(
                "{expected}: one key for each of the {count} tokens, none that stands for several",
                expected=expected,
                count=self.token_count,
            )
            raise UnsupportedError(what, expected=one_key)
        raise UnsupportedError(what, expected=expected)

    def check_vectors(self, layers: Iterable[int]) -> None:
        """Raise UnsupportedError where what enters or leaves one of these layers is not one vector
        for each token."""
        for layer in layers:
            passage = self.passages[layer]
            for vectors in (passage.entering, passage.leaving):
                if vectors is not None and len(vectors) != self.token_count:
                    raise UnsupportedError(
                        "between layers this {family} model has {count} vectors where the text has"
                        " {tokens} tokens (layer {layer})",
                        expected="one vector for each token",
                        family=repr(self.family),
                        count=len(vectors),
                        tokens=self.token_count,
                        layer=layer,
                    )

    @property
    def current(self) -> Passage | None:
        """The record of the layer that is running; None outside all layers."""
        if self._depth:
            return self.passages[-1]
        return None

    def note_attention(self, numbers: int, module: Any) -> None:
        """Record that the current layer's attention returned mixed values, `numbers` numbers in all;
        the next linear map with that many numbers as input is its output projection.

        module: the attention's, whose linear maps so far are those of queries, keys and values.
        """
        self.attending[module] = None
        if self.current is not None:
            self.current.out.append(None)
            self.current.attention_inputs.append(self.attention_input)
            self.current.awaited_count = numbers
            inside = set(module.modules())
            inner_maps = [
                linear_map for linear_map in self.current.maps_so_far if linear_map in inside
            ]
            # the output projection, None until it is noticed, stands beside the maps before it
            self.current.maps.append((inner_maps, None))
            self.current.maps_so_far = []

    def note_projection(self, linear_map: Any, input_count: int, output: Array) -> None:
        """Called after every linear map: where its input has exactly as many numbers as the
        attention returned, record it as the attention's output projection.

        A map whose output has more than one vector a token is the first of two steps (a projection
        by groups): then the next map whose input has as many numbers as this output is the second.
        input_count: numbers of the map's input.
        """
        passage = self.current
        if passage is None:
            return
        passage.maps_so_far.append(linear_map)
        if passage.awaited_count != input_count:
            return
        if prod(output.shape[:-1]) == self.token_count:
            passage.out[-1] = output.reshape((-1, output.shape[-1]))
            inner_maps, _ = passage.maps[-1]
            passage.maps[-1] = (inner_maps, linear_map)
            passage.awaited_count = None
        else:
            passage.awaited_count = prod(output.shape)


def _covers(mask: Any, heads: int, queries: int, keys: int) -> bool:
    """Whether a mask holds floats for each pair of query and key of a text, [1, 1 or head, query,
    at least as many as keys]."""
    return (
        mask.is_floating_point()
        and mask.ndim == 4
        and mask.shape[0] == 1
        and mask.shape[1] in (1, heads)
        and mask.shape[2] in (1, queries)
        and mask.shape[3] >= keys
    )


def list_members(hf_model: Any, beside: Sequence[Any] | None = None) -> tuple[Any, ...]:
    """Every module that is an item of a ModuleList, and so may be a layer.

    beside: only of lists that hold one of these modules.
    """
    torch: Any = import_module("torch")
    lists = [module for module in hf_model.modules() if isinstance(module, torch.nn.ModuleList)]
    if beside is not None:
        lists = [modules for modules in lists if any(module in beside for module in modules)]
    return tuple(dict.fromkeys(module for modules in lists for module in modules))


def rope_base(config: Any, layer: int) -> float:
    """The rotary base θ that transformers uses in a layer; 10000 where its config has none."""
    rope_parameters = getattr(config, "rope_parameters", None) or {}
    kinds = getattr(config, "layer_types", None) or ()
    if layer < len(kinds) and isinstance(rope_parameters.get(kinds[layer]), dict):
        rope_parameters = rope_parameters[kinds[layer]]
    base = rope_parameters.get("rope_theta")
    if isinstance(base, (int, float)):
        return float(base)
    return 10000.0


def latent_of(config: Any, head_dim: int) -> Latent | None:
    """How a model's latent attention (MLA) projects keys and values from narrow vectors, by the
    config keys of DeepSeek-V2 and its relatives; None for a model without.

    head_dim: the width of a head's query.
    """
    # `type … is int` below, as True is no width
    narrow_width = getattr(config, "kv_lora_rank", None)
    rotary_width = getattr(config, "qk_rope_head_dim", None)
    if type(narrow_width) is not int or type(rotary_width) is not int:
        return None
    if not 0 < rotary_width < head_dim:
        return None
    query_width = getattr(config, "q_lora_rank", None)  # None: queries come from the input at once
    eps = float(getattr(config, "rms_norm_eps", 1e-6))  # DeepSeek-V2's own default
    return Latent(
        query=query_width if type(query_width) is int else None,
        keys=narrow_width,
        norm=Norm("rms", eps),
        # the rotated entries of keys are those that are not projected from the narrow vector
        straight=rotary_width,
    )


LATENT_ROLES = {
    "q_a": "q_down",
    "q_b": "q",
    "kv_a": "kv_down",
    "kv_a_proj_with_mqa": "kv_down",
    "kv_b": "kv",
}
"""The matrices of latent attention by how DeepSeek-V2 and its relatives call them."""
FUSED_NAMES = ("att", "attn", "pack", "in")
"""What one matrix for queries, keys and values is called, where its name does not list them."""
PROJECTION_AFFIXES = re.compile(
    r"^(?:w|c|to|fc|lin|linear)_|^w(?=[a-z]+$)|_?(?:proj|projection|lin|linear|layer|fc)$"
)
"""What stands around the name of a projection."""


def projection_roles(name: str) -> tuple[str, ...]:
    """Which parts of an attention a linear map computes, judged by its name: some of "q", "k" and
    "v", or one of the steps of latent attention, "q_down", "kv_down" and "kv"; nothing where the
    name does not tell.
    """
    name = name.lower()
    # twice, as what stood around one affix may be another: "wq_proj" becomes "wq", then "q"
    core = PROJECTION_AFFIXES.sub("", PROJECTION_AFFIXES.sub("", name))
    for spelling in (name, core):
        if spelling in LATENT_ROLES:
            return (LATENT_ROLES[spelling],)
    if core in FUSED_NAMES or core == "qkv":
        return ("q", "k", "v")
    # "query_key_value" becomes "qkv"
    letters = core.replace("query", "q").replace("key", "k").replace("value", "v").replace("_", "")
    if letters and set(letters) <= set("qkv"):
        return tuple(letters)
    return ()


def mixer_name(hf_model: Any, passage: Passage) -> str:
    """What a layer without attention does, as words for people: the class name of its mixing part,
    such as "gated delta net"."""
    model = type(hf_model).__name__.removesuffix("Model").removesuffix("Text")
    part_names = [type(part).__name__ for part in passage.module.children()]
    part_names = [name for name in part_names if "Norm" not in name]
    mixing = [name for name in part_names if re.search("Mixer|Mamba|Delta|Conv|Recurrent", name)]
    # the first that mixes tokens by its name, else the first part, else the layer itself
    class_name = [*mixing, *part_names, type(passage.module).__name__][0]
    if class_name == f"{model}Mixer":  # "mixer" alone would say nothing
        short_name = class_name
    else:
        short_name = class_name.removeprefix(model)
    # a blank before each capital behind a small letter: GatedDeltaNet is "gated delta net"
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", short_name).lower()


@contextmanager
def note_passages(
    layers: Sequence[Any], attending: Sequence[Any], passages: Passages
) -> Iterator[Passages]:
    """Context manager: torch hooks record in `passages` what enters and leaves each of these layers,
    what enters the modules in `attending`, and each linear map."""
    torch: Any = import_module("torch")

    def note_entering(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """Called before a layer runs: record its input vectors, how many there are for each token,
        and whether it gets the angles of a rotary embedding."""
        rotating = kwargs.get("position_embeddings") is not None
        # the layer's input is its first positional argument or `hidden_states`; the other keyword
        # arguments may be float tensors of another meaning, and are looked through only then
        entering, streams = _token_vectors(
            torch, (*args, kwargs.get("hidden_states")), kwargs.values()
        )
        passages.enter(module, entering, streams=streams, rotating=rotating)

    def note_attention_input(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """Called before an attention module runs: record its input vectors, which are its first
        positional argument or `hidden_states`, else any other keyword argument."""
        entering, _ = _token_vectors(torch, (*args, kwargs.get("hidden_states")), kwargs.values())
        passages.attention_input = entering

    def note_leaving(module: Any, args: Any, output: Any) -> None:
        """Called after a layer has run: record its output vectors."""
        values = output if isinstance(output, (tuple, list)) else (output,)
        leaving, _ = _token_vectors(torch, values)
        passages.leave(leaving)

    def note_linear(module: Any, args: Any, output: Any) -> None:
        """Called after any module has run: record a linear map, that is, a module whose weight is a
        matrix, except embedding tables."""
        weight = getattr(module, "weight", None)
        has_matrix = weight is not None and torch.is_tensor(weight) and weight.ndim == 2
        is_linear = has_matrix and not isinstance(module, torch.nn.Embedding)
        if is_linear and args and torch.is_tensor(args[0]) and torch.is_tensor(output):
            passages.note_projection(module, args[0].numel(), output)

    with ExitStack() as hooks:
        hooks.enter_context(torch.nn.modules.module.register_module_forward_hook(note_linear))
        for module in attending:
            hooks.enter_context(
                module.register_forward_pre_hook(note_attention_input, with_kwargs=True)
            )
        for layer in layers:
            hooks.enter_context(layer.register_forward_pre_hook(note_entering, with_kwargs=True))
            hooks.enter_context(layer.register_forward_hook(note_leaving))
        yield passages


def _token_vectors(
    torch: Any, first: Iterable[Any], then: Iterable[Any] = ()
) -> tuple[Array | None, int]:
    """The first float tensor among a layer's arguments or results as token vectors, [token, width],
    and how many vectors each token has; (None, 1) where there is none.

    The tensor is [token, width], or has a batch axis of length 1 before. A model with several
    vectors for each token has [batch, token, stream, width] or [stream, batch, token, width]; then
    their mean is taken.

    first: the values to look through first.
    then: looked through where `first` holds none, for one vector per token only: what else has four
        axes may be a mask.
    """
    # with each group of values, the most axes of a tensor that counts
    for values, most_axes in ((first, 4), (then, 3)):
        for value in values:
            if not torch.is_tensor(value) or not value.is_floating_point():
                continue
            if not 2 <= value.ndim <= most_axes:
                continue
            if value.ndim == 2:
                return value, 1
            if value.ndim == 3:
                return value[0], 1
            if value.shape[0] == 1:  # [batch, token, stream, width]
                return value[0].mean(1), value.shape[2]
            return value[:, 0].mean(0), value.shape[0]  # [stream, batch, token, width]
    return None, 1


# transformers, the library, in a version that what is built on it was tested with.

OLDEST_VERSION = (5, 23)
"""The oldest version; pyproject.toml asks for the same."""


def import_torch() -> Any:
    """The torch module, with which transformers computes. Raises UnsupportedError where it is not
    installed."""
    if not torch_is_installed():
        raise UnsupportedError("torch is not installed", hint=install_command("torch"))
    return import_module("torch")


def import_transformers() -> Any:
    """The transformers module, with its messages switched off. Raises UnsupportedError where it is
    missing or too old."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        version_text = version("transformers")
    except PackageNotFoundError as error:
        raise UnsupportedError(
            "transformers is not installed", hint=install_command("transformers")
        ) from error
    # (5, 23) of "5.23.0" and of "5.23rc1" is compared
    if tuple(map(int, re.findall("[0-9]+", version_text)[:2])) < OLDEST_VERSION:
        least = ".".join(map(str, OLDEST_VERSION))
        what = message("transformers {version_text} is installed", version_text=version_text)
        expected = message("{least} or newer", least=least)
        raise UnsupportedError(what, expected=expected, hint=install_command("transformers"))
    library = import_module("transformers")
    library.logging.set_verbosity_error()
    library.logging.disable_progress_bar()
    return library


def knows_family(family: str) -> bool:
    """Whether the installed transformers' own lists name this `model_type`; False where it is not
    installed, True where it has no lists to look at.

    Reads their text and imports nothing, which would take seconds.
    """
    library_spec = find_spec("transformers")
    if library_spec is None or library_spec.origin is None:
        return False
    lists = sorted((Path(library_spec.origin).parent / "models" / "auto").glob("*.py"))
    needle = f'"{family}"'.encode(errors="replace")
    what = message("a file")
    return not lists or any(needle in read_regular(path, what=what) for path in lists)


ENGINE = "attn_stages"

KNOWN_TENSORS = ("s_aux", "position_bias", "position_ids", "cache_position", "indices")
"""The tensors beside queries, keys, values and mask that are used, or that change nothing in
attention itself.
"""


class Call(Struct, frozen=True):
    """What the model hands to one attention: q [head, query, dim], k and v [kv, key, dim].

    visibility: booleans that broadcast to [head, query, key], None where all is visible.
    bias: what is added to the scores, floats that broadcast likewise, None where nothing is.
    scale: what multiplies q·k.
    softcap: the bound of the scores; None for none.
    sinks: a logit for each head, [head], that takes part in the softmax; None for none.
    layer: the number of the layer that calls.
    nth: of its calls, from 0.
    rotating: whether angles were handed along.
    """

    q: Array
    k: Array
    v: Array
    visibility: Array | None
    bias: Array | None
    scale: float
    softcap: float | None
    sinks: Array | None
    layer: int
    nth: int
    rotating: bool


Answer = Callable[[Call], Array]
"""What stands for attention: a call to the mixed values [head, query, v_dim]."""

Watch = Callable[[Call, Array, Array | None], None]
"""What is told of each call that the library answers itself: the call, its mixed values [head,
query, v_dim], and its weights [head, query, key] where it gives them."""


def register_engine() -> None:
    """Register attn's attention function with transformers under the name `ENGINE`, with masks as
    transformers' own eager attention gets them."""
    transformers = import_transformers()
    transformers.AttentionInterface.register(ENGINE, _answered_attention)
    masks: Any = import_module("transformers.masking_utils")
    masks.AttentionMaskInterface.register(ENGINE, masks.eager_mask)


class HostedSide(Struct, frozen=True, eq=False):
    """One side of a model that transformers runs, encoder, decoder or whole model, with what a run
    of it needs.

    hf_model: transformers' whole model.
    family: its `model_type`, for errors.
    device: torch's name of the device that the model is on.
    layers: the modules that are its layers.
    attending: those that attend.
    memory: what a decoder looks back at, [token, width]; None for an encoder or a decoder alone.
    """

    hf_model: Any
    family: str
    device: str
    layers: Sequence[Any]
    attending: Sequence[Any] = ()
    memory: Array | None = None


def forward(side: HostedSide, tokens: Sequence[Token], answer: Answer) -> tuple[Passages, Array]:
    """Run an encoder, a decoder or a whole model of transformers' with `answer` called in place of
    attention; returns the layers' records and the last vectors, [token, width].

    Raises InputError for a token outside the embedding, UnsupportedError for whatever the library
    raises.
    """
    return _run_side(side, tokens, partial(_in_place_of_attention, answer))


def own_attention(side: HostedSide, tokens: Sequence[Token], watch: Watch) -> None:
    """Run an encoder, a decoder or a whole model with transformers' own eager attention; `watch` is
    called with the arguments, result and weights of each call of it. Raises as `forward`."""
    side.hf_model.set_attn_implementation("eager")
    try:
        _run_side(side, tokens, partial(_beside_attention, watch))
    finally:
        side.hf_model.set_attn_implementation(ENGINE)


def _run_side(
    side: HostedSide,
    tokens: Sequence[Token],
    attention_context: Callable[[Passages], AbstractContextManager[None]],
) -> tuple[Passages, Array]:
    """Run an encoder, a decoder or a whole model; returns the layers' records and the last vectors,
    [token, width].

    attention_context: called with the records, gives a context manager within which the model runs
        and which replaces or observes its attention.
    """
    torch: Any = import_module("torch")
    hf_model = side.hf_model
    ids = [token.id for token in tokens]  # None where a tokenizer without ids made the token
    vocabulary = hf_model.get_input_embeddings().weight.shape[0]
    if any(code is None or not 0 <= code < vocabulary for code in ids):
        raise InputError(
            "a token is outside the embedding",
            expected="a tokenizer that belongs to this checkpoint",
        )

    id_tensor = torch.tensor([ids], device=side.device)
    inputs = {"input_ids": id_tensor}
    types = type_count(hf_model)
    if types and any(token.segment for token in tokens):
        inputs["token_type_ids"] = torch.tensor([token_types(tokens, types)], device=side.device)
    _reset_dynamic_rotary(hf_model)

    memory_count = 0
    if side.memory is not None:
        memory_count = len(side.memory)
    passages = Passages(side.family, len(tokens), memory_count)
    layer_hooks = note_passages(side.layers, side.attending, passages)
    errors = library_errors(side.family, where="")
    with torch.no_grad(), errors, layer_hooks, attention_context(passages):
        if side.memory is not None:
            outputs: Any = import_module("transformers.modeling_outputs")
            # with the fields of all other encoder outputs, and those that a decoder of experts reads
            encoder_output = outputs.MoEModelOutput(last_hidden_state=side.memory[None])
            out = hf_model(
                encoder_outputs=encoder_output, decoder_input_ids=id_tensor, use_cache=False
            )
        elif hf_model.config.is_encoder_decoder:  # without memory, the encoder is the side to run
            out = hf_model.get_encoder()(**inputs)
        else:
            out = hf_model(**inputs, use_cache=False)
        return passages, out.last_hidden_state[0]


def type_count(hf_model: Any) -> int:
    """How many token types a transformers model tells apart by vectors of their own; 0 for a model
    without any.
    """
    if "token_type_ids" not in signature(hf_model.forward).parameters:
        return 0
    count = getattr(hf_model.config.get_text_config(), "type_vocab_size", None)
    if isinstance(count, int):
        return max(count, 0)
    return 0


def _reset_dynamic_rotary(hf_model: Any) -> None:
    """Set dynamic rotary embeddings (NTK) back to their first frequencies; transformers keeps those
    of the longest text so far, which would change later texts."""
    for module in hf_model.modules():
        trained_length = getattr(module, "original_max_seq_len", None)
        if trained_length is None:  # no rotary embedding
            continue
        for name, buffer in list(module.named_buffers(recurse=False)):
            if name.endswith("original_inv_freq"):
                # a type of layer and "_", where these have frequencies of their own
                prefix = name.removesuffix("original_inv_freq")
                # a copy, since some models change the frequencies in place
                setattr(module, f"{prefix}inv_freq", buffer.clone())
                # the longest text so far: a longer one makes the library compute new frequencies
                setattr(module, f"{prefix}max_seq_len_cached", trained_length)


_answering: ContextVar[tuple[Answer, Passages]] = ContextVar("answering")
"""What stands for attention in the run that goes on, and its layers."""


@contextmanager
def _in_place_of_attention(answer: Answer, passages: Passages) -> Iterator[None]:
    """Context manager: where transformers would compute attention, it calls `answer`, by way of the
    registered function `_answered_attention`."""
    token = _answering.set((answer, passages))
    try:
        yield
    finally:
        _answering.reset(token)


@contextmanager
def _beside_attention(watch: Watch, passages: Passages) -> Iterator[None]:
    """Context manager: each call of transformers' eager attention is reported to `watch`, by a
    patch of the method with which models look attention up."""
    torch: Any = import_module("torch")
    interface: Any = type(import_module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS)
    usual = interface.get_interface
    own_thread = get_ident()

    def get_interface(functions: Any, name: str, default: Callable[..., Any]) -> Callable[..., Any]:
        """The attention function that transformers would use; in this thread, one that also reports
        to `watch`.
        """
        eager = usual(functions, name, default)
        if get_ident() != own_thread:  # the patch is seen by other threads' models, too
            return eager

        def observe(module: Any, *args: Any, **extras: Any) -> Any:
            """Call transformers' attention, report its call, mixed values and weights to `watch`,
            and return its result."""
            # the mixed values, [1, token, head, v_dim], and perhaps the weights, [1, head, query, key]
            out = eager(module, *args, **extras)
            call = _call_of(passages, *args, **extras)
            shape = [1, call.q.shape[1], call.q.shape[0], call.v.shape[-1]]
            if list(out[0].shape) != shape:
                passages.refuse(message("mixed values"), out[0], str(shape))
            mixed: Tensor = out[0][0].permute(1, 0, 2)  # [head, token, v_dim]
            weights = None
            if len(out) > 1 and torch.is_tensor(out[1]) and out[1].ndim == 4:
                weights = out[1][0]
            watch(call, mixed, weights)
            passages.note_attention(mixed.numel(), module)
            return out

        return observe

    interface.get_interface = get_interface
    try:
        yield
    finally:
        interface.get_interface = usual


def _answered_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **extras: Any,
) -> tuple[Tensor, None]:
    """The attention function registered with transformers: it calls `answer` of the current run, and
    returns the mixed values, [1, token, head, v_dim], and no weights.

    module: the attention's. query, key, value: [1, head, token, dim].
    attention_mask, scaling, extras: as `_call_of` has them.
    """
    answer, passages = _answering.get()
    mixed: Tensor = answer(_call_of(passages, query, key, value, attention_mask, scaling, **extras))
    passages.note_attention(mixed.numel(), module)
    return mixed.permute(1, 0, 2)[None].contiguous(), None


def _call_of(
    passages: Passages,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    *_: Any,
    **extras: Any,
) -> Call:
    """The arguments with which transformers calls an attention function, as a Call. Raises
    UnsupportedError for a tensor argument that attn does not know.

    query, key, value: [1, head, token, dim].
    attention_mask: added to the scores, [1, head or 1, query, key]; None for none.
    scaling: of the scores; None for 1/√dim.
    _: a share of weights to drop in training.
    extras: "softcap", "s_aux" (sinks), "position_bias", "indices" (the keys that each query chose).
    """
    torch: Any = import_module("torch")
    others = [
        name
        for name, extra in extras.items()
        if torch.is_tensor(extra) and name not in KNOWN_TENSORS
    ]
    if others:
        raise UnsupportedError(
            "this model's attention makes use of {second}, which attn does not know",
            second=repr(others[0]),
        )

    passages.check_attention(query, key, value, attention_mask, extras.get("s_aux"))
    visibility = None  # all keys are visible
    bias = None  # nothing is added to scores
    if attention_mask is not None:
        # what transformers adds to scores: the lowest number there is hides a key, others are a
        # bias; a number below half of the lowest hides, too, as a bias may have been added to that
        added = attention_mask[0, :, :, : key.shape[-2]]
        visibility = added > torch.finfo(added.dtype).min / 2
        added_to_visible = added.masked_fill(~visibility, 0.0)
        bias = added_to_visible if bool(added_to_visible.any()) else None
        if bool(visibility.all()):
            visibility = None

    if extras.get("indices") is not None:  # the keys that each query chose, [batch, query, choice]
        none_chosen = torch.zeros(
            (1, query.shape[-2], key.shape[-2]), dtype=torch.bool, device=query.device
        )
        chosen = none_chosen.scatter(-1, extras["indices"][:1].long(), value=True)
        if visibility is None:
            visibility = chosen
        else:
            visibility = visibility & chosen
    if extras.get("position_bias") is not None:
        if bias is None:
            bias = extras["position_bias"][0]
        else:
            bias = bias + extras["position_bias"][0]

    if scaling is None:
        scale = query.shape[-1] ** -0.5
    else:
        scale = float(scaling)
    passage = passages.current
    return Call(
        q=query[0],
        k=key[0],
        v=value[0],
        visibility=visibility,
        bias=bias,
        scale=scale,
        softcap=extras.get("softcap"),
        sinks=extras.get("s_aux"),
        layer=len(passages.passages) - 1,
        nth=0 if passage is None else len(passage.out),
        rotating=passage is not None and passage.rotating,
    )
