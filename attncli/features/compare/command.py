"""`attn compare`: what differs between two sides, signed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from msgspec import UNSET, Struct
from msgspec.structs import replace

from attncli.cli import declarations, request
from attncli.cli.declarations import (
    AttentionOptions,
    ChatOptions,
    ComputeOptions,
    ModelOptions,
    OutputOptions,
    RegionOptions,
    RunSetup,
    TextOptions,
)
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import (
    DRAWING,
    SCREEN,
    About,
    Repeated,
    argument,
    delivery_option,
    meaning,
    model_option,
    only,
    option_defaults,
    repeat,
    subjects_of,
)
from attncli.cli.output import (
    PAGE_BUDGET,
    PageOptions,
    refuse_over,
    validate_options,
    validate_page,
    write_page,
    write_with_figure,
)
from attncli.cli.output_conflicts import refuse_beside
from attncli.cli.request import layers_and_heads
from attncli.errors import InputError, UsageError, VerdictError, refused_value
from attncli.features.compare.model_sides import (
    NamedModel,
    have_other_weights,
    hub_names_read_as_texts,
    is_model_file,
    named_models,
)
from attncli.language import Message, listing, message, plural

if TYPE_CHECKING:
    from attncli.features.compare.document import CompareDocument
    from attncli.features.compare_models.document import CompareModelsDocument
    from attncli.features.effects.document import EffectsDocument
    from attncli.features.run.document import RunDocument
    from attncli.inputs.chat import Chat
    from attncli.inputs.regions import Region
    from attncli.inputs.token import Text
    from attncli.inputs.word_groups import Words
    from attncli.measure.run_record import RunRecord
    from attncli.models.estimate import CostEstimate
    from attncli.models.model import Model


# The options of `attn compare` that may be given once for all sides, or once for each.

SideModel = Annotated[
    Repeated[ModelOptions],
    only(
        *(
            "model",
            "weights",
            "seed",
            "layer",
            "head",
            "d_model",
            "num_heads",
            "d_k",
            "d_v",
            "bias",
            "embeddings",
        ),
        "adapter",
    ),
    repeat("model", "weights", "seed", "layer", "head"),
]
"""Sizes of seeded weights are the same on all sides; repeat another option to compare its values.
"""
SideAttention = Annotated[
    Repeated[AttentionOptions], repeat("mask", "scale", "softcap", "position", "attention")
]
SideCompute = Annotated[
    Repeated[ComputeOptions], only("backend", "dtype", "max_memory"), repeat("backend", "dtype")
]


class Side(Struct, frozen=True):
    """One side: its text, its name, and the options as every other command has them."""

    text: Text | Chat
    name: str
    setup: RunSetup


WEIGHT_FILES = (".safetensors", ".npz", ".pt", ".pth")


def split_texts_and_files(
    arguments: Sequence[str], model: Repeated[ModelOptions]
) -> tuple[list[str], Repeated[ModelOptions]]:
    """Divide the arguments into texts and files: the texts are returned, and weight files, GGUF files
    and checkpoint folders are added to the options that --weights and --model make.

    Raises InputError for a name that ends as a file's does but cannot be a side: nobody means it as
    a text.
    """
    files = [text for text in arguments if text.lower().endswith(WEIGHT_FILES) and is_there(text)]
    folders = [text for text in arguments if is_model_file(text)]
    texts = [text for text in arguments if text not in (*files, *folders)]
    for text in texts:
        is_named_so = text.lower().endswith((*WEIGHT_FILES, ".gguf", ".json"))
        if is_named_so and not any(map(str.isspace, text)):
            reason = message("there is no such file")
            if is_there(text):
                reason = message("a saved run is compared with saved runs only")
            raise InputError(
                reason,
                where=text,
                expected="texts, weight files, models, or only saved runs (.json)",
            )
    model = model.with_values("weights", [Path(file) for file in files])
    return texts, model.with_values("model", folders)


def is_there(name: str) -> bool:
    """Whether there is a file of this name; False, too, for a text that can be no name of a file."""
    return os.path.isfile(name)  # noqa: PTH113 - Path.is_file may raise for a text


SETTINGS = {
    "mask": message("mask {value}"),
    "scale": message("scale {value}"),
    "position": message("position {value}"),
    "seed": message("seed {value}"),
}
"""What a side is called that differs from the other in this option."""


def sides(
    texts: Sequence[Text | Chat],
    model: Repeated[ModelOptions],
    attention: Repeated[AttentionOptions],
    compute: Repeated[ComputeOptions],
    with_adapter: str | None = None,
) -> list[Side]:
    """Make the sides of a comparison: as many as there are texts, or values of the options that are
    given several times; an option given once holds for all sides. The first side is later compared
    with each of the others.

    with_adapter: an adapter's folder; then there are two sides, one model as it is and with this
        adapter merged into it.

    Raises UsageError where there is only one side, or where options are repeated unequally often.
    """
    # what is given several times, and how often
    values_by_option = {**attention.values, **model.values, **compute.values}
    repeats = {name: values for name, values in values_by_option.items() if len(values) > 1}
    counts = {f"--{name}": len(values) for name, values in repeats.items()}
    if len(texts) > 1:
        counts["texts"] = len(texts)

    if with_adapter is not None:
        if counts:
            raise UsageError(
                "--with-adapter compares one model with itself changed",
                expected="one text, one --model, and nothing given twice",
            )
        plain_setup = RunSetup(model.side(0), attention.side(0), compute.side(0))
        both = replace(
            plain_setup.model, adapter=[*(plain_setup.model.adapter or []), with_adapter]
        )
        return [
            Side(texts[0], message("without the adapter"), plain_setup),
            Side(
                texts[0],
                message("with {adapter}", adapter=Path(with_adapter).name),
                replace(plain_setup, model=both),
            ),
        ]
    if not counts:
        what = message("there is nothing to compare with")
        expected = message("a second text, or an option given twice")
        raise UsageError(what, expected=expected, hint='attn compare "…" --mask none --mask causal')

    if len(set(counts.values())) > 1:
        unequal = listing(f"{name} {count}" for name, count in counts.items())
        raise UsageError(
            "the sides do not match: {unequal}",
            expected="every option once, or as often as the others",
            unequal=unequal,
        )

    # each side by its number; it is called by its values of the repeated options, in the words that
    # `SETTINGS` has for them
    (side_count,) = set(counts.values())
    compared_sides = []
    for side_index in range(side_count):
        settings: list[str] = []
        for name, values in repeats.items():
            value = values[side_index]
            if name in SETTINGS:
                settings.append(Message(SETTINGS[name].template, {"value": value}))
            else:
                settings.append(f"{name} {value}")
        if settings:
            label = listing(settings, " · ")
        else:
            label = message("text {number}", number=side_index + 1)
        text = texts[0]
        if len(texts) > 1:
            text = texts[side_index]
        setup = RunSetup(
            model.side(side_index), attention.side(side_index), compute.side(side_index)
        )
        compared_sides.append(Side(text, label, setup))
    return compared_sides


def compare(
    ctx: typer.Context,
    chats: ChatOptions,
    regions: RegionOptions,
    model: SideModel,
    attention: SideAttention,
    compute: SideCompute,
    output: Annotated[OutputOptions, meaning(top=About.JSON | SCREEN, precision=DRAWING)],
    page: PageOptions,
    sources: Annotated[TextOptions, only("file", "lines")],
    texts: Annotated[
        list[str] | None,
        argument(
            "One text or two; two models or weight files and a text; saved runs (.json).",
            "[TEXT|FILE|MODEL]...",
        ),
    ] = None,
    tokenizer: Annotated[str | None, declarations.TOKENIZER] = None,
    with_adapter: Annotated[
        str | None,
        model_option(
            help=(
                "The other side: the same model with this PEFT adapter, a folder, perhaps with a"
                " weight."
            ),
            metavar="DIR[:W]",
        ),
    ] = None,
    query: Annotated[str | None, declarations.QUERY] = None,
    all_links: Annotated[bool, declarations.ALL_LINKS] = False,
    fail_above: Annotated[
        str | None,
        delivery_option(
            help=(
                "Exit 1 when a weight differs by more than X; js=X: when a head's rows do, by"
                " Jensen–Shannon, nats."
            ),
            metavar="[js=]X",
        ),
    ] = None,
) -> None:
    """What differs between two texts, heads, layers, masks, scales, positions, models or files: B
    minus A.

    attn compare "she ate apples" "he ate apples"

    attn compare "humpty dumpty sat on" --mask none --mask window:2 --mask lsh:4

    attn compare "it was too tired" "it was too wide" --model minilm --query it

    attn compare before.safetensors after.safetensors "humpty dumpty sat on"

    attn compare minilm minilm-Q4_0.gguf "it was too tired" --fail-above js=0.05

    attn compare before.json after.json --fail-above 1e-6
    """
    environment: Environment = ctx.obj
    bound = parse_bound(fail_above)
    validate_page(page)
    effects = _saved_effects(texts)
    saved_runs = _saved_runs(texts)
    if effects is not None or saved_runs is not None:
        # saved runs have a page, saved effects none
        _refuse_weights(environment, page if effects is not None else None)
    if effects is not None:
        if query is not None or all_links:
            raise UsageError(
                "{value} is about links, and saved effects have none",
                expected="saved runs, or texts",
                value="--all-links" if query is None else "--query",
            )
        if regions.region or regions.regions:
            raise UsageError(
                "--region names tokens, and saved effects have none",
                expected="saved runs, or texts",
            )
        _compare_effects(effects, output, environment, bound)
        return
    plan = None  # of what runs; saved runs have run
    if saved_runs is None:
        plan = _plan(
            environment, texts, chats, sources, model, attention, compute, tokenizer, with_adapter
        )
        if sources.lines:
            _compare_over_lines(environment, plan, output, page, bound)
            return
    view = validate_options(output, environment, "compare", files={"--html": page.html})
    records: list[RunRecord] | None = None if page.html is None else []
    if plan is None:
        assert saved_runs is not None
        runs = saved_runs
    else:
        joins = _may_join(query, chats, regions)
        runs = _run_sides(environment, plan, chats, output, records, query, joins=joins)
    worst: list[float] = []  # the largest difference of each comparison

    def regions_in(document: RunDocument, text: Text) -> list[Region]:
        """The regions (named sets of tokens) that the options name in the text of one side."""
        from attncli.documents.header import tokens_of

        return request.regions_of(environment, regions, text, tokens_of(document.tokens))

    def documents() -> Iterator[CompareDocument]:
        """Yield the comparison of the first run with each of the others, and write the page of it
        where one is asked for."""
        from attncli.features.compare.compute import compare as compute_compare

        name, first, text = next(runs)
        for number, (second_name, second, second_text) in enumerate(runs, 1):
            document = compute_compare(
                first,
                second,
                names=(name, second_name),
                query=query,
                top=output.top,
                all_links=all_links,
                regions=(regions_in(first, text), regions_in(second, second_text)),
                note=environment.note,
            )
            if plan is not None:
                document = _with_other_weights(document, plan, number)
                document = _with_model_change(environment, document, plan, text)
            worst.append(bound.largest_of(document))
            if page.html is not None:
                if len(worst) > 1:
                    raise UsageError(
                        "a page compares two sides, and there are more",
                        expected="two sides, or no --html",
                    )
                # saved runs leave no records as they run: these are made of what they hold
                run_records = records or [
                    _saved_record(name, first),
                    _saved_record(second_name, second),
                ]
                _write_compared_page(run_records, document, page, view.lang)
            yield document
            # asked for after the first comparison: is there another run?
            if output.json and next(runs, None) is not None:
                raise UsageError(
                    "--json is one document, and more than two sides make several",
                    expected="--ndjson, or two sides",
                )

    write_with_figure(list(documents()), output, environment, view)
    bound.refuse(max(worst))


class Bound(Struct, frozen=True):
    """What `--fail-above` lets differ. measure: a weight, or a head's rows by Jensen–Shannon. most:
    None where nothing is asked."""

    measure: Literal["weight", "js"]
    most: float | None

    def largest_of(self, document: CompareDocument | CompareModelsDocument) -> float:
        """The largest difference in a document, of a weight or of a head's rows in nats, as the bound
        says."""
        from attncli.features.compare.document import CompareDocument

        if isinstance(document, CompareDocument):
            if self.measure == "weight":
                return abs(document.summary.max_difference)
            # no divergence is known of a head without rows that see something on both sides
            return max((head.js or 0.0 for head in document.heads), default=0.0)
        heads = document.change.heads
        if self.measure == "weight":
            return max(abs(head.max_difference) for head in heads)
        # the heads of the largest divergence come first
        return heads[0].js.mean

    def refuse(self, largest: float, reason: Message | None = None) -> None:
        """Raise VerdictError where a difference is larger than the bound; nothing without a bound.

        largest: the difference.
        reason: the sentence that says what differs; None where that is a weight.
        """
        if self.most is None or largest <= self.most:
            return
        if self.measure == "js":
            reason = message(
                "the rows of a head differ by {largest:.6g} nats (Jensen–Shannon)", largest=largest
            )
            raise VerdictError(
                reason, expected="at most {most:g} (--fail-above js)", most=self.most
            )
        if reason is None:
            reason = message("a weight differs by {largest:.6g}", largest=largest)
        raise VerdictError(
            reason, expected="at most {fail_above:g} (--fail-above)", fail_above=self.most
        )


def parse_bound(text: str | None) -> Bound:
    """Parse the value of `--fail-above`: `X` bounds the change of a weight, `js=X` the divergence of
    a head's rows; None is no bound. Raises UsageError for anything else."""
    if text is None:
        return Bound("weight", most=None)
    # "0.1" becomes "", "", "0.1", and "js=0.1" becomes "js", "=", "0.1"
    name, sign, number = text.rpartition("=")
    measure: Literal["weight", "js"] = "weight"
    most = 1e30  # any finite number a user may mean; no difference of weights is above 1
    if sign and name.strip() == "js":
        measure = "js"
        most = MOST_JS
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    # NaN is within no range
    is_known_name = name.strip() in ("", "js") and not (sign and not name)
    if not is_known_name or not 0 <= value <= most:
        raise refused_value(
            "--fail-above", text, "a number from 0 to 1e+30, or js=X with X from 0 to 0.6931"
        )
    return Bound(measure, value)


MOST_JS = math.log(2)
"""The largest divergence that there is, in nats."""


def _may_join(query: str | None, chats: ChatOptions, regions: RegionOptions) -> bool:
    """Whether tokens may be joined to words before the sides run: not where options name tokens by
    position or region, whose positions would change."""
    by_place = query is not None and query.startswith("#")
    return not (by_place or chats.chat or regions.region or regions.regions)


def _write_compared_page(
    records: list[RunRecord], document: CompareDocument, page: PageOptions, lang: str
) -> None:
    """Write the page of two runs and of what differs between them."""
    from attncli.draw.page import page_bytes
    from attncli.features.compare.page import compared_page

    places_a = [place for place, _ in document.aligned]
    places_b = [place for _, place in document.aligned]
    content = compared_page(document, records, (places_a, places_b), lang, page.budget, PAGE_BUDGET)
    write_page(page, page_bytes(content))


def _saved_record(name: str, document: RunDocument) -> RunRecord:
    """What a page shows of a saved run, which is called by the name of its file."""
    from attncli.measure.document_heads import document_record

    record = document_record(document)
    assert record is not None  # it is a run
    return replace(record, name=name)


def _saved_runs(texts: list[str] | None) -> Iterator[tuple[str, RunDocument, Text]] | None:
    """The saved runs that the arguments name, each as (name, run, text), read when it is its turn.
    None unless there are at least two arguments that all end in .json, and one of them is a file: a
    missing one among them is an error, not a text."""
    if not texts or len(texts) < 2 or not all(text.endswith(".json") for text in texts):
        return None
    if not any(map(is_there, texts)):
        return None
    from attncli.inputs.token import Text

    documents = ((name, _read_run(Path(name))) for name in texts)
    return ((name, document, Text(document.text, name)) for name, document in documents)


def _saved_effects(texts: list[str] | None) -> list[tuple[str, EffectsDocument]] | None:
    """The saved `attn.effects` documents that the arguments name, each with its file's name; None
    unless there are two arguments and both are such files."""
    if not texts or len(texts) != 2:
        return None
    if not all(text.endswith(".json") and is_there(text) for text in texts):
        return None
    from attncli.features.effects.document import EffectsDocument
    from attncli.features.view.command import open_document

    documents = [(text, open_document(Path(text))) for text in texts]
    effects = [
        (name, document) for name, document in documents if isinstance(document, EffectsDocument)
    ]
    if len(effects) == len(documents):
        return effects
    return None


def _refuse_weights(environment: Environment, page: PageOptions | None) -> None:
    """Raise UsageError for options about weights and texts when saved documents are compared, which
    say themselves what ran.

    page: the options of the page, of which --html is refused, too, for documents that no page shows;
        None where it is allowed.
    """
    groups = (ModelOptions, AttentionOptions, ComputeOptions, ChatOptions)
    about = {name for group in groups for name in option_defaults(group)}
    about |= {"tokenizer", "file", "lines"}
    if ignored_options := sorted(environment.explicit_options & about):
        raise UsageError(
            "--{ignored_option} is about what runs, and saved documents hold what ran",
            expected="one or the other",
            ignored_option=ignored_options[0].replace("_", "-"),
        )
    if page is not None and page.html is not None:
        raise UsageError(
            "--html is a page about heads that look at tokens",
            expected="runs, not effects, or no --html",
        )


def _compare_effects(
    sides: list[tuple[str, EffectsDocument]],
    output: OutputOptions,
    environment: Environment,
    bound: Bound,
) -> None:
    """Write how two saved effects documents differ. Raises VerdictError where an effect differs by
    more than `--fail-above` allows.

    sides: each file's name and its document.
    """
    from attncli.features.effects.ablation import difference_document

    if bound.measure == "js":
        raise UsageError(
            "--fail-above js=X is about rows of weights, and saved effects have none",
            expected="--fail-above X, or saved runs",
        )
    # options on texts and models were refused: those on output are all that is still to be checked
    environment.subjects = subjects_of(OutputOptions)
    view = validate_options(output, environment, "difference")
    (a, first), (b, second) = sides
    document = difference_document(first, second, (a, b))
    write_with_figure([document], output, environment, view)
    # the largest difference comes first
    worst = abs(document.heads[0].difference)
    bound.refuse(worst, message("an effect differs by {worst:.6g}", worst=worst))


def _read_run(path: Path) -> RunDocument:
    """The run that a file holds. Raises InputError for a document of another kind."""
    from attncli.features.run.document import RunDocument
    from attncli.features.view.command import open_document

    document = open_document(path)
    if not isinstance(document, RunDocument):
        what = message("this is {schema}", schema=repr(document.schema))
        raise InputError(what, where=str(path), expected="attn.run/1, as attn run --json writes it")
    return document


class Plan(Struct, frozen=True, eq=False):
    """What is compared.

    sides: each with its text.
    pair: both models, loaded, where one text runs in two models with all of their heads; else None.
    texts: the texts of `--lines`; [] without it.
    is_one_model: whether two models are named and both are the same.
    """

    sides: list[Side]
    tokenizer: str | None
    pair: tuple[Model, Model] | None
    texts: list[Text]
    is_one_model: bool

    @property
    def names(self) -> tuple[str, str]:
        """The names of the first two sides."""
        return self.sides[0].name, self.sides[1].name


def _plan(
    environment: Environment,
    arguments: list[str] | None,
    chats: ChatOptions,
    sources: TextOptions,
    model: SideModel,
    attention: SideAttention,
    compute: SideCompute,
    tokenizer: str | None,
    with_adapter: str | None,
) -> Plan:
    """Decide which two sides the arguments and options compare. Raises UsageError where they name
    no two sides, and InputError for two models whose heads do not correspond."""
    # the models among the arguments
    models, others = named_models(
        arguments or (),
        has_text=sources.lines or sources.file is not None,
        has_chat=bool(chats.chat),
    )
    if models and model.values["model"]:
        raise UsageError(
            "models are named as arguments, and by options as well", expected="one or the other"
        )
    if models and with_adapter is not None:
        raise UsageError(
            "--with-adapter compares one model with itself changed, and two models are given",
            expected="--model NAME --with-adapter DIR, or the models alone: A B+DIR",
        )
    if not models:
        for name in hub_names_read_as_texts(arguments or ()):
            environment.note(
                message(
                    "{name} is read as a text; for the model on the hub: --model {name}",
                    name=name,
                )
            )
    model = model.with_values("model", [named_model.base for named_model in models])

    # the texts, and the sides that they and the options make
    text_arguments, model = split_texts_and_files(others, model)
    has_model = bool(model.values["model"]) or "model" in environment.settings
    if with_adapter is not None and not has_model:
        raise UsageError(
            "--with-adapter changes a checkpoint, and none is named",
            expected="--model NAME as well",
        )
    side_texts, lines = _side_texts(environment, text_arguments, chats, sources)
    chosen = sides(side_texts, model, attention, compute, with_adapter)
    if models:
        chosen = [
            _named_side(side, named_model) for side, named_model in zip(chosen, models, strict=True)
        ]

    # two models are loaded at once, for what is compared beyond single links
    pair = None
    if _are_two_models(chosen):
        pair = _load_pair(environment, chosen, tokenizer)
    checkpoints = [(side.setup.model.model, side.setup.model.adapter) for side in chosen]
    is_one_model = len(model.values["model"]) == 2 and checkpoints[0] == checkpoints[1]
    return Plan(chosen, tokenizer, pair, lines, is_one_model)


def _side_texts(
    environment: Environment, arguments: list[str], chats: ChatOptions, sources: TextOptions
) -> tuple[list[Text | Chat], list[Text]]:
    """Read the texts of the sides.

    arguments: the arguments that are texts.

    Returns: one text for both sides, or two; and the texts of `--lines`, of which the first then
        stands for the sides' text, or [] without it.

    Raises UsageError for more than two texts, and for texts beside a file of them.
    """
    count = len(arguments) + len(chats.chat or ())
    if count and sources.file is not None:
        raise UsageError(
            "texts are given, and a file of them as well", expected="texts, or --file FILE"
        )
    if count > 2:
        raise UsageError(
            "{text_arguments} texts are given",
            expected="one or two; a file holds one, or one a line with --lines",
            text_arguments=count,
        )
    if not sources.lines:
        # without arguments the one text comes from --file or standard input
        both = request.texts_and_chats(environment, arguments, chats)
        return both or [request.one_text(environment, sources)], []
    if count > len(arguments) or count > 1:
        raise UsageError(
            "--lines is about the lines of one text, and two are given",
            expected="--file FILE, or one text",
        )
    line_text = None
    if arguments:
        line_text = arguments[0]
    line_sources = replace(sources, text=line_text)
    lines = list(request.texts(environment, line_sources))
    return [lines[0]], lines


def _named_side(side: Side, model: NamedModel) -> Side:
    """The side with the name and the adapters of the argument that names its model, such as
    "smollm2+my-adapter", added."""
    adapters = [*(side.setup.model.adapter or []), *model.adapters]
    options = replace(side.setup.model, adapter=adapters or None)
    return Side(side.text, model.name, replace(side.setup, model=options))


def _are_two_models(chosen: Sequence[Side]) -> bool:
    """Whether the sides are one text in two models, with all of their heads."""
    if len(chosen) != 2 or chosen[0].text is not chosen[1].text:
        return False
    first, second = (side.setup.model for side in chosen)
    if any(side.layer or side.head or side.weights for side in (first, second)):
        return False
    return (first.model, first.adapter) != (second.model, second.adapter)


def _load_pair(
    environment: Environment, chosen: Sequence[Side], tokenizer: str | None
) -> tuple[Model, Model] | None:
    """Load both models, which keep their weights in memory where it allows that; None where one runs
    through transformers. Raises InputError for models with different layers or heads.

    chosen: the two sides.
    """
    from attncli.features.compare_models.compute import refuse_other_heads

    first, second = (
        request.model(environment, side.setup, tokenizer=tokenizer, many_runs=True)
        for side in chosen
    )
    refuse_other_heads(first, second, (chosen[0].name, chosen[1].name))
    if first.own_layers and second.own_layers:
        return first, second
    return None


def _with_other_weights(document: CompareDocument, plan: Plan, number: int) -> CompareDocument:
    """Add "weights" to what the document says differs, where the files of the first side's model and
    of the model of side `number` hold other weights under the same settings.

    plan: the sides, and both models where two are compared.
    """
    first, second = (plan.sides[side].setup.model.model for side in (0, number))
    if "weights" in document.differs or first is None or second is None or first == second:
        return document
    if not have_other_weights(first, second):
        return document
    # the order of `differs`: the text, its tokens, the weights, then settings
    place = len({"text", "tokens"}.intersection(document.differs))
    differs = [*document.differs[:place], "weights", *document.differs[place:]]
    return replace(document, differs=differs)


def _with_model_change(
    environment: Environment, document: CompareDocument, plan: Plan, text: Text
) -> CompareDocument:
    """Add to the document what the second of two models changes as a whole: in how many heads, and
    in the next token. Unchanged where the sides are not two models, and, with a note to the user,
    where their tokenizers split the text differently.

    plan: the sides, and both models where two are compared.
    """
    if plan.pair is None:
        return document
    from attncli.features.compare_models.compute import BEYOND, model_change, refuse_other_tokens

    first, second = plan.pair
    tokens = (request.tokens_of(first, text), request.tokens_of(second, text))
    try:
        refuse_other_tokens(tokens, plan.names)
    except InputError as error:
        environment.note(error.what)
        return document
    # its second value is the number of tokens, which a single text's document tells anyway
    change, _ = model_change(
        first,
        second,
        [tokens],
        beyond=BEYOND,
        names=plan.names,
        queries=None if document.queries is UNSET else document.queries,
    )
    return replace(document, models=change)


LINE_SUBJECTS = (
    "texts", "file", "lines", "model", "adapter", "with_adapter", "tokenizer", "mask", "scale", "softcap",
    "position", "attention", "backend", "dtype", "max_memory", "brief", "ascii", "full", "top", "fail_above",
)  # fmt: skip
"""The parameters that go with `--lines`: means over texts tell of no single token."""


def _compare_over_lines(
    environment: Environment,
    plan: Plan,
    output: OutputOptions,
    page: PageOptions,
    bound: Bound,
) -> None:
    """Write how two models differ over many texts, with the figure and the page. Raises
    VerdictError if they differ by more than `--fail-above` allows.

    plan: the sides, and both models where two are compared.
    bound: of --fail-above.
    """
    if plan.is_one_model:
        raise UsageError(
            "--lines compares two models, and both are the same",
            expected="another model, or an adapter: A B, or A A+DIR",
        )
    if plan.pair is None:
        raise UsageError(
            "--lines compares two models over texts, and here are not two",
            expected="two models that run natively, with all of their heads",
            hint="attn compare A.gguf B.gguf --file texts.txt --lines",
        )
    refuse_beside(environment, "--lines", LINE_SUBJECTS)
    view = validate_options(output, environment, "compare_models", files={"--html": page.html})
    from attncli.cli.progress import progress
    from attncli.features.compare_models.compute import BEYOND, compare_tokens

    first, second = plan.pair
    pairs = []
    for text in plan.texts:
        with request.errors_located_in(text):
            pairs.append((request.tokens_of(first, text), request.tokens_of(second, text)))
    _foretell_comparison(environment, plan, [len(tokens) for tokens, _ in pairs])
    with progress(environment, "comparing models") as on_progress:
        document = compare_tokens(
            first,
            second,
            pairs,
            beyond=BEYOND,
            names=plan.names,
            progress=on_progress,
        )
    if page.html is not None:
        from attncli.draw.page import any_page

        write_page(page, any_page(document, lang=view.lang, precision=view.precision))
    write_with_figure([document], output, environment, view)
    bound.refuse(bound.largest_of(document))


PATIENCE = 10.0
"""Estimated seconds from which on it is said before it starts what comparing models takes."""


def _foretell_comparison(environment: Environment, plan: Plan, counts: Sequence[int]) -> None:
    """Announce what running texts in both models takes, where that is more than `PATIENCE` seconds.
    Raises LimitError where it does not fit in memory.

    counts: the tokens of each text.
    plan: the sides, and both models where two are compared.
    """
    from attncli.draw.numbers import size_words
    from attncli.features.compare_models.compute import compare_cost
    from attncli.models.estimate import duration_words

    assert plan.pair is not None
    # the first side's limit of memory holds for both
    expected = compare_cost(*plan.pair, counts)
    request.refuse_memory(
        expected.peak,
        plan.sides[0].setup.compute,
        message("shorter texts"),
        resident=expected.resident,
    )
    if expected.seconds < PATIENCE:
        return
    environment.note(
        plural(
            "{count:,} text of {tokens:,} tokens in both models: about {time} and {bytes} of memory;"
            " Ctrl-C ends it",
            "{count:,} texts of up to {tokens:,} tokens in both models: about {time} and {bytes} of"
            " memory; what takes less: fewer texts; Ctrl-C ends it",
            count=expected.branches,
            tokens=expected.tokens,
            time=duration_words(expected.seconds),
            bytes=size_words(expected.peak),
        )
    )


def _run_sides(
    environment: Environment,
    plan: Plan,
    chats: ChatOptions,
    output: OutputOptions,
    records: list[RunRecord] | None,
    query: str | None,
    *,
    joins: bool,
) -> Iterator[tuple[str, RunDocument, Text]]:
    """Run the sides one after another, each when it is its turn, and yield (name, run, text).

    records: what a page shows of each side is added to it; None for no page.
    query: the value of --query.
    joins: whether tokens may be joined to words, so that words in each other's place that have
        different numbers of tokens can be compared.
    plan: the sides, and both models where two are compared.
    """
    chosen = plan.sides
    joined: list[list[range]] | None = None
    for number, side in enumerate(chosen):
        if plan.pair is None:
            loaded_model = request.model(environment, side.setup, tokenizer=plan.tokenizer)
        else:
            loaded_model = plan.pair[number]
        text = request.text_of(environment, chats, side.text, loaded_model)

        # before the first of two texts runs: which words are joined in both
        if number == 0 and len(chosen) == 2 and chosen[1].text is not side.text and joins:
            # both texts are split by the first side's tokenizer: only if the other has the same
            is_alike = side.setup.model == chosen[1].setup.model
            second = request.text_of(environment, chats, chosen[1].text, loaded_model)
            if is_alike:
                joined = _joined_words(environment, loaded_model, (text, second), query)

        words = None
        if joined is not None:
            words = _words_of(loaded_model, text, joined[number])
        with request.errors_located_in(text):
            document = _run_side(loaded_model, side, text, output, records, words=words)
        yield side.name, document, text


def _joined_words(
    environment: Environment, loaded_model: Model, texts: Sequence[Text], query: str | None
) -> list[list[range]] | None:
    """The runs of tokens to join to words in either text, so that words in each other's place can be
    compared; None where nothing is to join. A note tells the user of the first of them."""
    from attncli.features.compare.alignment import replaced_words
    from attncli.inputs.token import covered_text, straight_quotes

    tokens = [request.tokens_of(loaded_model, text) for text in texts]
    joined = replaced_words(
        [(row, text.text) for row, text in zip(tokens, texts, strict=True)], query
    )
    # in both texts as many words are joined
    if not joined[0]:
        return None
    # the first joined word of either text
    first = [
        covered_text(row[runs[0].start : runs[0].stop])
        for row, runs in zip(tokens, joined, strict=True)
    ]
    what = message(
        "{a} in A and {b} in B are compared as whole words: weights to their tokens are added"
        " up, weights from them averaged",
        a=straight_quotes(first[0]),
        b=straight_quotes(first[1]),
    )
    environment.note(what)
    return joined


def _words_of(loaded_model: Model, text: Text, joined: Sequence[range]) -> Words:
    """The tokens of a text as words: each of these runs of tokens is one word, and every other token
    a word by itself."""
    from attncli.inputs.word_groups import join_words

    spans = [(run.start, run.stop) for run in joined]
    return join_words(request.tokens_of(loaded_model, text), text.text, spans)


def _run_side(
    loaded_model: Model,
    side: Side,
    text: Text,
    output: OutputOptions,
    records: list[RunRecord] | None,
    *,
    words: Words | None,
) -> RunDocument:
    """Run the text of one side.

    records: what a page shows of the run is added to it; None for no page.
    words: the words that tokens are joined to; None where none are joined.
    """
    from attncli.features.run.compute import run as compute_run

    tokens = request.tokens_of(loaded_model, text)
    layers, heads = layers_and_heads(loaded_model, side.setup.model)
    recording = None
    if records is not None:
        from attncli.measure.run_record import Recording, recordable

        if recordable(loaded_model, words=words is not None):
            recording = Recording(loaded_model, tokens, heads)

    def refuse(expected: CostEstimate, count: int) -> None:
        """Called before the run with its estimated cost: refuse one that needs too much memory, or
        whose JSON is too long. Raises LimitError."""
        hint = request.smaller_run(loaded_model.spec)
        request.refuse_memory(
            expected.peak,
            side.setup.compute,
            hint,
            resident=expected.resident,
        )
        if output.json or output.ndjson:
            # a float64 in JSON, with its comma, is about 21 characters
            refuse_over(expected.numbers * 21, output, hint)

    # whole: every row is there to be compared; words: False keeps the tokens as they are
    document = compute_run(
        loaded_model,
        text.text,
        layers=layers,
        heads=heads,
        top=output.top,
        whole=True,
        words=words or False,
        tokens=tokens,
        on_cost=refuse,
        recording=recording,
    )
    if records is None:
        return document
    from attncli.measure.run_record import recorded_run, run_record

    if recording is not None:
        record = recorded_run(loaded_model, text.text, recording, name=side.name)
    else:
        # what could not be recorded on the way runs once more
        record = run_record(
            loaded_model,
            text.text,
            tokens,
            name=side.name,
            layers=layers,
            heads=heads,
            words=words or False,
        )
    records.append(record)
    return document


compare_app = command_app(
    compare,
    essentials="--model --layer --head --mask --weights --query --top --brief --json --figure",
    # another number of heads makes other matrices: no head of one side stands for one of the other
    hints={"--num-heads": "attn explain multihead --num-heads 1"},
)
