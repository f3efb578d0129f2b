"""Training: the forward pass of every run, its loss, its gradients, and the steps of AdamW."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import Array, Backend, numpy_backend
from attncli.arrays.gradient_backend import Variable, gradient_backend, gradients
from attncli.errors import AttnError
from attncli.features.learn.architecture import ENCODER, SmallModel, first_weights
from attncli.inputs.token import Token
from attncli.language import message
from attncli.mechanism.context import NO_INTERVENTIONS, Context, Interventions, Weights
from attncli.mechanism.feed_forward import normalise
from attncli.mechanism.spec import Spec
from attncli.models.run import (
    EmbeddingVectors,
    finish,
    logits,
    parts_through_norm,
    run_layers,
    with_positions,
)

Floats = np.ndarray[Any, Any]
Integers = np.ndarray[Any, Any]

NO_TARGET = -1
"""In a batch's targets: nothing is to be predicted at this token."""


class SourceTexts(Struct, frozen=True, eq=False):
    """What an encoder reads, a text for each of a batch.

    ids: integers [text, source token]; those after a text's end are padding.
    lengths: tokens of each, [text].
    visible: how many of its vectors, from the first on, the decoder sees, [text].
    """

    ids: Integers
    lengths: Integers
    visible: Integers


class Batch(Struct, frozen=True, eq=False):
    """Texts to learn from.

    ids: integers [text, token].
    targets: the id that is to be predicted at each token, [text, token], `NO_TARGET` where there is
        none.
    source: what the encoder reads; None for a model without one.
    """

    ids: Integers
    targets: Integers
    source: SourceTexts | None = None

    @property
    def first_shape(self) -> tuple[int, int]:
        """How many queries and keys attention has in the first text, without padding."""
        if self.source is None:
            count = self.ids.shape[-1]
            return count, count
        return int((self.targets[0] != NO_TARGET).sum()), int(self.source.lengths[0])


class RoleStore:
    """`Store` of a model whose weights, arrays or variables, are in memory by role (a weight's
    name, such as "attn.q.weight"); roles of a layer begin with its number."""

    def __init__(self, spec: Spec, arrays: Mapping[str, Any]) -> None:
        self._spec = spec
        self._arrays = arrays

    def vectors(self, backend: Backend, ids: Integers) -> Array:
        """Embed ids, [..., token]: the vectors that enter layer 0, [..., token, width], positions
        and the embedding's norm included."""
        embedding = self._spec.embedding
        outer = self.outer(backend)
        table = self._arrays["tokens.weight"]
        # the rows of the table by id, of all texts one after another
        rows = backend.take(table, backend.array(ids.reshape(-1)), 0)
        x = rows.reshape((*ids.shape, table.shape[-1])) * embedding.scale
        count = ids.shape[-1]
        # the rows of the table of positions are asked for only where the model adds some
        x = with_positions(backend, embedding, x, range(count), lambda: self._position_rows(count))
        if embedding.norm is None:
            return x
        return normalise(
            backend, embedding.norm, x, outer("embed.norm.weight"), outer("embed.norm.bias")
        )

    row_by_row: ClassVar[bool] = False

    def embed(self, backend: Backend, tokens: Sequence[Token]) -> Array:
        """The vectors that enter layer 0, [token, width]."""
        return self.vectors(backend, np.asarray([token.id for token in tokens]))

    def embed_parts(self, backend: Backend, tokens: Sequence[Token]) -> list[EmbeddingVectors]:
        """The embeddings in their parts: the vectors of the tokens, and those of their positions."""
        embedding = self._spec.embedding
        table = self._arrays["tokens.weight"]
        x = table[np.asarray([token.id for token in tokens])] * embedding.scale
        parts = [EmbeddingVectors("token", x)]
        count = len(tokens)
        if embedding.positions is not None:
            rows = with_positions(
                backend,
                embedding,
                x * 0.0,  # positions alone: added to nothing
                range(count),
                lambda: self._position_rows(count),
            )
            parts.append(EmbeddingVectors("position", rows))
        if embedding.norm is None:
            return parts
        return parts_through_norm(backend, embedding.norm, parts, self.outer(backend))

    def _position_rows(self, count: int) -> Any:
        """The vectors of the first `count` positions, [token, width]."""
        first = self._spec.embedding.position_offset
        return self._arrays["positions.weight"][first : first + count]

    def expect(self, layers: range) -> None:
        """Do nothing: the weights of all layers are in memory already."""

    def layer(self, backend: Backend, index: int) -> Weights:
        """A function from a role (a weight's name) to that array of the layer `index`; it returns
        None for a role that it lacks."""
        return lambda role: self._arrays.get(f"{index}.{role}")

    def outer(self, backend: Backend) -> Weights:
        """A function from a role (a weight's name) to that array outside the layers; it returns
        None for a role that the model lacks."""
        return lambda role: self._arrays.get(role)

    def bytes_read(self) -> int:
        """How many bytes the weights take, those of all arrays."""
        return sum(array.nbytes for array in self._arrays.values())


class ForwardPass(Struct, frozen=True, eq=False):
    """What a model computes of texts.

    logits: [text, token, vocabulary].
    weights: attention's, of each layer, [text, head, query, key]; with an encoder, those of the
        attention to it. Empty where none were kept.
    """

    logits: Array
    weights: Sequence[Array]


def forward(
    backend: Backend,
    spec: Spec,
    arrays: Mapping[str, Any],
    ids: Integers,
    *,
    source: SourceTexts | None = None,
    keep: bool = False,
    interventions: Interventions = NO_INTERVENTIONS,
) -> ForwardPass:
    """The logits of texts of one length, ids [text, token], under the weights `arrays`.

    source: what the encoder reads; None for a model without one.
    keep: whether to keep the attention weights too.
    interventions: what is changed in the layers' attention.
    """
    side = spec.decoder or spec
    store = RoleStore(side, arrays)
    count = ids.shape[-1]
    stages: Collection[str] = ()
    if keep:
        stages = ("weights",)
    context = Context(np.arange(count), count, keep=frozenset(stages), interventions=interventions)
    if source is not None:
        context = replace(
            context,
            memory=encode(backend, spec, arrays, source),
            memory_lengths=_by_text(backend, source.visible),
        )
    entering = store.vectors(backend, ids)
    layers = range(len(side.blocks))
    traces = list(run_layers(side, store, backend, entering, context, layers))
    output = logits(side, store.outer(backend), backend, traces[-1].after)
    weights: Sequence[Array] = ()
    if keep:
        # a layer's attention to the encoder, or its own where there is none
        weights = [(trace.cross or trace).stages["weights"] for trace in traces]
    return ForwardPass(logits=output, weights=weights)


def encode(backend: Backend, spec: Spec, arrays: Mapping[str, Any], source: SourceTexts) -> Array:
    """What the encoder of a model of two sides makes of texts, [text, source token, width]; what it
    gives after a text's end means nothing.

    arrays: the weights of both sides.
    """
    own = {
        name.removeprefix(ENCODER): array
        for name, array in arrays.items()
        if name.startswith(ENCODER)
    }
    store = RoleStore(spec, {**own, "tokens.weight": arrays["tokens.weight"]})
    count = source.ids.shape[-1]
    context = Context(
        np.arange(count),
        count,
        key_lengths=_by_text(backend, source.lengths),
        keep=frozenset(),
    )
    entering = store.vectors(backend, source.ids)
    last = len(spec.blocks) - 1
    (trace,) = run_layers(spec, store, backend, entering, context, [last])
    return finish(spec, store.outer(backend), backend, trace.after)


def _by_text(backend: Backend, lengths: Integers) -> Array:
    """Lengths of texts, [text], with the axes of scores, [text, head, query, key]."""
    return backend.array_as_is(lengths[:, None, None, None])


def cross_entropy(backend: Backend, scores: Array, targets: Integers) -> Array:
    """The mean of −ln p of the target ids, over all places that have a target; one number.

    scores: logits [text, token, vocabulary].
    targets: ids [text, token], `NO_TARGET` for a place without one; 0 is returned without any.
    """
    shifted = scores - backend.max(scores, -1)
    log_p = shifted - backend.log(backend.sum(backend.exp(shifted), -1))
    # 1 ⁄ places at each target's logit, 0 elsewhere: gradients have products, and no indexing
    is_target = targets[..., None] == np.arange(scores.shape[-1])
    places = max(int((targets != NO_TARGET).sum()), 1)
    shares = backend.array(is_target / places)
    return -backend.sum((log_p * shares).reshape((-1,)), -1)


class AdamW:
    """Adam with weight decay apart from the gradient, over one flat array that is changed in place.

    Source: Loshchilov and Hutter, Decoupled weight decay regularization, 2019; the defaults are
    PyTorch's.
    """

    def __init__(
        self,
        parameters: Floats,
        rate: float,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        decay: float = 0.01,
    ) -> None:
        """Begin with running means of 0.

        parameters: one flat array, which `step` changes in place.
        rate: the learning rate.
        betas: how much of its value each running mean keeps in a step.
        eps: added to the deviation that steps are divided by.
        decay: by how many times `rate` parameters shrink in a step.
        """
        self._parameters = parameters
        self._rate = rate
        self._betas = betas
        self._eps = eps
        self._decay = decay
        # running means of the gradient and of its square
        self._mean = np.zeros_like(parameters)
        self._square = np.zeros_like(parameters)
        self._steps = 0

    def step(self, gradient: Floats) -> None:
        """Change the parameters by one step against their gradient, an array of the same shape."""
        self._steps += 1
        beta_1, beta_2 = self._betas
        self._mean += (1 - beta_1) * (gradient - self._mean)
        self._square += (1 - beta_2) * (gradient * gradient - self._square)
        # both means began at 0: the powers of beta undo that bias
        size = self._rate / (1 - beta_1**self._steps)
        deviation = np.sqrt(self._square) / (1 - beta_2**self._steps) ** 0.5 + self._eps
        self._parameters *= 1 - self._rate * self._decay
        self._parameters -= size * self._mean / deviation


class Trainer:
    """A model in training.

    arrays: its weights by role, as they are now; views of one array that steps change.
    """

    def __init__(self, model: SmallModel, seed: int, rate: float, thrift: float = 0.0) -> None:
        """Draw the first weights of a model from a seed, and prepare the optimizer.

        rate: the learning rate.
        thrift: by how many times `rate` the matrix through which a head writes is shortened at each
            step; 0 for not.
        """
        self.model = model
        # all weights lie in one flat array, which the optimizer changes; the arrays are its views
        weights = first_weights(model, seed)
        flat = np.concatenate([array.reshape(-1) for array in weights.values()]).astype(np.float32)
        views: dict[str, Floats] = {}
        start = 0
        for name, array in weights.items():
            views[name] = flat[start : start + array.size].reshape(array.shape)
            start += array.size
        self._views = views  # by role, of all that steps change
        self.arrays: dict[str, Floats] = {**views, **model.fixed}
        self._backend = gradient_backend()
        self._plain = numpy_backend("float32")
        self._optimizer = AdamW(flat, rate)
        self._rate = rate
        self._thrift = thrift
        self._steps = 0

    @np.errstate(over="ignore", invalid="ignore")  # a loss that is no number is refused below
    def step(self, batch: Batch) -> float:
        """Train one step on a batch: compute the loss and its gradients, and change the weights.
        Returns the loss before the change. Raises AttnError where that is no number."""
        self._steps += 1
        variables = {name: Variable(array) for name, array in self._views.items()}
        output = forward(
            self._backend,
            self.model.spec,
            {**variables, **self.model.fixed},
            batch.ids,
            source=batch.source,
        )
        loss = cross_entropy(self._backend, output.logits, batch.targets)
        value = float(cast("Variable", loss).value[0])
        if not np.isfinite(value):
            raise AttnError(
                message("the loss is no number any more at step {step}", step=self._steps),
                expected=message("smaller steps than --learning-rate {rate:g}", rate=self._rate),
                hint=f"--learning-rate {self._rate / 10:g}",
            )
        masks = self.model.masks
        flat = []
        for name, part in zip(variables, gradients(loss, variables.values()), strict=True):
            if name in masks:  # numbers of this role that stay 0
                part = part * masks[name]
            flat.append(part.reshape(-1))
        self._optimizer.step(np.concatenate(flat))
        if self._thrift:
            self._shrink_heads()
        return value

    def _shrink_heads(self) -> None:
        """Shorten the output matrix of each head by the same length, at most to 0: of heads that do
        the same, the one that does most is left. Source: Yuan and Lin, Model selection and
        estimation in regression with grouped variables, 2006 (the group lasso)."""
        for layer, block in enumerate(self.model.decoder.blocks):
            weight = self._views[f"{layer}.attn.o.weight"]  # [width, head · v_dim]
            heads = weight.reshape(len(weight), block.attention.heads, -1)
            # (a head that is 0 already has no length to divide by)
            lengths = np.maximum(np.sqrt((heads * heads).sum((0, 2), keepdims=True)), 1e-9)
            # in place: `heads` is a view of the weights
            heads *= np.maximum(1 - self._thrift * self._rate / lengths, 0)

    def run(
        self, batch: Batch, *, keep: bool = False, interventions: Interventions = NO_INTERVENTIONS
    ) -> ForwardPass:
        """The forward pass of a batch with the weights as they are now, without gradients, in NumPy
        arrays of float32.

        keep: whether to keep the attention weights too.
        """
        return forward(
            self._plain,
            self.model.spec,
            self.arrays,
            batch.ids,
            source=batch.source,
            keep=keep,
            interventions=interventions,
        )

    def loss(self, batch: Batch, *, interventions: Interventions = NO_INTERVENTIONS) -> float:
        """The model's loss on a batch, with the weights as they are now."""
        output = self.run(batch, interventions=interventions)
        return self.loss_of(output, batch)

    def loss_of(self, output: ForwardPass, batch: Batch) -> float:
        """The loss of a forward pass, in float64."""
        exact = numpy_backend("float64")
        return float(cross_entropy(exact, exact.array(output.logits), batch.targets)[0])
