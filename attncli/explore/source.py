"""Sources: what can be asked of a model with a text, and of a saved file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from attncli.analysis.documents.ablate import AblateDocument
from attncli.analysis.documents.declaration import Document
from attncli.analysis.documents.derivation import AttentionTopic
from attncli.analysis.records.run import RunRecord, run_record
from attncli.arrays.selection import EVERY, Selection
from attncli.errors import UnsupportedError
from attncli.inputs.token import Token
from attncli.models.model import Model

Told = Callable[[float], None]
"""Is told the share of the work done; raises where the work is no longer wanted."""


@dataclass(frozen=True, eq=False)
class Live:
    """A model and a text. layers, heads: which. words: whether pieces are merged to words.

    typed: how many of the tokens were typed; those after it were generated.
    """

    model: Model
    text: str
    tokens: Sequence[Token]
    typed: int
    layers: Selection = EVERY
    heads: Selection = EVERY
    words: bool = False

    @classmethod
    def of(cls, model: Model, text: str, tokens: Sequence[Token] | None = None) -> Live:
        """A text as it is typed. Raises InputError for one without tokens, or with too many."""
        found = model.encode(text) if tokens is None else tokens
        return cls(model, text, found, len(found))

    def record(self, told: Told) -> RunRecord:
        """The run, whose heads come one after another."""
        return run_record(
            self.model, self.text, self.tokens, name=self.model.identity.name or "", layers=self.layers,
            heads=self.heads, words=self.words, exact=True, progress=told,
        )  # fmt: skip

    def retold(self, text: str) -> Live:
        """The same model reading another text."""
        found = self.model.encode(text)
        return replace(self, text=text, tokens=found, typed=len(found))

    def pieces(self, word: int) -> tuple[int, ...]:
        """The tokens that a word is made of; a token itself where none are merged."""
        if not self.words:
            return (word,)
        from attncli.analysis.words import merged_words

        merged = merged_words(self.tokens, self.text)
        first = int(merged.starts[word])
        return tuple(range(first, first + int(merged.sizes[word])))

    def derivation(self, layer: int, head: int, query: int) -> AttentionTopic:
        """One query's attention written out; of a word, that of its first piece."""
        from attncli.analysis.derivation import derivation_document

        return derivation_document(
            self.model, self.text, self.tokens, layer=layer, head=head, query=self.pieces(query)[0]
        )

    def effects(
        self, query: int, chosen: tuple[int, int] | None, link: tuple[int, int] | None, told: Told
    ) -> AblateDocument:
        """What the word's last vector turns by when heads are taken away, one at a time.

        chosen: one head, None for every one. link: cut it instead of the whole head.
        """
        from attncli.analysis.ablate import ablate_document
        from attncli.analysis.effects.ablation import Removal
        from attncli.analysis.effects.changes import Link
        from attncli.analysis.effects.measures import Asked
        from attncli.analysis.effects.places import Chosen, everything
        from attncli.models.machine_limits import free_memory

        spec = self.model.spec
        heads = everything(spec) if chosen is None else Chosen((chosen[0],), (chosen[1],))
        cut = None if link is None else Link(self.pieces(link[0]), self.pieces(link[1]))
        removal = Removal(heads, link=cut, baseline="top" if chosen is None else "all")
        asked = Asked(("vector",), self.pieces(query), len(self.tokens) - 1)
        memory = free_memory().bytes
        return ablate_document(self.model, self.text, self.tokens, removal, asked, memory=memory, told=told)

    @property
    def shorter(self) -> Live:
        """The same without its last generated token; itself where none was generated."""
        if len(self.tokens) <= self.typed:
            return self
        tokens = self.tokens[:-1]
        return replace(self, tokens=tokens, text=self.text[: self.tokens[-1].start])

    def longer(self, told: Told) -> Live:
        """The same with the likeliest next token. Raises UnsupportedError for a model that predicts none."""
        from attncli.analysis.generate import Continuing, generated_document

        document = generated_document(
            self.model, self.text, self.tokens, Continuing(1, layers=[0], heads=[0]), progress=told
        )
        new = document.generated[0]
        text = self.text + document.continuation
        token = Token(len(self.tokens), new.text, new.id, len(self.text), len(text), new.special)
        return replace(self, text=text, tokens=[*self.tokens, token])


@dataclass(frozen=True, eq=False)
class Saved:
    """A saved file. document: what it holds; make: its record, anew each time, for its heads are gone through once.

    derive: the derivation of a layer, a head and a query, None where queries and keys are not held.
    """

    name: str
    document: Document
    make: Callable[[], RunRecord]
    derive: Callable[[int, int, int], AttentionTopic] | None = None

    def record(self, told: Told) -> RunRecord:
        """The record of the file."""
        del told
        return self.make()

    def derivation(self, layer: int, head: int, query: int) -> AttentionTopic:
        """One query's attention written out. Raises UnsupportedError where the file does not hold what that takes."""
        if self.derive is None:
            raise UnsupportedError(
                "this file holds no queries and keys to derive the weight from",
                hint="attn run … --save run.safetensors",
            )
        return self.derive(layer, head, query)


Source: TypeAlias = Live | Saved


def live(source: Source, what: str) -> Live:
    """The source with its model. Raises UnsupportedError for a file; what: what a file cannot do."""
    if isinstance(source, Live):
        return source
    raise UnsupportedError(what, expected="a text and a model", hint="attn explore TEXT --model NAME")
