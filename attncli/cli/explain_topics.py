"""The topics of `attn explain` that are not one query's derivation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import completion, declarations, delivery, request
from attncli.cli.explain_delivery import give_topic
from attncli.cli.explain_layer_topics import POSITIONS, again, mask, multihead, position, residual, with_positions
from attncli.cli.explain_options import SmallOutput, TopicOutput, one_head, one_layer
from attncli.cli.options import (
    MODEL,
    AttentionOptions,
    ComputeOptions,
    ModelOptions,
    TextOptions,
    number,
    redeclare,
    without,
)
from attncli.cli.output import Environment
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.models.model import Model


def softmax(
    ctx: typer.Context,
    output: SmallOutput,
    numbers: Annotated[
        list[str] | None,
        typer.Argument(help="The scores. [default: 2.0 1.0 0.1]", show_default=False, metavar="[NUMBER]..."),
    ] = None,
    temperature: Annotated[
        float,
        number(
            "--temperature",
            "-t",
            help="Divides the scores first.",
            panel=MODEL,
            metavar="T",
            least=0,
            most=1e30,
            above=True,
        ),
    ] = 1.0,
) -> None:
    """Softmax of given numbers, worked through.

    attn explain softmax 2.0 1.0 0.1

    attn explain softmax --temperature 0.5 -1 0 1
    """
    from attncli.analysis.softmax_by_hand import parse_scores, softmax_document
    from attncli.cli.usage_errors import no_option

    unknown_option = next((text for text in numbers or [] if text.startswith("--")), None)
    if unknown_option is not None:  # what looks like an option comes as a number, so that -1 can be one
        raise no_option(ctx, unknown_option.partition("=")[0])
    give_topic(ctx, softmax_document(parse_scores(numbers or ["2.0", "1.0", "0.1"]), temperature), output)


def scaling(
    ctx: typer.Context,
    output: SmallOutput,
    d_k: Annotated[int, redeclare(declarations.D_K, help="Width of the queries and keys.")] = 64,
    d_model: Annotated[
        int | None, redeclare(declarations.D_MODEL, help="Also scale by 1/√d_model, as some tutorials do.")
    ] = None,
    samples: Annotated[int, number("--samples", help="Independent pairs of q and k.", panel=MODEL, least=2)] = 4096,
    keys: Annotated[int, number("--keys", help="Keys that the softmax runs over.", panel=MODEL)] = 10,
    seed: Annotated[int, redeclare(declarations.SEED_NUMBER, help="Seed of the random vectors.")] = 0,
) -> None:
    """Why √d_k: the variance of q·k measured against theory, and what scaling does to the softmax.

    attn explain scaling --d-k 512
    """
    from attncli.analysis.scaling import scaling_document

    give_topic(ctx, scaling_document(d_k, samples=samples, keys=keys, seed=seed, d_model=d_model), output)


def matrix_softmax(
    ctx: typer.Context,
    text: TextOptions,
    model: Annotated[ModelOptions, without("residual", "layer_norm")],
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: TopicOutput,
) -> None:
    """Softmax of each row against softmax over the whole matrix, on a text's scores.

    attn explain matrix-softmax "humpty dumpty sat on"
    """
    from attncli.analysis.matrix_softmax import matrix_softmax_document
    from attncli.analysis.run import RunRequest
    from attncli.render.encoding import estimate_bytes

    environment: Environment = ctx.obj
    loaded_model = request.model(environment, model, attention, compute, tokenizer=text.tokenizer)
    source_text = request.one_text(environment, text)
    tokens = request.tokens_of(loaded_model, source_text)
    layer, head = one_head(loaded_model, model)
    delivery.refuse_over(estimate_bytes([(3, len(tokens), len(tokens))], "float64"), output, "a shorter text")
    request.refuse_run(loaded_model, len(tokens), RunRequest([layer], [head]), compute, "a shorter text")
    give_topic(ctx, matrix_softmax_document(loaded_model, source_text.text, tokens, layer=layer, head=head), output)


def order(
    ctx: typer.Context,
    text: TextOptions,
    model: Annotated[ModelOptions, without("head")],
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: SmallOutput,
    other_text: Annotated[
        str | None,
        typer.Argument(
            help="The same tokens in another order. [default: reversed]", show_default=False, metavar="[OTHER]"
        ),
    ] = None,
) -> None:
    """Whether attention sees the order of the tokens: without positions it does not.

    attn explain order 我爱你 你爱我 --tokenizer char
    """
    from attncli.analysis.order import order_document, order_of, reversed_order
    from attncli.analysis.run import RunRequest

    environment: Environment = ctx.obj
    if model.embeddings is not None:
        raise UsageError(
            "--embeddings has one row per place, and order moves the tokens",
            expected="seeded, file or checkpoint embeddings",
        )
    first = request.model(environment, model, attention, compute, tokenizer=text.tokenizer)
    source_text = request.one_text(environment, text)
    tokens = request.tokens_of(first, source_text)
    layer = one_layer(first, model)
    request.refuse_run(first, len(tokens), RunRequest([layer], matrices=False), compute, "a shorter text")
    to = reversed_order(tokens) if other_text is None else order_of(tokens, first.encode(other_text))

    def models() -> Iterator[Model]:
        if attention.position is not None or attention.mask or first.identity.source == "checkpoint":
            yield first
            return
        for option_set in (*with_positions(POSITIONS, attention, first), replace(attention, mask=["causal"])):
            yield again(environment, first, model, option_set, compute, text.tokenizer)

    give_topic(ctx, order_document(models(), source_text.text, tokens, to, layer=layer), output)


def metric(
    ctx: typer.Context,
    output: SmallOutput,
    name: Annotated[
        str | None,
        typer.Argument(
            help="The metric; none lists them.",
            show_default=False,
            metavar="[NAME]",
            autocompletion=completion.offer(completion.metric),
        ),
    ] = None,
) -> None:
    """What a metric of `attn heads` means: formula, range, what it leaves out, source.

    attn explain metric entropy
    """
    from attncli.analysis.metric_topic import metric_document, metric_meanings

    if name is None:
        environment: Environment = ctx.obj
        view = delivery.validate_options(output, environment)
        if output.json or output.ndjson or output.plain or output.file is not None or output.svg is not None:
            raise UsageError("the list of the metrics is a screen alone", expected="attn explain metric NAME")

        from attncli.render.screens.metrics_list import metrics_screen

        environment.write(delivery.render_text(metrics_screen(metric_meanings(), view), view, environment).encode())
        return
    give_topic(ctx, metric_document(name), output)


TOPICS: dict[str, Callable[..., None]] = {
    "softmax": softmax,
    "matrix-softmax": matrix_softmax,
    "scaling": scaling,
    "order": order,
    "position": position,
    "mask": mask,
    "multihead": multihead,
    "residual": residual,
    "metric": metric,
}
"""The topics by name, and the function of each."""
