"""The layers of a model of transformers' own while it runs: what enters and leaves each, and what its attention adds.

A layer is a member of the outermost list of modules that holds a module which attends; the members that attend to
nothing (recurrences, convolutions, feed-forward parts) count as layers, too. Layers are numbered as they run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from attncli.arrays.backend import Array


class Passage:
    """One layer as it runs, filled in on the way.

    entering, leaving: [token, width]. streams: how many vectors a token has between layers; of several, both are the
    mean. rotating: whether it was handed the angles of a rotary embedding. out: what the output projection made of
    its attention's heads, by call, None where no projection was seen. attention_inputs: what each attention was given,
    [token, width]. awaited_count: how many numbers the next projection is to take.
    """

    def __init__(self, module: Any, entering: Array | None, *, streams: int, rotating: bool) -> None:
        self.module = module
        self.entering = entering
        self.streams = streams
        self.rotating = rotating
        self.leaving: Array | None = None
        self.out: list[Array | None] = []
        self.attention_inputs: list[Array | None] = []
        self.awaited_count: int | None = None


class Passages:
    """The passages of one run, in order, and the modules that attended."""

    def __init__(self) -> None:
        self.passages: list[Passage] = []
        self.attending: dict[Any, None] = {}
        self._depth = 0
        self._attention_input: Array | None = None

    def enter(self, module: Any, entering: Array | None, *, streams: int, rotating: bool) -> None:
        """A layer begins, or a member of a list within one."""
        if self._depth == 0:
            self.passages.append(Passage(module, entering, streams=streams, rotating=rotating))
        self._depth += 1

    def leave(self, leaving: Array | None) -> None:
        """What began last ends."""
        self._depth -= 1
        if self._depth == 0:
            self.passages[-1].leaving = leaving

    @property
    def current(self) -> Passage | None:
        """The layer that runs; None outside all layers."""
        return self.passages[-1] if self._depth else None

    def take(self, vectors: Array | None) -> None:
        """A module that attends begins with these vectors."""
        self._attention_input = vectors

    def note_attention(self, numbers: int, module: Any) -> None:
        """The current layer's attention has made mixed values, so many numbers: the next projection takes them."""
        self.attending[module] = None
        if self.current is not None:
            self.current.out.append(None)
            self.current.attention_inputs.append(self._attention_input)
            self.current.awaited_count = numbers

    def note_projection(self, input_count: int, output: Array) -> None:
        """A linear map ran; whether it is the one awaited is told by how many numbers it took."""
        passage = self.current
        if passage is not None and passage.awaited_count == input_count:
            passage.out[-1], passage.awaited_count = output.reshape((-1, output.shape[-1])), None


def members(hf_model: Any) -> tuple[Any, ...]:
    """Every module that stands in a list of modules: what may be a layer."""
    torch: Any = import_module("torch")
    lists = [module for module in hf_model.modules() if isinstance(module, torch.nn.ModuleList)]
    return tuple(dict.fromkeys(member for module_list in lists for member in module_list))


def beside(hf_model: Any, attending: Sequence[Any]) -> tuple[Any, ...]:
    """The members of the lists that these modules stand in."""
    torch: Any = import_module("torch")
    modules: dict[Any, None] = {}
    for module in hf_model.modules():
        if isinstance(module, torch.nn.ModuleList) and any(member in attending for member in module):
            modules |= dict.fromkeys(module)
    return tuple(modules)


@contextmanager
def passing(layers: Sequence[Any], attending: Sequence[Any]) -> Iterator[Passages]:
    """Within, what these layers take and give is noted, and what the modules that attend take."""
    torch: Any = import_module("torch")
    passages = Passages()

    def before(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        rotating = kwargs.get("position_embeddings") is not None
        entering, streams = _vectors(torch, (*args, kwargs.get("hidden_states")), kwargs.values())
        passages.enter(module, entering, streams=streams, rotating=rotating)

    def taking(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        passages.take(_vectors(torch, (*args, kwargs.get("hidden_states")), kwargs.values())[0])

    def after(module: Any, args: Any, output: Any) -> None:
        passages.leave(_vectors(torch, output if isinstance(output, (tuple, list)) else (output,))[0])

    def any_module(module: Any, args: Any, output: Any) -> None:
        weight = getattr(module, "weight", None)
        matrix = weight is not None and torch.is_tensor(weight) and weight.ndim == 2
        linear = matrix and not isinstance(module, torch.nn.Embedding)
        if linear and args and torch.is_tensor(args[0]) and torch.is_tensor(output):
            passages.note_projection(args[0].numel(), output)

    handles: list[Any] = [torch.nn.modules.module.register_module_forward_hook(any_module)]
    for module in attending:
        handles.append(module.register_forward_pre_hook(taking, with_kwargs=True))
    for layer in layers:
        handles.append(layer.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(layer.register_forward_hook(after))
    try:
        yield passages
    finally:
        for handle in handles:
            handle.remove()


def _vectors(torch: Any, first: Iterable[Any], then: Iterable[Any] = ()) -> tuple[Array | None, int]:
    """The vectors of the tokens, [token, width], by the first floats among these, and how many there are for each.

    Stored with a batch of one before; several for each token, [batch, token, stream, width] or [stream, batch, token,
    width], as their mean. then: looked through where the first hold none, for one vector per token.
    """
    for value in first:
        if torch.is_tensor(value) and value.is_floating_point() and value.ndim in (2, 3, 4):
            if value.ndim < 4:
                return (value[0] if value.ndim == 3 else value), 1
            return (value[0].mean(1), value.shape[2]) if value.shape[0] == 1 else (value[:, 0].mean(0), value.shape[0])
    for value in then:
        if torch.is_tensor(value) and value.is_floating_point() and value.ndim in (2, 3):
            return (value[0] if value.ndim == 3 else value), 1
    return None, 1
