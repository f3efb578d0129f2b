"""Attention rollout: how much of each input token reaches each position, layers multiplied.

Source: Abnar and Zuidema, Quantifying attention flow in transformers, 2020. It takes attention for
transport and half of each layer for the residual connection; shown beside the rollout of uniform attention,
which is what the masks and the depth alone would give.
"""

from __future__ import annotations

import numpy as np

from attncli.analysis.visible_keys import Bools, Floats


class AttentionRollout:
    """Multiplies layers as they come, first layer first. result, uniform: [query, key], rows sum to 1."""

    def __init__(self, count: int) -> None:
        self.result: Floats = np.eye(count)
        self.uniform: Floats = np.eye(count)

    def add(self, weights: Floats, visible: Bools | None = None) -> None:
        """Add a layer's weights [head, query, key]: heads averaged, half of it the residual, rows scaled to sum to 1.

        visible: booleans that broadcast to them, for the uniform baseline; None where nothing is hidden. A row that
        sees nothing passes itself on.
        """
        mean = np.asarray(weights, np.float64).mean(0)
        self.result = residual(mean) @ self.result
        visibility = (
            np.ones_like(mean, bool)
            if visible is None
            else np.broadcast_to(visible, (*np.shape(visible)[:-2], *mean.shape))
        )
        visible_keys: Floats = visibility.reshape((-1, *mean.shape)).astype(np.float64)
        even = (visible_keys / np.maximum(visible_keys.sum(-1, keepdims=True), 1)).mean(0)
        self.uniform = residual(even) @ self.uniform


def residual(mean: Floats) -> Floats:
    """½A + ½I with rows scaled to sum to 1, [query, key]."""
    half = mean / 2 + np.eye(len(mean)) / 2
    scaled: Floats = half / half.sum(-1, keepdims=True)
    return scaled
