"""`LoadedRun`: what is known of a run, head by head as it comes, from a model with a text or from a
saved file.

Weights are decoded when they are looked at.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias, assert_never

import numpy as np
from msgspec import Struct, field, structs
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, Selection
from attncli.documents import Document
from attncli.draw.safe import cells, label
from attncli.draw.token_names import PieceName, piece_names, with_named_bytes, word_name
from attncli.errors import InputError, UnsupportedError
from attncli.explore.state import Extent, State
from attncli.features.effects.document import AblateDocument
from attncli.features.explain.document import AttentionTopic
from attncli.features.heads.document import HeadsDocument
from attncli.features.rules.document import HeadMixture
from attncli.features.why.document import WhyDocument
from attncli.inputs.token import Token
from attncli.inputs.word_groups import unknown_words
from attncli.language import message
from attncli.measure.head_record import (
    Absent,
    Exact,
    FixedPoint,
    Floats,
    HeadRecord,
    QueryKeyRecipe,
    Roots,
    decode_weights,
    numbers,
)
from attncli.measure.rest import resting_keys
from attncli.measure.row_facts import Bools, Exclusion, Ints, exclusion
from attncli.measure.row_stream import kinds_left_out
from attncli.measure.run_record import RunRecord, run_record
from attncli.models.model import Model

Progress = Callable[[float], None]
"""Is told the share of the work done; raises where the work is no longer wanted."""


class LiveSource(Struct, frozen=True, eq=False):
    """A model and a text.

    layers, heads: which.
    words: whether pieces are merged to words.
    places: of these, the heads (layer, head) that are shown, such as those of a circuit; none for
        all.

    typed_count: how many of the tokens were typed; those after it were generated.
    rules: of heads, as they were fitted on other texts.
    """

    model: Model
    text: str
    tokens: Sequence[Token]
    typed_count: int
    layers: Selection = EVERY
    heads: Selection = EVERY
    words: bool = False
    places: frozenset[tuple[int, int]] = frozenset()
    rules: Mapping[tuple[int, int], HeadMixture] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model, text: str, tokens: Sequence[Token] | None = None) -> LiveSource:
        """A text as it is typed. Raises InputError for one without tokens, or with too many."""
        text_tokens = model.encode(text) if tokens is None else tokens
        return cls(model, text, text_tokens, len(text_tokens))

    def record(self, progress: Progress) -> RunRecord:
        """The run, whose heads come one after another."""
        record = run_record(
            self.model,
            self.text,
            self.tokens,
            name=self.model.identity.name or "",
            layers=self.layers,
            heads=self.heads,
            words=self.words,
            exact=True,
            progress=progress,
        )
        if not self.places:
            return record
        heads = (head for head in record.heads if (head.layer, head.head) in self.places)
        return structs.replace(record, heads=heads)

    def with_places(self, places: Collection[tuple[int, int]]) -> LiveSource:
        """The run reduced to these heads. Raises InputError if none are left."""
        if not places:
            raise InputError(
                "this circuit has no heads to look at",
                expected="a larger one, such as attn circuit --size 2%",
            )
        layers = sorted({layer for layer, _ in places})
        return replace(self, layers=layers, heads=EVERY, places=frozenset(places))

    def with_text(self, text: str) -> LiveSource:
        """The same model, to run on another text."""
        tokens = self.model.encode(text)
        return replace(self, text=text, tokens=tokens, typed_count=len(tokens))

    def pieces(self, word: int) -> tuple[int, ...]:
        """The tokens that a word is made of; a token itself where none are merged."""
        if not self.words:
            return (word,)
        from attncli.inputs.word_groups import merged_words

        word_groups = merged_words(self.tokens, self.text)
        first = int(word_groups.starts[word])
        return tuple(range(first, first + int(word_groups.sizes[word])))

    def derivation(self, layer: int, head: int, query: int) -> AttentionTopic:
        """One query's attention written out; of a word, that of its first piece."""
        from attncli.features.explain.compute import derivation_document

        piece = self.pieces(query)[0]
        return derivation_document(
            self.model, self.text, self.tokens, layer=layer, head=head, query=piece
        )

    def effects(
        self,
        query: int,
        place: tuple[int, int] | None,
        link: tuple[int, int] | None,
        progress: Progress,
    ) -> AblateDocument:
        """How far the word's last vector turns when heads are taken away, one at a time.

        place: one head, None for every one.
        link: cut it instead of the whole head.
        """
        from attncli.features.effects.ablation import Removal, removal_document
        from attncli.features.effects.measures import MeasureRequest
        from attncli.features.effects.sweep import CutLink
        from attncli.mechanism.spec import HeadSelection
        from attncli.models.estimate import free_memory

        if place is None:
            heads = HeadSelection()
        else:
            heads = HeadSelection((place[0],), (place[1],))
        if link is None:
            cut_link = None
        else:
            cut_link = CutLink(self.pieces(link[0]), self.pieces(link[1]))
        removal = Removal(heads, link=cut_link, baseline="top" if place is None else "all")
        request = MeasureRequest(("vector",), self.pieces(query), len(self.tokens) - 1)
        memory = free_memory().bytes
        return removal_document(
            self.model, self.text, self.tokens, removal, request, memory=memory, progress=progress
        )

    def parts(self, layer: int, head: int, query: int, key: int, progress: Progress) -> WhyDocument:
        """Why the head has this link: the parts of both words whose sum is its score. Where words
        were merged, for the pieces with the largest weight.
        """
        from attncli.features.why.compute import why
        from attncli.models.estimate import free_memory

        return why(
            self.model,
            self.text,
            self.pieces(query),
            self.pieces(key),
            layers=[layer],
            heads=[head],
            memory=free_memory().bytes,
            tokens=self.tokens,
            progress=progress,
        )

    @property
    def shorter(self) -> LiveSource:
        """The source without its last token, which was generated."""
        return replace(self, tokens=self.tokens[:-1], text=self.text[: self.tokens[-1].start])

    def longer(self, progress: Progress) -> LiveSource:
        """The source with the likeliest next token. Raises UnsupportedError for a model that
        predicts none.
        """
        from attncli.features.generate.compute import generate

        document = generate(
            self.model,
            self.text,
            1,
            layers=[0],
            heads=[0],
            rows=False,
            tokens=self.tokens,
            progress=progress,
        )
        new = document.generated[0]
        text = self.text + document.continuation
        token = Token(len(self.tokens), new.text, new.id, len(self.text), len(text), new.special)
        return replace(self, text=text, tokens=[*self.tokens, token])


class SavedSource(Struct, frozen=True, eq=False):
    """A saved file.

    document: what it holds.
    make: its record, anew each time, for its heads are gone through once.

    derive: the derivation of a layer, a head and a query, None where queries and keys are not held.
    """

    name: str
    document: Document
    make: Callable[[], RunRecord]
    derive: Callable[[int, int, int], AttentionTopic] | None = None

    @property
    def rules(self) -> Mapping[tuple[int, int], HeadMixture]:
        """The rules of heads that the file tells."""
        if not isinstance(self.document, HeadsDocument):
            return {}
        return {(head.layer, head.head): head.rules for head in self.document.heads if head.rules}

    def record(self, progress: Progress) -> RunRecord:
        """The record of the file."""
        del progress
        return self.make()

    def parts(self, layer: int, head: int, query: int, key: int, progress: Progress) -> WhyDocument:
        """The parts of a link's score. Raises UnsupportedError where the file does not hold them."""
        del progress
        if isinstance(self.document, WhyDocument):
            link = self.document.link
            if (link.layer, link.head, link.query, link.key) == (layer, head, query, key):
                return self.document
        raise UnsupportedError(
            "this file does not hold the parts of this link",
            hint="attn why TEXT --from TOK --to TOK --model NAME",
        )

    def derivation(self, layer: int, head: int, query: int) -> AttentionTopic:
        """One query's attention written out. Raises UnsupportedError where the file does not hold
        what that takes.
        """
        if self.derive is None:
            what = message("this file holds no queries and keys to derive the weight from")
            raise UnsupportedError(what, hint="attn run … --save run.safetensors")
        return self.derive(layer, head, query)


Source: TypeAlias = LiveSource | SavedSource


def live_source(source: Source, what: str) -> LiveSource:
    """The source with its model. Raises UnsupportedError for a file.

    what: what a file cannot do.
    """
    if isinstance(source, LiveSource):
        return source
    raise UnsupportedError(
        what, expected="a text and a model", hint="attn explore TEXT --model NAME"
    )


WHOLE = 1024
"""Words up to which a head's weights are made whole; of a longer text, the rows that are shown."""
CACHED = 1 << 23
"""Weights that are kept of the heads looked at last."""

Pair = tuple[int, int]
"""(layer, head) of a head, or (query, key) of a link."""


NO_RULES: Mapping[tuple[int, int], HeadMixture] = {}
"""Where no rules are told."""


class LoadedRun:
    """A run's heads by layer and number, as far as they are known.

    share: how much of the run is done, 0 to 1. rest: on which keys heads rest, booleans [key].
    rules: of heads, as they were fitted on other texts.
    """

    def __init__(
        self, record: RunRecord, rules: Mapping[tuple[int, int], HeadMixture] = NO_RULES
    ) -> None:
        self.record = record
        self.rules = rules
        self.share = 0.0
        self.heads: dict[Pair, HeadRecord] = {}
        is_learned = record.model is not None and record.model.source == "checkpoint"
        sides = record.sides
        self.left_out: Exclusion = exclusion(
            kinds_left_out((*sides.queries, *sides.keys), is_learned=is_learned),
            sides.keys,
            queries=None if sides.is_one_text else sides.queries,
        )
        if record.model is None:
            source = ""
        else:
            source = record.model.source
        self.rest: Bools = resting_keys(sides.keys, source)
        self._names: dict[tuple[str, bool], list[str]] = {}
        self._widest: dict[tuple[str, bool], int] = {}
        self._extent: Extent | None = None
        self._weights_by_head: OrderedDict[Pair, Floats] = OrderedDict()
        self._strongest: tuple[tuple[int, bool, int], dict[Pair, float]] | None = None

    @property
    def queries(self) -> Sequence[Token]:
        """The tokens that look."""
        return self.record.sides.queries

    @property
    def keys(self) -> Sequence[Token]:
        """The tokens looked at."""
        return self.record.sides.keys

    @cached_property
    def pieces(self) -> dict[int, PieceName]:
        """The names of tokens that are pieces of a word, by place; empty for two texts."""
        if not self.record.sides.is_one_text:
            return {}
        return piece_names(self.queries, self.record.text)

    @cached_property
    def unknown_count(self) -> tuple[int, int]:
        """How many words of the text the model does not know, and how many there are; (0, 0) where
        it knows all.
        """
        return unknown_words(self.record.text, self.queries)

    @property
    def extent(self) -> Extent:
        """The layers and heads that have run by now, and how many queries and keys there are."""
        if self._extent is None:
            layers: dict[int, list[int]] = {}
            for layer, head in sorted(self.heads):
                layers.setdefault(layer, []).append(head)
            self._extent = Extent(dict(layers), len(self.queries), len(self.keys))
        return self._extent

    def names(self, side: str, *, ascii: bool) -> list[str]:
        """The tokens of one side, "queries" or "keys", as they may be shown."""
        if (side, ascii) not in self._names:
            tokens = with_named_bytes(self.queries if side == "queries" else self.keys)
            self._names[side, ascii] = [label(word_name(token), ascii=ascii) for token in tokens]
        return self._names[side, ascii]

    def widest(self, side: str, *, ascii: bool) -> int:
        """Cells of the widest token of one side, "queries" or "keys"."""
        if (side, ascii) not in self._widest:
            self._widest[side, ascii] = max(map(cells, self.names(side, ascii=ascii)), default=1)
        return self._widest[side, ascii]

    def add(self, head: HeadRecord) -> None:
        """Add a head that has run."""
        self.heads[head.layer, head.head] = head
        self._strongest = self._extent = None

    def weights(self, place: Pair, rows: slice | None = None) -> Floats | None:
        """A head's weights, float32 [query, key], of these rows or all; None where they are not
        kept. Hidden pairs are NaN, learned keys left out."""
        head = self.heads.get(place)
        if head is None or isinstance(head.recipe, Absent):
            return None
        row_range = range(len(self.queries))[rows or slice(None)]
        if len(self.queries) > WHOLE:
            return self._rows(head, np.asarray(row_range, np.int64))
        if place not in self._weights_by_head:
            self._weights_by_head[place] = self._rows(head, np.arange(len(self.queries)))
            matrices = self._weights_by_head
            while len(matrices) > 1 and sum(matrix.size for matrix in matrices.values()) > CACHED:
                matrices.popitem(last=False)
        self._weights_by_head.move_to_end(place)
        return self._weights_by_head[place][row_range.start : row_range.stop]

    def _rows(self, head: HeadRecord, rows: Ints) -> Floats:
        """A head's weights of these query rows, float32 [row, key]; hidden pairs are NaN, as is a
        head without any.
        """
        bits = head.visibility_bits
        visibility = None
        if bits is not None:
            visibility = np.unpackbits(bits[rows], axis=-1, count=head.columns).astype(bool)
        match head.recipe:
            case Exact(weights):
                matrix = weights[rows]
            case Roots(codes):
                matrix = np.square(codes[rows].astype(np.float32) / np.float32(65535))
            case QueryKeyRecipe():
                matrix = decode_weights(head.recipe, rows, visibility)
            case Absent():
                matrix = np.full((len(rows), len(self.keys)), np.nan, np.float32)
            case _:
                assert_never(head.recipe)
        if visibility is not None:
            matrix = np.where(visibility, matrix, np.float32(np.nan))
        return matrix[:, : len(self.keys)]

    def row(self, place: Pair, query: int) -> Floats | None:
        """A query's weights in one head, [key]; hidden keys are NaN."""
        if place in self._weights_by_head:
            return self._weights_by_head[place][query]
        head = self.heads.get(place)
        if head is None or isinstance(head.recipe, Absent):
            return None
        values: Floats = self._rows(head, np.array([query]))[0]
        return values

    def column(self, place: Pair, key: int) -> Floats | None:
        """The weight that each query gives one key, float32 [query]; NaN for queries that do not
        see it.
        """
        head = self.heads.get(place)
        if (
            place in self._weights_by_head
            or head is None
            or not isinstance(head.recipe, QueryKeyRecipe)
        ):
            matrix = self.weights(place)
            if matrix is None:
                return None
            return matrix[:, key]
        recipe = head.recipe
        scores = numbers(recipe.q) @ _matrix_row(recipe.k, key) * np.float32(recipe.scale)
        if recipe.softcap is not None:
            scores = np.float32(recipe.softcap) * np.tanh(scores / np.float32(recipe.softcap))
        if recipe.bias is not None:
            scores = scores + recipe.bias[key - np.arange(len(scores)) + len(scores) - 1]
        with np.errstate(invalid="ignore", over="ignore"):
            values: Floats = np.where(
                np.isneginf(recipe.lse), np.float32(0), np.exp(scores - recipe.lse)
            )
        if head.visibility_bits is not None:
            bit = (head.visibility_bits[:, key // 8] >> (7 - key % 8)) & 1
            values = np.where(bit == 1, values, np.float32(np.nan))
        return values

    def strongest(self, word: int, *, is_turned: bool) -> dict[Pair, float]:
        """By (layer, head), the largest weight from a word (is_turned: to it) in each head;
        uninformative links, such as those to special tokens, are left out."""
        request = (word, is_turned, len(self.heads))
        if self._strongest is None or self._strongest[0] != request:
            out = self.uninformative_links(word, is_turned=is_turned)
            by_head: dict[Pair, float] = {}
            for place in self.heads:
                if is_turned:
                    values = self.column(place, word)
                else:
                    values = self.row(place, word)
                if values is not None:
                    by_head[place] = float(
                        np.where(out | np.isnan(values), 0.0, values).max(initial=0.0)
                    )
            self._strongest = request, by_head
        return self._strongest[1]

    def uninformative_links(self, word: int, *, is_turned: bool) -> Bools:
        """Which links from a word [key], or turned to it [query], say little, such as those to
        special tokens.
        """
        if not is_turned:
            return self.left_out.rows(np.array([word]))[0]
        out = self.left_out.queries | bool(self.left_out.keys[word])
        for offset in self.left_out.beside:
            if 0 <= word - offset < len(out):
                out[word - offset] = True
        return out

    def weight(self, place: Pair, query: int, key: int) -> float | None:
        """The weight from a query to a key in one head; None where the mask hides the key or the
        weight is not known.

        place: layer and head.
        query, key: positions from 0.
        """
        row = self.row(place, query)
        if row is None:
            if place in self.heads:
                links = self.heads[place].links
            else:
                links = ()
            return next((weight for q, k, weight in links if (q, k) == (query, key)), None)
        if np.isnan(row[key]):
            return None
        return float(row[key])

    def search(self, query: int, key: int) -> list[tuple[float, Pair]]:
        """The weight and the place of every head that has this link, the largest weight first."""
        weights = [(self.weight(place, query, key), place) for place in self.heads]
        return sorted(
            ((weight, place) for weight, place in weights if weight is not None),
            key=lambda entry: (-entry[0], entry[1]),
        )


def _matrix_row(matrix: FixedPoint | Floats, row: int) -> Floats:
    """One row of a matrix that is kept as codes or as numbers, float32."""
    if isinstance(matrix, FixedPoint):
        return matrix.low + matrix.step * matrix.codes[row].astype(np.float32)
    vector: Floats = matrix[row]
    return vector


# The beginning: a place of a run that has something to see.


def strongest_place(state: State, loaded_run: LoadedRun, about: int | None) -> State:
    """The state at the strongest link between two words that are not neighbours: a place with
    something to see.

    about: the word that looks, None for any.
    """
    if about is not None:
        weights = loaded_run.strongest(about, is_turned=False)
        if not weights:
            return state
        layer, head = min(weights, key=lambda place: (-weights[place], place))
        row = loaded_run.row((layer, head), about)
        assert row is not None
        out = loaded_run.uninformative_links(about, is_turned=False) | np.isnan(row)
        return replace(
            state, layer=layer, head=head, query=about, key=int(np.where(out, -1.0, row).argmax())
        )
    every = [
        (
            _is_between_words(loaded_run, query, key) and abs(query - key) > 1,
            weight,
            -layer,
            -head,
            query,
            key,
        )
        for (layer, head), record in loaded_run.heads.items()
        for query, key, weight in record.links[:3]
    ]
    if not every:
        return state
    _, _, layer, head, query, key = max(every)
    return replace(state, layer=-layer, head=-head, query=query, key=key)


def strongest_pair_in_head(state: State, loaded_run: LoadedRun) -> State:
    """The state at the chosen head's own strongest link; where the head does not exist or has no
    links, as `strongest_place`.
    """
    head = loaded_run.heads.get((state.layer, state.head))
    if head is None or not head.links:
        return strongest_place(state, loaded_run, None)
    query, key, _ = head.links[0]
    return replace(state, query=query, key=key)


def same_words(state: State, before: LoadedRun, loaded_run: LoadedRun) -> State:
    """The state at the words that stand where the chosen ones stood in the text, as pieces or
    merged.
    """
    query, key = (
        next((index for index, token in enumerate(tokens) if _holds_beginning(token, old)), None)
        for tokens, old in (
            (loaded_run.queries, before.queries[state.query]),
            (loaded_run.keys, before.keys[state.key]),
        )
    )
    if query is None or key is None:
        return state
    return replace(state, query=query, key=key)


def _holds_beginning(token: Token, earlier: Token) -> bool:
    """Whether a token covers the beginning of another one; a token without a place in the text is
    recognised by its name.
    """
    if token.start is None or token.end is None or earlier.start is None:
        return token.start == earlier.start and token.text == earlier.text
    return token.start <= earlier.start < token.end


def _is_between_words(loaded_run: LoadedRun, query: int, key: int) -> bool:
    """Whether both ends of a link are words, and not signs or single letters."""
    texts = (loaded_run.queries[query].text.strip(), loaded_run.keys[key].text.strip())
    return all(text.isalpha() and (len(text) > 1 or not text.isascii()) for text in texts)
