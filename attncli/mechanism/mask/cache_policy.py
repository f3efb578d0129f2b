"""A cache of keys that forgets while a prompt is read, and keeps what is in it then for what
follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, final

import numpy as np

from attncli.arrays.backend import Array, Backend
from attncli.errors import UsageError
from attncli.language import Message, choice, message
from attncli.mechanism.mask.eviction import (
    ByChance,
    Forgotten,
    HeavyHitters,
    LastQuery,
    LastWindow,
    before,
    check_budget,
    unbound_error,
)
from attncli.mechanism.mask.kind import Ints, Mask, Pairs, Reach
from attncli.mechanism.mask.pattern import Streaming

POLICIES = ("h2o", "snapkv", "tova", "sinks", "random")
"""Kinds of mask that are what a cache with a budget leaves visible."""
SINKS = 4
"""First keys that `sinks` keeps where no numbers follow: those of StreamingLLM and NVIDIA/kvpress.
"""
Policy = HeavyHitters | LastWindow | LastQuery | Streaming | ByChance


def budget_of(policy: Policy) -> int:
    """How many keys a policy keeps, the query's own included."""
    if isinstance(policy, Streaming):
        return policy.sinks + policy.recent
    return policy.budget


def check_policy(policy: Policy, keys: int) -> None:
    """Raise InputError for a policy whose budget is above the number of keys."""
    check_budget(policy.spec(), budget_of(policy), keys)


def parse_policies(specs: Sequence[str], budgets: Sequence[int], usual: int) -> list[Policy]:
    """The policies that these specs mean, each at each budget.

    Args:
        specs: Each a name of `POLICIES`, alone or with numbers as the mask of that name takes them:
            "h2o", "h2o:256", "sinks:4,252".
        budgets: Keys to keep; a spec's own budget is tried besides.
        usual: What a name alone keeps where there are no budgets.

    Returns:
        Without repetition, in the order of the specs, budgets rising. Numbers after the first, and
        the first keys of `sinks`, stay as they are at every budget.

    Raises:
        UsageError: For what is no policy, and numbers that it does not take.
    """
    from attncli.mechanism.mask import parse_mask

    policies: dict[str, Policy] = {}
    for spec in specs:
        name, colon, rest = spec.strip().partition(":")
        if name not in POLICIES:
            close = get_close_matches(name, POLICIES, 1)
            what = message("--policy {spec} is no cache that forgets", spec=repr(spec))
            raise UsageError(
                what,
                expected=choice(POLICIES),
                hint=f"--policy {close[0]}" if close else "attn guide long",
            )
        # "h2o:256" names a budget of its own; "h2o" alone has the usual one where none is given
        masks: list[Mask] = []
        numbers: list[str] = []
        spec_budgets = budgets
        if colon:
            masks.append(parse_mask(spec.strip()))
            numbers = rest.split(",")
        elif not budgets:
            spec_budgets = [usual]
        for budget in spec_budgets:
            masks.append(parse_mask(f"{name}:{_numbers(name, numbers, budget)}"))
        # the masks of all names in `POLICIES` are policies, which a type checker cannot know
        parsed = [mask for mask in masks if isinstance(mask, Policy)]
        for policy in sorted(parsed, key=budget_of):
            policies.setdefault(policy.spec(), policy)
    return list(policies.values())


def _numbers(name: str, numbers: Sequence[str], budget: int) -> str:
    """The numbers of a policy's spec, joined by commas, with its budget replaced by `budget`.

    name: of the policy.
    numbers: those of its spec; empty for a name alone.
    """
    if name != "sinks":
        return ",".join([str(budget), *numbers[1:]])
    # "sinks" has two numbers, the first keys and the last ones, which add up to its budget
    if numbers:
        first = min(int(numbers[0]), budget)
    else:
        first = min(SINKS, budget // 2)
    return f"{first},{budget - first}"


def last_queries(
    policy: Policy, backend: Backend, q: Array, k: Array, scale: float, softcap: float | None
) -> np.ndarray[Any, Any]:
    """The last query that sees each key under a policy, [head, key]; the last of all for a key that
    is never forgotten.

    q: queries [head, query, dim].
    k: keys [kv, key, dim] of the same tokens.
    scale, softcap: what scores are multiplied by, and their bound (None for none).
    """
    heads = q.shape[-3]
    count = k.shape[-2]
    if isinstance(policy, Streaming):
        # the first keys stay, every other one is seen by the `recent` queries from its own on
        keys = np.arange(count)
        last = np.where(
            keys < policy.sinks, count - 1, np.minimum(keys + policy.recent - 1, count - 1)
        )
        return np.broadcast_to(last, (heads, count))
    bound = policy.bind(backend, q, k, scale, softcap)
    assert isinstance(bound, Forgotten)
    return bound.last


@final
class WhileReading(Mask, frozen=True):
    """A cache that evicts keys as `policy` says while the first `count` tokens (the prompt) are
    read; the keys left then stay, and later ones are added, none evicted (as in NVIDIA/kvpress)."""

    policy: Policy
    count: int

    spelling = None
    depends_on = "vectors"

    def spec(self) -> str:
        """The policy's spec."""
        return self.policy.spec()

    def describe(self) -> Message:
        """The policy's sentence."""
        return self.policy.describe()

    def sees(self, pairs: Pairs) -> Array:
        """Raise TypeError: which keys are forgotten is known only after `bind`."""
        raise unbound_error(self)

    def reach(self, i: Ints, keys: int) -> Reach:
        """Bounds of the keys that each query sees: from key 0 to the query's own; not all in
        between are visible.
        """
        return before(i)

    def bind(
        self, backend: Backend, q: Array, k: Array, scale: float, softcap: float | None
    ) -> Mask:
        """The mask after the policy's evictions among the first `count` tokens, for queries [head,
        query, dim] and keys [kv, key, dim]; keys left then stay visible.

        scale, softcap: what scores are multiplied by, and their bound (None for none).
        """
        total = k.shape[-2]
        prompt = slice(None, self.count)
        last = last_queries(
            self.policy, backend, q[..., prompt, :], k[..., prompt, :], scale, softcap
        )
        # keys that the last query of the prompt sees, and all later ones, are seen to the end
        whole = np.full((last.shape[0], total), total - 1)
        whole[:, prompt] = np.where(last == self.count - 1, total - 1, last)
        return Forgotten(self.policy, whole)
