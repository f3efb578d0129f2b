"""Rotary position embedding as configs spell it, old (`rope_theta`, `rope_scaling`) and new (`rope_parameters`)."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal

from attncli.errors import InputError, UnsupportedError
from attncli.mechanism.spec import Dynamic, Linear, Llama3, LongRope, Rope, RopeScaling, Yarn
from attncli.models.config import GLOBAL, LARGEST_NUMBER, LOCAL, SMALLEST_NUMBER, Config

TYPES = "default, linear, dynamic, llama3, yarn, longrope"


def rope(
    config: Config,
    head_dim: int,
    *,
    kind: str | None = None,
    theta: tuple[str, ...] = ("rope_theta",),
    default_theta: float = 10000.0,
    partial: tuple[str, ...] = ("partial_rotary_factor",),
    default_partial: float | None = None,
    pairing: Literal["half", "adjacent"] = "half",
    scaled: bool = True,
    original: int | None = None,
) -> Rope:
    """The rotary embedding that a config describes.

    kind: the layer type whose parameters are wanted, where layers differ; `rope_parameters` has one set per type then.
    theta, partial: how the config spells base and rotated share outside `rope_parameters`. default_partial: the share
    where it says nothing; None for a family that rotates whole heads whatever the config says.
    scaled: whether `rope_scaling` is meant for these layers. original: the `original_max_position_embeddings` that the
    config means by silence. Raises UnsupportedError for a type of scaling that is not known, and for scaling of a share
    of heads in a family that rotates whole heads.
    """
    config.optional("max_position_embeddings", "n_positions")
    outside_theta = config.number(*theta, default=default_theta)
    share = config.number(*partial, default=1.0 if default_partial is None else default_partial)
    inside = _for_all_layers(config) if kind is None else _of_kind(config, kind, scaled=scaled)
    base = inside.number("rope_theta", default=outside_theta)
    rope_type = inside.get("rope_type", "type") or "default"
    share = inside.number("partial_rotary_factor", default=share)
    if default_partial is None and share != 1:
        share = _whole(config, rope_type, share)
    dims = int(head_dim * share)
    if dims % 2 or not 0 < dims <= head_dim or base <= 1:
        raise InputError(
            f"rotary embedding of {dims} of {head_dim} entries with base {base:g}",
            where=config.where,
            expected="pairs of entries within a head, a base above 1",
        )
    scaling = (
        None
        if rope_type == "default"
        else _scaling(rope_type, inside, config, dims, original, by_kind=kind is not None)
    )
    unread = [
        key
        for key in inside.values
        if key not in inside.read_keys and key not in ("finetuned", "original_max_position_embeddings")
    ]
    if unread:
        raise UnsupportedError(
            f"the rotary embedding of type {rope_type!r} has a key {unread[0]!r}", where=inside.where, expected=TYPES
        )
    return Rope(dims, base, pairing, scaling)


def _whole(config: Config, kind: str, share: float) -> float:
    """The share of a head that is rotated in a family that knows no share: 1, with a note that the config's is idle."""
    if kind != "default":
        raise UnsupportedError(
            f"config.json scales the rotary embedding ({kind!r}) of the share {share:g} of each head",
            where=config.where,
            expected="whole heads: models of this family rotate no less",
        )
    config.note(f"config.json's partial_rotary_factor, {share:g}, plays no part: this family rotates whole heads")
    return 1.0


def _for_all_layers(config: Config) -> Config:
    """What holds for every layer. Where a config has both spellings, transformers takes the old one."""
    old, new = config.under("rope_scaling"), config.under("rope_parameters")
    parameters = old if old is not None and old.values else new
    return Config({}, config.where) if parameters is None else parameters


def _of_kind(config: Config, kind: str, *, scaled: bool) -> Config:
    """What holds for one type of layers; transformers adds the old spelling to the new one."""
    old, new = config.under("rope_scaling"), config.under("rope_parameters")
    values: dict[str, Any] = {"rope_type": "default"}
    if new is not None:
        flat = [key for key in new.values if key not in (LOCAL, GLOBAL)]
        if flat:
            raise UnsupportedError(
                f"rope_parameters has a key {flat[0]!r}", where=new.where, expected=f"{GLOBAL} and {LOCAL}"
            )
        parameters = new.under(kind)
        values.update({} if parameters is None else parameters.values)
    if old is not None and scaled:
        values.update(old.values)
    return Config(values, config.where)


def _scaling(kind: str, inside: Config, config: Config, dims: int, usual: int | None, *, by_kind: bool) -> RopeScaling:
    longest = config.whole("max_position_embeddings", "n_positions")
    original = partial(_original, inside, config, longest, usual, by_kind=by_kind)
    match kind:
        case "linear":
            return Linear(inside.number("factor"))
        case "dynamic" if dims == 2:
            raise InputError(
                "rope scaling 'dynamic' of one pair of entries", where=inside.where, expected="at least two pairs"
            )
        case "dynamic":
            return Dynamic(inside.number("factor"), longest)
        case "llama3":
            return _llama3(inside, original())
        case "yarn":
            return _yarn(config, inside, longest, original(), by_kind=by_kind)
        case "longrope" | "su":
            return _longrope(inside, longest, original(), dims)
        case _:
            raise UnsupportedError(f"the rotary embedding has the scaling {kind!r}", where=inside.where, expected=TYPES)


def _original(inside: Config, config: Config, longest: int, usual: int | None, *, by_kind: bool) -> int:
    """How many positions training had before the scaling. A number outside of what is said of the scaling counts
    first."""
    outside = None if by_kind else config.optional("original_max_position_embeddings", default=usual, least=2)
    return inside.whole("original_max_position_embeddings", default=longest, least=2) if outside is None else outside


def _llama3(inside: Config, original: int) -> Llama3:
    low, high = inside.number("low_freq_factor"), inside.number("high_freq_factor")
    if high <= low:
        raise InputError(
            f"low_freq_factor is {low:g} and high_freq_factor {high:g}",
            where=inside.where,
            expected="the high one above the low one",
        )
    return Llama3(inside.number("factor"), low, high, original)


def _yarn(config: Config, inside: Config, longest: int, original: int, *, by_kind: bool) -> Yarn:
    factor = inside.number("factor", default=longest / original)
    magnitude = inside.cap("attention_factor", None)
    all_dims, mscale = inside.cap("mscale_all_dim", None), inside.cap("mscale", None)
    if magnitude is None:
        magnitude = _log_factor(factor, 1.0)
        if all_dims is not None and mscale is not None:
            magnitude = _log_factor(factor, mscale) / _log_factor(factor, all_dims)
    return Yarn(
        factor,
        original,
        inside.number("beta_fast", default=32.0),
        inside.number("beta_slow", default=1.0),
        magnitude,
        _truncated(config, inside, by_kind=by_kind),
    )


def _truncated(config: Config, inside: Config, *, by_kind: bool) -> bool:
    """Whether the ends of the ramp are whole numbers. Transformers looks for the key beside the types of layers, not in
    what holds for one of them."""
    truncates = inside.flag("truncate", default=True)
    if by_kind and not truncates:
        config.note("config.json's truncate, False, plays no part: it stands among what holds for one type of layer")
    return truncates or by_kind


def stretched_scale(config: Config) -> float:
    """What scores are multiplied with besides, where positions are stretched and the config gives `mscale_all_dim`."""
    inside = _for_all_layers(config)
    share = inside.get("mscale_all_dim")
    if (inside.get("rope_type", "type") or "default") == "default" or not share:
        return 1.0
    return _log_factor(inside.number("factor"), inside.number("mscale_all_dim")) ** 2


def _log_factor(factor: float, share: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * share * math.log(factor) + 1.0


def _longrope(inside: Config, longest: int, original: int, dims: int) -> LongRope:
    factor = inside.number("factor", default=longest / original)
    magnitude = inside.cap("attention_factor", None)
    if magnitude is None:
        magnitude = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    lists = []
    for key in ("short_factor", "long_factor"):
        factors = inside.many(key, kind=(int, float), count=dims // 2)
        if factors is None or not all(SMALLEST_NUMBER <= item <= LARGEST_NUMBER for item in factors):
            raise InputError(
                f"rope scaling 'longrope' has no usable {key}",
                where=inside.where,
                expected=f"{dims // 2} positive numbers",
            )
        lists.append(tuple(float(item) for item in factors))
    return LongRope(lists[0], lists[1], original, magnitude)
