"""Documents about models themselves: which there are, what one does, what a text would take, how exactly it runs."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, convert

from attncli import __version__
from attncli.errors import AttnError
from attncli.features.models.document import (
    AliasRow,
    AttentionRow,
    CachedModel,
    EmbeddingPart,
    EstimatePart,
    ExpertsPart,
    Float32Distance,
    Float64Distance,
    HeadPart,
    LatentPart,
    LayerDifference,
    LayerGroup,
    MlpPart,
    ModelDocument,
    ModelsDocument,
    ModelSide,
    NormPart,
    PositionPart,
    QkNormPart,
    TemperaturePart,
    VerifyDocument,
)
from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.file_opening import read_object
from attncli.inputs.hub import TOKENIZER, HubId, ModelLocation, all_cached, find_snapshot
from attncli.mechanism.mask_spec import describe, spec_text
from attncli.mechanism.spec import Attention, Block, Spec
from attncli.models.aliases import ALIASES, Alias, package_folder
from attncli.models.estimate import RULE, CostEstimate
from attncli.models.families import MODEL_TYPES
from attncli.models.verify import LIMIT, RATIO, Verification


def models_document(cache: Path) -> ModelsDocument:
    """`attn.models/1`: the families that run natively, the aliases and whether each is here, the models in the hub's
    cache.

    Looks at names, sizes and config.json only, and never uses the network.
    """
    cached_models: list[CachedModel] = []
    for snapshot in all_cached(cache):
        family = _family(snapshot.folder)
        cached_models.append(
            CachedModel(
                name=snapshot.name,
                revision=snapshot.commit,
                folder=str(snapshot.folder),
                family=family,
                native=family in MODEL_TYPES,
                bytes=_size(snapshot.folder),
                missing=list(snapshot.missing),
            )
        )
    aliases = [
        AliasRow(name=name, hub=alias.hub, family=alias.family, here=_here(alias, cache))
        for name, alias in ALIASES.items()
    ]
    return ModelsDocument(
        version=__version__, families=list(MODEL_TYPES), aliases=aliases, cache=str(cache), cached=cached_models
    )


def _here(alias: Alias, cache: Path) -> Literal["package", "cache"] | None:
    """Where an alias would be taken from without the network: "package" or "cache"; None where it would be fetched."""
    if alias.package and package_folder(alias.package):
        return "package"
    snapshot = find_snapshot(cache, HubId(alias.hub))
    return "cache" if snapshot is not None and set(snapshot.missing) <= {TOKENIZER} else None


def model_document(
    location: ModelLocation,
    checkpoint: Checkpoint,
    spec: Spec,
    *,
    estimate: CostEstimate | None = None,
    warnings: Iterable[str] = (),
) -> ModelDocument:
    """`attn.model/1`: where a checkpoint is and what it does; layers that do the same stand together.

    estimate: what a text would take, None where none was asked about. The weights are not read.
    """
    bytes_by_dtype: dict[str, int] = {}
    for info in checkpoint.names().values():
        bytes_by_dtype[info.dtype] = bytes_by_dtype.get(info.dtype, 0) + info.bytes
    return ModelDocument(
        version=__version__,
        name=location.name,
        source=location.source,
        folder=str(location.folder),
        revision=location.revision,
        family=spec.family,
        tokenizer=checkpoint.tokenizer_path is not None,
        fetched=location.tensors is None,
        tensors=len(checkpoint.names()),
        parameters=sum(prod(info.shape) for info in checkpoint.names().values() if "float" in info.dtype),
        bytes=bytes_by_dtype,
        spec=side_of(spec),
        decoder=None if spec.decoder is None else side_of(spec.decoder),
        estimate=None if estimate is None else estimate_part(estimate),
        warnings=list(warnings),
    )


def estimate_part(cost: CostEstimate) -> EstimatePart:
    """An estimate as documents hold it."""
    return EstimatePart(
        tokens=cost.tokens,
        layers=cost.layers,
        bytes_read=cost.bytes_read,
        multiply_adds=cost.multiply_adds,
        memory=dict(cost.memory),
        peak_memory=cost.peak,
        seconds=round(cost.seconds, 3),
        rule=RULE,
    )


def groups(blocks: Iterable[Block]) -> list[tuple[list[int], Block]]:
    """Layers that do the same, by number, in the order in which each kind first occurs."""
    layer_groups: list[tuple[list[int], Block]] = []
    for layer, block in enumerate(blocks):
        for layers, group_block in layer_groups:
            if group_block == block:
                layers.append(layer)
                break
        else:
            layer_groups.append(([layer], block))
    return layer_groups


def side_of(spec: Spec) -> ModelSide:
    """What one side of a model does, as documents hold it."""
    return ModelSide(
        d_model=spec.d_model,
        vocabulary=spec.vocabulary,
        layers=len(spec.blocks),
        max_positions=spec.max_positions,
        embedding=convert(_plain(spec.embedding), EmbeddingPart),
        groups=[_group(layers, block) for layers, block in groups(spec.blocks)],
        final_norm=None if spec.final_norm is None else convert(_plain(spec.final_norm), NormPart),
        head=None if spec.head is None else convert(_plain(spec.head), HeadPart),
    )


def _group(layers: list[int], block: Block) -> LayerGroup:
    return LayerGroup(
        layers=layers,
        attention=_attention(block.attention),
        cross=None if block.cross is None else _attention(block.cross),
        mlp=_part(block.mlp, MlpPart | ExpertsPart),
        norms={place: convert(_plain(norm), NormPart) for place, norm in block.norms.items()},
        parallel=block.parallel,
        residual=block.residual,
        branch_scale=block.branch_scale,
        convolution=None if block.convolution is None else block.convolution.kernel,
        instead=block.instead,
    )


def _attention(attention: Attention) -> AttentionRow:
    return AttentionRow(
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        d_k=attention.head_dim,
        d_v=attention.v_dim,
        scale=attention.scale,
        softcap=attention.softcap,
        sinks=attention.sinks,
        mask=spec_text(attention.mask),
        mask_says=describe(attention.mask),
        position=_part(attention.position, PositionPart),
        qk_norm=None if attention.qk_norm is None else convert(_plain(attention.qk_norm), QkNormPart),
        clip=attention.clip,
        latent=_part(attention.latent, LatentPart | None),
        temperature=_part(attention.temperature, TemperaturePart | None),
        global_tokens=None if attention.own_global is None else list(attention.own_global),
        source_width=attention.source_width,
    )


def _part(value: object, kinds: Any) -> Any:
    """A part of a Spec that is of one of several kinds, as documents hold it; None where there is none."""
    return None if value is None else convert(_plain(value), kinds)


def _plain(value: Any) -> Any:
    """A part of a Spec as its kind and its fields, by name."""
    if isinstance(value, Struct):
        members = {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
        return members if "kind" in members else {"kind": type(value).__name__.lower(), **members}
    return list(value) if isinstance(value, tuple) else value


def _family(folder: Path) -> str | None:
    try:
        model_type = read_object(folder / "config.json", what="a model's config.json").get("model_type")
    except AttnError:
        return None
    return model_type if isinstance(model_type, str) else None


def _size(folder: Path) -> int:
    total = 0
    for path in folder.glob("*.safetensors"):
        try:
            total += path.stat().st_size
        except OSError:  # a link whose blob is gone
            continue
    return total


# `attn.verify/1`: how far a checkpoint's run is from transformers' own, layer by layer.


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
