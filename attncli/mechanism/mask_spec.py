"""Masks as people write them: `causal`, `window:3`, `window:2,2|global:0`; and what they mean in words."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Literal

from attncli.errors import UsageError
from attncli.mechanism.mask import (
    AllOf,
    AnyOf,
    BigBird,
    Blocks,
    Causal,
    Chunk,
    Dilated,
    Documents,
    Everywhere,
    Given,
    Global,
    Hashed,
    Mask,
    Padding,
    Prefix,
    SameBucket,
    Streaming,
    Window,
)  # fmt: skip

Numbers = list[int]


def _window(numbers: Numbers) -> Mask:
    return Window(numbers[0] - 1, 0) if len(numbers) == 1 else Window(numbers[0], numbers[1])


FORMS: dict[str, tuple[str, tuple[int, ...], Callable[[Numbers, int], Mask]]] = {
    # name: (form, how many numbers it may have, what it makes of them and a seed)
    "none": ("none", (0,), lambda n, seed: Everywhere()),
    "causal": ("causal", (0,), lambda n, seed: Causal()),
    "window": ("window:W or window:L,R", (1, 2), lambda n, seed: _window(n)),
    "dilated": ("dilated:W,D", (2,), lambda n, seed: Dilated(*n)),
    "global": ("global:I,J,…", (), lambda n, seed: Global(tuple(n))),
    "prefix": ("prefix:P", (1,), lambda n, seed: Prefix(*n)),
    "chunk": ("chunk:C", (1,), lambda n, seed: Chunk(*n)),
    "block": ("block:B", (1,), lambda n, seed: Blocks(*n)),
    "sinks": ("sinks:S,R", (2,), lambda n, seed: Streaming(*n)),
    "bigbird": (
        "bigbird, bigbird:BLOCK, bigbird:BLOCK,RANDOM or bigbird:BLOCK,RANDOM,SEED",
        (0, 1, 2, 3),
        lambda n, seed: _bigbird(n, seed),
    ),
    "padding": ("padding:K", (1,), lambda n, seed: Padding(*n)),
    "lsh": ("lsh:BUCKETS or lsh:BUCKETS,ROUNDS", (1, 2), lambda n, seed: Hashed(n[0], n[1] if len(n) > 1 else 1, seed)),
}
"""Every kind of mask by its name."""

AT_LEAST = {"window": 0, "global": 0, "prefix": 0, "padding": 0, "bigbird": 0, "sinks": 0}
"""The least number that a kind allows; 1 for those not named."""
LARGEST = 10**9


def _bigbird(numbers: Numbers, seed: int) -> Mask:
    size, random, drawn = (*numbers, *(64, 3, seed)[len(numbers) :])
    return BigBird(size, random, drawn)


def parse(spec: str, *, seed: int = 0) -> Mask:
    """The mask that a SPEC means; `|` joins several to a union.

    seed: of the random parts of `bigbird` and `lsh`. Raises UsageError for an unknown kind or numbers it does not take.
    """
    parts = [_parse_one(part.strip(), seed) for part in spec.split("|")]
    return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))


def _parse_one(spec: str, seed: int) -> Mask:
    name, colon, rest = spec.partition(":")
    if name not in FORMS:
        close = get_close_matches(name.lower(), FORMS, 1)
        hint = f"did you mean {close[0]!r}?" if close else "attn mask --help"
        raise UsageError(
            f"unknown mask {spec!r}",
            expected=f"{', '.join(FORMS)}, or a file ending in .npy, .npz, .json or .csv",
            hint=hint,
        )
    form, counts, make = FORMS[name]
    texts = rest.split(",") if colon else []
    least = AT_LEAST.get(name, 1)
    fits = len(texts) in counts if counts else bool(texts)
    numbers = [int(text) for text in texts if text.strip().isdecimal() and len(text) <= len(str(LARGEST))]
    if not fits or len(numbers) < len(texts) or not all(least <= number <= LARGEST for number in numbers):
        raise UsageError(
            f"mask {spec!r} does not have the form {form}", expected=f"whole numbers from {least} to {LARGEST:,}"
        )
    if name == "window" and numbers == [0]:
        raise UsageError(
            "window:0 shows nothing", expected="window:W with W from 1: the query's own key and the W - 1 before it"
        )
    if name == "lsh" and numbers[0] % 2:
        raise UsageError(f"lsh needs an even number of buckets, not {numbers[0]}", expected=f"lsh:{numbers[0] + 1}")
    if (name == "bigbird" and numbers[:1] == [0]) or (name == "sinks" and numbers[1] == 0):
        raise UsageError(
            f"mask {spec!r} has a 0 where none may be",
            expected=f"{form}, with {'BLOCK' if name == 'bigbird' else 'R'} from 1",
        )
    return make(numbers, seed)


def spec_text(mask: Mask) -> str:
    """The mask as `parse` reads it; intersections are joined by ` & `, which stands for several `--mask`.

    Masks that no SPEC can write (documents, files, windows open to one side) are named, to be read by people.
    """
    match mask:
        case Everywhere() | Window(None, None):
            return "none"
        case Causal():
            return "causal"
        case Window(None, 0):
            return "causal"
        case Window(left, 0):
            return f"window:{(left or 0) + 1}"
        case Window(left, right):
            return f"window:{'all' if left is None else left},{'all' if right is None else right}"
        case Dilated(size, step):
            return f"dilated:{size},{step}"
        case Global(tokens):
            return "global:" + ",".join(map(str, tokens))
        case Prefix(length):
            return f"prefix:{length}"
        case Chunk(size):
            return f"chunk:{size}"
        case Blocks(size):
            return f"block:{size}"
        case Documents(ids):
            return f"documents:{len(set(ids))}"
        case Streaming(sinks, recent):
            return f"sinks:{sinks},{recent}"
        case BigBird(size, random, seed):
            return f"bigbird:{size},{random},{seed}"
        case Padding(count):
            return f"padding:{count}"
        case Hashed(buckets, rounds, _):
            return f"lsh:{buckets},{rounds}"
        case SameBucket(source=source):
            return spec_text(source)
        case Given(name=name):
            return f"file {name}"
        case AllOf(parts):
            return " & ".join(spec_text(part) for part in parts)
        case AnyOf(parts):
            return "|".join(spec_text(part) for part in parts)


def describe(mask: Mask, *, ascii: bool = False, lang: Literal["en", "zh"] = "en") -> str:
    """The mask in one sentence, with what its numbers count."""
    text = _english(mask) if lang == "en" else _chinese(mask)
    return text.replace("≤", "<=").replace("−", "-").replace("·", "*") if ascii else text


def _english(mask: Mask) -> str:
    match mask:
        case Everywhere() | Window(None, None):
            return "every query sees every key"
        case Causal() | Window(None, 0) | Prefix(0):
            return "a query sees itself and the keys before it (j ≤ i)"
        case Window(0, 0):
            return "a query sees only itself (j = i)"
        case Window(left, 0) if left is not None:
            before = "the key" if left == 1 else f"the {left} keys"
            return f"a query sees itself and {before} before it: {left + 1} keys, its own included (i − {left} ≤ j ≤ i)"
        case Window(left, right):
            return _both_ways(left, right)
        case Dilated(size, step):
            return f"a query sees itself and the keys less than {size} before it whose distance is divisible by {step}"
        case Global(tokens):
            who = f"position {tokens[0]} sees" if len(tokens) == 1 else f"positions {', '.join(map(str, tokens))} see"
            return f"{who} every key and {'is' if len(tokens) == 1 else 'are'} seen by every query; nothing else is visible"
        case Prefix(length):
            first = "the first key is" if length == 1 else f"the first {length} keys are"
            return f"{first} seen by all; the others only from their own position on (j < {length} or j ≤ i)"
        case Chunk(size):
            return f"a query sees itself and the keys before it in its own chunk of {_many(size, 'position')}"
        case Blocks(size):
            return f"a query sees its own block of {_many(size, 'position')}, both ways"
        case Documents(ids):
            return f"a query sees its own document ({_many(len(set(ids)), 'document')} packed together)"
        case Streaming(sinks, recent):
            first = "" if sinks == 0 else "the first key and " if sinks == 1 else f"the first {sinks} keys and "
            last = "its own key" if recent == 1 else f"the last {recent}, its own included"
            return f"a query sees {first}{last}; never a later one"
        case BigBird(size, random, _):
            drawn = (
                f", the first, the last and {_many(random, 'seeded random block')}"
                if random
                else ", the first and the last"
            )
            full = (5 + 2 * random) * size
            return (
                f"blocks of {size}: a query's block sees itself, its neighbours{drawn}; everything up to {full} tokens"
            )
        case Padding(count):
            last = (
                "no key is padding"
                if count == 0
                else "the last key is padding"
                if count == 1
                else f"the last {count} keys are padding"
            )
            return f"{last} and hidden from every query" if count else last
        case Hashed(buckets, rounds, _) | SameBucket(source=Hashed(buckets, rounds, _)):
            times = "in the one round" if rounds == 1 else f"in any of {rounds} rounds"
            return f"a query sees the keys that hash into its own of {buckets} buckets {times}"
        case Given(name=name):
            return f"as the file {name} says (0 or false = hidden)"
        case AllOf(parts):
            return "; and ".join(_english(part) for part in parts)
        case AnyOf(parts):
            return "; or ".join(_english(part) for part in parts)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _both_ways(left: int | None, right: int | None) -> str:
    """A window that also looks ahead, or has no end on one side; None is no end."""
    before, after = ("all keys" if side is None else _many(side, "key") for side in (left, right))
    low, high = "" if left is None else f"i − {left} ≤ ", "" if right is None else f" ≤ i + {right}"
    if left == 0:
        return f"a query sees itself and {after} after it (i ≤ j{high})"
    return f"a query sees itself, {before} before and {after} after it ({low}j{high})"


def _chinese(mask: Mask) -> str:
    match mask:
        case Everywhere() | Window(None, None):
            return "每个查询能看到所有键"
        case Causal() | Window(None, 0) | Prefix(0):
            return "查询只能看到自己和之前的键（j ≤ i）"
        case Window(0, 0):
            return "查询只能看到自己（j = i）"
        case Window(left, 0) if left is not None:
            return f"查询能看到自己和之前的 {left} 个键，连自己共 {left + 1} 个（i − {left} ≤ j ≤ i）"
        case Window(left, right):
            before = "所有键" if left is None else f" {left} 个键"
            after = "所有键" if right is None else f" {right} 个键"
            return f"查询能看到自己和之后的{after}" if left == 0 else f"查询能看到自己、之前的{before}和之后的{after}"
        case Dilated(size, step):
            return f"查询能看到自己，以及之前距离小于 {size} 且能被 {step} 整除的键"
        case Global(tokens):
            return f"位置 {', '.join(map(str, tokens))} 能看到所有键，也被所有查询看到；其余不可见"
        case Prefix(length):
            return f"前 {length} 个键对所有查询可见，其余只从自己的位置起可见（j < {length} 或 j ≤ i）"
        case Chunk(size):
            return f"查询能看到自己所在的、长 {size} 的分段中自己和之前的键"
        case Blocks(size):
            return f"查询能看到自己所在的、长 {size} 的块，前后都可见"
        case Documents(ids):
            return f"查询只能看到自己的文档（共 {len(set(ids))} 篇拼在一起）"
        case Streaming(sinks, recent):
            return f"查询能看到最前 {sinks} 个键和最近 {recent} 个键（含自己），看不到之后的键"
        case BigBird(size, random, _):
            return f"每块 {size}：能看到相邻块、首块、末块和 {random} 个随机块；长度不超过 {(5 + 2 * random) * size} 时全部可见"
        case Padding(count):
            return f"最后 {count} 个键是填充，对所有查询隐藏"
        case Hashed(buckets, rounds, _) | SameBucket(source=Hashed(buckets, rounds, _)):
            return f"查询能看到在 {rounds} 轮哈希的任一轮中落入同一桶（共 {buckets} 桶）的键"
        case Given(name=name):
            return f"按文件 {name}（0 或 false 表示隐藏）"
        case AllOf(parts):
            return "；并且".join(_chinese(part) for part in parts)
        case AnyOf(parts):
            return "；或者".join(_chinese(part) for part in parts)
