"""The document of `attn patch`, from what was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attncli.analysis.document import header, notes, token_rows
from attncli.analysis.documents.patch import PatchDocument, PatchRow
from attncli.analysis.effects.patching import PatchRequest, patch
from attncli.analysis.target import target_token
from attncli.analysis.words import unknown_notes_of_two
from attncli.errors import InputError
from attncli.inputs.token import Token
from attncli.models.model import Model


def patch_document(
    model: Model,
    clean: tuple[str, Sequence[Token]],
    corrupt: tuple[str, Sequence[Token]],
    patching: PatchRequest,
    *,
    memory: int | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> PatchDocument:
    """Patch every head and return the `attn.patch/1` document. clean, corrupt: text and tokens. Errors: as `patch`, and
    InputError for texts that differ in nothing but words which the model does not know."""
    same = [token.id for token in clean[1]] == [token.id for token in corrupt[1]]
    if same and clean[0] != corrupt[0] and any(token.unknown for token in clean[1]):
        raise InputError(
            "the two texts are the same to this model: they differ in words that it does not know",
            expected="texts that differ in words which the model knows",
        )
    result = patch(model, clean[1], corrupt[1], patching, memory=memory, progress=progress)
    return PatchDocument(
        **header(model, clean[0], clean[1], computing=result.backend),
        clean=clean[0],
        corrupt=corrupt[0],
        corrupt_tokens=token_rows(corrupt[1]),
        places=list(patching.positions),
        query=list(patching.query),
        measure=patching.measure,
        target=None if patching.target is None else target_token(model, patching.target),
        versus=None if patching.versus is None else target_token(model, patching.versus),
        m_clean=result.clean,
        m_corrupt=result.corrupt,
        effects=[
            PatchRow(attention=place.kind, layer=place.layer, head=place.head, recovered=share)
            for place, share in sorted(result.recovered_shares, key=lambda item: -item[1])
        ],
        warnings=[
            *notes(model, clean[0], ()),  # nothing of the words: that is told of both texts
            *unknown_notes_of_two(("clean text", *clean), ("corrupt text", *corrupt)),
        ],
    )
