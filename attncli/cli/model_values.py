"""Values that options have for a model and its run: the mask, the seed, given vectors, memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attncli.cli.declarations import ComputeOptions, ModelOptions
from attncli.cli.environment import Environment
from attncli.cli.option import LARGEST_SEED, parse_size
from attncli.cli.whole_number import LARGEST, parse_whole_number
from attncli.errors import LimitError, refused_value
from attncli.language import message

if TYPE_CHECKING:
    import numpy as np

    from attncli.mechanism.mask import Mask
    from attncli.models.estimate import MemoryBudget
    from attncli.models.model import Model

    NDArray = np.ndarray[Any, Any]

MASK_FILES = (".npy", ".npz", ".json", ".csv", ".tsv")


def mask(specs: Sequence[str] | None, seed: int = 0) -> Mask:
    """The intersection of the masks that `--mask` names; files hold 0 or false where a key is
    hidden.
    """
    from attncli.mechanism.mask import MatrixMask, intersection, parse_mask

    parts: list[Mask] = []
    for spec in _mask_parts(specs):
        if spec.lower().endswith(MASK_FILES):
            from attncli.inputs.tensors import read_matrix

            parts.append(MatrixMask(read_matrix(Path(spec), "mask") != 0, Path(spec).name))
        else:
            parts.append(parse_mask(spec, seed=seed))
    return intersection(*parts)


def _mask_parts(specs: Sequence[str] | None) -> list[str]:
    """The masks that `--mask` names, one by one: documents and screens write an intersection with
    " & "."""
    return [part for argument in specs or () for part in argument.split(" & ")]


def takes_own_mask_away(specs: Sequence[str] | None) -> bool:
    """Whether `none` is among the masks that `--mask` names: then a model's own does not count."""
    from attncli.mechanism.mask import Everywhere

    return any(part.strip().lower() == Everywhere.spelling.name for part in _mask_parts(specs))


def seed_of(
    options: ModelOptions, environment: Environment
) -> tuple[int, Literal["seeded", "random"]]:
    """The seed, and "seeded" or "random" for how it came about; a drawn seed is told on standard
    error.

    Raises UsageError for what is no whole number.
    """
    text = options.seed or "0"
    if text == "random":
        from attncli.arrays.numpy_backend import draw_seed

        drawn_seed = draw_seed()
        environment.note(
            message(
                "seed drawn: {drawn_seed} (repeat with --seed {drawn_seed})", drawn_seed=drawn_seed
            )
        )
        return drawn_seed, "random"
    seed = parse_whole_number(text, LARGEST_SEED)
    if seed is None:
        expected = message("0 to {largest_seed}, or 'random'", largest_seed=LARGEST_SEED)
        raise refused_value("--seed", text, expected)
    return seed, "seeded"


def embeddings(options: ModelOptions) -> NDArray | None:
    """The matrix that `--embeddings` names, None without it."""
    if options.embeddings is None:
        return None
    from attncli.inputs.tensors import read_matrix

    return read_matrix(options.embeddings, "embeddings")


def whole_numbers(text: str, option: str) -> list[int]:
    """Whole numbers from 0, apart by spaces or commas. Raises UsageError."""
    parts = text.replace(",", " ").split()
    values = [number for part in parts if (number := parse_whole_number(part)) is not None]
    if not parts or len(values) < len(parts):
        expected = message("whole numbers from 0 to {largest:,}, such as 5 3", largest=LARGEST)
        raise refused_value(option, text, expected)
    return values


def memory_limit(compute: ComputeOptions) -> MemoryBudget:
    """What the command may take of memory: `--max-memory`, or what is free."""
    from attncli.models.estimate import MemoryBudget, free_memory

    if compute.max_memory is None:
        return free_memory()
    return MemoryBudget(parse_size(compute.max_memory, "--max-memory"), "--max-memory")


def memory_left(compute: ComputeOptions, model: Model) -> int:
    """Bytes that a measurement may take beside the weights that are kept in memory."""
    return max(memory_limit(compute).bytes - model.weights_in_memory, 0)


def refuse_memory(
    needed_bytes: int, compute: ComputeOptions, hint: str, *, resident: int = 0
) -> None:
    """Raise LimitError if about so many bytes are more than `--max-memory`, or than this process
    may still take. resident: how many of them it has already.
    """
    limit = memory_limit(compute)
    if compute.max_memory is None:
        needed_bytes -= resident
    if needed_bytes > limit.bytes:
        from attncli.draw.numbers import size_words

        raise LimitError(
            "this would take about {needed_bytes} of memory, the limit is {bytes} ({source})",
            expected="less work, or a higher --max-memory",
            hint=hint,
            needed_bytes=size_words(needed_bytes),
            bytes=size_words(limit.bytes),
            source=limit.source,
        )
