"""Nemotron: partly rotated heads, layer norms that multiply by 1 + w, a squared feed-forward part. Source: Parmar et
al., 2024."""

from __future__ import annotations

from attncli.mechanism.spec import Mlp, Norm, Spec
from attncli.models.config import ACTIVATIONS, Config, rope
from attncli.models.families import llama
from attncli.models.family import Family

NAMES = llama.NAMES.with_roles({}, without=("mlp.gate",))


def spec(config: Config) -> Spec:
    """The Spec of a Nemotron."""
    norm = Norm("layer", config.number("norm_eps", default=1e-5), unit_offset=True)
    block = llama.block(
        config,
        position=rope(config, llama.head_dim(config), default_partial=0.5),
        norms={"attn.in": norm, "mlp.in": norm},
        mlp=Mlp(config.whole("intermediate_size"), config.choice("hidden_act", among=ACTIVATIONS, default="relu2")),
    )
    biases = ("attn.in", "mlp.in", "final", *llama.linear_biases(config))
    return llama.decoder(config, "nemotron", [block] * llama.depth(config), final=norm, biases=biases)


FAMILY = Family(spec, NAMES)
