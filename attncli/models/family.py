"""`Family`: how one lineage of checkpoints spells a model; and the roles that tensors play in a Spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from attncli.mechanism.spec import Spec
from attncli.models.config import Config, FixedValue


class Concat(Struct, frozen=True):
    """One tensor that holds several roles' rows one after the other."""

    name: str


class Grouped(Struct, frozen=True):
    """One tensor that holds, for each group of heads that share a key, their query rows, the key's rows and the
    value's."""

    name: str


class ByHead(Struct, frozen=True):
    """A tensor whose heads have an axis of their own, its last but one: [width, head, dim], or [head, dim] of a bias.

    transposed: whether the matrix that they make side by side is [in, out].
    """

    name: str
    transposed: bool = False


class PerExpert(Struct, frozen=True):
    """One tensor with an entry for each expert along its first axis, each with the rows of one or more roles.

    alternating: whether the roles' rows take turns; else they stand one after the other. transposed: whether an
    expert's matrix is stored [in, out].
    """

    name: str
    alternating: bool = False
    transposed: bool = False


class Stacked(Struct, frozen=True):
    """One tensor per head or expert, `{item}` in the name; the role is all of them along a new first axis."""

    name: str


class Shared(Struct, frozen=True):
    """A tensor outside the layers that every layer uses."""

    name: str


Source: TypeAlias = str | ByHead | Concat | Grouped | PerExpert | Stacked | Shared
"""Where a role's tensor is: a module's name within the layer, to which ".weight" or ".bias" is added where the role
has it."""


class Names(Struct, frozen=True):
    """Role → tensor name.

    layer: what stands before the names of layer `{layer}`. inside: the roles of a layer; a key may
    list several roles, which share one tensor (`Concat`, `Grouped`). outside: the other roles.
    prefixes: what may stand before all names, depending on the class that saved the file.
    ignored: patterns of tensors that play no part (task heads, buffers), with the prefix taken off.
    transposed: whether matrices within layers are stored [in, out].
    """

    layer: str
    inside: Mapping[str, Source]
    outside: Mapping[str, Source]
    prefixes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    transposed: bool = False

    def with_roles(
        self,
        inside: Mapping[str, Source],
        *,
        outside: Mapping[str, Source] | None = None,
        without: tuple[str, ...] = (),
    ) -> Names:
        """A relative's names: these roles changed or added, the keys `without` dropped."""
        sources = {key: source for key, source in self.inside.items() if key not in without}
        return replace(self, inside={**sources, **inside}, outside={**self.outside, **(outside or {})})


class Sizes(Struct, frozen=True):
    """The sizes of a small model that is trained here.

    positions: rows of its position table, or the longest text. inner: width of the feed-forward part. window: keys that
    a query sees, its own included; None for all before it. scaled: whether scores are divided by √d_k.
    """

    layers: int
    heads: int
    width: int
    vocabulary: int
    positions: int
    inner: int
    window: int | None = None
    scaled: bool = True


class Family(Struct, frozen=True):
    """One lineage of checkpoints: its Spec from a config, its tensor names. The module it stands in is named for its
    `model_type`.

    decoder: the names of an encoder-decoder's other side. fixed: keys implemented for one value only.
    config: the config.json of a small model of these sizes, without its `model_type`, and the class that transformers
    opens it with; None for a family that nothing is trained as.
    """

    spec: Callable[[Config], Spec]
    names: Names
    decoder: Names | None = None
    fixed: Mapping[str, FixedValue] = field(default_factory=dict)
    config: Callable[[Sizes], tuple[dict[str, object], str]] | None = None
