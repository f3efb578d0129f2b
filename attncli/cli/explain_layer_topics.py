"""The topics of `attn explain` that are about a whole layer: position, mask, multihead, residual."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import declarations, request
from attncli.cli.explain_delivery import give_topic
from attncli.cli.explain_options import TopicOutput, default_query, one_head, strongest_head
from attncli.cli.options import AttentionOptions, ComputeOptions, ModelOptions, TextOptions, meaning, redeclare, without
from attncli.cli.output import Environment

if TYPE_CHECKING:
    from attncli.inputs.text import Text
    from attncli.inputs.token import Token
    from attncli.models.model import Model

POSITIONS = ("none", "sinusoidal", "learned", "rope", "alibi")
"""The ways that seeded weights have of telling where tokens stand."""
HEADS = 4
"""Heads of seeded weights where several are explained."""
SEVERAL = redeclare(declarations.NUM_HEADS, help=f"Number of heads. [default: {HEADS}]")


@dataclass(frozen=True)
class Place:
    """Where in a model a topic looks: one text's tokens, a layer, a head, a query."""

    model: Model
    text: Text
    tokens: list[Token]
    layer: int
    head: int
    query: int


def position(
    ctx: typer.Context,
    text: TextOptions,
    model: ModelOptions,
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: TopicOutput,
    query: Annotated[str | None, declarations.QUERY] = None,
) -> None:
    """How attention learns where words stand: each way's numbers, and what it does to one query's weights.

    attn explain position "humpty dumpty sat on" --query on

    attn explain position "humpty dumpty sat on" --position rope
    """
    from attncli.analysis.position_topic import position_document

    environment: Environment = ctx.obj
    first_place = _place(environment, text, model, attention, compute, query, strongest=True)

    def models() -> Iterator[Model]:
        if first_place.model.identity.source == "checkpoint":
            yield first_place.model
            return
        ways = POSITIONS if attention.position is None else tuple(dict.fromkeys(("none", attention.position)))
        for option_set in with_positions(ways, attention, first_place.model):
            yield again(environment, first_place.model, model, option_set, compute, text.tokenizer)

    place = {"layer": first_place.layer, "head": first_place.head, "query": first_place.query}
    give_topic(ctx, position_document(models(), first_place.text.text, first_place.tokens, **place), output)


def mask(
    ctx: typer.Context,
    text: TextOptions,
    model: ModelOptions,
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: TopicOutput,
    query: Annotated[str | None, declarations.QUERY] = None,
    others: Annotated[
        list[str] | None,
        typer.Argument(help="More texts: all are padded together.", show_default=False, metavar="[OTHER]..."),
    ] = None,
) -> None:
    """What a mask does between scores and weights (--mask causal without another); of several texts, how padding is
    masked.

    attn explain mask "humpty dumpty sat on" --query sat

    attn explain mask "humpty dumpty sat on" "on a wall" --mask none
    """
    from attncli.analysis.mask_topic import mask_topic_document

    environment: Environment = ctx.obj
    masked = attention
    if attention.mask is None and model.model is None and not others:
        masked = replace(attention, mask=["causal"])
    default_query = None if query is not None or masked.mask != ["causal"] else "middle"
    place = _place(environment, text, model, masked, compute, query, shown=default_query, strongest=True)
    more = [(spec, place.model.encode(spec)) for spec in others or ()]
    document = mask_topic_document(
        place.model, place.text.text, place.tokens, layer=place.layer, head=place.head, query=place.query, others=more
    )
    give_topic(ctx, document, output)


def multihead(
    ctx: typer.Context,
    text: TextOptions,
    model: Annotated[ModelOptions, without("head"), meaning(num_heads=SEVERAL)],
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: TopicOutput,
    query: Annotated[str | None, declarations.QUERY] = None,
) -> None:
    """Several heads: what each looks at, what the average hides, and concat(O₁ … O_h)·W_O written out.

    attn explain multihead "humpty dumpty sat on" --query on --num-heads 4
    """
    from attncli.analysis.multihead_topic import multihead_document

    place = _place(ctx.obj, text, model, attention, compute, query, heads=HEADS)
    document = multihead_document(place.model, place.text.text, place.tokens, layer=place.layer, query=place.query)
    give_topic(ctx, document, output)


def residual(
    ctx: typer.Context,
    text: TextOptions,
    model: Annotated[ModelOptions, without("head")],
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: TopicOutput,
    query: Annotated[str | None, declarations.QUERY] = None,
) -> None:
    """The residual connection x + O and the norm, worked out for one query.

    attn explain residual "humpty dumpty sat on" --query on
    """
    from attncli.analysis.residual_topic import residual_document

    model_options = model
    if model.model is None:  # what the topic is about is there without being asked for
        model_options = replace(model, residual=True, layer_norm=True)
    place = _place(ctx.obj, text, model_options, attention, compute, query)
    document = residual_document(place.model, place.text.text, place.tokens, layer=place.layer, query=place.query)
    give_topic(ctx, document, output)


def _place(
    environment: Environment,
    text: TextOptions,
    model: ModelOptions,
    attention: AttentionOptions,
    compute: ComputeOptions,
    query: str | None,
    *,
    heads: int = 1,
    shown: str | None = None,
    strongest: bool = False,
) -> Place:
    """What the options name; the query is the last token, or the one in the middle, where none is named. strongest:
    whether of a checkpoint the head that is not named is the one with the query's strongest link."""
    from attncli.analysis.run import RunRequest

    loaded_model = request.model(environment, model, attention, compute, tokenizer=text.tokenizer, heads=heads)
    source_text = request.one_text(environment, text)
    tokens = request.tokens_of(loaded_model, source_text)
    if query is not None:
        index = request.query_index(environment, tokens, query)
    else:
        index = len(tokens) // 2 if shown == "middle" else default_query(tokens)
    if strongest:
        layer, head = strongest_head(environment, loaded_model, model, compute, source_text.text, tokens, index)
    else:
        layer, head = one_head(loaded_model, model)
    request.refuse_run(loaded_model, len(tokens), RunRequest([layer], stages=True), compute, "a shorter text")
    return Place(loaded_model, source_text, tokens, layer, head, index)


def with_positions(ways: Sequence[str], attention: AttentionOptions, first: Model) -> list[AttentionOptions]:
    """The attention with its positions told in each of these ways; RoPE turns pairs of entries, and heads of an odd
    width are without it."""
    even = first.spec.blocks[0].attention.head_dim % 2 == 0
    return [replace(attention, position=way) for way in ways if even or not way.startswith("rope")]


def again(
    environment: Environment,
    first: Model,
    model_options: ModelOptions,
    attention: AttentionOptions,
    compute: ComputeOptions,
    tokenizer: str | None,
) -> Model:
    """The same weights under another attention: the seed that was drawn for the first model, and no notes."""
    same_seed = (
        replace(model_options, seed=str(first.identity.seed)) if model_options.seed == "random" else model_options
    )
    return request.model(replace(environment, quiet=True), same_seed, attention, compute, tokenizer=tokenizer)
