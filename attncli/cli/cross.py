"""`attn cross`: queries from one text, keys and values from another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import declarations as the
from attncli.cli import delivery as answer
from attncli.cli import page_output, request
from attncli.cli import svg_output as picture
from attncli.cli.options import (
    TEXT,
    AttentionOptions,
    ComputeOptions,
    ModelOptions,
    OutputOptions,
    TextOptions,
    command_app,
    option,
    without,
)
from attncli.cli.output import Environment
from attncli.cli.page_output import PageOptions
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.analysis.cross import Texts
    from attncli.models.model import Model


def cross(
    ctx: typer.Context,
    query_text: Annotated[
        str, typer.Argument(help="The text that asks; - for standard input.", show_default=False, metavar="QUERY_TEXT")
    ],
    model: Annotated[ModelOptions, without("residual", "layer_norm")],
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: Annotated[OutputOptions, without("scale_colors")],
    page: PageOptions,
    key_text: Annotated[
        str | None,
        typer.Argument(
            help="The text that is looked at; - for standard input. None with --source-states.",
            show_default=False,
            metavar="KEY_TEXT",
        ),
    ] = None,
    value_text: Annotated[
        str | None,
        option(
            "--value-text", help="Values from a third text, with a token for every key.", panel=TEXT, metavar="TEXT"
        ),
    ] = None,
    tokenizer: Annotated[str | None, the.TOKENIZER] = None,
    all_links: Annotated[bool, the.ALL_LINKS] = False,
) -> None:
    """Cross-attention: the tokens of one text look at those of another.

    attn cross "the black cat" "le chat noir dort"

    With an encoder-decoder (t5, bart, marian) the decoder's text looks at the encoder's:

    attn cross --model FOLDER "Das Haus ist klein" "The house is small"

    or at captured states, as those of the sound that Whisper hears:

    attn cross --model FOLDER "the house" --source-states states.npy
    """
    from attncli.analysis.cross import cross_document, cross_memory, cross_numbers
    from attncli.render.encoding import estimate_bytes

    environment: Environment = ctx.obj
    how = answer.check(
        output,
        environment,
        "cross",
        written={"--html": page.html},
        heeded=("top", "max_output"),
        tables=("max_output",),
    )
    page_output.check(page)
    if model.embeddings is not None:
        raise UsageError(
            "--embeddings belongs to one text, and cross-attention has two",
            expected="attn tensors, for arrays of your own",
        )
    if query_text == key_text == "-":
        raise UsageError("both texts are -, and standard input is one text", expected="- once")
    looked_at = model.source_states if key_text is None else key_text
    if looked_at is None or None not in (key_text, model.source_states):
        raise UsageError(
            "nothing is looked at" if key_text is None else "a text and captured states are both to be looked at",
            expected="KEY_TEXT, or --source-states FILE of an encoder-decoder",
        )
    loaded = request.model(environment, model, attention, compute, tokenizer=tokenizer)
    texts = _texts(environment, loaded, query_text, looked_at, value_text)
    decoder = loaded.spec.decoder or loaded.spec
    first = decoder.blocks[0].cross or decoder.blocks[0].attention
    layers = request.numbers(model.layer, "layer", len(decoder.blocks))
    heads = request.numbers(model.head, "head", first.heads)
    answer.refuse_over(
        estimate_bytes(cross_numbers(loaded, texts, layers, heads), compute.dtype),
        output,
        "shorter texts, --layer or --head",
    )
    request.refuse_memory(cross_memory(loaded, texts, layers, heads), compute, "shorter texts")
    document = cross_document(loaded, texts, layers=layers, heads=heads, top=output.top, all_links=all_links)
    if page.html is not None:
        from attncli.analysis.records.run import cross_record
        from attncli.render.page.contents import Page

        record = cross_record(loaded, texts, layers=layers, heads=heads)
        page_output.write(
            page, Page(texts.query, [record], lang=how.lang, budget=page.budget, option=page_output.BUDGET)
        )
    picture.give([document], output, environment, how)


def _texts(environment: Environment, model: Model, query: str, key: str | Path, value: str | None) -> Texts:
    from attncli.analysis.cross import Texts, states
    from attncli.errors import UnsupportedError

    found = [
        request.one_text(environment, TextOptions(text=text)).text for text in (query, key) if isinstance(text, str)
    ]
    if isinstance(key, Path):
        assert model.memory is not None
        return Texts(found[0], key.name, model.encode(found[0]), states(model.memory.shape[-2]))
    if model.identity.source != "checkpoint":
        values = None if value is None else model.encode(value)
        return Texts(found[0], found[1], model.encode(found[0]), model.encode(found[1]), value, values)
    if value is not None:
        raise UsageError(
            "--value-text does not go with --model", expected="an encoder-decoder takes keys and values from one text"
        )
    if model.spec.decoder is None:
        raise UnsupportedError(
            f"{model.identity.family} models have no cross-attention",
            expected="an encoder-decoder: t5, bart or marian",
            hint="attn models list",
        )
    keys = model.encode(found[1])
    return Texts(found[0], found[1], model.decoder(keys).encode(found[0]), keys)


app = command_app(cross)
