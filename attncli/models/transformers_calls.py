"""What stands in place of attention in a model of transformers' own while it runs.

A function registered with the library's attention interface takes the queries, keys, values, mask and scale that the
model made, and hands back what it is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from threading import get_ident
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from attncli.arrays.backend import Array
from attncli.errors import InputError, UnsupportedError
from attncli.inputs.token import Token
from attncli.models import transformers_model as library
from attncli.models.transformers_model import Passages, library_errors, passing

if TYPE_CHECKING:
    from attncli.arrays.torch_backend import Tensor

ENGINE = "attn_stages"

HARMLESS = ("s_aux", "position_bias", "position_ids", "cache_position", "indices")
"""The tensors beside queries, keys, values and mask that are used, or that change nothing in attention itself."""


class Call(Struct, frozen=True):
    """What the model hands to one attention: q [head, query, dim], k and v [kv, key, dim].

    visibility: booleans that broadcast to [head, query, key], None where all is visible. bias: what is added to the
    scores, floats that broadcast likewise, None where nothing is.
    layer: the number of the layer that calls; nth: of its calls, from 0. rotating: whether angles were handed along.
    """

    q: Array
    k: Array
    v: Array
    visibility: Array | None
    bias: Array | None
    scale: float
    softcap: float | None
    sinks: Array | None
    layer: int
    nth: int
    rotating: bool


Answer = Callable[[Call], Array]
"""What stands for attention: a call to the mixed values [head, query, v_dim]."""

Watch = Callable[[Call, Array, Array | None], None]
"""What is told of each call that the library answers itself: the call, its mixed values [head, query, v_dim], and its
weights [head, query, key] where it gives them."""


def register() -> None:
    """Make the library know `ENGINE`."""
    transformers = library.import_transformers()
    transformers.AttentionInterface.register(ENGINE, _outside)
    masks: Any = import_module("transformers.masking_utils")
    masks.AttentionMaskInterface.register(ENGINE, masks.eager_mask)


def forward(
    hf_model: Any,
    modules: tuple[Sequence[Any], Sequence[Any]],
    family: str,
    tokens: Sequence[Token],
    answer: Answer,
    device: str,
    memory: Array | None = None,
) -> tuple[Passages, Array]:
    """Run one side of a model with `answer` in place of attention; what passed, and what it gives.

    modules: the modules that are its layers, and those that attend. memory: what a decoder looks back at, [token,
    width]; None for an encoder or a decoder alone. Raises InputError for a token outside the embedding,
    UnsupportedError for whatever the library raises.
    """
    return _run(hf_model, modules, family, tokens, partial(_in_place_of_attention, answer), device, memory)


def own_attention(
    theirs: Any,
    looked_at: tuple[Sequence[Any], Sequence[Any]],
    family: str,
    tokens: Sequence[Token],
    watch: Watch,
    device: str,
    memory: Array | None = None,
) -> None:
    """Run one side of a model eagerly with the library's own attention, `watch` looking on. Arguments, errors: as
    `forward`."""
    theirs.set_attn_implementation("eager")
    try:
        _run(theirs, looked_at, family, tokens, partial(_beside_attention, watch), device, memory)
    finally:
        theirs.set_attn_implementation(ENGINE)


def _run(
    theirs: Any,
    looked_at: tuple[Sequence[Any], Sequence[Any]],
    family: str,
    tokens: Sequence[Token],
    attending: Callable[[Passages], AbstractContextManager[None]],
    device: str,
    memory: Array | None,
) -> tuple[Passages, Array]:
    torch: Any = import_module("torch")
    ids = [token.id for token in tokens]
    if any(code is None or not 0 <= code < theirs.get_input_embeddings().weight.shape[0] for code in ids):
        raise InputError("a token is outside the embedding", expected="a tokenizer that belongs to this checkpoint")
    id_tensor = torch.tensor([ids], device=device)
    _as_before_any_text(theirs)
    with torch.no_grad(), library_errors(family, ""), passing(*looked_at) as passages, attending(passages):
        if memory is not None:
            outputs: Any = import_module("transformers.modeling_outputs")
            encoder_output = outputs.MoEModelOutput(
                last_hidden_state=memory[None]
            )  # what a router said is asked for of some
            out = theirs(encoder_outputs=encoder_output, decoder_input_ids=id_tensor, use_cache=False)
        elif theirs.config.is_encoder_decoder:
            out = theirs.get_encoder()(input_ids=id_tensor)
        else:
            out = theirs(input_ids=id_tensor, use_cache=False)
        return passages, out.last_hidden_state[0]


def _as_before_any_text(theirs: Any) -> None:
    """Give dynamic rotary embeddings their first frequencies back, which the library stretches to the longest text so
    far: what a text gives must not depend on those before."""
    for module in theirs.modules():
        trained = getattr(module, "original_max_seq_len", None)
        if trained is not None:
            for name, first in list(module.named_buffers(recurse=False)):
                if name.endswith("original_inv_freq"):
                    kind = name.removesuffix("original_inv_freq")
                    setattr(module, f"{kind}inv_freq", first.clone())  # some are written into
                    setattr(module, f"{kind}max_seq_len_cached", trained)


_answering: ContextVar[tuple[Answer, Passages]] = ContextVar("answering")
"""What stands for attention in the run that goes on, and its layers."""


@contextmanager
def _in_place_of_attention(answer: Answer, passages: Passages) -> Iterator[None]:
    token = _answering.set((answer, passages))
    try:
        yield
    finally:
        _answering.reset(token)


@contextmanager
def _beside_attention(watch: Watch, passages: Passages) -> Iterator[None]:
    """Within, the library's eager attention is watched. It is a function of each model's own file, so that it is met
    where models ask for it."""
    torch: Any = import_module("torch")
    interface: Any = type(import_module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS)
    usual, running = interface.get_interface, get_ident()

    def get_interface(functions: Any, name: str, default: Callable[..., Any]) -> Callable[..., Any]:
        eager = usual(functions, name, default)
        if get_ident() != running:  # another thread's model
            return eager

        def observe(module: Any, *args: Any, **extras: Any) -> Any:
            out = eager(module, *args, **extras)
            call = _call(passages, *args, **extras)
            mixed: Tensor = out[0][0].permute(1, 0, 2)
            weights = [tensor[0] for tensor in out[1:2] if torch.is_tensor(tensor) and tensor.ndim == 4]
            watch(call, mixed, weights[0] if weights else None)
            passages.note_attention(mixed.numel(), module)
            return out

        return observe

    interface.get_interface = get_interface
    try:
        yield
    finally:
        interface.get_interface = usual


def _outside(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **extras: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in place of attention: tensors [batch, head, token, dim] of one text."""
    answer, passages = _answering.get()
    mixed: Tensor = answer(_call(passages, query, key, value, attention_mask, scaling, **extras))
    passages.note_attention(mixed.numel(), module)
    return mixed.permute(1, 0, 2)[None].contiguous(), None


def _call(
    passages: Passages,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    *_: Any,
    **extras: Any,
) -> Call:
    """What a model hands to its attention. Raises UnsupportedError for a tensor that attn has no use for."""
    torch: Any = import_module("torch")
    visibility, bias = None, None
    others = [name for name, value in extras.items() if torch.is_tensor(value) and name not in HARMLESS]
    if others:
        raise UnsupportedError(f"this model's attention makes use of {others[0]!r}, which attn does not know")
    if attention_mask is not None:
        whole = attention_mask[0, :, :, : key.shape[-2]]
        visibility = whole > torch.finfo(whole.dtype).min / 2  # the library hides with the lowest number there is
        rest = whole.masked_fill(~visibility, 0.0)
        bias = rest if bool(rest.any()) else None
        visibility = None if bool(visibility.all()) else visibility
    if extras.get("indices") is not None:  # the keys that each query chose, [batch, query, choice]
        among = torch.zeros((1, query.shape[-2], key.shape[-2]), dtype=torch.bool, device=query.device)
        among = among.scatter(-1, extras["indices"][:1].long(), True)
        visibility = among if visibility is None else visibility & among
    if extras.get("position_bias") is not None:
        bias = extras["position_bias"][0] if bias is None else bias + extras["position_bias"][0]
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    layer, nth = len(passages.passages) - 1, 0 if passages.current is None else len(passages.current.out)
    rotating = passages.current is not None and passages.current.rotating
    return Call(
        query[0],
        key[0],
        value[0],
        visibility,
        bias,
        scale,
        extras.get("softcap"),
        extras.get("s_aux"),
        layer,
        nth,
        rotating,
    )
