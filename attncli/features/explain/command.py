"""`attn explain`: the derivation with the numbers of a text, and the topics."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct
from msgspec.structs import replace
from typer.core import TyperGroup

from attncli.arrays.backend import EVERY, Selection, numbers_of
from attncli.cli import completion, declarations, request
from attncli.cli.app import COMMANDS, LazyCommands
from attncli.cli.declarations import (
    AttentionOptions,
    ComputeOptions,
    ModelOptions,
    PagedOutput,
    RunSetup,
    TextOptions,
)
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import GroupedCommand
from attncli.cli.option import (
    RUN,
    SCREEN,
    About,
    PlainParameters,
    argument,
    flat,
    meaning,
    model_number,
    redeclare,
    without,
)
from attncli.cli.output import (
    refuse_over,
    validate_options,
    write_documents,
    write_pieces,
    write_with_figure,
)
from attncli.cli.progress import wait_for_key
from attncli.errors import UsageError
from attncli.language import Message, listing, message, term

if TYPE_CHECKING:
    from attncli.draw.lines import Lines
    from attncli.draw.view import View
    from attncli.features.explain.document import AttentionTopic, ExplainDocument
    from attncli.inputs.token import Text, Token
    from attncli.models.estimate import CostEstimate
    from attncli.models.model import Model

DIGITS = 4
"""Digits after the point: with two, no step could be followed."""


class ExplainOutput(PagedOutput, frozen=True):
    """The output options of `attn explain`: the common ones with more digits, `--step` (wait for a
    key after each step) and `--code`."""

    precision: Annotated[int, declarations.PRECISION] = DIGITS
    top: Annotated[
        int,
        redeclare(
            declarations.TOP,
            help="How many keys have a line of their own, those of the largest weights. [default:"
            " all of up to 4, else 3; with --show all of up to 16, else 10]",
        ),
    ] = 10
    step: Annotated[bool, declarations.STEP] = False
    code: Annotated[str | None, declarations.CODE] = None


TextOutput = Annotated[
    ExplainOutput,
    without("scale_colors", "figure_parts"),
    meaning(show=About.JSON | SCREEN, max_output=RUN),
]
TopicOutput = Annotated[
    ExplainOutput,
    without("show", "top", "scale_colors", "figure_parts", "code"),
    meaning(max_output=RUN),
]
"""Those of a topic about a text; its screen has no parts to choose from, and no ranking."""
SmallOutput = Annotated[
    ExplainOutput, without("show", "top", "scale_colors", "figure_parts", "max_output", "code")
]
"""Those of a topic without a text, whose document is small."""
RuleOutput = Annotated[
    ExplainOutput,
    without("show", "top", "scale_colors", "figure_parts", "max_output", "code", "precision"),
]
"""Those of a rule, whose rows are shares of few keys: two digits tell them."""


def chosen_layer(model: Model, options: ModelOptions) -> int:
    """The layer that `--layer` names; without `--layer`, the first layer that has attention. Raises
    UsageError for several layers or a malformed one, InputError for one that the model lacks."""
    selection = request.numbers(options.layer, "layer", len(model.spec.blocks))
    if selection is EVERY:
        return model.spec.attending()[0]
    return single_number(selection, "layer")


def chosen_place(model: Model, options: ModelOptions) -> tuple[int | None, int | None]:
    """The layer and the head that `--layer` and `--head` name; None for one that is not given.
    Raises UsageError where either names several, InputError for what the model lacks."""
    # (layer, head) of each head that is named with its layer, such as L5H11
    pairs = request.named_heads(model.spec, options)
    if pairs:
        if len(pairs) > 1:
            expected = message("one: this is about one {noun}", noun=term("head"))
            raise UsageError("--head names {count} heads", expected=expected, count=len(pairs))
        return pairs[0]
    if options.layer is None:
        layer = None
    else:
        layer = chosen_layer(model, options)
    if options.head is None:
        return layer, None
    # a head's number alone: of a checkpoint, the layer is searched later, so any may have it; else
    # that of --layer or the first
    is_searched = layer is None and model.identity.source == "checkpoint"
    if is_searched:
        layers = model.spec.attending()
    else:
        layers = [chosen_layer(model, options)]
    head_count = max(model.spec.blocks[index].attention.heads for index in layers)
    return layer, single_number(request.numbers(options.head, "head", head_count), "head")


def refuse_search(
    model: Model, compute: ComputeOptions, expected: CostEstimate, count: int
) -> None:
    """Called before the search for the head with the query's strongest link, with its cost and the
    number of tokens: raise LimitError if it takes more memory than allowed."""
    del count
    hint = request.smaller_run(model.spec)
    request.refuse_memory(expected.peak, compute, hint, resident=expected.resident)


def single_number(selection: Selection, what: str) -> int:
    """The one layer or head that a selection names; 0 for `EVERY`, which names none. Raises
    UsageError for several.

    what: "layer" or "head", for the message.
    """
    if selection is EVERY:
        return 0
    numbers = numbers_of(selection, 1)  # (the count, 1, is used for `EVERY` alone)
    if len(numbers) > 1:
        expected = message("one: this is about one {noun}", noun=term(what))
        raise UsageError(
            "--{what} names {numbers} {what}s", expected=expected, what=what, numbers=len(numbers)
        )
    return numbers[0]


# How a topic of `attn explain` is answered: at once, or step by step at a terminal.


def give_topic(ctx: typer.Context, document: ExplainDocument, output: ExplainOutput) -> None:
    """Check the output options and write a topic's document to the output."""
    environment: Environment = ctx.obj
    check_steps(output, environment)
    write_explanation(document, output, environment, validate_options(output, environment))


def write_explanation(
    document: ExplainDocument, output: ExplainOutput, environment: Environment, view: View
) -> None:
    """Write an explanation: with `--step` one step after each key press, else all at once."""
    if not output.step:
        write_with_figure([document], output, environment, view)
        return
    from attncli.draw.lines import as_text
    from attncli.features.explain.screen import explain_blocks

    # a part that the document lacks is a block without rows, and no step
    blocks = [block for block in explain_blocks(document, view) if block.rows]
    for index, block in enumerate(blocks):
        if index:
            environment.write(b"\n")
            if wait_for_key(message("— any key for the next step, q ends —"), view, environment):
                return
        environment.write(as_text(block, view).encode())


def check_steps(output: ExplainOutput, environment: Environment) -> None:
    """Raise UsageError where `--step` is used without a terminal, or with an output format that is
    no screen.
    """
    if not output.step:
        return
    # whether each of these options is used
    formats = {
        "--json": output.json,
        "--ndjson": output.ndjson,
        "--plain": output.plain,
        "--brief": output.brief,
        "--output": output.file is not None,
        "--csv": output.csv is not None,
        "--figure": output.svg is not None,
        "--html": output.page is not None,
    }
    for name, is_used in formats.items():
        if is_used:
            raise UsageError(
                "--step waits between the steps of a screen, and {format_option} has none",
                expected="one of them",
                format_option=name,
            )
    is_terminal = environment.stdin_is_terminal and environment.stdout_is_terminal
    if not is_terminal or environment.keys is None:
        raise UsageError(
            "--step waits for a key, and nobody is at a terminal",
            expected="a terminal, or no --step",
        )


# The topics of `attn explain` that are about a whole layer: position, mask, multihead, residual.

POSITIONS = ("none", "sinusoidal", "learned", "rope", "alibi")
"""The ways that seeded weights have of telling where tokens stand."""
HEADS = 4
"""Heads of seeded weights where several are explained."""
SEVERAL = redeclare(declarations.NUM_HEADS, help=f"Number of heads. [default: {HEADS}]")


class TopicPlace(Struct, frozen=True):
    """What an explanation is about: a model, a text with its tokens, a layer, a head and the
    query's position.
    """

    model: Model
    text: str
    tokens: list[Token]
    layer: int
    head: int
    query: int


def position(
    ctx: typer.Context,
    text: TextOptions,
    setup: RunSetup,
    output: TopicOutput,
    query: Annotated[str | None, declarations.QUERY] = None,
) -> None:
    """How attention is told where words stand: each way's numbers, and what it does to one query's
    weights.

    attn explain position "humpty dumpty sat on" --query on

    attn explain position "humpty dumpty sat on" --position rope
    """
    from attncli.features.explain.compute import position_document

    environment: Environment = ctx.obj
    place = topic_place(environment, text, setup, output, query)

    # the position encodings to compare with none; a checkpoint has learned with its own alone, and
    # is shown under no other
    position = setup.attention.position
    names: Iterable[str] = POSITIONS
    if position is not None:
        names = dict.fromkeys(("none", position))
    variants: list[AttentionOptions] = []
    if place.model.identity.source != "checkpoint":
        variants = with_positions(names, setup.attention, place.model)
    models = models_under(variants, environment, place.model, setup, text.tokenizer)
    document = position_document(
        models, place.text, place.tokens, layer=place.layer, head=place.head, query=place.query
    )
    give_topic(ctx, document, output)


def mask(
    ctx: typer.Context,
    text: TextOptions,
    setup: RunSetup,
    output: TopicOutput,
    query: Annotated[str | None, declarations.QUERY] = None,
    others: Annotated[
        list[str] | None, argument("More texts: all are padded together.", "[OTHER]...")
    ] = None,
) -> None:
    """What a mask does between scores and weights (one text: --mask causal without another); of
    several texts, how padding is masked.

    attn explain mask "humpty dumpty sat on" --query sat

    attn explain mask "humpty dumpty sat on" "on a wall" --mask none
    """
    from attncli.features.explain.compute import mask_topic_document

    if text.text is not None:
        _refuse_mask_names([text.text, *(others or ())])
    # a single text of seeded weights is explained with a mask, where none is asked for
    if setup.attention.mask is None and setup.model.model is None and not others:
        setup = replace(setup, attention=replace(setup.attention, mask=["causal"]))
    place = topic_place(ctx.obj, text, setup, output, query, of_mask=True)
    padded_with = [(other_text, place.model.encode(other_text)) for other_text in others or ()]
    document = mask_topic_document(
        place.model,
        place.text,
        place.tokens,
        layer=place.layer,
        head=place.head,
        query=place.query,
        others=padded_with,
    )
    give_topic(ctx, document, output)


def _refuse_mask_names(words: Sequence[str]) -> None:
    """Raise UsageError where all of these words, meant as texts of `attn explain mask`, are names of
    masks."""
    from attncli.mechanism.mask import parse_mask

    try:
        for word in words:
            parse_mask(word)
    except UsageError:  # one of them is no mask, so all are texts
        return
    names = listing(map(repr, words), " and ")
    what = message("{names} are names of masks, and this takes texts", names=names)
    hint = f"attn mask {' '.join(words)}"
    if len(words) == 1:
        what = message("{names} is the name of a mask, and this takes texts", names=names)
        hint = f'attn explain mask "humpty dumpty sat on" --mask {words[0]}'
    raise UsageError(
        what,
        expected="a text in quotes; its mask after --mask",
        hint=hint,
    )


def multihead(
    ctx: typer.Context,
    text: TextOptions,
    setup: Annotated[RunSetup, without("head"), meaning(num_heads=SEVERAL)],
    output: TopicOutput,
    query: Annotated[str | None, declarations.QUERY] = None,
) -> None:
    """Several heads: what each looks at, what the average hides, and concat(O₁ … O_h)·W_O written
    out.

    attn explain multihead "humpty dumpty sat on" --query on --num-heads 4
    """
    from attncli.features.explain.compute import multihead_document

    place = topic_place(ctx.obj, text, setup, output, query, heads=HEADS, whole_layer=True)
    document = multihead_document(
        place.model, place.text, place.tokens, layer=place.layer, query=place.query
    )
    give_topic(ctx, document, output)


def residual(
    ctx: typer.Context,
    text: TextOptions,
    setup: Annotated[RunSetup, without("head")],
    output: TopicOutput,
    query: Annotated[str | None, declarations.QUERY] = None,
) -> None:
    """The residual connection x + O and the norm, worked out for one query.

    attn explain residual "humpty dumpty sat on" --query on
    """
    from attncli.features.explain.compute import residual_document

    if setup.model.model is None:
        # seeded weights get the residual connection and the norm that the topic is about
        setup = replace(setup, model=replace(setup.model, residual=True, layer_norm=True))
    place = topic_place(ctx.obj, text, setup, output, query, whole_layer=True)
    document = residual_document(
        place.model, place.text, place.tokens, layer=place.layer, query=place.query
    )
    give_topic(ctx, document, output)


def qkv(
    ctx: typer.Context,
    text: TextOptions,
    setup: RunSetup,
    output: TopicOutput,
    query: Annotated[str | None, declarations.QUERY] = None,
) -> None:
    """Why three matrices: a search over the words, and what is lost where K is Q, or V is K.

    attn explain qkv "humpty dumpty sat on" --query on
    """
    from attncli.features.explain.qkv_topic import qkv_document

    place = topic_place(ctx.obj, text, setup, output, query)
    document = qkv_document(
        place.model,
        place.text,
        place.tokens,
        layer=place.layer,
        head=place.head,
        query=place.query,
    )
    give_topic(ctx, document, output)


def training(
    ctx: typer.Context,
    text: TextOptions,
    setup: Annotated[RunSetup, without("residual", "layer_norm")],
    output: TopicOutput,
    query: Annotated[str | None, declarations.QUERY] = None,
    target: Annotated[
        str | None,
        redeclare(
            declarations.TARGET,
            help="The word it is to look at. [default: the one it gives least]",
        ),
    ] = None,
    learning_rate: Annotated[float, declarations.LEARNING_RATE] = 0.01,
) -> None:
    """One training step by hand: how the error reaches W_Q and W_K, and what the step changes.

    attn explain training "humpty dumpty sat on" --query on --target sat
    """
    from attncli.features.explain.training_topic import training_document
    from attncli.inputs.token import choose_span

    environment: Environment = ctx.obj
    place = topic_place(environment, text, setup, output, query)
    target_places = None
    if target is not None:
        first, stop = choose_span(place.tokens, target, environment.note)
        target_places = list(range(first, stop))
    document = training_document(
        place.model,
        place.text,
        place.tokens,
        layer=place.layer,
        head=place.head,
        query=place.query,
        target=target_places,
        learning_rate=learning_rate,
    )
    give_topic(ctx, document, output)


SAID_AND_READ = ("le chat noir dort", "the black cat sleeps")
"""The texts of `attn explain seq2seq` where none is given: what is said, and what was read."""


def seq2seq(
    ctx: typer.Context,
    setup: Annotated[
        RunSetup, without("residual", "layer_norm", "embeddings", "source_states", "source")
    ],
    output: TopicOutput,
    query_text: Annotated[
        str | None,
        argument("What the decoder says; without texts, a pair of its own.", "[QUERY_TEXT]"),
    ] = None,
    key_text: Annotated[
        str | None,
        argument("What the encoder has read.", "[KEY_TEXT]"),
    ] = None,
    tokenizer: Annotated[str | None, declarations.TOKENIZER] = None,
) -> None:
    """An encoder-decoder: the bottleneck of one vector, annotations, and the search over them.

    attn explain seq2seq "le chat noir dort" "the black cat sleeps"

    attn explain seq2seq --model FOLDER "Das Haus ist klein" "The house is small"
    """
    from attncli.features.cross.compute import cross_memory, cross_texts
    from attncli.features.explain.seq2seq_topic import seq2seq_document
    from attncli.mechanism.spec import HeadSelection

    environment: Environment = ctx.obj
    sides = (query_text, key_text)
    if query_text is None:
        # the command's own pair of texts
        sides = SAID_AND_READ
    elif key_text is None:
        raise UsageError(
            "one text is given, and an encoder-decoder has two",
            expected="two texts, QUERY_TEXT and KEY_TEXT",
            hint='attn explain seq2seq "le chat noir dort" "the black cat sleeps"',
        )
    validate_options(output, environment)
    model = request.model(environment, setup, tokenizer=tokenizer)
    query, key = (request.one_text(environment, TextOptions(text=side_text)) for side_text in sides)
    texts = cross_texts(model, query, key)
    # seeded weights are one stack of layers, which reads both texts
    decoder = model.spec.decoder or model.spec
    pairs = request.named_heads(decoder, setup.model)
    if pairs:
        layers, heads = HeadSelection(pairs=pairs).layers_and_heads("--head")
    else:
        # the attention to the other text; of seeded weights it is the only one
        first = decoder.blocks[0].cross or decoder.blocks[0].attention
        layers = request.numbers(setup.model.layer, "layer", len(decoder.blocks))
        heads = request.numbers(setup.model.head, "head", first.heads)
    request.refuse_memory(cross_memory(model, texts, layers, heads), setup.compute, "shorter texts")
    document = seq2seq_document(
        model, texts.query, texts.key, layers=layers, heads=heads, texts=texts
    )
    give_topic(ctx, document, output)


def topic_place(
    environment: Environment,
    text: TextOptions,
    setup: RunSetup,
    output: ExplainOutput,
    query: str | None,
    *,
    heads: int = 1,
    of_mask: bool = False,
    whole_layer: bool = False,
) -> TopicPlace:
    """Resolve the options to model, text, layer, head and query; where a checkpoint's layer or head
    is not named, it is that of the query's strongest link.

    output: only checked here.
    query: the word to explain; None for the last one, or if of_mask, for one from which the mask
        hides keys.
    heads: how many heads seeded weights have without `--num-heads`.
    whole_layer: whether the topic is about all heads of the layer.
    """
    from attncli.features.explain.compute import default_query, masked_query, strongest_head
    from attncli.features.run.compute import RunRequest

    # options first: a wrong one must be refused before a model is loaded, or a note written
    validate_options(output, environment)
    loaded_model = request.model(environment, setup, tokenizer=text.tokenizer, heads=heads)
    source_text = request.one_text(environment, text)
    tokens = request.tokens_of(loaded_model, source_text)
    open_layer, open_head = chosen_place(loaded_model, setup.model)
    if query is not None:
        index = request.query_index(environment, tokens, query)
    elif of_mask:
        index = masked_query(loaded_model, tokens, open_layer)
    else:
        index = default_query(tokens)
    layer, head = strongest_head(
        loaded_model,
        source_text.text,
        tokens,
        index,
        layer=open_layer,
        head=open_head,
        whole_layer=whole_layer,
        note=environment.note,
        on_cost=partial(refuse_search, loaded_model, setup.compute),
    )
    request.refuse_run(
        loaded_model, len(tokens), RunRequest([layer], stages=True), setup.compute, "a shorter text"
    )
    return TopicPlace(loaded_model, source_text.text, tokens, layer, head, index)


def with_positions(
    names: Iterable[str], attention: AttentionOptions, first: Model
) -> list[AttentionOptions]:
    """The attention options once for each of these position encodings, without RoPE where heads have
    an odd width, whose entries it cannot pair.

    first: a model of that width.
    """
    if first.spec.blocks[0].attention.head_dim % 2:
        names = [name for name in names if not name.startswith("rope")]
    return [replace(attention, position=name) for name in names]


def models_under(
    variants: Sequence[AttentionOptions],
    environment: Environment,
    first: Model,
    setup: RunSetup,
    tokenizer: str | None,
) -> Iterator[Model]:
    """Yield models with the first model's weights under each of these attention options, loaded one
    by one; the first model itself where there are none."""
    if not variants:
        yield first
    # a random seed was drawn for the first model: the others take the same
    if setup.model.seed == "random":
        setup = replace(setup, model=replace(setup.model, seed=str(first.identity.seed)))
    for attention in variants:
        yield request.model(
            environment.without_notes(),  # the first model's were written
            replace(setup, attention=attention),
            tokenizer=tokenizer,
        )


def softmax(
    ctx: typer.Context,
    output: SmallOutput,
    numbers: Annotated[
        list[str] | None, argument("The scores. [default: 2.0 1.0 0.1]", "[NUMBER]...")
    ] = None,
    temperature: Annotated[
        float,
        model_number(
            help="Divides the scores before the softmax.",
            metavar="T",
            least=0,
            most=1e30,
            above=True,
        ),
    ] = 1.0,
) -> None:
    """Softmax of given numbers, worked through.

    attn explain softmax 2.0 1.0 0.1

    attn explain softmax --temperature 0.5 -1 0 1
    """
    from attncli.cli.border import behind_dashes, no_option
    from attncli.features.explain.softmax_topics import parse_scores, softmax_document

    # the command takes unknown options as numbers, so that -1 can be one
    for number in numbers or ():
        if number.startswith("--"):
            name, _, _ = number.partition("=")
            raise behind_dashes(ctx, number) or no_option(ctx, name)
    scores = parse_scores(numbers or ["2.0", "1.0", "0.1"])
    give_topic(ctx, softmax_document(scores, temperature), output)


def scaling(
    ctx: typer.Context,
    output: SmallOutput,
    d_k: Annotated[int, redeclare(declarations.D_K, help="Width of a query and key.")] = 64,
    d_model: Annotated[
        int | None,
        redeclare(
            declarations.D_MODEL,
            help="Width of the token vectors: scales by 1/√d_model, as some tutorials do.",
        ),
    ] = None,
    samples: Annotated[int, model_number(help="Independent pairs of q and k.", least=2)] = 4096,
    keys: Annotated[int, model_number(help="Keys that the softmax runs over.")] = 10,
    seed: Annotated[
        int, redeclare(declarations.SEED_NUMBER, help="Seed of the random vectors.")
    ] = 0,
) -> None:
    """Why √d_k: the variance of q·k measured against theory, and what scaling does to the softmax.

    attn explain scaling --d-k 512
    """
    from attncli.features.explain.softmax_topics import scaling_document

    give_topic(
        ctx, scaling_document(d_k, samples=samples, keys=keys, seed=seed, d_model=d_model), output
    )


def matrix_softmax(
    ctx: typer.Context,
    text: TextOptions,
    setup: Annotated[RunSetup, without("residual", "layer_norm")],
    output: TopicOutput,
) -> None:
    """Softmax of each row against softmax over the whole matrix, on a text's scores.

    attn explain matrix-softmax "humpty dumpty sat on"
    """
    from attncli.draw.encoding import estimate_bytes
    from attncli.features.explain.softmax_topics import matrix_softmax_document
    from attncli.features.run.compute import RunRequest

    environment: Environment = ctx.obj
    validate_options(output, environment)
    loaded_model = request.model(environment, setup, tokenizer=text.tokenizer)
    source_text = request.one_text(environment, text)
    tokens = request.tokens_of(loaded_model, source_text)
    open_layer, open_head = chosen_place(loaded_model, setup.model)
    # the first layer that attends, and its first head, where none is named: nothing is searched here
    if open_layer is None:
        layer = chosen_layer(loaded_model, setup.model)
    else:
        layer = open_layer
    head = open_head or 0
    shape = (3, len(tokens), len(tokens))  # the scores, and the weights of both softmaxes
    refuse_over(estimate_bytes([shape], "float64"), output, "a shorter text")
    request.refuse_run(
        loaded_model, len(tokens), RunRequest([layer], [head]), setup.compute, "a shorter text"
    )
    give_topic(
        ctx,
        matrix_softmax_document(loaded_model, source_text.text, tokens, layer=layer, head=head),
        output,
    )


def order(
    ctx: typer.Context,
    text: TextOptions,
    setup: Annotated[RunSetup, without("head")],
    output: SmallOutput,
    other_text: Annotated[
        str | None, argument("The same tokens in another order. [default: reversed]", "[OTHER]")
    ] = None,
) -> None:
    """Whether attention sees the order of the tokens: without positions it does not.

    attn explain order 我爱你 你爱我 --tokenizer char
    """
    from attncli.features.explain.softmax_topics import order_document, order_of, reversed_order
    from attncli.features.run.compute import RunRequest

    environment: Environment = ctx.obj
    if setup.model.embeddings is not None:
        what = message("--embeddings has one row per place, and order moves the tokens")
        raise UsageError(what, expected="seeded, file or checkpoint embeddings")
    validate_options(output, environment)
    first = request.model(environment, setup, tokenizer=text.tokenizer)
    source_text = request.one_text(environment, text)
    tokens = request.tokens_of(first, source_text)
    layer = chosen_layer(first, setup.model)
    request.refuse_run(first, len(tokens), RunRequest([layer]), setup.compute, "a shorter text")
    if other_text is None:
        new_order = reversed_order(tokens)
    else:
        new_order = order_of(tokens, first.encode(other_text))

    # with every position encoding and a causal mask, unless the user or a checkpoint says which
    attention = setup.attention
    has_own_position = attention.position is not None or first.identity.source == "checkpoint"
    variants: list[AttentionOptions] = []
    if not has_own_position and not attention.mask:
        variants = with_positions(POSITIONS, attention, first)
        variants.append(replace(attention, mask=["causal"]))
    models = models_under(variants, environment, first, setup, text.tokenizer)
    document = order_document(models, source_text.text, tokens, new_order, layer=layer)
    give_topic(ctx, document, output)


def metric(
    ctx: typer.Context,
    output: SmallOutput,
    name: Annotated[
        str | None, argument("The metric; none lists them.", "[NAME]", completion.metric)
    ] = None,
) -> None:
    """What a metric of `attn heads` means: formula, range, what it leaves out, source.

    attn explain metric entropy
    """
    if name is None:
        from attncli.features.explain.softmax_screens import metrics_screen

        what = message("the list of the metrics is a screen alone")
        _write_list(ctx, output, what, "attn explain metric NAME", metrics_screen)
        return
    from attncli.features.explain.softmax_topics import metric_document

    give_topic(ctx, metric_document(name), output)


def rule(
    ctx: typer.Context,
    output: RuleOutput,
    name: Annotated[
        str | None, argument("The rule; none lists them.", "[NAME]", completion.rule)
    ] = None,
    rule_file: Annotated[list[Path] | None, declarations.RULE_FILE] = None,
) -> None:
    """What a rule of `attn heads --rules` means: where it looks, formula, its rows in a short text.

    attn explain rule bracket

    attn explain rule my_rules.vowels --rule-file my_rules.py
    """
    files = rule_file or ()
    if name is None:
        from attncli.features.explain.rule_screen import rules_screen, rules_table
        from attncli.features.explain.rule_topic import known_rules

        what = message("the list of the rules is a screen or a table")
        rules = known_rules(files)
        _write_list(
            ctx,
            output,
            what,
            "attn explain rule NAME",
            partial(rules_screen, rules),
            rules_table(rules),
        )
        return
    from attncli.features.explain.rule_topic import rule_document

    give_topic(ctx, rule_document(name, rule_files=files), output)


def _write_list(
    ctx: typer.Context,
    output: ExplainOutput,
    what: str,
    command: str,
    screen: Callable[[View], Lines],
    rows: Sequence[Sequence[object]] = (),
) -> None:
    """Write the list of all metrics or rules: as a screen or, if it has rows, as a table.

    what: the message of the UsageError for any other form of the answer, such as JSON.
    command: the command that gives those forms.
    screen: draws the list.
    rows: of the table, the first with the names of the columns.
    """
    environment: Environment = ctx.obj
    view = validate_options(output, environment)

    # forms of the answer that a list does not have; one without rows is a screen alone
    refused = [output.json, output.ndjson, output.svg, output.page]
    if not rows:
        refused += [output.plain, output.file is not None, output.csv is not None]
    if any(refused):
        raise UsageError(what, expected=command)
    from attncli.draw.encoding import comma_separated, plain
    from attncli.draw.lines import as_text

    if output.plain:
        text = plain(rows)
    elif output.is_table:
        text = comma_separated(rows)
    else:
        text = as_text(screen(view), view)

    # the files of `--csv` and `--output`, with their texts; None for one that is not asked for
    pieces = [(output.table, comma_separated(rows)), (output.file, text)]
    for path, piece in pieces:
        if path is not None:
            from attncli.inputs.files import atomic_writer

            with atomic_writer(path) as file:
                file.write(piece.encode())
    if output.file is None:
        environment.write(text.encode())


TOPICS: dict[str, Callable[..., None]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        softmax,
        matrix_softmax,
        scaling,
        qkv,
        seq2seq,
        order,
        position,
        mask,
        multihead,
        residual,
        training,
        metric,
        rule,
    )
}
"""The topics by name, and the function of each."""


ALIKE = 0.8
"""How like a topic's name a word must be to be taken for a slip."""
LONGEST_WORD = 40
"""Characters of a text that may be a word of the glossary."""


def text(
    ctx: typer.Context,
    text: TextOptions,
    setup: RunSetup,
    output: TextOutput,
    query: Annotated[str | None, declarations.QUERY] = None,
) -> None:
    """The derivation of one query's attention, step by step, with this text's numbers.

    attn explain "humpty dumpty sat on" --query on --d-model 512

    attn explain --model minilm "The animal was too tired, so it slept" --query it --layer 5 --head 11

    Topics, each with its own --help: attn explain softmax 2.0 1.0 0.1, attn explain scaling --d-k
    512, and matrix-softmax, qkv, seq2seq, order, position, mask, multihead, residual, training, metric
    NAME, rule NAME. A text that is itself a topic's name is read with --file or from a pipe.
    """
    environment: Environment = ctx.obj
    check_steps(output, environment)
    view = validate_options(output, environment, "explain")
    if output.code is not None and output.brief:
        raise UsageError(
            "--code is about the steps, and --brief shows none of them", expected="one or the other"
        )
    view = replace(view, code=output.code or "")
    from attncli.draw.encoding import estimate_bytes
    from attncli.features.run.stage_tables import PROJECTIONS

    # W_Q, W_K, W_V, W_O are the only parts that a document holds for `--show` alone
    shows_projections = view.show is not None and bool(view.show & set(PROJECTIONS))
    if (output.json or output.ndjson) and view.show is not None and not shows_projections:
        what = message(
            "--show {parts} changes no document: it always has these",
            parts=",".join(sorted(view.show)),
        )
        raise UsageError(
            what,
            expected=message("{weights}, which --show adds to it", weights=listing(PROJECTIONS)),
        )
    loaded_model = request.model(environment, setup, tokenizer=text.tokenizer)

    def document_of(source_text: Text) -> AttentionTopic:
        """Explain one text's query; a note tells the user where the text may be meant as a topic, or
        as a word of the glossary."""
        from attncli.features.explain.compute import derivation_shapes
        from attncli.features.explain.compute import explain as compute_explain

        note = _note_on_word(source_text.text)
        if note is not None:
            environment.note(note)
        tokens = request.tokens_of(loaded_model, source_text)
        layer, head = chosen_place(loaded_model, setup.model)
        # the document of the widest layer that may be explained
        layers: Sequence[int] = loaded_model.spec.attending()
        if layer is not None:
            layers = [layer]
        most_bytes = max(
            estimate_bytes(derivation_shapes(loaded_model, len(tokens), index), "float64")
            for index in layers
        )
        refuse_over(most_bytes, output, "a shorter text: every matrix is written out")
        return compute_explain(
            loaded_model,
            source_text.text,
            query,
            layer=layer,
            head=head,
            projections=shows_projections,
            tokens=tokens,
            note=environment.note,
            on_cost=partial(refuse_search, loaded_model, setup.compute),
        )

    # forms of the answer that hold one text
    if output.json or output.svg is not None or output.page is not None or output.step:
        document = document_of(request.one_text(environment, text))
        if output.page is not None:
            from attncli.features.explain.page import RunOptions, derivation_page, option_words

            # with these options the page computes its other rows as this run does
            attention = setup.attention
            options = RunOptions(
                words=(
                    *option_words(setup.model, without=("layer", "head", "seed")),
                    *option_words(attention, without=("mask", "scale")),
                    *([] if text.tokenizer is None else ["--tokenizer", text.tokenizer]),
                ),
                masks=attention.mask or (),
                scale=attention.scale,
                run_options=view.run_options,
            )
            page = derivation_page(
                document, view.lang, loaded_model, options, precision=view.precision
            )
            write_pieces(output.page, [page])
            output = replace(output, html=None)  # the page is written
        write_explanation(document, output, environment, view)
        return

    def documents() -> Iterator[ExplainDocument]:
        """Yield one explanation document per text."""
        for source_text in request.texts(environment, text):
            with request.errors_located_in(source_text):
                yield document_of(source_text)

    write_documents(documents(), output, environment, view, several=text.lines)


MEANT_TOPICS = {"sqrt": "scaling", "√": "scaling"}
"""What a text of one word is meant as that is no topic's name, nor like one."""


def _topic_like(word: str) -> str | None:
    """The topic whose spelling is closest to a word, which may be mistyped; None where none is
    close."""
    close = get_close_matches(word, TOPICS, n=1, cutoff=ALIKE)
    if not close:
        return None
    return close[0]


def _note_on_word(text: str) -> Message | None:
    """The note that a text of one word may be meant as a topic, as a word or a page of the guide, or
    as a command; None for any other text."""
    from attncli.language.guide import spelling

    word = text.strip().lower()
    source_text = repr(text)
    topic = MEANT_TOPICS.get(word) or _topic_like(text)
    if topic is not None:
        return message(
            "{source_text} is explained as a text; the topic is attn explain {meant}",
            source_text=source_text,
            meant=topic,
        )
    if not word or len(word) > LONGEST_WORD:
        return None
    names = _words_of_guide()
    guide_word = spelling(text)
    if guide_word not in names and word in COMMANDS:
        return message(
            "{source_text} is explained as a text; the command is attn {meant}",
            source_text=source_text,
            meant=word,
        )
    if guide_word in names or any(guide_word in name.split() for name in names):
        return message(
            "{source_text} is explained as a text; what the word means: {command}",
            source_text=source_text,
            command=f"attn guide {shlex.quote(text)}",
        )
    return None


def _words_of_guide() -> set[str]:
    """The words of the guide's glossary, in every language, as `spelling` writes them."""
    from attncli.language import languages
    from attncli.language.guide import spelling, word_entries

    return {spelling(name) for lang in languages() for name in word_entries(lang)}


class TextCommand(GroupedCommand):
    """The command `attn explain TEXT`, which its usage line shows without the internal name `text`."""

    essentials = (
        "--query",
        "--model",
        "--layer",
        "--head",
        "--mask",
        "--weights",
        "--residual",
        "--step",
        "--brief",
        "--json",
    )

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """Write the usage line without the command's internal name."""
        formatter.write_usage(ctx.command_path.rstrip(), " ".join(self.collect_usage_pieces(ctx)))


class TextOrTopic(PlainParameters, TyperGroup):
    """The command group `attn explain`: a first word that is a topic runs that topic's command,
    anything else the command `text`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyCommands(("text", *TOPICS), _topic_app)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put "text" before arguments that begin with no topic. Raises UsageError for a mistyped
        topic.
        """
        if ctx.resilient_parsing and not args:
            # a shell that completes the first word asks for the topics
            return super().parse_args(ctx, args)
        is_topic = bool(args) and args[0] in TOPICS

        # one word, or one before options, is a text; before another word it may be a mistyped topic
        topic = None
        if not is_topic and len(args) >= 2 and not args[1].startswith("--"):
            topic = _topic_like(args[0])
        if topic is not None:
            # the word and what follows it, without quotes, were meant as a topic and its arguments
            what = message("there is no topic {arg}", arg=repr(args[0]))
            expected = message("{topics}, or one text in quotes", topics=listing(TOPICS))
            raise UsageError(
                what,
                expected=expected,
                hint=message("did you mean attn explain {meant}?", meant=topic),
            )

        if not is_topic:
            args = ["text", *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command of a topic or of a text, as (name, command, other arguments). The name of
        the latter is left empty, so that usage lines and errors say `attn explain` alone."""
        name, command, rest = super().resolve_command(ctx, args)
        if name == "text":
            name = ""
        return name, command, rest


def _topic_app(name: str) -> Any:
    """Build the command of one topic, or of "text"."""
    command: Callable[..., None] = text
    if name != "text":
        command = TOPICS[name]
    # what is left over is refused by GroupedCommand, which knows what it probably is
    settings: dict[str, Any] = {"help_option_names": ["-h", "--help"], "allow_extra_args": True}
    if command is softmax:  # a negative score is a number, not an option
        settings["ignore_unknown_options"] = True
    command_class: type[GroupedCommand] = GroupedCommand
    if command is text:
        command_class = TextCommand
    alone = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    alone.command(cls=command_class, context_settings=settings)(flat(command))
    return typer.main.get_command(alone)


explain_app = typer.Typer(
    cls=TextOrTopic,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "allow_extra_args": True},
)
explain_app.callback()(lambda: None)
