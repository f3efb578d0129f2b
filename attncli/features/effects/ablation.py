"""Ablation: heads taken away one at a time, or a link cut in each, and what the end of the model makes of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import NormalDist, fmean, stdev
from typing import Any, Literal

import numpy as np
from msgspec import UNSET, Struct
from msgspec.structs import replace

from attncli.arrays.backend import Backend
from attncli.documents.header import header, notes, tokens_of, warnings_of_sides
from attncli.errors import InputError, UnsupportedError, UsageError
from attncli.features.effects.document import (
    AblateDocument,
    AttentionKind,
    DifferenceDocument,
    DifferenceSide,
    DifferentHead,
    EffectRow,
    EffectsDocument,
    Interval,
    LinkPlace,
    Looks,
    MeanEffect,
    MeanMeasures,
    Measures,
    NamedLink,
    Reading,
    TokenPlace,
    VectorChange,
    reading_of,
    readings_of,
)
from attncli.features.effects.measures import MeasureRequest, following_tokens, target_token
from attncli.features.effects.places import HeadAddress, attentions, places
from attncli.features.effects.sweep import (
    DRAWS,
    By,
    ByResample,
    ByZero,
    CutLink,
    SweepPlan,
    SweepText,
    ablate_heads,
    ablate_heads_together,
    cut_link,
    cut_link_together,
    random_directions,
    same_length,
    sweep,
    sweep_work,
    trace_of_kind,
)
from attncli.inputs.token import Token
from attncli.inputs.word_groups import unknown_notes
from attncli.language import message
from attncli.measure.row_facts import Floats
from attncli.mechanism.spec import HeadSelection
from attncli.mechanism.trace import LayerTrace
from attncli.models.estimate import seconds_of
from attncli.models.model import Model
from attncli.version import __version__

WIDE_UP_TO = 0.1
"""Seconds more up to which float32 effects are worth computing in float64: in float32 they are off by a few millionths
of the largest."""


class Removal(Struct, frozen=True, eq=False):
    """What is taken away, and of which heads. link: cut it instead of the whole head, None for the head.

    together: only all of them at once. baseline: which rows are compared with random directions of the same size:
    "top" for the `top` largest effects.
    """

    selection: HeadSelection
    by: By = ByZero()
    link: CutLink | None = None
    together: bool = False
    baseline: Literal["top", "all", "none"] = "top"
    top: int = 10


class Effect(Struct, frozen=True):
    """What one head's removal changes. readings: by measure, NaN where undefined. weight: that the link had, the sum
    over its keys and the mean over its queries; looks: the key that the token measured at looks at most, and how much.
    random: the measures of the baseline, None where it was not drawn."""

    place: HeadAddress
    readings: dict[str, float]
    weight: float | None
    looks: tuple[int, float] | None
    random: dict[str, float] | None = None


class RemovalResult(Struct, frozen=True, eq=False):
    """What was found: an effect a head, by layer; that of all together; the target that `logprob` was about;
    what it was computed in."""

    effects: Sequence[Effect]
    together: dict[str, float]
    target: int | None
    backend: Backend


def remove(
    model: Model,
    tokens: Sequence[Token],
    removal: Removal,
    request: MeasureRequest,
    *,
    memory: int | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> RemovalResult:
    """Take heads away, one at a time and together, and measure.

    memory: bytes there may be, None for any amount. progress: the share done. Raises InputError where no chosen head
    has the link, LimitError where not even one branch fits, UnsupportedError for what this model cannot have taken away
    or measured.
    """
    refuse_foreign(model)
    refuse_hashed(model)
    if isinstance(removal.by, ByResample):
        same_length(tokens, removal.by.tokens, message("the reference"))
    kinds = {"self", "cross"} if removal.link is None else {removal.link.kind}
    chosen_places = [place for place in places(model.spec, removal.selection) if place.kind in kinds]
    if not chosen_places:
        raise InputError("no chosen head has such a link", expected="heads of the attention that the link is in")
    text = choose_backend(model, tokens, [] if removal.together else chosen_places)
    text.size(predicts=request.predicts).refuse_over(memory)
    link = removal.link
    looking = _LookReader(text, request, link)
    plan = SweepPlan(
        () if removal.together else chosen_places,
        partial(cut_link, text, link)
        if link is not None
        else lambda trace, weights, kind: ablate_heads(text, removal.by, trace, kind),
        start=0 if link is None else min(link.queries),
        joint=partial(cut_link_together, text, link, removal.selection)
        if link is not None
        else partial(ablate_heads_together, text, removal.by, removal.selection),
    )
    has_baseline = removal.baseline != "none" and not removal.together
    compared = len(chosen_places) if removal.baseline == "all" else min(removal.top, len(chosen_places))
    # of the whole work: a random change takes as long as taking the head away
    first = len(chosen_places) / (len(chosen_places) + compared * DRAWS) if has_baseline else 1.0
    swept = sweep(
        text, plan, request, memory, on_trace=looking.on_trace, on_progress=lambda share: progress(share * first)
    )
    assert swept.together is not None
    effects = [
        Effect(
            place, {name: float(column[index, 0]) for name, column in swept.readings.items()}, *looking.of_head(place)
        )
        for index, place in enumerate(plan.places)
    ]
    if has_baseline:
        ranked = [effects[index].place for index in rank_effects(effects)[:compared]]
        drawing = replace(
            plan, places=sorted(ranked, key=plan.places.index), variants=random_directions, many=DRAWS, joint=None
        )
        random = sweep(
            text, drawing, request, memory, on_progress=lambda share: progress(first + share * (1 - first))
        ).readings
        random_readings = {
            place: {name: float(column[index].mean()) for name, column in random.items()}
            for index, place in enumerate(drawing.places)
        }
        effects = [replace(effect, random=random_readings.get(effect.place)) for effect in effects]
    return RemovalResult(
        effects, {name: float(value[0]) for name, value in swept.together.items()}, swept.reader.target, text.backend
    )


def rank_effects(effects: Sequence[Effect]) -> list[int]:
    """The places of the effects, the largest by the first measure first; what is undefined comes last."""
    first = [next(iter(effect.readings.values())) for effect in effects]
    return sorted(
        range(len(effects)), key=lambda index: (np.isnan(first[index]), -abs(np.nan_to_num(first[index])), index)
    )


def choose_backend(model: Model, tokens: Sequence[Token], branches: Sequence[HeadAddress]) -> SweepText:
    """The text in the type that it is computed in: float64 for a checkpoint's float32 results where that takes little
    time more (`WIDE_UP_TO`). Documents say which (`compute_dtype`)."""
    backend = model.backend
    if backend.dtype == "float32" and model.identity.source == "checkpoint":
        work = sweep_work(model.spec, len(tokens), branches)
        if seconds_of(work, "float64") - seconds_of(work, "float32") <= WIDE_UP_TO:
            return SweepText(model, tokens, model.compute_backend(len(tokens)))
    return SweepText(model, tokens, backend)


def refuse_foreign(model: Model) -> None:
    """Raise UnsupportedError for a model whose layers cannot be run one by one."""
    if not model.own_layers:
        raise UnsupportedError(
            "models of the family {family} run through transformers, which runs them whole: effects "
            "need layers that can be run one by one, with weights by role",
            expected="a family that runs natively, as attn models list shows",
            family=repr(model.spec.family),
        )


def refuse_hashed(model: Model) -> None:
    """Raise UnsupportedError for masks that are made from each run's own vectors, where layers follow."""
    for block in model.spec.blocks[1:]:
        if any(part.depends_on == "vectors" for part in block.attention.mask.parts_of()):
            raise UnsupportedError(
                "a hash mask is made from each run's own vectors, and effects run many at once",
                expected="a mask by position, such as causal or window:W",
            )


class _LookReader:
    """Where heads look, noted while the own run goes by: the link's weight, and what the measured token looks at."""

    def __init__(self, text: SweepText, request: MeasureRequest, link: CutLink | None) -> None:
        self._text, self._link = text, link
        self._positions = request.positions
        self._by_place: dict[HeadAddress, tuple[float | None, tuple[int, float] | None]] = {}

    def on_trace(self, trace: LayerTrace) -> None:
        """Note where the heads of a layer look."""
        for kind, attention in attentions(self._text.model.spec.blocks[trace.layer]):
            stages = trace_of_kind(trace, kind).stages
            if "weights" not in stages:
                continue
            weights = np.asarray(self._text.backend.numpy(stages["weights"]), np.float64)
            for head in range(attention.heads):
                self._by_place[HeadAddress(trace.layer, kind, head)] = self._link_and_look(weights[head], kind)

    def _link_and_look(self, weights: Floats, kind: str) -> tuple[float | None, tuple[int, float] | None]:
        """As `of_head`, from one head's weights, [query, key]."""
        link, weight = self._link, None
        if link is not None and link.kind == kind:
            weight = float(weights[np.ix_(np.asarray(link.queries), np.asarray(link.keys))].sum(-1).mean())
        row = weights[list(self._positions)].mean(0)
        key = int(row.argmax())
        is_learned_key = kind == "self" and key >= self._text.count  # a key that no token stands for
        return weight, None if is_learned_key else (key, float(row[key]))

    def of_head(self, place: HeadAddress) -> tuple[float | None, tuple[int, float] | None]:
        """The weight of the link, and the key that the measured token looks at most with its weight there."""
        return self._by_place.get(place, (None, None))


# The document of `attn ablate`: what taking away each head, or a link, changes.


def ablate_document(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    removal: Removal,
    request: MeasureRequest,
    *,
    memory: int | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> AblateDocument:
    """Take heads away, or cut a link, and return the `attn.ablate/1` document. Arguments, errors: as `remove`."""
    answered = [*tokens, *following_tokens(model, tokens, request.answer[:-1])]
    if request.answer:
        if isinstance(removal.by, ByResample):
            raise UsageError(
                "the other text has no place for an answer of several tokens",
                expected="--by zero or mean, or --target of one token",
            )
        model.encode(answered)
    removed_effects = remove(model, answered, removal, request, memory=memory, progress=progress)
    predicts = "logprob" in request.measures or "kl" in request.measures
    about = removed_effects.target is not None and "logprob" in request.measures and not request.every
    return AblateDocument(
        **header(model, text, tokens, computing=removed_effects.backend),
        by=removal.by.name if removal.link is None else "knockout",
        measures=list(request.measures),
        place="mean" if len(request.positions) == len(tokens) and len(tokens) > 1 else token_place(request.positions),
        every=request.every,
        position=request.position if predicts else None,
        target=target_token(model, removed_effects.target) if about and removed_effects.target is not None else None,
        answer=[target_token(model, number) for number in request.answer] if about and request.answer else UNSET,
        link=None if removal.link is None else _link_place(removal.link, model),
        effects=[_effect_row(removed_effects.effects[index]) for index in rank_effects(removed_effects.effects)],
        together=Measures(**reading_fields(removed_effects.together)),
        warnings=notes(model, text, tokens),
    )


def token_place(places: Sequence[int]) -> TokenPlace:
    """The place of one token, or of several in a row, by their positions."""
    return TokenPlace(token=places[0], last=UNSET if len(places) == 1 else places[-1])


def _link_place(link: CutLink, model: Model) -> LinkPlace:
    """A link as the document tells it: one token alone, several as a list."""
    query, key = (ends[0] if len(ends) == 1 else list(ends) for ends in (link.queries, link.keys))
    if link.kind == "self":
        return LinkPlace(query=query, key=key)
    text = " ".join(model.source[key].text for key in link.keys) if model.source else UNSET
    return LinkPlace(query=query, key=key, attention="cross", text=text)


def _effect_row(effect: Effect) -> EffectRow:
    """The document's row of an effect."""
    return EffectRow(
        attention=effect.place.kind,
        layer=effect.place.layer,
        head=effect.place.head,
        **reading_fields(effect.readings),
        weight=effect.weight,
        looks=None if effect.looks is None else Looks(key=effect.looks[0], weight=effect.looks[1]),
        random=None if effect.random is None else Measures(**reading_fields(effect.random)),
    )


def reading_fields(readings: Mapping[str, float]) -> dict[str, Any]:
    """Readings as documents tell them: those that are undefined are null."""
    number = {name: None if math.isnan(value) else value for name, value in readings.items()}
    fields: dict[str, Any] = {name: number[name] for name in ("logprob", "kl") if name in number}
    if "cosine" in number:
        fields["vector"] = VectorChange(cosine=number["cosine"], norm=number["norm"])
    return fields


# Effects over many texts: means with intervals, and how two of them differ.

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
        MeanEffect(attention=kind, layer=layer, head=head, measures=_mean_measures(head_rows, names))
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
        together=_mean_measures([document.together for document in documents], names),
        warnings=_unique_warnings(documents),
    )


def _unique_warnings(documents: Sequence[AblateDocument]) -> list[str]:
    """The warnings of all texts, each once; of unknown words how many texts hold some."""
    notes = [unknown_notes(document.text, tokens_of(document.tokens)) for document in documents]
    document_warnings = (
        warning
        for document, note in zip(documents, notes, strict=True)
        for warning in document.warnings
        if warning not in note
    )
    unique_warnings = list(dict.fromkeys(document_warnings))
    if count := sum(map(bool, notes)):
        unknown = message(
            "{count} of {documents} texts hold words that are unknown to this model",
            count=count,
            documents=len(documents),
        )
        unique_warnings.append(unknown)
    return unique_warnings


def mean_of(effect: MeanEffect, name: Reading) -> float:
    """A head's mean of one reading; 0 where no text defines it."""
    interval_of_reading = effect.measures.mean(name)
    return 0.0 if interval_of_reading is None else interval_of_reading.mean


def _mean_measures(rows: Sequence[EffectRow] | Sequence[Measures], names: Sequence[Reading]) -> MeanMeasures:
    """Each reading's mean over these rows, with its interval."""
    values = {name: [reading_of(row, name) for row in rows] for name in names}
    return MeanMeasures(
        **{name: interval([value for value in readings if value is not None]) for name, readings in values.items()}
    )


def difference_document(a: EffectsDocument, b: EffectsDocument, names: tuple[str, str]) -> DifferenceDocument:
    """How the first measure of two documents differs, head by head. Raises InputError where they cannot be compared."""
    if a.measures[0] != b.measures[0]:
        raise InputError(
            "one document measures {measure}, the other {measure_2}",
            expected="the same --measure in both",
            measure=a.measures[0],
            measure_2=b.measures[0],
        )
    name = readings_of(a.measures)[0]
    sides = [
        {(row.attention, row.layer, row.head): mean for row in side.effects if (mean := row.measures.mean(name))}
        for side in (a, b)
    ]
    common = [key for key in sides[0] if key in sides[1]]
    if not common:
        raise InputError("the documents have no head in common", expected="two documents about the same heads")
    heads = [_head_difference(key, sides[0][key], sides[1][key]) for key in common]
    heads.sort(key=lambda head: -abs(head.difference))
    return DifferenceDocument(
        version=__version__,
        a=DifferenceSide(name=names[0], texts=a.texts, model=a.model.name),
        b=DifferenceSide(name=names[1], texts=b.texts, model=b.model.name),
        measure=name,
        heads=heads,
        warnings=warnings_of_sides(a.warnings, b.warnings),
    )


def _head_difference(key: HeadKey, a: Interval, b: Interval) -> DifferentHead:
    """How a head's mean differs between two sides, with its 95% interval.

    Source of the interval: Welch, The generalization of Student's problem, 1947.
    """
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
