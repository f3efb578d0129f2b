"""`--expect`: what must hold of the strongest head, for scripts."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from attncli.errors import UsageError, VerdictError, refused_value
from attncli.language import listing, message
from attncli.mechanism.spec import ARROW

if TYPE_CHECKING:
    from attncli.features.find.document import FindDocument

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
CHECK = re.compile(
    r"\s*weight\s*(\(\s*(?P<start>.+?)\s*,\s*(?P<end>.+?)\s*\))?"
    r"\s*(?P<sign>[<>]=?)\s*(?P<bound>[0-9.]+(?:e-?[0-9]+)?)\s*",
    re.DOTALL,
)
"""Matches `weight(it, animal) > 0.5`, and `weight>=5e-1` without a link."""


class Expectation(Struct, frozen=True):
    """What `--expect` says.

    start, end: the link that it names; None for that of `--from` and `--to`.
    sign: of `COMPARISONS`.
    bound: what the largest weight of all heads is compared with.
    """

    start: str | None
    end: str | None
    sign: str
    bound: float

    def link(self, start: str | None, end: str | None) -> tuple[str | None, str | None]:
        """The ends of the link that is looked for: those that the check names, else `--from` and
        `--to` as they are given. Raises UsageError where both name a link, and not the same.

        start, end: `--from` and `--to`; None where they are not given.
        """
        if self.start is None:
            return start, end
        if start is None and end is None:
            return self.start, self.end
        if (start, end) != (self.start, self.end):
            raise UsageError(
                "--expect is about {link}, and --from and --to name another link",
                expected="one link, or --expect alone",
                link=_quoted_link(self.start, self.end),
            )
        return start, end

    def verdict(self, document: FindDocument) -> VerdictError | None:
        """The error that says that the check does not hold of a document's largest weight; None
        where it holds."""
        strongest = max(document.heads, key=lambda head: head.weight)
        if COMPARISONS[self.sign](strongest.weight, self.bound):
            return None
        query, key = (document.tokens[place].text for place in (document.query, document.key))
        reason = message(
            "the largest weight of {link} is {weight:.4g}, in layer {layer} head {head}",
            link=_quoted_link(query, key),
            weight=strongest.weight,
            layer=strongest.layer,
            head=strongest.head,
        )
        return VerdictError(
            reason,
            expected="{sign} {bound:g} (--expect)",
            sign=self.sign,
            bound=self.bound,
        )


def _quoted_link(query: str | None, key: str | None) -> str:
    """The name of a link in an error, its ends in the quotation marks of the reader's language."""
    return listing([repr(query), repr(key)], f" {ARROW} ")


def parse_expectation(text: str | None) -> Expectation | None:
    """Parse the check that `--expect` states; None where it is not given. Raises UsageError for a
    malformed check."""
    if text is None:
        return None
    match = CHECK.fullmatch(text)
    bound = -1.0  # out of range
    if match is not None:
        with suppress(ValueError):  # the pattern matches `1.2.3` as well
            bound = float(match["bound"])
    if match is None or not 0 <= bound <= 1:
        raise refused_value(
            "--expect",
            text,
            "'weight(FROM,TO)>X' or 'weight>X' with >, >=, < or <= and X from 0 to 1",
            hint="attn find TEXT --expect 'weight(it,animal)>0.5'",
        )
    return Expectation(match["start"], match["end"], match["sign"], bound)
