"""Every shared option, once. A command takes the groups it needs; `flat` spreads them out for Typer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

TEXT, MODEL, ATTENTION, COMPUTE, OUTPUT = "Text", "Model", "Attention", "Compute", "Output"


def option(*names: str, help: str, panel: str, metavar: str | None = None) -> Any:
    """A Typer option of one of the groups on the help page. Whether a file can be read is for its reader to find
    out."""
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, readable=False)


@dataclass(frozen=True)
class TextOptions:
    """Where the text comes from."""

    text: Annotated[
        str | None,
        typer.Argument(
            help="The text; - for standard input; none for a sample sentence.", show_default=False, metavar="TEXT"
        ),
    ] = None
    file: Annotated[
        Path | None,
        option("--file", "-f", help="Read the text from a file; - is standard input.", panel=TEXT, metavar="FILE"),
    ] = None
    lines: Annotated[bool, option("--lines", help="Every line is a text of its own.", panel=TEXT)] = False
    ids: Annotated[
        str | None, option("--ids", help='Token ids in place of a text: "1 5 7".', panel=TEXT, metavar="IDS")
    ] = None
    tokenizer: Annotated[
        str | None,
        option(
            "--tokenizer",
            help="word, whitespace, char, byte, or a tokenizer.json. [default: word]",
            panel=TEXT,
            metavar="NAME|PATH",
        ),
    ] = None


@dataclass(frozen=True)
class ModelOptions:
    """Which weights run."""

    model: Annotated[
        str | None,
        option(
            "--model",
            "-m",
            help="A checkpoint: folder, hub id or alias such as minilm. [env: ATTN_MODEL]",
            panel=MODEL,
            metavar="NAME|DIR",
        ),
    ] = None
    ignore_config: Annotated[
        list[str] | None,
        option(
            "--ignore-config",
            help="Run although this key of config.json is not implemented.",
            panel=MODEL,
            metavar="KEY",
        ),
    ] = None
    source: Annotated[
        str | None,
        option(
            "--source",
            help="Encoder-decoders: the text that the decoder reads; TEXT is the decoder's own.",
            panel=MODEL,
            metavar="TEXT",
        ),
    ] = None
    weights: Annotated[
        Path | None,
        option(
            "--weights",
            "-w",
            help="Weights of one attention layer: .safetensors, .npz, .pt.",
            panel=MODEL,
            metavar="FILE",
        ),
    ] = None
    embeddings: Annotated[
        Path | None,
        option("--embeddings", help="The input vectors, a [tokens, d_model] matrix.", panel=MODEL, metavar="FILE"),
    ] = None
    seed: Annotated[
        str | None,
        option("--seed", help="Seed of the weights, or 'random'. [default: 0]", panel=MODEL, metavar="INT|random"),
    ] = None
    d_model: Annotated[
        int | None, option("--d-model", help="Width of the token vectors. [default: 64]", panel=MODEL, metavar="N")
    ] = None
    num_heads: Annotated[
        int | None,
        option("--num-heads", "-n", help="Number of heads. [default: 1; heads: 8]", panel=MODEL, metavar="N"),
    ] = None
    d_k: Annotated[
        int | None, option("--d-k", help="Width of a query and key. [default: d_model/heads]", panel=MODEL, metavar="N")
    ] = None
    d_v: Annotated[
        int | None, option("--d-v", help="Width of a value. [default: d_model/heads]", panel=MODEL, metavar="N")
    ] = None
    bias: Annotated[
        bool | None, option("--bias/--no-bias", help="Seeded biases on the projections. [default: no]", panel=MODEL)
    ] = None
    output_projection: Annotated[
        bool | None,
        option(
            "--output-projection/--no-output-projection",
            help="W_O after the heads. [default: with several heads]",
            panel=MODEL,
        ),
    ] = None
    residual: Annotated[bool, option("--residual", help="Add the input to the output.", panel=MODEL)] = False
    layer_norm: Annotated[bool, option("--layer-norm", help="Layer normalization at the end.", panel=MODEL)] = False
    layer: Annotated[
        list[str] | None,
        option("--layer", help="Layers to show, counted from 0: 5, 0,3 or 2-5.", panel=MODEL, metavar="L"),
    ] = None
    head: Annotated[
        list[str] | None,
        option("--head", help="Heads to show, counted from 0: 5, 0,3 or 2-5.", panel=MODEL, metavar="H"),
    ] = None


@dataclass(frozen=True)
class AttentionOptions:
    """What happens between queries and keys."""

    mask: Annotated[
        list[str] | None,
        option(
            "--mask",
            help="causal, window:W, window:L,R, prefix:P, … or a file (0 = hidden). Repeat to intersect; 'attn mask' explains.",
            panel=ATTENTION,
            metavar="SPEC|FILE",
        ),
    ] = None
    scale: Annotated[
        str | None,
        option(
            "--scale",
            help="sqrt-dk, sqrt-dmodel, none or a number. [default: sqrt-dk]",
            panel=ATTENTION,
            metavar="SCALE",
        ),
    ] = None
    softcap: Annotated[
        float | None, option("--softcap", help="Bound the scores: X·tanh(score/X).", panel=ATTENTION, metavar="X")
    ] = None
    position: Annotated[
        str | None,
        option(
            "--position",
            help="none, sinusoidal, rope, rope:THETA, alibi, learned. [default: none]",
            panel=ATTENTION,
            metavar="NAME",
        ),
    ] = None
    attention: Annotated[
        str | None,
        option(
            "--attention",
            help="dense, or reformer[:BUCKETS[,ROUNDS[,CHUNK]]]: hash attention. [default: dense]",
            panel=ATTENTION,
            metavar="KIND",
        ),
    ] = None


@dataclass(frozen=True)
class ComputeOptions:
    """Where and how precisely to compute."""

    backend: Annotated[str, option("--backend", help="What computes.", panel=COMPUTE, metavar="auto|numpy|torch")] = (
        "auto"
    )
    device: Annotated[
        str | None,
        option("--device", help="Where torch computes. [default: cpu]", panel=COMPUTE, metavar="cpu|cuda|mps"),
    ] = None
    dtype: Annotated[
        str,
        option(
            "--dtype",
            help="Type of the numbers: float32 (short runs of a checkpoint compute in float64, then round), float64, bfloat16 or float16.",
            panel=COMPUTE,
            metavar="TYPE",
        ),
    ] = "float32"
    max_memory: Annotated[
        str | None,
        option("--max-memory", help="Refuse work above this. [default: what is free]", panel=COMPUTE, metavar="SIZE"),
    ] = None


@dataclass(frozen=True)
class OutputOptions:
    """What is answered, where, and how it looks."""

    json: Annotated[bool, option("--json", help="One JSON document.", panel=OUTPUT)] = False
    ndjson: Annotated[bool, option("--ndjson", help="One JSON document a line, one line a text.", panel=OUTPUT)] = False
    plain: Annotated[bool, option("--plain", help="Tab-separated lines, no decoration.", panel=OUTPUT)] = False
    output: Annotated[
        Path | None,
        option(
            "--output", "-o", help="Write the answer to a file; - is standard output.", panel=OUTPUT, metavar="FILE"
        ),
    ] = None
    svg: Annotated[
        Path | None, option("--svg", help="Also draw the weights to an .svg file.", panel=OUTPUT, metavar="FILE")
    ] = None
    show: Annotated[
        str | None,
        option("--show", help="Parts to show, or 'all'; a wrong one lists them.", panel=OUTPUT, metavar="PARTS"),
    ] = None
    brief: Annotated[bool, option("--brief", help="Show the answer alone.", panel=OUTPUT)] = False
    full: Annotated[bool, option("--full", help="Show every row, column and dimension.", panel=OUTPUT)] = False
    precision: Annotated[int, option("--precision", help="Digits after the point.", panel=OUTPUT, metavar="N")] = 2
    top: Annotated[int, option("--top", help="How many links or rows of a ranking.", panel=OUTPUT, metavar="N")] = 10
    color: Annotated[
        str, option("--color", help="Whether to use colour.", panel=OUTPUT, metavar="auto|always|never")
    ] = "auto"
    ascii: Annotated[bool, option("--ascii", help="Draw and write in ASCII only.", panel=OUTPUT)] = False
    scale_colors: Annotated[
        str, option("--scale-colors", help="How weights become shades.", panel=OUTPUT, metavar="linear|log|row")
    ] = "linear"
    max_output: Annotated[
        str, option("--max-output", help="Refuse a larger document.", panel=OUTPUT, metavar="SIZE")
    ] = "256MB"
    quiet: Annotated[bool, option("--quiet", "-q", help="No notes on standard error.", panel=OUTPUT)] = False
    verbose: Annotated[
        bool, option("--verbose", "-v", help="Say on standard error what was read and used.", panel=OUTPUT)
    ] = False
    debug: Annotated[
        bool, option("--debug", help="Show a traceback when something fails. [env: ATTN_DEBUG]", panel=OUTPUT)
    ] = False

    @property
    def file(self) -> Path | None:
        """The file that the answer goes to; None for standard output, also called `-`."""
        return None if self.output is None or str(self.output) == "-" else self.output


@dataclass(frozen=True)
class Offer:
    """Beside an option group in a command's annotation: which of its options the command has; the others keep their
    defaults.

    An option that a command would ignore is not offered by it.
    """

    names: tuple[str, ...]
    others: bool = False  # whether it has all but the named ones


def only(*names: str) -> Offer:
    """The command has these options of a group."""
    return Offer(names)


def without(*names: str) -> Offer:
    """The command has all options of a group but these."""
    return Offer(names, others=True)


TableOutput = Annotated[OutputOptions, only("json", "ndjson", "plain", "output", "color", "ascii", "quiet", "debug")]
"""The output options of a command whose screen is one table, always shown whole."""


def _offers(hint: Any, name: str) -> bool:
    return all(
        (name in part.names) != part.others for part in getattr(hint, "__metadata__", ()) if isinstance(part, Offer)
    )


def flat(function: Callable[..., Any]) -> Callable[..., Any]:
    """A command whose option groups (parameters that are dataclasses, with an `Offer` or not) are spread into single
    options.

    Typer reads the signature made here; the call puts the groups together again.
    """
    hints = get_type_hints(function, include_extras=True)
    plain = get_type_hints(function)
    groups = {name: hint for name, hint in plain.items() if is_dataclass(hint) and isinstance(hint, type)}
    offered = {
        name: [item for item in fields(group) if _offers(hints[name], item.name)] for name, group in groups.items()
    }
    spread: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in groups:
            details = get_type_hints(groups[name], include_extras=True)
            for item in offered[name]:
                spread[item.name] = inspect.Parameter(
                    item.name, parameter.KEYWORD_ONLY, default=item.default, annotation=details[item.name]
                )
        else:
            spread[name] = parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[name])

    def command(**given: Any) -> Any:
        made = {
            name: group(**{item.name: given.pop(item.name) for item in offered[name]}) for name, group in groups.items()
        }
        return function(**made, **given)

    command.__signature__ = inspect.Signature(list(spread.values()))  # type: ignore[attr-defined]
    command.__annotations__ = {name: parameter.annotation for name, parameter in spread.items()}
    command.__name__, command.__doc__, command.__module__ = function.__name__, function.__doc__, function.__module__
    return command


class GroupedCommand(TyperCommand):
    """A command whose help page lists its options by group, in plain text (Rich would cost half the start)."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        extra = super().parse_args(ctx, args)
        if extra and not ctx.resilient_parsing:
            from attncli.cli.usage_errors import too_many

            raise too_many(ctx.command_path, ctx.params, extra)
        return extra

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                name = (
                    "Arguments"
                    if parameter.param_type_name == "argument"
                    else getattr(parameter, "rich_help_panel", None) or "Options"
                )
                panels.setdefault(name, []).append(record)
        for name in sorted(panels, key=lambda panel: panel not in ("Arguments", "Options")):
            with formatter.section(name):
                formatter.write_dl(panels[name])


def command_app(*functions: Callable[..., Any], help: str | None = None) -> typer.Typer:
    """The Typer app of one command, or of a group of subcommands when several functions are given."""
    app = typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        help=help,
        no_args_is_help=len(functions) > 1,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for function in functions:
        # what is left over is refused by GroupedCommand, which knows what it probably is
        settings = {"help_option_names": ["-h", "--help"], "allow_extra_args": True}
        app.command(cls=GroupedCommand, context_settings=settings)(flat(function))
    return app
