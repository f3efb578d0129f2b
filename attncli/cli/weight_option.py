"""`--weights FILE`: the model that a weight file and the options around it describe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from attncli.cli import request
from attncli.cli.environment import Environment
from attncli.cli.options import AttentionOptions, ComputeOptions, ModelOptions
from attncli.cli.seeded_option import one_layer_settings

if TYPE_CHECKING:
    from attncli.models.model import Model


def file_model(
    environment: Environment,
    options: ModelOptions,
    path: Path,
    attention: AttentionOptions,
    compute: ComputeOptions,
    tokenizer: str,
) -> Model:
    """The model in a weight file. Embeddings that it does not hold come from the seed asked for, else from the file's.

    Raises InputError for a file that cannot be understood, UsageError where an option contradicts it.
    """
    from attncli.arrays.backend import choose
    from attncli.inputs.tokenize import tokenizer as tokenizer_named
    from attncli.models.layouts.layout import LayoutRequest
    from attncli.models.layouts.recognise import read_weight_file
    from attncli.models.weight_file import model_of

    weight_file = read_weight_file(path, LayoutRequest(options.d_model, options.num_heads, options.d_k, options.d_v))
    seed = request.seed_of(options, environment)[0] if options.seed is not None else weight_file.seed or 0
    settings = one_layer_settings(options, attention, seed)
    backend = choose(compute.backend, device=compute.device, dtype=compute.dtype)
    return model_of(
        weight_file,
        path.name,
        tokenizer_named(tokenizer),
        backend,
        settings,
        seed=seed,
        embedding=request.embeddings(options),
    )
