"""The screen of `attn.regions/1`: the regions, what the answer loses most first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp

from msgspec import UNSET, UnsetType

from attncli.draw.columns import Column, column_table
from attncli.draw.lines import Lines, sentences
from attncli.draw.numbers import format_fixed, format_signed, percent
from attncli.draw.screen_header import header, shown_tokens
from attncli.draw.sentence import not_learned_note
from attncli.draw.token_names import quote_text, region_name, rest_names_among
from attncli.draw.view import Parts, ScreenPart, View, never
from attncli.features.effects.difference_answer import token_shares
from attncli.features.regions.document import RegionEffect, RegionsDocument
from attncli.inputs.token import joined_text
from attncli.language import message, plural, say
from attncli.measure.rest import is_learned

LITTLE = 0.01
"""A change in nats below which nothing is said to be lost."""


def regions_rows(document: RegionsDocument) -> Iterator[Sequence[object]]:
    """Yield the table for `--plain`, names of columns first: a row for each region."""
    is_held = any(effect.writes is not UNSET for effect in document.effects)
    names = ["region", "tokens", "logprob", "change"]
    if is_held:
        names += ["held", "moved"]
    yield names
    for effect in document.effects:
        region = document.regions[effect.region]
        row = [region.name, len(region.tokens), effect.logprob, effect.change]
        if is_held:
            row += [_measured_or_none(effect.writes), _measured_or_none(effect.moved)]
        yield row


def _effect_table(document: RegionsDocument, view: View) -> Lines:
    """A table with a row for each region: the log probability of the answer without the links to
    it, its change, and a bar of what is lost, none where the change is not known.
    """
    greatest = max((-(effect.change or 0.0) for effect in document.effects), default=0.0)

    def loss(effect: RegionEffect) -> float:
        """What the answer loses without the region, as a share of the greatest loss, 0 to 1; 0
        where it gains or the change is not known."""
        if greatest <= 0:
            return 0.0
        return max(-(effect.change or 0.0), 0.0) / greatest

    columns: list[Column[RegionEffect]] = [
        Column(message("region"), lambda row: _region_text(document, row, view), align="left"),
        Column("tokens", lambda row: f"{len(document.regions[row.region].tokens):,}"),
        Column(message("log probability"), lambda row: _number_or_dash(row.logprob, plus=False)),
        Column("change", lambda row: _number_or_dash(row.change)),
    ]
    # with --hold attention the change is told in two parts: "held", what is left of it while every
    # head attends as in the unchanged run, and "moved", the rest, because attention moved
    if any(effect.writes is not UNSET for effect in document.effects):
        columns += [
            Column(message("held"), lambda row: _number_or_dash(_measured_or_none(row.writes))),
            Column(message("moved"), lambda row: _number_or_dash(_measured_or_none(row.moved))),
        ]
    columns.append(Column(share=loss, align="left"))
    return column_table(
        columns,
        document.effects,
        view,
        title=message("without the links to a region"),
        note=message("the log probability of the answer, in nats; all heads, one region at a time"),
    )


def _measured_or_none(value: float | UnsetType) -> float | None:
    """A number of a document; None for one that was not measured."""
    if value is UNSET:
        return None
    return value


def _region_text(document: RegionsDocument, effect: RegionEffect, view: View) -> str:
    """What an effect's region is called on the screen; "NAME (other)" where regions inside it are
    told by themselves."""
    name = region_name(document.regions[effect.region].name, view)
    if effect.without is not UNSET:
        return say(view, "{region} (other)", region=name)
    return name


def _number_or_dash(value: float | None, *, plus: bool = True) -> str:
    """A number with three digits after the point, with its sign if `plus`; "-" for None."""
    if value is None:
        return "-"
    if plus:
        return format_signed(value, 3)
    return format_fixed(value, 3)


def regions_sentences(document: RegionsDocument, view: View) -> Iterator[str]:
    """Yield the sentences of the answer: how likely the target is, which region it draws on most,
    and how many regions it does without."""
    answer = quote_text(joined_text(token.text for token in document.target), view)
    yield say(
        view,
        plural(
            "{answer} ({count} token) has the probability {share} after this text.",
            "{answer} ({count} tokens) has the probability {share} after this text.",
            count=len(document.target),
            answer=answer,
            share=percent(exp(document.logprob), 1) if document.logprob is not None else "-",
        ),
    )
    # the largest loss first; each has a change, and so both log probabilities: `or 0.0` below is for
    # the type alone
    measured = [effect for effect in document.effects if effect.change is not None]
    if measured and -(measured[0].change or 0.0) > LITTLE:
        first = measured[0]
        before = percent(exp(document.logprob or 0.0), 1)
        after = percent(exp(first.logprob or 0.0), 1)
        template = message(
            "It draws most on {region}: without it its probability goes from {before} to {after}."
        )
        if before == after:
            template = message(
                "It draws most on {region}: without it its log probability falls by {size} nats."
            )
        yield say(
            view,
            template,
            region=quote_text(_region_text(document, first, view), view),
            before=before,
            after=after,
            size=format_fixed(-(first.change or 0.0), 2),
        )
        if first.top is not UNSET:
            yield say(
                view,
                "What comes after the text then: {tokens}.",
                tokens=token_shares(first.top, view),
            )
        yield from _rest_sentences(first, document, view)
        yield from _held_sentences(first, document, view)
    elif measured:
        yield say(
            view,
            "No region lowers its log probability by more than 0.01 nats when it cannot be read.",
        )
    idle = [effect for effect in measured[1:] if abs(effect.change or 0.0) < LITTLE]
    if idle and -(measured[0].change or 0.0) > LITTLE:
        yield say(
            view,
            plural(
                "{count} region changes it by less than 0.01 nats.",
                "{count} regions change it by less than 0.01 nats.",
                count=len(idle),
            ),
        )
    yield not_learned_note(document.model, view)


def _rest_sentences(effect: RegionEffect, document: RegionsDocument, view: View) -> Iterator[str]:
    """Yield a sentence on the tokens of a region where heads of a trained model rest whatever the
    text says, if there are any: cutting these off changes every answer."""
    rest = rest_names_among(document.tokens, document.regions[effect.region].tokens)
    if rest and is_learned(document.model.source):
        yield say(
            view,
            "Heads rest on some of its tokens ({rest}): part of that may come of cutting these off.",
            rest=rest,
        )


def _held_sentences(effect: RegionEffect, document: RegionsDocument, view: View) -> Iterator[str]:
    """Yield how much of the change without a region is there while every head attends as before
    (`writes`), and how much comes of later heads that then look elsewhere (`moved`); nothing where
    the two were not measured, or a log probability is not known."""
    if not isinstance(effect.writes, float) or not isinstance(effect.moved, float):
        return
    if document.logprob is None or effect.change is None:
        return
    yield say(
        view,
        "With all other attention held as it was it goes to {held}: {writes} nats of {change} come of"
        " what is no longer read there, {moved} of where later heads then look, interaction"
        " included.",
        held=percent(exp(document.logprob + effect.writes), 1),
        writes=format_signed(effect.writes, 2),
        change=format_signed(effect.change, 2),
        moved=format_signed(effect.moved, 2),
    )


def _answer_lines(document: RegionsDocument, view: View) -> Lines:
    """The answer in words, as lines."""
    return sentences(regions_sentences(document, view), view)


REGIONS_PARTS: Parts[RegionsDocument] = (
    ScreenPart("header", header),
    ScreenPart("tokens", shown_tokens, never),
    ScreenPart("regions", _effect_table),
    ScreenPart("answer", _answer_lines),
)
