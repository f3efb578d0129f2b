"""The model that the options describe: a checkpoint, seeded weights or a weight file; under hash
attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from attncli.cli.declarations import AttentionOptions, ComputeOptions, ModelOptions, RunSetup
from attncli.cli.environment import Environment
from attncli.cli.option import LARGEST, LARGEST_SEED, About, parse_size, parse_whole_number
from attncli.errors import LimitError, UnsupportedError, UsageError, refused_value
from attncli.language import listing, message

if TYPE_CHECKING:
    import numpy as np

    from attncli.mechanism.mask import Mask
    from attncli.mechanism.reformer import Reformer
    from attncli.mechanism.spec import Spec
    from attncli.models.description import ModelDescription
    from attncli.models.estimate import MemoryBudget
    from attncli.models.model import Model
    from attncli.models.one_layer import Settings

    NDArray = np.ndarray[Any, Any]

SOURCE_EXCERPT = 200
"""Characters of the text after `--source` that are told in every document."""


def default_checkpoint(
    environment: Environment, setup: RunSetup, tokenizer: str | None
) -> str | None:
    """The name of the checkpoint that `ATTN_MODEL` or the settings give where `--model` does not;
    None where none is set, and where an option describes another model. A note for `--verbose` says
    which."""
    setting = environment.settings.get("model")
    if setting is None:
        return None
    contrary = environment.options_about(setup.model, About.ONE_LAYER)
    if tokenizer is not None:
        contrary.append("--tokenizer")
    if setup.attention.position not in (None, "none"):
        contrary.append("--position")
    origin = message(
        "{setting}: from {origin}", setting=f"--model {setting.value}", origin=setting.origin
    )
    if contrary:
        origin = message(
            "{origin} names the model {setting}, which {contrary} leaves out",
            origin=setting.origin,
            setting=setting.value,
            contrary=contrary[0],
        )
    if origin not in environment.origins:  # a comparison asks once for each side
        environment.origins.append(origin)
    if contrary:
        return None
    return str(setting.value)


def checkpoint(
    environment: Environment, name: str, setup: RunSetup, *, many_runs: bool = False
) -> Model:
    """Load the checkpoint of this name and apply the options to it: adapters, the text or states of
    an encoder, masks, scale. Raises UsageError for options that do not go with a checkpoint.

    many_runs: whether its weights are kept for several runs, where memory allows.
    """
    from attncli.cli.progress import with_layer_progress

    options = setup.model
    attention = setup.attention
    if flags := " ".join(environment.options_about(options, About.ONE_LAYER)):
        what = message(
            "{flags} describes seeded weights, and --model {name} brings its own",
            flags=flags,
            name=name,
        )
        raise UsageError(what, expected="one or the other")
    if attention.position not in (None, "none"):
        raise UsageError(
            "--position {position} does not go with --model",
            expected="the checkpoint's own positions",
            position=attention.position,
        )

    ignore = tuple(options.ignore_config or ())
    adapters = tuple(options.adapter or ())
    loaded_model = load_checkpoint(
        environment, name, setup.compute, ignore=ignore, adapters=adapters
    )
    if many_runs:
        loaded_model = _with_weights_kept(environment, loaded_model, setup.compute)
    model = with_layer_progress(environment, loaded_model)
    if options.global_tokens is not None:
        from attncli.models.config import with_global_tokens

        tokens = whole_numbers(options.global_tokens, "--global-tokens")
        model = replace(model, spec=with_global_tokens(model.spec, tokens))

    model = _with_source(model, options)

    # the different masks of the layers; "none" hides nothing, and is no loss
    own_masks = list(dict.fromkeys(block.attention.mask.spec() for block in model.spec.blocks))
    if takes_own_mask_away(attention.mask) and own_masks != ["none"]:
        note = message(
            "--mask none takes the model's own mask away ({own}): it never learned without it",
            own=listing(own_masks),
        )
        model = replace(model, warnings=(*model.warnings, note))
    return replace(model, spec=change_attention(model.spec, attention))


def _with_source(model: Model, options: ModelOptions) -> Model:
    """Of an encoder-decoder, its decoder over the text or over the captured states of the encoder
    that options name as its source, with a warning that says so; without a source, the model itself.

    Raises UsageError for two sources, and as `Model.decoder`.
    """
    if options.source is not None:
        model = model.decoder(options.source)
        if len(options.source) <= SOURCE_EXCERPT:
            excerpt = options.source
        else:
            excerpt = options.source[:SOURCE_EXCERPT] + "…"
        note = message(
            "this is the decoder, which reads the text one token late, after its start token; its "
            "encoder read: {excerpt}",
            excerpt=excerpt,
        )
        model = replace(model, warnings=(*model.warnings, note))
    if options.source_states is not None:
        if options.source is not None:
            raise UsageError(
                "--source and --source-states name two sources", expected="one or the other"
            )
        from attncli.inputs.tensors import read_matrix

        states = read_matrix(options.source_states, "states")
        model = model.decoder_over(states)
        note = message(
            "this is the decoder, over {states:,} captured states of its encoder: {source_states}",
            states=len(states),
            source_states=options.source_states.name,
        )
        model = replace(model, warnings=(*model.warnings, note))
    return model


KEPT_SHARE = 2
"""Weights are kept where they take at most one part in so many of the memory that is free."""


def _with_weights_kept(environment: Environment, model: Model, compute: ComputeOptions) -> Model:
    """The model, set to keep its weights in memory after the first read if they take at most half
    of the free memory; else the model unchanged. `--verbose` says which."""
    from attncli.arrays.numpy_backend import keep_freed_memory
    from attncli.draw.numbers import size_words
    from attncli.models.load import held_bytes, hold_weights

    # many small runs are faster so; a single run of a long text would take a fifth more memory,
    # which is why it is not done for every command
    keep_freed_memory()

    needed = held_bytes(model)
    limit = memory_limit(compute)
    if not needed:  # nothing is read from a file each time
        return model
    sizes = {"needed": size_words(needed), "limit": size_words(limit.bytes)}
    if needed > limit.bytes // KEPT_SHARE:
        note = message(
            "weights are read in each pass: kept they would take {needed} of {limit} of memory",
            **sizes,
        )
        environment.origins.append(note)
        return model
    note = message("weights are kept for the next pass: {needed} of {limit} of memory", **sizes)
    environment.origins.append(note)
    return hold_weights(model)


def load_checkpoint(
    environment: Environment,
    name: str,
    compute: ComputeOptions,
    *,
    ignore: tuple[str, ...] = (),
    adapters: tuple[str, ...] = (),
) -> Model:
    """The checkpoint of this name, downloaded if it must be, with these adapters.

    ignore: keys of its config.json to run without, though attn does not implement them.
    """
    from attncli.cli.progress import downloads
    from attncli.models.load import load

    # without --max-memory, the limit is for `load` to choose
    limit = None
    if compute.max_memory is not None:
        limit = memory_limit(compute)
    with downloads(environment) as on_progress:
        return load(
            name,
            backend=compute.backend,
            device=compute.device,
            dtype=compute.dtype,
            ignore=ignore,
            adapters=adapters,
            note=environment.notes,
            watch=on_progress,
            variables=environment.variables,
            limit=limit,
        )


def describe_model(
    environment: Environment, name: str, ignore: tuple[str, ...] = ()
) -> ModelDescription:
    """Describe the model of this name (family, sizes, layers) without reading a weight; of a model on
    the hub only the headers of its files are fetched.
    """
    from attncli.cli.progress import downloads
    from attncli.models.description import describe

    with downloads(environment) as on_progress:
        return describe(
            name,
            ignore=ignore,
            note=environment.notes,
            watch=on_progress,
            variables=environment.variables,
        )


def change_attention(spec: Spec, attention: AttentionOptions) -> Spec:
    """A checkpoint's Spec with the scale, the soft cap and the masks of the options in place of its
    own, to see what would change. Masks are intersected with the model's own, unless `none` is among
    them: that takes the own mask away.
    """
    if not attention.mask and attention.scale is None and attention.softcap is None:
        return spec
    from attncli.mechanism.mask import intersection
    from attncli.models.one_layer import scale_number

    extra = mask(attention.mask)
    has_own = not takes_own_mask_away(attention.mask)
    blocks = []
    for block in spec.blocks:
        layer = block.attention
        if attention.scale is not None:
            layer = replace(
                layer, scale=scale_number(attention.scale, layer.head_dim, spec.d_model)
            )
        if attention.softcap is not None:
            layer = replace(layer, softcap=attention.softcap)
        if has_own:
            layer = replace(layer, mask=intersection(layer.mask, extra))
        else:
            layer = replace(layer, mask=extra)
        blocks.append(replace(block, attention=layer))
    return replace(spec, blocks=tuple(blocks))


# `--seed` and the sizes: the one-layer model with seeded weights.


def model_of_seed(environment: Environment, setup: RunSetup, tokenizer: str, heads: int) -> Model:
    """The one-layer model with seeded weights that the options describe.

    tokenizer: its name or file, as `--tokenizer` takes it.
    heads: how many where `--num-heads` does not say.

    Raises UsageError for sizes that do not fit together, LimitError for weights that memory does
    not hold.
    """
    from attncli.arrays.backend import choose
    from attncli.inputs.tokenize import tokenizer as tokenizer_named
    from attncli.models.one_layer import seeded_model

    seed, source = seed_of(setup.model, environment)
    settings = one_layer_settings(setup.model, setup.attention, seed, heads)
    refuse_sizes(settings, setup.compute)
    backend = choose(setup.compute.backend, device=setup.compute.device, dtype=setup.compute.dtype)
    embedding = embeddings(setup.model)
    return seeded_model(
        settings, seed, source, tokenizer_named(tokenizer), backend, embedding=embedding
    )


def one_layer_settings(
    options: ModelOptions, attention: AttentionOptions, seed: int, heads: int = 1
) -> Settings:
    """The settings (sizes, mask, positions, scale) of the one-layer model with seeded weights, from
    the options.

    seed: of the random parts of masks.
    heads: how many where `--num-heads` does not say.
    """
    from attncli.models.one_layer import Settings

    return Settings(
        # what the help of --d-model states as its default
        d_model=64 if options.d_model is None else options.d_model,
        heads=heads if options.num_heads is None else options.num_heads,
        d_k=options.d_k,
        d_v=options.d_v,
        bias=options.bias,
        residual=options.residual,
        layer_norm=options.layer_norm,
        output_projection=options.output_projection,
        position=attention.position or "none",
        scale=attention.scale,
        softcap=attention.softcap,
        mask=mask(attention.mask, seed),
    )


def refuse_sizes(settings: Settings, compute: ComputeOptions) -> None:
    """Raise UsageError for sizes that do not fit together, LimitError for weights that memory does
    not hold.
    """
    from attncli.models.one_layer import drawing_bytes, spec_of

    spec_of(settings)  # raises for sizes that do not fit together
    refuse_memory(drawing_bytes(settings), compute, "a smaller --d-model, --d-k or --d-v")


# `--weights FILE`: the model that a weight file and the options around it describe.

WITHOUT_HEADER = frozenset({"brief", "show", "plain", "table", "html", "svg"})
"""Options of answers that do not begin with what ran, nor with what is to be known about it."""


def file_model(environment: Environment, path: Path, setup: RunSetup, tokenizer: str) -> Model:
    """The model in a weight file. Embeddings that it does not hold come from the seed asked for,
    else from the file's.

    Raises InputError for a file that cannot be understood, UsageError where an option contradicts
    it.
    """
    from attncli.arrays.backend import choose
    from attncli.inputs.tokenize import tokenizer as tokenizer_named
    from attncli.models.layout import HEADS_UNKNOWN, LayoutRequest
    from attncli.models.weight_file import model_of, read_weight_file

    options = setup.model
    embedding = embeddings(options)
    layout_request = LayoutRequest(
        options.d_model,
        options.num_heads,
        options.d_k,
        options.d_v,
        input_width=None if embedding is None else embedding.shape[-1],
    )
    weight_file = read_weight_file(path, layout_request)
    # that the number of heads is not known stands in the header of an answer, or else in a note
    has_header = environment.explicit_options.isdisjoint(WITHOUT_HEADER)
    if HEADS_UNKNOWN in weight_file.notes and not has_header:
        environment.note(HEADS_UNKNOWN)
    if options.seed is not None:
        seed, _source = seed_of(options, environment)
    else:
        seed = weight_file.seed or 0  # of a file that names none
    settings = one_layer_settings(options, setup.attention, seed)
    backend = choose(setup.compute.backend, device=setup.compute.device, dtype=setup.compute.dtype)
    return model_of(
        weight_file,
        path.name,
        tokenizer_named(tokenizer),
        backend,
        settings,
        seed=seed,
        embedding=embedding,
    )


# `--attention`: dense, or Reformer's hash attention.

HASHING_FORM = message(
    "dense, reformer, reformer:BUCKETS, reformer:BUCKETS,ROUNDS or reformer:BUCKETS,ROUNDS,CHUNK"
)
LARGEST_HASHING = 10**6
HASHING_NOTE = message(
    "hash attention: keys are the normalised queries (W_K is not used); tokens are compared within "
    "neighbouring chunks, sorted by bucket; 10⁵ is taken off a token's score with itself, so that it"
    " looks at itself only where there is no other key"
)


def parse_hashing(kind: str, seed: int) -> Reformer | None:
    """The hash attention that a value of `--attention` such as "reformer:8,4" names; None for
    "dense". Raises UsageError for any other value.

    seed: of the hash directions.
    """
    from attncli.mechanism.reformer import Reformer

    if kind == "dense":
        return None
    name, colon, rest = kind.partition(":")
    numbers = []
    if colon:
        numbers = rest.split(",")
    are_counts = all(parse_whole_number(text, LARGEST_HASHING) for text in numbers)  # none is 0
    if name != "reformer" or len(numbers) > 3 or not are_counts:
        raise refused_value("--attention", kind, HASHING_FORM)
    # fewer than three numbers leave the last settings as they are by default
    counts = zip(("buckets", "rounds", "chunk"), map(int, numbers), strict=False)
    settings = replace(Reformer(seed=seed), **dict(counts))
    if settings.buckets % 2:
        what = message(
            "hash attention needs an even number of buckets, not {buckets}",
            buckets=settings.buckets,
        )
        raise UsageError(
            what, expected=message("such as reformer:{number}", number=settings.buckets + 1)
        )
    return settings


def with_hash_attention(model: Model, kind: str, options: AttentionOptions) -> Model:
    """The model with the attention that `kind`, a value of `--attention`, names: itself for
    "dense", else with hash attention (Reformer) in every layer.

    Raises UnsupportedError for a checkpoint, whose keys were trained as a projection of their own,
    and for what hash attention does not have: another scale, soft caps, ALiBi, several query heads
    for one key head.
    """
    hashing = parse_hashing(kind, model.identity.seed or 0)
    if hashing is None:
        return model
    first = model.spec.blocks[0].attention  # the only layer, but of checkpoints, refused here
    if model.identity.source == "checkpoint":
        raise UnsupportedError(
            "hash attention has one projection for queries and keys, and this checkpoint was"
            " trained with two",
            expected="--attention dense",
        )
    for what, present in (
        (message("soft cap"), options.softcap is not None),
        ("ALiBi", options.position == "alibi"),
        ("--scale", options.scale is not None),
    ):
        if present:
            raise UnsupportedError(
                "hash attention has no {what}",
                expected="--attention dense, or without it",
                what=what,
            )
    if first.kv_heads != first.heads:
        raise UnsupportedError(
            "{heads} query heads share {kv_heads} key heads",
            expected="as many of either for hash attention",
            heads=first.heads,
            kv_heads=first.kv_heads,
        )
    # the keys of hash attention are divided by √d_k themselves, so that scores need no scale
    blocks = tuple(
        replace(block, attention=replace(block.attention, hashing=hashing, scale=1.0))
        for block in model.spec.blocks
    )
    return replace(
        model, spec=replace(model.spec, blocks=blocks), warnings=(*model.warnings, HASHING_NOTE)
    )


# Values that options have for a model and its run: the mask, the seed, given vectors, memory.


def _is_mask_file(spec: str) -> bool:
    """Whether a value of `--mask` is a file: it has the ending of a matrix or a model, or a file or
    folder has this name and no kind of mask has it.
    """
    from attncli.inputs.files import is_there
    from attncli.inputs.tensors import FORMATS, MATRIX_FORMATS
    from attncli.mechanism.mask import KINDS

    if not spec:
        return False
    kind = spec.partition(":")[0].partition("|")[0].strip()  # of "window:4|prefix:2", "window"
    if kind in KINDS:  # a mask, unless it ends as a matrix does: "window:4.npy"
        return spec.lower().endswith(MATRIX_FORMATS)
    return spec.lower().endswith((*MATRIX_FORMATS, *FORMATS, ".gguf")) or is_there(Path(spec))


def mask(specs: Sequence[str] | None, seed: int = 0) -> Mask:
    """The intersection of the masks that `--mask` names; files hold 0 or false where a key is
    hidden.

    specs: the values of `--mask`; None where it is not given, for a mask that hides nothing.
    seed: of masks that are drawn at random.
    """
    from attncli.mechanism.mask import MatrixMask, intersection, parse_mask

    parts: list[Mask] = []
    for spec in _mask_parts(specs):
        if _is_mask_file(spec):
            from attncli.inputs.tensors import read_matrix

            parts.append(MatrixMask(read_matrix(Path(spec), "mask") != 0, Path(spec).name))
        else:
            parts.append(parse_mask(spec, seed=seed))
    return intersection(*parts)


def _mask_parts(specs: Sequence[str] | None) -> list[str]:
    """The masks that `--mask` names, one by one: `A&B` and `A & B` are two masks to intersect, unless
    a file has that name."""
    from attncli.inputs.files import is_there

    parts: list[str] = []
    for argument in specs or ():
        if is_there(Path(argument)):
            parts.append(argument)
        else:
            parts.extend(part.strip() for part in argument.split("&"))
    return parts


def takes_own_mask_away(specs: Sequence[str] | None) -> bool:
    """Whether `none` is among the masks that `--mask` names: it takes away the mask that a model has
    of its own."""
    from attncli.mechanism.mask import Everywhere

    return any(part.strip().lower() == Everywhere.spelling.name for part in _mask_parts(specs))


def seed_of(
    options: ModelOptions, environment: Environment
) -> tuple[int, Literal["seeded", "random"]]:
    """The seed that `--seed` gives, and "seeded"; or for `--seed random` one drawn at random, which a
    note on standard error names, and "random".

    Raises UsageError for a seed that is no whole number.
    """
    text = options.seed or "0"
    if text == "random":
        from attncli.arrays.numpy_backend import draw_seed

        drawn_seed = draw_seed()
        environment.note(
            message(
                "seed drawn: {drawn_seed} (repeat with --seed {drawn_seed})", drawn_seed=drawn_seed
            )
        )
        return drawn_seed, "random"
    seed = parse_whole_number(text, LARGEST_SEED)
    if seed is None:
        expected = message("0 to {largest_seed}, or 'random'", largest_seed=LARGEST_SEED)
        raise refused_value("--seed", text, expected)
    return seed, "seeded"


def embeddings(options: ModelOptions) -> NDArray | None:
    """The matrix that `--embeddings` names, None without it."""
    if options.embeddings is None:
        return None
    from attncli.inputs.tensors import read_matrix

    return read_matrix(options.embeddings, "embeddings")


def whole_numbers(text: str, option: str) -> list[int]:
    """Whole numbers from 0, separated by spaces or commas. Raises UsageError."""
    parts = text.replace(",", " ").split()
    values = [number for part in parts if (number := parse_whole_number(part)) is not None]
    if not parts or len(values) < len(parts):
        expected = message("whole numbers from 0 to {largest:,}, such as 5 3", largest=LARGEST)
        raise refused_value(option, text, expected)
    return values


def memory_limit(compute: ComputeOptions) -> MemoryBudget:
    """How much memory the command may use: what `--max-memory` says, else what is free."""
    from attncli.models.estimate import MemoryBudget, free_memory

    if compute.max_memory is None:
        return free_memory()
    return MemoryBudget(parse_size(compute.max_memory, "--max-memory"), "--max-memory")


def memory_left(compute: ComputeOptions, model: Model) -> int:
    """Bytes that a measurement may take beside the weights that are kept in memory."""
    return max(memory_limit(compute).bytes - model.weights_in_memory, 0)


def refuse_memory(
    needed_bytes: int, compute: ComputeOptions, hint: str, *, resident: int = 0
) -> None:
    """Raise LimitError if `needed_bytes` are more than `--max-memory`, or, without it, than this
    process may still take.

    hint: what to change so that less memory is needed.
    resident: how many of these bytes the process has taken already.
    """
    limit = memory_limit(compute)
    # what is free does not count what the process has already; --max-memory is for all of it
    if compute.max_memory is None:
        needed_bytes -= resident
    if needed_bytes > limit.bytes:
        from attncli.draw.numbers import size_words

        raise LimitError(
            "this would take about {needed_bytes} of memory, the limit is {bytes} ({source})",
            expected="less work, or a higher --max-memory",
            hint=hint,
            needed_bytes=size_words(needed_bytes),
            bytes=size_words(limit.bytes),
            source=limit.source,
        )
