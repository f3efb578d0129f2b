"""Routing: which experts serve a token, and in what shares."""

from __future__ import annotations

from typing import Any, assert_never

import numpy as np

from attncli.mechanism.spec import Experts

Floats = np.ndarray[Any, Any]


def route(spec: Experts, logits: Floats, correction: Floats | None = None) -> Floats:
    """The share of each expert in each token, [token, expert], 0 for those that are not chosen.

    logits: what the router gives, [token, expert]. correction: what is added to the shares where the best are sought,
    [expert]; None for nothing. Of equals the first are chosen.
    Sources: Shazeer et al., 2017; DeepSeek-AI, DeepSeek-V3, 2024 for groups and corrections.
    """
    match spec.routing.score:
        case "softmax":
            shares = np.exp(logits - logits.max(-1, keepdims=True))
            shares = shares / shares.sum(-1, keepdims=True)
        case "sigmoid":
            shares = (np.tanh(0.5 * logits) + 1.0) * 0.5
        case _:
            assert_never(spec.routing.score)
    worth = _of_best_groups(spec, shares if correction is None else shares + correction)
    best = np.argsort(-worth, -1, kind="stable")[:, : spec.chosen]
    token_shares = np.zeros_like(shares)
    np.put_along_axis(token_shares, best, np.take_along_axis(shares, best, -1), -1)
    if spec.renormalise:
        token_shares = token_shares / token_shares.sum(-1, keepdims=True)
    return token_shares * spec.routing.factor


def _of_best_groups(spec: Experts, worth: Floats) -> Floats:
    """What each expert is worth, [token, expert], −∞ for those outside the best groups."""
    routing = spec.routing
    if routing.groups == 1:
        return worth
    apart = worth.reshape((len(worth), routing.groups, -1))
    of_group = np.sort(apart, -1)[..., -routing.group_by :].sum(-1)
    best = np.argsort(-of_group, -1, kind="stable")[:, : routing.groups_chosen]
    stays = np.zeros(of_group.shape, bool)
    np.put_along_axis(stays, best, True, -1)
    return np.where(stays[..., None], apart, -np.inf).reshape(worth.shape)
