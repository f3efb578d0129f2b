"""Effects over many texts: means with intervals, and how two of them differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

from attncli import __version__
from attncli.documents.header import tokens_of, warnings_of_sides
from attncli.errors import InputError
from attncli.features.ablate.document import AblateDocument, EffectRow, reading_of
from attncli.features.effects.document import (
    AttentionKind,
    DifferenceDocument,
    DifferenceSide,
    DifferentHead,
    EffectsDocument,
    Interval,
    MeanEffect,
    MeanMeasures,
    Measures,
    NamedLink,
    Reading,
    readings_of,
)
from attncli.inputs.word_groups import unknown_notes

SURE = 0.95
HeadKey = tuple[AttentionKind, int, int]


def student(freedom: float) -> float:
    """The factor of a two-sided 95% interval for so many degrees of freedom, at least 1; to 0.2%.

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
    """Mean and 95% interval of its mean over texts; None without values."""
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
    rows: dict[HeadKey, list[EffectRow]] = {}
    for document in documents:
        for row in document.effects:
            rows.setdefault((row.attention, row.layer, row.head), []).append(row)
    names = readings_of(first.measures)
    effects = [
        MeanEffect(attention=kind, layer=layer, head=head, measures=_means(head_rows, names))
        for (kind, layer, head), head_rows in rows.items()
    ]
    effects.sort(key=lambda effect: -abs(mean_of(effect, names[0])))
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
        together=_means([document.together for document in documents], names),
        warnings=_warnings(documents),
    )


def _warnings(documents: Sequence[AblateDocument]) -> list[str]:
    """The warnings of all texts, each once; of unknown words how many texts hold some."""
    notes = [unknown_notes(document.text, tokens_of(document.tokens)) for document in documents]
    document_warnings = (
        warning
        for document, note in zip(documents, notes, strict=True)
        for warning in document.warnings
        if warning not in note
    )
    count = sum(map(bool, notes))
    count_notes = [f"{count} of {len(documents)} texts hold words that are unknown to this model"] if count else []
    return [*dict.fromkeys(document_warnings), *count_notes]


def mean_of(effect: MeanEffect, name: Reading) -> float:
    """A head's mean of one reading; 0 where no text defines it."""
    interval_of_reading = effect.measures.mean(name)
    return 0.0 if interval_of_reading is None else interval_of_reading.mean


def _means(rows: Sequence[EffectRow] | Sequence[Measures], names: Sequence[Reading]) -> MeanMeasures:
    values = {name: [reading_of(row, name) for row in rows] for name in names}
    return MeanMeasures(
        **{name: interval([value for value in readings if value is not None]) for name, readings in values.items()}
    )


def difference_document(a: EffectsDocument, b: EffectsDocument, names: tuple[str, str]) -> DifferenceDocument:
    """How the first measure of two documents differs, head by head. Raises InputError where they cannot be compared."""
    if a.measures[0] != b.measures[0]:
        raise InputError(
            f"one document measures {a.measures[0]}, the other {b.measures[0]}", expected="the same --measure in both"
        )
    name = readings_of(a.measures)[0]
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
        warnings=warnings_of_sides(a.warnings, b.warnings),
    )


def _intervals(document: EffectsDocument, name: Reading) -> dict[HeadKey, Interval]:
    intervals = {
        (effect.attention, effect.layer, effect.head): effect.measures.mean(name) for effect in document.effects
    }
    return {key: value for key, value in intervals.items() if value is not None}


def _different(key: HeadKey, a: Interval, b: Interval) -> DifferentHead:
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
        attention=key[0],
        layer=key[1],
        head=key[2],
        a=a.mean,
        b=b.mean,
        difference=apart,
        low=None if half is None else apart - half,
        high=None if half is None else apart + half,
    )
