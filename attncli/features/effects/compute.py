"""Which heads matter: `attncli.ablate`, `attncli.logits`, `attncli.patch`, and `attn` commands of
these names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, Selection
from attncli.documents.header import header, notes, token_rows
from attncli.errors import InputError, UsageError
from attncli.features.effects.ablation import (
    Removal,
    look_beyond_rest,
    look_part,
    refuse_foreign,
    removal_document,
    source_token_rows,
    source_tokens,
    text_for_sweep,
)
from attncli.features.effects.ablation import effects_document as effects_document
from attncli.features.effects.document import (
    AblateDocument,
    LogitsDocument,
    LogitSource,
    Looks,
    Measure,
    PatchDocument,
    PatchRow,
    ToldHead,
    WordsPart,
)
from attncli.features.effects.logit_parts import (
    LogitTerm,
    lens_rows,
    logit_sources,
    part_row,
    run_attributor,
)
from attncli.features.effects.measures import MeasureRequest
from attncli.features.effects.patching import PatchRequest
from attncli.features.effects.patching import patch as run_patches
from attncli.features.effects.places import places
from attncli.features.effects.predictions import prediction_of
from attncli.features.effects.sweep import (
    DRAWS,
    By,
    ByMean,
    ByZero,
    CutLink,
    SweepSize,
    SweepText,
    means_of,
    pass_cost,
    resample_from,
    same_length,
)
from attncli.features.effects.targets import (
    Target,
    choose_target,
    refuse_one_token,
    small_note,
    target_token,
    target_tokens,
)
from attncli.features.effects.word_parts import deletion_curve, word_cost, word_sum
from attncli.inputs.regions import Region, region_tokens
from attncli.inputs.token import Token, choose_last_token, choose_span, ignore, quoted_entry
from attncli.inputs.word_groups import token_notes_of_two
from attncli.language import listing, message
from attncli.measure.rest import resting_keys
from attncli.measure.row_facts import Bools, Floats
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.spec import HeadSelection, most_heads
from attncli.models.estimate import CostEstimate, free_memory, with_held_weights
from attncli.models.model import Model
from attncli.models.passes import decoding_seconds

Which = Selection | HeadSelection
"""Which heads: numbers that count in every layer, or any heads by layer and number."""


@checked
def ablate(
    model: Model,
    text: str,
    *,
    by: Literal["zero", "mean", "resample"] | By = "zero",
    reference: str | Iterable[str] | None = None,
    link: tuple[str, str] | None = None,
    cross: bool = False,
    layers: Selection = EVERY,
    heads: Which = EVERY,
    together: bool = False,
    measures: Sequence[Measure] = ("vector",),
    query: str | None = None,
    target: str | None = None,
    versus: str | None = None,
    hold: Literal["attention"] | None = None,
    every: bool = False,
    unknown: bool = False,
    predict: bool = True,
    baseline: Literal["top", "all", "none"] = "top",
    top: int = 10,
    regions: Sequence[Region] = (),
    memory: int | None = None,
    tokens: Sequence[Token] | None = None,
    note: Callable[[str], None] = ignore,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
    progress: Callable[[float], None] = ignore,
) -> AblateDocument:
    """Ablate heads one at a time and all at once, or cut a link in them, and return how the model's
    last vectors or its next-token predictions change.

    Args:
        model: As `attncli.load` returns it.
        text: What runs.
        by: What stands for a head: nothing ("zero"), its mean, or what it makes of another text
            ("resample"); or what `removal` returns.
        reference: The text, or for a mean the texts, that it comes from; for a mean, None is this
            text itself.
        link: The two tokens, looking and looked at, of a link to cut in place of heads.
        cross: Whether the link is to the other text, which an encoder-decoder reads.
        layers: Which layers: a number, several, or a text such as "0,2-5"; see `HeadSelection`.
        heads: Which heads of each: 11, [0, 3], "2-5"; or any with their layers, "L5H11" or
            (5, 11), as a `HeadSelection` too, which then counts alone.
        together: Whether only what taking all of them away at once does is measured.
        measures: "vector" turns, "logprob" of the target, "kl" of all that may follow, "difference"
            of two logits.
        query: The token to measure at, such as "it", "the:2" or "#7"; None is the last token of a
            decoder and the mean of all tokens of an encoder.
        target: A vocabulary entry, or "id:N", or several tokens at the end of a text, whose
            log-probabilities are summed; None is the model's own first choice.
        versus: An entry whose logit is taken away from the target's; "difference" is measured then.
        hold: "attention" to measure "difference" a second time while every head attends as in the
            text's own run.
        every: Whether "logprob" is the mean over all positions.
        predict: Whether the document also has what a decoder would say next.
        unknown: Whether link and query may be tokens that the model does not know.
        baseline: Which rows are compared with random changes of the same size.
        top: How many rows "top" means.
        regions: Named sets of tokens, which link and query may name.
        memory: Bytes there may be; None for what is free.
        tokens: Those of the text; None to let the model's tokenizer find them.
        note: Called with a sentence that says what an ambiguous name was read as.
        on_cost: Called before the work starts, with its estimated cost and the number of tokens.
        progress: Called with the share done, 0 to 1.

    Returns:
        What `attn ablate --json` writes.

    Raises:
        UsageError: For arguments that contradict each other.
        InputError: For tokens or heads that are not there.
        UnsupportedError: For a measure that the model does not have.
        LimitError: For what memory does not hold.
    """
    if tokens is None:
        tokens = model.encode(text)
    measures = _measures_with(measures, target, versus, hold)
    if every and (target is not None or (query is not None and "vector" not in measures)):
        raise UsageError(
            "every token that follows is measured, and one is named",
            expected="every, or target and query",
        )

    # what is measured, and where: at the link's queries unless another token is named
    cut_link: CutLink | None = None
    usual = None  # the positions to measure at where no query is named; None for the model's own
    if link is not None:
        cut_link = _link_to_cut(
            model, tokens, link, note, cross=cross, unknown=unknown, regions=regions
        )
        usual = cut_link.queries
    query_positions = None
    if query is not None:
        query_positions = _named_positions(tokens, query, note, unknown=unknown, regions=regions)
    request = MeasureRequest.of(
        model,
        tokens,
        measures,
        query=query_positions,
        usual=usual,
        target=target,
        every=every,
        versus=versus,
        note=note,
    )
    if request.answer:
        note(
            message(
                "{target} is {count} tokens, {pieces}: their log-probabilities are added",
                target=repr(target),
                count=len(request.answer),
                pieces=listing(
                    quoted_entry(entry.text) for entry in target_tokens(model, request.answer)
                ),
            )
        )

    # which heads are taken away, what replaces them, and what that costs
    if isinstance(heads, HeadSelection):
        selection = heads
    else:
        selection = HeadSelection(layers, heads)
    if isinstance(by, str):
        replacement = removal(model, by, reference)
    else:
        replacement = by
    if not together:
        # how many heads are compared with random changes
        all_heads = len(model.spec.blocks) * most_heads(model.spec)
        compared = {"none": 0, "top": top, "all": all_heads}[baseline]
        _tell_cost(
            model,
            len(tokens),
            selection,
            memory,
            on_cost,
            predicts=request.predicts,
            compared=compared,
            passes=2 if hold else 1,
        )
    return removal_document(
        model,
        text,
        tokens,
        Removal(
            selection=selection,
            by=replacement,
            link=cut_link,
            together=together,
            baseline=baseline,
            top=top,
            hold=hold is not None,
        ),
        request,
        predict=predict,
        memory=memory,
        progress=progress,
    )


def _measures_with(
    measures: Sequence[Measure], target: str | None, versus: str | None, hold: str | None
) -> Sequence[Measure]:
    """The measures to take: those given, but in place of the default, ("vector",), "difference" with
    `versus` and "logprob" with a target, as in the command.

    Raises UsageError where "difference", `target`, `versus` or `hold` lacks what it needs.
    """
    if hold is not None and versus is None:
        what = message("what is held is measured by the difference of two logits")
        raise UsageError(what, expected="--versus TOK as well", hint="--target Mary --versus John")
    if versus is not None and tuple(measures) == ("vector",):
        return ("difference",)
    if target is not None and tuple(measures) == ("vector",):
        return ("logprob",)
    if target is not None and versus is None and "logprob" not in measures:
        raise UsageError("a target is about log-probabilities", expected='"logprob" among measures')
    if ("difference" in measures) != (versus is not None):
        what = message("a difference of two logits needs both of them")
        raise UsageError(what, expected="--versus TOK, and --measure difference among the measures")
    return measures


@checked
def logits(
    model: Model,
    text: str,
    *,
    target: str | None = None,
    versus: str | None = None,
    query: str | None = None,
    by: Literal["part", "token", "word"] = "part",
    lens: bool = False,
    unknown: bool = False,
    tokens: Sequence[Token] | None = None,
    note: Callable[[str], None] = ignore,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
    progress: Callable[[float], None] = ignore,
) -> LogitsDocument:
    """Split a next token's logit into what the embedding, each head and each feed-forward part add
    (direct logit attribution).

    Args:
        model: A decoder with an output head, as `attncli.load` returns it.
        text: What runs.
        target: A vocabulary entry, or "id:N"; None is the model's own first choice.
        versus: An entry whose logit is taken away from the target's; None for none.
        query: After which token; None is the last.
        by: "token" also splits what each head adds by the token that it comes from; "word" also
            tells the logit as a sum over the words of the text, with attention held as it was, and
            what becomes of it as words are taken out.
        lens: Whether it also tells what each layer would say next.
        unknown: Whether `query` may be a token that the model does not know.
        tokens: Those of the text; None to let the model's tokenizer find them.
        note: Called with a sentence that says what an ambiguous name was read as.
        on_cost: Called before the work starts, with its estimated cost and the number of tokens.
        progress: Called with the share of the texts with words taken out that is done.

    Returns:
        What `attn logits --json` writes; its parts add up to the logit.

    Raises:
        InputError: For tokens that are not there.
        UnsupportedError: For a model without an output head.
    """
    if tokens is None:
        tokens = model.encode(text)
    one_run = pass_cost(model, len(tokens))
    if by == "word":
        on_cost(word_cost(model, len(tokens), one_run), len(tokens))
    else:
        on_cost(one_run, len(tokens))
    if query is None:
        position = len(tokens) - 1
    else:
        position = choose_last_token(tokens, query, note, unknown=unknown)
    refuse_foreign(model)  # a model that another library runs whole has no parts to split
    # one run, which also tells how likely each spelling of the words is
    running = text_for_sweep(model, tokens, [])
    attributor = run_attributor(running, position)

    def choose(name: str | None) -> Target | None:
        """The one vocabulary entry that a word stands for; None for no word."""
        if name is None:
            return None
        row = attributor.log_probabilities()
        return choose_target(
            model, tokens, name, position=position, several=False, row=row, note=note
        )

    target_chosen = choose(target)
    versus_chosen = choose(versus)
    target_entry = None if target_chosen is None else target_chosen.ids[0]
    versus_entry = None if versus_chosen is None else versus_chosen.ids[0]
    if target_entry is not None:
        refuse_one_token(target_entry, versus_entry)  # the same entry twice

    # the logit by parts, and further by token or by word
    attribution = attributor.attribution(target_entry, versus_entry)
    sources: dict[LogitTerm, Floats] = {}
    if by == "token":
        sources = logit_sources(running, position, attribution.target, versus_entry)
    word_part: WordsPart | UnsetType = UNSET
    if by == "word":
        word_part = _words_part(running, text, position, attribution.target, versus_entry, progress)
    rest = resting_keys(tokens, model.identity.source)
    return LogitsDocument(
        **header(model, text, tokens, computing=running.backend),
        position=position,
        target=target_token(
            model, attribution.target, None if target_chosen is None else target_chosen.word
        ),
        versus=(
            None
            if versus_chosen is None
            else target_token(model, versus_chosen.ids[0], versus_chosen.word)
        ),
        softcap=attribution.softcap,
        logit=attribution.logit,
        sum=sum(value for _, value in attribution.parts),
        prediction=prediction_of(model, np.exp(attributor.log_probabilities()), attribution.target),
        parts=[
            replace(
                part_row(part, value),
                **_look_members(part, attribution.looks.get(part), rest),
                sources=_source_rows(sources[part]) if part in sources else UNSET,
            )
            for part, value in attribution.parts
        ],
        source_tokens=source_token_rows(model),
        words=word_part,
        lens=lens_rows(running, position, attribution.target) if lens else UNSET,
        warnings=[*notes(model, text, tokens), *small_note(model, target_chosen)],
    )


def _words_part(
    running: SweepText,
    text: str,
    position: int,
    target: int,
    versus: int | None,
    progress: Callable[[float], None],
) -> WordsPart:
    """The document's part of `--by word`: the logit of `target` (less that of `versus`) as a sum over
    the words of the text, and what becomes of it as words are taken out.

    position: the token after which the logit is read.
    progress: called with the share done.
    """
    result = word_sum(running, text, position, target, versus)
    deletion = deletion_curve(
        running.model, running.tokens, result.words, position, target, versus, progress
    )
    return WordsPart(
        words=result.words,
        biases=result.biases,
        sum=sum(word.value for word in result.words) + result.biases,
        logit=result.logit,
        deletion=deletion,
    )


def _look_members(term: LogitTerm, row: Floats | None, resting_keys: Bools) -> dict[str, Any]:
    """The document's fields for the key that a head looks at most; {} where its weights are not
    known.

    row: the head's weights, [key].
    resting_keys: which keys are the first token or special tokens, on which heads put weight when
        they look for nothing, [key]; the document also has the strongest other key.
    """
    if row is None:
        return {}
    key = int(row.argmax())
    members: dict[str, Any] = {"looks": Looks(key=key, weight=float(row[key]))}
    if term.attention == "self" and resting_keys.any():
        beyond = look_beyond_rest(row, resting_keys[: len(row)])
        members["looks_beyond_rest"] = look_part(beyond)
    return members


def _source_rows(values: Floats) -> list[LogitSource]:
    """Convert one head's contributions by source token, [source], to document rows, the largest by
    size first, without those that are 0."""
    order = np.argsort(-np.abs(values), kind="stable").tolist()
    return [
        LogitSource(source=source, value=float(values[source]))
        for source in order
        if values[source]
    ]


@checked
def patch(
    model: Model,
    clean: str,
    corrupt: str,
    *,
    target: str | None = None,
    versus: str | None = None,
    query: str | None = None,
    at: Iterable[str] | None = None,
    into: Sequence[str] = (),
    unknown: bool = False,
    layers: Selection = EVERY,
    heads: Which = EVERY,
    memory: int | None = None,
    tokens: tuple[Sequence[Token], Sequence[Token]] | None = None,
    note: Callable[[str], None] = ignore,
    on_cost: Callable[[CostEstimate, int], None] = ignore,
    progress: Callable[[float], None] = ignore,
) -> PatchDocument:
    """Activation patching: put each head's output in the text `clean` into a run of `corrupt`, and
    return what share of the difference between both each head brings back.

    Args:
        model: As `attncli.load` returns it.
        clean: The text whose answer is wanted.
        corrupt: The other, of as many tokens.
        target: The next token that is measured, a vocabulary entry or "id:N"; None measures the
            cosine to the clean vector.
        versus: An entry whose logit is taken away from the target's.
        query: The token of `clean` to measure at; None is the last token of a decoder and the mean
            of all tokens of an encoder.
        at: The tokens of `clean` that get its part; None for all.
        into: The only heads that read the clean text's output, each with the projection that reads
            it, such as "L5H11:q"; empty for all that comes after.
        unknown: Whether query and `at` may be tokens that the model does not know.
        layers: Which layers: a number, several, or a text such as "0,2-5"; see `HeadSelection`.
        heads: Which heads of each: 11, [0, 3], "2-5"; or any with their layers, "L5H11" or
            (5, 11), as a `HeadSelection` too, which then counts alone.
        memory: Bytes there may be; None for what is free.
        tokens: Those of the two texts; None to let the model's tokenizer find them.
        note: Called with a sentence that says what an ambiguous name was read as.
        on_cost: Called before the work starts, with its estimated cost and the number of tokens.
        progress: Called with the share done, 0 to 1.

    Returns:
        What `attn patch --json` writes.

    Raises:
        UsageError: For `versus` without a target.
        InputError: For texts of different lengths, and tokens or heads that are not there.
        LimitError: For what memory does not hold.
    """
    if tokens is None:
        tokens = (model.encode(clean), model.encode(corrupt))
    clean_tokens, corrupt_tokens = tokens
    same_length(clean_tokens, corrupt_tokens, message("the corrupt one"))
    positions: list[int] = []
    for name in at or ():
        positions += _named_positions(clean_tokens, name, note, unknown=unknown)
    query_positions = None
    if query is not None:
        query_positions = _named_positions(clean_tokens, query, note, unknown=unknown)
    patching = PatchRequest.of(
        model,
        clean_tokens,
        heads if isinstance(heads, HeadSelection) else HeadSelection(layers, heads),
        positions=positions,
        query=query_positions,
        target=target,
        versus=versus,
        into=into,
        note=note,
    )
    _tell_cost(
        model,
        len(clean_tokens),
        patching.selection,
        memory,
        on_cost,
        predicts=patching.predicts,
        start=min(patching.positions),
    )
    clean_ids = [token.id for token in clean_tokens]
    corrupt_ids = [token.id for token in corrupt_tokens]
    has_unknown = any(token.unknown for token in clean_tokens)
    if clean_ids == corrupt_ids and clean != corrupt and has_unknown:
        what = message(
            "the two texts are the same to this model: they differ in words that it does not know"
        )
        raise InputError(what, expected="texts that differ in words which the model knows")
    result = run_patches(
        model, clean_tokens, corrupt_tokens, patching, memory=memory, progress=progress
    )
    return PatchDocument(
        **header(model, clean, clean_tokens, computing=result.backend),
        clean=clean,
        corrupt=corrupt,
        corrupt_tokens=token_rows(corrupt_tokens),
        places=list(patching.positions),
        query=list(patching.query),
        measure=patching.measure,
        target=None if patching.target is None else target_token(model, patching.target),
        versus=None if patching.versus is None else target_token(model, patching.versus),
        into=[
            ToldHead(layer=receiver.layer, head=receiver.head, side=receiver.side)
            for receiver in patching.into
        ]
        or UNSET,
        m_clean=result.clean,
        m_corrupt=result.corrupt,
        predictions=UNSET if result.predictions is None else result.predictions,
        effects=[
            PatchRow(attention=place.kind, layer=place.layer, head=place.head, recovered=share)
            for place, share in sorted(result.recovered_shares, key=lambda item: -item[1])
        ],
        warnings=[
            *notes(model, clean, ()),  # nothing of the words: that is told of both texts
            *small_note(model, patching.expectation),
            *token_notes_of_two(
                (message("clean text"), clean, clean_tokens),
                (message("corrupt text"), corrupt, corrupt_tokens),
            ),
        ],
    )


def removal(model: Model, by: str, reference: str | Iterable[str] | None) -> By:
    """Compute once what replaces a head's output in every text, as `by` and `reference` of `ablate`
    say.

    Raises UsageError for another `by`, and where reference texts are missing or of no use.
    """
    refuse_foreign(model)
    texts = reference
    if isinstance(reference, str):
        texts = [reference]
    match by:
        case "zero" if texts is None:
            return ByZero()
        case "mean" if texts is None:
            return ByMean()
        case "mean" if texts is not None:
            return ByMean(means_of(text_for_sweep(model, model.encode(text), []) for text in texts))
        case "resample" if isinstance(reference, str):
            return resample_from(text_for_sweep(model, model.encode(reference), []))
        case _:
            what = message("by is {by} with reference texts", by=repr(by))
            if texts is None:
                what = message("by is {by} without reference texts", by=repr(by))
            raise UsageError(
                what, expected="zero with none, mean with any number, resample with one"
            )


def _link_to_cut(
    model: Model,
    tokens: Sequence[Token],
    link: tuple[str, str],
    note: Callable[[str], None],
    *,
    cross: bool,
    unknown: bool,
    regions: Sequence[Region],
) -> CutLink:
    """The `CutLink` between the tokens that `link`, (query name, key name), refers to; with
    `cross`, the key is in the source text.

    note: called with a sentence that says what an ambiguous name was read as.
    unknown: whether the names may be of tokens that the model does not know.
    """
    queries = _named_positions(tokens, link[0], note, unknown=unknown, regions=regions)
    if not cross:
        return CutLink(
            queries, _named_positions(tokens, link[1], note, unknown=unknown, regions=regions)
        )
    if model.memory is None:
        raise UsageError(
            "--cross cuts a link to another text, and none is read",
            expected="an encoder-decoder, with --source TEXT",
        )
    keys = _named_positions(source_tokens(model), link[1], note, unknown=unknown)
    return CutLink(queries, keys, "cross")


def _named_positions(
    tokens: Sequence[Token],
    reference: str,
    note: Callable[[str], None],
    *,
    unknown: bool,
    regions: Sequence[Region] = (),
) -> tuple[int, ...]:
    """The token positions that `reference` names: a token, a span of words or a region of the text.

    note: called with a sentence that says what an ambiguous name was read as.
    unknown: whether it may be a token that the model does not know.
    """
    positions = region_tokens(regions, reference, note)
    if positions is not None:
        return positions
    first, stop = choose_span(tokens, reference, note, unknown=unknown)
    return tuple(range(first, stop))


def _tell_cost(
    model: Model,
    count: int,
    heads: HeadSelection,
    memory: int | None,
    on_cost: Callable[[CostEstimate, int], None],
    *,
    predicts: bool,
    compared: int = 0,
    start: int = 0,
    passes: int = 1,
) -> None:
    """Call `on_cost` with the estimated cost of taking these heads away in a text of `count`
    tokens; nothing for models that run whole.

    memory: bytes there may be; None for what is free.
    predicts: whether next tokens are measured.
    compared: at most how many heads are compared with random changes.
    start: the first token that changes; where none reads later ones, those before it run once.
    passes: how often each change runs, twice where attention is held besides.
    """
    if model.own_layers:
        chosen_places = places(model.spec, heads)
        if memory is None:
            free = free_memory().bytes
        else:
            free = memory
        size = SweepSize(model.spec, count, model.backend.dtype, predicts)
        draws = min(compared, len(chosen_places)) * DRAWS
        changed_runs = size.sweep_cost(chosen_places, free, draws, start=start, passes=passes)
        seconds = changed_runs.seconds + passes * decoding_seconds(model, count)
        expected = replace(changed_runs, seconds=seconds)
        on_cost(with_held_weights(expected, model.weights_in_memory), count)
