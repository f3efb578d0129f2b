"""The options of `attn compare` that may be given once for all sides, or once for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from attncli.cli.options import AttentionOptions, ComputeOptions, ModelOptions, only
from attncli.cli.repeated_options import Repeated, repeat
from attncli.errors import InputError, UsageError

SideModel = Annotated[
    Repeated[ModelOptions],
    only("model", "weights", "seed", "layer", "head", "d_model", "num_heads", "d_k", "d_v", "bias", "embeddings"),
    repeat("model", "weights", "seed", "layer", "head"),
]
"""Sizes of seeded weights are the same on all sides; repeat another option to compare its values."""
SideAttention = Annotated[Repeated[AttentionOptions], repeat("mask", "scale", "softcap", "position", "attention")]
SideCompute = Annotated[Repeated[ComputeOptions], only("backend", "dtype", "max_memory"), repeat("backend", "dtype")]


@dataclass(frozen=True)
class Side:
    """One side: its text, its name, and the options as every other command has them."""

    text: str
    name: str
    model: ModelOptions
    attention: AttentionOptions
    compute: ComputeOptions


WEIGHT_FILES = (".safetensors", ".npz", ".pt", ".pth")


def split_texts_and_files(
    arguments: Sequence[str], model: Repeated[ModelOptions]
) -> tuple[list[str], Repeated[ModelOptions]]:
    """The texts among the arguments, and the options with those that are weight files or checkpoint folders.

    Raises InputError for what is written like a file but cannot be one side: it is no text that anyone means.
    """
    files = [text for text in arguments if text.endswith(WEIGHT_FILES) and is_there(text)]
    folders = [text for text in arguments if is_there(f"{text}/config.json")]
    texts = [text for text in arguments if text not in (*files, *folders)]
    for text in texts:
        if text.endswith((*WEIGHT_FILES, ".json")) and not any(map(str.isspace, text)):
            reason = "a saved run is compared with saved runs only" if is_there(text) else "there is no such file"
            raise InputError(
                reason, where=text, expected="texts, weight files, checkpoint folders, or only saved runs (.json)"
            )
    return texts, model.adding("weights", [Path(file) for file in files]).adding("model", folders)


def is_there(name: str) -> bool:
    """Whether this is a file; a text may be no possible name at all."""
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def sides(
    texts: Sequence[str],
    model: Repeated[ModelOptions],
    attention: Repeated[AttentionOptions],
    compute: Repeated[ComputeOptions],
) -> list[Side]:
    """The sides that texts and repeated options make: at least two, the first to be compared with each other one.

    Raises UsageError where there is only one, or where options are repeated unequally often.
    """
    values_by_option = {**attention.values, **model.values, **compute.values}
    repeats = {name: values for name, values in values_by_option.items() if len(values) > 1}
    counts = {f"--{name}": len(values) for name, values in repeats.items()}
    counts |= {"texts": len(texts)} if len(texts) > 1 else {}
    if not counts:
        raise UsageError(
            "there is nothing to compare with",
            expected="a second text, or an option given twice",
            hint='attn compare "…" --mask none --mask causal',
        )
    if len(set(counts.values())) > 1:
        unequal = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise UsageError(f"the sides do not match: {unequal}", expected="every option once, or as often as the others")
    compared_sides = []
    for side_index in range(next(iter(counts.values()))):
        words = [f"{name} {values[side_index]}" for name, values in repeats.items()]
        label = " · ".join(words) if words else f"text {side_index + 1}"
        text = texts[side_index] if len(texts) > 1 else texts[0]
        compared_sides.append(
            Side(
                text,
                label,
                model.side(side_index),
                _intersect_masks(attention.side(side_index)),
                compute.side(side_index),
            )
        )
    return compared_sides


def _intersect_masks(options: AttentionOptions) -> AttentionOptions:
    """The same, with the masks of `A&B` apart: a repeated `--mask` is another side here, not one mask more."""
    return replace(options, mask=[part.strip() for part in options.mask[0].split("&")]) if options.mask else options
