"""Families without a file here, run by transformers: its model, our attention.

The model computes everything but attention itself. In its place stands a function registered with
transformers' attention interface: it takes the queries, keys, mask and scale that the model made,
computes every stage with `attend`, and hands the result back to the model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from attncli.arrays.backend import Array, Backend, choose
from attncli.errors import InputError, UnsupportedError
from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.token import Token, Tokenizer
from attncli.mechanism.attend import EVERY_STAGE, RowBlock, Rule, attend
from attncli.mechanism.block import Weights, join_heads
from attncli.mechanism.intervention import NOTHING, Intervention, Interventions, changed, uncut
from attncli.mechanism.mask import Causal, Everywhere, Mask
from attncli.mechanism.spec import Attention, Block, Spec
from attncli.mechanism.streaming import attended, unseen
from attncli.mechanism.trace import LayerTrace
from attncli.models import run
from attncli.models import transformers_library as library
from attncli.models.model import Identity, Model
from attncli.models.transformers_model import build, told

if TYPE_CHECKING:
    from attncli.arrays.torch_backend import Tensor

ENGINE = "attn_stages"

HARMLESS = ("s_aux", "position_ids", "cache_position")
"""The tensors beside queries, keys, values and mask that are used, or that change nothing in attention itself."""

PROBE = 7
"""Tokens of the run that finds out heads, scales and masks."""

WARNING = (
    "run by transformers' own model, with attention computed by attn; that model's masks and positions apply, "
    "also where only a part of them, or none, is named here"
)


@dataclass(frozen=True)
class Call:
    """What the model hands to one attention: q [head, query, dim], k and v [kv, key, dim], an additive mask or None."""

    q: Array
    k: Array
    v: Array
    bias: Array | None
    scale: float
    softcap: float | None
    sinks: Array | None


Answer = Callable[[int, Call], Array]
"""What stands for attention: the call's number, from 0, and the call, to the mixed values [head, query, v_dim]."""


class TransformersStore:
    """`Store` of a model whose weights transformers holds: they are not to be had by role."""

    def __init__(self, family: str, size: int) -> None:
        self.family = family
        self.size = size
        self._read = 0

    def embed(self, backend: Backend, tokens: Sequence[Token]) -> Array:
        raise self._refusal()

    def expect(self, layers: range) -> None:
        """Nothing to prepare: the weights were read whole when the model was loaded, and count for the first text."""
        self._read = self.size

    def layer(self, backend: Backend, index: int) -> Weights:
        raise self._refusal()

    def outer(self, backend: Backend) -> Weights:
        raise self._refusal()

    def bytes_read(self) -> int:
        return self._read

    def _refusal(self) -> UnsupportedError:
        return UnsupportedError(
            f"models of the family {self.family!r} run through transformers, which keeps their weights to itself"
        )


@dataclass(frozen=True, eq=False)
class ForeignModel(Model):
    """A `Model` that transformers runs. Other masks, scales and soft caps in its Spec act on every layer as asked."""

    theirs: Any = field(default=None)

    @property
    def own_layers(self) -> bool:
        """No: transformers' model runs whole."""
        return False

    def computing(self, count: int) -> Backend:
        """The type that transformers' model was loaded in, whatever the text."""
        return self.backend

    def trace(
        self,
        text: str | Sequence[Token],
        *,
        layers: Collection[int] | None = None,
        heads: Collection[int] | None = None,
        keep: Collection[str] = EVERY_STAGE,
        rows: int | None = None,
        see: Callable[[int, str, RowBlock], None] | None = None,
        past: dict[int, tuple[Array, Array]] | None = None,
        interventions: Interventions = NOTHING,
    ) -> Iterator[LayerTrace]:
        """As `Model.trace`, without `past`; the whole model runs, whatever layers are asked for."""
        if past is not None:
            raise UnsupportedError("a model that runs through transformers cannot go on from kept keys")
        tokens = self.encode(text) if isinstance(text, str) else self.checked(list(text))
        wanted = sorted(set(range(len(self.spec.blocks)) if layers is None else layers))
        run.check("layer", wanted, len(self.spec.blocks))
        found: dict[int, LayerTrace] = {}
        self.store.expect(range(len(self.spec.blocks)))

        def answer(layer: int, call: Call) -> Array:
            watched = see if layer in wanted else None
            done = interventions.get((layer, "self"), ())
            trace = self._layer(layer, call, keep if layer in wanted else (), rows, watched, done)
            if layer in wanted:
                found[layer] = trace
            return trace.stages["mixed"]

        hidden = _forward(self.theirs, self.spec.family, tokens, answer, self.backend)
        for layer in wanted:
            yield self._only(replace(found[layer], before=hidden[layer], after=hidden[layer + 1]), heads)

    def _layer(
        self,
        layer: int,
        call: Call,
        keep: Collection[str],
        rows: int | None,
        see: Callable[[int, str, RowBlock], None] | None,
        interventions: Sequence[Intervention],
    ) -> LayerTrace:
        backend, spec = self.backend, self.spec.blocks[layer].attention
        positions = np.arange(call.q.shape[-2])
        rule = Rule(
            scale=spec.scale,
            softcap=spec.softcap,
            mask=spec.mask.bind(backend, call.q, call.k),
            bias=call.bias,
            sinks=call.sinks,
            given=uncut(backend, interventions, spec.heads, positions, call.k.shape[-2]),
        )
        seen = unseen if see is None else partial(see, layer, "self")
        kept, mixed, empty = attended(backend, call.q, call.k, call.v, rule, rows=rows, keep=keep, see=seen)
        mixed = changed(backend, interventions, mixed)
        stages = {"q": call.q, "k": call.k, "v": call.v, **kept, "mixed": mixed, "out": join_heads(backend, mixed)}
        return LayerTrace(
            layer, stages, empty, call.q, call.q
        )  # what enters and leaves is known once the model is through


def load_foreign(
    checkpoint: Checkpoint, family: str, name: str, tokenizer: Tokenizer, *, device: str | None, dtype: str
) -> Model:
    """A model of any family that transformers knows and whose attention goes through its interface.

    Raises as `building.build`, and UnsupportedError for models of two sides and for attention of their own making.
    """
    backend = choose("torch", device=device, dtype=dtype)
    transformers = library.transformers()
    transformers.AttentionInterface.register(ENGINE, _outside)
    masks: Any = import_module("transformers.masking_utils")
    masks.AttentionMaskInterface.register(ENGINE, masks.eager_mask)
    folder = checkpoint.folder
    theirs, lacking = build(checkpoint, family, attention=ENGINE, dtype=dtype)
    # transformers would fill these with random numbers; a pooler comes after all attention
    missing = [lacks for lacks in lacking if not lacks.startswith("pooler.")]
    if missing:
        raise InputError(
            f"tensor {missing[0]!r} is missing", where=str(folder), expected=f"every tensor of a {family} model"
        )
    theirs = theirs.to(backend.device)
    if theirs.config.is_encoder_decoder:
        raise UnsupportedError(
            f"{family!r} has an encoder and a decoder, which do not run through transformers here", where=str(folder)
        )
    sizes = theirs.get_input_embeddings().weight
    calls: list[Call] = []

    def note(layer: int, call: Call) -> Array:
        calls.append(call)
        rule = Rule(scale=call.scale, softcap=call.softcap, bias=call.bias, sinks=call.sinks)
        return attend(backend, call.q, call.k, call.v, rule, keep=()).mixed

    probe = [Token(index, "", index, None, None) for index in range(min(PROBE, int(sizes.shape[0])))]
    layers = len(_forward(theirs, family, probe, note, backend)) - 1
    if not calls:
        raise UnsupportedError(
            f"the attention of {family!r} does not go through transformers' interface", where=str(folder)
        )
    if len(calls) != layers:
        raise UnsupportedError(
            f"{family!r} calls transformers' attention {len(calls)} times in {layers} layers",
            where=str(folder),
            expected="once a layer",
        )
    spec = Spec(
        family, int(sizes.shape[1]), int(sizes.shape[0]), tuple(Block(_attention(call, backend)) for call in calls)
    )
    return ForeignModel(
        spec,
        TransformersStore(family, checkpoint.bytes_read),
        tokenizer,
        backend,
        Identity("checkpoint", name=name, family=family),
        warnings=(WARNING,),
        theirs=theirs,
    )


def _attention(call: Call, backend: Backend) -> Attention:
    return Attention(
        heads=int(call.q.shape[0]),
        kv_heads=int(call.k.shape[0]),
        head_dim=int(call.q.shape[-1]),
        v_dim=int(call.v.shape[-1]),
        scale=call.scale,
        softcap=call.softcap,
        mask=_seen_mask(call, backend),
        sinks=call.sinks is not None,
    )


def _seen_mask(call: Call, backend: Backend) -> Mask:
    """Causal if no probed query sees what follows it; else nothing is claimed, and the model's own mask decides
    alone."""
    if call.bias is None:
        return Everywhere()
    seen = backend.numpy(call.bias)[0] > -float("inf")
    return Causal() if seen.shape[0] > 1 and not any(seen[i, i + 1 :].any() for i in range(len(seen))) else Everywhere()


def _forward(theirs: Any, family: str, tokens: Sequence[Token], answer: Answer, backend: Backend) -> list[Array]:
    """Run the model with `answer` in place of attention; returns what entered and left each of its layers, [token,
    width]."""
    torch: Any = import_module("torch")
    ids = [token.id for token in tokens]
    if any(code is None or not 0 <= code < theirs.get_input_embeddings().weight.shape[0] for code in ids):
        raise InputError("a token is outside the embedding", expected="a tokenizer that belongs to this checkpoint")
    with torch.no_grad(), told(family, ""), _in_place_of_attention(answer):
        out = theirs(input_ids=torch.tensor([ids], device=backend.device), output_hidden_states=True, use_cache=False)
    return [vectors[0] for vectors in out.hidden_states]


_answering: ContextVar[tuple[Answer, Iterator[int]]] = ContextVar("answering")
"""What stands for attention in the run that goes on, and the numbers of its calls."""


@contextmanager
def _in_place_of_attention(answer: Answer) -> Iterator[None]:
    token = _answering.set((answer, count()))
    try:
        yield
    finally:
        _answering.reset(token)


def _outside(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **told: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in place of attention: tensors [batch, head, token, dim] of one text."""
    answer, calls = _answering.get()
    bias, torch = None, import_module("torch")
    others = [name for name, value in told.items() if torch.is_tensor(value) and name not in HARMLESS]
    if others:
        raise UnsupportedError(f"this model's attention makes use of {others[0]!r}, which attn does not know")
    if attention_mask is not None:
        lowest = torch.finfo(attention_mask.dtype).min
        whole = attention_mask[0, :, :, : key.shape[-2]]
        bias = whole.masked_fill(
            whole <= lowest / 2, -float("inf")
        )  # the library hides with the lowest number there is
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    call = Call(query[0], key[0], value[0], bias, scale, told.get("softcap"), told.get("s_aux"))
    mixed: Tensor = answer(next(calls), call)
    return mixed.permute(1, 0, 2)[None].contiguous(), None
