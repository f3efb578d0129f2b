"""Effects by name, for Python: `attncli.ablate`, `attncli.logits`, `attncli.patch`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from attncli.arrays.backend import EVERY, Selection, numbers_of
from attncli.errors import UsageError
from attncli.features.effects.ablation import Removal, choose_backend
from attncli.features.effects.changes import By, ByMean, ByZero, CutLink, means_of, resample_from
from attncli.features.effects.document import Measure
from attncli.features.effects.measures import MeasureRequest, target_id
from attncli.features.effects.patching import PatchRequest
from attncli.features.effects.places import HeadSelection, most_heads
from attncli.inputs.token import Token, find_span, refuse_unknown
from attncli.mechanism.spec import Spec
from attncli.models.model import Model

if TYPE_CHECKING:
    from attncli.features.effects.document import AblateDocument, LogitsDocument, PatchDocument


def ablate(
    model: Model,
    text: str,
    *,
    by: Literal["zero", "mean", "resample"] = "zero",
    reference: str | Sequence[str] | None = None,
    link: tuple[str, str] | None = None,
    layers: Selection = EVERY,
    heads: Selection = EVERY,
    together: bool = False,
    measures: Sequence[Measure] = ("vector",),
    query: str | None = None,
    target: str | None = None,
    every: bool = False,
    unknown: bool = False,
    baseline: Literal["top", "all", "none"] = "top",
    top: int = 10,
    memory: int | None = None,
) -> AblateDocument:
    """Take heads away one at a time, and all at once, or cut a link; what changes at the end of the model.

    model: as `attncli.load` returns it. by: what stands for a head; reference: the text, or for a mean the texts, that
    it comes from. link: the two tokens of a link to cut instead. layers, heads: which. measures: "vector"
    turns, "logprob", "kl". query: the token to measure at, such as "it", "the:2" or "#7". target: a vocabulary entry,
    or "id:N". unknown: whether link and query may be tokens that the model does not know. baseline: which rows are
    compared with random changes of the same size. memory: bytes there may be.

    Returns what `attn ablate --json` writes. Raises AttnError's children, as the command does.
    """
    from attncli.features.effects.ablation import ablate_document

    tokens = model.encode(text)
    cut_link = None if link is None else CutLink(_span(tokens, link[0], unknown), _span(tokens, link[1], unknown))
    where = None if query is None else _span(tokens, query, unknown)
    request = MeasureRequest.of(
        model,
        tokens,
        measures,
        query=where,
        usual=None if cut_link is None else cut_link.queries,
        target=target,
        every=every,
    )
    removal = Removal(
        _select_heads(model.spec, layers, heads), _by(model, by, reference), cut_link, together, baseline, top
    )
    return ablate_document(model, text, tokens, removal, request, memory=memory)


def logits(
    model: Model,
    text: str,
    *,
    target: str | None = None,
    versus: str | None = None,
    query: str | None = None,
    unknown: bool = False,
) -> LogitsDocument:
    """What the embedding, each head and each feed-forward part add to a next token's logit.

    target, versus: vocabulary entries, or "id:N"; the model's own first choice, and no other, by default. query: after
    which token, the last by default; unknown: whether it may be one that the
    model does not know. Returns what `attn logits --json` writes.
    """
    from attncli.features.effects.logit_parts import logits_document

    tokens = model.encode(text)
    position = len(tokens) - 1 if query is None else _span(tokens, query, unknown)[-1]
    ids = [None if name is None else target_id(model, name) for name in (target, versus)]
    return logits_document(model, text, tokens, position, ids[0], ids[1])


def patch(
    model: Model,
    clean: str,
    corrupt: str,
    *,
    target: str | None = None,
    versus: str | None = None,
    query: str | None = None,
    at: Sequence[str] | None = None,
    unknown: bool = False,
    layers: Selection = EVERY,
    heads: Selection = EVERY,
    memory: int | None = None,
) -> PatchDocument:
    """Which heads carry the difference between two texts: each one's part of `clean` put into `corrupt`.

    at: the tokens that get it, None for all; the other arguments as of `ablate`. Without a target the cosine to the
    clean vector is measured. Returns what `attn patch --json` writes.
    """
    from attncli.features.effects.patching import patch_document

    tokens = [model.encode(text) for text in (clean, corrupt)]
    patching = PatchRequest.of(
        model,
        tokens[0],
        _select_heads(model.spec, layers, heads),
        positions=(place for name in at or () for place in _span(tokens[0], name, unknown)),
        query=None if query is None else _span(tokens[0], query, unknown),
        target=target,
        versus=versus,
    )
    return patch_document(model, (clean, tokens[0]), (corrupt, tokens[1]), patching, memory=memory)


def _by(model: Model, by: str, reference: str | Sequence[str] | None) -> By:
    texts = [reference] if isinstance(reference, str) else list(reference or ())
    match by:
        case "zero" if not texts:
            return ByZero()
        case "mean":
            return ByMean(means_of(choose_backend(model, model.encode(text), []) for text in texts) if texts else None)
        case "resample" if len(texts) == 1:
            return resample_from(choose_backend(model, model.encode(texts[0]), []))
        case _:
            raise UsageError(
                f"by is {by!r} with {len(texts)} reference texts",
                expected="zero with none, mean with any number, resample with one",
            )


def _select_heads(spec: Spec, layers: Selection, heads: Selection) -> HeadSelection:
    return HeadSelection(numbers_of(layers, len(spec.blocks)), numbers_of(heads, most_heads(spec)))


def _span(tokens: Sequence[Token], name: str, allow_unknown: bool) -> tuple[int, ...]:
    span = find_span(tokens, name)
    if not allow_unknown:
        refuse_unknown(tokens, span, name)
    return tuple(range(span.first, span.stop))
