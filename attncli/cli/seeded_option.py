"""`--seed` and the sizes: the one-layer model with seeded weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attncli.cli import request
from attncli.cli.environment import Environment
from attncli.cli.options import AttentionOptions, ComputeOptions, ModelOptions

if TYPE_CHECKING:
    from attncli.models.model import Model
    from attncli.models.one_layer import Settings


def model_of_seed(
    environment: Environment,
    options: ModelOptions,
    attention: AttentionOptions,
    compute: ComputeOptions,
    tokenizer: str,
    heads: int,
) -> Model:
    """The one-layer model with seeded weights. heads: how many where `--num-heads` does not say.

    Raises UsageError for sizes that do not fit together, LimitError for weights that memory does not hold.
    """
    from attncli.arrays.backend import choose
    from attncli.inputs.tokenize import tokenizer as tokenizer_named
    from attncli.models.one_layer import seeded_model

    seed, source = request.seed_of(options, environment)
    settings = one_layer_settings(options, attention, seed, heads)
    refuse_sizes(settings, compute)
    backend = choose(compute.backend, device=compute.device, dtype=compute.dtype)
    return seeded_model(
        settings, seed, source, tokenizer_named(tokenizer), backend, embedding=request.embeddings(options)
    )


def one_layer_settings(options: ModelOptions, attention: AttentionOptions, seed: int, heads: int = 1) -> Settings:
    """What the options say about the one-layer model. heads: how many where `--num-heads` does not say. seed: of the
    random parts of masks."""
    from attncli.models.one_layer import Settings

    return Settings(
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
        mask=request.mask(attention.mask, seed),
    )


def refuse_sizes(settings: Settings, compute: ComputeOptions) -> None:
    """Raise UsageError for sizes that do not fit together, LimitError for weights that memory does not hold."""
    from attncli.models.one_layer import drawing_bytes, spec_of

    spec_of(settings)
    request.refuse_memory(drawing_bytes(settings), compute, "a smaller --d-model, --d-k or --d-v")
