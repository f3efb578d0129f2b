"""Runs of a prompt and its answer with regions cut off, which share what comes before their first cut.

A token of a decoder depends on earlier tokens alone, so runs that cut the same regions up to a token
have the same keys and values up to it: these are computed once, and runs part where their cuts do.
Once the own run's are known, every other run begins at its first cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import Array
from attncli.features.effects.measures import log_softmax
from attncli.features.effects.weighing import Weighing
from attncli.inputs.token import Token
from attncli.mechanism.context import Interventions, Kind, KnockOut, Past
from attncli.models.model import Model
from attncli.models.run import LONG, keeps_past, rows_for

Floats = np.ndarray[Any, np.dtype[Any]]
CutWay = Literal["links", "text"]


class HeadLinks(Struct, frozen=True):
    """The links from the answer's queries to some keys, cut in some heads, (layer, head)."""

    keys: tuple[int, ...]
    heads: tuple[tuple[int, int], ...]


class Cut(Struct, frozen=True):
    """What one run does without.

    key: its name among the results.
    regions: the indices of the tokens of each region.
    change: what else is changed; neither for the own run.
    """

    key: str
    regions: tuple[tuple[int, ...], ...] = ()
    change: HeadLinks | Weighing | None = None

    @property
    def is_own(self) -> bool:
        """Whether this is the model's own run, in which nothing is cut or changed."""
        return not self.regions and self.change is None


class CutRun(Struct, frozen=True, eq=False):
    """What a run leaves.

    logprobs: log probability of each token of the answer, [token].
    shares: of the own run, the attention of the queries before these tokens on each key, mean over
        layers and heads, [token, key]; None of others.
    """

    cut: Cut
    logprobs: Floats
    shares: Floats | None = None


class TokenStretch(Struct, frozen=True):
    """Tokens from `start` to before `stop` that run at once.

    depth: how many stretches come before it on the way from the first token.
    cut: whose links are cut.
    ends: the cuts whose runs end here.
    """

    depth: int
    start: int
    stop: int
    cut: Cut
    ends: tuple[Cut, ...]


class _Path(Struct, frozen=True):
    """A cut and where it changes a run: (token, number of the change) in ascending order.

    events_behind: how many of these a run has passed.
    """

    cut: Cut
    events: tuple[tuple[int, int], ...]
    events_behind: int = 0

    @property
    def first_event(self) -> tuple[int, int] | None:
        """The first event at which the cut changes a run; None where it changes nothing."""
        return self.events[0] if self.events else None

    def next_event(self, place: int) -> tuple[int, int] | None:
        """The cut's next event that is still to pass, where it lies at the token `place`; else
        None."""
        if self.events_behind < len(self.events) and self.events[self.events_behind][0] == place:
            return self.events[self.events_behind]
        return None


LOOKS = -1
"""In place of a change's number: from this token on the own run's attention is recorded."""


class CutRuns(Struct, frozen=True):
    """A prompt and its answer, to be run with regions cut off.

    tokens: of the prompt, then of the answer without its last.
    answer: the vocabulary ids of the answer.
    way: "links" makes the keys of a region invisible to the tokens outside it, in all heads of all
        layers; "text" leaves its tokens out, so that later positions move up.
    """

    model: Model
    tokens: tuple[Token, ...]
    answer: tuple[int, ...]
    way: CutWay = "links"

    @property
    def first_query(self) -> int:
        """The index of the prompt's last token: its query predicts the first token of the answer."""
        return len(self.tokens) - len(self.answer)

    @property
    def can_resume(self) -> bool:
        """Whether a run can continue from the stored keys and values of earlier tokens. These must
        not change when the text grows, and no layer may carry a recurrent state."""
        spec = self.model.spec
        has_state = any(block.mixer is not None for block in spec.blocks)
        return not has_state and keeps_past(spec, before=1, after=len(self.tokens))

    def stretches(self, cuts: Sequence[Cut], *, after_own: bool = False) -> Iterator[TokenStretch]:
        """Divide the runs of these cuts into stretches of tokens to compute, each after the stretch
        that it continues. Runs share the stretch up to their first difference.

        after_own: whether each run continues the uncut run from the token where the two first differ.
        """
        # runs are alike as long as they change the same things, so each change gets one number
        numbers: dict[object, int] = {}
        for cut in cuts:
            for region in cut.regions:
                numbers.setdefault(region, len(numbers))
            if cut.change is not None:
                numbers.setdefault(cut.change, len(numbers))
        paths = [_Path(cut, self._events(cut, numbers)) for cut in cuts]
        if not keeps_past(self.model.spec, before=1, after=len(self.tokens)):
            # keys change with the length of the text: nothing can be shared
            for path in paths:
                yield TokenStretch(
                    depth=0, start=0, stop=len(self.tokens), cut=path.cut, ends=(path.cut,)
                )
        elif after_own:
            yield from self._stretches_after_own(paths)
        elif paths:
            yield from self._branches([(paths, 0, 0)])

    def planned_tokens(self, cuts: Sequence[Cut], *, after_own: bool = False) -> int:
        """How many tokens the runs of these cuts compute; tokens that several runs share count
        once.

        after_own: whether each run continues the uncut run from the token where the two first
            differ.
        """
        parts = self.stretches(cuts, after_own=after_own)
        return sum(part.stop - part.start for part in parts)

    def own_run(
        self, past: Past | None = None, on_tokens: Callable[[int], None] = lambda count: None
    ) -> tuple[OwnKeys, CutRun]:
        """Run prompt and answer uncut.

        Args:
            past: Keys and values of the prompt, and perhaps of more, where they are known.
            on_tokens: Called with how many more tokens are computed; not for those of `past`.

        Returns:
            The keys and values that every other run may continue from, and the run's result.
        """
        own = Cut("own")
        first = self.first_query
        # the prompt up to the answer's first query, then the rest, whose attention is recorded
        if past:
            state = _State(_past_of_first_tokens(past, first), tail=None, count=first)
        else:
            prompt = TokenStretch(depth=0, start=0, stop=first, cut=own, ends=())
            state = self._extended_state(START, prompt)
            on_tokens(first)
        count = len(self.tokens)
        queries = TokenStretch(depth=1, start=first, stop=count, cut=own, ends=(own,))
        state = self._extended_state(state, queries)
        on_tokens(count - first)
        assert state.tail is not None
        keys = OwnKeys(state.past, state.tail, first)
        return keys, CutRun(own, self._logprobs(state.tail), state.shares)

    def run(
        self,
        cuts: Sequence[Cut],
        on_tokens: Callable[[int], None] = lambda count: None,
        own: OwnKeys | None = None,
    ) -> Iterator[CutRun]:
        """Yield the result of a run with each of these cuts, in the order in which they end.

        on_tokens: called with how many more tokens are done.
        own: what is kept of the uncut run, so that others continue it; then none of `cuts` is the
            uncut run.
        """
        # the state after each stretch on the way to the present one, by depth
        states: list[_State] = [START]
        for part in self.stretches(cuts, after_own=own is not None):
            del states[part.depth + 1 :]  # those of branches that are done
            if own is not None and part.depth == 0:
                states[0] = own.state_before(part.start)
            state = self._extended_state(states[part.depth], part)
            states.append(state)
            on_tokens(part.stop - part.start)
            if part.ends:
                assert state.tail is not None
                logprobs = self._logprobs(state.tail)
                for cut in part.ends:
                    shares = None
                    if cut.is_own:
                        shares = state.shares
                    yield CutRun(cut, logprobs, shares)

    def write(self, cut: Cut, length: int) -> tuple[list[int], bool]:
        """Let the model continue the prompt with the likeliest token each time, with one cut.

        Args:
            cut: What the whole run does without.
            length: How many tokens to write at most.

        Returns:
            The vocabulary ids, without that of the token that ends the text, and whether the model
            ended it.
        """
        # the prompt; its last vector predicts the first token
        model = self.model
        count = self.first_query + 1
        prompt = TokenStretch(depth=0, start=0, stop=count, cut=cut, ends=())
        state = self._extended_state(START, prompt)
        assert state.tail is not None
        tokens = self._kept_tokens(self.tokens[:count], cut, start=0)  # and all that are written
        past = dict(state.past)
        tail = state.tail
        ids: list[int] = []
        for _ in range(length):
            scores = model.backend.numpy(model.logits(tail[-1:]))
            number = int(np.asarray(scores)[-1].argmax())
            (entry,) = model.tokenizer.ids_to_tokens([number])

            # a model that does not name its last tokens ends with any special one
            is_end = entry.special
            if model.ends:
                is_end = number in model.ends
            if is_end:
                return ids, True

            # run the new token alone, or all tokens where their keys change with the length
            ids.append(number)
            tokens.append(replace(entry, index=len(tokens)))
            tokens_to_run = tokens[-1:]
            if not keeps_past(model.spec, before=len(tokens) - 1, after=len(tokens)):
                past = {}
                tokens_to_run = tokens
            tail, _ = self._run(tokens_to_run, past, cut, looks=False)
        return ids, False

    def _kept_tokens(self, tokens: Sequence[Token], cut: Cut, start: int) -> list[Token]:
        """The tokens that run: all; or where a cut leaves the text of its regions out, the remaining
        ones, whose positions are counted from `start`."""
        if self.way != "text":
            return list(tokens)
        left_out = {token for region in cut.regions for token in region}
        kept = [token for token in tokens if token.index not in left_out]
        return [replace(token, index=start + place) for place, token in enumerate(kept)]

    def _logprobs(self, tail: Array) -> Floats:
        """The log probability of each token of the answer, [token], from the last layer's vectors
        of the tokens before them, [token, width]."""
        scores = self.model.backend.numpy(self.model.logits(tail))
        rows = log_softmax(np.asarray(scores, np.float64))
        return np.asarray(rows[np.arange(len(self.answer)), list(self.answer)])

    def _stretches_after_own(self, paths: Sequence[_Path]) -> Iterator[TokenStretch]:
        """The stretches of tokens to compute for runs that continue the uncut run. Runs with the
        same first change share a stretch.

        paths: the runs, each as its cut and where that makes it differ from others.
        """
        groups: dict[tuple[int, int] | None, list[_Path]] = {}
        for path in paths:
            # at the first event the run leaves the uncut one: it lies behind
            groups.setdefault(path.first_event, []).append(replace(path, events_behind=1))
        for event, group in groups.items():
            # a run that changes nothing has nothing to compute
            start = len(self.tokens)
            if event is not None:
                # no later than the first query whose output predicts the answer in such a run
                place, _ = event
                start = min(place, *(self._first_predicting(path.cut) for path in group))
            yield from self._branches([(group, start, 0)])

    def _first_predicting(self, cut: Cut) -> int:
        """The first token whose query must run again so that each token of the answer is predicted:
        where the text of regions is left out, the first of the last remaining tokens, as many as
        the answer has. The end of the text where no token is left out.
        """
        if self.way == "links" or not cut.regions:
            return len(self.tokens)
        left_out = {token for region in cut.regions for token in region}
        places = [place for place in range(len(self.tokens)) if place not in left_out]
        predicting = places[-len(self.answer) :]  # all that remain, where they are fewer
        return predicting[0]

    def _events(self, cut: Cut, numbers: dict[object, int]) -> tuple[tuple[int, int], ...]:
        """Where a cut makes its run differ, as (token, number of the change) in ascending order: for
        links, the first token behind a region; for text, the first token of a region that is left
        out; for links cut in some heads, the answer's first query; for weighing, the first key
        weighed. The uncut run has one event, where its attention is to be recorded.

        numbers: of each region or other change.
        """
        if cut.is_own:
            return ((self.first_query, LOOKS),)
        if isinstance(cut.change, HeadLinks):
            return ((self.first_query, numbers[cut.change]),)
        if isinstance(cut.change, Weighing):
            return ((cut.change.keys[0], numbers[cut.change]),)
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

    def _branches(self, waiting: list[tuple[Sequence[_Path], int, int]]) -> Iterator[TokenStretch]:
        """Yield the stretches of runs that begin alike, depth first: all that continue one branch
        come before the next branch, so that few states are kept at a time.

        waiting: a stack of (runs that are equal so far, the token at which they go on, how many
            stretches lie before it).
        """
        while waiting:
            paths, start, depth = waiting.pop()
            stop, groups = self._next_groups(paths)
            if not groups:
                # these runs are equal to the end, so that the first one's cut stands for all
                cuts = tuple(path.cut for path in paths)
                yield TokenStretch(depth, start, len(self.tokens), cut=cuts[0], ends=cuts)
                continue
            yield TokenStretch(depth, start, stop, cut=paths[0].cut, ends=())
            waiting += [(group, stop, depth + 1) for group in reversed(groups)]

    def _next_groups(self, paths: Sequence[_Path]) -> tuple[int, list[list[_Path]]]:
        """The token at which runs part (or at which recording of the own run starts), and the
        groups of runs that go on from there; no groups where all runs go on alike to the end.

        paths: the runs, each as its cut and where that makes it differ from others.
        """
        # the events of a run: (token, number of what is changed there)
        while True:
            pending = [
                path.events[path.events_behind][0]
                for path in paths
                if path.events_behind < len(path.events)
            ]
            if not pending:
                return len(self.tokens), []
            # a single run has no other to part from; only the uncut one, whose one event that is,
            # stops to be recorded
            _, last_change = paths[0].events[-1]
            if len(paths) == 1 and last_change != LOOKS:
                return len(self.tokens), []
            stop = min(pending)
            groups: dict[tuple[int, int] | None, list[_Path]] = {}
            for path in paths:
                event = path.next_event(stop)
                count = path.events_behind
                if event is not None:
                    count += 1
                groups.setdefault(event, []).append(replace(path, events_behind=count))
            if len(groups) > 1 or (stop, LOOKS) in groups:
                return stop, list(groups.values())
            # all runs change the same thing here: they stay one group, and the next event counts
            (paths,) = groups.values()

    def _extended_state(self, state: _State, part: TokenStretch) -> _State:
        """Run a stretch of tokens that continues from `state`, and return the state after it;
        `state` stays unchanged.

        state: keys and values of the tokens before, and what is kept for the answer.
        part: the stretch.
        """
        tokens = self._kept_tokens(self.tokens[part.start : part.stop], part.cut, state.count)
        if not tokens:
            return state

        # a long text runs in blocks of `step` tokens, unless its keys change with its length
        step = len(tokens)
        count = len(self.tokens)
        if count > LONG and keeps_past(self.model.spec, before=1, after=count):
            step = rows_for(self.model.spec, count)

        # each block extends the past; of vectors (`tail`) and attention only the answer's rows are
        # kept
        past = dict(state.past)
        tail = state.tail
        shares = state.shares
        records_attention = part.cut.is_own and bool(part.ends)
        for first in range(0, len(tokens), step):
            block = tokens[first : first + step]
            after, attention = self._run(block, past, part.cut, looks=records_attention)
            rows = after
            if tail is not None:
                rows = self.model.backend.concat([tail, after], 0)
            tail = rows[-len(self.answer) :]
            if attention is not None:
                if shares is None:
                    shares = attention
                else:
                    shares = _stacked_rows(shares, attention)
        if shares is not None:
            shares = shares[-len(self.answer) :]
        return _State(past, tail, state.count + len(tokens), shares)

    def _run(
        self, tokens: list[Token], past: Past, cut: Cut, *, looks: bool
    ) -> tuple[Array, Floats | None]:
        """Run tokens after those in `past`, which is extended by their keys and values.

        cut: what this run goes without.
        looks: whether to record attention.

        Returns: the last layer's vectors, [token, width], and the attention of each token on each
            key, a mean over layers and heads, [token, key]; None in its place where not recorded.
        """
        last = len(self.model.spec.blocks) - 1
        attending = set(self.model.spec.attending())
        layers: Sequence[int] = [last]
        keep: tuple[str, ...] = ()
        if looks:
            layers = range(last + 1)
            keep = ("weights",)
        queries = range(tokens[0].index, tokens[-1].index + 1)
        # `idle`: the last layer is yielded even if it does not attend
        traces = self.model.trace(
            tokens,
            layers=layers,
            keep=keep,
            past=past,
            interventions=self._interventions(cut, queries),
            idle=True,
        )
        after: Array | None = None
        layer_means: list[Floats] = []  # over heads, [token, key], without learned keys
        for trace in traces:
            if looks and trace.layer in attending:
                weights = np.asarray(self.model.backend.numpy(trace.stages["weights"]), np.float64)
                layer_means.append(weights[..., : len(self.tokens)].mean(0))
            if trace.layer == last:
                after = trace.after
        assert after is not None
        # none where attention is not recorded, or no layer attends
        if not layer_means:
            return after, None
        return after, np.mean(layer_means, 0)

    def _interventions(self, cut: Cut, queries: range) -> Interventions:
        """What a run must change in attention to make a cut, for these queries: {} where none of
        them sees a cut region, and where the regions' text is left out instead. Keys behind the
        last query are not named: they do not exist yet."""
        spec = self.model.spec
        if isinstance(cut.change, HeadLinks):
            return _links_cut(cut.change, queries, self.first_query)
        if isinstance(cut.change, Weighing):
            return cut.change.interventions(spec)
        if self.way == "text":
            return {}
        knock_outs = []
        for region in cut.regions:
            inside = set(region)
            outside = tuple(query for query in queries if query not in inside)
            keys = tuple(key for key in region if key < queries.stop)
            if outside and keys:
                knock_outs.append((outside, keys))
        # in all heads of all layers, these queries do not see these keys
        if not knock_outs:
            return {}
        return {
            (layer, "self"): [
                KnockOut(tuple(range(spec.blocks[layer].attention.heads)), outside, keys)
                for outside, keys in knock_outs
            ]
            for layer in spec.attending()
        }


class _State(Struct, frozen=True, eq=False):
    """What runs have in common up to a token.

    past: keys and values by layer.
    tail: the last layer's vectors of the last tokens, as many as the answer has, [token, width].
    count: tokens so far.
    shares: the attention of the queries before the answer's tokens on each key, [token, key].
    """

    past: Past
    tail: Array | None
    count: int
    shares: Floats | None = None


START = _State(past={}, tail=None, count=0)
"""The state before the first token; no run changes it."""


class OwnKeys(Struct, frozen=True, eq=False):
    """What is kept of the own run.

    past: keys and values of all tokens by layer.
    tail: the last layer's vectors of the tokens from `first_query` on, [token, width].
    """

    past: Past
    tail: Array
    first_query: int

    def state_before(self, place: int) -> _State:
        """The state of the uncut run just before the token at `place`."""
        tail = None
        # up to the first query, no vector that predicts the answer exists
        if place > self.first_query:
            tail = self.tail[: place - self.first_query]
        return _State(_past_of_first_tokens(self.past, place), tail, place)


def _past_of_first_tokens(past: Past, count: int) -> Past:
    """The keys and values of the first `count` tokens, by layer. Arrays are [..., token, dim]."""
    if not count:
        return {}
    return {
        layer: tuple(array[..., :count, :] for array in arrays) for layer, arrays in past.items()
    }


def _links_cut(links: HeadLinks, queries: range, first_query: int) -> Interventions:
    """The intervention that cuts the links from the answer's queries, those from `first_query` on,
    to the keys of `links` in its heads. A query that is itself one of the keys keeps its links, and
    keys behind the last query are not named: they do not exist yet. {} where nothing is to cut."""
    cut_queries = tuple(
        query for query in queries if query >= first_query and query not in links.keys
    )
    cut_keys = tuple(key for key in links.keys if key < queries.stop)
    if not cut_queries or not cut_keys:
        return {}
    by_layer: dict[tuple[int, Kind], list[int]] = {}
    for layer, head in links.heads:
        by_layer.setdefault((layer, "self"), []).append(head)
    return {
        place: [KnockOut(tuple(heads), cut_queries, cut_keys)] for place, heads in by_layer.items()
    }


def _stacked_rows(before: Floats, rows: Floats) -> Floats:
    """Put rows of attention, [token, key], below earlier ones; these see fewer keys and get weight 0
    for the others."""
    wide = np.zeros((len(before) + len(rows), rows.shape[1]))
    wide[: len(before), : before.shape[1]] = before
    wide[len(before) :] = rows
    return wide
