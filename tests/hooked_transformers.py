"""The oracle of effects: transformers' own models in float64, with hooks.

A pre-hook on each output projection changes a head's slice of what enters it; a link is cut by
setting its score to −inf where transformers' eager attention calls softmax. Imports nothing of
`attncli` but the reference that loads the model and keeps its casts in float64.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

PROJECTION = re.compile(
    r"(?:^|\.)(?:attention\.output\.dense|(?:self_attn|encoder_attn|attn|attention)\.out_proj|(?:self_attn|mixer)\.(?:o_proj|dense)"
    r"|attn\.c_proj|(?:attention|self_attention)\.dense|(?:SelfAttention|EncDecAttention)\.o|attention\.out_lin|attn\.Wo"
    r"|attention\.attn\.o|cross_attn\.o_proj|encoder\.layers\.\d+\.self_attn\.output|rel_attn)$"
)
"""How the families call the projection that heads are written through; XLNet's is no module of its
own, so there it is the attention, of which `rel_attn_core` gives what enters the projection."""
WITHOUT_SOFTMAX = ("slope_rate", "forget_gate")
"""What modules have that are called as attentions are, and are recurrences."""
CROSS = re.compile(r"EncDecAttention|encoder_attn|cross_attn")


@dataclass(frozen=True)
class Projection:
    """One use of an output projection. number: which attention of the whole run it belongs to;
    call: which use of the module, since some models use one layer's weights in all layers."""

    module: Any
    call: int
    number: int


def projections(
    model: Any, run: Callable[[], Any], *, side: str = ""
) -> dict[tuple[int, str], Projection]:
    """Each layer's output projections by layer and "self" or "cross", in the order in which `run`
    uses them.

    side: "encoder" or "decoder" of a model of two.
    """
    used: list[tuple[str, Any]] = []
    modules = dict(model.named_modules())
    named = [
        (name, module)
        for name, module in modules.items()
        if PROJECTION.search(name)
        and not any(hasattr(modules[name.rpartition(".")[0]], part) for part in WITHOUT_SOFTMAX)
    ]
    handles = [
        module.register_forward_pre_hook(
            lambda module, args, name=name: used.append((name, module))
        )
        for name, module in named
    ]
    run()
    for handle in handles:
        handle.remove()
    found: dict[tuple[int, str], Projection] = {}
    for number, (name, module) in enumerate(used):
        if not side or name.startswith(f"{side}."):
            kind = "cross" if CROSS.search(name) else "self"
            layer = sum(1 for _, other in found if other == kind)
            call = sum(1 for _, other in used[:number] if other is module)
            found[layer, kind] = Projection(module, call, number)
    return found


@contextmanager
def mixing(
    at: Projection, change: Callable[[np.ndarray], np.ndarray], heads: int
) -> Iterator[None]:
    """Within, what enters an output projection, [head, token, v_dim], is changed first."""
    calls = count()
    core = getattr(at.module, "rel_attn_core", None)

    def after(*args: Any, **how: Any) -> Any:
        x = core(*args, **how)  # [token, text, head, v_dim]
        if next(calls) != at.call:
            return x
        back = np.ascontiguousarray(
            change(x[:, 0].double().numpy().swapaxes(0, 1).copy()).swapaxes(0, 1)
        )
        return torch.from_numpy(back)[:, None].to(x.dtype)

    def before(module: Any, args: Any) -> Any:
        if next(calls) != at.call:
            return None
        (x,) = args
        flat = x.reshape(-1, x.shape[-1])  # some models have no batch axis here
        apart = flat.double().numpy().reshape(len(flat), heads, -1).swapaxes(0, 1)
        back = np.ascontiguousarray(change(apart.copy()).swapaxes(0, 1))
        return (torch.from_numpy(back).reshape(x.shape).to(x.dtype),)

    if core is not None:
        with patch.object(at.module, "rel_attn_core", after):
            yield
        return
    handle = at.module.register_forward_pre_hook(before)
    try:
        yield
    finally:
        handle.remove()


class Cutting(torch.overrides.TorchFunctionMode):
    """Within, scores of these links are −inf: `links` holds (which attention, head, query, key),
    head None for all.

    Attentions are numbered in the order in which the model computes them, the encoder's before the
    decoder's.
    """

    def __init__(self, links: list[tuple[int, int | None, int, int]]) -> None:
        super().__init__()
        self.links = links
        self.calls = 0

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(function, "__name__", "") == "softmax" and args and args[0].ndim == 4:
            scores = args[0].clone()
            for number, head, query, key in self.links:
                if number == self.calls:
                    scores[0, slice(None) if head is None else head, query, key] = -float("inf")
            self.calls += 1
            args = (scores, *args[1:])
        return function(*args, **(kwargs or {}))


class Holding(torch.overrides.TorchFunctionMode):
    """Within, the softmax of attention scores is recorded, or, with `weights`, replaced by those of
    the run that recorded them."""

    def __init__(self, weights: list[torch.Tensor] | None = None) -> None:
        super().__init__()
        self.weights = weights
        self.seen: list[torch.Tensor] = []

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if getattr(function, "__name__", "") == "softmax" and args and args[0].ndim == 4:
            self.seen.append(result)
            if self.weights is not None:
                return self.weights[len(self.seen) - 1]
        return result


class Weighed(torch.overrides.TorchFunctionMode):
    """Within, the logarithm of a factor is added to the scores of some keys in some heads, where
    transformers' eager attention calls softmax."""

    def __init__(self, keys: tuple[int, ...], heads: list[int], factor: float) -> None:
        super().__init__()
        self.keys = keys
        self.heads, self.added = heads, float(np.log(factor))

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(function, "__name__", "") == "softmax" and args and args[0].ndim == 4:
            scores = args[0].clone()
            for head in self.heads:
                scores[:, head, :, list(self.keys)] += self.added
            args = (scores, *args[1:])
        return function(*args, **(kwargs or {}))


def last_vectors(
    model: Any,
    ids: tuple[int, ...],
    target: tuple[int, ...] | None = None,
    states: np.ndarray | None = None,
) -> np.ndarray:
    """What leaves the last layer, after the final norm, [token, width]; of the decoder where there
    is a `target`, or where it reads `states` of an encoder, [token, width], with ids of its own."""
    given: dict[str, Any] = {"input_ids": torch.tensor([list(ids)])}
    if states is not None:
        given = {
            "decoder_input_ids": given["input_ids"],
            "encoder_outputs": (torch.from_numpy(states)[None],),
        }
    elif target is not None:
        given["decoder_input_ids"] = torch.tensor([list(target)])
    elif hasattr(model, "encoder") and hasattr(model, "decoder"):
        model = model.encoder
    if model.config.model_type == "longformer":  # its first token sees all, and is seen by all
        given["global_attention_mask"] = torch.eye(1, len(ids), dtype=torch.long)
    narrow, seen = _narrowing(model), []
    handle = (
        None
        if narrow is None
        else narrow.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    )
    out = model(**given, use_cache=False)
    if handle is not None:
        handle.remove()
    return (seen[0] if seen else out.last_hidden_state)[0].double().numpy()


def _narrowing(model: Any) -> Any:
    """The projection to a narrower width that some models have after their last layer; None for
    none.
    """
    return next(
        (
            module
            for name, module in model.named_modules()
            if name.endswith("project_out") and module
        ),
        None,
    )
