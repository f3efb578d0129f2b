"""From options to what they ask for: texts, tokens, a mask, a model, a selection of layers and
heads.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from attncli.arrays.backend import EVERY, Selection, numbers_of
from attncli.cli.declarations import (
    ChatOptions,
    ComputeOptions,
    ModelOptions,
    OutputOptions,
    RegionOptions,
    RunSetup,
    TextOptions,
)
from attncli.cli.environment import Environment
from attncli.cli.model_option import embeddings as embeddings
from attncli.cli.model_option import mask as mask
from attncli.cli.model_option import memory_left as memory_left
from attncli.cli.model_option import memory_limit as memory_limit
from attncli.cli.model_option import refuse_memory as refuse_memory
from attncli.cli.model_option import seed_of as seed_of
from attncli.cli.model_option import whole_numbers as whole_numbers
from attncli.cli.option import About, parse_whole_number
from attncli.errors import AttnError, InputError, LimitError, UnsupportedError, UsageError
from attncli.language import Message, choice, listing, message

if TYPE_CHECKING:
    import numpy as np

    from attncli.features.run.compute import RunRequest
    from attncli.inputs.chat import Chat
    from attncli.inputs.regions import Region
    from attncli.inputs.token import Text, Token, Tokenizer
    from attncli.models.estimate import CostEstimate
    from attncli.models.model import Model

    NDArray = np.ndarray[Any, Any]
    from attncli.mechanism.spec import HeadSelection, Spec


def texts(
    environment: Environment,
    options: TextOptions,
    *,
    single: bool = False,
    tokenizer: Tokenizer | None = None,
) -> Iterator[Text]:
    """Yield the texts that the arguments, a file, standard input or `--chat` give; a note says when
    the built-in sample stands in for none.

    single: raises UsageError for several. A chat then takes the template of the model that was
        loaded last, whatever `tokenizer` is.
    tokenizer: whose chat template is used; None for that of the model that was loaded last.
    """
    if single:
        yield one_text(environment, options)
        return
    if options.pair is not None:
        _refuse_pair(options, options.pair)
    if options.chat is not None:
        yield _chat_text(environment, options, options.chat, tokenizer)
        return
    refuse_without_chat(environment, options)
    from attncli.cli.progress import foretell_waiting
    from attncli.inputs.token import SAMPLE, read_texts

    foretell_waiting(environment, options.file)
    for text in read_texts(
        options.text,
        file=options.file,
        lines=options.lines,
        ids=options.ids,
        stdin=environment.stdin,
        stdin_is_terminal=environment.stdin_is_terminal,
        sample=SAMPLE,
    ):
        # the tokenizer of words takes ideographs one by one, blanks between words or not
        if "word" in {model.tokenizer.name for model in environment.models}:
            _offer_whitespace(environment, text)
        if text.origin == "sample":
            environment.note(message("no text given; using the sample: {text}", text=text.text))
        if options.pair is None:
            yield text
        else:
            yield _with_pair(environment, text, options.pair)


def _refuse_pair(options: TextOptions, pair: str) -> None:
    """Raise UsageError for a second segment beside what is no text, InputError for an empty one."""
    for option, value in (("--ids", options.ids), ("--chat", options.chat)):
        if value is not None:
            raise UsageError(
                "--pair is the second of two texts, and {option} gives none",
                expected="TEXT or --file beside it",
                option=option,
            )
    if not pair.strip():
        raise InputError(
            "nothing to run on: {kind}",
            where="--pair",
            expected="a text of at least one word",
            kind=message("it holds no text"),
        )


def _with_pair(environment: Environment, text: Text, pair: str) -> Text:
    """The text with its second segment; a note says so where the model loaded last has no segment
    types, and so cannot tell the two segments apart by them. Raises UnsupportedError where its
    scores depend on segments.
    """
    both = text.with_pair(pair)
    assert both.second is not None
    second = both.second  # the character at which the second segment begins
    for model in environment.models[-1:]:  # the last one, if there is any
        if model.spec.scores_segments:
            raise UnsupportedError(
                "this model scores keys of another segment otherwise, which attn does not compute",
                where="--pair",
                expected="one text, or a model that adds a vector for each segment",
            )
        if model.spec.embedding.types > 1:  # a vector for each segment: nothing to note
            continue
        # the tokens, such as a separator, that the tokenizer puts between the two; they stand in
        # neither text, and have no start and end
        tokens = encode_text(model.tokenizer, both)
        first_segment = [token.index for token in tokens if token.end and token.end < second]
        second_segment = [token.index for token in tokens if token.start and token.start >= second]
        # where one segment has no tokens, nothing stands between the two
        last = max(first_segment, default=0)
        first = min(second_segment, default=last)
        between = [repr(token.text) for token in tokens[last + 1 : first]]
        if between:
            note = message(
                "this model has no types of segments: it tells the two texts apart by {tokens}"
                " between them alone",
                tokens=listing(between, " "),
            )
        else:
            note = message(
                "this model has no segments: it reads both texts as one, with nothing between them"
            )
        environment.note(note)
    return both


def refuse_without_chat(environment: Environment, options: TextOptions | ChatOptions) -> None:
    """Raise UsageError for options about a chat where there is none."""
    for name in ("chat_template", "chat_var", "generation_prompt"):
        if getattr(options, name) is not None and not options.chat:
            raise UsageError(
                "{option} is about a chat, and there is none",
                expected="--chat FILE as well",
                option=environment.spellings.get(name, f"--{name.replace('_', '-')}"),
            )


def texts_and_chats(
    environment: Environment, arguments: Sequence[str | None], options: ChatOptions
) -> list[Text | Chat]:
    """The two texts of a command: those of its arguments, then the chats, which stay messages until
    `text_of` writes them with a model's chat template."""
    refuse_without_chat(environment, options)
    sources = [
        one_text(environment, TextOptions(text=text)) for text in arguments if text is not None
    ]
    return [*sources, *(read_chat(environment, file) for file in options.chat or ())]


def text_of(
    environment: Environment, options: ChatOptions, source: Text | Chat, model: Model
) -> Text:
    """The text to run: `source` itself if it is a text, else the chat written out by the model's chat
    template."""
    from attncli.inputs.token import Text

    if isinstance(source, Text):
        return source
    return write_chat(environment, options, source, model.tokenizer)


def _chat_text(
    environment: Environment, options: TextOptions, file: Path, tokenizer: Tokenizer | None
) -> Text:
    """The chat that `--chat` names as one text, written out by the model's chat template. Raises
    UsageError where another option gives a text as well.

    tokenizer: whose template; None for the model that was loaded last.
    """
    for option, value in (("TEXT", options.text), ("--file", options.file), ("--ids", options.ids)):
        if value is not None:
            what = message(
                "more than one text is given: {sources}",
                sources=listing((option, "--chat"), " and "),
            )
            raise UsageError(what, expected="one of TEXT, --file, --ids, --chat")
    if options.lines:
        raise UsageError(
            "--lines takes texts apart, and --chat gives one", expected="one or the other"
        )
    if tokenizer is None:
        tokenizer = environment.models[-1].tokenizer
    return write_chat(environment, options, read_chat(environment, file), tokenizer)


def read_chat(environment: Environment, file: Path) -> Chat:
    """The chat in a file, or from standard input. Raises InputError, LimitError."""
    from attncli.inputs.chat import parse_chat
    from attncli.inputs.files import read_regular
    from attncli.inputs.token import STANDARD_INPUT, TEXT_LIMIT

    file, template = _chat_and_template(file)
    origin = str(file)
    if origin == "-":
        origin = STANDARD_INPUT
        raw = environment.stdin.read(TEXT_LIMIT + 1)  # one byte more shows that it is too long
    else:
        raw = read_regular(file, what=message("a chat"), limit=TEXT_LIMIT)
    if len(raw) > TEXT_LIMIT:
        raise LimitError(
            "this chat is longer than {limit:,} bytes", expected="a shorter one", limit=TEXT_LIMIT
        )
    chat = parse_chat(raw, origin)
    return replace(chat, template=template)


def _chat_and_template(name: Path) -> tuple[Path, Path | None]:
    """The file of a chat, and the template that `FILE@TEMPLATE` names behind it, None for none. A
    file whose own name holds the @ is taken as a file.
    """
    from attncli.inputs.files import is_there

    file, sign, template = str(name).rpartition("@")
    if not sign or not file or not template or is_there(name):
        return name, None
    return Path(file), Path(template)


def write_chat(
    environment: Environment, options: TextOptions | ChatOptions, chat: Chat, tokenizer: Tokenizer
) -> Text:
    """A chat as one text, written out by a chat template: the tokenizer's, or that of the options.
    Notes say what of it is read otherwise than it stands. Raises as `inputs.chat.render`."""
    from attncli.inputs.chat import parse_variables
    from attncli.inputs.chat_prompt import write_messages
    from attncli.inputs.token import Text

    if chat.template is not None and options.chat_template is not None:
        raise UsageError(
            "--chat names the template {template}, and --chat-template {other}",
            expected=message("one of them"),
            template=chat.template,
            other=options.chat_template,
        )
    chat = replace(
        chat,
        variables={**chat.variables, **parse_variables(options.chat_var or ())},
        template=chat.template or options.chat_template,
    )
    rendered = write_messages(
        tokenizer, chat, generation_prompt=options.generation_prompt, note=environment.note
    )
    return Text(rendered.text, chat.where, chat=rendered)


def regions_of(
    environment: Environment, options: RegionOptions, text: Text, tokens: Sequence[Token]
) -> list[Region]:
    """The regions (named sets of tokens) of a text: those that options name, and the messages of a
    chat; none where there are neither.

    Raises as `inputs.regions.find_regions`.
    """
    from attncli.inputs.regions import find_regions, parse_region, read_regions

    rules = []
    if options.regions is not None:
        rules += read_regions(options.regions)
    for rule in options.region or ():
        if rule.startswith("@"):
            rules += read_regions(Path(rule[1:]))
        else:
            rules.append(parse_region(rule))
    if not rules and text.chat is None:
        return []
    return find_regions(rules, text, tokens, environment.note)


def _offer_whitespace(environment: Environment, text: Text) -> None:
    """Note that `--tokenizer whitespace` keeps whole words, for a text that has blanks between the
    words of a script that is usually written without.
    """
    if text.text.isascii():
        return
    from attncli.inputs.script_words import set_apart

    if set_apart(text.text):
        environment.note(
            message(
                "each character is a token; --tokenizer whitespace keeps the words that blanks set"
                " apart"
            )
        )


def one_text(environment: Environment, options: TextOptions) -> Text:
    """The only text asked for. Raises UsageError when there are several."""
    sources = texts(environment, options)
    first = next(sources)
    if next(sources, None) is not None:
        raise UsageError(
            "--lines gave more than one text, and this takes one",
            expected="one text",
            hint=(
                "--ndjson in place of --json: one document a line"
                if "json" in environment.explicit_options
                else ""
            ),
        )
    return first


@contextmanager
def errors_located_in(text: Text) -> Iterator[None]:
    """Context manager in which errors that name no place get the line or file that the text came
    from.
    """
    try:
        yield
    except AttnError as error:
        if not error.where and text.origin not in ("argument", "sample", "ids"):
            error.where = text.origin
        raise


def tokens_of(model: Model, text: Text) -> list[Token]:
    """The tokens of a text, or those that its ids name. Raises InputError for none or too many."""
    return model.encode(encode_text(model.tokenizer, text))


def encode_text(tokenizer: Tokenizer, text: Text) -> list[Token]:
    """Cut a text into tokens, each kind of text in its way: a chat, a text with a second segment,
    token ids, or plain text."""
    if text.chat is not None:
        from attncli.inputs.chat import encode_chat

        return encode_chat(tokenizer, text.chat)
    if text.second is not None:
        from attncli.inputs.token import encode_pair

        return encode_pair(tokenizer, text.text, text.second)
    if text.ids is None:
        return tokenizer.encode(text.text)
    return tokenizer.ids_to_tokens(text.ids)


def numbers(values: Sequence[str] | None, what: str, count: int) -> Selection:
    """The layers or heads that `--layer` or `--head` name: "5", "0,3", "2-5"; `EVERY` where it is
    not given.

    values: those of the option, which may be repeated.
    what: "layer" or "head".
    count: how many there are.

    Raises UsageError for what is no number or range, InputError for one that does not exist.
    """
    if not values:
        return EVERY
    chosen_numbers: set[int] = set()
    for part in comma_parts(values):
        first, dash, last = part.partition("-")
        low = parse_whole_number(first)
        high = low
        if dash:
            high = parse_whole_number(last)
        if low is None or high is None:
            raise UsageError(
                "--{what} {part} is no number or range",
                expected=_numbers_there_are(what, count),
                what=what,
                part=repr(part),
            )
        if max(low, high) >= count:
            raise InputError(
                "there is no layer {number}" if what == "layer" else "there is no head {number}",
                expected=_numbers_there_are(what, count),
                number=max(low, high),
            )
        if low > high:
            expected = message("--{what} {last}-{first}", what=what, last=last, first=first)
            raise UsageError(
                "--{what} {part} runs backwards",
                expected=expected,
                what=what,
                part=repr(part),
            )
        chosen_numbers.update(range(low, high + 1))
    return sorted(chosen_numbers)


def _numbers_there_are(what: str, count: int) -> str:
    """A phrase for errors on which numbers `--layer` or `--head` may name.

    what: "layer" or "head".
    count: how many there are.
    """
    if count == 1:
        return message("0, the only layer" if what == "layer" else "0, the only head")
    if what == "layer":
        return message(
            "0 to {last}: {count} layers, counted from 0, such as 0 or 0-{last}",
            last=count - 1,
            count=count,
        )
    return message(
        "0 to {last}: {count} heads, counted from 0, such as 0 or 0-{last}",
        last=count - 1,
        count=count,
    )


def model(
    environment: Environment,
    setup: RunSetup,
    *,
    tokenizer: str | None = None,
    heads: int = 1,
    many_runs: bool = False,
) -> Model:
    """The model that the options describe: a checkpoint, a weight file, or seeded weights.

    tokenizer: the value of `--tokenizer`; None without it.
    heads: how many heads seeded weights have where `--num-heads` does not say.
    many_runs: whether a checkpoint's weights are kept for several runs, where memory allows.

    Raises UsageError for options that contradict each other, and whatever loading a model raises.
    """
    name = model_name(environment, setup, tokenizer)
    if name is None and (needless := environment.options_about(setup.model, About.CHECKPOINT)):
        raise UsageError(
            "{option} is about a checkpoint, and there is none",
            expected="--model NAME as well",
            option=needless[0],
        )
    if name is not None:
        from attncli.cli.model_option import checkpoint

        loaded_model = checkpoint(environment, name, setup, many_runs=many_runs)
    elif setup.model.weights is not None:
        from attncli.cli.model_option import file_model

        loaded_model = file_model(environment, setup.model.weights, setup, tokenizer or "word")
    else:
        from attncli.cli.model_option import model_of_seed

        loaded_model = model_of_seed(environment, setup, tokenizer or "word", heads)
    if setup.attention.attention is not None:
        from attncli.cli.model_option import with_hash_attention

        loaded_model = with_hash_attention(loaded_model, setup.attention.attention, setup.attention)
    environment.models.append(loaded_model)
    return loaded_model


def model_name(environment: Environment, setup: RunSetup, tokenizer: str | None) -> str | None:
    """The name of the checkpoint that `--model` gives, else `ATTN_MODEL` or the settings, unless an
    option describes another model; None where there is none.

    tokenizer: the value of `--tokenizer`.

    Raises UsageError for an empty name, and for `--model` beside `--tokenizer`.
    """
    name = setup.model.model
    if name is not None:
        if not name:
            raise UsageError(
                "--model names nothing",
                expected="a folder, a hub id or an alias",
                hint="attn models list",
            )
        if tokenizer is not None:
            raise UsageError(
                "--tokenizer does not go with --model", expected="the checkpoint's own tokenizer"
            )
        return name
    from attncli.cli.model_option import default_checkpoint

    return default_checkpoint(environment, setup, tokenizer)


def query_index(environment: Environment, tokens: Sequence[Token], reference: str) -> int:
    """The position of the token that a reference such as `cat` or `#3` names, of a word of several
    the last; notes say so when it occurs more than once and none was chosen."""
    from attncli.inputs.token import choose_last_token

    return choose_last_token(tokens, reference, environment.note)


def query_span(
    environment: Environment, tokens: Sequence[Token], reference: str
) -> tuple[int, int]:
    """The run of tokens [first, stop) that a reference names, such as `cat`, `#3` or a word of
    several tokens; notes say so when it occurs more than once and none was chosen.

    Raises InputError where no token fits.
    """
    from attncli.inputs.token import choose_span

    return choose_span(tokens, reference, environment.note)


def refuse_run(
    model: Model,
    count: int,
    run_request: RunRequest,
    compute: ComputeOptions,
    hint: str,
    *,
    rows: int | None = None,
) -> None:
    """Raise LimitError if running `count` tokens takes too much memory.

    run_request: what is computed of the run and kept.
    compute: holds `--max-memory`, the limit.
    hint: what takes less.
    rows: query rows at a time, None for all.
    """
    from attncli.features.run.compute import cost

    expected = cost(model, count, run_request, is_saved=False, rows=rows)
    refuse_memory(expected.peak, compute, hint, resident=expected.resident)


def refuse_cost(
    environment: Environment, compute: ComputeOptions, hint: str, expected: CostEstimate, count: int
) -> None:
    """Raise LimitError for a run that takes too much memory; note before it starts how long one
    will take that takes long.

    hint: what takes less.
    expected: what it will take.
    count: tokens of the text.
    """
    from attncli.cli.progress import foretell_work

    refuse_memory(expected.peak, compute, hint, resident=expected.resident)
    foretell_work(environment, count, expected.seconds, hint)


def smaller_run(spec: Spec, *more: str) -> Message:
    """A phrase on what makes a run take less memory: a shorter text, `--layer` or `--head` where the
    model has several, or `more`."""
    from attncli.mechanism.spec import most_heads

    ways: list[str] = [message("a shorter text")]
    if len(spec.blocks) > 1:
        ways.append("--layer L")
    if most_heads(spec) > 1:
        ways.append("--head H")
    return choice([*ways, *more])


def faster_run(spec: Spec, layers: Sequence[str] | None) -> Message:
    """A phrase on what makes a run take less time: a shorter text, or an early layer to end at, where
    the model has several and the user named none.

    layers: the values of `--layer`.
    """
    if len(spec.blocks) > 1 and not layers:
        return message("a shorter text, or --layer with an early one")
    return message("a shorter text")


# The layers and heads that `--layer` and `--head` name.


def head_selection(spec: Spec, options: ModelOptions, *, most: bool = True) -> HeadSelection:
    """Which layers and heads the values of `--layer` and `--head` name; `--head L5H11,L5H3` names
    both at once.

    Args:
        spec: The model's.
        options: Those of the model, which hold the two values.
        most: How far head numbers may go where layers differ in their number of heads: True allows
            those of the layer with the most, False only those that every layer has.

    Raises:
        UsageError: For what is no number, range or name of a head, and where both options name
            layers.
        InputError: For a layer or head that is not there.
    """
    from attncli.mechanism.spec import HeadSelection, most_heads

    pairs = named_heads(spec, options)
    if pairs:
        return HeadSelection(pairs=pairs)
    if most:
        count = most_heads(spec)
    else:
        count = min(spec.blocks[layer].attention.heads for layer in spec.attending())
    layers = numbers(options.layer, "layer", len(spec.blocks))
    heads = numbers(options.head, "head", count)
    return HeadSelection(layers, heads)


def named_heads(spec: Spec, options: ModelOptions) -> list[tuple[int, int]]:
    """The layer and the head of each name such as L5H11 that `--head` holds; none where it holds
    numbers or is not given. Raises as `head_pairs`."""
    from attncli.mechanism.spec import parse_head

    words = [word for part in comma_parts(options.head) for word in part.split("+")]
    # what begins with an L is a name, if misspelt: `head_pairs` then says so
    if any(parse_head(part) or part[:1] in ("L", "l") for part in words):
        return head_pairs(spec, words, options.layer)
    return []


def layers_and_heads(
    model: Model, options: ModelOptions, output: OutputOptions | None = None
) -> tuple[Selection, Selection]:
    """Which layers are chosen, and which heads, the same in each. Raises as `head_selection`, and
    for heads that differ by layer.

    output: of a command whose figure may draw any heads, which the error then says.
    """
    from attncli.mechanism.spec import head_name

    selection = head_selection(model.spec, options, most=False)
    hint = ""  # of the error, which only a selection by `pairs` can raise
    if output is not None and output.svg is not None:
        names = "+".join(head_name(layer, head) for layer, head in selection.pairs)
        style = f"heads={names}"
        if output.figure_style:
            style = f"{output.figure_style},{style}"
        hint = f"--figure-style {style}"
    return selection.layers_and_heads("--head", hint=hint)


def comma_parts(values: Sequence[str] | None) -> list[str]:
    """The parts, between commas, of all values of an option that may be repeated; [""] where it is
    not given.
    """
    return [part.strip() for part in _narrow_signs(",".join(values or ())).split(",")]


def _narrow_signs(text: str) -> str:
    """Numbers and names of heads in ASCII: wide letters, digits and commas, as a Chinese or Japanese
    keyboard types them, become the ordinary ones.
    """
    return unicodedata.normalize("NFKC", text).replace("、", ",")


def head_pairs(
    spec: Spec, words: Sequence[str], layers: Sequence[str] | None, *, option: str = "--head"
) -> list[tuple[int, int]]:
    """The layer and the head, both from 0, of each name such as L5H11.

    words: the names.
    layers: the values of `--layer`, which names of heads contradict; None without it.
    option: what holds the names.

    Raises UsageError beside `layers` and for names of no head, and as `head_selection`.
    """
    from attncli.mechanism.spec import heads_of, parse_head

    if layers:
        raise UsageError("--head names layers, and so does --layer", expected="one or the other")
    places = []
    for part in words:
        pair = parse_head(part)
        if pair is None:
            what = message("{option} {part} is no layer and head", option=option, part=repr(part))
            raise UsageError(what, expected="each with its layer: L5H11,L3H1")
        # each call raises for a number that does not exist; a layer without attention says so,
        # and not how few heads it has
        layer_name, head_name = map(str, pair)
        layer = _single_number(numbers([layer_name], "layer", len(spec.blocks)))
        spec.attending([layer])
        head = _single_number(numbers([head_name], "head", heads_of(spec.blocks[layer])))
        places.append((layer, head))
    return places


def weighed_heads(
    spec: Spec, weigh: str | None, heads: Sequence[str] | None
) -> list[tuple[int, int]] | None:
    """The heads that `--heads` names for `--weigh`; None for all. Raises UsageError where nothing
    is weighed."""
    if heads is None:
        return None
    if weigh is None:
        raise UsageError("--heads is about what is weighed", expected="--weigh NAME=×N as well")
    return head_pairs(spec, comma_parts(heads), layers=None, option="--heads")


def _single_number(selection: Selection) -> int:
    """The number in a selection of one."""
    assert selection is not EVERY
    (number,) = numbers_of(selection, 1)
    return number
