"""The documents of `attn models`: what is known, what a checkpoint is, how exactly it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import UNSET, Struct, UnsetType, convert, field
from msgspec.structs import replace

from attncli.documents import Count, Document, Part, Size, describe
from attncli.errors import AttnError
from attncli.extras import install_command
from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.files import read_object
from attncli.inputs.hub import (
    TOKENIZER,
    HubId,
    ModelLocation,
    cache_folder,
    cached_snapshots,
    find_snapshot,
)
from attncli.inputs.packed_checkpoint import METHODS
from attncli.language import message
from attncli.mechanism.spec import Attention, Block, LinearAttention, Spec
from attncli.models.aliases import ALIASES, Alias
from attncli.models.estimate import RULE, CostEstimate
from attncli.models.families import BY_TRANSFORMERS, FOUR_BIT_EXPERTS, GGUF_FAMILIES, MODEL_TYPES
from attncli.models.verify import LIMIT, RATIO, Verification
from attncli.version import __version__


class AliasRow(Part, frozen=True, kw_only=True):
    """A short name of a model."""

    name: str
    hub: Annotated[str, describe("Its id on the hub.")]
    family: Annotated[str, describe("The `model_type` of config.json.")]
    location: Annotated[
        Literal["package", "cache"] | None,
        describe("Where it is on this machine; null if it would be fetched."),
    ] = field(name="here")
    kind: Literal["encoder", "decoder", "encoder-decoder"]
    chinese: Annotated[bool, describe("Whether it was trained on Chinese.")]
    chat: Annotated[bool, describe("Whether it was trained to answer and has a chat template.")]
    install: Annotated[
        str | None,
        describe("The command that installs it as a package; null where no package holds it."),
    ]
    terms: Annotated[
        str | None, describe("The terms of use of what the package holds; null for a free licence.")
    ]


class CachedModel(Part, frozen=True, kw_only=True):
    """A model in the hub's local cache."""

    name: str
    revision: Annotated[str, describe("The commit.")]
    folder: str
    family: Annotated[str | None, describe("The `model_type` of config.json.")]
    native: Annotated[bool, describe("Whether attn runs the family natively.")]
    bytes: Annotated[Count, describe("Size of its safetensors files.")]
    missing: Annotated[
        list[str], describe("Needed files that are not there; empty for a whole model.")
    ]


class FormatRow(Part, frozen=True, kw_only=True):
    """A way in which weights lie in files, and what proves that they are read right."""

    name: str
    families: Annotated[
        list[str], describe("The families that are read from it; empty for all of them.")
    ]
    proof: Annotated[
        str, describe("What the numbers are held against in tests, and how near they come.")
    ]


class ForeignRow(Part, frozen=True, kw_only=True):
    """A family that transformers runs."""

    name: str
    reason: Annotated[str, describe("Why it has no file here.")]


class PluginRow(Part, frozen=True, kw_only=True):
    """What an installed package adds to attn."""

    kind: Literal["metrics", "rules", "families", "commands"]
    name: Annotated[str, describe("By which it is called.")]
    package: str
    package_version: str
    target: Annotated[str, describe("The object, as module:name.")]
    state: Annotated[
        Literal["usable", "hidden", "twice", "fails"],
        describe(
            "hidden: attn has one of this name itself; twice: several packages add it, and none is"
            " used; fails: it cannot be imported, or is not what it should be."
        ),
    ]
    reason: Annotated[str, describe("Why it fails; empty where it does not.")]


class ModelsDocument(Document, tag="attn.models/1", frozen=True, kw_only=True):
    """Which models there are."""

    families: Annotated[list[str], describe("The families that run natively.")]
    proof: Annotated[
        list[str],
        describe(
            "What the run of each native family is held against in tests, and how near it comes."
        ),
    ]
    foreign: Annotated[
        list[ForeignRow],
        describe("Families of today that transformers runs, with attention computed here."),
    ]
    formats: list[FormatRow]
    aliases: list[AliasRow]
    cache: Annotated[str, describe("The folder of the hub's local cache.")]
    cached: list[CachedModel]
    plugins: Annotated[
        list[PluginRow] | UnsetType, describe("With --plugins: what installed packages add.")
    ] = UNSET


# `attn.verify/1`: a checkpoint's run compared with transformers' own.


class LayerDifference(Part, frozen=True, kw_only=True):
    """How far one layer is apart, in float64."""

    side: Literal["self", "encoder", "decoder"]
    layer: Count
    weights: Annotated[
        list[float],
        describe(
            "Largest difference of the weights, by head; empty where a layer does not attend."
        ),
    ]
    cross: Annotated[list[float], describe("The same of the cross-attention; empty without one.")]
    hidden: Annotated[
        float | None, describe("Largest difference of the vectors that leave the layer.")
    ]
    relative: Annotated[
        float, describe("The largest difference, relative to the largest number of its array or 1.")
    ]


class Float64Distance(Part, frozen=True, kw_only=True):
    """The largest difference in float64, and how large it may be."""

    worst: float
    limit: float


class Float32Distance(Part, frozen=True, kw_only=True):
    """Root mean square distances from the float64 reference, of attn's and of transformers'
    float32, and their ratio."""

    run_distance: Annotated[
        float | None, describe("null where some numbers are too large for float32.")
    ] = field(name="ours")
    reference_distance: float | None = field(name="theirs")
    ratio: float | None
    limit: float
    largest_weight: Annotated[
        float | None, describe("The largest difference of one weight from float64, of attn's.")
    ] = None
    reference_weight: Annotated[
        float | None,
        describe("The largest difference of one weight from float64, of the library's."),
    ] = None


class VerifyDocument(Document, tag="attn.verify/1", frozen=True, kw_only=True):
    """A checkpoint's run compared with transformers' own."""

    name: str
    folder: str
    text: str
    tokens: Size
    backend: str
    layers: Annotated[list[LayerDifference], describe("Differences in float64.")]
    float64: Float64Distance
    float32: Float32Distance
    passed: Annotated[bool, describe("Whether both limits hold.")]
    blocks: Annotated[
        Literal["gguf", "attn"] | UnsetType,
        describe("GGUF files: whose code makes the reference's numbers of stored blocks."),
    ] = UNSET


# What `attn.model/1` says of a model's parts: the fields of `mechanism.spec`, each kind by its
# name.


class NormPart(Part, frozen=True, kw_only=True):
    """A normalization."""

    kind: Literal["layer", "rms"]
    eps: float
    unit_offset: Annotated[bool, describe("Whether the stored weight w multiplies as 1 + w.")]
    affine: Annotated[bool, describe("Whether there is a stored weight.")]


class QkNormPart(Part, tag_field="kind", tag="qknorm", frozen=True, kw_only=True):
    """The normalization of queries and keys."""

    norm: NormPart
    over: Annotated[
        Literal["head", "own", "width"],
        describe("Each head by shared or own weights, or all heads at once."),
    ]
    after: Annotated[bool, describe("Whether it follows the position encoding.")]


class LatentPart(Part, tag_field="kind", tag="latent", frozen=True, kw_only=True):
    """Queries, keys and values that come from narrow vectors."""

    query: Annotated[
        Size | None,
        describe("Width of the vector of queries; null where they come from the input at once."),
    ]
    keys: Annotated[Size, describe("Width of the vector of keys and values.")]
    norm: NormPart
    straight: Annotated[
        Count,
        describe("Entries of each key that come from the input at once, the same for all heads."),
    ]


class TemperaturePart(Part, tag_field="kind", tag="temperature", frozen=True, kw_only=True):
    """Queries that grow with their position p: times 1 + scale · ln(1 + ⌊(p + first)/floor⌋)."""

    floor: Size
    scale: float
    first: Annotated[Count, describe("What the first position counts as.")]


class LinearPart(Part, tag_field="kind", tag="linear", frozen=True, kw_only=True):
    """Frequencies divided by a factor."""

    factor: float


class DynamicPart(Part, tag_field="kind", tag="dynamic", frozen=True, kw_only=True):
    """A base that grows with the text."""

    factor: float
    original: Size


class Llama3Part(Part, tag_field="kind", tag="llama3", frozen=True, kw_only=True):
    """Long wavelengths divided, short ones kept."""

    factor: float
    low: float
    high: float
    original: Size


class YarnPart(Part, tag_field="kind", tag="yarn", frozen=True, kw_only=True):
    """Slow dimensions interpolated, fast ones kept, cos and sin scaled."""

    factor: float
    original: Size
    fast: float
    slow: float
    magnitude: float | None
    truncate: bool


class LongRopePart(Part, tag_field="kind", tag="longrope", frozen=True, kw_only=True):
    """One divisor per frequency, by the length of the text."""

    short: list[float]
    long: list[float]
    original: Size
    magnitude: float


class RopePart(Part, tag_field="kind", tag="rope", frozen=True, kw_only=True):
    """Rotary positions."""

    dims: Annotated[Count, describe("How many entries of each query and key are rotated.")]
    theta: float
    pairing: Literal["half", "adjacent"]
    scaling: LinearPart | DynamicPart | Llama3Part | YarnPart | LongRopePart | None
    first: Annotated[Count, describe("The entry at which the rotated ones begin.")]


class AlibiPart(Part, tag_field="kind", tag="alibi", frozen=True, kw_only=True):
    """A bias by distance, with a slope per head."""

    symmetric: bool
    factor: float
    coarse: Annotated[bool, describe("Whether it is rounded to bfloat16.")]


class BucketsPart(Part, tag_field="kind", tag="relativebuckets", frozen=True, kw_only=True):
    """A learned bias by distance, in buckets."""

    buckets: Size
    max_distance: Size
    bidirectional: bool


class DisentangledPart(Part, tag_field="kind", tag="disentangled", frozen=True, kw_only=True):
    """Scores of content with position and of position with content."""

    span: Size
    furthest: Size | None
    asks: bool
    answers: bool
    own: bool
    norm: NormPart | None


class RelativeSinesPart(Part, tag_field="kind", tag="relativesines", frozen=True, kw_only=True):
    """Scores of content with the sinusoid of the distance."""

    furthest: Annotated[Size | None, describe("Distances beyond it count as it.")]


class FirstBlockAgainPart(Part, tag_field="kind", tag="firstblockagain", frozen=True, kw_only=True):
    """Keys of the first block that count several times."""

    times: Annotated[Count, describe("How many times more.")]
    size: Annotated[Size, describe("Of a block.")]
    longest: Annotated[Count, describe("The longest text that is seen whole.")]


PositionPart = (
    RopePart | AlibiPart | BucketsPart | DisentangledPart | RelativeSinesPart | FirstBlockAgainPart
)


class BoundedPart(Part, tag_field="kind", tag="bounded", frozen=True, kw_only=True):
    """A gate with bounds."""

    limit: float
    slope: float


Activation = Annotated[str, describe("The activation function.")]


class MlpPart(Part, tag_field="kind", tag="mlp", frozen=True, kw_only=True):
    """A feed-forward part."""

    width: Size
    activation: Activation
    gated: bool
    bounded: BoundedPart | None


class ShortConvolutionPart(
    Part, tag_field="kind", tag="shortconvolution", frozen=True, kw_only=True
):
    """A gated convolution over the last tokens."""

    kernel: Size


class StateSpacePart(Part, tag_field="kind", tag="statespace", frozen=True, kw_only=True):
    """Mamba 2: states that fade by one number a token."""

    heads: Size
    head_dim: Size
    state: Size
    groups: Size
    kernel: Size
    activation: Activation
    norm: NormPart | None
    gate_first: Annotated[bool, describe("Whether the gate comes before the norm.")]
    limits: Annotated[
        tuple[float, float | None], describe("The least and the largest step; null for no largest.")
    ]
    factors: Annotated[
        tuple[float, float, float, float, float] | None,
        describe("What gate, values, k, q and steps are multiplied with; null for nothing."),
    ]


class SelectiveScanPart(Part, tag_field="kind", tag="selectivescan", frozen=True, kw_only=True):
    """Mamba: states each number of which fades by its own."""

    inner: Size
    state: Size
    rank: Annotated[Size, describe("The width from which steps come.")]
    kernel: Size
    activation: Activation
    norm: NormPart | None


class DeltaRulePart(Part, tag_field="kind", tag="deltarule", frozen=True, kw_only=True):
    """The gated delta rule: states to which a token adds what they do not hold of it."""

    heads: Size
    key_heads: Size
    key_dim: Size
    v_dim: Size
    kernel: Size
    activation: Activation
    norm: NormPart


class KimiDeltaPart(Part, tag_field="kind", tag="kimidelta", frozen=True, kw_only=True):
    """Kimi delta attention: the gated delta rule with a rate for each entry of a key."""

    heads: Size
    dim: Size
    kernel: Size
    activation: Activation
    norm: NormPart


class LinearAttentionPart(Part, tag_field="kind", tag="linearattention", frozen=True, kw_only=True):
    """Lightning attention: states that fade by a fixed number a token."""

    heads: Size
    dim: Size
    share: Annotated[
        float, describe("Head h of H fades by exp(−share·2^(−8h/H)) a token; of the first layer.")
    ]
    activation: Activation
    norm: NormPart


MixerPart = (
    ShortConvolutionPart
    | StateSpacePart
    | SelectiveScanPart
    | DeltaRulePart
    | KimiDeltaPart
    | LinearAttentionPart
)


class RoutingPart(Part, tag_field="kind", tag="routing", frozen=True, kw_only=True):
    """How a router's numbers become the experts' shares."""

    score: Literal["softmax", "sigmoid"]
    factor: float
    groups: Size
    groups_chosen: Size
    group_by: Size
    corrected: bool
    of_input: bool
    slack: Annotated[float, describe("What is added to the sum that shares are divided by.")]


class ExpertsPart(Part, tag_field="kind", tag="experts", frozen=True, kw_only=True):
    """A mixture of feed-forward parts."""

    count: Size
    chosen: Size
    width: Size
    activation: Activation
    renormalise: Annotated[
        bool, describe("Whether the shares of the chosen ones are made to sum to 1.")
    ]
    shared: Annotated[MlpPart | None, describe("A part that serves every token besides.")]
    shared_share: Annotated[bool, describe("Whether the token decides how much of it is added.")]
    routing: RoutingPart
    bounded: BoundedPart | None
    gated: bool
    narrow: Annotated[
        Size | None, describe("The width of what experts read and write; null for d_model.")
    ]


class EmbeddingPart(Part, tag_field="kind", tag="embedding", frozen=True, kw_only=True):
    """How token ids become vectors."""

    width: Annotated[Size | None, describe("Of the token table; null for d_model.")]
    projection: Literal["tokens", "sum"] | None
    scale: float
    positions: Literal["learned", "sinusoidal", "halves", "timescales"] | None
    position_offset: int
    padding: int | None
    types: Count
    norm: NormPart | None


class OutputHeadPart(Part, tag_field="kind", tag="head", frozen=True, kw_only=True):
    """How the last vectors become logits."""

    tied: Annotated[bool, describe("Whether the token table is the matrix.")]
    scale: float
    softcap: float | None
    projection: bool
    offsets: bool


# the title that it has in the published schema of a model; in that of a lesson it is another part's
OutputHeadPart.__name__ = "HeadPart"


# `attn.model/1`: what one checkpoint does.

Place = Literal[
    "attn.in",
    "attn.out",
    "attn.sum",
    "cross.in",
    "cross.out",
    "cross.sum",
    "mlp.in",
    "mlp.out",
    "mlp.sum",
]


class AttentionRow(Part, frozen=True, kw_only=True):
    """What the attention of some layers does."""

    heads: Size
    kv_heads: Size
    d_k: Size
    d_v: Size
    scale: Annotated[float, describe("What q·k is multiplied by.")]
    softcap: float | None
    sinks: Annotated[bool, describe("Whether a learned sink per head takes part in the softmax.")]
    mask: Annotated[str, describe("As --mask spells it.")]
    mask_says: Annotated[str, describe("The mask in words.")]
    position: PositionPart | None
    qk_norm: QkNormPart | None
    clip: Annotated[
        float | None, describe("Queries, keys and values are cut off there; null for not.")
    ]
    latent: Annotated[
        LatentPart | None,
        describe("How they come from narrow vectors; null where each has one projection."),
    ]
    temperature: Annotated[
        TemperaturePart | None, describe("How queries grow with their position; null for not.")
    ]
    global_tokens: Annotated[
        list[Count] | None,
        describe("Tokens that see all by projections of their own; null for a model without such."),
    ]
    source_width: Annotated[
        Size | None, describe("Of the vectors that keys and values come from; null for d_model.")
    ]
    gated: Annotated[bool, describe("Whether a gate lets through each entry of what heads mix.")]
    shared: Annotated[
        Count | None,
        describe("The earlier layer whose keys and values these are; null for their own."),
    ]


class LayerGroup(Part, frozen=True, kw_only=True):
    """Layers that do the same."""

    layers: Annotated[list[Count], describe("The layers that are alike.")]
    attention: Annotated[AttentionRow | None, describe("Null for layers that do not attend.")]
    cross: AttentionRow | None
    mixer: Annotated[
        MixerPart | None, describe("What mixes tokens beside the attention, or in its place.")
    ]
    mlp: MlpPart | ExpertsPart | None
    norms: Annotated[dict[Place, NormPart], describe("Normalizations by place.")]
    parallel: Annotated[bool, describe("Whether attention and feed-forward read the same input.")]
    residual: bool
    normed: Annotated[
        bool, describe("Whether branches are added to what the norm before attention gives.")
    ]
    branch_scale: Annotated[
        float, describe("What is multiplied with what attention and feed-forward add.")
    ]
    convolution: Annotated[
        Size | None,
        describe("How many tokens the convolution beside the layer spans; null for none."),
    ]
    instead: Annotated[
        str, describe("What the layers do in place of attention; empty where they attend.")
    ]
    factors: Annotated[
        dict[str, float], describe("What weights are multiplied with as they are read, by role.")
    ]


class ModelSide(Part, frozen=True, kw_only=True):
    """What an encoder, or a decoder, does."""

    d_model: Size
    vocabulary: Size
    layers: Size
    max_positions: Size | None
    stated_positions: Annotated[
        Size | None,
        describe(
            "The longest text that the model is made for by its own word; no table limits it."
        ),
    ] = None
    embedding: EmbeddingPart
    groups: Annotated[list[LayerGroup], describe("Layers that do the same stand together.")]
    final_norm: NormPart | None
    head: OutputHeadPart | None


class EstimatePart(Part, frozen=True, kw_only=True):
    """What a text would take."""

    tokens: Size
    layers: Count
    bytes_read: Count
    multiply_adds: Count
    memory: Annotated[dict[str, Count], describe("Bytes at the peak, by what they are for.")]
    peak_memory: Count
    seconds: float
    rule: Annotated[str, describe("How the seconds were reckoned.")]


class ModelDocument(Document, tag="attn.model/1", frozen=True, kw_only=True):
    """What a checkpoint does, from its config.json and the headers of its weight files."""

    name: str
    source: Literal["folder", "package", "cache", "hub"]
    folder: str
    revision: str | None
    family: str
    tokenizer: Annotated[bool, describe("Whether there is a vocabulary that is read.")]
    vocabulary_file: Annotated[
        str | None, describe("The name of the file that holds the vocabulary.")
    ] = None
    fetched: Annotated[bool, describe("Whether the weights are on this machine.")]
    stated: Annotated[
        dict[str, str | int | float | bool],
        describe("What a GGUF file says of itself, by key; empty for a folder."),
    ]
    tensors: Count
    parameters: Count
    bytes: Annotated[dict[str, Count], describe("Bytes of weights by data type.")]
    spec: ModelSide
    decoder: ModelSide | None
    estimate: EstimatePart | None
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield a (field, fault) for each side unless each of its layers stands in exactly one
        group."""
        for name, side in (("spec", self.spec), ("decoder", self.decoder)):
            if side is not None:
                layers = sorted(layer for group in side.groups for layer in group.layers)
                if layers != list(range(side.layers)):
                    what = message(
                        "not each of {layers} layers stands in one group", layers=side.layers
                    )
                    yield f"{name}.groups", what


def models_document(variables: Mapping[str, str]) -> ModelsDocument:
    """Make the `attn.models/1` document: the families that run natively, the aliases and whether
    each is on this machine, the models in the hub's cache. It looks at names, sizes and config.json
    only, and never uses the network.

    variables: the environment variables, which say where caches are.
    """
    cache = cache_folder(variables)
    cached_models = []
    for snapshot in cached_snapshots(cache):
        family = _model_type(snapshot.folder)
        cached_models.append(
            CachedModel(
                name=snapshot.name,
                revision=snapshot.commit,
                folder=str(snapshot.folder),
                family=family,
                native=family in MODEL_TYPES,
                bytes=_weight_bytes(snapshot.folder),
                missing=list(snapshot.missing),
            )
        )
    aliases = [_alias_row(name, alias, cache, variables) for name, alias in ALIASES.items()]
    return ModelsDocument(
        version=__version__,
        families=list(MODEL_TYPES),
        proof=[
            message("transformers' run, float64, 1e-10"),
            message("each head's weights, each layer's vectors"),
            message("layers without heads by their vectors alone"),
        ],
        foreign=[ForeignRow(name=name, reason=reason) for name, reason in BY_TRANSFORMERS.items()],
        formats=_formats(),
        aliases=aliases,
        cache=str(cache),
        cached=cached_models,
    )


def _formats() -> list[FormatRow]:
    """The formats of weight files, each with the families that are read from it (empty for all) and
    what its numbers are held against in tests."""
    by_run = message("transformers' run, float64, 1e-10")
    rows = [
        FormatRow(name="safetensors", families=[], proof=by_run),
        FormatRow(name="pytorch_model.bin", families=[], proof=by_run),
        FormatRow(
            name="GGUF", families=list(GGUF_FAMILIES), proof=message("the folder's run, 1e-6")
        ),
    ]
    for method in METHODS:  # quantised weights in safetensors files
        families = list(FOUR_BIT_EXPERTS) if method == "mxfp4" else []
        proof = message("loops of its description, 1e-6")
        if method in ("fp8", "mxfp4"):
            proof = message("transformers' own numbers, exactly")
        rows.append(FormatRow(name=method, families=families, proof=proof))
    adapter = FormatRow(name="adapter", families=[], proof=message("PEFT's merge, 1e-6"))
    return [*rows, adapter]


def _alias_row(name: str, alias: Alias, cache: Path, variables: Mapping[str, str]) -> AliasRow:
    """The document's row of an alias, with where it would be taken from without the network: an
    installed package, or the hub's cache.

    cache: the folder of the hub's cache.
    variables: the environment variables.
    """
    location: Literal["package", "cache"] | None = None
    snapshot = find_snapshot(cache, HubId(alias.hub))
    if alias.package is not None and alias.package.is_here(variables):
        location = "package"
    elif snapshot is not None and set(snapshot.missing) <= {TOKENIZER}:
        location = "cache"  # without a tokenizer it still runs token ids
    install = None
    terms = None
    if alias.package is not None:
        install = install_command(name)
        terms = alias.package.terms or None
    return AliasRow(
        name=name,
        hub=alias.hub,
        family=alias.family,
        location=location,
        kind=alias.kind,
        chinese=alias.chinese,
        chat=alias.chat,
        install=install,
        terms=terms,
    )


def model_document(
    location: ModelLocation,
    checkpoint: Checkpoint,
    spec: Spec,
    *,
    parameters: int,
    estimate: CostEstimate | None = None,
    warnings: Iterable[str] = (),
) -> ModelDocument:
    """Make the `attn.model/1` document of a checkpoint: where it is and what it does, with layers
    that do the same in one group. The weights are not read.

    parameters: how many numbers its weights have.
    estimate: what a text would take, None where none was asked about.
    """
    tensors = checkpoint.names().values()
    vocabulary = checkpoint.vocabulary_name
    bytes_by_dtype = Counter[str]()
    for info in tensors:  # of quantised weights by their scheme
        bytes_by_dtype[info.scheme or info.dtype] += info.bytes
    return ModelDocument(
        version=__version__,
        name=location.name,
        source=location.source,
        folder=str(location.folder),
        revision=location.revision,
        family=spec.family,
        tokenizer=vocabulary is not None,
        vocabulary_file=vocabulary,
        fetched=location.tensors is None,  # else these say where weights would lie
        stated=_stated_metadata(checkpoint),
        tensors=len(tensors),
        parameters=parameters,
        bytes=dict(bytes_by_dtype),
        spec=side_of(spec),
        decoder=None if spec.decoder is None else side_of(spec.decoder),
        estimate=None if estimate is None else estimate_part(estimate),
        warnings=list(warnings),
    )


STATED = (
    *("general.name", "general.file_type", "tokenizer.ggml.model", "tokenizer.ggml.pre"),
    *("tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"),
    *("tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token"),
)
"""Keys of a GGUF file that change what is true of a text, or say what the file is."""
STATED_ENDS = (".pooling_type", ".attention.sliding_window")
"""Ends of such keys that begin with a family's name."""
LONGEST_STATED = 200
"""Characters of a value that the document holds."""


def _stated_metadata(checkpoint: Checkpoint) -> dict[str, str | int | float | bool]:
    """What a GGUF file says of itself under `STATED`, and whether it has a chat template; {} for a
    folder."""
    metadata = getattr(checkpoint, "metadata", None)
    if metadata is None:
        return {}
    values: dict[str, str | int | float | bool] = {}
    for key, value in metadata.values.items():
        if key in STATED or key.endswith(STATED_ENDS):
            plain = value
            if hasattr(value, "item"):  # a NumPy number
                plain = value.item()
            if isinstance(plain, str):
                values[key] = plain[:LONGEST_STATED]
            elif isinstance(plain, bool | int | float):
                values[key] = plain
    values["tokenizer.chat_template"] = any(
        key.startswith("tokenizer.chat_template") for key in metadata.values
    )
    return values


def estimate_part(cost: CostEstimate) -> EstimatePart:
    """The document's part on an estimate: what a text would take of time and memory."""
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
    """Group the layers that do the same: for each group the numbers of its layers, ascending, and
    the block of the first, in the order in which each kind first occurs."""
    layer_groups: list[tuple[list[int], Block]] = []
    for layer, block in enumerate(blocks):
        for layers, group_block in layer_groups:
            if _without_share(group_block) == _without_share(block):
                layers.append(layer)
                break
        else:  # no group is like this layer
            layer_groups.append(([layer], block))
    return layer_groups


def _without_share(block: Block) -> Block:
    """The block with the decay of its lightning attention set to 1; any other block unchanged.
    Layers that differ in their decay alone then compare equal."""
    mixer = block.mixer
    if isinstance(mixer, LinearAttention):
        return replace(block, mixer=replace(mixer, share=1.0))
    return block


def side_of(spec: Spec) -> ModelSide:
    """The document's part on one side of a model (encoder or decoder): its sizes, embedding, groups
    of equal layers, final norm and output head."""
    return ModelSide(
        d_model=spec.d_model,
        vocabulary=spec.vocabulary,
        layers=len(spec.blocks),
        max_positions=spec.max_positions,
        stated_positions=spec.stated_positions,
        embedding=_part(spec.embedding, EmbeddingPart),
        groups=[_layer_group(layers, block) for layers, block in groups(spec.blocks)],
        final_norm=_part(spec.final_norm, NormPart),
        head=_part(spec.head, OutputHeadPart),
    )


def _layer_group(layers: list[int], block: Block) -> LayerGroup:
    """The document's part on layers that do what `block` does.

    layers: their numbers.
    """
    return LayerGroup(
        layers=layers,
        attention=None if block.instead else _attention_row(block.attention),
        mixer=_part(block.mixer, MixerPart),
        cross=None if block.cross is None else _attention_row(block.cross),
        mlp=_part(block.mlp, MlpPart | ExpertsPart),
        norms={place: _part(norm, NormPart) for place, norm in block.norms.items()},
        parallel=block.parallel,
        residual=block.residual,
        normed=block.normed,
        branch_scale=block.branch_scale,
        convolution=None if block.convolution is None else block.convolution.kernel,
        instead=block.instead,
        factors=dict(block.factors),
    )


def _attention_row(attention: Attention) -> AttentionRow:
    """The document's part on an attention: sizes, scale, mask, positions and other settings."""
    return AttentionRow(
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        d_k=attention.head_dim,
        d_v=attention.v_dim,
        scale=attention.scale,
        softcap=attention.softcap,
        sinks=attention.sinks,
        mask=attention.mask.spec(),
        mask_says=attention.mask.describe(),
        position=_part(attention.position, PositionPart),
        qk_norm=_part(attention.qk_norm, QkNormPart),
        clip=attention.clip,
        latent=_part(attention.latent, LatentPart),
        temperature=_part(attention.temperature, TemperaturePart),
        global_tokens=None if attention.own_global is None else list(attention.own_global),
        source_width=attention.source_width,
        gated=attention.gated,
        shared=attention.shared,
    )


def _part(spec_part: Struct | None, kinds: Any) -> Any:
    """Convert a part of a Spec, such as a norm, to the document's class for it; None stays.

    kinds: that class, or a union of them, of which the part's name ("kind") chooses one.
    """
    if spec_part is None:
        return None
    return convert(_plain(spec_part), kinds)


def _plain(value: Any) -> Any:
    """A part of a Spec as a dict of its fields and, under "kind", the name of its class in small
    letters unless it has a field of that name; tuples as lists, other values as they are.
    """
    if isinstance(value, Struct):
        members = {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
        if "kind" in members:
            return members
        return {"kind": type(value).__name__.lower(), **members}
    if isinstance(value, tuple):
        return list(value)
    return value


def _model_type(folder: Path) -> str | None:
    """The `model_type` of a folder's config.json; None where it cannot be read or says none."""
    try:
        config = read_object(folder / "config.json", what="a model's config.json")
    except AttnError:
        return None
    model_type = config.get("model_type")
    if isinstance(model_type, str):
        return model_type
    return None


def _weight_bytes(folder: Path) -> int:
    """Bytes of a folder's safetensors files."""
    total = 0
    for path in folder.glob("*.safetensors"):
        with suppress(OSError):  # in the hub's cache they are links, whose file may be gone
            total += path.stat().st_size
    return total


# `attn.verify/1`: how far a checkpoint's run is from transformers' own, layer by layer.


def verify_document(location: ModelLocation, text: str, result: Verification) -> VerifyDocument:
    """Make the `attn.verify/1` document: how far a checkpoint's run is from transformers' own.

    text: what was run; "" where token ids were given.
    result: the comparison, as `models.verify` makes it.
    """
    return VerifyDocument(
        version=__version__,
        name=location.name,
        folder=str(location.folder),
        text=text,
        tokens=result.tokens,
        backend=result.backend,
        layers=[convert(layer, LayerDifference, from_attributes=True) for layer in result.layers],
        float64=Float64Distance(worst=result.worst, limit=LIMIT),
        float32=Float32Distance(
            run_distance=result.run_distance,
            reference_distance=result.reference_distance,
            ratio=result.ratio,
            limit=RATIO,
            largest_weight=result.largest_weight,
            reference_weight=result.reference_weight,
        ),
        passed=result.is_within_limits,
        blocks=UNSET if result.blocks is None else result.blocks,
    )
