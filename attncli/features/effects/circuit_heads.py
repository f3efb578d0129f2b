"""A saved circuit, and which heads of a model are in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attncli.documents import ModelPart
from attncli.documents.header import is_same_model, model_part
from attncli.documents.reading import document_of
from attncli.errors import InputError
from attncli.features.circuit.document import CircuitDocument
from attncli.inputs.files import read_object
from attncli.language import message
from attncli.mechanism.spec import HeadSelection
from attncli.models.model import Model

LARGEST = 1 << 30
"""Bytes of the largest document that is read."""
HINT = "attn circuit --model MODEL --pairs FILE --json -o circuit.json"


def read_circuit(file: Path) -> CircuitDocument:
    """The circuit that a file holds. Raises InputError for a file that holds none."""
    fields = read_object(file, what=message("a circuit"), limit=LARGEST, most=LARGEST)
    document = document_of(fields, str(file))
    if not isinstance(document, CircuitDocument):
        raise InputError(
            "this is {schema}, and no circuit",
            where=str(file),
            expected="attn.circuit/1, as attn circuit --json writes it",
            hint=HINT,
            schema=document.schema,
        )
    return document


def heads_of_circuit(
    document: CircuitDocument, model: Model, where: str
) -> Sequence[tuple[int, int]]:
    """The heads of a circuit, each (layer, head), in the order in which they run.

    where: what errors call the file.

    Raises InputError for a circuit of another model: another family or size, or other weights where
    a digest of both is known.
    """
    own = model_part(model)
    part = document.model
    same = is_same_model(own, part)
    # nodes without a head are the embedding and feed-forward parts
    places = [
        (node.layer, node.head)
        for node in document.nodes
        if node.layer is not None and node.head is not None
    ]
    counts = [block.attention.heads for block in model.spec.blocks]
    if not same or any(layer >= len(counts) or head >= counts[layer] for layer, head in places):
        raise InputError(
            "this circuit is of another model: {circuit}, and {model} runs",
            where=where,
            expected="the model that the circuit was found in",
            hint=HINT,
            circuit=model_words(part),
            model=model_words(own),
        )
    return places


def heads_outside(document: CircuitDocument, model: Model, where: str) -> HeadSelection:
    """The heads of a model that are not in a circuit.

    where: what errors call the circuit's file.

    Raises InputError for a circuit of another model, and where all heads are in it.
    """
    inside = set(heads_of_circuit(document, model, where))
    outside = [
        (layer, head)
        for layer, block in enumerate(model.spec.blocks)
        for head in range(block.attention.heads)
        if (layer, head) not in inside
    ]
    if not outside:
        raise InputError(
            "this circuit has all {count} heads: there is none to take away",
            where=where,
            expected="a smaller one, such as attn circuit --size 1%",
            count=len(inside),
        )
    return HeadSelection(pairs=outside)


def model_words(part: ModelPart) -> str:
    """A model's name and size as sentences write it, such as `gpt2 (12 layers × 12 heads)`."""
    return message(
        "{name} ({layers} layers × {heads} heads)",
        name=part.name or part.source,
        layers=part.layers,
        heads=part.heads,
    )
