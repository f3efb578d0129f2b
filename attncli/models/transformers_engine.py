"""Families without a file here, run by transformers: its model, our attention; short runs show how
the model attends.

The model computes everything but attention itself. In its place stands a function registered with
transformers' attention interface: it takes the queries, keys, mask and scale that the model made,
computes every stage with `attend`, and hands the result back to the model. Layers that do not
attend keep their number and are named; an encoder-decoder comes as its encoder, `decoder` gives the
other side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import Array, Backend, Selection, choose
from attncli.errors import InputError, UnsupportedError
from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.token import Token, Tokenizer
from attncli.inputs.tokenize import ShiftedTokenizer
from attncli.language import message
from attncli.mechanism.attend import RowBlock, Rule, attend, compute_attention, ignore_block
from attncli.mechanism.block import join_heads
from attncli.mechanism.context import Context, Kind, apply_interventions, visible_links
from attncli.mechanism.mask import Causal, Everywhere, Mask
from attncli.mechanism.spec import (
    Alibi,
    Attention,
    Block,
    Embedding,
    Position,
    RelativeBuckets,
    Rope,
    Spec,
    without_heads,
)
from attncli.mechanism.trace import LayerTrace
from attncli.models.model import Identity, Model
from attncli.models.transformers_model import (
    ENGINE,
    Call,
    HostedSide,
    Passage,
    Passages,
    build,
    forward,
    held_bytes,
    latent_of,
    list_members,
    mixer_name,
    own_attention,
    projection_roles,
    register_engine,
    rope_base,
    type_count,
)

# Where a model of transformers' own takes positions from, measured on a text of one token said
# several times.
#
# Whatever differs from token to token in such a text is position: in the vectors that enter the
# first layer, in queries and keys where the values do not differ, in what is added to the scores.

Floats = np.ndarray[Any, Any]

SAME_WITHIN = 1e-4
"""Vectors whose largest difference is below this share of their largest number are the same, but
for rounding.
"""


def varies(rows: Floats) -> bool:
    """Whether vectors [..., token, width] differ from token to token by more than rounding does."""
    largest_difference = np.abs(rows - rows[..., :1, :]).max(initial=0)
    largest_number = max(np.abs(rows).max(initial=0), 1e-30)  # vectors of zeros do not differ
    return bool(largest_difference > SAME_WITHIN * largest_number)


def added_positions(hf_model: Any, entering: Floats) -> Literal["learned", "sinusoidal"] | None:
    """What kind of position vectors a transformers model adds to its embeddings, "learned" or
    "sinusoidal"; None for none. Positions are added if the vectors of a text of equal tokens differ.

    entering: what enters the first layer for such a text, [token, width].
    """
    if not varies(entering):
        return None
    modules = [
        (name.rsplit(".", 1)[-1].lower(), module) for name, module in hf_model.named_modules()
    ]
    # tables of positions, which GPT-2 calls wpe
    tables = [module for name, module in modules if "pos" in name or name == "wpe"]
    # some models keep computed sines in a parameter, too, in a class that is named for them
    learned_tables = [
        module for module in tables if "sinusoid" not in type(module).__name__.lower()
    ]
    has_parameters = [bool(list(module.parameters(recurse=False))) for module in learned_tables]
    if any(has_parameters):
        return "learned"
    return "sinusoidal"


def position_encoding(
    config: Any, layer: int, q: Floats, v: Floats, bias: Floats | None, *, rotating: bool
) -> Position:
    """The position encoding of one attention, inferred from a run of equal tokens: ALiBi or buckets
    where something is added to the scores, RoPE where queries differ from token to token.

    q, v: [head, token, dim].
    bias: what is added to the scores, [head, query, key]; None for nothing.
    rotating: whether the module was handed the angles of a rotary embedding. Only used where the
        values, too, differ from token to token, as after a recurrence: then queries may differ
        without RoPE.
    """
    if bias is not None:
        finite_bias = np.where(np.isfinite(bias), bias, 0.0)  # -inf only hides a key
        if np.abs(finite_bias).max(initial=0) > 0:
            if _grows_evenly(bias):
                return Alibi()
            # the table's sizes are not known, and not needed: the run's own bias is used
            return RelativeBuckets(0, 0, bidirectional=False)
    if varies(v):
        has_rope = rotating
    else:
        has_rope = varies(q)
    if has_rope:
        return Rope(q.shape[-1], rope_base(config, layer))
    return None


def _grows_evenly(bias: Floats) -> bool:
    """Whether the bias of the last query, which sees the most keys, changes by the same step from
    each key to the next, as ALiBi's does; each head may have its own step.

    bias: what is added to the scores, [head, query, key].
    """
    last_row = bias[..., -1, :]  # [head, key]
    visible_keys = np.isfinite(last_row).all(axis=0)  # -inf hides a key
    steps = np.diff(last_row[:, visible_keys], axis=-1)  # [head, pair of neighbouring keys]
    if steps.shape[-1] < 2:  # a single step has none to be compared with
        return False
    largest_change = np.abs(np.diff(steps, axis=-1)).max()
    # 1e-30: the bound is above 0, so that steps of 0 pass, too
    return bool(largest_change < SAME_WITHIN * max(np.abs(steps).max(), 1e-30))


PROBE_TOKENS = 7
"""Tokens of the short run; all the same, so that only positions differ."""


COMPARED_LENGTHS = (24, 256)
"""Tokens of the text that is compared with the library's own attention; up to so many where a model
has windows.
"""
WINDOW_KEYS = ("sliding_window", "attention_chunk_size", "window_size", "local_attention")
"""How configs call the width of windows."""
FURTHEST_APART = {"float64": 1e-4, "float32": 1e-4, "bfloat16": 0.05, "float16": 0.02}
"""How far apart, relative to the largest number, what is computed here and by the library may be;
it computes softmax in float32 also in a model of float64."""


class ProbeResult(Struct, frozen=True):
    """What a short test run of one side of a transformers model showed: its layers and how they
    attend, its modules, and the vectors that it gave, [token, width].

    streams: how many vectors a token has between layers.
    before_sinks: whether transformers shows weights before sinks take their share.
    """

    spec: Spec
    side: HostedSide
    output: Array
    streams: int
    before_sinks: bool = False


def has_token_table(hf_model: Any) -> bool:
    """Whether the model looks token ids up in one table of vectors, [token, width]."""
    try:
        return len(hf_model.get_input_embeddings().weight.shape) == 2
    except (AttributeError, NotImplementedError):  # no such table, or no way to get at it
        return False


def probe_model(
    hf_model: Any, family: str, backend: Backend, where: str, memory: Array | None = None
) -> ProbeResult:
    """Run a few equal tokens through a transformers model and describe its layers.

    memory: encoder output for a decoder's cross-attention, [token, width].

    Raises UnsupportedError where attention does not go through transformers' interface, once a
    layer.
    """
    calls: list[Call] = []

    def answer(call: Call) -> Array:
        """Keep a call of attention, and return attn's weighted sums of the values for it."""
        calls.append(call)
        return _attention_of(backend, call).mixed

    # run the text, and collect the calls of attention; any member of a list of modules may be a layer
    vocabulary, width = (int(size) for size in hf_model.get_input_embeddings().weight.shape)
    config = hf_model.config.get_text_config()
    repeated_id = _token_ids(hf_model)[0]
    equal_tokens = [
        Token(index, "", repeated_id, start=None, end=None) for index in range(PROBE_TOKENS)
    ]
    side = HostedSide(hf_model, family, backend.device, list_members(hf_model), memory=memory)
    record, output = forward(side, equal_tokens, answer)
    if not calls:
        what = message(
            "no attention of this {family} model goes through transformers' interface",
            family=repr(family),
        )
        expected = message("layers that attend, whose attention the library lets others compute")
        raise UnsupportedError(what, where=where, expected=expected)

    # a call's `layer` is the number of the list member that made it, among all members that ran
    calls_of_member: dict[int, list[Call]] = {}
    for call in calls:
        calls_of_member.setdefault(call.layer, []).append(call)
    # the record of each member (a Passage), with its calls, none for one that does not attend
    member_calls = [
        (passage, calls_of_member.get(member, [])) for member, passage in enumerate(record.passages)
    ]

    # the layers are the members of those lists in which some member attends
    attending_modules = [passage.module for passage, own_calls in member_calls if own_calls]
    modules = list_members(hf_model, beside=attending_modules)
    layer_calls = [
        (passage, own_calls) for passage, own_calls in member_calls if passage.module in modules
    ]
    _check_calls([len(own_calls) for _, own_calls in layer_calls], family, where, memory)
    record.check_vectors(
        member for member, (passage, _) in enumerate(member_calls) if passage.module in modules
    )
    side = replace(side, layers=modules, attending=tuple(record.attending))
    # whether transformers shows attention weights before sinks take their share
    before_sinks = compare_attention(side, backend, where)

    # what enters the first layer tells of the embedding: some models project the table's vectors
    first_passage, _ = layer_calls[0]
    entering = first_passage.entering
    layer_width = width
    positions = None
    if entering is not None:
        layer_width = int(entering.shape[-1])
        positions = added_positions(hf_model, backend.numpy(entering))
    embedding = Embedding(
        width=None if layer_width == width else width,
        positions=positions,
        types=type_count(hf_model),
    )

    # describe each layer; one without attention borrows the sizes of the first one with it
    first_calls = next(own_calls for _, own_calls in layer_calls if own_calls)
    blocks = []
    for layer, (passage, own_calls) in enumerate(layer_calls):
        if own_calls:
            blocks.append(_block(own_calls, config, layer, backend, instead=""))
        else:
            mixer = mixer_name(hf_model, passage)
            blocks.append(_block(first_calls, config, layer, backend, instead=mixer))
    spec = Spec(
        family=family,
        d_model=layer_width,
        vocabulary=vocabulary,
        blocks=tuple(blocks),
        embedding=embedding,
        biases=added_biases(hf_model, record.passages),
    )
    return ProbeResult(spec, side, output, first_passage.streams, before_sinks)


def added_biases(hf_model: Any, passages: Sequence[Passage]) -> tuple[str, ...]:
    """The roles of attention to whose product any layer adds a bias, such as "attn.q" and
    "cross.o", judged by the linear maps that ran in the layers; maps whose name does not tell their
    role are left out.
    """
    names = {module: name.rpartition(".")[2] for name, module in hf_model.named_modules()}
    biased: dict[str, None] = {}  # a set that keeps its order
    for passage in passages:
        # a layer may have made one call of attention, two, or none
        for part, (inner_maps, output_map) in zip(("attn", "cross"), passage.maps, strict=False):
            for linear_map in inner_maps:
                if getattr(linear_map, "bias", None) is not None:
                    roles = projection_roles(names.get(linear_map, ""))
                    biased |= dict.fromkeys(f"{part}.{role}" for role in roles)
            if getattr(output_map, "bias", None) is not None:
                biased[f"{part}.o"] = None
    return tuple(biased)


def _check_calls(counts: Sequence[int], family: str, where: str, memory: Array | None) -> None:
    """Raise UnsupportedError where a layer calls transformers' attention another number of times
    than once, or in the decoder of an encoder-decoder twice (self- and cross-attention). A layer
    without attention, and so without calls, is no error.

    counts: how often each layer does.
    memory: the encoder's vectors for a decoder; None for another model.
    """
    usual = 1 if memory is None else 2
    odd = [count for count in counts if count not in (0, usual)]
    if not odd:
        return
    expected = message("once a layer")
    if memory is not None:
        expected = message("once for the text, once for what it reads")
    raise UnsupportedError(
        "{family} calls transformers' attention {odd} times in one layer",
        where=where,
        expected=expected,
        family=repr(family),
        odd=odd[0],
    )


def compare_attention(side: HostedSide, backend: Backend, where: str) -> bool:
    """Check attn's attention against transformers' on a test text, every layer; returns whether
    transformers shows weights before sinks take their share.

    Each attention is given the library's own queries, keys, values and mask. The text is longer
    than the model's windows, if they are short. Raises UnsupportedError for another mask, other
    values or other weights.
    """
    tokens = _different_tokens(side.hf_model)
    family = repr(side.family)
    limit = FURTHEST_APART[backend.dtype]
    masks: list[Array | None] = []  # of each call of the first run, in which attn attends
    call_numbers = count()  # of the second run, in which transformers does
    before_sinks = False

    def answer(call: Call) -> Array:
        """Keep the mask of a call of attention, and return attn's weighted sums of the values."""
        masks.append(call.visibility)
        return _attention_of(backend, call).mixed

    def compare(call: Call, mixed: Array, weights: Array | None) -> None:
        """Raise UnsupportedError where transformers' mask, mixed values or weights of a call differ
        from attn's.
        """
        nonlocal before_sinks
        number = next(call_numbers)  # calls come in the same order as in the first run
        if number >= len(masks) or not _same_mask(call.visibility, masks[number]):
            raise UnsupportedError(
                "transformers masks layer {layer} of this {family} model in a way that attn does"
                " not know",
                where=where,
                layer=call.layer,
                family=family,
            )

        block = _attention_of(backend, call)
        apart = _relative_difference(backend, block.mixed, mixed)
        if weights is not None:
            own_weights = block.stages["weights"]
            if own_weights.shape != weights.shape:
                raise UnsupportedError(
                    "the attention of layer {layer} of this {family} model gives weights of shape"
                    " {shape}",
                    where=where,
                    expected=str(list(own_weights.shape)),
                    layer=call.layer,
                    family=family,
                    shape=list(weights.shape),
                )
            # transformers may show weights before sinks take their share: then rows sum to 1
            if (
                call.sinks is not None
                and _relative_difference(backend, own_weights, weights) > limit
            ):
                own_weights = own_weights / backend.sum(own_weights, -1)
                before_sinks = True
            apart = max(apart, _relative_difference(backend, own_weights, weights))

        if not apart <= limit:  # a difference of NaN is refused, too
            raise UnsupportedError(
                "the attention of layer {layer} of this {family} model differs from transformers'"
                " own by {apart:.1g}",
                where=where,
                expected="at most {limit:g}, relative to the largest number",
                layer=call.layer,
                family=family,
                apart=apart,
                limit=limit,
            )

    forward(side, tokens, answer)
    own_attention(side, tokens, compare)
    return before_sinks


def _attention_of(backend: Backend, call: Call) -> RowBlock:
    """attn's attention on the queries, keys, values and mask of a call, all query rows at once,
    with the weights kept."""
    rule = Rule(
        scale=call.scale,
        softcap=call.softcap,
        visibility=call.visibility,
        bias=call.bias,
        sinks=call.sinks,
    )
    return attend(backend, call.q, call.k, call.v, rule, keep=("weights",))


def _token_ids(hf_model: Any) -> list[int]:
    """The last 99 ids of a model's vocabulary, or all of a smaller one, in falling order, without
    the padding id; [0] where none is left. Special tokens mostly have the first ids."""
    vocabulary = int(hf_model.get_input_embeddings().weight.shape[0])
    padding = getattr(hf_model.config.get_text_config(), "pad_token_id", None)
    last_ids = range(vocabulary - 1, max(vocabulary - 100, -1), -1)
    token_ids = [token_id for token_id in last_ids if token_id != padding]
    return token_ids or [0]


def _different_tokens(hf_model: Any) -> list[Token]:
    """A text of various tokens, longer than the model's windows where these are short."""
    config = hf_model.config.get_text_config()
    token_ids = _token_ids(hf_model)
    usual_length, wide_window = COMPARED_LENGTHS
    stated_windows = [getattr(config, key, None) for key in WINDOW_KEYS]
    # wider windows stay untested, as the text would be long
    windows = [width for width in stated_windows if isinstance(width, int) and width < wide_window]
    # some tokens more than the widest window, so that it hides keys
    length = max(usual_length, max(windows, default=0) + PROBE_TOKENS)
    # a small config's positions are not all used, as some models keep the first ones for themselves
    # (RoBERTa's begin after the padding id); of hardly any positions nothing can be spared
    position_count = getattr(config, "max_position_embeddings", None)
    if isinstance(position_count, int) and position_count > 2 * PROBE_TOKENS:
        length = min(length, position_count - PROBE_TOKENS)
    # squares of the index: ids in no regular order
    return [
        Token(index, "", token_ids[index * index % len(token_ids)], start=None, end=None)
        for index in range(length)
    ]


def _same_mask(first: Array | None, second: Array | None) -> bool:
    """Whether two visibility masks hide the same pairs; None (no mask) equals only None."""
    if first is None or second is None:
        return first is second
    return first.shape == second.shape and bool((first == second).all())


def _relative_difference(backend: Backend, array: Array, library_array: Array) -> float:
    """The largest difference of two arrays of one shape, relative to the largest of the library's
    numbers.
    """
    reference = backend.numpy(library_array)
    # 1e-30 against a division by 0
    return float(
        np.abs(backend.numpy(array) - reference).max() / max(np.abs(reference).max(), 1e-30)
    )


def _block(
    calls: Sequence[Call], config: Any, layer: int, backend: Backend, *, instead: str
) -> Block:
    """A layer's Block, from the recorded calls of its self-attention and perhaps cross-attention.

    instead: what a layer without attention does; `calls` are then those of another layer, from
        which only the sizes are taken. "" for a layer with attention.
    """
    attentions = [_attention(call, config, layer, backend) for call in calls]
    if instead:
        return Block(without_heads(attentions[0]), instead=instead)
    return Block(attentions[0], cross=attentions[1] if len(attentions) > 1 else None)


def _attention(call: Call, config: Any, layer: int, backend: Backend) -> Attention:
    """The Attention of a layer, inferred from one recorded call of the test run."""
    if call.bias is None:
        bias = None
    else:
        bias = backend.numpy(call.bias)
    q = backend.numpy(call.q)
    v = backend.numpy(call.v)
    # a layer's second attention, nth 1, looks at the other text and rotates nothing
    rotating = call.rotating and call.nth == 0
    return Attention(
        heads=int(call.q.shape[0]),
        kv_heads=int(call.k.shape[0]),
        head_dim=int(call.q.shape[-1]),
        v_dim=int(call.v.shape[-1]),
        scale=call.scale,
        softcap=call.softcap,
        mask=_visibility_mask(call, backend),
        position=position_encoding(config, layer, q, v, bias, rotating=rotating),
        sinks=call.sinks is not None,
        latent=latent_of(config, int(call.q.shape[-1])) if call.nth == 0 else None,
    )


def _visibility_mask(call: Call, backend: Backend) -> Mask:
    """The mask of an attention by its call in the test run: Causal if no query sees later keys,
    else Everywhere, as the model's own mask is applied in any case."""
    if call.visibility is None:
        return Everywhere()
    # [head or 1, query, key]: all heads of a layer are taken to have masks of one kind
    visibility = backend.numpy(call.visibility)[0]
    # one row for all queries hides no later keys
    if len(visibility) > 1 and not np.triu(visibility, 1).any():
        return Causal()
    return Everywhere()


WARNING = message(
    "run by transformers' own model, with attention computed by attn; that model's masks and "
    "positions apply, also where only a part of them, or none, is named here"
)
SINKS_WARNING = message(
    "sinks have taken their share of these weights; transformers shows them before, with rows that"
    " sum to 1"
)


class TransformersStore:
    """`Store` of a model that transformers runs and holds whole; it raises UnsupportedError for
    weights by role.
    """

    row_by_row: ClassVar[bool] = False

    def __init__(self, family: str, size: int) -> None:
        self.family = family  # for errors
        self.size = size  # bytes of all weights
        self._bytes_read = 0

    def expect(self, layers: range) -> None:
        """Does nothing but count all weights as read: they were loaded whole."""
        self._bytes_read = self.size

    def bytes_read(self) -> int:
        """The bytes of all weights once a text has run, 0 before."""
        return self._bytes_read

    def _refuse(self, *arguments: object) -> NoReturn:
        """Called in place of each method that reads weights (`embed`, `layer` and so on): always
        raises UnsupportedError."""
        raise UnsupportedError(
            "models of the family {family} run through transformers, which keeps their weights to"
            " itself",
            family=repr(self.family),
        )

    embed = embed_parts = layer = outer = _refuse


class ForeignModel(Model, frozen=True, eq=False):
    """A `Model` that transformers runs, with attention computed by attn. Changes to the mask, scale
    or soft cap in its Spec take effect in every layer.

    layers: the modules that are its layers.
    attending: those that attend.
    held_bytes: what its weights take in memory as long as it is there.
    """

    hf_model: Any = None
    layers: tuple[Any, ...] = ()
    attending: tuple[Any, ...] = ()
    held_bytes: int = 0

    @property
    def weights_in_memory(self) -> int:
        """Bytes of all weights, which transformers holds at once."""
        return self.held_bytes

    @property
    def own_layers(self) -> bool:
        """False: transformers runs the model whole, not layer by layer."""
        return False

    def compute_backend(self, count: int) -> Backend:
        """The backend that transformers' model was loaded for, whatever the text's length."""
        return self.backend

    def _run_text(
        self,
        tokens: list[Token],
        layers: Sequence[int],
        heads: Selection,
        backend: Backend,
        context: Context,
    ) -> Iterator[LayerTrace]:
        """Run the whole model and yield the traces of these layers, as `Model._run_text`. Raises
        UnsupportedError for a context with kept keys (`past`).
        """
        if context.past is not None:
            raise UnsupportedError(
                "a model that runs through transformers cannot go on from kept keys"
            )
        layer_numbers = self.spec.attending(layers)  # of the others there is no trace
        # by layer and which of its attentions it is, 0 for self-attention, 1 for cross-attention
        traces: dict[tuple[int, int], LayerTrace] = {}
        self.store.expect(range(len(self.spec.blocks)))
        # of layers that were not asked for no stage is kept and no rows are reported
        unwatched = replace(context, keep=frozenset(), on_block=None)

        def answer(call: Call) -> Array:
            """attn's mixed values for a call of attention; keeps the trace if its layer was asked
            for.
            """
            is_yielded = call.layer in layer_numbers
            trace = self._trace_call(call, context if is_yielded else unwatched)
            if is_yielded:
                traces[call.layer, call.nth] = trace
            return trace.stages["mixed"]

        passages, _ = self._forward(tokens, answer)
        passages.check_vectors(layer_numbers)
        for layer in layer_numbers:
            passage = passages.passages[layer]
            trace = self._complete_trace(passage, traces[layer, 0], nth=0)
            if (layer, 1) in traces:  # cross-attention
                cross = self._complete_trace(passage, traces[layer, 1], nth=1)
                trace = replace(trace, cross=cross)
            yield self.only(trace, heads)

    def decoder(self, source: str | Sequence[Token]) -> Model:
        """The decoder as a Model that cross-attends to what the encoder makes of `source`. A model
        without a decoder is refused, as `Model.decoder` does it.
        """
        if self.spec.decoder is None:
            return super().decoder(source)
        tokens = self.encode(source)

        # transformers runs the encoder and calls `attend` in place of each of its attentions:
        # these are computed here, and give back the weighted sums of the values
        context = self.context(tokens, self.backend)

        def attend(call: Call) -> Array:
            """The output of one attention: its heads' weighted sums of the values."""
            return self._trace_call(call, context).stages["mixed"]

        _, memory = self._forward(tokens, attend)
        tokenizer = ShiftedTokenizer(self.tokenizer, self.spec.decoder.start)
        return replace(self, spec=self.spec.decoder, tokenizer=tokenizer, memory=memory)

    def _forward(
        self, tokens: Sequence[Token], answer: Callable[[Call], Array]
    ) -> tuple[Passages, Array]:
        """Run the transformers model with `answer` called in place of attention; returns the layers
        it passed through and the last vectors, as `forward`."""
        family = self.spec.family
        device = self.backend.device
        side = HostedSide(self.hf_model, family, device, self.layers, self.attending, self.memory)
        return forward(side, tokens, answer)

    @staticmethod
    def _complete_trace(passage: Passage, trace: LayerTrace, nth: int) -> LayerTrace:
        """Add to a trace what is known only after its layer has run: the output projection, and the
        vectors that enter and leave the layer.

        passage: the layer's record.
        nth: which of the layer's attentions, 0 for self-attention, 1 for cross-attention.
        """
        # before the layer has run, "out" holds the joined heads; where an output projection was
        # noticed, these are its input, "concat", and its result is "out"
        output = passage.out[nth]
        stages = {name: array for name, array in trace.stages.items() if name != "out"}
        if output is not None:
            stages["concat"] = trace.stages["out"]
        stages["out"] = trace.stages["out"] if output is None else output

        # an input of another shape holds more than the tokens' vectors, and is left out
        hidden = passage.attention_inputs[nth]
        if hidden is not None and hidden.shape == stages["out"].shape:
            stages["hidden"] = hidden
        before = passage.entering
        after = passage.leaving
        return replace(
            trace,
            stages=stages,
            before=trace.before if before is None else before,
            leaving=trace.leaving if after is None else lambda: after,
        )

    def _trace_call(self, call: Call, context: Context) -> LayerTrace:
        """Compute the attention of a call of transformers', with the context's interventions, and
        return its trace; what enters and leaves the layer is not known yet (`_complete_trace`)."""
        kind: Kind = "self" if call.nth == 0 else "cross"
        block = self.spec.blocks[call.layer]
        changes = context.interventions.get((call.layer, kind), ())
        backend = self.backend
        # the decoder's second call in a layer is cross-attention
        if call.nth == 0 or block.cross is None:
            spec = block.attention
        else:
            spec = block.cross
        # which keys each query may see: those that neither transformers' mask nor an intervention
        # hides; None stands for all
        visibility = call.visibility
        kept_links = visible_links(
            backend, changes, spec.heads, np.arange(call.q.shape[-2]), call.k.shape[-2]
        )
        if visibility is None:
            visibility = kept_links
        elif kept_links is not None:
            visibility = kept_links & visibility
        # sinks are parameters: `array_as_is` cuts off their gradient, which
        # other threads would record
        rule = Rule(
            scale=spec.scale,
            softcap=spec.softcap,
            mask=spec.mask.bind(backend, call.q, call.k, spec.scale, spec.softcap),
            bias=call.bias,
            sinks=None if call.sinks is None else backend.array_as_is(call.sinks),
            visibility=visibility,
        )

        if context.on_block is None:
            on_block = ignore_block
        else:
            on_block = partial(context.on_block, call.layer, kind)
        square_stages, mixed, empty = compute_attention(
            backend,
            call.q,
            call.k,
            call.v,
            rule,
            rows=context.rows,
            keep=context.keep,
            on_block=on_block,
        )
        mixed = apply_interventions(backend, changes, mixed)
        stages = {"q": call.q, "k": call.k, "v": call.v, **square_stages}
        stages |= {"mixed": mixed, "out": join_heads(backend, mixed)}
        # the queries stand for what enters and leaves the layer until that is known
        return LayerTrace(
            call.layer, stages, empty_rows=empty, before=call.q, leaving=lambda: call.q
        )


def load_foreign(
    checkpoint: Checkpoint,
    family: str,
    name: str,
    tokenizer: Tokenizer,
    *,
    device: str | None,
    dtype: str,
    adapters: tuple[str, ...] = (),
) -> Model:
    """A Model that transformers runs with attention computed by attn: of any family that it knows
    and whose attention goes through its interface.

    name: the model's, for documents.
    device: None for the CPU.
    adapters: those that are merged into the weights, for documents.

    Raises as `transformers_model.build`, InputError for missing tensors, and UnsupportedError for
    attention of the library's own making.
    """
    backend = choose("torch", device=device, dtype=dtype)
    where = str(checkpoint.folder)
    register_engine()
    hf_model, lacking = build(checkpoint, family, attention=ENGINE, dtype=dtype)

    # transformers would fill these with random numbers; a pooler comes after all attention
    missing = [name for name in lacking if not name.startswith("pooler.")]
    if missing:
        what = message("tensor {missing} is missing", missing=repr(missing[0]))
        raise InputError(
            what, where=where, expected=message("every tensor of a {family} model", family=family)
        )
    hf_model = hf_model.to(backend.device)
    if not has_token_table(hf_model):
        raise UnsupportedError(
            "a model of the family {family} has no table of tokens: it reads characters by their"
            " code",
            where=where,
            expected="a model with a vocabulary",
            family=repr(family),
        )

    # short runs show the Spec: of the whole model, or of the encoder and then its decoder
    probe = probe_model(hf_model, family, backend, where)
    spec = probe.spec
    layers = probe.side.layers
    attending = probe.side.attending
    if hf_model.config.is_encoder_decoder:
        decoder_probe = probe_model(hf_model, family, backend, where, memory=probe.output)
        # where only the padding token is stated, the decoder begins with that, as T5's does
        config = checkpoint.config
        stated_start = config.get("decoder_start_token_id", config.get("pad_token_id"))
        start = stated_start if isinstance(stated_start, int) else None
        spec = replace(spec, decoder=replace(decoder_probe.spec, start=start))
        layers = (*layers, *decoder_probe.side.layers)
        attending = (*attending, *decoder_probe.side.attending)

    warnings = [*checkpoint.notes, WARNING, *spec.layer_notes()]
    if probe.streams > 1:
        warnings.append(
            message(
                "between layers each token has {streams} vectors; what enters and leaves a layer is"
                " their mean",
                streams=probe.streams,
            )
        )
    if probe.before_sinks:
        warnings.append(SINKS_WARNING)
    return ForeignModel(
        spec,
        TransformersStore(family, checkpoint.bytes_read),  # all weights are read by now
        tokenizer,
        backend,
        Identity(
            "checkpoint",
            name=name,
            family=family,
            quantization=checkpoint.quantization,
            adapters=adapters,
        ),
        warnings=tuple(warnings),
        hf_model=hf_model,
        layers=tuple(layers),
        attending=tuple(attending),
        held_bytes=held_bytes(checkpoint, dtype),
    )
