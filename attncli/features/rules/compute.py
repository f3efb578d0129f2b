"""`attncli.rules`: how much of each head a mixture of simple rules says, and what the model loses
with rules in place of heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from attncli.arrays.numpy_backend import integers
from attncli.documents.header import model_part
from attncli.errors import InputError, UnsupportedError, UsageError
from attncli.features.effects.places import reads_on
from attncli.features.rules.attention_rows import (
    BLOCK,
    HeadPlaces,
    PatternBlock,
    head_places,
    observe,
)
from attncli.features.rules.document import (
    RulesDocument,
    RuleTexts,
    SwappedHeads,
)
from attncli.features.rules.head_rules import HeadRule
from attncli.features.rules.mixture_parts import (
    mean_overlaps,
    rule_meanings,
    rule_stability,
    ruled_heads,
)
from attncli.features.rules.overlap import OverlapSums
from attncli.features.rules.rule_file import load_rules, usable_rules
from attncli.features.rules.rule_fit import SAMPLE, HalfRecord, is_choice
from attncli.features.rules.swap import Swap, next_token_loss
from attncli.features.run.compute import RunRequest, cost
from attncli.inputs.files import read_regular
from attncli.inputs.token import TEXT_LIMIT, Token, ignore
from attncli.language import message, plural
from attncli.mechanism.checked_arguments import checked
from attncli.models.estimate import CostEstimate, seconds_of, work_of
from attncli.models.model import Model
from attncli.version import __version__

Floats = np.ndarray[Any, np.dtype[np.float64]]
LEAST_TEXTS = 6
"""Texts below which a half has none to fit to and none to choose by."""
SHARES = (0.1, 0.25, 0.5)
"""Of the heads, whose places rules take."""
KINDS_OF_RUNS = 5
"""Runs of a swap: by rule, first token alone, even, by distance, drawn."""
COMPARES = 2e8
"""Pairs of query and key that a head is compared with a rule at in a second of two cores."""
PARAGRAPHS = Path(__file__).parent / "paragraphs.txt"
"""The texts that are taken where a user names none, an empty line between two."""


def built_in_texts() -> list[str]:
    """The paragraphs that heads are compared on where no texts are given."""
    text = read_regular(PARAGRAPHS, what=message("a text file"), limit=TEXT_LIMIT).decode()
    return [part.strip("\n") for part in text.split("\n\n")]


@checked
def rules(
    model: Model,
    texts: Sequence[str | Sequence[Token]] | None = None,
    *,
    source: str = "",
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    rule_files: Sequence[str | Path] = (),
    note: Callable[[str], None] = ignore,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
    progress: Callable[[float], None] = ignore,
) -> RulesDocument:
    """Describe every head as a mixture of rules, and run the model with rules in place of heads.

    A head's rules are fitted to half of the texts (non-negative least squares, weights of sum 1)
    and chosen by texts of that half which the fit does not see: a rule stays if it adds 0.02 to the
    overlap there. Overlaps and losses are of the other half.

    Args:
        model: As `attncli.load` returns it; with `hold=True` it reads its weights once.
        texts: Six or more of two tokens or more, as texts or tokens, no two of them the same; None
            for 24 paragraphs of attn's own. Others are left out.
        source: Where the texts come from, in words, for the document.
        shares: Of the heads, whose places rules take: above 0, at most 1; empty for none.
        seed: Of the heads that are drawn at random.
        rule_files: Python files of yours with rules, which are run as your own code; they stand
            beside the rules of attn (`attncli.features.rules.rule_file`).
        note: Called with a sentence where texts are left out.
        on_cost: Called before the work starts, with its estimated cost and the number of tokens.
        progress: Called with the share done, 0 to 1.

    Returns:
        What `attn heads --rules --json` writes; `swapped` is empty for a model without an output
        head.

    Raises:
        InputError: For fewer than six texts, for a text that the model cannot take, and where no
            token of the texts that choose sees two; for a file of rules that fails.
        UsageError: For a share out of range.
        UnsupportedError: For a model that runs whole through another library, reads another text,
            or has a mask made from its own vectors.

    Source: mixtures of programs for heads: arXiv 2606.19317; the solver: Lawson and Hanson, 1974.
    """
    _refuse(model, shares)
    own_rules = load_rules(rule_files)
    if texts is None:
        texts = built_in_texts()
        source = "built-in"
    tokens = _distinct_texts(
        [tuple(model.encode(text if isinstance(text, str) else list(text))) for text in texts], note
    )
    if len(tokens) < LEAST_TEXTS:
        raise InputError(
            "rules are fitted to some texts and measured on others; different texts here: {count}",
            expected=message("{least} texts or more", least=LEAST_TEXTS),
            hint="attn heads --rules --file FILE --lines",
            count=len(tokens),
        )
    places = head_places(model)
    usable = usable_rules(places, own_rules)
    # every other text, so that a file that changes on the way is in both halves alike
    halves = (tokens[0::2], tokens[1::2])

    # what all runs cost; a model that sees the next token predicts nothing, and has no swaps
    predicts = model.spec.head is not None and reads_on(model.spec)
    runs = 0
    if predicts:
        runs = 1 + KINDS_OF_RUNS * len(shares)
    on_cost(_cost(model, halves, len(usable), runs), sum(map(len, tokens)))
    steps = _Steps(sum(map(len, tokens)) + runs * sum(map(len, halves[1])), progress)

    # the first half of the texts: find the mixture of each head
    fitted = HalfRecord(places, len(usable), [len(text) for text in halves[0]])
    observe(model, halves[0], usable, places, fitted.add, progress=steps.add)
    mixtures, choice_overlaps = fitted.choose()
    profile = fitted.profile()  # mean weight by distance, a baseline that needs no rules

    # the second half: measure the mixtures, and find others, to compare them with
    second = HalfRecord(places, len(usable), [len(text) for text in halves[1]])
    names = [rule.name for rule in usable]
    overlaps = OverlapSums(places, mixtures, profile, names.index("first"), names.index("even"))

    def measure(block: PatternBlock) -> None:
        """Called with each block of rows of the second half."""
        overlaps.add(block)
        second.add(block)

    observe(model, halves[1], usable, places, measure, progress=steps.add)

    # run the model with rules in place of the heads of the largest overlap, on the texts that chose
    # the rules: those that are measured on must not choose what is measured
    swapped: list[SwappedHeads] = []
    if predicts:
        trial = _SwapTrial(model, halves[1], usable, places, mixtures, profile, seed, steps.add)
        swapped = trial.run(np.argsort(-choice_overlaps, kind="stable").tolist(), shares)
    head_overlaps = overlaps.overlaps()
    choosing = sum(map(is_choice, range(len(halves[0]))))
    return RulesDocument(
        version=__version__,
        model=model_part(model),
        texts=RuleTexts(
            source=source,
            fitted=len(halves[0]) - choosing,
            choosing=choosing,
            measured=len(halves[1]),
            measured_tokens=sum(map(len, halves[1])),
            tokens=sum(map(len, tokens)),
        ),
        rules=rule_meanings(usable, fitted.found_shares()),
        heads=ruled_heads(places.names(), names, mixtures, head_overlaps),
        overlap=mean_overlaps(head_overlaps),
        stability=rule_stability(mixtures, second.choose()[0]),  # without their overlaps
        swapped=swapped,
        predicts=predicts,
        seed=seed,
        warnings=list(model.warnings),
    )


def _distinct_texts(
    texts: Sequence[tuple[Token, ...]], note: Callable[[str], None]
) -> list[tuple[Token, ...]]:
    """The texts of two tokens or more, each once: a repeated text would be both fitted to and
    measured on, and a single token leaves nothing to choose.

    note: called with a sentence on how many texts are left out.
    """
    # ids, and texts beside them for tokenizers that give no ids
    by_ids = {tuple((token.id, token.text) for token in text): text for text in texts}
    distinct = [text for text in by_ids.values() if len(text) > 1]
    if len(distinct) < len(texts):
        note(
            plural(
                "{count} text is left out: it stands twice, or is of one token",
                "{count} texts are left out: they stand twice, or are of one token",
                count=len(texts) - len(distinct),
            )
        )
    return distinct


def _cost(
    model: Model, halves: Sequence[Sequence[Sequence[Token]]], rules: int, runs: int
) -> CostEstimate:
    """The estimated cost of everything: each text runs once, those that are measured on `runs`
    times more, and all heads are compared with all rules pair by pair.

    halves: the texts that are fitted to, and those that are measured on.
    rules: how many there are.
    runs: of each text that is measured on, besides the first.
    """
    spec = model.spec
    dtype = model.backend.dtype
    lengths = [[len(text) for text in half] for half in halves]
    longest = max(map(max, lengths))
    expected = cost(model, longest, RunRequest(matrices=False), is_saved=False)

    # time of the runs, and of comparing
    passes = [*lengths[0], *lengths[1] * (1 + runs)]  # tokens of each run
    run_seconds = sum(seconds_of(work_of(spec, spec.blocks, count), dtype) for count in passes)
    heads = sum(block.attention.heads for block in spec.blocks)
    compared = sum(count**2 for half in lengths for count in half) * heads * rules

    # memory in bytes: the rules' rows of a block, float64, and the sample of rows, float32; both
    # twice, since a block is copied to compare it, and each half has its sample
    rows = 8 * rules * min(longest**2, BLOCK // rules)
    kept = 4 * (heads + rules) * SAMPLE
    return replace(
        expected,
        seconds=run_seconds + compared / COMPARES,
        memory={**expected.memory, "rules": 2 * (rows + kept)},
    )


def _refuse(model: Model, shares: Sequence[float]) -> None:
    """Raise UnsupportedError for a model that runs whole through another library or reads another
    text, so that its texts do not run side by side; UsageError for a share out of range.

    shares: of the heads whose places rules take.
    """
    if not model.own_layers or model.memory is not None:
        raise UnsupportedError(
            "rules take the place of heads in texts that run side by side, and this {family} model"
            " runs whole or reads another text",
            expected="a family that runs natively, as attn models list shows",
            family=model.spec.family,
        )
    for share in shares:
        if not 0 < share <= 1:
            raise UsageError(
                "a share of the heads is {share:g}", expected="above 0, at most 1", share=share
            )


class _Steps:
    """Adds up the tokens that have run, and calls `progress` with their share of `total`.

    total: how many tokens will run in all.
    """

    def __init__(self, total: int, progress: Callable[[float], None]) -> None:
        self._total = total
        self._done = 0
        self._progress = progress

    def add(self, tokens: int) -> None:
        """Called when so many more tokens have run."""
        self._done += tokens
        self._progress(min(self._done / self._total, 1.0))


class _SwapTrial:
    """Runs a model on texts with rules in place of some of its heads.

    mixtures: of all heads, [head, rule].
    profile: mean weight by distance of all heads, [head, distance].
    seed: of the heads that are drawn at random.
    progress: called with how many more tokens have run.
    """

    def __init__(
        self,
        model: Model,
        texts: Sequence[Sequence[Token]],
        usable: Sequence[HeadRule],
        places: HeadPlaces,
        mixtures: Floats,
        profile: Floats,
        seed: int,
        progress: Callable[[int], None],
    ) -> None:
        """Prepare the mixtures that heads are swapped for: their own rules, the rule of the first
        token alone, and that of an even spread.

        texts: those that losses are measured on.
        mixtures: the weights of each head's rules, [head, rule].
        profile: mean weight by distance, [head, distance].
        seed: of the heads drawn at random.
        progress: called with how many more tokens have run.
        """
        self._model = model
        self._texts = texts
        self._rules = usable
        self._places = places
        self._mixtures = mixtures
        self._profile = profile
        self._seed = seed
        self._progress = progress
        names = [rule.name for rule in usable]
        self._even = np.zeros_like(mixtures)
        self._even[:, names.index("even")] = 1.0
        self._first = np.zeros_like(mixtures)
        self._first[:, names.index("first")] = 1.0

    def run(self, ranked: Sequence[int], shares: Sequence[float]) -> list[SwappedHeads]:
        """Measure the loss with rules in place of each share of the heads, the smallest share
        first, beside baselines in their place, and rules in as many heads drawn at random.

        ranked: the numbers of all heads, those of the largest overlap first.
        shares: of the heads, above 0, at most 1.
        """
        own = self._loss(None)  # of the model as it is
        rows = []
        for share in sorted(shares):
            # 0.29 of 100 is 28.999… in binary
            count = max(int(share * len(ranked) + 1e-9), 1)
            best = frozenset(ranked[:count])
            # the seed gives each head a number, by a stream that is named for this draw, and the heads
            # with the smallest are drawn
            numbers = integers(self._seed, f"drawn\0{count}", len(ranked))
            drawn = frozenset(np.argsort(numbers, kind="stable")[:count].tolist())
            rows.append(
                SwappedHeads(
                    share=share,
                    heads=count,
                    loss=self._loss(Swap(best, self._mixtures)),
                    loss_first=self._loss(Swap(best, self._first)),
                    loss_even=self._loss(Swap(best, self._even)),
                    loss_distance=self._loss(Swap(best, self._mixtures, self._profile)),
                    loss_drawn=self._loss(Swap(drawn, self._mixtures)),
                    loss_model=own,
                )
            )
        return rows

    def _loss(self, swap: Swap | None) -> float:
        """The mean loss of the next token over all texts with these heads swapped; with None, that of
        the model as it is."""
        return next_token_loss(
            self._model, self._texts, self._rules, self._places, swap, progress=self._progress
        )
