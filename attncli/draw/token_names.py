"""What tokens are called on screens: pieces of a word or a character by what they are pieces of, and
words that a model does not know by a mark, in every view.

A vocabulary gives all unknown words one id. What a screen shows of such a word is what the model
makes of any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from msgspec import UNSET, Struct
from msgspec.structs import replace

from attncli.documents import TokenRow
from attncli.draw.lines import Lines, sentences
from attncli.draw.safe import cut, label
from attncli.draw.view import View
from attncli.inputs.token import BYTES, bytes_name, joined_text
from attncli.language import Message, listing, message, say
from attncli.measure.rest import KeyToken, RestKind, is_separator, rest_kinds

if TYPE_CHECKING:
    from msgspec import UnsetType

    from attncli.documents import Numbers
    from attncli.inputs.token import Token


MARK = "?"
"""Stands behind every word that the model does not know."""
TEXT_CELLS = 24
"""The cells of a text that a sentence names it by."""
TEXT_OF = {
    "tokens": "text", "queries": "query_text", "keys": "key_text", "corrupt_tokens": "corrupt",
    "source_tokens": "source_text", "pieces": "text", "moved": "text",
}  # fmt: skip
"""The members that hold a text's tokens, and those that hold the text."""
ANSWERS = ("answer", "target")
"""The lists that hold the entries of an answer, which is shown whole: its bytes make up characters."""
PartOrDocument = TypeVar("PartOrDocument", bound=Struct)
Arguments = ParamSpec("Arguments")


class NamedToken(Protocol):
    """A token, or a document's row of one."""

    @property
    def text(self) -> str:
        """The token's text."""

    @property
    def unknown(self) -> bool | UnsetType:
        """Whether the model has no token of its own for it."""


def marked_text(token: NamedToken) -> str:
    """A token's text, with `MARK` behind it where the model does not know it."""
    text = token.text.strip() or token.text
    if token.unknown:
        return f"{text.removesuffix(MARK)}{MARK}"
    return token.text


def word_name(token: NamedToken) -> str:
    """A token's text with `MARK` where it is unknown, without the blanks around it unless it is
    nothing else.
    """
    return marked_text(token).strip() or token.text


def bare_text(token: NamedToken) -> str:
    """A token's text without the `MARK` of an unknown word."""
    if token.unknown:
        return token.text.removesuffix(MARK)
    return token.text


def words_at(places: Sequence[int], tokens: Sequence[TokenRow], text: str) -> list[str]:
    """The names of some of a text's tokens; neighbouring tokens are joined to one name. Each unknown
    word has its mark.

    Args:
        places: Positions of tokens, in rising order.
        tokens: Those of the text.
        text: The text; "" where only its tokens are known.
    """
    words: list[str] = []
    # places of neighbours grow as their indices in the list do, so that place - index is constant
    for _, run in groupby(enumerate(places), lambda entry: entry[1] - entry[0]):
        neighbours = [tokens[place] for _, place in run]
        is_in_text = all(token.start is not None and token.end is not None for token in neighbours)
        if not text or not is_in_text:
            words += map(word_name, neighbours)
            continue
        # all have a start and an end here; tokens may cover the same letters, which count once
        name = ""
        covered = neighbours[0].start or 0
        for token in neighbours:
            name += text[covered : token.end]
            if token.unknown:
                name += MARK
            covered = max(covered, token.end or 0)
        words.append(name.strip())
    return words


class PieceName(Struct, frozen=True):
    """How screens name a token that is one of several pieces of a word or a character.

    text: the piece's own name, as tables write it.
    word: what it is a piece of.
    is_bytes: whether it is a part of a character, and has no text of its own.
    """

    text: str
    word: str
    is_bytes: bool


def piece_names(tokens: Sequence[Token], text: str) -> dict[int, PieceName]:
    """The names of those tokens of a text that are pieces of a word, or of a character, by the
    token's index.

    A part of a character is named by the character and by which part it is: `超 1/3`.
    """
    from attncli.inputs.word_groups import word_starts

    names: dict[int, PieceName] = {}
    starts = word_starts(tokens, text)
    for first, stop in pairwise([*starts, len(tokens)]):
        pieces = tokens[first:stop]
        if pieces[0].special:
            continue
        byte_pieces = _parts_of_characters(pieces, text)
        word = _covered_text(pieces, text)
        # bytes that stand in no text: the word is the character that they begin with
        if not word and 0 in byte_pieces:
            word, _ = byte_pieces[0]
        for number, piece in enumerate(pieces):
            if number in byte_pieces:
                _, name = byte_pieces[number]
                names[first + number] = PieceName(name, word, is_bytes=True)
            # a piece that covers no character of the word keeps its own name
            elif len(pieces) > 1 and word and piece.start != piece.end:
                names[first + number] = PieceName(piece.text, word, is_bytes=False)
    return names


def _parts_of_characters(pieces: Sequence[Token], text: str) -> dict[int, tuple[str, str]]:
    """For the pieces of a word that are bytes, such as `<0xE8>`: by the piece's index, the character
    that it is a part of, and its name, such as ("超", "超 1/3"). The character is "" where the bytes
    make none, and the name is then that of the bytes.
    """
    # runs of neighbouring byte pieces that make up one character
    runs: list[list[int]] = []
    for number, piece in enumerate(pieces):
        if not BYTES.fullmatch(piece.text):
            continue
        follows_bytes = bool(runs) and runs[-1][-1] == number - 1
        if follows_bytes and _shares_a_character(pieces[number - 1], piece):
            runs[-1].append(number)
        else:
            runs.append([number])

    parts: dict[int, tuple[str, str]] = {}
    for run in runs:
        letters = _letters([pieces[number] for number in run], text)
        for place, number in enumerate(run, 1):
            if not letters:
                name = bytes_name(pieces[number].text)
            elif len(run) == 1:
                name = letters
            else:
                name = f"{letters} {place}/{len(run)}"
            parts[number] = (letters, name)
    return parts


def _shares_a_character(last: Token, piece: Token) -> bool:
    """Whether a byte piece belongs to the same character as the piece before it: both then cover
    that character. Two pieces that have no place in a text may.
    """
    if last.end is None or piece.start is None:
        return last.end is None and piece.start is None
    return piece.start < last.end


def _letters(pieces: Sequence[Token], text: str) -> str:
    """The characters that byte pieces such as `<0xE8><0xB6>` make up; where bytes are missing, what
    the pieces cover of the text.
    """
    # of "<0xE8><0xB6>" the digits "E8B6"
    byte_names = "".join(piece.text for piece in pieces)
    digits = re.sub("[^0-9A-F]", "", byte_names.replace("0x", ""))
    try:
        return bytes.fromhex(digits).decode().strip()
    except ValueError:  # no whole characters
        return _covered_text(pieces, text)


def spelled_text(tokens: Sequence[Token]) -> str:
    """The text that tokens were cut from, put together again from their own texts, with blanks where
    no token stands: for a document that does not hold the text.

    Returns:
        As many characters as the tokens cover; "" where they stand in no text, in several, or spell
        more characters than they cover.
    """
    letters = ""
    # tokens with the same start are parts of one character
    for start, run in groupby(tokens, lambda token: token.start):
        pieces = list(run)
        if any(piece.part for piece in pieces):  # of the second text of a pair
            return ""
        # a token that stands nowhere, or where letters are already
        if start is None or start < len(letters):
            continue
        end = max(piece.end or 0 for piece in pieces)  # what has a start has an end
        spelling = joined_text(piece.text.strip() for piece in pieces)
        if len(spelling) > end - start:
            return ""
        letters += spelling.rjust(end - len(letters))  # blanks before it, up to where it stands
    return letters


def with_named_bytes(tokens: Sequence[Token]) -> list[Token]:
    """The tokens of a text, with each token of bytes named by the character that it is a part of."""
    if not any(token.text.startswith("<0x") for token in tokens):
        return list(tokens)
    names = {place: name for place, (_, name) in _parts_of_characters(tokens, text="").items()}
    return [
        replace(token, text=names[place]) if place in names else token
        for place, token in enumerate(tokens)
    ]


def _covered_text(pieces: Sequence[Token], text: str) -> str:
    """The part of a text that pieces in a row cover, without blanks around it; "" for those that
    stand in no text.
    """
    start, end = pieces[0].start, pieces[-1].end
    if start is None or end is None or not text:
        return ""
    return text[start:end].strip() or text[start:end]


class PieceRow(TokenRow, frozen=True, kw_only=True):
    """A token that is one of several pieces of a word or a character, as screens name it."""

    word: str
    """What it is a piece of."""
    is_bytes: bool
    """Whether it is a part of a character, and has no text of its own."""


def name_tokens(document: PartOrDocument) -> PartOrDocument:
    """The document as screens and figures show it: pieces named by what they are pieces of, and
    each unknown word's text with its mark. The document itself where nothing of that is in it."""
    changes: dict[str, Any] = {}
    for name, value in _members(document):
        # `_members` yields no empty list; the entries of a list are all of the type of the first
        if isinstance(value, list):
            if name in ANSWERS:  # shown whole: its bytes are characters already
                continue
            entries = [_named_entry(entry) for entry in value]
            # tokens of a text that the document holds, then tokens of no such text
            if name in TEXT_OF and _is_token(value[0]):
                entries = _with_pieces(entries, value, getattr(document, TEXT_OF[name], None))
            elif _is_token(value[0]):
                entries = _with_bytes_in_rows(entries, value)
            if any(new is not old for new, old in zip(entries, value, strict=True)):
                changes[name] = entries
        elif (part := _named_entry(value)) is not value:
            changes[name] = part
    if changes:
        return replace(document, **changes)
    return document


def _named_entry(entry: Any) -> Any:
    """A member of a document as screens name it: of a token, its text marked or its bytes named; of
    any other part, the same in its members. The entry itself where nothing changes."""
    if not _is_token(entry):
        return _with_bytes_named(name_tokens(entry))
    if entry.unknown:
        return replace(entry, text=marked_text(entry))
    if entry.start is None:
        return _with_bytes_named(entry)
    # a token with a place in a text is named from that text, by the caller
    return entry


def _with_bytes_named(part: Any) -> Any:
    """A part whose own text is bytes, with a name for them; any other part as it is."""
    text = getattr(part, "text", None)
    if isinstance(text, str) and text.startswith("<0x") and (name := bytes_name(text)) != text:
        return replace(part, text=name)
    return part


def _with_bytes_in_rows(entries: list[Any], rows: Sequence[TokenRow]) -> list[Any]:
    """Entries of tokens of a text that the document does not hold, such as generated ones, with
    bytes named by the character that they are a part of.

    entries: the rows as `_named_entry` returned them.
    rows: the same tokens as the document has them.
    """
    from attncli.documents.header import tokens_of

    if not any(row.text.startswith("<0x") for row in rows):
        return entries
    named_entries = []
    named_tokens = with_named_bytes(tokens_of(rows))
    for entry, row, token in zip(entries, rows, named_tokens, strict=True):
        has_new_name = token.text != row.text  # only bytes get one
        named_entries.append(replace(entry, text=token.text) if has_new_name else entry)
    return named_entries


def _with_pieces(entries: list[Any], rows: Sequence[TokenRow], text: object) -> list[Any]:
    """Entries of a text's tokens in which those that are pieces of a word or a character are
    `PieceRow`s.

    entries: the rows as `_named_entry` returned them.
    rows: the same tokens as the document has them.
    text: the text; None where the document does not have it.
    """
    from attncli.documents.header import tokens_of

    tokens = tokens_of(rows)
    if not isinstance(text, str):
        text = spelled_text(tokens)
    if not text:
        return entries
    entries = list(entries)
    for place, name in piece_names(tokens, text).items():
        entry = entries[place]
        if type(entry) is not TokenRow:  # the row of `attn tokens`, which has more members
            entries[place] = replace(entry, text=name.text)
            continue
        members = {field: getattr(entry, field) for field in TokenRow.__struct_fields__}
        # an unknown word keeps its text with the mark
        if name.is_bytes and not entry.unknown:
            members["text"] = name.text
        entries[place] = PieceRow(**members, word=name.word, is_bytes=name.is_bytes)
    return entries


def unknown_words_note(document: Any, screen: Lines, view: View) -> Lines:
    """The lines below a screen that say how many of a document's words its model does not know;
    none where it knows all."""
    return sentences(unknown_word_sentences(document, view, has_marks=MARK in screen.plain), view)


def unknown_word_sentences(document: Any, view: View, *, has_marks: bool = True) -> list[str]:
    """The sentences on how many words of a document its model does not know: one, or one of each
    text, by its beginning, where they differ.

    has_marks: whether such words are shown with a mark.
    """
    from attncli.documents.header import tokens_of
    from attncli.inputs.word_groups import unknown_words

    text_of_note: dict[str, str] = {}  # equal notes are written once
    for text, tokens in _texts_with_unknown_words(document):
        unknown, total = unknown_words(text, tokens_of(tokens))
        if unknown:
            note = unknown_words_sentence(unknown, total, view, has_marks=has_marks)
            text_of_note.setdefault(note, text)
    if len(text_of_note) < 2:
        return list(text_of_note)
    return [_note_of_text(text, note, view) for note, text in text_of_note.items()]


def unknown_words_sentence(unknown: int, total: int, view: View, *, has_marks: bool = True) -> str:
    """The sentence that says how many of a text's words its model does not know.

    unknown, total: how many such words, of how many in all.
    has_marks: whether each is shown with its mark, which the sentence then explains.
    """
    if has_marks:
        singular = message(
            "{count} of {words} words is unknown to this model: any other unknown word would be the"
            " same to it. A ? marks it."
        )
        others = message(
            "{count} of {words} words are unknown to this model: it cannot tell them apart. A ?"
            " marks each of them."
        )
    else:
        singular = message(
            "1 of {words} words is unknown to this model: any other unknown word would be the same"
            " to it."
        )
        others = message(
            "{count} of {words} words are unknown to this model: it cannot tell them apart."
        )
    return say(view, singular if unknown == 1 else others, count=unknown, words=total)


def _note_of_text(text: str, note: str, view: View) -> str:
    """A note with the beginning of the text that it is about; the note alone for no text."""
    begins = say(
        view, '"{text}"', text=cut(label(text, ascii=view.ascii), TEXT_CELLS, ascii=view.ascii)
    )
    if text:
        return say(view, "In {text}: {note}", text=begins, note=note)
    return note


def _texts_with_unknown_words(document: Any) -> Iterator[tuple[str, Sequence[TokenRow]]]:
    """The texts of a document and of its parts that contain unknown words, each with its tokens,
    or, where tokens were merged to words, with the pieces of these."""
    for name, value in _members(document):
        entries = value if isinstance(value, list) else [value]
        has_unknown = any(_is_token(entry) and entry.unknown for entry in entries)
        if isinstance(value, list) and name in TEXT_OF and has_unknown:
            tokens: Sequence[TokenRow] = value
            pieces = getattr(document, "pieces", UNSET)
            if name == "tokens" and pieces:
                tokens = pieces
            yield getattr(document, TEXT_OF[name], ""), tokens
        else:
            for entry in entries:
                yield from _texts_with_unknown_words(entry)


def _members(part: Any) -> Iterator[tuple[str, Any]]:
    """The members of a part that may hold tokens, by name: other parts, and lists of parts, which
    are told by their first entry; an empty list is left out."""
    for name in getattr(part, "__struct_fields__", ()):
        value = getattr(part, name)
        if isinstance(value, list) and value:
            first = value[0]
        else:
            first = value
        if hasattr(first, "__struct_fields__"):
            yield name, value


def _is_token(entry: Any) -> bool:
    """Whether an entry of a document is a row of a token."""
    return hasattr(entry, "unknown") and hasattr(entry, "special")


# What tokens are called on screens: over the columns of a matrix, in the quotes of a sentence,
# beside a position.


class Ends(Protocol):
    """A link from a query to a key, by their positions."""

    @property
    def query(self) -> int:
        """The token that looks."""

    @property
    def key(self) -> int:
        """The token looked at."""


class HeadEnds(Ends, Protocol):
    """A link of a head that is known, from a query to a key."""

    @property
    def layer(self) -> int:
        """The layer, from 0."""

    @property
    def head(self) -> int:
        """The head in its layer, from 0."""


CLAIM, TARGET_END, CLAIM_END = "\ue001", "\ue002", "\ue003"
"""Around a claim and behind what it leads to; private characters, which no safe text holds."""
CLAIMS = re.compile(f"{CLAIM}([^{TARGET_END}]*){TARGET_END}([^{CLAIM_END}]*){CLAIM_END}")


CLOSING_QUOTE = re.compile('["”](?= ?[(（]|$)')
"""The quote behind a name: what follows is a note in brackets, such as its place or its word."""


def claim(
    text: str,
    view: View,
    *,
    layer: int | None,
    head: int | None,
    query: int | None = None,
    key: int | None = None,
) -> str:
    """A name in a sentence, between marks that hold what a page opens when a reader clicks on it: a
    head, a query, a key. The name itself where the view marks no claims.

    Args:
        text: The name, in quotes or without; quotes stay outside of the marks.
        view: Whether claims are marked.
        layer: The layer to show.
        head: The head to show. Without a layer and a head nothing is marked.
        query: The position of the word that looks; None leaves the one that is chosen.
        key: The position of the word that is looked at; None likewise.
    """
    if not view.claims or layer is None or head is None:
        return text
    places = {"h": f"{layer}.{head}", "q": query, "k": key}
    target = "&".join(f"{name}={place}" for name, place in places.items() if place is not None)
    # of `"it" (7)`, the marks stand around `it`
    first = 0
    last = len(text)
    if text.startswith(('"', "“")):
        first = 1
        # a name has a character at least, which may be a quote itself
        closing = CLOSING_QUOTE.search(text, first + 1)
        if closing:
            last = closing.start()
    return f"{text[:first]}{CLAIM}{target}{TARGET_END}{text[first:last]}{CLAIM_END}{text[last:]}"


def claim_link(text: str, link: HeadEnds, view: View) -> str:
    """The text between marks from which a page opens this link's head, query and key; as it is where
    the view marks no claims."""
    return claim(text, view, layer=link.layer, head=link.head, query=link.query, key=link.key)


def split_claims(sentence: str) -> list[str | tuple[str, str]]:
    """A sentence in pieces: texts, and claims as (text, what it leads to: `h=2.1&q=7&k=13`)."""
    pieces: list[str | tuple[str, str]] = []
    end = 0
    for match in CLAIMS.finditer(sentence):
        target, text = match.groups()
        if match.start() > end:
            pieces.append(sentence[end : match.start()])
        pieces.append((text, target))
        end = match.end()
    if end < len(sentence):
        pieces.append(sentence[end:])
    return pieces


def capitalize(text: str) -> str:
    """A sentence with a capital letter at its beginning, where its script has them; the letter may
    stand behind the mark that begins a claim.
    """
    start = 0
    if text.startswith(CLAIM):
        start = text.index(TARGET_END) + 1
    return text[:start] + text[start : start + 1].upper() + text[start + 1 :]


def capitalize_sentences(
    write: Callable[Arguments, Iterable[str]],
) -> Callable[Arguments, list[str]]:
    """Decorate a function that yields sentences: it then returns them as a list, each with a
    capital letter.
    """

    @wraps(write)
    def sentences(*arguments: Arguments.args, **settings: Arguments.kwargs) -> list[str]:
        """The sentences as a list, each with a capital letter."""
        return [capitalize(text) for text in write(*arguments, **settings)]

    return sentences


def key_names(texts: Sequence[str], rows: Numbers | Sequence[Numbers]) -> list[str]:
    """The token texts, then `bias_k` for each further column: a learned key that every query sees
    and no token stands for.

    rows: the matrix [query, key] whose columns are named; one without rows has the tokens as
    columns.
    """
    if len(rows):
        columns = len(rows[0])
    else:
        columns = len(texts)
    return [*texts, *["bias_k"] * (columns - len(texts))]


def region_name(name: str, view: View) -> str:
    """A region's name on a screen: the user's own, made safe; for the region of all tokens that are
    in no other, a name in the view's language.
    """
    from attncli.inputs.regions import REST

    if name == REST:
        return say(view, message("elsewhere"))
    return label(name, ascii=view.ascii)


def quote_text(text: str, view: View) -> str:
    """A text of the user's, made safe, in the quotation marks of the view's language."""
    return say(view, '"{text}"', text=label(text, ascii=view.ascii))


def quoted_word(text: str, view: View) -> str:
    """A word in the quotation marks of the view's language, without the blanks around it unless it
    is nothing else."""
    return quote_text(text.strip() or text, view)


def quoted_token(tokens: Sequence[TokenRow], index: int, view: View) -> str:
    """The name of the token at `index` in quotes, such as `"it"`; `"it" (7)` with its position where
    another token has the same name, and `"zyx" (unknown)` for an unknown word. A learned key, which
    stands past the tokens, is `"bias_k"`."""
    if index >= len(tokens):
        return quote_text("bias_k", view)
    token = tokens[index]
    name = quoted_row(token, view)
    name_and_word = _spoken_name(token)
    is_repeated = sum(_spoken_name(row) == name_and_word for row in tokens) > 1
    # a word that the user named is one row; elsewhere in the text, its pieces are rows
    spoken_text, _ = name_and_word
    in_pieces = not isinstance(token, PieceRow) and any(
        isinstance(row, PieceRow) and row.word == spoken_text for row in tokens
    )
    needs_place = is_repeated or in_pieces
    if needs_place and token.unknown:
        return say(view, "{name} ({place}, unknown)", name=name, place=index)
    if needs_place:
        return say(view, "{name} ({place})", name=name, place=index)
    if token.unknown:
        return say(view, "{name} (unknown)", name=name)
    return name


def has_pieces(tokens: Sequence[TokenRow]) -> bool:
    """Whether some of these tokens are pieces of words, so that not every token is a word."""
    return any(isinstance(token, PieceRow) for token in tokens)


def _spoken_name(token: TokenRow) -> tuple[str, str]:
    """What a sentence names a token by: (its text, the word that it is a piece of). The word is ""
    for a whole word, the text "" for a piece of bytes."""
    if not isinstance(token, PieceRow):
        return bare_text(token), ""
    if token.is_bytes:
        return "", token.word
    return bare_text(token), token.word


def quoted_row(token: TokenRow, view: View) -> str:
    """A token's text in quotes; a piece with the word that it is a piece of."""
    if not isinstance(token, PieceRow):
        return quote_text(bare_text(token), view)
    word = quote_text(token.word, view)
    if token.is_bytes:
        return say(view, "a piece of {word}", word=word)
    return say(
        view, "{name} (a piece of {word})", name=quote_text(bare_text(token), view), word=word
    )


def token_reference(tokens: Sequence[TokenRow], index: int, view: View) -> str:
    """A token as an option of a command names it: by its text, `cat`, where that is a word that
    occurs once and can be typed, else by its position, `'#3'`, quoted for a shell."""
    text = tokens[index].text.strip()
    is_unique = sum(token.text.strip() == text for token in tokens) == 1
    is_writable = text.isalnum() and (text.isascii() or not view.ascii)
    if is_unique and is_writable:
        return text
    return f"'#{index}'"


def quoted_ends(
    queries: Sequence[TokenRow], keys: Sequence[TokenRow], link: Ends, view: View
) -> tuple[str, str]:
    """The query and the key of a link in quotes."""
    return quoted_token(queries, link.query, view), quoted_token(keys, link.key, view)


def short(text: str, room: int, view: View) -> str:
    """A token's text for a table, cut to at most `room` cells."""
    return cut(label(text, ascii=view.ascii), room, ascii=view.ascii)


def with_word(token: TokenRow, view: View) -> str:
    """A token's text for a table; of a piece, with the word that it is a piece of: `ty (dumpty)`."""
    if isinstance(token, PieceRow) and not token.is_bytes:
        return say(view, "{piece} ({word})", piece=token.text, word=token.word)
    return token.text


def short_token(token: TokenRow, room: int, view: View) -> str:
    """A token's text as `with_word` writes it, made safe and cut to at most `room` cells."""
    return short(with_word(token, view), room, view)


def placed_token(tokens: Sequence[TokenRow], index: int, room: int, view: View) -> str:
    """A token's text as `short_token` writes it, with its position in front where another token has
    the same name: `10 cat`."""
    name = short_token(tokens[index], room, view)
    called = _spoken_name(tokens[index])
    if sum(_spoken_name(token) == called for token in tokens) > 1:
        return f"{index} {name}"
    return name


def position_and_text(position: int, text: str, room: int, view: View) -> str:
    """A token by its position and its text, that in at most `room` cells: `7 it`."""
    return f"{position} {short(text, room, view)}"


# What the keys where heads rest are called: in an answer, in a note below a table.

REST_NAMES = {
    "first": message("the first token"),
    "special": message("special tokens"),
    "separators": message("line breaks and separators"),
}


def rest_names(tokens: Sequence[KeyToken]) -> Message:
    """The names of the kinds of tokens in a text on which heads rest, that is, on which they put
    weight when they look for nothing: "the first token, special tokens"."""
    return listing(REST_NAMES[kind] for kind in rest_kinds(tokens))


def rest_names_among(tokens: Sequence[KeyToken], places: Iterable[int]) -> Message:
    """The names of the kinds of tokens on which heads rest (put weight when they look for nothing),
    among some of a text's tokens: "the first token, special tokens"; "" for none of them.

    places: the positions of these tokens.
    """
    chosen = [(place, tokens[place]) for place in places]
    kinds: list[RestKind] = []
    if any(place == 0 and not token.special for place, token in chosen):
        kinds.append("first")
    if any(token.special for _, token in chosen):
        kinds.append("special")
    # a separator that is the first token counts as the first token
    if any(place and is_separator(token) for place, token in chosen):
        kinds.append("separators")
    return listing(REST_NAMES[kind] for kind in kinds)


def resting_key(tokens: Sequence[TokenRow], index: int, view: View) -> str:
    """A sentence that says why a large weight on this key says little: it is the first token, a
    special token or a separator, on which heads put weight when they look for nothing.

    Args:
        tokens: Those of the text.
        index: Of the key.
        view: For the language.
    """
    if index == 0:
        name = quoted_row(tokens[0], view)  # the sentence says that it is the first token
    else:
        name = quoted_token(tokens, index, view)
    return resting_reason(tokens[index], index, name, view)


def resting_reason(token: KeyToken, index: int, name: str, view: View) -> str:
    """A sentence that says why heads put weight on this token when they look for nothing, such as
    `"The" is the first token: …`.

    Args:
        token: The key.
        index: Where it stands.
        name: What it is called, in quotes.
        view: For the language.
    """
    if token.special:
        return say(view, "{key} is a special token: heads rest there whatever the text.", key=name)
    if index and is_separator(token):  # at index 0 it is the first token
        template = message("{key} separates parts of the text: heads rest there whatever it is.")
        return say(view, template, key=name)
    return say(view, "{key} is the first token: heads rest there whatever it is.", key=name)


def not_counted(kinds: Sequence[str], tokens: Sequence[KeyToken], view: View) -> str:
    """A sentence that says which kinds of keys were not counted when the strongest was chosen; ""
    where all were.

    Args:
        kinds: Kinds of links that are left out, as documents name them.
        tokens: Those of the text: only what it has is named.
        view: For the language.
    """
    names: list[Message] = []
    if {"first", "special", "separators"}.intersection(kinds):
        names.append(message("{rest}, where heads rest", rest=rest_names(tokens)))
    if "self" in kinds:
        names.append(message("the word itself"))
    if "neighbours" in kinds:
        names.append(message("its neighbours"))
    if "unknown" in kinds:
        names.append(message("words that the model does not know"))
    if not names:
        return ""
    return say(view, "Not counted: {names}.", names=listing(names, "; "))
