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

from attncli.arrays.backend import Array
from attncli.errors import InputError
from attncli.inputs.token import Token, Tokenizer
from attncli.measure.labels import LEAST_ROWS
from attncli.measure.metric import OFFSETS
from attncli.measure.visible_keys import Floats, Ints
from attncli.models.checkpoint_store import CachedStore, CheckpointStore
from attncli.models.model import Model
from attncli.scan import conditions, intake
from attncli.scan.corpus import Record
from attncli.scan.duplicates import read_duplicates, text_hash
from attncli.scan.fixed_point import to_fixed
from attncli.scan.layers import AblationEffects, CountedText, Layers, TokenizedText, batches
from attncli.scan.plan import COPIES, ScanPlan
from attncli.scan.shard_files import LinkTable, RowTable, ShardState, TextPlace, row_writer, save
from attncli.scan.totals import EFFECT, NONE, POSITIONAL, Examples, Tallies, TextValues, columns_of, strongest

TYPICAL, LONGEST = 8, 128
"""Characters of a token: more than most have, and as many as the longest of any vocabulary in use."""
MARGIN = 16
"""Tokens at the end of a piece that may be others in the whole text."""
SKIPPED = ("empty", "long", "undecodable", "duplicate", "not drawn")
"""Why a record may not count; each is counted."""
UNKNOWN = "unknown"
"""Why one may not count where --skip-unknown is given; counted only there."""
UNTOKENIZED = "untokenized"
"""Why a text does not count that the tokenizer fails on; counted only where there is one."""


class Worker:
    """Computes shards one after the other, with the weights in memory.

    model: the plan's model, in the plan's type, on torch. folder: the scan's. part: which part of the scan this is.
    between: called between layers and between batches, when little is held.
    """

    def __init__(
        self,
        plan: ScanPlan,
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
        store = CachedStore(model.store)
        self._layers = Layers(
            model.spec, store, model.backend, plan.metrics, words=plan.measures.words, between=between
        )
        self._effects = AblationEffects(measures.effects, model, store) if measures.effects else None
        self._limit = min(plan.choice.max_tokens or 2**31, model.spec.max_positions or 2**31)
        self._between = between
        self._starts = np.cumsum([0, *plan.model.heads])
        self._conditions = [conditions.parse(text) for text in plan.measures.find]
        self._duplicates = read_duplicates(folder, plan.choice.duplicates)

    def shard(self, number: int, progress: Callable[[int], None] | None = None) -> Mapping[str, int]:
        """Compute a shard and commit it. progress: told texts as they are done. Returns its counts."""
        plan = self.plan
        row_file = row_writer(self.folder, number, self.part, plan.heads, self.columns) if plan.measures.rows else None
        with row_file or nullcontext() as rows:
            state, links = self.compute(number, progress, rows)
        if links is not None:
            links.save(self.folder, number, self.part)
        save(self.folder, number, state, self.part)
        counts: Mapping[str, int] = state.facts["counts"]
        return counts

    def compute(
        self, number: int, progress: Callable[[int], None] | None = None, rows: RowTable | None = None
    ) -> tuple[ShardState, LinkTable | None]:
        """A shard's state and links, of which nothing is written. rows: takes the shard's rows."""
        plan = self.plan
        records = intake.records(plan.files, plan.shards[number], self.folder / COPIES, plan.choice.cluster)
        counts = dict.fromkeys(("texts", "tokens", "truncated", *SKIPPED), 0)
        texts = list(self._texts(records, counts))
        tallies = Tallies(self.columns, int(self._starts[-1]), labels=plan.measures.labels)
        examples = Examples(len(self.columns), int(self._starts[-1]), plan.measures.top)
        links = LinkTable() if self._conditions else None
        for batch in batches(texts, max(plan.model.heads)):
            together = self._layers.together(batch[0].tokens)
            for group in [batch] if together else [[text] for text in batch]:
                self._batch([self._tokenize(text) for text in group], tallies, examples, rows, links)
                self._between()
                if progress is not None:
                    progress(len(group))
        tallies.flush()
        arrays: dict[str, Ints] = {
            **tallies.arrays,
            **{f"top_{name}": array for name, array in examples.fields.items()},
        }
        example_places = examples.lines()
        example_texts = [
            [text.record.file, text.record.line, text.record.text]
            for text in texts
            if (text.record.file, text.record.line) in example_places
        ]
        facts = {
            "counts": counts,
            "machine": machine(self.model),
            "plan": plan.digest,
            "range": [part.sha256 for part in plan.shards[number]],
            "examples": sorted(example_texts),
        }
        return ShardState(
            {name: _narrow(array) for name, array in arrays.items()}, json.loads(json.dumps(facts))
        ), links

    def _texts(self, records: Iterator[Record], counts: dict[str, int]) -> Iterator[CountedText]:
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
            try:
                piece, cut = what_matters(record.text, self.model.tokenizer, limit)
            except InputError:  # one that takes too long is no reason: another machine may be faster
                counts[UNTOKENIZED] = counts.get(UNTOKENIZED, 0) + 1
                continue
            tokens = len(cut)
            longer = tokens > limit or len(piece) < len(record.text)
            if not tokens or (longer and plan.choice.over != "truncate"):
                counts["long" if tokens else "empty"] += 1
                continue
            unknown = sum(token.unknown for token in truncate(cut, limit))
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
            yield CountedText(dataclasses.replace(record, text=piece), min(tokens, limit), unit, number, name)

    def _tokenize(self, text: CountedText) -> TokenizedText:
        """A text that counts with its tokens."""
        tokens = truncate(self.model.tokenizer.encode(text.record.text or ""), self._limit)
        return TokenizedText(text.record, tuple(tokens), text.hash, text.own, text.name)

    def _batch(
        self,
        batch: Sequence[TokenizedText],
        tallies: Tallies,
        examples: Examples,
        rows: RowTable | None,
        links: LinkTable | None,
    ) -> None:
        shape = (len(batch), len(self.columns), int(self._starts[-1]))
        value, norm, baseline = np.zeros(shape), np.zeros(shape), np.full(shape, np.nan)
        row_counts = np.zeros(shape[1:], np.int64)
        places = {
            "hash": np.array([text.own & (2**63 - 1) for text in batch], np.int64),
            "file": np.array([text.record.file for text in batch], np.int64),
            "line": np.array([text.record.line for text in batch], np.int64),
        }
        # each text's and head's strongest link, (query, key)
        strong = np.full((2, len(batch), shape[2]), -1, np.int64)
        names = [TextPlace(text.name, text.record.file, text.record.line) for text in batch]
        if self._effects is not None:
            column = self.columns.index(EFFECT)
            heads = [int(self._starts[place.layer]) + place.head for place in self._effects.places]
            effects = np.array([self._effects.of(text.tokens) for text in batch])
            value[:, column, heads], norm[:, column, heads], row_counts[column, heads] = (
                np.nan_to_num(effects),
                ~np.isnan(effects),
                1,
            )
        condition_places = [
            [conditions.places(condition, text.tokens) for text in batch] for condition in self._conditions
        ]
        backend = self.model.backend

        def on_weights(layer: int, weights: Array, first: int, first_head: int) -> None:
            for number, (condition, where) in enumerate(zip(self._conditions, condition_places, strict=True)):
                matched_links = conditions.links(
                    condition, backend, weights, layer, where, first=first, first_head=first_head
                )
                if links is not None:
                    links.add(number, matched_links, names, lambda text, token: batch[text].tokens[token].text)

        def on_layer(
            layer: int, weights: Array | None, sums: Floats, norms: Floats, counts: Ints, even: Floats
        ) -> None:
            heads = slice(int(self._starts[layer]), int(self._starts[layer + 1]))
            metrics = len(self.plan.metrics)
            count = heads.stop - heads.start
            value[:, :metrics, heads] = sums.transpose(0, 2, 1)
            norm[:, :metrics, heads] = norms.transpose(0, 2, 1)
            row_counts[:metrics, heads] = np.broadcast_to(np.asarray(counts), (count, metrics)).T
            spread = even if even.ndim == 3 else even[:, None, :]
            baseline[:, :metrics, heads] = np.broadcast_to(spread, (len(batch), count, metrics)).transpose(0, 2, 1)
            if weights is not None and examples.top:
                strong[..., heads] = strongest(backend, weights)

        self._layers.run(batch, on_layer, on_weights if self._conditions else None)
        if self.plan.measures.labels:
            self._positional(value, norm, baseline, row_counts)
        every = TextValues(value, norm, baseline, row_counts, len(batch[0].tokens), [text.hash for text in batch])
        tallies.add(every)
        examples.add(np.where(np.isnan(every.mean), NONE, to_fixed(every.mean)), places, strong)
        if rows is not None:
            rows.add(names, len(batch[0].tokens), every.mean, row_counts)

    def _positional(self, value: Floats, norm: Floats, baseline: Floats, row_counts: Ints) -> None:
        """The largest offset mass of each text and head, over offsets that enough rows have."""
        columns = [self.plan.metrics.index(name) for name in OFFSETS]
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(norm[:, columns] > 0, value[:, columns] / norm[:, columns], np.nan)
        mean = np.where(row_counts[columns] >= LEAST_ROWS, mean, np.nan)
        best = np.where(np.isnan(mean), -np.inf, mean).argmax(1)[:, None]
        score = np.take_along_axis(mean, best, 1)[:, 0]
        last = self.columns.index(POSITIONAL)
        value[:, last] = np.nan_to_num(score)
        norm[:, last] = ~np.isnan(score)
        baseline[:, last] = np.take_along_axis(baseline[:, columns], best, 1)[:, 0]
        row_counts[last] = row_counts[columns].max(0)


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


def truncate(tokens: Sequence[Token], limit: int) -> list[Token]:
    """The first tokens of a text, with the special ones that stand at its end; positions count anew."""
    if len(tokens) <= limit:
        return list(tokens)
    last = len(tokens)
    while last > 0 and tokens[last - 1].special:
        last -= 1
    after = list(tokens[last:])
    limited_tokens = [*tokens[: max(limit - len(after), 0)], *after][:limit]
    return [replace(token, index=index) for index, token in enumerate(limited_tokens)]


def machine(model: Model) -> dict[str, str]:
    """What the last bits of numbers may depend on: the instruction set and the libraries' versions."""
    from attncli.arrays.torch_backend import capability

    return {"machine": platform.machine(), "isa": capability(), "numpy": np.__version__, "device": model.backend.device}


def _narrow(array: Ints) -> Any:
    """The smallest of int32 and int64 that holds the array."""
    fits = not array.size or (array.min() >= -(2**31) and array.max() < 2**31)
    return array.astype(np.int32) if fits else array
