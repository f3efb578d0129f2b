"""Building a model of transformers' own from a checkpoint that somebody else made.

The library is given a config without what could lead it elsewhere, and tensors that were read here: it opens no file,
runs no code and fetches nothing that the checkpoint names. What its Python does with absurd numbers is bounded by the
checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from math import prod
from typing import Any

from attncli.arrays.backend import Array, choose
from attncli.errors import AttnError, InputError, LimitError, UnsupportedError, first_sentence
from attncli.inputs.checkpoint import Checkpoint
from attncli.models import transformers_library as library
from attncli.models.bind import FLOATS
from attncli.models.config import MOST_LAYERS
from attncli.models.families import MODEL_TYPES
from attncli.models.machine_limits import free_memory

LEADS_ELSEWHERE = re.compile(
    r"auto_map|transformers_weights|_?(attn|experts)_implementation.*|quantization_config|.*kernel.*_config|fusion_config"
)
"""Keys of a config that name code, files or ways to compute."""
DEPTH = re.compile(r"(.*_)?(layers?|depth|blocks)")
"""Keys that are numbers of layers."""
AS_OFTEN = 4
"""How many parameters may come of one stored tensor, and numbers of one stored number: of tied tables, of projections
kept as one."""
BESIDES = (1000, 2**20)
"""Parameters and numbers that need not be stored: of a pooler, which comes after all attention."""


def build(checkpoint: Checkpoint, family: str, *, attention: str, dtype: str) -> tuple[Any, list[str]]:
    """A model on the processor, and the names of its parameters that the checkpoint lacks, filled with anything.

    attention: the name under which transformers knows what computes it. Raises UnsupportedError for a family that
    transformers does not know or cannot build from this config, InputError for a config of more than the checkpoint
    holds or for tensors that are damaged, LimitError for a model larger than the free memory.
    """
    transformers, torch = library.import_transformers(), import_module("torch")
    with library_errors(family, str(checkpoint.folder)):
        if family not in transformers.CONFIG_MAPPING:
            raise UnsupportedError(_unknown_family(family), where=str(checkpoint.folder), expected=_expected())
        config = transformers.CONFIG_MAPPING[family].from_dict(_harmless(checkpoint.config, str(checkpoint.folder)))
        if type(config) not in transformers.MODEL_MAPPING:
            raise UnsupportedError(_unknown_family(family), where=str(checkpoint.folder), expected=_expected())
        kind = transformers.MODEL_MAPPING[type(config)]
        kind = kind[0] if isinstance(kind, tuple) else kind
        _refuse_other_than_text(kind, family, str(checkpoint.folder))
        with checkpoint, _no_larger(torch, checkpoint):
            model, notes = kind.from_pretrained(
                None,
                config=config,
                state_dict=_tensors(checkpoint, dtype),
                attn_implementation=attention,
                experts_implementation="eager",
                dtype=getattr(torch, dtype),
                output_loading_info=True,
            )
    return model.eval(), sorted(notes["missing_keys"])


def _refuse_other_than_text(kind: Any, family: str, where: str) -> None:
    """Raise UnsupportedError for a class of models that reads something else than text, or something beside it."""
    modalities = kind.input_modalities
    reads = [modalities] if isinstance(modalities, str) else list(modalities)
    if reads != ["text"]:
        raise UnsupportedError(
            f"a {family!r} model reads {' and '.join(reads)}, not text alone", where=where, expected="a model of text"
        )


@contextmanager
def library_errors(family: str, where: str) -> Iterator[None]:
    """Whatever transformers raises within, told as an UnsupportedError."""
    try:
        yield
    except (AttnError, MemoryError):
        raise
    except Exception as error:  # its Python raises anything on a config that it did not expect
        raise UnsupportedError(
            f"transformers cannot run this {family!r} model: {first_sentence(error)}", where=where
        ) from error


def _unknown_family(family: str) -> str:
    return f"transformers knows no model of the family {family!r}"


def _expected() -> str:
    return f"a family that it knows, or one that runs natively: {', '.join(MODEL_TYPES)}"


def _harmless(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The config without the keys that lead elsewhere. Raises InputError for more layers than any model has."""
    harmless: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, int) and value > MOST_LAYERS and DEPTH.fullmatch(key):
            raise InputError(f"config.json sets {key} to {value:,}", where=where, expected=f"at most {MOST_LAYERS:,}")
        if not LEADS_ELSEWHERE.fullmatch(key):
            harmless[key] = _harmless(value, where) if isinstance(value, dict) else value
    return harmless


def _tensors(checkpoint: Checkpoint, dtype: str) -> dict[str, Array]:
    """Every tensor as torch has it. Wide types are read as the model will hold them, others as they are stored."""
    keeper = choose("torch", device="cpu", dtype=dtype)
    checkpoint.ahead(list(checkpoint.names()))
    wide_dtype = dtype if dtype in ("float32", "float64") else None
    return {
        name: keeper.keep(checkpoint.read(name, wide_dtype if info.dtype in FLOATS else None))
        for name, info in checkpoint.names().items()
    }


@contextmanager
def _no_larger(torch: Any, checkpoint: Checkpoint) -> Iterator[None]:
    """Within, no model comes to be that the checkpoint cannot fill or the memory cannot hold."""
    tensor_infos = checkpoint.names().values()
    most = AS_OFTEN * len(tensor_infos) + BESIDES[0]
    most_numbers = AS_OFTEN * sum(prod(info.shape) for info in tensor_infos) + BESIDES[1]
    free = free_memory()
    registered_names: set[tuple[int, str]] = set()
    numbers = size = 0

    def parameter(module: Any, name: str, tensor: Any) -> None:
        nonlocal numbers
        if tensor is None or (id(module), name) in registered_names:  # filling a parameter registers it again
            return
        numbers += tensor.numel()
        if len(registered_names) >= most or numbers > most_numbers:
            raise InputError(
                f"config.json describes a model of more than {len(registered_names):,} tensors and {numbers:,} numbers",
                where=str(checkpoint.folder),
                expected=f"what its weights can fill: {len(tensor_infos):,} tensors, "
                f"{sum(prod(info.shape) for info in tensor_infos):,} numbers",
            )
        buffer(module, name, tensor)

    def buffer(module: Any, name: str, tensor: Any) -> None:
        nonlocal size
        if tensor is None or (id(module), name) in registered_names:
            return
        registered_names.add((id(module), name))
        size += tensor.numel() * tensor.element_size()
        if size > free.bytes:
            raise LimitError(
                f"the model that config.json describes takes more than {size:,} bytes of memory",
                where=str(checkpoint.folder),
                expected=f"at most {free.bytes:,} ({free.source})",
            )

    modules = torch.nn.modules.module
    handles = (
        modules.register_module_parameter_registration_hook(parameter),
        modules.register_module_buffer_registration_hook(buffer),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
