"""What a checkpoint is, without its weights: for `attn models show` and `attn cost`.

Headers and config.json are read, weights never, whatever runs the model. A folder of config.json
alone, or with an index whose files are not there, is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import prod
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

from attncli.arrays.backend import choose
from attncli.errors import InputError
from attncli.inputs.checkpoint import Checkpoint, has_weights
from attncli.inputs.files import is_there
from attncli.inputs.hub import Fetch, ModelLocation, Parts, Watch, gguf_file
from attncli.inputs.tokenize import IdsOnly
from attncli.language import message
from attncli.mechanism.spec import Spec
from attncli.models.aliases import locate
from attncli.models.family import (
    Binding,
    Family,
    Names,
    Role,
    SharedTensor,
    bind,
    layer_roles,
    outer_roles,
)
from attncli.models.load import (
    describe_checkpoint,
    foreign_family,
    open_checkpoint,
    read_spec,
    refuse_unknown,
    text_model,
)
from attncli.models.model import Identity, Model

CONFIG_ALONE = message(
    "the weights are not here: this is what config.json says, and its parameters are counted from it"
)


class ModelDescription(Struct, frozen=True):
    """What a checkpoint is, from its config and the headers of its files.

    location: where it was found.
    checkpoint: of the text model; without tensors where no weights are here.
    binding: which tensor plays which role; None where no weights are here or transformers runs the
        model.
    parameters: numbers in its matrices and vectors.
    foreign: whether transformers runs it.
    notes: for the user.
    """

    location: ModelLocation
    checkpoint: Checkpoint
    spec: Spec
    binding: Binding | None
    parameters: int
    foreign: bool
    notes: tuple[str, ...]


def describe(
    name: str,
    *,
    ignore: Collection[str] = (),
    note: Callable[[str], None] | None = lambda message: None,
    watch: Watch | None = None,
    variables: Mapping[str, str] | None = None,
) -> ModelDescription:
    """Find a model by name and describe it without its weights; for a model on the hub only the
    headers of its files are fetched.

    Args:
        name: A folder, a GGUF file, a hub id or an alias.
        ignore: Keys of config.json to leave out.
        note: Is told what is being fetched; None also hides progress bars.
        watch: Is told how much of each file is there.
        variables: Where HF_HUB_CACHE and its like are looked up; None for the process's.

    Returns:
        The description. Nothing of the weights is read.

    Raises:
        InputError: For files that are damaged or do not fit together.
        UnsupportedError: For what is not implemented.
    """
    # as soon as config.json is there, and before more is fetched, a model that cannot run is refused
    fetch = Fetch(note, lambda folder: refuse_unknown(folder, ignore), Parts.HEADERS, watch)
    location = locate(name, variables=variables, fetch=fetch)
    checkpoint = _open(location)

    # a model that transformers runs is described with its help
    kind = foreign_family(checkpoint)
    if kind is not None:
        from attncli.models.transformers_shapes import describe_foreign

        foreign = describe_foreign(checkpoint, kind)
        parameters = _stored_parameters(checkpoint) or foreign.parameters
        notes = (*checkpoint.notes, *foreign.notes)
        return ModelDescription(
            location,
            checkpoint,
            foreign.spec,
            binding=None,
            parameters=parameters,
            foreign=True,
            notes=notes,
        )

    spec, family, warnings = read_spec(checkpoint, ignore)
    binding = None
    if checkpoint.names():
        binding, _ = bind(spec, family, checkpoint.names(), str(location.folder))
        parameters = _stored_parameters(checkpoint)
    else:  # a config.json alone
        parameters = _role_parameters(spec, family)
    return ModelDescription(
        location,
        checkpoint,
        spec,
        binding,
        parameters,
        foreign=False,
        notes=(*checkpoint.notes, *warnings),
    )


def _open(location: ModelLocation) -> Checkpoint:
    """The checkpoint of the text model at a location; it has no tensors where a folder holds
    config.json without the weights."""
    folder = location.folder
    if location.tensors is None and gguf_file(folder) is None and _is_description(folder):
        checkpoint = describe_checkpoint(folder)
        checkpoint.notes = (*checkpoint.notes, CONFIG_ALONE)
        return text_model(checkpoint)
    return text_model(open_checkpoint(folder, location.tensors))


def _is_description(folder: Path) -> bool:
    """Whether a folder holds a config.json and none of the weights."""
    return is_there(folder / "config.json") and not has_weights(folder)


def _stored_parameters(checkpoint: Checkpoint) -> int:
    """How many floats the tensors of a checkpoint hold."""
    return sum(prod(info.shape) for info in checkpoint.names().values() if "float" in info.dtype)


def _role_parameters(spec: Spec, family: Family) -> int:
    """How many numbers the weights of a native model have, by its Spec. A tied head, what all
    layers share, and the token table that both sides of a model read count once."""
    total = 0
    for side, names in ((spec, family.names), (spec.decoder, family.decoder)):
        if side is None or names is None:
            continue
        counted = _counted_layer_roles(side, names)
        for role in outer_roles(side):
            # optional: what a file may lack; of this only a head that is not tied counts
            has_untied_head = side.head is not None and not side.head.tied
            counts = not role.optional or (role.name == "head.weight" and has_untied_head)
            is_encoders_table = side is spec.decoder and role.name == "tokens.weight"
            if counts and not is_encoders_table:
                counted.append(role)
        total += sum(prod(role.shape) for role in counted)
    return total


def _counted_layer_roles(side: Spec, names: Names) -> list[Role]:
    """The roles of the weights in all layers of a model, encoder or decoder; a weight that its
    layers share comes once."""
    shared: set[str] = set()
    for modules, source in names.inside.items():
        if isinstance(source, SharedTensor):
            shared |= {*modules.split()}  # "attn.q attn.k" names two
    roles = [role for block in side.blocks for role in layer_roles(side, block)]
    own_roles = [role for role in roles if role.module not in shared]
    shared_roles = {role.name: role for role in roles if role.module in shared}  # each name once
    return [*own_roles, *shared_roles.values()]


def described_model(description: ModelDescription, dtype: str) -> Model:
    """A `Model` without weights, of which memory and time can be estimated: it has a Spec and a data
    type, and raises InputError where a weight would be read."""
    checkpoint = description.checkpoint
    return Model(
        description.spec,
        AbsentStore(str(description.location.folder)),
        IdsOnly(str(description.location.folder)),
        choose("numpy", device=None, dtype=dtype),
        Identity(
            "checkpoint",
            description.location.name,
            description.spec.family,
            quantization=checkpoint.quantization,
        ),
        warnings=description.notes,
    )


class AbsentStore:
    """A `Store` of a model that is only described; it raises InputError for every weight."""

    row_by_row = True

    def __init__(self, where: str) -> None:
        self._where = where

    def expect(self, layers: range) -> None:
        """Does nothing: no layer will be read."""

    def bytes_read(self) -> int:
        """No bytes of weights."""
        return 0

    def _refuse(self, *arguments: object) -> NoReturn:
        """Called in place of each method that reads weights (`embed`, `layer` and so on): always
        raises InputError."""
        raise InputError("this model is described, and its weights are not read", where=self._where)

    embed = embed_parts = layer = outer = _refuse
