"""`attn cross`: queries from one text, keys and values from another."""

from __future__ import annotations

from typing import Annotated

import typer

from attncli.cli import declarations, request
from attncli.cli.declarations import ChatOptions, OutputOptions, RunSetup
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import (
    RUN,
    SCREEN,
    About,
    argument,
    meaning,
    redeclare,
    text_option,
    without,
)
from attncli.cli.output import (
    PageOptions,
    refuse_over,
    validate_options,
    validate_page,
    write_run_page,
    write_with_figure,
)
from attncli.errors import UsageError
from attncli.language import message


def cross(
    ctx: typer.Context,
    chats: ChatOptions,
    setup: Annotated[RunSetup, without("residual", "layer_norm")],
    output: Annotated[
        OutputOptions, without("scale_colors"), meaning(top=About.JSON | SCREEN, max_output=RUN)
    ],
    page: PageOptions,
    query_text: Annotated[
        str | None, argument("The text that asks; - for standard input.", "QUERY_TEXT")
    ] = None,
    key_text: Annotated[
        str | None,
        argument(
            "The text that is looked at; - for standard input. None with --source @FILE.npy.",
            "KEY_TEXT",
        ),
    ] = None,
    value_text: Annotated[
        str | None,
        text_option(help="Values from a third text, with a token for every key.", metavar="TEXT"),
    ] = None,
    tokenizer: Annotated[str | None, declarations.TOKENIZER] = None,
    all_links: Annotated[bool, declarations.ALL_LINKS] = False,
    words: Annotated[bool, declarations.WORDS] = False,
    query: Annotated[
        str | None,
        redeclare(declarations.QUERY, help="Only this token or word of the text that asks."),
    ] = None,
    end: Annotated[
        str | None,
        redeclare(
            declarations.TO,
            help="With --query: rank heads by its weight on this of the other text.",
        ),
    ] = None,
) -> None:
    """Cross-attention: the tokens of one text look at those of another.

    attn cross "the black cat" "le chat noir dort"

    attn cross "the black cat" "le chat noir dort" --query cat --to chat

    With an encoder-decoder (t5, bart, marian) the decoder's text looks at the encoder's:

    attn cross --model FOLDER "Das Haus ist klein" "The house is small"

    or at captured states, as those of the sound that Whisper hears:

    attn cross --model FOLDER "the house" --source @states.npy
    """
    from attncli.draw.encoding import estimate_bytes
    from attncli.features.cross.compute import cross as compute_cross
    from attncli.features.cross.compute import (
        cross_memory,
        cross_numbers,
        cross_sides,
        cross_texts,
    )
    from attncli.mechanism.spec import HeadSelection

    environment: Environment = ctx.obj
    view = validate_options(output, environment, "cross", files={"--html": page.html})
    validate_page(page)
    if setup.model.embeddings is not None:
        what = message("--embeddings belongs to one text, and cross-attention has two")
        raise UsageError(what, expected="attn tensors, for arrays of your own")
    if query_text == key_text == "-":
        raise UsageError("both texts are -, and standard input is one text", expected="- once")
    sources = request.texts_and_chats(environment, (query_text, key_text), chats)
    if not sources or len(sources) > 2:
        raise UsageError(
            "attn cross takes two texts, and {count} are given",
            expected="two texts, QUERY_TEXT and KEY_TEXT, or --chat FILE",
            count=len(sources),
        )
    has_key_text = len(sources) == 2
    has_states = setup.model.source_states is not None
    if has_key_text == has_states:  # exactly one of both is looked at
        raise UsageError(
            (
                "nothing is looked at"
                if not has_key_text
                else "a text and captured states are both to be looked at"
            ),
            expected="a second text, KEY_TEXT, or --source @FILE.npy for an encoder-decoder",
        )
    loaded_model = request.model(environment, setup, tokenizer=tokenizer)
    side_texts = [request.text_of(environment, chats, source, loaded_model) for source in sources]
    states_name = ""  # what the document calls captured states
    if setup.model.source_states is not None:
        states_name = setup.model.source_states.name
    key_side = side_texts[1] if has_key_text else None
    texts = cross_texts(loaded_model, side_texts[0], key_side, value_text, name=states_name)
    decoder = loaded_model.spec.decoder or loaded_model.spec
    # the first layer tells how many heads there are in each; seeded weights have one attention,
    # which looks at the other text, in place of a cross-attention
    first = decoder.blocks[0].cross or decoder.blocks[0].attention
    if pairs := request.named_heads(decoder, setup.model):  # heads such as L5H11
        layers, heads = HeadSelection(pairs=pairs).layers_and_heads("--head")
    else:
        layers = request.numbers(setup.model.layer, "layer", len(decoder.blocks))
        heads = request.numbers(setup.model.head, "head", first.heads)
    document_bytes = estimate_bytes(
        cross_numbers(loaded_model, texts, layers, heads), setup.compute.dtype
    )
    refuse_over(document_bytes, output, request.smaller_run(decoder))
    request.refuse_memory(
        cross_memory(loaded_model, texts, layers, heads), setup.compute, "shorter texts"
    )
    document = compute_cross(
        loaded_model,
        texts.query,
        layers=layers,
        heads=heads,
        top=output.top,
        all_links=all_links,
        texts=texts,
        words=words,
        query=query,
        key=end,
        note=environment.note,
    )
    if page.html is not None:
        from attncli.features.cross.page import page_start
        from attncli.measure.run_record import cross_record

        # without notes on ambiguous names: they were written above
        sides = cross_sides(texts, words=words, query=query, key=end)
        record = cross_record(loaded_model, texts, layers=layers, heads=heads, words=sides.merged)
        start = page_start(document)
        write_run_page(page, document, record, view.lang, title=texts.query, start=start)
    write_with_figure([document], output, environment, view)


cross_app = command_app(
    cross, essentials="--model --weights --layer --head --value-text --brief --json --html --figure"
)
