"""`LoadedRun`: what is known of a run, head by head as it comes, from a model with a text or from a
saved file.

Weights are decoded when they are looked at.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Literal, TypeAlias, assert_never

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
    """A model and a text that it runs on.

    layers, heads: those that are run.
    words: whether tokens that are pieces of a word are merged to words.
    places: of these heads the (layer, head) of those that are shown, such as a circuit's; empty for
        all.
    typed_count: how many of the tokens were typed; those after them were generated.
    rules: by (layer, head), the rules that describe a head, as they were fitted on other texts.
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
        """The source of a model and a text that was typed. Raises InputError for a text without
        tokens, or with too many.

        tokens: of the text, None to let the model's tokenizer find them.
        """
        text_tokens = model.encode(text) if tokens is None else tokens
        return cls(model, text, text_tokens, len(text_tokens))

    def record(self, progress: Progress) -> RunRecord:
        """Begin to run the text; the heads of the record are computed as its iterator is read.

        progress: called with the share that is done.
        """
        record = run_record(
            self.model,
            self.text,
            self.tokens,
            name=self.model.identity.name or "",
            layers=self.layers,
            heads=self.heads,
            words=self.words,
            exact=True,  # a page rounds queries and keys to stay small; a screen need not
            progress=progress,
        )
        if not self.places:
            return record
        heads = (head for head in record.heads if (head.layer, head.head) in self.places)
        return structs.replace(record, heads=heads)

    def with_places(self, places: Collection[tuple[int, int]]) -> LiveSource:
        """The source reduced to these heads, as (layer, head). Raises InputError where there are
        none."""
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
        """The positions of the tokens that a word is made of; its own where tokens are not merged.

        word: the word's position on the screen.
        """
        if not self.words:
            return (word,)
        from attncli.inputs.word_groups import merged_words

        word_groups = merged_words(self.tokens, self.text)
        first = int(word_groups.starts[word])
        return tuple(range(first, first + int(word_groups.sizes[word])))

    def derivation(self, layer: int, head: int, query: int) -> AttentionTopic:
        """The derivation of one query's attention in a head, step by step; of a merged word, that
        of its first piece."""
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
        """How far a word's last vector turns when heads are taken away, one at a time.

        query: the word's position.
        place: the (layer, head) taken away, None for each head in turn.
        link: the (query, key) of a link that is cut instead of the whole head; None for none.
        """
        from attncli.features.effects.ablation import Removal, removal_document
        from attncli.features.effects.measures import MeasureRequest
        from attncli.features.effects.sweep import CutLink
        from attncli.mechanism.spec import HeadSelection
        from attncli.models.estimate import free_memory

        # beside each effect stands that of a random change of the same size; of many heads only
        # beside the largest ones
        heads = HeadSelection()
        baseline: Literal["top", "all"] = "top"
        if place is not None:
            layer, head = place
            heads = HeadSelection((layer,), (head,))
            baseline = "all"
        cut_link = None
        if link is not None:
            cut_link = CutLink(self.pieces(link[0]), self.pieces(link[1]))
        removal = Removal(heads, link=cut_link, baseline=baseline)
        # `positions` are the tokens whose last vector turns; `position` is where a next token would be
        # predicted, which is not measured here
        request = MeasureRequest(
            ("vector",), positions=self.pieces(query), position=len(self.tokens) - 1
        )
        memory = free_memory().bytes
        return removal_document(
            self.model, self.text, self.tokens, removal, request, memory=memory, progress=progress
        )

    def parts(self, layer: int, head: int, query: int, key: int, progress: Progress) -> WhyDocument:
        """Why a head has a link: the parts of both words whose sum is its score; of merged words,
        of the pieces with the largest weight.
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

        # one token; of attention, which is not needed here, as little as can be asked for
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
        token = Token(
            len(self.tokens),
            new.text,
            id=new.id,
            start=len(self.text),
            end=len(text),
            special=new.special,
        )
        return replace(self, text=text, tokens=[*self.tokens, token])


class SavedSource(Struct, frozen=True, eq=False):
    """A saved file, which is shown without a model.

    document: what it holds.
    make: returns its record, a new one each time, since the heads of a record can be read once.
    derive: returns the derivation of (layer, head, query); None where the file does not hold
        queries and keys.
    """

    name: str
    document: Document
    make: Callable[[], RunRecord]
    derive: Callable[[int, int, int], AttentionTopic] | None = None

    @property
    def rules(self) -> Mapping[tuple[int, int], HeadMixture]:
        """By (layer, head), the rules that the file holds of a head; {} for a file without."""
        if not isinstance(self.document, HeadsDocument):
            return {}
        return {(head.layer, head.head): head.rules for head in self.document.heads if head.rules}

    def record(self, progress: Progress) -> RunRecord:
        """The record of the file; there is nothing to compute, so that progress is not reported."""
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
        """The derivation of one query's attention in a head, step by step. Raises UnsupportedError
        where the file does not hold queries and keys.
        """
        if self.derive is None:
            what = message("this file holds no queries and keys to derive the weight from")
            raise UnsupportedError(what, hint="attn run … --save run.safetensors")
        return self.derive(layer, head, query)


Source: TypeAlias = LiveSource | SavedSource


def live_source(source: Source, what: str) -> LiveSource:
    """The source, if it has a model. Raises UnsupportedError for a saved file.

    what: the error's message, which says what a file cannot do.
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
    """What is known of a run, whose heads are added one after another.

    heads: those that have run, by (layer, head).
    share: how much of the run is done, 0 to 1.
    rest: on which keys heads rest whatever the text says (the first token, special tokens,
        separators), booleans [key].
    left_out: the kinds of pairs that say little, such as links to special tokens.
    """

    def __init__(
        self, record: RunRecord, rules: Mapping[tuple[int, int], HeadMixture] = NO_RULES
    ) -> None:
        """A run that has begun, of which no head is known yet.

        record: its heads are added by the caller, as they are computed.
        rules: by (layer, head), the rules that describe a head.
        """
        self.record = record
        self.rules = rules
        self.share = 0.0
        self.heads: dict[Pair, HeadRecord] = {}
        # only in trained models do links such as those to the first token say little
        is_learned = record.model is not None and record.model.source == "checkpoint"
        sides = record.sides
        self.left_out: Exclusion = exclusion(
            kinds_left_out((*sides.queries, *sides.keys), is_learned=is_learned),
            sides.keys,
            queries=None if sides.is_one_text else sides.queries,
        )
        source = ""
        if record.model is not None:
            source = record.model.source
        self.rest: Bools = resting_keys(sides.keys, source)
        self._names: dict[tuple[str, bool], list[str]] = {}
        self._widest: dict[tuple[str, bool], int] = {}
        self._extent: Extent | None = None
        # the weights of the heads looked at last, the latest at the end
        self._weights_by_head: OrderedDict[Pair, Floats] = OrderedDict()
        # the last answer of `strongest`, with what was asked: (word, is_turned, number of heads)
        self._strongest: tuple[tuple[int, bool, int], dict[Pair, float]] | None = None

    @property
    def queries(self) -> Sequence[Token]:
        """The tokens that look: the queries."""
        return self.record.sides.queries

    @property
    def keys(self) -> Sequence[Token]:
        """The tokens that are looked at: the keys, without learned ones."""
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
        """A head's weights, float32 [query, key]; None where they are not kept. Hidden pairs are
        NaN, and learned keys are left out.

        place: (layer, head).
        rows: the queries wanted, None for all.
        """
        head = self.heads.get(place)
        if head is None or isinstance(head.recipe, Absent):
            return None
        row_range = range(len(self.queries))[rows or slice(None)]  # the rows, counted out
        if len(self.queries) > WHOLE:  # of a long text, these rows alone are made
            return self._rows(head, np.asarray(row_range, np.int64))

        # of a short text the whole matrix is kept, and that of the head looked at longest ago let
        # go
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
            case Roots(codes):  # square roots of weights, as multiples of 1 / 65,535
                matrix = np.square(codes[rows].astype(np.float32) / np.float32(65535))
            case QueryKeyRecipe():
                matrix = decode_weights(head.recipe, rows, visibility)
            case Absent():
                matrix = np.full((len(rows), len(self.keys)), np.nan, np.float32)
            case _:
                assert_never(head.recipe)
        if visibility is not None:
            matrix = np.where(visibility, matrix, np.float32(np.nan))
        return matrix[:, : len(self.keys)]  # learned keys, which are no tokens, come last

    def row(self, place: Pair, query: int) -> Floats | None:
        """A query's weights in one head, [key], hidden keys NaN; None where they are not kept.

        place: (layer, head).
        """
        if place in self._weights_by_head:
            return self._weights_by_head[place][query]
        head = self.heads.get(place)
        if head is None or isinstance(head.recipe, Absent):
            return None
        values: Floats = self._rows(head, np.array([query]))[0]
        return values

    def column(self, place: Pair, key: int) -> Floats | None:
        """The weight that each query gives one key in one head, float32 [query], NaN for queries
        that do not see it; None where weights are not kept.

        place: (layer, head).
        """
        head = self.heads.get(place)
        # from the whole matrix, where that is there already or the head keeps no queries and keys to
        # work the column out from; `weights` returns None for a head that has not run
        if (
            place in self._weights_by_head
            or head is None
            or not isinstance(head.recipe, QueryKeyRecipe)
        ):
            matrix = self.weights(place)
            if matrix is None:
                return None
            return matrix[:, key]

        # from queries and keys this column alone: its scores, then exp(score − lse), where lse is
        # the log of each row's sum
        recipe = head.recipe
        scores = numbers(recipe.q) @ _matrix_row(recipe.k, key) * np.float32(recipe.scale)
        if recipe.softcap is not None:
            scores = np.float32(recipe.softcap) * np.tanh(scores / np.float32(recipe.softcap))
        if recipe.bias is not None:
            # a number for each distance key − query, beginning with that of the last query, key 0
            scores = scores + recipe.bias[key - np.arange(len(scores)) + len(scores) - 1]
        with np.errstate(invalid="ignore", over="ignore"):
            values: Floats = np.where(
                np.isneginf(recipe.lse), np.float32(0), np.exp(scores - recipe.lse)
            )
        if head.visibility_bits is not None:
            # eight keys to a byte, the first in its highest bit
            bit = (head.visibility_bits[:, key // 8] >> (7 - key % 8)) & 1
            values = np.where(bit == 1, values, np.float32(np.nan))
        return values

    def strongest(self, word: int, *, is_turned: bool) -> dict[Pair, float]:
        """By (layer, head), the largest weight from a word to any other or, with is_turned, from
        any other to it; links that say little, such as those to special tokens, are left out."""
        request = (word, is_turned, len(self.heads))
        if self._strongest is None or self._strongest[0] != request:
            says_little = self.uninformative_links(word, is_turned=is_turned)
            by_head: dict[Pair, float] = {}
            for place in self.heads:
                if is_turned:
                    values = self.column(place, word)
                else:
                    values = self.row(place, word)
                if values is not None:
                    is_left_out = says_little | np.isnan(values)
                    by_head[place] = float(np.where(is_left_out, 0.0, values).max(initial=0.0))
            self._strongest = request, by_head
        return self._strongest[1]

    def uninformative_links(self, word: int, *, is_turned: bool) -> Bools:
        """Which links say little, such as those to special tokens: booleans [key] of the links from
        a word or, with is_turned, [query] of those to it.
        """
        if not is_turned:
            return self.left_out.rows(np.array([word]))[0]
        says_little = self.left_out.queries | bool(self.left_out.keys[word])
        for offset in self.left_out.beside:  # neighbours, by key position less query position
            if 0 <= word - offset < len(says_little):
                says_little[word - offset] = True
        return says_little

    def weight(self, place: Pair, query: int, key: int) -> float | None:
        """The weight from a query to a key in one head; None where the mask hides the key or the
        weight is not known.

        place: layer and head.
        query, key: positions from 0.
        """
        row = self.row(place, query)
        if row is None:
            # of such a head only its strongest links may be known
            if place in self.heads:
                for link_query, link_key, weight in self.heads[place].links:
                    if (link_query, link_key) == (query, key):
                        return weight
            return None
        if np.isnan(row[key]):
            return None
        return float(row[key])

    def search(self, query: int, key: int) -> list[tuple[float, Pair]]:
        """(weight, (layer, head)) of every head whose weight from a query to a key is known, the
        largest weight first."""
        links = []
        for place in self.heads:
            weight = self.weight(place, query, key)
            if weight is not None:
                links.append((weight, place))
        return sorted(links, key=lambda link: (-link[0], link[1]))


def _matrix_row(matrix: FixedPoint | Floats, row: int) -> Floats:
    """One row of a matrix that is kept as codes or as numbers, float32."""
    if isinstance(matrix, FixedPoint):
        return matrix.low + matrix.step * matrix.codes[row].astype(np.float32)
    vector: Floats = matrix[row]
    return vector


# The beginning: a place of a run that has something to see.


def strongest_place(state: State, loaded_run: LoadedRun, about: int | None) -> State:
    """The state at a strong link, as a place with something to see: the strongest one between two
    words that are not neighbours, or of the word asked about.

    about: the position of the word that looks, None for any.
    """
    if about is not None:
        weights = loaded_run.strongest(about, is_turned=False)
        if not weights:
            return state
        layer, head = min(weights, key=lambda place: (-weights[place], place))
        row = loaded_run.row((layer, head), about)
        assert row is not None
        is_left_out = loaded_run.uninformative_links(about, is_turned=False) | np.isnan(row)
        key = int(np.where(is_left_out, -1.0, row).argmax())  # −1 is below every weight
        return replace(state, layer=layer, head=head, query=about, key=key)

    # the best of each head's three strongest links: between words before all others, then by
    # weight; of equal ones in the first head
    best: tuple[bool, float, int, int, int, int] | None = None
    for (layer, head), record in loaded_run.heads.items():
        for query, key, weight in record.links[:3]:
            is_telling = _is_between_words(loaded_run, query, key) and abs(query - key) > 1
            rank = (is_telling, weight, -layer, -head, query, key)
            if best is None or rank > best:
                best = rank
    if best is None:
        return state
    _, _, minus_layer, minus_head, query, key = best
    return replace(state, layer=-minus_layer, head=-minus_head, query=query, key=key)


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
    """The state at the same words of the text after tokens were merged to words or taken apart,
    which moves all positions; unchanged where a word is not found.

    before: the run in which the state's words were chosen.
    loaded_run: the run that is shown now.
    """
    query = _index_of_word(loaded_run.queries, before.queries[state.query])
    key = _index_of_word(loaded_run.keys, before.keys[state.key])
    if query is None or key is None:
        return state
    return replace(state, query=query, key=key)


def _index_of_word(tokens: Sequence[Token], earlier: Token) -> int | None:
    """The index of the first token that covers the beginning of another one; None for none."""
    for index, token in enumerate(tokens):
        if _holds_beginning(token, earlier):
            return index
    return None


def _holds_beginning(token: Token, earlier: Token) -> bool:
    """Whether a token covers the beginning of another one; a token without a place in the text is
    recognised by its name.
    """
    if token.start is None or token.end is None or earlier.start is None:
        return token.start == earlier.start and token.text == earlier.text
    return token.start <= earlier.start < token.end


def _is_between_words(loaded_run: LoadedRun, query: int, key: int) -> bool:
    """Whether both ends of a link are words, and not signs or single letters."""
    for token in (loaded_run.queries[query], loaded_run.keys[key]):
        text = token.text.strip()
        is_single_letter = len(text) == 1 and text.isascii()  # one Chinese character may be a word
        if not text.isalpha() or is_single_letter:
            return False
    return True
