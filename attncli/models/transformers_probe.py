"""What a model of transformers' own does, as a short run shows it: layers, heads, scales, masks, positions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from attncli.arrays.backend import Array, Backend
from attncli.errors import UnsupportedError
from attncli.inputs.token import Token
from attncli.mechanism.attend import Rule, attend
from attncli.mechanism.mask import Causal, Everywhere, Mask
from attncli.mechanism.spec import Attention, Block, Embedding, Spec
from attncli.models.transformers_calls import Call, forward
from attncli.models.transformers_layers import Passage, beside, members
from attncli.models.transformers_position import added, encoded

PROBE = 7
"""Tokens of the short run; all the same, so that only positions differ."""


class Probed(Struct, frozen=True):
    """One side of a model as a short run showed it. gave: the vectors that it gives, [token, width]. streams: how many
    vectors a token has between layers."""

    spec: Spec
    layers: tuple[Any, ...]
    attending: tuple[Any, ...]
    gave: Array
    streams: int


def has_table(theirs: Any) -> bool:
    """Whether token ids are rows of a table of vectors, [token, width]."""
    try:
        return len(theirs.get_input_embeddings().weight.shape) == 2
    except (AttributeError, NotImplementedError):
        return False


def probed(theirs: Any, family: str, backend: Backend, where: str, memory: Array | None = None) -> Probed:
    """Run a few tokens, all the same, and describe what ran."""
    calls: list[Call] = []

    def note(call: Call) -> Array:
        calls.append(call)
        rule = Rule(scale=call.scale, softcap=call.softcap, given=call.seen, bias=call.bias, sinks=call.sinks)
        return attend(backend, call.q, call.k, call.v, rule, keep=()).mixed

    vocabulary, width = (int(size) for size in theirs.get_input_embeddings().weight.shape)
    config = theirs.config.get_text_config()
    padding = getattr(config, "pad_token_id", None)
    code = next(code for code in range(vocabulary - 1, -1, -1) if code != padding or vocabulary == 1)
    probe = [Token(index, "", code, None, None) for index in range(PROBE)]
    ran, gave = forward(theirs, (members(theirs), ()), family, probe, note, backend.device, memory)
    passages = ran.made
    if not calls:
        raise UnsupportedError(
            f"no attention of this {family!r} model goes through transformers' interface",
            where=where,
            expected="layers that attend, whose attention the library lets others compute",
        )
    by_layer = [[call for call in calls if call.layer == layer] for layer in range(len(passages))]
    modules = beside(theirs, [passage.module for passage, own in zip(passages, by_layer, strict=True) if own])
    kept = [(passage, own) for passage, own in zip(passages, by_layer, strict=True) if passage.module in modules]
    odd = [len(own) for _, own in kept if len(own) not in (0, 1 if memory is None else 2)]
    if odd:
        raise UnsupportedError(
            f"{family!r} calls transformers' attention {odd[0]} times in one layer",
            where=where,
            expected="once a layer" if memory is None else "once for the text, once for what it reads",
        )
    entered = kept[0][0].entered
    positions = None if entered is None else added(theirs, backend.numpy(entered))
    attending = next(own for _, own in kept if own)
    blocks = tuple(
        _block(own or attending, config, layer, backend, instead="" if own else _kind(theirs, passage))
        for layer, (passage, own) in enumerate(kept)
    )
    inner = width if entered is None else int(entered.shape[-1])
    embedding = Embedding(width=None if inner == width else width, positions=positions)
    return Probed(
        Spec(family, inner, vocabulary, blocks, embedding), modules, tuple(ran.attending), gave, kept[0][0].streams
    )


def _block(calls: Sequence[Call], config: Any, layer: int, backend: Backend, *, instead: str) -> Block:
    """A layer as its calls show it; one that makes none is given another's attention, and what it does instead."""
    found = [_attention(call, config, layer, backend) for call in calls]
    return Block(found[0], cross=found[1] if len(found) > 1 else None, instead=instead)


def _kind(theirs: Any, passage: Passage) -> str:
    """What a layer that attends to nothing does: its part that mixes tokens, else its first that is no norm, by the
    name of its class without the model's."""
    model = type(theirs).__name__.removesuffix("Model").removesuffix("Text")
    parts = [name for part in passage.module.children() if "Norm" not in (name := type(part).__name__)]
    mixing = [name for name in parts if re.search("Mixer|Mamba|Delta|Conv|Recurrent", name)]
    own = next(iter((*mixing, *parts)), type(passage.module).__name__)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", own if own == f"{model}Mixer" else own.removeprefix(model)).lower()


def _attention(call: Call, config: Any, layer: int, backend: Backend) -> Attention:
    bias = None if call.bias is None else backend.numpy(call.bias)
    rotating = call.rotating and call.nth == 0
    return Attention(
        heads=int(call.q.shape[0]),
        kv_heads=int(call.k.shape[0]),
        head_dim=int(call.q.shape[-1]),
        v_dim=int(call.v.shape[-1]),
        scale=call.scale,
        softcap=call.softcap,
        mask=_seen_mask(call, backend),
        position=encoded(config, layer, backend.numpy(call.q), backend.numpy(call.v), bias, rotating=rotating),
        sinks=call.sinks is not None,
    )


def _seen_mask(call: Call, backend: Backend) -> Mask:
    """Causal if no probed query sees what follows it; else nothing is claimed, and the model's own mask decides
    alone."""
    if call.seen is None:
        return Everywhere()
    seen = backend.numpy(call.seen)[0]
    return Causal() if seen.shape[0] > 1 and not any(seen[i, i + 1 :].any() for i in range(len(seen))) else Everywhere()
