"""`attn ablate`: what changes when a head, or a link, is taken away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import completion, effect_options, page_output, request
from attncli.cli import declarations as the
from attncli.cli import delivery as answer
from attncli.cli.effect_options import MeasureOptions
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
    meant,
    option,
    without,
)
from attncli.cli.output import Environment
from attncli.cli.page_output import PageOptions
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.analysis.documents.ablate import AblateDocument
    from attncli.analysis.documents.effects import Measure
    from attncli.analysis.effects.changes import By, Link
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
    start: Annotated[str | None, meant(the.FROM, help="Cut a link: the token that looks.")] = None
    end: Annotated[str | None, meant(the.TO, help="Cut a link: the token that is looked at.")] = None
    cross: Annotated[
        bool,
        option("--cross", help="The link is to the text that --source gives: --to is a token of that.", panel=TEXT),
    ] = False
    unknown: Annotated[bool, the.UNKNOWN] = False
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
    model: Annotated[ModelOptions, meaning(num_heads=the.EIGHT_HEADS)],
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: Annotated[OutputOptions, without("precision", "scale_colors", "max_output")],
    page: PageOptions,
    removal: RemovalOptions,
    measured: MeasureOptions,
) -> None:
    """Take heads away, one at a time, or cut a link, and see what changes at the end of the model.

    attn ablate "The animal didn't cross the street because it was too tired" --query it

    attn ablate --model minilm "The animal was too tired, so it slept" --from it --to animal

    attn ablate --model minilm "The animal was too tired, so it slept" --query it --head L5H11,L3H1

    attn ablate --model minilm --lines --file texts.txt --json -o effects.json
    """

    environment: Environment = ctx.obj
    how = answer.check(output, environment, "ablate", written={"--html": page.html}, heeded=("top",))
    page_output.check(page, lines=text.lines)
    check(removal)
    names = effect_options.measures(measured)
    loaded = request.model(environment, model, attention, compute, tokenizer=text.tokenizer, heads=the.EIGHT)
    by = _by(environment, loaded, removal)

    if text.lines and "baseline" in environment.given and removal.baseline != "none":
        raise UsageError(
            "--baseline draws random changes for one text, and --lines gives several", expected="one or the other"
        )
    over = text.lines and not output.ndjson and output.svg is None

    def documents() -> Iterator[AblateDocument]:
        single = (output.json and not over) or output.svg is not None or page.html is not None
        for found in request.texts(environment, text, single=single):
            with request.told_where(found):
                asked = (output, removal, measured, names, by, over)
                document = _document(environment, loaded, found, model, compute, *asked)
                if output.svg is not None:
                    answer.draw(document, output)
                if page.html is not None:
                    _write_page(loaded, found, document, page, how.lang)
            yield document

    if not over:
        answer.give(documents(), output, environment, how)
        return
    from attncli.analysis.effects.texts import effects_document

    link = None if removal.start is None or removal.end is None else (removal.start, removal.end)
    place = measured.query or (link[0] if link is not None else None) or usual_place(loaded)
    document = effects_document(list(documents()), place, link)
    answer.give([document], output, environment, how)


def usual_place(model: Model) -> str:
    """Where a text is measured if nothing is said."""
    from attncli.analysis.effects.places import reads_on

    return "last" if reads_on(model.spec) else "mean"


def _write_page(model: Model, text: Text, document: AblateDocument, page: PageOptions, lang: str) -> None:
    from attncli.analysis.records.run import run_record
    from attncli.render.page.contents import Page
    from attncli.render.page.of_document import effects_of, start_of

    record = run_record(model, text.text, request.tokens_of(model, text))
    effects, start = effects_of(document), dict(start_of(document))
    if not effects:
        del start["view"]
    made = Page(text.text, [record], None, effects, start, lang, page.budget, option=page_output.BUDGET)
    page_output.write(page, made)


def check(asked: RemovalOptions) -> None:
    """Raise UsageError for options that contradict each other."""
    if asked.by not in WAYS:
        raise UsageError(f"--by is {asked.by!r}", expected=", ".join(WAYS))
    if asked.baseline not in BASELINES:
        raise UsageError(f"--baseline is {asked.baseline!r}", expected=", ".join(BASELINES))
    if (asked.start is None) != (asked.end is None):
        raise UsageError("a link has two ends", expected="--from TOK and --to TOK", hint="--from it --to animal")
    if asked.cross and asked.start is None:
        raise UsageError("--cross is about a link, and none is cut", expected="--from TOK and --to TOK as well")
    if asked.start is not None and asked.by != "zero":
        raise UsageError(f"--by {asked.by} takes heads away, and --from --to cut a link", expected="one or the other")
    if asked.reference is not None and asked.reference_file is not None:
        raise UsageError("--reference and --reference-file contradict each other", expected="one of them")
    if asked.reference is not None and asked.by == "zero":
        raise UsageError("--reference is for another way of taking away", expected="--by mean or --by resample")
    if asked.reference_file is not None and asked.by != "mean":
        raise UsageError("--reference-file gives a mean", expected="--by mean")
    if asked.by == "resample" and asked.reference is None:
        raise UsageError("--by resample takes from another text", expected="--reference TEXT")


def _by(environment: Environment, model: Model, asked: RemovalOptions) -> By:
    """How a head is taken away; other texts are run here, once."""
    from attncli.analysis.effects.ablation import ready, refuse_foreign
    from attncli.analysis.effects.changes import ByMean, ByZero, means_of, resampled

    refuse_foreign(model)
    if asked.by == "zero":
        return ByZero()
    if asked.by == "resample":
        assert asked.reference is not None
        return resampled(ready(model, model.encode(asked.reference), []))
    if asked.reference_file is not None:
        from attncli.cli.progress import foretell_waiting
        from attncli.inputs.text import read_texts

        foretell_waiting(environment, asked.reference_file)
        lines = read_texts(
            None,
            file=asked.reference_file,
            lines=True,
            ids=None,
            stdin=environment.stdin,
            stdin_is_terminal=environment.stdin_is_terminal,
            sample="",
        )
        return ByMean(means_of(ready(model, model.encode(line.text), []) for line in lines))
    if asked.reference is not None:
        return ByMean(means_of([ready(model, model.encode(asked.reference), [])]))
    return ByMean()


def _document(
    environment: Environment,
    model: Model,
    text: Text,
    which: ModelOptions,
    compute: ComputeOptions,
    output: OutputOptions,
    removal: RemovalOptions,
    measured: MeasureOptions,
    names: tuple[Measure, ...],
    by: By,
    over: bool,
) -> AblateDocument:
    from attncli.analysis.ablate import ablate_document
    from attncli.analysis.effects.ablation import Removal
    from attncli.analysis.effects.measures import Asked
    from attncli.analysis.effects.places import most_heads
    from attncli.cli.progress import progress

    tokens = request.tokens_of(model, text)
    link = _link(environment, model, tokens, removal)
    query = (
        None
        if measured.query is None
        else effect_options.span(environment, tokens, measured.query, unknown=removal.unknown)
    )
    asked = Asked.of(
        model,
        tokens,
        names,
        query=query,
        usual=None if link is None else link.queries,
        target=measured.target,
        every=measured.every,
    )
    wanted = Removal(
        effect_options.chosen(model.spec, which), by, link, removal.together,
        "none" if removal.baseline == "none" or over else "all" if removal.baseline == "all" else "top", output.top,
    )  # fmt: skip
    if not removal.together:
        compared = {"none": 0, "all": len(model.spec.blocks) * most_heads(model.spec), "top": output.top}
        effect_options.foretell(
            environment, model, len(tokens), wanted.chosen, compute,
            predicts=asked.predicts, compared=compared[wanted.baseline],
        )  # fmt: skip
    with progress(environment, "taking heads away") as tell:
        return ablate_document(
            model, text.text, tokens, wanted, asked, memory=effect_options.memory(compute), told=tell
        )


def _link(environment: Environment, model: Model, tokens: list[Token], asked: RemovalOptions) -> Link | None:
    from attncli.analysis.effects.changes import Link

    if asked.start is None or asked.end is None:
        return None
    queries = effect_options.span(environment, tokens, asked.start, unknown=asked.unknown)
    if not asked.cross:
        return Link(queries, effect_options.span(environment, tokens, asked.end, unknown=asked.unknown))
    if model.memory is None:
        raise UsageError(
            "--cross cuts a link to another text, and none is read", expected="an encoder-decoder, with --source TEXT"
        )
    from attncli.analysis.cross import states

    read = model.source or states(model.memory.shape[-2])
    return Link(queries, effect_options.span(environment, read, asked.end, unknown=asked.unknown), "cross")


app = command_app(ablate)
