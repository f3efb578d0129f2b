"""`attn ablate`: what changes when a head, or a link, is taken away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import completion, declarations, request
from attncli.cli.environment import Environment
from attncli.cli.options import (
    MODEL,
    OUTPUT,
    TEXT,
    AttentionOptions,
    ComputeOptions,
    ModelOptions,
    OutputOptions,
    TextOptions,
    command_app,
    meaning,
    option,
    redeclare,
    without,
)
from attncli.cli.output import (
    PAGE_BUDGET,
    PageOptions,
    validate_options,
    validate_page,
    write_documents,
    write_figure,
    write_page,
)
from attncli.errors import UsageError
from attncli.features.effects import effect_options
from attncli.features.effects.effect_options import MeasureOptions

if TYPE_CHECKING:
    from attncli.features.ablate.document import AblateDocument
    from attncli.features.effects.changes import By, CutLink
    from attncli.features.effects.document import Measure
    from attncli.inputs.text import Text
    from attncli.inputs.token import Token
    from attncli.models.model import Model

BASELINES = ("top", "all", "none")
WAYS = ("zero", "mean", "resample")


@dataclass(frozen=True)
class RemovalOptions:
    """What is taken away."""

    by: Annotated[
        str,
        option(
            "--by",
            help="What stands for a head: zero, mean, resample.",
            panel=MODEL,
            metavar="zero|mean|resample",
            complete=completion.words("zero", "mean", "resample"),
        ),
    ] = "zero"
    reference: Annotated[
        str | None,
        option(
            "--reference", help="With --by mean or resample: the text that it comes from.", panel=MODEL, metavar="TEXT"
        ),
    ] = None
    reference_file: Annotated[
        Path | None, option("--reference-file", help="With --by mean: texts, one a line.", panel=MODEL, metavar="FILE")
    ] = None
    together: Annotated[
        bool, option("--together", help="Take the chosen heads away at once, not one at a time.", panel=MODEL)
    ] = False
    start: Annotated[str | None, redeclare(declarations.FROM, help="Cut a link: the token that looks.")] = None
    end: Annotated[str | None, redeclare(declarations.TO, help="Cut a link: the token that is looked at.")] = None
    cross: Annotated[
        bool,
        option("--cross", help="The link is to the text that --source gives: --to is a token of that.", panel=TEXT),
    ] = False
    unknown: Annotated[bool, declarations.UNKNOWN] = False
    baseline: Annotated[
        str,
        option(
            "--baseline",
            help="Compare with random changes of the same size: the top rows, all, none.",
            panel=OUTPUT,
            metavar="top|all|none",
        ),
    ] = "top"


def ablate(
    ctx: typer.Context,
    text: TextOptions,
    model: Annotated[ModelOptions, meaning(num_heads=declarations.EIGHT_HEADS)],
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: Annotated[OutputOptions, without("precision", "scale_colors", "max_output")],
    page: PageOptions,
    removal: RemovalOptions,
    measure_options: MeasureOptions,
) -> None:
    """Take heads away, one at a time, or cut a link, and see what changes at the end of the model.

    attn ablate "The animal didn't cross the street because it was too tired" --query it

    attn ablate --model minilm "The animal was too tired, so it slept" --from it --to animal

    attn ablate --model minilm "The animal was too tired, so it slept" --query it --head L5H11,L3H1

    attn ablate --model minilm --lines --file texts.txt --json -o effects.json
    """

    environment: Environment = ctx.obj
    view = validate_options(output, environment, "ablate", files={"--html": page.html}, document_options=("top",))
    validate_page(page, lines=text.lines)
    check(removal)
    names = effect_options.measures(measure_options)
    loaded_model = request.model(
        environment, model, attention, compute, tokenizer=text.tokenizer, heads=declarations.EIGHT
    )
    by = _by(environment, loaded_model, removal)

    if text.lines and "baseline" in environment.explicit_options and removal.baseline != "none":
        raise UsageError(
            "--baseline draws random changes for one text, and --lines gives several", expected="one or the other"
        )
    over = text.lines and not output.ndjson and output.svg is None

    def documents() -> Iterator[AblateDocument]:
        single = (output.json and not over) or output.svg is not None or page.html is not None
        for source_text in request.texts(environment, text, single=single):
            with request.errors_located_in(source_text):
                settings = (output, removal, measure_options, names, by, over)
                document = _document(environment, loaded_model, source_text, model, compute, *settings)
                if output.svg is not None:
                    write_figure(document, output)
                if page.html is not None:
                    _write_page(loaded_model, source_text, document, page, view.lang)
            yield document

    if not over:
        write_documents(documents(), output, environment, view)
        return
    from attncli.features.effects.texts import effects_document

    link = None if removal.start is None or removal.end is None else (removal.start, removal.end)
    place = measure_options.query or (link[0] if link is not None else None) or usual_place(loaded_model)
    document = effects_document(list(documents()), place, link)
    write_documents([document], output, environment, view)


def usual_place(model: Model) -> str:
    """Where a text is measured if nothing is said."""
    from attncli.features.effects.places import reads_on

    return "last" if reads_on(model.spec) else "mean"


def _write_page(model: Model, text: Text, document: AblateDocument, page: PageOptions, lang: str) -> None:
    from attncli.draw.page.contents import Page
    from attncli.draw.page.document_page import effects_of, start_of
    from attncli.measure.run_record import run_record

    record = run_record(model, text.text, request.tokens_of(model, text))
    effects, start = effects_of(document), dict(start_of(document))
    if not effects:
        del start["view"]
    content = Page(text.text, [record], None, effects, start, lang, page.budget, option=PAGE_BUDGET)
    write_page(page, content)


def check(removal: RemovalOptions) -> None:
    """Raise UsageError for options that contradict each other."""
    if removal.by not in WAYS:
        raise UsageError(f"--by is {removal.by!r}", expected=", ".join(WAYS))
    if removal.baseline not in BASELINES:
        raise UsageError(f"--baseline is {removal.baseline!r}", expected=", ".join(BASELINES))
    if (removal.start is None) != (removal.end is None):
        raise UsageError("a link has two ends", expected="--from TOK and --to TOK", hint="--from it --to animal")
    if removal.cross and removal.start is None:
        raise UsageError("--cross is about a link, and none is cut", expected="--from TOK and --to TOK as well")
    if removal.start is not None and removal.by != "zero":
        raise UsageError(f"--by {removal.by} takes heads away, and --from --to cut a link", expected="one or the other")
    if removal.reference is not None and removal.reference_file is not None:
        raise UsageError("--reference and --reference-file contradict each other", expected="one of them")
    if removal.reference is not None and removal.by == "zero":
        raise UsageError("--reference is for another way of taking away", expected="--by mean or --by resample")
    if removal.reference_file is not None and removal.by != "mean":
        raise UsageError("--reference-file gives a mean", expected="--by mean")
    if removal.by == "resample" and removal.reference is None:
        raise UsageError("--by resample takes from another text", expected="--reference TEXT")


def _by(environment: Environment, model: Model, removal: RemovalOptions) -> By:
    """How a head is taken away; other texts are run here, once."""
    from attncli.features.effects.ablation import choose_backend, refuse_foreign
    from attncli.features.effects.changes import ByMean, ByZero, means_of, resample_from

    refuse_foreign(model)
    if removal.by == "zero":
        return ByZero()
    if removal.by == "resample":
        assert removal.reference is not None
        return resample_from(choose_backend(model, model.encode(removal.reference), []))
    if removal.reference_file is not None:
        from attncli.cli.progress import foretell_waiting
        from attncli.inputs.text import read_texts

        foretell_waiting(environment, removal.reference_file)
        lines = read_texts(
            None,
            file=removal.reference_file,
            lines=True,
            ids=None,
            stdin=environment.stdin,
            stdin_is_terminal=environment.stdin_is_terminal,
            sample="",
        )
        return ByMean(means_of(choose_backend(model, model.encode(line.text), []) for line in lines))
    if removal.reference is not None:
        return ByMean(means_of([choose_backend(model, model.encode(removal.reference), [])]))
    return ByMean()


def _document(
    environment: Environment,
    model: Model,
    text: Text,
    which: ModelOptions,
    compute: ComputeOptions,
    output: OutputOptions,
    removal: RemovalOptions,
    measure_options: MeasureOptions,
    names: tuple[Measure, ...],
    by: By,
    over: bool,
) -> AblateDocument:
    from attncli.cli.progress import progress
    from attncli.features.ablate.compute import ablate_document
    from attncli.features.effects.ablation import Removal
    from attncli.features.effects.measures import MeasureRequest
    from attncli.features.effects.places import most_heads

    tokens = request.tokens_of(model, text)
    link = _link(environment, model, tokens, removal)
    query = (
        None
        if measure_options.query is None
        else effect_options.span(environment, tokens, measure_options.query, unknown=removal.unknown)
    )
    measure_request = MeasureRequest.of(
        model,
        tokens,
        names,
        query=query,
        usual=None if link is None else link.queries,
        target=measure_options.target,
        every=measure_options.every,
    )
    removal_request = Removal(
        effect_options.choose_heads(model.spec, which), by, link, removal.together,
        "none" if removal.baseline == "none" or over else "all" if removal.baseline == "all" else "top", output.top,
    )  # fmt: skip
    if not removal.together:
        compared = {"none": 0, "all": len(model.spec.blocks) * most_heads(model.spec), "top": output.top}
        effect_options.foretell(
            environment, model, len(tokens), removal_request.selection, compute,
            predicts=measure_request.predicts, compared=compared[removal_request.baseline],
        )  # fmt: skip
    with progress(environment, "taking heads away") as on_progress:
        return ablate_document(
            model,
            text.text,
            tokens,
            removal_request,
            measure_request,
            memory=effect_options.memory(compute),
            progress=on_progress,
        )


def _link(environment: Environment, model: Model, tokens: list[Token], removal: RemovalOptions) -> CutLink | None:
    from attncli.features.effects.changes import CutLink

    if removal.start is None or removal.end is None:
        return None
    queries = effect_options.span(environment, tokens, removal.start, unknown=removal.unknown)
    if not removal.cross:
        return CutLink(queries, effect_options.span(environment, tokens, removal.end, unknown=removal.unknown))
    if model.memory is None:
        raise UsageError(
            "--cross cuts a link to another text, and none is read", expected="an encoder-decoder, with --source TEXT"
        )
    from attncli.features.cross.compute import states

    source_states = model.source or states(model.memory.shape[-2])
    return CutLink(
        queries, effect_options.span(environment, source_states, removal.end, unknown=removal.unknown), "cross"
    )


app = command_app(ablate)
