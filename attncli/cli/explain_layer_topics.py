"""The topics of `attn explain` that are about a whole layer: position, mask, multihead, residual."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import declarations as the
from attncli.cli import request
from attncli.cli.explain_delivery import give_topic
from attncli.cli.explain_options import TopicOutput, default_query, one_head, strongest_head
from attncli.cli.options import AttentionOptions, ComputeOptions, ModelOptions, TextOptions, meaning, meant, without
from attncli.cli.output import Environment

if TYPE_CHECKING:
    from attncli.inputs.text import Text
    from attncli.inputs.token import Token
    from attncli.models.model import Model

POSITIONS = ("none", "sinusoidal", "learned", "rope", "alibi")
"""The ways that seeded weights have of telling where tokens stand."""
HEADS = 4
"""Heads of seeded weights where several are explained."""
SEVERAL = meant(the.NUM_HEADS, help=f"Number of heads. [default: {HEADS}]")


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
    query: Annotated[str | None, the.QUERY] = None,
) -> None:
    """How attention learns where words stand: each way's numbers, and what it does to one query's weights.

    attn explain position "humpty dumpty sat on" --query on

    attn explain position "humpty dumpty sat on" --position rope
    """
    from attncli.analysis.position_topic import position_document

    environment: Environment = ctx.obj
    found = _place(environment, text, model, attention, compute, query, strongest=True)

    def models() -> Iterator[Model]:
        if found.model.identity.source == "checkpoint":
            yield found.model
            return
        ways = POSITIONS if attention.position is None else tuple(dict.fromkeys(("none", attention.position)))
        for other in positioned(ways, attention, found.model):
            yield again(environment, found.model, model, other, compute, text.tokenizer)

    place = {"layer": found.layer, "head": found.head, "query": found.query}
    give_topic(ctx, position_document(models(), found.text.text, found.tokens, **place), output)


def mask(
    ctx: typer.Context,
    text: TextOptions,
    model: ModelOptions,
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: TopicOutput,
    query: Annotated[str | None, the.QUERY] = None,
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
    shown = None if query is not None or masked.mask != ["causal"] else "middle"
    found = _place(environment, text, model, masked, compute, query, shown=shown, strongest=True)
    more = [(other, found.model.encode(other)) for other in others or ()]
    document = mask_topic_document(
        found.model, found.text.text, found.tokens, layer=found.layer, head=found.head, query=found.query, others=more
    )
    give_topic(ctx, document, output)


def multihead(
    ctx: typer.Context,
    text: TextOptions,
    model: Annotated[ModelOptions, without("head"), meaning(num_heads=SEVERAL)],
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: TopicOutput,
    query: Annotated[str | None, the.QUERY] = None,
) -> None:
    """Several heads: what each looks at, what the average hides, and concat(O₁ … O_h)·W_O written out.

    attn explain multihead "humpty dumpty sat on" --query on --num-heads 4
    """
    from attncli.analysis.multihead_topic import multihead_document

    found = _place(ctx.obj, text, model, attention, compute, query, heads=HEADS)
    document = multihead_document(found.model, found.text.text, found.tokens, layer=found.layer, query=found.query)
    give_topic(ctx, document, output)


def residual(
    ctx: typer.Context,
    text: TextOptions,
    model: Annotated[ModelOptions, without("head")],
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: TopicOutput,
    query: Annotated[str | None, the.QUERY] = None,
) -> None:
    """The residual connection x + O and the norm, worked out for one query.

    attn explain residual "humpty dumpty sat on" --query on
    """
    from attncli.analysis.residual_topic import residual_document

    asked = model
    if model.model is None:  # what the topic is about is there without being asked for
        asked = replace(model, residual=True, layer_norm=True)
    found = _place(ctx.obj, text, asked, attention, compute, query)
    document = residual_document(found.model, found.text.text, found.tokens, layer=found.layer, query=found.query)
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
    from attncli.analysis.run import Wanted

    loaded = request.model(environment, model, attention, compute, tokenizer=text.tokenizer, heads=heads)
    found = request.one_text(environment, text)
    tokens = request.tokens_of(loaded, found)
    if query is not None:
        at = request.query_index(environment, tokens, query)
    else:
        at = len(tokens) // 2 if shown == "middle" else default_query(tokens)
    if strongest:
        layer, head = strongest_head(environment, loaded, model, compute, found.text, tokens, at)
    else:
        layer, head = one_head(loaded, model)
    request.refuse_run(loaded, len(tokens), Wanted([layer], stages=True), compute, "a shorter text")
    return Place(loaded, found, tokens, layer, head, at)


def positioned(ways: Sequence[str], attention: AttentionOptions, first: Model) -> list[AttentionOptions]:
    """The attention with its positions told in each of these ways; RoPE turns pairs of entries, and heads of an odd
    width are without it."""
    even = first.spec.blocks[0].attention.head_dim % 2 == 0
    return [replace(attention, position=way) for way in ways if even or not way.startswith("rope")]


def again(
    environment: Environment,
    first: Model,
    asked: ModelOptions,
    attention: AttentionOptions,
    compute: ComputeOptions,
    tokenizer: str | None,
) -> Model:
    """The same weights under another attention: the seed that was drawn for the first model, and no notes."""
    seeded = replace(asked, seed=str(first.identity.seed)) if asked.seed == "random" else asked
    return request.model(replace(environment, quiet=True), seeded, attention, compute, tokenizer=tokenizer)
