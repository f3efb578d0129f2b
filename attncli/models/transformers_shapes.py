"""The layers of a family that transformers runs, told from config.json alone.

The library's own model is built on torch's meta device, where tensors have shapes and no numbers,
and one short text goes through it. What its attentions are handed (heads, widths, scale, windows)
is what a run of the real weights would hand them. No weight is read and no memory is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from attncli.errors import InputError, UnsupportedError
from attncli.inputs.checkpoint import Checkpoint
from attncli.language import message
from attncli.mechanism.mask import Causal, Everywhere, Mask, Window
from attncli.mechanism.spec import (
    Attention,
    Block,
    Embedding,
    Rope,
    Spec,
    without_heads,
)
from attncli.models.transformers_model import (
    Passage,
    Passages,
    import_torch,
    import_transformers,
    latent_of,
    library_errors,
    library_model,
    list_members,
    mixer_name,
    note_passages,
    rope_base,
    type_count,
)

SHAPES = "attn_shapes"
"""The name under which transformers knows the attention function of this file."""
TOKENS = 3
"""Tokens of the short text; on the meta device none has a number."""
MOST_TENSORS = 200_000
"""Tensors that a config may describe; the largest models have some 10,000."""
WARNING = message(
    "told from config.json by transformers' own model, without weights; what a position adds to "
    "scores, and feed-forward parts, are not told"
)
COMPRESSED = ("index_topk", "index_head_dim", "compress_ratios", "compress_rates")
"""Keys of configs whose models keep more than keys and values while they generate."""
COMPRESSED_NOTE = message(
    "while generating, this family also keeps what its indexer or compressor needs; that is not "
    "counted as its cache"
)


class ForeignDescription(Struct, frozen=True):
    """What a config alone says of a model that transformers runs.

    parameters: how many numbers its tensors have, each counted once.
    notes: for the user.
    """

    spec: Spec
    parameters: int
    notes: tuple[str, ...]


class _ShapeCall(Struct, frozen=True, eq=False):
    """One attention as the model calls it, without numbers.

    sinks: whether the softmax has them.
    layer: the place of its layer's record among those of all modules that ran.
    rotating: whether the layer has rotated queries and keys.
    shared: the `layer` whose keys it reads, None for its own.
    """

    heads: int
    kv_heads: int
    head_dim: int
    v_dim: int
    scale: float
    softcap: float | None
    sinks: bool
    mask: Mask
    layer: int
    rotating: bool
    shared: int | None


class _ShapeRun:
    """What one run without numbers has shown so far: the calls of attention, in order, in `calls`.

    passages: the records of the layers, of which the last is the one that is running.
    """

    def __init__(self, passages: Any) -> None:
        self.passages = passages
        self.calls: list[_ShapeCall] = []
        self.masks: list[tuple[Any, Mask]] = []  # each tensor given as a mask, and what it means
        self._keys: list[tuple[Any, int]] = []  # each tensor of keys, and its layer

    def mask(self, **arguments: Any) -> Any:
        """Called in place of transformers' function that makes masks: returns a tensor without
        numbers, and remembers in `masks` which Mask it stands for.
        """
        torch: Any = import_module("torch")
        shape = (1, 1, arguments["q_length"], arguments["kv_length"])
        tensor = torch.ones(shape, dtype=torch.bool, device="meta")
        self.masks.append((tensor, _mask_of(torch, **arguments)))
        return tensor

    def attention(
        self, module: Any, query: Any, key: Any, value: Any, mask: Any, *rest: Any, **extras: Any
    ) -> tuple[Any, None]:
        """Called in place of transformers' attention: record the call, and return vectors of the
        right shape, [1, token, head, v_dim], and no weights.

        query, key, value: [1, head, token, dim], without numbers.
        mask: a tensor that `mask` has returned, or None.
        rest, extras: the library's further arguments, such as the scale of the scores.
        """
        torch: Any = import_module("torch")
        # the mask is one that this class made itself: nothing to check
        self.passages.check_attention(query, key, value, mask=None, sinks=extras.get("s_aux"))
        # handed by name, or as the first argument after the mask
        scaling = extras.get("scaling", rest[0] if rest else None)
        if scaling is None:
            scale = query.shape[-1] ** -0.5
        else:
            scale = float(scaling)
        layer = len(self.passages.passages) - 1
        current = self.passages.current
        # a layer that is handed the very keys of an earlier one shares them
        shared = next((earlier for keys, earlier in self._keys if keys is key), None)
        self._keys.append((key, layer))
        self.calls.append(
            _ShapeCall(
                heads=int(query.shape[1]),
                kv_heads=int(key.shape[1]),
                head_dim=int(query.shape[-1]),
                v_dim=int(value.shape[-1]),
                scale=scale,
                softcap=extras.get("softcap"),
                sinks=extras.get("s_aux") is not None,
                mask=self._mask_in(module, mask, extras.get("sliding_window")),
                layer=layer,
                rotating=current is not None and current.rotating,
                shared=shared,
            )
        )

        shape = (query.shape[0], query.shape[2], query.shape[1], value.shape[-1])
        mixed = torch.empty(shape, device=query.device, dtype=query.dtype)
        self.passages.note_attention(mixed.numel(), module)
        return mixed, None

    def _mask_in(self, module: Any, mask: Any, window: Any) -> Mask:
        """The mask of a call: the one remembered for this tensor, else the one that the module's
        attributes describe.

        window: how many keys a query sees, its own included; None for no window.
        """
        for tensor, meaning in self.masks:
            if tensor is mask:
                return meaning
        if not getattr(module, "is_causal", True):
            return Everywhere()
        if type(window) is int and window > 0:
            return Window(left=window - 1, right=0)
        return Causal()


def _mask_of(torch: Any, **arguments: Any) -> Mask:
    """The Mask that transformers asks for: with a window where the arguments state `local_size`,
    causal unless `mask_function` lets a query see the token after it, or there is none.

    arguments: those with which transformers calls its function that makes masks.
    """
    width = arguments.get("local_size")
    visible = arguments.get("mask_function")  # of batch, head, query and key position
    position = torch.tensor(8)  # any query position would do
    try:
        sees_next = visible is None or bool(visible(0, 0, position, position + 1))
    except Exception:  # a function of the library's own that needs more than two positions
        sees_next = False
    if type(width) is int and width > 0:
        if sees_next:
            return Window(left=width, right=width)
        return Window(left=width - 1, right=0)
    if sees_next:
        return Everywhere()
    return Causal()


_running: list[_ShapeRun] = []
"""The run that goes on; at most one, in the thread that runs it."""


def _attention(
    module: Any, query: Any, key: Any, value: Any, mask: Any, *rest: Any, **extras: Any
) -> tuple[Any, None]:
    """The attention function registered with transformers, which passes the call on to the current
    run's `attention`; arguments are the library's."""
    return _running[-1].attention(module, query, key, value, mask, *rest, **extras)


def _mask(*_: Any, **arguments: Any) -> Any:
    """The mask function registered with transformers, which passes the call on to the current run's
    `mask`."""
    return _running[-1].mask(**arguments)


def describe_foreign(checkpoint: Checkpoint, family: str) -> ForeignDescription:
    """Describe a model that transformers runs, its layers and attention, from its config alone.

    Args:
        checkpoint: Of which only `config` is looked at.
        family: Its `model_type`.

    Returns:
        The Spec by layers, without feed-forward parts, as a run of the weights would show it; and
        how many parameters there are.

    Raises:
        UnsupportedError: For a family that transformers does not know, that cannot be built from
            this config, or none of whose attention goes through transformers' interface.
        InputError: For a config of absurdly many layers or tensors.
    """
    torch = import_torch()
    transformers = import_transformers()
    masks: Any = import_module("transformers.masking_utils")
    where = str(checkpoint.folder)
    transformers.AttentionInterface.register(SHAPES, _attention)
    masks.AttentionMaskInterface.register(SHAPES, _mask)

    # transformers' own model, without numbers
    model_class, config = library_model(checkpoint, family)
    # experts in a batch: the eager form looks which of them have tokens, and here nothing can tell
    with library_errors(family, where), torch.device("meta"), _tensor_limit(torch, where):
        hf_model = model_class._from_config(
            config, attn_implementation=SHAPES, experts_implementation="batched_mm"
        ).eval()
    parameters = sum(parameter.numel() for parameter in hf_model.parameters())

    # one run of the model; for an encoder-decoder one of each, the decoder over empty vectors
    if not config.is_encoder_decoder:
        spec = _spec_of(torch, hf_model, family, where)
    else:
        memory = torch.empty((1, TOKENS, config.get_text_config().hidden_size), device="meta")
        spec = replace(
            _spec_of(torch, hf_model, family, where),
            decoder=_spec_of(torch, hf_model, family, where, memory=memory),
        )
    notes = [WARNING, *spec.layer_notes()]
    if any(checkpoint.config.get(key) is not None for key in COMPRESSED):
        notes.append(COMPRESSED_NOTE)
    return ForeignDescription(spec, parameters, tuple(notes))


@contextmanager
def _tensor_limit(torch: Any, where: str) -> Iterator[None]:
    """Context manager: raises InputError once more tensors are registered than any model has."""
    count = 0

    def register(module: Any, name: str, tensor: Any) -> None:
        """Count a tensor that a module registers. Raises InputError beyond `MOST_TENSORS`."""
        nonlocal count
        del module, name, tensor
        count += 1
        if count > MOST_TENSORS:
            what = message(
                "config.json describes a model of more than {most:,} tensors", most=count
            )
            raise InputError(what, where=where, expected="the layers and experts of a real model")

    modules = torch.nn.modules.module
    with modules.register_module_parameter_registration_hook(register):
        yield


def _spec_of(torch: Any, hf_model: Any, family: str, where: str, memory: Any = None) -> Spec:
    """The Spec of a model on the meta device, by one run of a short text; of an encoder-decoder,
    that of the encoder, or, with `memory`, of the decoder.

    memory: the encoder's vectors that a decoder attends to, [text, token, width].
    """
    config = hf_model.config.get_text_config()
    ids = torch.zeros((1, TOKENS), dtype=torch.long, device="meta")
    # the library looks into what may be attended to, which therefore has numbers
    attended = torch.ones((1, TOKENS), dtype=torch.long)
    # a record for each member of a list of modules that runs (a Passage), since any may be a layer
    passages = Passages(family, token_count=TOKENS, memory_count=TOKENS)
    hooks = note_passages(list_members(hf_model), attending=(), passages=passages)
    with torch.no_grad(), library_errors(family, where), hooks:
        run = _ShapeRun(passages)
        _running.append(run)  # where the functions registered with transformers look for it
        try:
            _forward(hf_model, ids, attended, memory)
        finally:
            _running.remove(run)
    if not run.calls:
        raise UnsupportedError(
            "no attention of this {family} model goes through transformers' interface",
            where=where,
            expected="layers that attend, whose attention the library lets others compute",
            family=repr(family),
        )

    # the layers are the members of those module lists in which some member attends
    attending = {passages.passages[call.layer].module for call in run.calls}
    layer_modules = list_members(hf_model, beside=list(attending))
    by_layer: list[tuple[Passage, list[_ShapeCall]]] = []  # each layer's record, and its calls
    layer_numbers: dict[int, int] = {}  # the number of each layer, by its place among all members
    for place, passage in enumerate(passages.passages):
        if passage.module in layer_modules:
            layer_numbers[place] = len(by_layer)
            by_layer.append((passage, [call for call in run.calls if call.layer == place]))
    # a layer without attention borrows the calls of the first one with it, for their widths
    first_calls = next(calls for _, calls in by_layer if calls)
    blocks = tuple(
        _block(
            hf_model,
            passage,
            calls or first_calls,
            config,
            layer,
            layer_numbers,
            attends=bool(calls),
        )
        for layer, (passage, calls) in enumerate(by_layer)
    )

    # some models project the table's vectors to the width of the layers
    vocabulary, width = (int(size) for size in hf_model.get_input_embeddings().weight.shape)
    first_passage, _ = by_layer[0]
    entering = first_passage.entering
    layer_width = width
    if entering is not None:
        layer_width = int(entering.shape[-1])
    embedding = Embedding(
        width=None if layer_width == width else width,
        positions=_positions(hf_model),
        types=type_count(hf_model),
    )
    return Spec(
        family=family,
        d_model=layer_width,
        vocabulary=vocabulary,
        blocks=blocks,
        embedding=embedding,
    )


def _forward(hf_model: Any, ids: Any, attended: Any, memory: Any) -> None:
    """Run a model for the calls of attention that it makes; what it returns is not needed.

    Of an encoder-decoder, the encoder alone runs, or the decoder alone where `memory` is given.

    Args:
        hf_model: transformers' model, on the meta device.
        ids: Token ids, [text, token].
        attended: Which tokens may be attended to, 1 each, [text, token]; not for a decoder.
        memory: What the encoder would have made, [text, token, width], None for no decoder run.
    """
    if memory is not None:
        outputs: Any = import_module("transformers.modeling_outputs")
        # with the fields of all other encoder outputs, and those that a decoder of experts reads
        encoder_output = outputs.MoEModelOutput(last_hidden_state=memory)
        hf_model(encoder_outputs=encoder_output, decoder_input_ids=ids, use_cache=False)
    elif hf_model.config.is_encoder_decoder:
        hf_model.get_encoder()(input_ids=ids, attention_mask=attended)
    else:
        hf_model(input_ids=ids, attention_mask=attended, use_cache=False)


def _block(
    hf_model: Any,
    passage: Passage,
    calls: list[_ShapeCall],
    config: Any,
    layer: int,
    layer_numbers: dict[int, int],
    *,
    attends: bool,
) -> Block:
    """A layer's Block, from the calls of attention that it made: self-attention, then perhaps
    cross-attention.

    calls: the layer's; those of another layer where it has no attention itself.
    attends: whether they are its own.
    layer_numbers: the number of each layer, by its index among all modules that ran.
    """
    attentions = [_attention_of(call, config, layer, layer_numbers) for call in calls]
    if not attends:
        return Block(without_heads(attentions[0]), instead=mixer_name(hf_model, passage))
    return Block(attentions[0], cross=attentions[1] if len(attentions) > 1 else None)


def _attention_of(
    call: _ShapeCall, config: Any, layer: int, layer_numbers: dict[int, int]
) -> Attention:
    """The Attention of layer `layer`, from one call of attention.

    config: transformers', for the rotary base and latent attention.
    layer_numbers: the number of each layer, by its index among all modules that ran; so the layer
        whose keys this one shares (`shared`) is named by its number, None for keys of its own.
    """
    position = None
    if call.rotating:
        position = Rope(call.head_dim, rope_base(config, layer))
    return Attention(
        heads=call.heads,
        kv_heads=call.kv_heads,
        head_dim=call.head_dim,
        v_dim=call.v_dim,
        scale=call.scale,
        softcap=call.softcap,
        mask=call.mask,
        position=position,
        sinks=call.sinks,
        latent=latent_of(config, call.head_dim),
        shared=None if call.shared is None else layer_numbers.get(call.shared),
    )


def _positions(hf_model: Any) -> Any:
    """What kind of position vectors the model adds to its embeddings: "learned" or "sinusoidal",
    None for none; judged by the names of its embedding tables, such as "wpe"."""
    torch: Any = import_module("torch")
    for name, module in hf_model.named_modules():
        short = name.rpartition(".")[2].lower()
        if isinstance(module, torch.nn.Embedding) and (
            short == "wpe" or ("position" in short and "relative" not in short)
        ):
            if "sinusoid" in type(module).__name__.lower():
                return "sinusoidal"
            return "learned"
    return None
