"""Attention on a region weighed up or down: what `--weigh REGION=×4` means.

Source: Zhang et al., Tell your model where to attend, 2023 (arXiv 2311.02262).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from attncli.documents import PlacedHead
from attncli.documents.parts import Weighed
from attncli.errors import InputError, UsageError
from attncli.inputs.regions import Region, region_tokens
from attncli.inputs.token import Token, choose_token, find_span, ignore, note_first
from attncli.language import message
from attncli.mechanism.context import Intervention, Interventions, Kind, Weigh
from attncli.mechanism.spec import Spec

MOST = 100.0
"""The largest factor."""
FACTOR = r"[×xX*]?\s*(?P<factor>[0-9]+(?:\.[0-9]*)?|\.[0-9]+|[0-9]+/[0-9]+)"
"""Matches `×4`, `x0.5`, `.25` or `1/4`."""
WEIGHING = re.compile(rf"(?P<name>.+)=\s*{FACTOR}")
"""Matches `system=×4`."""


class Weighing(Struct, frozen=True):
    """Keys whose weights are multiplied, and in which heads, (layer, head); None for all.

    name: what the keys are called.
    keys: their positions, ascending.
    factor: 0 to `MOST`.
    """

    name: str
    keys: tuple[int, ...]
    factor: float
    heads: tuple[tuple[int, int], ...] | None = None

    def interventions(self, spec: Spec) -> Interventions:
        """The interventions that multiply the weights in each layer's self-attention, by (layer,
        "self"), as a run takes them."""
        by_layer: dict[int, list[int]] = {}
        for layer, head in self._heads_of(spec):
            by_layer.setdefault(layer, []).append(head)
        changes: dict[tuple[int, Kind], Sequence[Intervention]] = {}
        for layer, numbers in by_layer.items():
            changes[layer, "self"] = (Weigh(tuple(numbers), self.keys, self.factor),)
        return changes

    def _heads_of(self, spec: Spec) -> Sequence[tuple[int, int]]:
        """The heads, (layer, head), all of the model where none are named."""
        if self.heads is not None:
            return self.heads
        return [
            (layer, head)
            for layer in spec.attending()
            for head in range(spec.blocks[layer].attention.heads)
        ]

    def part(self) -> Weighed:
        """The document's part on the weighing: the name and positions of the keys, the factor, and
        the heads."""
        heads = None
        if self.heads is not None:
            heads = [PlacedHead(layer=layer, head=head) for layer, head in self.heads]
        return Weighed(name=self.name, keys=list(self.keys), factor=self.factor, heads=heads)


def weighing_notes(weighing: Weighing | None) -> list[str]:
    """The warning that attention was weighed by hand, such as ×4 on a region (`--weigh`), and that
    the model does not run so by itself; none without a weighing."""
    if weighing is None:
        return []
    places = {"name": repr(weighing.name), "factor": f"{weighing.factor:g}"}
    if weighing.heads is None:
        return [
            message(
                "attention on {name} is weighed ×{factor}: the model does not run so by itself",
                **places,
            )
        ]
    return [
        message(
            "attention on {name} is weighed ×{factor} in some heads: the model does not run so by"
            " itself",
            **places,
        )
    ]


def find_weighing(
    text: str,
    tokens: Sequence[Token],
    regions: Sequence[Region] = (),
    *,
    heads: Sequence[tuple[int, int]] | None = None,
    note: Callable[[str], None] = ignore,
) -> Weighing:
    """Parse a value of `--weigh`, such as "system=×4", and find the keys in a text that it weighs.

    Args:
        text: The name of a region or a word of the text, "=", and a factor from 0 to `MOST`, with or
            without × before it, also as a fraction.
        tokens: Those of the text.
        regions: Those that may be named.
        heads: In which heads, (layer, head); None for all.
        note: Called with a sentence that says what an ambiguous name was read as.

    Raises:
        UsageError: For what has no factor, or one out of range.
        InputError: For what names no token, and where nothing else is left to look at.
    """
    parts = WEIGHING.fullmatch(text.strip())
    factor = _factor_of(parts, text)
    assert parts is not None  # what does not match has no factor, which was refused
    name = parts["name"].strip()
    # no `note` here: it would say whether a region is summed or averaged, and here each of its keys
    # is weighed by itself
    keys = region_tokens(regions, name)
    if keys is None:
        keys = _named_keys(tokens, name, note)
    if len(keys) >= len(tokens):
        what = message("{name} is the whole text: weighed against nothing", name=repr(name))
        raise InputError(what, expected="a region that leaves other tokens")
    chosen = None
    if heads is not None:
        chosen = tuple(dict.fromkeys(heads))
    return Weighing(name, tuple(keys), factor, chosen)


def read_factor(text: str) -> float:
    """The factor of a value of `--weigh` without a name before it, such as "×4". Raises UsageError
    as `find_weighing`."""
    return _factor_of(re.fullmatch(FACTOR, text.strip()), text)


def _factor_of(parts: re.Match[str] | None, text: str) -> float:
    """The factor in a value of `--weigh`.

    parts: the value as `WEIGHING` or `FACTOR` matched it; None where it did not match.
    text: the value, for the error.

    Raises UsageError where there is no factor, and for one that is out of range.
    """
    factor = None
    if parts is not None:
        factor = _factor(parts["factor"])
    if factor is None or factor > MOST:
        what = message("--weigh is {value}", value=repr(text))
        expected = message("NAME=×FACTOR, the factor from 0 to {most:g}", most=MOST)
        raise UsageError(what, expected=expected, hint="--weigh 'document=×4'")
    return factor


def _named_keys(tokens: Sequence[Token], name: str, note: Callable[[str], None]) -> tuple[int, ...]:
    """The positions of the tokens that a name stands for.

    note: called with a sentence that says which of several fitting places was taken.
    """
    span = find_span(tokens, name)
    if span.stop - span.first == 1:
        return (choose_token(tokens, name, note),)
    note_first(span, name, note)
    return tuple(range(span.first, span.stop))


def _factor(text: str) -> float | None:
    """The number that a factor is written as; None for a fraction by 0."""
    above, _, below = text.partition("/")
    if not below:
        return float(above)
    if float(below):
        return float(above) / float(below)
    return None
