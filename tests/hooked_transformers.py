"""The oracle of effects: transformers' own models in float64, with hooks.

A pre-hook on each output projection changes a head's slice of what enters it; a link is cut by setting its score to
−inf where transformers' eager attention calls softmax. Imports nothing of `attncli` but the reference that loads the
model and keeps its casts in float64.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

PROJECTION = re.compile(
    r"(?:^|\.)(?:attention\.output\.dense|(?:self_attn|encoder_attn|attn|attention)\.out_proj|self_attn\.(?:o_proj|dense)"
    r"|attn\.c_proj|(?:attention|self_attention)\.dense|(?:SelfAttention|EncDecAttention)\.o|attention\.out_lin|attn\.Wo"
    r"|attention\.attn\.o)$"
)
"""How the families call the projection that heads are written through."""
CROSS = re.compile(r"EncDecAttention|encoder_attn")


def projections(model: Any, *, side: str = "") -> dict[tuple[int, str], Any]:
    """Each layer's output projections by layer and "self" or "cross". side: "encoder" or "decoder"."""
    found: dict[tuple[int, str], Any] = {}
    for name, module in model.named_modules():
        if PROJECTION.search(name) and (not side or name.startswith(f"{side}.")):
            kind = "cross" if CROSS.search(name) else "self"
            found[sum(1 for _, other in found if other == kind), kind] = module
    return found


@contextmanager
def mixing(module: Any, change: Callable[[np.ndarray], np.ndarray], heads: int) -> Iterator[None]:
    """Within, what enters an output projection, [head, token, v_dim], is changed first."""

    def before(module: Any, args: Any) -> Any:
        (x,) = args
        apart = x[0].double().numpy().reshape(x.shape[-2], heads, -1).swapaxes(0, 1)
        back = np.ascontiguousarray(change(apart.copy()).swapaxes(0, 1))
        return (torch.from_numpy(back).reshape(x.shape).to(x.dtype),)

    handle = module.register_forward_pre_hook(before)
    try:
        yield
    finally:
        handle.remove()


class Cutting(torch.overrides.TorchFunctionMode):
    """Within, scores of these links are −inf: `links` holds (which attention, head, query, key), head None for all.

    Attentions are numbered in the order in which the model computes them, the encoder's before the decoder's.
    """

    def __init__(self, links: list[tuple[int, int | None, int, int]]) -> None:
        super().__init__()
        self.links = links
        self.calls = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(function, "__name__", "") == "softmax" and args and args[0].ndim == 4:
            scores = args[0].clone()
            for number, head, query, key in self.links:
                if number == self.calls:
                    scores[0, slice(None) if head is None else head, query, key] = -float("inf")
            self.calls += 1
            args = (scores, *args[1:])
        return function(*args, **(kwargs or {}))


def last_vectors(model: Any, ids: tuple[int, ...], target: tuple[int, ...] | None = None) -> np.ndarray:
    """What leaves the last layer, after the final norm, [token, width]; of the decoder where there is a `target`."""
    given = {"input_ids": torch.tensor([list(ids)])}
    if target is not None:
        given["decoder_input_ids"] = torch.tensor([list(target)])
    elif hasattr(model, "encoder") and hasattr(model, "decoder"):
        model = model.encoder
    narrow, seen = _narrowing(model), []
    handle = None if narrow is None else narrow.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    out = model(**given, use_cache=False)
    if handle is not None:
        handle.remove()
    return (seen[0] if seen else out.last_hidden_state)[0].double().numpy()


def _narrowing(model: Any) -> Any:
    """The projection to a narrower width that some models have after their last layer; None for none."""
    return next((module for name, module in model.named_modules() if name.endswith("project_out") and module), None)
