"""Words that configs of several families share."""

from __future__ import annotations

from attncli.mechanism.spec import Activation

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "quick_gelu": "quick_gelu",
    "relu2": "relu2",
    "tanh": "tanh",
}
"""Activation functions by the name configs give them."""
