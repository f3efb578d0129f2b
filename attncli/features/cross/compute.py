"""The document of `attn cross`: queries from one text, keys and values from another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Literal

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, SCORE_ITEM, Backend, Selection, numbers_of
from attncli.documents import EmptyRow, LeftOutKind, ShapeRow
from attncli.documents.header import (
    attention_part,
    empty_rows,
    model_part,
    projection_formulas,
    shape_rows,
    token_rows,
)
from attncli.errors import InputError, UnsupportedError, UsageError
from attncli.features.cross.document import (
    Aligned,
    BestKey,
    CrossDocument,
    CrossHead,
    CrossLayer,
    KeyHead,
)
from attncli.inputs.token import (
    Text,
    Token,
    choose_span,
    find_span,
    ignore,
    readable_names,
)
from attncli.inputs.tokenize import ShiftedTokenizer
from attncli.inputs.word_groups import (
    Words,
    WordsOfTwo,
    join_words,
    merged_words,
    token_notes_of_two,
)
from attncli.language import message
from attncli.measure.row_facts import Bools, Floats
from attncli.measure.row_stream import LinkCollector, kinds_left_out
from attncli.measure.run_record import CrossTexts, cross_traces
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.spec import Attention, Block
from attncli.mechanism.trace import LayerTrace
from attncli.models.estimate import estimate
from attncli.models.model import Model
from attncli.version import __version__

AT_ONCE = 4
"""Arrays of one number per pair that are alive while a layer is computed."""
SHIFTED = message(
    "the decoder reads the query text one token late, after its start token: each row is where the "
    "next token is predicted"
)


def states(count: int) -> list[Token]:
    """Stand-in tokens "s0", "s1", … for the captured states of an encoder as keys, as the states
    themselves have no text."""
    return [Token(place, f"s{place}", id=None, start=None, end=None) for place in range(count)]


@checked
def cross(
    model: Model,
    query_text: str,
    key_text: str | None = None,
    *,
    value_text: str | None = None,
    layers: Selection = EVERY,
    heads: Selection = EVERY,
    top: int = 10,
    all_links: bool = False,
    texts: CrossTexts | None = None,
    words: bool = False,
    query: str | None = None,
    key: str | None = None,
    note: Callable[[str], None] = ignore,
) -> CrossDocument:
    """Run cross-attention: each token of the query text attends to the tokens of the key text, or
    to captured encoder states.

    Args:
        model: As `attncli.load` returns it: seeded weights, an encoder-decoder, or a decoder that
            reads captured states (`Model.reading`).
        query_text: The text that asks; of an encoder-decoder, the decoder's.
        key_text: The text that is looked at; None for the states that the model reads.
        value_text: Values from a third text with a token for every key, of seeded weights; None for
            the keys' own.
        layers: Which layers: a number, several, or a text such as "0,2-5"; see `HeadSelection`.
        heads: Which heads of each: 11, [0, 3], "2-5"; or heads with their layers, "L5H11" or
            (5, 11); see `HeadSelection`.
        top: How many links the document holds.
        all_links: Whether links may be those that say little: to special tokens.
        texts: The texts as tokens, as `cross_texts` returns them; None to let the model's tokenizer
            find them.
        words: Whether the pieces of a word are merged on both sides: weights to a word are summed,
            from a word averaged.
        query: A token or word of the query text, whose row alone the document has; None for all.
        key: With `query`, one of the key text: heads are also ranked by the weight between both.
        note: Called with a sentence that says what an ambiguous name was read as.

    Returns:
        What `attn cross --json` writes. `alignment` names for every query the key with the largest
        mean weight, and the best without special tokens, as the end of the text, where there are any.

    Raises:
        UnsupportedError: For a checkpoint without cross-attention.
        UsageError: For a third text beside a checkpoint, and for a key without a query.
        InputError: For a query or key that is not in its text.
    """
    # both texts, and the query and key that are named
    if texts is None:
        source = None if key_text is None else Text(key_text, "argument")
        texts = cross_texts(model, Text(query_text, "argument"), source, value_text)
    sides = cross_sides(texts, words=words, query=query, key=key, note=note)

    # seeded weights are one attention that looks at another text; checkpoints have one of its own
    is_learned = model.identity.source == "checkpoint"
    tensor_part: Literal["attn", "cross"] = "cross" if is_learned else "attn"
    row_tokens = _row_tokens(texts, sides)
    leave_out: Sequence[LeftOutKind] = ()
    if not all_links:
        leave_out = _left_out((*row_tokens, *sides.keys), is_learned=is_learned)
    links = LinkCollector(
        sides.keys, queries=row_tokens, top=top, query=sides.query, leave_out=leave_out
    )
    parts: list[CrossLayer] = []
    shapes: list[ShapeRow] = []
    empty: list[EmptyRow] = []
    specs: list[Attention] = []  # of each layer's cross-attention
    total: Floats = np.zeros((len(sides.rows), len(sides.keys)))  # weights, summed over heads

    # the run, layer by layer
    for spec, trace in cross_traces(model, texts, layers, heads):
        head_numbers = sorted(numbers_of(heads, spec.heads))
        weights = np.asarray(model.backend.numpy(trace.stages["weights"]), np.float64)
        if not shapes:  # they are the same in every layer
            formulas = projection_formulas(model, trace.layer, tensor_part)
            rows = shape_rows(trace, spec, formulas)
            shapes = _cross_shapes(rows, len(texts.keys), int(model.spec.d_model))
        part_of_layer = _document_layer(model.backend, trace, head_numbers)
        if sides.merged is not None:
            part_of_layer = _between_words(part_of_layer, sides.merged)
            weights = sides.merged.merge(weights)
        else:  # empty rows are numbered by tokens, and so are not told of words
            empty += empty_rows(model.backend, trace, head_numbers)
        weights = weights[:, sides.rows]
        parts.append(_with_rows(part_of_layer, sides))
        links.add(trace.layer, head_numbers, list(weights), first=sides.rows.start)
        # learned keys, which are no tokens, come after the others and are left out
        total = total + weights[..., : len(sides.keys)].sum(axis=0)
        specs.append(spec)

    # a model whose blocks are these attentions alone, so that its part of the document, which screens
    # put into the header, speaks of the cross-attention
    cross_model = replace(model, spec=replace(model.spec, blocks=tuple(map(Block, specs))))
    decoder = model.spec.decoder or model.spec  # seeded weights have none
    # the backend that the decoder chose for a text of this length
    computing = replace(model, spec=decoder).compute_backend(len(texts.queries))
    warnings = [*model.warnings]
    if model.spec.decoder is not None:
        warnings.append(SHIFTED)
    warnings += token_notes_of_two(
        (message("query text"), texts.query, texts.queries),
        (message("key text"), texts.key, texts.keys),
    )
    mean = total / sum(len(layer.heads) for layer in parts)
    special = np.array([token.special for token in sides.keys], bool)
    return CrossDocument(
        version=__version__,
        query_text=texts.query,
        key_text=texts.key,
        value_text=texts.value,
        queries=token_rows(sides.queries),
        keys=token_rows(sides.keys),
        words=True if sides.merged is not None else UNSET,
        query=UNSET if sides.query is None else sides.query,
        key=UNSET if sides.key is None else sides.key,
        key_heads=UNSET if sides.key is None else _key_heads(parts, sides),
        model=replace(model_part(cross_model), layers=len(decoder.blocks)),
        attention=attention_part(cross_model, computing),
        shapes=shapes,
        layers=parts,
        said=_said_texts(texts, sides),
        alignment=alignment(mean, special, sides.rows),
        links=links.strongest(),
        links_leave_out=list(leave_out) or UNSET,
        empty_rows=[row for row in empty if row.query in sides.rows],
        warnings=list(dict.fromkeys(warnings)),
    )


def _row_tokens(texts: CrossTexts, sides: CrossSides) -> Sequence[Token]:
    """The tokens that decide whether the links of each row count, [query]. Where it is known what a
    row says, it is that: the row of the start token says the first word. One that has read an
    unknown word is unknown, too."""
    if texts.said is None or sides.merged is not None:
        return sides.queries
    return [
        replace(said, unknown=said.unknown or query.unknown)
        for said, query in zip(texts.said, sides.queries, strict=True)
    ]


def _left_out(tokens: Sequence[Token], *, is_learned: bool) -> list[LeftOutKind]:
    """The kinds of tokens that these texts have and that links are left out of. Between two texts
    there is no first token, no self and no neighbour to leave out.

    is_learned: whether the weights are trained.
    """
    kinds = kinds_left_out(tokens, is_learned=is_learned)
    has_special = any(token.special for token in tokens)
    return [
        kind
        for kind in kinds
        if kind in ("unknown", "separators") or (kind == "special" and has_special)
    ]


def _said_texts(texts: CrossTexts, sides: CrossSides) -> list[str] | UnsetType:
    """What each query predicts; UNSET where that is not known, and where tokens are merged."""
    if texts.said is None or sides.merged is not None:
        return UNSET
    return [token.text for token in texts.said]


class CrossSides(Struct, frozen=True, eq=False):
    """Both sides of a document of cross-attention: the text that looks, and the one looked at.

    queries, keys: the tokens of each text, or its words.
    merged: the words that the tokens of both are merged to; None where tokens stay.
    query, key: the positions of those that are asked about; None for none.
    """

    queries: Sequence[Token]
    keys: Sequence[Token]
    merged: WordsOfTwo | None = None
    query: int | None = None
    key: int | None = None

    @property
    def rows(self) -> range:
        """The positions of the queries that the document has rows of: all, or the one that is asked
        about."""
        if self.query is None:
            return range(len(self.queries))
        return range(self.query, self.query + 1)


def cross_sides(
    texts: CrossTexts,
    *,
    words: bool = False,
    query: str | None = None,
    key: str | None = None,
    note: Callable[[str], None] = ignore,
) -> CrossSides:
    """Find the tokens or words of the two texts, and the positions of the query and the key that are
    named; several tokens in a row become one. Arguments and errors are those of `cross`."""
    if key is not None and query is None:
        raise UsageError(
            "the key {key} is named without the query that looks at it",
            expected="--query TOK as well",
            key=repr(key),
        )
    if words and texts.values is not None:
        raise UsageError(
            "--value-text does not go with --words",
            expected="one of them, since values are tokens'",
        )
    # the words of each text; None where tokens stay
    query_words: Words | None = None
    key_words: Words | None = None
    if words:
        query_words = merged_words(texts.queries, texts.query)
        key_words = merged_words(texts.keys, texts.key)

    # the positions of the names, whose tokens are joined where they are several
    query_place: int | None = None
    key_place: int | None = None
    if query is not None:
        own = texts.queries if query_words is None else query_words.words
        others = texts.keys if key_words is None else key_words.words
        said = texts.said if query_words is None else None
        first, stop = _chosen_span(own, query, others, is_query=True, said=said, note=note)
        query_place = first
        if stop - first > 1:
            span = [(first, stop)]
            query_words = join_words(texts.queries, texts.query, span, query_words)
    if key is not None:
        own = texts.keys if key_words is None else key_words.words
        others = texts.queries if query_words is None else query_words.words
        first, stop = _chosen_span(own, key, others, is_query=False, note=note)
        key_place = first
        if stop - first > 1:
            key_words = join_words(texts.keys, texts.key, [(first, stop)], key_words)

    if query_words is None and key_words is None:
        return CrossSides(queries=texts.queries, keys=texts.keys, query=query_place, key=key_place)
    # where one text is merged, so is the other: each of its tokens is a word
    if query_words is None:
        query_words = join_words(texts.queries, texts.query, [])
    if key_words is None:
        key_words = join_words(texts.keys, texts.key, [])
    return CrossSides(
        queries=query_words.words,
        keys=key_words.words,
        merged=WordsOfTwo(query_words, key_words),
        query=query_place,
        key=key_place,
    )


def _chosen_span(
    tokens: Sequence[Token],
    name: str,
    others: Sequence[Token],
    *,
    is_query: bool,
    note: Callable[[str], None],
    said: Sequence[Token] | None = None,
) -> tuple[int, int]:
    """The span, (first, stop), of the tokens that a name stands for in one of two texts. Raises
    InputError where that text has none, and says so where the other one has.

    others: the tokens of the other text.
    is_query: whether the first text is the one that looks.
    note: called with a sentence on how an ambiguous name was read.
    said: of a decoder that reads its text one token late, what each token predicts.
    """
    try:
        return choose_span(tokens, name, note)
    except InputError:
        if name.startswith("#"):  # a number, which either text may have
            raise
        if said is not None and _has(said, name):
            raise _not_read_yet(tokens, said, name) from None
        if _has(others, name):
            raise on_other_side(tokens, name, is_query=is_query) from None
        raise


def _has(tokens: Sequence[Token], name: str) -> bool:
    """Whether a text has what a name stands for."""
    try:
        find_span(tokens, name)
    except InputError:
        return False
    return True


def _not_read_yet(tokens: Sequence[Token], said: Sequence[Token], name: str) -> InputError:
    """Make the error (the caller raises it) that a decoder says a word, the last one, and does not
    read it, so that no row has its name.

    tokens: those that the decoder reads.
    said: what it is to say at each.
    """
    place = find_span(said, name).first
    return InputError(
        message("{name} is the last to be said, and no row reads it", name=repr(name)),
        expected=message(
            "the row of {row} (#{place}), where {name} is said",
            place=place,
            row=repr(readable_names(tokens)[place]),
            name=repr(name),
        ),
    )


def on_other_side(tokens: Sequence[Token], name: str, *, is_query: bool) -> InputError:
    """Make the error (the caller raises it) that a name is one of the other text.

    tokens: those of the text in which it was looked for.
    is_query: whether that is the text that looks.
    """
    names = " ".join(readable_names(tokens)[:SHOWN])
    if is_query:
        what = message(
            "{name} is in the text that is looked at, not in the one that looks", name=repr(name)
        )
        expected = message("a query such as: {names}", names=names)
        return InputError(what, expected=expected, hint=message("--to names what is looked at"))
    what = message(
        "{name} is in the text that looks, not in the one that is looked at", name=repr(name)
    )
    expected = message("a key such as: {names}", names=names)
    return InputError(what, expected=expected, hint=message("--query or --from names what looks"))


SHOWN = 12
"""Words of a side that an error names."""


def _between_words(layer: CrossLayer, words: WordsOfTwo) -> CrossLayer:
    """A layer of the document with its weights merged from tokens to words and its outputs averaged
    over the tokens of a word; scores are those of tokens and are left out.

    words: those of the text that looks, and of the text looked at.
    """
    heads = [
        CrossHead(
            head=head.head,
            weights=words.merge(head.weights),
            output=words.queries.average(head.output),
        )
        for head in layer.heads
    ]
    return CrossLayer(layer=layer.layer, heads=heads, output=words.queries.average(layer.output))


def _with_rows(layer: CrossLayer, sides: CrossSides) -> CrossLayer:
    """A layer of the document with the row of the query that is asked about alone; unchanged without
    one.

    sides: the tokens of both texts, and which query and key are asked about.
    """
    if sides.query is None:
        return layer
    rows = slice(sides.query, sides.query + 1)
    heads = [
        CrossHead(
            head=head.head,
            scores=UNSET if head.scores is UNSET else head.scores[rows],
            weights=head.weights[rows],
            output=head.output[rows],
        )
        for head in layer.heads
    ]
    return CrossLayer(layer=layer.layer, heads=heads, output=layer.output[rows])


def _key_heads(layers: Sequence[CrossLayer], sides: CrossSides) -> list[KeyHead]:
    """The heads by the weight between the query and the key that are asked about, the largest first;
    ties by layer and head.

    layers: with the row of that query alone.
    sides: the tokens of both texts, and which query and key are asked about.
    """
    assert sides.key is not None
    key = sides.key
    is_word = np.array([not token.special for token in sides.keys], bool)
    rows = []
    for layer in layers:
        for head in layer.heads:
            weights = np.asarray(head.weights, np.float64)[0]  # of the one row
            # a masked score is -∞; between words there are no scores
            is_hidden = head.scores is not UNSET and not np.isfinite(head.scores[0][key])
            # the rank without special tokens: UNSET where there are none, None for one of them
            beyond: int | UnsetType | None = UNSET
            if not is_word.all():
                beyond = None
                if is_word[key] and not is_hidden:
                    token_weights = weights[: len(is_word)]  # without learned keys
                    beyond = _rank(token_weights[is_word], weights[key])
            rank = None if is_hidden else _rank(weights, weights[key])
            rows.append(
                KeyHead(
                    layer=layer.layer,
                    head=head.head,
                    weight=float(weights[key]),
                    rank=rank,
                    beyond_special=beyond,
                )
            )
    return sorted(rows, key=lambda row: (-row.weight, row.layer, row.head))


def _rank(weights: Floats, weight: float) -> int:
    """The rank of a weight among others: 1 where none of them exceeds it."""
    return 1 + int((weights > weight).sum())


def cross_texts(
    model: Model, query: Text, key: Text | None, value: str | None = None, *, name: str = ""
) -> CrossTexts:
    """Tokenize the texts of a cross-attention. Errors are those of `cross`.

    query: the text that looks.
    key: the text that is looked at; None for captured states that the model reads.
    value: a third text that values come from, of seeded weights; None for the keys' own.
    name: what the document calls captured states.
    """
    # captured states
    if key is None:
        if model.memory is None:
            raise UsageError(
                "nothing is looked at",
                expected="a second text, or captured states that the model reads",
            )
        count = model.memory.shape[-2]  # [..., state, width]
        return CrossTexts(
            query=query.text,
            key=name,
            queries=_tokens(model, query),
            keys=states(count),
            said=_said_tokens(model, query),
        )

    # seeded weights
    if model.identity.source != "checkpoint":
        values = None if value is None else model.encode(value)
        return CrossTexts(
            query=query.text,
            key=key.text,
            queries=_tokens(model, query),
            keys=_tokens(model, key),
            value=value,
            values=values,
        )

    # an encoder-decoder, whose decoder's tokenizer may differ
    if value is not None:
        raise UsageError(
            "--value-text does not go with --model",
            expected="an encoder-decoder takes keys and values from one text",
        )
    if model.spec.decoder is None:
        what = message("{family} models have no cross-attention", family=model.identity.family)
        raise UnsupportedError(
            what, expected="an encoder-decoder: t5, bart or marian", hint="attn models list"
        )
    keys = _tokens(model, key)
    decoder = model.decoder(keys)  # as a model of its own, which reads these keys
    return CrossTexts(
        query=query.text,
        key=key.text,
        queries=_tokens(decoder, query),
        keys=keys,
        said=_said_tokens(decoder, query),
    )


def _said_tokens(decoder: Model, text: Text) -> list[Token] | None:
    """The tokens of a text that its decoder reads one token late: each is what the query at its place
    predicts. None for a decoder that reads a text as it is."""
    late = decoder.tokenizer
    if not isinstance(late, ShiftedTokenizer) or late.start is None:
        return None
    if text.chat is not None:  # a chat's template, and not this tokenizer, says where it starts
        return None
    return late.tokenizer.encode(text.text)


def _tokens(model: Model, text: Text) -> list[Token]:
    """Tokenize a text by the model's tokenizer; of a chat, by its chat template."""
    if text.chat is None:
        return model.encode(text.text)
    from attncli.inputs.chat import encode_chat

    return model.encode(encode_chat(model.tokenizer, text.chat))


def _document_layer(backend: Backend, trace: LayerTrace, heads: Sequence[int]) -> CrossLayer:
    """Convert a layer's trace to the document's `CrossLayer`.

    heads: the numbers of the heads that the trace holds.
    """
    scores = backend.numpy(trace.stages["masked"])
    weights = backend.numpy(trace.stages["weights"])
    mixed = backend.numpy(trace.stages["mixed"])
    parts = [
        CrossHead(head=head, scores=scores[place], weights=weights[place], output=mixed[place])
        for place, head in enumerate(heads)
    ]
    return CrossLayer(layer=trace.layer, heads=parts, output=backend.numpy(trace.stages["out"]))


def _cross_shapes(rows: list[ShapeRow], keys: int, width: int) -> list[ShapeRow]:
    """Adapt the rows of a shape trace to cross-attention: keys and values come from Y, the second
    text's vectors, [keys, width], which get a row of their own after the first.

    keys, width: how many keys there are, and how wide their vectors are.
    """
    first, *others = rows
    memory = ShapeRow(step="memory", axes=["key", "width"], shape=[keys, width], formula="Y")
    adapted = [first, memory]
    for row in others:
        if row.step in ("k", "v"):
            row = replace(row, formula=row.formula.replace("X", "Y"))
        adapted.append(row)
    return adapted


def alignment(mean: Floats, special: Bools, queries: Sequence[int]) -> list[Aligned]:
    """For each query the key with the largest weight, the first of equals; None where all weights
    are 0. Where the key text has special tokens, also their total weight and the best other key,
    since queries without a counterpart look at the end of the text.

    mean: weights, [query, key].
    special: which keys are special tokens, [key].
    queries: the place of each query in its text.
    """
    best = mean.argmax(axis=1)
    rows = [
        Aligned(
            query=queries[row],
            key=int(key) if mean[row, key] > 0 else None,
            weight=float(mean[row, key]),
        )
        for row, key in enumerate(best)
    ]
    if not special.any():
        return rows
    others = np.where(special, 0.0, mean)
    return [
        replace(
            row,
            special=float(mean[number, special].sum()),
            beyond_special=_best_key(others[number]),
        )
        for number, row in enumerate(rows)
    ]


def _best_key(weights: Floats) -> BestKey | None:
    """The key with the largest weight, the first of equals; None where all are 0."""
    key = int(weights.argmax())
    if not weights[key] > 0:
        return None
    return BestKey(key=key, weight=float(weights[key]))


def cross_memory(model: Model, texts: CrossTexts, layers: Selection, heads: Selection) -> int:
    """Estimated peak memory in bytes of `cross`, before it runs.

    layers, heads: the layers that run, and the heads of each.
    """
    queries = len(texts.queries)
    keys = len(texts.keys)
    spec = model.spec.decoder or model.spec
    most_heads = max((block.cross or block.attention).heads for block in spec.blocks)
    # each text chooses its type by its length: the wider one stands for both
    compute_dtypes = {model.compute_backend(count).dtype for count in (queries, keys)}
    compute_dtype = "float64" if "float64" in compute_dtypes else "float32"

    # of an encoder-decoder, the run of each side; they run one after the other
    pairs = queries * keys
    side_bytes = 0
    if model.spec.decoder is not None:
        pairs += queries * queries  # the decoder's attention to its own text
        last_layer = len(model.spec.blocks) - 1  # all layers before it run, too
        encoder = estimate(model.spec, keys, layers=[last_layer], dtype=compute_dtype)
        decoder = estimate(spec, queries, layers=layers, kept_stages=0, dtype=compute_dtype)
        side_bytes = max(encoder.peak, decoder.peak)

    # numbers of the cross-attention: q and output of each query, k and v of each key, all with a
    # copy; scores; and what the document holds
    attention = spec.blocks[0].attention  # widths of the first layer stand for all
    vectors = (queries + keys) * most_heads * 2 * (attention.head_dim + attention.v_dim)
    scores = AT_ONCE * most_heads * pairs
    numbers = sum(prod(shape) for shape in cross_numbers(model, texts, layers, heads))
    bytes_of_number = SCORE_ITEM[compute_dtype]
    return side_bytes + (vectors + scores + numbers) * bytes_of_number


def cross_numbers(
    model: Model, texts: CrossTexts, layers: Selection, heads: Selection
) -> list[tuple[int, ...]]:
    """Shapes of the arrays that the `cross` document will hold, to estimate its size before it is
    built.
    """
    spec = model.spec.decoder or model.spec
    # the first layer stands for all; seeded weights have one attention in place of a cross-attention
    attention = spec.blocks[0].cross or spec.blocks[0].attention
    count = len(numbers_of(layers, len(spec.blocks))) * len(numbers_of(heads, attention.heads))
    return [
        (2 * count, len(texts.queries), len(texts.keys)),  # scores and weights
        (count, len(texts.queries), attention.v_dim),  # outputs of heads
        (len(texts.queries), spec.d_model),  # output of the layer
    ]
