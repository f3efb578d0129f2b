"""Runs of a prompt and its answer with regions cut off, which share what comes before their first cut.

A token of a decoder depends on earlier tokens alone, so runs that cut the same regions up to a token
have the same keys and values up to it: these are computed once, and runs part where their cuts do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import Array
from attncli.features.effects.measures import log_softmax
from attncli.inputs.token import Token
from attncli.mechanism.context import Interventions, KnockOut, Past
from attncli.models.model import Model
from attncli.models.run import LONG, keeps_past, rows_for

Floats = np.ndarray[Any, np.dtype[Any]]
CutWay = Literal["links", "text"]


class Cut(Struct, frozen=True):
    """Regions that one run does without. key: its name among the results; regions: the indices of
    the tokens of each region; none for the own run.
    """

    key: str
    regions: tuple[tuple[int, ...], ...] = ()


class CutRun(Struct, frozen=True, eq=False):
    """What a run leaves. logprobs: log probability of each token of the answer, [token]; shares: of
    the own run, the attention of the queries before these tokens on each key, mean over layers and
    heads, [token, key]; None of others.
    """

    cut: Cut
    logprobs: Floats
    shares: Floats | None = None


class TokenStretch(Struct, frozen=True):
    """Tokens from `start` to before `stop` that run at once. depth: how many stretches come before
    it on the way from the first token; cut: whose links are cut; ends: the cuts whose runs end here.
    """

    depth: int
    start: int
    stop: int
    cut: Cut
    ends: tuple[Cut, ...]


class _Path(Struct, frozen=True):
    """A cut and where it changes a run: (token, region) in ascending order; passed: how many of these
    lie behind."""

    cut: Cut
    events: tuple[tuple[int, int], ...]
    passed: int = 0

    def next_event(self, place: int) -> tuple[int, int] | None:
        """The event at a token; None where there is none there."""
        if self.passed < len(self.events) and self.events[self.passed][0] == place:
            return self.events[self.passed]
        return None


LOOKS = -1
"""In place of a region: where the own run begins to be looked at."""


class CutRuns(Struct, frozen=True):
    """A prompt and its answer, to be run with regions cut off.

    tokens: of the prompt, then of the answer without its last; answer: the vocabulary ids of the
    answer. way: "links" makes the keys of a region invisible to the tokens outside it, in all heads
    of all layers; "text" leaves its tokens out, so that later positions move up.
    """

    model: Model
    tokens: tuple[Token, ...]
    answer: tuple[int, ...]
    way: CutWay = "links"

    @property
    def first_query(self) -> int:
        """The token after which the answer begins."""
        return len(self.tokens) - len(self.answer)

    def stretches(self, cuts: Sequence[Cut]) -> Iterator[TokenStretch]:
        """The stretches of tokens that these runs take, each after the one that it goes on from."""
        numbers: dict[tuple[int, ...], int] = {}
        for cut in cuts:
            for region in cut.regions:
                numbers.setdefault(region, len(numbers))
        paths = [_Path(cut, self._events(cut, numbers)) for cut in cuts]
        if not keeps_past(self.model.spec, 1, len(self.tokens)):
            for path in paths:
                yield TokenStretch(0, 0, len(self.tokens), path.cut, (path.cut,))
            return
        if paths:
            yield from self._branches(paths)

    def planned_tokens(self, cuts: Sequence[Cut]) -> int:
        """How many tokens these runs compute, those that they share counted once."""
        return sum(part.stop - part.start for part in self.stretches(cuts))

    def run(
        self, cuts: Sequence[Cut], on_tokens: Callable[[int], None] = lambda count: None
    ) -> Iterator[CutRun]:
        """Run with each of these cuts. on_tokens: told how many tokens more are done."""
        states: list[_State] = [_State({}, None, 0)]
        for part in self.stretches(cuts):
            del states[part.depth + 1 :]
            state = self._extended(states[part.depth], part)
            states.append(state)
            on_tokens(part.stop - part.start)
            if part.ends:
                assert state.tail is not None
                scores = self.model.backend.numpy(self.model.logits(state.tail))
                rows = log_softmax(np.asarray(scores, np.float64))
                logprobs = rows[np.arange(len(self.answer)), list(self.answer)]
                for cut in part.ends:
                    yield CutRun(cut, logprobs, None if cut.regions else state.shares)

    def _events(self, cut: Cut, numbers: dict[tuple[int, ...], int]) -> tuple[tuple[int, int], ...]:
        """Where a cut changes a run: at the first token of a region whose text is left out, at the
        first token outside it that comes after one whose links are cut."""
        if not cut.regions:
            return ((self.first_query, LOOKS),)
        events = []
        for region in cut.regions:
            place = region[0]
            if self.way == "links":
                inside = set(region)
                while place in inside:
                    place += 1
            if place < len(self.tokens):
                events.append((place, numbers[region]))
        return tuple(sorted(events))

    def _branches(self, all_paths: Sequence[_Path]) -> Iterator[TokenStretch]:
        """The stretches of runs that are equal at first, those of one branch after another."""
        waiting: list[tuple[Sequence[_Path], int, int]] = [(all_paths, 0, 0)]
        while waiting:
            paths, start, depth = waiting.pop()
            stop, groups = self._next_groups(paths)
            if not groups:
                cuts = tuple(path.cut for path in paths)
                yield TokenStretch(depth, start, len(self.tokens), cuts[0], cuts)
                continue
            yield TokenStretch(depth, start, stop, paths[0].cut, ())
            waiting += [(group, stop, depth + 1) for group in reversed(groups)]

    def _next_groups(self, paths: Sequence[_Path]) -> tuple[int, list[list[_Path]]]:
        """The token at which runs part, or the own run begins to be looked at, and the groups that go
        on from there; no groups where all go on alike to the end."""
        while True:
            pending = [
                path.events[path.passed][0] for path in paths if path.passed < len(path.events)
            ]
            if not pending or (len(paths) == 1 and paths[0].events[-1][1] != LOOKS):
                return len(self.tokens), []
            stop = min(pending)
            groups: dict[tuple[int, int] | None, list[_Path]] = {}
            for path in paths:
                event = path.next_event(stop)
                passed = path.passed + (event is not None)
                groups.setdefault(event, []).append(replace(path, passed=passed))
            if len(groups) > 1 or (stop, LOOKS) in groups:
                return stop, list(groups.values())
            (paths,) = groups.values()

    def _extended(self, state: _State, part: TokenStretch) -> _State:
        """The state after a stretch that goes on from a state, which stays as it is."""
        tokens = list(self.tokens[part.start : part.stop])
        if self.way == "text":
            left_out = {token for region in part.cut.regions for token in region}
            tokens = [token for token in tokens if token.index not in left_out]
            tokens = [
                replace(token, index=state.count + place) for place, token in enumerate(tokens)
            ]
        if not tokens:
            return state
        past = dict(state.past)
        tail = state.tail
        shares = state.shares
        step = len(tokens)
        if len(self.tokens) > LONG:
            step = rows_for(self.model.spec, len(self.tokens))
        if not keeps_past(self.model.spec, 1, len(self.tokens)):
            step = len(tokens)
        looks = not part.cut.regions and bool(part.ends)
        for first in range(0, len(tokens), step):
            after, looked = self._run(tokens[first : first + step], past, part.cut, looks=looks)
            rows = after
            if tail is not None:
                rows = self.model.backend.concat([tail, after], 0)
            tail = rows[-len(self.answer) :]
            if looked is not None:
                if shares is None:
                    shares = looked
                else:
                    shares = _stacked(shares, looked)
        if shares is not None:
            shares = shares[-len(self.answer) :]
        return _State(past, tail, state.count + len(tokens), shares)

    def _run(
        self, tokens: list[Token], past: Past, cut: Cut, *, looks: bool
    ) -> tuple[Array, Floats | None]:
        """Run tokens after those in `past`, which is extended; the last layer's vectors, [token,
        width], and what is looked at, [token, key], where that is asked for."""
        last = len(self.model.spec.blocks) - 1
        attending = set(self.model.spec.attending())
        keep = ("weights",) if looks else ()
        queries = range(tokens[0].index, tokens[-1].index + 1)
        traces = self.model.trace(
            tokens,
            layers=range(last + 1) if looks else [last],
            keep=keep,
            past=past,
            interventions=self._interventions(cut, queries),
            idle=True,
        )
        after: Array | None = None
        sums: list[Floats] = []
        for trace in traces:
            if looks and trace.layer in attending:
                weights = np.asarray(self.model.backend.numpy(trace.stages["weights"]), np.float64)
                sums.append(weights[..., : len(self.tokens)].mean(0))
            if trace.layer == last:
                after = trace.after
        assert after is not None
        if not sums:
            return after, None
        return after, np.mean(sums, 0)

    def _interventions(self, cut: Cut, queries: range) -> Interventions:
        """What cuts the links of these queries to the regions of a cut; nothing where their text is
        left out. Keys behind the last query are left out: they are not there yet."""
        if self.way == "text":
            return {}
        knock_outs = []
        for region in cut.regions:
            inside = set(region)
            outside = tuple(query for query in queries if query not in inside)
            keys = tuple(key for key in region if key < queries.stop)
            if outside and keys:
                knock_outs.append((outside, keys))
        if not knock_outs:
            return {}
        return {
            (layer, "self"): [
                KnockOut(tuple(range(self.model.spec.blocks[layer].attention.heads)), *knock_out)
                for knock_out in knock_outs
            ]
            for layer in self.model.spec.attending()
        }


class _State(Struct, frozen=True, eq=False):
    """What runs have in common up to a token. past: keys and values by layer; tail: the last layer's
    vectors of the last tokens, as many as the answer has, [token, width]; count: tokens so far;
    shares: as of `CutRun`.
    """

    past: Past
    tail: Array | None
    count: int
    shares: Floats | None = None


def _stacked(before: Floats, rows: Floats) -> Floats:
    """Rows of attention after earlier ones, which see fewer keys; [token, key]."""
    wide = np.zeros((len(before) + len(rows), rows.shape[1]))
    wide[: len(before), : before.shape[1]] = before
    wide[len(before) :] = rows
    return wide
