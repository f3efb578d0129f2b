"""Where heads look in the texts that are shown of them: the rows of weights that sentences are shaded by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from attncli.analysis.documents.scan import ScanExample
from attncli.analysis.visible_keys import Floats
from attncli.inputs.token import Token
from attncli.models.checkpoint_store import CheckpointStore
from attncli.models.held_store import CachedStore
from attncli.models.model import Model
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
    examples_by_head: Mapping[Place, Iterable[ScanExample]],
    *,
    progress: Callable[[float], None] = lambda share: None,
) -> Shading:
    """The tokens of each text by (file, line); by (file, line, layer, head) the token that looks, and its weights.

    examples_by_head: the examples of each (layer, head). The token is that of the head's strongest link in the text.
    Texts of more than `LONGEST` tokens are left out.
    """
    assert isinstance(model.store, CheckpointStore)
    model.store.for_many()
    cached_model = replace(model, store=CachedStore(model.store))
    texts: dict[Place, str] = {}
    heads: dict[Place, set[Place]] = {}
    for place, examples in examples_by_head.items():
        for example in examples:
            texts[example.file, example.line] = example.text
            heads.setdefault((example.file, example.line), set()).add(place)
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
            for layer, head in head_places:
                if layer == trace.layer:
                    query = int(weights[head].max(-1).argmax())
                    looks[*text, layer, head] = (query, weights[head, query])
    progress(1.0)
    return tokens, looks
