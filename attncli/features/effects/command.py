"""`attn ablate`, `attn logits`, `attn patch`: which heads matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer
from msgspec import Struct

from attncli.cli import completion, declarations, request
from attncli.cli.answer import (
    Command,
    DocumentPage,
    TextRun,
    answer_texts,
    documents_of_texts,
)
from attncli.cli.declarations import (
    SEEDED_HEADS,
    ChatOptions,
    OutputOptions,
    PairOptions,
    RegionOptions,
    RunSetup,
    TextOptions,
)
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import (
    DOCUMENT,
    analysis_option,
    answer_option,
    argument,
    meaning,
    model_option,
    only,
    redeclare,
    subject_option,
    without,
)
from attncli.cli.output import (
    PageOptions,
    keeping_runs,
    page_reasons,
    validate_options,
    validate_page,
    write_document_page,
    write_documents,
    write_with_figure,
)
from attncli.cli.output_conflicts import refuse_beside
from attncli.cli.pair_answer import PAIR_SUBJECTS, foretell, is_over_pairs, write_pair_answer
from attncli.cli.progress import progress
from attncli.errors import UsageError
from attncli.language import listing, message, plural

if TYPE_CHECKING:
    from attncli.features.effects.document import (
        AblateDocument,
        LogitsDocument,
        Measure,
        PatchDocument,
    )
    from attncli.mechanism.spec import HeadSelection
    from attncli.models.model import Model

QUERY = redeclare(
    declarations.QUERY,
    help=(
        "Where to measure: it, the:2, #7 or a span. [default: decoders the last token; encoders the"
        " mean of all]"
    ),
)


class MeasureOptions(Struct, frozen=True):
    """The options of `attn ablate` that say what is measured (`--measure`) and at which token or
    for which next token."""

    measure: Annotated[
        str | None,
        subject_option(
            help=(
                "vector, logprob, kl, difference; several with commas. [default: vector; with"
                " --target logprob; with --versus difference]"
            ),
            metavar="NAMES",
            complete=completion.comma_list("vector", "logprob", "kl", "difference"),
        ),
    ] = None
    query: Annotated[str | None, QUERY] = None
    target: Annotated[str | None, declarations.TARGET] = None
    versus: Annotated[str | None, declarations.VERSUS] = None
    hold: Annotated[
        str | None,
        subject_option(
            help="Also with attention held as it was: what a head writes, and what it moves.",
            values=("attention",),
        ),
    ] = None
    every: Annotated[
        bool, subject_option(help="With --measure logprob: the mean over all positions.")
    ] = False


def _usual_measure(options: MeasureOptions) -> Measure:
    """The measure to take where `--measure` is not given: that of the options which are."""
    if options.versus is not None:
        return "difference"
    if options.target is not None:
        return "logprob"
    return "vector"


def _parse_measures(text: str) -> tuple[Measure, ...]:
    """The measures that a value of `--measure` names, with commas between. Raises UsageError for an
    unknown name, and for no name at all."""
    from attncli.features.effects.measures import MEASURES

    names = [part.strip() for part in text.split(",") if part.strip()]
    unknown_names = [name for name in names if name not in MEASURES]
    if unknown_names or not names:
        wrong = unknown_names[0] if unknown_names else text
        raise UsageError(
            "--measure {wrong} is no measure", expected=listing(MEASURES), wrong=repr(wrong)
        )
    # the declared spelling of each name, which has the type of a measure
    return tuple(measure for name in names for measure in MEASURES if measure == name)


def measures(options: MeasureOptions) -> tuple[Measure, ...]:
    """Parse `--measure` into measures, each once. Raises UsageError for unknown names and options
    that do not go with them."""
    chosen_measures = _parse_measures(options.measure or _usual_measure(options))
    if "logprob" not in chosen_measures:
        if options.every:
            raise UsageError(
                "--every is about log-probabilities", expected="--measure logprob as well"
            )
        if options.target is not None and options.versus is None:
            raise UsageError(
                "--target is about log-probabilities", expected="--measure logprob as well"
            )
    if options.every and options.target is not None:
        raise UsageError("--every measures each token that follows", expected="no --target")
    # beside log-probabilities at every token, a query still says where the vector is measured
    if options.every and options.query is not None and "vector" not in chosen_measures:
        raise UsageError(
            "--every measures at every token, and --query names one", expected="one or the other"
        )
    return tuple(dict.fromkeys(chosen_measures))


# `attn ablate`: what changes when a head, or a link, is taken away.

BASELINES = ("top", "all", "none")
WAYS = ("zero", "mean", "resample")


class RemovalOptions(Struct, frozen=True):
    """The options of `attn ablate` that say what is taken away: heads, or a link, and what replaces
    them.
    """

    by: Annotated[
        str,
        model_option(
            "--how", "--by", help="What stands for a head: zero, mean, resample.", values=WAYS
        ),
    ] = "zero"
    reference: Annotated[
        str | None,
        model_option(
            help="With --how mean or resample: the text that it comes from.", metavar="TEXT"
        ),
    ] = None
    reference_file: Annotated[
        Path | None, model_option(help="With --how mean: texts, one a line.", metavar="FILE")
    ] = None
    together: Annotated[
        bool, model_option(help="Take the chosen heads away at once, not one at a time.")
    ] = False
    circuit: Annotated[Path | None, declarations.CIRCUIT] = None
    start: Annotated[
        str | None, redeclare(declarations.FROM, help="Cut a link: the token that looks.")
    ] = None
    end: Annotated[
        str | None, redeclare(declarations.TO, help="Cut a link: the token that is looked at.")
    ] = None
    cross: Annotated[bool, declarations.CROSS] = False
    unknown: Annotated[bool, declarations.UNKNOWN] = False
    each_region: Annotated[
        bool,
        model_option(help="Cut off one region after the other: which of them the answer draws on."),
    ] = False
    baseline: Annotated[
        str,
        answer_option(
            help="Compare with random changes of the same size: the top rows, all, none.",
            values=BASELINES,
        ),
    ] = "top"


def ablate(
    ctx: typer.Context,
    text: TextOptions,
    regions: RegionOptions,
    setup: Annotated[RunSetup, meaning(num_heads=declarations.EIGHT_HEADS)],
    output: Annotated[
        OutputOptions, without("precision", "scale_colors", "max_output"), meaning(top=DOCUMENT)
    ],
    page: PageOptions,
    removal: RemovalOptions,
    measure_options: MeasureOptions,
    pair_options: PairOptions,
    why: Annotated[list[str] | None, declarations.PAGE_WHY] = None,
) -> None:
    """Take heads away, one at a time, or cut a link, and see what changes at the end of the model.

    attn ablate "The animal didn't cross the street because it was too tired" --query it

    attn ablate --model minilm "The animal was too tired, so it slept" --from it --to animal

    attn ablate --model minilm "The animal was too tired, so it slept" --query it --head L5H11,L3H1

    attn ablate --model smollm2 --pairs indirect-object --hold attention

    attn ablate --model smollm2 --pairs indirect-object --circuit circuit.json

    attn ablate --model DIR --chat chat.json --each-region --target yes

    attn ablate --model minilm --lines --file texts.txt --json -o effects.json
    """

    environment: Environment = ctx.obj
    if is_over_pairs(pair_options, text.text):
        _ablate_pairs(environment, pair_options, setup, output, removal, measure_options)
        return
    if removal.each_region:
        _ablate_regions(environment, text, regions, setup, output, page, measure_options)
        return
    if (
        (regions.region or regions.regions)
        and removal.start is None
        and measure_options.query is None
    ):
        what = message("--region names tokens, and none is asked for")
        raise UsageError(
            what, expected="--each-region, or --from, --to or --query with its name, as well"
        )
    view = validate_options(output, environment, "ablate", files={"--html": page.html})
    validate_page(page, lines=text.lines, why=why)
    _refuse_contradictions(removal)
    _refuse_beside_circuit(removal, setup)
    names = measures(measure_options)
    loaded_model = request.model(
        environment, setup, tokenizer=text.tokenizer, heads=SEEDED_HEADS, many_runs=True
    )
    from attncli.features.effects import compute as effects
    from attncli.features.effects.places import reads_on

    removed_by = effects.removal(loaded_model, removal.by, _reference_texts(environment, removal))
    if text.lines and "baseline" in environment.explicit_options and removal.baseline != "none":
        raise UsageError(
            "--baseline draws random changes for one text, and --lines gives several",
            expected="one or the other",
        )
    # one document over all texts; --ndjson and --svg want one for each
    is_over_texts = text.lines and not output.ndjson and output.svg is None
    if removal.start is None or removal.end is None:
        link = None
    else:
        link = (removal.start, removal.end)

    if is_over_texts:
        baseline = "none"
    else:
        baseline = removal.baseline
    chosen_heads = _chosen_heads(environment, loaded_model, setup, removal)

    def compute(run: TextRun) -> AblateDocument:
        """Called for each text: its `attn.ablate/1` document."""
        quiet = environment.without_notes()
        return effects.ablate(
            loaded_model,
            run.text,
            by=removed_by,
            link=link,
            cross=removal.cross,
            heads=chosen_heads,
            together=removal.together or removal.circuit is not None,
            measures=names,
            query=measure_options.query,
            target=measure_options.target,
            versus=measure_options.versus,
            hold="attention" if measure_options.hold else None,
            predict=not is_over_texts,
            every=measure_options.every,
            unknown=removal.unknown,
            baseline=cast(Literal["top", "all", "none"], baseline),
            top=output.top,
            regions=request.regions_of(quiet, regions, run.source, run.tokens),
            memory=request.memory_left(setup.compute, loaded_model),
            tokens=run.tokens,
            note=environment.note,
            on_cost=partial(foretell, environment),
            progress=run.progress,
        )

    command = Command(environment, loaded_model, text, setup, output, page, view, why)
    documents = documents_of_texts(
        command,
        compute,
        page=DocumentPage(),
        label=message("taking heads away"),
        single=command.wants_one_text and not is_over_texts,
    )
    if is_over_texts:
        # where it is measured, in words that hold for every text
        if reads_on(loaded_model.spec):
            usual = "last"
        else:
            usual = "mean"
        place = measure_options.query or (link[0] if link is not None else usual)
        write_documents(
            [effects.effects_document(list(documents), place, link)], output, environment, view
        )
    else:
        write_documents(documents, output, environment, view)


def _ablate_pairs(
    environment: Environment,
    pairs: PairOptions,
    setup: RunSetup,
    output: OutputOptions,
    removal: RemovalOptions,
    measure_options: MeasureOptions,
) -> None:
    """Run `attn ablate --pairs`: take heads away in the clean text of each pair, and write the
    means over pairs. Unless `--how` is given, a head gets its values of the corrupt text."""
    _refuse_beside_circuit(removal, setup)
    # `--how` in the words of `ablate_pairs`: the other text of a pair is the corrupt one
    baselines: dict[str, Literal["corrupt", "zero", "mean"]] = {
        "zero": "zero",
        "mean": "mean",
        "resample": "corrupt",
    }
    is_given = "by" in environment.explicit_options

    def compute(model: Model, on_progress: Callable[[float], None]) -> AblateDocument:
        """Called with the model that is loaded: the `attn.ablate/1` document. The file of pairs is
        always given here."""
        from attncli.features.effects.pair_effects import ablate_pairs

        return ablate_pairs(
            model,
            pairs.pairs or "",
            count=pairs.count,
            by=baselines[removal.by] if is_given else "corrupt",
            heads=_chosen_heads(environment, model, setup, removal),
            together=removal.together or removal.circuit is not None,
            hold="attention" if measure_options.hold else None,
            memory=request.memory_left(setup.compute, model),
            on_cost=partial(foretell, environment),
            progress=on_progress,
        )

    write_pair_answer(
        environment,
        setup,
        output,
        compute,
        command="ablate",
        label=message("taking heads away"),
        subjects=(*PAIR_SUBJECTS, "by", "together", "circuit", "hold"),
    )


REGION_SUBJECTS = (
    "text", "file", "ids", "chat", "chat_template",
    "chat_var", "generation_prompt", "region", "regions", "each_region", "target", "hold",
    "brief", "ascii", "show",
    "model", "mask", "scale", "softcap", "backend", "device", "dtype", "max_memory", "ignore_config",
    "adapter",
)  # fmt: skip
"""What the work over regions takes besides how its answer looks."""


def _ablate_regions(
    environment: Environment,
    text: TextOptions,
    regions: RegionOptions,
    setup: RunSetup,
    output: OutputOptions,
    page: PageOptions,
    measure_options: MeasureOptions,
) -> None:
    """Run `attn ablate --each-region`: cut off the regions of a text one after the other and write
    the effects.
    """
    refuse_beside(environment, "--each-region", REGION_SUBJECTS)
    view = validate_options(output, environment, "regions", files={"--html": page.html})
    validate_page(page)
    loaded_model = request.model(environment, setup, tokenizer=text.tokenizer, many_runs=True)
    from attncli.features.regions.compute import each_region
    from attncli.inputs.hub import own_cache_folder

    hint = message("a shorter text, or fewer regions")
    # no note that regions share tokens: one that holds others is cut without these
    quiet = environment.without_notes()
    source_text = request.one_text(environment, text)
    with request.errors_located_in(source_text):
        tokens = request.tokens_of(loaded_model, source_text)
        with (
            keeping_runs(output, environment, view) as kept_runs,
            progress(environment, "cutting regions off") as on_progress,
        ):
            document = each_region(
                loaded_model,
                source_text.text,
                request.regions_of(quiet, regions, source_text, tokens),
                target=measure_options.target,
                hold="attention" if measure_options.hold else None,
                tokens=tokens,
                kept=own_cache_folder(environment.variables) / "regions",
                note=environment.note,
                on_cost=partial(request.refuse_cost, environment, setup.compute, hint),
                on_result=kept_runs.count,
                on_interruption=kept_runs.documents.append,
                progress=on_progress,
            )
    if page.html is not None:
        write_document_page(loaded_model, source_text, document, page, view.lang, alone=True)
    write_with_figure([document], output, environment, view)


def _refuse_contradictions(removal: RemovalOptions) -> None:
    """Raise UsageError for options that contradict each other on what is taken away."""
    if (removal.start is None) != (removal.end is None):
        raise UsageError(
            "a link has two ends", expected="--from TOK and --to TOK", hint="--from it --to animal"
        )
    if removal.cross and removal.start is None:
        raise UsageError(
            "--cross is about a link, and none is cut", expected="--from TOK and --to TOK as well"
        )
    if removal.start is not None and removal.by != "zero":
        raise UsageError(
            "--how {by} takes heads away, and --from --to cut a link",
            expected="one or the other",
            by=removal.by,
        )
    if removal.reference is not None and removal.reference_file is not None:
        raise UsageError(
            "--reference and --reference-file contradict each other", expected="one of them"
        )
    if removal.reference is not None and removal.by == "zero":
        raise UsageError(
            "--reference is for another way of taking away", expected="--how mean or --how resample"
        )
    if removal.reference_file is not None and removal.by != "mean":
        raise UsageError("--reference-file gives a mean", expected="--how mean")
    if removal.by == "resample" and removal.reference is None:
        raise UsageError("--how resample takes from another text", expected="--reference TEXT")


def _refuse_beside_circuit(removal: RemovalOptions, setup: RunSetup) -> None:
    """Raise UsageError for heads, or a link, beside a circuit, which says what is taken away."""
    if removal.circuit is None:
        return
    for option, is_given in (
        ("--head", bool(setup.model.head)),
        ("--layer", bool(setup.model.layer)),
        ("--from", removal.start is not None or removal.end is not None),
    ):
        if is_given:
            raise UsageError(
                "--circuit says which heads are taken away, and so does {option}",
                expected="one or the other",
                option=option,
            )


def _chosen_heads(
    environment: Environment, model: Model, setup: RunSetup, removal: RemovalOptions
) -> HeadSelection:
    """The heads to take away: those that options name, or all that are not in a circuit."""
    if removal.circuit is None:
        return request.head_selection(model.spec, setup.model)
    from attncli.features.effects.circuit_heads import heads_outside, read_circuit

    selection = heads_outside(read_circuit(removal.circuit), model, str(removal.circuit))
    count = len(selection.pairs)
    environment.note(
        plural(
            "{count} head is not in the circuit and is taken away",
            "{count} heads are not in the circuit and are taken away at once",
            count=count,
        )
    )
    return selection


def _reference_texts(
    environment: Environment, removal: RemovalOptions
) -> str | Iterator[str] | None:
    """The text of `--reference`, or the lines of `--reference-file`, whose head outputs replace
    those taken away; None without either."""
    if removal.reference_file is None:
        return removal.reference
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
    return (line.text for line in lines)


ablate_app = command_app(
    ablate, essentials="--query --model --head --from --to --by --measure --target --brief --json"
)


# `attn logits`: what each part of a model adds to a token's logit.


def logits(
    ctx: typer.Context,
    text: TextOptions,
    setup: Annotated[
        RunSetup, without("layer", "head"), meaning(num_heads=declarations.EIGHT_HEADS)
    ],
    output: Annotated[OutputOptions, without("scale_colors", "max_output")],
    page: PageOptions,
    pair_options: PairOptions,
    target: Annotated[str | None, declarations.TARGET] = None,
    versus: Annotated[str | None, declarations.VERSUS] = None,
    query: Annotated[str | None, QUERY] = None,
    by: Annotated[
        str,
        redeclare(
            declarations.SPLIT,
            help=(
                "token also splits what each head adds by its token; word sums the logit over words."
            ),
            metavar="part|token|word",
        ),
    ] = "part",
    lens: Annotated[
        bool, analysis_option(help="Also what each layer would say next: the logit lens.")
    ] = False,
    unknown: Annotated[bool, declarations.UNKNOWN] = False,
    why: Annotated[list[str] | None, declarations.PAGE_WHY] = None,
) -> None:
    """Split the logit of a next token into what the embedding, each head and each feed-forward part
    add.

    attn logits --model gpt2 "When Mary and John went to the store, John gave a drink to" --target Mary --versus John

    attn logits --model smollm2 --pairs indirect-object
    """

    environment: Environment = ctx.obj
    if is_over_pairs(pair_options, text.text):
        _logits_pairs(environment, pair_options, setup, output)
        return
    view = validate_options(output, environment, "logits", files={"--html": page.html})
    validate_page(page, lines=text.lines, why=why)
    loaded_model = request.model(environment, setup, tokenizer=text.tokenizer, heads=SEEDED_HEADS)

    from attncli.features.effects import compute as effects

    if by not in ("part", "token", "word"):
        raise UsageError("--by is {value}", expected="part, token or word", value=repr(by))
    split = cast(Literal["part", "token", "word"], by)

    def compute(run: TextRun) -> LogitsDocument:
        """Called for each text: its `attn.logits/1` document."""
        return effects.logits(
            loaded_model,
            run.text,
            target=target,
            versus=versus,
            query=query,
            by=split,
            lens=lens,
            unknown=unknown,
            tokens=run.tokens,
            note=environment.note,
            on_cost=partial(
                request.refuse_cost, environment, setup.compute, message("a shorter text")
            ),
        )

    command = Command(environment, loaded_model, text, setup, output, page, view, why)
    answer_texts(command, compute, page=DocumentPage())


def _logits_pairs(
    environment: Environment, pairs: PairOptions, setup: RunSetup, output: OutputOptions
) -> None:
    """Run `attn logits --pairs`: split the difference of two logits after the clean text of each
    pair, and write the means over pairs."""

    def compute(model: Model, on_progress: Callable[[float], None]) -> LogitsDocument:
        """Called with the model that is loaded: the `attn.logits/1` document. The file of pairs is
        always given here."""
        from attncli.features.effects.pair_effects import logits_pairs

        return logits_pairs(
            model,
            pairs.pairs or "",
            count=pairs.count,
            on_cost=partial(foretell, environment),
            progress=on_progress,
        )

    write_pair_answer(
        environment,
        setup,
        output,
        compute,
        command="logits",
        label="running pairs",
        subjects=[name for name in PAIR_SUBJECTS if name not in ("layer", "head")],
    )


logits_app = command_app(
    logits,
    essentials="--query --target --versus --model --source --full --top --brief --json --figure",
)


# `attn patch`: which heads carry the difference between two texts.


def patch(
    ctx: typer.Context,
    text: Annotated[TextOptions, only("tokenizer")],
    chats: ChatOptions,
    setup: Annotated[RunSetup, meaning(num_heads=declarations.EIGHT_HEADS)],
    output: Annotated[OutputOptions, without("precision", "scale_colors", "max_output")],
    page: PageOptions,
    pair_options: PairOptions,
    clean: Annotated[
        str | None, argument("The text whose answer is wanted; - for standard input.", "CLEAN")
    ] = None,
    corrupt: Annotated[
        str | None, argument("The other text, of as many tokens; - for standard input.", "CORRUPT")
    ] = None,
    target: Annotated[
        str | None, redeclare(declarations.TARGET, help="The next token that is measured, or id:N.")
    ] = None,
    versus: Annotated[str | None, declarations.VERSUS] = None,
    query: Annotated[str | None, QUERY] = None,
    at: Annotated[
        list[str] | None,
        subject_option(help="Tokens that get the clean text's. [default: all]", metavar="TOK"),
    ] = None,
    into: Annotated[
        list[str] | None,
        subject_option(
            help=(
                "Only these heads read it, by queries, keys or values: L5H11:q. [default: all that"
                " follows]"
            ),
            metavar="HEAD:SIDE",
        ),
    ] = None,
    unknown: Annotated[bool, declarations.UNKNOWN] = False,
    why: Annotated[list[str] | None, declarations.PAGE_WHY] = None,
) -> None:
    """Run one text with what each head makes of another, one head at a time: which brings the
    other's answer back.

    attn patch --model minilm "The cat sat on the mat" "The dog sat on the mat" --query sat

    attn patch --model smollm2 --pairs indirect-object
    """
    environment: Environment = ctx.obj
    if is_over_pairs(pair_options, clean):
        _patch_pairs(environment, pair_options, setup, output, into or ())
        return
    view = validate_options(output, environment, "patch", files={"--html": page.html})
    validate_page(page, why=why)
    if versus is not None and target is None:
        raise UsageError("--versus is taken from a target", expected="--target TOK as well")
    if clean == corrupt == "-":
        raise UsageError("both texts are -, and standard input is one text", expected="- once")
    sources = request.texts_and_chats(environment, (clean, corrupt), chats)
    if len(sources) != 2:
        what = message("attn patch takes two texts, and {count} are given", count=len(sources))
        raise UsageError(what, expected="CLEAN and CORRUPT, or --chat FILE")
    loaded_model = request.model(
        environment, setup, tokenizer=text.tokenizer, heads=SEEDED_HEADS, many_runs=True
    )
    texts = [request.text_of(environment, chats, source, loaded_model) for source in sources]
    clean_tokens, corrupt_tokens = (
        request.tokens_of(loaded_model, source_text) for source_text in texts
    )
    from attncli.features.effects import compute as effects

    with progress(environment, "patching heads") as on_progress:
        document = effects.patch(
            loaded_model,
            texts[0].text,
            texts[1].text,
            target=target,
            versus=versus,
            query=query,
            at=at,
            into=into or (),
            unknown=unknown,
            heads=request.head_selection(loaded_model.spec, setup.model),
            memory=request.memory_left(setup.compute, loaded_model),
            tokens=(clean_tokens, corrupt_tokens),
            note=environment.note,
            on_cost=partial(foretell, environment),
            progress=on_progress,
        )
    if page.html is not None:
        reasons = page_reasons(environment, loaded_model, texts[0], why, setup.compute)
        write_document_page(loaded_model, texts[0], document, page, view.lang, reasons=reasons)
    write_with_figure([document], output, environment, view)


def _patch_pairs(
    environment: Environment,
    pairs: PairOptions,
    setup: RunSetup,
    output: OutputOptions,
    into: Sequence[str],
) -> None:
    """Run `attn patch --pairs`: put each head of the clean text of each pair into the corrupt one,
    and write the shares over pairs."""

    def compute(model: Model, on_progress: Callable[[float], None]) -> PatchDocument:
        """Called with the model that is loaded: the `attn.patch/1` document. The file of pairs is
        always given here."""
        from attncli.features.effects.pair_effects import patch_pairs

        return patch_pairs(
            model,
            pairs.pairs or "",
            count=pairs.count,
            into=into,
            heads=request.head_selection(model.spec, setup.model),
            memory=request.memory_left(setup.compute, model),
            on_cost=partial(foretell, environment),
            progress=on_progress,
        )

    write_pair_answer(
        environment,
        setup,
        output,
        compute,
        command="patch",
        label="patching heads",
        subjects=(*PAIR_SUBJECTS, "into"),
    )


patch_app = command_app(
    patch,
    essentials="--query --target --versus --model --at --layer --head --brief --json --figure",
)
