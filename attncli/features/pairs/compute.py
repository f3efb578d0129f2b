"""`attncli.pairs`: which pairs of a file fit a model, and how often it is right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from attncli.documents.header import model_part
from attncli.features.effects.targets import target_token
from attncli.features.pairs.document import PairFault, PairInterval, PairRow, PairsDocument
from attncli.features.run.compute import RunRequest, cost
from attncli.inputs.pairs import read_pairs
from attncli.inputs.token import ignore
from attncli.measure.mean_intervals import MeanInterval, mean_intervals
from attncli.measure.pair_measure import FittedPairs, TokenPair, fit_pairs, measured_differences
from attncli.mechanism.checked_arguments import checked
from attncli.models.estimate import CostEstimate
from attncli.models.model import Model
from attncli.version import __version__


@checked
def pairs(
    model: Model,
    file: str | Path,
    *,
    count: int | None = None,
    progress: Callable[[float], None] = ignore,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
) -> PairsDocument:
    """Read a file of pairs, and measure the difference of two logits after each of their texts.

    Args:
        model: A decoder with an output head, as `attncli.load` returns it.
        file: A file of pairs, or the name of a task of the package.
        count: How many pairs; None for all of a file, and for as many as a template gives.
        progress: Called with the share done, 0 to 1.
        on_cost: Called before the work starts, with what the longest text will take and the number
            of its tokens; not where no pair fits.

    Returns:
        What `attn pairs check --json` writes: the pairs that fit, what is wrong with the others,
        and the means with their intervals.

    Raises:
        InputError: For a file that cannot be read or holds no pair.
        UnsupportedError: For a model that predicts no token.
    """
    fitted = fit_pairs(model, read_pairs(file, count=count))
    # (tokens, answer, versus): all clean texts, then all corrupt ones
    runs = [(pair.clean, pair.answer, pair.versus) for pair in fitted.pairs]
    runs += [(pair.corrupt, pair.answer, pair.versus) for pair in fitted.pairs]
    longest = max((len(tokens) for tokens, _, _ in runs), default=0)
    if longest:
        request = RunRequest(matrices=False)
        on_cost(cost(model, longest, request, is_saved=False), longest)
    # logit(answer) − logit(versus) after each text, [clean or corrupt, pair]
    measured = measured_differences(model, runs, progress=progress).reshape(2, -1)
    # of the clean and of the corrupt texts; none without pairs
    intervals = mean_intervals(measured.T) if fitted.pairs else [None, None]
    return PairsDocument(
        version=__version__,
        name=fitted.name,
        model=model_part(model),
        pairs=[
            _pair_row(model, pair, clean, corrupt)
            for pair, clean, corrupt in zip(fitted.pairs, *measured.tolist(), strict=True)
        ],
        faults=_fault_rows(fitted),
        # the share of pairs after whose clean text the model prefers the answer
        right=float(np.mean(measured[0] > 0)) if fitted.pairs else None,
        clean=pair_interval(intervals[0]),
        corrupt=pair_interval(intervals[1]),
        warnings=[],
    )


def pair_interval(interval: MeanInterval | None) -> PairInterval | None:
    """A mean with its interval as documents hold it; None for None."""
    if interval is None:
        return None
    return PairInterval(mean=interval.mean, low=interval.low, high=interval.high)


def _pair_row(model: Model, pair: TokenPair, clean: float, corrupt: float) -> PairRow:
    """The document's entry on a pair that fits the model.

    clean, corrupt: logit(answer) − logit(versus) after the clean and after the corrupt text.
    """
    return PairRow(
        clean=pair.pair.clean,
        corrupt=pair.pair.corrupt,
        answer=target_token(model, pair.answer),
        versus=target_token(model, pair.versus),
        tokens=len(pair.clean),
        m_clean=clean,
        m_corrupt=corrupt,
    )


def _fault_rows(fitted: FittedPairs) -> list[PairFault]:
    """The document's entries on what is wrong with the pairs that do not fit the model."""
    return [
        PairFault(pair=number, where=error.where, fault=error.what)
        for number, error in fitted.faults
    ]
