"""`attn heads`: all heads of a text compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct
from msgspec.structs import replace

from attncli.cli import completion, declarations, request
from attncli.cli.answer import Command, RunPage, TextRun, answer_texts
from attncli.cli.declarations import (
    ModelOptions,
    OutputOptions,
    RegionOptions,
    RunSetup,
    TextOptions,
)
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import (
    ANALYSIS,
    RUN,
    SCREEN,
    About,
    analysis_option,
    meaning,
    redeclare,
    without,
)
from attncli.cli.output import (
    PAGE_BUDGET,
    PageOptions,
    keeping_runs,
    refuse_over,
    validate_options,
    validate_page,
    write_page,
    write_with_figure,
)
from attncli.cli.output_conflicts import refuse_beside
from attncli.cli.progress import foretell_work, progress
from attncli.cli.request import layers_and_heads
from attncli.errors import UsageError
from attncli.language import message

if TYPE_CHECKING:
    from attncli.features.heads.compute import HeadsRequest
    from attncli.features.heads.document import HeadsDocument
    from attncli.features.heads.roles import RoleScores
    from attncli.features.rules.document import RulesDocument
    from attncli.inputs.token import Token
    from attncli.measure.labels import RepeatScores
    from attncli.measure.run_record import RunRecord
    from attncli.models.estimate import CostEstimate
    from attncli.models.model import Model


class HeadsOptions(Struct, frozen=True):
    """What is measured of the heads, and in which order they come."""

    metric: Annotated[list[str] | None, declarations.METRIC] = None
    metric_file: Annotated[list[Path] | None, declarations.METRIC_FILE] = None
    sort: Annotated[
        str | None,
        analysis_option(
            help="Largest first by this metric; NAME:asc for smallest first.",
            metavar="NAME",
            complete=completion.orders,
        ),
    ] = None
    top: Annotated[int | None, redeclare(declarations.TOP, about=RUN)] = None
    exclude: Annotated[str | None, declarations.EXCLUDE] = None
    renormalise: Annotated[
        bool,
        analysis_option(
            "--renormalise", "--renormalize", help="Scale what is left of a row to sum to 1."
        ),
    ] = False
    moved: Annotated[bool, analysis_option(help="Also weight × size of the transformed value.")] = (
        False
    )
    labels: Annotated[
        bool,
        analysis_option(
            "--labels/--no-labels", help="Name what heads do; runs random repeats for induction."
        ),
    ] = False
    across: Annotated[
        str | None,
        analysis_option(
            help="Add rollout, flow, similarity, circuits.",
            metavar="NAMES",
            complete=completion.comma_list("rollout", "flow", "similarity", "circuits"),
        ),
    ] = None
    directions: Annotated[
        str | None,
        analysis_option(
            help="Tell the strongest directions of these heads by tokens.", metavar="HEADS"
        ),
    ] = None
    roles: Annotated[
        bool,
        analysis_option(help="Score heads by role, induction to successor, and rank them by each."),
    ] = False
    words: Annotated[bool, declarations.WORDS] = False
    all_links: Annotated[bool, declarations.ALL_LINKS] = False


class RetrievalOptions(Struct, frozen=True):
    """Which heads fetch a fact from the text."""

    retrieval: Annotated[
        bool, analysis_option(help="Rank heads by whether they fetch needles from haystacks.")
    ] = False
    needle: Annotated[
        Path | None,
        analysis_option(
            help="With --retrieval: a line for each needle, question, tab, answer.",
            metavar="FILE",
            rare=True,
        ),
    ] = None
    haystack: Annotated[
        Path | None,
        analysis_option(
            help="With --retrieval: a line for each passage.", metavar="FILE", rare=True
        ),
    ] = None
    lengths: Annotated[
        str | None,
        analysis_option(
            help="With --retrieval: tokens of the texts. [default: 128,256]",
            metavar="N,N",
            rare=True,
        ),
    ] = None
    sample: Annotated[
        int,
        redeclare(declarations.SAMPLE, panel=ANALYSIS),
    ] = 0
    verify: Annotated[
        bool,
        analysis_option(
            help=(
                "With --retrieval: also what is recalled without the first heads, and without"
                " random ones."
            ),
            rare=True,
        ),
    ] = False


class RuleOptions(Struct, frozen=True):
    """Which simple rules say how much of each head."""

    rules: Annotated[bool, declarations.RULES] = False
    rules_of: Annotated[Path | None, declarations.RULES_OF] = None
    rule_file: Annotated[
        list[Path] | None,
        redeclare(
            declarations.RULE_FILE,
            help="With --rules: a Python file of yours with rules: this runs its code.",
        ),
    ] = None


def heads(
    ctx: typer.Context,
    text: TextOptions,
    regions: RegionOptions,
    setup: Annotated[
        RunSetup, without("residual", "layer_norm"), meaning(num_heads=declarations.EIGHT_HEADS)
    ],
    output: Annotated[OutputOptions, without("top"), meaning(show=About.JSON | SCREEN)],
    page: PageOptions,
    heads_options: HeadsOptions,
    retrieval: RetrievalOptions,
    rules: RuleOptions,
    why: Annotated[list[str] | None, declarations.PAGE_WHY] = None,
) -> None:
    """Compare all heads: small maps, metrics, labels, the strongest link of each.

    attn heads --num-heads 8

    attn heads "The animal didn't cross the street" --metric all --sort entropy:asc --top 3

    attn heads --model DIR --retrieval --verify

    attn heads --model DIR --rules --file corpus.txt --lines --rule-file my_rules.py

    attn heads --model minilm "The animal didn't cross the street" --exclude first,special --renormalise --labels
    """

    environment: Environment = ctx.obj
    if retrieval.retrieval:
        if text.text is not None:
            raise UsageError(
                "--retrieval makes texts of its own, and TEXT is one", expected="one or the other"
            )
        _fetching_heads(environment, retrieval, setup, output, page)
        return
    if rules.rules:
        _heads_as_rules(environment, text, setup, output, page, rules.rule_file or ())
        return
    _refuse_alone(environment)
    validate_page(page, lines=text.lines, why=why, words=heads_options.words)
    view = validate_options(output, environment, "heads", files={"--html": page.html})
    if heads_options.renormalise and heads_options.exclude is None:
        raise UsageError(
            "--renormalise scales what --exclude leaves, and nothing is excluded",
            expected="--exclude NAMES",
        )
    loaded_model = request.model(
        environment,
        setup,
        tokenizer=text.tokenizer,
        heads=declarations.SEEDED_HEADS,
        many_runs=heads_options.roles or _names_roles(heads_options.metric),
    )
    saved_rules = _saved_rules(loaded_model, rules.rules_of)
    comparison = _comparison(loaded_model, setup.model, output, heads_options, view.show)
    repeats: RepeatScores | None = None
    if comparison.labels:
        # they belong to the model, whatever the text: measured once for all texts
        from attncli.measure.labels import repeat_scores

        repeats = repeat_scores(loaded_model, comparison.layers)
    command = Command(environment, loaded_model, text, setup, output, page, view, why)
    texts = request.texts(environment, text, single=command.wants_one_text)
    # scores by role take long: a text that cannot be read is an error before, not after
    first = next(texts)
    scores = _role_scores(environment, loaded_model, comparison, repeats, heads_options.roles)

    from attncli.features.heads.compute import heads as compute_heads
    from attncli.measure.head_record import METRICS as PAGE_METRICS

    def on_cost(expected: CostEstimate, count: int) -> None:
        """Called before the run of each text with its estimated cost and the number of tokens: refuse
        what needs too much memory or makes too much JSON (LimitError), and announce what is long."""
        hint = request.smaller_run(loaded_model.spec, "--show metrics")
        request.refuse_memory(expected.peak, setup.compute, hint, resident=expected.resident)
        if output.json or output.ndjson:
            from attncli.draw.encoding import NUMBER_BYTES

            # half, as the document of a run has scores and weights, and this one weights alone
            size = expected.numbers // 2 * NUMBER_BYTES[loaded_model.backend.dtype]
            refuse_over(size, output, hint)
        faster = request.faster_run(loaded_model.spec, setup.model.layer)
        foretell_work(environment, count, expected.seconds, faster)

    def compute(run: TextRun) -> HeadsDocument:
        """The document of one text: the metrics, links and labels of its heads."""
        text_request = comparison
        # a chat's messages are regions that nobody has to name, unless tokens are merged to words
        if regions.region or regions.regions or (run.source.chat and not comparison.words):
            text_regions = request.regions_of(environment, regions, run.source, run.tokens)
            text_request = replace(comparison, regions=tuple(text_regions))
        return compute_heads(
            loaded_model,
            run.text,
            request=text_request,
            top=heads_options.top,
            roles=heads_options.roles,
            tokens=run.tokens,
            repeats=repeats,
            scores=scores,
            rules=saved_rules,
            on_cost=on_cost,
            progress=run.progress,
            recording=run.recording,
        )

    def opens_at(run: TextRun, record: RunRecord) -> Mapping[str, str]:
        """What the page of a text shows when it is opened: heads in the order of `--sort`, where the
        page has that metric."""
        if comparison.sort in PAGE_METRICS:
            return {"sort": comparison.sort}
        return {}

    heads_page = RunPage(
        layers=comparison.layers, heads=comparison.heads, words=comparison.words, opens_at=opens_at
    )
    answer_texts(command, compute, page=heads_page, texts=chain([first], texts))


def _saved_rules(model: Model, file: Path | None) -> RulesDocument | None:
    """The rules that a file holds; None where none is named. Raises InputError for rules of another
    model."""
    if file is None:
        return None
    from attncli.features.rules.saved_rules import mixtures_of, read_rules

    document = read_rules(file)
    # for its error where the rules are of another model
    mixtures_of(document, model, str(file))
    return document


def _refuse_alone(environment: Environment) -> None:
    """Raise UsageError for options about `--retrieval` or `--rules` without it."""
    for option, names in {
        "--retrieval": ("needle", "haystack", "lengths", "sample", "verify"),
        "--rules": ("rule_file",),
    }.items():
        for name in names:
            if name in environment.explicit_options:
                raise UsageError(
                    "{out_of_place} is about {option}",
                    expected="{option} as well",
                    out_of_place=environment.spellings[name],
                    option=option,
                )


FEW_TEXTS = 8
"""Texts that the hint of a long search with --retrieval names."""
SHORT_TEXT = 64
"""Tokens of texts with a needle that the same hint names."""
PATIENCE = 3.0
"""Seconds above which it is said before it starts what scoring takes."""


def _role_scores(
    environment: Environment,
    model: Model,
    comparison: HeadsRequest,
    repeats: RepeatScores | None,
    every: bool,
) -> RoleScores | None:
    """Measure the scores by role that the command needs, once for all texts, as they belong to the
    model; None where none are needed. A note announces what takes long.

    repeats: scores of random repeats, where they were measured already.
    every: whether --roles asks for all of them.
    """
    from attncli.features.heads.roles import FETCH_LENGTH, role_cost, role_scores
    from attncli.measure.layer_metrics import ROLE_METRICS
    from attncli.models.estimate import duration_words

    needed = {metric.name for metric in comparison.metrics_needed}
    names = [name for name in ROLE_METRICS if every or name in needed]
    if not names:
        return None
    texts, seconds = role_cost(model, names)
    if seconds > PATIENCE and texts:
        environment.note(
            message(
                "the scores of roles take {texts} texts of {tokens} tokens: about {time}",
                texts=texts,
                tokens=FETCH_LENGTH,
                time=duration_words(seconds),
            )
        )
    elif seconds > PATIENCE:
        environment.note(
            message("the scores of roles take about {time}", time=duration_words(seconds))
        )
    with progress(environment, "scoring roles") as on_progress:
        return role_scores(
            model, names, layers=comparison.layers, repeats=repeats, progress=on_progress
        )


def _names_roles(metric: Sequence[str] | None) -> bool:
    """Whether the values of `--metric` name a score by role, such as "retrieval": such scores need
    runs of many texts."""
    from attncli.measure.layer_metrics import ROLE_METRICS

    return any(name in ROLE_METRICS for name in request.comma_parts(metric))


RETRIEVAL_SUBJECTS = (
    "retrieval", "needle", "haystack", "lengths", "sample", "verify", "top", "show", "brief", "ascii", "model", "mask",
    "scale", "softcap", "backend", "device", "dtype", "max_memory", "ignore_config", "adapter",
)  # fmt: skip
"""What needles in haystacks take besides how their answer looks."""


def _refuse_why(environment: Environment, option: str) -> None:
    """Raise UsageError where `--why`, which explains links on the page, stands beside an option whose
    document has no links.

    option: that option, such as "--rules".
    """
    if "why" in environment.explicit_options:
        raise UsageError(
            "--why does not go with {option}", expected="one or the other", option=option
        )


def _fetching_heads(
    environment: Environment,
    options: RetrievalOptions,
    setup: RunSetup,
    output: OutputOptions,
    page: PageOptions,
) -> None:
    """Run `attn heads --retrieval`: rank the heads by how they fetch a fact from made texts, and
    write the document and page."""
    # options first: a wrong one is refused before a model is loaded. `RETRIEVAL_SUBJECTS` are about
    # the run alone, and --why is about the page
    refuse_beside(environment, "--retrieval", RETRIEVAL_SUBJECTS)
    _refuse_why(environment, "--retrieval")
    view = validate_options(output, environment, "retrieval", files={"--html": page.html})
    validate_page(page)
    loaded_model = request.model(
        environment, setup, heads=declarations.SEEDED_HEADS, many_runs=True
    )
    from attncli.features.retrieval import compute as needles
    from attncli.models.estimate import duration_words

    def on_cost(expected: CostEstimate, count: int) -> None:
        """Called before the work with its estimated cost and the tokens of the longest text: refuse
        what needs too much memory (LimitError), and announce what takes long."""
        hint = message("fewer texts: --sample {count}", count=FEW_TEXTS)
        if count > SHORT_TEXT:  # else they are as short already
            hint = message(
                "fewer or shorter texts: --sample {count} --lengths {tokens}",
                count=FEW_TEXTS,
                tokens=SHORT_TEXT,
            )
        request.refuse_memory(expected.peak, setup.compute, hint, resident=expected.resident)
        if expected.seconds > PATIENCE:
            environment.note(
                message(
                    "at most {runs:,} runs of texts of up to {tokens:,} tokens: about {time}; "
                    "what takes less: {suggestion}; Ctrl-C ends it",
                    runs=expected.branches,
                    tokens=count,
                    time=duration_words(expected.seconds),
                    suggestion=hint,
                )
            )

    with (
        keeping_runs(output, environment, view) as kept_runs,
        progress(environment, "needles in haystacks") as on_progress,
    ):
        document = needles.retrieval(
            loaded_model,
            needles=None if options.needle is None else needles.read_needles(options.needle),
            passages=None if options.haystack is None else needles.read_passages(options.haystack),
            lengths=None if options.lengths is None else needles.parse_lengths(options.lengths),
            verify=options.verify,
            sample=options.sample,
            on_cost=on_cost,
            on_interruption=kept_runs.documents.append,  # Ctrl-C shows what was measured by then
            progress=on_progress,
        )

    if page.html is not None:
        from attncli.draw.page import any_page

        write_page(page, any_page(document, lang=view.lang, budget=page.budget, option=PAGE_BUDGET))
    write_with_figure([document], output, environment, view)


RULES_SUBJECTS = (
    "rules", "rule_file", "text", "file", "lines", "ids", "top", "show", "brief", "ascii", "full", "model", "seed",
    "weights", "num_heads", "mask", "scale", "softcap", "backend", "device", "dtype", "max_memory", "ignore_config",
    "adapter", "tokenizer",
)  # fmt: skip
"""What heads as rules take besides how their answer looks."""


def _heads_as_rules(
    environment: Environment,
    text: TextOptions,
    setup: RunSetup,
    output: OutputOptions,
    page: PageOptions,
    rule_files: Sequence[Path],
) -> None:
    """Run `attn heads --rules`: describe the heads by rules over many texts, and write the document
    and page. rule_files: the user's own rules."""
    refuse_beside(environment, "--rules", RULES_SUBJECTS)
    _refuse_why(environment, "--rules")
    view = validate_options(output, environment, "rules", files={"--html": page.html})
    validate_page(page)
    seed, setup = _seed_of_drawn_heads(environment, setup)
    loaded_model = request.model(
        environment,
        setup,
        tokenizer=text.tokenizer,
        heads=declarations.SEEDED_HEADS,
        many_runs=True,
    )
    from attncli.features.rules.compute import built_in_texts
    from attncli.features.rules.compute import rules as compute_rules

    # the texts: those of the user, or where none are given those of the package
    tokens: list[list[Token]] | None = None
    origin = ""
    sources = (text.text, text.file, text.ids)
    if environment.stdin_is_terminal and all(source is None for source in sources):
        count = len(built_in_texts())
        environment.note(message("no text given; using {count} paragraphs of attn", count=count))
    else:
        tokens = []
        for source in request.texts(environment, text):
            if not origin:
                # "texts.txt:3" for a line of a file, which is named without the line
                origin = source.origin.rpartition(":")[0] or source.origin
            with request.errors_located_in(source):
                tokens.append(request.tokens_of(loaded_model, source))

    def on_cost(expected: CostEstimate, count: int) -> None:
        """Called before the work with its estimated cost and the tokens of the longest text: refuse
        what needs too much memory (LimitError), and announce what takes long."""
        fewer = message("fewer or shorter texts")
        request.refuse_memory(expected.peak, setup.compute, fewer, resident=expected.resident)
        foretell_work(environment, count, expected.seconds, fewer)

    with progress(environment, "comparing heads with rules") as on_progress:
        document = compute_rules(
            loaded_model,
            tokens,
            source=origin,
            seed=seed,
            rule_files=rule_files,
            note=environment.note,
            on_cost=on_cost,
            progress=on_progress,
        )
    if page.html is not None:
        from attncli.draw.page import any_page

        write_page(page, any_page(document, lang=view.lang, budget=page.budget, option=PAGE_BUDGET))
    write_with_figure([document], output, environment, view)


def _seed_of_drawn_heads(environment: Environment, setup: RunSetup) -> tuple[int, RunSetup]:
    """The seed of the random draw of heads (0 without --seed), and the options to load the model
    with: without the seed where --model names a checkpoint, whose weights are not drawn. Raises
    UsageError for a seed that is no whole number."""
    if setup.model.seed is None:
        return 0, setup
    from attncli.cli.model_option import seed_of

    # its second value says how the seed was found, which does not matter here
    seed, _ = seed_of(setup.model, environment)
    weights_seed: str | None = str(seed)
    if setup.model.model is not None:
        weights_seed = None
    return seed, replace(setup, model=replace(setup.model, seed=weights_seed))


def _comparison(
    model: Model,
    which: ModelOptions,
    output: OutputOptions,
    heads_options: HeadsOptions,
    parts: frozenset[str] | None,
) -> HeadsRequest:
    """Read the options of `attn heads` into a request of what to measure.

    which: the options of layers and heads.
    parts: the parts of the screen that --show names; None without it. Where none of them, and no
        figure, draws matrices, the document need not hold any.

    Raises UsageError for a metric or an order that there is none of.
    """
    from attncli.features.heads.across_heads import parse_across, parse_directions
    from attncli.features.heads.compute import HeadsRequest
    from attncli.features.heads.screen import MATRICES
    from attncli.measure.layer_metrics import TEXT_METRICS, column_metric
    from attncli.measure.metric import DEFAULT
    from attncli.measure.metric_file import load_metrics
    from attncli.measure.row_facts import parse_exclusion as parse_exclude

    # metrics, those of the user's own files, and the order, such as "entropy:asc"
    names = [name for name in request.comma_parts(heads_options.metric) if name]
    own: list[str] = []
    for path in heads_options.metric_file or ():
        own += [metric.name for metric in load_metrics(path)]
    sort, _, direction = (heads_options.sort or "").partition(":")
    if direction not in ("", "asc", "desc"):
        raise UsageError(
            "--sort {sort} names no order",
            expected="NAME, NAME:asc or NAME:desc",
            sort=repr(heads_options.sort),
        )
    # for the errors about unknown names
    for name in names:
        if name != "all":
            column_metric(name)
    if sort:
        column_metric(sort, option="--sort")

    # metrics of the user's own files come with "all", and with the usual ones; others are named
    layers, heads = layers_and_heads(model, which, output)
    if "all" in names:
        metrics = (*TEXT_METRICS, *own)
    elif names:
        metrics = tuple(dict.fromkeys(names))  # each once
    else:
        metrics = (*DEFAULT, *own)

    # whether the document holds weights: a figure draws maps unless it is of metrics alone
    maps = True
    if parts is not None:
        draws_maps = output.svg is not None and "metrics" not in parts
        maps = draws_maps or bool(parts & MATRICES)
    return HeadsRequest(
        layers=layers,
        heads=heads,
        metrics=metrics,
        maps=maps,
        all_links=heads_options.all_links,
        exclude=() if heads_options.exclude is None else parse_exclude(heads_options.exclude),
        renormalise=heads_options.renormalise,
        words=heads_options.words,
        moved=heads_options.moved,
        labels=heads_options.labels,
        across=frozenset() if heads_options.across is None else parse_across(heads_options.across),
        directions=(
            () if heads_options.directions is None else parse_directions(heads_options.directions)
        ),
        sort=sort or None,
        rising=direction == "asc",
    )


heads_app = command_app(
    heads,
    essentials="--model --layer --head --metric --sort --labels --exclude --brief --json --figure",
)
