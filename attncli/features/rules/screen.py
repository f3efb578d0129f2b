"""The screen of `attn.rules/1`: which rules say how much of each head, and what the model loses with
them in its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec import UNSET, UnsetType

from attncli.draw.lines import Lines, line, remark, sentences, stack
from attncli.draw.numbers import percent
from attncli.draw.safe import label, spell
from attncli.draw.screen_header import warning
from attncli.draw.sentence import not_learned_note
from attncli.draw.tables import table
from attncli.draw.view import Parts, ScreenPart, View
from attncli.features.rules.built_in_rules import BUILT_IN
from attncli.features.rules.document import (
    LEAST_OVERLAP,
    HeadMixture,
    RuledHead,
    RuleMeaning,
    RuleOverlaps,
    RulesDocument,
    RuleStability,
    SwappedHeads,
)
from attncli.language import listing, message, plural, say
from attncli.mechanism.spec import head_label

SELDOM = 0.5
"""The share of rows below which a rule finds a token of its own seldom."""
LEAST_WEIGHT = 0.005
"""A part of a mixture below this is not shown: it would read 0.00."""


def rules_rows(document: RulesDocument) -> Iterator[Sequence[object]]:
    """Every head as a table for `--plain`, its first row the names of the columns."""
    yield (
        "layer",
        "head",
        "overlap",
        "overlap_first",
        "overlap_even",
        "overlap_distance",
        "has_rule",
        "rules",
        "weights",
    )
    for head in document.heads:
        yield (
            head.layer,
            head.head,
            head.overlap,
            head.overlap_first,
            head.overlap_even,
            head.overlap_distance,
            head.has_rule,
            " ".join(part.rule for part in head.parts),
            " ".join(f"{part.weight:.4f}" for part in head.parts),
        )


def rule_label(name: str) -> str:
    """A rule as screens name it, such as "previous token"; its own name for a rule that is not built
    in."""
    for rule in BUILT_IN:
        if rule.name == name:
            return rule.label
    return name


def mixture_text(head: RuledHead | HeadMixture, view: View) -> str:
    """A head's mixture, such as `0.75 × previous token + 0.20 × first token`; of a head without a
    rule, that it has none, and the nearest mixture."""
    if head.overlap < LEAST_OVERLAP:
        return say(view, "no rule; nearest: {mixture}", mixture=_weighted_rules(head, view))
    return _weighted_rules(head, view)


def _weighted_rules(head: RuledHead | HeadMixture, view: View) -> str:
    """The rules of a head's mixture with their weights, such as `0.75 × previous token + 0.20 ×
    first token`."""
    times = spell("×", ascii=view.ascii)
    parts = [
        f"{part.weight:.2f} {times} {label(say(view, rule_label(part.rule)), ascii=view.ascii)}"
        for part in head.parts
        if part.weight >= LEAST_WEIGHT
    ]
    return " + ".join(parts)


def best_baseline(head: RuledHead) -> float:
    """The largest overlap of what needs no rules: the first token, an even spread, the head's own
    mean by distance."""
    return max(head.overlap_first, head.overlap_even, head.overlap_distance)


def ranked_heads(heads: Sequence[RuledHead]) -> list[RuledHead]:
    """The heads, sorted by how much more of their weights rules say than the best baseline, the most
    first. Many heads put all weight on the first token, or look by distance alone, and need no
    rules."""
    return sorted(heads, key=lambda head: best_baseline(head) - head.overlap)


def _model_and_texts(document: RulesDocument, view: View) -> Lines:
    """The top of the screen: the model's name and size, how many rules there are, how the texts are
    split, and warnings."""
    model = document.model
    texts = document.texts
    name = label(model.name or model.family or model.source, ascii=view.ascii)
    # layers without attention are not counted
    sizes = message("{layers} layers × {heads} heads", layers=model.attending, heads=model.heads)
    facts = [
        name,
        sizes,
        plural("{count} rule", "{count} rules", count=len(document.rules)),
    ]
    split = message(
        "{fitted} texts to fit to, {choosing} to choose by, {measured} to measure on",
        fitted=texts.fitted,
        choosing=texts.choosing,
        measured=texts.measured,
    )
    top = stack(line((say(view, listing(facts, " · ")), "bold")), remark(split, view))
    return stack(top, *(warning(text, view) for text in document.warnings))


def _head_table(document: RulesDocument, view: View) -> Lines:
    """A table of the heads and their rules; see `ruled_heads_table`."""
    return ruled_heads_table(document.heads, view)


def ruled_heads_table(every: Sequence[RuledHead], view: View) -> Lines:
    """A table of the heads with the largest gain of rules over baselines: their overlap with the
    rules, with the first token, with their mean by distance, and the rules themselves. All heads in
    a full view."""
    heads = ranked_heads(every)
    if not view.full:
        heads = heads[: view.top]
    columns = {
        message("head"): [head_label(head.layer, head.head) for head in heads],
        message("overlap"): [f"{head.overlap:.2f}" for head in heads],
        message("first token"): [f"{head.overlap_first:.2f}" for head in heads],
        message("by distance"): [f"{head.overlap_distance:.2f}" for head in heads],
        message("rules"): [mixture_text(head, view) for head in heads],
    }
    more = ""
    if len(heads) < len(every):
        more = message(
            "{heads_shown} of {heads} heads shown; --top {heads} shows all",
            heads_shown=len(heads),
            heads=len(every),
        )
    body = table(
        list(columns),
        [list(row) for row in zip(*columns.values(), strict=True)],
        view,
        align=["left", *["right"] * (len(columns) - 2), "left"],
        title=message("heads as rules"),
        note=message(
            "overlap: the share of a head's weights that its rules say on unseen texts; the largest"
            " gain over the best of the first token, an even spread and its mean by distance first"
        ),
    )
    return stack(body, remark(more, view))


def _rule_table(document: RulesDocument, view: View) -> Lines:
    """A table of the rules by their weight in all heads; see `rule_weights_table`."""
    return rule_weights_table(document.heads, view)


def rule_weights_table(heads: Sequence[RuledHead], view: View) -> Lines:
    """A table of the rules: the mean weight of each over the mixtures of all heads, and in how many
    heads it is the strongest rule."""
    counts: dict[str, int] = {}
    shares: dict[str, float] = {}
    for head in heads:
        strongest = head.parts[0].rule  # parts are sorted by weight, and there is one at least
        counts[strongest] = counts.get(strongest, 0) + 1
        for part in head.parts:
            shares[part.rule] = shares.get(part.rule, 0.0) + part.weight / len(heads)
    order = sorted(shares, key=lambda name: -shares[name])
    if not view.full:
        order = order[: view.top]
    rows = [
        [say(view, rule_label(name)), percent(shares[name]), str(counts.get(name, 0))]
        for name in order
    ]
    return table(
        [message("rule"), message("of all mixtures"), message("strongest in")],
        rows,
        view,
        align=("left", "right", "right"),
        title=message("rules by weight"),
    )


def _swap_table(document: RulesDocument, view: View) -> Lines:
    """A table of what the model loses with rules in place of heads, a row for each share of the
    heads, as multiples of its perplexity; empty where nothing was swapped."""
    if not document.swapped:
        return Lines()
    columns: dict[str, list[str]] = {
        message("heads"): [f"{row.heads}" for row in document.swapped],
        message("of all"): [percent(row.share) for row in document.swapped],
        message("loss"): [f"{row.loss:.3f}" for row in document.swapped],
        message("rules"): [_factor_text(row, row.loss, view) for row in document.swapped],
        message("by distance"): [
            _factor_text(row, row.loss_distance, view) for row in document.swapped
        ],
        message("first token"): [
            # older documents have no loss with the first token alone
            "-" if row.loss_first is UNSET else _factor_text(row, row.loss_first, view)
            for row in document.swapped
        ],
        message("even"): [_factor_text(row, row.loss_even, view) for row in document.swapped],
        message("drawn heads"): [
            _factor_text(row, row.loss_drawn, view) for row in document.swapped
        ],
    }
    own = document.swapped[0].loss_model  # of the model as it is: the same in all rows
    return table(
        list(columns),
        [list(row) for row in zip(*columns.values(), strict=True)],
        view,
        align=["right"] * len(columns),
        title=message("perplexity with rules in place of heads"),
        note=message(
            "times that of the model, {perplexity:.4g} (loss {loss:.3f} nats)",
            perplexity=math.exp(min(own, 700.0)),  # beyond 709 a float overflows
            loss=own,
        ),
    )


def perplexity_factor(row: SwappedHeads, loss: float) -> float:
    """How many times larger the perplexity at this loss is than the model's own."""
    return math.exp(min(loss - row.loss_model, 700.0))  # e^709 is the largest float


def _factor_text(row: SwappedHeads, loss: float, view: View) -> str:
    """A multiple of the model's perplexity, such as `× 1.16`."""
    factor = perplexity_factor(row, loss)
    if factor < 100:
        digits = f"{factor:.2f}"
    else:
        digits = f"{factor:.3g}"
    return f"{spell('×', ascii=view.ascii)} {digits}"


def rules_sentences(document: RulesDocument, view: View) -> Iterator[str]:
    """Yield the answer in sentences: how much of the heads' weights rules say, how stable the rules
    are, and what the model loses with rules in place of heads."""
    yield from mixture_sentences(
        document.heads, document.overlap, document.stability, view, document.rules
    )
    yield from _swap_sentences(document, view)
    yield not_learned_note(document.model, view)


def head_sentence(head: RuledHead, view: View) -> str:
    """A sentence on the rules of a head, and the share of its weights that they explain on texts
    they were not fitted to."""
    if head.overlap < LEAST_OVERLAP:
        return say(
            view,
            "Layer {layer} head {head} has no rule: the nearest, {mixture}, says {share} of its weights"
            " on texts it was not fitted to.",
            layer=head.layer,
            head=head.head,
            mixture=_weighted_rules(head, view),
            share=percent(head.overlap),
        )
    return say(
        view,
        "Layer {layer} head {head}: {mixture} says {share} of its weights on texts it was not fitted"
        " to.",
        layer=head.layer,
        head=head.head,
        mixture=_weighted_rules(head, view),
        share=percent(head.overlap),
    )


def seldom_sentences(head: RuledHead, rules: Sequence[RuleMeaning], view: View) -> Iterator[str]:
    """Yield a sentence for each rule of a head that finds no token of its own in most rows, where it
    gives the first token.

    rules: all rules, with the share of rows in which each finds one.
    """
    shares = {rule.name: rule.found_share for rule in rules}
    for part in head.parts:
        # UNSET for a rule that is not among these, or was fitted to no rows
        found_share = shares.get(part.rule, UNSET)
        if part.weight < LEAST_WEIGHT or found_share is UNSET or found_share >= SELDOM:
            continue
        yield say(
            view,
            "The rule “{rule}” finds a token of its own in {share} of rows; in the others it is the"
            " first token.",
            rule=label(say(view, rule_label(part.rule)), ascii=view.ascii),
            share=percent(found_share),
        )


def baseline_sentence(head: RuledHead, view: View) -> str:
    """The sentence on the baseline that says most of a head without its rules."""
    return say(
        view,
        "The first token alone says {first}, an even spread {even}, its own mean by distance"
        " {distance}.",
        first=percent(head.overlap_first),
        even=percent(head.overlap_even),
        distance=percent(head.overlap_distance),
    )


def mixture_sentences(
    heads: Sequence[RuledHead],
    means: RuleOverlaps,
    stability: RuleStability | UnsetType,
    view: View,
    rules: Sequence[RuleMeaning],
) -> Iterator[str]:
    """Yield sentences on how much of the heads' weights rules say: of the head with the largest gain
    over baselines, then over all heads, beside baselines that need no rules, and how stable the
    rules are.

    means: overlaps over all heads.
    stability: how alike the rules of the other half of the texts are; UNSET where not measured.
    rules: all rules, with the share of rows in which each finds a key.
    """
    first = ranked_heads(heads)[0]
    yield head_sentence(first, view)
    yield baseline_sentence(first, view)
    yield from seldom_sentences(first, rules, view)
    yield say(
        view,
        "Over all heads rules say {rules} of the weights, the first token alone {first}, an even"
        " spread {even}, each head's mean by distance {distance}.",
        rules=percent(means.rules),
        first=percent(means.first),
        even=percent(means.even),
        distance=percent(means.distance),
    )
    no_more = sum(head.overlap <= best_baseline(head) for head in heads)
    yield say(
        view,
        "In {count} of {heads} heads rules say no more than the best of these without rules.",
        count=no_more,
        heads=len(heads),
    )
    without = sum(not head.has_rule for head in heads)
    if without:
        yield say(
            view,
            plural(
                "{count} of {heads} heads has no rule: its rules say less than half.",
                "{count} of {heads} heads have no rule: their rules say less than half.",
                count=without,
                heads=len(heads),
            ),
        )
    if stability is not UNSET:
        yield say(
            view,
            "Fitted to the other half of the texts, rules keep {weights} of their weight, and"
            " {strongest} of the heads their strongest rule.",
            weights=percent(stability.weights),
            strongest=percent(stability.strongest),
        )
    yield say(view, "These shares are of one split of the texts, without intervals.")


def _swap_sentences(document: RulesDocument, view: View) -> Iterator[str]:
    """Yield what rules in place of heads cost the model, beside heads drawn at random, the mean by
    distance, the first token alone and an even spread, and over how many tokens. Where no head was
    swapped: that the model predicts no next word, or nothing."""
    if not document.swapped:
        if document.predicts is False:
            yield say(
                view, "This model predicts no next word: no swap can be measured by its perplexity."
            )
        return
    # one row stands for the table: a quarter, the middle of the shares that are measured by default
    row = min(document.swapped, key=lambda row: abs(row.share - 0.25))
    yield say(
        view,
        plural(
            "With rules in place of the head of the largest overlap perplexity is {rules}, with an"
            " even spread there {even}.",
            "With rules in place of the {count} heads of the largest overlap perplexity is {rules},"
            " with an even spread there {even}.",
            count=row.heads,
            rules=_factor_text(row, row.loss, view),
            even=_factor_text(row, row.loss_even, view),
        ),
    )
    drawn = _factor_text(row, row.loss_drawn, view)
    if row.loss_drawn < row.loss:
        yield say(
            view,
            "In as many heads drawn at random it is {drawn}, less: rules of a larger overlap need not"
            " cost less.",
            drawn=drawn,
        )
    else:
        yield say(view, "In as many heads drawn at random it is {drawn}.", drawn=drawn)
    distance = message("With each head's own mean by distance in their place it is {factor}.")
    if row.loss_distance < row.loss:
        distance = message(
            "With each head's own mean by distance in their place it is {factor}, less than with"
            " rules."
        )
    yield say(view, distance, factor=_factor_text(row, row.loss_distance, view))
    if row.loss_first is UNSET:  # in older documents, which have no count of tokens either
        return
    first = message("With the first token alone in their place it is {first}.")
    if row.loss_first < row.loss:
        first = message(
            "With the first token alone in their place it is {first}, less than with rules."
        )
    yield say(view, first, first=_factor_text(row, row.loss_first, view))
    if document.texts.measured_tokens is not UNSET:
        # no token comes before a text's first one to predict it: one less for each text
        yield say(
            view,
            plural(
                "Perplexities are measured on {count} predicted token, without an interval.",
                "Perplexities are measured on {count:,} predicted tokens, without an interval.",
                count=document.texts.measured_tokens - document.texts.measured,
            ),
        )


def _answer_lines(document: RulesDocument, view: View) -> Lines:
    """The answer in words, as lines."""
    return sentences(rules_sentences(document, view), view)


RULES_PARTS: Parts[RulesDocument] = (
    ScreenPart("header", _model_and_texts),
    ScreenPart("heads", _head_table),
    ScreenPart("rules", _rule_table),
    ScreenPart("swap", _swap_table),
    ScreenPart("answer", _answer_lines),
)
