"""The document of `attn run --generate`, and how it comes about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from os.path import commonprefix
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, SCORE_ITEM, Array, Selection, is_selected, numbers_of
from attncli.arrays.numpy_backend import integers
from attncli.documents import (
    Count,
    Header,
    Numbers,
    Part,
    PlacedHead,
    RegionRow,
    Regions,
    TokenRow,
    Weight,
    axes,
    describe,
    index_of,
)
from attncli.documents.header import header, notes, token_rows
from attncli.documents.parts import NextToken, Weighed
from attncli.errors import LimitError, UnsupportedError, UsageError
from attncli.features.effects.targets import likeliest_tokens
from attncli.features.effects.weighing import Weighing, find_weighing, weighing_notes
from attncli.inputs.regions import REST, Region
from attncli.inputs.token import Token, ignore
from attncli.language import listing, message
from attncli.measure.rest import Bools, resting_keys
from attncli.measure.row_facts import Floats
from attncli.mechanism.attend import span
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.context import NO_INTERVENTIONS, Past
from attncli.mechanism.head_choice import NamedHeads, pairs_or_all
from attncli.mechanism.spec import state_size
from attncli.models import run
from attncli.models.estimate import estimate
from attncli.models.model import Model

Context = Annotated[Weight, describe("Attention on the prompt.")]
Generated = Annotated[
    Weight, describe("Attention on what was generated, the token itself included.")
]
Lookback = Annotated[Weight, describe("context / (context + generated).")]
LookbackPerKey = Annotated[Weight, describe("The same of the means per key (Chuang et al. 2024).")]

RegionShares = Annotated[Numbers, axes("region", meaning="attention on each region of the prompt.")]
EvenShares = Annotated[
    Numbers, axes("region", meaning="even attention's: the region's share of the keys it sees.")
]


Rested = Annotated[
    Weight,
    describe(
        "Of trained weights: attention on those keys of the prompt where heads rest whatever the"
        " text says: the first token, special tokens, line breaks and separators."
    ),
]


class TopKey(Part, frozen=True, kw_only=True):
    """The key with the most weight."""

    key: Annotated[Count, index_of("text")]
    weight: Weight


class StepHead(PlacedHead, frozen=True, kw_only=True):
    """Where one head looks while a token is chosen."""

    context: Context
    generated: Generated
    lookback: Lookback
    lookback_per_key: LookbackPerKey
    top: TopKey
    weights: Annotated[
        Numbers | UnsetType,
        axes("", meaning="[key]: the token's row over the prompt and what was generated."),
    ] = UNSET
    regions: RegionShares | UnsetType = UNSET
    rest: Rested | UnsetType = UNSET
    top_beyond_rest: Annotated[
        TopKey | UnsetType | None,
        describe("The same without keys where heads rest and the token itself; null without any."),
    ] = UNSET


class GenerateStep(Part, frozen=True, kw_only=True):
    """One new token; shares are means over the layers and heads kept."""

    token: Annotated[Count, index_of("text", "Position of the new token.")]
    probability: Annotated[
        Weight, describe("Its probability when it was chosen, at the temperature used.")
    ]
    likeliest: Annotated[
        list[NextToken] | UnsetType, describe("The likeliest tokens there, the first first.")
    ] = UNSET
    heads: Annotated[list[StepHead], Meta(min_length=1)]
    context: Context
    generated: Generated
    lookback: Lookback
    lookback_per_key: LookbackPerKey
    regions: RegionShares | UnsetType = UNSET
    even: EvenShares | UnsetType = UNSET
    rest: Rested | UnsetType = UNSET
    regions_beyond_rest: Annotated[
        Numbers | UnsetType,
        axes("region", meaning="attention on each region's keys where heads do not rest."),
    ] = UNSET
    even_beyond_rest: Annotated[
        Numbers | UnsetType, axes("region", meaning="even attention's share of the same keys.")
    ] = UNSET
    even_rest: Annotated[
        Weight | UnsetType,
        describe("With regions: even attention's share of the keys where heads rest."),
    ] = UNSET


class GenerateDocument(Header, tag="attn.generate/1", frozen=True, kw_only=True):
    """A text continued by a decoder. Positions, layers and heads count from 0."""

    generated: Annotated[
        list[TokenRow],
        axes("generated", meaning="positions go on from the prompt's, characters from its text's."),
    ]
    continuation: Annotated[
        str, describe("What the new tokens say after the text, blanks included.")
    ]
    temperature: Annotated[float, describe("0 for the likeliest token each time.")]
    sample_seed: Annotated[int | None, describe("Seed of the draws; null without any.")]
    ended: Annotated[
        bool, describe("Whether the text ended by itself, at a token that ends texts.")
    ]
    steps: Annotated[list[GenerateStep], axes("generated", meaning="one per new token, in order.")]
    regions: Regions | UnsetType = UNSET
    weighed: Annotated[
        Weighed | UnsetType, describe("With --weigh: the keys whose weights are multiplied.")
    ] = UNSET
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Faults as (field, message), unless random draws have a seed, and nothing else has."""
        yield from super().validation_errors()
        if (self.temperature > 0) != (self.sample_seed is not None):
            yield "sample_seed", message("draws without a seed, or a seed without draws")

    def lengths(self) -> Mapping[str, int | range]:
        """How long axes are: the tokens of the prompt, those generated, and both."""
        prompt = len(self.tokens)
        new = len(self.generated)
        if self.regions is UNSET:
            regions = 0
        else:
            regions = len(self.regions)
        return {**super().lengths(), "generated": new, "text": prompt + new, "region": regions}


NEAR = 16
"""Tokens before one that tell how it is joined to them: more than make one character."""


class GenerateRequest(Struct, frozen=True):
    """How a text is continued.

    count: how many tokens at most.
    temperature: 0 takes the likeliest token; above, the logits are divided by it and a token is
        drawn.
    seed: of the draws, one per position.
    layers, heads: whose attention is kept.
    rows: whether the weights themselves are held.
    regions: of the prompt, to each of which the weights are summed.
    weighing: which keys' weights are multiplied, and by which factor; None for none.
    """

    count: int
    temperature: float = 0.0
    seed: int = 0
    layers: Selection = EVERY
    heads: Selection = EVERY
    rows: bool = False
    regions: tuple[Region, ...] = ()
    weighing: Weighing | None = None


@checked
def generate(
    model: Model,
    text: str,
    count: int,
    *,
    temperature: float = 0.0,
    seed: int = 0,
    layers: Selection = EVERY,
    heads: Selection = EVERY,
    rows: bool = True,
    regions: Sequence[Region] = (),
    weigh: str | None = None,
    weigh_in: NamedHeads | None = None,
    tokens: Sequence[Token] | None = None,
    past: Past | None = None,
    note: Callable[[str], None] = ignore,
    progress: Callable[[float], None] = ignore,
) -> GenerateDocument:
    """Continue a text with a decoder, and say where each head looks while it does.

    Args:
        model: A decoder, as `attncli.load` returns it.
        text: What is continued.
        count: How many tokens at most; it ends early where the model ends its text.
        temperature: 0 takes the likeliest token; above, the logits are divided by it and a token is
            drawn.
        seed: Of the draws.
        layers: Whose attention the document holds: a number, several, or a text such as "0,2-5";
            see `HeadSelection`.
        heads: Which heads of each: 11, [0, 3], "2-5"; or heads with their layers, "L5H11" or
            (5, 11); see `HeadSelection`.
        rows: Whether it holds the weights themselves, and not their sums alone.
        regions: Named sets of the prompt's tokens, as `attncli.inputs.regions.find_regions` returns
            them: of each new token it is then told how much it looks at each.
        weigh: A region or word of the prompt and a factor, such as "document=×4", by which
            attention on it is multiplied before rows are scaled.
        weigh_in: The heads in which that is done, with their layers: "L5H11" or (5, 11), several
            as "L5H11,L3H1" or in a list; None for all.
        tokens: Those of the text; None to let the model's tokenizer find them.
        past: {} to be filled with the keys and values of all tokens, for who goes on with them.
        note: Called with a sentence that says what an ambiguous name was read as.
        progress: Called with the share done, 0 to 1.

    Returns:
        What `attn run --generate --json` writes. A head's `lookback` is the share of its attention
        on the prompt.

    Raises:
        UsageError: For a past that is filled already.
        UnsupportedError: For a model that is no decoder.
        LimitError: For more tokens than it has positions.
    """
    if past:
        raise UsageError("past holds something already", expected="past={}, which is filled")
    if tokens is None:
        tokens = model.encode(text)
    weighing = None
    if weigh is not None:
        weighed_heads = pairs_or_all(model.spec, weigh_in)
        weighing = find_weighing(weigh, tokens, regions, heads=weighed_heads, note=note)
    request = GenerateRequest(
        count, temperature, seed, layers, heads, rows, tuple(regions), weighing
    )
    return _continue_text(model, text, tokens, request, past=past, progress=progress)


def _continue_text(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    request: GenerateRequest,
    *,
    past: Past | None = None,
    progress: Callable[[float], None] = ignore,
) -> GenerateDocument:
    """Continue a text and return its `attn.generate/1` document.

    past: an empty dictionary, which is filled with the keys and values of all tokens, so that the
        caller can go on with them; None where that is not wanted.
    progress: called with the share of the new tokens that is done.

    Every new token asks as a query over the prompt and what was generated, itself included. Its
    lookback is context/(context + generated): the share of its attention that lies on the prompt.
    Source: Chuang et al., Lookback Lens, 2024, who take the means per key of both parts in place of
    the sums; that number is `lookback_per_key`.

    Generation ends early at a token that ends the model's own texts (`Model.ends`), or at a special
    token of a model that names none. Keys and values of earlier tokens are kept, so each token
    costs one row, but where a longer text turns them otherwise (LongRoPE where its factors change,
    dynamic NTK at every token past its first length): then all tokens are run anew, so that a
    continuation has the numbers of the whole text. Raises UnsupportedError for a model that is no
    decoder, LimitError for more tokens than it has positions.
    """
    _refuse_continuation(model, len(tokens), request.count)
    if past is None:
        past = {}
    logits = _run_tokens(model, tokens, past, request)
    rest = resting_keys(tokens, model.identity.source)  # booleans, [key of the prompt]
    measured_regions = _with_rest(request.regions, rest)
    steps: list[GenerateStep] = []
    new: list[Token] = []
    has_ended = False
    for number in range(request.count):
        # choose the next token from what is likely now
        token, probability = _choose_token(model, logits, len(tokens) + number, request)
        likeliest = _likeliest(model, logits, request)
        new.append(token)

        # run it, alone or with all tokens before it, and measure where heads look from it
        running = [token]
        if not run.keeps_past(model.spec, token.index, token.index + 1):
            past = {}  # the kept keys, the caller's too, do not fit the longer text
            running = [*tokens, *new]
        looking = _Looking(len(tokens), rest, measured_regions, heads=[], shares=[], evens=[])
        logits = _run_tokens(model, running, past, request, looking)
        steps.append(looking.step(token, probability, likeliest, len(request.regions)))
        progress((number + 1) / request.count)
        is_end = token.special  # counts where the model does not say what ends its texts
        if model.ends:
            is_end = token.id in model.ends
        if is_end:
            has_ended = True
            break
    continuation, spans = continuation_text(model, tokens, new)
    return GenerateDocument(
        **header(model, text, tokens),
        # a special token has no span in the text
        generated=token_rows(
            replace(token, start=len(text) + start, end=len(text) + end) if start < end else token
            for token, (start, end) in zip(new, spans, strict=True)
        ),
        continuation=continuation,
        temperature=request.temperature,
        sample_seed=request.seed if request.temperature > 0 else None,
        ended=has_ended,
        steps=steps,
        regions=[
            RegionRow(name=region.name, tokens=list(region.tokens)) for region in request.regions
        ]
        or UNSET,
        weighed=UNSET if request.weighing is None else request.weighing.part(),
        warnings=[*notes(model, text, tokens), *weighing_notes(request.weighing)],
    )


def memory(model: Model, prompt: int, request: GenerateRequest) -> int:
    """About how many bytes continuing a prompt takes at the peak, estimated before it starts.

    prompt: how many tokens it has.
    """
    spec = model.spec
    longest = prompt + request.count
    compute_dtype = model.compute_backend(prompt).dtype
    cache_width = sum(
        block.attention.kv_heads * (block.attention.head_dim + block.attention.v_dim)
        for block in spec.blocks
    )
    states = sum(state_size(block.mixer) for block in spec.blocks if block.mixer is not None)
    heads = 0  # whose rows of weights are held
    if request.rows:
        heads = sum(block.attention.heads for block in spec.blocks)
    prompt_bytes = estimate(spec, prompt, kept_stages=0, dtype=compute_dtype).peak
    # beside the prompt's run: states and caches, the output head with two numbers (such as a logit)
    # for each entry of the vocabulary, and the rows
    numbers = (
        states
        + longest * cache_width
        + spec.vocabulary * (spec.d_model + 2)
        + request.count * longest * heads
    )
    return prompt_bytes + numbers * SCORE_ITEM[compute_dtype]


def _refuse_continuation(model: Model, prompt: int, count: int) -> None:
    """Raise UnsupportedError for a model that is no decoder, LimitError where `count` tokens after
    `prompt` ones are more than it has positions."""
    # of two tokens, a decoder's first query sees the first key alone
    if any(span(block.attention.mask, 0, 0, 2) != (0, 1) for block in model.spec.blocks):
        raise UnsupportedError(
            "this {family} model does not continue texts: its tokens see later ones (mask {mask})",
            expected="a decoder with its own mask, such as gpt2 or llama",
            hint="" if model.spec.decoder is None else "--source TEXT, whose answer is continued",
            family=model.spec.family,
            mask=listing(dict.fromkeys(block.attention.mask.spec() for block in model.spec.blocks)),
        )
    limit = model.spec.max_positions
    if limit is not None and prompt + count > limit:
        raise LimitError(
            "{prompt} tokens and {count} new ones are more than the model's {limit} positions",
            hint=f"--generate {max(limit - prompt, 0)}",
            prompt=prompt,
            count=count,
            limit=limit,
        )


def _with_rest(regions: Sequence[Region], rest: Bools) -> list[Region]:
    """The regions to measure: those asked for, then each of them without the keys where heads rest,
    then these keys as a region of their own; empty where none are asked for.

    rest: the keys where heads rest whatever a text says (the first token, special tokens,
        separators), booleans [key].
    """
    if not regions:
        return []
    bare_regions = [
        replace(region, tokens=tuple(key for key in region.tokens if not rest[key]))
        for region in regions
    ]
    return [*regions, *bare_regions, Region(REST, tuple(np.flatnonzero(rest).tolist()))]


class _Looking(NamedTuple):
    """Measures where heads look from one new token, and collects what it measures.

    prompt: how many keys are the prompt's, which come first.
    rest: on which of these heads rest, booleans [key].
    regions: those that `_with_rest` gives.
    heads, shares, evens: empty lists, to which each head adds its entry, its weight on each region,
        and what even attention would put there, [region].
    """

    prompt: int
    rest: Bools
    regions: Sequence[Region]
    heads: list[StepHead]
    shares: list[Floats]
    evens: list[Floats]

    def step_head(self, layer: int, head: int, row: Floats, request: GenerateRequest) -> StepHead:
        """The document's entry on where a head looks from the new token; adds its weight on each
        region to `shares`.

        row: the token's weights in this head, [key].
        """
        context = float(row[: self.prompt].sum())
        generated_share = float(row[self.prompt :].sum())
        key = int(row.argmax())
        shares = np.array([row[list(region.tokens)].sum() for region in self.regions])
        self.shares.append(shares)
        step = StepHead(
            layer=layer,
            head=head,
            context=context,
            generated=generated_share,
            lookback=context_share(context, generated_share),
            lookback_per_key=context_share(
                context / self.prompt, generated_share / (row.size - self.prompt)
            ),
            top=TopKey(key=key, weight=float(row[key])),
            weights=row if request.rows else UNSET,
            regions=shares[: len(request.regions)] if request.regions else UNSET,
        )
        if not self.rest.any():
            return step

        # the same without keys where heads rest: on which they put weight whatever a text says
        beyond = row.copy()
        beyond[: self.prompt][self.rest] = 0.0
        beyond[-1] = 0.0  # the token itself
        top = int(beyond.argmax())
        top_key = None
        if beyond[top] > 0:
            top_key = TopKey(key=top, weight=float(beyond[top]))
        rested = float(row[: self.prompt][self.rest].sum())
        return replace(step, rest=rested, top_beyond_rest=top_key)

    def step(
        self, token: Token, probability: float, likeliest: list[NextToken], count: int
    ) -> GenerateStep:
        """The document's entry on the new token, after all heads have added theirs: means over these.

        probability: of the token, when it was chosen.
        likeliest: the likeliest tokens there.
        count: how many regions are asked for.
        """
        heads = self.heads
        means = [(head.context, head.generated, head.lookback_per_key) for head in heads]
        context, generated_share, per_key = (float(value) for value in np.mean(means, 0))
        # of each head [region]; `evens` are of all measured regions, those asked for first
        region_shares = [head.regions for head in heads if head.regions is not UNSET]
        return GenerateStep(
            token=token.index,
            probability=probability,
            likeliest=likeliest,
            heads=heads,
            context=context,
            generated=generated_share,
            lookback=context_share(context, generated_share),
            lookback_per_key=per_key,
            regions=np.mean(region_shares, 0) if region_shares else UNSET,
            even=np.mean(self.evens, 0)[:count] if self.evens else UNSET,
            **self.beyond_rest(count),
        )

    def beyond_rest(self, count: int) -> dict[str, Any]:
        """The members of a step, by name, that separate keys where heads rest (the first token and
        the like) from the others, as means over heads; {} where there are no such keys.

        count: how many regions are asked for.
        """
        rested = [head.rest for head in self.heads if head.rest is not UNSET]
        if not rested:
            return {}
        members: dict[str, Any] = {"rest": float(np.mean(rested))}
        # `shares` and `evens` are [head, region]: the regions asked for, each of them without the
        # keys where heads rest, and last these keys
        if count:
            evens = np.mean(self.evens, 0)
            members["regions_beyond_rest"] = np.mean(self.shares, 0)[count : 2 * count]
            members["even_beyond_rest"] = evens[count : 2 * count]
            members["even_rest"] = float(evens[2 * count])
        return members


def _run_tokens(
    model: Model,
    tokens: Sequence[Token],
    past: Past,
    request: GenerateRequest,
    looking: _Looking | None = None,
) -> Floats:
    """Run tokens after those in `past`, and return the logits of the token after the last,
    [vocabulary].

    looking: measures where each head looks from the last token; None where that is not wanted.
    """
    last = len(model.spec.blocks) - 1
    after: Array | None = None  # the vectors that leave the last layer, [token, width]
    keep: tuple[str, ...] = ()
    if looking is not None and request.regions:
        keep = ("weights", "masked")
    elif looking is not None:
        keep = ("weights",)
    changes = NO_INTERVENTIONS
    if request.weighing is not None:
        changes = request.weighing.interventions(model.spec)
    for trace in model.trace(list(tokens), past=past, keep=keep, interventions=changes, idle=True):
        attends = not model.spec.blocks[trace.layer].instead
        is_asked = attends and is_selected(request.layers, trace.layer)
        if looking is not None and is_asked:
            # of the last token alone, [head, key]
            weights = np.asarray(model.backend.numpy(trace.stages["weights"]), np.float64)[:, -1, :]
            head_numbers = numbers_of(request.heads, weights.shape[0])
            for head in head_numbers:
                looking.heads.append(looking.step_head(trace.layer, head, weights[head], request))
            if request.regions:
                # a masked score is not finite; without such scores nothing is masked
                sees = np.ones(weights.shape, bool)
                if "masked" in trace.stages:
                    sees = np.isfinite(model.backend.numpy(trace.stages["masked"])[..., -1, :])
                looking.evens.extend(
                    _even_shares(row, looking.regions)
                    for row in np.broadcast_to(sees, weights.shape)[head_numbers]
                )
        if trace.layer == last:
            after = trace.after
    assert after is not None
    return np.asarray(model.backend.numpy(model.logits(after[-1:])), np.float64)[-1]


def _even_shares(sees: np.ndarray[Any, np.dtype[np.bool_]], regions: Sequence[Region]) -> Floats:
    """The share of its weight that a query would put on each region if it spread its weight evenly
    over the keys that it sees, [region]; 0 for a query that sees none.

    sees: booleans [key].
    """
    return np.array([sees[list(region.tokens)].sum() / max(sees.sum(), 1) for region in regions])


def context_share(context: float, generated_share: float) -> float:
    """context / (context + generated), the lookback ratio: the share of a head's attention that is
    on the prompt; 0 where both are 0."""
    if context + generated_share > 0:
        return context / (context + generated_share)
    return 0.0


LIKELIEST = 3
"""Tokens that are told of each step, the likeliest."""


def _probabilities(logits: Floats, request: GenerateRequest) -> Floats:
    """The probabilities of all next tokens at the temperature used, at 1 where that is 0,
    [vocabulary]."""
    scaled = logits / (request.temperature or 1.0)
    exponentials = np.exp(scaled - scaled.max())
    shares: Floats = exponentials / exponentials.sum()
    return shares


def _likeliest(model: Model, logits: Floats, request: GenerateRequest) -> list[NextToken]:
    """The likeliest next tokens at the temperature used."""
    return likeliest_tokens(model, _probabilities(logits, request), LIKELIEST)


def _choose_token(
    model: Model, logits: Floats, position: int, request: GenerateRequest
) -> tuple[Token, float]:
    """The next token, the likeliest at temperature 0, else drawn, and its probability at that
    temperature, or at 1 where it is 0.

    logits: of each entry of the vocabulary, [vocabulary].
    position: which the new token will have; it makes each draw another.
    """
    shares = _probabilities(logits, request)
    if request.temperature > 0:
        # a number between 0 and 1 that seed and position fix, looked up in the cumulated shares
        # (`integers` gives whole numbers below 2³²; half of one more keeps 0 out)
        draw = (float(integers(request.seed, f"sample\0{position}", 1)[0]) + 0.5) / 2**32
        place = int(np.searchsorted(np.cumsum(shares), draw))
        token_id = min(place, shares.size - 1)  # rounding may leave the last sum below the draw
    else:
        token_id = int(logits.argmax())
    (entry,) = model.tokenizer.ids_to_tokens([token_id])
    return replace(entry, index=position), float(shares[token_id])


def continuation_text(
    model: Model, prompt: Sequence[Token], new: Sequence[Token]
) -> tuple[str, list[tuple[int, int]]]:
    """The text that the new tokens add after the prompt, blanks included, and the span of each token
    in it as (start, end). A special token has an empty span; the tokens of one character share its
    span.
    """
    ids = [token.id for token in (*prompt, *new) if token.id is not None]
    text = ""
    spans = []
    for index, token in enumerate(new, len(ids) - len(new)):
        # what a token adds depends on those before it: decode these alone, then with it
        near = ids[max(index - NEAR, 0) : index]
        before = model.tokenizer.text_of(near)
        now = model.tokenizer.text_of([*near, ids[index]])
        # a character's last byte takes the place of U+FFFD: what `before` ends with, and `now` does not
        # have, is taken from the text again
        common = len(commonprefix([before, now]))  # noqa: RUF071 - characters, not folders
        text = text[: max(len(text) - len(before) + common, 0)]
        start = len(text)
        text += now[common:]
        # one more byte of an unfinished character, which stands as one U+FFFD at the text's end
        if not token.special and start == len(text) and text.endswith("\ufffd"):
            start -= 1
        spans.append((start, len(text)))
    return text, spans
