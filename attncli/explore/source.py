"""Sources: what can be asked of a model with a text, and of a saved file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from attncli.arrays.backend import EVERY, Selection
from attncli.documents.declaration import Document
from attncli.errors import UnsupportedError
from attncli.features.effects.document import AblateDocument
from attncli.features.explain.document import AttentionTopic
from attncli.inputs.token import Token
from attncli.measure.run_record import RunRecord, run_record
from attncli.models.model import Model

Progress = Callable[[float], None]
"""Is told the share of the work done; raises where the work is no longer wanted."""


@dataclass(frozen=True, eq=False)
class LiveSource:
    """A model and a text. layers, heads: which. words: whether pieces are merged to words.

    typed_count: how many of the tokens were typed; those after it were generated.
    """

    model: Model
    text: str
    tokens: Sequence[Token]
    typed_count: int
    layers: Selection = EVERY
    heads: Selection = EVERY
    words: bool = False

    @classmethod
    def of(cls, model: Model, text: str, tokens: Sequence[Token] | None = None) -> LiveSource:
        """A text as it is typed. Raises InputError for one without tokens, or with too many."""
        text_tokens = model.encode(text) if tokens is None else tokens
        return cls(model, text, text_tokens, len(text_tokens))

    def record(self, progress: Progress) -> RunRecord:
        """The run, whose heads come one after another."""
        return run_record(
            self.model, self.text, self.tokens, name=self.model.identity.name or "", layers=self.layers,
            heads=self.heads, words=self.words, exact=True, progress=progress,
        )  # fmt: skip

    def with_text(self, text: str) -> LiveSource:
        """The same model reading another text."""
        tokens = self.model.encode(text)
        return replace(self, text=text, tokens=tokens, typed_count=len(tokens))

    def pieces(self, word: int) -> tuple[int, ...]:
        """The tokens that a word is made of; a token itself where none are merged."""
        if not self.words:
            return (word,)
        from attncli.inputs.word_groups import merged_words

        word_groups = merged_words(self.tokens, self.text)
        first = int(word_groups.starts[word])
        return tuple(range(first, first + int(word_groups.sizes[word])))

    def derivation(self, layer: int, head: int, query: int) -> AttentionTopic:
        """One query's attention written out; of a word, that of its first piece."""
        from attncli.features.explain.compute import derivation_document

        return derivation_document(
            self.model, self.text, self.tokens, layer=layer, head=head, query=self.pieces(query)[0]
        )

    def effects(
        self, query: int, place: tuple[int, int] | None, link: tuple[int, int] | None, progress: Progress
    ) -> AblateDocument:
        """What the word's last vector turns by when heads are taken away, one at a time.

        place: one head, None for every one. link: cut it instead of the whole head.
        """
        from attncli.features.effects.ablation import Removal, ablate_document
        from attncli.features.effects.changes import CutLink
        from attncli.features.effects.measures import MeasureRequest
        from attncli.features.effects.places import HeadSelection, everything
        from attncli.models.estimate import free_memory

        spec = self.model.spec
        heads = everything(spec) if place is None else HeadSelection((place[0],), (place[1],))
        cut_link = None if link is None else CutLink(self.pieces(link[0]), self.pieces(link[1]))
        removal = Removal(heads, link=cut_link, baseline="top" if place is None else "all")
        request = MeasureRequest(("vector",), self.pieces(query), len(self.tokens) - 1)
        memory = free_memory().bytes
        return ablate_document(self.model, self.text, self.tokens, removal, request, memory=memory, progress=progress)

    @property
    def shorter(self) -> LiveSource:
        """The same without its last generated token; itself where none was generated."""
        if len(self.tokens) <= self.typed_count:
            return self
        tokens = self.tokens[:-1]
        return replace(self, tokens=tokens, text=self.text[: self.tokens[-1].start])

    def longer(self, progress: Progress) -> LiveSource:
        """The same with the likeliest next token. Raises UnsupportedError for a model that predicts none."""
        from attncli.features.generate.compute import GenerateRequest, generated_document

        document = generated_document(
            self.model, self.text, self.tokens, GenerateRequest(1, layers=[0], heads=[0]), progress=progress
        )
        new = document.generated[0]
        text = self.text + document.continuation
        token = Token(len(self.tokens), new.text, new.id, len(self.text), len(text), new.special)
        return replace(self, text=text, tokens=[*self.tokens, token])


@dataclass(frozen=True, eq=False)
class SavedSource:
    """A saved file. document: what it holds; make: its record, anew each time, for its heads are gone through once.

    derive: the derivation of a layer, a head and a query, None where queries and keys are not held.
    """

    name: str
    document: Document
    make: Callable[[], RunRecord]
    derive: Callable[[int, int, int], AttentionTopic] | None = None

    def record(self, progress: Progress) -> RunRecord:
        """The record of the file."""
        del progress
        return self.make()

    def derivation(self, layer: int, head: int, query: int) -> AttentionTopic:
        """One query's attention written out. Raises UnsupportedError where the file does not hold what that takes."""
        if self.derive is None:
            raise UnsupportedError(
                "this file holds no queries and keys to derive the weight from",
                hint="attn run … --save run.safetensors",
            )
        return self.derive(layer, head, query)


Source: TypeAlias = LiveSource | SavedSource


def live(source: Source, what: str) -> LiveSource:
    """The source with its model. Raises UnsupportedError for a file; what: what a file cannot do."""
    if isinstance(source, LiveSource):
        return source
    raise UnsupportedError(what, expected="a text and a model", hint="attn explore TEXT --model NAME")
