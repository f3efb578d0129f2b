"""Where heads look in the texts that are shown of them: the rows of weights that sentences are shaded by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from attncli.analysis.documents.scan import ScanExample
from attncli.analysis.visible_keys import Floats
from attncli.inputs.token import Token
from attncli.models.checkpoint_store import CheckpointStore
from attncli.models.held_store import HeldStore
from attncli.models.model import Model
from attncli.scan.plan import Plan
from attncli.scan.worker import truncated

LONGEST = 1024
"""Tokens of a text that is shaded, at most."""
Place = tuple[int, int]
"""(file, line) of a text, or (layer, head)."""
Shading = tuple[dict[Place, Sequence[Token]], dict[tuple[int, int, int, int], tuple[int, Floats]]]


def shading(
    plan: Plan,
    model: Model,
    wanted: Mapping[Place, Iterable[ScanExample]],
    *,
    told: Callable[[float], None] = lambda share: None,
) -> Shading:
    """The tokens of each text by (file, line); by (file, line, layer, head) the token that looks, and its weights.

    wanted: the examples of each (layer, head). The token is that of the head's strongest link in the text. Texts of
    more than `LONGEST` tokens are left out.
    """
    assert isinstance(model.store, CheckpointStore)
    model.store.for_many()
    held = replace(model, store=HeldStore(model.store))
    texts: dict[Place, str] = {}
    heads: dict[Place, set[Place]] = {}
    for place, examples in wanted.items():
        for one in examples:
            texts[one.file, one.line] = one.text
            heads.setdefault((one.file, one.line), set()).add(place)
    limit = min(plan.choice.max_tokens or 2**31, model.spec.max_positions or 2**31)
    tokens: dict[Place, Sequence[Token]] = {}
    looks: dict[tuple[int, int, int, int], tuple[int, Floats]] = {}
    for number, (text, chosen) in enumerate(heads.items()):
        told(number / len(heads))
        own = truncated(model.tokenizer.encode(texts[text]), limit)
        if not own or len(own) > LONGEST:
            continue
        tokens[text] = own
        layers = sorted({layer for layer, _ in chosen})
        for trace in held.trace(own, layers=layers, keep=("weights",)):
            weights = np.asarray(model.backend.numpy(trace.stages["weights"]), np.float64)[..., : len(own)]
            for layer, head in chosen:
                if layer == trace.layer:
                    query = int(weights[head].max(-1).argmax())
                    looks[*text, layer, head] = (query, weights[head, query])
    told(1.0)
    return tokens, looks
