"""The groups of options that commands share. A command takes the groups it needs; `offer.flat` spreads them out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from attncli.cli import declarations as the
from attncli.cli.grouped_command import GroupedCommand, command_app
from attncli.cli.offered_options import flat, meaning, only, without
from attncli.cli.option import ANALYSIS, ATTENTION, COMPUTE, LOOK, MODEL, OUTPUT, TEXT, meant, number, option

__all__ = [
    "ANALYSIS",
    "ATTENTION",
    "COMPUTE",
    "LOOK",
    "MODEL",
    "OUTPUT",
    "TEXT",
    "AttentionOptions",
    "ComputeOptions",
    "GroupedCommand",
    "LongTableOutput",
    "ModelOptions",
    "OutputOptions",
    "TableOutput",
    "TextOptions",
    "command_app",
    "flat",
    "meaning",
    "meant",
    "number",
    "only",
    "option",
    "without",
]


@dataclass(frozen=True)
class TextOptions:
    """Where the text comes from."""

    text: Annotated[str | None, the.TEXT_ARGUMENT] = None
    file: Annotated[Path | None, the.FILE] = None
    lines: Annotated[bool, the.LINES] = False
    ids: Annotated[str | None, the.IDS] = None
    tokenizer: Annotated[str | None, the.TOKENIZER] = None


@dataclass(frozen=True)
class ModelOptions:
    """Which weights run."""

    layer: Annotated[list[str] | None, the.LAYER] = None
    head: Annotated[list[str] | None, the.HEAD] = None
    model: Annotated[str | None, the.CHECKPOINT] = None
    ignore_config: Annotated[list[str] | None, the.IGNORE_CONFIG] = None
    source: Annotated[str | None, the.SOURCE] = None
    source_states: Annotated[Path | None, the.SOURCE_STATES] = None
    global_tokens: Annotated[str | None, the.GLOBAL_TOKENS] = None
    weights: Annotated[Path | None, the.WEIGHTS] = None
    embeddings: Annotated[Path | None, the.EMBEDDINGS] = None
    seed: Annotated[str | None, the.SEED] = None
    d_model: Annotated[int | None, the.D_MODEL] = None
    num_heads: Annotated[int | None, the.NUM_HEADS] = None
    d_k: Annotated[int | None, the.D_K] = None
    d_v: Annotated[int | None, the.D_V] = None
    bias: Annotated[bool | None, the.BIAS] = None
    output_projection: Annotated[bool | None, the.OUTPUT_PROJECTION] = None
    residual: Annotated[bool, the.RESIDUAL] = False
    layer_norm: Annotated[bool, the.LAYER_NORM] = False


@dataclass(frozen=True)
class AttentionOptions:
    """What happens between queries and keys."""

    mask: Annotated[list[str] | None, the.MASK] = None
    scale: Annotated[str | None, the.SCALE] = None
    softcap: Annotated[float | None, the.SOFTCAP] = None
    position: Annotated[str | None, the.POSITION] = None
    attention: Annotated[str | None, the.ATTENTION_KIND] = None


@dataclass(frozen=True)
class ComputeOptions:
    """Where and how precisely to compute."""

    backend: Annotated[str, the.BACKEND] = "auto"
    device: Annotated[str | None, the.DEVICE] = None
    dtype: Annotated[str, the.DTYPE] = "float32"
    max_memory: Annotated[str | None, the.MAX_MEMORY] = None


@dataclass(frozen=True)
class OutputOptions:
    """What is answered, where, and how it looks."""

    json: Annotated[bool, the.JSON] = False
    ndjson: Annotated[bool, the.NDJSON] = False
    plain: Annotated[bool, the.PLAIN] = False
    csv: Annotated[Path | None, the.CSV] = None
    output: Annotated[Path | None, the.OUTPUT_FILE] = None
    svg: Annotated[Path | None, the.FIGURE] = None
    figure_style: Annotated[str, the.FIGURE_STYLE] = ""
    show: Annotated[str | None, the.SHOW] = None
    brief: Annotated[bool, the.BRIEF] = False
    full: Annotated[bool, the.FULL] = False
    precision: Annotated[int, the.PRECISION] = 2
    top: Annotated[int, the.TOP] = 10
    color: Annotated[str, the.COLOR] = "auto"
    ascii: Annotated[bool, the.ASCII] = False
    lang: Annotated[str, the.LANG] = "en"
    scale_colors: Annotated[str, the.SCALE_COLORS] = "linear"
    max_output: Annotated[str, the.MAX_OUTPUT] = "256MB"
    quiet: Annotated[bool, the.QUIET] = False
    verbose: Annotated[bool, the.VERBOSE] = False
    debug: Annotated[bool, the.DEBUG] = False

    @property
    def file(self) -> Path | None:
        """The file that the answer goes to; None for standard output, also called `-`."""
        return None if self.output is None or str(self.output) == "-" else self.output


_TABLE = ("json", "ndjson", "plain", "csv", "output", "brief", "color", "ascii", "lang", "quiet", "verbose", "debug")
TableOutput = Annotated[OutputOptions, only(*_TABLE)]
"""The output options of a command whose screen is one table, shown whole, or its answer alone."""
LongTableOutput = Annotated[OutputOptions, only(*_TABLE, "full")]
"""The same where the table may be long, and is shown whole with --full."""
