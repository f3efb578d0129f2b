"""Every document that `attn` emits, each declared once: `features/<name>/document.py` holds
`attn.<name>/1`.

A document is a frozen msgspec Struct. From the one declaration come its JSON and its JSON Schema
(`attn schema`), the check of files in `attn view` and `attn compare`, what screens and `--plain`
read, and what Python callers get.

To add a document, say `attn.ablate/1`:

1. `features/ablate/document.py`: `class AblateDocument(Header, tag="attn.ablate/1", frozen=True,
   kw_only=True)` with a docstring, and a field for each member in the order of the JSON. `Header`
   brings text, tokens, model and attention; a document without a text is a `Document`. A field's
   type says what it holds: `Annotated[Count, describe("…")]` a number with its meaning,
   `Annotated[Numbers, axes("query", "key")]` an array with its axes, `Annotated[Count,
   index_of("token")]` a position that must lie on an axis, `Annotated[list[Row], axes("token")]` a
   list as long as one. A member that may be absent is `Annotated[… | UnsetType, …] = UNSET`; one
   that may be null is `… | None`. One whose JSON name is no name for Python is renamed by
   `field(name="…")`. Parts that several documents share are in this file. `lengths` tells how long
   the axes are, `validation_errors` what else must hold between members.
2. `NAMES` below: its name; `FOLDERS`, where another feature's folder holds it.
3. `features/ablate/compute.py`: `ablate(…) -> AblateDocument`, the one place where it is made, and
  its name in `attncli/__init__.py`, where Python's callers find it.
4. `features/ablate/screen.py`: `ABLATE_PARTS`, see `draw.view`, and `ablate_rows(document)` for
  `--plain`.
5. `features/ablate/figure.py`: `ablate_figure(document, drawing, view, scale)`, or its name in
  `WITHOUT_FIGURE` below.
6. `features/ablate/page.py`, of a document about heads: `ablate_document_heads`, see
  `measure.document_heads`, `ablate_page_focus`, see `draw.page`, and its name in `ABOUT_HEADS`.

A test of the house fails where one of these is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.json import schema_components

from attncli.inputs.token import Token
from attncli.language import Message, contextual, message

NAMES = (
    "run", "generate", "heads", "retrieval", "rules", "find", "tokens", "weights", "tensors", "models", "model",
    "verify", "explain", "mask", "cross", "compare", "compare_models", "cost", "next", "answer", "ablate", "regions",
    "cache", "effects", "difference", "logits", "patch", "circuit", "circuit_compare", "pairs", "why", "learn",
    "tasks", "check", "series", "scan", "scan_compare", "scan_verify", "error",
)  # fmt: skip
"""The documents by the names in their schemas, in the order in which they are listed."""
FOLDERS = {
    "model": "features.models", "verify": "features.models", "ablate": "features.effects", "logits": "features.effects",
    "patch": "features.effects", "difference": "features.effects", "tasks": "features.learn", "scan": "scan",
    "scan_compare": "scan", "scan_verify": "scan", "circuit_compare": "features.circuit",
}  # fmt: skip
"""Where a document and its screen stand that have no folder of their own in `features/`."""


BESIDE_COMPUTE = ("generate", "tokens", "weights", "models", "model", "verify")
"""Documents of small features, declared in `compute.py`."""
ABOUT_HEADS = (
    "run", "heads", "find", "cross", "tensors", "ablate", "logits", "patch", "why",
)  # fmt: skip
"""Documents that hold something of single heads, which `attn view`, the explorer and a page of heads
show; `page.py` in their folder tells what.
"""
OF_TWO_RUNS = ("compare",)
"""Documents that hold something of the heads of two runs, for a page of both."""
WITHOUT_FIGURE = (
    "generate", "retrieval", "tokens", "weights", "models", "model", "verify", "explain", "next", "regions",
    "effects", "difference", "circuit_compare", "pairs", "tasks", "check", "scan", "scan_compare",
    "scan_verify", "error",
)  # fmt: skip
"""Documents that are words and tables; every other has its figure in `figure.py`."""


class Kinds(Mapping[str, Any]):
    """The document classes by schema, such as `attn.run/1`, as a tuple: one, or several that their
    field `topic` tells apart. Each is imported when it is first asked for."""

    def __getitem__(self, schema: str) -> tuple[type[Document], ...]:
        """The classes of a schema. Raises KeyError for a schema that there is not."""
        # "attn.run/1" is called "run"
        name = name_of(schema)
        if name not in NAMES or schema != _schema_of(name):
            raise KeyError(schema)
        if name == "error":  # the document of a failure, which no feature writes
            place = __name__
        elif name in BESIDE_COMPUTE:  # small features declare it beside their computation
            place = f"{folder_of(name)}.compute"
        else:
            place = f"{folder_of(name)}.document"
        module = import_module(place)
        # a module with several classes lists them as TOPICS; any other has one class
        classes: tuple[type[Document], ...] | None = getattr(module, "TOPICS", None)
        # "compare_models" is declared as `CompareModelsDocument`
        return classes or (getattr(module, f"{name.title().replace('_', '')}Document"),)

    def __iter__(self) -> Iterator[str]:
        return map(_schema_of, NAMES)

    def __len__(self) -> int:
        return len(NAMES)


def folder_of(name: str) -> str:
    """The name of the package that defines a document and its screen.

    Args:
        name: The document's name, such as `run`.

    Returns:
        Such as `attncli.features.run`.
    """
    return f"attncli.{FOLDERS.get(name, f'features.{name}')}"


def _schema_of(name: str) -> str:
    """The schema that a document's name stands for, such as `attn.run/1`."""
    if name == "error":
        return f"attn.{name}"
    return f"attn.{name}/1"


def name_of(schema: str) -> str:
    """A document's name from its schema.

    Args:
        schema: Such as `attn.run/1`.

    Returns:
        Such as `run`.
    """
    return schema.removeprefix("attn.").removesuffix("/1")


KINDS = Kinds()


Numbers = np.ndarray[Any, np.dtype[Any]]
"""Numbers of any shape: nested lists in JSON, null for what is not finite; read again, float64 with
NaN for null.
"""
MOST = 2**63 - 1
Count = Annotated[int, Meta(ge=0, le=MOST)]
Size = Annotated[int, Meta(ge=1, le=MOST)]
"""Whole numbers that are counted with and drawn; a float must hold them."""
Weight = Annotated[float, Meta(ge=0, le=1.00001, description="An attention weight, 0 to 1.")]
"""A weight; what rounding adds is borne."""
Share = Annotated[float, Meta(ge=-0.00001, le=1.00001)]
"""A part of a whole, 0 to 1; what rounding adds or takes is borne."""

SHOWN = 160
"""Characters of a `repr`, about: what fits two lines of a terminal."""


Entropy = Annotated[float, Meta(ge=-0.00001, le=100, description="In nats.")]
"""An entropy: of as many keys as any document can hold; what rounding takes from 0 is borne."""


def describe(meaning: str) -> Meta:
    """The annotation that gives a field's description in the schema.

    Args:
        meaning: A sentence.

    Returns:
        What stands in the `Annotated` of the field.
    """
    return Meta(description=meaning)


def axes(*names: str, meaning: str = "") -> Meta:
    """The annotation of a field that names the axes of its array, or the axis that its list runs
    along.

    Args:
        names: Of the axes in order, "" for one of any length. One name is one length in the whole
            document, checked in what is read from a file.
        meaning: What the numbers are.

    Returns:
        What stands in the `Annotated` of the field.
    """
    shape = f"[{', '.join(name or '…' for name in names)}]"
    return Meta(description=f"{shape}: {meaning}" if meaning else shape, extra={"axes": names})


def index_of(axis: str, meaning: str = "") -> Meta:
    """The annotation of a field that is an index on an axis: at least 0 and less than the axis is
    long.

    Args:
        axis: The name of the axis.
        meaning: What the position is of; "" for nothing to add.

    Returns:
        What stands in the `Annotated` of the field.
    """
    return Meta(description=meaning or None, extra={"at": axis})


class Part(Struct, frozen=True, eq=False, forbid_unknown_fields=True, kw_only=True):
    """A part of a document: an object in JSON, with exactly the declared members in their order.

    Equal only to itself, as arrays have no one equality; JSON texts can be compared.
    """

    def __repr__(self) -> str:
        """The type and its members in brief, `SHOWN` characters or little more."""
        pieces = []
        room = SHOWN
        for name, value in members(self):
            pieces.append(f"{name}={_short_repr(value)}")
            room -= len(pieces[-1]) + 2  # with the comma and the blank behind it
            if room < 0:
                pieces.append("…")
                break
        return f"{type(self).__name__}({', '.join(pieces)})"

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield what contradicts itself in this part, sizes of axes aside: pairs of a place, such
        as `layers[0].heads`, and what is wrong there. A part overrides this where it has members
        that must fit each other."""
        return iter(())


class Document(Part, tag_field="schema", frozen=True, kw_only=True):
    """What one command found: what JSON and every screen are made from. Its tag is the member
    `schema`.
    """

    version: Annotated[str, describe("The version of attn that wrote the document.")]

    @property
    def schema(self) -> str:
        """The name with which it stands in its JSON, such as `attn.run/1`."""
        return tag_of(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """What a notebook shows: the page, and the text beside it."""
        from attncli.mechanism.trace import notebook_formats  # a screen does without

        del include, exclude  # the notebook passes them; all formats are given
        return notebook_formats(self)

    def _repr_html_(self) -> str | None:
        """What a notebook shows that asks for HTML alone."""
        return self._repr_mimebundle_().get("text/html")

    def rows(self) -> list[dict[str, Any]]:
        """The document's table, as `--plain` and `--csv` write it: a dictionary for each row, by
        the column's name.

        A document without rows gives none. What is not known in a row is None.
        """
        from attncli.mechanism.trace import views

        return views().rows(self)

    def to_pandas(self) -> Any:
        """The document's table as a frame of pandas.

        Returns:
            A pandas DataFrame with a line for each of `rows()`; without rows, an empty one.

        Raises:
            UnsupportedError: Where pandas is not installed.
        """
        from attncli.arrays.frames import frame

        return frame("pandas", self.rows())

    def to_polars(self) -> Any:
        """The document's table as a frame of polars.

        Returns:
            A polars DataFrame with a line for each of `rows()`; without rows, an empty one.

        Raises:
            UnsupportedError: Where polars is not installed.
        """
        from attncli.arrays.frames import frame

        return frame("polars", self.rows())

    def to_xarray(self) -> Any:
        """The attention weights that the document holds, with the names of their axes and the tokens
        along them.

        `model.trace(text).to_xarray()` has them of every layer and head, whatever a document holds.

        Returns:
            An xarray DataArray of the dims layer, head, query and key. The numbers of layers, heads
            and tokens are coordinates, and the tokens' texts are `query_token` and `key_token`.
            What `attncli.heads` returns becomes a Dataset: each metric that was asked for, of the
            dims layer and head, NaN where it is not known, and that array as `weights` where the
            document holds them.

        Raises:
            InputError: Where it measures no heads, and holds no weights, cells that several tokens
                share, or not the same heads of every layer.
            UnsupportedError: Where xarray is not installed.
        """
        from attncli.mechanism.trace import views  # what shows results, which is no part of them

        return views().labelled(self)

    def figure(
        self, path: str | Path, *, style: str = "", lang: str = "en", parts: str = ""
    ) -> None:
        """Draw the document to a file, as `--figure` does.

        Args:
            path: .svg, .png or .pdf.
            style: Words as `--figure-style` takes them: "dark,85mm,300dpi,notitle"; of chosen heads
                "heads=L13H8+L4H8", of chosen queries "rows=it+cat".
            lang: The language of titles: "en" or "zh".
            parts: The parts that are drawn, as `--figure-parts` takes them: "matrix,links"; "" for
                those that the figure has by itself.

        Raises:
            UsageError: For another suffix, style or part.
            UnsupportedError: Where what writes that format is not installed.
        """
        from attncli.mechanism.trace import views  # what shows results, which is no part of them

        views().write_figure(self, path, style, lang, parts)

    def page(self, path: str | Path, *, lang: str = "en") -> None:
        """Write the document as one offline page, as `--html` does.

        Args:
            path: A file ending in .html.
            lang: The language that the page begins in: "en" or "zh".

        Raises:
            UsageError: For another suffix.
        """
        from attncli.mechanism.trace import views  # what shows results, which is no part of them

        views().write_page(self, path, lang)

    def lengths(self) -> Mapping[str, int | range]:
        """The lengths of axes, by name, that the document's own lists determine; a range where any
        length in it is allowed. An axis that is not named here has the length of the first array
        that has it."""
        return {}


def tag_of(part: Part) -> str:
    """The tag of a part, which tells its class apart in JSON; "" where it has none.

    Args:
        part: Any part.

    Returns:
        Such as `rope`; "" for a part without a tag.
    """
    return str(part.__struct_config__.tag or "")


def members(part: Part) -> Iterator[tuple[str, Any]]:
    """The (name, value) pairs of a part as its JSON has them, in order, without absent ones; the
    tag comes first.

    Args:
        part: Any part.

    Yields:
        Pairs of name and value; the tag first, if there is one.
    """
    config = part.__struct_config__
    if config.tag is not None:
        yield str(config.tag_field), config.tag
    # a member's name in JSON may be another than its field's in Python
    for name, field in zip(part.__struct_encode_fields__, part.__struct_fields__, strict=True):
        value = getattr(part, field)
        if value is not UNSET:
            yield name, value


LONGEST_SHOWN = 24
"""Characters of a text that a `repr` shows whole."""


def _short_repr(value: Any) -> str:
    """A member's value as a `repr` shows it: long texts cut, lists by their length, arrays by their
    type and shape.
    """
    match value:
        case np.ndarray():
            return f"{value.dtype}{list(value.shape)}"
        case list() | tuple() | dict():
            if len(value):
                return f"<{len(value)}>"
            if isinstance(value, list | tuple):
                return "[]"
            return "{}"
        case str() if len(value) > LONGEST_SHOWN:
            return f"{value[: LONGEST_SHOWN - 1]!r}…"
        case Part():
            return f"{type(value).__name__}(…)"
        case _:
            return repr(value)


# JSON Schemas (2020-12) of every document, read from the declarations. Each is complete in itself.

ARRAY = {"type": "array", "items": {"$ref": "#/$defs/Numbers"}}
NUMBERS = {
    "anyOf": [{"type": ["number", "null"]}, ARRAY],
    "description": "Numbers, or lists of lists of them; null for what is not finite.",
}
"""An array of numbers, of as many axes as its description says."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"
SEVERAL_TOPICS = "An explanation with its numbers; `topic` tells which kind it is."


class Schemas(Mapping[str, dict[str, Any]]):
    """The JSON schemas by name of the document's schema, such as `attn.run/1`; each is made when it
    is first asked for."""

    def __getitem__(self, name: str) -> dict[str, Any]:
        """The JSON schema of the documents of this name, such as `attn.run/1`. Raises KeyError for
        a name that there is not."""
        kinds = KINDS[name]
        # `roots` refer to the classes, `parts` define these and all that is in them, by class; the
        # hook is asked about arrays, which msgspec does not know
        roots, parts = schema_components(kinds, schema_hook=lambda kind: dict(ARRAY))
        about: dict[str, Any] = {
            "$schema": DIALECT,
            "$id": f"urn:{name.replace('.', ':')}",
            "title": name,
        }
        if len(kinds) == 1:  # its class stands at the top, under the schema's name for its own
            about |= {**parts.pop(kinds[0].__name__), "title": name}
        else:
            about |= {"description": SEVERAL_TOPICS, "oneOf": list(roots)}
        return {**about, "$defs": {**parts, "Numbers": NUMBERS}}

    def __iter__(self) -> Iterator[str]:
        return iter(KINDS)

    def __len__(self) -> int:
        return len(KINDS)


SCHEMAS = Schemas()


# `attn.error`: what a failure looks like in JSON mode, on standard error.


class Failure(Part, frozen=True, kw_only=True):
    """What went wrong."""

    code: Annotated[
        Literal[1, 2, 3, 4, 5],
        describe("1 failure, 2 usage, 3 bad input, 4 not supported, 5 over a limit."),
    ]
    message: str
    hint: Annotated[str | None, describe("A command or option to try.")]


class ErrorDocument(Part, frozen=True, kw_only=True):
    """A failure in JSON mode, on standard error."""

    error: Failure


class TokenRow(Part, frozen=True, kw_only=True):
    """A token, or a word of several."""

    index: Annotated[Count, describe("Position in the text, from 0.")]
    text: str
    id: Annotated[int | None, describe("Id in the vocabulary; null where the tokenizer has none.")]
    start: Annotated[
        Count | None,
        describe("First character in the text, from 0; null for a token that is not in it."),
    ]
    end: Annotated[
        Count | None,
        describe("Character after the last; start where it covers none, as a blank put first."),
    ]
    special: Annotated[
        bool, describe("Whether its id is one of the vocabulary's special tokens, such as [CLS].")
    ]
    unknown: Annotated[
        bool | UnsetType,
        describe("true where the model has no token of its own for it; absent for all others."),
    ] = UNSET
    added: Annotated[
        bool | UnsetType,
        describe("true where the tokenizer put it there; absent for what stands in the text."),
    ] = UNSET
    typed: Annotated[
        bool | UnsetType,
        describe("true for a special token that stands in the text itself; absent for others."),
    ] = UNSET
    segment: Annotated[
        Count | UnsetType,
        describe("Its type, for models that tell two texts apart; absent for 0."),
    ] = UNSET


def token_facts(token: Token) -> dict[str, Any]:
    """What a document says of a token: the members of its `TokenRow`, by name.

    Args:
        token: The token.

    Returns:
        Each member, with `UNSET` for those that documents leave out where they are false or 0.
    """
    return {
        "index": token.index,
        "text": token.text,
        "id": token.id,
        "start": token.start,
        "end": token.end,
        "special": token.special,
        "unknown": token.unknown or UNSET,
        "added": token.added or UNSET,
        "typed": token.typed or UNSET,
        "segment": token.segment or UNSET,
    }


def position_errors(tokens: Sequence[TokenRow], text: str, name: str) -> Iterator[tuple[str, str]]:
    """The validation errors of tokens whose offsets do not lie in their text.

    Args:
        tokens: The tokens.
        text: Their text.
        name: The name of their list in the document.

    Yields:
        A place, such as `tokens[3]`, and what is wrong there.
    """
    for number, token in enumerate(tokens):
        if (
            token.start is not None
            and token.end is not None
            and not token.start <= token.end <= len(text)
        ):
            wrong = message(
                "characters {token_start} to {end} of a text of {text}",
                token_start=token.start,
                end=token.end,
                text=len(text),
            )
            yield f"{name}[{number}]", wrong


SOURCE_NAMES = {
    "seeded": message("seeded"),
    "random": contextual("weights", "random"),
    "file": message("weight file"),
    "checkpoint": message("checkpoint"),
    "tensors": message("captured tensors"),
}
"""What people call the sources of weights."""


def mask_name(mask: str) -> Message:
    """What people call a mask.

    Args:
        mask: As `--mask` spells it.

    Returns:
        A message: words for a plain mask and for one from a file, its spelling for any other.
    """
    names = {"none": message("mask none"), "causal": message("mask causal")}
    if mask.startswith("file "):
        return message("mask file {name}", name=mask.removeprefix("file "))
    return names.get(mask) or message("mask {mask}", mask=mask)


class RegionRow(Part, frozen=True, kw_only=True):
    """A named set of tokens: a message of a chat, a document in it, some lines."""

    name: str
    tokens: Annotated[
        list[Annotated[Count, index_of("token")]], describe("Their positions, rising.")
    ]


class ModelPart(Part, frozen=True, kw_only=True):
    """Which weights ran, and their sizes."""

    source: Literal["seeded", "random", "file", "checkpoint", "tensors"]
    name: str | None
    family: str | None
    seed: Annotated[
        int | None, describe("The seed of the weights; null when they come from elsewhere.")
    ]
    d_model: Annotated[
        Size | None, describe("Width of a token's vector; null for captured tensors.")
    ]
    drawn: Annotated[
        list[Literal["words", "positions"]] | UnsetType,
        describe(
            "Vectors that a weight file does not hold, drawn from the seed; absent where none are."
        ),
    ] = UNSET
    layers: Size
    heads: Annotated[Size, describe("Of the first layer that attends.")]
    kv_heads: Size
    d_k: Annotated[Size, describe("Width of a query and a key.")]
    d_v: Annotated[Size, describe("Width of a value.")]
    digest: Annotated[
        str | None, describe("sha256 of the weights; null where it was not computed.")
    ]
    quantization: Annotated[
        str | UnsetType,
        describe(
            "The kinds of numbers that the weights are computed from; absent for plain floats."
        ),
    ] = UNSET
    adapters: Annotated[
        list[str] | UnsetType,
        describe(
            "Folders of adapters merged into the weights, with their weights; absent without."
        ),
    ] = UNSET
    idle: Annotated[
        dict[str, list[Count]] | UnsetType,
        describe(
            "Layers without attention weights to show, by what they do instead; absent where all"
            " attend."
        ),
    ] = UNSET

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield an error where the weights come from a seed and none is named."""
        if self.source in ("seeded", "random") and self.seed is None:
            yield "seed", message("weights from a seed, and none is named")

    @property
    def attending(self) -> int:
        """How many of its layers have attention."""
        if self.idle is UNSET:
            return self.layers
        return self.layers - sum(map(len, self.idle.values()))


class AttentionPart(Part, frozen=True, kw_only=True):
    """The conventions that ran; where layers differ, each with its layers: `causal (1, 3-5),
    window:4 (0, 2)`.
    """

    scale: Annotated[float | None, describe("What q·k is multiplied by.")]
    softcap: float | None
    mask: str
    mask_says: Annotated[
        str | UnsetType,
        describe("The mask in words: which keys a query sees, and what its numbers count."),
    ] = UNSET
    position: str
    backend: str
    dtype: Annotated[str, describe("The type of the numbers.")]
    compute_dtype: Annotated[
        str | UnsetType,
        describe(
            "A wider type that they were computed in before they were rounded; absent where there"
            " was none."
        ),
    ] = UNSET
    hashing: Annotated[
        str | UnsetType,
        describe(
            "reformer:BUCKETS,ROUNDS,CHUNK where hash attention ran; absent for dense attention."
        ),
    ] = UNSET


class ShapeRow(Part, frozen=True, kw_only=True):
    """A step of the shape trace: its axes and their sizes."""

    step: str
    axes: list[str]
    shape: list[Count]
    formula: str

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield an error unless there is one size for each axis."""
        if len(self.axes) != len(self.shape):
            yield (
                "shape",
                message("{shape} sizes of {axes} axes", shape=len(self.shape), axes=len(self.axes)),
            )


ShapeRows = Annotated[
    list[ShapeRow],
    describe("The shape trace: every step of one layer, with its axes and their sizes."),
]


class PlacedHead(Part, frozen=True, kw_only=True):
    """A head by its layer and its number in it, for parts that say something of one."""

    layer: Count
    head: Count


class TopLink(Part, frozen=True, kw_only=True):
    """A head's link from a query to a key."""

    query: Annotated[Count, index_of("query token")]
    key: Annotated[Count, index_of("key token")]
    weight: Weight


class LinkRow(PlacedHead, frozen=True, kw_only=True):
    """A link with its layer and head."""

    query: Annotated[Count, index_of("query token")]
    key: Annotated[Count, index_of("key token")]
    weight: Weight


LinkRows = Annotated[list[LinkRow], describe("The strongest links, strongest first.")]


class EmptyRow(PlacedHead, frozen=True, kw_only=True):
    """A query that sees nothing in one head."""

    query: Annotated[Count, index_of("query token")]


EmptyRows = Annotated[
    list[EmptyRow], describe("Queries that see nothing: their weights and weighted sums A·V are 0.")
]


class Resources(Part, frozen=True, kw_only=True):
    """What the run takes, as far as it is the same each time; `--verbose` says what was measured."""

    bytes_read: Annotated[
        Count, describe("Bytes of weights read for this text; 0 for weights already in memory.")
    ]
    memory_estimate: Annotated[
        Count, describe("Bytes this run was expected to take at its peak, besides the program.")
    ]


Tokens = Annotated[list[TokenRow], axes("token", meaning="The tokens in order.")]
Pieces = Annotated[
    list[TokenRow], describe("With --words: the tokens that were merged; `tokens` holds the words.")
]
LeftOutKind = Literal["special", "self", "neighbours", "first", "unknown", "separators"]
LeftOut = Annotated[
    list[LeftOutKind],
    describe("Kinds of link that the strongest links leave out; absent when all count."),
]


Regions = Annotated[
    list[RegionRow],
    axes(
        "region",
        meaning="With --region or --chat: named sets of tokens; `rest` is what is in no other.",
    ),
]
LEARNED = 2
"""Keys that a model may have learned beside those of the tokens: `bias_k`, and one of zeros."""


def keys_of(tokens: int) -> range:
    """How many keys a text of so many tokens may have, as a range: learned keys may come after the
    tokens.

    Args:
        tokens: How many tokens it has.

    Returns:
        From as many as tokens to `LEARNED` more.
    """
    return range(tokens, tokens + LEARNED + 1)


class Header(Document, frozen=True, kw_only=True):
    """What every document about one text begins with."""

    text: str
    tokens: Tokens
    model: ModelPart
    attention: AttentionPart
    pieces: Pieces | UnsetType = UNSET

    def lengths(self) -> Mapping[str, int | range]:
        """The lengths of the token axes, by name: as many as the text has tokens, or words; keys
        may be more, as learned ones come after them."""
        count = len(self.tokens)
        # errors name these axes: those of two words are translated
        return {
            "token": count,
            message("query token"): count,
            message("key token"): count,
            "key": keys_of(count),
        }

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield an error for each token whose characters do not lie in the text."""
        yield from position_errors(self.tokens, self.text, "tokens")
