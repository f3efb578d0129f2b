"""Why a head looks at a key, and the document of `attn why` that says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, SCORE_ITEM, Backend, Selection, numbers_of
from attncli.documents import TokenRow
from attncli.documents.header import header, notes, token_rows
from attncli.errors import InputError, UnsupportedError, UsageError
from attncli.features.effects.ablation import refuse_foreign, source_tokens, text_for_sweep
from attncli.features.effects.contributions import (
    Contributions,
    Link,
    LinkPart,
    SourcePart,
    contributions,
    source_parts,
)
from attncli.features.effects.logit_parts import Attributor, LogitTerm
from attncli.features.effects.places import places
from attncli.features.effects.sweep import SweepText, over_memory
from attncli.features.effects.targets import choose_target, refuse_one_token, target_token
from attncli.features.why.document import (
    RowKey,
    Split,
    ThanKey,
    WeightWithout,
    WhyDimensions,
    WhyDocument,
    WhyLink,
    WhyPair,
    WhyPart,
    Writes,
    Written,
)
from attncli.inputs.token import (
    Token,
    choose_span,
    find_span,
    ignore,
    note_first,
    refuse_unknown,
    straight_quotes,
)
from attncli.language import message
from attncli.measure.rest import Bools, resting_keys
from attncli.measure.row_facts import exclusion
from attncli.measure.row_stream import kinds_left_out
from attncli.mechanism.attend import RowBlock
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.context import Kind
from attncli.mechanism.projection import frequencies
from attncli.mechanism.spec import HeadSelection, Rope, Spec, attentions, most_heads
from attncli.models.estimate import CostEstimate, estimate
from attncli.models.model import Model
from attncli.models.residual_stream import most_parts
from attncli.models.run import rows_for

Floats = np.ndarray[Any, np.dtype[Any]]
PAIRS = 200
"""Pairs of parts that a document holds, the strongest; of two hundred parts there are forty
thousand.
"""


class WhyRequest(Struct, frozen=True):
    """Which link is explained, and how its score is split.

    queries, keys: positions of the tokens of the two words; the pair with the largest weight is
        taken.
    than: positions of another key that the score is compared with; empty for the row's weighted
        mean.
    selection: heads, of which the one with the largest weight is taken.
    """

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    selection: HeadSelection
    kind: Kind = "self"
    than: tuple[int, ...] = ()
    by: Split = "part"


@checked
def why(
    model: Model,
    text: str,
    query: str | Sequence[int],
    key: str | Sequence[int],
    *,
    than: str | None = None,
    cross: bool = False,
    by: Split = "part",
    writes: bool = False,
    target: str | None = None,
    versus: str | None = None,
    layers: Selection = EVERY,
    heads: Selection | HeadSelection = EVERY,
    unknown: bool = False,
    source_text: str | None = None,
    memory: int | None = None,
    tokens: Sequence[Token] | None = None,
    note: Callable[[str], None] = lambda text: None,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
    progress: Callable[[float], None] = lambda share: None,
) -> WhyDocument:
    """Explain why a head attends from one token to another: the link's score as a sum over parts of
    the residual stream of both tokens.

    Args:
        model: As `attncli.load` returns it; a decoder that reads a source for a link to that.
        text: What runs.
        query: The token that looks, such as "it", "the:2" or "#7"; or the positions of several, of
            which the link with the largest weight is explained.
        key: The token that is looked at, or the positions of several.
        than: Another key, over which the score's advantage is taken; None for what the row expects.
        cross: Whether `key` and `than` are tokens of the other text, which an encoder-decoder
            reads.
        by: "part" of the stream; "token" splits heads by the token that they carried, too;
            "frequency" by rotated pairs of entries, "dimension" by entries of q and k.
        writes: Whether to split what the head writes, too, by the token that it comes from.
        target: With `writes`, the vocabulary entry, or "id:N", to whose logit the head's output
            adds; None for the model's first choice.
        versus: With `target`, an entry whose logit is subtracted from the target's.
        layers: Which layers: a number, several, or a text such as "0,2-5"; see `HeadSelection`.
        heads: Which heads of each: 11, [0, 3], "2-5"; or any with their layers, "L5H11" or
            (5, 11), as a `HeadSelection` too; the one with the largest weight is explained.
        unknown: Whether tokens may be ones that the model does not know.
        source_text: The other text; None for captured states.
        memory: Bytes that the work may take; where all parts need more, the heads of a layer are
            one part. None for no limit.
        tokens: The tokens of the text; None to let the model's tokenizer find them.
        note: Called with a sentence on how an ambiguous name was understood.
        on_cost: Called before the run starts with its estimated cost and the number of tokens.
        progress: Called with the share of the work that is done, 0 to 1.

    Returns:
        What `attn why --json` writes.

    Raises:
        UsageError: For `cross` where no other text is read.
        InputError: The mask hides a key in every chosen head, both keys are the same, or a name
            matches no token.
        UnsupportedError: The model's layers cannot be run one by one, or attend by hashes; or a
            split by frequency is asked for where no positions are rotated.
        LimitError: The work needs more than `memory` even with one part a layer.

    Source: Elhage et al., A mathematical framework for transformer circuits, 2021, for scores as
    sums over pairs.
    """
    refuse_foreign(model)

    # the text that is looked at
    if tokens is None:
        tokens = model.encode(text)
    if cross and model.memory is None:
        what = message("--cross asks about a link to another text, and none is read")
        raise UsageError(what, expected="an encoder-decoder, with --source TEXT")
    looked_at = tokens
    if cross:
        looked_at = source_tokens(model)

    # the tokens that the names mean
    noted = set[str]()

    def note_once(text: str) -> None:
        """Pass a note on to `note` unless the same text was noted before."""
        if text not in noted:
            noted.add(text)
            note(text)

    rest = None  # tokens on which heads put weight when they look for nothing, booleans [token]
    if not cross:
        rest = resting_keys(tokens, model.identity.source)
    queries = _pieces(tokens, query, note_once, unknown=unknown)
    keys = _pieces(looked_at, key, note_once, unknown=unknown, rest=rest)
    other_keys: tuple[int, ...] = ()
    if than is not None:
        other_keys = _pieces(looked_at, than, note_once, unknown=unknown, rest=rest)

    # the heads among which the link is chosen
    spec = model.spec
    if isinstance(heads, HeadSelection):
        selection = heads
    else:
        selection = HeadSelection(
            numbers_of(layers, len(spec.blocks)), numbers_of(heads, most_heads(spec))
        )
    kind: Kind = "self"
    if cross:
        kind = "cross"
    request = WhyRequest(
        queries=queries, keys=keys, selection=selection, kind=kind, than=other_keys, by=by
    )
    if set(other_keys) & set(keys):
        raise InputError("the key is compared with itself", expected="another key after --versus")

    dtype = model.compute_backend(len(tokens)).dtype
    expected = estimate(spec, len(tokens), rows=rows_for(spec, len(tokens)), dtype=dtype)
    on_cost(expected, len(tokens))
    return _explained_link(
        model,
        text,
        tokens,
        request,
        source_text=source_text,
        writes=writes,
        target=target,
        versus=versus,
        memory=memory,
        note=note,
        progress=progress,
    )


def _explained_link(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    request: WhyRequest,
    *,
    source_text: str | None = None,
    writes: bool = False,
    target: str | None = None,
    versus: str | None = None,
    memory: int | None = None,
    note: Callable[[str], None] = ignore,
    progress: Callable[[float], None] = lambda share: None,
) -> WhyDocument:
    """Explain a link's score as a sum over parts of the residual stream of both tokens, and build the
    `attn.why/1` document.

    request: the link's ends by token positions, the heads it may be in, and how the score is split.
    source_text: the text that is looked at, for a link to another text.
    writes: whether to split what the head writes, too.
    target, versus: names of vocabulary entries to whose logits that adds; None for the model's first
        choice, and for none.
    memory: bytes that the work may take; None for no limit.
    note, progress: as of `why`.

    Raises what `why` raises.
    """
    refuse_foreign(model)
    # the text with the backend that it runs in, here for a single run without edits
    running = text_for_sweep(model, tokens, branches=[])
    refuse_hashing(model.spec)

    # the link, and how finely memory allows its score to be split
    link, rival = strongest_link(running, request)
    by_layer = needs_layer_parts(running, link, memory, by_token=request.by == "token")
    by_token = request.by == "token" and not by_layer

    # the attributor follows the run to the model's end, for what the head adds to logits
    attributor = None
    if writes and model.spec.head is not None:
        attributor = Attributor(
            running,
            link.query,
            LogitTerm(kind="head", layer=link.layer, attention=link.kind, head=link.head),
        )
    # heads that are split by token are one part a layer here; their sources are worked out later
    whole = contributions(
        running,
        link,
        by_layer=by_layer or by_token,
        by_token=by_token,
        follower=attributor,
        progress=progress,
    )

    writes_part: Writes | UnsetType = UNSET
    if writes:
        log_probabilities = None
        if attributor is not None:
            log_probabilities = attributor.log_probabilities()

        def entry_of(name: str | None) -> int | None:
            """The id of the vocabulary entry that the user named; None for None."""
            if name is None:
                return None
            choice = choose_target(
                model,
                tokens,
                name,
                position=link.query,
                several=False,
                row=log_probabilities,
                note=note,
            )
            # one entry, as several are refused
            return choice.ids[0]

        entry = entry_of(target)
        versus_entry = entry_of(versus)
        refuse_one_token(entry, versus_entry)
        writes_part = head_output_parts(running, whole, attributor, entry, versus_entry)
    return _link_document(
        model,
        text,
        source_text,
        running,
        request,
        whole,
        rival,
        by_layer=by_layer,
        writes_part=writes_part,
    )


def _pieces(
    tokens: Sequence[Token],
    reference: str | Sequence[int],
    note: Callable[[str], None],
    *,
    unknown: bool,
    rest: Bools | None = None,
) -> tuple[int, ...]:
    """The token positions that `reference` means: one, or of a word of several tokens all, without
    those on which heads rest, if others remain. For such a word, a note says that the link with the
    largest weight among them is explained.

    reference: a word, "#7" or the like, or the positions themselves.
    note: called with notes for the user.
    unknown: whether a token that the model does not know is allowed.
    rest: which keys heads rest on (the first token and special ones, on which they put weight when
        they look for nothing), booleans [key]; None for none.
    """
    if not isinstance(reference, str):
        return tuple(reference)
    match = find_span(tokens, reference)
    if match.stop - match.first == 1:
        return tuple(range(*choose_span(tokens, reference, note, unknown=unknown)))
    if not unknown:
        refuse_unknown(tokens, match, reference)
    note_first(match, reference, note)
    places_of_word = range(match.first, match.stop)
    telling_places = tuple(place for place in places_of_word if rest is None or not rest[place])
    # nothing is left out where heads rest on none of them, or on all
    if len(telling_places) in (0, len(places_of_word)):
        note(
            message(
                "{reference} is {count} tokens: the link with the largest weight is explained",
                reference=straight_quotes(reference),
                count=len(places_of_word),
            )
        )
        return tuple(places_of_word)
    note(
        message(
            "{reference} is {count} tokens: of those where no head rests, the link with the largest"
            " weight is explained",
            reference=straight_quotes(reference),
            count=len(places_of_word),
        )
    )
    return telling_places


def head_output_parts(
    text: SweepText,
    whole: Contributions,
    attributor: Attributor | None,
    target: int | None,
    versus: int | None = None,
) -> Writes:
    """What the head writes into the query's residual stream, split by source token, u_j =
    A_ij·v_j·W_O, and what each part adds to a logit.

    attributor: has followed the run to the model's last layer, so that it knows what a vector that
        the head writes adds to a logit; None for a model without an output head.
    target: a vocabulary entry; None for the model's first choice.
    versus: an entry whose logit is subtracted from the target's; None for none.
    text: the text and model that ran.
    whole: the split of the link's score, with the row that it is in.

    Source: LOCOS, 2026, for retrieval scored by what is written in place of where it is looked.
    """
    # what the head carries from each key, and what that is in the stream: [key, v_dim], [key, width]
    model = text.model
    backend = text.backend
    link = whole.link
    row = whole.row
    if link.kind == "self":
        prefix = "attn"
    else:
        prefix = "cross"
    # of the layer's attentions, "self" and perhaps "cross", that of the link
    attention = dict(attentions(model.spec.blocks[link.layer]))[link.kind]
    matrix = model.store.layer(backend, link.layer)(f"{prefix}.o.weight")
    columns = slice(link.head * attention.v_dim, (link.head + 1) * attention.v_dim)
    carried = row.weights[:, None] * row.values
    if row.gate is not None:  # how much of each entry is let through, [v_dim]
        carried = carried * row.gate
    vectors = carried  # without a W_O the head writes what it carries
    if matrix is not None:
        vectors = carried @ np.asarray(backend.numpy(matrix[:, columns]), np.float64).T
    output = vectors.sum(0)
    squared = float(output @ output)

    # what each key's part adds to the logit; a model's file may have no matrix of the output head
    attribution = None
    logit_terms = np.zeros(len(row.keys))
    try:
        if attributor is not None:
            attribution = attributor.attribution(target, versus)
            logit_terms = carried @ attribution.by_entry
    except UnsupportedError:
        # nobody asked for a logit unless a target is named
        if target is not None:
            raise

    term = LogitTerm(kind="head", layer=link.layer, attention=link.kind, head=link.head)
    return Writes(
        norm=float(np.sqrt(squared)),
        target=None if attribution is None else target_token(model, attribution.target),
        versus=UNSET if versus is None else target_token(model, versus),
        logit=None if attribution is None else dict(attribution.parts)[term],
        sources=[
            Written(
                source=int(key),
                weight=float(row.weights[place]),
                norm=float(np.linalg.norm(vectors[place])),
                # how far it goes along the whole output, so that all shares sum to 1
                share=float(vectors[place] @ output / squared) if squared else 0.0,
                logit=None if attribution is None else float(logit_terms[place]),
            )
            for place, key in enumerate(row.keys.tolist())
            if row.visible[place]
        ],
    )


def refuse_hashing(spec: Spec) -> None:
    """Raise UnsupportedError for a model with hash attention (LSH), whose scores are not taken over
    all pairs of tokens."""
    for block in spec.blocks:
        if block.attention.hashing is not None:
            raise UnsupportedError(
                message("hash attention compares tokens within buckets that the vectors decide on"),
                expected=message("dense attention, whose scores are sums over pairs of parts"),
            )


class _PairWeights:
    """Collects the attention weights between some queries and keys from blocks of rows, in
    `weights` by (layer, kind, head, query, key); pairs that the mask hides are left out."""

    def __init__(self, model: Model, queries: Sequence[int], keys: Sequence[int]) -> None:
        self._model = model
        self._queries = queries
        self._keys = keys
        # by (layer, kind, head, query, key)
        self.weights: dict[tuple[int, str, int, int, int], float] = {}

    def on_block(self, layer: int, kind: str, block: RowBlock) -> None:
        """Record the weights of the chosen pairs in one block of query rows.

        kind: "self", or "cross" for attention to another text.
        block: the queries start..stop−1 over the keys low..high−1; its weights are
            [head, query, key].
        """
        backend = self._model.backend
        block_weights = block.stages["weights"]
        for query in (number for number in self._queries if block.start <= number < block.stop):
            for key in (number for number in self._keys if block.low <= number < block.high):
                row = query - block.start
                column = key - block.low
                weights = backend.numpy(block_weights[..., row, column])  # [head]
                hidden = np.zeros(len(weights), bool)
                if block.visibility is not None:
                    visible = backend.broadcast(block.visibility, block_weights.shape)
                    hidden = ~np.asarray(backend.numpy(visible[..., row, column]))
                for head, weight in enumerate(weights.tolist()):
                    if not hidden[head]:
                        self.weights[layer, kind, block.first_head + head, query, key] = weight


def strongest_link(text: SweepText, request: WhyRequest) -> tuple[Link, int | None]:
    """Choose the link to explain, the one with the largest weight among the request's heads, queries
    and keys.

    Returns: the link; and of the keys to compare it with, the one with the largest weight in the
        same row, None where the request has none.

    Raises InputError where no head has such an attention, and where the mask hides all keys.
    """
    model = text.model
    spec = text.model.spec
    chosen = [place for place in places(spec, request.selection) if place.kind == request.kind]
    if not chosen:
        raise InputError(
            message("no chosen head has such a link"),
            expected=message("heads of the attention that the link is in"),
        )
    if len(chosen) == len(request.queries) == len(request.keys) == 1 and len(request.than) <= 1:
        # nothing to choose: `contributions` raises the error for a key that the mask hides
        place = chosen[0]
        link = Link(place.layer, place.kind, place.head, request.queries[0], request.keys[0])
        rival = None
        if request.than:
            rival = request.than[0]
        return link, rival

    # a run that records the weights of all candidates
    all_keys = [*request.keys, *request.than]
    pair_weights = _PairWeights(model, request.queries, all_keys)
    layers = sorted({place.layer for place in chosen})
    rows = rows_for(spec, text.count)
    for _ in model.trace(
        text.tokens, layers=layers, keep=("weights",), rows=rows, on_block=pair_weights.on_block
    ):
        pass
    # pairs that the mask hides have no weight
    weights = pair_weights.weights
    links = [
        Link(place.layer, place.kind, place.head, query, key)
        for place in chosen
        for query in request.queries
        for key in request.keys
        if (place.layer, place.kind, place.head, query, key) in weights
    ]
    if not links:
        raise InputError(
            message("the mask hides this key from this query in every chosen head"),
            expected=message("a key that the query sees"),
        )

    def weight(link: Link, key: int) -> float:
        """The weight of a key in the row of the link's query; −1 where the mask hides it."""
        return weights.get((link.layer, link.kind, link.head, link.query, key), -1.0)

    first = max(links, key=lambda link: weight(link, link.key))
    if not request.than:
        return first, None
    than = max(request.than, key=lambda key: weight(first, key))
    if weight(first, than) < 0:
        raise InputError(
            message("the mask hides the other key from this query"),
            expected=message("two keys that the query sees"),
        )
    return first, than


class StrongestLinks:
    """Collects, from blocks of rows, the strongest link of each query in chosen self-attention
    heads, leaving out links that say little (to special tokens, neighbours, the first token,
    itself). by_query: (weight, key) by (layer, head, query); no entry where a query has no such
    link."""

    def __init__(
        self, backend: Backend, heads: Sequence[tuple[int, int]], tokens: Sequence[Token]
    ) -> None:
        """Begin without links. heads: the (layer, head) of those that are recorded."""
        self._backend = backend
        self._heads = tuple(heads)
        self._count = len(tokens)
        # links that say little, by (query, key)
        self._out = exclusion(kinds_left_out(tokens, is_learned=True), tokens)
        # by (layer, head, query) the weight of the strongest link, and its key
        self.by_query: dict[tuple[int, int, int], tuple[float, int]] = {}

    def on_block(self, layer: int, kind: str, block: RowBlock) -> None:
        """Record the strongest links of one block of query rows.

        kind: "self", or "cross" for attention to another text, which is passed over.
        block: the queries start..stop−1 over the keys low..high−1; its weights are
            [head, query, key].
        """
        if kind != "self":
            return
        # learned keys stand after the tokens, and no link goes to them
        keys = slice(block.low, min(block.high, self._count))
        # links that say little, such as to special tokens, booleans [query, key]
        left_out = self._out.rows(np.arange(block.start, block.stop))[:, keys]
        weights = block.stages["weights"]
        block_heads = range(block.first_head, block.first_head + weights.shape[0])
        for head_layer, head in self._heads:
            if head_layer != layer or head not in block_heads:
                continue
            head_weights = np.asarray(
                self._backend.numpy(weights[head - block.first_head]), np.float64
            )
            table = np.where(left_out, 0.0, head_weights[:, : left_out.shape[1]])
            for row, key in enumerate(table.argmax(-1).tolist()):
                place = layer, head, block.start + row
                # a query's keys may come in several blocks
                strongest, _ = self.by_query.get(place, (0.0, 0))
                if table[row, key] > strongest:
                    self.by_query[place] = float(table[row, key]), block.low + key

    def of_head(self, layer: int, head: int) -> tuple[int, int] | None:
        """The (query, key) of a head's strongest link, of equal ones the first; None for a head
        without one."""
        links = [
            (-weight, query, key)
            for (link_layer, link_head, query), (weight, key) in self.by_query.items()
            if (link_layer, link_head) == (layer, head)
        ]
        if not links:
            return None
        _, query, key = min(links)
        return query, key


def why_links(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    heads: Sequence[tuple[int, int]],
    *,
    memory: int | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> list[WhyDocument]:
    """Explain chosen self-attention heads: one `attn why` document for each token's strongest link
    in each of them.

    Args:
        model: As `attncli.load` returns it.
        text: What runs.
        tokens: Those of the text.
        heads: Which, layer and number.
        memory: Bytes that the work may take; None for no limit.
        progress: Called with the share of the work that is done, 0 to 1.

    Returns:
        What `attn why --json` writes of each link, head after head; nothing of tokens that look at
        special tokens, neighbours, the first token or themselves alone.

    Raises:
        UnsupportedError: The model's layers cannot be run one by one, or attend by hashes.
        LimitError: The work needs more than `memory`.
    """
    refuse_foreign(model)
    # the text with the backend that it runs in, here for a single run without edits
    running = text_for_sweep(model, tokens, branches=[])
    refuse_hashing(model.spec)

    # a run that records each token's strongest link, then an explanation of each
    links = StrongestLinks(running.backend, heads, tokens)
    layers = sorted({layer for layer, _ in heads})
    rows = rows_for(model.spec, len(tokens))
    for _ in running.model.trace(
        running.tokens, layers=layers, keep=("weights",), rows=rows, on_block=links.on_block
    ):
        pass

    # by (layer, head, query) the weight of the strongest link, and its key
    documents = []
    for number, ((layer, head, query), (_, key)) in enumerate(sorted(links.by_query.items())):
        link = Link(layer, "self", head, query, key)
        by_layer = needs_layer_parts(running, link, memory)
        whole = contributions(running, link, by_layer=by_layer)
        request = WhyRequest(
            queries=(query,),
            keys=(key,),
            selection=HeadSelection(pairs=((layer, head),)),
            kind="self",
        )
        document = _link_document(
            model,
            text,
            source_text=None,
            running=running,
            request=request,
            whole=whole,
            than=None,
            by_layer=by_layer,
            writes_part=UNSET,
        )
        documents.append(document)
        progress((number + 1) / len(links.by_query))
    return documents


def needs_layer_parts(
    text: SweepText, link: Link, memory: int | None, *, by_token: bool = False
) -> bool:
    """Whether a split of the link's score fits in `memory` bytes only if the heads of each layer are
    one part. False for a `memory` of None, which is no limit.

    by_token: whether heads are to be split by source token.

    Raises LimitError where even parts by layer do not fit.
    """
    if memory is None:
        return False
    attention = dict(attentions(text.model.spec.blocks[link.layer]))[link.kind]
    run_bytes = estimate(text.model.spec, text.count, kept_stages=1, dtype=text.backend.dtype).peak
    if text.model.memory is None:
        keys = text.count
    else:
        # of a text that the model reads, whose states are [..., state, width]
        keys = max(text.count, text.model.memory.shape[-2])
    for by_layer in (False, True):
        parts = most_parts(text.model.spec, link.layer, by_layer=by_layer or by_token)
        # what each part gives in the head's space; of links to another text, also a copy of it
        copies = 1 if link.kind == "self" else 2
        numbers = copies * parts * keys * attention.head_dim
        if by_token and not by_layer:
            numbers += _count_numbers_in_memory(text, link)
        needed = run_bytes + numbers * SCORE_ITEM[text.backend.dtype]
        if needed <= memory:
            return by_layer
    raise over_memory(needed, memory)


def _count_numbers_in_memory(text: SweepText, link: Link) -> int:
    """How many numbers a split by source token keeps in memory: the vectors that enter each attention
    up to the link's layer, and two small matrices for each of its heads, through which the link's
    query and key read what the head writes."""
    model = text.model
    link_dim = dict(attentions(text.model.spec.blocks[link.layer]))[link.kind].head_dim

    # the layers that run, and on how many tokens; for a link to another text the encoder's, too
    spans = [(model.spec.blocks[: link.layer + 1], text.count)]
    if link.kind == "cross" and model.encoder is not None:
        spans.append((model.encoder.spec.blocks, len(model.source)))
    numbers = 0
    for blocks, tokens in spans:
        for block in blocks:
            for _, attention in attentions(block):
                numbers += tokens * model.spec.d_model
                numbers += 2 * attention.heads * attention.v_dim * link_dim
    return numbers


def _link_document(
    model: Model,
    text: str,
    source_text: str | None,
    running: SweepText,
    request: WhyRequest,
    whole: Contributions,
    than: int | None,
    *,
    by_layer: bool,
    writes_part: Writes | UnsetType,
) -> WhyDocument:
    """Build the `attn.why/1` document of a link from its split score, with the scores of the row's
    other keys.

    whole: the split of the score.
    than: the key whose score is subtracted, None for the row's mean.
    by_layer: whether the heads of a layer are one part.
    writes_part: what the head writes; UNSET where that was not asked for.
    source_text: the text that is looked at, of a link to another text.
    running: the text, with the backend that it ran in.
    request: which link was asked for, and how its score is split.
    """
    link = whole.link
    row = whole.row
    tokens = running.tokens

    # the row's scores less their mean under the weights, of the keys that the query sees
    scores = row.scaled + row.added
    mean_score = float(scores[row.visible] @ row.weights[row.visible])
    row_keys = [
        RowKey(key=int(key), weight=float(weight), advantage=float(score - mean_score))
        for key, weight, score, visible in zip(
            row.keys, row.weights, scores, row.visible, strict=True
        )
        if visible
    ]
    centred: Literal["row"] | ThanKey = "row"
    if than is not None:
        centred = ThanKey(key=than, weight=whole.weight_of(than))

    parts = _part_rows(running, whole, than, by_token=request.by == "token" and not by_layer)

    # pairs [query part, key part]; heads split by token have none: there would be millions
    if request.by == "token":
        pairs = np.zeros((0, 0))
    else:
        pairs = whole.pairs(than)
    # the largest |contributions|, as indices into the flat array; 0 is no contribution
    strongest = np.argsort(-np.abs(pairs), axis=None, kind="stable")[:PAIRS]
    pair_rows = []
    for place in strongest.tolist():
        query_part, key_part = divmod(place, pairs.shape[1])
        value = float(pairs[query_part, key_part])
        if value:
            pair_rows.append(WhyPair(query_part=query_part, key_part=key_part, contribution=value))

    other_text: str | UnsetType | None = UNSET
    other_tokens: list[TokenRow] | UnsetType = UNSET
    if link.kind == "cross":
        other_text = source_text
        other_tokens = token_rows(source_tokens(model))
    return WhyDocument(
        **header(model, text, tokens, computing=running.backend),
        source_text=other_text,
        source_tokens=other_tokens,
        link=WhyLink(
            layer=link.layer, head=link.head, query=link.query, key=link.key, attention=link.kind
        ),
        by=request.by,
        score=whole.score,
        softcap=row.softcap,
        weight=whole.weight,
        centred=centred,
        total=whole.total(than),
        difference=float(whole.query_sums[:, whole.place].sum() - whole.score),
        row=row_keys,
        by_layer=by_layer,
        parts=parts,
        pairs=pair_rows,
        pair_count=int(pairs.size),
        dimensions=_dimension_rows(running, whole, request.by, than),
        writes=writes_part,
        warnings=notes(model, text, tokens),
    )


def _part_rows(
    text: SweepText, whole: Contributions, than: int | None, *, by_token: bool
) -> list[WhyPart]:
    """Convert the parts of a score to document rows: what each adds to the score's lead over the key
    at position `than`, or over the row's weighted mean where that is None.

    by_token: whether each head is split by the token whose value it carried.
    whole: the split of the score.
    """
    query_sides = whole.centre(whole.query_sums, than)
    key_sides = whole.centre(whole.key_sums, than)
    without = whole.weights_without()

    # heads are one part a layer when they are split by token: each is replaced by its sources
    sources_of_layer: dict[LinkPart, list[SourcePart]] = {}
    parts_by_head = {}
    if by_token:
        parts_by_head = source_parts(text, whole, than)
    for head, sources in parts_by_head.items():
        assert head.stream is not None
        layer = LinkPart("heads", replace(head.stream, kind="heads", head=None), head.side)
        sources_of_layer.setdefault(layer, []).extend(sources)

    rows: list[WhyPart] = []
    for index, part in enumerate(whole.parts):
        if part in sources_of_layer:
            rows += [
                part_row(source.part, source.query_side, source.key_side, source.weights_without)
                for source in sources_of_layer[part]
            ]
            continue
        weights = {name: float(values[index]) for name, values in without.items()}
        rows.append(part_row(part, float(query_sides[index]), float(key_sides[index]), weights))
    return rows


def part_row(
    part: LinkPart, query_side: float | None, key_side: float | None, without: Mapping[str, float]
) -> WhyPart:
    """Convert one part of a score to a document row.

    query_side, key_side: what it adds to the advantage on either side; the document leaves out the
        side that the part does not have.
    without: the link's weight without it, by "query", "key" and "all_keys"; NaN for unknown.
    """
    stream = part.stream

    def weight(name: str) -> float | None:
        """The link's weight without this part on the side `name`; None where it is not known."""
        value = without.get(name)
        if value is None or np.isnan(value):
            return None
        return value

    return WhyPart(
        kind=part.kind,
        layer=None if stream is None else stream.layer,
        attention=None if stream is None else stream.attention,
        head=None if stream is None else stream.head,
        place=None if stream is None else stream.place,
        source=None if stream is None else stream.source,
        side=part.side,
        query_side=None if part.side == "key" else query_side,
        key_side=None if part.side == "query" else key_side,
        weight_without=WeightWithout(
            query=weight("query"), key=weight("key"), all_keys=weight("all_keys")
        ),
    )


def _dimension_rows(
    text: SweepText, parts: Contributions, by: Split, than: int | None
) -> list[WhyDimensions]:
    """Split the advantage (the link's score above its row's mean, or above another key's) by the
    entries of the query and key vectors: by pairs that RoPE rotates together, or one by one; empty
    for another split.

    parts: the split of the score.
    than: the other key; None for the row's mean.

    Source of pairs as frequencies: Barbero et al., Round and round we go! What makes rotary
    positional encodings useful?, 2024.
    """
    if by not in ("frequency", "dimension"):
        return []
    attention = dict(attentions(text.model.spec.blocks[parts.link.layer]))[parts.link.kind]
    rope = None
    if isinstance(attention.position, Rope):
        rope = attention.position
    if by == "frequency" and rope is None:
        raise UnsupportedError(
            message("nothing is rotated in this attention: it has no frequencies"),
            expected=message("a model with rotary positions, or --by dimension"),
        )
    groups: list[tuple[list[int], float | None]] = [
        ([entry], None) for entry in range(attention.head_dim)
    ]
    if by == "frequency" and rope is not None:
        groups = frequency_groups(rope, attention.head_dim, text.tokens[-1].index + 1)
    # the terms of the scores by entry, [key, dim]: query and keys are the sums of their parts
    products = parts.scale * parts.queries.sum(0) * parts.keys.sum(0, dtype=np.float64)
    rows = []
    for entries, period in groups:
        sums = products[:, entries].sum(-1)
        rows.append(
            WhyDimensions(
                dimensions=entries,
                period=period,
                contribution=float(parts.centre(sums, than)),
                weight_without=float(parts.row.weights_without(sums)[parts.place]),
            )
        )
    return rows


def frequency_groups(rope: Rope, dim: int, length: int) -> list[tuple[list[int], float | None]]:
    """The entries of a head's vectors that RoPE rotates together, in pairs, each with its period in
    tokens, shortest first; last, with None, the entries that it does not rotate.

    length: number of positions in the text.
    dim: the width of a head's vectors.
    """
    # radians from one position to the next, [pair]; a factor on the whole rotation does not matter
    per_pair, _ = frequencies(rope, length)
    half = rope.dims // 2
    groups: list[tuple[list[int], float | None]] = []
    for pair, turn in enumerate(per_pair.tolist()):
        # models pair an entry with the one half the vector away, or with its neighbour
        if rope.pairing == "half":
            entries = [pair, pair + half]
        else:
            entries = [2 * pair, 2 * pair + 1]
        period = None
        if turn:
            # the pair turns by `turn` radians from one token to the next
            period = 2 * np.pi / turn
        groups.append(([rope.first + entry for entry in entries], period))
    not_rotated = [
        entry for entry in range(dim) if not rope.first <= entry < rope.first + rope.dims
    ]
    if not_rotated:
        groups.append((not_rotated, None))
    return groups
