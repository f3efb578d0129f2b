"""Layers and heads as a caller names them: 5, [0, 3], "2-5", "L5H11", (5, 11); checked against the
model.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from numbers import Integral
from typing import Any, TypeAlias

from attncli.arrays.backend import EVERY, Selection
from attncli.errors import InputError, UsageError
from attncli.language import message
from attncli.mechanism.spec import HeadSelection, Spec, parse_head

OneHead: TypeAlias = int | str | tuple[int, int]
"""One head: its number, its name with the layer, such as "L5H11", or the layer and the head."""


NamedHeads: TypeAlias = Sequence[tuple[int, int] | str] | tuple[int, int] | str
"""Heads with their layers, one or several: "L5H11", (5, 11), "L5H11,L3H1", ["L5H11", (3, 1)]."""


def pairs_of(spec: Spec, heads: NamedHeads) -> tuple[tuple[int, int], ...]:
    """Heads that a caller names with their layers, each as a layer and a head, in the order given.

    Args:
        spec: The model's.
        heads: One or several: "L5H11", (5, 11), "L5H11,L3H1", ["L5H11", (3, 1)].

    Returns:
        A pair for each; none for none.

    Raises:
        UsageError: For a head without its layer.
        InputError: For a layer or head that is not there.
    """
    places = list(_places_or_one_pair(heads))
    pairs = tuple(place for place in places if isinstance(place, tuple))
    if len(pairs) < len(places):
        raise UsageError(
            "{selection} names heads without their layer",
            expected='"L5H11" or (5, 11), or several of either',
            selection=repr(heads)[:80],
        )
    _check_pairs(pairs, [_heads_of(spec, layer) for layer in range(len(spec.blocks))])
    return pairs


def pairs_or_all(spec: Spec, heads: NamedHeads | None) -> tuple[tuple[int, int], ...] | None:
    """As `pairs_of`; None, which is all heads, stays None."""
    if heads is None:
        return None
    return pairs_of(spec, heads)


def choose_heads_of(spec: Spec, layers: Any, heads: Any) -> HeadSelection:
    """The layers and heads that a caller names, checked against a model.

    Args:
        spec: The model's, or that of its decoder.
        layers: `EVERY`, a number, several, or a text as `--layer` takes it: "0,2-5".
        heads: The same of heads, or heads with their layers: "L5H11", (5, 11), a layer and a head,
            several of either, or a HeadSelection. [5, 11] are two heads of every layer, and so is
            (5, 11) where layers are named.

    Returns:
        Numbers in the order given, or pairs of a layer and a head.

    Raises:
        UsageError: For what chooses no layers or heads, and for heads with their layers beside
            layers.
        InputError: For a layer or head that is not there.
    """
    counts = [_heads_of(spec, layer) for layer in range(len(spec.blocks))]
    if isinstance(heads, HeadSelection):
        if heads.pairs:
            _check_pairs(heads.pairs, counts)
            return heads
        layers = heads.layers
        heads = heads.heads

    # the layers
    if layers is EVERY:
        chosen = list(range(len(counts)))
    else:
        chosen = _plain_numbers(layers)
    _check(chosen, len(counts), "layer")
    layer_numbers: Selection = EVERY if layers is EVERY else chosen
    if heads is EVERY:
        return HeadSelection(layer_numbers)

    # the heads: numbers, the same in each layer, or pairs of a layer and a head
    if layers is EVERY:
        places = list(_places_or_one_pair(heads))
    else:
        # beside layers, (5, 11) can only be two heads
        places = list(_places(heads))
    pairs = [place for place in places if isinstance(place, tuple)]
    if not pairs:
        numbers = [place for place in places if not isinstance(place, tuple)]
        # a head's number must exist in one of the layers at least; a layer without heads has 0
        attending = [counts[layer] for layer in chosen if counts[layer]]
        if attending:
            _check(numbers, max(attending), "head")
        return HeadSelection(layer_numbers, numbers)
    if layers is not EVERY:
        raise UsageError("the heads name their layers, and so does layers", expected="one of both")
    if len(pairs) < len(places):
        raise _no_choice(heads)
    _check_pairs(pairs, counts)
    return HeadSelection(pairs=tuple(pairs))


def choose_numbers(selection: Any, count: int, what: str) -> list[int]:
    """The numbers that a selection of layers or heads names, or all of them.

    Args:
        selection: `EVERY`, a number, several, or a text: "0,2-5".
        count: How many there are.
        what: "layer" or "head".

    Returns:
        Numbers from 0, in the order given.

    Raises:
        UsageError: For what chooses none.
        InputError: For one that is not there.
    """
    if selection is EVERY:
        return list(range(count))
    numbers = _plain_numbers(selection)
    _check(numbers, count, what)
    return numbers


def layer_and_heads(layer: int | None, heads: Any) -> tuple[int | None, Any]:
    """Split a choice of heads that names its layer, such as "L5H11", into the layer and the head
    numbers; a choice without a layer is returned unchanged, with `layer`. Raises UsageError for
    heads of several layers, or of another than `layer`.

    layer: the layer that is stated beside them; None for none.
    """
    if heads is EVERY:
        return layer, heads
    places = list(_places_or_one_pair(heads))
    pairs = [place for place in places if isinstance(place, tuple)]
    if not pairs:
        return layer, heads
    layers = {number for number, _ in pairs}
    if layer is not None:
        layers.add(layer)
    if len(pairs) < len(places) or len(layers) > 1:
        raise _no_choice(heads)
    # all pairs are of one layer
    return pairs[0][0], [head for _, head in pairs]


def _heads_of(spec: Spec, layer: int) -> int:
    """How many heads a layer has: the larger number where self- and cross-attention differ; those
    of the mixer where that stands in place of attention, 0 for a mixer without heads.
    """
    block = spec.blocks[layer]
    if block.instead:
        return getattr(block.mixer, "heads", 0)
    if block.cross is None:
        return block.attention.heads
    return max(block.attention.heads, block.cross.heads)


def _check_pairs(pairs: Collection[tuple[int, int]], counts: list[int]) -> None:
    """Raise InputError for a pair of a layer and a head that the model does not have.

    counts: how many heads each layer has.
    """
    for layer, head in pairs:
        _check([layer], len(counts), "layer")
        _check([head], counts[layer], "head")


def _check(numbers: Collection[int], count: int, what: str) -> None:
    """Raise InputError for a number outside 0..count-1.

    what: "layer" or "head", for the error.
    """
    for number in numbers:
        if 0 <= number < count:
            continue
        if what == "layer":
            fault = message("there is no layer {number}", number=number)
            expected = message("0 to {last} ({count} layers)", last=count - 1, count=count)
        else:
            fault = message("there is no head {number}", number=number)
            expected = message("0 to {last} ({count} heads)", last=count - 1, count=count)
        raise InputError(fault, expected=expected)


def _plain_numbers(selection: Any) -> list[int]:
    """The numbers of a selection of layers. Raises UsageError for what holds others."""
    places = list(_places(selection))
    if any(isinstance(place, tuple) for place in places):
        raise _no_choice(selection)
    return [place for place in places if not isinstance(place, tuple)]


def _places_or_one_pair(selection: Any) -> Iterator[int | tuple[int, int]]:
    """Each number, or pair of a layer and a head, of a selection of heads. As `_places`, but a
    tuple of two numbers, (5, 11), is one pair and not two numbers. Raises UsageError for others."""
    if isinstance(selection, tuple) and len(selection) == 2 and all(map(_is_number, selection)):
        yield from _places([selection])
    else:
        yield from _places(selection)


def _places(selection: Any) -> Iterator[int | tuple[int, int]]:
    """Each number, or pair of a layer and a head, of a selection. Raises UsageError for others."""
    if _is_number(selection):
        yield int(selection)
        return
    if isinstance(selection, str):
        yield from _places_of_text(selection, selection)
        return
    if isinstance(selection, bytes) or not isinstance(selection, Collection):
        raise _no_choice(selection)
    for item in selection:
        if _is_number(item):
            yield int(item)
        elif isinstance(item, str):
            yield from _places_of_text(item, selection)
        elif isinstance(item, tuple) and len(item) == 2 and all(map(_is_number, item)):
            layer, head = item
            yield int(layer), int(head)
        else:
            raise _no_choice(selection)


def _places_of_text(text: str, selection: Any) -> Iterator[int | tuple[int, int]]:
    """Yield each number, or pair of a layer and a head, of a selection written as text, such as
    "0,2-5" or "L5H11,L3H1".

    selection: the whole selection, for errors.
    """
    for part in text.split(","):
        if pair := parse_head(part):
            yield pair
        elif match := re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part.strip()):
            first, last = (int(end) for end in (match[1], match[2] or match[1]))
            if first > last:
                raise _no_choice(selection)
            yield from range(first, last + 1)
        else:
            raise _no_choice(selection)


def _is_number(value: object) -> bool:
    """Whether a value is a whole number, NumPy's too, and not a truth value."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _no_choice(selection: object) -> UsageError:
    """The error, returned and not raised, for a selection that names no layers or heads."""
    return UsageError(
        "{selection} chooses no layers or heads",
        expected='a number from 0, several, or heads by name: 5, [0, 3], range(4), "L5H11", (5, 11)',
        selection=repr(selection)[:80],
    )
