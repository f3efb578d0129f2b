"""The document of `attn cache`: what caches of keys with a budget keep, change and save."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.arrays.backend import ITEM
from attncli.documents import RegionRow
from attncli.documents.header import header, notes
from attncli.errors import UnsupportedError, UsageError
from attncli.features.cache.document import CacheDocument, CachePolicy, HeadKept, RegionKept
from attncli.features.effects.places import reads_on
from attncli.features.effects.targets import choose_target, following_tokens, target_tokens
from attncli.features.regions.compute import first_choice, interruption_note, sum_logprob
from attncli.features.run.compute import RunRequest, cost
from attncli.inputs.regions import Region
from attncli.inputs.token import Token, ignore
from attncli.language import listing
from attncli.measure.kept_results import KeptResults, fingerprint
from attncli.measure.rest import resting_keys
from attncli.measure.row_stream import share
from attncli.mechanism.attend import RowBlock
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.mask import intersection
from attncli.mechanism.mask.cache_policy import (
    POLICIES,
    Policy,
    WhileReading,
    budget_of,
    check_policy,
    last_queries,
    parse_policies,
)
from attncli.mechanism.spec import Spec
from attncli.models.estimate import CostEstimate, with_predictions, with_runs
from attncli.models.model import Model
from attncli.models.run import rows_for

Floats = np.ndarray[Any, np.dtype[np.float64]]
QUARTER = 4
"""A policy without a budget keeps one key of so many."""


class PolicyRun(Struct, frozen=True):
    """What a run under a policy gave: the relative error of the last token's vector after each
    layer, and the answer's log probability."""

    errors: list[float | None]
    logprob: float | None


@checked
def cache(
    model: Model,
    text: str,
    policies: Sequence[str] = POLICIES,
    *,
    budgets: Sequence[int] = (),
    target: str | None = None,
    regions: Sequence[Region] = (),
    tokens: Sequence[Token] | None = None,
    kept: Path | None = None,
    note: Callable[[str], None] = ignore,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
    on_result: Callable[[int, int], None] = ignore,
    on_interruption: Callable[[CacheDocument], None] = ignore,
    progress: Callable[[float], None] = ignore,
) -> CacheDocument:
    """Measure what caches of keys that forget keep of what the last token looks at, and what
    forgetting changes.

    The text runs once as it is: the queries and keys of each layer decide what each policy would
    have forgotten there, and the last token's weights how much of what it looks at is left. Then it
    runs once for each policy and budget, all layers forgetting.

    Args:
        model: As `attncli.load` returns it; one that reads from left to right.
        text: What runs.
        policies: "h2o", "snapkv", "tova", "sinks" or "random", alone or with numbers, such as
            "h2o:256".
        budgets: Keys to keep, at each of which every policy is tried; without them a policy's own,
            or a quarter of the text.
        target: The answer: one entry, "id:N", or several tokens, whose log probabilities are
            summed; None is the model's own first choice. What of it comes before its last token is
            added to the cache.
        regions: As `attncli.inputs.regions.find_regions` returns them: what is left of each is told
            too.
        tokens: Those of the text; None to let the model's tokenizer find them.
        kept: A folder where results are kept until all are known, so that the same call goes on
            after an interruption.
        note: Called with a sentence that says which spelling of the target is taken.
        on_cost: Called before the work starts, with its estimated cost and the number of tokens.
        on_result: Called with the number of runs that are done, and of all.
        on_interruption: Called with what is known where Ctrl-C ends the work after a policy or more.
        progress: Called with the share done, 0 to 1.

    Returns:
        What `attn cache --json` writes.

    Raises:
        UsageError: For what is no policy, and for weights that are not masked from left to right.
        InputError: For a budget above the length of the text, and a target that is no text of the
            vocabulary.
        KeyboardInterrupt: On Ctrl-C, after `on_interruption`.
        UnsupportedError: For a model that reads in both directions.

    Source: Budgets, sinks and windows as in NVIDIA/kvpress; the policies name their papers (`attn
    mask`).
    """
    if tokens is None:
        tokens = model.encode(text)
    _refuse_two_sided(model)
    count = len(tokens)
    spec = model.spec
    default_budget = max(count // QUARTER, 1)  # keys, a quarter of the text
    chosen = parse_policies(policies, budgets, default_budget)
    for policy in chosen:
        check_policy(policy, count)
    has_head = spec.head is not None
    answer: list[int] = []  # empty until the whole run gives the model's first choice
    if target is not None:
        answer = list(choose_target(model, tokens, target, note=note).ids)
    rows = rows_for(spec, count)  # query rows computed at a time
    runs = len(chosen) + 1  # the first keeps every key
    estimate = cost(model, count, RunRequest(matrices=False), is_saved=False, rows=rows)
    if has_head:
        predicted = len(answer) or 1  # tokens: the model's first choice is one
        estimate = with_predictions(estimate, spec, predicted, model.backend.dtype)
    on_cost(with_runs(estimate, runs), count)
    if kept is None:
        path = None
    else:
        path = kept / f"{fingerprint(model, tokens, target)}.json"
    # by the policies' spellings, so that a call with other policies uses what is there
    results = KeptResults[dict[str, PolicyRun]](path, dict[str, PolicyRun])
    # the answer's last token is not run: nothing is asked about what follows it
    following = [*tokens, *following_tokens(model, tokens, answer[:-1])]
    rest = resting_keys(tokens, model.identity.source)  # such as the first token: booleans [key]
    whole = _WholeRun(model, chosen, regions, count, answer, rest)

    def progress_of_run(done: int) -> Callable[[float], None]:
        """The function to call with the share of a run that is done, where `done` runs have ended
        before it: it calls `progress` with the share of all runs.
        """
        return lambda share: progress((done + share) / runs)

    policy_runs: dict[str, PolicyRun] = {}  # those that have ended, by their policy's spelling

    def document_so_far(more: Sequence[str] = ()) -> CacheDocument:
        """The document of the policies that are measured so far.

        more: warnings to add to those about the text.
        """
        full = whole.bytes_of(None)  # of the cache that keeps every key
        return CacheDocument(
            **header(model, text, tokens),
            regions=[RegionRow(name=region.name, tokens=list(region.tokens)) for region in regions]
            or UNSET,
            shares=whole.shares(),
            shares_beyond_rest=whole.shares_beyond_rest(),
            rest=whole.rest_share(),
            cached_layers=whole.layers,
            target=target_tokens(model, whole.answer) if has_head else [],
            logprob=whole.logprob,
            bytes=full,
            policies=[
                _policy_part(whole, place, policy, policy_runs[policy.spec()], full)
                for place, policy in enumerate(chosen)
                if policy.spec() in policy_runs
            ],
            warnings=[*notes(model, text, tokens), *more],
        )

    whole.run(following, rows, progress_of_run(0))

    # policies that an interrupted call has measured are not measured again
    asked_for = {policy.spec() for policy in chosen}
    for name, run in (results.read() or {}).items():
        if name in asked_for:
            policy_runs[name] = run
    try:
        if policy_runs:
            on_result(1 + len(policy_runs), runs)
        for place, policy in enumerate(chosen):
            if policy.spec() not in policy_runs:
                policy_runs[policy.spec()] = _policy_run(
                    model, policy, whole, following, rows, progress_of_run(place + 1)
                )
                results.keep(policy_runs)
            on_result(1 + len(policy_runs), runs)
    except KeyboardInterrupt:  # it may have come before the last result was kept, or told of
        if policy_runs:
            results.keep(policy_runs)
            on_result(1 + len(policy_runs), runs)
            on_interruption(document_so_far([interruption_note(len(policy_runs) + 1, runs)]))
        raise
    results.drop()
    return document_so_far()


def _policy_part(
    whole: _WholeRun, place: int, policy: Policy, result: PolicyRun, full: int
) -> CachePolicy:
    """The document's part about one policy.

    whole: the run with every key, which has measured what the policy keeps.
    place: the policy's index among those measured in `whole`.
    result: what the run with the policy gave.
    full: bytes of the cache that keeps all keys.
    """
    size = whole.bytes_of(place)
    change = None
    if result.logprob is not None and whole.logprob is not None:
        change = result.logprob - whole.logprob
    return CachePolicy(
        policy=policy.spec(),
        budget=budget_of(policy),
        kept=whole.share_kept(place),
        kept_beyond_rest=whole.share_kept_beyond_rest(place),
        bytes=size,
        saved=1 - size / full if full else 0.0,  # where the last token sees no key, nothing
        errors=result.errors,
        logprob=result.logprob,
        change=change,
        regions=whole.regions_kept(place),
        heads=whole.heads_kept(place),
    )


class _WholeRun:
    """The run with every key: measures, layer by layer, what the last token looks at, and how much
    of it each policy would keep. Its methods call a policy by its place, the index in `policies`.

    count: tokens of the text.
    answer: the ids of the answer's tokens; empty for the model's first choice, which is there when
        the run has ended.
    rest: the keys where heads rest whatever a text says (the first token, special tokens,
        separators), booleans [key].
    vectors: the last token's vector after each layer, float64 [width].
    logprob: of the answer, None without an output head.
    """

    def __init__(
        self,
        model: Model,
        policies: Sequence[Policy],
        regions: Sequence[Region],
        count: int,
        answer: list[int],
        rest: np.ndarray[Any, np.dtype[np.bool_]],
    ) -> None:
        """Prepare for the run of `model`.

        count: tokens of the text.
        answer: ids of the tokens whose log probability is measured after the text; empty for the
            model's first choice.
        rest: whether a key is one where heads rest whatever the text says, such as the first token,
            [key].
        """
        self.layers = model.spec.attending()
        self.answer = answer
        self.logprob: float | None = None
        self.vectors: list[Floats] = []
        self._model = model
        self._policies = policies
        self._regions = regions
        self._count = count
        self._rest = rest

        # of the layer that runs: the last token's weights, and which keys it sees, [head, key]
        self._row: Floats = np.empty(0)
        self._sees: np.ndarray[Any, np.dtype[np.bool_]] = np.empty(0, bool)

        # by layer: the last token's weight on keys where heads rest, [head], and on each region
        # with and without such keys, [region, head]
        self._rested: list[Floats] = []
        self._shares: list[Floats] = []
        self._shares_beyond: list[Floats] = []

        # by policy and layer: the share of the weight that is kept, [head]; (kept, all) of the
        # weight without keys where heads rest, [2, head]; the weight that is kept of each region
        # with and without such keys, and the share of its keys, [region, head]
        self._kept: list[list[Floats]] = [[] for _ in policies]
        self._kept_beyond: list[list[Floats]] = [[] for _ in policies]
        self._region_kept: list[list[Floats]] = [[] for _ in policies]
        self._region_kept_beyond: list[list[Floats]] = [[] for _ in policies]
        self._region_keys: list[list[Floats]] = [[] for _ in policies]

        # bytes of keys and values by policy; None for all that are seen
        self._bytes: dict[int | None, float] = dict.fromkeys([None, *range(len(policies))], 0.0)

    def run(self, tokens: Sequence[Token], rows: int, progress: Callable[[float], None]) -> None:
        """Run the text once, and measure every layer.

        tokens: of the text, followed by those of the answer but its last.
        rows: query rows at a time.
        progress: called with the share of this run that is done.
        """
        model = self._model
        last = self._count - 1  # the text's last token
        # `idle`: layers without attention are yielded too, since the vectors change there as well
        for trace in model.trace(
            tokens,
            keep=("weights",),
            rows=rows,
            on_block=_block_handler(model, len(tokens), progress, self._keep_last_row),
            idle=True,
        ):
            if trace.layer in self.layers:
                q = trace.stages["q"][..., : self._count, :]
                k = trace.stages["k"][..., : self._count, :]
                self._measure(trace.layer, q, k)
            self.vectors.append(np.asarray(model.backend.numpy(trace.after[last]), np.float64))
            if trace.layer == len(model.spec.blocks) - 1:
                self.answer, self.logprob = _answer_logprob(model, trace.after[last:], self.answer)

    def _keep_last_row(self, layer: int, block: RowBlock) -> None:
        """Keep the last token's weights, and which keys it sees, out of a block of query rows that
        goes by; other blocks are passed over."""
        heads = self._model.spec.blocks[layer].attention.heads
        row = self._count - 1
        if not block.start <= row < block.stop:
            return
        if block.first_head == 0:  # the layer's first block with this row
            self._row = np.zeros((heads, self._count))
            self._sees = np.zeros((heads, self._count), bool)
        # learned keys, and those of the answer, stand after the text's
        high = min(block.high, self._count)
        backend = self._model.backend
        weights = backend.numpy(block.stages["weights"][:, row - block.start, : high - block.low])
        block_heads = slice(block.first_head, block.first_head + len(weights))
        keys = slice(block.low, high)
        self._row[block_heads, keys] = weights
        self._sees[block_heads, keys] = True
        if block.visibility is not None:
            # its axes may have size 1 where rows or keys are alike
            visibility = backend.numpy(block.visibility)
            visibility = visibility[..., min(row - block.start, visibility.shape[-2] - 1), :]
            if visibility.shape[-1] > 1:
                visibility = visibility[..., : high - block.low]
            self._sees[block_heads, keys] = visibility

    def _measure(self, layer: int, q: Any, k: Any) -> None:
        """Measure one layer: what the last token looks at, and what each policy keeps of it.

        q: queries, [head, query, dim].
        k: keys, [kv, key, dim]; several query heads may share one.
        """
        # bytes of a key and its value, divided among the query heads that share them
        attention = self._model.spec.blocks[layer].attention
        row = self._row
        heads = attention.heads
        bytes_per_key = (
            ITEM[self._model.backend.dtype]
            * (attention.head_dim + attention.v_dim)
            * attention.kv_heads
            / heads
        )
        self._bytes[None] += float(self._sees.sum()) * bytes_per_key

        # the last token's weights with every key
        total = row.sum(-1)
        members = [list(region.tokens) for region in self._regions]
        members_beyond_rest = [[key for key in keys if not self._rest[key]] for keys in members]
        self._rested.append(row[:, self._rest].sum(-1))
        self._shares.append(_region_sums(row, members))
        self._shares_beyond.append(_region_sums(row, members_beyond_rest))
        beyond = row[:, ~self._rest].sum(-1)

        # what is left of them where a policy has let go of keys before the last query
        for place, policy in enumerate(self._policies):
            # the last query that still has each key in the cache, [head, key]
            last = last_queries(
                policy, self._model.backend, q, k, attention.scale, attention.softcap
            )
            cached = (last == self._count - 1) & self._sees
            left = row * cached
            # NaN for a head without weight
            self._kept[place].append(left.sum(-1) / np.where(total > 0, total, np.nan))
            self._kept_beyond[place].append(np.stack([left[:, ~self._rest].sum(-1), beyond]))
            self._bytes[place] += float(cached.sum()) * bytes_per_key
            self._region_kept[place].append(_region_sums(left, members))
            self._region_kept_beyond[place].append(_region_sums(left, members_beyond_rest))
            # 0 / 1 of a region of which the last token sees nothing
            visible_keys = np.maximum(_region_sums(self._sees, members), 1)
            self._region_keys[place].append(_region_sums(cached, members) / visible_keys)

    def shares(self) -> list[float | None] | UnsetType:
        """The share of the last token's weight on each region, the mean over heads."""
        if not self._regions:
            return UNSET
        return [_finite_or_none(value) for value in np.concatenate(self._shares, 1).mean(1)]

    def shares_beyond_rest(self) -> list[float | None] | UnsetType:
        """The share of the last token's weight on each region without keys where heads rest
        whatever the text says (such as the first token), the mean over heads; parts of all weight.
        UNSET without regions or without such keys.
        """
        if not self._regions or not self._rest.any():
            return UNSET
        return [_finite_or_none(value) for value in np.concatenate(self._shares_beyond, 1).mean(1)]

    def bytes_of(self, place: int | None) -> int:
        """Bytes of the keys and values that a policy keeps.

        place: the policy's index; None for all keys and values that are seen.
        """
        return round(self._bytes[place])

    def share_kept(self, place: int) -> float | None:
        """The share of the last token's weight that a policy keeps, the mean over heads; None where
        no head has weight.

        place: the policy's index.
        """
        shares = np.concatenate(self._kept[place])
        has_weight = np.isfinite(shares)  # a head without weight has NaN, 0 of 0
        if has_weight.any():
            return float(np.mean(shares[has_weight]))
        return None

    def rest_share(self) -> float | UnsetType:
        """The share of the last token's weight on keys where heads rest (such as the first token),
        the mean over heads; UNSET where there are no such keys."""
        if not self._rest.any():
            return UNSET
        return float(np.concatenate(self._rested).mean())

    def share_kept_beyond_rest(self, place: int) -> float | UnsetType | None:
        """The share of the last token's weight that a policy keeps, without keys where heads rest
        whatever the text says (the first token, special tokens, separators); UNSET where there are
        no such keys, None where no weight is left without them.

        place: the policy's index.

        It is of all heads together, for a head all of whose weight rests has nothing to lose.
        """
        if not self._rest.any():
            return UNSET
        # (what is kept, all) of that weight, each summed over the heads of all layers
        left, whole = np.concatenate(self._kept_beyond[place], 1).sum(1)
        if whole > 0:
            return float(left / whole)
        return None

    def heads_kept(self, place: int) -> list[HeadKept]:
        """The document's entry on each head: the share of its last token's weight that a policy
        keeps, of all keys, and without keys where heads rest whatever the text says (the first
        token, special tokens, separators) where the text has such keys.

        place: the policy's index.
        """
        rests = bool(self._rest.any())
        rows = []
        # of each layer: the share kept, [head]; the weight kept and all weight without keys where
        # heads rest, [2, head]
        parts = zip(self.layers, self._kept[place], self._kept_beyond[place], strict=True)
        for layer, shares, (left, whole) in parts:
            for head, kept in enumerate(shares.tolist()):
                beyond: float | UnsetType | None = UNSET
                if rests:
                    beyond = _ratio_or_none(float(left[head]), float(whole[head]))
                rows.append(
                    HeadKept(
                        layer=layer,
                        head=head,
                        kept=_finite_or_none(kept),
                        kept_beyond_rest=beyond,
                    )
                )
        return rows

    def regions_kept(self, place: int) -> list[RegionKept] | UnsetType:
        """The document's entry on each region: the share of its weight that a policy keeps, of all
        of its keys and without those where heads rest whatever the text says (the first token,
        special tokens, separators), and the share of its keys; over all heads. UNSET without
        regions.

        place: the policy's index.
        """
        if not self._regions:
            return UNSET
        rests = bool(self._rest.any())
        # the layers' [region, head] are joined along the heads, and the heads summed: [region]
        total = np.concatenate(self._shares, 1).sum(1)
        total_beyond = np.concatenate(self._shares_beyond, 1).sum(1)
        left = np.concatenate(self._region_kept[place], 1).sum(1)
        left_beyond = np.concatenate(self._region_kept_beyond[place], 1).sum(1)
        keys = np.concatenate(self._region_keys[place], 1).mean(1)
        return [
            RegionKept(
                kept=_ratio_or_none(left[number], total[number]),
                kept_beyond_rest=(
                    _ratio_or_none(left_beyond[number], total_beyond[number]) if rests else UNSET
                ),
                keys=float(share),
            )
            for number, share in enumerate(keys)
        ]


def _region_sums(values: np.ndarray[Any, Any], regions: Sequence[list[int]]) -> Floats:
    """The sums of values [head, key] over the keys of each region, [region, head]."""
    return np.array([values[:, keys].sum(-1) for keys in regions])


def _policy_run(
    model: Model,
    policy: Policy,
    whole: _WholeRun,
    tokens: Sequence[Token],
    rows: int,
    progress: Callable[[float], None],
) -> PolicyRun:
    """Run the text with every layer forgetting keys as a policy says, and compare the last token's
    vectors with those of the run with every key.

    whole: the run with every key, which has ended.
    tokens: of the text, followed by those of the answer but its last.
    rows: query rows at a time.
    progress: called with the share of this run that is done.
    """
    # of the text alone; a model without an output head has no answer
    count = len(tokens) - max(len(whole.answer) - 1, 0)
    forgetting = replace(model, spec=_with_cache(model.spec, policy, count))  # the same weights
    # by attention layer; layers that do not attend overwrite that of the one before them, so that
    # the last error is that of what leaves the model
    errors: dict[int, float | None] = {}
    logprob = None
    attention_layer = 0  # for layers before the first that attends, which nobody reads
    for trace in forgetting.trace(
        tokens, keep=(), rows=rows, on_block=_block_handler(model, len(tokens), progress), idle=True
    ):
        vector = np.asarray(model.backend.numpy(trace.after[count - 1]), np.float64)
        whole_vector = whole.vectors[trace.layer]
        difference = float(np.linalg.norm(vector - whole_vector))
        if trace.layer in whole.layers:
            attention_layer = trace.layer
        errors[attention_layer] = _ratio_or_none(difference, float(np.linalg.norm(whole_vector)))
        if trace.layer == len(model.spec.blocks) - 1:
            # the ids of the answer are known from the run with every key
            _, logprob = _answer_logprob(model, trace.after[count - 1 :], whole.answer)
    return PolicyRun([errors[layer] for layer in whole.layers], logprob)


def _with_cache(spec: Spec, policy: Policy, count: int) -> Spec:
    """The Spec with a policy's mask beside each layer's own.

    count: tokens of the text, after which nothing more is forgotten.
    """
    forgetting = WhileReading(policy, count)
    blocks = []
    for block in spec.blocks:
        mask = intersection(block.attention.mask, forgetting)
        blocks.append(replace(block, attention=replace(block.attention, mask=mask)))
    return replace(spec, blocks=tuple(blocks))


def _answer_logprob(model: Model, after: Any, answer: list[int]) -> tuple[list[int], float | None]:
    """The ids of the answer, or of the model's first choice if it is empty, and their log
    probability; no ids and None without an output head.

    after: what leaves the last layer at the text's last token and those of the answer but the last,
        [token, width].
    """
    if model.spec.head is None:
        return [], None
    scores = np.asarray(model.backend.numpy(model.logits(after)), np.float64)
    answer = answer or [first_choice(model, scores)]
    return answer, _finite_or_none(sum_logprob(scores, answer))


def _block_handler(
    model: Model,
    count: int,
    progress: Callable[[float], None],
    on_self_block: Callable[[int, RowBlock], None] = lambda layer, block: None,
) -> Callable[[int, str, RowBlock], None]:
    """The `on_block` callback of a run: calls `progress` with the share of the run that is done,
    and `on_self_block` with (layer, block) for each block of self-attention.

    count: tokens in all.
    """
    layers = len(model.spec.blocks)

    def on_block(layer: int, kind: str, block: RowBlock) -> None:
        """Pass on a block of query rows, and report how far the run is.

        kind: "self", or "cross" for attention to another text, which is passed over.
        """
        if kind == "self":
            on_self_block(layer, block)
            heads = model.spec.blocks[layer].attention.heads
            share_of_layer = share(block, heads, count)
            progress((layer + share_of_layer) / layers)

    return on_block


def _refuse_two_sided(model: Model) -> None:
    """Raise UsageError for seeded weights without a mask, UnsupportedError for a model that reads
    both ways.
    """
    if reads_on(model.spec):
        return
    if model.identity.source != "checkpoint":
        raise UsageError(
            "a cache of keys is about a text that is read from left to right",
            expected="--mask causal as well",
        )
    raise UnsupportedError(
        "this {family} model reads in both directions (mask {mask}): it keeps no keys from token to"
        " token",
        expected="a decoder with its own mask",
        family=model.spec.family,
        mask=listing(dict.fromkeys(block.attention.mask.spec() for block in model.spec.blocks)),
    )


def _ratio_or_none(part: float, whole: float) -> float | None:
    """part / whole; None where the whole is 0 or the ratio is not finite."""
    if whole > 0:
        return _finite_or_none(part / whole)
    return None


def _finite_or_none(value: float) -> float | None:
    """The number as Python's float; None for an infinite one and for NaN."""
    if np.isfinite(value):
        return float(value)
    return None
