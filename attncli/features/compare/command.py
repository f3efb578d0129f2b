"""`attn compare`: what differs between two sides, signed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct
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
    delivery_number,
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
from attncli.cli.request import layers_and_heads
from attncli.errors import InputError, UsageError, VerdictError
from attncli.language import Message, listing, message

if TYPE_CHECKING:
    from attncli.features.compare.document import CompareDocument
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
    """The texts among the arguments, and the options with those that are weight files or checkpoint
    folders.

    Raises InputError for what is written like a file but cannot be one side: it is no text that
    anyone means.
    """
    files = [text for text in arguments if text.endswith(WEIGHT_FILES) and is_there(text)]
    folders = [text for text in arguments if is_there(f"{text}/config.json")]
    texts = [text for text in arguments if text not in (*files, *folders)]
    for text in texts:
        if text.endswith((*WEIGHT_FILES, ".json")) and not any(map(str.isspace, text)):
            reason = message(
                "a saved run is compared with saved runs only"
                if is_there(text)
                else "there is no such file"
            )
            raise InputError(
                reason,
                where=text,
                expected="texts, weight files, checkpoint folders, or only saved runs (.json)",
            )
    return texts, model.with_values("weights", [Path(file) for file in files]).with_values(
        "model", folders
    )


def is_there(name: str) -> bool:
    """Whether this is a file; a text may be no possible name at all."""
    return os.path.isfile(name)  # noqa: PTH113 - which never fails


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
    """The sides that texts and repeated options make: at least two, the first to be compared with
    each other one.

    with_adapter: what the second side has merged into it besides; then it and the first are alike
        otherwise.

    Raises UsageError where there is only one, or where options are repeated unequally often.
    """
    values_by_option = {**attention.values, **model.values, **compute.values}
    repeats = {name: values for name, values in values_by_option.items() if len(values) > 1}
    counts = {f"--{name}": len(values) for name, values in repeats.items()}
    counts |= {"texts": len(texts)} if len(texts) > 1 else {}
    if with_adapter is not None:
        if counts:
            raise UsageError(
                "--with-adapter compares one model with itself changed",
                expected="one text, one --model, and nothing given twice",
            )
        plain_setup = RunSetup(model.side(0), _intersect_masks(attention.side(0)), compute.side(0))
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
    compared_sides = []
    for side_index in range(next(iter(counts.values()))):
        words = [
            (
                Message(SETTINGS[name].template, {"value": values[side_index]})
                if name in SETTINGS
                else f"{name} {values[side_index]}"
            )
            for name, values in repeats.items()
        ]
        if words:
            label = listing(words, " · ")
        else:
            label = message("text {number}", number=side_index + 1)
        if len(texts) > 1:
            text = texts[side_index]
        else:
            text = texts[0]
        masked = _intersect_masks(attention.side(side_index))
        compared_sides.append(
            Side(text, label, RunSetup(model.side(side_index), masked, compute.side(side_index)))
        )
    return compared_sides


def _intersect_masks(options: AttentionOptions) -> AttentionOptions:
    """The options with a mask `A&B` split into A and B, which both hold: a repeated `--mask` is
    another side here, not one mask more."""
    if options.mask:
        return replace(options, mask=[part.strip() for part in options.mask[0].split("&")])
    return options


def compare(
    ctx: typer.Context,
    chats: ChatOptions,
    regions: RegionOptions,
    model: SideModel,
    attention: SideAttention,
    compute: SideCompute,
    output: Annotated[OutputOptions, meaning(top=About.JSON | SCREEN, precision=DRAWING)],
    page: PageOptions,
    texts: Annotated[
        list[str] | None,
        argument(
            "One text or two; weight files; checkpoint folders; saved runs (.json).",
            "[TEXT|FILE]...",
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
        float | None,
        delivery_number(
            help="Exit 1 when a weight differs by more than this.", metavar="X", least=0, most=1e30
        ),
    ] = None,
) -> None:
    """What differs between two texts, heads, layers, masks, scales, positions, models or files: B
    minus A.

    attn compare "she ate apples" "he ate apples"

    attn compare "humpty dumpty sat on" --mask none --mask window:2 --mask lsh:4

    attn compare "it was too tired" "it was too wide" --model minilm --query it

    attn compare before.safetensors after.safetensors "humpty dumpty sat on"

    attn compare before.json after.json --fail-above 1e-6
    """

    environment: Environment = ctx.obj
    validate_page(page)
    effects = _saved_effects(texts)
    saved_runs = _saved_runs(texts)
    if effects is not None or saved_runs is not None:
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
        _compare_effects(effects, output, environment, fail_above)
        return
    view = validate_options(output, environment, "compare", files={"--html": page.html})
    records: list[RunRecord] | None = None if page.html is None else []
    runs = saved_runs or _run_sides(
        environment,
        texts,
        chats,
        model,
        attention,
        compute,
        tokenizer,
        output,
        records,
        with_adapter,
        query,
        joins=_may_join(query, chats, regions),
    )
    worst: list[float] = []

    def regions_in(document: RunDocument, text: Text) -> list[Region]:
        """The regions (named sets of tokens) that the options name in the text of one side."""
        from attncli.documents.header import tokens_of

        return request.regions_of(environment, regions, text, tokens_of(document.tokens))

    def documents() -> Iterator[CompareDocument]:
        """The first run's document compared with each of the others."""
        from attncli.features.compare.compute import compare as compute_compare

        name, first, text = next(runs)
        for second_name, second, second_text in runs:
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
            worst.append(abs(document.summary.max_difference))
            if page.html is not None:
                if len(worst) > 1:
                    raise UsageError(
                        "a page compares two sides, and there are more",
                        expected="two sides, or no --html",
                    )
                run_records = records or [
                    _saved_record(name, first),
                    _saved_record(second_name, second),
                ]
                _write_compared_page(run_records, document, page, view.lang)
            yield document
            if output.json and next(runs, None) is not None:
                raise UsageError(
                    "--json is one document, and more than two sides make several",
                    expected="--ndjson, or two sides",
                )

    write_with_figure(list(documents()), output, environment, view)
    _refuse_above(
        message("a weight differs by {largest:.6g}", largest=max(worst)), max(worst), fail_above
    )


def _may_join(query: str | None, chats: ChatOptions, regions: RegionOptions) -> bool:
    """Whether tokens may be joined to words: not where positions of tokens are named."""
    by_place = query is not None and query.startswith("#")
    return not (by_place or chats.chat or regions.region or regions.regions)


def _refuse_above(reason: Message, largest: float, fail_above: float | None) -> None:
    """Raise VerdictError for `reason` where a difference is larger than `--fail-above` lets it be."""
    if fail_above is not None and largest > fail_above:
        raise VerdictError(
            reason, expected="at most {fail_above:g} (--fail-above)", fail_above=fail_above
        )


def _write_compared_page(
    records: list[RunRecord], document: CompareDocument, page: PageOptions, lang: str
) -> None:
    """Write the page of two runs and of what differs between them."""
    from attncli.draw.page import page_bytes
    from attncli.features.compare.page import compared_page

    left_tokens, right = ([pair[side] for pair in document.aligned] for side in (0, 1))
    content = compared_page(document, records, (left_tokens, right), lang, page.budget, PAGE_BUDGET)
    write_page(page, page_bytes(content))


def _saved_record(name: str, document: RunDocument) -> RunRecord:
    """A saved run, called by the name of its file."""
    from attncli.measure.document_heads import document_record

    record = document_record(document)
    assert record is not None  # it is a run
    return replace(record, name=name)


def _saved_runs(texts: list[str] | None) -> Iterator[tuple[str, RunDocument, Text]] | None:
    """The saved runs that the texts name, each with its name and its text, if all texts name .json
    files; None otherwise."""
    if (
        not texts
        or len(texts) < 2
        or not all(text.endswith(".json") for text in texts)
        or not any(map(is_there, texts))
    ):
        return None
    from attncli.inputs.token import Text

    documents = ((name, _read_run(Path(name))) for name in texts)
    return ((name, document, Text(document.text, name)) for name, document in documents)


def _saved_effects(texts: list[str] | None) -> list[tuple[str, EffectsDocument]] | None:
    """The `attn.effects` documents with their file names, if there are two texts and both name such
    files; None otherwise."""
    if (
        not texts
        or len(texts) != 2
        or not all(text.endswith(".json") and is_there(text) for text in texts)
    ):
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
    """Raise UsageError for options about weights and texts beside saved documents, which hold what
    ran. page: refused too if it has a file, for documents that no page shows; None where it is
    allowed."""
    groups = (ModelOptions, AttentionOptions, ComputeOptions, ChatOptions)
    about = {name for group in groups for name in option_defaults(group)} | {"tokenizer"}
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
    fail_above: float | None,
) -> None:
    """Write how two saved effects differ. Raises VerdictError where that is more than
    `--fail-above`.
    """
    from attncli.features.effects.ablation import difference_document

    environment.subjects = subjects_of(OutputOptions)
    view = validate_options(output, environment, "difference")
    (a, first), (b, second) = sides
    document = difference_document(first, second, (a, b))
    write_with_figure([document], output, environment, view)
    worst = abs(document.heads[0].difference)
    _refuse_above(message("an effect differs by {worst:.6g}", worst=worst), worst, fail_above)


def _read_run(path: Path) -> RunDocument:
    """The run that a file holds. Raises InputError for a document of another kind."""
    from attncli.features.run.document import RunDocument
    from attncli.features.view.command import open_document

    document = open_document(path)
    if not isinstance(document, RunDocument):
        what = message("this is {schema}", schema=repr(document.schema))
        raise InputError(what, where=str(path), expected="attn.run/1, as attn run --json writes it")
    return document


def _run_sides(
    environment: Environment,
    texts: list[str] | None,
    chats: ChatOptions,
    model: SideModel,
    attention: SideAttention,
    compute: SideCompute,
    tokenizer: str | None,
    output: OutputOptions,
    records: list[RunRecord] | None,
    with_adapter: str | None,
    query: str | None,
    *,
    joins: bool,
) -> Iterator[tuple[str, RunDocument, Text]]:
    """Run each side as it is reached, and yield its name, run and text. records: gets what a page
    shows of each; None for no page. query: as asked for. joins: whether words in each other's place
    may be joined of their tokens. Raises UsageError."""
    text_arguments, model = split_texts_and_files(texts or (), model)
    count = len(text_arguments) + len(chats.chat or ())
    if count > 2:
        raise UsageError(
            "{text_arguments} texts are given", expected="one or two", text_arguments=count
        )
    side_texts = request.texts_and_chats(environment, text_arguments, chats)
    side_texts = side_texts or [request.one_text(environment, TextOptions())]
    if (
        with_adapter is not None
        and not model.values["model"]
        and "model" not in environment.settings
    ):
        raise UsageError(
            "--with-adapter changes a checkpoint, and none is named",
            expected="--model NAME as well",
        )
    chosen = sides(side_texts, model, attention, compute, with_adapter)
    joined: list[list[range]] | None = None
    for number, side in enumerate(chosen):
        loaded_model = request.model(environment, side.setup, tokenizer=tokenizer)
        text = request.text_of(environment, chats, side.text, loaded_model)
        if number == 0 and len(side_texts) == 2 and joins:
            is_alike = chosen[0].setup.model == chosen[1].setup.model
            second = request.text_of(environment, chats, side_texts[1], loaded_model)
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
    """The tokens to join in either text, so that words in each other's place can be compared, and a
    note of them; None where none are."""
    from attncli.features.compare.alignment import replaced_words
    from attncli.inputs.token import covered_text

    tokens = [request.tokens_of(loaded_model, text) for text in texts]
    joined = replaced_words(
        [(row, text.text) for row, text in zip(tokens, texts, strict=True)], query
    )
    if not joined[0]:
        return None
    first = [
        covered_text(row[runs[0].start : runs[0].stop])
        for row, runs in zip(tokens, joined, strict=True)
    ]
    what = message(
        "{a} in A and {b} in B are compared as whole words: weights to their tokens are summed,"
        " from them averaged",
        a=repr(first[0]),
        b=repr(first[1]),
    )
    environment.note(what)
    return joined


def _words_of(loaded_model: Model, text: Text, joined: Sequence[range]) -> Words:
    """The tokens of a text with these runs of them joined."""
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
    """The run of one side; where a page is written, its record is added to `records`. words: what
    tokens are joined to; None where all stay apart."""
    from attncli.features.run.compute import run as compute_run

    tokens = request.tokens_of(loaded_model, text)
    layers, heads = layers_and_heads(loaded_model, side.setup.model)
    recording = None
    if records is not None:
        from attncli.measure.run_record import Recording, recordable

        if recordable(loaded_model, words=words is not None):
            recording = Recording(loaded_model, tokens, heads)
        else:
            recording = None

    def refuse(expected: CostEstimate, count: int) -> None:
        """Refuse a run that needs too much memory, or whose JSON is too long. Raises LimitError."""
        hint = request.smaller_run(loaded_model.spec)
        request.refuse_memory(
            expected.peak,
            side.setup.compute,
            hint,
            resident=expected.resident,
        )
        if output.json or output.ndjson:
            refuse_over(expected.numbers * 21, output, hint)

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

    records.append(
        run_record(
            loaded_model,
            text.text,
            tokens,
            name=side.name,
            layers=layers,
            heads=heads,
            words=words or False,
        )
        if recording is None
        else recorded_run(loaded_model, text.text, recording, name=side.name)
    )
    return document


compare_app = command_app(
    compare,
    essentials="--model --layer --head --mask --weights --query --top --brief --json --figure",
)
