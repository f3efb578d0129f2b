"""`Trace`: what comes out. Every stage is declared here once, with its axes and formula.

The declaration drives the shape trace, JSON keys, captions, `explain` and the schema, and
`shapes_of` checks that one axis name means one size everywhere in a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol

from msgspec import Struct

from attncli.arrays.backend import Array, Library
from attncli.errors import UnsupportedError


class Stage(Struct, frozen=True):
    """One step of attention.

    axes: names from the end, any number of leading axes may precede them.
    bias: the symbol of what a model with a bias adds to the formula; empty where none can be.
    """

    name: str
    axes: tuple[str, ...]
    formula: str
    description: str
    bias: str = ""


STAGES: Mapping[str, Stage] = {
    stage.name: stage
    for stage in (
        Stage("hidden", ("token", "width"), "X", "input vectors, one row per token"),
        Stage(
            "q", ("head", "query", "dim"), "Q = X·W_Q", "queries: what each token looks for", "b_Q"
        ),
        Stage(
            "k",
            ("kv", "key", "dim"),
            "K = X·W_K",
            "keys: what each token offers to be found by",
            "b_K",
        ),
        Stage("v", ("kv", "key", "v_dim"), "V = X·W_V", "values: what each token passes on", "b_V"),
        Stage(
            "global_q",
            ("head", "global", "dim"),
            "Q_g = X_g·W_Q_g",
            "queries of the global tokens",
            "b_Q_g",
        ),
        Stage(
            "global_k",
            ("kv", "key", "dim"),
            "K_g = X·W_K_g",
            "what each token offers to the global ones",
            "b_K_g",
        ),
        Stage(
            "global_v",
            ("kv", "key", "v_dim"),
            "V_g = X·W_V_g",
            "what each token passes on to the global ones",
            "b_V_g",
        ),
        Stage(
            "raw", ("head", "query", "key"), "S = Q·Kᵀ", "similarity of every query with every key"
        ),
        Stage(
            "scaled",
            ("head", "query", "key"),
            "S × scale",
            "similarities on a scale the softmax can use",
        ),
        Stage(
            "capped",
            ("head", "query", "key"),
            "c·tanh(S/c)",
            "similarities bounded by the soft cap c",
        ),
        Stage(
            "content_position",
            ("head", "query", "key"),
            "Q·K_placeᵀ × scale",
            "similarity of every query with where each key stands",
        ),
        Stage(
            "position_content",
            ("head", "query", "key"),
            "Q_place·Kᵀ × scale",
            "similarity of where each query stands with every key",
        ),
        Stage(
            "biased", ("head", "query", "key"), "S + bias", "position bias and float masks added"
        ),
        Stage(
            "masked",
            ("head", "query", "key"),
            "−∞ where hidden",
            "what a query may not see is removed",
        ),
        Stage(
            "weights",
            ("head", "query", "key"),
            "A = softmax(S)",
            "each row is spread over the keys and sums to 1",
        ),
        Stage("mixed", ("head", "query", "v_dim"), "O = A·V", "the weighted sum of the values"),
        Stage(
            "gate",
            ("head", "query", "v_dim"),
            "G = σ(X·W_G)",
            "how much of each mixed entry is let through",
        ),
        Stage(
            "gated", ("head", "query", "v_dim"), "O ⊙ G", "what is let through of the mixed values"
        ),
        Stage("concat", ("query", "concat"), "concat(O₁ … O_h)", "the heads' outputs side by side"),
        Stage("out", ("query", "width"), "concat·W_O", "the output of the attention", "b_O"),
        Stage("sum", ("query", "width"), "X + out", "residual connection"),
        Stage("norm", ("query", "width"), "LayerNorm", "layer normalization"),
    )
}
"""Every stage by name, in the order of computation."""


def formula_with_bias(stage: str) -> str:
    """A stage's formula in a model that adds a bias there, such as `Q = X·W_Q + b_Q`."""
    return f"{STAGES[stage].formula} + {STAGES[stage].bias}"


SQUARE = ("raw", "scaled", "capped", "biased", "masked", "weights")
"""The stages that hold a number for every pair of query and key."""


def head_outputs(stages: Mapping[str, Array]) -> Array:
    """Each head's output as it enters the output projection: mixed values, times the head gate if
    the model has one.
    """
    return stages.get("gated", stages["mixed"])


SAVED = ("q", "k", "v", *SQUARE, "mixed", "gate", "gated", "out")
"""The stages that `--save` writes."""


class Views(Protocol):
    """What draws results (figures, pages, notebooks): the interface of `attncli.notebook`."""

    def bundle(self, value: Any, /) -> dict[str, str]:
        """What a notebook shows of this result, by MIME type: its text, and its page or its screen."""

    def rows(self, document: Any, /) -> list[dict[str, Any]]:
        """A document's table, a dictionary for each row."""

    def labelled(self, document: Any, /) -> Any:
        """The weights that a document holds, as a labelled array of xarray."""

    def write_figure(self, document: Any, path: Any, style: str, lang: str, parts: str, /) -> None:
        """Draw a document to a file.

        style, parts: words as `--figure-style` and `--figure-parts` take them; lang: the language
        of titles.
        """

    def write_page(self, document: Any, path: Any, lang: str, /) -> None:
        """Write a document as one offline page."""


VIEWS: list[Callable[[], Views]] = []
"""What gives the module that draws results. The door `attncli` puts it here when a public name is
first used: the engine imports nothing that draws."""


def views() -> Views:
    """The registered drawer of results. Raises UnsupportedError where none is registered, as in a
    program that never used a name of `attncli`."""
    if not VIEWS:
        raise UnsupportedError(
            "nothing here draws results", expected="a result of the functions of attncli"
        )
    return VIEWS[-1]()


def notebook_formats(result: object) -> dict[str, str]:
    """What a notebook shows of a result, by MIME type: its text, and its page or screen where
    something draws one."""
    if VIEWS:
        return VIEWS[-1]().bundle(result)
    return {"text/plain": repr(result)}


class NotebookResult:
    """A result that a notebook shows as its page or its screen."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """What a notebook shows: the page, and the text beside it."""
        del include, exclude
        return notebook_formats(self)

    def _repr_html_(self) -> str | None:
        """What a notebook shows that asks for HTML alone."""
        return self._repr_mimebundle_().get("text/html")


class AttentionTrace(NotebookResult, Struct, Generic[Library], frozen=True, eq=False):
    """Every stage of one attention, as `attncli.attention` returns it.

    raw scaled capped biased masked weights: [..., head, query, key].

    mixed: [..., head, query, v_dim].
    empty_rows: booleans [..., head, query], True where a query sees nothing; its weights and mixed
        are 0.
    """

    raw: Library
    scaled: Library
    capped: Library
    biased: Library
    masked: Library
    weights: Library
    mixed: Library
    empty_rows: Library

    def __repr__(self) -> str:
        """The sizes, not the numbers."""
        return (
            f"<AttentionTrace: weights {list(self.weights.shape)}, mixed {list(self.mixed.shape)}>"
        )


class Later:
    """A lazy array: computed when first called, then kept, and its inputs freed."""

    __slots__ = ("_array", "_make")
    _array: Array

    def __init__(self, make: Callable[[], Array]) -> None:
        self._make: Callable[[], Array] | None = make

    def __call__(self) -> Array:
        """The array; the first call computes it, and lets go of what computed it."""
        if self._make is not None:
            self._array = self._make()
            self._make = None
        return self._array


class LayerTrace(NotebookResult, Struct, frozen=True, eq=False):
    """The trace of one layer: its stages by name, the vectors that entered it and those that left.

    stages: arrays with the axes that `STAGES` declares, after any leading batch axis.
    empty_rows: as in `AttentionTrace`.
    leaving: gives the vectors that left.
    cross: the layer's cross-attention, if it has one.
    tokens: those of the text that ran, one per query; empty where they are not known.
    """

    layer: int
    stages: Mapping[str, Array]
    empty_rows: Array
    before: Array
    leaving: Callable[[], Array]
    cross: LayerTrace | None = None
    tokens: tuple[Any, ...] = ()

    @property
    def after(self) -> Array:
        """The vectors that left the layer; the last layer's feed-forward part is read and computed
        only when these are asked for."""
        return self.leaving()

    def __repr__(self) -> str:
        """The layer and the sizes of its stages, not their numbers."""
        sizes = ", ".join(
            f"{name} {list(self.stages[name].shape)}" for name in order_stages(self.stages)
        )
        return f"<LayerTrace of layer {self.layer}: {sizes}>"


class Shape(Struct, frozen=True):
    """One row of the shape trace."""

    step: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    formula: str


def shapes_of(stages: Mapping[str, Array], *, leading: tuple[str, ...] = ()) -> list[Shape]:
    """The shape of each stage of a layer with its axes' names, in the order of computation.

    leading: names of axes before the declared ones, such as ("batch",).

    Raises ValueError when one axis name would have two sizes.
    """
    sizes: dict[str, int] = {}
    rows = []
    for name in order_stages(stages):
        stage = STAGES[name]
        shape = tuple(int(n) for n in stages[name].shape)
        if name == "out" and "concat" not in stages:  # no W_O: the heads' outputs are the output
            stage = STAGES["concat"]
        axes = leading + stage.axes
        if name == "out" and axes[-1] == "width" and shape[-1] != sizes.get("width", shape[-1]):
            axes = (*axes[:-1], "out_width")  # W_O of a class may lead to another width than X's
        if len(axes) != len(shape):
            raise ValueError(f"stage {name} has {len(shape)} axes {shape}, declared {axes}")
        for axis, size in zip(axes, shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                raise ValueError(
                    f"axis {axis!r} of stage {name} has size {size}, before it was {sizes[axis]}"
                )
        rows.append(Shape(name, axes, shape, stage.formula))
    return rows


def order_stages(names: Iterable[str]) -> list[str]:
    """Stage names in the order of computation."""
    stage_names = set(names)
    return [name for name in STAGES if name in stage_names]
