"""A shard's files: written whole, the last one is the commit; Parquet tables for other programs;
links to look for.

Rows and links come first, the state last; each goes to a temporary file in the same folder, to the
disk, and then to its name in one step. A second worker of the same shard writes the same bytes.
Which links are kept is what a condition says: "from=it to=animal weight>=0.3 head=L5H11". Heads rest
on keys such as the first token: they put weight there whatever the text says. Links to those keys
are not kept unless the condition says "rest=yes".

Several commands may share a scan's shards; the work of each is a part: `--part 2/3` is named "2-of-3".
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import Array, Backend
from attncli.errors import AttnError, InputError, UnsupportedError, UsageError
from attncli.extras import install_command
from attncli.inputs.files import (
    LARGEST_FILE,
    is_file,
    new_file,
    open_regular,
    sync_folder,
    system_errors,
)
from attncli.inputs.tensors import open_archive, write_npz
from attncli.inputs.token import Token, Tokenizer
from attncli.inputs.tokenize import ShiftedTokenizer
from attncli.language import listing, message
from attncli.measure.row_facts import Bools, Floats, Ints
from attncli.mechanism.spec import parse_head

EXPECTED = message('such as "from=it to=animal weight>=0.3 head=L5H11"')


class ShardOutcome(Struct, frozen=True):
    """How the computation of a shard ended.

    reason: "" where it is done, else why it failed.
    texts, tokens: how many it counted.
    """

    shard: int
    reason: str = ""
    texts: int = 0
    tokens: int = 0


class Condition(Struct, frozen=True):
    """Which links (weights of a query on a key) `--find` keeps.

    source, target: texts of the query's and key's token, None for any.
    least: the smallest weight.
    heads: (layer, head) of those searched; empty for all.
    rest: whether keys count on which heads put weight whatever the text says (`rest_keys`).
    """

    source: str | None = None
    target: str | None = None
    least: float = 0.0
    heads: tuple[tuple[int, int], ...] = ()
    rest: bool = False


class MatchedLink(Struct, frozen=True):
    """A link that meets a condition.

    text: its index in the batch.
    query, key: positions.
    """

    text: int
    layer: int
    head: int
    query: int
    key: int
    weight: float


def parse_condition(text: str) -> Condition:
    """The condition that a `--find` option writes, such as "from=it to=animal weight>=0.3
    head=L5H11". Raises UsageError for text that is no condition, or one that would keep nearly
    every link."""
    values: dict[str, str] = {}
    for piece in text.split():
        # name=value, or "weight>=" and a number; the groups of the form that matches are its name
        # and value, those of the other two forms None
        match = re.fullmatch(
            r"(from|to|head)=(.+)|(rest)=(yes|no)|(weight)>=(\d+(?:\.\d+)?)", piece
        )
        if match is None:
            expected: str = EXPECTED
            if piece.startswith("rest="):
                expected = message("rest=yes or rest=no")
            raise UsageError(
                "--find {text}: {piece} is no condition",
                expected=expected,
                text=repr(text),
                piece=repr(piece),
            )
        name, value = (group for group in match.groups() if group is not None)
        if name in values:
            raise UsageError(
                "--find {text} says {name} twice", expected=EXPECTED, text=repr(text), name=name
            )
        if name in ("from", "to") and len(value) > 2 and value[0] == value[-1] == "/":
            raise UsageError(
                "--find {text}: {value} is a pattern, and {name}= takes one token",
                expected="one token; --find again for each other token",
                text=repr(text),
                value=repr(value),
                name=name,
            )
        values[name] = value
    least = float(values.get("weight", "0"))
    if least > 1:
        raise UsageError(
            "--find {text}: no weight reaches {least:g}",
            expected="a weight from 0 to 1",
            text=repr(text),
            least=least,
        )
    # where no token is named, only a large weight in single heads leaves few links
    names_token = "from" in values or "to" in values
    if not names_token and (least < 0.5 or "head" not in values):
        what = message("--find {text} would keep links of nearly every text", text=repr(text))
        raise UsageError(what, expected="a token, or a head and a weight from 0.5")
    return Condition(
        values.get("from"),
        values.get("to"),
        least,
        parse_heads(values.get("head", "")),
        rest=values.get("rest") == "yes",
    )


def parse_heads(text: str) -> tuple[tuple[int, int], ...]:
    """The (layer, head) of each head in a text such as `L5H11,L3H1`; () for "". Raises UsageError
    for what is no head."""
    heads = []
    for piece in filter(None, text.split(",")):
        head = parse_head(piece)
        if head is None:
            raise UsageError(
                "{piece} is no head", expected="such as L5H11 or L5H11,L3H1", piece=repr(piece)
            )
        heads.append(head)
    return tuple(heads)


def places_of_condition(
    condition: Condition, tokens: Sequence[Token], rest: Bools
) -> tuple[Ints, Ints] | None:
    """The positions in a text of the tokens that a condition names, as (queries, keys); all
    positions for a token that it does not name. None where the text has no such query or no such
    key.

    Keys where heads rest are left out unless the condition asks for them, by `rest=yes` or, for a
    special token or a separator, by its own text.

    rest: which keys these are (`rest_keys`), booleans [key].
    """
    queries = _positions(condition.source, tokens)
    keys = _positions(condition.target, tokens)
    if not condition.rest:
        if condition.target is None:
            keys = keys[~rest[keys]]
        elif has_resting_word(tokens, rest):
            # heads rest on the first word whatever it is: a condition that names this word asks for
            # where it stands elsewhere
            keys = keys[keys > 0]
    if not queries.size or not keys.size:
        return None
    return queries, keys


def has_first_key(condition: Condition, tokens: Sequence[Token], rest: Bools) -> bool:
    """Whether a text's first token is a word where heads rest and is the key that a condition names,
    with a query of the condition after it: a link that `places_of_condition` leaves out.

    rest: as of `places_of_condition`.
    """
    if condition.target is None or not has_resting_word(tokens, rest):
        return False
    keys = _positions(condition.target, tokens)
    queries = _positions(condition.source, tokens)
    return bool((keys == 0).any() and (queries > 0).any())


def has_resting_word(tokens: Sequence[Token], rest: Bools) -> bool:
    """Whether heads rest on a text's first word, because no special token stands before it; the
    arguments are those of `places_of_condition`."""
    return bool(rest[:1].any()) and not tokens[0].special


def _positions(text: str | None, tokens: Sequence[Token]) -> Ints:
    """The positions of the tokens with this text; all positions for None."""
    matches = [
        token.index
        for token in tokens
        if text is None or condition_text(token.text) == text.casefold()
    ]
    return np.array(matches, np.int64)


def condition_text(text: str) -> str:
    """A token's text in the form that conditions compare: without the marks by which tokenizers
    tell where words start, and case-folded, so that "ĠIt", "▁it" and "##it" are all "it".
    """
    return text.strip("Ġ▁ ").removeprefix("##").casefold()


def check_tokens(text: str, tokenizer: Tokenizer, vocabulary: int) -> None:
    """Raise UsageError where a word of a condition is no single token of a model, so that no text
    could ever have it: the model cuts it, with and without a blank before it, and in any case of
    its letters, and has no piece that reads like it.

    text: the condition as written.
    tokenizer: the model's.
    vocabulary: how many ids the model has.
    """
    condition = parse_condition(text)
    if isinstance(tokenizer, ShiftedTokenizer):  # which leaves out the last token of a text
        tokenizer = tokenizer.tokenizer
    for name, word in (("from", condition.source), ("to", condition.target)):
        if word is None:
            continue
        pieces = _pieces_of(word, tokenizer)
        # `_is_piece` goes through the whole vocabulary: only for words that are cut
        if len(pieces) < 2 or _is_piece(word, tokenizer, vocabulary):
            continue
        raise UsageError(
            "--find {text}: {name}= takes one token, and {word} is {count} tokens of this model:"
            " {pieces}",
            expected="one of these pieces, or another word",
            text=repr(text),
            name=name,
            word=repr(word),
            count=len(pieces),
            pieces=listing(pieces),
        )


def _pieces_of(word: str, tokenizer: Tokenizer) -> list[str]:
    """The tokens that a word is cut into, as a condition writes them, in the spelling that has the
    fewest; [] where the tokenizer takes no text."""
    cuts = []
    # conditions do not tell capitals, which tokenizers do
    for spelling in dict.fromkeys((word, word.lower(), word.capitalize(), word.upper())):
        for before in ("", " "):
            try:
                tokens = tokenizer.encode(before + spelling)
            except AttnError:
                return []
            # without tokens such as "[CLS]" that the tokenizer puts around every text
            texts = (condition_text(token.text) for token in tokens if not token.added)
            # a blank alone has no text left
            cuts.append([piece for piece in texts if piece])
    return min(cuts, key=len)


def _is_piece(word: str, tokenizer: Tokenizer, vocabulary: int) -> bool:
    """Whether some token of a vocabulary reads like a word of a condition."""
    for code in range(vocabulary):
        with suppress(AttnError):  # ids may have gaps
            (token,) = tokenizer.ids_to_tokens([code])
            if condition_text(token.text) == word.casefold():
                return True
    return False


def matching_links(
    condition: Condition,
    backend: Backend,
    weights: Array,
    layer: int,
    places: Sequence[tuple[Ints, Ints] | None],
    *,
    first: int,
    first_head: int,
) -> list[MatchedLink]:
    """The links in a block of a layer's weights that meet the condition.

    weights: [text, head, row, key], from query `first` and head `first_head` on.
    places: of each text the (queries, keys) of the condition's tokens, from `places_of_condition`;
        None where it has none.
    """
    heads = list(range(first_head, first_head + weights.shape[1]))
    if condition.heads:
        heads = [
            head for head_layer, head in condition.heads if head_layer == layer and head in heads
        ]
    matched_links = []
    for text, queries_and_keys in enumerate(places):
        if queries_and_keys is None or not heads:
            continue
        head_indices = [head - first_head for head in heads]
        head_weights = np.asarray(backend.numpy(weights[text]), np.float64)[head_indices]
        all_queries, keys = queries_and_keys
        is_in_block = (all_queries >= first) & (all_queries < first + head_weights.shape[1])
        queries = all_queries[is_in_block]

        # [head, query, key] of the named heads and tokens alone
        candidates = head_weights[:, queries - first][:, :, keys]
        # a hidden key has weight 0, which `least` may be
        is_match = (candidates >= condition.least) & (candidates > 0)
        for head, query, key in np.argwhere(is_match).tolist():
            link = MatchedLink(
                text=text,
                layer=layer,
                head=heads[head],
                query=int(queries[query]),
                key=int(keys[key]),
                weight=float(candidates[head, query, key]),
            )
            matched_links.append(link)
    return matched_links


FOLDER = "shards"
PER_FOLDER = 1000
"""Shards in a subfolder, so that no folder has too many files to list."""
LARGEST = 4 * 2**30
"""Bytes of a state's arrays, at most."""
REASON = 4096
"""Bytes that are read of why a shard failed."""
LONGEST_HOST = 40
"""Characters of a machine's name in a file's name, which may have 255 in all."""
PLANNING = "plan"
"""Stands where a part's name, such as "2-of-3", stands in names of temporary files: for files of the
whole scan, which belong to no part."""
# the names that `synced_writer` gives, such as ".000012.state.1-of-1.myhost.4321.tmp"
_TEMPORARY = re.compile(r"\.[\w-]+\.[a-z]+\..+\.tmp")


class ShardState(Struct, frozen=True, eq=False):
    """What a shard's file holds.

    arrays: sums as integers, by name.
    facts: counts of texts, the machine, the texts of examples, as JSON.
    """

    arrays: Mapping[str, np.ndarray[Any, Any]]
    facts: Mapping[str, Any]


def path_of(folder: Path, shard: int, kind: str) -> Path:
    """The path of one of a shard's files.

    kind: "state.npz", "rows.parquet", "links.parquet", "links.jsonl" or "failed.txt".
    """
    return folder / FOLDER / f"{shard // PER_FOLDER:03d}" / f"{shard:06d}.{kind}"


def paths_of(folder: Path, shard: int) -> list[Path]:
    """The paths of all files that a shard may have, there or not."""
    return [
        path_of(folder, shard, kind)
        for kind in ("state.npz", "rows.parquet", "links.parquet", "links.jsonl", "failed.txt")
    ]


def is_done(folder: Path, shard: int) -> bool:
    """Whether a shard is finished: its state's file is there."""
    return is_file(path_of(folder, shard, "state.npz"))


@contextmanager
def synced_writer(path: Path, part: str) -> Iterator[BinaryIO]:
    """Context that gives a stream; its content replaces the file `path`, synced to the disk, when
    the block ends without an exception. Raises AttnError where it cannot be written.

    part: name of the part of the scan that writes, which stands in the temporary file's name so
        that parts do not write to one file.
    """
    # "000012.state.npz" is first written as ".000012.state.1-of-1.myhost.4321.tmp"
    name, kind = path.name.split(".")[:2]
    beside = path.parent / f".{name}.{kind}.{temporary_name(part)}.tmp"
    try:
        with system_errors("cannot write this file: {strerror}", str(path), kind=AttnError):
            with new_file(beside) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            # the content is on the disk before the file has its name
            os.replace(beside, path)  # noqa: PTH105 - beside the other calls on handles
            sync_folder(path.parent)
    finally:
        with suppress(OSError):  # it has its final name already
            beside.unlink()


def temporary_name(part: str) -> str:
    """The middle of the names of this process's temporary files: part, machine and process id, such
    as "1-of-1.myhost.4321"."""
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:LONGEST_HOST]
    return f"{part}.{host}.{os.getpid()}"


def remove_leftovers(folder: Path, part: str) -> None:
    """Remove the temporary files that ended processes of this part, or of planning, left behind on
    this machine; those of processes that still run stay.

    part: the part's name, such as "2-of-3".
    """
    # such as "2-of-3.myhost" and "plan.myhost": part and machine, without the process id
    prefixes = [temporary_name(name).rpartition(".")[0] for name in (part, PLANNING)]
    # of shards, of the plan, and of the copies of corpus files
    for path in (
        *(folder / FOLDER).glob("*/.*.tmp"),
        *folder.glob(".*.tmp"),
        *folder.glob("*/.*.tmp"),
    ):
        is_ours = any(f".{prefix}." in path.name for prefix in prefixes)
        if not is_ours or not _TEMPORARY.fullmatch(path.name):
            continue
        process = path.name.split(".")[-2]  # its id, the last part before "tmp"
        if process.isdecimal() and _is_running(int(process)):
            continue
        with suppress(OSError):  # another user's, or removed by another process
            path.unlink()


def _is_running(process: int) -> bool:
    """Whether a process of this id runs, also another user's."""
    try:
        os.kill(process, 0)  # signal 0 reaches nobody; it only looks
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it runs, and is another user's, which may not be signalled
    return True


def save_state(folder: Path, shard: int, state: ShardState, part: str) -> None:
    """Write a shard's state to the folder, whole or not at all.

    part: name of the part of the scan that writes, such as "2-of-3".
    """
    facts = {"facts": json.dumps(state.facts, ensure_ascii=False, sort_keys=True)}
    with synced_writer(path_of(folder, shard, "state.npz"), part) as stream:
        write_npz(stream, state.arrays, facts, deflate=True)


def remove_file(path: Path) -> None:
    """Delete a file, if it is there. Raises AttnError where it cannot be deleted."""
    with system_errors("cannot remove this file: {strerror}", str(path), kind=AttnError):
        path.unlink(missing_ok=True)


def record_failure(folder: Path, shard: int, reason: str, part: str) -> None:
    """Record in the folder why a shard has failed, for other parts of the scan and later runs.

    part: name of the part of the scan that writes, such as "2-of-3".
    """
    # where it cannot be written, later runs compute the shard again, as they would anyway
    with suppress(AttnError), synced_writer(path_of(folder, shard, "failed.txt"), part) as stream:
        stream.write(reason.encode("utf-8", "replace"))


def failure_reasons(folder: Path) -> dict[int, str]:
    """By a shard's number, why it failed, for each shard that failed in some part of the scan and
    that is still not done."""
    reasons = {}
    for path in filter(is_file, (folder / FOLDER).glob("*/*.failed.txt")):
        # the shard's, of "000012.failed.txt"; other names are not ours
        number = path.name.partition(".")[0]
        if number.isascii() and number.isdecimal() and not is_done(folder, int(number)):
            with suppress(AttnError, OSError):  # it was finished, and the file removed, just now
                stream, _ = open_regular(path, what=message("a file"), may_be_empty=True)
                with stream:
                    reasons[int(number)] = stream.read(REASON).decode("utf-8", "replace")
    return reasons


def load_state(folder: Path, shard: int) -> ShardState:
    """Read a finished shard's state. Raises InputError for a file that is damaged."""
    path = path_of(folder, shard, "state.npz")
    stream, _ = open_regular(path, what=message("a shard"), limit=LARGEST_FILE)
    try:
        with (
            system_errors("cannot read this shard: {strerror}", str(path)),
            stream,
            open_archive(stream, str(path), LARGEST) as archive,
        ):
            arrays = {name: archive.array(name) for name in archive.names}
            facts = json.loads(archive.metadata()["facts"])
    except (ValueError, KeyError, EOFError) as error:
        raise InputError(
            "this shard is not whole: {error}", where=str(path), error=error
        ) from error
    if not isinstance(facts, dict):
        raise InputError("this shard is not whole: its facts are no object", where=str(path))
    return ShardState(arrays, facts)


# Tables of a shard for other programs: a row per text and head, a row per link, as Parquet.
#
# A row names its text in two ways: `text` is a hash of what it says, the same in every scan, by
# which the rows of two scans are joined; `file` and `line` are where it stands in this scan's
# corpus, both from 0.


def import_pyarrow() -> Any:
    """The module pyarrow. Raises UnsupportedError where it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UnsupportedError(
            "a table of all rows or of all links is read and written by pyarrow, which is not here",
            hint=install_command("scan"),
        ) from error
    return pyarrow


class TextPlace(Struct, frozen=True):
    """How tables of rows and links identify a text.

    text: `text_hash` with seed 0, whatever the scan's seed.
    file, line: as of `Record`.
    """

    text: int
    file: int
    line: int


KEY_COLUMNS = ("text", "file", "line", "layer", "head", "tokens", "rows")
"""What a row is about, before the numbers."""
GROUP = 2**20
"""Rows of a row group (which Parquet files are written in), at least: so many are held in memory
before they are written."""


class RowTable:
    """Writes a table with one row of numbers for each text and head, a row group at a time."""

    def __init__(
        self, heads: Sequence[tuple[int, int]], columns: Sequence[str], write: Callable[[Any], None]
    ) -> None:
        """A table without rows.

        heads: (layer, head) of each.
        columns: names of the metrics.
        write: called with a pyarrow Table for each row group.
        """
        self._heads = np.array(heads, np.int32).reshape((-1, 2))
        self._columns = tuple(columns)
        self._write = write
        # of each batch added since the last row group: its columns by name
        self._batches: list[dict[str, Any]] = []
        self._row_count = 0  # in all of them

    def add(self, places: Sequence[TextPlace], tokens: int, values: Floats, rows: Ints) -> None:
        """Add a batch of texts of `tokens` tokens each.

        places: of each text.
        values: [text, column, head].
        rows: query rows used, [column, head].
        """
        texts = len(places)
        heads = len(self._heads)
        # a row for each text and head; metrics may leave out rows, so that a head's number of rows is
        # the largest of any metric
        table: dict[str, Any] = {
            "text": np.repeat(np.array([place.text for place in places], np.uint64), heads),
            "file": np.repeat(np.array([place.file for place in places], np.int32), heads),
            "line": np.repeat(np.array([place.line for place in places], np.int64), heads),
            "layer": np.tile(self._heads[:, 0], texts),
            "head": np.tile(self._heads[:, 1], texts),
            "tokens": np.full(texts * heads, tokens, np.int32),
            "rows": np.tile(rows.max(0).astype(np.int32), texts),
        }
        table |= {
            name: values[:, column].reshape(-1).astype(np.float32)
            for column, name in enumerate(self._columns)
        }
        self._batches.append(table)
        self._row_count += texts * heads
        if self._row_count >= GROUP:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows as a row group."""
        if not self._batches:
            return
        arrow = import_pyarrow()
        arrays = {}
        for name in self._batches[0]:
            values = np.concatenate([table[name] for table in self._batches])
            arrays[name] = arrow.array(values, from_pandas=True)  # which makes NaN null
        self._batches = []
        self._row_count = 0
        self._write(arrow.table(arrays))


@contextmanager
def row_writer(
    folder: Path, shard: int, part: str, heads: Sequence[tuple[int, int]], columns: Sequence[str]
) -> Iterator[RowTable]:
    """Context that gives a `RowTable` for a shard's rows.parquet, which is there when the block
    ends without an exception.

    part: name of the part of the scan that writes, such as "2-of-3".
    heads: (layer, head) of each.
    columns: names of the metrics.
    """
    arrow = import_pyarrow()
    # the types of `KEY_COLUMNS` (text, file, line, then four), and of the metrics
    kinds = [
        arrow.uint64(),
        arrow.int32(),
        arrow.int64(),
        *[arrow.int32()] * 4,
        *[arrow.float32()] * len(columns),
    ]
    schema = arrow.schema(list(zip((*KEY_COLUMNS, *columns), kinds, strict=True)))
    # of Parquet's encodings: a dictionary is small where few values come again and again, and
    # floats, which hardly do, compress better with their bytes split into streams
    settings = {
        "compression": "zstd",
        "use_dictionary": list(KEY_COLUMNS),
        "use_byte_stream_split": list(columns),
    }
    with (
        synced_writer(path_of(folder, shard, "rows.parquet"), part) as stream,
        arrow.parquet.ParquetWriter(stream, schema, **settings) as writer,
    ):
        rows = RowTable(
            heads, columns, lambda table: writer.write_table(table, row_group_size=table.num_rows)
        )
        yield rows
        rows.flush()


LINK_FIELDS = (
    "condition",
    "text",
    "file",
    "line",
    "layer",
    "head",
    "query",
    "key",
    "query_text",
    "key_text",
    "weight",
)


def link_schema() -> Any:
    """The columns of a table of links, as pyarrow's schema. Raises as `import_pyarrow`."""
    arrow = import_pyarrow()
    whole = arrow.int32()
    string = arrow.string()
    # of `LINK_FIELDS`: the condition, the text's hash, file and line; layer, head, query and key;
    # the texts of both tokens, and the weight
    places = [whole, arrow.uint64(), whole, arrow.int64(), *[whole] * 4]
    kinds = [*places, string, string, arrow.float32()]
    return arrow.schema(list(zip(LINK_FIELDS, kinds, strict=True)))


class LinkTable:
    """Collects the links that meet conditions of `--find`, for a shard's links.parquet; where
    pyarrow is not installed, for its links.jsonl."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []

    def add(
        self,
        condition: int,
        additions: Sequence[MatchedLink],
        places: Sequence[TextPlace],
        token_text: Callable[[int, int], str],
    ) -> None:
        """Add the links of a batch that meet a condition.

        condition: its index among the scan's conditions.
        additions: the links.
        places: what identifies each text of the batch.
        token_text: returns the text of a token, for the index of a text in the batch and a
            position.
        """
        for link in additions:
            place = places[link.text]
            token_texts = token_text(link.text, link.query), token_text(link.text, link.key)
            indices = (link.layer, link.head, link.query, link.key)
            # in the order of `LINK_FIELDS`
            self._rows.append(
                (condition, place.text, place.file, place.line, *indices, *token_texts, link.weight)
            )

    def save(self, folder: Path, shard: int, part: str) -> int:
        """Write the shard's links in the order of condition, file and line; returns how many there
        are.

        part: name of the part of the scan that writes, such as "2-of-3".
        """
        # by all fields but the text's hash, the second, which has no order: file and line follow it
        sorted_rows = sorted(self._rows, key=lambda row: (row[0], *row[2:]))
        # lines of JSON where pyarrow, which writes Parquet, is not installed
        if find_spec("pyarrow") is None:
            with synced_writer(path_of(folder, shard, "links.jsonl"), part) as stream:
                for row in sorted_rows:
                    line = dict(zip(LINK_FIELDS, row, strict=True))
                    stream.write(json.dumps(line).encode() + b"\n")
            return len(sorted_rows)
        arrow = import_pyarrow()
        columns = list(zip(*sorted_rows, strict=True))
        if not sorted_rows:  # of no rows, zip gives no columns
            columns = [()] * len(LINK_FIELDS)
        schema = link_schema()
        arrays = [
            arrow.array(list(column), kind)
            for column, kind in zip(columns, schema.types, strict=True)
        ]
        with synced_writer(path_of(folder, shard, "links.parquet"), part) as stream:
            arrow.parquet.write_table(
                arrow.table(arrays, schema=schema), stream, compression="zstd"
            )
        return len(self._rows)
