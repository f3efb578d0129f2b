"""Effects over many texts: means with intervals, and how two of them differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

from msgspec import UNSET

from attncli import __version__
from attncli.analysis.documents.ablate import AblateDocument, EffectRow
from attncli.analysis.documents.difference import DifferenceDocument, DifferenceSide, DifferentHead
from attncli.analysis.documents.effects import EffectsDocument, Interval, MeanEffect, MeanMeasures, Measures, NamedLink
from attncli.errors import InputError

SURE = 0.95
NAMES = ("cosine", "norm", "logprob", "kl")


def student(freedom: float) -> float:
    """The factor of a two-sided 95 % interval for so many degrees of freedom, at least 1; to 0.2 %.

    Exact for 1 and 2; above, by the expansion around the normal quantile. Source: Fisher and Cornish, The percentile
    points of distributions having known cumulants, 1960.
    """
    if freedom <= 1:
        return math.tan(math.pi * SURE / 2)
    if freedom <= 2:
        return SURE * math.sqrt(2 / (1 - SURE**2))
    z = NormalDist().inv_cdf((1 + SURE) / 2)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def interval(values: Sequence[float]) -> Interval | None:
    """Mean and 95 % interval of its mean over texts; None without values."""
    if not values:
        return None
    mean = fmean(values)
    if len(values) == 1:
        return Interval(mean=mean, low=None, high=None, texts=1)
    half = student(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Interval(mean=mean, low=mean - half, high=mean + half, texts=len(values))


def effects_document(documents: Sequence[AblateDocument], place: str, link: tuple[str, str] | None) -> EffectsDocument:
    """The `attn.effects/1` document of several texts' effects. place, link: as words named them in every text.

    Raises InputError for no text.
    """
    if not documents:
        raise InputError("there is no text", expected="at least one line")
    first = documents[0]
    rows: dict[tuple[str, int, int], list[EffectRow]] = {}
    for document in documents:
        for row in document.effects:
            rows.setdefault((row.attention, row.layer, row.head), []).append(row)
    effects = [
        MeanEffect(attention=found[0].attention, layer=found[0].layer, head=found[0].head, measures=_means(found))
        for found in rows.values()
    ]
    name = "cosine" if first.measures[0] == "vector" else first.measures[0]
    effects.sort(key=lambda effect: -abs(mean_of(effect, name)))
    return EffectsDocument(
        version=__version__,
        texts=len(documents),
        model=first.model,
        attention=first.attention,
        by=first.by,
        measures=first.measures,
        place=place,
        link=None if link is None else NamedLink(query=link[0], key=link[1]),
        effects=effects,
        together=_means([document.together for document in documents]),
        warnings=list(dict.fromkeys(said for document in documents for said in document.warnings)),
    )


def mean_of(effect: MeanEffect, name: str) -> float:
    """A head's mean of one measure; 0 where no text defines it."""
    found = getattr(effect.measures, name)
    return found.mean if isinstance(found, Interval) else 0.0


def _means(rows: Sequence[EffectRow] | Sequence[Measures]) -> MeanMeasures:
    found: dict[str, Interval | None] = {}
    for name in NAMES:
        values = [_value(row, name) for row in rows]
        if values[0] is not UNSET:
            found[name] = interval([value for value in values if isinstance(value, float)])
    return MeanMeasures(**found)


def _value(row: EffectRow | Measures, name: str) -> object:
    if name in ("cosine", "norm"):
        return UNSET if row.vector is UNSET else getattr(row.vector, name)
    return getattr(row, name)


def difference_document(a: EffectsDocument, b: EffectsDocument, names: tuple[str, str]) -> DifferenceDocument:
    """How the first measure of two documents differs, head by head. Raises InputError where they cannot be compared."""
    if a.measures[0] != b.measures[0]:
        raise InputError(
            f"one document measures {a.measures[0]}, the other {b.measures[0]}", expected="the same --measure in both"
        )
    name = "cosine" if a.measures[0] == "vector" else a.measures[0]
    sides = [_intervals(side, name) for side in (a, b)]
    common = [key for key in sides[0] if key in sides[1]]
    if not common:
        raise InputError("the documents have no head in common", expected="two documents about the same heads")
    heads = [_different(key, sides[0][key], sides[1][key]) for key in common]
    heads.sort(key=lambda head: -abs(head.difference))
    return DifferenceDocument(
        version=__version__,
        a=DifferenceSide(name=names[0], texts=a.texts, model=a.model.name),
        b=DifferenceSide(name=names[1], texts=b.texts, model=b.model.name),
        measure=name,
        heads=heads,
        warnings=list(dict.fromkeys((*a.warnings, *b.warnings))),
    )


def _intervals(document: EffectsDocument, name: str) -> dict[tuple[str, int, int], Interval]:
    found = {(one.attention, one.layer, one.head): getattr(one.measures, name) for one in document.effects}
    return {key: value for key, value in found.items() if isinstance(value, Interval)}


def _different(key: tuple[str, int, int], a: Interval, b: Interval) -> DifferentHead:
    """Source of the interval: Welch, The generalization of Student's problem, 1947."""
    apart = b.mean - a.mean
    errors = [None if side.high is None else (side.high - side.mean) / student(side.texts - 1) for side in (a, b)]
    half = None
    if errors[0] is not None and errors[1] is not None:
        squares = [error * error for error in errors if error is not None]
        below = sum(square * square / (side.texts - 1) for square, side in zip(squares, (a, b), strict=True))
        freedom = sum(squares) ** 2 / below if below else float("inf")
        half = student(freedom) * math.sqrt(sum(squares))
    return DifferentHead(
        attention="cross" if key[0] == "cross" else "self",
        layer=key[1],
        head=key[2],
        a=a.mean,
        b=b.mean,
        difference=apart,
        low=None if half is None else apart - half,
        high=None if half is None else apart + half,
    )
