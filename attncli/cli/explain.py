"""`attn explain`: the derivation of one query's attention; `explain_topics` holds the other topics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from attncli.cli import declarations, delivery, request
from attncli.cli.explain_delivery import check_steps, write_explanation
from attncli.cli.explain_options import ExplainOutput, TextOutput, default_query, strongest_head
from attncli.cli.explain_topics import TOPICS, softmax
from attncli.cli.lazy_commands import LazyCommands
from attncli.cli.options import AttentionOptions, ComputeOptions, GroupedCommand, ModelOptions, TextOptions, flat
from attncli.cli.output import Environment
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.analysis.documents.explain import ExplainDocument
    from attncli.inputs.text import Text
    from attncli.models.model import Model
    from attncli.render.view import View

ALIKE = 0.8
"""How like a topic's name a word must be to be taken for a slip."""


def text(
    ctx: typer.Context,
    text: TextOptions,
    model: ModelOptions,
    attention: AttentionOptions,
    compute: ComputeOptions,
    output: TextOutput,
    query: Annotated[str | None, declarations.QUERY] = None,
) -> None:
    """The derivation of one query's attention, step by step, with this text's numbers.

    attn explain "humpty dumpty sat on" --query on --d-model 512

    attn explain --model minilm "The animal was too tired, so it slept" --query it --layer 5 --head 11

    Topics, each with its own --help: attn explain softmax 2.0 1.0 0.1, attn explain scaling --d-k 512, and
    matrix-softmax, order, position, mask, multihead, residual, metric NAME. A text that is itself a topic's name is
    read with --file or from a pipe.
    """

    environment: Environment = ctx.obj
    check_steps(output, environment)
    view = delivery.validate_options(
        output, environment, "explain", document_options=("max_output", "show"), tables=("max_output",)
    )
    if output.code is not None and output.brief:
        raise UsageError("--code is about the steps, and --brief shows none of them", expected="one or the other")
    view = replace(view, code=output.code or "")
    loaded_model = request.model(environment, model, attention, compute, tokenizer=text.tokenizer)
    one_only = output.json or output.svg is not None or output.step
    settings = (loaded_model, model, compute, query, output, environment, view)
    if one_only:
        write_explanation(_document(request.one_text(environment, text), *settings), output, environment, view)
        return

    def documents() -> Iterator[ExplainDocument]:
        for source_text in request.texts(environment, text):
            with request.errors_located_in(source_text):
                yield _document(source_text, *settings)

    delivery.write_documents(documents(), output, environment, view, several=text.lines)


def _document(
    source_text: Text,
    loaded_model: Model,
    model: ModelOptions,
    compute: ComputeOptions,
    query: str | None,
    output: ExplainOutput,
    environment: Environment,
    view: View,
) -> ExplainDocument:
    from attncli.analysis.derivation import derivation_document, derivation_shapes
    from attncli.analysis.run import RunRequest
    from attncli.render.encoding import estimate_bytes
    from attncli.render.screens.stages import PROJECTIONS

    meant = _topic_like(source_text.text)
    if meant is not None:
        environment.note(f"{source_text.text!r} is explained as a text; the topic is attn explain {meant}")
    tokens = request.tokens_of(loaded_model, source_text)
    index = default_query(tokens) if query is None else request.query_index(environment, tokens, query)
    layer, head = strongest_head(environment, loaded_model, model, compute, source_text.text, tokens, index)
    shapes = derivation_shapes(loaded_model, len(tokens), layer)
    delivery.refuse_over(estimate_bytes(shapes, "float64"), output, "a shorter text: every matrix is written out")
    request.refuse_run(loaded_model, len(tokens), RunRequest([layer], [head], stages=True), compute, "a shorter text")
    weights = view.show is not None and bool(view.show & set(PROJECTIONS))
    return derivation_document(
        loaded_model, source_text.text, tokens, layer=layer, head=head, query=index, projections=weights
    )


def _topic_like(word: str) -> str | None:
    """The topic that a word was probably meant to name, if any."""
    return next(iter(get_close_matches(word, TOPICS, 1, ALIKE)), None)


class TextCommand(GroupedCommand):
    """The command without a topic: its usage has no name of its own."""

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        formatter.write_usage(ctx.command_path.rstrip(), " ".join(self.collect_usage_pieces(ctx)))


class TextOrTopic(TyperGroup):
    """A group whose first word is a topic; without one, the command `text` is meant, and help calls it by the group's
    name."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyCommands(("text", *TOPICS), _topic_app)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing and not args:
            return super().parse_args(ctx, args)  # a shell asks for the topics
        is_topic = bool(args) and args[0] in TOPICS
        meant = None if is_topic or len(args) < 2 or args[1].startswith("--") else _topic_like(args[0])
        if meant is not None:
            raise UsageError(
                f"attn explain has no topic {args[0]!r}",
                expected=f"{', '.join(TOPICS)}, or one text in quotes",
                hint=f"did you mean attn explain {meant}?",
            )
        return super().parse_args(ctx, args if is_topic else ["text", *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return ("" if name == "text" else name), command, rest


def _topic_app(name: str) -> Any:
    """The command of one topic, or of a text."""
    command = text if name == "text" else TOPICS[name]
    # what is left over is refused by GroupedCommand, which knows what it probably is
    settings: dict[str, Any] = {"help_option_names": ["-h", "--help"], "allow_extra_args": True}
    if command is softmax:  # a negative score is a number, not an option
        settings["ignore_unknown_options"] = True
    alone = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    alone.command(cls=TextCommand if command is text else GroupedCommand, context_settings=settings)(flat(command))
    return typer.main.get_command(alone)


app = typer.Typer(
    cls=TextOrTopic,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "allow_extra_args": True},
)
app.callback()(lambda: None)
