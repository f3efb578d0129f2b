"""Documents about models themselves: which there are, what one does, what a text would take on it."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, convert

from attncli import __version__
from attncli.analysis.documents.model import AttentionRow, EstimatePart, LayerGroup, ModelDocument, ModelSide
from attncli.analysis.documents.model_parts import (
    EmbeddingPart,
    ExpertsPart,
    HeadPart,
    LatentPart,
    MlpPart,
    NormPart,
    PositionPart,
    QkNormPart,
    TemperaturePart,
)
from attncli.analysis.documents.models import AliasRow, CachedModel, ModelsDocument
from attncli.errors import AttnError
from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.hub import Resolved
from attncli.inputs.hub_cache import TOKENIZER, HubId, all_cached, cached
from attncli.inputs.strict_json import read_object
from attncli.mechanism.mask_spec import describe, spec_text
from attncli.mechanism.spec import Attention, Block, Spec
from attncli.models.aliases import ALIASES, Alias, package_folder
from attncli.models.estimate import RULE, Estimate
from attncli.models.families import MODEL_TYPES


def models_document(cache: Path) -> ModelsDocument:
    """`attn.models/1`: the families that run natively, the aliases and whether each is here, the models in the hub's
    cache.

    Looks at names, sizes and config.json only, and never uses the network.
    """
    held: list[CachedModel] = []
    for found in all_cached(cache):
        family = _family(found.folder)
        held.append(
            CachedModel(
                name=found.name,
                revision=found.commit,
                folder=str(found.folder),
                family=family,
                native=family in MODEL_TYPES,
                bytes=_size(found.folder),
                missing=list(found.missing),
            )
        )
    aliases = [
        AliasRow(name=name, hub=alias.hub, family=alias.family, here=_here(alias, cache))
        for name, alias in ALIASES.items()
    ]
    return ModelsDocument(
        version=__version__, families=list(MODEL_TYPES), aliases=aliases, cache=str(cache), cached=held
    )


def _here(alias: Alias, cache: Path) -> Literal["package", "cache"] | None:
    """Where an alias would be taken from without the network: "package" or "cache"; None where it would be fetched."""
    if alias.package and package_folder(alias.package):
        return "package"
    found = cached(cache, HubId(alias.hub))
    return "cache" if found is not None and set(found.missing) <= {TOKENIZER} else None


def model_document(
    found: Resolved,
    checkpoint: Checkpoint,
    spec: Spec,
    *,
    estimate: Estimate | None = None,
    warnings: Iterable[str] = (),
) -> ModelDocument:
    """`attn.model/1`: where a checkpoint is and what it does; layers that do the same stand together.

    estimate: what a text would take, None where none was asked about. The weights are not read.
    """
    stored: dict[str, int] = {}
    for info in checkpoint.names().values():
        stored[info.dtype] = stored.get(info.dtype, 0) + info.bytes
    return ModelDocument(
        version=__version__,
        name=found.name,
        source=found.source,
        folder=str(found.folder),
        revision=found.revision,
        family=spec.family,
        tokenizer=checkpoint.tokenizer_path is not None,
        fetched=found.tensors is None,
        tensors=len(checkpoint.names()),
        parameters=sum(prod(info.shape) for info in checkpoint.names().values() if "float" in info.dtype),
        bytes=stored,
        spec=side_of(spec),
        decoder=None if spec.decoder is None else side_of(spec.decoder),
        estimate=None if estimate is None else estimate_part(estimate),
        warnings=list(warnings),
    )


def estimate_part(found: Estimate) -> EstimatePart:
    """An estimate as documents hold it."""
    return EstimatePart(
        tokens=found.tokens,
        layers=found.layers,
        bytes_read=found.bytes_read,
        multiply_adds=found.multiply_adds,
        memory=dict(found.memory),
        peak_memory=found.peak,
        seconds=round(found.seconds, 3),
        rule=RULE,
    )


def groups(blocks: Iterable[Block]) -> list[tuple[list[int], Block]]:
    """Layers that do the same, by number, in the order in which each kind first occurs."""
    found: list[tuple[list[int], Block]] = []
    for layer, block in enumerate(blocks):
        for layers, other in found:
            if other == block:
                layers.append(layer)
                break
        else:
            found.append(([layer], block))
    return found


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
        held = {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
        return held if "kind" in held else {"kind": type(value).__name__.lower(), **held}
    return list(value) if isinstance(value, tuple) else value


def _family(folder: Path) -> str | None:
    try:
        found = read_object(folder / "config.json", what="a model's config.json").get("model_type")
    except AttnError:
        return None
    return found if isinstance(found, str) else None


def _size(folder: Path) -> int:
    total = 0
    for path in folder.glob("*.safetensors"):
        try:
            total += path.stat().st_size
        except OSError:  # a link whose blob is gone
            continue
    return total
