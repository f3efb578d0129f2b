"""`Worker`: computes shards of a plan. A shard is a function of the plan and its number alone."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from attncli.analysis.labels import LEAST_ROWS
from attncli.analysis.metrics import OFFSETS
from attncli.analysis.visible_keys import Floats, Ints
from attncli.arrays.backend import Array
from attncli.inputs.token import Token, Tokenizer
from attncli.models.checkpoint_store import CheckpointStore
from attncli.models.held_store import HeldStore
from attncli.models.model import Model
from attncli.scan import conditions, intake
from attncli.scan.batches import Counted, Cut, batches
from attncli.scan.corpus import Record
from attncli.scan.duplicates import read_duplicates
from attncli.scan.effects import Effects
from attncli.scan.examples import NONE, Examples, strongest
from attncli.scan.fixed_point import fixed
from attncli.scan.layers import Layers
from attncli.scan.plan import COPIES, Plan
from attncli.scan.shard_files import State, save
from attncli.scan.tables import Links, Place, Rows, rows_written
from attncli.scan.tallies import EFFECT, POSITIONAL, Tallies, TextValues, columns_of
from attncli.scan.text_hash import text_hash

TYPICAL, LONGEST = 8, 128
"""Characters of a token: more than most have, and as many as the longest of any vocabulary in use."""
MARGIN = 16
"""Tokens at the end of a piece that may be others in the whole text."""
SKIPPED = ("empty", "long", "undecodable", "duplicate", "not drawn")
"""Why a record may not count; each is counted."""
UNKNOWN = "unknown"
"""Why one may not count where --skip-unknown is given; counted only there."""


class Worker:
    """Computes shards one after the other, with the weights in memory.

    model: the plan's model, in the plan's type, on torch. folder: the scan's. part: which part of the scan this is.
    between: called between layers and between batches, when little is held.
    """

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        model: Model,
        *,
        part: str = "1",
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self.plan, self.folder, self.model, self.part = plan, folder, model, part
        measures = plan.measures
        self.columns = columns_of(plan.metrics, labels=measures.labels, effects=bool(measures.effects))
        assert isinstance(model.store, CheckpointStore)
        model.store.for_many()
        store = HeldStore(model.store)
        self._layers = Layers(
            model.spec, store, model.backend, plan.metrics, words=plan.measures.words, between=between
        )
        self._effects = Effects(measures.effects, model, store) if measures.effects else None
        self._limit = min(plan.choice.max_tokens or 2**31, model.spec.max_positions or 2**31)
        self._between = between
        self._starts = np.cumsum([0, *plan.model.heads])
        self._conditions = [conditions.parse(one) for one in plan.measures.find]
        self._duplicates = read_duplicates(folder, plan.choice.duplicates)

    def shard(self, number: int, progress: Callable[[int], None] | None = None) -> Mapping[str, int]:
        """Compute a shard and commit it. progress: told texts as they are done. Returns its counts."""
        plan = self.plan
        wanted = rows_written(self.folder, number, self.part, plan.heads, self.columns) if plan.measures.rows else None
        with wanted or nullcontext() as rows:
            state, links = self.compute(number, progress, rows)
        if links is not None:
            links.save(self.folder, number, self.part)
        save(self.folder, number, state, self.part)
        counts: Mapping[str, int] = state.facts["counts"]
        return counts

    def compute(
        self, number: int, progress: Callable[[int], None] | None = None, rows: Rows | None = None
    ) -> tuple[State, Links | None]:
        """A shard's state and links, of which nothing is written. rows: takes the shard's rows."""
        plan = self.plan
        records = intake.records(plan.files, plan.shards[number], self.folder / COPIES, plan.choice.cluster)
        counts = dict.fromkeys(("texts", "tokens", "truncated", *SKIPPED), 0)
        texts = list(self._texts(records, counts))
        tallies = Tallies(self.columns, int(self._starts[-1]), labels=plan.measures.labels)
        examples = Examples(len(self.columns), int(self._starts[-1]), plan.measures.top)
        links = Links() if self._conditions else None
        for batch in batches(texts, max(plan.model.heads)):
            together = self._layers.together(batch[0].tokens)
            for some in [batch] if together else [[text] for text in batch]:
                self._batch([self._cut(text) for text in some], tallies, examples, rows, links)
                self._between()
                if progress is not None:
                    progress(len(some))
        tallies.flush()
        arrays: dict[str, Ints] = {**tallies.arrays, **{f"top_{name}": one for name, one in examples.fields.items()}}
        wanted = examples.lines()
        said = [
            [text.record.file, text.record.line, text.record.text]
            for text in texts
            if (text.record.file, text.record.line) in wanted
        ]
        facts = {
            "counts": counts,
            "machine": machine(self.model),
            "plan": plan.digest,
            "range": [part.sha256 for part in plan.shards[number]],
            "examples": sorted(said),
        }
        return State({name: _narrow(array) for name, array in arrays.items()}, json.loads(json.dumps(facts))), links

    def _texts(self, records: Iterator[Record], counts: dict[str, int]) -> Iterator[Counted]:
        """The texts that count; the others are counted by reason. Their tokens are made again when they are needed:
        all of a shard's take more memory than they take time."""
        plan, limit = self.plan, self._limit
        for record in records:
            if record.text is None:
                counts[record.reason] += 1
                continue
            if (record.file, record.line) in self._duplicates:
                counts["duplicate"] += 1
                continue
            number = text_hash(record.text, plan.seed)
            if plan.choice.sample and number > plan.choice.threshold:
                counts["not drawn"] += 1
                continue
            piece, cut = what_matters(record.text, self.model.tokenizer, limit)
            tokens = len(cut)
            longer = tokens > limit or len(piece) < len(record.text)
            if not tokens or (longer and plan.choice.over != "truncate"):
                counts["long" if tokens else "empty"] += 1
                continue
            unknown = sum(token.unknown for token in truncated(cut, limit))
            if unknown and plan.choice.skip_unknown:
                counts[UNKNOWN] = counts.get(UNKNOWN, 0) + 1
                continue
            if unknown:  # a scan of texts that a model knows has no such counts
                counts["unknown_texts"] = counts.get("unknown_texts", 0) + 1
                counts["unknown_tokens"] = counts.get("unknown_tokens", 0) + unknown
            counts["texts"] += 1
            counts["tokens"] += min(tokens, limit)
            counts["truncated"] += longer
            unit = text_hash(record.cluster, plan.seed) if record.cluster else number
            name = text_hash(record.text) if plan.seed else number
            yield Counted(dataclasses.replace(record, text=piece), min(tokens, limit), unit, number, name)

    def _cut(self, text: Counted) -> Cut:
        """A text that counts with its tokens."""
        tokens = truncated(self.model.tokenizer.encode(text.record.text or ""), self._limit)
        return Cut(text.record, tuple(tokens), text.hash, text.own, text.name)

    def _batch(
        self, batch: Sequence[Cut], tallies: Tallies, examples: Examples, rows: Rows | None, links: Links | None
    ) -> None:
        shape = (len(batch), len(self.columns), int(self._starts[-1]))
        value, norm, baseline = np.zeros(shape), np.zeros(shape), np.full(shape, np.nan)
        used = np.zeros(shape[1:], np.int64)
        places = {
            "hash": np.array([cut.own & (2**63 - 1) for cut in batch], np.int64),
            "file": np.array([cut.record.file for cut in batch], np.int64),
            "line": np.array([cut.record.line for cut in batch], np.int64),
        }
        # each text's and head's strongest link, (query, key)
        strong = np.full((2, len(batch), shape[2]), -1, np.int64)
        names = [Place(cut.name, cut.record.file, cut.record.line) for cut in batch]
        if self._effects is not None:
            at = self.columns.index(EFFECT)
            heads = [int(self._starts[place.layer]) + place.head for place in self._effects.places]
            turned = np.array([self._effects.of(cut.tokens) for cut in batch])
            value[:, at, heads], norm[:, at, heads], used[at, heads] = np.nan_to_num(turned), ~np.isnan(turned), 1
        wanted = [[conditions.places(one, cut.tokens) for cut in batch] for one in self._conditions]
        backend = self.model.backend

        def look(layer: int, weights: Array, first: int, first_head: int) -> None:
            for at, (condition, where) in enumerate(zip(self._conditions, wanted, strict=True)):
                found = conditions.links(condition, backend, weights, layer, where, first=first, first_head=first_head)
                if links is not None:
                    links.add(at, found, names, lambda text, token: batch[text].tokens[token].text)

        def see(layer: int, weights: Array | None, sums: Floats, norms: Floats, counted: Ints, even: Floats) -> None:
            heads = slice(int(self._starts[layer]), int(self._starts[layer + 1]))
            metrics = len(self.plan.metrics)
            count = heads.stop - heads.start
            value[:, :metrics, heads] = sums.transpose(0, 2, 1)
            norm[:, :metrics, heads] = norms.transpose(0, 2, 1)
            used[:metrics, heads] = np.broadcast_to(np.asarray(counted), (count, metrics)).T
            spread = even if even.ndim == 3 else even[:, None, :]
            baseline[:, :metrics, heads] = np.broadcast_to(spread, (len(batch), count, metrics)).transpose(0, 2, 1)
            if weights is not None and examples.top:
                strong[..., heads] = strongest(backend, weights)

        self._layers.run(batch, see, look if self._conditions else None)
        if self.plan.measures.labels:
            self._positional(value, norm, baseline, used)
        every = TextValues(value, norm, baseline, used, len(batch[0].tokens), [cut.hash for cut in batch])
        tallies.add(every)
        examples.add(np.where(np.isnan(every.mean), NONE, fixed(every.mean)), places, strong)
        if rows is not None:
            rows.add(names, len(batch[0].tokens), every.mean, used)

    def _positional(self, value: Floats, norm: Floats, baseline: Floats, used: Ints) -> None:
        """The largest offset mass of each text and head, over offsets that enough rows have."""
        at = [self.plan.metrics.index(name) for name in OFFSETS]
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(norm[:, at] > 0, value[:, at] / norm[:, at], np.nan)
        mean = np.where(used[at] >= LEAST_ROWS, mean, np.nan)
        best = np.where(np.isnan(mean), -np.inf, mean).argmax(1)[:, None]
        score = np.take_along_axis(mean, best, 1)[:, 0]
        last = self.columns.index(POSITIONAL)
        value[:, last] = np.nan_to_num(score)
        norm[:, last] = ~np.isnan(score)
        baseline[:, last] = np.take_along_axis(baseline[:, at], best, 1)[:, 0]
        used[last] = used[at].max(0)


def what_matters(text: str, tokenizer: Tokenizer, limit: int) -> tuple[str, list[Token]]:
    """The beginning of a text that decides its first `limit` tokens, and its tokens: the whole text, unless that
    has more, or more characters than so many of the longest tokens.

    A word of millions of characters would take gigabytes, a text of millions of words seconds, before all but the first
    are thrown away.
    """
    size, most = limit * TYPICAL, limit * LONGEST
    while size < len(text):
        blank = text.rfind(" ", size - LONGEST, size)
        piece = text[: size if blank < 0 else blank]
        tokens = tokenizer.encode(piece)
        if len(tokens) > limit + MARGIN or size == most:
            return piece, tokens
        size = min(4 * size, most)
    return text, tokenizer.encode(text)


def truncated(tokens: Sequence[Token], limit: int) -> list[Token]:
    """The first tokens of a text, with the special ones that stand at its end; positions count anew."""
    if len(tokens) <= limit:
        return list(tokens)
    last = len(tokens)
    while last > 0 and tokens[last - 1].special:
        last -= 1
    after = list(tokens[last:])
    kept = [*tokens[: max(limit - len(after), 0)], *after][:limit]
    return [replace(token, index=index) for index, token in enumerate(kept)]


def machine(model: Model) -> dict[str, str]:
    """What the last bits of numbers may depend on: the instruction set and the libraries' versions."""
    from attncli.arrays.torch_backend import capability

    return {"machine": platform.machine(), "isa": capability(), "numpy": np.__version__, "device": model.backend.device}


def _narrow(array: Ints) -> Any:
    """The smallest of int32 and int64 that holds the array."""
    fits = not array.size or (array.min() >= -(2**31) and array.max() < 2**31)
    return array.astype(np.int32) if fits else array
