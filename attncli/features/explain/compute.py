"""The document of `attn explain TEXT`: one query's attention written out, beside the matrices it is
a row of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, assert_never, cast

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, Array, Selection, numpy_backend
from attncli.documents import LinkRow
from attncli.documents.header import (
    Heading,
    empty_rows,
    header,
    overflow,
    position_name,
    projection_formulas,
    shape_rows,
    token_rows,
    word_formula,
)
from attncli.errors import InputError, UnsupportedError
from attncli.features.explain.document import (
    After,
    AttentionTopic,
    HeadLink,
    HeadPart,
    MaskTopic,
    Matrices,
    MultiheadTopic,
    NormStep,
    OutputSum,
    PaddedText,
    PositionTopic,
    PositionWay,
    Products,
    Projections,
    ResidualTopic,
    Scores,
    SingleHead,
    SoftmaxRow,
    Step,
)
from attncli.features.explain.softmax_topics import (
    float64_of,
    layer_trace,
    row_softmax,
    slopes_of,
    softmax_steps,
)
from attncli.features.run.compute import (
    RunRequest,
    cost,
    head_projections,
    layer_projections,
    run,
)
from attncli.inputs.token import Token, choose_last_token, ignore, straight_quotes
from attncli.inputs.word_groups import token_notes, word_starts
from attncli.language import listing, message
from attncli.measure.hash_products import hash_products
from attncli.measure.labels import row_entropy
from attncli.measure.rest import is_learned, resting_keys
from attncli.measure.row_facts import Bools, Floats
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.head_choice import OneHead
from attncli.mechanism.mask import visible
from attncli.mechanism.projection import frequencies
from attncli.mechanism.spec import (
    Alibi,
    Attention,
    Disentangled,
    FirstBlockAgain,
    Norm,
    Place,
    RelativeBuckets,
    RelativeSines,
    Rope,
)
from attncli.mechanism.trace import SQUARE, STAGES, LayerTrace, head_outputs
from attncli.models.estimate import CostEstimate
from attncli.models.model import Model
from attncli.models.one_layer import split_embedding

# What each head adds to the layer's output: concat(O₁ … O_h)·W_O taken apart into Σ_h O_h·W_O^h.


class HeadShares(Struct, frozen=True):
    """What each head adds to one query's row of the attention output, concat·W_O.

    shares: each head's output times its rows of W_O, [head, width].
    bias: b_O, [width], UNSET without one.
    """

    shares: Floats
    bias: Floats | UnsetType


def head_shares(model: Model, layer: int, outputs: Floats) -> HeadShares | None:
    """What each head adds to one query's row of the attention output, concat·W_O; None where the
    model has no W_O, or its weights cannot be read one by one.

    outputs: that query's A·V of every head, [head, v_dim].
    """
    if not model.own_layers:  # another library runs it, and no weight can be read by its role
        return None
    weights = model.store.layer(model.backend, layer)
    matrix = weights("attn.o.weight")
    bias = weights("attn.o.bias")
    if matrix is None:
        return None
    projection = float64_of(model, matrix)  # [width, head · v_dim]
    heads, dim = outputs.shape
    if projection.shape[1] != heads * dim:
        # W_O takes other vectors than these side by side: no columns belong to a head
        return None
    # the columns of W_O belong to the heads one after another
    shares = np.einsum("hd,whd->hw", outputs, projection.reshape(len(projection), heads, dim))
    if bias is None:
        return HeadShares(shares, UNSET)
    return HeadShares(shares, float64_of(model, bias))


@checked
def explain(
    model: Model,
    text: str,
    query: str | None = None,
    *,
    layer: int | None = None,
    head: OneHead | None = None,
    projections: bool = False,
    tokens: Sequence[Token] | None = None,
    note: Callable[[str], None] = ignore,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
) -> AttentionTopic:
    """Write out one query's attention in one head, step by step, with the numbers of a text.

    Args:
        model: As `attncli.load` returns it.
        text: What runs.
        query: The token that looks: "it", "the:2" (its second occurrence) or "#7"; None for the
            last word that the model knows.
        layer: Which layer; None, of a checkpoint, for that of the query's strongest link, else for
            the first.
        head: Which head of it, or a head with its layer: "L5H11", (5, 11); None as for the layer.
        projections: Whether the document holds W_Q, W_K, W_V and W_O.
        tokens: The tokens of the text; None to let the model's tokenizer find them.
        note: Called with sentences on which head is explained, and on how an ambiguous name was
            understood.
        on_cost: Called before each run with its estimated cost and the number of tokens.

    Returns:
        What `attn explain --json` writes, in float64.

    Raises:
        UnsupportedError: For hash attention, and attention that reads more than its layer's
            vectors.
        InputError: For tokens, layers or heads that are not there.
    """
    number = cast("int | None", head)  # `checked` has parsed a head's name to layer and number
    if tokens is None:
        tokens = model.encode(text)
    if query is None:
        index = default_query(tokens)
    else:
        index = choose_last_token(tokens, query, note)
    layer, number = strongest_head(
        model, text, tokens, index, layer=layer, head=number, note=note, on_cost=on_cost
    )
    request = RunRequest([layer], [number], stages=True)
    on_cost(cost(model, len(tokens), request, is_saved=False), len(tokens))
    return derivation_document(
        model, text, tokens, layer=layer, head=number, query=index, projections=projections
    )


def default_query(tokens: Sequence[Token]) -> int:
    """The position of the query where none is named: the last word that the model knows, else the
    last word, else the last token."""
    words = [index for index, token in enumerate(tokens) if not token.special]
    in_vocabulary = [index for index in words if not tokens[index].unknown]
    if in_vocabulary:
        return in_vocabulary[-1]
    if words:
        return words[-1]
    return len(tokens) - 1


MOST_MASKED = 4096
"""Tokens up to which all pairs of a mask are looked at before memory is checked: 16 million."""


def masked_query(model: Model, tokens: Sequence[Token], layer: int | None) -> int:
    """The position of the query that shows best what the mask of a layer does, where none is named:
    the first that sees nothing; else that of `default_query`, the middle one or the last, the first
    of these from which keys are hidden; that of `default_query` where the mask hides nothing or
    depends on the vectors (hash attention), and in a text of more than `MOST_MASKED` tokens.

    layer: None for the first that attends.
    """
    usual = default_query(tokens)
    if layer is None:
        layer = model.spec.attending()[0]
    mask = model.spec.blocks[layer].attention.mask
    if any(part.depends_on == "vectors" for part in mask.parts_of()):
        return usual
    count = len(tokens)
    if count > MOST_MASKED:
        return usual
    backend = numpy_backend("float64")
    rows = backend.array(np.arange(count)[:, None])
    columns = backend.array(np.arange(count)[None])
    sees = np.asarray(visible(mask, rows, columns, keys=count, backend=backend))
    if sees.ndim > 2:  # a mask that differs by head: what any head sees
        sees = np.asarray(sees.any(0))
    keys_seen = np.broadcast_to(sees, (count, count)).sum(-1)  # [query]
    if not keys_seen.all():
        return int(np.argmin(keys_seen))
    masked = np.flatnonzero(keys_seen < count).tolist()
    choices = (usual, count // 2, *reversed(masked))
    return next((place for place in choices if place in masked), usual)


def _strongest_sentence(
    values: Mapping[str, object], *, whole_layer: bool, every_link: bool
) -> str:
    """The note that tells which layer, or which head, is explained, and by which link it was found.

    values: what stands in the places of the sentence: the layer, the head, the query and the key by
        name, the link's weight.
    whole_layer: whether a whole layer is explained, not a head.
    every_link: whether links to the query itself, its neighbours and keys on which heads rest (put
        weight when they look for nothing) were counted, too.
    """
    if whole_layer and every_link:
        return message(
            "layer {layer} has the strongest link of {query}: to {key}, {weight:.2f}, in"
            " head {head}; --layer chooses another",
            **values,
        )
    if whole_layer:
        return message(
            "layer {layer} has the strongest link of {query} that counts: to {key}, {weight:.2f}, in"
            " head {head} (itself, neighbours and where heads rest are left out); --layer chooses"
            " another",
            **values,
        )
    if every_link:
        return message(
            "layer {layer} head {head} has the strongest link of {query}: to {key}, "
            "{weight:.2f}; --layer and --head choose another",
            **values,
        )
    return message(
        "layer {layer} head {head} has the strongest link of {query} that counts: to {key},"
        " {weight:.2f} (itself, neighbours and where heads rest are left out); --layer and --head"
        " choose another",
        **values,
    )


def strongest_head(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    query: int,
    *,
    layer: int | None = None,
    head: int | None = None,
    whole_layer: bool = False,
    note: Callable[[str], None] = ignore,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
) -> tuple[int, int]:
    """The layer and the head with the query's strongest link, searched where either is None and the
    model is a checkpoint; otherwise those given, with the first attending layer and head 0 for
    None.

    whole_layer: whether all heads of the layer are explained, so that none is searched.
    note: called with a sentence on which head was found.
    on_cost: called before the search with its estimated cost and the number of tokens.
    """
    attending = list(model.spec.attending())
    is_learned_model = model.identity.source == "checkpoint"
    is_chosen = layer is not None and (whole_layer or head is not None)
    if is_chosen or not is_learned_model:
        if layer is None:
            layer = attending[0]
        return layer, head or 0

    # among which heads to search; layers may have different numbers of heads
    blocks = model.spec.blocks
    layers = attending
    if layer is not None:
        layers = [layer]
    heads: Selection = EVERY
    if head is not None:
        layers = [index for index in layers if blocks[index].attention.heads > head]
        heads = [head]
    request = RunRequest(layers, heads, query=query, matrices=False, top=1)
    on_cost(cost(model, len(tokens), request, is_saved=False), len(tokens))

    # the strongest link that says something; if there is none, the strongest of all: then all
    # links are listed, so that the first of them to another word can be taken
    possible_links = len(tokens) * sum(blocks[index].attention.heads for index in layers)
    for every in (False, True):
        listed_links = 1
        if every:
            listed_links = possible_links
        document = run(
            model,
            text,
            query=f"#{query}",
            layers=layers,
            heads=heads,
            matrices=False,
            top=listed_links,
            all_links=every,
            whole=True,
            tokens=tokens,
        )
        # with `every_link_counts` all links are of kinds that say little: the second round is for
        # them
        if document.links and (every or not document.every_link_counts):
            # keys on which heads put weight when they look for nothing, booleans [key]
            rest = resting_keys(tokens, model.identity.source)
            link = _first_telling(document.links, rest)
            if link.key < len(tokens):
                key = _word_of(tokens, link.key, text)
            else:
                key = straight_quotes("bias_k")
            values = {
                "layer": link.layer,
                "head": link.head,
                "query": _word_of(tokens, query, text),
                "key": key,
                "weight": link.weight,
            }
            note(_strongest_sentence(values, whole_layer=whole_layer, every_link=every))
            return link.layer, link.head
    return layers[0], head or 0  # the query sees nothing in any head


def _first_telling(links: Sequence[LinkRow], rest: Bools) -> LinkRow:
    """The first of these links, the strongest first, that goes to another word, and not to a key on
    which heads rest (put weight when they look for nothing); the first of all where there is none.

    rest: which keys heads rest on, booleans [key].
    """
    for link in links:
        if link.key != link.query and link.key < rest.size and not rest[link.key]:
            return link
    return links[0]


def _word_of(tokens: Sequence[Token], place: int, text: str) -> str:
    """The name of the token at `place`, as of `_name_of`, followed by its position where the same
    text stands at several places."""
    name = _name_of(tokens, place, text)
    is_repeated = sum(token.text.strip() == tokens[place].text.strip() for token in tokens) > 1
    if is_repeated:
        return message("{name} ({place})", name=name, place=place)
    return name


def _name_of(tokens: Sequence[Token], place: int, text: str) -> str:
    """A token's text in quotes, with ? in them where the model does not know it; a piece with the
    word that it is a piece of."""
    token = tokens[place]
    if token.unknown:
        return straight_quotes(f"{token.text.strip() or token.text}?")
    # the tokens of the word that the token is part of: from the last start of a word up to it, to
    # the first start behind it
    starts = [*word_starts(tokens, text), len(tokens)]
    first = max(start for start in starts if start <= place)
    stop = min(start for start in starts if start > place)
    pieces = tokens[first:stop]
    start, end = pieces[0].start, pieces[-1].end
    if len(pieces) == 1 or token.special or start is None or end is None:
        return straight_quotes(token.text)
    word = straight_quotes(text[start:end].strip())
    # a byte of a letter, such as <0xE4>, is no text
    if token.text.startswith("<0x"):
        return message("a piece of {word}", word=word)
    return message("{name} (a piece of {word})", name=straight_quotes(token.text), word=word)


def derivation_document(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    *,
    layer: int,
    head: int,
    query: int,
    projections: bool = False,
) -> AttentionTopic:
    """Build the `attn.explain/1` document, topic "attention": one query's attention in one head,
    step by step in float64 from that head's q, k and v.

    `agreement` in it is the largest difference between the steps and the same numbers of the run's
    own matrices. A query that sees nothing has weights 0 and A·V 0.

    projections: whether W_Q, W_K, W_V and W_O are to be in it.

    Raises UnsupportedError for hash attention and for attention that reads more than its layer's
    vectors, InputError for numbers that left the range of their type.
    """
    # the run of this layer, with all of its stages
    spec = model.spec.blocks[layer].attention
    if spec.hashing is not None:
        raise UnsupportedError(
            "the derivation is that of dense attention", expected="--attention dense"
        )
    trace = next(iter(model.trace(tokens, layers=[layer], heads=[head], keep=SQUARE)))
    stages = {name: float64_of(model, array) for name, array in trace.stages.items()}
    if "hidden" not in stages:
        what = message(
            "the attention of layer {layer} reads vectors of another width than the layer's",
            layer=layer,
        )
        expected = message("an attention whose queries come from what enters its layer")
        raise UnsupportedError(
            what, expected=expected, hint="attn run shows its scores and weights"
        )
    # one head ran: its matrices are [0] of each stage
    if not np.isfinite(stages["mixed"][0, query]).all():
        # such a row is an overflow, and of these a layer has one warning
        (warning,) = overflow(model.backend, trace)
        raise InputError(warning, expected="numbers that can be written out")

    # the steps, from this head's q, k and v, and its sink (a learned score of no key)
    sink = None
    if spec.sinks:
        sinks = model.store.layer(model.backend, layer)("attn.sinks")
        # for the type checker: a layer whose spec has sinks stores them
        if sinks is not None:
            sink = float(model.backend.numpy(sinks)[head])
    steps = steps_of(
        _with_global_projections(stages, spec, query), spec.scale, spec.softcap, sink, query
    )
    projected = projection_formulas(model, layer)
    first = _with_formula(steps[0], projected, is_global=query in (spec.own_global or ()))
    steps[0] = _with_query_column(model, first, layer, head)

    # the head of the document; layers may differ from layer 0, and the derivation is of this one
    heading = header(model, text, tokens)
    heading["model"] = replace(
        heading["model"],
        heads=spec.heads,
        kv_heads=spec.kv_heads,
        d_k=spec.head_dim,
        d_v=spec.v_dim,
    )
    heading["attention"] = replace(heading["attention"], scale=spec.scale, softcap=spec.softcap)
    matrices_of_weights: dict[str, Floats] | UnsetType = UNSET
    if projections:
        matrices_of_weights = {
            **head_projections(model, layer, head),
            **layer_projections(model, layer),
        }
    return AttentionTopic(
        **heading,
        topic="attention",
        layer=layer,
        head=head,
        query=query,
        extra_keys=stages["k"].shape[-2] - len(tokens),
        rotated=isinstance(spec.position, Rope),
        shapes=shape_rows(trace, spec, projected),
        steps=steps,
        matrices=Matrices(
            x=stages["hidden"],
            raw=stages["raw"][0],
            scaled=stages["scaled"][0],
            scores=stages["masked"][0],
            weights=stages["weights"][0],
            output=stages["mixed"][0],
        ),
        projections=matrices_of_weights,
        after=_after_heads(model, layer, trace.before, stages, query),
        agreement=agreement(steps, stages, query),
        empty_rows=empty_rows(model.backend, trace, [head]),
        warnings=[*model.warnings, *token_notes(text, tokens)],
    )


def _with_global_projections(
    stages: dict[str, Floats], spec: Attention, query: int
) -> dict[str, Floats]:
    """The stages with q, k and v replaced by those of the global projections where the query is a
    global token, which Longformer projects by matrices of their own; else the stages unchanged."""
    global_tokens = spec.own_global or ()
    if query not in global_tokens:
        return stages
    q = np.array(stages["q"])
    # [head, global token, dim]
    q[:, query] = stages["global_q"][:, global_tokens.index(query)]
    return {**stages, "q": q, "k": stages["global_k"], "v": stages["global_v"]}


def _with_formula(step: Step, projected: Mapping[str, str], *, is_global: bool) -> Step:
    """The projections step with the formulas of this layer, such as "q = x·W_Q + b_Q, …".

    projected: by "q", "k" or "v", formulas that differ from the plain ones.
    is_global: whether the query is a global token, which has projections of its own.
    """
    assert isinstance(step, Projections)
    terms = []
    for name in ("q", "k", "v"):
        if not is_global:
            terms.append(word_formula(projected.get(name, STAGES[name].formula)))
            continue
        term = f"{name} = x·W_{name.upper()}_g"
        if f"global_{name}" in projected:
            term += f" + {STAGES[f'global_{name}'].bias}"
        terms.append(term)
    return replace(step, formula=", ".join(terms))


def _with_query_column(model: Model, step: Step, layer: int, head: int) -> Step:
    """Add to the projections step the column of W_Q that gives q's first entry; unchanged where x
    times it is not that entry (after rotation, with x normed first) or the weights cannot be
    read."""
    assert isinstance(step, Projections)
    if not model.own_layers:
        # a model that runs through transformers: its weights cannot be read one by one
        return step
    weights = model.store.layer(model.backend, layer)
    matrix = weights("attn.q.weight")
    bias_vector = weights("attn.q.bias")
    # stored matrices are [out, in]: a column of W_Q is a row of them
    row = head * len(np.asarray(step.q))
    if matrix is None:
        return step
    column = float64_of(model, matrix)[row]
    if column.shape != np.shape(step.x):
        # queries are projected from vectors of another width than x
        return step
    first_entry = float(np.asarray(step.x) @ column)
    bias: float | UnsetType = UNSET
    if bias_vector is not None:
        bias = float(float64_of(model, bias_vector)[row])
        first_entry += bias
    # the run's q may be of float32: within its rounding the entry is the same
    if not np.isclose(first_entry, np.asarray(step.q)[0], rtol=1e-4, atol=1e-5):
        return step
    return replace(step, column=column, bias=bias)


def _after_heads(
    model: Model, layer: int, before: Array, stages: dict[str, Floats], query: int
) -> After:
    """What happens to the query's vector after the heads: each head's part of the output where
    there are several, the residual sum and the norm.

    before: what entered the layer, before any norm, [token, width].
    stages: of the layer, by name.
    """
    rows = {name: stages[name][query] for name in ("sum", "norm") if name in stages}
    heads: Floats | UnsetType = UNSET
    bias: Floats | UnsetType = UNSET
    spec = model.spec.blocks[layer].attention
    if "concat" in stages and spec.heads > 1:
        split = head_shares(model, layer, stages["concat"][query].reshape(spec.heads, spec.v_dim))
        if split is not None:
            heads = split.shares
            bias = split.bias

    # the vector that the residual connection adds to (in some models the normed one), and what is
    # added where that is not `out` alone: a norm or a factor may follow the heads, or another part
    # run beside them
    if model.spec.blocks[layer].normed:
        x = stages["hidden"][query]
    else:
        x = float64_of(model, before)[query]
    branch: Floats | UnsetType = UNSET
    if "sum" in rows:
        added = rows["sum"] - x
        # where x is large, the difference of float32 sums has few digits left
        rounding = 1e-5 * abs(x).max()
        if not np.allclose(added, stages["out"][query], rtol=1e-3, atol=rounding):
            branch = added
    return After(x=x, heads=heads, bias=bias, out=stages["out"][query], branch=branch, **rows)


def steps_of(
    stages: Mapping[str, Floats],
    scale: float,
    softcap: float | None,
    sink: float | None,
    query: int,
) -> list[Step]:
    """Work out the steps of one query's attention, from projections to the weighted sum.

    stages: of one head, by name: "hidden" [token, width]; "q", "k" and "v" [1, token, dim];
        "capped", "biased" and "masked" [1, query, key].
    sink: the logit of a learned sink, None without one.
    scale: what q·k is multiplied by.
    softcap: the bound of the soft cap; None without one.
    query: the position of the query.
    """
    # products and scores, [key]
    x = stages["hidden"][query]
    q = stages["q"][0, query]
    k = stages["k"][0]
    v = stages["v"][0]
    products = q * k
    raw = products.sum(axis=1)
    scaled = raw * scale
    capped = scaled
    if softcap is not None:
        capped = np.tanh(scaled / softcap) * softcap
    scores = capped
    bias = _position_bias(stages, query)
    if bias is not None:
        scores = capped + bias

    # weights; a key is hidden if the mask, and not what comes before it, makes its score −∞
    visible = ~(np.isneginf(stages["masked"][0, query]) & ~np.isneginf(stages["biased"][0, query]))
    softmax = softmax_steps(
        [
            float(score) if is_visible else None
            for score, is_visible in zip(scores, visible, strict=True)
        ],
        sink=sink,
    )
    weights = np.asarray(softmax.weights)

    # the weighted sum; a hidden value may be anything, even NaN, and has no part in it
    has_weight = weights[:, None] > 0
    terms = np.where(has_weight, weights[:, None] * np.where(has_weight, v, 0.0), 0.0)
    return [
        Projections(formula="q = x·W_Q, k = x·W_K, v = x·W_V", x=x, q=q, k=k, v=v),
        Products(formula="q·k_j = Σ_i q_i·k_ji", products=products, raw=raw),
        Scores(
            formula="s_j = q·k_j × scale",
            scale=scale,
            softcap=softcap,
            scaled=scaled,
            capped=None if softcap is None else capped,
            bias=bias,
            visible=visible.tolist(),
            scores=list(softmax.scores),
        ),
        SoftmaxRow(
            formula="w_j = exp(s_j − max) / Σ_j exp(s_j − max)",
            highest=softmax.highest,
            shifted=list(softmax.shifted_scores),
            exponentials=list(softmax.exponentials),
            sink=softmax.sink,
            sum=softmax.total,
            weights=weights,
        ),
        OutputSum(formula="o = Σ_j w_j·v_j", terms=terms, output=terms.sum(axis=0)),
    ]


def _position_bias(stages: Mapping[str, Floats], query: int) -> Floats | None:
    """What the position encoding adds to this query's scores, [key]; None if it adds nothing."""
    before = stages["capped"][0, query]
    after = stages["biased"][0, query]
    if np.array_equal(before, after, equal_nan=True):
        return None
    # −∞ less −∞, of keys that are hidden before the mask, gives NaN
    with np.errstate(invalid="ignore"):
        return after - before


def agreement(steps: list[Step], stages: Mapping[str, Floats], query: int) -> float:
    """The largest absolute difference between the worked steps of a query and the run's own stages."""
    differences: list[Floats] = []
    for step in steps:
        match step:
            case Products(raw=raw):
                differences.append(np.abs(raw - stages["raw"][0, query]))
            case SoftmaxRow(weights=weights):
                differences.append(np.abs(weights - stages["weights"][0, query]))
            case OutputSum(output=output):
                differences.append(np.abs(output - stages["mixed"][0, query]))
            case Projections() | Scores():
                pass
            case _:
                assert_never(step)
    return float(max(np.nanmax(difference, initial=0.0) for difference in differences))


def derivation_shapes(model: Model, tokens: int, layer: int) -> list[tuple[int, ...]]:
    """Shapes of the arrays that a derivation of this layer would hold, to estimate its size before
    it is built: four n × n matrices, five of a vector per token, and the input."""
    spec = model.spec.blocks[layer].attention
    width = max(spec.head_dim, spec.v_dim)
    return [(4 * tokens, tokens), (5 * tokens, width), (tokens, model.spec.d_model)]


# Topics of `attn explain` about a whole layer: masks, several heads, positions, residual and norm.


@checked
def mask_topic_document(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    *,
    layer: int,
    head: int,
    query: int,
    others: Sequence[tuple[str, Sequence[Token]]] = (),
) -> MaskTopic:
    """Build the document of topic "mask": one head's scores before and after the mask, and the
    softmax of either.

    Args:
        model: As `attncli.load` returns it.
        text: The text.
        tokens: Its tokens.
        layer: The layer's number.
        head: The head's number in its layer.
        query: The position of the token that looks, from 0.
        others: More texts with their tokens, to be padded together with this one.

    Returns:
        What `attn explain mask --json` writes. A query that sees nothing has weights 0.

    Raises:
        InputError: For a layer or head that is not there.
    """
    names = ("biased", "masked", "weights")
    # of the one head that ran, [query, key]
    trace = layer_trace(model, tokens, layer, names, [head])
    scores, masked, after = (float64_of(model, trace.stages[name])[0] for name in names)
    before = row_softmax(scores)
    masked_keys = np.isneginf(masked[query]) & ~np.isneginf(scores[query])
    # rounding can make a sum of weights a little more than 1
    hidden_share = min(float(before[query][masked_keys].sum()), 1.0)
    batch: list[PaddedText] | UnsetType = UNSET
    if others:
        batch = _padded_texts(model, [(text, tokens), *others], layer, head)
    attention = model.spec.blocks[layer].attention
    hashing = hash_products(model.backend, attention, trace, [head])
    return MaskTopic(
        **header(model, text, tokens),
        topic="mask",
        layer=layer,
        head=head,
        query=query,
        scores=scores,
        masked=masked,
        before=before,
        after=after,
        hidden=hidden_share,
        batch=batch,
        hashing=hashing or UNSET,
        warnings=[*model.warnings, *token_notes(text, tokens)],
    )


def _padded_texts(
    model: Model, texts: Sequence[tuple[str, Sequence[Token]]], layer: int, head: int
) -> list[PaddedText]:
    """Run texts of different length in one padded batch. Returns for each the weights of its last
    token there, and how far they are from those of the text run alone."""
    tokens = [text_tokens for _, text_tokens in texts]
    longest = max(map(len, tokens))
    # one layer runs, and gives one trace
    trace = next(iter(model.trace_batch(tokens, layers=[layer], heads=[head], keep=("weights",))))
    # of the one head that ran, [text, query, key], padded behind the tokens of shorter texts
    together = float64_of(model, trace.stages["weights"])[:, 0]
    padded_texts = []
    for entry, (text, text_tokens) in enumerate(texts):
        lone = next(iter(model.trace(text_tokens, layers=[layer], heads=[head], keep=("weights",))))
        # of the text's last token: weights on its own tokens alone, and on all places of the padded
        # batch; without learned keys, which come after them
        count = len(text_tokens)
        alone = float64_of(model, lone.stages["weights"])[0, -1][:count]
        row = together[entry, count - 1, :longest]
        difference = float(np.abs(row[:count] - alone).max(initial=0.0))
        padded_texts.append(
            PaddedText(text=text, tokens=token_rows(text_tokens), weights=row, agreement=difference)
        )
    return padded_texts


# Several heads, and how their outputs become one: topic "multihead" of `attn.explain/1`.

HALF = 0.5
"""More of a query's weight than this is a link that says what a head does on a text."""
MOST_ROLES = 2
"""Links that are told of a layer, each of a head of its own."""


@checked
def multihead_document(
    model: Model, text: str, tokens: Sequence[Token], *, layer: int, query: int
) -> MultiheadTopic:
    """Build the document of topic "multihead": every head's weights and output for one query, and
    their combination through W_O.

    Args:
        model: As `attncli.load` returns it.
        text: The text.
        tokens: Its tokens.
        layer: The layer's number.
        query: The position of the token that looks, from 0.

    Returns:
        What `attn explain multihead --json` writes, with the average of the rows. The shares are
        absent where there is no W_O, or its weights cannot be read.

    Raises:
        InputError: For a layer that is not there.
    """
    trace = layer_trace(model, tokens, layer, ("capped", "biased", "masked", "weights"))
    # of the query in each head, [head, key] and [head, v_dim]
    weights, mixed = (
        float64_of(model, array)[:, query]
        for array in (trace.stages["weights"], head_outputs(trace.stages))
    )
    out = float64_of(model, trace.stages["out"])[query]

    # the output as the sum of the heads' shares; without W_O the heads side by side
    split = head_shares(model, layer, mixed)
    if split is not None:
        total = split.shares.sum(axis=0)
        if split.bias is not UNSET:
            total = total + split.bias
    elif "concat" not in trace.stages:
        total = mixed.reshape(-1)
    else:
        # W_O cannot be read: there is no sum to compare
        total = out

    single: SingleHead | UnsetType = UNSET
    if len(weights) == 1:
        single = _without_heads(model, trace, query, weights[0], mixed[0])
    average = weights.mean(axis=0)
    # + 0.0 makes an entropy of −0.0 plain 0
    return MultiheadTopic(
        **header(model, text, tokens),
        topic="multihead",
        layer=layer,
        query=query,
        heads=[
            HeadPart(
                head=head,
                weights=row,
                output=output,
                share=UNSET if split is None else split.shares[head],
            )
            for head, (row, output) in enumerate(zip(weights, mixed, strict=True))
        ],
        average=average,
        entropies=(row_entropy(weights) + 0.0).tolist(),
        average_entropy=float(row_entropy(average)) + 0.0,
        roles=_roles_of_heads(model, text, tokens, float64_of(model, trace.stages["weights"])),
        single=single,
        concat=mixed.reshape(-1),
        bias=UNSET if split is None else split.bias,
        out=out,
        agreement=float(np.abs(total - out).max(initial=0.0)),
        warnings=[*model.warnings, *token_notes(text, tokens)],
    )


def _roles_of_heads(
    model: Model, text: str, tokens: Sequence[Token], weights: Floats
) -> list[HeadLink] | UnsetType:
    """The strongest link between two words in a layer, and the strongest link between another pair
    of words in another head; each only if it holds more than half of its query's weight.

    weights: [head, query, key]. A link joins two words, by letters or figures, that are not side by
    side; keys on which heads put weight when they look for nothing count as no words. UNSET where
    weights are not learned, for one head, and for a text without two such words.
    """
    if not is_learned(model.identity.source) or len(weights) < 2:
        return UNSET

    # the number of the word that each token is part of; links between neighbours do not count
    count = len(tokens)
    word_numbers = np.zeros(count, int)
    word_numbers[word_starts(tokens, text)[1:]] = 1
    word_numbers = word_numbers.cumsum()
    is_word = np.array([any(map(str.isalnum, token.text)) for token in tokens])
    is_word &= ~resting_keys(tokens, model.identity.source)
    is_apart = np.abs(word_numbers[:, None] - word_numbers) > 1
    candidates = is_word[:, None] & is_word & is_apart
    if not candidates.any():
        return UNSET

    # the strongest link; then its head and its pair of words are left out, and the next is taken;
    # learned keys, which come after those of the tokens, are no words
    link_weights = np.where(candidates, weights[:, :, :count], 0.0)
    links: list[HeadLink] = []
    for _ in range(MOST_ROLES):
        strongest = np.unravel_index(np.argmax(link_weights), link_weights.shape)
        head, query, key = map(int, strongest)
        weight = float(link_weights[head, query, key])
        if weight <= HALF:
            break
        links.append(HeadLink(head=head, query=query, key=key, weight=weight))
        link_weights[head] = 0.0
        link_weights[:, query, key] = 0.0
    return links


def _without_heads(
    model: Model, trace: LayerTrace, query: int, weights: Floats, mixed: Floats
) -> SingleHead | UnsetType:
    """Compute one query's attention from q, k and v without splitting into heads, in float64, to
    show that a model of one head gives the same; UNSET where the trace lacks a stage that this
    needs, and for attention with sinks or global tokens.

    weights, mixed: of the run, [key] and [v_dim].
    """
    spec = model.spec.blocks[trace.layer].attention
    names = ("hidden", "q", "k", "v", "capped", "biased", "masked")
    if spec.sinks or spec.own_global or not set(names) <= set(trace.stages):
        return UNSET
    stages = {name: float64_of(model, trace.stages[name]) for name in names}
    steps = steps_of(stages, spec.scale, spec.softcap, sink=None, query=query)
    # the steps that hold the weights and the output; there is one of each
    row = next(np.asarray(step.weights) for step in steps if isinstance(step, SoftmaxRow))
    output = next(np.asarray(step.output) for step in steps if isinstance(step, OutputSum))
    largest_difference = max(
        float(np.abs(row - weights).max(initial=0.0)),
        float(np.abs(output - mixed).max(initial=0.0)),
    )
    return SingleHead(weights=row, output=output, agreement=largest_difference)


# Ways of telling attention where tokens stand, and what each makes of one query.

ADDED = {
    "sinusoidal": "P[i, 2m] = sin(i / 10000^(2m/d)); P[i, 2m+1] = cos(i / 10000^(2m/d))",
    "learned": message("P[i]: one learned vector for each position i"),
}
"""What is added to the input; other tables that checkpoints have are added likewise."""
DRAWN_POSITIONS = message("P[i]: one vector for each position i, random here, not learned")
"""The same of learned positions in a model that has learned nothing."""


@checked
def position_document(
    models: Iterable[Model],
    text: str,
    tokens: Sequence[Token],
    *,
    layer: int,
    head: int,
    query: int,
) -> PositionTopic:
    """Compare position encodings: one query's weights in models that differ in their positions
    alone.

    Args:
        models: The models; the first is what the others are measured against.
        text: The text.
        tokens: Its tokens.
        layer: The layer's number.
        head: The head's number in its layer.
        query: The position of the token that looks, from 0.

    Returns:
        What `attn explain position --json` writes.

    Raises:
        InputError: For numbers that left the range of their type.
    """
    heading: Heading | None = None
    ways: list[PositionWay] = []
    warnings: list[str] = []
    for model in models:
        heading = heading or header(model, text, tokens)
        warnings += [warning for warning in model.warnings if warning not in warnings]
        first_weights = None
        if ways:
            first_weights = ways[0].weights
        ways.append(_position_way(model, tokens, layer, head, query, first_weights))
    assert heading is not None, "there is at least one model"
    warnings += token_notes(text, tokens)
    return PositionTopic(
        **heading,
        topic="position",
        layer=layer,
        head=head,
        query=query,
        ways=ways,
        warnings=warnings,
    )


def _position_way(
    model: Model, tokens: Sequence[Token], layer: int, head: int, query: int, first: Floats | None
) -> PositionWay:
    """A model's position encoding and the query's weights under it, with their largest difference
    from `first`, [key] (None: 0)."""
    names = ("capped", "biased", "weights")
    # of the one head that ran, [query, key]; "mixed" tells whether its numbers overflowed
    trace = layer_trace(model, tokens, layer, (*names, "mixed"), [head])
    capped, biased, weights = (float64_of(model, trace.stages[name])[0] for name in names)
    row = weights[query]
    # what the encoding adds to the scores; 0 where a score left the range of its type, as it may
    # where a mask hides it
    is_finite = np.isfinite(capped)
    bias = np.zeros(capped.shape)
    bias[is_finite] = biased[is_finite] - capped[is_finite]
    name, enters, formula, table = _position_facts(model, tokens, layer, bias)
    largest_change = 0.0
    if first is not None:
        largest_change = float(np.abs(row - first).max(initial=0.0))
    position = model.spec.blocks[layer].attention.position
    pairing: Literal["half", "adjacent"] | UnsetType = UNSET
    if enters == "queries and keys" and isinstance(position, Rope):
        pairing = position.pairing
    return PositionWay(
        position=name,
        enters=enters,
        formula=formula,
        table=table,
        pairing=pairing,
        slopes=slopes_of(model, layer),
        weights=row,
        moved=largest_change,
    )


def _position_facts(
    model: Model, tokens: Sequence[Token], layer: int, bias: Floats
) -> tuple[str, Literal["nowhere", "input", "queries and keys", "scores"], str, Floats | UnsetType]:
    """A layer's position encoding: its name, where it enters the computation, its formula, and the
    numbers that it adds or the angles that it rotates by (UNSET without any).

    bias: what it adds to the scores, [query, key].
    """
    input_positions = model.spec.embedding.positions
    score_position = model.spec.blocks[layer].attention.position
    if input_positions is not None:
        vectors: Floats | UnsetType = UNSET
        # vectors of the tokens and of their positions, where a model adds the two
        both = split_embedding(model, tokens)
        if both is not None:
            _, vectors = both
        added = ADDED.get(input_positions, message("P[i]: a vector"))
        if input_positions == "learned" and not is_learned(model.identity.source):
            added = DRAWN_POSITIONS
        return input_positions, "input", listing(("X = E + P", added), "; "), vectors
    name = position_name(score_position)
    match score_position:
        case None:
            return "none", "nowhere", "X = E", UNSET
        case Rope():
            # radians from one position to the next, [pair]; no factor on the rotation is shown
            per_pair, _ = frequencies(score_position, len(tokens))
            angles = np.asarray([token.index for token in tokens], np.float64)[:, None] * per_pair
            return (
                name,
                "queries and keys",
                message(
                    "angle a of pair m at position i: i · θ^(−2m/d), θ = {theta}",
                    theta=f"{score_position.theta:g}",
                ),
                angles,
            )
        case Alibi():
            return "alibi", "scores", message("S + bias; bias = −slope·|i − j|"), bias
        case RelativeBuckets() | Disentangled():
            return name, "scores", message("S + bias, learned for each distance j − i"), bias
        case RelativeSines():
            return name, "scores", message("S + (Q + b)·R, with R of the sinusoid of i − j"), bias
        case FirstBlockAgain():
            return name, "scores", message("S + ln(1 + times) for keys of the first block"), bias
        case _:
            assert_never(score_position)


# The residual connection and the norm, worked out for one query: topic "residual" of
# `attn.explain/1`.


@checked
def residual_document(
    model: Model, text: str, tokens: Sequence[Token], *, layer: int, query: int
) -> ResidualTopic:
    """Build the document of topic "residual": x, what attention adds, their sum, and the norm.

    Args:
        model: As `attncli.load` returns it.
        text: The text.
        tokens: Its tokens.
        layer: The layer's number.
        query: The position of the token that looks, from 0.

    Returns:
        What `attn explain residual --json` writes. The norm is that of the sum, or, in a model that
        norms first, that of x.

    Raises:
        UnsupportedError: For a layer without a residual connection around its attention alone.
    """
    block = model.spec.blocks[layer]
    trace = layer_trace(model, tokens, layer, ("weights",))
    if "sum" not in trace.stages:
        reason = message("has no residual")
        if block.parallel:
            reason = message("adds attention and feed-forward at once")
        raise UnsupportedError(
            "layer {layer} {reason}",
            expected="x + attention on its own",
            hint="--residual",
            layer=layer,
            reason=reason,
        )

    # x, and x plus what the attention adds; some models add it to the normed vector instead
    if block.normed:
        entering = trace.stages["hidden"]
    else:
        entering = trace.before
    x, after = (float64_of(model, array)[query] for array in (entering, trace.stages["sum"]))

    # the norm worked out, and how far it is from the run's
    norm = _norm_step(model, layer, block.norms, x, after)
    norm_difference = 0.0
    if norm is not None:
        stage = "hidden"
        if norm.place == "attn.sum":
            stage = "norm"
        run_norm = float64_of(model, trace.stages[stage])[query]
        norm_difference = float(np.abs(norm.normed - run_norm).max(initial=0.0))

    # of each key, over the heads: [head, query, key] to [key]
    largest_weights: Floats | UnsetType = UNSET
    if "weights" in trace.stages:
        largest_weights = float64_of(model, trace.stages["weights"])[:, query].max(axis=0)
    cosine = 0.0
    lengths = float(np.linalg.norm(x) * np.linalg.norm(after))
    if lengths > 0:
        cosine = float(x @ after) / lengths
    return ResidualTopic(
        **header(model, text, tokens),
        topic="residual",
        layer=layer,
        query=query,
        width=len(x),
        x=x,
        out=after - x,
        sum=after,
        weights=largest_weights,
        cosine=cosine,
        norm=norm,
        agreement=norm_difference,
        warnings=[*model.warnings, *token_notes(text, tokens)],
    )


def _norm_step(
    model: Model, layer: int, norms: Mapping[Place, Norm], x: Floats, after: Floats
) -> NormStep | None:
    """Work out the norm of the query's vector: of the sum behind the attention where the layer norms
    there, or of x before the attention; None where it does neither, or its weights cannot be read.

    x: what enters the attention's branch, [width].
    after: x plus what the attention adds, [width].
    """
    place: Place = "attn.in"
    vector = x
    if "attn.sum" in norms:
        place = "attn.sum"
        vector = after
    # (the weights of a model that runs through transformers cannot be read one by one)
    if place not in norms or not model.own_layers:
        return None
    norm = norms[place]
    weights = model.store.layer(model.backend, layer)
    weight = weights(f"{place}.weight")
    bias = weights(f"{place}.bias")

    # a layer norm takes the mean away, an RMS norm does not
    mean = float(vector.mean())
    centred = vector
    if norm.kind == "layer":
        centred = vector - mean
    variance = float((centred**2).mean())
    scaled = centred / np.sqrt(variance + norm.eps)
    normed = scaled
    if weight is not None and norm.affine:
        factors = float64_of(model, weight)
        # some families store how far a factor is from 1
        if norm.unit_offset:
            factors = factors + 1.0
        normed = normed * factors
    if bias is not None and norm.affine:
        normed = normed + float64_of(model, bias)
    return NormStep(
        place=place,
        kind=norm.kind,
        eps=norm.eps,
        vector=vector,
        mean=mean,
        variance=variance,
        scaled=scaled,
        normed=normed,
    )
