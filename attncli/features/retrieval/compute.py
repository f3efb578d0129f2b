"""The document of `attn heads --retrieval`: needles are put into haystacks, and the heads that
fetch them are found.

A needle is a passage `QUESTION ANSWER`; the text ends with the question again, so that a model that
can fetch it goes on with the answer. Each text runs once, with the answer: a token of it is
predicted if it is the likeliest there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET, Struct
from msgspec.structs import replace

from attncli.arrays.numpy_backend import integers
from attncli.documents.header import model_part
from attncli.errors import InputError, UsageError
from attncli.features.effects.logit_parts import target_sources
from attncli.features.effects.sweep import SweepText
from attncli.features.retrieval.document import (
    FetchCheck,
    FetchingHead,
    FetchScore,
    RetrievalDocument,
)
from attncli.inputs.files import read_regular
from attncli.inputs.token import TEXT_LIMIT, Token, ignore
from attncli.language import message
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.context import NO_INTERVENTIONS, Interventions, Zero
from attncli.mechanism.trace import LayerTrace
from attncli.models.estimate import (
    START_SECONDS,
    CostEstimate,
    estimate,
    with_held_weights,
    with_predictions,
)
from attncli.models.model import Model
from attncli.models.passes import PassCount, seconds_of_passes
from attncli.models.run import no_output_head
from attncli.version import __version__

Floats = np.ndarray[Any, np.dtype[np.float64]]
HeadName = tuple[int, int]
"""(layer, head)."""
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Where a needle stands among the passages: before the first (0), after the last (1)."""
ANSWERED = 0.5
"""Share of an answer that must be predicted for a run to count. Source: Wu et al., 2024."""
RETRIEVAL = 0.1
"""The literal score from which on a head is called a retrieval head. Source: Wu et al., 2024."""
LEAST_ANSWERED = 0.1
"""Share of runs that must be answered for heads to be ranked."""
DRAWS = 1000
"""Draws of an interval."""
CUTS, RANDOM_DRAWS = (1, 2, 3, 5, 10), 5
"""How many heads a check takes away, and how many times as many others are drawn."""
LENGTHS = (128, 256)
"""Tokens of the texts, at most, where a user names no lengths."""
HAYSTACK, NEEDLES = (Path(__file__).parent / name for name in ("haystack.txt", "needles.tsv"))
"""The passages and needles that are taken where a user names none."""


class Needle(Struct, frozen=True):
    """A fact that stands in a text: the question, and the answer that follows it."""

    question: str
    answer: str


class Probe(Struct, frozen=True, eq=False):
    """One text with a needle in it.

    needle: the index of the needle.
    tokens: of the text, at whose end the question and the answer stand once more.
    steps: the position before each token of that last answer, where the model is to predict it.
    targets: the ids of the answer's tokens.
    places: the positions of the answer's tokens within the needle.
    others: as many positions elsewhere in the text, for what chance gives.
    """

    needle: int
    tokens: list[Token]
    steps: list[int]
    targets: list[int]
    places: list[int]
    others: list[int]


class FetchResult(Struct, frozen=True, eq=False):
    """What one run gave.

    needle: the index of the needle.
    right: for each token of the answer, whether it was predicted.
    literal: for each head, the share of these tokens at which its largest weight is on the very
        token that comes next, within the span looked at.
    writes: for each head, how much more a token of that span adds to the answer's logits through
        the head than a token elsewhere.

    Both scores are pairs of [head of all layers]: with the span of the answer within the needle,
    and with as many other tokens, for what chance gives.
    """

    needle: int
    right: list[bool]
    literal: tuple[Floats, Floats]
    writes: tuple[Floats, Floats]


@checked
def retrieval(
    model: Model,
    *,
    needles: Sequence[tuple[str, str]] | None = None,
    passages: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    depths: Sequence[float] = DEPTHS,
    verify: bool = False,
    literal_alone: bool = False,
    sample: int = 0,
    seed: int = 0,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
    on_interruption: Callable[[RetrievalDocument], None] = ignore,
    progress: Callable[[float], None] = ignore,
) -> RetrievalDocument:
    """Rank heads by whether they fetch a fact that stands somewhere in the text.

    Two scores: *literal*, whether the head looks most at the very token that comes next, where it
    stands in the needle; and *by what it writes*, what the head adds to the logit of that token
    from the needle, less what it adds from any other token. Both are means over runs in which the
    model gives more than half of the answer.

    Args:
        model: As `attncli.load` returns it, with an output head.
        needles: Questions, each with its answer; None for attn's own.
        passages: What the haystacks are made of, drawn without two that begin alike; None for
            attn's own.
        lengths: Tokens of the texts, at most; None for `LENGTHS`, as far as the model's positions
            reach.
        depths: Where the needle stands, 0 (first) to 1 (last before the question).
        verify: Whether recall is measured without the first heads, and without random ones.
        literal_alone: Whether what heads write is left at 0, which saves half of the time.
        sample: Only so many texts of all lengths, depths and needles, drawn by the seed; 0 for all.
        seed: Of haystacks, chance and intervals.
        on_cost: Called before the work starts, with what it will take at most and the number of
            tokens of the longest text.
        on_interruption: Called with what is known where Ctrl-C ends the work after a text or more.
        progress: Called with the share done, 0 to 1.

    Returns:
        What `attn heads --retrieval --json` writes; no heads where the model does not do the task.

    Raises:
        UnsupportedError: For a model that predicts no token.
        UsageError: For no needles, lengths or depths.
        InputError: For a needle that is longer than the texts, and words that the model does not
            know.
        KeyboardInterrupt: On Ctrl-C, after `on_interruption`.

    Source: Wu et al., Retrieval head mechanistically explains long-context factuality, 2024 (arXiv
    2404.15574), of which every token of the answer counts here as generated where it is predicted;
    Gema et al., Logit-contribution scoring, 2026 (arXiv 2607.01002).
    """
    if model.spec.head is None:
        raise no_output_head(model.spec)
    if needles is None:
        needles = read_needles(NEEDLES)
    facts = [Needle(question, answer) for question, answer in needles]
    if passages is None:
        passages = read_passages(HAYSTACK)
    text_lengths = _usual_lengths(model)
    if lengths is not None:
        text_lengths = tuple(lengths)
    _refuse_none(needles=facts, lengths=text_lengths, depths=depths)
    probes = _make_probes(model, facts, passages, text_lengths, depths, seed, sample)
    heads = [
        (layer, head)
        for layer in model.spec.attending()
        for head in range(_head_count(model, layer))
    ]

    # report the cost before anything runs
    measuring_passes = [_measuring_passes(probe, literal_alone=literal_alone) for probe in probes]
    checking_passes: list[PassCount] = []
    if verify:
        checking_passes = _checking_passes(probes, len(heads))
    longest = max(len(probe.tokens) for probe in probes)
    on_cost(_fetch_cost(model, longest, [*measuring_passes, *checking_passes]), longest)
    all_runs = sum(count.passes for count in (*measuring_passes, *checking_passes))
    results: list[FetchResult] = []
    checks: list[FetchCheck] = []

    def document_so_far(more: Sequence[str] = ()) -> RetrievalDocument:
        """The document of the texts that are measured so far.

        more: warnings to add to those about the model.
        """
        ranked = _ranked_if_answered(heads, results, seed)
        return RetrievalDocument(
            version=__version__,
            model=model_part(model),
            needles=[f"{needle.question} {needle.answer}" for needle in facts],
            sizes=list(text_lengths),
            depths=list(depths),
            runs=len(results),
            answered=len(_answered_runs(results)),
            recall=float(np.mean([right for result in results for right in result.right])),
            heads=ranked,
            verify=list(checks) or UNSET,  # UNSET where recall is not measured
            warnings=[*model.warnings, *more],
        )

    sample_note = []
    text_count = len(text_lengths) * len(depths) * len(facts)
    if len(probes) < text_count:
        sample_note.append(
            message(
                "{count} of {texts} texts were drawn for --sample",
                count=len(probes),
                texts=text_count,
            )
        )
    runs_done = 0

    def report_runs(part: int) -> None:
        """Report the share of all runs that is done: those of earlier texts, and `part` more."""
        progress((runs_done + part) / all_runs)

    try:
        for probe, count in zip(probes, measuring_passes, strict=True):
            results.append(
                _measure_heads(model, probe, heads, literal_alone=literal_alone, on_run=report_runs)
            )
            runs_done += count.passes
            report_runs(0)
        # no heads where the model does not do the task: then there is nothing to check
        ranked = document_so_far().heads
        if verify and ranked:
            checks.extend(_check_heads(model, probes, ranked, seed, report_runs))
    except KeyboardInterrupt:
        if results:
            interruption = _interruption_warning(len(results), len(probes))
            on_interruption(document_so_far([*sample_note, interruption]))
        raise
    return document_so_far(sample_note)


def _interruption_warning(count: int, texts: int) -> str:
    """The warning that work was interrupted after `count` of its texts; after all of them, while heads
    were checked."""
    if count == texts:
        return message(
            "interrupted: all {texts} texts are told of, but not what recall needs", texts=texts
        )
    return message("interrupted: {count} of {texts} texts are told of", count=count, texts=texts)


def _answered_runs(results: Sequence[FetchResult]) -> list[FetchResult]:
    """The runs in which more than half of the answer was predicted."""
    return [result for result in results if np.mean(result.right) > ANSWERED]


def _ranked_if_answered(
    heads: Sequence[HeadName], results: Sequence[FetchResult], seed: int
) -> list[FetchingHead]:
    """The heads by their scores over the runs that were answered; none where these are too few."""
    answered = _answered_runs(results)
    if len(answered) < max(LEAST_ANSWERED * len(results), 1):  # one at least, for means
        return []
    return _rank_heads(heads, answered, seed)


def _refuse_none(**lists: Sequence[object]) -> None:
    """Raise UsageError for the first of these arguments, given by name, that is empty."""
    for name, values in lists.items():
        if not len(values):
            raise UsageError(
                "{name} is {value}", expected=message("at least one"), name=name, value=repr(values)
            )


def _measuring_passes(probe: Probe, *, literal_alone: bool) -> PassCount:
    """The runs in which a text is measured: one, and one more where what heads write is measured,
    too, if any token of the answer is predicted."""
    return PassCount(1 if literal_alone else 2, len(probe.tokens), len(probe.steps))


def _checking_passes(probes: Sequence[Probe], heads: int) -> list[PassCount]:
    """The runs that a check of a model with so many heads takes: of each text one for each set of
    heads that is taken away: the first by each of two scores, and random ones."""
    sets = len(_cut_sizes(heads)) * (2 + RANDOM_DRAWS)
    return [PassCount(sets, len(probe.tokens), len(probe.steps)) for probe in probes]


def _cut_sizes(heads: int) -> list[int]:
    """How many heads a check takes away, one number for each step: those of `CUTS` up to half of
    the model's heads.

    heads: how many the model has.
    """
    return [count for count in CUTS if count == 1 or count <= heads // 2]


def _fetch_cost(model: Model, longest: int, passes: Sequence[PassCount]) -> CostEstimate:
    """The cost of the runs that find heads that fetch.

    longest: tokens of the longest text.
    passes: how often which texts are run.
    """
    dtype = model.compute_backend(longest).dtype
    running = estimate(model.spec, longest, dtype=dtype)
    # memory for the logits of an answer, of which the first text's stands for all
    running = with_predictions(running, model.spec, passes[0].predicted, dtype)
    running = with_held_weights(running, model.weights_in_memory)
    return replace(
        running,
        seconds=START_SECONDS + seconds_of_passes(model, passes),
        branches=sum(count.passes for count in passes),
    )


def read_needles(path: Path) -> list[tuple[str, str]]:
    """Needles from a file: a line each, the question, a tab and the answer. Raises InputError."""
    needles = []
    for number, row in _read_lines(path):
        question, tab, answer = row.partition("\t")
        if not tab or not question.strip() or not answer.strip() or "\t" in answer:
            what = message("this line is no needle")
            expected = message("a question, a tab, and its answer")
            raise InputError(
                what,
                where=message("{file}, line {line}", file=path, line=number),
                expected=expected,
            )
        needles.append((question.strip(), answer.strip()))
    return needles


def read_passages(path: Path) -> list[str]:
    """Passages of a haystack from a file, a line each. Raises InputError."""
    return [row for _, row in _read_lines(path)]


def _read_lines(path: Path) -> list[tuple[int, str]]:
    """The lines of a UTF-8 file that are not empty, each with its number in the file, from 1.
    Raises InputError."""
    try:
        text = read_regular(path, what=message("a text file"), limit=TEXT_LIMIT).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            "this text is not UTF-8", where=str(path), expected="UTF-8 text"
        ) from error
    lines = [(number, row) for number, row in enumerate(text.splitlines(), 1) if row.strip()]
    if not lines:
        raise InputError(
            "this file holds no lines", where=str(path), expected="at least one line with words"
        )
    return lines


def _head_count(model: Model, layer: int) -> int:
    """How many heads a layer has."""
    return model.spec.blocks[layer].attention.heads


def _usual_lengths(model: Model) -> tuple[int, ...]:
    """`LENGTHS`, as far as the model's positions reach."""
    longest = model.spec.max_positions
    if longest is None:  # no limit
        return LENGTHS
    return tuple(sorted({min(length, longest) for length in LENGTHS}))


def _make_probes(
    model: Model,
    facts: Sequence[Needle],
    passages: Sequence[str],
    lengths: Sequence[int],
    depths: Sequence[float],
    seed: int,
    sample: int = 0,
) -> list[Probe]:
    """A text for each length, depth and needle.

    facts: the needles.
    passages: the hay, of which the texts are made.
    lengths: tokens of the texts, at most.
    depths: where the needle stands, 0 (first) to 1 (last before the question).
    seed: of what is drawn.
    sample: only so many of them, drawn by the seed; 0 for all.
    """
    # all combinations, numbered: a text has the same seed, and so is the same, in every sample
    grid = list(enumerate(product(lengths, depths, range(len(facts)))))
    if 0 < sample < len(grid):
        order = integers(seed, "sample", len(grid)).argsort(kind="stable")
        grid = [grid[place] for place in sorted(order[:sample].tolist())]
    return [
        _make_probe(model, facts, number, passages, length, depth, seed + place)
        for place, (length, depth, number) in grid
    ]


def _make_probe(
    model: Model,
    facts: Sequence[Needle],
    number: int,
    passages: Sequence[str],
    length: int,
    depth: float,
    seed: int,
) -> Probe:
    """A text with the needle of this number at a depth, 0 to 1, filled with passages up to `length`
    tokens.

    facts: all needles.
    seed: of the passages that are drawn, and of the tokens for chance.
    """
    needle = facts[number]
    # the text, and why it may be refused
    chosen = _passages_that_fit(model, needle, passages, length, depth, seed)
    text, start, stop = _insert_needle(needle, chosen, depth)
    tokens = _tokens_without_end(model, text)
    if len(tokens) > length:
        raise InputError(
            "a needle and its question take {count} tokens, and the texts are to have {length}",
            expected="a shorter needle, or --lengths {count}",
            count=len(tokens),
            length=length,
        )
    unknown = [token.text for token in tokens if token.unknown]
    if unknown:
        raise InputError(
            "{word} is unknown to this model: it cannot tell it from other unknown words",
            expected="needles and passages of words that the model knows",
            hint="--needle FILE --haystack FILE",
            word=repr(unknown[0]),
        )
    model.encode(tokens)  # raises where the model has fewer positions

    # where the answer's tokens are, at the end and in the needle, and as many tokens elsewhere
    answer = _tokens_within(tokens, len(text) - len(needle.answer), len(text))
    places = _tokens_within(tokens, start, stop)
    # before the position at which the answer is predicted: every step sees them
    free = [
        token.index
        for token in tokens[: answer[0] - 1]
        if token.index not in places and not token.special
    ]
    # where in `free` the tokens elsewhere begin, so that as many fit as the answer has; at 0 where
    # the text has no more than these
    first = int(integers(seed, "chance", 1)[0] % max(len(free) - len(places) + 1, 1))
    return Probe(
        needle=number,
        tokens=tokens,
        steps=[index - 1 for index in answer],
        # `or 0` is for the type checker: a model with an output head numbers its tokens
        targets=[tokens[index].id or 0 for index in answer],
        places=places,
        others=free[first : first + len(places)],
    )


def _passages_that_fit(
    model: Model,
    needle: Needle,
    passages: Sequence[str],
    length: int,
    depth: float,
    seed: int,
) -> list[str]:
    """Passages drawn by a seed, as many as fit into `length` tokens with the needle; none that
    begins as another, or as the needle's question, does: a model would fetch the end of that one.

    passages: those that are drawn from.
    depth: where the needle stands among them, 0 (first) to 1 (last).
    """
    order = np.argsort(integers(seed, "haystack", len(passages)), kind="stable")
    beginnings = {needle.question}
    chosen: list[str] = []
    for passage in (passages[int(place)].strip() for place in order):
        begins = passage.rpartition(" ")[0]  # all but its last word
        if begins in beginnings or passage.startswith(needle.question):
            continue
        text, _, _ = _insert_needle(needle, [*chosen, passage], depth)
        if len(_tokens_without_end(model, text)) > length:
            break  # the first that does not fit ends the text, even if a shorter one would
        beginnings.add(begins)
        chosen.append(passage)
    return chosen


def _tokens_within(tokens: Sequence[Token], start: int, stop: int) -> list[int]:
    """The positions of the tokens that cover some of the characters start..stop-1."""
    return [
        token.index
        for token in tokens
        if token.start is not None
        and token.end is not None
        and token.start < stop
        and token.end > start
    ]


def _insert_needle(needle: Needle, passages: Sequence[str], depth: float) -> tuple[str, int, int]:
    """(text, start, stop): the passages with the needle among them at a depth, 0 to 1, and the
    needle again at the end; the answer in the first one is the characters start..stop-1."""
    index = round(depth * len(passages))  # of the passage that stands after the needle
    before = "".join(f"{passage}\n" for passage in passages[:index]) + f"{needle.question} "
    after = "".join(f"\n{passage}" for passage in passages[index:])
    text = f"{before}{needle.answer}{after}\n{needle.question} {needle.answer}"
    return text, len(before), len(before) + len(needle.answer)


def _tokens_without_end(model: Model, text: str) -> list[Token]:
    """The tokens of a text without special tokens at its end, which would say that the answer is
    over."""
    tokens = model.tokenizer.encode(text)
    while tokens and tokens[-1].special:
        tokens = tokens[:-1]
    return tokens


def _correct_steps(
    model: Model, probe: Probe, interventions: Interventions = NO_INTERVENTIONS
) -> list[bool]:
    """Run a text, and return for each token of the answer whether the model predicts it as the
    likeliest."""
    last = len(model.spec.blocks) - 1
    # idle: the last layer counts even where it does not attend, as in hybrids
    (trace,) = model.trace(
        probe.tokens, layers=[last], keep=(), interventions=interventions, idle=True
    )
    return _predicts(model, probe, trace)


def _run_probe(model: Model, probe: Probe) -> tuple[list[bool], dict[HeadName, list[int]]]:
    """Run a text once. Returns, for each token of the answer, whether the model predicts it, and by
    head the position of the key that it looks at most from the token before."""
    looks: dict[HeadName, list[int]] = {}
    right: list[bool] = []
    count = len(probe.tokens)
    last = len(model.spec.blocks) - 1
    for trace in model.trace(probe.tokens, keep=("weights",), idle=True):
        if "weights" in trace.stages:
            weights = np.asarray(model.backend.numpy(trace.stages["weights"]))
            # of the text's keys, without learned ones behind them: [head, step]
            keys = weights[:, probe.steps, :count].argmax(-1)
            for head, row in enumerate(keys.tolist()):
                looks[trace.layer, head] = row
        if trace.layer == last:
            right = _predicts(model, probe, trace)
    return right, looks


def _predicts(model: Model, probe: Probe, trace: LayerTrace) -> list[bool]:
    """For each token of the answer, whether the model predicts it as the likeliest.

    trace: of the last layer.
    """
    # the steps are consecutive, since the answer ends the text
    scores = model.backend.numpy(model.logits(trace.after[probe.steps[0] : probe.steps[-1] + 1]))
    return [int(row.argmax()) == target for row, target in zip(scores, probe.targets, strict=True)]


def _measure_heads(
    model: Model,
    probe: Probe,
    heads: Sequence[HeadName],
    *,
    literal_alone: bool = False,
    on_run: Callable[[int], None] = ignore,
) -> FetchResult:
    """The scores `literal` and `writes` of every head in one text; 0 where no token of the answer
    was predicted, and for `writes` where `literal` is measured alone.

    heads: all of the model, in the order of the scores.
    literal_alone: whether `literal` is measured alone, in one run.
    on_run: called with 1 after the first of two runs.
    """
    right, looks = _run_probe(model, probe)
    if not literal_alone:
        on_run(1)
    index_of_head = {name: index for index, name in enumerate(heads)}
    ids = [token.id for token in probe.tokens]

    # both [needle's answer or other tokens, head]
    literal = np.zeros((2, len(heads)))
    writes = np.zeros((2, len(heads)))
    for name, keys in looks.items():
        for key, target, is_right in zip(keys, probe.targets, right, strict=True):
            for side, span in enumerate((probe.places, probe.others)):
                if is_right and key in span and ids[key] == target:
                    literal[side, index_of_head[name]] += 1
    literal /= len(probe.steps)
    if any(right) and not literal_alone:
        for name, head_writes in _writes_of_heads(model, probe, right):
            writes[:, index_of_head[name]] += head_writes
    return FetchResult(
        needle=probe.needle,
        right=right,
        literal=(literal[0], literal[1]),
        writes=(writes[0], writes[1]),
    )


def _writes_of_heads(
    model: Model, probe: Probe, right: Sequence[bool]
) -> Iterator[tuple[HeadName, Floats]]:
    """Yield each head's direct effect on the answer's logits, one token of the answer at a time:
    [needle, other span], how much more a key there adds to the token's logit than the keys
    elsewhere, divided by the number of tokens, so that the sum over them is the mean.

    right: of each token of the answer, whether the model predicts it; others are left out.
    """
    text = SweepText(model, probe.tokens, model.compute_backend(len(probe.tokens)))
    points = [
        (step, target)
        for step, target, is_right in zip(probe.steps, probe.targets, right, strict=True)
        if is_right
    ]
    for (step, _), sources_of_heads in zip(points, target_sources(text, points), strict=True):
        for term, sources in sources_of_heads.items():
            # `is not None` is for the type alone: each term is a head
            if term.attention == "self" and term.layer is not None and term.head is not None:
                row = sources[: step + 1]
                contrasts = [_contrast(row, span) for span in (probe.places, probe.others)]
                yield (term.layer, term.head), np.array(contrasts) / len(points)


def _contrast(row: Floats, span: Sequence[int]) -> float:
    """The mean of a row [key] over the keys in a span less its mean over all other keys; 0 where
    one of the two has no keys."""
    inside = np.isin(np.arange(len(row)), span)
    if not inside.any() or inside.all():
        return 0.0
    return float(row[inside].mean() - row[~inside].mean())


def _rank_heads(
    heads: Sequence[HeadName], answered: Sequence[FetchResult], seed: int
) -> list[FetchingHead]:
    """The document's entries on the heads, with both scores and their intervals, the largest
    literal score first.

    heads: (layer, head) of each, in the order of the scores.
    answered: the runs in which the answer was given, over which scores are means.
    seed: of the needles drawn again for intervals.
    """
    needles = [result.needle for result in answered]
    literal = _score_intervals([result.literal for result in answered], needles, seed)
    writes = _score_intervals([result.writes for result in answered], needles, seed)
    rows = [
        FetchingHead(
            layer=layer,
            head=head,
            literal=literal[place],
            writes=writes[place],
            retrieval=literal[place].mean >= RETRIEVAL,
        )
        for place, (layer, head) in enumerate(heads)
    ]
    return sorted(rows, key=lambda row: (-row.literal.mean, -row.writes.mean, row.layer, row.head))


def _score_intervals(
    pairs: Sequence[tuple[Floats, Floats]], needles: Sequence[int], seed: int
) -> list[FetchScore]:
    """Each head's mean score over runs, its 95% interval from needles drawn again, and its mean on
    other tokens as chance.

    pairs: for each run the scores [head] on the needle's answer, and on other tokens.
    needles: for each run the index of its needle.
    seed: of the needles drawn again.

    Runs that share a needle are not independent, as `mean_intervals` supposes. So needles are drawn
    again in place of runs (a bootstrap), each with all of its runs.
    """
    values = np.stack([on_answer for on_answer, _ in pairs])  # [run, head]
    chance = np.stack([elsewhere for _, elsewhere in pairs])
    distinct = sorted(set(needles))
    # of each needle the sum over its runs, [needle, head], and how many runs it has
    run_needles = np.array(needles)
    sums = np.stack([values[run_needles == needle].sum(0) for needle in distinct])
    counts = np.array([needles.count(needle) for needle in distinct])
    # as many needles as there are in each draw, as indices of `distinct`: [draw, needle]
    numbers = integers(seed, "needles", DRAWS * len(distinct))
    draws = numbers.reshape(DRAWS, len(distinct)) % len(distinct)
    means = sums[draws].sum(1) / counts[draws].sum(1)[:, None]  # [draw, head]
    low, high = np.quantile(means, (0.025, 0.975), axis=0)  # the middle 95%
    return [
        FetchScore(mean=float(mean), low=float(lower), high=float(upper), chance=float(by_chance))
        for mean, lower, upper, by_chance in zip(
            values.mean(0), low, high, chance.mean(0), strict=True
        )
    ]


def _check_heads(
    model: Model,
    probes: Sequence[Probe],
    ranked: Sequence[FetchingHead],
    seed: int,
    on_runs: Callable[[int], None],
) -> Iterator[FetchCheck]:
    """Yield, for some numbers of heads up to half of all, the share of the answers that is recalled
    when as many of the first heads by each score add nothing, and when as many random others do.

    ranked: all heads, by their literal scores.
    seed: of the random heads.
    on_runs: called with the number of texts that have run.
    """
    done = 0  # texts that have run

    def recall(heads: Sequence[HeadName]) -> float:
        """The share recalled without these heads; reports how many texts have run."""
        nonlocal done
        share = _recall(model, probes, heads)
        done += len(probes)
        on_runs(done)
        return share

    by_literal = [(row.layer, row.head) for row in ranked]
    by_writes = [(row.layer, row.head) for row in sorted(ranked, key=lambda row: -row.writes.mean)]
    for count in _cut_sizes(len(ranked)):
        # random draws of as many heads that are first by neither score
        first_heads = {*by_literal[:count], *by_writes[:count]}
        others = [name for name in by_literal if name not in first_heads]
        draws = []
        if len(others) >= count:
            for draw in range(RANDOM_DRAWS):
                order = np.argsort(integers(seed, f"heads\0{count}\0{draw}", len(others)))
                draws.append([others[int(index)] for index in order[:count]])
        yield FetchCheck(
            heads=count,
            literal=recall(by_literal[:count]),
            writes=recall(by_writes[:count]),
            random=[recall(heads) for heads in draws],
        )


def _recall(model: Model, probes: Sequence[Probe], heads: Sequence[HeadName]) -> float:
    """Share of the answers' tokens that are predicted when these heads add nothing."""
    heads_by_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        heads_by_layer.setdefault(layer, []).append(head)
    # what these heads mix in self-attention becomes 0
    cut: Interventions = {
        (layer, "self"): [Zero(tuple(numbers))] for layer, numbers in heads_by_layer.items()
    }
    correct = [right for probe in probes for right in _correct_steps(model, probe, cut)]
    return float(np.mean(correct))


def parse_lengths(text: str) -> list[int]:
    """Lengths such as "128,256", each a million at most. Raises UsageError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and 0 < int(part) <= 10**6 for part in parts):
        raise UsageError(
            "--lengths {text} is no list of lengths",
            expected="tokens, such as 128,256",
            text=repr(text),
        )
    return sorted({int(part) for part in parts})
