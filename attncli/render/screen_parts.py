"""The parts of every screen, in its order, by the name of the screen: what `--show` may name, without its drawing."""

from __future__ import annotations

PARTS_OF: dict[str, tuple[str, ...]] = {
    "ablate": ("header", "tokens", "grid", "heads", "answer"),
    "compare": ("sides", "moved", "heads", "maps", "difference", "answer"),
    "cost": ("variants", "memory", "growth", "layers", "measured", "answer"),
    "cross": ("header", "tokens", "shapes", "maps", "alignment", "scores", "weights", "output", "links", "answer"),
    "difference": ("header", "heads", "answer"),
    "effects": ("header", "grid", "heads", "answer"),
    "explain": (
        "header", "flow", "tokens", "shapes", "W_Q", "W_K", "W_V", "W_O", "projections", "similarity", "scaled",
        "masked", "scores", "softmax", "output", "residual", "matrices", "answer",
    ),
    "find": ("header", "tokens", "heads", "answer"),
    "generate": ("header", "tokens", "continuation", "lookback", "heads"),
    "heads": (
        "header", "tokens", "grid", "maps", "metrics", "moved", "average", "weights", "links", "rollout", "flow",
        "similarity", "circuits", "answer",
    ),
    "logits": ("header", "tokens", "grid", "parts", "answer"),
    "mask": ("masks", "combined", "counts", "bias", "layers", "answer"),
    "patch": ("header", "tokens", "grid", "heads", "answer"),
    "run": (
        "header", "tokens", "shapes", "overview", "maps", "embedding", "positions", "input", "W_Q", "W_K", "W_V",
        "W_O", "q", "k", "v", "raw", "scaled", "capped", "biased", "masked", "concat", "sum", "norm", "scores",
        "weights", "output", "links", "average", "answer",
    ),
    "scan": ("header", "grid", "labels", "effects", "metrics", "examples", "answer"),
    "tensors": ("header", "shapes", "scores", "weights", "output", "metrics", "links", "answer"),
}  # fmt: skip
