"""What a text gives in each layer of a model: the model runs when it is looked at, one layer in
memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from attncli.arrays.backend import SCORE_ITEM, Array, backend_of
from attncli.errors import LimitError, UnsupportedError, UsageError
from attncli.inputs.token import Token
from attncli.language import listing, message
from attncli.mechanism.trace import LayerTrace, NotebookResult
from attncli.models.estimate import free_memory


class TextTrace(NotebookResult):
    """A text's run through a model, done when needed: iterate for one layer's stages after the
    other, or take the attention `weights` of all.

    Iterating runs the model and holds one layer at a time; iterating again runs it again. A
    notebook shows the page of all heads.

    Attributes:
        tokens: Those of the text.
        layers: The numbers of the layers, rising.
        heads: How many heads each of them gives.
        name: Of the model.
    """

    def __init__(
        self,
        tokens: Sequence[Token],
        heads: Sequence[tuple[int, int]],
        run: Callable[[Collection[str]], Iterator[LayerTrace]],
        keep: Collection[str],
        *,
        dtype: str,
        name: str = "",
        once: bool = False,
    ) -> None:
        """heads: each layer's number and how many heads it gives. run: runs the text, keeping these
        n × n stages. keep:
        those that iterating keeps. dtype: of the numbers. name: of the model. once: whether a run
        leaves something behind, so that there is one alone."""
        self.tokens = tuple(tokens)
        self.layers = tuple(layer for layer, _ in heads)
        self.heads = tuple(count for _, count in heads)
        self._run, self._keep, self._dtype, self.name = run, frozenset(keep), dtype, name
        self._runs_left = 1 if once else None
        self._weights: Array | None = None

    def __iter__(self) -> Iterator[LayerTrace]:
        return self.run(self._keep)

    def __len__(self) -> int:
        return len(self.layers)

    def run(self, keep: Collection[str]) -> Iterator[LayerTrace]:
        """Run the text and yield its layers; keep: the n × n stages to hold, in place of those
        asked for at first.

        Raises UsageError where a run that extends kept keys has been already.
        """
        if self._runs_left is not None:
            if not self._runs_left:
                what = message("this run has extended the kept keys, and would extend them again")
                raise UsageError(
                    what,
                    expected="one look at it",
                    hint="layers = list(model.trace(tokens, past=past))",
                )
            self._runs_left -= 1
        return self._run(keep)

    @property
    def pairs(self) -> int:
        """The total number of attention weights: layers × heads × queries × keys."""
        return sum(self.heads) * len(self.tokens) ** 2

    @property
    def keeps_weights(self) -> bool:
        """Whether the attention weights are kept when the trace is iterated over."""
        return "weights" in self._keep

    @property
    def weights(self) -> Array:
        """The attention weights of all layers, [layer, head, query, key], 0 to 1; 0 where a key is
        masked.

        Held once they are there. Rows sum to 1, to less where a learned sink takes its share, to 0
        where a query sees nothing; learned keys come after those of the tokens.

        Raises:
            UnsupportedError: Where layers have different numbers of heads, or weights were not to
                be kept.
            LimitError: Where they would take more memory than is free.
        """
        if self._weights is None:
            self._weights = self._all_weights()
        return self._weights

    def _all_weights(self) -> Array:
        """The attention weights of all layers, [layer, head, query, key], computed anew. Raises as
        `weights`.
        """
        refusal = UnsupportedError(
            "the layers have no weights of one shape",
            expected="layers of as many heads, and weights that are kept",
        )
        if not self.keeps_weights or len(set(self.heads)) != 1:
            raise refusal
        size = self.pairs * SCORE_ITEM[self._dtype]
        limit = free_memory()
        if size > limit.bytes:
            raise LimitError(
                "the weights of {layers} layers of {heads} heads and {tokens} tokens take"
                " {size:.1f} GiB",
                expected="at most {limit:.1f} GiB: {source}",
                hint="layers=[5] or heads=[0], or iterate: one layer is in memory at a time",
                layers=len(self.layers),
                heads=self.heads[0],
                tokens=len(self.tokens),
                size=size / 2**30,
                limit=limit.bytes / 2**30,
                source=limit.source,
            )
        whole: Array | None = None
        for place, trace in enumerate(self.run(("weights",))):
            array = trace.stages["weights"]
            if whole is None:
                backend = backend_of(array)
                whole = backend.full((len(self.layers), *array.shape), 0.0, backend.dtype_of(array))
            if tuple(array.shape) != tuple(whole.shape[1:]):
                raise refusal
            whole[place] = array
        assert whole is not None  # there is no model without layers
        return whole

    def __repr__(self) -> str:
        """The text's length, the model, the layers and what to do with them; not the numbers."""
        heads = listing(map(str, sorted(set(self.heads))), " or ")
        if len(self.layers) > 1:
            numbers = f"{self.layers[0]}-{self.layers[-1]}"
        else:
            numbers = f"{self.layers[0]}"
        if len(self.layers) < 4 or self.layers[-1] - self.layers[0] + 1 != len(self.layers):
            numbers = ", ".join(map(str, self.layers))
        if self.name:
            name = f" in {self.name}"
        else:
            name = ""
        what = message("layers {numbers} of {heads} heads", numbers=numbers, heads=heads)
        return (
            f"<TextTrace of {len(self.tokens)} tokens{name}: {what}; iterate for layers, .weights"
            " for all>"
        )
