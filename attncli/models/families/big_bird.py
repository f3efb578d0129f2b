"""BigBird: BERT whose queries see blocks: the first, the last, their own and its neighbours. Source: Zaheer et al.,
2020.

In training a query sees blocks drawn at random besides; outside it transformers gives it the first block in place of
each. Short texts are seen whole.
"""

from __future__ import annotations

from msgspec.structs import replace

from attncli.mechanism.mask import BigBird, Mask
from attncli.mechanism.spec import Attention, FirstBlockAgain, Spec
from attncli.models.config import Config
from attncli.models.families import bert
from attncli.models.family import Family

BIASES = ("attn.o", "attn.sum", "mlp.*", "embed.norm")
"""Those that there are in any case."""

SPARSE, FULL = "block_sparse", "original_full"


def spec(config: Config) -> Spec:
    """The Spec of a BigBird."""
    base = bert.spec(config, activation="gelu_new")
    config.get("sep_token_id")
    scaled = config.flag("rescale_embeddings", default=False)
    biased = config.flag("use_bias", default=True)
    size = config.whole("block_size", default=64)
    random_blocks = config.whole("num_random_blocks", default=3, least=0)
    if config.choice("attention_type", among={SPARSE: SPARSE, FULL: FULL}, default=SPARSE) == FULL:
        base = bert.decoding(config, base)
    else:
        blocks = (replace(block, attention=by_blocks(block.attention, size, random_blocks)) for block in base.blocks)
        base = replace(base, blocks=tuple(blocks))
    return replace(
        base,
        family="big_bird",
        embedding=replace(base.embedding, scale=base.d_model**0.5 if scaled else 1.0),
        max_positions=config.whole("max_position_embeddings", default=4096),
        biases=(*BIASES, "attn.[qkv]") if biased else BIASES,
    )


def by_blocks(attention: Attention, size: int, random_blocks: int) -> Attention:
    """The attention by blocks of a size. random_blocks: how many more than those in their places."""
    longest = (5 + 2 * random_blocks) * size
    near: Mask = BigBird(size, 0, 0, longest)
    return replace(
        attention, mask=near, position=FirstBlockAgain(random_blocks, size, longest) if random_blocks else None
    )


FAMILIES = {"big_bird": Family(spec, bert.NAMES, fixed=bert.FIXED)}
