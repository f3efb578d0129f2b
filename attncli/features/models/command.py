"""`attn models`: known families, aliases and cached models; what one model does; parity with a
reference.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, assert_never

import typer
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, ITEM
from attncli.cli import declarations, request
from attncli.cli.declarations import TableOutput, TextOptions
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import argument, subject_option, text_option
from attncli.cli.output import validate_options, write_documents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from attncli.inputs.hub import ModelLocation
    from attncli.models.description import ModelDescription
    from attncli.models.estimate import CostEstimate

Name = Annotated[str, declarations.MODEL_ARGUMENT]


def list_(
    ctx: typer.Context,
    output: TableOutput,
    plugins: Annotated[
        bool,
        subject_option(help="What installed packages add: metrics, rules, families, commands."),
    ] = False,
) -> None:
    """The native families, the aliases and the cached models.

    attn models list

    attn models list --plugins
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment)
    from attncli.features.models.compute import models_document

    document = models_document(environment.variables)
    if plugins:
        from attncli.cli.plugin_list import plugin_rows

        document = replace(document, plugins=plugin_rows())
    write_documents([document], output, environment, view)


def show(
    ctx: typer.Context,
    output: TableOutput,
    model: Name,
    ignore_config: Annotated[list[str] | None, declarations.IGNORE_CONFIG] = None,
    estimate: Annotated[
        str | None,
        text_option(
            help="What attn run would take for this text; - for standard input.", metavar="TEXT"
        ),
    ] = None,
    layer: Annotated[list[str] | None, declarations.LAYER] = None,
    dtype: Annotated[str | None, declarations.DTYPE] = None,
) -> None:
    """What a model does, layer by layer. Sizes, attention, masks, positions; no weights are read,
    nor fetched.

    attn models show minilm

    attn models show gpt2 --estimate "The animal didn't cross the street" --layer 0
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment)
    from attncli.cli.model_option import describe_model
    from attncli.errors import UsageError
    from attncli.features.models.compute import model_document

    if estimate is None and (layer is not None or dtype is not None):
        raise UsageError(
            "--layer and --dtype are about an estimate, and none was asked for",
            expected="--estimate TEXT as well",
        )
    if estimate is None:
        text = None
    else:
        text = _text_of(environment, estimate)
    ignored_keys = tuple(ignore_config or ())
    with _nearest_name_as("attn models show"):
        described = describe_model(environment, model, ignored_keys)
    cost = None
    with described.checkpoint as checkpoint:
        if text is not None:
            cost = _estimate(described, text, layer, dtype or "float32")
        document = model_document(
            described.location,
            checkpoint,
            described.spec,
            parameters=described.parameters,
            estimate=cost,
            warnings=described.notes,
        )
    write_documents([document], output, environment, view)


def fetch(
    ctx: typer.Context,
    output: TableOutput,
    model: Name,
    ignore_config: Annotated[list[str] | None, declarations.IGNORE_CONFIG] = None,
) -> None:
    """Fetch a model, so that it runs without a network, and say what it is. The size is told first;
    an interrupted fetch goes on where it stopped.

    attn models fetch minilm

    attn models fetch Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment)
    from attncli.cli.model_option import describe_model
    from attncli.features.models.compute import model_document
    from attncli.models.load import refuse_unknown

    ignored_keys = tuple(ignore_config or ())
    with _nearest_name_as("attn models fetch"):
        location = _locate(environment, model, lambda folder: refuse_unknown(folder, ignored_keys))
    if environment.notes is not None:  # it is None with --quiet
        environment.notes(_place_note(location))
    described = describe_model(environment, model, ignored_keys)
    with described.checkpoint as checkpoint:
        document = model_document(
            location,
            checkpoint,
            described.spec,
            parameters=described.parameters,
            warnings=described.notes,
        )
    write_documents([document], output, environment, view)


def verify(
    ctx: typer.Context,
    output: TableOutput,
    model: Name,
    text: Annotated[
        str | None, argument("The text to compare on; none for a sample sentence.", "TEXT")
    ] = None,
    target: Annotated[
        str | None,
        text_option(
            "--decoder-text",
            help="Encoder-decoders: the text that the decoder reads. [default: the text]",
            metavar="TEXT",
        ),
    ] = None,
    ids: Annotated[str | None, declarations.IDS] = None,
    ignore_config: Annotated[list[str] | None, declarations.IGNORE_CONFIG] = None,
    backend: Annotated[str, declarations.BACKEND] = "auto",
) -> None:
    """Compare a model without adapters with transformers, head by head; ends with 1 where they
    differ (an extra).

    attn models verify minilm "The animal didn't cross the street"
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment)
    from attncli.errors import UsageError, VerdictError

    if backend == "auto":  # without a choice the run of NumPy is compared
        backend = "numpy"
    if ids is not None and text is not None:
        raise UsageError("a text and --ids contradict each other", expected="one of them")
    if text == target == "-":
        raise UsageError("both texts are -, and standard input is one text", expected="- once")
    from attncli.features.models.compute import verify_document
    from attncli.inputs.token import SAMPLE
    from attncli.models.load import describe_checkpoint, read_spec
    from attncli.models.verify import LIMIT, RATIO
    from attncli.models.verify import verify as verify_model

    if text is None:
        text_of_model = SAMPLE
    else:
        text_of_model = _text_of(environment, text)
    if target is None:
        target_text = None
    else:
        target_text = _text_of(environment, target)
    ignored_keys = tuple(ignore_config or ())
    with _nearest_name_as("attn models verify"):
        resolved = _locate(
            environment, model, lambda folder: read_spec(describe_checkpoint(folder), ignored_keys)
        )
    # one that was here already was not looked at yet: refuse what cannot run before it is compared
    read_spec(describe_checkpoint(resolved.folder), ignored_keys)
    text_or_ids = text_of_model if ids is None else request.whole_numbers(ids, "--ids")
    result = verify_model(
        resolved.folder, text_or_ids, target=target_text, backend=backend, ignore=ignored_keys
    )
    # ids have no text
    document = verify_document(resolved, text_of_model if ids is None else "", result)
    write_documents([document], output, environment, view)
    if not result.is_within_limits:
        raise VerdictError(
            "{resolved} differs from transformers: {worst:.1e} in float64, {ratio:.2g} times its"
            " distance in float32",
            expected="at most {limit:.0e} and {most_ratio:g} times",
            resolved=resolved.name,
            worst=result.worst,
            ratio=result.ratio,
            limit=LIMIT,
            most_ratio=RATIO,
        )


def _text_of(environment: Environment, text: str) -> str:
    """The text of an argument: what standard input holds for `-`, else the argument itself."""
    return request.one_text(environment, TextOptions(text=text)).text


def _place_note(location: ModelLocation) -> str:
    """The sentence that says where a model is that was asked for, and whether it was fetched."""
    from attncli.language import message

    match location.source:
        case "hub":
            note = message(
                "{name} is fetched; it is in {folder}", name=location.name, folder=location.folder
            )
        case "cache":
            note = message(
                "nothing to fetch: {name} is in the hub's cache, {folder}",
                name=location.name,
                folder=location.folder,
            )
        case "package":
            note = message(
                "nothing to fetch: {name} is installed, {folder}",
                name=location.name,
                folder=location.folder,
            )
        case "folder":
            note = message("nothing to fetch: {name} is on this machine", name=location.name)
        case _:
            assert_never(location.source)
    return note


NEAREST = "--model "
"""The beginning of an error's hint that names the nearest alias, as `--model minilm`."""
WITHOUT_MODEL = {
    "unset HF_HUB_OFFLINE, or --model FOLDER": "unset HF_HUB_OFFLINE",
    "attn models list, or --model FOLDER": "attn models list",
}
"""Hints of errors that speak of `--model`, and what is left of each without that option."""


@contextmanager
def _nearest_name_as(command: str) -> Iterator[None]:
    """A context in which the hints of errors about a model speak of this command, which takes the
    model as an argument and has no `--model`: `--model minilm` becomes `attn models show minilm`.

    command: the command's own words, such as "attn models show".
    """
    from attncli.errors import InputError

    try:
        yield
    except InputError as error:
        hint = str(error.hint)
        if hint in WITHOUT_MODEL:
            hint = WITHOUT_MODEL[hint]
        elif hint.startswith(NEAREST):
            hint = f"{command} {hint.removeprefix(NEAREST)}"
        else:
            raise
        raise InputError(
            error.what, where=error.where, expected=error.expected, hint=hint
        ) from error


def _locate(environment: Environment, name: str, accept: Callable[[Path], object]) -> ModelLocation:
    """Find a model, and fetch it whole where it is on the hub alone.

    name: an alias, a folder, a file, or an id on the hub.
    accept: called before weights are fetched with the folder that holds config.json; raises for a
        model that cannot be used.
    """
    from attncli.cli.progress import downloads
    from attncli.inputs.hub import Fetch, Parts
    from attncli.models.aliases import locate

    with downloads(environment) as on_progress:
        fetch = Fetch(environment.notes, accept, Parts.WHOLE, on_progress)
        return locate(name, variables=environment.variables, fetch=fetch)


def _estimate(
    described: ModelDescription, text: str, layer: list[str] | None, dtype: str
) -> CostEstimate:
    """The estimated cost of running a text through a model.

    layer: the values of `--layer`; None for all layers.
    dtype: the type of the results.

    Raises InputError for a model without a vocabulary, and for a text that is too long for it.
    """
    from attncli.errors import InputError
    from attncli.features.run.compute import RunRequest, cost_of, with_next_token
    from attncli.models.estimate import compute_dtype, stored_sizes, with_held_weights
    from attncli.models.load import tokenizer_of
    from attncli.models.run import LONG, check_length, rows_for
    from attncli.models.transformers_model import held_bytes

    checkpoint = described.checkpoint
    spec = described.spec
    if checkpoint.tokenizer_path is None:
        raise InputError(
            "this model has no vocabulary to count the text's tokens with",
            where=str(described.location.folder),
        )
    count = len(tokenizer_of(checkpoint).encode(text))
    check_length(spec, count)
    layers = request.numbers(layer, "layer", len(spec.blocks))
    rows = None
    if count > LONG:
        rows = rows_for(spec, count)
    # `attn run` shows matrices of one layer, or of those that are named, of a text that is not long
    has_few_layers = layers is not EVERY or len(spec.blocks) == 1
    run = RunRequest(layers, matrices=rows is None and has_few_layers)

    # a family that transformers runs: all weights are in memory
    if described.foreign:
        # by the headers of the weight files or, where there are none, by the number of parameters
        resident = held_bytes(checkpoint, dtype) or described.parameters * ITEM[dtype]
        cost = with_next_token(
            cost_of(spec, count, run, dtype=dtype, compute_dtype=dtype, rows=rows),
            spec,
            layers,
            dtype,
        )
        stored = sum(info.bytes for info in checkpoint.names().values())
        return with_held_weights(replace(cost, bytes_read=stored), resident)

    # a native one: layer by layer
    computing_dtype = compute_dtype(spec, count, dtype)
    sizes = None
    if described.binding is not None:
        sizes = stored_sizes(checkpoint.names(), described.binding, spec.head)
        # a checkpoint saved without its output matrix predicts no next token
        if not sizes.head:
            spec = replace(spec, head=None)
    cost = cost_of(
        spec,
        count,
        run,
        dtype=dtype,
        compute_dtype=computing_dtype,
        rows=rows,
        stored_sizes=sizes,
    )
    return with_next_token(cost, spec, layers, dtype, sizes)


list_.__name__ = "list"
models_app = command_app(
    list_,
    show,
    fetch,
    verify,
    help="""Known families, aliases and cached models; what one does; parity with transformers.

    attn models show minilm --estimate "The animal didn't cross the street"
    """,
)
