"""`attncli.circuit`: the edges that carry a difference over pairs, tested on pairs held out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.arrays.backend import ITEM
from attncli.arrays.numpy_backend import cores, integers, take_in_order
from attncli.documents.header import model_part
from attncli.errors import InputError, UnsupportedError, UsageError, refused_value
from attncli.features.circuit.circuit_roles import ROLE_PAIRS, HeadRole, Place, head_roles
from attncli.features.circuit.document import (
    CircuitDocument,
    CircuitEdge,
    CircuitGraph,
    CircuitMeasure,
    CircuitNode,
    CircuitPairs,
    CircuitSize,
    EdgeCut,
    ExactCuts,
    NodeRule,
    SizedEdge,
    SizedNode,
)
from attncli.features.circuit.edge_graph import (
    EdgeGraph,
    Mask,
    edge_graph,
    live_edges,
    random_edges,
    strongest_edges,
)
from attncli.features.circuit.edge_run import CircuitModel
from attncli.features.circuit.faithfulness import (
    RUNS_AT_ONCE,
    SHARES,
    CircuitMeasures,
    areas,
    measure_circuits,
    overlap_of_resamples,
    smallest_size,
    without_each,
)
from attncli.features.effects.ablation import refuse_foreign
from attncli.features.effects.document import Difference
from attncli.features.effects.places import places, reads_on
from attncli.features.effects.sweep import SweepSize
from attncli.features.run.compute import RunRequest, cost
from attncli.inputs.token import ignore
from attncli.language import message
from attncli.measure.bootstrap import resample
from attncli.measure.kept_results import KeptArrays, fingerprint
from attncli.measure.mean_intervals import ratio_intervals
from attncli.measure.pair_measure import (
    FittedPairs,
    TokenPair,
    fitting_pairs,
    measured_differences,
)
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.spec import Block, Experts, HeadSelection, Mlp, Spec
from attncli.models.estimate import (
    CostEstimate,
    compute_dtype,
    free_memory,
    seconds_of,
    work_of,
)
from attncli.models.load import CachedStore
from attncli.models.model import Model
from attncli.models.run import no_output_head
from attncli.version import __version__

Floats = np.ndarray[Any, np.dtype[Any]]

CUT_EDGES, CUT_PAIRS = 20, 8
"""Edges that are cut one at a time, and pairs on which they are."""
DRAWN = 300
"""Edges of each size that a picture over sizes can draw: more are a tangle."""
RESAMPLES = 20
"""Circuits chosen on pairs drawn again."""
LEAST = 1e-6
"""A mean difference between clean and corrupt texts below this is none."""
STEPS = 5
EXACT = ("float32", "float64")
"""Data types in which sums of thousands of edges are exact enough."""
BACK_AND_FORTH = 3.0
"""A run that takes gradients, in runs without: 2.6 to 3.1 on SmolLM2, texts of 14 to 17 tokens."""
APART = 2.0
"""A run whose readers read apart, in runs as they are: 1.6 to 2.4 there."""


class SplitPairs(Struct, frozen=True):
    """Pairs that edges are chosen on, and others that circuits are tested on.

    name: of the file or task.
    left_out: how many pairs do not fit the model, or are repeated.
    """

    name: str
    choice: tuple[TokenPair, ...]
    held_out: tuple[TokenPair, ...]
    left_out: int


@checked
def circuit(
    model: Model,
    file: str | Path,
    *,
    count: int | None = None,
    size: str | None = None,
    holdout: int | None = None,
    steps: int = STEPS,
    by_position: bool = False,
    seed: int = 0,
    workers: int | None = None,
    memory: int | None = None,
    kept: Path | None = None,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
    on_result: Callable[[int, int], None] = ignore,
    progress: Callable[[float], None] = ignore,
) -> CircuitDocument:
    """Find the edges between a decoder's parts that carry the difference between clean and corrupt
    texts, and test circuits of them on pairs that were not used for the choice.

    Args:
        model: A decoder with an output head whose layers run natively.
        file: A file of pairs, or the name of a task of the package; pairs that do not fit the model
            and repeated ones are left out.
        count: How many pairs; None for all of a file, and for as many as a template gives.
        size: Of the circuit: edges ("200"), or a share of all ("2%"); None for the smallest of ten
            sizes that keeps 80% of the difference on the pairs of the choice.
        holdout: Pairs that circuits are tested on; None for half.
        steps: Inputs between the corrupt and the clean text at which gradients are taken.
        by_position: Whether the document also has each edge's score token by token, for pairs whose
            texts all have the same number of tokens and differ at the same places.
        seed: Of the split, the random edges and the resamples.
        workers: Pairs that are run at the same time, in threads that share the weights; None for one
            for each processor, as far as memory allows. The document has the same bytes.
        memory: Bytes that the work may take, which limits the number of workers; None for those
            that are free.
        kept: A folder where the results of each pair are kept until all are known, so that the same
            call goes on after an interruption.
        on_cost: Called with the estimated cost, and the tokens of the longest text, before it starts.
        on_result: Called with how many of how many runs of pairs are done.
        progress: Called with the share done, 0 to 1.

    Returns:
        What `attn circuit --json` writes.

    Raises:
        InputError: For a file that cannot be read, fewer than two pairs that fit the model, texts
            that differ in nothing on average, and by position for pairs that are not aligned.
        UsageError: For a `size` that cannot be read, and less than one step or worker.
        UnsupportedError: For a model that predicts no token, or is no sum of its parts.

    Source: Hanna et al., 2024 (arXiv 2403.17806); Mueller et al., 2025 (arXiv 2504.13151).
    """
    # what cannot be done
    if model.spec.head is None:
        raise no_output_head(model.spec)
    refuse_foreign(model)
    if not reads_on(model.spec):
        what = message("this {family} model reads in both directions", family=model.spec.family)
        raise UnsupportedError(what, expected="a decoder, which has a next word")
    for name, number in (("steps", steps), ("workers", workers)):
        if number is not None and number < 1:
            raise refused_value(name, number, "at least 1")
    own_dtype = model.backend.dtype
    if own_dtype not in EXACT:
        raise UnsupportedError(
            "edges are not replaced in {dtype}", expected="float32 or float64", dtype=own_dtype
        )

    # the model's edges, the pairs, and what the work costs
    graph = edge_graph(model.spec)
    chosen_count = None
    if size is not None:
        chosen_count = edge_count(size, int(graph.mask.sum()))
    pairs = split_pairs(fitting_pairs(model, file, count), holdout, seed)
    if by_position:
        _refuse_other_places(pairs.choice)
    longest = max(len(pair.clean) for pair in (*pairs.choice, *pairs.held_out))
    dtype = compute_dtype(model.spec, longest, own_dtype)  # as runs of the whole model compute
    runs = PairRuns(model, graph, pairs, longest, steps, dtype)
    if memory is None:
        memory = free_memory().bytes
    at_once = _workers(runs, workers, memory)
    on_cost(_cost(runs, at_once), longest)

    # the folder of kept results is named after all that they depend on
    folder = None
    if kept is not None:
        both = (*pairs.choice, *pairs.held_out)
        tokens = [token for pair in both for token in (*pair.clean, *pair.corrupt)]
        # with the length of each text, which says where it ends among the tokens of all
        answers = [(len(pair.clean), pair.answer, pair.versus) for pair in both]
        request = (answers, len(pairs.choice), chosen_count, steps, by_position, seed, dtype)
        folder = kept / fingerprint(model, tokens, request)
    arrays = KeptArrays(folder)
    work = _Work(runs, at_once, arrays, on_result, progress)
    document = work.document(chosen_count, steps, seed, by_position=by_position)
    arrays.drop()  # nothing is left that a later call could go on with
    return document


def edge_count(size: str, edges: int) -> int:
    """Parse a circuit's size, "200" or "2%", to a number of edges.

    edges: of the whole model; a share is rounded to whole edges.

    Raises UsageError for another text, and for a number that is not from 1 to `edges`.
    """
    # a number, such as 200 or 2.5, and a % sign or none
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(%?)", size.strip())
    number = 0.0
    if match is not None:
        number = float(match[1])
    if match is not None and match[2]:
        number = round(edges * number / 100)
    if match is None or number != int(number) or not 1 <= number <= edges:
        raise UsageError(
            "a circuit of {size} is none",
            expected="1 to {edges:,} edges, or a share such as 2%",
            hint="--size 2%, or without --size the smallest that keeps 80%",
            size=repr(size),
            edges=edges,
        )
    return int(number)


def split_pairs(fitted: FittedPairs, holdout: int | None, seed: int) -> SplitPairs:
    """Divide pairs at random into those that edges are chosen on and those that circuits are tested
    on. Repeated pairs count once, so that no pair is in both groups.

    fitted: the pairs that fit the model, and the faults of those that do not.
    holdout: how many to test on; None for half.
    seed: of the order in which they are divided.

    Raises InputError for fewer than two pairs, UsageError for a group without any.
    """
    # by the ids of both texts and the two answers: of equal pairs the first
    different: dict[tuple[Any, ...], TokenPair] = {}
    for pair in fitted.pairs:
        texts = tuple(tuple(token.id for token in text) for text in (pair.clean, pair.corrupt))
        different.setdefault((*texts, pair.answer, pair.versus), pair)
    pairs = list(different.values())
    if len(pairs) < 2:
        raise InputError(
            "{count} different pairs fit this model",
            expected="two at least: edges are chosen on some and tested on others",
            hint="attn pairs check FILE --model MODEL",
            count=len(pairs),
        )
    test_count = holdout
    if test_count is None:
        test_count = len(pairs) // 2
    if not 1 <= test_count < len(pairs):
        raise UsageError(
            "--holdout {holdout} of {count} pairs leaves none to choose on",
            expected="1 to {most}",
            holdout=test_count,
            count=len(pairs),
            most=len(pairs) - 1,
        )
    # sorting numbers of a named stream gives an order that is the same on every machine
    order = integers(seed, f"pairs\0{len(pairs)}", len(pairs)).argsort(kind="stable")
    shuffled = tuple(pairs[place] for place in order.tolist())
    repeated = len(fitted.pairs) - len(pairs)
    return SplitPairs(
        name=fitted.name,
        choice=shuffled[test_count:],
        held_out=shuffled[:test_count],
        left_out=len(fitted.faults) + repeated,
    )


class PairRuns(Struct, frozen=True, eq=False):
    """The model, the pairs and the settings of all runs of a circuit.

    longest: tokens of the longest text.
    steps: inputs of a pair at which gradients are taken.
    dtype: what runs compute in, float32 or float64.
    """

    model: Model
    graph: EdgeGraph
    pairs: SplitPairs
    longest: int
    steps: int
    dtype: str


class _Work:
    """The steps from pairs to a document: scores, sizes, tests.

    workers: pairs at the same time.
    """

    def __init__(
        self,
        runs: PairRuns,
        workers: int,
        arrays: KeptArrays,
        on_result: Callable[[int, int], None],
        progress: Callable[[float], None],
    ) -> None:
        """Count the runs to come; none has run yet.

        workers: how many pairs run at the same time.
        arrays: where the result of each run is kept.
        on_result: called with how many of how many results are known.
        progress: called with the share done, 0 to 1.
        """
        pairs = runs.pairs
        self.model = runs.model
        self.graph = runs.graph
        self.pairs = pairs
        self.dtype = runs.dtype
        self.circuit = CircuitModel(runs.model, runs.graph, runs.dtype)
        self._workers = workers
        self._arrays = arrays
        self._on_result = on_result
        self._progress = progress
        cuts = min(CUT_PAIRS, len(pairs.choice))
        self.role_pairs = min(ROLE_PAIRS, len(pairs.choice))
        # results to compute: each pair of the choice is scored and tested, others are only tested
        self._runs = 2 * len(pairs.choice) + len(pairs.held_out) + cuts
        # results known so far, and steps of the progress, which the roles of heads add to
        self._kept = 0
        self._done = 0

    def advance(self) -> None:
        """Count a run of a pair as done, and report the share of all runs."""
        self._done += 1
        self._progress(self._done / (self._runs + self.role_pairs))

    def results(
        self,
        name: str,
        works: Sequence[Callable[[], Floats]],
        row_of: Callable[[Floats], Floats] = np.asarray,
    ) -> list[Floats]:
        """The result of each pair in their order, read where an earlier call kept it, else computed
        now, several at the same time in threads.

        name: of this step, such as "scores", under which results are kept.
        works: computes the result of each pair.
        row_of: turns each result into the row that is returned; called for one result at a time, in
            the order of the pairs.
        """
        rows: list[Floats] = []

        def pair_result(number: int, _: int) -> Floats:
            """The result of the pair of this number; which worker computes it does not matter."""
            return self._arrays.load_or_compute(f"{name}-{number}", works[number])

        def take(array: Floats) -> None:
            """Add the next result to the rows, and report how many are known."""
            rows.append(row_of(array))
            self._kept += 1
            self._on_result(self._kept, self._runs)
            self.advance()

        # one more than workers, so that all of these can compute while `take` has a result
        places = range(self._workers + 1)
        functions = [partial(pair_result, number) for number in range(len(works))]
        take_in_order(functions, take, places)
        return rows

    def document(
        self, count: int | None, steps: int, seed: int, *, by_position: bool
    ) -> CircuitDocument:
        """Score all edges on the pairs of the choice, test circuits of growing size on the held-out
        pairs, and describe the circuit of the size asked for.

        count: edges of the circuit; None for the smallest that keeps 80%.
        steps: inputs between the corrupt and the clean text at which gradients are taken.
        seed: of random edges and resamples.
        by_position: whether the document also has scores token by token.
        """
        # the logit difference of clean and corrupt texts, [pair], the pairs of the choice first
        pairs = self.pairs
        both = (*pairs.choice, *pairs.held_out)
        texts = [(pair.clean, pair.answer, pair.versus) for pair in both]
        texts += [(pair.corrupt, pair.answer, pair.versus) for pair in both]
        clean, corrupt = measured_differences(self.model, texts).reshape(2, -1)
        test_rows = slice(len(pairs.choice), None)
        for group in (slice(len(pairs.choice)), test_rows):
            _check_difference(clean[group], corrupt[group])

        # the scores of edges, and the sizes to test: those of the curve and the one asked for; edges
        # are chosen by their mean score over pairs, [reader, writer]
        scores, positions = self._all_scores(steps, by_position=by_position)
        mean = scores.mean(0)
        whole = int(self.graph.mask.sum())
        counts = [max(round(whole * share), 1) for share in SHARES]
        sizes = list(counts)
        chosen_by: Literal["keeps", "size"] = "size"
        if count is None:
            chosen_by = "keeps"
            count = self._sufficient_count(mean, counts)
        else:
            sizes.append(count)

        # the tests on held-out pairs
        tested = self._held_out_measures(mean, sizes, seed)
        # a row for each size of the curve, then one for the size that was asked for, if any
        rows = self._rows(mean, tested, sizes, whole)
        if chosen_by == "size":
            chosen = rows[-1]
        else:
            chosen = rows[counts.index(count)]
        mask = live_edges(self.graph, strongest_edges(self.graph, mean, count))
        curve = [row.faithfulness for row in rows[: len(SHARES)]]
        cpr, cmd = areas(SHARES, curve)

        # all edges must keep the whole difference of the model's own runs, and no edges, which are
        # the last circuit of the tests, none of it; the last size of the curve has all edges
        whole_difference = (clean[test_rows] - corrupt[test_rows]).sum()
        kept_by_all = tested.circuits[:, len(SHARES) - 1] - corrupt[test_rows]
        kept_by_none = tested.circuits[:, -1] - corrupt[test_rows]
        choose = partial(strongest_edges, self.graph, count=count)
        token_texts: list[str] | UnsetType = UNSET
        if positions is not None:
            # scores by token are of aligned pairs alone: the first names the places of all
            token_texts = [token.text for token in pairs.choice[0].clean]
        return CircuitDocument(
            version=__version__,
            model=model_part(self.model),
            dtype=self.dtype,
            measure=CircuitMeasure(
                clean=float(clean.mean()),
                corrupt=float(corrupt.mean()),
                right=float((clean > 0).mean()),
            ),
            pairs=CircuitPairs(
                name=pairs.name,
                choice=len(pairs.choice),
                held_out=len(pairs.held_out),
                left_out=pairs.left_out,
            ),
            graph_edges=whole,
            chosen=chosen,
            chosen_by=chosen_by,
            nodes=_nodes(self.graph, mask, mean, self._roles(mask)),
            role_pairs=self.role_pairs,
            edges=_edges(self.graph, mask, mean, positions),
            tokens=token_texts,
            curve=rows[: len(SHARES)],
            all=float(kept_by_all.sum() / whole_difference),
            none=float(kept_by_none.sum() / whole_difference),
            cpr=cpr,
            cmd=cmd,
            stability=overlap_of_resamples(scores, choose, resample(len(scores), seed, RESAMPLES)),
            cuts=self._cuts(scores, positions),
            graph=circuit_graph(self.graph, mean, sizes),
            steps=steps,
            seed=seed,
            warnings=_warnings(self.model.spec),
        )

    def _roles(self, mask: Mask) -> dict[Place, HeadRole]:
        """Measure what each head of a circuit does; by (layer, head).

        mask: the edges of the circuit, [reader, writer].
        """
        carries = np.asarray(mask.any(0)).tolist()
        heads = [
            (writer.layer, writer.head)
            for writer, is_kept in zip(self.graph.writers, carries, strict=True)
            if is_kept and writer.layer is not None and writer.head is not None
        ]
        return head_roles(self.model, self.pairs.choice, heads, self.advance)

    def _all_scores(self, steps: int, *, by_position: bool) -> tuple[Floats, Floats | None]:
        """The scores of all edges, [pair, reader, writer], and where they are computed token by
        token, their mean over pairs, [token, reader, writer].

        steps: inputs between the corrupt and the clean text at which gradients are taken.
        """
        works = [
            partial(self._scores, pair, steps, by_position=by_position)
            for pair in self.pairs.choice
        ]
        if not by_position:
            return np.stack(self.results("scores", works)), None
        # by position, all texts have the same number of tokens
        shape = (len(self.pairs.choice[0].clean), *self.graph.mask.shape)
        total = np.zeros(shape, self.dtype)

        # called for one pair at a time, in their order: token by token only the sum is kept
        def add_to_total(array: Floats) -> Floats:
            """Add one pair's scores, [token, reader, writer], to the total, and return their sum
            over the tokens, [reader, writer]."""
            np.add(total, array, out=total)
            return np.asarray(array.sum(0))

        rows = self.results("scores", works, add_to_total)
        return np.stack(rows), total / len(rows)

    def _scores(self, pair: TokenPair, steps: int, *, by_position: bool) -> Floats:
        """The scores of all edges for one pair, [reader, writer], or [token, reader, writer]."""
        gradients = self.circuit.pair_gradients(pair, steps)
        if by_position:
            return gradients.scores_by_position(self.graph)
        return gradients.scores(self.graph)

    def _sufficient_count(self, mean: Floats, counts: Sequence[int]) -> int:
        """The smallest of these sizes whose circuit keeps 80% on the pairs of the choice, in edges;
        the largest where none does.

        mean: the scores of edges, [reader, writer].
        counts: the sizes of the curve, the last of them all edges.
        """
        masks = [strongest_edges(self.graph, mean, count) for count in counts]
        kept = measure_circuits(
            self.circuit, self.pairs.choice, masks, partial(self.results, "choice")
        ).difference_kept()
        shares = kept.sum(0) / kept[:, -1].sum()
        return counts[smallest_size(SHARES, shares.tolist())]

    def _held_out_measures(self, mean: Floats, counts: Sequence[int], seed: int) -> CircuitMeasures:
        """Run the held-out pairs under circuits of the strongest edges of each size, then of as many
        random edges, then of no edges at all, and measure their logit differences.

        mean: the scores of edges, [reader, writer].
        counts: the sizes.
        """
        masks = [strongest_edges(self.graph, mean, count) for count in counts]
        masks += [random_edges(self.graph, count, seed) for count in counts]
        masks.append(np.zeros_like(masks[0]))
        return measure_circuits(
            self.circuit, self.pairs.held_out, masks, partial(self.results, "test")
        )

    def _rows(
        self, mean: Floats, tested: CircuitMeasures, counts: Sequence[int], whole: int
    ) -> list[CircuitSize]:
        """A row for each size of circuit: the share of the effect that it keeps, with its interval,
        and the share that as many random edges keep.

        tested: of `_held_out_measures` for these counts.
        whole: edges of the model.
        mean: the scores of edges, [reader, writer].
        counts: edges of each circuit, the sizes of the curve first.
        """
        # [pair, circuit]: the strongest edges of each size, then as many random ones, then no edges
        kept = tested.difference_kept()
        # what all edges keep, the last size of the curve, is the whole effect
        whole_effect = kept[:, len(SHARES) - 1]
        intervals = ratio_intervals(kept, whole_effect)
        return [
            CircuitSize(
                share=count / whole,
                edges=count,
                live=int(live_edges(self.graph, strongest_edges(self.graph, mean, count)).sum()),
                faithfulness=intervals[place].mean,
                low=intervals[place].low,
                high=intervals[place].high,
                random=intervals[len(counts) + place].mean,
            )
            for place, count in enumerate(counts)
        ]

    def _cuts(self, scores: Floats, positions: Floats | None) -> ExactCuts:
        """Cut the strongest edges one at a time by exact runs on pairs of the choice, and set the
        changes beside the estimated scores on the same pairs.

        scores: of edges, [pair, reader, writer].
        positions: scores by token for the document's edges; None for none.
        """
        pairs = self.pairs.choice[:CUT_PAIRS]
        mean = scores.mean(0)
        edges = ranked_edges(strongest_edges(self.graph, mean, CUT_EDGES), mean)
        masks = without_each(self.graph, edges)
        measured = measure_circuits(
            self.circuit, pairs, masks, partial(self.results, "cuts")
        ).circuits
        # the last circuit has all edges
        exact = (measured[:, :-1] - measured[:, -1:]).mean(0)
        estimated = scores[: len(pairs)].mean(0)[edges[:, 0], edges[:, 1]]
        correlation = None  # as long as one of the two does not vary
        if len(edges) > 1 and exact.std() > 0 and estimated.std() > 0:
            correlation = float(np.corrcoef(exact, estimated)[0, 1])
        rows = [
            EdgeCut(
                **_edge_ends(self.graph, edge),
                score=float(score),
                exact=float(change),
                positions=_edge_positions(edge, positions),
            )
            for edge, score, change in zip(edges, estimated, exact, strict=True)
        ]
        return ExactCuts(pairs=len(pairs), edges=rows, correlation=correlation)


def _check_difference(clean: Floats, corrupt: Floats) -> None:
    """Raise InputError where the logit differences of clean and corrupt texts, [pair] each, have the
    same mean: then there is no effect that edges could carry."""
    # `not … >=`, so that NaN is refused, too
    if not abs(float((clean - corrupt).mean())) >= LEAST:
        what = message("clean and corrupt texts of these pairs give the same on average")
        raise InputError(what, expected="pairs whose answers differ")


def ranked_edges(mask: Mask, scores: Floats) -> Floats:
    """The edges of a mask as rows (reader, writer), those of largest |score| first."""
    edges = np.argwhere(mask)
    order = np.argsort(-np.abs(scores[edges[:, 0], edges[:, 1]]), kind="stable")
    return edges[order]


def _edge_ends(graph: EdgeGraph, edge: Floats) -> dict[str, Any]:
    """The keyword arguments of the document's edges that say from where to where one leads: `writer`
    and `to`, the ids of the nodes at its ends, such as "L3H1", and `reads`, by which input the
    second one reads it: "q", "k", "v", "mlp" or "logits".

    edge: the numbers (reader, writer) in the graph.
    """
    reader_number, writer_number = edge.tolist()
    reader = graph.readers[reader_number]
    writer = graph.writers[writer_number]
    return {"writer": writer.id, "to": reader.id, "reads": reader.reads}


def _edges(
    graph: EdgeGraph, mask: Mask, scores: Floats, positions: Floats | None
) -> list[CircuitEdge]:
    """The document's edges of a circuit, the strongest first.

    mask: which edges are in the circuit, [reader, writer].
    scores: of all edges, [reader, writer].
    positions: scores by token, [token, reader, writer]; None where they were not computed.
    """
    return [
        CircuitEdge(
            **_edge_ends(graph, edge),
            score=float(scores[tuple(edge)]),  # of (reader, writer)
            positions=_edge_positions(edge, positions),
        )
        for edge in ranked_edges(mask, scores)
    ]


def circuit_graph(graph: EdgeGraph, scores: Floats, counts: Sequence[int]) -> CircuitGraph:
    """The edges and nodes that a picture of the circuits draws, each with the smallest circuit that
    contains it.

    Args:
        graph: Of the model.
        scores: Of edges, [reader, writer].
        counts: Edges of each circuit, before those are dropped through which nothing flows.

    Returns:
        The `DRAWN` strongest live edges of each size, and every part that carries something.
    """
    # the smallest circuit of each edge, [reader, writer]; 0 for an edge in none
    least = np.zeros(graph.mask.shape, np.int64)
    is_drawn = np.zeros_like(graph.mask)
    for count in sorted(set(counts), reverse=True):  # the smallest last: its number stays
        mask = live_edges(graph, strongest_edges(graph, scores, count))
        least[mask] = count
        edges = ranked_edges(mask, scores)[:DRAWN]
        is_drawn[edges[:, 0], edges[:, 1]] = True

    # the smallest circuit of each node: of a writer the smallest of all edges that it writes to; of
    # the logits, which are the last reader, of all that they read
    unused = np.iinfo(np.int64).max  # larger than any circuit, for edges in none
    sizes = np.where(least > 0, least, unused)
    node_sizes = [*sizes.min(0).tolist(), int(sizes[-1].min())]
    names = [*(writer.id for writer in graph.writers), "logits"]
    nodes = [
        SizedNode(id=name, least=size)
        for name, size in zip(names, node_sizes, strict=True)
        if size < unused
    ]
    rows = [
        SizedEdge(
            **_edge_ends(graph, edge),
            score=float(scores[tuple(edge)]),  # of (reader, writer)
            least=int(least[tuple(edge)]),
        )
        for edge in ranked_edges(is_drawn, scores)
    ]
    return CircuitGraph(most=DRAWN, nodes=nodes, edges=rows)


def _edge_positions(edge: Floats, positions: Floats | None) -> list[float] | UnsetType:
    """The scores of an edge, token by token; UNSET without scores by token.

    edge: the numbers (reader, writer).
    positions: scores, [token, reader, writer].
    """
    if positions is None:
        return UNSET
    reader, writer = edge.tolist()
    edge_scores: list[float] = positions[:, reader, writer].tolist()
    return edge_scores


def _refuse_other_places(pairs: Sequence[TokenPair]) -> None:
    """Raise InputError unless all pairs have texts of the same number of tokens, which differ at the
    same places: else scores by token cannot be averaged over pairs."""
    first = pairs[0]
    for pair in pairs[1:]:
        if len(pair.clean) != len(first.clean):
            reason = message(
                "one text has {count} tokens, another {other}",
                count=len(first.clean),
                other=len(pair.clean),
            )
        elif _places_of_change(pair) != _places_of_change(first):
            reason = message("not all pairs differ at the same tokens")
        else:
            continue
        raise InputError(
            "positions of these pairs do not correspond: {reason}",
            expected="texts of one template whose words are as many tokens each",
            hint="attn pairs check FILE --model MODEL, or the same without --by-position",
            reason=reason,
        )


def _places_of_change(pair: TokenPair) -> list[int]:
    """The tokens at which the two texts of a pair differ."""
    both = zip(pair.clean, pair.corrupt, strict=True)
    return [place for place, (clean, corrupt) in enumerate(both) if clean.id != corrupt.id]


def _nodes(
    graph: EdgeGraph, mask: Mask, scores: Floats, roles: Mapping[Place, HeadRole]
) -> list[CircuitNode]:
    """The nodes of a circuit in the order in which they run, each with its strength (the sum of
    |score| over the edges that leave it) and the nodes at the other ends of its strongest edges.

    mask, scores: of edges, [reader, writer]; the logits are the last reader.
    roles: of heads.
    """
    sizes = np.where(mask, np.abs(scores), 0.0)
    nodes = []
    for number, writer in enumerate(graph.writers):
        if not mask[:, number].any():
            continue
        # the readers that are inputs of this node: a head has three
        inputs = [row for row, reader in enumerate(graph.readers) if number in reader.nodes]
        # of each writer the strongest of its edges to this node
        incoming = np.zeros(0)
        if inputs:  # the embedding has none
            incoming = sizes[inputs].max(0)
        reads = None
        if incoming.any():
            reads = graph.writers[int(incoming.argmax())].id
        role = None
        if writer.layer is not None and writer.head is not None:
            role = roles[writer.layer, writer.head]
        # members that only a head has
        labels: list[str] | UnsetType = UNSET
        rule: NodeRule | UnsetType = UNSET
        difference: Difference | UnsetType = UNSET
        if role is not None:
            labels = list(role.labels)
            difference = role.difference
            rule = role.rule or UNSET
        nodes.append(
            CircuitNode(
                id=writer.id,
                kind=writer.kind,
                layer=writer.layer,
                head=writer.head,
                strength=float(sizes[:, number].sum()),
                reads=reads,
                writes=_reader_name(graph, int(sizes[:, number].argmax())),
                labels=labels,
                rule=rule,
                difference=difference,
            )
        )
    # the logits, which edges lead to, but none leaves
    to_logits = sizes[-1]
    if to_logits.any():
        reads = graph.writers[int(to_logits.argmax())].id
        nodes.append(
            CircuitNode(
                id="logits",
                kind="logits",
                layer=None,
                head=None,
                strength=0.0,
                reads=reads,
                writes=None,
            )
        )
    return nodes


def _reader_name(graph: EdgeGraph, number: int) -> str:
    """The name of the reader of this number: of a head's input such as "L5H3:q", of one that has a
    single input such as "L5MLP" or "logits"."""
    reader = graph.readers[number]
    if reader.reads in ("q", "k", "v"):
        return f"{reader.id}:{reader.reads}"
    return reader.id


def _warnings(spec: Spec) -> list[str]:
    """The warning that scores of edges do not follow a change of the experts that are chosen; [] for
    a model without experts."""
    if any(isinstance(block.mlp, Experts) for block in spec.blocks):
        return [
            message(
                "the choice of experts is held where edges are scored; the tests run it as it is"
            )
        ]
    return []


def _workers(runs: PairRuns, workers: int | None, memory: int) -> int:
    """How many pairs to run at the same time, in threads.

    workers: as many as were asked for; None for as many as there are processors and memory holds.
    memory: bytes.
    """
    most = max(len(runs.pairs.choice), len(runs.pairs.held_out))
    # threads can share weights that stay in memory, but not layers that are read anew in each run
    if not isinstance(runs.model.store, CachedStore):
        return 1
    if workers is not None:
        return min(workers, most)
    count = min(cores(), most)
    while count > 1 and _cost(runs, count).peak > memory:
        count -= 1
    return count


def _cost(runs: PairRuns, workers: int) -> CostEstimate:
    """Estimate the cost of all runs, each counted as if its text were the longest.

    workers: how many pairs run at the same time.
    """
    spec, pairs, count, dtype = runs.model.spec, runs.pairs, runs.longest, runs.dtype
    expected = cost(runs.model, count, RunRequest(matrices=False), is_saved=False)

    # the roles of heads: two sweeps over all heads for each pair
    sweep = SweepSize(spec, count, dtype, predicts=True)
    swept = sweep.sweep_cost(places(spec, HeadSelection()), free_memory().bytes)
    roles = 2 * min(ROLE_PAIRS, len(pairs.choice)) * swept.seconds

    # in plain runs: cuts of single edges, and one run with all edges, of each pair; scores with
    # gradients, each as long as `BACK_AND_FORTH` plain ones; and tests of all sizes, on held-out
    # pairs of as many random edges, too. Tests and cuts take `APART` times as long as plain runs
    seconds = seconds_of(work_of(spec, spec.blocks, count), dtype)
    cuts = min(CUT_PAIRS, len(pairs.choice)) * (CUT_EDGES + 1)
    inputs = runs.steps + 1  # with the corrupt text's own
    scored = len(pairs.choice) * inputs * BACK_AND_FORTH
    tests = (len(pairs.choice) + 2 * len(pairs.held_out)) * len(SHARES)
    return replace(
        expected,
        seconds=seconds * (scored + APART * (tests + cuts)) / workers + roles,
        memory=_memory(runs, workers),
        resident=0,  # the weights are part of `memory`, however many of them are loaded already
    )


def _memory(runs: PairRuns, workers: int) -> dict[str, int]:
    """Bytes at the peak by what they are for: the weights of all layers, which gradients go back
    through, and for each worker the larger of a run with gradients and one with replaced edges."""
    spec, graph, count, steps = runs.model.spec, runs.graph, runs.longest, runs.steps
    item = ITEM[runs.dtype]
    weights = item * work_of(spec, spec.blocks, count).weights
    if isinstance(runs.model.store, CachedStore):
        # the table of the vocabulary, about a byte a number as quantised files have it: measured on
        # SmolLM2 and Gemma 3, where all this is 1.00 and 0.92 of what runs take, 1.00 and 0.90
        # where weights are not kept
        weights += spec.vocabulary * spec.d_model

    # a run with gradients, in numbers: what layers leave for them, with four n × n stages a head,
    # for each input; a vector per token of each reader; and of each writer one for each input and a
    # few copies
    per_token = sum(map(_numbers_in_graph, spec.blocks))
    heads = sum(block.attention.heads for block in spec.blocks)
    remembered = (steps + 1) * count * (per_token + 4 * heads * count)
    vectors = (len(graph.readers) + (steps + 3) * len(graph.writers)) * count * spec.d_model

    # a run with replaced edges: what each writer writes in each circuit beside the corrupt text,
    # with a copy
    moved = 2 * (RUNS_AT_ONCE + 1) * len(graph.writers) * count * spec.d_model

    # scores of all edges for each pair, as many masks as resamples choose, and a few copies
    edges = len(graph.readers) * len(graph.writers)
    kept = edges * (len(runs.pairs.choice) + RESAMPLES + 4)
    return {
        message("all weights at once"): weights,
        message("runs with gradients, or with replaced edges"): item
        * workers
        * max(remembered + vectors, moved),
        message("scores of edges"): item * kept,
    }


def _numbers_in_graph(block: Block) -> int:
    """About how many numbers a token a layer keeps until gradients have gone back through it: 4 and 9
    arrays of intermediate results of these widths. `_memory` says how near that is to real runs."""
    attention = block.attention
    # queries, keys, values and outputs of all heads, each with room for a copy
    projected = 2 * (attention.heads + attention.kv_heads) * attention.head_dim
    projected += 2 * (attention.heads + attention.kv_heads) * attention.v_dim
    mlp_width = 0
    if isinstance(block.mlp, Mlp | Experts):
        mlp_width = int(block.mlp.width)
    return 4 * projected + 9 * mlp_width
