"""`attn why`: why a head looks there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from attncli.cli import completion, declarations, request
from attncli.cli.environment import Environment
from attncli.cli.options import (
    ANALYSIS,
    RUN,
    TEXT,
    AttentionOptions,
    ComputeOptions,
    ModelOptions,
    OutputOptions,
    TextOptions,
    command_app,
    meaning,
    option,
    without,
)
from attncli.cli.output import validate_options, write_with_figure
from attncli.errors import UsageError
from attncli.language import choice, message

if TYPE_CHECKING:
    from attncli.features.why.document import Split, WhyDocument
    from attncli.inputs.token import Text, Token
    from attncli.models.model import Model

SPLITS: tuple[Split, ...] = ("part", "frequency", "dimension")


@dataclass(frozen=True)
class LinkOptions:
    """Which link is explained, and over what."""

    start: Annotated[str | None, declarations.FROM] = None
    end: Annotated[str | None, declarations.TO] = None
    than: Annotated[
        str | None,
        option(
            "--than",
            help="Why --to rather than this token. [default: what the row expects]",
            panel=TEXT,
            about=RUN,
            metavar="TOK",
        ),
    ] = None
    cross: Annotated[bool, declarations.CROSS] = False
    unknown: Annotated[bool, declarations.UNKNOWN] = False
    by: Annotated[
        str,
        option(
            "--by",
            help="Split by part of the stream, by rotary frequency or by entry of q and k.",
            panel=ANALYSIS,
            about=RUN,
            metavar="part|frequency|dimension",
            complete=completion.words(*SPLITS),
        ),
    ] = "part"


def why(
    ctx: typer.Context,
    text: TextOptions,
    model: Annotated[ModelOptions, meaning(num_heads=declarations.EIGHT_HEADS)],
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: Annotated[OutputOptions, without("scale_colors", "max_output")],
    link: LinkOptions,
) -> None:
    """Take a head's score apart: which parts of both words make it look there.

    attn why --model minilm "The animal didn't cross the street because it was too tired" --from it --to animal

    attn why --model minilm "The animal was too tired, so it slept" --from it --to animal --than tired --head L5H11
    """

    environment: Environment = ctx.obj
    view = validate_options(output, environment, "why")
    check(link)
    loaded_model = request.model(
        environment, model, attention, compute, tokenizer=text.tokenizer, heads=declarations.EIGHT
    )

    def documents() -> Iterator[WhyDocument]:
        for source_text in request.texts(environment, text, single=output.json or output.svg is not None):
            with request.errors_located_in(source_text):
                yield _document(environment, loaded_model, source_text, model, compute, link)

    write_with_figure(documents(), output, environment, view, several=text.lines)


def check(link: LinkOptions) -> None:
    """Raise UsageError for options that contradict each other."""
    if link.start is None or link.end is None:
        raise UsageError(
            message("attn why needs two tokens"),
            expected=message("--from TOK and --to TOK"),
            hint="attn why TEXT --from it --to animal",
        )
    if link.by not in SPLITS:
        raise UsageError(message("--by is {value}", value=repr(link.by)), expected=choice(SPLITS))


def _document(
    environment: Environment,
    model: Model,
    text: Text,
    which: ModelOptions,
    compute: ComputeOptions,
    link: LinkOptions,
) -> WhyDocument:
    from attncli.cli.progress import progress
    from attncli.features.effects.ablation import refuse_foreign
    from attncli.features.why.compute import WhyRequest, source_tokens, why_document

    refuse_foreign(model)
    assert link.start is not None
    assert link.end is not None
    tokens = request.tokens_of(model, text)
    if link.cross and model.memory is None:
        raise UsageError(
            message("--cross asks about a link to another text, and none is read"),
            expected=message("an encoder-decoder, with --source TEXT"),
        )
    looked_at = source_tokens(model) if link.cross else tokens
    split: Split = next(name for name in SPLITS if name == link.by)
    why_request = WhyRequest(
        _pieces(environment, tokens, link.start, unknown=link.unknown),
        _pieces(environment, looked_at, link.end, unknown=link.unknown),
        request.head_selection(model.spec, which),
        "cross" if link.cross else "self",
        () if link.than is None else _pieces(environment, looked_at, link.than, unknown=link.unknown),
        split,
        which.source if link.cross else None,
    )
    with progress(environment, "taking the score apart") as on_progress:
        return why_document(
            model, text.text, tokens, why_request, memory=request.memory_limit(compute).bytes, progress=on_progress
        )


def _pieces(environment: Environment, tokens: Sequence[Token], reference: str, *, unknown: bool) -> tuple[int, ...]:
    """The tokens that a reference names: of several pieces the one with the largest weight will be explained."""
    from attncli.inputs.token import find_span, refuse_unknown

    match = find_span(tokens, reference)
    if not unknown:
        refuse_unknown(tokens, match, reference)
    if match.stop - match.first == 1:
        return (request.query_index(environment, tokens, reference),)
    environment.note(
        message(
            "{reference} is {count} tokens: the link with the largest weight is explained",
            reference=repr(reference),
            count=match.stop - match.first,
        )
    )
    return tuple(range(match.first, match.stop))


why_app = command_app(why)
