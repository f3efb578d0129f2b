"""The oracle of `attn why`: transformers' own model in float64 with its norms held fixed, and
hooks.

A part's share of what enters an attention is what is missing there when the part is 0 and all other
parts, and what every norm divides by, are what they were in the clean run. What the part does to a
weight is found by a forward pass with that share subtracted from the input of the head's projection
alone. Imports nothing of `attncli`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from hooked_transformers import PROJECTION

FEED = re.compile(
    r"(?:layer\.\d+\.output\.dense|\.mlp|\.fc2|DenseReluDense|\.ffn|block_sparse_moe)$"
)
"""How families call what writes their feed-forward parts."""
ASKS = re.compile(
    r"(?:self\.query|q_proj|q_lin|SelfAttention\.q|EncDecAttention\.q|attention\.attn\.q|query_proj|c_attn)$"
)
PASSES = re.compile(
    r"(?:self\.value|v_proj|v_lin|SelfAttention\.v|attention\.attn\.v|value_proj|c_attn)$"
)
ANSWERS = re.compile(
    r"(?:self\.key|k_proj|k_lin|SelfAttention\.k|EncDecAttention\.k|attention\.attn\.k|key_proj|c_attn)$"
)
"""How they call the projections to queries and to keys."""
CROSS = re.compile(r"EncDecAttention|encoder_attn|cross_attn")
WORDS = re.compile(r"(?:word_embeddings|embed_tokens|wte|shared)$")


def _modules(model: Any, pattern: re.Pattern, side: str) -> list[tuple[str, Any]]:
    return [
        (name, module)
        for name, module in model.named_modules()
        if pattern.search(name) and name.startswith(side)
    ]


def _is_norm(module: Any) -> bool:
    return "Norm" in type(module).__name__ and not list(module.children())


def _is_inner(name: str) -> bool:
    """Whether a norm is one of queries or keys."""
    return bool(re.search(r"(?:q_norm|k_norm|q_layernorm|k_layernorm|norms\.\d+)$", name))


def _deviation(module: Any, x: torch.Tensor) -> torch.Tensor:
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    rms = "RMS" in type(module).__name__ or type(module).__name__ == "T5LayerNorm"
    centred = x if rms else x - x.mean(-1, keepdim=True)
    return ((centred**2).mean(-1, keepdim=True) + eps).sqrt()


class Frozen:
    """A model and one run of it, held fixed. run: runs it. side: "encoder" or "decoder" of a model
    of two, else "".
    """

    def __init__(self, model: Any, run: Callable[[], Any], side: str = "") -> None:
        self.model, self.run, self.side = model, run, side
        self.norms = [(name, module) for name, module in model.named_modules() if _is_norm(module)]
        self.outs = _modules(model, PROJECTION, side)
        self.feeds = _modules(model, FEED, side)
        self.words = _modules(model, WORDS, "")
        self.deviations: dict[int, torch.Tensor] = {}
        self.values: dict[int, torch.Tensor] = {}
        with ExitStack() as stack:
            for _, module in self.norms:
                stack.enter_context(_hook(module.register_forward_pre_hook(self._keep_deviation)))
            for _, module in self.outs:
                stack.enter_context(_hook(module.register_forward_pre_hook(self._keep_input)))
            for _, module in self.feeds:
                stack.enter_context(_hook(module.register_forward_hook(self._keep_output)))
            self.result = run()

    def _keep_deviation(self, module: Any, args: Any) -> None:
        self.deviations[id(module)] = _deviation(module, args[0]).clone()

    def _keep_input(self, module: Any, args: Any) -> None:
        self.values[id(module)] = args[0].clone()

    def _keep_output(self, module: Any, args: Any, out: Any) -> None:
        self.values[id(module)] = (out[0] if isinstance(out, tuple) else out).clone()

    @contextmanager
    def _fixed_norms(self, inner: bool) -> Iterator[None]:
        """Norms divide by what they did; inner: those of queries and keys, else all others."""

        def fix(module: Any, args: Any, out: Any) -> Any:
            bias = getattr(module, "bias", None)
            bias = 0.0 if bias is None else bias
            return (out - bias) * _deviation(module, args[0]) / self.deviations[id(module)] + bias

        with ExitStack() as stack:
            for name, module in self.norms:
                if _is_inner(name) == inner and id(module) in self.deviations:
                    stack.enter_context(_hook(module.register_forward_hook(fix)))
            yield

    def share(
        self,
        target: Any,
        *,
        head: tuple[int, int, int] | None = None,
        feed: int | None = None,
        words: bool = False,
        instead: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """A part's share of what enters a projection. head: which output projection, which head of
        how many; feed: which feed-forward part; words: what the tokens themselves are. instead:
        what enters the output projection in another run, in place of 0; the share is then what is
        lost by it."""
        seen: list[torch.Tensor] = []

        def put_input(module: Any, args: Any) -> Any:
            value = self.values[id(module)].clone()
            if head is not None and module is self.outs[head[0]][1]:
                width = value.shape[-1] // head[2]
                columns = slice(head[1] * width, (head[1] + 1) * width)
                value[..., columns] = 0 if instead is None else instead[..., columns]
            return (value, *args[1:])

        def put_output(module: Any, args: Any, out: Any) -> Any:
            value = self.values[id(module)].clone()
            if feed is not None and module is self.feeds[feed][1]:
                value = value * 0
            return (value, *out[1:]) if isinstance(out, tuple) else value

        with ExitStack() as stack:
            stack.enter_context(self._fixed_norms(inner=False))
            for _, module in self.outs:
                stack.enter_context(_hook(module.register_forward_pre_hook(put_input)))
            for _, module in self.feeds:
                stack.enter_context(_hook(module.register_forward_hook(put_output)))
            if words:
                for _, module in self.words:
                    stack.enter_context(
                        _hook(module.register_forward_hook(lambda module, args, out: out * 0))
                    )
            handle = target.register_forward_pre_hook(
                lambda module, args: seen.append(args[0].clone())
            )
            stack.enter_context(_hook(handle))
            self.run()
        clean: list[torch.Tensor] = []
        handle = target.register_forward_pre_hook(
            lambda module, args: clean.append(args[0].clone())
        )
        self.run()
        handle.remove()
        return clean[0] - seen[0]

    def without(
        self, target: Any, share: torch.Tensor, rows: slice, tokens: list[int] | None
    ) -> Any:
        """A run with a share taken from the input of these rows of a projection, at these tokens;
        None for all.
        """
        kept = torch.zeros_like(share)
        where = slice(None) if tokens is None else tokens
        kept[..., where, :] = share[..., where, :]

        def change(module: Any, args: Any, out: Any) -> Any:
            without = type(module).forward(module, args[0] - kept)
            out = out.clone()
            out[..., rows] = without[..., rows]
            return out

        with self._fixed_norms(inner=True), _hook(target.register_forward_hook(change)):
            return self.run()

    def projection(self, pattern: re.Pattern, layer: int, cross: bool) -> Any:
        """The projection of one layer's attention."""
        return [
            m
            for name, m in _modules(self.model, pattern, self.side)
            if bool(CROSS.search(name)) == cross
        ][layer]


@contextmanager
def _hook(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()


def weights_of(result: Any, side: str, layer: int, cross: bool) -> np.ndarray:
    """A layer's weights, [head, query, key]."""
    name = "cross_attentions" if cross else f"{side}_attentions" if side else "attentions"
    every = result.get(name)
    every = result["attentions"] if every is None else every
    return every[layer][0].double().numpy()
