"""The small models that are trained: their sizes, what their attention does, and as which family
they are saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from attncli.arrays.backend import numpy_backend
from attncli.arrays.numpy_backend import uniform
from attncli.errors import UsageError
from attncli.language import choice, listing, message
from attncli.mechanism.mask import Causal, Mask, Window, shows_all, visible
from attncli.mechanism.projection import sinusoidal
from attncli.mechanism.spec import Alibi, Block, Head, Spec
from attncli.models.config import Config
from attncli.models.families import TRAINED, family
from attncli.models.family import Role, TrainedSizes, layer_roles, outer_roles
from attncli.models.one_layer import scale_number

Floats = np.ndarray[Any, Any]

POSITIONS = ("learned", "sinusoidal", "rope", "alibi", "none")
"""How positions may enter a model that is trained."""
ROOM = 256
"""Positions of a model whose positions are not learned, one by one, but computed."""
TOKEN_DEVIATION = 0.2
"""Standard deviation of the first token vectors. Measured on `induction`, 200 steps, seeds 0 to 2:
a loss of 0.02 with 0.2, 0.04 with 1.0, because a layer's output soon outweighs smaller vectors."""
GAIN = 3.0**-0.5
"""Standard deviation of the first matrices times √fan-in: that of uniform numbers within 1/√fan-in.
With three times the variance models learn later: a loss of 0.1 to 1.1 after 200 steps."""


class Architecture(Struct, frozen=True):
    """What the options say about a model that is trained.

    position: one of `POSITIONS`.
    scale: "sqrt-dk", "sqrt-dmodel", "none" or a number.
    mlp: whether there is a feed-forward part after each attention.
    residual: whether each layer adds to its input; without it, one layer's attention alone says
        what is predicted.
    encoder: whether there is an encoder of as many layers, at which the decoder looks.
    """

    layers: int = 2
    heads: int = 2
    d_model: int = 32
    position: str = "learned"
    scale: str = "sqrt-dk"
    mask: Mask = field(default_factory=Causal)
    mlp: bool = False
    residual: bool = True
    encoder: bool = False


class SmallModel(Struct, frozen=True, eq=False):
    """A model that can be trained: its Spec, how it is saved, and which of its numbers training
    leaves alone.

    spec: what it does; of two sides that of the encoder, with the decoder's inside.
    kind, config, class_name: how it is saved, see `CheckpointParts`; "" for one that no family has.
    score_factor: by what saved queries are multiplied, so that a family's own scale gives the
        scores that were trained.
    fixed: roles that training leaves alone, with their numbers.
    masks: numbers of a role that stay 0, as zeros and ones.
    """

    spec: Spec
    kind: str
    config: Mapping[str, object]
    class_name: str
    score_factor: float
    fixed: Mapping[str, Floats]
    masks: Mapping[str, Floats]
    architecture: Architecture

    @property
    def decoder(self) -> Spec:
        """The side that predicts, whose layers and heads are watched: the decoder, or the model
        where it has one side."""
        return self.spec.decoder or self.spec


def small_model(architecture: Architecture, vocabulary: int, longest: int) -> SmallModel:
    """The model of an architecture for texts of at most `longest` tokens of a vocabulary.

    Raises UsageError for an architecture that cannot be trained, see `check_architecture`.
    """
    check_architecture(architecture)
    width = architecture.d_model
    position = architecture.position
    # the stream holds the vectors between layers; without a residual, one half of it is what
    # enters, the other what attention writes
    stream = width
    if not architecture.residual:
        stream = 2 * width

    # the family as which it is saved
    window = _window_size(architecture.mask)
    kind = _family_name(architecture, window)

    # its config and spec at these sizes
    rows = longest  # of the table of positions; computed ones may be more than are trained
    if position != "learned":
        rows = max(longest, ROOM)
    # a family has a feed-forward part in any case; one that is left out below is as small as can be
    inner = 1
    if architecture.mlp:
        inner = 4 * stream
    sizes = TrainedSizes(
        layers=architecture.layers,
        heads=architecture.heads,
        width=stream,
        vocabulary=vocabulary,
        positions=rows,
        inner=inner,
        window=window,
        scaled=architecture.scale != "none",
    )
    definition = family(kind)
    assert definition is not None
    assert definition.config is not None
    config, class_name = definition.config(sizes)
    base = definition.spec(Config(config, "config.json"))

    # what the architecture has other than the family, whose layers are all alike; with another mask
    # it cannot be saved as that
    family_attention = base.blocks[0].attention
    # (in a stream of two halves queries and keys are twice as wide as `width` says)
    scale = scale_number(architecture.scale, family_attention.head_dim, width)
    if base.decoder is None:
        spec = _one_sided_spec(base, architecture, scale)
    else:
        spec = _with_decoder(base, base.decoder, architecture, scale)
    attention = spec.blocks[0].attention
    can_be_saved = (
        attention.mask == family_attention.mask and attention.position == family_attention.position
    )

    # numbers that training leaves alone
    fixed: dict[str, Floats] = {}
    if position not in ("learned", "rope", "alibi"):
        fixed["positions.weight"] = _fixed_positions(
            position, rows, stream, before=spec.embedding.position_offset
        )
    if architecture.encoder and "positions.weight" in fixed:
        fixed[f"{ENCODER}positions.weight"] = fixed["positions.weight"]
    masks: dict[str, Floats] = {}
    if not architecture.residual:
        masks = _stream_halves(spec, width)
        if "positions.weight" in fixed:
            is_in_first_half = np.arange(stream) < width
            fixed["positions.weight"] = fixed["positions.weight"] * is_in_first_half
    return SmallModel(
        spec=spec,
        kind=kind if can_be_saved else "",
        config=config,
        class_name=class_name,
        # saved queries are multiplied by it: the family's own scale then gives the same scores
        score_factor=scale / family_attention.scale,
        fixed=fixed,
        masks=masks,
        architecture=architecture,
    )


def _family_name(architecture: Architecture, window: int | None) -> str:
    """The family as which a model of such positions and such a mask is saved.

    window: how many keys a query sees under a sliding window; None for any other mask.
    """
    if architecture.encoder:
        return TRAINED["encoder"]
    if architecture.position in ("rope", "alibi"):
        return TRAINED[architecture.position]
    if looks_ahead(architecture.mask):
        return TRAINED["both ways"]
    if window is not None:
        return TRAINED["window"]
    return TRAINED["table"]


def _one_sided_spec(base: Spec, architecture: Architecture, scale: float) -> Spec:
    """The Spec of a model of this architecture without an encoder, made of that of its family.

    scale: of all scores.
    """
    block = base.blocks[0]
    attention = replace(block.attention, scale=scale, mask=architecture.mask)
    if architecture.position == "alibi" and looks_ahead(architecture.mask):
        attention = replace(attention, position=Alibi(symmetric=True))
    block = replace(block, attention=attention)
    if not architecture.mlp:
        block = without_feed_forward(block)
    return replace(base, blocks=(block,) * architecture.layers, head=Head(tied=False))


def _with_decoder(base: Spec, decoder: Spec, architecture: Architecture, scale: float) -> Spec:
    """The Spec of an encoder-decoder of this architecture, made of that of its family.

    base, decoder: of the family, the encoder's Spec and that of the decoder in it.
    scale: of all scores.
    """
    encoder_block = base.blocks[0]
    encoder_block = replace(encoder_block, attention=replace(encoder_block.attention, scale=scale))
    block = decoder.blocks[0]
    assert block.cross is not None
    block = replace(
        block,
        attention=replace(block.attention, scale=scale),
        cross=replace(block.cross, scale=scale),
    )
    if not architecture.mlp:
        encoder_block = without_feed_forward(encoder_block)
        block = without_feed_forward(block)
    layers = architecture.layers
    decoder = replace(decoder, blocks=(block,) * layers, head=Head(tied=False))
    return replace(base, blocks=(encoder_block,) * layers, decoder=decoder)


def check_architecture(architecture: Architecture) -> None:
    """Raise UsageError for an architecture that cannot be trained: a width that heads do not
    divide, an unknown position encoding or scale, or a mask that depends on vectors."""
    width = architecture.d_model
    heads = architecture.heads
    if width % heads:
        divisors = [number for number in range(1, width + 1) if width % number == 0]
        nearest = min(divisors, key=lambda number: (abs(number - heads), number))
        raise UsageError(
            message(
                "d_model {d_model} is not divisible by {heads} heads", d_model=width, heads=heads
            ),
            expected=message("d_model divisible by the number of heads"),
            hint=f"--num-heads {nearest}",
        )
    if architecture.position not in POSITIONS:
        raise UsageError(
            message("unknown position encoding {name}", name=repr(architecture.position)),
            expected=listing(POSITIONS),
        )
    if architecture.position == "rope" and (width // heads) % 2:
        # the hint is the next smaller width with an even d_k, 2 at least
        raise UsageError(
            message("rotary position turns pairs of entries, and d_k is {d_k}", d_k=width // heads),
            expected=message("an even d_k"),
            hint=f"--d-model {2 * heads * max(width // (2 * heads), 1)}",
        )
    scale_number(architecture.scale, width // heads, width)  # raises for one that is unknown
    if architecture.encoder:
        _check_two_sides(architecture)
    for part in architecture.mask.parts_of():
        if part.depends_on != "vectors":
            continue
        raise UsageError(
            message(
                "the mask {mask} changes with queries and keys, which training changes",
                mask=repr(part.spec()),
            ),
            expected=message("a mask of positions, such as causal or window:4"),
            hint="--mask causal",
        )


def _check_two_sides(architecture: Architecture) -> None:
    """Raise UsageError for positions within the attention, and for another mask than the decoder's
    causal one: both are of models of one side."""
    if architecture.position in ("rope", "alibi"):
        raise UsageError(
            message(
                "positions {position} are of models without an encoder",
                position=architecture.position,
            ),
            expected=choice(("learned", "sinusoidal", "none")),
        )
    if architecture.mask != Causal():
        raise UsageError(
            message("a decoder that looks at an encoder is trained under the mask causal alone"),
            expected=message("no --mask"),
        )


def refuse_unsaved(model: SmallModel) -> None:
    """Raise UsageError for a model that fits no family of transformers, so that no checkpoint of it
    can be written.
    """
    if not model.kind:
        architecture = model.architecture
        raise UsageError(
            message(
                "no checkpoint format has positions {position} under the mask {mask}",
                position=architecture.position,
                mask=architecture.mask.spec(),
            ),
            expected=message(
                "--mask causal; a window or no mask also with learned, sinusoidal or no positions"
            ),
            hint="--mask causal",
        )


def without_feed_forward(block: Block) -> Block:
    """The block without its feed-forward part and without the norms of that part. The norm after
    its residual goes too: with nothing added, it would only normalise twice."""
    norms = {place: norm for place, norm in block.norms.items() if not place.startswith("mlp.")}
    return replace(block, mlp=None, norms=norms)


def looks_ahead(mask: Mask) -> bool:
    """Whether under a mask some query sees a key after it; masks that are neither full nor causal
    are tried out on a text of `ROOM` tokens."""
    if shows_all(mask):
        return True
    if isinstance(mask, Causal):
        return False
    backend = numpy_backend("float32")
    queries = backend.arange(0, ROOM)[:, None]
    keys = backend.arange(0, ROOM)[None, :]
    is_visible = visible(mask, queries, keys, keys=ROOM, backend=backend)
    return bool((is_visible & (keys > queries)).any())


def _window_size(mask: Mask) -> int | None:
    """How many keys a query sees under a sliding window that ends at the query itself; None for any
    other mask."""
    if isinstance(mask, Window) and mask.right == 0 and mask.left is not None:
        return mask.left + 1
    return None


def _fixed_positions(position: str, rows: int, width: int, *, before: int) -> Floats:
    """A table of position vectors that training leaves as it is, float32 [position, width]: of
    sines and cosines for "sinusoidal", of zeros for "none".

    rows: how many positions it has.
    before: how many rows of zeros the family has before that of the first position.
    """
    table = np.zeros((before + rows, width))
    if position == "sinusoidal":
        table[before:] = sinusoidal(np.arange(rows), width)
    return table.astype(np.float32)


def _stream_halves(spec: Spec, width: int) -> dict[str, Floats]:
    """Factors of 0 and 1 by role for a model without a residual: tokens enter in the first half of
    the stream, attention reads that half and writes the other, and the output layer reads what it
    wrote.

    width: of one half.
    """
    entering = (np.arange(spec.d_model) < width).astype(np.float32)
    mixed = 1 - entering  # the half that attention writes
    masks = {"tokens.weight": entering, "positions.weight": entering, "head.weight": mixed}
    masks |= {"embed.norm.weight": entering, "embed.norm.bias": entering}
    for layer in range(len(spec.blocks)):
        masks |= {f"{layer}.attn.{name}.weight": entering for name in "qkv"}
        masks[f"{layer}.attn.o.weight"] = mixed[:, None]
        masks[f"{layer}.attn.o.bias"] = mixed
    return masks


# The first weights: from named streams, so that a seed is the same model on every machine.


ENCODER = "encoder."
"""With this the names of an encoder's roles begin, where there is a decoder too. Both sides share
the table of tokens, which is the decoder's."""


def roles_of(spec: Spec) -> dict[str, Role]:
    """The roles (weights by the project's names, such as "attn.q.weight") that are trained, by
    name; those of a layer begin with its number, as "0.attn.q.weight", those of an encoder with
    `ENCODER`."""
    if spec.decoder is None:
        return _roles_of_side(spec)
    encoder = _roles_of_side(spec)
    del encoder["tokens.weight"]  # the decoder's
    roles = {f"{ENCODER}{name}": role for name, role in encoder.items()}
    return {**roles, **_roles_of_side(spec.decoder)}


def _roles_of_side(spec: Spec) -> dict[str, Role]:
    """The roles of one side that are trained, by name."""
    # a table of token types has one row here, which is 0
    outer = [
        role for role in outer_roles(spec) if role.module != "types" and role.name != "head.bias"
    ]
    roles = {role.name: role for role in outer}
    for layer, block in enumerate(spec.blocks):
        roles |= {f"{layer}.{role.name}": role for role in layer_roles(spec, block)}
    return roles


def first_weights(model: SmallModel, seed: int) -> dict[str, Floats]:
    """The weights before training, float32 by role: norms at 1, biases at 0, matrices and tables
    drawn at random from the seed and the role's name."""
    weights = {}
    for name, role in roles_of(model.spec).items():
        if name in model.fixed:  # training leaves it alone
            continue
        if role.suffix == ".bias":
            array = np.zeros(role.shape, np.float32)
        elif len(role.shape) == 1:  # a norm's factors
            array = np.ones(role.shape, np.float32)
        elif role.module in ("tokens", "positions"):
            array = uniform(seed, f"learn\0{name}", role.shape, TOKEN_DEVIATION)
        else:
            fan_in = role.shape[-1]
            array = uniform(seed, f"learn\0{name}", role.shape, GAIN * fan_in**-0.5)
        if name in model.masks:  # numbers of this role that stay 0
            array = array * model.masks[name]
        weights[name] = array
    return weights
