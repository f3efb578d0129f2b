"""`attncli.load`: a checkpoint, a weight file or seeded weights as a `Model`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from importlib.util import find_spec
from pathlib import Path

from attncli.arrays.backend import choose
from attncli.errors import InputError, UnsupportedError, UsageError
from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.download_bar import Watch
from attncli.inputs.fetching import Fetch, Parts
from attncli.inputs.token import Tokenizer
from attncli.inputs.tokenize import tokenizer as tokenizer_named
from attncli.mechanism.spec import Spec
from attncli.models import transformers_library as library
from attncli.models.aliases import locate
from attncli.models.bidirectional_decoders import seen_both_ways
from attncli.models.bind import bind
from attncli.models.checkpoint_store import CheckpointStore
from attncli.models.checkpoint_tokenizers import IdsOnly
from attncli.models.config import settle, without
from attncli.models.container import text_model
from attncli.models.end_tokens import ends
from attncli.models.families import MODEL_TYPES, family
from attncli.models.family import Family
from attncli.models.model import Identity, Model

TYPICAL_TOKENS = 16
"""Tokens of the short sentence for which "auto" weighs the backends: the text is not known yet."""


def load(
    name_or_dir: str | Path | None = None,
    *,
    weights: str | Path | None = None,
    seed: int | None = None,
    d_model: int | None = None,
    heads: int | None = None,
    tokenizer: str = "word",
    backend: str = "auto",
    device: str | None = None,
    dtype: str = "float32",
    ignore: Collection[str] = (),
    note: Callable[[str], None] | None = lambda message: None,
    watch: Watch | None = None,
    variables: Mapping[str, str] = os.environ,
) -> Model:
    """A model ready to run.

    name_or_dir: a folder in Hugging Face layout, a hub id, or an alias such as "minilm"; weights: a weight file;
    with neither, seeded weights. seed, d_model, heads, tokenizer: of seeded weights and weight files.
    backend: "auto", "numpy" or "torch"; device and dtype as on the command line.
    ignore: keys of config.json to run without. note: told what is being fetched; None for silence, of progress bars
    too. watch: told each file that is fetched and the share of it that is there, in place of progress bars.
    variables: where HF_HUB_CACHE, HF_HUB_OFFLINE, HF_ENDPOINT and their like are looked up.

    Nothing is read of a checkpoint's weights until it runs. Raises AttnError's children: InputError for files that are
    damaged or do not fit together, UnsupportedError for what is not implemented, UsageError for a contradictory call.
    """
    if name_or_dir is None:
        return _seeded_model(weights, seed, d_model, heads, tokenizer, backend, device, dtype)
    if not all(option is None for option in (weights, seed, d_model, heads)):
        raise UsageError(
            "a checkpoint brings its own weights and sizes",
            expected="a checkpoint's name alone, or weights=, seed=, d_model=",
        )
    location = locate(
        str(name_or_dir),
        variables=variables,
        fetch=Fetch(note, lambda folder: refuse_unknown(folder, ignore), watch=watch),
    )
    whole = Checkpoint.open(location.folder)
    checkpoint = text_model(whole)
    foreign_kind = foreign_family(checkpoint)
    if foreign_kind is not None:
        from attncli.models.transformers_engine import load_foreign

        if backend == "numpy" or ignore:
            what = "the numpy backend" if backend == "numpy" else "keys of config.json to ignore"
            raise UnsupportedError(
                f"models of the family {foreign_kind!r} run through transformers, which has no use for {what}"
            )
        return load_foreign(checkpoint, foreign_kind, location.name, _tokenizer(checkpoint), device=device, dtype=dtype)
    spec, kind, warnings = read_spec(checkpoint, ignore)
    binding, decoder_binding = bind(spec, kind, checkpoint.names(), str(checkpoint.folder))
    parameters = sum(info.bytes for info in checkpoint.names().values()) // 2
    operations = choose(backend, device=device, dtype=dtype, work=parameters * TYPICAL_TOKENS)
    return Model(
        spec,
        CheckpointStore(spec, checkpoint, binding),
        _tokenizer(checkpoint),
        operations,
        Identity("checkpoint", name=location.name, family=spec.family),
        warnings=(*checkpoint.notes, *warnings),
        decoder_store=None
        if spec.decoder is None or decoder_binding is None
        else CheckpointStore(spec.decoder, checkpoint, decoder_binding),
        ends=ends(whole),
    )


def load_tokenizer(
    name: str,
    *,
    note: Callable[[str], None] | None = lambda message: None,
    watch: Watch | None = None,
    variables: Mapping[str, str] = os.environ,
) -> Tokenizer:
    """The tokenizer of a checkpoint alone; its weights need not be usable, and are not fetched. Arguments, errors: as
    `load`."""
    location = locate(name, variables=variables, fetch=Fetch(note, parts=Parts.TOKENIZER, watch=watch))
    return _tokenizer(Checkpoint(location.folder.resolve(), {}, {}))


def refuse_unknown(folder: Path, ignore: Collection[str] = ()) -> None:
    """Raise for a model that its config.json alone shows to be of no use, before its weights are fetched. Raises as
    `load`."""
    checkpoint = Checkpoint.describe(folder)
    if foreign_family(checkpoint) is None:
        read_spec(checkpoint, ignore)


def read_spec(checkpoint: Checkpoint, ignore: Collection[str] = ()) -> tuple[Spec, Family, tuple[str, ...]]:
    """The Spec that a checkpoint's config describes, its family, and warnings about keys that play no part.

    Raises UnsupportedError for a family or a setting that is not implemented, InputError for values that make no sense.
    """
    where = str(checkpoint.folder / "config.json")
    kind = checkpoint.config.get("model_type")
    if not isinstance(kind, str):
        raise InputError(
            "config.json does not say which family the model belongs to", where=where, expected="a model_type"
        )
    model_family = family(kind)
    if model_family is None:
        raise _foreign(kind, where)
    config = without(checkpoint.config, ignore, where)
    spec = seen_both_ways(config, model_family.spec(config))
    warnings = tuple(f"config.json's {key} was ignored, as asked" for key in ignore)
    return spec, model_family, warnings + settle(config, model_family.fixed)


def foreign_family(checkpoint: Checkpoint) -> str | None:
    """The family of a checkpoint that only transformers can run, if the one installed knows it; else None."""
    kind = checkpoint.config.get("model_type")
    return kind if isinstance(kind, str) and kind not in MODEL_TYPES and library.knows_family(kind) else None


def _foreign(kind: str, where: str) -> UnsupportedError:
    """The refusal of a family that has no file here, by what asked for its Spec."""
    native = ", ".join(MODEL_TYPES)
    if library.knows_family(kind):
        return UnsupportedError(
            f"models of the family {kind!r} run through transformers, which keeps what their layers do to itself",
            where=where,
            expected=native,
            hint="attn run and attn heads run it",
        )
    if find_spec("transformers") is not None:
        return UnsupportedError(
            f"neither attn nor transformers knows the family {kind!r}", where=where, expected=native
        )
    return UnsupportedError(
        f"models of the family {kind!r} do not run natively",
        where=where,
        expected=native,
        hint="pip install 'attn[transformers]'",
    )


def _tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    if checkpoint.tokenizer_path is None:
        return IdsOnly(str(checkpoint.folder))
    return tokenizer_named(str(checkpoint.tokenizer_path))


def _seeded_model(
    weights: str | Path | None,
    seed: int | None,
    d_model: int | None,
    heads: int | None,
    tokenizer: str,
    backend: str,
    device: str | None,
    dtype: str,
) -> Model:
    operations, cutter = choose(backend, device=device, dtype=dtype), tokenizer_named(tokenizer)
    if weights is not None:
        from attncli.models.layouts.layout import LayoutRequest
        from attncli.models.weight_file import load_weights

        return load_weights(
            Path(weights), cutter, operations, request=LayoutRequest(d_model=d_model, heads=heads), seed=seed
        )
    from attncli.models.one_layer import Settings, seeded_model

    settings = Settings(d_model=64 if d_model is None else d_model, heads=1 if heads is None else heads)
    return seeded_model(settings, seed or 0, "seeded", cutter, operations)
