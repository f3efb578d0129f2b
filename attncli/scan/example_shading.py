"""Where heads look in the texts that are shown of them: the rows of weights that sentences are shaded by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from attncli.inputs.token import Token
from attncli.measure.row_facts import Floats
from attncli.models.load import CachedStore, CheckpointStore
from attncli.models.model import Model
from attncli.scan.document import ScanDocument
from attncli.scan.frequent_links import choosing_rows
from attncli.scan.plan import ScanPlan
from attncli.scan.worker import truncate

LONGEST = 1024
"""Tokens of a text that is shaded, at most."""
Place = tuple[int, int]
"""(file, line) of a text, or (layer, head)."""
Shading = tuple[dict[Place, Sequence[Token]], dict[tuple[int, int, int, int], tuple[int, Floats]]]


def shading(
    plan: ScanPlan,
    model: Model,
    texts_by_head: Mapping[Place, Mapping[Place, str]],
    *,
    progress: Callable[[float], None] = lambda share: None,
) -> Shading:
    """The tokens of each text by (file, line); by (file, line, layer, head) the token that looks, and its weights.

    texts_by_head: of each (layer, head) the texts by (file, line). The token is that of the head's strongest link in
    the text. Texts of more than `LONGEST` tokens are left out.
    """
    assert isinstance(model.store, CheckpointStore)
    model.store.for_many()
    cached_model = replace(model, store=CachedStore(model.store))
    texts: dict[Place, str] = {}
    heads: dict[Place, set[Place]] = {}
    for place, head_texts in texts_by_head.items():
        texts |= head_texts
        for text in head_texts:
            heads.setdefault(text, set()).add(place)
    limit = min(plan.choice.max_tokens or 2**31, model.spec.max_positions or 2**31)
    tokens: dict[Place, Sequence[Token]] = {}
    looks: dict[tuple[int, int, int, int], tuple[int, Floats]] = {}
    for number, (text, head_places) in enumerate(heads.items()):
        progress(number / len(heads))
        text_tokens = truncate(model.tokenizer.encode(texts[text]), limit)
        if not text_tokens or len(text_tokens) > LONGEST:
            continue
        tokens[text] = text_tokens
        layers = sorted({layer for layer, _ in head_places})
        for trace in cached_model.trace(text_tokens, layers=layers, keep=("weights",)):
            weights = np.asarray(model.backend.numpy(trace.stages["weights"]), np.float64)[..., : len(text_tokens)]
            choosing = choosing_rows(model.spec.blocks[trace.layer].attention.mask, len(text_tokens))
            for layer, head in head_places:
                if layer == trace.layer:
                    peaks = weights[head].max(-1)
                    query = int((np.where(choosing, peaks, -1.0) if choosing.any() else peaks).argmax())
                    looks[*text, layer, head] = (query, weights[head, query])
    progress(1.0)
    return tokens, looks


def texts_of(document: ScanDocument, place: Place, metric: str | None) -> dict[Place, str]:
    """The texts that are told of a head's metric by (file, line). metric: None for the first."""
    head = next(head for head in document.heads if (head.layer, head.head) == place)
    name = metric or next(iter(head.metrics), "")
    shown = {(example.file, example.line): example.text for example in head.top if example.metric == name}
    texts = document.texts or []
    for example in head.sample or ():
        if example.metric == name:
            text = texts[example.text]
            shown[text.file, text.line] = text.text
    return shown
