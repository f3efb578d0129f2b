"""`--model`: the checkpoint that the options describe, under another mask, scale or soft cap if they say so."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from msgspec.structs import replace

from attncli.cli import request
from attncli.cli.environment import Environment
from attncli.cli.options import AttentionOptions, ComputeOptions, ModelOptions
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.mechanism.spec import Spec
    from attncli.models.model import Model

SOURCE = 200
"""Characters of the text after `--source` that are told in every document."""

ONE_LAYER_ONLY = ("weights", "embeddings", "seed", "d_model", "num_heads", "d_k", "d_v", "bias", "output_projection")
"""Options that describe seeded or file weights; a checkpoint brings its own."""


def out_of_place(options: ModelOptions) -> list[str]:
    """The options given that describe seeded or file weights."""
    flags = [
        item.name for item in fields(options) if item.name in ONE_LAYER_ONLY and getattr(options, item.name) is not None
    ]
    flags += [name for name in ("residual", "layer_norm") if getattr(options, name)]
    return [f"--{name.replace('_', '-')}" for name in flags]


def default_checkpoint(
    environment: Environment, options: ModelOptions, attention: AttentionOptions, tokenizer: str | None
) -> str | None:
    """The checkpoint that `ATTN_MODEL` or the settings name; None without one, and where an option describes another
    model. `--verbose` tells which."""
    setting = environment.settings.get("model")
    if setting is None:
        return None
    contrary = [*out_of_place(options), *["--tokenizer"] * (tokenizer is not None)]
    contrary += ["--position"] * (attention.position not in (None, "none"))
    origin = f"--model {setting.value}: from {setting.origin}"
    if contrary:
        origin = f"{setting.origin} names the model {setting.value}, which {contrary[0]} leaves out"
    if origin not in environment.origins:  # a comparison asks once for each side
        environment.origins.append(origin)
    return None if contrary else str(setting.value)


def checkpoint(
    environment: Environment, name: str, options: ModelOptions, attention: AttentionOptions, compute: ComputeOptions
) -> Model:
    """The checkpoint of this name under the options given. Raises UsageError for those that it does not take."""
    from attncli.cli.progress import layers_told

    if flags := " ".join(out_of_place(options)):
        raise UsageError(
            f"{flags} describes seeded weights, and --model {name} brings its own", expected="one or the other"
        )
    if attention.position not in (None, "none"):
        raise UsageError(
            f"--position {attention.position} does not go with --model", expected="the checkpoint's own positions"
        )
    model = layers_told(
        environment, load_checkpoint(environment, name, compute, ignore=tuple(options.ignore_config or ()))
    )
    if options.global_tokens is not None:
        from attncli.models.token_visibility import seeing_all

        tokens = request.whole_numbers(options.global_tokens, "--global-tokens")
        model = replace(model, spec=seeing_all(model.spec, tokens))
    if options.source is not None:
        model = model.decoder(options.source)
        excerpt = options.source if len(options.source) <= SOURCE else options.source[:SOURCE] + "…"
        note = (
            "this is the decoder, which reads the text one token late, after its start token; "
            f"its encoder read: {excerpt}"
        )
        model = replace(model, warnings=(*model.warnings, note))
    if options.source_states is not None:
        if options.source is not None:
            raise UsageError("--source and --source-states name two sources", expected="one or the other")
        from attncli.inputs.matrix_file import read_matrix

        states = read_matrix(options.source_states, "states")
        model = model.reading(states)
        note = f"this is the decoder, over {len(states):,} captured states of its encoder: {options.source_states.name}"
        model = replace(model, warnings=(*model.warnings, note))
    return replace(model, spec=change_attention(model.spec, attention))


def load_checkpoint(
    environment: Environment, name: str, compute: ComputeOptions, *, ignore: tuple[str, ...] = ()
) -> Model:
    """The checkpoint of this name, downloaded if it must be."""
    from attncli.cli.progress import downloads
    from attncli.models.load import load

    with downloads(environment) as on_progress:
        return load(
            name,
            backend=compute.backend,
            device=compute.device,
            dtype=compute.dtype,
            ignore=ignore,
            note=environment.notes,
            watch=on_progress,
            variables=environment.variables,
        )


def change_attention(spec: Spec, attention: AttentionOptions) -> Spec:
    """A checkpoint's Spec under other masks (intersected with its own), scale or soft cap: a what-if."""
    if not attention.mask and attention.scale is None and attention.softcap is None:
        return spec
    from attncli.mechanism.mask import both
    from attncli.models.one_layer import scale_number

    extra = request.mask(attention.mask)
    blocks = []
    for block in spec.blocks:
        layer = block.attention
        scale = layer.scale if attention.scale is None else scale_number(attention.scale, layer.head_dim, spec.d_model)
        softcap = layer.softcap if attention.softcap is None else attention.softcap
        blocks.append(
            replace(block, attention=replace(layer, mask=both(layer.mask, extra), scale=scale, softcap=softcap))
        )
    return replace(spec, blocks=tuple(blocks))
