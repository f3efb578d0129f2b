"""`attn ablate`, `attn logits`, `attn patch`: which heads matter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.arrays.backend import numbers_of
from attncli.cli import completion, declarations, request
from attncli.cli.environment import Environment
from attncli.cli.options import (
    DOCUMENT,
    MODEL,
    OUTPUT,
    RUN,
    TEXT,
    AttentionOptions,
    ComputeOptions,
    ModelOptions,
    OutputOptions,
    TextOptions,
    command_app,
    meaning,
    only,
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
    write_with_figure,
)
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.features.effects.changes import By, CutLink
    from attncli.features.effects.document import AblateDocument, LogitsDocument, Measure
    from attncli.features.effects.places import HeadSelection
    from attncli.inputs.token import Text, Token
    from attncli.mechanism.spec import Spec
    from attncli.models.model import Model

VERSUS = option(
    "--versus", help="Take this token's logit away from the target's.", panel=TEXT, about=RUN, metavar="TOK"
)
QUERY = redeclare(
    declarations.QUERY,
    help="Where to measure: it, the:2, #7 or a span. [default: decoders the last token; encoders the mean of all]",
    panel=TEXT,
)


@dataclass(frozen=True)
class MeasureOptions:
    """What is measured."""

    measure: Annotated[
        str | None,
        option(
            "--measure",
            help="vector, logprob, kl; several with commas. [default: vector]",
            panel=TEXT,
            about=RUN,
            metavar="NAMES",
            complete=completion.several("vector", "logprob", "kl"),
        ),
    ] = None
    query: Annotated[str | None, QUERY] = None
    target: Annotated[str | None, declarations.TARGET] = None
    every: Annotated[
        bool, option("--every", help="With --measure logprob: the mean over all positions.", panel=TEXT, about=RUN)
    ] = False


def measures(options: MeasureOptions) -> tuple[Measure, ...]:
    """The measures named, each once. Raises UsageError."""
    from attncli.features.effects.measures import MEASURES

    names = [name.strip() for name in (options.measure or "vector").split(",") if name.strip()]
    chosen_measures = tuple(measure for name in names for measure in MEASURES if measure == name)
    if len(chosen_measures) != len(names) or not names:
        wrong = next((name for name in names if name not in MEASURES), options.measure)
        raise UsageError(f"--measure {wrong!r} is no measure", expected=", ".join(MEASURES))
    if "logprob" not in chosen_measures:
        if options.every:
            raise UsageError("--every is about log-probabilities", expected="--measure logprob as well")
        if options.target is not None:
            raise UsageError("--target is about log-probabilities", expected="--measure logprob as well")
    if options.every and options.target is not None:
        raise UsageError("--every measures each token that follows", expected="no --target")
    if options.every and options.query is not None and "vector" not in chosen_measures:
        raise UsageError("--every measures at every token, and --query names one", expected="one or the other")
    return tuple(dict.fromkeys(chosen_measures))


def choose_heads(spec: Spec, model: ModelOptions) -> HeadSelection:
    """The heads that `--layer` and `--head` name, all without them; `--head L5H11,L3H1` names each with its layer.

    Raises UsageError for what is neither, InputError for a head that is not there.
    """
    from attncli.features.effects.places import HeadSelection, most_heads

    words = request.comma_parts(model.head)
    if request.are_head_pairs(words):
        return HeadSelection((), (), request.head_pairs(spec, words, model.layer))
    layers = request.numbers(model.layer, "layer", len(spec.blocks))
    heads = request.numbers(model.head, "head", most_heads(spec))
    return HeadSelection(numbers_of(layers, len(spec.blocks)), numbers_of(heads, most_heads(spec)))


def span(
    environment: Environment, tokens: Sequence[Token], reference: str, *, unknown: bool = False
) -> tuple[int, ...]:
    """The positions that a reference names. Raises InputError for tokens that the model does not know, unless `unknown`
    allows them."""
    first, stop = request.query_span(environment, tokens, reference, unknown=unknown)
    return tuple(range(first, stop))


PATIENCE = 3.0
"""Seconds above which it is said before it starts what a command will take."""


def foretell(
    environment: Environment,
    model: Model,
    count: int,
    heads: HeadSelection,
    compute: ComputeOptions,
    *,
    predicts: bool,
    compared: int = 0,
) -> None:
    """Say what taking these heads away will take, where that is long. predicts: whether next tokens are measured.
    compared: how many of them, at most, are compared with random changes."""
    from attncli.draw.numbers import size_words
    from attncli.features.effects.ablation import DRAWS
    from attncli.features.effects.places import places
    from attncli.features.effects.sweep import foretell as foretold

    if not model.own_layers:
        return
    chosen_places, dtype = places(model.spec, heads), model.backend.dtype
    expected = foretold(
        model.spec,
        count,
        chosen_places,
        dtype,
        memory(compute),
        predicts=predicts,
        draws=min(compared, len(chosen_places)) * DRAWS,
    )
    if expected.seconds > PATIENCE:
        environment.note(
            f"{expected.branches} heads, {count} tokens: about {expected.seconds:.0f} s and "
            f"{size_words(expected.bytes)} of memory"
        )


def memory(compute: ComputeOptions) -> int:
    """Bytes that the command may take: `--max-memory`, or what is free."""
    from attncli.cli.output import parse_size
    from attncli.models.estimate import free_memory

    return free_memory().bytes if compute.max_memory is None else parse_size(compute.max_memory, "--max-memory")


# `attn ablate`: what changes when a head, or a link, is taken away.

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
            about=RUN,
            metavar="zero|mean|resample",
            complete=completion.words("zero", "mean", "resample"),
        ),
    ] = "zero"
    reference: Annotated[
        str | None,
        option(
            "--reference",
            help="With --by mean or resample: the text that it comes from.",
            panel=MODEL,
            about=RUN,
            metavar="TEXT",
        ),
    ] = None
    reference_file: Annotated[
        Path | None,
        option("--reference-file", help="With --by mean: texts, one a line.", panel=MODEL, about=RUN, metavar="FILE"),
    ] = None
    together: Annotated[
        bool,
        option("--together", help="Take the chosen heads away at once, not one at a time.", panel=MODEL, about=RUN),
    ] = False
    start: Annotated[str | None, redeclare(declarations.FROM, help="Cut a link: the token that looks.")] = None
    end: Annotated[str | None, redeclare(declarations.TO, help="Cut a link: the token that is looked at.")] = None
    cross: Annotated[bool, declarations.CROSS] = False
    unknown: Annotated[bool, declarations.UNKNOWN] = False
    baseline: Annotated[
        str,
        option(
            "--baseline",
            help="Compare with random changes of the same size: the top rows, all, none.",
            panel=OUTPUT,
            about=RUN,
            metavar="top|all|none",
        ),
    ] = "top"


def ablate(
    ctx: typer.Context,
    text: TextOptions,
    model: Annotated[ModelOptions, meaning(num_heads=declarations.EIGHT_HEADS)],
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: Annotated[OutputOptions, without("precision", "scale_colors", "max_output"), meaning(top=DOCUMENT)],
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
    view = validate_options(output, environment, "ablate", files={"--html": page.html})
    validate_page(page, lines=text.lines)
    _refuse_contradictions(removal)
    names = measures(measure_options)
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
                document = _ablate_document(environment, loaded_model, source_text, model, compute, *settings)
                if output.svg is not None:
                    write_figure(document, output)
                if page.html is not None:
                    _write_ablate_page(loaded_model, source_text, document, page, view.lang)
            yield document

    if not over:
        write_documents(documents(), output, environment, view)
        return
    from attncli.features.effects.ablation import effects_document

    link = None if removal.start is None or removal.end is None else (removal.start, removal.end)
    place = measure_options.query or (link[0] if link is not None else None) or _usual_place(loaded_model)
    document = effects_document(list(documents()), place, link)
    write_documents([document], output, environment, view)


def _usual_place(model: Model) -> str:
    """Where a text is measured if nothing is said."""
    from attncli.features.effects.places import reads_on

    return "last" if reads_on(model.spec) else "mean"


def _write_ablate_page(model: Model, text: Text, document: AblateDocument, page: PageOptions, lang: str) -> None:
    from attncli.draw.page import Page, effects_of, start_of
    from attncli.measure.run_record import run_record

    record = run_record(model, text.text, request.tokens_of(model, text))
    effects, start = effects_of(document), dict(start_of(document))
    if not effects:
        del start["view"]
    content = Page(text.text, [record], None, effects, start, lang, page.budget, option=PAGE_BUDGET)
    write_page(page, content)


def _refuse_contradictions(removal: RemovalOptions) -> None:
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
        from attncli.inputs.token import read_texts

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


def _ablate_document(
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
    from attncli.features.effects.ablation import Removal, ablate_document
    from attncli.features.effects.measures import MeasureRequest
    from attncli.features.effects.places import most_heads

    tokens = request.tokens_of(model, text)
    link = _cut_link(environment, model, tokens, removal)
    query = (
        None
        if measure_options.query is None
        else span(environment, tokens, measure_options.query, unknown=removal.unknown)
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
        choose_heads(model.spec, which), by, link, removal.together,
        "none" if removal.baseline == "none" or over else "all" if removal.baseline == "all" else "top", output.top,
    )  # fmt: skip
    if not removal.together:
        compared = {"none": 0, "all": len(model.spec.blocks) * most_heads(model.spec), "top": output.top}
        foretell(
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
            memory=memory(compute),
            progress=on_progress,
        )


def _cut_link(environment: Environment, model: Model, tokens: list[Token], removal: RemovalOptions) -> CutLink | None:
    from attncli.features.effects.changes import CutLink

    if removal.start is None or removal.end is None:
        return None
    queries = span(environment, tokens, removal.start, unknown=removal.unknown)
    if not removal.cross:
        return CutLink(queries, span(environment, tokens, removal.end, unknown=removal.unknown))
    if model.memory is None:
        raise UsageError(
            "--cross cuts a link to another text, and none is read", expected="an encoder-decoder, with --source TEXT"
        )
    from attncli.features.cross.compute import states

    source_states = model.source or states(model.memory.shape[-2])
    return CutLink(queries, span(environment, source_states, removal.end, unknown=removal.unknown), "cross")


ablate_app = command_app(ablate)


# `attn logits`: what each part of a model adds to a token's logit.


def logits(
    ctx: typer.Context,
    text: TextOptions,
    model: Annotated[ModelOptions, without("layer", "head"), meaning(num_heads=declarations.EIGHT_HEADS)],
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: Annotated[OutputOptions, without("scale_colors", "max_output")],
    target: Annotated[str | None, declarations.TARGET] = None,
    versus: Annotated[str | None, VERSUS] = None,
    query: Annotated[str | None, QUERY] = None,
    unknown: Annotated[bool, declarations.UNKNOWN] = False,
) -> None:
    """Split the logit of a next token into what the embedding, each head and each feed-forward part add.

    attn logits --model gpt2 "When Mary and John went to the store, John gave a drink to" --target Mary --versus John
    """

    environment: Environment = ctx.obj
    view = validate_options(output, environment, "logits")
    loaded_model = request.model(
        environment, model, attention, compute, tokenizer=text.tokenizer, heads=declarations.EIGHT
    )

    single = output.json or output.svg is not None

    def documents() -> Iterator[LogitsDocument]:
        for source_text in request.texts(environment, text, single=single):
            with request.errors_located_in(source_text):
                yield _logits_document(
                    environment, loaded_model, source_text, compute, (target, versus), query, unknown
                )

    write_with_figure(documents(), output, environment, view, several=text.lines)


def _logits_document(
    environment: Environment,
    model: Model,
    text: Text,
    compute: ComputeOptions,
    tokens_named: tuple[str | None, str | None],
    query: str | None,
    unknown: bool,
) -> LogitsDocument:
    from attncli.features.effects.logit_parts import logits_document
    from attncli.features.effects.measures import target_id
    from attncli.features.effects.sweep import least

    tokens = request.tokens_of(model, text)
    request.refuse_memory(least(model.spec, len(tokens), model.backend.dtype, predicts=True), compute, "a shorter text")
    last = len(tokens) - 1
    index = last if query is None else span(environment, tokens, query, unknown=unknown)[-1]
    target, versus = (None if name is None else target_id(model, name) for name in tokens_named)
    return logits_document(model, text.text, tokens, index, target, versus)


logits_app = command_app(logits)


# `attn patch`: which heads carry the difference between two texts.


def patch(
    ctx: typer.Context,
    text: Annotated[TextOptions, only("tokenizer")],
    model: Annotated[ModelOptions, meaning(num_heads=declarations.EIGHT_HEADS)],
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: Annotated[OutputOptions, without("precision", "scale_colors", "max_output")],
    clean: Annotated[
        str,
        typer.Argument(
            help="The text whose answer is wanted; - for standard input.", show_default=False, metavar="CLEAN"
        ),
    ],
    corrupt: Annotated[
        str,
        typer.Argument(
            help="The other text, of as many tokens; - for standard input.", show_default=False, metavar="CORRUPT"
        ),
    ],
    target: Annotated[
        str | None, redeclare(declarations.TARGET, help="The next token that is measured, or id:N.")
    ] = None,
    versus: Annotated[str | None, VERSUS] = None,
    query: Annotated[str | None, QUERY] = None,
    at: Annotated[
        list[str] | None,
        option("--at", help="Tokens that get the clean text's. [default: all]", panel=TEXT, about=RUN, metavar="TOK"),
    ] = None,
    unknown: Annotated[bool, declarations.UNKNOWN] = False,
) -> None:
    """Run one text with what each head makes of another, one head at a time: which brings the other's answer back.

    attn patch --model minilm "The cat sat on the mat" "The dog sat on the mat" --query sat
    """
    from attncli.cli.progress import progress
    from attncli.features.effects.changes import same_length
    from attncli.features.effects.patching import PatchRequest, patch_document

    environment: Environment = ctx.obj
    view = validate_options(output, environment, "patch")
    if versus is not None and target is None:
        raise UsageError("--versus is taken from a target", expected="--target TOK as well")
    if clean == corrupt == "-":
        raise UsageError("both texts are -, and standard input is one text", expected="- once")
    loaded_model = request.model(
        environment, model, attention, compute, tokenizer=text.tokenizer, heads=declarations.EIGHT
    )
    clean, corrupt = (request.one_text(environment, TextOptions(text=argument)).text for argument in (clean, corrupt))
    tokens = [loaded_model.encode(argument) for argument in (clean, corrupt)]
    same_length(tokens[0], tokens[1], "the corrupt one")
    patching = PatchRequest.of(
        loaded_model,
        tokens[0],
        choose_heads(loaded_model.spec, model),
        positions=[place for name in at or () for place in span(environment, tokens[0], name, unknown=unknown)],
        query=None if query is None else span(environment, tokens[0], query, unknown=unknown),
        target=target,
        versus=versus,
    )
    predicts = patching.measure != "cosine"
    foretell(environment, loaded_model, len(tokens[0]), patching.selection, compute, predicts=predicts)
    with progress(environment, "patching heads") as on_progress:
        document = patch_document(
            loaded_model,
            (clean, tokens[0]),
            (corrupt, tokens[1]),
            patching,
            memory=memory(compute),
            progress=on_progress,
        )
    write_with_figure([document], output, environment, view)


patch_app = command_app(patch)
