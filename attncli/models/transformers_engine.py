"""Families without a file here, run by transformers: its model, our attention.

The model computes everything but attention itself. In its place stands a function registered with
transformers' attention interface: it takes the queries, keys, mask and scale that the model made,
computes every stage with `attend`, and hands the result back to the model. Layers that do not attend
keep their number and are named; an encoder-decoder comes as its encoder, `decoder` gives the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, Array, Backend, Selection, choose
from attncli.errors import InputError, UnsupportedError
from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.token import Token, Tokenizer
from attncli.inputs.tokenize import ShiftedTokenizer
from attncli.mechanism.attend import EVERY_STAGE, RowBlock, Rule
from attncli.mechanism.block import join_heads
from attncli.mechanism.context import Weights
from attncli.mechanism.intervention import NOTHING, Interventions, apply_interventions, visible_links
from attncli.mechanism.spec import Spec
from attncli.mechanism.streaming import compute_attention, ignore_block
from attncli.mechanism.trace import LayerTrace
from attncli.models.model import Identity, Model
from attncli.models.transformers_calls import ENGINE, Call, forward, register
from attncli.models.transformers_model import Passage, Passages, build
from attncli.models.transformers_probe import ProbeResult, has_table, probe_model

WARNING = (
    "run by transformers' own model, with attention computed by attn; that model's masks and positions apply, "
    "also where only a part of them, or none, is named here"
)


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


class ForeignModel(Model, frozen=True, eq=False):
    """A `Model` that transformers runs. Other masks, scales and soft caps in its Spec act on every layer as asked.

    layers: the modules that are its layers. attending: those that attend.
    """

    hf_model: Any = None
    layers: tuple[Any, ...] = ()
    attending: tuple[Any, ...] = ()

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
        layers: Selection = EVERY,
        heads: Selection = EVERY,
        keep: Collection[str] = EVERY_STAGE,
        rows: int | None = None,
        on_block: Callable[[int, str, RowBlock], None] | None = None,
        past: dict[int, tuple[Array, Array]] | None = None,
        interventions: Interventions = NOTHING,
    ) -> Iterator[LayerTrace]:
        """As `Model.trace`, without `past`; the whole model runs, whatever layers are asked for."""
        if past is not None:
            raise UnsupportedError("a model that runs through transformers cannot go on from kept keys")
        tokens = self.encode(text) if isinstance(text, str) else self.check_tokens(list(text))
        layer_numbers = self.spec.attending(layers)
        traces: dict[tuple[int, int], LayerTrace] = {}
        self.store.expect(range(len(self.spec.blocks)))

        def answer(call: Call) -> Array:
            is_yielded = call.layer in layer_numbers
            trace = self._layer(call, keep if is_yielded else (), rows, on_block if is_yielded else None, interventions)
            if is_yielded:
                traces[call.layer, call.nth] = trace
            return trace.stages["mixed"]

        passages = self._forward(tokens, answer)[0].passages
        for layer in layer_numbers:
            passage, trace = passages[layer], self._complete_trace(passages[layer], traces[layer, 0], 0)
            if (layer, 1) in traces:
                trace = replace(trace, cross=self._complete_trace(passage, traces[layer, 1], 1))
            yield self.only(trace, heads)

    def decoder(self, source: str | Sequence[Token]) -> Model:
        """As `Model.decoder`."""
        if self.spec.decoder is None:
            return super().decoder(source)
        tokens = self.encode(source) if isinstance(source, str) else list(source)
        _, memory = self._forward(tokens, lambda call: self._layer(call, (), None, None, NOTHING).stages["mixed"])
        tokenizer = ShiftedTokenizer(self.tokenizer, self.spec.decoder.start)
        return replace(self, spec=self.spec.decoder, tokenizer=tokenizer, memory=memory)

    def _forward(self, tokens: Sequence[Token], answer: Callable[[Call], Array]) -> tuple[Passages, Array]:
        modules = (self.layers, self.attending)
        return forward(self.hf_model, modules, self.spec.family, tokens, answer, self.backend.device, self.memory)

    @staticmethod
    def _complete_trace(passage: Passage, trace: LayerTrace, nth: int) -> LayerTrace:
        """A trace with what is known once the layer is through."""
        output = passage.out[nth]
        stages = {name: array for name, array in trace.stages.items() if name != "out"}
        if output is not None:
            stages["concat"] = trace.stages["out"]
        stages["out"] = trace.stages["out"] if output is None else output
        attention_input = passage.attention_inputs[nth]
        if (
            attention_input is not None and attention_input.shape[-1] == stages["out"].shape[-1]
        ):  # else it is not the vectors alone
            stages["hidden"] = attention_input
        before, after = passage.entering, passage.leaving
        return replace(trace, stages=stages, before=trace.before if before is None else before,
                       leaving=trace.leaving if after is None else lambda: after)  # fmt: skip

    def _layer(
        self,
        call: Call,
        keep: Collection[str],
        rows: int | None,
        on_block: Callable[[int, str, RowBlock], None] | None,
        interventions: Interventions,
    ) -> LayerTrace:
        kind: Literal["self", "cross"] = "self" if call.nth == 0 else "cross"
        block, changes = self.spec.blocks[call.layer], interventions.get((call.layer, kind), ())
        backend, spec = self.backend, block.attention if call.nth == 0 or block.cross is None else block.cross
        links = visible_links(backend, changes, spec.heads, np.arange(call.q.shape[-2]), call.k.shape[-2])
        rule = Rule(
            scale=spec.scale,
            softcap=spec.softcap,
            mask=spec.mask.bind(backend, call.q, call.k),
            bias=call.bias,
            sinks=None if call.sinks is None else backend.keep(call.sinks),  # no gradients in other threads either
            visibility=links
            if call.visibility is None
            else call.visibility
            if links is None
            else links & call.visibility,
        )
        on_layer_block = ignore_block if on_block is None else partial(on_block, call.layer, kind)
        square_stages, mixed, empty = compute_attention(
            backend, call.q, call.k, call.v, rule, rows=rows, keep=keep, on_block=on_layer_block
        )
        mixed = apply_interventions(backend, changes, mixed)
        stages = {
            "q": call.q,
            "k": call.k,
            "v": call.v,
            **square_stages,
            "mixed": mixed,
            "out": join_heads(backend, mixed),
        }
        return LayerTrace(
            call.layer, stages, empty, call.q, lambda: call.q
        )  # what enters and leaves is known at its end


def load_foreign(
    checkpoint: Checkpoint, family: str, name: str, tokenizer: Tokenizer, *, device: str | None, dtype: str
) -> Model:
    """A model of any family that transformers knows and whose attention goes through its interface.

    Raises as `transformers_model.build`, and UnsupportedError for attention of the library's own making.
    """
    backend = choose("torch", device=device, dtype=dtype)
    register()
    hf_model, lacking = build(checkpoint, family, attention=ENGINE, dtype=dtype)
    # transformers would fill these with random numbers; a pooler comes after all attention
    missing = [lacks for lacks in lacking if not lacks.startswith("pooler.")]
    if missing:
        raise InputError(
            f"tensor {missing[0]!r} is missing",
            where=str(checkpoint.folder),
            expected=f"every tensor of a {family} model",
        )
    hf_model = hf_model.to(backend.device)
    if not has_table(hf_model):
        raise UnsupportedError(
            f"a model of the family {family!r} has no table of tokens: it reads characters by their code",
            where=str(checkpoint.folder),
            expected="a model with a vocabulary",
        )
    where = str(checkpoint.folder)
    first = probe_model(hf_model, family, backend, where)
    spec, layers, attending = first.spec, first.layers, first.attending
    if hf_model.config.is_encoder_decoder:
        second = probe_model(hf_model, family, backend, where, memory=first.gave)
        config = checkpoint.config
        start = config.get("decoder_start_token_id", config.get("pad_token_id"))
        spec = replace(spec, decoder=replace(second.spec, start=start if isinstance(start, int) else None))
        layers, attending = layers + second.layers, attending + second.attending
    return ForeignModel(
        spec,
        TransformersStore(family, checkpoint.bytes_read),
        tokenizer,
        backend,
        Identity("checkpoint", name=name, family=family),
        warnings=(*checkpoint.notes, WARNING, *idle(spec), *several(first.streams), *sinking(first)),
        hf_model=hf_model,
        layers=layers,
        attending=attending,
    )


def idle(spec: Spec) -> tuple[str, ...]:
    """What to tell of layers that attend to nothing: their numbers, by what they do."""
    layers_by_kind: dict[str, list[int]] = {}
    for layer, block in enumerate(spec.blocks):
        if block.instead:
            layers_by_kind.setdefault(block.instead, []).append(layer)
    return tuple(
        f"{'layer' if len(layers) == 1 else 'layers'} {', '.join(map(str, layers))} ({kind}): no attention to show"
        for kind, layers in layers_by_kind.items()
    )


def several(streams: int) -> tuple[str, ...]:
    """What to tell of layers between which each token has several vectors."""
    note = f"between layers each token has {streams} vectors; what enters and leaves a layer is their mean"
    return (note,) if streams > 1 else ()


def sinking(probe: ProbeResult) -> tuple[str, ...]:
    """What to tell of a model whose weights the library gives before its sinks take their share of them."""
    note = "sinks have taken their share of these weights; transformers shows them before, with rows that sum to 1"
    return (note,) if probe.before_sinks else ()
