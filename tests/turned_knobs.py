"""For every family a checkpoint with a knob turned: what must not go unnoticed beside transformers."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from attncli.mechanism.mask import AnyOf, Causal, Everywhere, Global, Window
from attncli.mechanism.spec import Alibi, Block, Experts, Mlp, Rope, Spec
from attncli.models.config import with_global_tokens


def attention(spec: Spec, **changed: object) -> Spec:
    return replace(
        spec,
        blocks=tuple(
            replace(block, attention=replace(block.attention, **changed)) for block in spec.blocks
        ),
    )


def blocks(spec: Spec, change: Callable[[Block], Block]) -> Spec:
    return replace(spec, blocks=tuple(change(block) for block in spec.blocks))


def unshared(part: Mlp | Experts | None) -> Mlp | Experts | None:
    return replace(part, shared_share=False) if isinstance(part, Experts) else part


def placed(spec: Spec, **changed: object) -> Spec:
    return attention(spec, position=replace(spec.blocks[0].attention.position, **changed))


def ungrouped(block: Block) -> Block:
    if not isinstance(block.mlp, Experts):
        return block
    return replace(
        block, mlp=replace(block.mlp, routing=replace(block.mlp.routing, groups=1, groups_chosen=1))
    )


def rope(spec: Spec, **changed: object) -> Spec:
    def turned(block: Block) -> Block:
        if not isinstance(block.attention.position, Rope):
            return block
        return replace(
            block,
            attention=replace(
                block.attention, position=replace(block.attention.position, **changed)
            ),
        )

    return blocks(spec, turned)


def uncorrected(part: Mlp | Experts | None) -> Mlp | Experts | None:
    if not isinstance(part, Experts):
        return part
    return replace(part, routing=replace(part.routing, corrected=False))


def mixers(spec: Spec, **changed: object) -> Spec:
    return blocks(
        spec,
        lambda block: (
            block if block.mixer is None else replace(block, mixer=replace(block.mixer, **changed))
        ),
    )


def norms(spec: Spec, **changed: object) -> Spec:
    return blocks(
        spec,
        lambda block: replace(
            block, norms={place: replace(norm, **changed) for place, norm in block.norms.items()}
        ),
    )


TURNED: list[tuple[str, str, Callable[[Spec], Spec]]] = [
    ("bert", "scale", lambda spec: attention(spec, scale=spec.blocks[0].attention.scale * 1.001)),
    ("bert", "eps", lambda spec: norms(spec, eps=1.1e-3)),
    ("bert", "activation", lambda spec: blocks(spec, lambda block: replace(block, mlp=replace(block.mlp,
    activation="gelu_tanh")))),
    ("bert", "causal", lambda spec: attention(spec, mask=Causal())),
    ("roberta", "offset", lambda spec: replace(spec, embedding=replace(spec.embedding, position_offset=0))),
    ("distilbert", "norm place", lambda spec: blocks(spec, lambda block: replace(block, norms={"attn.sum": block.norms[
    "attn.sum"]}))),
    ("modernbert", "window", lambda spec: attention(spec, mask=Everywhere())),
    ("modernbert", "theta", lambda spec: rope(spec, theta=97.0)),
    ("longformer", "windows", lambda spec: attention(spec, mask=AnyOf((Window(2, 2), Global((0,)))))),
    ("longformer", "global projections", lambda spec: attention(spec, own_global=())),
    ("longformer by silence", "global", lambda spec: with_global_tokens(spec, (0,))),
    ("big_bird", "blocks", lambda spec: attention(spec, mask=Everywhere())),
    ("big_bird", "what counts again", lambda spec: attention(spec, position=None)),
    ("gpt2", "layer's scale", lambda spec: attention(spec, scale=spec.blocks[0].attention.scale)),
    ("gpt_neo", "window", lambda spec: attention(spec, mask=Causal())),
    ("gptj", "pairing", lambda spec: rope(spec, pairing="half")),
    ("gpt_neox", "share", lambda spec: rope(spec, dims=4)),
    ("gpt_neox in sequence", "scaling", lambda spec: rope(spec, scaling=None)),
    ("bloom", "positions", lambda spec: attention(spec, position=None)),
    ("bloom", "both ways", lambda spec: attention(spec, mask=Everywhere(), position=Alibi(symmetric=True))),
    ("llama", "theta", lambda spec: rope(spec, theta=97.5)),
    ("llama linear", "scaling", lambda spec: rope(spec, scaling=None)),
    ("llama 3.1", "scaling", lambda spec: rope(spec, scaling=None)),
    ("llama yarn", "scaling", lambda spec: rope(spec, scaling=None)),
    ("llama dynamic", "scaling", lambda spec: rope(spec, scaling=None)),
    ("phi3 long", "scaling", lambda spec: rope(spec, scaling=None)),
    ("mistral", "window", lambda spec: attention(spec, mask=Causal())),
    ("mixtral", "chosen", lambda spec: blocks(spec, lambda block: replace(block, mlp=replace(block.mlp, chosen=3)))),
    ("qwen3_moe", "shares", lambda spec: blocks(spec, lambda block: replace(block, mlp=replace(block.mlp,
    renormalise=True)))),
    ("qwen3", "query norm", lambda spec: attention(spec, qk_norm=None)),
    ("gemma", "offset of weights", lambda spec: norms(spec, unit_offset=False)),
    ("gemma", "embedding", lambda spec: replace(spec, embedding=replace(spec.embedding, scale=1.0))),
    ("gemma2", "soft cap", lambda spec: attention(spec, softcap=None)),
    ("gemma2", "soft cap near 2", lambda spec: attention(spec, softcap=2.01)),
    ("cohere", "parallel", lambda spec: blocks(spec, lambda block: replace(block, parallel=False))),
    ("granite", "branches", lambda spec: blocks(spec, lambda block: replace(block, branch_scale=1.0))),
    ("granite", "embedding", lambda spec: replace(spec, embedding=replace(spec.embedding, scale=1.0))),
    ("granitemoe", "chosen", lambda spec: blocks(spec, lambda block: replace(block, mlp=replace(block.mlp, chosen=3)))),
    ("glm", "pairing", lambda spec: rope(spec, pairing="half")),
    ("olmo", "cut off", lambda spec: attention(spec, clip=None)),
    ("olmo3", "scaling", lambda spec: rope(spec, scaling=None)),
    ("olmo3", "theta", lambda spec: rope(spec, theta=97.0)),
    ("starcoder2", "window", lambda spec: attention(spec, mask=Causal())),
    ("cohere2", "positions everywhere", lambda spec: attention(spec, position=spec.blocks[0].attention.position)),
    ("exaone4", "positions everywhere", lambda spec: attention(spec, position=spec.blocks[0].attention.position)),
    ("nemotron", "offset of weights", lambda spec: norms(spec, unit_offset=False)),
    ("nemotron", "activation", lambda spec: blocks(spec, lambda block: replace(block, mlp=replace(block.mlp,
    activation="relu")))),
    ("qwen2_moe", "share", lambda spec: blocks(spec, lambda block: replace(block, mlp=unshared(block.mlp)))),
    ("ernie4_5", "pairing", lambda spec: rope(spec, pairing="half")),
    ("gpt_oss", "sinks", lambda spec: attention(spec, sinks=False)),
    ("gpt_oss", "bounds", lambda spec: blocks(spec, lambda block: replace(block, mlp=replace(block.mlp,
    bounded=None)))),
    ("deepseek_v2", "rotated entries", lambda spec: rope(spec, first=0)),
    ("deepseek_v3 in halves", "groups", lambda spec: blocks(spec, lambda block: ungrouped(block))),
    ("deepseek_v3", "scale", lambda spec: attention(spec, scale=10**-0.5)),
    ("llama4_text", "temperature", lambda spec: attention(spec, temperature=None)),
    ("llama4_text", "chunks", lambda spec: attention(spec, mask=Causal())),
    ("deberta-v2", "queries", lambda spec: placed(spec, asks=False)),
    ("deberta-v2", "keys", lambda spec: placed(spec, answers=False)),
    ("deberta-v2", "norm", lambda spec: placed(spec, norm=None)),
    ("deberta-v2 one way", "distances", lambda spec: placed(spec, furthest=None)),
    ("deberta-v2 with a convolution", "convolution", lambda spec: blocks(spec, lambda block: replace(block,
    convolution=None))),
    ("xlnet reading on", "distances", lambda spec: placed(spec, furthest=None)),
    ("xlnet", "scale", lambda spec: attention(spec, scale=1.0)),
    ("smollm3", "positions everywhere", lambda spec: attention(spec, position=spec.blocks[0].attention.position)),
    ("t5", "scale", lambda spec: attention(spec, scale=spec.blocks[0].attention.head_dim ** -0.5)),
    ("t5", "distances", lambda spec: attention(spec, position=replace(spec.blocks[0].attention.position,
    max_distance=30))),
    ("mpnet", "distances", lambda spec: attention(spec, position=replace(spec.blocks[0].attention.position,
    max_distance=20))),
    ("falcon alibi", "factor", lambda spec: attention(spec, position=replace(spec.blocks[0].attention.position,
    factor=1.0))),
    ("falcon alibi", "rounding", lambda spec: attention(spec, position=replace(spec.blocks[0].attention.position,
    coarse=False))),
    ("bart", "embedding", lambda spec: replace(spec, embedding=replace(spec.embedding, scale=1.0))),
    ("gte", "positions", lambda spec: attention(spec, position=None)),
    ("mbart", "norms", lambda spec: norms(spec, eps=1.0)),
    ("m2m_100", "positions", lambda spec: replace(spec, embedding=replace(spec.embedding, positions="halves"))),
    ("blenderbot", "scale", lambda spec: attention(spec, scale=0.3)),
    ("led", "windows", lambda spec: attention(spec, mask=Window(2, 2))),
    ("led", "global", lambda spec: with_global_tokens(spec, (0,))),
    ("t5gemma", "windows", lambda spec: attention(spec, mask=Window(3, 3))),
    ("t5gemma", "norm after cross-attention", lambda spec: replace(spec, decoder=blocks(spec.decoder, lambda block:
    replace(block, norms={place: norm for place, norm in block.norms.items() if place != "cross.out"})))),
    ("whisper", "causal", lambda spec: attention(spec, mask=Everywhere())),
    ("whisper", "what it reads", lambda spec: blocks(spec, lambda block: replace(block, cross=replace(block.cross,
    scale=0.3)))),
    ("marian", "positions", lambda spec: replace(spec, embedding=replace(spec.embedding, positions="sinusoidal"))),
    ("albert", "norms", lambda spec: norms(spec, eps=1.0)),
    ("camembert", "offset", lambda spec: replace(spec, embedding=replace(spec.embedding, position_offset=0))),
    ("xlm-roberta", "offset", lambda spec: replace(spec, embedding=replace(spec.embedding, position_offset=0))),
    ("electra", "norms", lambda spec: norms(spec, eps=1.0)),
    ("gemma3_text", "windows", lambda spec: attention(spec, mask=Causal())),
    ("glm4", "theta", lambda spec: rope(spec, theta=41.0)),
    ("jina_embeddings_v3", "theta", lambda spec: rope(spec, theta=41.0)),
    ("ministral", "windows", lambda spec: attention(spec, mask=Causal())),
    ("mt5", "scale", lambda spec: attention(spec, scale=0.3)),
    ("umt5", "distances", lambda spec: placed(spec, max_distance=30)),
    ("nomic_bert", "theta", lambda spec: rope(spec, theta=41.0)),
    ("olmo2", "normed queries", lambda spec: attention(spec, qk_norm=None)),
    ("opt", "offset", lambda spec: replace(spec, embedding=replace(spec.embedding, position_offset=0))),
    ("pegasus", "scale", lambda spec: attention(spec, scale=0.3)),
    ("phi", "theta", lambda spec: rope(spec, theta=41.0)),
    ("qwen2", "theta", lambda spec: rope(spec, theta=41.0)),
    ("seed_oss", "theta", lambda spec: rope(spec, theta=41.0)),
    ("ministral3", "temperature", lambda spec: attention(spec, temperature=replace(spec.blocks[0].attention.temperature,
    first=1))),
    ("hunyuan_v1_dense", "theta", lambda spec: rope(spec, theta=97.0)),
    ("hunyuan_v1_moe", "norm after rotation", lambda spec: attention(spec, qk_norm=replace(
    spec.blocks[0].attention.qk_norm, after=False))),
    ("glm4_moe", "share", lambda spec: rope(spec, dims=4)),
    ("minimax_m2", "normed queries", lambda spec: attention(spec, qk_norm=None)),
    ("lfm2", "theta", lambda spec: rope(spec, theta=41.0)),
    ("lfm2_moe", "corrections", lambda spec: blocks(spec, lambda block: replace(block, mlp=uncorrected(block.mlp)))),
    ("bamba", "gate before norm", lambda spec: mixers(spec, gate_first=False)),
    ("granitemoehybrid", "activation", lambda spec: mixers(spec, activation="relu")),
    ("granitemoehybrid", "scale", lambda spec: attention(spec, scale=0.3)),
    ("jamba", "norms", lambda spec: mixers(spec, norm=None)),
    ("falcon_h1", "gate before norm", lambda spec: mixers(spec, gate_first=False)),
    ("falcon_h1", "factors of the mixer", lambda spec: mixers(spec, factors=None)),
    ("falcon_h1", "factors of weights", lambda spec: blocks(spec, lambda block: replace(block, factors={}))),
    ("kimi_linear", "activation", lambda spec: mixers(spec, activation="relu")),
    ("kimi_linear", "scale", lambda spec: attention(spec, scale=0.3)),
    ("minimax", "fading", lambda spec: mixers(spec, share=0.7)),
    ("minimax", "residual from behind the norm", lambda spec: blocks(spec, lambda block: replace(block, normed=False))),
    ("nemotron_h", "least step", lambda spec: mixers(spec, limits=(0.0, None))),
    ("nemotron_h", "activation", lambda spec: blocks(spec, lambda block: replace(block, mlp=replace(block.mlp,
    activation="relu")) if isinstance(block.mlp, Mlp) else block)),
    ("qwen3_next", "activation", lambda spec: mixers(spec, activation="relu")),
    ("qwen3_5_moe_text", "theta", lambda spec: rope(spec, theta=41.0)),
    ("qwen3_5_text", "gate", lambda spec: attention(spec, gated=False)),
    ("qwen3_5_text", "theta", lambda spec: rope(spec, theta=41.0)),
    ("stablelm", "theta", lambda spec: rope(spec, theta=41.0)),
]  # fmt: skip
"""The checkpoint among the tiny ones, what is turned, and how."""
