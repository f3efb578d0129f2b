"""`attncli.answer`: which regions of a prompt the whole answer used."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.arrays.backend import SCORE_ITEM
from attncli.documents import RegionRow
from attncli.documents.header import header, notes
from attncli.errors import InputError, LimitError
from attncli.features.answer.cut_runs import Cut, CutRun, CutRuns, HeadLinks, OwnKeys
from attncli.features.answer.document import (
    LITTLE,
    MOST_COMPARED,
    AnswerDocument,
    AnswerDose,
    AnswerDoses,
    AnswerEffect,
    AnswerSentence,
    AnswerSubsets,
    AnswerText,
    AnswerToken,
    CarryingHead,
    CarryingHeads,
    HiddenRegions,
    OtherAnswer,
    SubsetWeight,
)
from attncli.features.answer.even_attention import even_shares
from attncli.features.answer.head_estimates import HeadEstimate, head_estimates
from attncli.features.answer.random_spans import DRAWS, random_spans
from attncli.features.answer.sparse_fit import (
    PENALTY,
    SparseFit,
    answer_logit,
    fit_sparse,
    random_masks,
    rank_score,
)
from attncli.features.effects.ablation import refuse_foreign
from attncli.features.effects.targets import choose_target, following_tokens, target_tokens
from attncli.features.effects.weighing import Weighing, find_weighing, read_factor
from attncli.features.generate.compute import (
    continuation_text,
    generate,
)
from attncli.features.run.compute import RunRequest, cost
from attncli.inputs.regions import REST, LeafRegion, Region, leaf_regions
from attncli.inputs.token import Token, ignore
from attncli.language import message
from attncli.measure.kept_results import KeptResults, fingerprint
from attncli.measure.rest import resting_keys
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.context import Past
from attncli.mechanism.head_choice import NamedHeads, pairs_or_all
from attncli.models.estimate import CostEstimate, with_predictions, with_runs, work_of
from attncli.models.model import Model
from attncli.models.run import LONG, no_output_head, rows_for

Floats = np.ndarray[Any, np.dtype[Any]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

TIMES = 2.0
"""How many times the largest change of a random span a region must lose to matter."""
QUARTER = 0.25
"""The part of the largest weight from which on a region may be one of those that hide each other."""
SENTENCE = re.compile(r".+?(?:[.!?]+[\"'”’)\]]*(?=\s|$)|[。！？]+[”’」』]*|\n|$)\s*", re.DOTALL)
"""A sentence and the blanks behind it: up to marks that end one, with closing quotes and brackets,
before a blank (3.14 ends none); up to such marks of Chinese or Japanese; or up to the end of a line."""


class WrittenAnswer(Struct, frozen=True):
    """What the model writes with a region cut off: ids, and whether it ended the text."""

    ids: list[int]
    ended: bool


class AnswerResults(Struct, frozen=True):
    """What is known of unfinished work; its lists and its dict are filled as runs end.

    answer: the vocabulary ids of the answer.
    ended: whether the model ended it by itself; None for an answer that was given.
    logprobs: by the key of a cut, the log probability of each token of the answer.
    attention: for each leaf region, the share of the answer's attention on it, a mean over the
        queries; tokens where heads rest (see `resting_keys`) do not count.
    estimates: of every head.
    others: by cut, what the model writes with it.
    """

    answer: list[int] = []
    ended: bool | None = None
    logprobs: dict[str, list[float]] = {}
    attention: list[float] = []
    estimates: list[HeadEstimate] = []
    others: dict[str, WrittenAnswer] = {}


OWN = Cut("own")
LOOKED = "attention/2"
"""What kept results hold of attention: of what does not rest; all of it before."""
TINY = 1e-12
"""A weight that counts as none."""
HIDES = 3.0
"""How many times its loss alone the weight of a region is that others hide."""
FEWEST_SUBSETS = 8
"""Subsets below which a fit and its test say nothing."""
FEWEST_REGIONS = 4
"""Regions from which on subsets are drawn: three have eight subsets."""
FACTORS = (0.0, 0.5, 1.0, 2.0, 4.0)
"""The doses of every region that is weighed; a factor that is asked for comes to them."""
CARRIERS = 10
"""Heads that are cut by themselves, those of the largest estimated loss."""
BACK_AND_FORTH = 4
"""Runs of the answer's tokens that a run with gradients and its cuts take as long as."""
TOGETHER, EVERY = "heads-together", "heads-every"
"""The names of the runs with the links cut in the heads that are told, and in every head."""


@checked
def answer(
    model: Model,
    text: str,
    regions: Sequence[Region],
    *,
    target: str | None = None,
    length: int = 64,
    cut: Literal["links", "text"] = "links",
    subsets: int = 0,
    each_head: bool = False,
    weigh: str | None = None,
    weigh_in: NamedHeads | None = None,
    sources: Sequence[str] | None = None,
    seed: int = 0,
    tokens: Sequence[Token] | None = None,
    kept: Path | None = None,
    note: Callable[[str], None] = ignore,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
    on_result: Callable[[int, int], None] = ignore,
    on_interruption: Callable[[AnswerDocument], None] = ignore,
    progress: Callable[[float], None] = ignore,
) -> AnswerDocument:
    """Let a decoder answer a prompt, and measure what the whole answer loses without each region.

    A region that contains other regions stands for its remaining tokens. What runs of different
    cuts have in common is computed once. The regions that the answer loses most without are
    compared with random spans of as many neighbouring tokens of other regions. Where the model
    writes the answer itself, it also writes what it answers without each region that matters.

    Args:
        model: A decoder with an output head, as `attncli.load` returns it.
        text: The prompt.
        regions: As `attncli.inputs.regions.find_regions` returns them.
        target: The answer; None for what the model writes, the likeliest token each time.
        length: How many tokens the model writes at most.
        cut: "links" to make a region's keys invisible to all tokens outside it, in all heads of all
            layers; "text" to leave its tokens out.
        subsets: How many random sets of regions are taken away for a sparse linear model of what
            the answer needs, which is tested on half as many others; 0 for none.
        each_head: Whether to measure which heads carry the region that the answer rests on most:
            all heads by an estimate, then the first `CARRIERS` of them exactly.
        weigh: A region or word of the prompt and a factor, such as "doc1=×4": the answer is measured
            with attention on it weighed by this factor and by `FACTORS`. A factor alone weighs the
            region that the answer loses most without.
        weigh_in: The heads in which that is done, with their layers: "L5H11" or (5, 11), several
            as "L5H11,L3H1" or in a list; None for all.
        sources: The names of the regions that are compared; None for all that are neither messages
            of a chat nor `rest`, or for the messages where there are no others.
        seed: Of the random spans and subsets.
        tokens: The tokens of the prompt; None to let the model's tokenizer find them.
        kept: A folder where results are kept until all are known, so that the same call goes on
            after an interruption.
        note: Called with a sentence on which spelling of the target is measured.
        on_cost: Called before the work starts with its estimated cost and the number of tokens.
        on_result: Called after each run with the number of runs done and of all runs.
        on_interruption: Called with a document of the results so far where Ctrl-C ends the work
            after at least one region.
        progress: Called with the share of the work that is done, 0 to 1.

    Returns:
        What `attn answer --json` writes: changes of the mean log probability a token, in nats.

    Raises:
        InputError: Without regions, for `sources` that name no region, for a target that is no text
            of the vocabulary, and where the model ends the text at once.
        KeyboardInterrupt: On Ctrl-C, after `on_interruption`.
        LimitError: For more tokens than the model has positions.
        UnsupportedError: For a model that is no decoder or predicts no token.

    Source: Geva et al., Dissecting recall of factual associations, 2023 (arXiv 2304.14767), for the
    knock-out of links; Cohen-Wang et al., ContextCite, 2024 (arXiv 2409.00729), for subsets.
    """
    if tokens is None:
        tokens = model.encode(text)
    _refuse(model, regions)

    # what is to be run
    leaves = leaf_regions(regions)
    names = _source_names(leaves, sources)
    subset_masks = _drawn_masks(leaves, names, subsets, seed)
    cuts = [*_single_cuts(leaves), *_subset_cuts(leaves, names, subset_masks)]
    _refuse_empty(cuts, cut, len(tokens))
    weighed_heads = pairs_or_all(model.spec, weigh_in)
    weighing = _parse_weighing(weigh, tokens, regions, weighed_heads, note)

    # the results of an interrupted call with the same request, or none
    request = (target, length, cut, seed, subsets, tuple(names), each_head, weighing)
    file = _results_file(kept, model, tokens, leaves, request)
    results = file.read() or AnswerResults()

    # the answer; writing it leaves keys and values of the prompt in `past`
    past: Past = {}
    if not results.answer:
        # an answer of one token, whichever, stands for the one that is not known yet
        plan = _Plan(
            runs=CutRuns(model=model, tokens=tuple(tokens), answer=(0,), way=cut),
            length=length,
            writes_answers=target is None,
            cuts=cuts,
            each_head=each_head,
            weighing=weighing,
        )
        on_cost(plan.forecast(), len(tokens))
        results = _run_answer(model, text, tokens, target, length, note, past)
        file.keep(results)
    ids = results.answer
    # the answer's last token is predicted, but never a query itself
    following = following_tokens(model, tokens, ids[:-1])
    _refuse_length(model, len(tokens) + len(following))

    runs = CutRuns(model=model, tokens=(*tokens, *following), answer=tuple(ids), way=cut)
    work = _AnswerWork(
        runs=runs,
        own=_OwnRun(runs, past),
        text=text,
        tokens=tuple(tokens),
        leaves=tuple(leaves),
        sources=frozenset(names),
        target=target,
        length=length,
        seed=seed,
        masks=subset_masks,
        fitted=_fitted_count(len(subset_masks)),
        weighing=weighing,
        each_head=each_head,
        file=file,
    )
    run_log = _RunLog(results, on_result, progress)
    # the order matters: each step chooses what it runs by the results of those before it
    try:
        work.measure(cuts, run_log)
        work.compare_with_random(run_log)
        work.write_others(run_log)
        work.cut_hidden(run_log)
        work.weigh(run_log)
        work.cut_heads(run_log)
    except KeyboardInterrupt:
        # a document needs the uncut run, which records attention, and the run without one region
        if results.attention and len(results.logprobs) > 1:
            on_interruption(work.document(results, [run_log.interruption_note()]))
        raise
    progress(1.0)
    file.drop()
    return work.document(results)


class _RunLog:
    """Counts the runs and tokens that are planned and done, calls the two callbacks of `answer`, and
    holds the results."""

    def __init__(
        self,
        results: AnswerResults,
        on_result: Callable[[int, int], None],
        progress: Callable[[float], None],
    ) -> None:
        """Begin with nothing planned: `plan` adds runs and tokens, `add_tokens` those done.

        results: those of an earlier call, and all that come.
        on_result: called after each run with the number of runs that have a result, and of all.
        progress: called with the share of the planned tokens that is done.
        """
        self.results = results
        self._on_result = on_result
        self._progress = progress
        self._runs = 0
        self._tokens = 0
        self._done_tokens = 0

    def plan(self, runs: int, tokens: int) -> None:
        """Add runs and tokens that are to come to the totals."""
        self._runs += runs
        self._tokens += tokens

    def add_tokens(self, count: int) -> None:
        """Count tokens that are done, and report the share of all planned tokens."""
        self._done_tokens += count
        self._progress(self._done_tokens / max(self._tokens, 1))

    def add_run(self) -> None:
        """Report how many runs have a result, and how many are planned."""
        self._on_result(len(self.results.logprobs), self._runs)

    def interruption_note(self) -> str:
        """The warning that work was interrupted after some of its runs."""
        return message(
            "interrupted: {count} of {runs} runs are told of",
            count=len(self.results.logprobs),
            runs=self._runs,
        )


class _OwnRun:
    """The own run, which others begin with: what is kept of it once it has run.

    past: keys and values of the prompt, where writing the answer has left them.
    """

    def __init__(self, runs: CutRuns, past: Past) -> None:
        self._runs = runs
        self._past = past
        self._keys: OwnKeys | None = None

    @property
    def tokens_to_run(self) -> int:
        """How many tokens `run` would compute: none once it has run, only the answer's queries where
        the keys and values of the prompt are known, else all."""
        if self._keys is not None:
            return 0
        count = len(self._runs.tokens)
        if self._past:
            return count - self._runs.first_query
        return count

    def run(self, on_tokens: Callable[[int], None]) -> tuple[OwnKeys, CutRun | None]:
        """Run prompt and answer uncut, the first time only.

        on_tokens: called with how many more tokens are done.

        Returns: what later runs continue from, and the result of the run; None in place of the
            result when an earlier call has returned it.
        """
        if self._keys is not None:
            return self._keys, None
        self._keys, run = self._runs.own_run(self._past, on_tokens)
        self._past = {}  # freed: `_keys` holds what later runs need
        return self._keys, run


class _AnswerWork(Struct, frozen=True, kw_only=True, eq=False):
    """A prompt, its answer and its regions, as they are measured.

    leaves: the regions, each without the tokens of the regions inside it. Methods number them:
        `place` is an index of this tuple.
    sources: the names of the regions that are compared.
    masks: the random subsets, [subset, region compared], true where the region is there.
    fitted: how many of the subsets the linear model is fitted on; the others test it.
    """

    runs: CutRuns
    own: _OwnRun
    text: str
    tokens: tuple[Token, ...]
    leaves: tuple[LeafRegion, ...]
    sources: frozenset[str]
    target: str | None
    length: int
    seed: int
    masks: Bools
    fitted: int
    weighing: Weighing | None
    each_head: bool
    file: KeptResults[AnswerResults]

    @property
    def rest_mask(self) -> Bools:
        """Which tokens of prompt and answer are resting keys (the first and special tokens, on which
        heads put weight when they look for nothing), booleans [key]."""
        return resting_keys(self.runs.tokens, self.runs.model.identity.source)

    def measure(self, cuts: Sequence[Cut], run_log: _RunLog) -> None:
        """Run those of these cuts that have no result yet, and store their results.

        run_log: has the results of the runs so far, and counts further ones.
        """
        finished = run_log.results.logprobs
        missing = [cut for cut in cuts if cut.key not in finished]
        if not missing:
            return

        # a model whose runs cannot continue from stored keys and values
        if not self.runs.can_resume:
            run_log.plan(len(missing), self.runs.planned_tokens(missing))
            for run in self.runs.run(missing, run_log.add_tokens):
                self._keep(run, run_log)
            return

        # else the uncut run comes first, and each other run continues it from its first cut
        others = [cut for cut in missing if cut.key != OWN.key]
        planned = self.runs.planned_tokens(others, after_own=True)
        run_log.plan(len(missing), planned + self.own.tokens_to_run)
        own_keys, own_run = self.own.run(run_log.add_tokens)
        if own_run is not None and own_run.cut.key not in finished:
            self._keep(own_run, run_log)
        for run in self.runs.run(others, run_log.add_tokens, own_keys):
            self._keep(run, run_log)

    def _keep(self, run: CutRun, run_log: _RunLog) -> None:
        """Store the log probabilities of a run and, of the uncut run, the share of attention that
        the answer's queries give to each region; then count the run.

        run_log: has the results of the runs so far, and counts further ones.
        """
        if run.shares is not None:
            # attention [query, key] without the keys on which heads put weight, looking for nothing;
            # each region's part of what is left of a row, a mean over the rows
            attention = run.shares * ~self.rest_mask[: run.shares.shape[1]]
            row_sums = np.maximum(attention.sum(1), TINY)
            shares = []
            for leaf in self.leaves:
                region_sums = attention[:, list(leaf.tokens)].sum(1)
                share = float((region_sums / row_sums).mean())
                shares.append(min(share, 1.0))  # rounding may leave it a little above 1
            run_log.results.attention[:] = shares
        run_log.results.logprobs[run.cut.key] = run.logprobs.tolist()
        self.file.keep(run_log.results)
        run_log.add_run()

    def changes(self, results: AnswerResults, key: str) -> Floats:
        """How much the cut of this key changes the log probability of each token of the answer,
        [token], in nats: below 0 where the token becomes less likely."""
        return np.subtract(results.logprobs[key], results.logprobs[OWN.key])

    def rank_regions(self, results: AnswerResults) -> list[int]:
        """The regions that have a result, as indices of `leaves`, the largest loss first."""
        places = [
            place for place in range(len(self.leaves)) if _region_key(place) in results.logprobs
        ]
        losses = {place: self.changes(results, _region_key(place)).mean() for place in places}
        return sorted(places, key=lambda place: (losses[place], place))

    def compare_with_random(self, run_log: _RunLog) -> None:
        """For the regions of the largest loss, at most `MOST_COMPARED`, also cut random spans of as
        many tokens each, as controls. Later spans avoid regions that already proved to matter.

        run_log: has the results of the runs so far, and counts further ones.
        """
        accepted: list[int] = []
        compared = 0
        for place in self.rank_regions(run_log.results):
            loss = -self.changes(run_log.results, _region_key(place)).mean()
            if self.leaves[place].name not in self.sources or loss < LITTLE:
                continue
            spans = self.random_spans(place, accepted)
            cuts = [Cut(f"random {place} {number}", (span,)) for number, span in enumerate(spans)]
            self.measure(cuts, run_log)
            compared += 1
            if self.matters(run_log.results, place):
                accepted.append(place)
            if compared == MOST_COMPARED:
                return

    def written_places(self, results: AnswerResults) -> list[int]:
        """The regions, as indices of `leaves`, without which the model is to answer again: those that
        matter, or where none does for sure, the region of the largest loss that was not compared
        with random spans. [] where the answer was given, not written by the model."""
        first = self.most_used_region(results)
        if self.target is not None or first is None:
            return []
        used = [place for place in self.rank_regions(results) if self.matters(results, place)]
        if used:
            return used
        return [first]

    def write_others(self, run_log: _RunLog) -> None:
        """Let the model answer without each region that the answer rests on.

        run_log: has the results of the runs so far, and counts further ones.
        """
        places = [
            place
            for place in self.written_places(run_log.results)
            if _region_key(place) not in run_log.results.others
        ]
        # of each run the tokens of the prompt are counted, and no result
        prompt_tokens = len(self.tokens)
        run_log.plan(runs=0, tokens=prompt_tokens * len(places))
        for place in places:
            cut = Cut(_region_key(place), (self.leaves[place].tokens,))
            ids, ended = self.runs.write(cut, self.length)
            run_log.results.others[cut.key] = WrittenAnswer(ids, ended)
            self.file.keep(run_log.results)
            run_log.add_tokens(prompt_tokens)

    def other_answer(self, results: AnswerResults, place: int) -> OtherAnswer | None:
        """The part of the document on what the model writes without the region at `place`; None
        where it was not let write without it."""
        answer = results.others.get(_region_key(place))
        if answer is None or place not in self.written_places(results):
            return None
        model = self.runs.model
        new = following_tokens(model, self.tokens, answer.ids)
        text, _ = continuation_text(model, self.tokens, new)
        return OtherAnswer(text=text, tokens=target_tokens(model, answer.ids), ended=answer.ended)

    def random_spans(self, place: int, accepted: Sequence[int] = ()) -> list[tuple[int, ...]]:
        """Random spans of as many tokens as the region at `place` has, drawn outside it and outside
        the regions `accepted`, which are known to matter. Each span is a tuple of token indices."""
        closed_tokens: set[int] = set()
        for number in (place, *accepted):
            closed_tokens.update(self.leaves[number].tokens)
        return self._spans(len(self.leaves[place].tokens), closed_tokens, f"answer\0{place}")

    def _spans(self, count: int, closed: Collection[int], name: str) -> list[tuple[int, ...]]:
        """Random spans of `count` tokens of the prompt, as token indices, without any in `closed`.

        name: of the random stream, so that each draw differs and can be repeated.
        """
        compared = {
            token
            for source in self.leaves
            if source.name in self.sources
            for token in source.tokens
        }
        # tokens on which heads put weight when they look for nothing, which no span has
        rest = resting_keys(self.tokens, self.runs.model.identity.source)
        return random_spans(count, compared, closed, rest, (self.seed, name))

    def random_changes(self, results: AnswerResults, place: int) -> list[float]:
        """How much the answer's mean log probability changes without each of the random spans that
        the region at `place` is compared with; empty where it was not compared."""
        keys = [f"random {place} {number}" for number in range(DRAWS)]
        return [float(self.changes(results, key).mean()) for key in keys if key in results.logprobs]

    def matters(self, results: AnswerResults, place: int) -> bool | None:
        """Whether the answer uses the region at `place`: it loses at least `LITTLE` without it, and
        `TIMES` as much as without any random span. None for a region that is not among those
        compared, and where the loss is large enough but was not compared with random spans.

        results: of the runs so far.
        """
        if self.leaves[place].name not in self.sources:
            return None
        loss = -float(self.changes(results, _region_key(place)).mean())
        if loss < LITTLE:
            return False
        random = self.random_changes(results, place)
        if random:
            return loss >= TIMES * max(map(abs, random))
        return None

    def source_places(self) -> list[int]:
        """The regions that are compared, as indices of `leaves`."""
        return [place for place, leaf in enumerate(self.leaves) if leaf.name in self.sources]

    def fit(self, results: AnswerResults) -> tuple[SparseFit, Floats] | None:
        """Fit the sparse linear model of which regions the answer needs.

        results: of the runs so far.

        Returns: the model, and what it is fitted to: the logit of the whole answer's probability a
            token, [subset], of the subsets it is tested on, too. None while a subset has no result,
            and where none were asked for.
        """
        keys = [_subset_key(mask) for mask in self.masks]
        if not keys or any(key not in results.logprobs for key in keys):
            return None
        count = len(self.runs.answer)
        values = np.array([answer_logit(sum(results.logprobs[key])) / count for key in keys])
        return fit_sparse(self.masks[: self.fitted], values[: self.fitted]), values

    def hidden_places(self, results: AnswerResults) -> list[int]:
        """Regions that may hide each other, as indices of `leaves`: the model of subsets gives each
        at least `HIDES` times the loss of its cut alone, and at least a quarter of the largest
        weight. Empty where there is only one.

        results: of the runs so far.
        """
        fitted_model = self.fit(results)
        if fitted_model is None:
            return []
        fit, _ = fitted_model
        weights = fit.weights
        least = max(LITTLE, QUARTER * float(weights.max()))
        places = []
        for place, weight in zip(self.source_places(), weights, strict=True):
            loss = max(-float(self.changes(results, _region_key(place)).mean()), 0.0)
            if weight >= max(least, HIDES * loss):
                places.append(place)
        if len(places) < 2:
            return []
        return places

    def hidden_group(self, results: AnswerResults) -> tuple[list[int], list[Cut]]:
        """The regions that hide each other: cutting one of them alone changes little, because the
        others say the same, but cutting all does. The region that adds least is dropped until each
        adds at least `LITTLE` to the loss.

        results: of the runs so far.

        Returns: the regions as indices of `leaves`, and no cuts; or no regions yet, and the cuts
            that still have to run to decide; or neither where no two hide each other.
        """
        group = self.hidden_places(results)
        while len(group) > 1:
            # all of the group at once, then all but one of them
            cuts = [_group_cut(self.leaves, group)]
            cuts += [
                _group_cut(self.leaves, [place for place in group if place != number])
                for number in group
            ]
            missing = [cut for cut in cuts if cut.key not in results.logprobs]
            if missing:
                return [], missing
            whole, *all_but_one = [float(self.changes(results, cut.key).mean()) for cut in cuts]
            # the region without which the cut of the group loses most: it adds least
            least = int(np.argmin(all_but_one))
            if all_but_one[least] - whole >= LITTLE:
                return group, []
            del group[least]
        return [], []

    def cut_hidden(self, run_log: _RunLog) -> None:
        """Run the cuts of several regions at once that `hidden_group` needs to decide which regions
        hide each other, until it needs no more."""
        _, cuts = self.hidden_group(run_log.results)
        while cuts:
            self.measure(cuts, run_log)
            _, cuts = self.hidden_group(run_log.results)

    def hidden_part(self, results: AnswerResults) -> HiddenRegions | UnsetType:
        """The part of the document on regions that hide each other. UNSET without such regions, and
        where cutting all of them does not lose clearly more than the sum of their single cuts.

        results: of the runs so far.
        """
        group, _ = self.hidden_group(results)
        if not group:
            return UNSET
        change = float(self.changes(results, _group_cut(self.leaves, group).key).mean())
        losses = [float(self.changes(results, _region_key(place)).mean()) for place in group]
        if change > sum(min(loss, 0.0) for loss in losses) - LITTLE:
            return UNSET
        return HiddenRegions(regions=group, change=change)

    def choose_weighing(self, results: AnswerResults) -> Weighing | None:
        """What --weigh multiplies, and by how much: as it was asked for, or where it named no region,
        the region whose cut loses most. None without --weigh."""
        if self.weighing is None or self.weighing.keys:
            return self.weighing
        # every region has been cut by now; the largest loss comes first
        places = self.source_places()
        ranked = [place for place in self.rank_regions(results) if place in places]
        leaf = self.leaves[ranked[0]]
        return replace(self.weighing, name=leaf.name, keys=leaf.tokens)

    def weigh(self, run_log: _RunLog) -> None:
        """Run with attention on a region multiplied by each factor in turn; as controls, run with
        attention on random spans of as many tokens multiplied by the factor that was asked for.

        run_log: has the results of the runs so far, and counts further ones.
        """
        weighing = self.choose_weighing(run_log.results)
        if weighing is None:
            return
        # factor 1 changes nothing: its result is the uncut run's
        cuts = [
            Cut(f"dose {factor!r}", change=replace(weighing, factor=factor))
            for factor in _factors(weighing)
            if factor != 1.0
        ]
        if weighing.factor != 1.0:
            spans = self._spans(len(weighing.keys), weighing.keys, "answer\0doses")
            cuts += [
                Cut(f"dose-random {number}", change=replace(weighing, keys=span))
                for number, span in enumerate(spans)
            ]
        self.measure(cuts, run_log)

    def dose_part(self, results: AnswerResults) -> AnswerDoses | UnsetType:
        """The part of the document on doses; UNSET until all doses of the region are known.

        results: of the runs so far.
        """
        if self.weighing is None:
            return UNSET
        keys = {factor: f"dose {factor!r}" for factor in _factors(self.weighing)}
        keys[1.0] = OWN.key  # nothing is changed there: the run of the whole prompt
        if any(key not in results.logprobs for key in keys.values()):
            return UNSET
        # the same factors, with the region that they were tried on where none was named
        weighing = self.choose_weighing(results)
        assert weighing is not None
        random_keys = [f"dose-random {number}" for number in range(DRAWS)]
        # none where the factor asked for is 1, or no spans could be drawn
        measured_keys = [key for key in random_keys if key in results.logprobs]
        random_changes: list[float] | UnsetType = UNSET
        if measured_keys:
            random_changes = [float(self.changes(results, key).mean()) for key in measured_keys]
        return AnswerDoses(
            weighed=weighing.part(),
            doses=[
                AnswerDose(
                    factor=factor,
                    logprob=float(np.mean(results.logprobs[key])),
                    change=float(self.changes(results, key).mean()),
                )
                for factor, key in sorted(keys.items())
            ],
            random=random_changes,
        )

    def most_used_region(self, results: AnswerResults) -> int | None:
        """The region that the answer depends on most, as an index of `leaves`; if it depends on none
        for sure, the region of the largest loss that was not compared with random spans; else
        None."""
        ranked = [place for place in self.rank_regions(results) if place in self.source_places()]
        for place in ranked:
            if self.matters(results, place):
                return place
        return next((place for place in ranked if self.matters(results, place) is None), None)

    def cut_heads(self, run_log: _RunLog) -> None:
        """Estimate how much of the effect of the most important region each head carries; then cut
        the links to it in the first of these heads, one by one and together, and in all heads.

        run_log: has the results of the runs so far, and counts further ones.
        """
        place = self.most_used_region(run_log.results)
        if not self.each_head or place is None:
            return
        keys = self.leaves[place].tokens
        if not run_log.results.estimates:
            # mostly it has run already, and its result is known; its tokens are not planned, so that
            # nobody counts them
            own, _ = self.own.run(lambda count: None)
            run_log.results.estimates[:] = head_estimates(self.runs, own, keys)
            self.file.keep(run_log.results)
        chosen = [(row.layer, row.head) for row in largest_losses(run_log.results.estimates)]
        every = [(row.layer, row.head) for row in run_log.results.estimates]
        groups = {f"head {layer} {head}": [(layer, head)] for layer, head in chosen}
        groups |= {TOGETHER: chosen, EVERY: every}
        cuts = [Cut(key, change=HeadLinks(keys, tuple(heads))) for key, heads in groups.items()]
        self.measure(cuts, run_log)

    def carriers_part(self, results: AnswerResults) -> CarryingHeads | UnsetType:
        """The part of the document on the heads that carry the region that the answer depends on
        most, the largest exact loss first; UNSET until all cuts of heads have run.

        results: of the runs so far.
        """
        place = self.most_used_region(results)
        if place is None or not {TOGETHER, EVERY} <= results.logprobs.keys():
            return UNSET
        heads = [
            CarryingHead(
                layer=row.layer,
                head=row.head,
                attention=row.attention,
                estimate=row.change,
                change=float(self.changes(results, f"head {row.layer} {row.head}").mean()),
            )
            for row in largest_losses(results.estimates)
        ]
        return CarryingHeads(
            region=place,
            count=len(results.estimates),
            heads=sorted(heads, key=lambda row: (row.change, row.layer, row.head)),
            together=float(self.changes(results, TOGETHER).mean()),
            every=float(self.changes(results, EVERY).mean()),
        )

    def subset_part(self, results: AnswerResults) -> AnswerSubsets | UnsetType:
        """The part of the document on random subsets of regions: the weights of the fitted model,
        and how well it ranks the subsets it was not fitted on. UNSET until all have run.

        results: of the runs so far.
        """
        fitted_model = self.fit(results)
        if fitted_model is None:
            return UNSET
        fit, values = fitted_model
        predicted = fit.predict(self.masks[self.fitted :])
        # the rank correlation and its interval, where predictions and values vary
        score = rank_score(predicted, values[self.fitted :])
        lds: float | None = None
        low: float | None = None
        high: float | None = None
        if score is not None:
            lds, low, high = score
        weights = [
            SubsetWeight(region=place, weight=float(weight))
            for place, weight in zip(self.source_places(), fit.weights, strict=True)
        ]
        return AnswerSubsets(
            fitted=self.fitted,
            tested=len(self.masks) - self.fitted,
            penalty=PENALTY,
            intercept=fit.intercept,
            weights=sorted(weights, key=lambda row: (-row.weight, row.region)),
            lds=lds,
            low=low,
            high=high,
            hidden=self.hidden_part(results),
        )

    def document(self, results: AnswerResults, more: Sequence[str] = ()) -> AnswerDocument:
        """The document of all results so far, which may be those of an interrupted call.

        more: warnings beside those of the text and of the measurement.
        """
        model = self.runs.model
        answer_part = self._answer_text(results)
        sentences = answer_part.sentences
        queries = range(self.runs.first_query, len(self.runs.tokens))
        regions = [leaf.tokens for leaf in self.leaves]
        # even attention, too, is taken of what does not rest on first and special tokens
        even = even_shares(model.spec, regions, queries, self.rest_mask[: queries.stop])
        effects = []
        for place in self.rank_regions(results):
            leaf = self.leaves[place]
            changes = self.changes(results, _region_key(place))
            random: list[float] | UnsetType = self.random_changes(results, place) or UNSET
            effects.append(
                AnswerEffect(
                    region=place,
                    without=list(leaf.without),
                    is_source=leaf.name in self.sources,
                    attention=results.attention[place],
                    even=float(even[place]),
                    logprob=float(np.mean(results.logprobs[_region_key(place)])),
                    change=float(changes.mean()),
                    by_sentence=np.array(
                        [changes[sentence.first : sentence.stop].mean() for sentence in sentences]
                    ),
                    random=random,
                    matters=self.matters(results, place),
                    other_answer=self.other_answer(results, place),
                )
            )
        return AnswerDocument(
            **header(model, self.text, self.tokens),
            regions=[RegionRow(name=leaf.name, tokens=list(leaf.tokens)) for leaf in self.leaves],
            cut=self.runs.way,
            answer=answer_part,
            effects=effects,
            subsets=self.subset_part(results),
            carriers=self.carriers_part(results),
            doses=self.dose_part(results),
            seed=self.seed,
            warnings=[*notes(model, self.text, self.tokens), *self._warnings(results), *more],
        )

    def _warnings(self, results: AnswerResults) -> list[str]:
        """The warning that --each-head has no region to work on, once all regions are measured, and
        that layers without attention still carry a region whose links are cut.
        """
        spec = self.runs.model.spec
        attending = len(spec.attending())
        warnings: list[str] = []
        all_known = len(self.rank_regions(results)) == len(self.leaves)
        if self.each_head and all_known and self.most_used_region(results) is None:
            warnings.append(
                message("the answer rests on no region: --each-head has none whose heads to tell")
            )
        if self.runs.way == "text" or attending == len(spec.blocks):
            return warnings
        return [
            *warnings,
            message(
                "{count} of {layers} layers do not attend: what they carry of a region is not cut;"
                " --cut text leaves it out",
                count=len(spec.blocks) - attending,
                layers=len(spec.blocks),
            ),
        ]

    def _answer_text(self, results: AnswerResults) -> AnswerText:
        """The answer with the probability of each token, and its sentences."""
        model = self.runs.model
        own = np.asarray(results.logprobs[OWN.key])
        new = following_tokens(model, self.tokens, results.answer)
        text, spans = continuation_text(model, self.tokens, new)
        # (rounding may leave the logarithm of a sure token above 0)
        tokens = [
            AnswerToken(token=token, probability=float(np.exp(min(logprob, 0.0))))
            for token, logprob in zip(target_tokens(model, results.answer), own, strict=True)
        ]
        return AnswerText(
            text=text,
            generated=self.target is None,
            ended=results.ended,
            logprob=float(own.mean()),
            tokens=tokens,
            sentences=_sentences(text, spans),
        )


def _sentences(text: str, spans: Sequence[tuple[int, int]]) -> list[AnswerSentence]:
    """Divide the tokens of an answer into sentences. A token belongs to the sentence in which it
    ends; tokens that are blank belong to the sentence after them.

    spans: where each token begins and ends in the text, in characters.
    """
    ends = [match.end() for match in SENTENCE.finditer(text)] or [len(text)]

    def sentence_number(position: int) -> int:
        """The number of the sentence in which a character stands; blanks behind the last sentence
        count to it."""
        for number, end in enumerate(ends):
            if position <= end:
                return number
        return len(ends) - 1

    numbers = [sentence_number(stop) for _, stop in spans]  # of each token
    result: list[AnswerSentence] = []
    blank_tokens: list[int] = []  # of sentences of blanks alone, which join the next one
    for number in sorted(set(numbers)):
        own_tokens = [token for token, own_number in enumerate(numbers) if own_number == number]
        members = [*blank_tokens, *own_tokens]
        start, _ = spans[members[0]]
        _, stop = spans[members[-1]]
        sentence = text[start:stop].strip()
        if not sentence and number < max(numbers):
            blank_tokens = members
            continue
        blank_tokens = []
        result.append(AnswerSentence(text=sentence, first=members[0], stop=members[-1] + 1))
    return result


def _region_key(place: int) -> str:
    """The key of the run that cuts the region at `place` alone."""
    return f"region {place}"


def _single_cuts(leaves: Sequence[LeafRegion]) -> list[Cut]:
    """The run that cuts nothing, and for each region the run that cuts it alone."""
    return [OWN, *(Cut(_region_key(place), (leaf.tokens,)) for place, leaf in enumerate(leaves))]


def _group_cut(leaves: Sequence[LeafRegion], places: Sequence[int]) -> Cut:
    """The run that cuts several regions at once; for one region, the same as in `_single_cuts`.

    places: the regions, as indices of `leaves`.
    """
    name = "regions"
    if len(places) == 1:
        name = "region"
    numbers = " ".join(map(str, places))
    return Cut(f"{name} {numbers}", tuple(leaves[place].tokens for place in places))


def _subset_key(mask: Bools) -> str:
    """The key of a subset's run, such as "subset 0110": 1 for each region that is there, 0 for each
    that is cut."""
    return "subset " + "".join(str(int(present)) for present in mask)


def _subset_cuts(leaves: Sequence[LeafRegion], names: Sequence[str], masks: Bools) -> list[Cut]:
    """For each random subset, the run that cuts the regions that are not in it.

    leaves: the regions, each with those of its tokens that lie in no region inside it.
    names: those of the regions that are compared; others are never cut.
    masks: [subset, region compared], true where a region is there.
    """
    sources = [leaf for leaf in leaves if leaf.name in names]
    return [
        Cut(
            _subset_key(mask),
            tuple(leaf.tokens for leaf, present in zip(sources, mask, strict=True) if not present),
        )
        for mask in masks
    ]


def _fitted_count(count: int) -> int:
    """How many of `count` subsets the model is fitted on, two thirds; the last third tests it."""
    return count - count // 3


def _drawn_masks(
    leaves: Sequence[LeafRegion], names: Sequence[str], subsets: int, seed: int
) -> Bools:
    """Draw random sets of the regions that are compared, half as many again as `subsets`, so that a
    third of all can test the model.

    leaves: the regions, each with those of its tokens that lie in no region inside it.
    names: those of the regions that are compared.

    Returns: [subset, region compared], true where a region is there; no rows for 0 `subsets`.

    Raises InputError for too few subsets to fit and test a model, and for too few regions.
    """
    regions = sum(leaf.name in names for leaf in leaves)
    if not subsets:
        return np.zeros((0, regions), bool)
    if subsets < FEWEST_SUBSETS:
        raise InputError(
            "--subsets {count} are too few to fit to and to test on",
            expected=message("{least} or more", least=FEWEST_SUBSETS),
            count=subsets,
        )
    if regions < FEWEST_REGIONS:
        raise InputError(
            "--subsets takes regions away together, and {count} are compared",
            expected=message("{least} regions or more", least=FEWEST_REGIONS),
            count=regions,
        )
    return random_masks(regions, subsets + subsets // 2, seed)


def largest_losses(estimates: Sequence[HeadEstimate]) -> list[HeadEstimate]:
    """The heads with the largest estimated loss, which are cut one by one: `CARRIERS` at most."""
    return sorted(estimates, key=lambda row: (row.change, row.layer, row.head))[:CARRIERS]


class _Plan(Struct, frozen=True, eq=False):
    """What is to be run, before it is known what the answer is.

    runs: of the prompt alone.
    length: tokens of the answer, at most.
    writes_answers: whether the model writes the answer, and another one without what matters.
    cuts: all runs that are planned so far, the uncut one included.
    """

    runs: CutRuns
    length: int
    writes_answers: bool
    cuts: Sequence[Cut]
    each_head: bool
    weighing: Weighing | None

    def forecast(self) -> CostEstimate:
        """Estimate the cost of this work: writing the answer, the cuts, random spans for one region,
        the answer without it, and doses."""
        model = self.runs.model
        count = len(self.runs.tokens) + self.length
        # a long text is run in blocks of rows; None for one block
        rows = None
        if count > LONG:
            rows = rows_for(model.spec, count)
        estimate = cost(model, count, RunRequest(matrices=False), is_saved=False, rows=rows)
        estimate = with_predictions(estimate, model.spec, self.length, model.backend.dtype)
        # one more run for writing the answer
        estimate = with_runs(estimate, self._whole_runs() + 1)
        return replace(estimate, memory={**estimate.memory, **self._memory(estimate)})

    def _whole_runs(self) -> float:
        """About how many runs over the whole prompt take as long as all of this work but writing the
        answer."""
        count = len(self.runs.tokens)
        tokens = self.runs.planned_tokens(self._other_cuts(), after_own=self.runs.can_resume)
        # the cuts, and the random spans of one region
        runs = tokens / count + DRAWS
        if self.writes_answers:
            # the answer without one region, prompt and new tokens
            runs += 1 + self.length / count
        if self.weighing is not None:
            # the doses, and one of them on random spans
            runs += len(_factors(self.weighing)) + DRAWS
        if self.each_head:
            # over the answer's tokens alone: single heads, the two groups of heads, and the gradients
            runs += self.length / count * (CARRIERS + 2 + BACK_AND_FORTH)
        return runs

    def _other_cuts(self) -> list[Cut]:
        """The cuts to run after the answer is written. Where runs can continue from stored keys and
        values, writing the answer already is the uncut run, which is then left out."""
        if not self.runs.can_resume:
            return list(self.cuts)
        return [cut for cut in self.cuts if cut.key != OWN.key]

    def _memory(self, estimate: CostEstimate) -> dict[str, int]:
        """Bytes of memory beyond one plain run, by what they are for: the keys and values that runs
        share, and with --each-head the weights that gradients go back through."""
        spec = self.runs.model.spec
        item = SCORE_ITEM[self.runs.model.backend.dtype]
        # numbers of keys and values that all layers store for a token
        width = sum(
            block.attention.kv_heads * (block.attention.head_dim + block.attention.v_dim)
            for block in spec.blocks
        )
        parts = self.runs.stretches(self._other_cuts(), after_own=self.runs.can_resume)
        # of the own run, of the one that runs, and of every stretch on the way to it
        copies = 2 + max((part.depth for part in parts), default=0)
        memory: dict[str, int] = {
            message("keys and values that runs share"): copies * width * estimate.tokens * item
        }
        if self.each_head:
            table = spec.vocabulary * spec.d_model
            weights = work_of(spec, spec.blocks, estimate.tokens).weights + table
            memory[message("weights that gradients go back through")] = item * weights
        return memory


def _factors(weighing: Weighing) -> list[float]:
    """The factors that attention is multiplied by, one run each: `FACTORS` and the one that was
    asked for, ascending."""
    return sorted({*FACTORS, weighing.factor})


def _parse_weighing(
    weigh: str | None,
    tokens: Sequence[Token],
    regions: Sequence[Region],
    heads: Sequence[tuple[int, int]] | None,
    note: Callable[[str], None],
) -> Weighing | None:
    """Parse "NAME=×4", or "×4" alone: then the result has neither a name nor keys, and the region is
    chosen later. None for None. Raises as `find_weighing`.

    heads: the (layer, head) in which attention is weighed; None for all.
    note: called with a sentence for the user, as by `find_weighing`.
    """
    if weigh is None:
        return None
    if "=" in weigh:
        return find_weighing(weigh, tokens, regions, heads=heads, note=note)
    heads_once = None
    if heads is not None:
        # each head once, in the order asked for
        heads_once = tuple(dict.fromkeys(heads))
    return Weighing(name="", keys=(), factor=read_factor(weigh), heads=heads_once)


def _refuse(model: Model, regions: Sequence[Region]) -> None:
    """Raise InputError without regions, UnsupportedError for a model that predicts no next token or
    cannot be cut."""
    if not any(region.name != REST for region in regions):
        raise InputError(
            "there are no regions to cut off",
            expected="--region NAME=SPEC, or --chat",
            hint="attn guide long",
        )
    if model.spec.head is None:
        raise no_output_head(model.spec)
    refuse_foreign(model)


def _refuse_empty(cuts: Sequence[Cut], way: Literal["links", "text"], count: int) -> None:
    """Raise InputError where a cut would leave none of the `count` tokens of the prompt: only the
    way "text" takes tokens out."""
    if way == "text" and any(sum(map(len, cut.regions)) >= count for cut in cuts):
        raise InputError(
            "without these regions no token of the prompt is left",
            expected=message("--cut links, or regions that are a part of the text"),
        )


def _refuse_length(model: Model, count: int) -> None:
    """Raise LimitError for more tokens than the model has positions."""
    limit = model.spec.max_positions
    if limit is not None and count > limit:
        raise LimitError(
            "prompt and answer have {count:,} tokens, the model {limit:,} positions",
            expected="a shorter prompt or answer",
            count=count,
            limit=limit,
        )


def _source_names(leaves: Sequence[LeafRegion], sources: Sequence[str] | None) -> list[str]:
    """The names of the regions that are compared.

    leaves: the regions, each with those of its tokens that lie in no region inside it.
    sources: the names that the caller chose; None for all regions that are neither messages of a
        chat nor the rest of the prompt, or for the messages where there are no others.

    Raises InputError for a name without a region, or whose region is filled by others inside it.
    """
    names = [leaf.name for leaf in leaves]
    if sources is None:
        parts = [leaf.name for leaf in leaves if leaf.name != REST and not leaf.is_message]
        if parts:
            return parts
        return [name for name in names if name != REST]
    for name in sources:
        if name not in names:
            raise InputError(
                "no region {name} has tokens of its own",
                expected=message("one of {names}", names=", ".join(names)),
                name=repr(name),
            )
    return list(sources)


def _results_file(
    kept: Path | None,
    model: Model,
    tokens: Sequence[Token],
    leaves: Sequence[LeafRegion],
    request: object,
) -> KeptResults[AnswerResults]:
    """The file where results of this work are stored, so that an interrupted call can go on.

    kept: the folder of the file; None to store nothing.
    leaves: the regions, each with those of its tokens that lie in no region inside it.
    request: all other arguments that results depend on; they enter the file's name.
    """
    path = None
    if kept is not None:
        places = [(leaf.name, leaf.tokens) for leaf in leaves]
        path = kept / f"{fingerprint(model, tokens, places, request, LOOKED)}.json"
    return KeptResults[AnswerResults](path, AnswerResults)


def _run_answer(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    target: str | None,
    length: int,
    note: Callable[[str], None],
    past: Past,
) -> AnswerResults:
    """The answer's token ids: those of the target, or of what the model writes, without the token
    that ends it.

    target: the answer's text; None to let the model write up to `length` tokens.
    note: called with a sentence on which spelling of the target is measured.
    past: filled with the keys and values of the tokens that ran as the model wrote.

    Raises InputError where the model writes nothing, LimitError where it has too few positions.
    """
    if target is not None:
        return AnswerResults(answer=list(choose_target(model, tokens, target, note=note).ids))
    limit = model.spec.max_positions
    # a prompt that itself is too long is refused by `generate`
    if limit is not None and len(tokens) < limit < len(tokens) + length:
        raise LimitError(
            "{prompt} tokens and {count} new ones are more than the model's {limit} positions",
            hint=f"--tokens {limit - len(tokens)}",
            prompt=len(tokens),
            count=length,
            limit=limit,
        )
    # attention rows are not needed: one head of the last attending layer is the least to ask for
    layer = model.spec.attending()[-1:]
    continuation = generate(
        model, text, length, layers=layer, heads=[0], rows=False, tokens=tokens, past=past
    )
    ids = [token.id for token in continuation.generated if token.id is not None]
    if continuation.ended:
        ids = ids[:-1]
    if not ids:
        raise InputError(
            "the model ends the text at once: there is no answer",
            expected="a prompt that it answers, or --target with the answer that is meant",
        )
    return AnswerResults(answer=ids, ended=continuation.ended)
