"""Every shared option, declared once: its names, its words, its values or range, its group.

A command's parameter names its declaration: `seed: Annotated[str | None, SEED]`, or a list of it where it is repeated.
What a command means by it in particular it says with `redeclare`. Below stand the groups of options that commands
share: a command takes those it needs, and `option.flat` spreads them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from attncli.cli import completion
from attncli.cli.option import (
    ANALYSIS,
    ATTENTION,
    COMPUTE,
    DATA,
    DELIVERY,
    DOCUMENT,
    DRAWING,
    LARGEST_SEED,
    MODEL,
    OUTPUT,
    RUN,
    SCREEN,
    SUBJECT,
    TEXT,
    About,
    number,
    only,
    option,
    redeclare,
)
from attncli.language import languages

LAYER_WEIGHTS, CHECKPOINT_ALONE = RUN | About.ONE_LAYER, RUN | About.CHECKPOINT
AFTER_HEADS = LAYER_WEIGHTS | About.AFTER_HEADS
DTYPES = ("float32", "float64", "bfloat16", "float16")

TEXT_ARGUMENT = typer.Argument(
    help="The text; - for standard input; none for a sample sentence.", show_default=False, metavar="TEXT"
)
FILE = option(
    "--file", "-f", help="Read the text from a file; - is standard input.", panel=TEXT, about=RUN, metavar="FILE"
)
LINES = option("--lines", help="Every line is a text of its own.", panel=TEXT, about=RUN)
CHAT = option(
    "--chat",
    help="Messages as JSON, [{role, content}, …], in the checkpoint's chat template; - is standard input.",
    panel=TEXT,
    about=RUN,
    metavar="FILE",
)
CHATS = redeclare(
    CHAT, help="Messages as JSON in the checkpoint's chat template, as a text; again for a second; - is standard input."
)
CHAT_TEMPLATE = option(
    "--chat-template",
    help="With --chat: a Jinja template in place of the checkpoint's.",
    panel=TEXT,
    about=RUN,
    metavar="FILE",
    rare=True,
)
GENERATION_PROMPT = option(
    "--generation-prompt/--no-generation-prompt",
    help="With --chat: end where the assistant's answer begins. [default: yes]",
    panel=TEXT,
    about=RUN,
    rare=True,
)
IDS = option("--ids", help='Token ids in place of a text: "1 5 7".', panel=TEXT, about=RUN, metavar="IDS")
REGION = option(
    "--region",
    help="A named set of tokens: NAME=START…END, /REGEX/, lines:A-B, chars:A-B, tokens:A-B, json:$.KEY. Repeatable.",
    panel=TEXT,
    about=RUN,
    metavar="NAME=SPEC",
)
REGIONS = option("--regions", help="The same from a JSON object.", panel=TEXT, about=RUN, metavar="FILE", rare=True)
TOKENIZER = option(
    "--tokenizer",
    help="word, whitespace, char, byte, or a tokenizer.json. [default: word]",
    panel=TEXT,
    about=RUN,
    metavar="NAME|PATH",
    complete=completion.tokenizers,
)
WORDS = option("--words", help="Merge the pieces of a word: sum to it, mean from it.", panel=TEXT, about=RUN)

QUERY = option(
    "--query",
    help="Only this query: a token (it), its 2nd occurrence (the:2) or index (#7).",
    panel=SUBJECT,
    about=RUN,
    metavar="TOK",
)
FROM = option(
    "--from", help="The token that looks: it, the:2 (second occurrence) or #7.", panel=SUBJECT, about=RUN, metavar="TOK"
)
TO = option("--to", help="The token that is looked at.", panel=SUBJECT, about=RUN, metavar="TOK")
SPLIT = option(
    "--by",
    help="Split by part of the stream, by token as well, by rotary frequency, or by entry of q and k.",
    panel=ANALYSIS,
    about=RUN,
    metavar="part|token|frequency|dimension",
    complete=completion.words("part", "token", "frequency", "dimension"),
)
CROSS = option(
    "--cross", help="The link is to the text that --source gives: --to is a token of that.", panel=SUBJECT, about=RUN
)
TARGET = option(
    "--target",
    help="The next token that is measured: one vocabulary entry, or id:N. [default: the model's first choice]",
    panel=SUBJECT,
    about=RUN,
    metavar="TOK",
)
UNKNOWN = option(
    "--unknown",
    help="Also take tokens that the model does not know: to it all of these are one.",
    panel=SUBJECT,
    about=RUN,
    rare=True,
)
TOKEN_COUNT = number("-n", "--tokens", "--positions", help="Tokens of the text.", panel=ATTENTION, about=RUN)
LAYER = option("--layer", help="Layers to show, counted from 0: 5, 0,3 or 2-5.", panel=SUBJECT, about=RUN, metavar="L")
HEAD = option(
    "--head",
    help="Heads to show, counted from 0: 5, 0,3, 2-5, or of one layer L5H11.",
    panel=SUBJECT,
    about=RUN,
    metavar="H",
    complete=completion.heads,
)
ONE_LAYER = number(
    "--layer", help="The layer, in a file that --save wrote.", panel=SUBJECT, about=RUN, metavar="L", least=0
)
ONE_HEAD = number("--head", help="The head whose bias is drawn.", panel=ATTENTION, about=RUN, metavar="H", least=0)

MODEL_ARGUMENT = typer.Argument(
    help="A folder, hub id or alias.",
    show_default=False,
    metavar="NAME|DIR",
    autocompletion=completion.offer(completion.models),
)
CHECKPOINT = option(
    "--model",
    "-m",
    help="A checkpoint: folder, hub id or alias such as minilm. [env: ATTN_MODEL]",
    panel=MODEL,
    about=RUN,
    metavar="NAME|DIR",
    complete=completion.models,
)
IGNORE_CONFIG = option(
    "--ignore-config",
    help="Run although this key of config.json is not implemented.",
    panel=MODEL,
    about=CHECKPOINT_ALONE,
    metavar="KEY",
    rare=True,
)
ADAPTER = option(
    "--adapter",
    help="A PEFT adapter merged into the checkpoint: its folder, perhaps with a weight; again for several.",
    panel=MODEL,
    about=CHECKPOINT_ALONE,
    metavar="DIR[:W]",
    rare=True,
)
SOURCE = option(
    "--source",
    help="Encoder-decoders: the text that the decoder reads; TEXT is the decoder's own.",
    panel=MODEL,
    about=CHECKPOINT_ALONE,
    metavar="TEXT",
    rare=True,
)
SOURCE_STATES = option(
    "--source-states",
    help="The same over captured states of the encoder, [token, width], as Whisper's decoder needs them.",
    panel=MODEL,
    about=CHECKPOINT_ALONE,
    metavar="FILE",
    rare=True,
)
GLOBAL_TOKENS = option(
    "--global-tokens",
    help="Longformer, LED: positions of tokens that see all and are seen by all, such as 0,5.",
    panel=MODEL,
    about=CHECKPOINT_ALONE,
    metavar="I,J",
    rare=True,
)
WEIGHTS = option(
    "--weights",
    "-w",
    help="Weights of one attention layer: .safetensors, .npz, .pt.",
    panel=MODEL,
    about=LAYER_WEIGHTS,
    metavar="FILE",
)
EMBEDDINGS = option(
    "--embeddings",
    help="The input vectors, a [tokens, d_model] matrix.",
    panel=MODEL,
    about=LAYER_WEIGHTS,
    metavar="FILE",
    rare=True,
)
SEED = option(
    "--seed",
    help="Seed of the weights, or 'random'. [default: 0]",
    panel=MODEL,
    about=LAYER_WEIGHTS,
    metavar="INT|random",
)
SEED_NUMBER = number(
    "--seed", help="Seed of draws and intervals.", panel=MODEL, about=RUN, metavar="INT", least=0, most=LARGEST_SEED
)
D_MODEL = number("--d-model", help="Width of the token vectors. [default: 64]", panel=MODEL, about=LAYER_WEIGHTS)
NUM_HEADS = number("--num-heads", help="Number of heads. [default: 1]", panel=MODEL, about=LAYER_WEIGHTS)
EIGHT = 8
"""Heads that seeded weights have where several are compared and `--num-heads` does not say."""
EIGHT_HEADS = redeclare(NUM_HEADS, help="Number of heads. [default: 8]")
D_K = number("--d-k", help="Width of a query and key. [default: d_model/heads]", panel=MODEL, about=LAYER_WEIGHTS)
D_V = number("--d-v", help="Width of a value. [default: d_model/heads]", panel=MODEL, about=LAYER_WEIGHTS)
BIAS = option(
    "--bias/--no-bias", help="Seeded biases on the projections. [default: no]", panel=MODEL, about=LAYER_WEIGHTS
)
OUTPUT_PROJECTION = option(
    "--output-projection/--no-output-projection",
    help="W_O after the heads. [default: with several heads]",
    panel=MODEL,
    about=AFTER_HEADS,
    rare=True,
)
RESIDUAL = option("--residual", help="Add the input to the output.", panel=MODEL, about=AFTER_HEADS)
LAYER_NORM = option("--layer-norm", help="Layer normalization at the end.", panel=MODEL, about=AFTER_HEADS)

MASK = option(
    "--mask",
    help="causal, window:W, window:L,R, prefix:P, … or a file (0 = hidden). Repeat to intersect, in compare to "
    "compare; A&B intersects. 'attn mask' explains.",
    panel=ATTENTION,
    about=RUN,
    metavar="SPEC|FILE",
    complete=completion.masks,
)
SCALE = option(
    "--scale",
    help="sqrt-dk, sqrt-dmodel, none or a number. [default: sqrt-dk]",
    panel=ATTENTION,
    about=RUN,
    metavar="SCALE",
    complete=completion.words("sqrt-dk", "sqrt-dmodel", "none"),
)
SOFTCAP = number(
    "--softcap",
    help="Bound the scores: X·tanh(score/X).",
    panel=ATTENTION,
    about=RUN,
    metavar="X",
    least=1e-30,
    most=1e30,
)
POSITION = option(
    "--position",
    help="none, sinusoidal, rope, rope:THETA, alibi, learned. [default: none]",
    panel=ATTENTION,
    about=RUN,
    metavar="NAME",
    complete=completion.words("none", "sinusoidal", "rope", "alibi", "learned"),
)
ATTENTION_KIND = option(
    "--attention",
    help="dense, or reformer[:BUCKETS[,ROUNDS[,CHUNK]]]: hash attention. [default: dense]",
    panel=ATTENTION,
    about=RUN,
    metavar="KIND",
    complete=completion.words("dense", "reformer", "reformer:"),
)

BACKEND = option("--backend", help="What computes.", panel=COMPUTE, about=RUN, values=("auto", "numpy", "torch"))
DEVICE = option(
    "--device",
    help="Where torch computes: cpu, cuda or mps. [default: cpu]",
    panel=COMPUTE,
    about=RUN,
    values=("cpu", "cuda", "mps"),
    with_number=True,
    rare=True,
)
DTYPE = option(
    "--dtype",
    help="Type of the numbers. Short runs of a checkpoint in float32 compute in float64, then round.",
    panel=COMPUTE,
    about=RUN,
    values=DTYPES,
)
MAX_MEMORY = option(
    "--max-memory",
    help="Refuse work above this. [default: what is free]",
    panel=COMPUTE,
    about=RUN,
    metavar="SIZE",
    rare=True,
)

JSON = option("--json", help="One JSON document.", panel=OUTPUT, about=DELIVERY)
NDJSON = option("--ndjson", help="One JSON document a line, one line a text.", panel=OUTPUT, about=DELIVERY)
PLAIN = option("--plain", help="Tab-separated lines, no decoration.", panel=OUTPUT, about=DELIVERY)
CSV = option(
    "--csv", help="Also write the table, with commas: what --plain shows.", panel=OUTPUT, about=DELIVERY, metavar="FILE"
)
OUTPUT_FILE = option(
    "--output",
    "-o",
    help="Write the answer to a file; - is standard output.",
    panel=OUTPUT,
    about=DELIVERY,
    metavar="FILE",
)
FIGURE = option(
    "--figure", "--svg", help="Also draw a figure: .svg, .png or .pdf.", panel=OUTPUT, about=DELIVERY, metavar="FILE"
)
FIGURE_STYLE = option(
    "--figure-style",
    help="Of the figure: light or dark, 85mm, 300dpi.",
    panel=OUTPUT,
    about=DELIVERY,
    metavar="WORDS",
    complete=completion.styles,
)
SHOW = option(
    "--show",
    help="Parts of the screen to show, with commas between.",
    panel=OUTPUT,
    about=SCREEN,
    metavar="PARTS",
    complete=completion.parts,
)
CODE = option(
    "--code",
    help="Each step's line of code beside its formula.",
    panel=OUTPUT,
    about=DRAWING,
    values=("numpy", "torch"),
)
BRIEF = option("--brief", help="Show the answer alone.", panel=OUTPUT, about=DRAWING)
STEP = option("--step", help="Wait for a key after each step.", panel=OUTPUT, about=DELIVERY)
FULL = option("--full", help="Show every row, column and dimension.", panel=OUTPUT, about=SCREEN)
PRECISION = number("--precision", help="Digits after the point.", panel=OUTPUT, about=SCREEN, least=0, most=17)
TOP = number("--top", help="How many links or rows of a ranking.", panel=OUTPUT, about=SCREEN)
COLOR = option(
    "--color",
    "--colour",
    help="Whether to use colour.",
    panel=OUTPUT,
    about=DELIVERY,
    values=("auto", "always", "never"),
)
ASCII = option("--ascii", help="Draw and write in ASCII only.", panel=OUTPUT, about=DRAWING)
LANGUAGES = [*languages()]
"""A list: a test adds a language."""
LANG = option(
    "--lang", help="Language of the explanations. [env: ATTN_LANG]", panel=OUTPUT, about=DELIVERY, values=LANGUAGES
)
SCALE_COLORS = option(
    "--scale-colors",
    help="How weights become shades.",
    panel=OUTPUT,
    about=SCREEN,
    values=("linear", "log", "row"),
    rare=True,
)
MAX_OUTPUT = option(
    "--max-output", help="Refuse a larger document.", panel=OUTPUT, about=DATA, metavar="SIZE", rare=True
)
STAGES = option(
    "--stages", help="'all' adds every stage to the JSON.", panel=OUTPUT, about=DOCUMENT, values=("all",), rare=True
)
METRIC = option(
    "--metric",
    help="Metrics, apart by commas, or 'all'; 'attn explain metric' explains.",
    panel=ANALYSIS,
    about=RUN,
    complete=completion.metrics,
    metavar="NAME",
)
METRIC_FILE = option(
    "--metric-file",
    help="A Python file of yours with metrics: this runs its code.",
    panel=ANALYSIS,
    about=RUN,
    metavar="FILE",
    rare=True,
)
HTML = option(
    "--html", help="Also write one offline page to look at in a browser.", panel=OUTPUT, about=DELIVERY, metavar="FILE"
)
PAGE_WHY = option(
    "--why",
    help="With --html: the page also tells why these heads look where they do: L5H11,L3H1.",
    panel=ANALYSIS,
    about=DELIVERY,
    metavar="HEADS",
)
ALL_LINKS = option(
    "--all-links",
    help="Also the links that say little: of special tokens, to itself, to neighbours, to the first token.",
    panel=ANALYSIS,
    about=RUN,
    rare=True,
)
QUIET = option("--quiet", "-q", help="No notes on standard error.", panel=OUTPUT, about=DELIVERY)
VERBOSE = option("--verbose", "-v", help="Say on standard error what was read and used.", panel=OUTPUT, about=DELIVERY)
DEBUG = option(
    "--debug", help="Show a traceback when something fails. [env: ATTN_DEBUG]", panel=OUTPUT, about=DELIVERY, rare=True
)

# The groups of options that commands share.


@dataclass(frozen=True)
class TextOptions:
    """Where the text comes from."""

    text: Annotated[str | None, TEXT_ARGUMENT] = None
    file: Annotated[Path | None, FILE] = None
    lines: Annotated[bool, LINES] = False
    ids: Annotated[str | None, IDS] = None
    chat: Annotated[Path | None, CHAT] = None
    chat_template: Annotated[Path | None, CHAT_TEMPLATE] = None
    generation_prompt: Annotated[bool | None, GENERATION_PROMPT] = None
    tokenizer: Annotated[str | None, TOKENIZER] = None


@dataclass(frozen=True)
class ChatOptions:
    """Chats that are texts of a command which takes two."""

    chat: Annotated[list[Path] | None, CHATS] = None
    chat_template: Annotated[Path | None, CHAT_TEMPLATE] = None
    generation_prompt: Annotated[bool | None, GENERATION_PROMPT] = None


@dataclass(frozen=True)
class RegionOptions:
    """Which tokens are told about together."""

    region: Annotated[list[str] | None, REGION] = None
    regions: Annotated[Path | None, REGIONS] = None


@dataclass(frozen=True)
class ModelOptions:
    """Which weights run."""

    layer: Annotated[list[str] | None, LAYER] = None
    head: Annotated[list[str] | None, HEAD] = None
    model: Annotated[str | None, CHECKPOINT] = None
    ignore_config: Annotated[list[str] | None, IGNORE_CONFIG] = None
    adapter: Annotated[list[str] | None, ADAPTER] = None
    source: Annotated[str | None, SOURCE] = None
    source_states: Annotated[Path | None, SOURCE_STATES] = None
    global_tokens: Annotated[str | None, GLOBAL_TOKENS] = None
    weights: Annotated[Path | None, WEIGHTS] = None
    embeddings: Annotated[Path | None, EMBEDDINGS] = None
    seed: Annotated[str | None, SEED] = None
    d_model: Annotated[int | None, D_MODEL] = None
    num_heads: Annotated[int | None, NUM_HEADS] = None
    d_k: Annotated[int | None, D_K] = None
    d_v: Annotated[int | None, D_V] = None
    bias: Annotated[bool | None, BIAS] = None
    output_projection: Annotated[bool | None, OUTPUT_PROJECTION] = None
    residual: Annotated[bool, RESIDUAL] = False
    layer_norm: Annotated[bool, LAYER_NORM] = False


@dataclass(frozen=True)
class AttentionOptions:
    """What happens between queries and keys."""

    mask: Annotated[list[str] | None, MASK] = None
    scale: Annotated[str | None, SCALE] = None
    softcap: Annotated[float | None, SOFTCAP] = None
    position: Annotated[str | None, POSITION] = None
    attention: Annotated[str | None, ATTENTION_KIND] = None


@dataclass(frozen=True)
class ComputeOptions:
    """Where and how precisely to compute."""

    backend: Annotated[str, BACKEND] = "auto"
    device: Annotated[str | None, DEVICE] = None
    dtype: Annotated[str, DTYPE] = "float32"
    max_memory: Annotated[str | None, MAX_MEMORY] = None


@dataclass(frozen=True)
class OutputOptions:
    """What is answered, where, and how it looks."""

    json: Annotated[bool, JSON] = False
    ndjson: Annotated[bool, NDJSON] = False
    plain: Annotated[bool, PLAIN] = False
    csv: Annotated[Path | None, CSV] = None
    output: Annotated[Path | None, OUTPUT_FILE] = None
    svg: Annotated[Path | None, FIGURE] = None
    figure_style: Annotated[str, FIGURE_STYLE] = ""
    show: Annotated[str | None, SHOW] = None
    brief: Annotated[bool, BRIEF] = False
    full: Annotated[bool, FULL] = False
    precision: Annotated[int, PRECISION] = 2
    top: Annotated[int, TOP] = 10
    color: Annotated[str, COLOR] = "auto"
    ascii: Annotated[bool, ASCII] = False
    lang: Annotated[str, LANG] = "en"
    scale_colors: Annotated[str, SCALE_COLORS] = "linear"
    max_output: Annotated[str, MAX_OUTPUT] = "256MB"
    quiet: Annotated[bool, QUIET] = False
    verbose: Annotated[bool, VERBOSE] = False
    debug: Annotated[bool, DEBUG] = False

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

    @property
    def page(self) -> Path | None:
        """The file that the page of the answer goes to."""
        return None


@dataclass(frozen=True)
class PagedOutput(OutputOptions):
    """The output options, and a page of what the answer holds."""

    html: Annotated[Path | None, HTML] = None

    @property
    def page(self) -> Path | None:
        """The file that the page of the answer goes to."""
        return self.html


_TABLE = ("json", "ndjson", "plain", "csv", "output", "brief", "color", "ascii", "lang", "quiet", "verbose", "debug")
TableOutput = Annotated[OutputOptions, only(*_TABLE)]
"""The output options of a command whose screen is one table, shown whole, or its answer alone."""
LongTableOutput = Annotated[OutputOptions, only(*_TABLE, "full")]
"""The same where the table may be long, and is shown whole with --full."""
