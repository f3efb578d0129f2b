"""Texts, what a token is, what a tokenizer does, and how a token is named: `it`, `the:2`, `#7`,
`#3-5`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, Protocol
from unicodedata import combining, normalize

from msgspec import Struct
from msgspec.structs import replace

from attncli.errors import InputError, LimitError, UsageError
from attncli.inputs.files import gguf_error, is_gguf, open_stream, system_errors
from attncli.language import Message, listing, message

SAMPLE = "The animal didn't cross the street because it was too tired"
STANDARD_INPUT = message("standard input")
TEXT_LIMIT = 64 * 2**20
"""Bytes of one text, at most."""
LARGEST_ID = 2**31 - 1
"""A token's id, at most: the largest number of 32 bits with a sign."""


class ChatPart(Struct, frozen=True):
    """The place of one message in the rendered text: its name, such as `user` or `user:2` for the
    second of that role, and its characters [start, end)."""

    name: str
    start: int
    end: int


class RenderedChat(Struct, frozen=True):
    """A chat as one text.

    parts: what the messages say, in the order of the text.
    unplaced: names of messages whose text the template changed, so that their place is not known.
    quoted: characters [start, end) that a user wrote and that spell a control token.
    """

    text: str
    parts: tuple[ChatPart, ...] = ()
    unplaced: tuple[str, ...] = ()
    quoted: tuple[tuple[int, int], ...] = ()


class Text(Struct, frozen=True):
    """One text to be cut into tokens, or token ids in place of a text.

    text: the text; "" when `ids` are given.
    origin: where it came from: "argument", "standard input", "sample", "ids" or a path; with
        ":LINE" (first is 1) for one line of many.
    ids: token ids, or None.
    chat: what a template wrote of a chat; None for other texts.
    second: the character with which the second segment of a pair begins, on a line of its own; None
        for a text of one segment.
    """

    text: str
    origin: str
    ids: tuple[int, ...] | None = None
    chat: RenderedChat | None = None
    second: int | None = None

    def with_pair(self, pair: str) -> Text:
        """The text with another as its second segment, as models of sentence pairs read it."""
        return replace(self, text=f"{self.text}\n{pair}", second=len(self.text) + 1)


def read_texts(
    argument: str | None,
    *,
    file: Path | None,
    lines: bool,
    ids: str | None,
    stdin: BinaryIO | None,
    stdin_is_terminal: bool,
    sample: str | None,
) -> Iterator[Text]:
    """The texts that a command's options ask for, one after the other; each is read only when it is
    taken.

    An argument, a file or ids win over a pipe, which is then not read; `-` or no source at all
    reads `stdin`, except on a terminal, where no source gives the `sample` (if there is one). Text
    is UTF-8; a byte-order mark is dropped, as are line ends at the end. With `lines`, every line
    that is not blank is a text of its own. Lone surrogates in the argument (bytes that were not
    UTF-8) are kept, as data.

    Raises UsageError for more than one source or none, InputError for nothing in the source or text
    that is not UTF-8, LimitError for a text above `TEXT_LIMIT`.
    """
    sources = [
        name
        for name, value in (("TEXT", argument), ("--file", file), ("--ids", ids))
        if value is not None
    ]
    if len(sources) > 1:
        expected = message("one of TEXT, --file, --ids")
        raise UsageError(
            "more than one text is given: {sources}",
            expected=expected,
            sources=listing(sources, " and "),
        )
    if ids is not None:
        return iter([Text("", "ids", parse_ids(ids))])
    if file is not None and str(file) == "-":
        argument = "-"
        file = None
    if file is not None:
        return _texts_of_file(file, lines)
    if argument is not None and argument != "-":
        # as a stream, so that all sources of texts are cut into lines and checked alike
        stream = BytesIO(argument.encode("utf-8", "surrogatepass"))
        return _texts_of(stream, "argument", lines, errors="surrogatepass")
    if argument is None and stdin_is_terminal:
        if sample is None:
            raise UsageError("no text is given", expected="TEXT, --file PATH, or a pipe")
        return iter([Text(sample, "sample")])
    if stdin is None:
        raise InputError(
            "there is no text: standard input is closed", expected="TEXT, --file PATH, or a pipe"
        )
    return _texts_of(stdin, STANDARD_INPUT, lines)


def parse_ids(ids: str) -> tuple[int, ...]:
    """Token ids from `1 5 7` or `1,5,7`. Raises InputError for none, or for what is no id."""
    token_ids = []
    # of a text without ids, the split gives one empty piece
    for piece in re.split(r"[\s,]+", ids.strip(" \t\n,")):
        # the largest id has ten digits
        if not re.fullmatch(r"[0-9]{1,10}", piece) or int(piece) > LARGEST_ID:
            if piece:
                what = message("{piece} is no token id", piece=repr(piece))
            else:
                what = message("--ids holds no token ids")
            expected = message("whole numbers from 0 to {largest_id:,}", largest_id=LARGEST_ID)
            raise InputError(what, where="--ids", expected=expected, hint='--ids "1 5 7"')
        token_ids.append(int(piece))
    return tuple(token_ids)


def _texts_of_file(path: Path, lines: bool) -> Iterator[Text]:
    """The texts of a file, which is opened at once. Raises InputError for a file that cannot be
    read, is not UTF-8 or holds no text, LimitError for a text that is too long."""
    stream = open_stream(path, what=message("a UTF-8 text file"))

    # a generator of its own: the file is opened now, not when the first text is asked for
    def texts() -> Iterator[Text]:
        """The texts, one at a time as they are read; closes the file at the end."""
        with closing(stream):
            yield from _texts_of(stream, str(path), lines)

    return texts()


def _texts_of(stream: BinaryIO, origin: str, lines: bool, errors: str = "strict") -> Iterator[Text]:
    """Yield the text in a stream, or with `lines` a text for each line that is not blank. Raises
    InputError where there is none.

    origin: where the text comes from: "argument", "standard input" or a path.
    errors: how bytes that are not UTF-8 are taken, by Python's names: "strict" refuses them.
    """
    where = "" if origin == "argument" else origin  # errors need not say where an argument is
    if lines:
        pieces = _raw_lines(stream, where)
    else:
        pieces = _raw_whole(stream, where)
    offset = 0
    has_text = False
    for number, raw in enumerate(pieces, 1):
        text = _decode(raw, where, offset, number, errors).rstrip("\r\n")
        offset += len(raw)
        if text.strip():
            has_text = True
            yield Text(text, f"{origin}:{number}" if lines else origin)
    if not has_text:
        kind = message("every line is blank" if lines else "it holds no text")
        raise InputError(
            "nothing to run on: {kind}",
            where=where,
            expected="a text of at least one word",
            kind=kind,
        )


def _raw_lines(stream: BinaryIO, where: str) -> Iterator[bytes]:
    """The lines of a stream as bytes, each with its line end. Raises LimitError for one longer than
    `TEXT_LIMIT`.
    """
    while line := _read_bounded(stream.readline, TEXT_LIMIT, where):
        yield line


def _raw_whole(stream: BinaryIO, where: str) -> Iterator[bytes]:
    """All bytes of a stream as a single item. Raises LimitError above `TEXT_LIMIT`."""
    raw = b""
    while part := _read_bounded(stream.read, TEXT_LIMIT - len(raw), where):
        raw += part
    yield raw


def _read_bounded(read: Callable[[int], bytes], most: int, where: str) -> bytes:
    """The bytes that `read` gives, b"" at the end of its stream. Raises LimitError for more than
    `most` bytes.

    read: a method of a stream, such as `readline`, called with the most bytes to give.
    most: `TEXT_LIMIT` less what was read of the text before.
    where: the stream's name, for errors.
    """
    with system_errors("cannot read the text: {strerror}", where):
        part = read(most + 1)  # one byte more shows that the text goes on
    if len(part) > most:
        if is_gguf(part):
            raise gguf_error(where, message("UTF-8 text"))
        expected = message("a shorter text, or --lines to take it by lines")
        raise LimitError(
            "this text is longer than {limit:,} bytes",
            where=where,
            expected=expected,
            limit=TEXT_LIMIT,
        )
    return part


def _decode(raw: bytes, where: str, offset: int, line: int, errors: str) -> str:
    """Bytes of UTF-8 as text, without a byte-order mark.

    offset, line: where in the file they begin, for the error.
    errors: how bytes that are not UTF-8 are taken, by Python's names: "strict" refuses them.

    Raises InputError for invalid bytes.
    """
    if offset == 0:
        if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            hint = message("iconv -f UTF-16 -t UTF-8 FILE | attn run")
            raise InputError("this text is UTF-16", where=where, expected="UTF-8", hint=hint)
        raw_text = raw.removeprefix(codecs.BOM_UTF8)
        offset = len(raw) - len(raw_text)
        raw = raw_text
    try:
        return raw.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        if offset == 0 and is_gguf(raw):
            raise gguf_error(where, message("UTF-8 text")) from error
        place = message(
            "byte 0x{raw:02X} at offset {offset}, line {row}",
            raw=raw[error.start],
            offset=offset + error.start,
            row=line + raw[: error.start].count(b"\n"),
        )
        what = message("this text is not UTF-8: {place}", place=place)
        hint = message(
            "iconv -f ENCODING -t UTF-8 FILE | attn run, with GB18030, SHIFT_JIS or LATIN1, say"
        )
        raise InputError(what, where=where, expected="UTF-8 text", hint=hint) from error


class Token(Struct, frozen=True):
    """One token of one text.

    index: 0-based position in the sequence, specials counted.
    text: what it stands for, readable: the slice of the text it covers, or the name of a special
        token.
    id: the tokenizer's number for it; None where the tokenizer has no vocabulary.
    start, end: character (code point) offsets in the text, end exclusive; equal where it stands in
        the text and covers none of it, as a blank that a vocabulary puts first; None where it
        stands in no text.
    special: one of the vocabulary's special tokens ([CLS], <s>, …), by its id.
    part: 0 for the text, 1 for the second text of a pair; `start` and `end` count in that one.
    unknown: the vocabulary has no token of its own for it: it has the id that all such have, so
        that they are the same to a model.
    added: the tokenizer put it there; it does not stand in the text.
    segment: its type, for models that tell two texts apart by types, as the tokenizer gives it.
    utf8: its own bytes, where they are not those of the characters that it covers: of a piece of a
        character, or with the blank that it begins with.
    """

    index: int
    text: str
    id: int | None
    start: int | None
    end: int | None
    special: bool = False
    part: int = 0
    unknown: bool = False
    added: bool = False
    segment: int = 0
    utf8: bytes | None = None

    @property
    def typed(self) -> bool:
        """Whether it is a special token that stands in the text itself: somebody typed it, or a
        chat template wrote it.
        """
        return self.special and not self.added and self.start is not None

    def relocate(self, index: int, characters: int) -> Token:
        """A copy of the token with another index, its offsets moved on by so many characters."""
        start = self.start
        if start is not None:
            start += characters
        end = self.end
        if end is not None:
            end += characters
        return replace(self, index=index, start=start, end=end)


class Tokenizer(Protocol):
    """Cuts a text into tokens."""

    @property
    def name(self) -> str:
        """`word`, `whitespace`, `char`, `byte`, or the path or model the vocabulary came from."""

    def encode(self, text: str, pair: str | None = None) -> list[Token]:
        """The tokens of a text, or of a text and its `pair` as one sequence; [] where there is
        nothing to cut.
        """

    def ids_to_tokens(self, ids: Sequence[int]) -> list[Token]:
        """The tokens that these ids name, without offsets. Raises InputError for an id out of
        range, UsageError where the tokenizer has no ids."""

    def text_of(self, ids: Sequence[int]) -> str:
        """The text that these ids decode to; special tokens give no text. Raises as
        `ids_to_tokens`.
        """


def encode_pair(tokenizer: Tokenizer, text: str, second: int) -> list[Token]:
    """The tokens of a text of two lines, read as the two segments of a pair.

    tokenizer: its rules for pairs say which special tokens stand between the two, and which type
        each token has.
    second: the index of the character with which the second line begins.

    The offsets of the tokens count in the text as a whole.
    """
    # the line break between the two belongs to neither
    tokens = tokenizer.encode(text[: second - 1], text[second:])
    # a tokenizer counts the offsets of the second line (part 1) from its own beginning
    return [
        replace(token.relocate(token.index, second), part=0) if token.part else token
        for token in tokens
    ]


def token_types(tokens: Sequence[Token], types: int) -> list[int]:
    """The type of each token, [token], as the index of a row in a model's table of token types.

    types: the rows of the table, at least 1. Where there is only one, every token takes it.

    Raises InputError where the tokenizer gives a token a type that a table of several lacks.
    """
    for token in tokens:
        if token.segment >= types > 1:
            raise InputError(
                "the tokenizer gives {token} the type {segment}, and this model has the types 0 to"
                " {last}",
                expected="a tokenizer that belongs to this checkpoint",
                token=repr(bytes_name(token.text)),
                segment=token.segment,
                last=types - 1,
            )
    return [min(token.segment, types - 1) for token in tokens]


# Naming a token of a text: `it`, `the:2`, `#7`; or several in a row: `#3-5`, `didn't`, `面包`.

BYTES = re.compile("(?:<0x[0-9A-F]{2}>)+")
"""The text of a token that is some bytes of a character."""
MARKS = "Ġ▁ \t\n\r"
"""How vocabularies spell the blank before a word, and blanks themselves."""
BLANK = "␣"
"""Stands for a blank that belongs to a token, on screens and in what is typed."""
DRAWN_CONTROLS = {ord(char): chr(0x2400 + ord(char)) for char in "\t\n\r"}
"""Signs for a tab and for line breaks that belong to a token."""
SHOWN = 30
"""Tokens of a text that an error lists."""


def bytes_name(text: str) -> str:
    """The name of bytes that are no whole character, such as a predicted piece: `0xE8 0xB6`; any
    other text unchanged."""
    if not BYTES.fullmatch(text):
        return text
    return text.replace("><", " ").strip("<>")


def joined_text(texts: Iterable[str]) -> str:
    """The texts of tokens in a row put together. Bytes, such as `<0xE7>`, become the characters that
    they make up; bytes that make up none are named, as `0xE7`."""
    parts: list[str] = []
    for is_bytes, run in groupby(texts, lambda text: BYTES.fullmatch(text) is not None):
        spelling = "".join(run)
        if is_bytes:
            try:
                spelling = bytes.fromhex(re.sub("<0x|>", "", spelling)).decode()
            except UnicodeDecodeError:
                spelling = bytes_name(spelling)
        parts.append(spelling)
    return "".join(parts)


def covered_text(tokens: Sequence[Token]) -> str:
    """What tokens in a row spell, a blank where the text has something between two of them."""
    texts: list[str] = []
    for place, token in enumerate(tokens):
        if place and _is_separate(tokens[place - 1], token):
            texts.append(" ")
        texts.append(token.text if BYTES.fullmatch(token.text) else _strip_marks(token.text))
    return joined_text(texts).strip()


def quoted_entry(text: str) -> str:
    """A vocabulary entry in quotes as errors and notes name it, a blank before it and its line
    breaks visible, as screens draw them."""
    name = bytes_name(text)
    if name.startswith(" "):
        name = f"{BLANK}{name[1:]}"
    return repr(name.translate(DRAWN_CONTROLS))


class TokenMatch(Struct, frozen=True):
    """The token that a reference names: its index, and how many tokens the reference fits (above 1:
    this is the first of them)."""

    index: int
    occurrences: int


class Span(Struct, frozen=True):
    """A run of tokens that a reference names: the first, the one after the last, and how many times
    such a run occurs in the text."""

    first: int
    stop: int
    occurrences: int = 1


def find_span(tokens: Sequence[Token], reference: str) -> Span:
    """The run of tokens that a reference names: a single one by its text (`it`, or `the:2` for the
    second) or its index (`#7`), or several in a row that spell it.

    `#3-5` are the tokens 3 to 5. A word or phrase that the tokenizer splits is the run that spells
    it, the first one, or with `:2` the second. Raises InputError for no such tokens.
    """
    try:
        match = find_token(tokens, reference)
        return Span(match.index, match.index + 1, match.occurrences)
    except InputError:
        # "#3-5": a range of indices
        if by_range := re.fullmatch(r"#([0-9]{1,18})-([0-9]{1,18})", reference):
            first, last = (_checked_index(tokens, int(number)) for number in by_range.groups())
            if first > last:
                expected = message("#{last}-{first}", last=last, first=first)
                raise InputError(
                    "{reference} runs backwards", expected=expected, reference=repr(reference)
                ) from None
            return Span(first, last + 1)

        # the whole reference as a phrase; then "the cat:2" as the phrase "the cat", second time
        runs = _runs_of_phrase(tokens, reference)
        if runs:
            return Span(*runs[0], occurrences=len(runs))
        phrase, _, number = reference.rpartition(":")
        if re.fullmatch("[0-9]{0,18}", number):
            runs = _runs_of_phrase(tokens, phrase)
            if runs and number:
                return Span(*runs[_occurrence_index(runs, phrase, int(number))])
            if runs:  # "the cat:", whose number is still to come
                return Span(*runs[0], occurrences=len(runs))
        raise  # the error of `find_token`, which names tokens like the reference


def _runs_of_phrase(tokens: Sequence[Token], phrase: str) -> list[tuple[int, int]]:
    """Every run of tokens [first, stop) that spells a word or a phrase; [] where none does."""
    has_several_words = len(phrase.split()) > 1
    # without regard to case; then with it, as tokens of bytes, such as `<0xC3>`, have no case and
    # may spell a capital letter
    for without_marks in (_lower_without_marks, _strip_marks):
        for form in _written_forms(phrase):
            target = _spelled_bytes(form, without_marks)
            runs = _spelling_runs(tokens, target, without_marks, may_have_gaps=has_several_words)
            if runs:
                return runs
    return []


def _written_forms(text: str) -> list[str]:
    """The ways to write a text that a reader sees no difference between: as it is, with letters and
    marks composed, and with them apart (Unicode has `é` as one sign or as two). Each once."""
    return list(dict.fromkeys((text, normalize("NFC", text), normalize("NFD", text))))


def ignore(*values: object) -> None:
    """Do nothing: the default of callbacks for notes, costs or progress."""


def straight_quotes(text: str) -> str:
    """A text in straight double quotes for a note, which a translation gives those of its language; a
    reference by position, such as '#3', in single ones, as it is typed."""
    if '"' in text or not text.isprintable() or text.startswith("#"):
        return repr(text)
    return f'"{text}"'


def choose_token(tokens: Sequence[Token], reference: str, note: Callable[[str], None]) -> int:
    """The index of the token that a reference names.

    note: called with a sentence where the reference fits several tokens and the first is taken, or
        counts from the end.

    Raises InputError for no such token, occurrence or index.
    """
    match = find_token(tokens, reference)
    if reference.startswith("#-"):  # counted from the end, where encoders have a special token
        note(
            message(
                "{reference} is token {match_index}, {text}",
                reference=straight_quotes(reference),
                match_index=match.index,
                text=straight_quotes(bytes_name(tokens[match.index].text)),
            )
        )
    if match.occurrences > 1:
        note(
            message(
                "{reference} occurs {occurrences} times; using the first, token #{match_index} "
                "({reference_2}:2 for the next)",
                reference=straight_quotes(reference),
                occurrences=match.occurrences,
                match_index=match.index,
                reference_2=reference,
            )
        )
    return match.index


def choose_last_token(
    tokens: Sequence[Token], reference: str, note: Callable[[str], None], *, unknown: bool = True
) -> int:
    """The index of the token that a reference names, or of the last one of a word of several: there
    a model that reads from left to right has the whole word.

    note: called with a sentence where the word has several tokens, where the reference fits several
        places and the first is taken, and where it counts from the end.
    unknown: whether tokens that the vocabulary does not know are allowed.

    Raises InputError for no such tokens, and for unknown tokens where they may not be.
    """
    match = find_span(tokens, reference)
    if not unknown:
        refuse_unknown(tokens, match, reference)
    count = match.stop - match.first
    if count == 1:  # with the notes on a single token, which are others
        return choose_token(tokens, reference, note)
    note_first(match, reference, note)
    last = match.stop - 1
    note(
        message(
            "{reference} is {count} tokens: this is about the last of them, #{index}",
            reference=straight_quotes(reference),
            count=count,
            index=last,
        )
    )
    return last


def choose_span(
    tokens: Sequence[Token], reference: str, note: Callable[[str], None], *, unknown: bool = True
) -> tuple[int, int]:
    """The run of tokens [first, stop) that a reference names.

    note: called with a sentence where the reference fits several runs.
    unknown: whether tokens that the vocabulary does not know are allowed; else they raise
        InputError.

    Raises InputError for no such tokens, and for unknown tokens where they may not be.
    """
    match = find_span(tokens, reference)
    if not unknown:
        refuse_unknown(tokens, match, reference)
    count = match.stop - match.first
    if count == 1:  # with the notes on a single token, which are others
        first = choose_token(tokens, reference, note)
        return first, first + 1
    note_first(match, reference, note)
    note(
        message(
            "{reference} is {count} tokens: weights to it are added up, weights from it averaged",
            reference=straight_quotes(reference),
            count=count,
        )
    )
    return match.first, match.stop


def note_first(span: Span, reference: str, note: Callable[[str], None]) -> None:
    """Call `note` with a sentence that the first of several fitting runs was taken; nothing where
    only one fits.
    """
    if span.occurrences > 1:
        note(
            message(
                "{reference} occurs {occurrences} times; using the first, tokens #{first} to "
                "#{last} ({reference_2}:2 for the next)",
                reference=straight_quotes(reference),
                occurrences=span.occurrences,
                first=span.first,
                last=span.stop - 1,
                reference_2=reference,
            )
        )


def refuse_unknown(tokens: Sequence[Token], span: Span, reference: str) -> None:
    """Raise InputError if any token of the span is unknown to the vocabulary. A model reads all
    unknown words as one and the same token, so what it does there says nothing about the word.

    reference: how the user named the span, for the error.
    """
    if not any(token.unknown for token in tokens[span.first : span.stop]):
        return
    # each once, in the order of the text
    known_texts = dict.fromkeys(
        _token_text(token) for token in tokens if not token.unknown and not token.special
    )
    expected = message("a text with words that the model knows")
    if known_texts:
        expected = message("one of: {value}", value=listing(map(repr, [*known_texts][:SHOWN])))
    raise InputError(
        "{reference} is unknown to this model: it cannot tell it from other unknown words",
        expected=expected,
        hint="--unknown takes it all the same",
        reference=repr(reference),
    )


def _spelling_runs(
    tokens: Sequence[Token],
    target: bytes,
    without_marks: Callable[[str], str],
    *,
    may_have_gaps: bool,
) -> list[tuple[int, int]]:
    """Every run of tokens [first, stop) that spells these bytes.

    without_marks: removes markers of word pieces (such as `##`) from a text.
    may_have_gaps: whether blanks may stand between the tokens of a run.
    """
    spellings = [_spelled_bytes(token.text, without_marks) for token in tokens]
    runs: list[tuple[int, int]] = []
    for first in range(len(tokens)):
        if runs and first < runs[-1][1]:
            continue  # within the run before
        # take tokens as long as what they spell is a beginning of the target
        spelling = spellings[first]
        stop = first + 1
        while (
            spelling and target.startswith(spelling) and spelling != target and stop < len(tokens)
        ):
            if tokens[stop].special or (
                not may_have_gaps and _is_separate(tokens[stop - 1], tokens[stop])
            ):
                break
            spelling = spelling + spellings[stop]
            stop = stop + 1
        if spelling == target and target and not tokens[first].special:
            runs.append((first, stop))
    return runs


def _spelled_bytes(text: str, without_marks: Callable[[str], str]) -> bytes:
    """The bytes of a token's text without piece markers and blanks: of byte tokens such as
    `<0xE7><0x88>` the bytes that they name, of any other text its UTF-8. Blanks (spaces, tabs, line
    breaks) are left out of both, since a text and its tokens are compared without them.

    without_marks: takes the piece markers, such as `▁`, out of a text.
    """
    if re.fullmatch("(<0x[0-9A-F]{2}>)+", text):
        raw = bytes.fromhex(text.replace("<0x", "").replace(">", ""))
        return b"".join(raw.split())
    return "".join(without_marks(text).split()).encode("utf-8", "surrogatepass")


def find_token(tokens: Sequence[Token], reference: str) -> TokenMatch:
    """The token that a reference names: by its text, `TEXT:N` for the Nth of them, or `#INDEX`.

    `it` is a token's text; `the:2` its second occurrence (the first is 1); `#7` a 0-based index,
    `#-1` the last, `#7-7` a range of one. A text is compared exactly, then without regard to case,
    then also without the marks that pieces carry (leading space, `Ġ`, `▁`, `##`); the first of these
    that finds anything decides. Letters with marks are the same whether Unicode composes them or
    not. The text as a whole comes first, so a token that is itself `a:2` or `#7` can be named.

    Raises InputError for no such token, occurrence or index.
    """
    places = _places(tokens, reference)
    if places:
        return TokenMatch(places[0], len(places))
    # "#7", "#7-7", or "#-1" from the end; then "cat:2", the second "cat"
    if by_index := re.fullmatch(r"#(-?[0-9]{1,18}|([0-9]{1,18})-\2)", reference):
        return TokenMatch(_checked_index(tokens, int(by_index[2] or by_index[1])), 1)
    if by_count := re.fullmatch(r"(.+):([0-9]{1,18})", reference, re.DOTALL):
        text = by_count[1]
        count = int(by_count[2])
        if places := _places(tokens, text):
            return TokenMatch(places[_occurrence_index(places, text, count)], 1)
    raise _unknown_token(tokens, reference)


def _places(tokens: Sequence[Token], text: str) -> list[int]:
    """The indices of the tokens whose text equals this one: exactly, else without regard to case,
    else also without the marks that pieces carry (leading space, `Ġ`, `▁`, `##`). The first of
    these that finds any token decides."""
    # what is compared: the text itself, the text in any case, and that without marks of pieces
    keys: tuple[Callable[[str], str], ...] = (str, str.casefold, _lower_without_marks)
    for key in keys:
        targets = {key(form) for form in _written_forms(text)} - {""}
        if places := [place for place, token in enumerate(tokens) if key(token.text) in targets]:
            return places
    return []


def _lower_without_marks(text: str) -> str:
    """A token's text in lower case, without the markers that word pieces carry (such as `##`)."""
    return text.casefold().strip(MARKS.casefold()).removeprefix("##")


def _strip_marks(text: str) -> str:
    """A token's text without the markers that word pieces carry (such as `##`)."""
    return text.strip(MARKS).removeprefix("##")


def _checked_index(tokens: Sequence[Token], index: int) -> int:
    """The index from 0 for one that may count from the end (negative). Raises InputError where
    there is no such token."""
    if not -len(tokens) <= index < len(tokens):
        expected = message(
            "#0 to #{last}: the text has {tokens} tokens", last=len(tokens) - 1, tokens=len(tokens)
        )
        raise InputError("there is no token #{index}", expected=expected, index=index)
    return index % len(tokens)


def _occurrence_index(places: Sequence[object], text: str, count: int) -> int:
    """The index in `places` of the `count`th (from 1) place where a text occurs, at least once.
    Raises InputError where it occurs less often than `count` says."""
    if not 1 <= count <= len(places):
        if len(places) > 1:
            expected = message(
                "{text}:1 to {text}:{places}: it occurs {places} times",
                text=text,
                places=len(places),
            )
        else:
            expected = message("{text}:1: it occurs once", text=text)
        raise InputError(
            "there is no {text} number {count}", expected=expected, text=repr(text), count=count
        )
    return count - 1


def _unknown_token(tokens: Sequence[Token], reference: str) -> InputError:
    """The error, returned and not raised, that no token fits a reference, with similar tokens."""
    from difflib import get_close_matches

    # without the `:2` that chooses an occurrence
    wanted_text = re.sub(r":[0-9]+$", "", reference)
    what = message("no token {reference} in the text", reference=repr(reference))
    pieces = _pieces_that_spell(tokens, wanted_text)
    if pieces:
        return _several_tokens_error(what, pieces)
    token_names = readable_names(tokens)
    # of names that differ by case alone, the first in the text
    name_by_key = {name.casefold(): name for name in reversed(token_names)}
    close = get_close_matches(wanted_text.casefold(), name_by_key, n=1)
    names = listing(map(repr, token_names[:SHOWN]))
    rest = ""
    if len(tokens) > SHOWN:
        rest = message(" … ({tokens} in all)", tokens=len(tokens))
    if len(tokens) > 1:
        last = len(tokens) - 1
        expected = message(
            "one of: {names}{rest}; or #0 to #{last}", names=names, rest=rest, last=last
        )
    elif tokens:
        expected = message("{names}, or #0", names=names)
    else:
        expected = message("the text has no tokens")
    hint = message("attn tokens lists them")
    if close:
        hint = message("did you mean {token}?", token=repr(name_by_key[close[0]]))
    return InputError(what, expected=expected, hint=hint)


def _pieces_that_spell(tokens: Sequence[Token], text: str) -> Sequence[Token]:
    """The first tokens in a row that together spell a text, in any case; none where no tokens do.

    A row with a token that has no letter of its own, such as a lone space, does not count.
    """
    spelled = _spelled_bytes(text, _lower_without_marks)
    for first, stop in _spelling_runs(tokens, spelled, _lower_without_marks, may_have_gaps=False):
        pieces = tokens[first:stop]
        if all(_lower_without_marks(piece.text) for piece in pieces):
            return pieces
    return ()


def _several_tokens_error(what: Message, pieces: Sequence[Token]) -> InputError:
    """The error, returned and not raised, that a reference is several tokens of the text where one
    is needed.

    what: what is wrong, the error's first sentence.
    pieces: the tokens.
    """
    other_way = message(
        "or in attn run and attn find --words, which merges words written with spaces"
    )
    return InputError(
        what,
        expected="one token; this is {count}: {pieces}",
        hint=message(
            "'#{index}' for the first of them, {words}", index=pieces[0].index, words=other_way
        ),
        count=len(pieces),
        pieces=listing(f"#{piece.index} {_token_text(piece)}" for piece in pieces),
    )


def readable_names(tokens: Sequence[Token]) -> list[str]:
    """The texts of tokens as a user may write them. Tokens of bytes are named by the characters
    that they make up, a combining mark on its own by a circle that carries it."""
    names: list[str] = []
    for is_bytes, run in groupby(tokens, lambda token: BYTES.fullmatch(token.text) is not None):
        if not is_bytes:
            names += map(_token_text, run)
            continue
        letters = joined_text(token.text for token in run)
        if letters.startswith("0x"):  # bytes that make up no character
            names.append(letters)
            continue
        for character in "".join(letters.split()):
            if combining(character):
                names.append(f"◌{character}")
            else:
                names.append(character)
    return names


def _token_text(token: Token) -> str:
    """A token's text as a user may write it; one of blanks alone is quoted."""
    return bytes_name(token.text.strip(MARKS)) or repr(token.text)


def _is_separate(before: Token, token: Token) -> bool:
    """Whether two neighbouring tokens have characters between them in the text, or one of them is
    special.
    """
    return (
        before.special
        or token.special
        or (before.end is not None and token.start is not None and token.start > before.end)
    )
