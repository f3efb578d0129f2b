"""Ablation: heads taken away one at a time, or a link cut in each, and what the end of the model
makes of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean, stdev
from typing import Any, Literal

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.arrays.backend import Backend
from attncli.documents import TokenRow
from attncli.documents.header import header, notes, token_rows, tokens_of, warnings_of_sides
from attncli.errors import InputError, UnsupportedError, UsageError
from attncli.features.cross.compute import states
from attncli.features.effects.document import (
    AblateDocument,
    AttentionKind,
    Difference,
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
    Predictions,
    Reading,
    TokenPlace,
    VectorChange,
    reading_of,
    readings_of,
)
from attncli.features.effects.measures import MeasureRequest, Meter
from attncli.features.effects.places import HeadAddress, places, reads_on
from attncli.features.effects.predictions import predictions
from attncli.features.effects.sweep import (
    DRAWS,
    By,
    ByResample,
    ByZero,
    CutLink,
    LastVectors,
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
from attncli.features.effects.targets import (
    following_tokens,
    predicts_next,
    small_note,
    target_token,
    target_tokens,
)
from attncli.inputs.token import Token, covered_text
from attncli.inputs.word_groups import token_notes
from attncli.language import message
from attncli.measure.rest import resting_keys
from attncli.measure.row_facts import Bools, Floats
from attncli.measure.student import student
from attncli.mechanism.spec import HeadSelection, attentions
from attncli.mechanism.trace import LayerTrace
from attncli.models.estimate import seconds_of
from attncli.models.model import Model
from attncli.version import __version__

WIDE_UP_TO = 0.1
"""Seconds more up to which float32 effects are worth computing in float64: in float32 they are off
by a few millionths of the largest."""


class Removal(Struct, frozen=True, eq=False):
    """What `remove` takes away: the heads of `selection` each replaced as `by` says, or, with
    `link`, only that link cut in each of them (None: the whole head).

    together: only all of them at once.
    baseline: which rows are compared with random directions of the same size: "top" for the `top`
        largest effects.
    hold: whether it is measured a second time while every head attends as in the unchanged run.
    start: the first token that a change touches.
    """

    selection: HeadSelection
    by: By = ByZero()
    link: CutLink | None = None
    together: bool = False
    baseline: Literal["top", "all", "none"] = "top"
    top: int = 10
    hold: bool = False
    start: int = 0


class Effect(Struct, frozen=True):
    """How the measures change when one head is taken away or its link cut.

    readings: the change by measure, NaN where undefined.
    weight: the link's in the unchanged run, summed over its keys and averaged over its queries,
        None without a link.
    looks: (key position, weight) that the measured token attends to most.
    looks_beyond_rest: the same without keys where heads rest, UNSET where nothing rests.
    random: the same changes for random directions of the same size, averaged; None where none were
        drawn.
    random_logprob: what these make of the target's log-probability, where that was read too.
    holding: the same changes while every head attends as in the unchanged run; None where that was
        not measured.
    """

    place: HeadAddress
    readings: dict[str, float]
    weight: float | None
    looks: tuple[int, float] | None
    looks_beyond_rest: tuple[int, float] | UnsetType | None = UNSET
    random: dict[str, float] | None = None
    random_logprob: float | None = None
    holding: dict[str, float] | None = None


class RemovalResult(Struct, frozen=True, eq=False):
    """What `remove` returns: one `Effect` per head in the order of layers, the readings with all
    heads changed at once, the vocabulary id whose log-probability was measured (None: none), and
    the backend that computed it.

    holding: `together` while every head attends as in the unchanged run.
    m_clean: the difference of two logits in the unchanged run, None where it is not measured.
    plan: what the sweep changed.
    vectors: what leaves the last layer at `MeasureRequest.position`, None where that is no token of
        those measured.
    """

    effects: Sequence[Effect]
    together: dict[str, float]
    target: int | None
    text: SweepText
    plan: SweepPlan
    holding: dict[str, float] | None = None
    m_clean: float | None = None
    vectors: LastVectors | None = None

    @property
    def backend(self) -> Backend:
        """The backend that computed the runs."""
        return self.text.backend


def remove(
    model: Model,
    tokens: Sequence[Token],
    removal: Removal,
    request: MeasureRequest,
    *,
    memory: int | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> RemovalResult:
    """Take heads away (or cut a link in them), one at a time and all at once, and return how the
    requested measures change.

    memory: bytes there may be, None for any amount.
    progress: the share done.

    Raises InputError where no chosen head has the link, LimitError where not even one branch fits,
    UnsupportedError for what this model cannot have taken away or measured.
    """
    refuse_foreign(model)
    refuse_hashed(model)
    if isinstance(removal.by, ByResample):
        same_length(tokens, removal.by.tokens, message("the reference"))
    chosen_places = _chosen_places(model, removal)
    text = text_for_sweep(model, tokens, [] if removal.together else chosen_places)
    text.size(predicts=request.predicts).refuse_over(memory)
    looking = _LookReader(text, request, removal.link)
    plan = _removal_plan(text, removal, chosen_places)

    # the share of the progress that each sweep takes, by its branches (runs of the text with one
    # change): a random change costs as much as taking the head away
    has_baseline = removal.baseline != "none" and not removal.together
    compared = len(chosen_places)
    if removal.baseline != "all":
        compared = min(removal.top, compared)
    branches = len(chosen_places) * (1 + removal.hold)
    if has_baseline:
        branches += compared * DRAWS
    first_share = len(chosen_places) / branches  # of the first sweep

    # the heads taken away; where the token after which the next is predicted is among those
    # measured, its vectors are kept, so that predictions need no second sweep
    rows = request.rows(text.count)
    keep_at = None
    if rows.start <= request.position < rows.stop:
        keep_at = request.position
    swept = sweep(
        text,
        plan,
        request,
        memory,
        keep_at=keep_at,
        on_trace=looking.on_trace,
        on_progress=lambda share: progress(share * first_share),
    )
    assert swept.together is not None  # the plan has the joint change
    effects = []
    for index, place in enumerate(plan.places):
        readings = _readings_of(swept.readings, index)
        effects.append(Effect(place, readings, *looking.of_head(place)))

    # the largest effects again, with random directions of the same size
    if has_baseline:
        ranked = [effects[index].place for index in rank_effects(effects)[:compared]]
        drawing = replace(
            plan,
            places=sorted(ranked, key=plan.places.index),
            variants=random_directions,
            many=DRAWS,
            joint=None,
        )
        random = sweep(
            text,
            drawing,
            _random_request(request),
            memory,
            on_progress=lambda share: progress(first_share + share * compared * DRAWS / branches),
        ).readings
        for index, place in enumerate(drawing.places):
            means = {name: float(column[index].mean()) for name, column in random.items()}
            number = plan.places.index(place)  # effects stand in this order
            effects[number] = _with_random(effects[number], means, request)

    # the heads taken away once more, while every head attends as in the unchanged run
    held_together: dict[str, float] | None = None
    if removal.hold:
        held_sweep = sweep(
            text,
            replace(plan, hold=True),
            request,
            memory,
            # the last sweep, so its share lies at the end
            on_progress=lambda share: progress(1 - (1 - share) * len(chosen_places) / branches),
        )
        assert held_sweep.together is not None
        held_together = {name: float(value[0]) for name, value in held_sweep.together.items()}
        for index, effect in enumerate(effects):
            readings = _readings_of(held_sweep.readings, index)
            effects[index] = replace(effect, holding=readings)

    m_clean = None
    if isinstance(swept.reader, Meter):
        m_clean = swept.reader.m_clean
    return RemovalResult(
        effects=effects,
        # the joint change is one branch: one value of each measure
        together={name: float(value[0]) for name, value in swept.together.items()},
        target=swept.reader.target,
        text=text,
        plan=plan,
        holding=held_together,
        m_clean=m_clean,
        vectors=swept.vectors,
    )


def _random_request(request: MeasureRequest) -> MeasureRequest:
    """What is measured of random changes: what was asked for, and beside a difference of two logits
    the target's log-probability, because the answer tells its probability too."""
    is_measured = "difference" not in request.measures or "logprob" in request.measures
    if is_measured or request.every:
        return request
    return replace(request, measures=(*request.measures, "logprob"))


def _with_random(effect: Effect, means: dict[str, float], request: MeasureRequest) -> Effect:
    """The effect beside what random changes of its size do.

    means: of `_random_request`, the mean over the draws by name.
    """
    own = {name: means[name] for name in readings_of(request.measures)}
    return replace(effect, random=own, random_logprob=means.get("logprob"))


def _readings_of(readings: Mapping[str, Floats], branch: int) -> dict[str, float]:
    """The number of each measure for one changed head, by name.

    readings: of a sweep that changes each head in one way: each [head, 1].
    branch: the head's index.
    """
    return {name: float(column[branch, 0]) for name, column in readings.items()}


def _chosen_places(model: Model, removal: Removal) -> list[HeadAddress]:
    """The heads to take away, or to cut the link in. Raises InputError where there are none."""
    if removal.link is None:
        kinds = {"self", "cross"}
    else:
        kinds = {removal.link.kind}
    chosen = [place for place in places(model.spec, removal.selection) if place.kind in kinds]
    if not chosen:
        raise InputError(
            "no chosen head has such a link", expected="heads of the attention that the link is in"
        )
    return chosen


def _removal_plan(text: SweepText, removal: Removal, heads: Sequence[HeadAddress]) -> SweepPlan:
    """The plan by which a sweep takes these heads away, or cuts the link in them: one at a time
    (where only all together are asked for, none), and all at once."""
    if removal.together:
        heads = ()
    link = removal.link
    if link is not None:
        return SweepPlan(
            heads,
            partial(cut_link, text, link),
            start=min(link.queries),  # tokens before it stay as they are in a decoder
            joint=partial(cut_link_together, text, link, removal.selection),
        )
    return SweepPlan(
        heads,
        lambda trace, weights, kind: ablate_heads(text, removal.by, trace, kind),
        start=removal.start,
        joint=partial(ablate_heads_together, text, removal.by, removal.selection),
    )


def rank_effects(effects: Sequence[Effect]) -> list[int]:
    """The indices of the effects in the list, by the size of their first measure, largest first;
    undefined (NaN) ones come last."""

    def order(index: int) -> tuple[bool, float, int]:
        """Sort NaN last, the others by size, and equal sizes as they come."""
        value, *_ = effects[index].readings.values()  # the first measure's
        return math.isnan(value), -abs(float(np.nan_to_num(value))), index

    return sorted(range(len(effects)), key=order)


def text_for_sweep(
    model: Model, tokens: Sequence[Token], branches: Sequence[HeadAddress]
) -> SweepText:
    """A text with the model and the backend that a sweep runs it in: float64 where a float32
    checkpoint needs at most `WIDE_UP_TO` seconds more for it, else the model's own.

    branches: the heads of which each costs a run of its own.
    """
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
            "models of the family {family} run through transformers, which runs them whole: effects"
            " need layers that can be run one by one, with weights by role",
            expected="a family that runs natively, as attn models list shows",
            family=repr(model.spec.family),
        )


def refuse_hashed(model: Model) -> None:
    """Raise UnsupportedError where a layer after the first has a mask computed from the run's own
    vectors (hash attention), which differs from one changed run to the next."""
    for block in model.spec.blocks[1:]:
        if any(part.depends_on == "vectors" for part in block.attention.mask.parts_of()):
            what = message(
                "a hash mask is made from each run's own vectors, and effects run many at once"
            )
            raise UnsupportedError(what, expected="a mask by position, such as causal or window:W")


HeadLook = tuple[float | None, tuple[int, float] | None, tuple[int, float] | UnsetType | None]
"""Where a head looks in the unchanged run: the weight of the link that is cut, None without one
there; (key, weight) of the key that the measured tokens attend to most, None for a learned key; the
same among the keys that are not resting keys (the first token and special tokens, on which heads
put weight when they look for nothing), None where all weight is on those, UNSET where the text has
none."""


class _LookReader:
    """Records from the unchanged run, per head, the weight of the link and the key that the
    measured tokens attend to most."""

    def __init__(self, text: SweepText, request: MeasureRequest, link: CutLink | None) -> None:
        """Prepare to record the heads of a text's run.

        request: at which tokens is measured.
        link: the link whose weight is recorded; None for none.
        """
        self._text = text
        self._link = link
        self._positions = request.positions
        self._rest = resting_keys(text.tokens, text.model.identity.source)  # booleans [token]
        self._by_place: dict[HeadAddress, HeadLook] = {}

    def on_trace(self, trace: LayerTrace) -> None:
        """Record link weight and strongest key of each head of a layer from the layer's trace;
        called once a layer.
        """
        for kind, attention in attentions(self._text.model.spec.blocks[trace.layer]):
            stages = trace_of_kind(trace, kind).stages
            if "weights" not in stages:
                continue
            weights = np.asarray(self._text.backend.numpy(stages["weights"]), np.float64)
            for head in range(attention.heads):
                self._by_place[HeadAddress(trace.layer, kind, head)] = self._link_and_look(
                    weights[head], kind
                )

    def _link_and_look(self, weights: Floats, kind: str) -> HeadLook:
        """The `HeadLook` of one head from its weights, [query, key]: the weight of the cut link,
        then, each as (key, weight), what the measured tokens look at most, and what most besides
        resting keys (the first token and special tokens). The last is UNSET where the text has no
        resting keys, and for attention to another text.

        kind: "self", or "cross" for attention to another text.
        """
        link = self._link
        weight = None
        if link is not None and link.kind == kind:
            weight = float(
                weights[np.ix_(np.asarray(link.queries), np.asarray(link.keys))].sum(-1).mean()
            )
        row = weights[list(self._positions)].mean(0)
        key = int(row.argmax())
        # learned keys, which no token stands for, come after those of the tokens
        is_learned_key = kind == "self" and key >= self._text.count
        looks = None
        if not is_learned_key:
            looks = (key, float(row[key]))
        if kind != "self" or not self._rest.any():
            return weight, looks, UNSET
        return weight, looks, look_beyond_rest(row, self._rest)

    def of_head(self, place: HeadAddress) -> HeadLook:
        """What `on_trace` recorded of a head; no weights where its layer kept none."""
        return self._by_place.get(place, (None, None, UNSET))


def look_beyond_rest(row: Floats, rest: Bools) -> tuple[int, float] | None:
    """The key that gets most of a row's weight among tokens that are not resting keys (the first
    token and special tokens, on which heads put weight when they look for nothing), and that
    weight; None where resting keys have all of it.

    row: weights [key], perhaps of learned keys behind the tokens.
    rest: which tokens are resting keys, booleans [token].
    """
    other_weights = np.where(rest, 0.0, row[: len(rest)])
    key = int(other_weights.argmax())
    if other_weights[key] > 0:
        return (key, float(other_weights[key]))
    return None


# The document of `attn ablate`: what taking away each head, or a link, changes.


def removal_document(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    removal: Removal,
    request: MeasureRequest,
    *,
    predict: bool = True,
    memory: int | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> AblateDocument:
    """Take heads away (or cut a link in them), one at a time and all at once, and return what that
    changes as the `attn.ablate/1` document.

    removal: which heads or which link, and what replaces a head's output.
    request: what is measured, and at which tokens.
    predict: whether the document also has what a decoder would say next.
    memory: bytes there may be, None for any amount.
    progress: called with the share done.

    Raises UsageError for an answer of several tokens with outputs of another text, InputError where
    no chosen head has the link, LimitError where not even one branch fits, UnsupportedError for
    what this model cannot have taken away or measured.
    """
    # an answer of several tokens is read along, all but its last token, which nothing follows
    answered = [*tokens, *following_tokens(model, tokens, request.answer[:-1])]
    if request.answer:
        if isinstance(removal.by, ByResample):
            what = message("the other text has no place for an answer of several tokens")
            raise UsageError(what, expected="--how zero or mean, or --target of one token")
        model.encode(answered)  # refuses a text that is too long with its answer
    removed_effects = remove(model, answered, removal, request, memory=memory, progress=progress)
    target = removed_effects.target
    # of vectors, of all that may follow and of every token there is no one target to name
    is_about_target = (
        target is not None
        and bool({"logprob", "difference"} & set(request.measures))
        and not request.every
    )
    is_whole_text = len(request.positions) == len(tokens) and len(tokens) > 1
    order = rank_effects(removed_effects.effects)
    return AblateDocument(
        **header(model, text, tokens, computing=removed_effects.backend),
        by=removal.by.name if removal.link is None else "knockout",
        measures=list(request.measures),
        place="mean" if is_whole_text else token_place(request.positions),
        every=request.every,
        position=request.position if request.predicts else None,
        # `is not None` is for the type alone
        target=target_token(model, target) if is_about_target and target is not None else None,
        answer=(
            target_tokens(model, request.answer) if is_about_target and request.answer else UNSET
        ),
        versus=UNSET if request.versus is None else target_token(model, request.versus),
        m_clean=UNSET if removed_effects.m_clean is None else removed_effects.m_clean,
        predictions=_predictions(removed_effects, order, request, memory) if predict else UNSET,
        link=None if removal.link is None else _link_place(removal.link, model),
        effects=[_effect_row(removed_effects.effects[index]) for index in order],
        together=Measures(**reading_fields(removed_effects.together, removed_effects.holding)),
        source_tokens=source_token_rows(model),
        warnings=[
            *notes(model, text, tokens),
            *small_note(model, request.expectation),
            *_held_notes(model, removal),
        ],
    )


def _predictions(
    result: RemovalResult, order: Sequence[int], request: MeasureRequest, memory: int | None
) -> Predictions | UnsetType:
    """What would come next without the head of the largest effect, and without all heads; UNSET for
    a model or a measure that is not about the next token.

    order: the indices of the effects, the largest first.
    memory: bytes there may be, None for any amount.
    """
    spec = result.text.model.spec
    is_next = request.position == result.text.count - 1 or request.predicts
    if not reads_on(spec) or request.every or request.answer or not is_next:
        return UNSET
    if not predicts_next(result.text.model):
        return UNSET
    target = None  # a measure of vectors has no target: the own run's first choice is shown
    if request.predicts:
        target = request.target
    places = list(order)  # none where only all at once was measured
    vectors = result.vectors
    # the sweep kept the vectors of every changed run, or the next token is read in a second sweep,
    # with the strongest head alone
    has_all_heads = vectors is not None
    if vectors is None:  # measured at other tokens than the one after which the next comes
        strongest = [result.plan.places[place] for place in order[:1]]
        plan = replace(result.plan, places=strongest)
        position = request.position
        at_position = MeasureRequest(("vector",), (position,), position)
        vectors = sweep(result.text, plan, at_position, memory, keep_at=position).vectors
        places = list(range(len(strongest)))  # the only head of the second sweep
    assert vectors is not None
    next_tokens = predictions(result.text, vectors, places, target, of_heads=has_all_heads)
    # beside a difference of two logits, what random changes make of the target's log-probability
    if "difference" not in request.measures or not order:
        return next_tokens
    random = result.effects[order[0]].random_logprob
    if random is None:
        return next_tokens
    return replace(next_tokens, random=random)


def _held_notes(model: Model, removal: Removal) -> list[str]:
    """The warning that attention alone is held at the unchanged run's weights, in a model whose
    other mixers move information between tokens, too; empty where there is nothing to warn of."""
    has_mixers = any(block.mixer is not None for block in model.spec.blocks)
    if not (removal.hold and has_mixers):
        return []
    return [message("attention is held; what mixers carry from token to token is not")]


def source_tokens(model: Model) -> list[Token]:
    """The tokens that cross-attention attends to: those of the source text, or s0, s1, … for
    captured encoder states; none where nothing else is read."""
    if model.source or model.memory is None:
        return list(model.source)
    return states(model.memory.shape[-2])


def source_token_rows(model: Model) -> list[TokenRow] | UnsetType:
    """The tokens of `source_tokens` as rows of a document; UNSET where there are none."""
    rows = token_rows(source_tokens(model))
    if not rows:
        return UNSET
    return rows


def token_place(places: Sequence[int]) -> TokenPlace:
    """The document's `TokenPlace` of consecutive token positions: the first, and the last where
    there are several.
    """
    if len(places) == 1:
        return TokenPlace(token=places[0], last=UNSET)
    return TokenPlace(token=places[0], last=places[-1])


def _link_place(link: CutLink, model: Model) -> LinkPlace:
    """The document's `LinkPlace` of a cut link: a position where an end is one token, a list where
    it is several. A link to another text also has the words of its keys, where that text is known.
    """
    query = link.queries[0] if len(link.queries) == 1 else list(link.queries)
    key = link.keys[0] if len(link.keys) == 1 else list(link.keys)
    if link.kind == "self":
        return LinkPlace(query=query, key=key)
    text: str | UnsetType = UNSET
    if model.source:
        text = covered_text([model.source[position] for position in link.keys])
    return LinkPlace(query=query, key=key, attention="cross", text=text)


def _effect_row(effect: Effect) -> EffectRow:
    """Convert an `Effect`, whose `looks` are (key, weight), to the `EffectRow` that the document
    holds."""
    return EffectRow(
        attention=effect.place.kind,
        layer=effect.place.layer,
        head=effect.place.head,
        **reading_fields(effect.readings, effect.holding),
        weight=effect.weight,
        looks=None if effect.looks is None else Looks(key=effect.looks[0], weight=effect.looks[1]),
        looks_beyond_rest=look_part(effect.looks_beyond_rest),
        random=None if effect.random is None else Measures(**reading_fields(effect.random)),
    )


def look_part(key_weight: tuple[int, float] | UnsetType | None) -> Looks | UnsetType | None:
    """Convert (key position, weight) to the `Looks` that documents hold; None and UNSET stay."""
    if key_weight is UNSET or key_weight is None:
        return key_weight
    return Looks(key=key_weight[0], weight=key_weight[1])


def reading_fields(
    readings: Mapping[str, float], holding: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Convert readings by name ("cosine", "norm", "logprob", "kl", "difference") to the keyword
    fields of `Measures`, NaN as None.

    holding: the same while every head attends as in the unchanged run: the effect of what the head
        writes itself, without that of attention that moves because of it. None if not measured.
    """
    number = {name: None if math.isnan(value) else value for name, value in readings.items()}
    fields: dict[str, Any] = {name: number[name] for name in ("logprob", "kl") if name in number}
    if "cosine" in number:
        fields["vector"] = VectorChange(cosine=number["cosine"], norm=number["norm"])
    if "difference" in number:
        # all that is lost, the part that the head writes itself, and the rest, which comes of
        # attention that moves
        whole = readings["difference"]
        fields["difference"] = Difference(
            all=number["difference"],
            writes=UNSET if holding is None else holding["difference"],
            moved=UNSET if holding is None else whole - holding["difference"],
        )
    return fields


# Effects over many texts: means with intervals, and how two of them differ.

HeadKey = tuple[AttentionKind, int, int]
LEAST: Mapping[Reading, float] = {
    "cosine": 0.0,
    "norm": 0.0,
    "logprob": -math.inf,
    "kl": 0.0,
    "difference": -math.inf,
}
"""The smallest value of each reading: a size is never below 0."""


def interval(values: Sequence[float], least: float = -math.inf) -> Interval | None:
    """Mean of one value per text with its 95% interval; None without values, and without ends for a
    single one.

    least: the smallest value that there can be, below which no interval goes.

    The interval is Student's t, mean ± t·s/√n: it is defined from two texts on, and
    `_head_difference` computes the error of a mean back from its upper end. Where the values lean to
    one side it holds the true mean less often than 95 times in 100; `measure/mean_intervals.py`,
    which measures means over pairs otherwise, says how often.
    """
    if not values:
        return None
    mean = fmean(values)
    if len(values) == 1:
        return Interval(mean=mean, low=None, high=None, texts=1)
    half = student(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    low = max(mean - half, min(mean, least))  # `min`: rounding may leave the mean below `least`
    return Interval(mean=mean, low=low, high=mean + half, texts=len(values))


def effects_document(
    documents: Sequence[AblateDocument], place: str, link: tuple[str, str] | None
) -> EffectsDocument:
    """Average the `attn.ablate/1` documents of several texts into one `attn.effects/1`.

    place, link: the token measured at and the (query, key) cut, as the words that name them in
        every text; link None: whole heads.

    The documents are of one call: they have the same model and measures. Heads are ranked by the
    first of the numbers that are measured.

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
        MeanEffect(
            attention=kind, layer=layer, head=head, measures=_mean_measures(head_rows, names)
        )
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
    """The warnings of all texts, each once; those about unknown words are merged into one that
    counts the texts.
    """
    # notes about unknown words name the words of their text: they are counted, not listed
    word_notes = [token_notes(document.text, tokens_of(document.tokens)) for document in documents]
    other_warnings = (  # of all texts, without those notes
        warning
        for document, notes in zip(documents, word_notes, strict=True)
        for warning in document.warnings
        if warning not in notes
    )
    unique_warnings = list(dict.fromkeys(other_warnings))
    count = sum(1 for notes in word_notes if notes)
    if count:
        unknown = message(
            "{count} of {documents} texts hold words that are unknown to this model",
            count=count,
            documents=len(documents),
        )
        unique_warnings.append(unknown)
    return unique_warnings


def mean_of(effect: MeanEffect, name: Reading) -> float:
    """The mean over texts of one measure's number for a head, such as "cosine"; 0 where no text
    defines it.
    """
    reading = effect.measures.mean(name)
    if reading is None:
        return 0.0
    return reading.mean


def _mean_measures(
    rows: Sequence[EffectRow] | Sequence[Measures], names: Sequence[Reading]
) -> MeanMeasures:
    """The mean over these rows, one per text, of each number in `names`, with its 95% interval."""
    intervals: dict[str, Interval | None] = {}
    for name in names:
        readings = [reading_of(row, name) for row in rows]
        numbers = [value for value in readings if value is not None]
        intervals[name] = interval(numbers, LEAST[name])
    return MeanMeasures(**intervals)


def difference_document(
    a: EffectsDocument, b: EffectsDocument, names: tuple[str, str]
) -> DifferenceDocument:
    """How the mean of the first measure differs between two `attn.effects/1` documents, b − a, head
    by head.

    names: what a and b are called.

    Raises InputError where measures differ or no head is in both.
    """
    if a.measures[0] != b.measures[0]:
        what = message(
            "one document measures {measure}, the other {measure_2}",
            measure=a.measures[0],
            measure_2=b.measures[0],
        )
        raise InputError(what, expected="the same --measure in both")
    name = readings_of(a.measures)[0]
    means_a = _means_by_head(a, name)
    means_b = _means_by_head(b, name)
    common = [key for key in means_a if key in means_b]
    if not common:
        raise InputError(
            "the documents have no head in common", expected="two documents about the same heads"
        )
    heads = [_head_difference(key, means_a[key], means_b[key]) for key in common]
    heads.sort(key=lambda head: -abs(head.difference))
    return DifferenceDocument(
        version=__version__,
        a=DifferenceSide(name=names[0], texts=a.texts, model=a.model.name),
        b=DifferenceSide(name=names[1], texts=b.texts, model=b.model.name),
        measure=name,
        heads=heads,
        warnings=warnings_of_sides(a.warnings, b.warnings),
    )


def _means_by_head(document: EffectsDocument, name: Reading) -> dict[HeadKey, Interval]:
    """The mean over texts of one reading by head, without the heads of which no text defines it."""
    means: dict[HeadKey, Interval] = {}
    for row in document.effects:
        mean = row.measures.mean(name)
        if mean is not None:
            means[row.attention, row.layer, row.head] = mean
    return means


def _head_difference(key: HeadKey, a: Interval, b: Interval) -> DifferentHead:
    """One head's difference of means, b − a, with its 95% interval (Welch); without ends where one
    of the means has none.

    key: (attention, layer, head).

    Source of the interval: Welch, The generalization of Student's problem, 1947.
    """
    apart = b.mean - a.mean
    half = None
    if a.high is not None and b.high is not None:
        # squared standard errors, back from the upper end, mean + t·error
        square_a = ((a.high - a.mean) / student(a.texts - 1)) ** 2
        square_b = ((b.high - b.mean) / student(b.texts - 1)) ** 2
        # the degrees of freedom of the difference, by Welch's formula
        divisor = square_a**2 / (a.texts - 1) + square_b**2 / (b.texts - 1)
        freedom = math.inf  # where neither mean varies
        if divisor:
            freedom = (square_a + square_b) ** 2 / divisor
        half = student(freedom) * math.sqrt(square_a + square_b)
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
