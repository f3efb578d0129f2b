"""Rotary position embedding as configs spell it, old (`rope_theta`, `rope_scaling`) and new (`rope_parameters`)."""

from __future__ import annotations

import math
from typing import Literal

from attncli.attention.spec import Dynamic, Linear, Llama3, LongRope, Rope, RopeScaling, Yarn
from attncli.errors import InputError, UnsupportedError
from attncli.models.config import LARGEST_NUMBER, SMALLEST_NUMBER, Config

TYPES = "default, linear, dynamic, llama3, yarn, longrope"


def rope(
    config: Config,
    head_dim: int,
    *,
    kind: str | None = None,
    theta: tuple[str, ...] = ("rope_theta",),
    default_theta: float = 10000.0,
    partial: tuple[str, ...] = ("partial_rotary_factor",),
    default_partial: float = 1.0,
    pairing: Literal["half", "adjacent"] = "half",
    scaled: bool = True,
) -> Rope:
    """The rotary embedding that a config describes.

    kind: the layer type whose parameters are wanted, where `rope_parameters` has one set per type.
    theta, partial: how the config spells base and rotated share outside `rope_parameters`.
    scaled: whether `rope_scaling` is meant for these layers. Raises UnsupportedError for a type of scaling that is not known.
    """
    longest = config.whole("max_position_embeddings", "n_positions", default=2048)
    outside_theta = config.number(*theta, default=default_theta)
    share = config.number(*partial, default=default_partial)
    parameters = config.under("rope_parameters")
    by_type = False
    if parameters is not None and kind is not None and kind in parameters.values:
        parameters, by_type = parameters.under(kind), True
    old = config.under("rope_scaling")
    # where a config has both, transformers takes the old spelling
    inside = old if old is not None and old.values and scaled and not by_type else parameters
    base = outside_theta if inside is None else inside.number("rope_theta", default=outside_theta)
    share = share if inside is None else inside.number("partial_rotary_factor", default=share)
    dims = int(head_dim * share)
    if dims % 2 or not 0 < dims <= head_dim or base <= 1:
        raise InputError(
            f"rotary embedding of {dims} of {head_dim} entries with base {base:g}",
            where=config.where,
            expected="pairs of entries within a head, a base above 1",
        )
    return Rope(dims, base, pairing, None if inside is None else _scaling(inside, config, longest, dims))


def _scaling(inside: Config, config: Config, longest: int, dims: int) -> RopeScaling:
    kind = inside.get("rope_type", "type") or "default"
    match kind:
        case "default":
            found: RopeScaling = None
        case "linear":
            found = Linear(inside.number("factor"))
        case "dynamic" if dims == 2:
            raise InputError("rope scaling 'dynamic' of one pair of entries", where=inside.where, expected="at least two pairs")
        case "dynamic":
            found = Dynamic(inside.number("factor"), longest)
        case "llama3":
            found = Llama3(
                inside.number("factor"),
                inside.number("low_freq_factor"),
                inside.number("high_freq_factor"),
                inside.whole("original_max_position_embeddings", default=longest),
            )
        case "yarn":
            found = _yarn(inside, longest)
        case "longrope" | "su":
            found = _longrope(inside, config, longest, dims)
        case _:
            raise UnsupportedError(f"the rotary embedding has the scaling {kind!r}", where=inside.where, expected=TYPES)
    unread = [key for key in inside.values if key not in inside.read and key not in ("finetuned", "original_max_position_embeddings")]
    if unread:
        raise UnsupportedError(f"the rotary embedding of type {kind!r} has a key {unread[0]!r}", where=inside.where, expected=TYPES)
    return found


def _yarn(inside: Config, longest: int) -> Yarn:
    original = inside.whole("original_max_position_embeddings", default=longest)
    factor = inside.number("factor", default=longest / original)
    magnitude = inside.cap("attention_factor", None)
    all_dims, some = inside.cap("mscale_all_dim", None), inside.cap("mscale", None)
    if magnitude is None:
        magnitude = _log_factor(factor, 1.0)
        if all_dims is not None and some is not None:
            magnitude = _log_factor(factor, some) / _log_factor(factor, all_dims)
    return Yarn(
        factor,
        original,
        inside.number("beta_fast", default=32.0),
        inside.number("beta_slow", default=1.0),
        magnitude,
        inside.flag("truncate", default=True),
    )


def _log_factor(factor: float, share: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * share * math.log(factor) + 1.0


def _longrope(inside: Config, config: Config, longest: int, dims: int) -> LongRope:
    original = config.get("original_max_position_embeddings") or inside.get("original_max_position_embeddings") or longest
    if not isinstance(original, int) or original < 2:
        raise InputError(f"original_max_position_embeddings is {original!r}", where=config.where, expected="a whole number from 2")
    factor = inside.number("factor", default=longest / original)
    magnitude = inside.cap("attention_factor", None)
    if magnitude is None:
        magnitude = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    lists = []
    for key in ("short_factor", "long_factor"):
        found = inside.many(key, kind=(int, float), count=dims // 2)
        if found is None or not all(SMALLEST_NUMBER <= item <= LARGEST_NUMBER for item in found):
            raise InputError(f"rope scaling 'longrope' has no usable {key}", where=inside.where, expected=f"{dims // 2} positive numbers")
        lists.append(tuple(float(item) for item in found))
    return LongRope(lists[0], lists[1], original, magnitude)
