"""`attn.learn/1`: how a small model learned a task: its loss, the scores of its heads, and what
they are worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from attncli.documents import (
    AttentionPart,
    Count,
    Document,
    ModelPart,
    Numbers,
    Part,
    Share,
    Size,
    axes,
    describe,
)
from attncli.language import Message, contextual, message

SCORE_NAMES = {
    "aligned": contextual("score", "aligned"),
    "first": contextual("score", "first"),
    "induction": contextual("score", "induction"),
    "key": contextual("score", "key"),
    "previous": contextual("score", "previous"),
    "same": contextual("score", "same"),
    "second": contextual("score", "second"),
    "target": contextual("score", "target"),
    "value": contextual("score", "value"),
}
"""What people call the scores of heads."""


def score_name(name: str) -> str:
    """A score's name as a translatable message; the name itself where no task has such a score."""
    return SCORE_NAMES.get(name, name)


Loss = Annotated[float | None, Meta(description="In nats; null where it is no number.")]


class Example(Part, frozen=True, kw_only=True):
    """One of the texts that losses and scores are measured on; all maps are of it."""

    text: Annotated[str, describe("Of an encoder-decoder, what the decoder reads.")]
    tokens: Annotated[list[str], axes("token")]
    targets: Annotated[
        list[str | None],
        axes("token", meaning="what is to be said after each; null where it cannot be known"),
    ]
    source: Annotated[
        str | UnsetType, describe("What the encoder reads; absent where there is none.")
    ] = UNSET
    source_tokens: Annotated[list[str] | UnsetType, axes("key")] = UNSET


class GuessingLoss(Part, frozen=True, kw_only=True):
    """The loss of guessing in a certain way, to compare with."""

    name: str
    loss: float


class CurvePoint(Part, frozen=True, kw_only=True):
    """The loss after so many steps."""

    step: Count
    loss: Loss


class HeadScore(Part, frozen=True, kw_only=True):
    """How far a head does one thing: the weight that rows give to the keys in question, their mean."""

    first: Annotated[Share, describe("Before training.")]
    last: Annotated[Share, describe("After it.")]
    chance: Annotated[Share, describe("Of a head that looks at all keys alike.")]
    threshold: Annotated[Share, describe("From where the head is said to do it.")]
    rose_at: Annotated[
        Count | None, describe("The step at which half of the rise was done; null where none was.")
    ]
    values: Annotated[list[Share], axes("curve", meaning="at each step of `curve`")]


class LearnedHead(Part, frozen=True, kw_only=True):
    """One head and its scores by name."""

    layer: Count
    head: Count
    scores: dict[str, HeadScore]


class WeightMap(Part, frozen=True, kw_only=True):
    """Where the heads look in the example after so many steps."""

    step: Count
    weights: Annotated[
        Numbers,
        axes("layer", "head", "token", "key", meaning="keys are the tokens, or the source's"),
    ]


class HeadLoss(Part, frozen=True, kw_only=True):
    """The loss without one head: what it mixes is 0."""

    layer: Count
    head: Count
    loss: Loss


class HeadRemoval(Part, frozen=True, kw_only=True):
    """What each head is worth: the loss with all of them, and without each."""

    loss: Loss
    heads: list[HeadLoss]


class Alignment(Part, frozen=True, kw_only=True):
    """How often the decoder's head with the highest score looks most at the word that is
    translated."""

    layer: Count
    head: Count
    rows: Annotated[Size, describe("Words that are said, over all texts.")]
    share: Annotated[
        Share, describe("Of these, at how many the largest weight is on the word it translates.")
    ]
    chance: Annotated[Share, describe("The same for a word drawn at random.")]


class LengthLoss(Part, frozen=True, kw_only=True):
    """The loss on the texts whose source has so many tokens."""

    tokens: Size
    texts: Size
    loss: Loss


class BestHead(Part, frozen=True, kw_only=True):
    """The head with the highest score of a name."""

    score: str
    layer: Count
    head: Count
    value: Share


class SeedRun(Part, frozen=True, kw_only=True):
    """How one seed ended."""

    seed: Count
    steps: Count
    loss: Loss
    learned: Annotated[bool, describe("Whether the loss is below the goal.")]
    formed: Annotated[
        bool, describe("Whether some head does each thing that the task is known to be done by.")
    ]
    best: list[BestHead]


class LearnDocument(Document, tag="attn.learn/1", frozen=True, kw_only=True):
    """A small model trained on a task. Where several seeds ran, all but `runs` is about the first."""

    task: str
    seed: Count
    model: ModelPart
    attention: AttentionPart
    parameters: Annotated[Size, describe("Numbers that were trained.")]
    batch: Annotated[Size, describe("Texts of each step.")]
    learning_rate: float
    tested_apart: Annotated[
        bool,
        describe(
            "Whether losses and scores are of texts that are not trained on; else they are of the"
            " trained text."
        ),
    ]
    example: Example
    steps: Annotated[Count, describe("Steps that were made.")]
    planned: Annotated[Size, describe("Steps that were to be made.")]
    loss: Loss
    chance: Annotated[float, describe("The loss of guessing without having read the text.")]
    goal: Annotated[
        float,
        describe(
            "The loss below which a seed has learned it: a tenth of chance; of a text of one's own,"
            " that of counting pairs of characters."
        ),
    ]
    references: list[GuessingLoss]
    learned: bool
    formed: bool
    forms: Annotated[
        list[str], describe("The scores of which some head must reach each threshold.")
    ]
    curve: Annotated[list[CurvePoint], axes("curve")]
    heads: list[LearnedHead]
    maps: Annotated[
        list[WeightMap], describe("Steps that are powers of two, the first and the last.")
    ]
    ablation: HeadRemoval
    bottleneck: Annotated[
        bool | UnsetType,
        describe(
            "Whether the decoder sees one vector of the encoder's alone, that of the first token;"
            " absent without an encoder, as are the next two. All maps and scores are then of the"
            " decoder's attention to what the encoder read."
        ),
    ] = UNSET
    alignment: Annotated[Alignment | UnsetType, describe("Absent with `bottleneck`, too.")] = UNSET
    by_length: Annotated[
        list[LengthLoss] | UnsetType, describe("The loss by length of what the encoder read.")
    ] = UNSET
    runs: list[SeedRun]
    saved: Annotated[str | None, describe("The folder of the checkpoint.")]
    snapshots: Annotated[list[str], describe("Folders of checkpoints on the way, in their order.")]
    warnings: list[str]

    def lengths(self) -> Mapping[str, int | range]:
        """How many entries the axes have that the fields of this document name: "token" and "key" of
        the example, "curve" (its points), "layer" and "head" of the model."""
        # beside an encoder, heads look at the text that it reads
        keys = self.example.tokens
        if self.example.source_tokens is not UNSET:
            keys = self.example.source_tokens
        return {
            "token": len(self.example.tokens),
            "key": len(keys),
            "curve": len(self.curve),
            "layer": self.model.layers,
            "head": self.model.heads,
        }

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Faults as (field, message), unless every head that is named is one of the model's, and
        there is something to show."""
        # (field, layer, head) of all heads that are named
        rows = [("heads", row.layer, row.head) for row in self.heads]
        rows += [("ablation.heads", row.layer, row.head) for row in self.ablation.heads]
        for run in self.runs:
            rows += [("runs", row.layer, row.head) for row in run.best]
        for field, layer, head in rows:
            if layer >= self.model.layers or head >= self.model.heads:
                yield (
                    field,
                    message("there is no layer {layer} head {head}", layer=layer, head=head),
                )
        if not (self.curve and self.maps and self.runs and self.heads and self.ablation.heads):
            yield "curve", message("curve, maps, heads, runs or ablation are empty")
            return  # what follows needs a first head
        # all heads have the same scores, and runs name heads and scores that are there
        heads = {(row.layer, row.head) for row in self.heads}
        names = set(self.heads[0].scores)
        for number, row in enumerate(self.heads):
            if set(row.scores) != names:
                yield (
                    f"heads[{number}].scores",
                    message("they are not the scores of the first head"),
                )
        for number, run in enumerate(self.runs):
            for best in run.best:
                if best.score not in names or (best.layer, best.head) not in heads:
                    yield (
                        f"runs[{number}].best",
                        message("it names a score or a head that is not there"),
                    )


def curve_note(document: LearnDocument) -> Message:
    """The note below the curve of the loss: on which texts the loss is, and that both axes are
    logarithmic.
    """
    if document.tested_apart:
        return message("on texts that are not trained on; both axes logarithmic")
    return message("on the text that is trained on; both axes logarithmic")


def reference_name(name: str) -> str:
    """The name of a way of guessing as a translatable message; one that this version does not know,
    as it is."""
    for way in (message("counting characters"), message("counting pairs of characters")):
        if way == name:
            return way
    return name


class TaskRow(Part, frozen=True, kw_only=True):
    """One task that can be learned."""

    name: str
    takes: Annotated[
        str, describe("What of the reader's own it is made of: TEXT, FILE or nothing.")
    ]
    texts: str
    shows: str
    steps: Size
    layers: Size
    heads: Size


class TasksDocument(Document, tag="attn.tasks/1", frozen=True, kw_only=True):
    """The tasks, with what each is learned with where nothing else is said."""

    tasks: list[TaskRow]
