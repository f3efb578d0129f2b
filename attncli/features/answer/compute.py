"""`attncli.answer`: which regions of a prompt the whole answer used."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import UNSET, Struct, UnsetType

from attncli.arrays.numpy_backend import integers
from attncli.documents import RegionRow
from attncli.documents.header import header, notes
from attncli.errors import InputError, LimitError
from attncli.features.answer.cut_runs import Cut, CutRun, CutRuns
from attncli.features.answer.document import (
    AnswerDocument,
    AnswerEffect,
    AnswerSentence,
    AnswerSubsets,
    AnswerText,
    AnswerToken,
    HiddenRegions,
    SubsetWeight,
)
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
from attncli.features.generate.compute import continuation_text, generate
from attncli.features.run.compute import RunRequest, cost
from attncli.inputs.regions import REST, LeafRegion, Region, leaf_regions
from attncli.inputs.token import Token, ignore
from attncli.language import message
from attncli.measure.kept_results import KeptResults, fingerprint
from attncli.measure.rest import resting_keys
from attncli.mechanism.checked_arguments import checked
from attncli.models.estimate import CostEstimate, with_predictions, with_runs
from attncli.models.model import Model
from attncli.models.run import LONG, no_output_head, rows_for

Floats = np.ndarray[Any, np.dtype[Any]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

LEAST = 0.05
"""Nats a token; a region whose loss is smaller does not matter: the probability of a token falls by
less than a twentieth."""
TIMES = 2.0
"""How many times the largest change of a random span a region must lose to matter."""
DRAWS = 5
"""Random spans that a region is compared with."""
MOST_COMPARED = 4
"""Regions that are compared with random spans, the largest losses first."""
SENTENCE = re.compile(r".+?(?:[.!?]+[\"'”’)\]]*(?=\s|$)|[。！？]+[”’」』]*|\n|$)\s*", re.DOTALL)


class AnswerResults(Struct, frozen=True):
    """What is known of unfinished work, more is added as it comes. answer: the ids of the answer;
    ended: whether the model ended it; logprobs: by cut, of each token; shares: attention of the
    answer's queries on each key, [token][key].
    """

    answer: list[int] = []
    ended: bool | None = None
    logprobs: dict[str, list[float]] = {}
    shares: list[list[float]] = []


OWN = Cut("own")
HIDDEN = "hidden"
"""The name of the run without regions that hide each other."""
HIDES = 3.0
"""How many times its loss alone the weight of a region is that others hide."""
FEWEST_SUBSETS = 8
"""Subsets below which a fit and its test say nothing."""
FEWEST_REGIONS = 4
"""Regions from which on subsets are drawn: three have eight subsets."""


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

    Regions that hold others are told without these. What runs of different cuts have in common is
    computed once. The regions that the answer loses most without are compared with random spans of
    as many neighbouring tokens of other regions.

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
        sources: The names of the regions that are compared; None for all but `rest`.
        seed: Of the random spans and subsets.
        tokens: Those of the prompt; None to let the model's tokenizer find them.
        kept: A folder where results are kept until all are known, so that the same call goes on
            after an interruption.
        note: Is told which spelling of the target is taken.
        on_cost: Is told what the work will take, and of how many tokens, before it starts.
        on_result: Is told how many of how many runs are done.
        on_interruption: Is handed what is known where Ctrl-C ends the work after a region or more.
        progress: Is told the share done, 0 to 1.

    Returns:
        What `attn answer --json` writes: changes of the mean log probability a token, in nats.

    Raises:
        InputError: Without regions, for names that are none of theirs, for a target that is no text
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
    leaves = leaf_regions(regions)
    names = _source_names(leaves, sources)
    drawn = _drawn_masks(leaves, names, subsets, seed)
    cuts = [*_single_cuts(leaves), *_subset_cuts(leaves, names, drawn)]
    _refuse_empty(cuts, cut, len(tokens))
    request = (target, length, cut, seed, subsets, tuple(names))
    file = _results_file(kept, model, tokens, leaves, request)
    results = file.read() or AnswerResults()
    if not results.answer:
        runs = _planned_runs(model, tokens, leaves, names, drawn, cut)
        on_cost(_forecast(model, len(tokens), length, runs), len(tokens))
        results = _answered(model, text, tokens, target, length, note)
        file.keep(results)
    ids = results.answer
    following = following_tokens(model, tokens, ids[:-1])
    _refuse_length(model, len(tokens) + len(following))
    work = _AnswerWork(
        runs=CutRuns(model, (*tokens, *following), tuple(ids), cut),
        text=text,
        tokens=tuple(tokens),
        leaves=tuple(leaves),
        sources=frozenset(names),
        target=target,
        seed=seed,
        masks=drawn,
        fitted=_fitted_count(len(drawn)),
        file=file,
    )
    done = _Progress(results, on_result, progress)
    try:
        work.measure(cuts, done)
        work.compare_with_random(done)
        work.cut_hidden(done)
    except KeyboardInterrupt:
        if results.shares and len(results.logprobs) > 1:
            on_interruption(work.document(results, [done.interruption_note()]))
        raise
    progress(1.0)
    file.drop()
    return work.document(results)


class _Progress:
    """Counts runs and tokens for those who are told of them; holds the results."""

    def __init__(
        self,
        results: AnswerResults,
        on_result: Callable[[int, int], None],
        progress: Callable[[float], None],
    ) -> None:
        self.results = results
        self._on_result = on_result
        self._progress = progress
        self._runs = 0
        self._tokens = 0
        self._done_tokens = 0

    def plan(self, runs: int, tokens: int) -> None:
        """Count runs and tokens that are to come."""
        self._runs += runs
        self._tokens += tokens

    def add_tokens(self, count: int) -> None:
        """Tell of tokens that are done."""
        self._done_tokens += count
        self._progress(self._done_tokens / max(self._tokens, 1))

    def add_run(self) -> None:
        """Tell of a run that is done."""
        self._on_result(len(self.results.logprobs), self._runs)

    def interruption_note(self) -> str:
        """A warning that work was interrupted after so many of its runs."""
        return message(
            "interrupted: {count} of {runs} runs are told of",
            count=len(self.results.logprobs),
            runs=self._runs,
        )


class _AnswerWork(Struct, frozen=True, kw_only=True, eq=False):
    """A prompt, its answer and its regions, as they are measured."""

    runs: CutRuns
    text: str
    tokens: tuple[Token, ...]
    leaves: tuple[LeafRegion, ...]
    sources: frozenset[str]
    target: str | None
    seed: int
    masks: Bools
    fitted: int
    file: KeptResults[AnswerResults]

    def measure(self, cuts: Sequence[Cut], done: _Progress) -> None:
        """Run with each of these cuts that has no result yet, and keep what comes of it."""
        known = done.results.logprobs
        missing = [cut for cut in cuts if cut.key not in known]
        done.plan(len(cuts), self.runs.planned_tokens(missing))
        for run in self.runs.run(missing, done.add_tokens):
            self._keep(run, done)

    def _keep(self, run: CutRun, done: _Progress) -> None:
        """Keep what a run left."""
        if run.shares is not None:
            done.results.shares[:] = run.shares.tolist()
        done.results.logprobs[run.cut.key] = run.logprobs.tolist()
        self.file.keep(done.results)
        done.add_run()

    def changes(self, results: AnswerResults, key: str) -> Floats:
        """What the log probability of each token changes by with a cut, [token]."""
        return np.subtract(results.logprobs[key], results.logprobs[OWN.key])

    def ranked(self, results: AnswerResults) -> list[int]:
        """The places of the regions that are measured, the largest loss first."""
        places = [
            place for place in range(len(self.leaves)) if f"region {place}" in results.logprobs
        ]
        losses = {place: self.changes(results, f"region {place}").mean() for place in places}
        return sorted(places, key=lambda place: (losses[place], place))

    def compare_with_random(self, done: _Progress) -> None:
        """Run without random spans beside the regions of the largest loss, at most
        `MOST_COMPARED`."""
        accepted: list[int] = []
        compared = 0
        for place in self.ranked(done.results):
            loss = -self.changes(done.results, f"region {place}").mean()
            if self.leaves[place].name not in self.sources or loss < LEAST:
                continue
            spans = self.random_spans(place, accepted)
            cuts = [Cut(f"random {place} {number}", (span,)) for number, span in enumerate(spans)]
            self.measure(cuts, done)
            compared += 1
            if self.matters(done.results, place):
                accepted.append(place)
            if compared == MOST_COMPARED:
                return

    def random_spans(self, place: int, accepted: Sequence[int]) -> list[tuple[int, ...]]:
        """Runs of as many neighbouring tokens as a region has, drawn among the tokens of other
        regions that are compared, those that matter more left out; among all other tokens where
        these are too few; none where no run is as long. Keys where heads rest are not drawn."""
        leaf = self.leaves[place]
        closed = {
            token
            for closed_place in (place, *accepted)
            for token in self.leaves[closed_place].tokens
        }
        rest = resting_keys(self.tokens, self.runs.model.identity.source)
        compared = {
            token
            for source in self.leaves
            if source.name in self.sources
            for token in source.tokens
        }
        for eligible in (compared, set(range(len(self.tokens) - 1))):
            room = sorted(token for token in eligible - closed if not rest[token])
            starts = len(room) - len(leaf.tokens) + 1
            if starts >= DRAWS:
                order = integers(self.seed, f"answer\0{place}", starts).argsort(kind="stable")
                chosen = sorted(order[:DRAWS].tolist())
                return [tuple(room[start : start + len(leaf.tokens)]) for start in chosen]
        return []

    def random_changes(self, results: AnswerResults, place: int) -> list[float]:
        """The changes without the random spans of a region."""
        keys = [f"random {place} {number}" for number in range(DRAWS)]
        return [float(self.changes(results, key).mean()) for key in keys if key in results.logprobs]

    def matters(self, results: AnswerResults, place: int) -> bool | None:
        """Whether the answer uses a region; None where it was not compared with random spans."""
        if self.leaves[place].name not in self.sources:
            return None
        loss = -float(self.changes(results, f"region {place}").mean())
        if loss < LEAST:
            return False
        random = self.random_changes(results, place)
        if random:
            return loss >= TIMES * max(map(abs, random))
        return None

    def source_places(self) -> list[int]:
        """The places of the regions that are compared."""
        return [place for place, leaf in enumerate(self.leaves) if leaf.name in self.sources]

    def fit(self, results: AnswerResults) -> tuple[SparseFit, Floats] | None:
        """The model of the subsets, and the value of each, [subset]; None before all are known."""
        keys = [_subset_key(mask) for mask in self.masks]
        if not keys or any(key not in results.logprobs for key in keys):
            return None
        count = len(self.runs.answer)
        values = np.array([answer_logit(sum(results.logprobs[key])) / count for key in keys])
        return fit_sparse(self.masks[: self.fitted], values[: self.fitted]), values

    def hidden_places(self, results: AnswerResults) -> list[int]:
        """Regions that the model of subsets gives much more weight than the answer loses without one
        alone: `HIDES` times as much, and a quarter of the largest weight; none for one alone."""
        fitted_model = self.fit(results)
        if fitted_model is None:
            return []
        weights = fitted_model[0].weights
        least = max(LEAST, float(weights.max()) / 4)
        places = []
        for place, weight in zip(self.source_places(), weights, strict=True):
            loss = max(-float(self.changes(results, f"region {place}").mean()), 0.0)
            if weight >= max(least, HIDES * loss):
                places.append(place)
        if len(places) < 2:
            return []
        return places

    def cut_hidden(self, done: _Progress) -> None:
        """Run without all regions that hide each other."""
        if places := self.hidden_places(done.results):
            regions = tuple(self.leaves[place].tokens for place in places)
            self.measure([Cut(HIDDEN, regions)], done)

    def subset_part(self, results: AnswerResults) -> AnswerSubsets | UnsetType:
        """What the subsets say; UNSET before all are known."""
        fitted_model = self.fit(results)
        if fitted_model is None:
            return UNSET
        fit, values = fitted_model
        predicted = fit.predict(self.masks[self.fitted :])
        score = rank_score(predicted, values[self.fitted :])
        hidden: HiddenRegions | UnsetType = UNSET
        if HIDDEN in results.logprobs:
            places = self.hidden_places(results)
            change = float(self.changes(results, HIDDEN).mean())
            alone = sum(float(self.changes(results, f"region {place}").mean()) for place in places)
            # they hide each other where the answer loses more without all of them than one by one
            if change <= -LEAST and change < alone:
                hidden = HiddenRegions(regions=places, change=change)
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
            lds=None if score is None else score[0],
            low=None if score is None else score[1],
            high=None if score is None else score[2],
            hidden=hidden,
        )

    def document(self, results: AnswerResults, more: Sequence[str] = ()) -> AnswerDocument:
        """The document of what is known. more: warnings beside the text's own."""
        model = self.runs.model
        described = self._answer_text(results)
        sentences = described.sentences
        shares = np.asarray(results.shares)
        effects = []
        for place in self.ranked(results):
            leaf = self.leaves[place]
            changes = self.changes(results, f"region {place}")
            random: list[float] | UnsetType = self.random_changes(results, place) or UNSET
            first = self.runs.first_query
            even_shares = [
                sum(key <= first + row for key in leaf.tokens) / (first + row + 1)
                for row in range(len(changes))
            ]
            effects.append(
                AnswerEffect(
                    region=place,
                    without=list(leaf.without),
                    is_source=leaf.name in self.sources,
                    attention=float(min(shares[:, list(leaf.tokens)].sum(1).mean(), 1.0)),
                    even=float(np.mean(even_shares)),
                    logprob=float(np.mean(results.logprobs[f"region {place}"])),
                    change=float(changes.mean()),
                    by_sentence=np.array([changes[s.first : s.stop].mean() for s in sentences]),
                    random=random,
                    matters=self.matters(results, place),
                )
            )
        return AnswerDocument(
            **header(model, self.text, self.tokens),
            regions=[RegionRow(name=leaf.name, tokens=list(leaf.tokens)) for leaf in self.leaves],
            cut=self.runs.way,
            answer=described,
            effects=effects,
            subsets=self.subset_part(results),
            seed=self.seed,
            warnings=[*notes(model, self.text, self.tokens), *self._warnings(), *more],
        )

    def _warnings(self) -> list[str]:
        """The warning that not all layers attend, where that is so."""
        spec = self.runs.model.spec
        attending = len(spec.attending())
        if self.runs.way == "text" or attending == len(spec.blocks):
            return []
        return [
            message(
                "{count} of {layers} layers do not attend: what they carry of a region is not cut;"
                " --cut text leaves it out",
                count=len(spec.blocks) - attending,
                layers=len(spec.blocks),
            )
        ]

    def _answer_text(self, results: AnswerResults) -> AnswerText:
        """The answer with the probability of each token, and its sentences."""
        model = self.runs.model
        own = np.asarray(results.logprobs[OWN.key])
        new = following_tokens(model, self.tokens, results.answer)
        text, spans = continuation_text(model, self.tokens, new)
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
    """The sentences of an answer. spans: of its tokens, in characters."""
    ends = [match.end() for match in SENTENCE.finditer(text)] or [len(text)]
    places = [
        next((number for number, end in enumerate(ends) if stop <= end), len(ends) - 1)
        for _, stop in spans
    ]
    result: list[AnswerSentence] = []
    waiting: list[int] = []
    for number in sorted(set(places)):
        members = [*waiting, *(token for token, place in enumerate(places) if place == number)]
        start = spans[members[0]][0]
        # blanks alone belong to what follows them
        if not text[start : spans[members[-1]][1]].strip() and number < max(places):
            waiting = members
            continue
        waiting = []
        result.append(
            AnswerSentence(
                text=text[start : spans[members[-1]][1]].strip(),
                first=members[0],
                stop=members[-1] + 1,
            )
        )
    return result


def _single_cuts(leaves: Sequence[LeafRegion]) -> list[Cut]:
    """The own run, and one without each region."""
    return [OWN, *(Cut(f"region {place}", (leaf.tokens,)) for place, leaf in enumerate(leaves))]


def _subset_key(mask: Bools) -> str:
    """The name of a subset among the results: a 1 for each region that is there, else a 0."""
    return "subset " + "".join(str(int(present)) for present in mask)


def _subset_cuts(leaves: Sequence[LeafRegion], names: Sequence[str], masks: Bools) -> list[Cut]:
    """The cuts of subsets. masks: [subset, region compared], true where a region is there."""
    sources = [leaf for leaf in leaves if leaf.name in names]
    return [
        Cut(
            _subset_key(mask),
            tuple(leaf.tokens for leaf, present in zip(sources, mask, strict=True) if not present),
        )
        for mask in masks
    ]


def _fitted_count(count: int) -> int:
    """Of so many subsets, how many a model is fitted on."""
    return count - count // 3


def _drawn_masks(
    leaves: Sequence[LeafRegion], names: Sequence[str], subsets: int, seed: int
) -> Bools:
    """The random sets of regions, [subset, region compared]; none where none are asked for. Raises
    InputError where there are too few regions for that."""
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


def _planned_runs(
    model: Model,
    tokens: Sequence[Token],
    leaves: Sequence[LeafRegion],
    names: Sequence[str],
    masks: Bools,
    cut: Literal["links", "text"],
) -> float:
    """About how many runs of the whole prompt the cuts take, with random spans for one region."""
    runs = CutRuns(model, tuple(tokens), (0,), cut)
    cuts = [*_single_cuts(leaves), *_subset_cuts(leaves, names, masks)]
    return runs.planned_tokens(cuts) / len(tokens) + DRAWS


def _refuse(model: Model, regions: Sequence[Region]) -> None:
    """Raise InputError without regions, UnsupportedError for a model that cannot be sources."""
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
    """Raise InputError where a cut leaves none of the `count` tokens of the prompt."""
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
    """The names of the regions that are compared. Raises InputError for one that is not there."""
    names = [leaf.name for leaf in leaves]
    if sources is None:
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
    """The file of what is known of this work; one that keeps nothing without a folder."""
    path = None
    if kept is not None:
        places = [(leaf.name, leaf.tokens) for leaf in leaves]
        path = kept / f"{fingerprint(model, tokens, places, request)}.json"
    return KeptResults[AnswerResults](path, AnswerResults)


def _answered(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    target: str | None,
    length: int,
    note: Callable[[str], None],
) -> AnswerResults:
    """The answer: the target's entries, or what the model writes, without the token that ends it.
    Raises InputError where it writes nothing."""
    if target is not None:
        return AnswerResults(answer=list(choose_target(model, tokens, target, note=note).ids))
    limit = model.spec.max_positions
    if limit is not None and len(tokens) < limit < len(tokens) + length:
        raise LimitError(
            "{prompt} tokens and {count} new ones are more than the model's {limit} positions",
            hint=f"--tokens {limit - len(tokens)}",
            prompt=len(tokens),
            count=length,
            limit=limit,
        )
    layer = model.spec.attending()[-1:]
    continuation = generate(model, text, length, layers=layer, heads=[0], tokens=tokens)
    ids = [token.id for token in continuation.generated if token.id is not None]
    if continuation.ended:
        ids = ids[:-1]
    if not ids:
        raise InputError(
            "the model ends the text at once: there is no answer",
            expected="a prompt that it answers, or --target with the answer that is meant",
        )
    return AnswerResults(answer=ids, ended=continuation.ended)


def _forecast(model: Model, prompt: int, length: int, runs: float) -> CostEstimate:
    """What so many runs of the whole text take, the writing of the answer included."""
    count = prompt + length
    rows = None
    if count > LONG:
        rows = rows_for(model.spec, count)
    estimate = cost(model, count, RunRequest(matrices=False), is_saved=False, rows=rows)
    estimate = with_predictions(estimate, model.spec, length, model.backend.dtype)
    return with_runs(estimate, runs + 1)
