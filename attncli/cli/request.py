"""From options to what they ask for: texts, tokens, a mask, a model, a selection of layers and heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attncli.arrays.selection import EVERY, Selection
from attncli.cli.option import LARGEST, LARGEST_SEED, whole
from attncli.cli.options import AttentionOptions, ComputeOptions, ModelOptions, TextOptions
from attncli.cli.output import Environment
from attncli.errors import AttnError, InputError, LimitError, UsageError

if TYPE_CHECKING:
    import numpy as np

    from attncli.analysis.run import Wanted
    from attncli.inputs.text import Text
    from attncli.inputs.token import Token
    from attncli.mechanism.mask import Mask
    from attncli.models.model import Model

    NDArray = np.ndarray[Any, Any]

MASK_FILES = (".npy", ".npz", ".json", ".csv", ".tsv")


def texts(environment: Environment, asked: TextOptions, *, single: bool = False) -> Iterator[Text]:
    """The texts asked for; says so when the sample stands in for one. single: raises UsageError for several."""
    if single:
        yield one_text(environment, asked)
        return
    from attncli.cli.progress import foretell_waiting
    from attncli.inputs.text import SAMPLE, read_texts

    foretell_waiting(environment, asked.file)
    for text in read_texts(
        asked.text,
        file=asked.file,
        lines=asked.lines,
        ids=asked.ids,
        stdin=environment.stdin,
        stdin_is_terminal=environment.stdin_is_terminal,
        sample=SAMPLE,
    ):
        if "word" in {loaded.tokenizer.name for loaded in environment.models}:
            _offer_whitespace(environment, text)
        if text.origin == "sample":
            environment.note(f"no text given; using the sample: {text.text}")
        yield text


def _offer_whitespace(environment: Environment, text: Text) -> None:
    """Says how to keep words that someone has set apart in a script that is written without spaces."""
    from attncli.inputs.word_breaks import set_apart

    if not text.text.isascii() and set_apart(text.text):
        environment.note("each character is a token; --tokenizer whitespace keeps the words that blanks set apart")


def one_text(environment: Environment, asked: TextOptions) -> Text:
    """The only text asked for. Raises UsageError when there are several."""
    found = texts(environment, asked)
    first = next(found)
    if next(found, None) is not None:
        raise UsageError(
            "--lines gave more than one text, and this takes one",
            expected="one text",
            hint="--ndjson in place of --json: one document a line" if "json" in environment.given else "",
        )
    return first


@contextmanager
def told_where(text: Text) -> Iterator[None]:
    """Errors of the block that name no place get the line or file that the text came from."""
    try:
        yield
    except AttnError as error:
        if not error.where and text.origin not in ("argument", "sample", "ids"):
            error.where = text.origin
        raise


def tokens_of(model: Model, text: Text) -> list[Token]:
    """The tokens of a text, or those that its ids name. Raises InputError for none or too many."""
    if text.ids is not None:
        return model.checked(model.tokenizer.ids_to_tokens(text.ids))
    return model.encode(text.text)


def numbers(values: Sequence[str] | None, what: str, count: int) -> Selection:
    """The layers or heads that `--layer` or `--head` name: "5", "0,3", "2-5"; `EVERY` where it is not given.

    Raises UsageError for what is no number or range, InputError for one that does not exist.
    """
    if not values:
        return EVERY
    found: set[int] = set()
    for part in ",".join(values).split(","):
        first, dash, last = part.strip().partition("-")
        low, high = whole(first), whole(last) if dash else whole(first)
        if low is None or high is None:
            raise UsageError(f"--{what} {part.strip()!r} is no number or range", expected=_choice(what, count))
        ends = (low, high)
        if max(ends) >= count:
            raise InputError(f"there is no {what} {max(ends)}", expected=_choice(what, count))
        if ends[0] > ends[1]:
            raise UsageError(f"--{what} {part.strip()!r} runs backwards", expected=f"--{what} {last}-{first}")
        found.update(range(ends[0], ends[1] + 1))
    return sorted(found)


def _choice(what: str, count: int) -> str:
    """The layers or heads there are."""
    return (
        f"0, the only {what}"
        if count == 1
        else f"0 to {count - 1}: {count} {what}s, counted from 0, such as 0 or 0-{count - 1}"
    )


def mask(specs: Sequence[str] | None, seed: int = 0) -> Mask:
    """The intersection of the masks that `--mask` names; files hold 0 or false where a key is hidden."""
    from attncli.mechanism.mask import Given, both
    from attncli.mechanism.mask_spec import parse

    parts: list[Mask] = []
    # documents and screens write an intersection with " & "
    for spec in (part for given in specs or () for part in given.split(" & ")):
        if spec.lower().endswith(MASK_FILES):
            from attncli.inputs.matrix import read_matrix

            parts.append(Given(read_matrix(Path(spec), "mask") != 0, Path(spec).name))
        else:
            parts.append(parse(spec, seed=seed))
    return both(*parts)


def model(
    environment: Environment,
    asked: ModelOptions,
    attention: AttentionOptions,
    compute: ComputeOptions,
    *,
    tokenizer: str | None = None,
    heads: int = 1,
) -> Model:
    """The model that the options describe: a checkpoint, a weight file, or seeded weights.

    heads: how many heads seeded weights have where `--num-heads` does not say.
    """
    name = model_name(environment, asked, attention, tokenizer)
    if name is None and asked.ignore_config:
        raise UsageError("--ignore-config is about a checkpoint, and there is none", expected="--model NAME as well")
    for told in ("source", "source_states", "global_tokens"):
        if name is None and getattr(asked, told) is not None:
            option = f"--{told.replace('_', '-')}"
            raise UsageError(f"{option} is about a checkpoint, and there is none", expected="--model NAME as well")
    if name is not None:
        from attncli.cli.checkpoint_option import checkpoint

        found = checkpoint(environment, name, asked, attention, compute)
    elif asked.weights is not None:
        from attncli.cli.weight_option import file_model

        found = file_model(environment, asked, asked.weights, attention, compute, tokenizer or "word")
    else:
        from attncli.cli.seeded_option import seeded

        found = seeded(environment, asked, attention, compute, tokenizer or "word", heads)
    if attention.attention is not None:
        from attncli.cli.hashing_option import hashed

        found = hashed(found, attention.attention, attention)
    environment.models.append(found)
    return found


def model_name(
    environment: Environment, asked: ModelOptions, attention: AttentionOptions, tokenizer: str | None
) -> str | None:
    """The checkpoint that `--model` names, or `ATTN_MODEL`, unless an option is given that no checkpoint takes; None
    for none.

    tokenizer: what `--tokenizer` names. Raises UsageError for an empty name, and for `--model` beside `--tokenizer`.
    """
    if asked.model is not None:
        if not asked.model:
            raise UsageError(
                "--model names nothing", expected="a folder, a hub id or an alias", hint="attn models list"
            )
        if tokenizer is not None:
            raise UsageError("--tokenizer does not go with --model", expected="the checkpoint's own tokenizer")
        return asked.model
    from attncli.cli.checkpoint_option import default_checkpoint

    return default_checkpoint(environment, asked, attention, tokenizer)


def seed_of(asked: ModelOptions, environment: Environment) -> tuple[int, Literal["seeded", "random"]]:
    """The seed, and "seeded" or "random" for how it came about; a drawn seed is told on standard error."""
    told = asked.seed or "0"
    if told == "random":
        from attncli.inputs.seeded import draw_seed

        drawn = draw_seed()
        environment.note(f"seed drawn: {drawn} (repeat with --seed {drawn})")
        return drawn, "random"
    seed = whole(told, LARGEST_SEED)
    if seed is None:
        raise UsageError(f"--seed is {told!r}", expected=f"0 to {LARGEST_SEED}, or 'random'")
    return seed, "seeded"


def embeddings(asked: ModelOptions) -> NDArray | None:
    """The matrix that `--embeddings` names, None without it."""
    if asked.embeddings is None:
        return None
    from attncli.inputs.matrix import read_matrix

    return read_matrix(asked.embeddings, "embeddings")


def query_index(environment: Environment, tokens: Sequence[Token], reference: str) -> int:
    """The token that a reference names; says so when it occurs more than once and none was chosen."""
    from attncli.inputs.token_name import find_token

    found = find_token(tokens, reference)
    if reference.startswith("#-"):  # counted from the end, where encoders have a special token
        environment.note(f"{reference!r} is token {found.index}, {tokens[found.index].text!r}")
    if found.occurrences > 1:
        environment.note(
            f"{reference!r} occurs {found.occurrences} times; using the first, token {found.index} ({reference}:2 "
            f"for the next)"
        )
    return found.index


def query_span(
    environment: Environment, tokens: Sequence[Token], reference: str, *, unknown: bool = True
) -> tuple[int, int]:
    """The tokens [first, stop) in a row that a reference names; says what becomes of several, and of a choice. unknown:
    whether they may be tokens that the model does not know; else raises InputError for such."""
    from attncli.inputs.token_name import find_span, refuse_unknown

    found = find_span(tokens, reference)
    if not unknown:
        refuse_unknown(tokens, found, reference)
    count = found.stop - found.first
    if count == 1:
        first = query_index(environment, tokens, reference)
        return first, first + 1
    if found.occurrences > 1:
        environment.note(
            f"{reference!r} occurs {found.occurrences} times; using the first, tokens {found.first} to "
            f"{found.stop - 1} "
            f"({reference}:2 for the next)"
        )
    environment.note(f"{reference!r} is {count} tokens: weights to it are summed, from it averaged")
    return found.first, found.stop


def whole_numbers(text: str, option: str) -> list[int]:
    """Whole numbers from 0, apart by spaces or commas. Raises UsageError."""
    parts = text.replace(",", " ").split()
    found = [number for part in parts if (number := whole(part)) is not None]
    if not parts or len(found) < len(parts):
        raise UsageError(f"{option} is {text!r}", expected=f"whole numbers from 0 to {LARGEST:,}, such as 5 3")
    return found


def refuse_run(
    model: Model, count: int, wanted: Wanted, compute: ComputeOptions, hint: str, *, rows: int | None = None
) -> None:
    """Raise LimitError if running `count` tokens takes too much memory. rows: query rows at a time, None for all."""
    from attncli.analysis.run import cost

    refuse_memory(cost(model, count, wanted, saved=False, rows=rows).memory, compute, hint)


def refuse_memory(needed: int, compute: ComputeOptions, hint: str) -> None:
    """Raise LimitError if about `needed` bytes are more than `--max-memory`, or than this process may still take."""
    from attncli.cli.delivery import size
    from attncli.models.machine_limits import Free, free_memory

    limit = (
        free_memory() if compute.max_memory is None else Free(size(compute.max_memory, "--max-memory"), "--max-memory")
    )
    if needed > limit.bytes:
        from attncli.render.numbers import size_words

        raise LimitError(
            f"this would take about {size_words(needed)} of memory, the limit is {size_words(limit.bytes)} "
            f"({limit.source})",
            expected="less work, or a higher --max-memory",
            hint=hint,
        )
