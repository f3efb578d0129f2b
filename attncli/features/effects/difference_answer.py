"""What is said of a difference of two logits, and of probabilities: what a head writes, and what it
moves; each sentence has its rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET, UnsetType

from attncli.documents.parts import NextToken, TargetToken
from attncli.draw.numbers import format_signed, missed_by_intervals, percent
from attncli.draw.token_names import quote_text
from attncli.draw.view import View
from attncli.features.effects.document import (
    AblateDocument,
    Difference,
    EffectRow,
    LogitsDocument,
    PairsSummary,
    PatchDocument,
    Prediction,
)
from attncli.features.effects.head_phrase import head_phrase
from attncli.language import Message, listing, message, say
from attncli.measure.mean_intervals import no_interval
from attncli.mechanism.spec import head_name

WRITES = 0.9
"""A head whose held part is at least this share of the whole acts by what it writes."""
MOVES = 0.1
"""A head whose held part is at most this share of the whole acts by moving attention alone."""
DIGITS = 2
"""Digits after the point of logits in sentences."""


def probability_sentence(document: AblateDocument, view: View) -> Iterator[str]:
    """Yield what becomes of the target's probability without the head with the largest effect."""
    predictions = document.predictions
    if predictions is UNSET or predictions.without is None or not document.effects:
        return
    if document.link is None:
        template = message(
            "Without {head} the probability of {target} goes from {before} to {after} (now: {now})."
        )
    else:
        template = message(
            "With this link cut in {head} the probability of {target} goes from {before} to"
            " {after} (now: {now})."
        )
    before = percent(predictions.own.probability)
    after = percent(predictions.without.probability)
    if before == after:
        if document.link is None:
            template = message(
                "Without {head} the probability of {target} stays at {before} (now: {now})."
            )
        else:
            template = message(
                "With this link cut in {head} the probability of {target} stays at {before} (now:"
                " {now})."
            )
    yield say(
        view,
        template,
        head=head_phrase(document.effects[0], view),
        target=quote_text(predictions.target.text, view),
        before=before,
        after=after,
        now=likeliest(predictions.without, view),
    )


def together_sentence(document: AblateDocument, view: View) -> Iterator[str]:
    """Yield what becomes of the target's probability with all changes at once."""
    predictions = document.predictions
    if predictions is UNSET:
        return
    after = percent(predictions.together.probability)
    stays = after == percent(predictions.own.probability)
    if document.link is not None and stays:
        template = message(
            "With this link cut in the {count} heads at once it stays at {after} (now: {now})."
        )
    elif document.link is not None:
        template = message(
            "With this link cut in the {count} heads at once it goes to {after} (now: {now})."
        )
    elif stays:
        template = message("Without the {count} heads at once it stays at {after} (now: {now}).")
    else:
        template = message("Without the {count} heads at once it goes to {after} (now: {now}).")
    yield say(
        view,
        template,
        count=len(document.effects),
        after=after,
        now=likeliest(predictions.together, view),
    )


def patch_probability_sentences(document: PatchDocument, view: View) -> Iterator[str]:
    """Yield how likely the target is after either text, and with the first head's values put in."""
    predictions = document.predictions
    if predictions is UNSET:
        return
    places = {
        "target": quote_text(predictions.target.text, view),
        "clean": percent(predictions.clean.probability),
        "corrupt": percent(predictions.corrupt.probability),
    }
    if predictions.patched is None or not document.effects:
        template = message(
            "The probability of {target} is {clean} after the clean text and {corrupt} after the"
            " corrupt one."
        )
        yield say(view, template, **places)
        return
    patched = percent(predictions.patched.probability)
    template = message(
        "The probability of {target} is {clean} after the clean text and {corrupt} after the"
        " corrupt one; with {head} put in there it goes to {patched} (now: {now})."
    )
    if patched == places["corrupt"]:
        template = message(
            "The probability of {target} is {clean} after the clean text and {corrupt} after the"
            " corrupt one; with {head} put in there it stays at {patched} (now: {now})."
        )
    yield say(
        view,
        template,
        **places,
        head=head_phrase(document.effects[0], view),
        patched=patched,
        now=likeliest(predictions.patched, view),
    )


def probability_caveats(document: PatchDocument, view: View) -> Iterator[str]:
    """Yield where the first head's share of a difference says little of what comes next: where the
    probability of the target moves away from that after the clean text, or not at all, and where the
    target comes first after both texts."""
    predictions = document.predictions
    if predictions is UNSET or predictions.patched is None:
        return
    target = quote_text(predictions.target.text, view)
    clean = predictions.clean.probability
    corrupt = predictions.corrupt.probability
    patched = predictions.patched.probability
    # compared as they are printed, so that no sentence speaks of a change that nobody sees
    is_moved = percent(patched) != percent(corrupt)
    if (
        document.effects[0].recovered > 0
        and is_moved
        and (patched - corrupt) * (clean - corrupt) < 0
    ):
        yield say(
            view,
            "Yet the probability of {target} moves away from that after the clean text: by it this"
            " head brings back nothing.",
            target=target,
        )
    elif document.effects[0].recovered > 0 and not is_moved and percent(clean) != percent(corrupt):
        yield say(view, "Yet by the probability of {target} it brings back nothing.", target=target)
    first_tokens = [run.top[0].token.id for run in (predictions.clean, predictions.corrupt)]
    if first_tokens == [predictions.target.id] * 2:
        yield say(
            view,
            "{target} comes first after both texts: what is brought back does not decide the next"
            " word.",
            target=target,
        )


def logit_probability_sentence(document: LogitsDocument, view: View) -> Iterator[str]:
    """Yield how likely the target is, and the likeliest other tokens."""
    prediction = document.prediction
    if prediction is UNSET:
        return
    others = [row for row in prediction.top if row.token.id != document.target.id]
    yield say(
        view,
        "{target} comes next with a probability of {share} (beside it: {tokens}).",
        target=quoted_target(document.target, view),
        share=percent(prediction.probability),
        tokens=token_shares(others, view),
    )


def quoted_target(target: TargetToken, view: View) -> str:
    """A target in quotes; the first piece of a word with that word."""
    name = quote_text(target.text, view)
    if target.word is UNSET:
        return name
    word = quote_text(target.word, view)
    return say(view, "{name} (the first piece of {word})", name=name, word=word)


def likeliest(prediction: Prediction, view: View) -> str:
    """The likeliest tokens of a run with their probabilities, such as `"Paris" 77%, "the" 4%`."""
    return token_shares(prediction.top, view)


def token_shares(rows: Sequence[NextToken], view: View) -> str:
    """Tokens with their probabilities as a list, such as `"Paris" 77%, "the" 4%`."""
    return listing(f"{quote_text(row.token.text, view)} {percent(row.probability)}" for row in rows)


def difference_sentences(
    document: AblateDocument, caveats: Sequence[str], view: View
) -> Iterator[str]:
    """Yield the answer of `attn ablate --versus` and `--pairs` in sentences: by how many logits the
    target leads the other token, how much of that lead is lost without the head of the largest
    effect and by which way, and a command to try next.

    caveats: sentences on how much of that a random change makes, too.
    """
    yield from _lead(document, view)
    rows = [row for row in document.effects if row.difference is not UNSET]
    if rows:
        yield from _first_head(document, rows[0], caveats, view)
        yield from _mover(rows, view)
    together = document.together.difference
    if together is not UNSET and together.all is not None and len(document.effects) != 1:
        template = _together_template(document)
        loss = loss_text(together.all, view)
        yield say(view, template, count=len(document.effects), lost=loss)
    if len(rows) > 1:
        if _is_interchange(document):
            template = message("Heads are interchanged one at a time: these numbers do not add up.")
        else:
            template = message("Heads are taken away one at a time: these numbers do not add up.")
        yield say(view, template)


def _together_template(document: AblateDocument) -> Message:
    """The sentence on what is lost with all heads changed at once: without a head, with a link cut
    in each, or interchanged; over pairs of the difference, which is `it` in a single text."""
    is_cut = document.link is not None
    if not document.effects and document.pairs is not UNSET:  # how many is not known here
        return message("All of these changes at once: the difference {lost}.")
    if not document.effects:
        return message("All of these changes at once: it {lost}.")
    if document.pairs is not UNSET and is_cut:
        return message("With this link cut in the {count} heads at once the difference {lost}.")
    if _is_interchange(document):
        return message("With the {count} heads interchanged at once the difference {lost}.")
    if document.pairs is not UNSET:
        return message("Without the {count} heads at once the difference {lost}.")
    if is_cut:
        return message("With this link cut in the {count} heads at once it {lost}.")
    return message("Without the {count} heads at once it {lost}.")


def _lead(document: AblateDocument, view: View) -> Iterator[str]:
    """Yield by how many logits the target is ahead of the other token in the unchanged run; over
    pairs, on average over their clean texts."""
    if document.pairs is not UNSET:
        yield from pairs_sentences(document.pairs, view)
        if _is_interchange(document):
            yield say(
                view,
                "A head is given its values of the corrupt text, token by token (interchange).",
            )
        return
    if document.m_clean is UNSET or document.versus is UNSET or document.target is None:
        return
    if document.m_clean >= 0:
        template = message("{target} leads {versus} by {m} logits.")
    else:
        template = message("{target} is behind {versus} by {m} logits.")
    yield say(
        view,
        template,
        target=quote_text(document.target.text, view),
        versus=quote_text(document.versus.text, view),
        m=f"{abs(document.m_clean):.{DIGITS}f}",
    )


def pairs_sentences(pairs: PairsSummary | UnsetType, view: View) -> Iterator[str]:
    """Yield how many pairs there are, by how many logits the answer is ahead in their clean texts,
    and how many pairs were left out; nothing for a single text, where `pairs` is UNSET."""
    if pairs is UNSET:
        return
    yield say(
        view,
        "Over {count} pairs the logit of the answer less that of versus is {mean} on"
        " average{interval}; the answer is ahead in {right} of them.",
        count=pairs.count,
        mean=f"{pairs.mean:.{DIGITS}f}",
        interval=interval_text(pairs.low, pairs.high, view),
        right=percent(pairs.right),
    )
    if pairs.low is None:
        yield say(view, no_interval(pairs.count))
    else:
        yield say(view, missed_by_intervals(pairs.count))
    if pairs.left_out:
        yield say(
            view,
            "{left_out} pairs of the file do not fit this model: attn pairs check says why.",
            left_out=pairs.left_out,
        )


def _is_interchange(document: AblateDocument) -> bool:
    """Whether a head was replaced by its values in the corrupt text of the pair, in place of 0 or a
    mean."""
    return document.pairs is not UNSET and document.by == "resample"


def _first_head(
    document: AblateDocument, row: EffectRow, caveats: Sequence[str], view: View
) -> Iterator[str]:
    """Yield how much of the lead is lost without one head (`row`, that of the largest effect), the
    caveats to that, and, where that was measured, how much by what it writes and by the attention
    that it moves."""
    difference = row.difference
    assert difference is not UNSET
    if difference.all is None:
        return
    is_cut = document.link is not None
    if document.pairs is not UNSET and is_cut:
        template = message("With this link cut in {head} the difference {lost}{interval}.")
    elif _is_interchange(document):
        template = message("With {head} interchanged the difference {lost}{interval}.")
    elif document.pairs is not UNSET:
        template = message("Without {head} the difference {lost}{interval}.")
    elif is_cut:
        template = message("With this link cut in {head} it {lost}{interval}.")
    else:
        template = message("Without {head} it {lost}{interval}.")
    # only numbers over pairs have an interval
    low = None if difference.low is UNSET else difference.low
    high = None if difference.high is UNSET else difference.high
    head = head_phrase(row, view)
    loss = loss_text(difference.all, view)
    yield say(
        view,
        template,
        head=head,
        lost=loss,
        interval=loss_interval(difference.all, low, high, view),
    )
    yield from caveats
    if difference.sign_share is not UNSET:
        yield say(
            view, "{share} of the pairs have this sign.", share=percent(difference.sign_share)
        )
    yield from _split(difference, view)


def _split(difference: Difference, view: View) -> Iterator[str]:
    """Yield the sentence on how much of a loss comes from what a head writes, and how much from the
    attention that it moves; nothing where that was not measured.
    """
    if difference.all is None or difference.writes is UNSET or difference.writes is None:
        return
    if difference.moved is UNSET or difference.moved is None:
        return
    share = 1.0
    if difference.all:
        share = difference.writes / difference.all
    # the sentence before says "gains 0.21" of a loss of -0.21: the parts get the sign of the gain
    sign = -1.0 if difference.all < 0 else 1.0
    places = {
        "held": _signed_text(sign * difference.writes),
        "moved": _signed_text(sign * difference.moved),
    }
    if abs(share) <= MOVES:
        yield say(
            view,
            "Of that {held} comes of what the head writes: without it later heads look elsewhere"
            " ({moved}).",
            **places,
        )
    elif WRITES <= share <= 2 - WRITES:  # nearly all: as little below 1 as above it
        yield say(
            view,
            "Of that {held} comes of what the head writes, {moved} of where later heads then look.",
            **places,
        )
    else:
        yield say(
            view,
            "With attention held as it was: {held}, by what the head writes; the rest, {moved}, by"
            " moving where later heads look, interaction included.",
            **places,
        )


def _signed_text(value: float) -> str:
    """A number of logits with its sign, such as `+1.17`; 0 has none."""
    return format_signed(value, DIGITS)


def _mover(rows: list[EffectRow], view: View) -> Iterator[str]:
    """Yield a sentence on the strongest head that acts by moving the attention of later heads, and,
    where a later head writes more than half as much as that changes, the command that tests whether
    it reads the first one's output.

    rows: the heads, the largest effect first.
    """
    for row in rows:
        difference = row.difference
        # `writes` is UNSET or None where it was not measured; of a loss of 0 there is no share
        if difference is UNSET or not difference.all or not isinstance(difference.writes, float):
            continue
        if abs(difference.writes / difference.all) > MOVES:  # it acts by what it writes
            continue
        later = _strong_writer_after(rows, row.layer, abs(difference.all) / 2)
        if row is not rows[0]:  # the first head has its own sentences already
            yield say(
                view,
                "{head} acts by moving attention: {all} in all, {held} by what it writes.",
                head=head_phrase(row, view),
                all=_signed_text(difference.all),
                held=_signed_text(difference.writes),
            )
        if later is not None:
            command = (
                f"attn patch CLEAN CORRUPT --head {head_name(row.layer, row.head)}"
                f" --into {head_name(later.layer, later.head)}:q"
            )
            yield say(
                view,
                "Whether it is read by layer {layer} head {head}: {command}",
                layer=later.layer,
                head=later.head,
                command=command,
            )
        return


def _strong_writer_after(rows: list[EffectRow], layer: int, least: float) -> EffectRow | None:
    """The first row of a head in a later layer whose own writing changes the difference by more than
    `least` logits; None without one."""
    for row in rows:
        difference = row.difference
        if difference is UNSET or not isinstance(difference.writes, float):
            continue
        if row.layer > layer and abs(difference.writes) > least:
            return row
    return None


def loss_text(size: float, view: View) -> str:
    """The change of a logit lead in words: `loses 1.17`, `gains 1.44`."""
    if size >= 0:
        template = message("loses {size}")
    else:
        template = message("gains {size}")
    return say(view, template, size=f"{abs(size):.{DIGITS}f}")


def loss_interval(size: float, low: float | None, high: float | None, view: View) -> str:
    """The 95% interval of a loss in brackets, in the sign of the verb before it: after `gains 0.21`
    the ends are those of the gain."""
    if size >= 0 or low is None or high is None:
        return interval_text(low, high, view)
    return interval_text(-high, -low, view)


def interval_text(low: float | None, high: float | None, view: View) -> str:
    """A 95% interval in brackets behind a number; "" for none."""
    if low is None or high is None:
        return ""
    return bracketed_interval(f"{low:.{DIGITS}f}", f"{high:.{DIGITS}f}", view)


def bracketed_interval(low: str, high: str, view: View) -> str:
    """A 95% interval in brackets that follows a number: with a blank before the bracket in languages
    that have one there."""
    return say(view, " (95% interval {low} to {high})", low=low, high=high)
