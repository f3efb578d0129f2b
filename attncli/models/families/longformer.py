"""Longformer: RoBERTa within windows, with global tokens that have projections of their own. Source: Beltagy et al.,
2020."""

from __future__ import annotations

from msgspec.structs import replace

from attncli.errors import InputError
from attncli.mechanism.mask import Window
from attncli.mechanism.spec import Attention, Spec
from attncli.models.config import Config, with_globals
from attncli.models.families import bert
from attncli.models.family import Family

OWN = {f"attn.global_{role[0]}": f"attention.self.{role}_global" for role in ("query", "key", "value")}

NAMES = replace(bert.NAMES.with_roles(OWN), prefixes=("longformer.",), ignored=(*bert.TASK_HEADS, "lm_head.*"))

FIRST = ("LongformerForSequenceClassification",)
"""The classes whose first token is global; the others have none unless they are told."""


def spec(config: Config) -> Spec:
    """The Spec of a Longformer."""
    config.get("sep_token_id", "onnx_export")  # of questions and of a file format
    base = bert.roberta(config)
    return replace(
        base,
        family="longformer",
        blocks=tuple(
            replace(block, attention=with_globals(within(block.attention, reach), globals_of(config, FIRST)))
            for block, reach in zip(base.blocks, reaches(config, len(base.blocks)), strict=True)
        ),
    )


def globals_of(config: Config, first: tuple[str, ...]) -> tuple[int, ...]:
    """The positions of the global tokens: the first where one of these classes wrote the file."""
    architectures = config.get("architectures")
    return (0,) if isinstance(architectures, list) and any(name in first for name in architectures) else ()


def within(attention: Attention, reach: int) -> Attention:
    """The attention of tokens that see so many on either side."""
    return replace(attention, mask=Window(reach, reach), own_global=())


def reaches(config: Config, layers: int) -> list[int]:
    """How far a token of each layer sees to either side: half of its window.

    Raises InputError for windows that are odd or not one a layer.
    """
    value = config.get("attention_window")
    windows = (
        [config.whole("attention_window", default=512, least=2)] * layers if not isinstance(value, list) else value
    )
    if len(windows) != layers or any(not isinstance(window, int) or window < 2 or window % 2 for window in windows):
        raise InputError(
            "config.json sets attention_window to {value}",
            where=config.where,
            expected="an even number from 2, or {layers} of them",
            value=repr(value),
            layers=layers,
        )
    return [window // 2 for window in windows]


FAMILIES = {"longformer": Family(spec, NAMES, fixed=bert.FIXED)}
