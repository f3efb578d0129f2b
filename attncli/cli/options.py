"""The groups of options that commands share. A command takes the groups it needs; `offer.flat` spreads them out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from attncli.cli import declarations
from attncli.cli.grouped_command import GroupedCommand, command_app
from attncli.cli.option import (
    ANALYSIS,
    ATTENTION,
    COMPUTE,
    DATA,
    DELIVERY,
    DOCUMENT,
    DRAWING,
    MODEL,
    OUTPUT,
    RUN,
    SCREEN,
    SUBJECT,
    TEXT,
    About,
    flat,
    meaning,
    number,
    only,
    option,
    redeclare,
    subjects_of,
    without,
)

__all__ = [
    "ANALYSIS",
    "ATTENTION",
    "COMPUTE",
    "DATA",
    "DELIVERY",
    "DOCUMENT",
    "DRAWING",
    "MODEL",
    "OUTPUT",
    "RUN",
    "SCREEN",
    "SUBJECT",
    "TEXT",
    "About",
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
    "number",
    "only",
    "option",
    "redeclare",
    "subjects_of",
    "without",
]


@dataclass(frozen=True)
class TextOptions:
    """Where the text comes from."""

    text: Annotated[str | None, declarations.TEXT_ARGUMENT] = None
    file: Annotated[Path | None, declarations.FILE] = None
    lines: Annotated[bool, declarations.LINES] = False
    ids: Annotated[str | None, declarations.IDS] = None
    chat: Annotated[Path | None, declarations.CHAT] = None
    chat_template: Annotated[Path | None, declarations.CHAT_TEMPLATE] = None
    generation_prompt: Annotated[bool | None, declarations.GENERATION_PROMPT] = None
    tokenizer: Annotated[str | None, declarations.TOKENIZER] = None


@dataclass(frozen=True)
class ModelOptions:
    """Which weights run."""

    layer: Annotated[list[str] | None, declarations.LAYER] = None
    head: Annotated[list[str] | None, declarations.HEAD] = None
    model: Annotated[str | None, declarations.CHECKPOINT] = None
    ignore_config: Annotated[list[str] | None, declarations.IGNORE_CONFIG] = None
    source: Annotated[str | None, declarations.SOURCE] = None
    source_states: Annotated[Path | None, declarations.SOURCE_STATES] = None
    global_tokens: Annotated[str | None, declarations.GLOBAL_TOKENS] = None
    weights: Annotated[Path | None, declarations.WEIGHTS] = None
    embeddings: Annotated[Path | None, declarations.EMBEDDINGS] = None
    seed: Annotated[str | None, declarations.SEED] = None
    d_model: Annotated[int | None, declarations.D_MODEL] = None
    num_heads: Annotated[int | None, declarations.NUM_HEADS] = None
    d_k: Annotated[int | None, declarations.D_K] = None
    d_v: Annotated[int | None, declarations.D_V] = None
    bias: Annotated[bool | None, declarations.BIAS] = None
    output_projection: Annotated[bool | None, declarations.OUTPUT_PROJECTION] = None
    residual: Annotated[bool, declarations.RESIDUAL] = False
    layer_norm: Annotated[bool, declarations.LAYER_NORM] = False


@dataclass(frozen=True)
class AttentionOptions:
    """What happens between queries and keys."""

    mask: Annotated[list[str] | None, declarations.MASK] = None
    scale: Annotated[str | None, declarations.SCALE] = None
    softcap: Annotated[float | None, declarations.SOFTCAP] = None
    position: Annotated[str | None, declarations.POSITION] = None
    attention: Annotated[str | None, declarations.ATTENTION_KIND] = None


@dataclass(frozen=True)
class ComputeOptions:
    """Where and how precisely to compute."""

    backend: Annotated[str, declarations.BACKEND] = "auto"
    device: Annotated[str | None, declarations.DEVICE] = None
    dtype: Annotated[str, declarations.DTYPE] = "float32"
    max_memory: Annotated[str | None, declarations.MAX_MEMORY] = None


@dataclass(frozen=True)
class OutputOptions:
    """What is answered, where, and how it looks."""

    json: Annotated[bool, declarations.JSON] = False
    ndjson: Annotated[bool, declarations.NDJSON] = False
    plain: Annotated[bool, declarations.PLAIN] = False
    csv: Annotated[Path | None, declarations.CSV] = None
    output: Annotated[Path | None, declarations.OUTPUT_FILE] = None
    svg: Annotated[Path | None, declarations.FIGURE] = None
    figure_style: Annotated[str, declarations.FIGURE_STYLE] = ""
    show: Annotated[str | None, declarations.SHOW] = None
    brief: Annotated[bool, declarations.BRIEF] = False
    full: Annotated[bool, declarations.FULL] = False
    precision: Annotated[int, declarations.PRECISION] = 2
    top: Annotated[int, declarations.TOP] = 10
    color: Annotated[str, declarations.COLOR] = "auto"
    ascii: Annotated[bool, declarations.ASCII] = False
    lang: Annotated[str, declarations.LANG] = "en"
    scale_colors: Annotated[str, declarations.SCALE_COLORS] = "linear"
    max_output: Annotated[str, declarations.MAX_OUTPUT] = "256MB"
    quiet: Annotated[bool, declarations.QUIET] = False
    verbose: Annotated[bool, declarations.VERBOSE] = False
    debug: Annotated[bool, declarations.DEBUG] = False

    @property
    def file(self) -> Path | None:
        """The file that the answer goes to; None for standard output, also called `-`."""
        return None if self.output is None or str(self.output) == "-" else self.output

    @property
    def table(self) -> Path | None:
        """The file that the table goes to besides the answer; None without one, and where it is the answer."""
        return None if self.is_table else self.csv

    @property
    def is_table(self) -> bool:
        """Whether the table with commas takes the answer's place on standard output: `--csv -`."""
        return self.csv is not None and str(self.csv) == "-"


_TABLE = ("json", "ndjson", "plain", "csv", "output", "brief", "color", "ascii", "lang", "quiet", "verbose", "debug")
TableOutput = Annotated[OutputOptions, only(*_TABLE)]
"""The output options of a command whose screen is one table, shown whole, or its answer alone."""
LongTableOutput = Annotated[OutputOptions, only(*_TABLE, "full")]
"""The same where the table may be long, and is shown whole with --full."""
