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

    entered, left: [token, width]. streams: how many vectors a token has between layers; of several, both are the mean.
    rotating: whether it was handed the angles of a rotary embedding. out: what the
    output projection made of its attention's heads, by call, None where no projection was seen. given: what
    each attention was given, [token, width]. awaited: how many numbers the next projection is to take.
    """

    def __init__(self, module: Any, entered: Array | None, *, streams: int, rotating: bool) -> None:
        self.module = module
        self.entered = entered
        self.streams = streams
        self.rotating = rotating
        self.left: Array | None = None
        self.out: list[Array | None] = []
        self.given: list[Array | None] = []
        self.awaited: int | None = None


class Passages:
    """The passages of one run, in order, and the modules that attended."""

    def __init__(self) -> None:
        self.made: list[Passage] = []
        self.attending: dict[Any, None] = {}
        self._depth = 0
        self._given: Array | None = None

    def enter(self, module: Any, entered: Array | None, *, streams: int, rotating: bool) -> None:
        """A layer begins, or a member of a list within one."""
        if self._depth == 0:
            self.made.append(Passage(module, entered, streams=streams, rotating=rotating))
        self._depth += 1

    def leave(self, left: Array | None) -> None:
        """What began last ends."""
        self._depth -= 1
        if self._depth == 0:
            self.made[-1].left = left

    @property
    def current(self) -> Passage | None:
        """The layer that runs; None outside all layers."""
        return self.made[-1] if self._depth else None

    def take(self, given: Array | None) -> None:
        """A module that attends begins with these vectors."""
        self._given = given

    def attended(self, numbers: int, module: Any) -> None:
        """The current layer's attention has made mixed values, so many numbers: the next projection takes them."""
        self.attending[module] = None
        if self.current is not None:
            self.current.out.append(None)
            self.current.given.append(self._given)
            self.current.awaited = numbers

    def projected(self, taken: int, made: Array) -> None:
        """A linear map ran; whether it is the one awaited is told by how many numbers it took."""
        passage = self.current
        if passage is not None and passage.awaited == taken:
            passage.out[-1], passage.awaited = made.reshape((-1, made.shape[-1])), None


def members(theirs: Any) -> tuple[Any, ...]:
    """Every module that stands in a list of modules: what may be a layer."""
    torch: Any = import_module("torch")
    lists = [module for module in theirs.modules() if isinstance(module, torch.nn.ModuleList)]
    return tuple(dict.fromkeys(member for one in lists for member in one))


def beside(theirs: Any, attending: Sequence[Any]) -> tuple[Any, ...]:
    """The members of the lists that these modules stand in."""
    torch: Any = import_module("torch")
    found: dict[Any, None] = {}
    for module in theirs.modules():
        if isinstance(module, torch.nn.ModuleList) and any(member in attending for member in module):
            found |= dict.fromkeys(module)
    return tuple(found)


@contextmanager
def passing(layers: Sequence[Any], attending: Sequence[Any]) -> Iterator[Passages]:
    """Within, what these layers take and give is noted, and what the modules that attend take."""
    torch: Any = import_module("torch")
    passages = Passages()

    def before(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        rotating = kwargs.get("position_embeddings") is not None
        entered, streams = _vectors(torch, (*args, kwargs.get("hidden_states")), kwargs.values())
        passages.enter(module, entered, streams=streams, rotating=rotating)

    def taking(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        passages.take(_vectors(torch, (*args, kwargs.get("hidden_states")), kwargs.values())[0])

    def after(module: Any, args: Any, output: Any) -> None:
        passages.leave(_vectors(torch, output if isinstance(output, (tuple, list)) else (output,))[0])

    def any_module(module: Any, args: Any, output: Any) -> None:
        weight = getattr(module, "weight", None)
        matrix = weight is not None and torch.is_tensor(weight) and weight.ndim == 2
        linear = matrix and not isinstance(module, torch.nn.Embedding)
        if linear and args and torch.is_tensor(args[0]) and torch.is_tensor(output):
            passages.projected(args[0].numel(), output)

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
    for one in first:
        if torch.is_tensor(one) and one.is_floating_point() and one.ndim in (2, 3, 4):
            if one.ndim < 4:
                return (one[0] if one.ndim == 3 else one), 1
            return (one[0].mean(1), one.shape[2]) if one.shape[0] == 1 else (one[:, 0].mean(0), one.shape[0])
    for one in then:
        if torch.is_tensor(one) and one.is_floating_point() and one.ndim in (2, 3):
            return (one[0] if one.ndim == 3 else one), 1
    return None, 1
