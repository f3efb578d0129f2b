"""The document of `attn run --generate`: a decoder continues a text, and each new token's attention is looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import UNSET, Struct
from msgspec.structs import replace

from attncli.analysis.document import header, notes, token_rows
from attncli.analysis.documents.generate import GenerateDocument, GenerateStep, StepHead, TopKey
from attncli.analysis.visible_keys import Floats
from attncli.arrays.backend import SCORE_ITEM, Array
from attncli.arrays.selection import EVERY, Selection, is_selected, selected
from attncli.errors import LimitError, UnsupportedError
from attncli.inputs.token import Token
from attncli.mechanism.key_range import span
from attncli.mechanism.random_streams import integers
from attncli.models.estimate import estimate
from attncli.models.model import Model

NEAR = 16
"""Tokens before one that tell how it is joined to them: more than make one character."""


class Continuing(Struct, frozen=True):
    """How a text is continued.

    count: how many tokens at most. temperature: 0 takes the likeliest token; above, the logits are
    divided by it and a token is drawn. seed: of the draws, one per position. layers, heads: whose
    attention is kept. rows: whether the weights themselves are held.
    """

    count: int
    temperature: float = 0.0
    seed: int = 0
    layers: Selection = EVERY
    heads: Selection = EVERY
    rows: bool = False


def generated_document(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    wanted: Continuing,
    *,
    progress: Callable[[float], None] | None = None,
) -> GenerateDocument:
    """Continue a text and return its `attn.generate/1` document.

    Every new token asks as a query over the prompt and what was generated, itself included. Its
    lookback is context/(context + generated): the share of its attention that lies on the prompt.
    Source: Chuang et al., Lookback Lens, 2024, who take the means per key of both parts in place of
    the sums; that number is `lookback_per_key`.

    Generation ends early at a token that ends the model's own texts (`Model.ends`), or at a special token of a model
    that names none. Keys and values of earlier tokens are kept, so each
    token costs one row. Raises UnsupportedError for a model that is no decoder, LimitError for more
    tokens than it has positions.
    """
    _check(model, len(tokens), wanted.count)
    past: dict[int, tuple[Array, Array]] = {}
    logits = _step(model, tokens, past, None, wanted)
    steps: list[GenerateStep] = []
    new: list[Token] = []
    ended = False
    for number in range(wanted.count):
        token, probability = _chosen(model, logits, len(tokens) + number, wanted)
        new.append(token)
        heads: list[StepHead] = []
        logits = _step(model, [token], past, heads, wanted, prompt=len(tokens))
        means = [(head.context, head.generated, head.lookback_per_key) for head in heads]
        context, generated, per_key = (float(value) for value in np.mean(means, 0))
        steps.append(
            GenerateStep(
                token=token.index,
                probability=probability,
                heads=heads,
                context=context,
                generated=generated,
                lookback=_share(context, generated),
                lookback_per_key=per_key,
            )
        )
        if progress is not None:
            progress((number + 1) / wanted.count)
        if token.id in model.ends if model.ends else token.special:
            ended = True
            break
    said, spans = continued(model, tokens, new)
    return GenerateDocument(
        **header(model, text, tokens),
        generated=token_rows(
            replace(token, start=len(text) + start, end=len(text) + end) if start < end else token
            for token, (start, end) in zip(new, spans, strict=True)
        ),
        continuation=said,
        temperature=wanted.temperature,
        sample_seed=wanted.seed if wanted.temperature > 0 else None,
        ended=ended,
        steps=steps,
        warnings=notes(model, text, tokens),
    )


def memory(model: Model, prompt: int, wanted: Continuing) -> int:
    """About how many bytes continuing `prompt` tokens takes at the peak, estimated before it starts."""
    spec, longest = model.spec, prompt + wanted.count
    computed = model.computing(prompt).dtype
    kept = sum(block.attention.kv_heads * (block.attention.head_dim + block.attention.v_dim) for block in spec.blocks)
    heads = sum(block.attention.heads for block in spec.blocks) if wanted.rows else 0
    asked = estimate(spec, prompt, kept=0, dtype=computed).peak
    return (
        asked
        + (longest * kept + spec.vocabulary * (spec.d_model + 2) + wanted.count * longest * heads)
        * SCORE_ITEM[computed]
    )


def _check(model: Model, prompt: int, count: int) -> None:
    # a decoder's first query sees no later key
    if any(span(block.attention.mask, 0, 0, 2) != (0, 1) for block in model.spec.blocks):
        raise UnsupportedError(
            f"a {model.spec.family} model does not continue texts: its tokens see later ones",
            expected="a decoder, such as gpt2 or llama",
            hint="" if model.spec.decoder is None else "--source TEXT, whose answer is continued",
        )
    limit = model.spec.max_positions
    if limit is not None and prompt + count > limit:
        raise LimitError(
            f"{prompt} tokens and {count} new ones are more than the model's {limit} positions",
            hint=f"--generate {max(limit - prompt, 0)}",
        )


def _step(
    model: Model,
    tokens: Sequence[Token],
    past: dict[int, tuple[Array, Array]],
    heads: list[StepHead] | None,
    wanted: Continuing,
    *,
    prompt: int = 0,
) -> Floats:
    """Run tokens after those in `past` and return the logits of the token after the last; adds each head's part to
    `heads`."""
    last = len(model.spec.blocks) - 1
    after: Array | None = None
    for trace in model.trace(list(tokens), past=past, keep=("weights",) if heads is not None else ()):
        if heads is not None and is_selected(wanted.layers, trace.layer):
            weights = np.asarray(model.backend.numpy(trace.stages["weights"]), np.float64)[:, -1, :]
            chosen = selected(wanted.heads, weights.shape[0])
            heads += [_head(trace.layer, head, weights[head], prompt, wanted.rows) for head in chosen]
        if trace.layer == last:
            after = trace.after
    assert after is not None
    return np.asarray(model.backend.numpy(model.logits(after[-1:])), np.float64)[-1]


def _head(layer: int, head: int, row: Floats, prompt: int, rows: bool) -> StepHead:
    context, generated = float(row[:prompt].sum()), float(row[prompt:].sum())
    key = int(row.argmax())
    return StepHead(
        layer=layer,
        head=head,
        context=context,
        generated=generated,
        lookback=_share(context, generated),
        lookback_per_key=_share(context / prompt, generated / max(row.size - prompt, 1)),
        top=TopKey(key=key, weight=float(row[key])),
        weights=row if rows else UNSET,
    )


def _share(context: float, generated: float) -> float:
    return context / (context + generated) if context + generated > 0 else 0.0


def _chosen(model: Model, logits: Floats, position: int, wanted: Continuing) -> tuple[Token, float]:
    """The next token and its probability at temperature 1, or at the one asked for."""
    scaled = logits / (wanted.temperature or 1.0)
    raised = np.exp(scaled - scaled.max())
    shares = raised / raised.sum()
    if wanted.temperature > 0:
        draw = (float(integers(wanted.seed, f"sample\0{position}", 1)[0]) + 0.5) / 2**32
        chosen = min(int(np.searchsorted(np.cumsum(shares), draw)), shares.size - 1)
    else:
        chosen = int(logits.argmax())
    (found,) = model.tokenizer.ids_to_tokens([chosen])
    return Token(position, found.text, chosen, None, None, found.special), float(shares[chosen])


def _alike(a: str, b: str) -> int:
    """How many characters both begin with."""
    return next((at for at, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))


def continued(model: Model, prompt: Sequence[Token], new: Sequence[Token]) -> tuple[str, list[tuple[int, int]]]:
    """What the new tokens say after the prompt, blanks included, and which characters of that each stands for: none
    for a special token; of a character made of several, each of them that one."""
    ids = [token.id for token in (*prompt, *new) if token.id is not None]
    said, spans = "", []
    for at, token in enumerate(new, len(ids) - len(new)):
        near = ids[max(at - NEAR, 0) : at]
        before, now = model.tokenizer.text_of(near), model.tokenizer.text_of([*near, ids[at]])
        kept = _alike(before, now)  # a character's last byte takes the place of U+FFFD
        said = said[: max(len(said) - len(before) + kept, 0)]
        start = len(said)
        said += now[kept:]
        inside = not token.special and start == len(said) and said.endswith("\ufffd")
        spans.append((start - inside, len(said)))
    return said, spans
