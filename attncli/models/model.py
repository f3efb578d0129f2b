"""`Model`: a Spec, its weights and a tokenizer; `trace` yields one layer at a time, of one text or
of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import (
    EVERY,
    SCORE_ITEM,
    Array,
    Backend,
    Selection,
    backend_of,
    choose,
    numbers_of,
)
from attncli.errors import InputError, LimitError, UnsupportedError, UsageError
from attncli.inputs.token import Token, Tokenizer, ignore
from attncli.inputs.tokenize import ShiftedTokenizer
from attncli.language import listing, message
from attncli.mechanism.attend import EVERY_STAGE, RowBlock
from attncli.mechanism.context import NO_INTERVENTIONS, Context, Interventions, Past
from attncli.mechanism.head_choice import choose_heads_of
from attncli.mechanism.mask import MatrixMask
from attncli.mechanism.spec import Attention, Spec
from attncli.mechanism.trace import SQUARE, STAGES, Later, LayerTrace, NotebookResult
from attncli.models import run
from attncli.models.estimate import compute_dtype, free_memory
from attncli.models.run import LONG, Store, embed_texts, rows_for, run_layers

if TYPE_CHECKING:
    from attncli.inputs.chat_prompt import ChatPrompt
    from attncli.mechanism.edit import Edit, Edits

Source = Literal["seeded", "random", "file", "checkpoint", "tensors"]
DrawnVectors = Literal["words", "positions"]


class Identity(Struct, frozen=True):
    """Where the weights come from, as every document states it.

    source: "seeded", "random", "file", "checkpoint" or "tensors".
    digest: sha256 of the weights; None where computing it would mean reading weights the run does
        not need.
    layout: how a weight file spells its tensors, in words; None for the others.
    quantization: the kinds of numbers that weights are computed from as they are read, such as
        "Q4_K, Q6_K"; None for plain floats.
    adapters: those that are merged into the weights, as they were asked for.
    drawn: vectors that a weight file does not hold, which come from the seed.
    """

    source: Source
    name: str | None = None
    family: str | None = None
    seed: int | None = None
    digest: str | None = None
    layout: str | None = None
    quantization: str | None = None
    adapters: tuple[str, ...] = ()
    drawn: tuple[DrawnVectors, ...] = ()


AT_ONCE = 2048
"""Tokens of texts whose traces are in memory together."""
BATCH = 640
"""Tokens of a batch, about: products of more rows are no faster, and what lies between them leaves
the caches.
"""
WASTE = 0.25
"""How much longer than its shortest text a batch may be."""


BatchInterventions = Callable[[Sequence[Sequence[Token]]], Interventions]
"""Makes what is changed in a batch, of the tokens of its texts; arrays have a batch axis first."""


class PaddedTexts(Struct, frozen=True, eq=False):
    """Texts of about one length that run together, shortest first.

    places: the place of each among those that were waiting.
    texts: the tokens of each.
    layers: runs them; every array has a leading batch axis, and rows past a text's end mean
        nothing.
    """

    places: tuple[int, ...]
    texts: tuple[list[Token], ...]
    layers: Iterator[LayerTrace]


class Model(Struct, frozen=True, eq=False):
    """A model ready to run. `attncli.load` makes one.

    An encoder-decoder comes as its encoder; `decoder` gives the other side.

    warnings: what loading found odd, for every document made with it.
    decoder_store: the store of the decoder side.
    memory: what a decoder's cross-attention looks at, [token, width].
    source: the tokens that it comes from, none for captured states.
    encoder: the model that made it of them; None for captured states, and for a model that reads
        nothing.
    ends: the ids at which a text that it continues ends; none where the checkpoint names none.
    kept_bytes: what its weights take that are kept in memory once they are read, for many runs.
    """

    spec: Spec
    store: Store
    tokenizer: Tokenizer
    backend: Backend
    identity: Identity
    warnings: tuple[str, ...] = ()
    decoder_store: Store | None = None
    memory: Array | None = None
    source: tuple[Token, ...] = ()
    ends: frozenset[int] = frozenset()
    encoder: Model | None = None
    kept_bytes: int = 0

    @property
    def own_layers(self) -> bool:
        """Whether its layers can be run one by one, with weights by role."""
        return True

    @property
    def n_layers(self) -> int:
        """How many layers it has, those without attention included."""
        return len(self.spec.blocks)

    @property
    def n_heads(self) -> int:
        """How many heads a layer has; the most of any where layers differ."""
        return max((block.attention.heads for block in self.spec.blocks), default=0)

    @property
    def d_model(self) -> int:
        """The width of a token's vector between layers."""
        return self.spec.d_model

    @property
    def weights_in_memory(self) -> int:
        """Bytes of weights that stay in memory as long as the model exists; 0 for weights that are
        read when needed."""
        return self.kept_bytes

    def __repr__(self) -> str:
        """In one line: where the weights come from, how many layers and heads, what computes them."""
        heads = sorted({self.spec.blocks[layer].attention.heads for layer in self.spec.attending()})
        sizes = message(
            "{blocks} layers of {heads} heads, d_model {d_model}",
            blocks=len(self.spec.blocks),
            heads=listing(map(str, heads), " or "),
            d_model=self.spec.d_model,
        )
        name = self.identity.name or f"{self.identity.source}, seed {self.identity.seed}"
        notes = ""
        if self.warnings:
            notes = message("; read .warnings ({count})", count=len(self.warnings))
        return (
            f"<{type(self).__name__} {name}: {self.spec.family}, {sizes}; {self.backend.name}"
            f" {self.backend.dtype}{notes}>"
        )

    def encode(self, text: str | Sequence[Token]) -> list[Token]:
        """The tokens of a text, if the model can take that many.

        Args:
            text: The text, or its tokens.

        Returns:
            Its tokens in order, those that the tokenizer adds to a text included.

        Raises:
            InputError: If there are none or too many for the positions.
            UsageError: For what is neither a text nor tokens.
        """
        if isinstance(text, str):
            tokens = self.tokenizer.encode(text)
        elif isinstance(text, Sequence) and all(isinstance(token, Token) for token in text):
            # all of them are, but a type checker wants to see it of each
            tokens = [token for token in text if isinstance(token, Token)]
        else:
            raise UsageError(
                "{name} is {value}", expected="a text", name="text", value=repr(text)[:80]
            )
        # counted by the last index: tokens that go on from a past do not begin at 0
        run.check_length(self.spec, tokens[-1].index + 1 if tokens else 0)
        return tokens

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        regions: Mapping[str, str] | None = None,
        tools: Sequence[Any] | None = None,
        template: str | Path | None = None,
        variables: Mapping[str, Any] | None = None,
        note: Callable[[str], None] = ignore,
    ) -> ChatPrompt:
        """A chat as this model reads it: its text, its tokens, and the regions of its messages.

        The functions that measure regions take all three: `attncli.answer(model, prompt.text,
        prompt.regions, tokens=prompt.tokens)`.

        Args:
            messages: Each an object with "role" and "content", both texts.
            regions: More regions by name, each a specification as of `--region`, such as
                {"doc1": "[[doc1]]…[[/doc1]]"}.
            tools: JSON schemas, for a template that reads them.
            template: A file, or a name that the checkpoint has; None for the checkpoint's own.
            variables: What else the template reads, by name; "add_generation_prompt": False leaves
                out the beginning of the assistant's answer.
            note: Called with a sentence for each part of the chat that is not read as it stands.

        Returns:
            The prompt, which ends where the answer begins.

        Raises:
            InputError: For what is no chat, for a template that refuses it, for a region that no
                token fits, and for more tokens than the model has positions.
            LimitError: For a template that takes too long or writes too much.
            UsageError: For arguments of another kind, and a specification of no known form.
        """
        from attncli.inputs.chat_prompt import chat_prompt

        prompt = chat_prompt(
            self.tokenizer,
            messages,
            regions=regions,
            tools=tools,
            template=template,
            variables=variables,
            note=note,
        )
        self.encode(prompt.tokens)
        return prompt

    def compute_backend(self, count: int) -> Backend:
        """The backend (array library and data type) in which a text of `count` tokens is computed.

        Args:
            count: How many tokens it has.

        Returns:
            The model's own backend, or one with a wider data type. A checkpoint in float32 computes
            in float64, rounded once at the end, where that takes little time (`compute_dtype`), so
            that its numbers agree with a reference's. A one-layer model computes in its own type.
        """
        checkpoint = self.identity.source == "checkpoint"
        if checkpoint:
            return self._backend_of(compute_dtype(self.spec, count, self.backend.dtype))
        return self.backend

    def _backend_of(self, dtype: str) -> Backend:
        """The model's backend with numbers of this type; unchanged on Apple's GPUs, which have no
        float64.
        """
        backend = self.backend
        if dtype == backend.dtype or backend.device.startswith("mps"):
            return backend
        return choose(backend.name, device=backend.device, dtype=dtype)

    def context(
        self,
        tokens: Sequence[Token],
        backend: Backend,
        keep: Collection[str] = (),
        rows: int | None = None,
    ) -> Context:
        """The Context (positions, stages to keep, encoder vectors for a decoder) with which every
        layer runs these tokens in `backend`.

        Args:
            tokens: Those of the text.
            backend: What the run is computed in.
            keep: The n × n stages that traces hold.
            rows: Query rows at a time; None for all.

        Returns:
            The context, without past, interventions or callbacks.
        """
        if self.memory is None:
            memory = None
        else:
            memory = backend.cast(self.memory, backend.dtype)
        # the text so far ends with the last token, also where these tokens go on from a past
        positions = np.asarray([token.index for token in tokens])
        return Context(
            positions, tokens[-1].index + 1, memory=memory, keep=frozenset(keep), rows=rows
        )

    def trace(
        self,
        text: str | Sequence[Token],
        *,
        layers: Selection = EVERY,
        heads: Selection = EVERY,
        keep: Collection[str] = EVERY_STAGE,
        rows: int | None = None,
        on_block: Callable[[int, str, RowBlock], None] | None = None,
        past: Past | None = None,
        interventions: Interventions = NO_INTERVENTIONS,
        edits: Sequence[Edit] = (),
        idle: bool = False,
        last_queries: Collection[int] | None = None,
    ) -> TextTrace:
        """A lazy trace of one text in this model: iterate over it for each layer's stages, in
        order, or take its `weights`.

        It runs when it is iterated over, with one layer in memory at a time. No gradient flows:
        arrays are cut off from the weights that they come of.

        Args:
            text: The text, or its tokens.
            layers: Which to yield; layers after the last of them are not read.
            heads: Which heads to keep in stages with a head axis, 11, [0, 3],
                "L5H11", (5, 11); see `HeadSelection`.
            keep: Which n × n stages to keep.
            rows: Query rows at a time, with `on_block`; see `Context`. None for all.
            on_block: Called for each block of query rows with the layer's number, the kind of
                attention ("self" or "cross") and the block.
            past: Keys and values of the tokens before these, by layer, extended in place; start
                with {} and go on with tokens whose `index` continues. They are of the type that the
                first tokens were computed in.
            interventions: What is changed in which layer's attention: `attncli.Zero`, `Replace`,
                `KnockOut` by (layer, "self" or "cross"); the traces hold what came of it.
            edits: A list of functions that are called with what a layer computes at a place, and
                change it (`attncli.Edit`); the traces hold what came of it.
            idle: Whether layers that do not attend are yielded, too: their traces have vectors, and
                stages of no heads.
            last_queries: With `rows`: the queries that are looked at in the last layer. Blocks
                without any of them are not computed there, and their mixed values are 0; None for
                all.

        Returns:
            The layers' traces, when it is iterated over. What was computed in a wider type
            (`compute_backend`) comes rounded to `backend.dtype`. Scores and weights of low precision are
            float32.

        Raises:
            InputError: For a text without tokens or with too many, and for a layer or head that is
                not there.
            UsageError: For the decoder of a model of two sides that reads nothing, for a `past`
                whose keys a text of this length turns otherwise (LongRoPE, dynamic NTK), and for
                an edit of no known site or of a layer that does not run.
            UnsupportedError: For an edit of a site that the layer does not have.
        """
        self._check_memory()
        tokens = self.encode(text)
        layers, heads = choose_heads_of(self.spec, layers, heads).layers_and_heads()
        if past and not run.keeps_past(self.spec, tokens[0].index, tokens[-1].index + 1):
            raise UsageError(
                "the keys of the first {count} tokens are turned otherwise in a longer text",
                expected="all tokens of the text, and past={} again",
                count=tokens[0].index,
            )
        layer_count = len(self.spec.blocks)
        if idle:
            layer_numbers = sorted(set(numbers_of(layers, layer_count)))
        else:
            layer_numbers = self.spec.attending(layers)
        run.check_indices("layer", layer_numbers, layer_count)
        placed_edits: Edits = {}  # by layer and site
        if edits:
            from attncli.mechanism.edit import edits_by_place

            last_run = max(layer_numbers, default=-1)  # -1: no layer runs
            placed_edits = edits_by_place(edits, self.spec.blocks, last_run)
            self._check_edits(placed_edits, rows)

        def run_text(stage_names: Collection[str]) -> Iterator[LayerTrace]:
            """The traces of the text with these stages kept, layer by layer."""
            backend = self.compute_backend(len(tokens))
            # go on in the type in which what is kept of the earlier tokens was computed: one for all
            # layers, so that any array tells it
            if past:
                any_array = next(iter(past.values()))[0]
                if self.backend.dtype_of(any_array) == "float64":
                    backend = self._backend_of("float64")
                else:
                    backend = self.backend
            # the caller's callback gets numbers of the model's type
            if on_block is None or backend is self.backend:
                on_rounded_block = on_block
            else:
                on_rounded_block = round_blocks(self.backend, on_block)
            context = self.context(tokens, backend, stage_names, rows)
            context = replace(
                context,
                past=past,
                on_block=on_rounded_block,
                interventions=interventions,
                edits=placed_edits,
                last_queries=last_queries,
            )
            return self._run_text(tokens, layer_numbers, heads, backend, context)

        chosen = self._head_numbers(layer_numbers, heads)
        name = self.identity.name or self.identity.source
        return TextTrace(
            tokens,
            chosen,
            run_text,
            keep,
            dtype=self.backend.dtype,
            name=name,
            once=past is not None,
            rows=rows,
        )

    def _check_edits(self, edits: Edits, rows: int | None) -> None:
        """Raise UnsupportedError for edits that a run cannot carry out: those of a model whose
        layers attn does not compute itself, and those of scores or weights that are computed some
        rows at a time.

        rows: query rows at a time; None for all.
        """
        if edits and not self.own_layers:
            raise UnsupportedError(
                "edits are for layers that attn computes itself",
                expected="a model that does not run through transformers",
            )
        # edits are by (layer, site)
        if rows is not None and any(site in ("scores", "pattern") for _, site in edits):
            raise UnsupportedError(
                "scores that are computed some rows at a time are not edited",
                expected="rows=None, and a text short enough for it",
            )

    def _head_numbers(
        self, layers: Sequence[int], heads: Selection
    ) -> list[tuple[int, Sequence[int]]]:
        """Pairs of a layer's number and the numbers of the chosen heads in it, ascending. Raises
        InputError for a head that a layer does not have.
        """
        chosen: list[tuple[int, Sequence[int]]] = []
        for layer in layers:
            count = self.spec.blocks[layer].attention.heads
            numbers: Sequence[int] = range(count)
            if heads is not EVERY and count:
                numbers = sorted(numbers_of(heads, count))
                run.check_indices("head", numbers, count)
            chosen.append((layer, numbers))
        return chosen

    def _run_text(
        self,
        tokens: list[Token],
        layers: Sequence[int],
        heads: Selection,
        backend: Backend,
        context: Context,
    ) -> Iterator[LayerTrace]:
        """Run a text in `backend`, and yield the traces of these layers with these heads."""
        # the embeddings get no name here, so that they are freed once layer 0 has run
        traces = run_layers(
            self.spec, self.store, backend, self.store.embed(backend, tokens), context, layers
        )
        yield from map(partial(self._finish_trace, backend, heads, tuple(tokens)), traces)

    def trace_batch(
        self,
        texts: Sequence[str | Sequence[Token]],
        *,
        layers: Selection = EVERY,
        heads: Selection = EVERY,
        keep: Collection[str] = EVERY_STAGE,
        interventions: Interventions = NO_INTERVENTIONS,
    ) -> Iterator[LayerTrace]:
        """Run several texts at once, padded to the longest, and yield the layers with a leading
        batch axis.

        Args:
            texts: Texts, or their tokens.
            layers: Which to yield: a number, several, or a text such as "0,2-5"; see `HeadSelection`.
            heads: Which heads to keep in stages with a head axis: 11, [0, 3], "2-5", or with their
                layers, "L5H11" or (5, 11); see `HeadSelection`.
            keep: Which n × n stages to keep.
            interventions: As of `trace`.

        Yields:
            Each layer asked for, in order. Each text gets the numbers that it gets alone, computed
            in the type that the longest is (`compute_backend`); rows past its end mean nothing and
            `take_text` takes them off.

        Raises:
            InputError: For a text without tokens or with too many, and for a layer or head that is
                not there.
            UnsupportedError: Where padding would change a text's own numbers.
        """
        self._check_memory()
        if self.memory is not None:
            raise UnsupportedError(
                "texts that read another one do not run in batches", expected="one text at a time"
            )
        tokens = [self.encode(text) for text in texts]
        backend = self.compute_backend(max(map(len, tokens), default=0))
        yield from self._run_batch(tokens, backend, layers, heads, keep, interventions)

    def _run_batch(
        self,
        texts: Sequence[Sequence[Token]],
        backend: Backend,
        layers: Selection,
        heads: Selection,
        keep: Collection[str],
        interventions: Interventions = NO_INTERVENTIONS,
    ) -> Iterator[LayerTrace]:
        """Run texts side by side in `backend`, padded to the longest, and yield the traces of these
        layers with these heads, as `trace_batch` does."""
        numbers = self.spec.attending(layers)
        stages = frozenset(keep)
        # several texts: the traces name no tokens
        traces = run_batch(self.spec, self.store, backend, texts, numbers, stages, interventions)
        yield from map(partial(self._finish_trace, backend, heads, ()), traces)

    def traces(
        self,
        texts: Iterable[str | Sequence[Token]],
        *,
        layers: Selection = EVERY,
        heads: Selection = EVERY,
        keep: Collection[str] = ("weights",),
        edits: Sequence[Edit] = (),
    ) -> Iterator[TextTrace]:
        """Run many texts, batched by length, and yield the TextTrace of each, in the order given.

        Some thousand tokens are in memory at a time. A model of `attncli.load(…, hold=True)` keeps
        its weights from one to the next. Each text gets the numbers that it gets alone, but that
        many texts of a float32 checkpoint are computed in float32, where few would be in float64:
        they differ by some 1e-6. `attncli.metrics.measure_texts` measures texts without keeping
        their traces.

        Args:
            texts: Texts, or their tokens.
            layers: Which layers: a number, several, or a text such as "0,2-5"; see `HeadSelection`.
            heads: Which heads of each: 11, [0, 3], "2-5"; or heads with their layers, "L5H11" or
                (5, 11); see `HeadSelection`.
            keep: Which n × n stages.
            edits: As of `trace`; with them each text runs alone, when its trace is iterated over,
                so that a function gets the arrays of one text.

        Yields:
            What `trace` returns, for each text.

        Raises:
            InputError: For a text without tokens, or with more than the model has positions for.
            UsageError: For edits that `trace` refuses.
        """
        if edits:
            for text in texts:
                yield self.trace(text, layers=layers, heads=heads, keep=keep, edits=edits)
            return
        chosen = self._head_numbers(self.spec.attending(layers), heads)
        name = self.identity.name or self.identity.source
        # a group of texts runs in batches by length, and its results are yielded in the order given
        for group in self.batches(texts, layers=layers, heads=heads, keep=keep):
            results: dict[int, TextTrace] = {}
            for batch in group:
                batch_layers = list(batch.layers)
                for entry, (place, tokens) in enumerate(
                    zip(batch.places, batch.texts, strict=True)
                ):
                    layers_of_text = partial(_layers_of_text, batch_layers, entry, tokens)
                    results[place] = TextTrace(
                        tokens, chosen, layers_of_text, keep, dtype=self.backend.dtype, name=name
                    )
            for place in range(len(results)):
                yield results.pop(place)

    def batches(
        self,
        texts: Iterable[str | Sequence[Token]],
        *,
        layers: Selection = EVERY,
        heads: Selection = EVERY,
        keep: Collection[str] = EVERY_STAGE,
        at_once: int = AT_ONCE,
        interventions: BatchInterventions | None = None,
    ) -> Iterator[Iterator[PaddedTexts]]:
        """Yield groups of texts, of about `at_once` tokens together, each as an iterator over its
        batches of texts of about equal length, shortest first. A batch runs when its layers are
        iterated over.

        Args:
            texts: Texts, or their tokens.
            layers: Which to yield: a number, several, or a text such as "0,2-5"; see `HeadSelection`.
            heads: Which heads to keep in stages with a head axis: 11, [0, 3], "2-5", or with their
                layers, "L5H11" or (5, 11); see `HeadSelection`.
            keep: Which n × n stages to keep.
            at_once: About how many tokens are taken from `texts` at a time.
            interventions: Called with the texts of a batch for what is changed in it; None for
                nothing.

        Yields:
            The batches of those tokens.

        Raises:
            InputError: For a text without tokens, or with more than the model has positions for.
            UnsupportedError: For interventions where texts do not run together.
        """
        waiting: list[list[Token]] = []
        for text in texts:
            waiting.append(self.encode(text))
            if sum(map(len, waiting)) > at_once:
                yield self._batches_of(waiting, layers, heads, keep, interventions)
                waiting = []
        if waiting:
            yield self._batches_of(waiting, layers, heads, keep, interventions)

    def _batches_of(
        self,
        texts: Sequence[list[Token]],
        layers: Selection,
        heads: Selection,
        keep: Collection[str],
        interventions: BatchInterventions | None = None,
    ) -> Iterator[PaddedTexts]:
        """Yield these texts in batches of about equal length; one by one where padding would change
        a text's numbers.

        layers, heads: which to yield. keep: the n × n stages that traces hold.
        interventions: called with the texts of a batch for what is changed in it; None for nothing.
        """
        self._check_memory()
        # texts that run together cost as much as one of all their tokens
        backend = self.compute_backend(sum(map(len, texts)))

        # what a mask depends on besides positions: the text's "length", or its "vectors"
        dependences = {
            mask.depends_on
            for block in self.spec.blocks
            for mask in block.attention.mask.parts_of()
        }
        # buckets of hashed vectors are of one text, too; a decoder's memory belongs to one source
        # text, and transformers runs one text
        hashes = any(block.attention.hashing is not None for block in self.spec.blocks)
        needs_own_run = hashes or "vectors" in dependences
        can_batch = self.memory is None and self.own_layers and not needs_own_run
        # how much longer the longest text of a batch may be than the shortest, as a share
        if "length" not in dependences:
            waste = WASTE
        else:  # texts of exactly one length need no padding
            waste = 0.0
        if not can_batch and interventions is not None:
            raise UnsupportedError(
                "texts of this model do not run side by side, and changes are made in batches",
                expected="a model that reads texts alone, with masks by position",
            )
        if not can_batch:
            for place, tokens in enumerate(texts):
                alone = map(
                    _with_batch_axis, self.trace(tokens, layers=layers, heads=heads, keep=keep)
                )
                yield PaddedTexts((place,), (tokens,), alone)
            return
        for places in _batches_by_length([len(tokens) for tokens in texts], waste):
            batch = tuple(texts[place] for place in places)
            if interventions is None:
                changes = NO_INTERVENTIONS
            else:
                changes = interventions(batch)
            traces = self._run_batch(batch, backend, layers, heads, keep, changes)
            yield PaddedTexts(tuple(places), batch, traces)

    def _check_memory(self) -> None:
        """Raise UsageError for a model with cross-attention that has no encoder vectors to attend
        to.
        """
        if self.memory is None and any(block.cross is not None for block in self.spec.blocks):
            raise UsageError(
                "the decoder of a {family} model reads what its encoder made, and nothing is here",
                expected="captured states, [token, width]",
                hint="--source @FILE.npy",
                family=self.spec.family,
            )

    def finish(self, hidden: Array) -> Array:
        """Apply the final norm.

        Args:
            hidden: Vectors that leave the last layer, [token, width].

        Returns:
            The normed vectors, of the same shape; they themselves if the model has no such norm.
        """
        backend = self.compute_backend(hidden.shape[-2])
        outputs = run.finish(
            self.spec, self.store.outer(backend), backend, backend.cast(hidden, backend.dtype)
        )
        return self.backend.cast(outputs, self.backend.dtype)

    def logits(self, hidden: Array) -> Array:
        """The logits that each token gives for the token after it.

        Args:
            hidden: What leaves the last layer (`after` of its trace), [..., token, width].

        Returns:
            [..., token, vocabulary].

        Raises:
            UnsupportedError: Where there is no output head.
        """
        return run.logits(self.spec, self.store.outer(self.backend), self.backend, hidden)

    def masked_logits(self, hidden: Array) -> Array:
        """The logits that an encoder gives for the word that stands at each token.

        Args:
            hidden: What leaves the last layer (`after` of its trace), [..., token, width].

        Returns:
            [..., token, vocabulary].

        Raises:
            UnsupportedError: Where there is no head that tells masked words.
        """
        outer = self.store.outer(self.backend)
        return run.masked_logits(self.spec, outer, self.backend, hidden)

    def decoder(self, source: str | Sequence[Token]) -> Model:
        """The decoder of an encoder-decoder, as a Model that cross-attends to what the encoder
        makes of `source`.

        Args:
            source: What the encoder reads: a text, or its tokens.

        Returns:
            A model whose traces have `cross`, attention over the source. Its texts begin with the
            start token and leave out their last, as in training.

        Raises:
            UnsupportedError: For a model of one side.
            InputError: For a source without tokens, or with too many.
        """
        if self.spec.decoder is None or self.decoder_store is None:
            raise self._no_cross_attention(
                message("an encoder-decoder, such as t5, bart or marian")
            )
        tokens = self.encode(source)
        if len(tokens) > LONG:
            rows = rows_for(self.spec, len(tokens))
        else:
            rows = None
        # the decoder gets the encoder's vectors unrounded, in the type that they are computed in;
        # `idle`: the last layer is yielded even if it does not attend
        encoder = replace(self, backend=self.compute_backend(len(tokens)))
        (last_trace,) = encoder.trace(
            tokens, layers=[len(self.spec.blocks) - 1], keep=(), rows=rows, idle=True
        )
        memory = encoder.finish(last_trace.after)
        tokenizer = ShiftedTokenizer(self.tokenizer, self.spec.decoder.start)
        return replace(
            self,
            spec=self.spec.decoder,
            store=self.decoder_store,
            tokenizer=tokenizer,
            decoder_store=None,
            memory=memory,
            source=tuple(tokens),
            encoder=self,
        )

    def decoder_over(self, states: np.ndarray[Any, Any]) -> Model:
        """The decoder of an encoder-decoder, as a Model that cross-attends to `states`, recorded
        output of an encoder.

        Args:
            states: [token, width].

        Returns:
            As `decoder`, but without a source text, which is not known (or none, as for Whisper).

        Raises:
            UnsupportedError: For a model without cross-attention.
            InputError: For states of another width.
        """
        if self.spec.decoder is None:
            spec = self.spec
        else:
            spec = self.spec.decoder
        # the cross-attentions of all layers read vectors of one width
        cross = next((block.cross for block in spec.blocks if block.cross is not None), None)
        if cross is None:
            raise self._no_cross_attention(
                message("an encoder-decoder, such as t5 or bart, or whisper")
            )
        width = cross.source_width or spec.d_model
        # where transformers runs the layers, it checks and converts the states itself
        if self.own_layers and states.shape[-1] != width:
            raise InputError(
                "the states are {shape} wide, the decoder reads vectors of {width}",
                expected="[token, {width}], what leaves the encoder's last norm",
                shape=states.shape[-1],
                width=width,
            )
        if self.own_layers:  # not rounded: each run casts them to the type that it computes in
            memory = self._backend_of("float64").array(states)
        else:
            memory = self.backend.array(states)
        if self.spec.decoder is None:  # the model is a decoder already, as Whisper's is
            return replace(self, memory=memory)
        # a model that transformers runs has one store for both sides
        store = self.decoder_store or self.store
        tokenizer = ShiftedTokenizer(self.tokenizer, spec.start)
        return replace(
            self, spec=spec, store=store, tokenizer=tokenizer, decoder_store=None, memory=memory
        )

    def _no_cross_attention(self, expected: str) -> UnsupportedError:
        """Return, not raise, the UnsupportedError for a model without cross-attention.

        expected: models that have it.
        """
        return UnsupportedError(
            "a {family} model has no cross-attention", expected=expected, family=self.spec.family
        )

    def _finish_trace(
        self, computing: Backend, heads: Selection, tokens: tuple[Token, ...], trace: LayerTrace
    ) -> LayerTrace:
        """A layer's trace as it is given out: with these heads alone and the text's tokens, and
        rounded to the model's type where it was computed in a wider one.

        computing: the backend that it was computed in.
        """
        partial_trace = replace(self.only(trace, heads), tokens=tokens)
        if computing is self.backend:
            return partial_trace
        return round_trace(self.backend, partial_trace)

    def only(self, trace: LayerTrace, heads: Selection) -> LayerTrace:
        """The trace of a layer with only some heads.

        Args:
            trace: One layer's.
            heads: Which heads to keep.

        Returns:
            A trace whose stages with a head axis have these heads, in rising order.

        Raises:
            InputError: For a head that is not there.
        """
        block = self.spec.blocks[trace.layer]
        if heads is EVERY or block.instead:  # a layer without attention has no heads
            return trace
        numbers = sorted(numbers_of(heads, block.attention.heads))
        run.check_indices("head", numbers, block.attention.heads)
        cross = trace.cross
        if cross is not None and block.cross is not None:
            cross = choose_heads(cross, numbers, block.cross)
        return replace(choose_heads(trace, numbers, block.attention), cross=cross)


def choose_heads(trace: LayerTrace, heads: Sequence[int], attention: Attention) -> LayerTrace:
    """The trace of an attention with only these heads in its per-head stages; k and v by the kv
    head each one uses.
    """
    stages = {}
    group_size = attention.heads // attention.kv_heads  # query heads that share a kv head
    for name, array in trace.stages.items():
        if name in ("k", "v"):
            stages[name] = array[..., [head // group_size for head in heads], :, :]
        elif name in ("hidden", "concat", "out", "sum", "norm"):  # without an axis of heads
            stages[name] = array
        else:
            stages[name] = array[..., list(heads), :, :]
    return replace(trace, stages=stages, empty_rows=trace.empty_rows[..., list(heads), :])


# Several texts at once: padded to the longest, each with the numbers that it has alone.


def run_batch(
    spec: Spec,
    store: Store,
    backend: Backend,
    texts: Sequence[Sequence[Token]],
    layers: Collection[int],
    keep: frozenset[str],
    interventions: Interventions = NO_INTERVENTIONS,
) -> Iterator[LayerTrace]:
    """Yield the traces of these layers, every array with a leading batch axis, one entry per text.

    Texts are padded at their end; no query sees the padding. Raises UsageError without texts,
    UnsupportedError where a text's own numbers would change with the length of the longest.
    """
    if not texts:
        raise UsageError("a batch holds no texts", expected="at least one")
    lengths = [len(tokens) for tokens in texts]
    _check_masks(spec, differ=len(set(lengths)) > 1)
    longest = max(lengths)

    # the vectors of all texts come one after the other, [token, width]; each text's go to its entry
    # of the batch, and the padding behind them stays 0
    vectors = embed_texts(store, backend, texts)
    hidden = backend.full((len(texts), longest, vectors.shape[-1]), 0.0, backend.dtype_of(vectors))
    start = 0
    for entry, length in enumerate(lengths):
        hidden[entry, :length] = vectors[start : start + length]
        start += length

    # [text, head, query, key]: keys from a text's end on are padding
    ends = backend.array(np.asarray(lengths, np.int64).reshape(-1, 1, 1, 1))
    context = Context(
        np.arange(longest), longest, key_lengths=ends, keep=keep, interventions=interventions
    )
    yield from run_layers(spec, store, backend, hidden, context, layers)


def take_text(trace: LayerTrace, entry: int, length: int) -> LayerTrace:
    """One text's part of a batch's trace, without batch axis and padding.

    entry: the text's index in the batch.
    length: how many tokens it has.
    """
    longest = trace.before.shape[-2]
    leaving = trace.leaving  # computed when it is called for, and so is the part of it
    stages = {
        name: _drop_padding(array[entry], STAGES[name].axes, length, longest)
        for name, array in trace.stages.items()
    }
    empty_rows = trace.empty_rows[entry][..., :length]
    before = trace.before[entry][:length]
    after = Later(lambda: leaving()[entry][:length])
    return replace(trace, stages=stages, empty_rows=empty_rows, before=before, leaving=after)


def _batches_by_length(lengths: Sequence[int], waste: float) -> Iterator[list[int]]:
    """The places of texts in batches of about one length, shortest first, each of `BATCH` tokens or
    one text.

    waste: how much longer the longest may be than the shortest.
    """
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        count = lengths[place]
        # all are padded to the longest, which is this one
        too_large = (len(batch) + 1) * count > BATCH
        if batch and (too_large or count > lengths[batch[0]] * (1 + waste)):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _layers_of_text(
    batch: Sequence[LayerTrace], entry: int, tokens: Sequence[Token], keep: Collection[str]
) -> Iterator[LayerTrace]:
    """The traces of one text, `entry`, cut out of a batch that has run, layer by layer.

    keep: ignored, for the stages that the batch was run with are there; `TextTrace` passes it.
    """
    del keep
    for trace in batch:
        yield replace(take_text(trace, entry, len(tokens)), tokens=tuple(tokens))


def _with_batch_axis(trace: LayerTrace) -> LayerTrace:
    """A text's trace as that of a batch of one: each array gets a leading batch axis."""
    leaving = trace.leaving
    stages = {name: array[None] for name, array in trace.stages.items()}
    empty_rows = trace.empty_rows[None]
    before = trace.before[None]
    return replace(
        trace,
        stages=stages,
        empty_rows=empty_rows,
        before=before,
        leaving=Later(lambda: leaving()[None]),
    )


def _drop_padding(array: Array, axes: Sequence[str], length: int, longest: int) -> Array:
    """A stage of one text without the padding of its batch.

    axes: the names of the array's axes. length: the text's tokens; longest: with the padding.
    Learned keys come after the padding and stay.
    """
    for place, axis in enumerate(axes):
        if axis in ("token", "query", "key"):
            indices = [*range(length), *range(longest, array.shape[place])]
            array = array[(*[slice(None)] * place, indices)]  # array[:, :, indices] at place 2
    return array


def _check_masks(spec: Spec, differ: bool) -> None:
    """Raise UnsupportedError for masks that cannot run in a batch because they differ by text.

    differ: whether the texts differ in length.
    """
    for block in spec.blocks:
        for mask in block.attention.mask.parts_of():
            # hash buckets belong to the vectors of one text
            if mask.depends_on == "vectors" or (differ and mask.depends_on == "length"):
                what = message(
                    "what the mask {mask} hides depends on the text, so several texts cannot run at"
                    " once",
                    mask=mask.spec(),
                )
                if isinstance(mask, MatrixMask):
                    what = message(
                        "the mask {name} is {size}, for texts of one length; these texts differ in"
                        " length",
                        name=mask.name,
                        size=" × ".join(map(str, mask.values.shape)),
                    )
                raise UnsupportedError(what, expected="these texts one at a time")


# From the type that a run computes in to the type of its results: every number is rounded once.

OnBlock = Callable[[int, str, RowBlock], None]


# a number too large for the results' type is infinite there, as it would have been all along
@np.errstate(over="ignore")
def round_trace(backend: Backend, trace: LayerTrace) -> LayerTrace:
    """The trace with its arrays in `backend.dtype`; stages that share an array go on sharing it."""
    # each array is rounded once, under one of the names that it has: by the array's id, that name
    name_of_array = {id(array): name for name, array in trace.stages.items()}
    leaving = trace.leaving

    @np.errstate(over="ignore")
    def after() -> Array:
        """What leaves the layer, in `backend.dtype`."""
        return backend.cast(leaving(), backend.dtype)

    rounded = {
        array_id: _round_stage(backend, name, trace.stages[name])
        for array_id, name in name_of_array.items()
    }
    return replace(
        trace,
        stages={name: rounded[id(array)] for name, array in trace.stages.items()},
        before=backend.cast(trace.before, backend.dtype),
        leaving=Later(after),
        cross=None if trace.cross is None else round_trace(backend, trace.cross),
    )


def round_blocks(backend: Backend, on_block: OnBlock) -> OnBlock:
    """A callback that rounds a block's arrays to `backend.dtype` and hands the block to `on_block`."""

    def cast(array: Array) -> Array:
        """The array in `backend.dtype`."""
        return backend.cast(array, backend.dtype)

    @np.errstate(over="ignore")
    def round_block(layer: int, kind: str, block: RowBlock) -> None:
        """Round the arrays of a block, and call `on_block` with it."""
        stages = {name: _round_stage(backend, name, array) for name, array in block.stages.items()}
        on_block(
            layer, kind, replace(block, stages=stages, mixed=cast(block.mixed), lse=cast(block.lse))
        )

    return round_block


def _round_stage(backend: Backend, name: str, array: Array) -> Array:
    """A stage rounded to `backend.dtype`; a finite score that would overflow becomes the largest
    finite number, since −∞ marks masked keys."""
    result = backend.cast(array, backend.dtype)
    if name not in SQUARE:  # only stages [head, query, key] mark keys
        return result
    overflowed = backend.isfinite(array) & ~backend.isfinite(result)
    if not bool(overflowed.any()):
        return result
    largest = float(np.finfo(backend.dtype).max)
    signed_largest = backend.where(array > 0, largest, -largest)
    return backend.where(overflowed, backend.cast(signed_largest, backend.dtype), result)


class TextTrace(NotebookResult):
    """A text's run through a model, done when needed: iterate for one layer's stages after the
    other, or take the attention `weights` of all.

    Iterating runs the model and holds one layer at a time; iterating again runs it again. A
    notebook shows the page of all heads.

    Attributes:
        tokens: The tokens of the text.
        layers: The numbers of the layers, ascending.
        heads: How many heads each of these layers gives.
        name: The name of the model.
    """

    def __init__(
        self,
        tokens: Sequence[Token],
        heads: Sequence[tuple[int, Sequence[int]]],
        run: Callable[[Collection[str]], Iterator[LayerTrace]],
        keep: Collection[str],
        *,
        dtype: str,
        name: str = "",
        once: bool = False,
        rows: int | None = None,
    ) -> None:
        """A trace of a text that runs it when its layers or weights are asked for.

        Args:
            tokens: The tokens of the text.
            heads: The number of each layer to give, with the numbers of its heads.
            run: Runs the text and yields its layers, keeping the n × n stages of these names.
            keep: The n × n stages that are kept when the trace is iterated over.
            dtype: The data type of the numbers.
            name: The name of the model.
            once: Whether a run leaves something behind, so that the text can be run only once.
            rows: How many query rows are computed at a time, none of which are kept; None for all
                at once.
        """
        self.tokens = tuple(tokens)
        self.layers = tuple(layer for layer, _ in heads)
        self.heads = tuple(len(numbers) for _, numbers in heads)
        self._head_numbers = tuple(numbers for _, numbers in heads)
        self._run = run
        self._keep = frozenset(keep)
        self._dtype = dtype
        self.name = name
        self._rows = rows
        self._runs_left = 1 if once else None  # None: any number
        self._weights: Array | None = None

    def __iter__(self) -> Iterator[LayerTrace]:
        return self.run(self._keep)

    def __len__(self) -> int:
        return len(self.layers)

    def run(self, keep: Collection[str]) -> Iterator[LayerTrace]:
        """Run the text and yield its layers.

        keep: the n × n stages to hold, in place of those that the trace was made with.
        Raises UsageError for a second run where a run extends kept keys (`past`).
        """
        if self._runs_left is not None:
            if not self._runs_left:
                what = message("this run has extended the kept keys, and would extend them again")
                raise UsageError(
                    what,
                    expected="one look at it",
                    hint="layers = list(model.trace(tokens, past=past))",
                )
            self._runs_left -= 1
        return self._run(keep)

    @property
    def pairs(self) -> int:
        """The total number of attention weights: layers × heads × queries × keys."""
        return sum(self.heads) * len(self.tokens) ** 2

    @property
    def keeps_weights(self) -> bool:
        """Whether the attention weights are kept when the trace is iterated over."""
        return "weights" in self._keep and self._rows is None

    @property
    def weights(self) -> Array:
        """The attention weights of all layers, [layer, head, query, key], 0 to 1; 0 where a key is
        masked.

        Held once they are there. Rows sum to 1, to less where a learned sink takes its share, to 0
        where a query sees nothing; learned keys come after those of the tokens.

        Raises:
            UnsupportedError: Where layers have different numbers of heads, or weights were not to
                be kept.
            LimitError: Where they would take more memory than is free.
        """
        if self._weights is None:
            self._weights = self._all_weights()
        return self._weights

    def _all_weights(self) -> Array:
        """The attention weights of all layers, [layer, head, query, key], computed anew. Raises as
        `weights`.
        """
        refusal = UnsupportedError(
            "the layers have no weights of one shape",
            expected="layers of as many heads, and weights that are kept",
        )
        if self._rows is not None:
            raise UnsupportedError(
                "with rows={rows} weights are told to on_block, and not kept",
                expected="rows=None, the default",
                rows=self._rows,
            )
        if not self.keeps_weights or len(set(self.heads)) != 1:
            raise refusal

        size = self.pairs * SCORE_ITEM[self._dtype]
        limit = free_memory()
        if size > limit.bytes:
            raise LimitError(
                "the weights of {layers} layers of {heads} heads and {tokens} tokens take"
                " {size:.1f} GiB",
                expected="at most {limit:.1f} GiB: {source}",
                hint="layers=[5] or heads=[0], or iterate: one layer is in memory at a time",
                layers=len(self.layers),
                heads=self.heads[0],
                tokens=len(self.tokens),
                size=size / 2**30,
                limit=limit.bytes / 2**30,
                source=limit.source,
            )

        whole: Array | None = None
        for place, trace in enumerate(self.run(("weights",))):
            array = trace.stages["weights"]
            if whole is None:
                backend = backend_of(array)
                whole = backend.full((len(self.layers), *array.shape), 0.0, backend.dtype_of(array))
            if tuple(array.shape) != tuple(whole.shape[1:]):
                raise refusal
            whole[place] = array
        assert whole is not None  # there is no model without layers
        return whole

    def to_xarray(self) -> Any:
        """The attention weights of all layers as an xarray DataArray, whose axes have names and the
        tokens as labels.

        `to_xarray().sel(layer=5, head=11)` is one head; `.to_dataframe()` of it is a frame of
        pandas with a line for each query and key.

        Returns:
            An xarray DataArray of the dims layer, head, query and key. The numbers of layers,
            heads and tokens are coordinates, and the tokens' texts are `query_token` and
            `key_token`.

        Raises:
            UnsupportedError: Where xarray is not installed, layers have different heads, or weights
                were not to be kept.
            LimitError: Where the weights would take more memory than is free.
        """
        from attncli.arrays.frames import labelled_weights

        heads = self._head_numbers[0]
        if any(list(numbers) != list(heads) for numbers in self._head_numbers):
            raise UnsupportedError(
                "the layers have different heads", expected="layers of the same heads"
            )
        texts = [token.text for token in self.tokens]
        return labelled_weights(self.weights, self.layers, heads, texts, self.name)

    def __repr__(self) -> str:
        """The text's length, the model, the layers and what to do with them; not the numbers."""
        heads = listing(map(str, sorted(set(self.heads))), " or ")
        is_range = self.layers[-1] - self.layers[0] + 1 == len(self.layers)
        if len(self.layers) >= 4 and is_range:
            numbers = f"{self.layers[0]}-{self.layers[-1]}"
        else:
            numbers = ", ".join(map(str, self.layers))
        if self.name:
            name = f" in {self.name}"
        else:
            name = ""
        what = message("layers {numbers} of {heads} heads", numbers=numbers, heads=heads)
        return (
            f"<TextTrace of {len(self.tokens)} tokens{name}: {what}; iterate for layers, .weights"
            " for all>"
        )
