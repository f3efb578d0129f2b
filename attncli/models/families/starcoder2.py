"""StarCoder2: Llama with layer norms, biases and a plain feed-forward part. Source: Lozhkov et al., 2024."""

from __future__ import annotations

from attncli.mechanism.spec import Mlp, Norm, Spec
from attncli.models.config import ACTIVATIONS, Config, causal, rope
from attncli.models.families import llama
from attncli.models.family import Family

NAMES = llama.NAMES.with_roles({"mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"}, without=("mlp.gate",))


def spec(config: Config) -> Spec:
    """The Spec of a StarCoder2."""
    norm = Norm("layer", config.number("norm_epsilon", default=1e-5))
    activation = config.choice("hidden_act", among=ACTIVATIONS, default="gelu_pytorch_tanh")
    block = llama.block(
        config,
        position=rope(config, llama.head_dim(config)),
        mask=causal(config.optional("sliding_window")),
        kv_heads=2,
        norms={"attn.in": norm, "mlp.in": norm},
        mlp=Mlp(config.whole("intermediate_size"), activation),
    )
    linears = ("attn.[qkvo]", "mlp.up", "mlp.down") if config.flag("use_bias", default=True) else ()
    biases = ("attn.in", "mlp.in", "final", *linears)
    return llama.decoder(config, "starcoder2", [block] * llama.depth(config), final=norm, tied=True, biases=biases)


FAMILY = Family(spec, NAMES)
