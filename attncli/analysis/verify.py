"""`attn.verify/1`: how far a checkpoint's run is from transformers' own, layer by layer."""

from __future__ import annotations

from typing import Any

from attncli import __version__
from attncli.inputs.hub import Resolved
from attncli.models.verify import LIMIT, RATIO, Verified


def verify_document(found: Resolved, text: str, result: Verified) -> dict[str, Any]:
    """The document. weights and cross: largest difference by head; see `models.verify` for what is compared."""
    return {
        "schema": "attn.verify/1",
        "version": __version__,
        "name": found.name,
        "folder": str(found.folder),
        "text": text,
        "tokens": result.tokens,
        "backend": result.backend,
        "layers": [
            {
                "side": layer.side,
                "layer": layer.layer,
                "weights": list(layer.weights),
                "cross": list(layer.cross),
                "hidden": layer.hidden,
                "relative": layer.relative,
            }
            for layer in result.layers
        ],
        "float64": {"worst": result.worst, "limit": LIMIT},
        "float32": {"ours": result.ours, "theirs": result.theirs, "ratio": result.ratio, "limit": RATIO},
        "passed": result.passed,
    }
