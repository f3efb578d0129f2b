"""Targets: the vocabulary entries that a word stands for as what may follow a text.

A word is spelled with a blank before it or without, and a model means another entry by each: after
"The capital of Norway is" Oslo has its blank, after the opening of a chat's answer it has none. So
both spellings are tried in the text, and the likelier one is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.documents.parts import NextToken, TargetToken
from attncli.errors import AttnError, InputError, UsageError
from attncli.features.effects.places import reads_on
from attncli.inputs.token import BLANK, Token, Tokenizer, ignore, quoted_entry
from attncli.language import Message, listing, message
from attncli.measure.row_facts import Floats
from attncli.models.model import Model
from attncli.models.run import has_unembedding, no_output_head, rows_for

BY_ID = "id:"
LONGEST_ID = 12
"""Digits of an id; no vocabulary needs more."""
SMALL = 0.01
"""A target with a smaller probability is warned of: what is said of it is said of what the model
hardly expects."""

Ids = tuple[int, ...]


class Target(Struct, frozen=True):
    """What a word stands for after a text.

    ids: the vocabulary entries, one after the other.
    logprob: of all of them in a row, in nats.
    own: the entry that is the model's own first choice.
    own_logprob: of that. The last three are None where they were not computed.
    word: what was asked for, where that is several entries and this the first.
    """

    ids: Ids
    logprob: float | None = None
    own: int | None = None
    own_logprob: float | None = None
    word: str | None = None


def refuse_one_token(target: int | None, versus: int | None) -> None:
    """Raise InputError where target and versus are one token, whose difference is always 0."""
    if versus is not None and target == versus:
        what = message("target and versus are the same entry of the vocabulary, {id}", id=versus)
        expected = message("two tokens; without --target it is the model's own first choice")
        raise InputError(what, expected=expected)


def choose_target(
    model: Model,
    tokens: Sequence[Token],
    name: str,
    *,
    position: int | None = None,
    several: bool = True,
    row: Floats | None = None,
    note: Callable[[str], None] = ignore,
) -> Target:
    """The vocabulary entries that `name` stands for after a token: of its spellings with and
    without a blank before it the likelier one there.

    Args:
        model: One that predicts tokens.
        tokens: Those of the text.
        name: A word or words, or "id:N" for one entry. A blank before it, or "␣", asks for that
            spelling alone.
        position: After which token; None is the last.
        several: Whether an answer of several entries is wanted; else the first of them is taken,
            and a note says so.
        row: Log-probabilities of what comes next there, [vocabulary]; None to compute them where
            there is a choice.
        note: Called with a sentence that says which spelling is taken.

    Returns:
        The entries, with their log-probability where it had to be computed.

    Raises:
        InputError: For words that the vocabulary does not have.
        UsageError: For a malformed id.
        UnsupportedError: For a model that predicts no token.
    """
    if model.spec.head is None:
        raise no_output_head(model.spec, message("attn ablate --measure vector needs none"))
    if name.startswith(BY_ID):
        return _target_of((_entry_by_id(model, name, note),), row)
    if position is None:
        place = len(tokens) - 1
    else:
        place = position
    spellings = _spellings(model, name)

    # a decoder reads nothing after the place, and can read on through an answer token by token
    whole = reads_on(model.spec)
    if whole:
        read = tokens[: place + 1]
    else:
        read = tokens

    # the likeliest spelling; where there is only one, nothing is computed for it
    if len(spellings) > 1 or row is not None:
        if row is None:
            row = log_probabilities(model, read, place)
        logprobs = {ids: _logprob(model, read, ids, row, whole=whole) for ids in spellings}
        choice = max(logprobs, key=lambda ids: logprobs[ids])
        target = _target_of(choice, row, logprobs[choice])
        if len(spellings) > 1:
            note(_choice_note(model, choice, logprobs, whole=whole))
    else:
        target = _target_of(spellings[0], row=None)
    if len(target.ids) > 1 and not several:
        note(
            message(
                "{name} is {count} tokens here, {pieces}: what is measured is the first of them",
                name=repr(name),
                count=len(target.ids),
                pieces=listing(
                    quoted_entry(entry.text) for entry in target_tokens(model, target.ids)
                ),
            )
        )
        return replace(_target_of(target.ids[:1], row), word=name.strip(f" {BLANK}"))
    return target


def masked_target(model: Model, name: str, row: Floats, note: Callable[[str], None]) -> Target:
    """The vocabulary entry that a word stands for in the place of a mask token: of its spellings
    with and without a blank before it the likelier one.

    name: the word, or "id:N" for one entry.
    row: log-probabilities of what the mask hides, [vocabulary].
    note: called with a sentence that says which spelling is taken.

    Raises InputError for words that the vocabulary has no single entry for, since a mask hides one.
    """
    if name.startswith(BY_ID):
        return _target_of((_entry_by_id(model, name, note),), row)
    spellings = _spellings(model, name)
    logprobs: dict[Ids, float] = {ids: float(row[ids[0]]) for ids in spellings if len(ids) == 1}
    if not logprobs:
        what = message(
            "{name} is {count} tokens here, and a mask hides one",
            name=repr(name),
            count=len(spellings[0]),  # of the first, with a blank where there is such
        )
        raise InputError(what, expected="a word of one token")
    choice = max(logprobs, key=lambda ids: logprobs[ids])
    if len(logprobs) > 1:
        note(_choice_note(model, choice, logprobs, whole=False))
    return _target_of(choice, row)


def _target_of(ids: Ids, row: Floats | None, logprob: float | None = None) -> Target:
    """Make the `Target` of these vocabulary entries, with the model's own first choice.

    row: log-probabilities of what comes next, [vocabulary]; None where they are not known, and the
        target gets none.
    logprob: of all the entries one after the other; None for that of the first.
    """
    if row is None:
        return Target(ids)
    own = int(row.argmax())
    if logprob is None:
        logprob = float(row[ids[0]])
    return Target(ids=ids, logprob=logprob, own=own, own_logprob=float(row[own]))


def log_probabilities(model: Model, tokens: Sequence[Token], position: int) -> Floats:
    """Log-probabilities of what comes after the token at `position`, [vocabulary], in nats."""
    last = len(model.spec.blocks) - 1
    rows = rows_for(model.spec, len(tokens))
    # `idle`: the last layer is yielded even if it does not attend
    (trace,) = model.trace(list(tokens), layers=[last], keep=(), rows=rows, idle=True)
    scores = model.backend.numpy(model.logits(trace.after[position : position + 1]))
    row = np.asarray(scores, np.float64)[0]
    shifted = row - row.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def predicts_next(model: Model) -> bool:
    """Whether a model can predict tokens: it has an output head, and its file has that head's
    matrix, without which checkpoints are saved, too."""
    head = model.spec.head
    return head is not None and has_unembedding(head, model.store.outer(model.backend))


def small_note(model: Model, target: Target | None) -> list[str]:
    """The warning that the model hardly expects a target, with its own first choice; empty where
    the target is that choice, has a probability of `SMALL` or more, or one that is not known."""
    if target is None or target.logprob is None or target.own is None:
        return []
    probability = float(np.exp(target.logprob))
    if target.ids[0] == target.own or probability >= SMALL:
        return []
    return [
        message(
            "{target} has a probability of {probability} here; the model's own choice is {choice}"
            " ({most})",
            target=quoted_entry(answer_text(model, target.ids)),
            probability=probability_text(probability),
            choice=quoted_entry(target_token(model, target.own).text),
            # `or` is for the type alone: a target with `own` has this, too
            most=probability_text(float(np.exp(target.own_logprob or 0.0))),
        )
    ]


def probability_text(probability: float) -> str:
    """A probability as sentences write it: in percent, small ones with one significant digit, and
    `100%` only of what lacks nothing but rounding."""
    percent = 100 * probability
    # cut, not rounded: 99.96 is 99.9%, not 100%
    if 99.5 <= percent < 100 - 1e-4:
        return f"{math.floor(percent * 10) / 10:.1f}%"
    if percent >= 10:
        return f"{percent:.0f}%"
    if percent >= 0.1:
        return f"{percent:.1f}%"
    if percent >= 1e-4:  # the least that four decimals show
        return f"{float(f'{percent:.1g}'):.4f}".rstrip("0") + "%"
    return "<0.0001%"


def _entry_by_id(model: Model, name: str, note: Callable[[str], None]) -> int:
    """The number of the vocabulary entry that "id:N" names.

    name: such as "id:262".
    note: called with a sentence where the tokenizer has no token of that number, although the
        model's output has a row for it.

    Raises UsageError for what is no number, InputError for an entry that is not there.
    """
    number = name.removeprefix(BY_ID)
    if not (number.isascii() and number.isdecimal() and len(number) <= LONGEST_ID):
        raise UsageError(
            "{name} names no entry",
            expected="id: and a whole number, such as id:42",
            name=repr(name),
        )
    if int(number) >= model.spec.vocabulary:
        expected = message("0 to {last:,}, the model's vocabulary", last=model.spec.vocabulary - 1)
        raise InputError("there is no entry {number:,}", expected=expected, number=int(number))
    if not has_entry(model, int(number)):
        note(
            message(
                "the tokenizer has no token {number}: the output has more rows than that, and no"
                " text holds this one",
                number=number,
            )
        )
    return int(number)


def _spellings(model: Model, name: str) -> list[Ids]:
    """The ways in which a vocabulary spells a word that follows a text, each the ids of its
    entries, without repeats: with a blank before it, then without. A word that begins with a blank
    has the first only.

    name: the word.

    Raises InputError where it has no entry for a part of the word.
    """
    word = name.removeprefix(BLANK)
    texts = [f" {word}", word]
    if name.startswith(BLANK):
        texts = texts[:1]
    elif name.startswith(" "):
        texts = [name]

    # some tokenizers add a blank to what begins a text, so the word is also read after a line
    # break; a result that is not the word when it is written back is dropped
    spellings: list[Ids] = []
    for text in texts:
        for ids in (_ids_of(model, text), _ids_after_line(model, text)):
            if ids and ids not in spellings and _is_spelled(model.tokenizer, ids, texts):
                spellings.append(ids)
    if spellings:
        return spellings
    if any(token.unknown for token in model.tokenizer.encode(texts[-1])):
        what = message(
            "{name} is unknown to this model: its vocabulary has no entry for it", name=repr(name)
        )
        raise InputError(what, expected="a word of the vocabulary", hint="id:N names an entry")
    what = message("{name} is no entry", name=repr(name))
    raise InputError(what, expected="a word of the vocabulary", hint="id:N names an entry")


def _ids_of(model: Model, text: str) -> Ids:
    """The ids of a text by itself, special tokens left out; empty where the vocabulary does not
    know a part of it."""
    tokens = [token for token in model.tokenizer.encode(text) if not token.special]
    if any(token.unknown or token.id is None for token in tokens):
        return ()
    return tuple(token.id for token in tokens if token.id is not None)


def _ids_after_line(model: Model, text: str) -> Ids:
    """The ids of a text that goes on after a line break, where no tokenizer adds a blank of its
    own; empty where the line break is not a token by itself."""
    break_ids = _ids_of(model, "\n")
    all_ids = _ids_of(model, f"\n{text}")
    if break_ids and all_ids[: len(break_ids)] == break_ids:
        return all_ids[len(break_ids) :]
    return ()


def _is_spelled(tokenizer: Tokenizer, ids: Ids, texts: Sequence[str]) -> bool:
    """Whether vocabulary entries, read in the middle of a text, spell one of these texts.

    False for the same word with more blanks or fewer, and for blanks alone; true for anything else,
    because then the tokenizer does not write texts back as they were (in lower case, for example),
    and cannot tell.
    """
    text = _text_inside(tokenizer, ids)
    if text is None or "\ufffd" in text:  # what bytes become that are no whole character
        return True
    return text in texts or text.strip() not in ("", texts[0].strip())


def _text_inside(tokenizer: Tokenizer, ids: Sequence[int]) -> str | None:
    """The text of entries of the vocabulary after another word, with the blank between, such as
    " Oslo"; None where the tokenizer does not tell.

    Tokenizers drop the blank that begins a text; so the entries are written after the word "a", and
    the "a" is cut off again.
    """
    anchor = [token.id for token in tokenizer.encode("a") if not token.special]
    before = [number for number in anchor if number is not None]
    # where a piece of "a" has no id, nothing can be written after it
    if not anchor or len(before) < len(anchor):
        return None
    try:
        whole = tokenizer.text_of([*before, *ids])
        start = tokenizer.text_of(before)
    except AttnError:
        return None
    if whole.startswith(start):
        return whole.removeprefix(start)
    return None


def _logprob(model: Model, tokens: Sequence[Token], ids: Ids, row: Floats, *, whole: bool) -> float:
    """The log-probability of vocabulary entries one after the other, after the last token.

    row: log-probabilities of what comes next, [vocabulary].
    whole: whether of several entries all are counted, else the first alone.
    """
    first = float(row[ids[0]])
    if not whole or len(ids) == 1:
        return first
    return first + _rest_logprob(model, tokens, ids)


def _rest_logprob(model: Model, tokens: Sequence[Token], ids: Ids) -> float:
    """The log-probability of the entries after the first one, each after those before it.

    ids: two or more.
    """
    # after each of these entries the next one is predicted
    following = following_tokens(model, tokens, ids[:-1])
    text = [*tokens, *following]
    last = len(model.spec.blocks) - 1
    rows = rows_for(model.spec, len(text))
    # `idle`: the last layer is yielded even if it does not attend
    (trace,) = model.trace(text, layers=[last], keep=(), rows=rows, idle=True)
    scores = np.asarray(
        model.backend.numpy(model.logits(trace.after[-len(following) :])), np.float64
    )
    shifted = scores - scores.max(-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return float(logs[np.arange(len(following)), list(ids[1:])].sum())


def _choice_note(model: Model, choice: Ids, logprobs: Mapping[Ids, float], *, whole: bool) -> str:
    """The note on which spelling of the target was chosen, with its probability and those of the
    other spellings.

    logprobs: of each spelling.
    whole: whether the log-probability of a spelling of several entries is of all of them, else of
        the first.
    """
    others = [
        _spelling_phrase(model, ids, logprob, whole=whole)
        for ids, logprob in logprobs.items()
        if ids != choice
    ]
    return message(
        "{taken} is taken: likelier here than {others}",
        taken=_spelling_phrase(model, choice, logprobs[choice], whole=whole),
        others=listing(others),
    )


def _spelling_phrase(model: Model, ids: Ids, logprob: float, *, whole: bool) -> Message:
    """A spelling as the note names it, with its probability; with that of its first entry, and a
    word that says so, where `whole` is false and there are several."""
    name = quoted_entry(answer_text(model, ids))
    probability = probability_text(float(np.exp(logprob)))
    if whole or len(ids) == 1:
        return message("{name} ({probability})", name=name, probability=probability)
    return message("{name} (its first token {probability})", name=name, probability=probability)


# Entries of the vocabulary as tokens, and as documents name them.


def following_tokens(model: Model, tokens: Sequence[Token], ids: Sequence[int]) -> list[Token]:
    """The tokens of these vocabulary ids, with positions that continue the text's."""
    if not ids:  # a tokenizer need not have any
        return []
    return [
        replace(token, index=len(tokens) + token.index)
        for token in model.tokenizer.ids_to_tokens(ids)
    ]


def has_entry(model: Model, number: int) -> bool:
    """Whether the tokenizer has a token of this number. A model's output may have more rows than
    its tokenizer has tokens, to fill the table up to a round size."""
    try:
        model.tokenizer.ids_to_tokens([number])
    except InputError:
        return False
    return True


def target_token(model: Model, number: int, word: str | None = None) -> TargetToken:
    """The vocabulary entry `number` as documents hold it: id and text, its blank before it.

    word: what it is the first piece of.
    """
    token = target_tokens(model, [number])[0]
    if word is None:
        return token
    return replace(token, word=word)


def target_tokens(model: Model, numbers: Sequence[int]) -> list[TargetToken]:
    """Vocabulary entries as documents hold them: id and text, with the blank before it that an
    entry stands for inside of a text; called by its number where the output has more rows than the
    tokenizer has entries, as padded vocabularies do."""
    if not numbers:
        return []
    tokenizer = model.tokenizer
    try:
        tokens = tokenizer.ids_to_tokens(numbers)
    except InputError:
        # an entry that the tokenizer lacks: one by one, so that only this is called by its number
        if len(numbers) > 1:
            return [target_token(model, number) for number in numbers]
        return [TargetToken(id=number, text=f"<{number}>") for number in numbers]
    texts = [token.text for token in tokens]
    # the text of a token leaves its blank out: put it back where the vocabulary tells blanks
    places = [place for place, token in enumerate(tokens) if _may_have_blank(token)]
    if places and (_differ_by_blanks(tokens) or _tells_blanks(tokenizer)):
        for place in places:
            spelled = tokens[place].utf8
            if spelled is None:
                inside = _text_inside(tokenizer, [numbers[place]])
            else:
                inside = spelled.decode("utf-8", "replace")
            if inside == f" {texts[place]}":
                texts[place] = inside
    return [TargetToken(id=number, text=text) for number, text in zip(numbers, texts, strict=True)]


def _may_have_blank(token: Token) -> bool:
    """Whether an entry may begin with a blank that its text leaves out."""
    if token.special or token.text.startswith(" "):
        return False
    return token.utf8 is None or token.utf8.startswith(b" ")


def _differ_by_blanks(tokens: Sequence[Token]) -> bool:
    """Whether some of these entries are spelled with a blank before them and some printable ones
    without. It proves that `_tells_blanks` is true, and needs no texts to be tokenized for that."""
    spelled = [
        token.utf8
        for token in tokens
        if token.utf8 is not None and not token.special and token.text.isprintable()
    ]
    starts_with_blank = [utf8.startswith(b" ") for utf8 in spelled]
    return any(starts_with_blank) and not all(starts_with_blank)


def likeliest(values: Floats, count: int) -> list[int]:
    """The `count` vocabulary ids with the largest values, the largest first, and of equal values the
    smaller id first; all ids where there are fewer.

    values: of all entries, such as probabilities, [vocabulary].
    """
    if count < len(values):
        # all entries not below the `count`-th largest value: ties with it are cut off below
        least = np.partition(values, len(values) - count)[len(values) - count]
        entries = np.flatnonzero(values >= least)
    else:
        entries = np.arange(len(values))
    numbers: list[int] = entries[np.argsort(-values[entries], kind="stable")][:count].tolist()
    return numbers


def likeliest_tokens(model: Model, probabilities: Floats, count: int) -> list[NextToken]:
    """The `count` likeliest next tokens with their probabilities, the likeliest first; one that the
    tokenizer does not have, as in the last rows of a padded vocabulary, is called by its number.

    probabilities: of all entries, [vocabulary].
    """
    return [
        NextToken(token=token, probability=float(probabilities[token.id]))
        for token in target_tokens(model, likeliest(probabilities, count))
    ]


def answer_text(model: Model, ids: Sequence[int]) -> str:
    """The text that vocabulary entries spell one after the other, with the blank before the first;
    where they are no whole characters, their names one after the other.
    """
    texts = [entry.text for entry in target_tokens(model, ids)]
    # an entry that is one byte of a character is named `<0x0A>`: without such, the names are the text
    if not any("<0x" in text for text in texts):
        return "".join(texts)
    inside = _text_inside(model.tokenizer, ids)
    if inside is None or "\ufffd" in inside:
        return "".join(texts)
    return inside


def _tells_blanks(tokenizer: Tokenizer) -> bool:
    """Whether a vocabulary has entries that begin with a blank beside those that do not. A
    tokenizer that first cuts at blanks, as WordPiece does, keeps no trace of them."""
    after_blank = _last_id(tokenizer, " a")
    # several texts, since one of them, such as "(a", may be a single entry
    joined = [_last_id(tokenizer, text) for text in ("(a", "\na", "1a")]
    return after_blank is not None and any(number not in (None, after_blank) for number in joined)


def _last_id(tokenizer: Tokenizer, text: str) -> int | None:
    """The id of the last entry of a text that ends in "a"; None where that entry is more than the
    letter, and where the vocabulary does not have it."""
    try:
        tokens = [token for token in tokenizer.encode(text) if not token.special]
    except AttnError:
        return None
    # "▁" and "Ġ" are how SentencePiece and byte-level BPE write the blank before a word
    if not tokens or tokens[-1].unknown or tokens[-1].text.strip("▁Ġ ") != "a":
        return None
    return tokens[-1].id
