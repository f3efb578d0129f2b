"""Every shared option, declared once: its names, its words, its values or range, its group.

A command's parameter names its declaration: `seed: Annotated[str | None, SEED]`, or a list of it
where it is repeated. What a command means by it in particular it says with `redeclare`. Below stand
the groups of options that commands share: a command takes those it needs, and `option.flat` spreads
them out.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from msgspec import Struct
from msgspec.structs import force_setattr

from attncli.cli import completion
from attncli.cli.option import (
    ANALYSIS,
    DATA,
    DELIVERY,
    DOCUMENT,
    DRAWING,
    EVERYWHERE,
    KEPT,
    LARGEST_SEED,
    MODEL,
    OUTPUT,
    RUN,
    SCREEN,
    WITHOUT_MODEL,
    About,
    analysis_option,
    argument,
    attention_number,
    attention_option,
    compute_number,
    compute_option,
    delivery_option,
    everywhere_option,
    model_number,
    model_option,
    number,
    only,
    option,
    redeclare,
    subject_number,
    subject_option,
    text_option,
)
from attncli.errors import UsageError
from attncli.language import language_of, languages, message

LAYER_WEIGHTS, CHECKPOINT_ALONE = RUN | About.ONE_LAYER, RUN | About.CHECKPOINT
AFTER_HEADS = LAYER_WEIGHTS | About.AFTER_HEADS

# Options that stand on the help page in one place and change one thing.
checkpoint_option = partial(option, panel=MODEL, about=CHECKPOINT_ALONE)
weights_option = partial(option, panel=WITHOUT_MODEL, about=LAYER_WEIGHTS)
weights_number = partial(number, panel=WITHOUT_MODEL, about=LAYER_WEIGHTS)
after_heads_option = partial(option, panel=WITHOUT_MODEL, about=AFTER_HEADS)
kept_text_option = partial(option, panel=KEPT, about=RUN)
screen_option = partial(option, panel=OUTPUT, about=SCREEN)
drawing_option = partial(option, panel=OUTPUT, about=DRAWING)

DTYPES = ("float32", "float64", "bfloat16", "float16")

TEXT_ARGUMENT = argument("The text; - for standard input; none for a sample sentence.", "TEXT")
FILE = text_option(
    "--file", "-f", help="Read the text from a file; - is standard input.", metavar="FILE"
)
LINES = text_option(help="Every line is a text of its own.")
PAIR = text_option(
    help=(
        "A second segment after the text, as models of sentence pairs read it: an answer, a"
        " hypothesis, a passage."
    ),
    metavar="TEXT",
    rare=True,
)
CHAT = text_option(
    help=(
        "Messages as JSON, [{role, content}, …], in the checkpoint's chat template, or in another:"
        " a file, or a name that the checkpoint has. - is standard input."
    ),
    metavar="FILE|FILE@TEMPLATE",
)
CHATS = redeclare(
    CHAT,
    help=(
        "Messages as JSON in the checkpoint's chat template, or another, as a text; again for a"
        " second; - is standard input."
    ),
)
CHAT_TEMPLATE = kept_text_option(
    help="With --chat: another Jinja template, or the name of one that the checkpoint has.",
    metavar="FILE|NAME",
)
CHAT_VAR = text_option(
    "--chat-var",
    help=(
        "With --chat: a variable of the template, JSON or text, such as"
        " add_generation_prompt=false. Repeatable."
    ),
    metavar="NAME=VALUE",
    rare=True,
)
GENERATION_PROMPT = kept_text_option(
    "--generation-prompt/--no-generation-prompt",
    help="With --chat: end where the assistant's answer begins. [default: yes]",
)
IDS = text_option(help='Token ids in place of a text: "1 5 7".', metavar="IDS")
REGION = text_option(
    help=(
        "A named set of tokens: NAME=START…END, /REGEX/, lines:A-B, chars:A-B, tokens:A-B,"
        " json:$.KEY; or @FILE, a JSON object of these. Repeatable."
    ),
    metavar="NAME=SPEC|@FILE",
)
REGIONS = kept_text_option(help="Regions from a JSON object.", metavar="FILE")
TOKENIZER = text_option(
    help="word, whitespace, char, byte, or a tokenizer.json. [default: word]",
    metavar="NAME|PATH",
    complete=completion.tokenizers,
)
WORDS = text_option(help="Merge the pieces of a word: sum to it, mean from it.")

QUERY = subject_option(
    help="Only this query: a token (it), its 2nd occurrence (the:2) or index (#7).",
    metavar="TOK",
    complete=completion.tokens,
)
FROM = subject_option(
    "--from",
    help="The token that looks: it, the:2 (second occurrence) or #7.",
    metavar="TOK",
    complete=completion.tokens,
)
TO = subject_option(
    "--to", help="The token that is looked at.", metavar="TOK", complete=completion.tokens
)
SPLIT = analysis_option(
    "--by",
    help=(
        "Split by part of the stream, by token as well, by rotary frequency, or by entry of q"
        " and k."
    ),
    metavar="part|token|frequency|dimension",
    complete=completion.words("part", "token", "frequency", "dimension"),
)
CROSS = subject_option(help="The link is to the text that --source gives: --to is a token of that.")
WEIGH = subject_option(
    help="Weigh attention on a region or word before rows are scaled: NAME=×4, 0 to 100.",
    metavar="NAME=×N",
)
WEIGH_HEADS = subject_option(
    "--heads", help="With --weigh: only in these heads, L5H11,L3H1. [default: all]", metavar="HEADS"
)
LEARNING_RATE = compute_number(
    help="What the gradients are multiplied by in the step.",
    metavar="X",
    least=0,
    most=1000,
    above=True,
)
TARGET = subject_option(
    help=(
        "The next token that is measured: one vocabulary entry, or id:N. [default: the model's"
        " first choice]"
    ),
    metavar="TOK",
)
VERSUS = subject_option(help="Take this token's logit away from the target's.", metavar="TOK")
PAIRS = subject_option(
    "--pairs",
    help="Over pairs of texts: a file, or a task: indirect-object, greater-than, agreement.",
    metavar="FILE",
)
PAIR_COUNT = subject_number(
    "--count", help="How many pairs of the file. [default: all; of a template what it says]"
)
CIRCUIT = subject_option(
    "--circuit",
    help="Keep the heads of this circuit: all others are taken away at once.",
    metavar="FILE",
)
UNKNOWN = subject_option(
    help="Also take tokens that the model does not know: to it all of these are one.", rare=True
)
TOKEN_COUNT = attention_number("-n", "--tokens", "--positions", help="Tokens of the text.")
LAYER = subject_option(
    "--layer", "-l", help="Layers to show, counted from 0: 5, 0,3 or 2-5.", metavar="L"
)
HEAD = subject_option(
    "--head",
    "-H",
    help="Heads to show, counted from 0: 5, 0,3, 2-5, or of one layer L5H11.",
    metavar="H",
    complete=completion.heads,
)
ONE_LAYER = subject_number(
    "--layer", help="The layer, in a file that --save wrote.", metavar="L", least=0
)
ONE_HEAD = attention_number("--head", help="The head whose bias is drawn.", metavar="H", least=0)

MODEL_ARGUMENT = argument("A folder, hub id or alias.", "NAME|DIR", completion.models)
CHECKPOINT = model_option(
    "--model",
    "-m",
    help="A checkpoint: folder, hub id or alias such as minilm. [env: ATTN_MODEL]",
    metavar="NAME|DIR",
    complete=completion.models,
)
IGNORE_CONFIG = checkpoint_option(
    help="Run although this key of config.json is not implemented.", metavar="KEY", rare=True
)
ADAPTER = checkpoint_option(
    help=(
        "A PEFT adapter merged into the checkpoint: its folder, perhaps with a weight; again for"
        " several."
    ),
    metavar="DIR[:W]",
    rare=True,
)
SOURCE = checkpoint_option(
    help=(
        "Encoder-decoders: the text that the decoder reads, TEXT is the decoder's own; or captured"
        " states of the encoder, [token, width], as Whisper's decoder needs them."
    ),
    metavar="TEXT|@FILE.npy",
    rare=True,
)
STATES = (".npy", ".npz", ".safetensors")
"""How files of captured states end: after `--source`, @ and such a name is a file, no text."""
SOURCE_STATES = option(
    help="Captured states of the encoder, [token, width].",
    panel=KEPT,
    about=CHECKPOINT_ALONE,
    metavar="FILE",
)
GLOBAL_TOKENS = checkpoint_option(
    help="Longformer, LED: positions of tokens that see all and are seen by all, such as 0,5.",
    metavar="I,J",
    rare=True,
)
WEIGHTS = weights_option(
    "--weights",
    "-w",
    help="Weights of one attention layer: .safetensors, .npz, .pt.",
    metavar="FILE",
)
EMBEDDINGS = weights_option(
    help="The input vectors, a [tokens, d_model] matrix.", metavar="FILE", rare=True
)
SEED = weights_option(help="Seed of the weights, or 'random'. [default: 0]", metavar="INT|random")
SEED_NUMBER = model_number(
    "--seed", help="Seed of draws and intervals.", metavar="INT", least=0, most=LARGEST_SEED
)
SAMPLE = model_number(
    "--sample", help="With --retrieval: only so many texts, drawn; 0 for all.", metavar="N", least=0
)
D_MODEL = weights_number(help="Width of the token vectors. [default: 64]")
NUM_HEADS = weights_number(help="Number of heads. [default: 1]")
SEEDED_HEADS = 8
"""Heads that seeded weights have where several are compared and `--num-heads` does not say."""
EIGHT_HEADS = redeclare(NUM_HEADS, help="Number of heads. [default: 8]")
D_K = weights_number(help="Width of a query and key. [default: d_model/heads]")
D_V = weights_number(help="Width of a value. [default: d_model/heads]")
BIAS = weights_option("--bias/--no-bias", help="Seeded biases on the projections. [default: no]")
OUTPUT_PROJECTION = after_heads_option(
    "--output-projection/--no-output-projection",
    help="W_O after the heads. [default: with several heads]",
    rare=True,
)
RESIDUAL = after_heads_option(help="Add the input to the output: --show sum.")
LAYER_NORM = after_heads_option(help="Layer normalization at the end: --show norm.")

MASK = attention_option(
    help=(
        "causal, window:W, window:L,R, prefix:P, … or a file (0 = hidden). Repeat to intersect, in"
        " compare to compare; A&B intersects. 'attn mask' explains."
    ),
    metavar="SPEC|FILE",
    complete=completion.masks,
)
SCALE = attention_option(
    help="sqrt-dk, sqrt-dmodel, none or a number. [default: sqrt-dk]",
    metavar="SCALE",
    complete=completion.words("sqrt-dk", "sqrt-dmodel", "none"),
)
SOFTCAP = attention_number(
    help="Bound the scores: X·tanh(score/X).", metavar="X", least=1e-30, most=1e30
)
POSITION = option(
    help="none, sinusoidal, rope, rope:THETA, alibi, learned. [default: none]",
    panel=WITHOUT_MODEL,
    about=RUN,
    metavar="NAME",
    complete=completion.words("none", "sinusoidal", "rope", "alibi", "learned"),
)
ATTENTION_KIND = attention_option(
    "--attention",
    help="dense, or reformer[:BUCKETS[,ROUNDS[,CHUNK]]]: hash attention. [default: dense]",
    metavar="KIND",
    complete=completion.words("dense", "reformer", "reformer:"),
)

DEVICES = ("cuda", "mps")
"""Devices beside the processor that torch computes on, as `--backend` names them."""
BACKEND = compute_option(
    help="What computes: NumPy or torch, or torch on a device.",
    values=("auto", "numpy", "torch", *DEVICES),
    with_number=DEVICES,
)
DEVICE = option(
    help="Where torch computes: cpu, cuda or mps. [default: cpu]",
    panel=KEPT,
    about=RUN,
    values=("cpu", *DEVICES),
    with_number=("cpu", *DEVICES),
)
DTYPE = compute_option(
    help=(
        "Type of the numbers. Short runs of a checkpoint in float32 compute in float64, then round."
    ),
    values=DTYPES,
)
MAX_MEMORY = compute_option(
    help="Refuse work above this. [default: what is free]",
    metavar="SIZE",
    rare=True,
    is_size=True,
)

JSON = delivery_option("--json", "-j", help="One JSON document.")
NDJSON = everywhere_option(help="One JSON document a line, one line a text.")
PLAIN = everywhere_option(help="Tab-separated lines, no decoration.")
CSV = everywhere_option(
    help="Also write the table, with commas: what --plain shows.", metavar="FILE"
)
OUTPUT_FILE = everywhere_option(
    "--output", "-o", help="Write the answer to a file; - is standard output.", metavar="FILE"
)
FIGURE = delivery_option(
    "--figure", "--svg", help="Also draw a figure: .svg, .png or .pdf.", metavar="FILE"
)
FIGURE_STYLE = delivery_option(
    help="Of the figure: dark, 85mm, 300dpi, notitle, columns=3, maxheight=240mm, heads=L5H11+L3H1,"
    " rows=it.",
    metavar="WORDS",
    complete=completion.styles,
)
FIGURE_PARTS = delivery_option(
    help="Of the figure, these alone: matrix, grid, links, curve, …",
    metavar="PARTS",
    complete=completion.figure_parts,
)
SHOW = screen_option(
    help="Parts of the screen to show, with commas between.",
    metavar="PARTS",
    complete=completion.parts,
)
CODE = drawing_option(
    help="Each step's line of code beside its formula.", values=("numpy", "torch")
)
BRIEF = drawing_option(help="Show the answer alone.")
STEP = delivery_option(help="Wait for a key after each step.")
FULL = screen_option(help="Show every row, column and dimension.")
PRECISION = number(
    help="Digits after the point; percentages keep their own.",
    panel=OUTPUT,
    about=SCREEN,
    least=0,
    most=17,
)
TOP = number("--top", "-t", help="How many links or rows of a ranking.", panel=OUTPUT, about=SCREEN)
COLOR = everywhere_option(
    "--color", "--colour", help="Whether to use colour.", values=("auto", "always", "never")
)
ASCII = option(help="Draw and write in ASCII only.", panel=EVERYWHERE, about=DRAWING)
LANGUAGES = [*languages()]
"""A list: a test adds a language."""
LANG = everywhere_option(
    help="Language of the explanations. [env: ATTN_LANG]", values=LANGUAGES, spelling=language_of
)
SCALE_COLORS = option(
    help="How weights become shades.", panel=KEPT, about=SCREEN, values=("linear", "log", "row")
)
MAX_OUTPUT = option(
    help="Refuse a larger document.", panel=KEPT, about=DATA, metavar="SIZE", is_size=True
)
STAGES = option(
    help="'all' adds every stage to the JSON.", panel=KEPT, about=DOCUMENT, values=("all",)
)
METRIC = analysis_option(
    help="Metrics, apart by commas, or 'all'; 'attn explain metric' explains.",
    complete=completion.metrics,
    metavar="NAME",
)
EXCLUDE = analysis_option(
    help="Leave out: first, special, self, neighbours, punctuation, separators.",
    complete=completion.comma_list(
        "first", "special", "self", "neighbours", "punctuation", "separators"
    ),
    metavar="NAMES",
)
METRIC_FILE = analysis_option(
    help="A Python file of yours with metrics: this runs its code.", metavar="FILE", rare=True
)
RULES = analysis_option(
    help="Describe every head by simple rules, and run the model with rules in its place."
)
RULES_OF = analysis_option(
    help="Tell each head's rules beside it, as attn heads --rules --json has saved them.",
    metavar="FILE",
)
RULE_FILE = analysis_option(
    help="A Python file of yours with rules: this runs its code.", metavar="FILE", rare=True
)
HTML = delivery_option(help="Also write one offline page to look at in a browser.", metavar="FILE")
HTML_BUDGET = option(
    help="Data in the page; heads beyond it come small.",
    panel=KEPT,
    about=DELIVERY,
    metavar="SIZE",
    is_size=True,
)
PAGE_WHY = option(
    "--why",
    help="With --html: the page also tells why these heads look where they do: L5H11,L3H1.",
    panel=ANALYSIS,
    about=DELIVERY,
    metavar="HEADS",
)
ALL_LINKS = analysis_option(
    help=(
        "Also the links that say little: of special tokens, to itself, to neighbours, to the first"
        " token."
    ),
    rare=True,
)
QUIET = everywhere_option("--quiet", "-q", help="No notes on standard error.")
VERBOSE = everywhere_option("--verbose", "-v", help="Say on standard error what was read and used.")
DEBUG = everywhere_option(help="Show a traceback when something fails. [env: ATTN_DEBUG]")

# The groups of options that commands share.


class TextOptions(Struct, frozen=True):
    """Where a text comes from, and how it is cut into tokens."""

    text: Annotated[str | None, TEXT_ARGUMENT] = None
    file: Annotated[Path | None, FILE] = None
    lines: Annotated[bool, LINES] = False
    pair: Annotated[str | None, PAIR] = None
    ids: Annotated[str | None, IDS] = None
    chat: Annotated[Path | None, CHAT] = None
    chat_template: Annotated[Path | None, CHAT_TEMPLATE] = None
    chat_var: Annotated[list[str] | None, CHAT_VAR] = None
    generation_prompt: Annotated[bool | None, GENERATION_PROMPT] = None
    tokenizer: Annotated[str | None, TOKENIZER] = None


class ChatOptions(Struct, frozen=True):
    """Chats in place of texts, for a command that takes two."""

    chat: Annotated[list[Path] | None, CHATS] = None
    chat_template: Annotated[Path | None, CHAT_TEMPLATE] = None
    chat_var: Annotated[list[str] | None, CHAT_VAR] = None
    generation_prompt: Annotated[bool | None, GENERATION_PROMPT] = None


class PairOptions(Struct, frozen=True):
    """Pairs of texts in place of one text."""

    pairs: Annotated[str | None, PAIRS] = None
    count: Annotated[int | None, PAIR_COUNT] = None


class RegionOptions(Struct, frozen=True):
    """Named sets of tokens, of which results are summed."""

    region: Annotated[list[str] | None, REGION] = None
    regions: Annotated[Path | None, REGIONS] = None


class ModelOptions(Struct, frozen=True):
    """Which weights run, and which of their layers and heads are shown."""

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

    def __post_init__(self) -> None:
        """Read `--source @FILE.npy` as captured states. Raises UsageError for a second source."""
        if self.source is None or not self.source.startswith("@"):
            return
        path = Path(self.source[1:])
        if path.suffix.lower() not in STATES:  # a text that begins with an @
            return
        if self.source_states is not None:
            raise UsageError(
                "--source and --source-states name two sources", expected="one or the other"
            )
        # the group is frozen once it is made; this is a part of making it
        force_setattr(self, "source", None)
        force_setattr(self, "source_states", path)


class AttentionOptions(Struct, frozen=True):
    """Options of how queries attend to keys, such as mask, positions and scale."""

    mask: Annotated[list[str] | None, MASK] = None
    scale: Annotated[str | None, SCALE] = None
    softcap: Annotated[float | None, SOFTCAP] = None
    position: Annotated[str | None, POSITION] = None
    attention: Annotated[str | None, ATTENTION_KIND] = None


class ComputeOptions(Struct, frozen=True):
    """Where and how precisely to compute."""

    backend: Annotated[str, BACKEND] = "auto"
    device: Annotated[str | None, DEVICE] = None
    dtype: Annotated[str, DTYPE] = "float32"
    max_memory: Annotated[str | None, MAX_MEMORY] = None

    def __post_init__(self) -> None:
        """Read a device given as the backend, such as `--backend cuda:1`, as torch on that device.
        Raises UsageError where `--device` names another one."""
        if self.backend.partition(":")[0] not in DEVICES:
            return
        device = self.device
        if device is None:
            device = self.backend
        # "cuda" and "cuda:1" go together, and the longer one says more
        shorter, longer = sorted((self.backend, device), key=len)
        kind, _, number = longer.partition(":")
        is_same = shorter == longer or (shorter == kind and number != "")
        if not is_same:
            raise UsageError(
                "--backend {backend} and --device {device} name two places",
                expected=message("one of them"),
                backend=self.backend,
                device=self.device,
            )
        # the group is frozen once it is made; this is a part of making it
        force_setattr(self, "device", longer)
        force_setattr(self, "backend", "torch")


class RunSetup(Struct, frozen=True):
    """What a text runs through: the weights, what happens between queries and keys, and where it is
    computed.
    """

    model: ModelOptions = ModelOptions()
    attention: AttentionOptions = AttentionOptions()
    compute: ComputeOptions = ComputeOptions()


class OutputOptions(Struct, frozen=True):
    """What is answered, where, and how it looks."""

    json: Annotated[bool, JSON] = False
    ndjson: Annotated[bool, NDJSON] = False
    plain: Annotated[bool, PLAIN] = False
    csv: Annotated[Path | None, CSV] = None
    output: Annotated[Path | None, OUTPUT_FILE] = None
    svg: Annotated[Path | None, FIGURE] = None
    figure_style: Annotated[str, FIGURE_STYLE] = ""
    figure_parts: Annotated[str, FIGURE_PARTS] = ""
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
        if self.output is None or str(self.output) == "-":
            return None
        return self.output

    @property
    def table(self) -> Path | None:
        """The file that the table goes to besides the answer; None without `--csv`, and for `--csv -`,
        where the table is the answer.
        """
        if self.is_table:
            return None
        return self.csv

    @property
    def is_table(self) -> bool:
        """Whether the table with commas takes the answer's place on standard output: `--csv -`."""
        return self.csv is not None and str(self.csv) == "-"

    @property
    def page(self) -> Path | None:
        """The file that the HTML page of the answer goes to: None, as these options have no
        `--html`."""
        return None


class PagedOutput(OutputOptions, frozen=True):
    """The output options, and a page of what the answer holds."""

    html: Annotated[Path | None, HTML] = None

    @property
    def page(self) -> Path | None:
        """The file that the HTML page of the answer goes to; None without one."""
        return self.html


_TABLE = (
    "json",
    "ndjson",
    "plain",
    "csv",
    "output",
    "brief",
    "color",
    "ascii",
    "lang",
    "quiet",
    "verbose",
    "debug",
)
TableOutput = Annotated[OutputOptions, only(*_TABLE)]
"""The output options of a command whose screen is one table, shown whole, or its answer alone."""
LongTableOutput = Annotated[OutputOptions, only(*_TABLE, "full")]
"""The same where the table may be long, and is shown whole with --full."""
DrawnTableOutput = Annotated[
    PagedOutput, only(*_TABLE, "full", "svg", "figure_style", "figure_parts", "html")
]
"""The same with a figure, and a page of what the answer holds."""
