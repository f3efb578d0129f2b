"""XLNet: post-norm encoder whose queries meet the sinusoid of each key's distance. Source: Yang et
al., XLNet, 2019.

Of the two streams of its training one is left where nothing is predicted. Scores by segment are the
same for all keys of a text of one segment, which changes no weight: they are left out, and a text
of several, such as one whose [CLS] is a segment of its own, is warned of.
"""

from __future__ import annotations

from typing import Literal

from attncli.mechanism.mask import Causal, Everywhere
from attncli.mechanism.spec import Attention, Block, Embedding, Mlp, Norm, RelativeSines, Spec
from attncli.models.config import ACTIVATIONS, MOST_LAYERS, Config, FixedValue
from attncli.models.family import ByHead, Family, Names

NAMES = Names(
    layer="layer.{layer}.",
    inside={
        "attn.q": ByHead("rel_attn.q|rel_attn.r_w", transposed=True),
        "attn.k": ByHead("rel_attn.k", transposed=True),
        "attn.v": ByHead("rel_attn.v", transposed=True),
        "attn.o": ByHead("rel_attn.o"),
        "attn.relative_k": ByHead("rel_attn.r", transposed=True),
        "attn.relative_q": ByHead("rel_attn.r_r"),
        "attn.sum": "rel_attn.layer_norm",
        "mlp.up": "ff.layer_1",
        "mlp.down": "ff.layer_2",
        "mlp.sum": "ff.layer_norm",
    },
    outside={"tokens": "word_embedding"},
    prefixes=("transformer.",),
    ignored=(
        "mask_emb",
        "layer.*.rel_attn.seg_embed",
        "layer.*.rel_attn.r_s_bias",
        *("lm_loss.*", "sequence_summary.*", "logits_proj.*", "classifier.*", "qa_outputs.*"),
        *("start_logits.*", "end_logits.*", "answer_class.*"),
    ),
)

FIXED = {
    "bi_data": FixedValue(False, "half of a batch would be read backwards"),
    "same_length": FixedValue(False, "queries would see as many keys each"),
}

MASKS: dict[str, Literal["bi", "uni"]] = {"bi": "bi", "uni": "uni"}

OF_TRAINING = (
    "mem_len reuse_len use_mems_eval use_mems_train untie_r start_n_top end_n_top init init_range"
    " init_std"
)
"""Keys of what is kept between texts, of training, and of heads for tasks."""


def spec(config: Config) -> Spec:
    """The Spec of an XLNet: a post-norm encoder whose scores add a term for the sinusoid of each
    distance."""
    # without effect on a text that runs alone
    config.get(*OF_TRAINING.split())
    width = config.integer("d_model", "hidden_size")
    heads = config.heads(width, "n_head", "num_attention_heads")
    dim = config.integer("d_head", default=width // heads)
    clamp = config.integer("clamp_len", default=-1, least=-1)
    norm = Norm("layer", config.number("layer_norm_eps", default=1e-12))
    is_causal = config.choice("attn_type", among=MASKS, default="bi") == "uni"
    attention = Attention(
        heads,
        kv_heads=heads,
        head_dim=dim,
        v_dim=dim,
        scale=dim**-0.5,
        mask=Causal() if is_causal else Everywhere(),
        position=RelativeSines(clamp if clamp > 0 else None),  # −1 and 0 clamp no distance
    )
    mlp = Mlp(
        config.integer("d_inner"), config.choice("ff_activation", among=ACTIVATIONS, default="gelu")
    )

    return Spec(
        d_model=width,
        vocabulary=config.integer("vocab_size"),
        blocks=(Block(attention, mlp, {"attn.sum": norm, "mlp.sum": norm}),)
        * config.integer("n_layer", "num_hidden_layers", most=MOST_LAYERS),
        embedding=Embedding(),
        biases=("attn.q", "attn.sum", "mlp.*"),
    )


FAMILIES = {"xlnet": Family(spec, NAMES, fixed=FIXED)}
