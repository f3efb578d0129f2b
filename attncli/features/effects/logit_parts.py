"""What each head adds to a token's logit, and the logit lens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from attncli.arrays.backend import Array, Backend
from attncli.documents.parts import NextToken
from attncli.errors import UnsupportedError
from attncli.features.effects.document import LensRow, LensStage, LogitPart
from attncli.features.effects.measures import log_softmax, next_logits, refuse_overflow
from attncli.features.effects.sweep import SweepText
from attncli.features.effects.targets import refuse_one_token, target_tokens
from attncli.measure.row_facts import Floats
from attncli.mechanism.block import run_block
from attncli.mechanism.context import Kind, Weights
from attncli.mechanism.spec import Block, Norm, Place
from attncli.mechanism.trace import LayerTrace, head_outputs
from attncli.models.residual_stream import HeadEvent, Receiver, read_stream
from attncli.models.run import HeldOutput, logits, run_layers, unembedding_rows

# Direct logit attribution: what each part of a model adds to a token's logit.

PartKind = Literal["embedding", "head", "mixer", "mlp", "bias"]


class LogitTerm(Struct, frozen=True):
    """The name of one part of the model that adds to a logit: the embedding (with positions), a
    head, a layer's mixer (what stands beside or in place of its heads), its feed-forward part, or
    its biases.

    layer: None for the embedding, and for the biases of the final norm and the head.
    attention, head: of a head.
    """

    kind: PartKind
    layer: int | None = None
    attention: Kind | None = None
    head: int | None = None


def part_row(term: LogitTerm, value: float) -> LogitPart:
    """The document's row of one part of a logit: its name, and the value that it adds."""
    return LogitPart(
        part=term.kind, attention=term.attention, layer=term.layer, head=term.head, value=value
    )


class Attribution(Struct, frozen=True, eq=False):
    """What each part adds to the logit of `target`, or to its difference from another's.

    logit: that logit or difference in the run before a soft cap, which the parts sum to.
    softcap: the cap's bound, None for none.
    looks: per head, the token's weights of the tokens, [key].
    by_entry: what each entry of a chosen head's output before W_O adds, [v_dim]; empty without a
        chosen head.
    """

    parts: Sequence[tuple[LogitTerm, float]]
    logit: float
    target: int
    softcap: float | None
    looks: Mapping[LogitTerm, Floats]
    by_entry: Floats


class _StreamTerms(Struct, frozen=True, eq=False):
    """One token's residual stream as a sum of parts, each a vector, [width].

    by_entry: the columns of a chosen head's W_O, [v_dim, width], taken through the same norms;
        empty until that head has written.
    """

    parts: list[LogitTerm] = field(default_factory=list)
    vectors: list[Floats] = field(default_factory=list)
    by_entry: list[Floats] = field(default_factory=list)

    def add(self, part: LogitTerm, vector: Floats) -> None:
        """Append a part with the vector that it adds to the stream, [width]."""
        self.parts.append(part)
        self.vectors.append(vector)

    def join(self, branch: _StreamTerms, scale: float) -> None:
        """Append the parts of a layer's branch (attention or feed-forward), each vector times
        `scale`.
        """
        for part, vector in zip(branch.parts, branch.vectors, strict=True):
            self.add(part, vector * scale)
        self.by_entry.extend(vectors * scale for vectors in branch.by_entry)

    def apply_norm(
        self,
        norm: Norm,
        entering: Floats,
        weight: Floats | None,
        bias: Floats | None,
        layer: int | None,
    ) -> None:
        """Take every part through a norm, in place, with the mean and variance of `entering`,
        [width]; the norm's bias becomes a part of its own.

        weight: the norm's factor of each entry, [width]; None for a norm without.
        layer: which the norm belongs to; None for the final one.
        """
        self.vectors[:] = apply_frozen_norm(norm, entering, weight, np.stack(self.vectors))
        self.by_entry[:] = [
            apply_frozen_norm(norm, entering, weight, vectors) for vectors in self.by_entry
        ]
        if bias is not None:
            self.add(LogitTerm("bias", layer), bias)


def apply_frozen_norm(
    norm: Norm, entering: Floats, weight: Floats | None, vectors: Floats
) -> Floats:
    """Apply a norm to vectors, [part, width], as a linear map: with the mean and variance of
    `entering`, [width], in place of their own; without its bias.

    weight: the norm's factor of each entry, [width]; None for a norm without.
    """
    width = entering.shape[-1]
    if norm.kind == "layer":
        entering = entering - entering.sum() / width
        vectors = vectors - vectors.sum(-1, keepdims=True) / width
    scaled = vectors / np.sqrt((entering * entering).sum() / width + norm.eps)
    if weight is None:
        return scaled
    if norm.unit_offset:  # the checkpoint stores the factor less 1
        return scaled * (weight + 1.0)
    return scaled * weight


def attribute(
    text: SweepText, position: int, target: int | None, versus: int | None
) -> Attribution:
    """Split the logit of `target` after the token at `position`, or its difference from the logit
    of `versus`, into what each part of the model adds to it.

    target: None for the model's first choice.

    Raises UnsupportedError for a model without a linear output head.
    """
    return run_attributor(text, position).attribution(target, versus)


def run_attributor(text: SweepText, position: int) -> Attributor:
    """Run the text through all layers and return the `Attributor` that has recorded what each part
    of the model writes at the token at `position`; it splits logits of what comes next.

    Raises UnsupportedError for a model without a linear output head.
    """
    model = text.model
    backend = text.backend
    spec = model.spec
    attributor = Attributor(text, position)
    hidden = model.store.embed(backend, text.tokens)
    model.store.expect(range(len(spec.blocks)))
    context = replace(text.context(frozenset({"weights"})), on_activation=attributor.on_activation)
    for index, block in enumerate(spec.blocks):
        weights = HeldOutput(model.store.layer(backend, index))
        trace = run_block(backend, block, weights, hidden, context, index)
        attributor.on_layer(block, weights, trace)
        hidden = trace.after
    attributor.on_end(hidden)
    return attributor


class Attributor:
    """Observes the layers of a run one by one and then splits a logit into what each part of the
    model adds.

    chosen: a head whose share is also split by the entries of its output before W_O, [v_dim]; None
        for none.
    Raises UnsupportedError for a model without a linear output head.
    """

    def __init__(self, text: SweepText, position: int, chosen: LogitTerm | None = None) -> None:
        """Begin with the embedding of the token at `position` as the only part of its residual
        stream; layers add theirs as they run.

        chosen: a head whose part is also split by the entries of its output; None for none.
        """
        if text.model.spec.head is None:
            raise UnsupportedError(
                "this {family} model predicts no next token: it has no linear output head",
                expected="a decoder checkpoint saved with its language-model head",
                hint="attn ablate tells which heads matter to its vectors",
                family=text.model.spec.family,
            )
        self._text = text
        self._position = position
        self._chosen = chosen
        self._stream = _StreamTerms()
        self._looks: dict[LogitTerm, Floats] = {}  # each head's weights of the tokens, [key]
        self._activations: dict[str, Floats] = {}  # of the layer that runs, by name, [width]
        self._hidden: Array | None = None  # what leaves the last layer, [1, width]
        embeddings = text.model.store.embed(text.backend, text.tokens[: position + 1])
        self._stream.add(LogitTerm("embedding"), self._vector(embeddings))

    def on_activation(self, layer: int, what: str, array: Array) -> None:
        """Keep the measured token's row of an activation, [token, width], until `on_layer` adds its
        layer.

        what: the activation's name, such as "mlp" or "attn.in".
        """
        self._activations[what] = self._vector(array)

    def on_layer(self, block: Block, weights: Weights, trace: LayerTrace) -> None:
        """Add a layer's parts to the token's residual stream, in the order in which `run_block`
        adds its branches, and record where its heads look."""
        stream = self._stream
        activations = self._activations
        scale = block.branch_scale

        def apply_norm(place: Place, terms: _StreamTerms) -> None:
            """Send the parts through the norm at this place of the layer, if it has one."""
            norm = block.norms.get(place)
            if norm is not None:
                # what enters the norm is the activation of its name; the layer's weights are named
                # by place, too, such as "attn.in.weight"
                weight, bias = (
                    role_numbers(self._text.backend, weights, f"{place}.{name}")
                    for name in ("weight", "bias")
                )
                terms.apply_norm(norm, activations[place], weight, bias, trace.layer)

        if block.normed:  # the stream itself is normed, not only what the attention reads of it
            apply_norm("attn.in", stream)

        # what the branches write
        attention = _StreamTerms()
        feed_forward = _StreamTerms()
        if not block.instead:
            attention = self._head_terms(weights, trace, "self")
            apply_norm("attn.out", attention)
        if block.mixer is not None:
            attention.add(LogitTerm("mixer", trace.layer), activations["mixer"])
        if block.mlp is not None:
            feed_forward.add(LogitTerm("mlp", trace.layer), activations["mlp"])

        # the stream takes them up
        stream.join(attention, scale)
        if block.parallel and block.mlp is not None:
            stream.join(feed_forward, scale)
        else:
            apply_norm("attn.sum", stream)
            if trace.cross is not None:
                crossing = self._head_terms(weights, trace.cross, "cross")
                apply_norm("cross.out", crossing)
                stream.join(crossing, scale)
                apply_norm("cross.sum", stream)
            if block.mlp is not None:
                apply_norm("mlp.out", feed_forward)
                stream.join(feed_forward, scale)
                apply_norm("mlp.sum", stream)
        activations.clear()

    def _head_terms(self, weights: Weights, trace: LayerTrace, kind: Kind) -> _StreamTerms:
        """What an attention writes to the stream as parts: of each head its output times its
        columns of W_O, [width], and the bias of W_O. Also records each head's weights of the tokens.
        """
        backend = self._text.backend
        position = self._position
        terms = _StreamTerms()
        if kind == "self":
            prefix = "attn"
        else:
            prefix = "cross"
        mixed = float64(backend, head_outputs(trace.stages))[:, position]
        matrix = role_numbers(backend, weights, f"{prefix}.o.weight")
        assert matrix is not None
        width = mixed.shape[-1]  # of a head's output
        for head, values in enumerate(mixed):
            term = LogitTerm("head", trace.layer, kind, head)
            head_matrix = matrix[:, head * width : (head + 1) * width]
            terms.add(term, head_matrix @ values)
            if term == self._chosen:  # its part is also split by the entries of its output
                terms.by_entry.append(head_matrix.T)
            if "weights" in trace.stages:
                row = float64(backend, trace.stages["weights"][head, position])
                self._looks[term] = row
        bias = role_numbers(backend, weights, f"{prefix}.o.bias")
        if bias is not None:
            terms.add(LogitTerm("bias", trace.layer), bias)
        return terms

    def on_end(self, hidden: Array) -> None:
        """Called after the last layer: keep the measured token's row of its output (`hidden`,
        [token, width]), and send the parts through the final norm as the whole is."""
        text = self._text
        norm = self._text.model.spec.final_norm
        outer = text.model.store.outer(text.backend)
        self._hidden = hidden[self._position : self._position + 1]
        if norm is not None:
            weight, bias = (
                role_numbers(text.backend, outer, f"final.{name}") for name in ("weight", "bias")
            )
            # a bias of the final norm belongs to no layer
            self._stream.apply_norm(norm, self._vector(hidden), weight, bias, layer=None)
        refuse_overflow(text.backend, self._hidden)

    def attribution(self, target: int | None, versus: int | None) -> Attribution:
        """Split the logit of `target` into its parts, once `on_end` was called.

        target: a vocabulary id; None for the model's first choice.
        versus: the id whose logit is subtracted; None for none.
        """
        text = self._text
        head = text.model.spec.head
        assert head is not None
        token_logits = self._logits(has_cap=False)  # parts do not add up through a soft cap
        if target is None:
            target_id = int(token_logits.argmax())
            refuse_one_token(target_id, versus)
        else:
            target_id = target
        direction, bias = logit_direction(text, target_id, versus)
        values = np.stack(self._stream.vectors) @ direction
        parts = [*zip(self._stream.parts, values.tolist(), strict=True), (LogitTerm("bias"), bias)]
        logit = token_logits[target_id]
        if versus is not None:
            logit = logit - token_logits[versus]
        by_entry = np.zeros(0)
        if self._stream.by_entry:
            by_entry = np.concatenate([vectors @ direction for vectors in self._stream.by_entry])
        return Attribution(
            parts=_merge_terms(parts),
            logit=float(logit),
            target=target_id,
            softcap=head.softcap,
            looks=self._looks,
            by_entry=by_entry,
        )

    def log_probabilities(self) -> Floats:
        """Log-probabilities of what comes after the token, [vocabulary], in nats."""
        return log_softmax(self._logits(has_cap=True))

    def _logits(self, *, has_cap: bool) -> Floats:
        """The logits after the token, [vocabulary].

        has_cap: whether the model's soft cap, if it has one, is put on them.
        """
        head = self._text.model.spec.head
        assert head is not None
        scores = self._uncapped_logits
        if not has_cap or head.softcap is None:
            return scores
        return np.tanh(scores / head.softcap) * head.softcap

    @cached_property
    def _uncapped_logits(self) -> Floats:
        """The logits after the token, [vocabulary], before a soft cap: computed once, for the
        matrix that makes them may be read for it."""
        spec = self._text.model.spec
        backend = self._text.backend
        assert spec.head is not None
        assert self._hidden is not None
        spec = replace(spec, head=replace(spec.head, softcap=None))
        outer = self._text.model.store.outer(backend)
        return float64(backend, logits(spec, outer, backend, self._hidden))[0]

    def _vector(self, array: Array) -> Floats:
        """The measured token's row of an array [token, width], as float64."""
        return float64(self._text.backend, array[self._position])


def logit_sources(
    text: SweepText, position: int, target: int, versus: int | None
) -> dict[LogitTerm, Floats]:
    """What each head adds to a logit from each token that it attends to, [source], by head:
    A_ij·v_j·W_O through frozen norms to the logit of `target`, or its difference from that of
    `versus`. Learned keys come after the tokens; a head's sources sum to its part of `attribute`.

    position: the token after which the logit is read.

    Source: Elhage et al., A mathematical framework for transformer circuits, 2021.
    """
    # the constant that the logit also has comes from no head
    direction, _constant = logit_direction(text, target, versus)
    (sources,) = _direction_sources(text, [(position, direction)])
    return sources


def target_sources(
    text: SweepText, targets: Sequence[tuple[int, int]]
) -> list[dict[LogitTerm, Floats]]:
    """What each head adds to several logits from each token that it attends to, by one run of the
    text.

    targets: for each logit the position of the token after which it is read, and the vocabulary id.

    Returns for each of them the values of each head, [source], by its term; learned keys come after
    the tokens.
    """
    directions = []
    for position, target in targets:
        # the constant that the logit also has comes from no head
        direction, _constant = logit_direction(text, target, versus=None)
        directions.append((position, direction))
    return _direction_sources(text, directions)


def _direction_sources(
    text: SweepText, directions: Sequence[tuple[int, Floats]]
) -> list[dict[LogitTerm, Floats]]:
    """What each head adds to a logit from each token that it attends to, by one run of the text.

    directions: for each logit the position of the token after which it is read, and the vector
        whose product with the final normed vector it is, [width], as of `logit_direction`.

    Returns for each direction the values of each head, [source].
    """
    backend = text.backend
    collected: list[dict[LogitTerm, tuple[int, Floats]]] = [{} for _ in directions]

    def on_heads(number: int, event: HeadEvent) -> None:
        """Called for each attention below a logit: record what each of its heads carries from every
        token to that logit.

        number: which of `directions` is read.
        event: the attention's trace, and of each head the matrix by which its values reach the
            logit. The logit is one number, read at one token: matrices are [v_dim, 1], factors
            [1, 1].
        """
        position, _direction = directions[number]
        stages = event.trace.stages
        weights = float64(backend, stages["weights"][:, position])
        # a global token reads values that a second projection makes
        if position in event.apart and "global_v" in stages:
            name = "global_v"
        else:
            name = "v"
        values = float64(backend, stages[name])
        group = len(weights) // len(values)  # heads that share one key-value head
        if "gate" in stages:
            gate = float64(backend, stages["gate"])[:, position]
        else:
            gate = None
        for head, row in enumerate(weights):
            to_logit = event.matrices[head][:, 0]  # from the head's values, [v_dim]
            if gate is not None:
                to_logit = to_logit * gate[head]
            carried = values[head // group] @ to_logit
            term = LogitTerm("head", event.trace.layer, event.kind, head)
            amounts = row * carried * float(event.factors[0, 0])
            collected[number][term] = (event.norm_count, amounts)

    after_last_layer = len(text.model.spec.blocks)
    receivers = [
        Receiver(after_last_layer, "self", direction[None], slice(position, position + 1))
        for position, direction in directions
    ]
    keep = frozenset({"weights"})
    readings = read_stream(
        text.model, text.tokens, backend, receivers, keep=keep, split="none", on_heads=on_heads
    )
    # the norms that come after a head are known at the end of the run only
    return [
        {
            term: amounts * reading.tails[norm_count][0]
            for term, (norm_count, amounts) in by_head.items()
        }
        for by_head, reading in zip(collected, readings, strict=True)
    ]


def logit_direction(text: SweepText, target: int, versus: int | None) -> tuple[Floats, float]:
    """The vector, [width], whose product with the final normed vector is the logit of `target`
    (less that of `versus` where given), and the constant that is added to the product."""
    backend = text.backend
    head = text.model.spec.head
    outer = text.model.store.outer(text.backend)
    assert head is not None
    signed_tokens = [(target, 1.0)]
    if versus is not None:
        signed_tokens.append((versus, -1.0))
    rows = unembedding_rows(head, outer, [token for token, _ in signed_tokens])
    direction = head.scale * sum(
        sign * float64(backend, row) for row, (_, sign) in zip(rows, signed_tokens, strict=True)
    )
    constant = 0.0
    for role in ("head.bias", "head.offsets"):
        biases = role_numbers(backend, outer, role)
        if biases is not None:
            constant += sum(
                sign * float(biases.reshape(-1)[token]) for token, sign in signed_tokens
            )
    if head.projection:  # some models map the vector to another width before the output matrix
        projection = role_numbers(backend, outer, "head.project.weight")
        projection_bias = role_numbers(backend, outer, "head.project.bias")
        if projection_bias is not None:
            constant += float(direction @ projection_bias)
        if projection is not None:
            direction = direction @ projection
    return np.asarray(direction), constant


def float64(backend: Backend, array: Array) -> Floats:
    """Convert a backend's array to a NumPy array of float64."""
    return np.asarray(backend.numpy(array), np.float64)


def role_numbers(backend: Backend, weights: Weights, role: str) -> Floats | None:
    """A weight array of the model by its role, such as "attn.o.bias", as float64; None where the
    model has none.
    """
    array = weights(role)
    if array is None:
        return None
    return float64(backend, array)


def _merge_terms(parts: Sequence[tuple[LogitTerm, float]]) -> list[tuple[LogitTerm, float]]:
    """Sum the values of equal parts (biases of one layer are one part) and sort them in the order
    of the model.
    """
    by_term: dict[LogitTerm, float] = {}
    for part, value in parts:
        by_term[part] = by_term.get(part, 0.0) + value
    return sorted(by_term.items(), key=lambda item: _model_order(item[0]))


def _model_order(part: LogitTerm) -> tuple[int, int, bool, int]:
    """The sort key that puts parts in the order of the model: by layer, kind, self before cross,
    head.
    """
    if part.layer is not None:
        layer = part.layer
    elif part.kind == "embedding":
        layer = -1
    else:  # biases of the final norm and the output head come after every layer
        layer = 10**9
    kind = get_args(PartKind).index(part.kind)
    return layer, kind, part.attention == "cross", part.head or 0  # only heads have a number


MOST_LENS = 5
"""Tokens that a row tells, the likeliest."""


def lens_rows(text: SweepText, position: int, target: int) -> list[LensRow]:
    """The logit lens of one token: the likeliest next tokens read from its vectors before each
    layer, after each attention and after the last layer, through the model's final norm and output
    head.

    Args:
        text: The text on its model, which has an output head.
        position: After which token.
        target: The vocabulary entry whose rank and probability are told.

    Returns:
        Rows in the order of the model. A layer whose attention and feed-forward part run side by
        side has no vectors between them, and no row of them.

    Raises:
        UnsupportedError: The model has no output head.

    Source: nostalgebraist, interpreting GPT: the logit lens, 2020.
    """
    model = text.model
    backend = text.backend
    spec = model.spec
    vectors: list[tuple[int | None, LensStage, Floats]] = []

    def add(layer: int | None, stage: LensStage, array: Array) -> None:
        """Keep the vector of a stage of a layer as float64, to be read by the lens."""
        vectors.append((layer, stage, float64(backend, array)))

    hidden = model.store.embed(backend, text.tokens)
    last = len(spec.blocks) - 1
    for trace in run_layers(spec, model.store, backend, hidden, text.context(), range(last + 1)):
        add(trace.layer, "before attention", trace.before[position])
        block = spec.blocks[trace.layer]
        stages = trace.stages
        if not (block.parallel and block.mlp is not None) and "sum" in stages:
            # models that norm after the sum go on with what that norm gives
            sum_stage = "norm" if "norm" in stages else "sum"
            add(trace.layer, "after attention", stages[sum_stage][position])
        if trace.layer == last:
            add(None, "end", trace.after[position])  # after all layers: of none

    rows = []
    stacked = backend.array(np.stack([vector for _, _, vector in vectors]))
    scores = next_logits(model, backend, stacked)  # at once: the output matrix may be read for it
    for (layer, stage, _), row_logits in zip(vectors, scores, strict=True):
        shares = np.exp(row_logits - row_logits.max())
        shares = shares / shares.sum()
        best = np.argsort(-row_logits, kind="stable")[:MOST_LENS].tolist()
        rows.append(
            LensRow(
                layer=layer,
                stage=stage,
                top=[
                    NextToken(token=token, probability=float(shares[token.id]))
                    for token in target_tokens(model, best)
                ],
                rank=int((row_logits > row_logits[target]).sum()) + 1,
                probability=float(shares[target]),
            )
        )
    return rows
