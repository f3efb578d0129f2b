"""`attn explore`: a run, or a saved file, walked through full screen."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from attncli.cli import declarations, request
from attncli.cli.border import on_stop_signal
from attncli.cli.declarations import ModelOptions, OutputOptions, RunSetup, TextOptions
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import meaning, only, redeclare, without
from attncli.cli.output import validate_options
from attncli.cli.progress import silent
from attncli.cli.request import layers_and_heads
from attncli.errors import InputError, UsageError
from attncli.inputs.token import SAMPLE
from attncli.language import message

if TYPE_CHECKING:
    from attncli.documents import Document
    from attncli.explore.loaded_run import Source
    from attncli.models.model import Model

FILES = (".json", ".safetensors", ".npz")
"""What a text is taken for the name of a file by, where it has no blank."""


def explore(
    ctx: typer.Context,
    text: Annotated[TextOptions, without("lines")],
    setup: Annotated[RunSetup, meaning(num_heads=declarations.EIGHT_HEADS)],
    output: Annotated[OutputOptions, only("color", "ascii", "lang", "quiet", "debug")],
    query: Annotated[str | None, declarations.QUERY] = None,
    circuit: Annotated[
        Path | None,
        redeclare(declarations.CIRCUIT, help="Only the heads of this circuit."),
    ] = None,
    rules_of: Annotated[Path | None, declarations.RULES_OF] = None,
) -> None:
    """Walk through heads, words and weights full screen, with the arrow keys; ? says what each key
    does.

    attn explore --model minilm "The animal was too tired, so it slept" --query it

    attn run "humpty dumpty sat on" --json -o run.json && attn explore run.json

    attn circuit --model smollm2 --pairs indirect-object --json -o circuit.json && attn explore circuit.json

    attn heads --rules --model smollm2 --json -o rules.json && attn explore rules.json
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment)
    _refuse_elsewhere(environment)
    from attncli.explore.explorer import Explorer, Terminal, release_terminal, take_keyboard

    source, about = _open_source(environment, text, setup, query, circuit, rules_of)
    if not take_keyboard():
        what = message("attn explore hears keys, and there is no terminal to hear them from")
        raise UsageError(what, expected="a terminal as standard input")

    # notes and bars would be written across the screen
    quiet = environment.without_notes()
    environment.layers = silent

    def load(name: str) -> Model:
        """Load the model of this name without notes or bars."""
        return request.model(quiet, RunSetup(ModelOptions(model=name), compute=setup.compute))

    app = Explorer(
        source, view, about=about, models=lambda: _models(quiet), load=load, driver=Terminal
    )
    with on_stop_signal(app.leave_by_signal):
        app.run()
    release_terminal()  # or, where the terminal has gone, Python's own end would fail
    if app.signal_number is not None:
        # an interrupted command ends with the exit code of this signal
        environment.stop_signal = app.signal_number
        raise KeyboardInterrupt
    if app.failure is not None:
        raise app.failure


def _models(environment: Environment) -> list[str]:
    """The names of the models on this machine: aliases, and what the hub's cache holds whole."""
    from attncli.features.models.compute import models_document

    document = models_document(environment.variables)
    aliases = [alias for alias in document.aliases if alias.location is not None]
    hubs_of_aliases = {alias.hub for alias in aliases}
    names = [alias.name for alias in aliases]
    for model in document.cached:
        # a model that has an alias is listed by that
        if not model.missing and model.name not in hubs_of_aliases:
            names.append(model.name)
    return names


def _refuse_elsewhere(environment: Environment) -> None:
    """Raise UsageError where standard output is no terminal that can be drawn on."""
    if not environment.stdout_is_terminal:
        what = message("attn explore fills a terminal's screen, and standard output is none")
    elif environment.variables.get("TERM") == "dumb":
        what = message(
            "attn explore fills a terminal's screen, and TERM=dumb says that this one has none"
        )
    else:
        return
    raise UsageError(
        what,
        expected="a terminal",
        hint="attn run … for the same as text, attn run … --html page.html for a browser",
    )


def _open_source(
    environment: Environment,
    text: TextOptions,
    setup: RunSetup,
    query: str | None,
    circuit: Path | None,
    rules_of: Path | None,
) -> tuple[Source, int | None]:
    """(source, position of the word to begin with): what the options name; None for the position
    where no word was named.

    A saved circuit in place of a text stands for its model over the first text of its pairs, saved
    rules for their model over the sample sentence; any other file is looked at without a model.
    """
    from attncli.features.circuit.document import CircuitDocument
    from attncli.features.rules.document import RulesDocument

    typed = text.text or ""
    is_file_name = typed.lower().endswith(FILES) and not any(map(str.isspace, typed))
    if is_file_name:
        file = Path(typed)
        document = _document_in(file)
        if rules_of is not None and not isinstance(document, CircuitDocument):
            raise UsageError(
                "--rules-of tells of the heads of a run, and {file} is saved",
                expected="a text, or a saved circuit, whose model runs",
                file=str(file),
            )
        if isinstance(document, CircuitDocument):
            if circuit is not None:
                raise UsageError(
                    "{file} is a saved circuit, and --circuit names another: {other}",
                    expected="one of the two, or a text beside --circuit",
                    file=str(file),
                    other=str(circuit),
                )
            circuit = file
            text, setup = _text_of_circuit(file, text, setup)
        elif isinstance(document, RulesDocument):
            # rules beside --rules-of were refused above
            rules_of = file
            text = replace(text, text=SAMPLE)
            setup = _setup_of(document.model.name, setup)
        elif circuit is not None:
            raise UsageError(
                "--circuit chooses the heads of a run, and {file} is saved",
                expected="a text, or a saved circuit, whose model runs",
                file=str(file),
            )
        else:
            return _saved_source(file, document), None
    return _live_source(environment, text, setup, query, circuit, rules_of)


def _document_in(file: Path) -> Document:
    """The document that a file holds. Raises InputError for one that cannot be read."""
    from attncli.features.view.command import open_document

    return open_document(file)


def _setup_of(name: str | None, setup: RunSetup) -> RunSetup:
    """The setup with the model of this name, unless options name another."""
    if setup.model.model is not None:
        return setup
    return replace(setup, model=replace(setup.model, model=name))


def _text_of_circuit(
    file: Path, text: TextOptions, setup: RunSetup
) -> tuple[TextOptions, RunSetup]:
    """The options with the text and the model that a circuit's file names: the first clean text of
    its pairs, and its model unless options name another. Raises InputError where the pairs cannot
    be read."""
    from attncli.features.effects.circuit_heads import read_circuit
    from attncli.inputs.pairs import read_pairs

    document = read_circuit(file)
    try:
        pairs = read_pairs(document.pairs.name, count=1).pairs
    except InputError as error:
        error.hint = f"attn explore TEXT --circuit {file.name}"
        raise
    return replace(text, text=pairs[0].clean), _setup_of(document.model.name, setup)


def _live_source(
    environment: Environment,
    text: TextOptions,
    setup: RunSetup,
    query: str | None,
    circuit: Path | None,
    rules_of: Path | None,
) -> tuple[Source, int | None]:
    """(source, position of the word to begin with): the model and the text that options name, with
    the heads of a circuit alone where one is named; None for the position where `--query` is
    missing. Raises UsageError for heads or layers named beside a circuit."""
    if circuit is not None and (setup.model.layer or setup.model.head):
        raise UsageError(
            "a circuit names the heads, and so does --layer or --head", expected="one or the other"
        )

    from attncli.explore.loaded_run import LiveSource
    from attncli.features.run.compute import RunRequest
    from attncli.models.run import rows_for

    # without a checkpoint, a layer of eight heads, unless `--num-heads` says otherwise
    loaded_model = request.model(
        environment, setup, tokenizer=text.tokenizer, heads=declarations.SEEDED_HEADS
    )
    source_text = request.one_text(environment, text)
    with request.errors_located_in(source_text):
        tokens = request.tokens_of(loaded_model, source_text)
    # a text that is too long for the memory even of the smallest run is refused before it begins
    smallest_run = RunRequest(matrices=False)
    request.refuse_run(
        loaded_model,
        len(tokens),
        smallest_run,
        setup.compute,
        "a shorter text",
        rows=rows_for(loaded_model.spec, len(tokens)),
    )
    layers, heads = layers_and_heads(loaded_model, setup.model)
    source = replace(
        LiveSource.of(loaded_model, source_text.text, tokens), layers=layers, heads=heads
    )
    if circuit is not None:
        from attncli.features.effects.circuit_heads import heads_of_circuit, read_circuit

        places = heads_of_circuit(read_circuit(circuit), loaded_model, str(circuit))
        source = source.with_places(places)
    if rules_of is not None:
        from attncli.features.rules.saved_rules import mixtures_of, read_rules

        rules = mixtures_of(read_rules(rules_of), loaded_model, str(rules_of))
        source = replace(source, rules=rules)
    if query is None:
        index = None
    else:
        index = request.query_index(environment, tokens, query)
    return source, index


def _saved_source(file: Path, document: Document | None = None) -> Source:
    """The source of a file with a saved document or tensors, as `attn view` opens it.

    document: what the file holds; None to read it.
    """
    from attncli.explore.loaded_run import SavedSource
    from attncli.features.run.document import RunDocument
    from attncli.features.view.command import TENSOR_FILES, open_document, record_of

    if document is None:
        document = open_document(file)
    if file.suffix.lower() in TENSOR_FILES and isinstance(document, RunDocument):
        from attncli.features.view.compute import saved_derivation
        from attncli.inputs.tensors import read_tensors

        # a file of tensors may hold queries and keys, from which weights can be derived
        tensors = read_tensors(file, allow_nonfinite=True)  # scores of hidden keys are −∞
        return SavedSource(
            file.name,
            document,
            partial(record_of, document, file),
            derive=partial(saved_derivation, tensors, document),
        )
    record_of(document, file)  # what is not about heads is refused before the screen is filled
    return SavedSource(file.name, document, partial(record_of, document, file))


explore_app = command_app(
    explore, essentials="--model --weights --file --circuit --layer --head --mask --lang --ascii"
)
