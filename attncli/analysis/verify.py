"""`attn.verify/1`: how far a checkpoint's run is from transformers' own, layer by layer."""

from __future__ import annotations

from attncli import __version__
from attncli.analysis.documents.verify import Float32Distance, Float64Distance, LayerDifference, VerifyDocument
from attncli.inputs.hub import ModelLocation
from attncli.models.verify import LIMIT, RATIO, Verification


def verify_document(location: ModelLocation, text: str, result: Verification) -> VerifyDocument:
    """The document. weights and cross: largest difference by head; see `models.verify` for what is compared."""
    return VerifyDocument(
        version=__version__,
        name=location.name,
        folder=str(location.folder),
        text=text,
        tokens=result.tokens,
        backend=result.backend,
        layers=[
            LayerDifference(
                side=layer.side,
                layer=layer.layer,
                weights=list(layer.weights),
                cross=list(layer.cross),
                hidden=layer.hidden,
                relative=layer.relative,
            )
            for layer in result.layers
        ],
        float64=Float64Distance(worst=result.worst, limit=LIMIT),
        float32=Float32Distance(
            ours=result.run_distance, theirs=result.reference_distance, ratio=result.ratio, limit=RATIO
        ),
        passed=result.is_within_limits,
    )
