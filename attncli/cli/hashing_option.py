"""`--attention`: dense, or Reformer's hash attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from attncli.cli.option import whole
from attncli.cli.options import AttentionOptions
from attncli.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from attncli.mechanism.reformer import Reformer
    from attncli.models.model import Model

FORM = "dense, reformer, reformer:BUCKETS, reformer:BUCKETS,ROUNDS or reformer:BUCKETS,ROUNDS,CHUNK"
LARGEST = 10**6
HASHING_NOTE = (
    "hash attention: keys are the normalised queries (W_K is not used); tokens are compared within neighbouring "
    "chunks, sorted by bucket"
)


def parse(kind: str, seed: int) -> Reformer | None:
    """What `--attention` names; None for dense. seed: of the hash directions. Raises UsageError."""
    from attncli.mechanism.reformer import Reformer

    if kind == "dense":
        return None
    name, colon, rest = kind.partition(":")
    numbers = rest.split(",") if colon else []
    if name != "reformer" or len(numbers) > 3 or not all(whole(text, LARGEST) for text in numbers):
        raise UsageError(f"--attention is {kind!r}", expected=FORM)
    settings = Reformer(seed=seed)
    for field, text in zip(("buckets", "rounds", "chunk"), numbers, strict=False):
        settings = replace(settings, **{field: int(text)})
    if settings.buckets % 2:
        raise UsageError(
            f"hash attention needs an even number of buckets, not {settings.buckets}",
            expected=f"such as reformer:{settings.buckets + 1}",
        )
    return settings


def with_hash_attention(model: Model, kind: str, options: AttentionOptions) -> Model:
    """The model under the attention that `--attention` names.

    Raises UnsupportedError for a checkpoint, whose keys were trained as a projection of their own, and for what hash
    attention does not have: another scale, soft caps, ALiBi, several query heads for one key head.
    """
    rule = parse(kind, model.identity.seed or 0)
    if rule is None:
        return model
    first = model.spec.blocks[0].attention
    if model.identity.source == "checkpoint":
        raise UnsupportedError(
            "hash attention has one projection for queries and keys, and this checkpoint was trained with two",
            expected="--attention dense",
        )
    for what, present in (
        ("soft cap", options.softcap is not None),
        ("ALiBi", options.position == "alibi"),
        ("--scale", options.scale is not None),
    ):
        if present:
            raise UnsupportedError(f"hash attention has no {what}", expected="--attention dense, or without it")
    if first.kv_heads != first.heads:
        raise UnsupportedError(
            f"{first.heads} query heads share {first.kv_heads} key heads",
            expected="as many of either for hash attention",
        )
    blocks = tuple(
        replace(block, attention=replace(block.attention, hashing=rule, scale=1.0)) for block in model.spec.blocks
    )
    return replace(model, spec=replace(model.spec, blocks=blocks), warnings=(*model.warnings, HASHING_NOTE))
