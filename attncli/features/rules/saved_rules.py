"""Rules that were found before and saved, for the heads of a model that reads another text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attncli.documents.header import is_same_model, model_part
from attncli.documents.reading import document_of
from attncli.errors import InputError
from attncli.features.rules.document import HeadMixture, RulesDocument
from attncli.inputs.files import read_object
from attncli.language import message
from attncli.models.model import Model

LARGEST = 1 << 28
"""Bytes of the largest document that is read."""
HINT = "attn heads --rules --model MODEL --json -o rules.json"


def read_rules(file: Path) -> RulesDocument:
    """The rules that a file holds. Raises InputError for a file that holds none."""
    fields = read_object(file, what=message("saved rules"), limit=LARGEST, most=LARGEST)
    document = document_of(fields, str(file))
    if not isinstance(document, RulesDocument):
        raise InputError(
            "this is {schema}, and rules are read from attn.rules/1",
            where=str(file),
            expected="attn.rules/1, as attn heads --rules --json writes it",
            hint=HINT,
            schema=document.schema,
        )
    return document


def mixtures_of(
    document: RulesDocument, model: Model, where: str = ""
) -> Mapping[tuple[int, int], HeadMixture]:
    """The rules of each head of a saved document, by (layer, head).

    model: the one that the rules are to be of.
    where: what errors call the file.

    Raises InputError for rules of another model: another family or size, or other weights where a
    digest of both is known.
    """
    own = model_part(model)
    part = document.model
    if not is_same_model(own, part):
        raise InputError(
            "these rules are of another model: {ruled}, and {model} runs",
            where=where,
            expected="the model that the rules were fitted to",
            hint=HINT,
            ruled=part.name or part.family or part.source,
            model=own.name or own.family or own.source,
        )
    return {
        (head.layer, head.head): HeadMixture(parts=head.parts, overlap=head.overlap)
        for head in document.heads
    }
