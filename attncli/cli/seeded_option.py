"""`--seed` and the sizes: the one-layer model with seeded weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attncli.cli import request
from attncli.cli.options import AttentionOptions, ComputeOptions, ModelOptions
from attncli.cli.output import Environment

if TYPE_CHECKING:
    from attncli.models.model import Model
    from attncli.models.one_layer import Settings


def seeded(
    environment: Environment,
    asked: ModelOptions,
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

    seed, source = request.seed_of(asked, environment)
    settings = one_layer_settings(asked, attention, seed, heads)
    refuse_sizes(settings, compute)
    backend = choose(compute.backend, device=compute.device, dtype=compute.dtype)
    return seeded_model(
        settings, seed, source, tokenizer_named(tokenizer), backend, embedding=request.embeddings(asked)
    )


def one_layer_settings(asked: ModelOptions, attention: AttentionOptions, seed: int, heads: int = 1) -> Settings:
    """What the options say about the one-layer model. heads: how many where `--num-heads` does not say. seed: of the
    random parts of masks."""
    from attncli.models.one_layer import Settings

    return Settings(
        d_model=64 if asked.d_model is None else asked.d_model,
        heads=heads if asked.num_heads is None else asked.num_heads,
        d_k=asked.d_k,
        d_v=asked.d_v,
        bias=asked.bias,
        residual=asked.residual,
        layer_norm=asked.layer_norm,
        output_projection=asked.output_projection,
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
