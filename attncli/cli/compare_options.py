"""The options of `attn compare` that may be given once for all sides, or once for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated

from attncli.cli import declarations as the
from attncli.cli.options import AttentionOptions, ComputeOptions, ModelOptions
from attncli.errors import InputError, UsageError


@dataclass(frozen=True)
class SideOptions:
    """What may differ between the sides: repeat an option to compare its values."""

    mask: Annotated[list[str] | None, the.MASK] = None
    scale: Annotated[list[str] | None, the.SCALE] = None
    softcap: Annotated[list[float] | None, the.SOFTCAP] = None
    position: Annotated[list[str] | None, the.POSITION] = None
    attention: Annotated[list[str] | None, the.ATTENTION_KIND] = None
    model: Annotated[list[str] | None, the.CHECKPOINT] = None
    weights: Annotated[list[Path] | None, the.WEIGHTS] = None
    seed: Annotated[list[str] | None, the.SEED] = None
    layer: Annotated[list[str] | None, the.LAYER] = None
    head: Annotated[list[str] | None, the.HEAD] = None
    backend: Annotated[list[str] | None, the.BACKEND] = None
    dtype: Annotated[list[str] | None, the.DTYPE] = None


@dataclass(frozen=True)
class ShapeOptions:
    """Sizes of seeded weights, and the limit: the same on all sides."""

    d_model: Annotated[int | None, the.D_MODEL] = None
    num_heads: Annotated[int | None, the.NUM_HEADS] = None
    d_k: Annotated[int | None, the.D_K] = None
    d_v: Annotated[int | None, the.D_V] = None
    bias: Annotated[bool | None, the.BIAS] = None
    embeddings: Annotated[Path | None, the.EMBEDDINGS] = None
    max_memory: Annotated[str | None, the.MAX_MEMORY] = None


@dataclass(frozen=True)
class Side:
    """One side: its text, its name, and the options as every other command has them."""

    text: str
    name: str
    model: ModelOptions
    attention: AttentionOptions
    compute: ComputeOptions


WEIGHT_FILES = (".safetensors", ".npz", ".pt", ".pth")


def sorted_out(arguments: Sequence[str], asked: SideOptions) -> tuple[list[str], SideOptions]:
    """The texts among the arguments, and the options with those that are weight files or checkpoint folders.

    Raises InputError for what is written like a file but cannot be one side: it is no text that anyone means.
    """
    files = [text for text in arguments if text.endswith(WEIGHT_FILES) and is_there(text)]
    folders = [text for text in arguments if is_there(f"{text}/config.json")]
    texts = [text for text in arguments if text not in (*files, *folders)]
    for text in texts:
        if text.endswith((*WEIGHT_FILES, ".json")) and not any(map(str.isspace, text)):
            told = "a saved run is compared with saved runs only" if is_there(text) else "there is no such file"
            raise InputError(
                told, where=text, expected="texts, weight files, checkpoint folders, or only saved runs (.json)"
            )
    weights = [*(asked.weights or ()), *map(Path, files)] or None
    models = [*(asked.model or ()), *folders] or None
    return texts, replace(asked, weights=weights, model=models)


def is_there(name: str) -> bool:
    """Whether this is a file; a text may be no possible name at all."""
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def sides(texts: Sequence[str], asked: SideOptions, shape: ShapeOptions) -> list[Side]:
    """The sides that texts and repeated options make: at least two, the first to be compared with each other one.

    Raises UsageError where there is only one, or where options are repeated unequally often.
    """
    given = {item.name: list(getattr(asked, item.name) or ()) for item in fields(asked)}
    counts = {f"--{name}": len(values) for name, values in given.items() if len(values) > 1}
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
    count = next(iter(counts.values()))
    found = []
    for at in range(count):
        one = {
            name: (values[at] if len(values) > 1 else values[0]) if values else None for name, values in given.items()
        }
        text = texts[at] if len(texts) > 1 else texts[0]
        told = [f"{name} {one[name]}" for name, values in given.items() if len(values) > 1]
        called = " · ".join(told) if told else f"text {at + 1}"
        found.append(Side(text, called, _model(one, shape), _attention(one), _compute(one, shape)))
    return found


def _model(one: dict[str, object], shape: ShapeOptions) -> ModelOptions:
    chosen = {name: None if one[name] is None else [str(one[name])] for name in ("layer", "head")}
    return ModelOptions(
        model=None if one["model"] is None else str(one["model"]),
        weights=None if one["weights"] is None else Path(str(one["weights"])),
        seed=None if one["seed"] is None else str(one["seed"]),
        layer=chosen["layer"],
        head=chosen["head"],
        d_model=shape.d_model,
        num_heads=shape.num_heads,
        d_k=shape.d_k,
        d_v=shape.d_v,
        bias=shape.bias,
        embeddings=shape.embeddings,
    )


def _attention(one: dict[str, object]) -> AttentionOptions:
    mask = None if one["mask"] is None else [part.strip() for part in str(one["mask"]).split("&")]
    softcap = one["softcap"]
    return AttentionOptions(
        mask=mask,
        scale=None if one["scale"] is None else str(one["scale"]),
        softcap=softcap if isinstance(softcap, float) else None,
        position=None if one["position"] is None else str(one["position"]),
        attention=None if one["attention"] is None else str(one["attention"]),
    )


def _compute(one: dict[str, object], shape: ShapeOptions) -> ComputeOptions:
    return ComputeOptions(
        backend=str(one["backend"] or "auto"), dtype=str(one["dtype"] or "float32"), max_memory=shape.max_memory
    )
