"""The screen of `attn.cache/1`: the policies, what the layers, regions and heads lose, and the
answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import exp
from operator import attrgetter

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from attncli.draw.columns import Column, column_table, plain_rows
from attncli.draw.lines import Lines, sentences
from attncli.draw.numbers import percent, size_words
from attncli.draw.screen_header import header, shown_tokens
from attncli.draw.sentence import not_learned_note
from attncli.draw.token_names import quote_text, region_name, rest_names
from attncli.draw.view import Parts, ScreenPart, View, never
from attncli.features.cache.document import (
    CacheDocument,
    CachePolicy,
    HeadKept,
    RegionKept,
)
from attncli.inputs.token import joined_text
from attncli.language import Message, choice, listing, message, plural, say
from attncli.mechanism.spec import head_name

SHORT = 24
"""Tokens up to which they are listed."""
LITTLE = 0.01
"""A change in nats below which nothing is said to change."""


def cache_rows(document: CacheDocument) -> Iterator[Sequence[object]]:
    """The table for `--plain`, names of columns first: a row for each policy."""
    return plain_rows(_columns(document), document.policies)


def _columns(document: CacheDocument) -> list[Column[CachePolicy]]:
    """The columns of the table of policies: what each keeps, what it changes and what it saves.
    Those without a name stand in tables for programs alone, those without a key on screens alone."""

    def least_share(policy: CachePolicy) -> float | None:
        """The share that the head which keeps least keeps; None where the document has no heads."""
        head = _least_kept_head(policy)
        if head is None:
            return None
        return _kept_share(head)

    def least_text(policy: CachePolicy) -> str:
        """The head that keeps the smallest share of its weight, and that share."""
        head = _least_kept_head(policy)
        if head is None:
            return "-"
        return f"{head_name(head.layer, head.head)} {_percent_or_dash(_kept_share(head))}"

    def beyond_rest(policy: CachePolicy) -> str:
        """The share of weight that a policy keeps without the keys where heads rest (the first token
        and the like); "-" where the document does not have it."""
        if policy.kept_beyond_rest is UNSET:
            return "-"
        return _percent_or_dash(policy.kept_beyond_rest)

    name = attrgetter("policy")
    columns: list[Column[CachePolicy]] = [
        Column(message("policy"), name, align="left", key="policy", value=name),
        Column(key="budget", value=attrgetter("budget")),
        Column(
            message("kept"),
            lambda policy: _percent_or_dash(policy.kept),
            key="kept",
            value=attrgetter("kept"),
        ),
    ]
    if document.rest is not UNSET:
        columns.append(Column(message("without rest"), beyond_rest))
    columns += [
        Column(message("least in"), least_text, leave_out=2, key="least", value=least_share),
        Column(
            message("error"),
            lambda policy: _fixed_or_dash(_last_error(policy)),
            key="error",
            value=_last_error,
        ),
        Column(key="logprob", value=attrgetter("logprob")),
    ]
    # tables for programs always have this column, the screen only where the document has numbers
    change = Column[CachePolicy](key="change", value=attrgetter("change"))
    if document.logprob is not None:
        change = replace(
            change,
            name=message("log probability"),
            write=lambda policy: _fixed_or_dash(policy.change, signed=True),
        )
    columns += [
        change,
        Column(
            message("cache"),
            lambda policy: size_words(policy.bytes),
            leave_out=1,
            key="bytes",
            value=attrgetter("bytes"),
        ),
        Column(
            message("saved"),
            lambda policy: percent(policy.saved),
            key="saved",
            value=attrgetter("saved"),
        ),
    ]
    return columns


def _policy_table(document: CacheDocument, view: View) -> Lines:
    """A table with a row for each policy: what it keeps, what it changes and what it saves."""
    note = message(
        "kept: of what the last token looks at, the mean over heads; error: of its vector after"
        " the last layer"
    )
    if document.logprob is not None:
        note = message(
            "kept: of what the last token looks at, the mean over heads; error: of its vector after"
            " the last layer; log probability: what that of the answer changes by, in nats"
        )
    return column_table(
        _columns(document),
        document.policies,
        view,
        title=message("what a cache with a budget keeps"),
        note=note,
    )


def _policy_columns(
    document: CacheDocument, write: Callable[[CachePolicy, int], str]
) -> list[Column[int]]:
    """A column for each policy, for a table whose rows are layers, regions or heads; where there is
    no room, the last policies are left out first.

    write: the cell of a policy, for the index of the row.
    """
    return [
        # the first has 0, and so is always shown
        Column(policy.policy, partial(write, policy), leave_out=number)
        for number, policy in enumerate(document.policies)
    ]


def _layer_errors(document: CacheDocument, view: View) -> Lines:
    """A table of the error of the last token's vector after each layer, a column for each
    policy."""

    def error_text(policy: CachePolicy, index: int) -> str:
        """A policy's error after the layer with this index among those that attend."""
        return _fixed_or_dash(policy.errors[index])

    layers = document.cached_layers
    names = Column[int]("layer", lambda index: str(layers[index]), align="left")
    return column_table(
        [names, *_policy_columns(document, error_text)],
        range(len(layers)),
        view,
        title=message("error after each layer"),
        note=message("of the last token's vector, beside its length with every key"),
    )


def _region_table(document: CacheDocument, view: View) -> Lines:
    """A table of regions with a column for each policy: the share of the region's weight that it
    keeps."""
    if document.regions is UNSET or document.shares is UNSET:
        return Lines()
    note = message(
        "share: of what the last token looks at; then how much of that is still in the cache"
    )
    if document.shares_beyond_rest is not UNSET:
        note = message(
            "share: of the last token's weight that does not rest; then how much of that is still in"
            " the cache; rest: {rest}",
            rest=rest_names(document.tokens),
        )

    def kept_text(policy: CachePolicy, index: int) -> str:
        """How much of a region's weight a policy keeps; a document with regions has them for every
        policy."""
        return _percent_or_dash(_kept_share((policy.regions or [])[index]))

    regions = document.regions
    shares = _region_shares(document)
    columns: list[Column[int]] = [
        Column(
            message("region"), lambda index: region_name(regions[index].name, view), align="left"
        ),
        Column("tokens", lambda index: f"{len(regions[index].tokens):,}"),
        Column(message("share"), lambda index: _percent_or_dash(shares[index])),
    ]
    return column_table(
        [*columns, *_policy_columns(document, kept_text)],
        range(len(regions)),
        view,
        title=message("what is left of each region"),
        note=note,
    )


def _region_shares(document: CacheDocument) -> list[float | None]:
    """The share of the last token's weight that each region gets: of its weight without keys where
    heads rest (the first token and the like), where the document has that, else of all of it. Empty
    without regions."""
    shares = document.shares_beyond_rest
    if shares is UNSET or document.rest is UNSET:
        if document.shares is UNSET:
            return []
        return document.shares
    # the document has them as parts of all weight
    not_resting = 1 - document.rest
    return [
        share / not_resting if share is not None and not_resting > 0 else None for share in shares
    ]


def _losing_heads(document: CacheDocument, view: View) -> Lines:
    """A table of the heads that lose most of the last token's weight, on average over the policies,
    with a column for each policy."""
    # [policy, head]; None becomes NaN
    values = np.array(
        [[_kept_share(head) for head in policy.heads] for policy in document.policies], float
    )
    # indices of the heads of which at least one policy has a share
    known_heads = [head for head in range(values.shape[1]) if np.isfinite(values[:, head]).any()]
    shown = sorted(known_heads, key=lambda head: float(np.nanmean(values[:, head])))
    if not view.full:
        shown = shown[: view.top]
    heads = document.policies[0].heads  # every policy lists the same heads
    note = message("how much of what the last token looks at is still in the cache")
    if document.rest is not UNSET:
        note = message(
            "how much of the last token's weight that does not rest is still in the cache"
        )

    def kept_text(policy: CachePolicy, index: int) -> str:
        """How much of the weight of the head at this index a policy keeps, in percents."""
        return _percent_or_dash(_kept_share(policy.heads[index]))

    names = Column[int](
        message("head"),
        lambda index: head_name(heads[index].layer, heads[index].head),
        align="left",
    )
    return column_table(
        [names, *_policy_columns(document, kept_text)],
        shown,
        view,
        title=message("heads that lose most"),
        note=note,
    )


def cache_sentences(document: CacheDocument, view: View) -> list[str]:
    """Sentences on which policy keeps most, which changes the answer least, which region loses
    most, and what is saved."""
    answer_sentences: list[str] = []
    # policies are compared at one budget: the one in the middle
    budgets = sorted({policy.budget for policy in document.policies})
    budget = budgets[len(budgets) // 2]
    rivals = [
        policy
        for policy in document.policies
        if policy.budget == budget and policy.kept is not None
    ]
    if rivals:
        if document.rest is not UNSET:
            answer_sentences.append(
                say(
                    view,
                    "Of the last token's weight {share} rests on {rest}; what is said of its weight"
                    " leaves that out.",
                    share=percent(document.rest, 1),
                    rest=rest_names(document.tokens),
                )
            )
        answer_sentences.append(say(view, _kept_sentence(budget, rivals)))
    answer_sentences += _answer_change_sentences(document, rivals, view)
    answer_sentences += _region_sentences(document, rivals, view)
    # the first of the policies with that budget stands for all
    saving = next(policy for policy in document.policies if policy.budget == budget)
    answer_sentences.append(
        say(view, "It saves {saved} of the memory of keys and values.", saved=percent(saving.saved))
    )
    return [*answer_sentences, not_learned_note(document.model, view)]


def _kept_sentence(budget: int, rivals: Sequence[CachePolicy]) -> Message:
    """A sentence on which policies of one budget keep most and least. Policies with equal numbers
    as printed are named together."""
    shares = {policy.policy: _percent_or_dash(_kept_share(policy)) for policy in rivals}
    # by what is kept, least first; a share that is not known counts as 0
    ranked = sorted(rivals, key=lambda policy: _kept_share(policy) or 0.0)
    least = shares[ranked[0].policy]
    most = shares[ranked[-1].policy]
    best = _joined_names([policy for policy in rivals if shares[policy.policy] == most], rivals)
    worst = _joined_names([policy for policy in rivals if shares[policy.policy] == least], rivals)
    if most == least:
        return plural(
            "Of what the last token looks at, a cache of {count} key keeps {kept} with {policy}.",
            "Of what the last token looks at, a cache of {count} keys keeps {kept} with {policy}.",
            count=budget,
            kept=most,
            policy=best,
        )
    return plural(
        "Of what the last token looks at, a cache of {count} key keeps most with {policy}, {kept},"
        " least with {other_policy}, {other_kept}.",
        "Of what the last token looks at, a cache of {count} keys keeps most with {policy}, {kept},"
        " least with {other_policy}, {other_kept}.",
        count=budget,
        policy=best,
        kept=most,
        other_policy=worst,
        other_kept=least,
    )


def _answer_change_sentences(
    document: CacheDocument, rivals: Sequence[CachePolicy], view: View
) -> list[str]:
    """The sentence, in a list, on which policies of one budget change the answer's log probability
    least and most; an empty list where the document has no such changes.

    rivals: the policies of that budget.
    """
    changed = [policy for policy in rivals if policy.change is not None]
    if not changed or document.logprob is None:
        return []
    text = quote_text(joined_text(token.text for token in document.target), view)
    # `or 0.0` is for the type alone, here and below: all of these have a change and a `logprob`
    least = min(changed, key=lambda policy: abs(policy.change or 0.0))
    most = max(changed, key=lambda policy: abs(policy.change or 0.0))
    changes = {policy.policy: _fixed_or_dash(policy.change, signed=True) for policy in changed}
    if abs(most.change or 0.0) < LITTLE:  # 0.01 nats: the largest change is too small to tell
        return [
            say(
                view,
                "The log probability of {answer} changes by less than 0.01 nats with each of them.",
                answer=text,
            )
        ]
    if len(changed) == 1:
        return [
            say(
                view,
                "The log probability of {answer} changes by {change} nats: its probability is {share}, "
                "{whole} with every key.",
                answer=text,
                change=_fixed_or_dash(most.change, signed=True),
                share=percent(exp(most.logprob or 0.0), 1),
                whole=percent(exp(document.logprob), 1),
            )
        ]
    if changes[least.policy] == changes[most.policy]:
        return [
            say(
                view,
                "The log probability of {answer} changes by {change} nats with each of them.",
                answer=text,
                change=changes[most.policy],
            )
        ]
    template: Message | str = message(
        "The log probability of {answer} changes least with {least}, by {least_change} nats, and"
        " most with {most}, by {most_change} nats."
    )
    budget = rivals[0].budget  # the same for all of them
    if any(policy.budget != budget for policy in document.policies):
        template = message(
            "Of caches of {budget} keys the log probability of {answer} changes least with {least},"
            " by {least_change} nats, and most with {most}, by {most_change} nats."
        )
    return [
        say(
            view,
            template,
            budget=budget,
            answer=text,
            least=_joined_names(
                [policy for policy in changed if changes[policy.policy] == changes[least.policy]],
                rivals,
            ),
            least_change=changes[least.policy],
            most=_joined_names(
                [policy for policy in changed if changes[policy.policy] == changes[most.policy]],
                rivals,
            ),
            most_change=changes[most.policy],
        )
    ]


def _region_sentences(
    document: CacheDocument, rivals: Sequence[CachePolicy], view: View
) -> list[str]:
    """The sentence, in a list, on the region of which each policy keeps least; an empty list
    without regions, and where the policies keep nearly all of each."""
    if document.regions is UNSET:
        return []
    parts = []
    for policy in rivals:
        shares: dict[str, float] = {}  # by the name of a region
        # `or ()` is for the type alone: a document with regions has them for every policy
        for row, region in zip(document.regions, policy.regions or (), strict=True):
            kept = _kept_share(region)
            if kept is not None:
                shares[row.name] = kept
        if shares and min(shares.values()) < 1 - LITTLE:  # more than 1% is lost
            name = min(shares, key=shares.__getitem__)
            parts.append(
                message(
                    "{region} with {policy} ({kept})",
                    policy=_short_name(policy, rivals),
                    region=quote_text(region_name(name, view), view),
                    kept=_percent_or_dash(shares[name]),
                )
            )
    if parts:
        return [say(view, "Of the regions least is kept: {parts}.", parts=listing(parts))]
    return []


def _joined_names(policies: Sequence[CachePolicy], rivals: Sequence[CachePolicy]) -> Message:
    """The short names of some policies, joined by "and".

    rivals: all policies of the sentence, which the names must tell apart.
    """
    return choice([_short_name(policy, rivals) for policy in policies], last=" and ")


def _short_name(policy: CachePolicy, rivals: Sequence[CachePolicy]) -> str:
    """A policy's name in a sentence: "h2o" where no other rival is of that kind, else with its
    numbers, such as "sinks:4,252"."""
    kinds = [rival.policy.partition(":")[0] for rival in rivals]
    kind = policy.policy.partition(":")[0]
    if kinds.count(kind) == 1:
        return kind
    return policy.policy


def _answer_lines(document: CacheDocument, view: View) -> Lines:
    """The answer in words, as lines."""
    return sentences(cache_sentences(document, view), view)


def _has_few_tokens(document: CacheDocument, view: View) -> bool:
    """Whether the text is so short that its tokens are shown unasked."""
    return len(document.tokens) <= SHORT


def _least_kept_head(policy: CachePolicy) -> HeadKept | None:
    """The head of which a policy keeps the smallest share of weight; None where no head's share is
    known."""
    heads = [head for head in policy.heads if _kept_share(head) is not None]
    # `or 0.0` is for the type alone
    return min(heads, key=lambda head: _kept_share(head) or 0.0, default=None)


def _last_error(policy: CachePolicy) -> float | None:
    """The error of the last token's vector after the last layer; None without layers."""
    if policy.errors:
        return policy.errors[-1]
    return None


def _kept_share(part: CachePolicy | HeadKept | RegionKept) -> float | None:
    """The share of weight that is kept, by a policy in all or of a head or a region, 0 to 1:
    without the keys where heads rest (the first token and the like), where the document has that.
    None where it is not known."""
    if part.kept_beyond_rest is UNSET:
        return part.kept
    return part.kept_beyond_rest


def _percent_or_dash(value: float | None) -> str:
    """A share in percents with a digit after the point; "-" for None."""
    if value is None:
        return "-"
    return percent(value, 1)


def _fixed_or_dash(value: float | None, *, signed: bool = False) -> str:
    """A number with three digits after the point; "-" for None."""
    if value is None:
        return "-"
    if signed:
        return f"{value:+z.3f}"
    return f"{value:z.3f}"


CACHE_PARTS: Parts[CacheDocument] = (
    ScreenPart("header", header),
    ScreenPart("tokens", shown_tokens, _has_few_tokens),
    ScreenPart("policies", _policy_table),
    ScreenPart("layers", _layer_errors, never),
    ScreenPart("regions", _region_table),
    ScreenPart("heads", _losing_heads),
    ScreenPart("answer", _answer_lines),
)
