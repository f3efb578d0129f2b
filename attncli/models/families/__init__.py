"""The families that run natively, by the `model_type` of their `config.json`, a file for each
lineage.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import cache, wraps
from importlib import import_module
from pkgutil import iter_modules

from msgspec.structs import replace

from attncli.inputs.plugins import plugin_named
from attncli.language import message
from attncli.mechanism.spec import Spec
from attncli.models.config import Config
from attncli.models.family import Family

LINEAGES = {
    "bamba": ("bamba", "falcon_h1", "jamba"),
    "bart": ("bart", "blenderbot", "m2m_100", "marian", "mbart", "pegasus", "whisper"),
    "bert": (
        "albert",
        "bert",
        "big_bird",
        "camembert",
        "distilbert",
        "electra",
        "mpnet",
        "roberta",
        "xlm-roberta",
    ),
    "cohere": ("cohere", "cohere2"),
    "deberta_v2": ("deberta-v2",),
    "deepseek_v2": ("deepseek_v2", "deepseek_v3"),
    "gemma": ("gemma", "gemma2", "gemma3_text", "t5gemma"),
    "glm": ("glm", "glm4", "glm4_moe"),
    "gpt_neox": ("gpt_neo", "gpt_neox", "gptj"),
    "granite": ("granite", "granitemoe", "granitemoehybrid"),
    "gte": ("gte", "jina_embeddings_v3", "nomic_bert"),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", "hunyuan_v1_moe"),
    "lfm2": ("lfm2", "lfm2_moe"),
    "llama_relatives": (
        "ernie4_5",
        "exaone4",
        "nemotron",
        "seed_oss",
        "smollm3",
        "stablelm",
        "starcoder2",
    ),
    "longformer": ("led", "longformer"),
    "mistral": ("ministral", "ministral3", "mistral"),
    "mixtral": ("minimax", "minimax_m2", "mixtral"),
    "olmo": ("olmo", "olmo2", "olmo3"),
    "phi": ("phi", "phi3"),
    "qwen2": ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"),
    "qwen3_next": ("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"),
    "t5": ("mt5", "t5", "umt5"),
}
"""What each file here holds that does not hold the one `model_type` that it is named after."""

FILES = {
    model_type: module.name
    for module in iter_modules(__path__)
    for model_type in LINEAGES.get(module.name, (module.name,))
}
"""The file of each `model_type`."""

MODEL_TYPES = tuple(sorted(FILES))
"""Every `model_type` that a file here is about."""


ALSO_CALLED = {"kimi_k2": "deepseek_v3"}
"""The `model_type` that a published config.json has, and the family that it is in all but name."""

ARCHITECTURES = {
    "bert": "bert",
    "bloom": "bloom",
    "chatglm": "glm",
    "cohere2": "cohere2",
    "command-r": "cohere",
    "deepseek2": "deepseek_v2",
    "ernie4_5": "ernie4_5",
    "exaone4": "exaone4",
    "falcon": "falcon",
    "gemma": "gemma",
    "gemma-embedding": "gemma3_text",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "glm4": "glm4",
    "glm4moe": "glm4_moe",
    "gpt-oss": "gpt_oss",
    "gpt2": "gpt2",
    "gptneox": "gpt_neox",
    "granite": "granite",
    "granitehybrid": "granitemoehybrid",
    "granitemoe": "granitemoe",
    "hunyuan-dense": "hunyuan_v1_dense",
    "hunyuan-moe": "hunyuan_v1_moe",
    "jamba": "jamba",
    "jina-bert-v3": "jina_embeddings_v3",
    "lfm2": "lfm2",
    "lfm2moe": "lfm2_moe",
    "llama": "llama",
    "llama4": "llama4_text",
    "minimax-m2": "minimax_m2",
    "mistral3": "mistral",
    "modern-bert": "modernbert",
    "nemotron": "nemotron",
    "nomic-bert": "nomic_bert",
    "olmo": "olmo",
    "olmo2": "olmo2",
    "phi2": "phi",
    "phi3": "phi3",
    "qwen2": "qwen2",
    "qwen2moe": "qwen2_moe",
    "qwen3": "qwen3",
    "qwen35": "qwen3_5_text",
    "qwen35moe": "qwen3_5_moe_text",
    "qwen3moe": "qwen3_moe",
    "qwen3next": "qwen3_next",
    "seed_oss": "seed_oss",
    "smollm3": "smollm3",
    "stablelm": "stablelm",
    "starcoder2": "starcoder2",
    "t5": "t5",
    "t5encoder": "t5",
}
"""The family of each architecture that GGUF files are read of, by the name that it has there."""
FOUR_BIT_EXPERTS = ("gpt_oss",)
"""The families whose experts MXFP4 is read of."""
RELATIVES: dict[str, tuple[tuple[str, str], ...]] = {
    "bert": (("!token_types.weight", "distilbert"),),
    "deepseek2": (("blk.*.exp_probs_b.bias", "deepseek_v3"),),
    "granitehybrid": (("rope.scaling.finetuned", "bamba"),),
    "llama": (("expert_count", "mixtral"),),
    "mistral3": (("attention.temperature_scale", "ministral3"),),
    "olmo2": (("attention.sliding_window", "olmo3"),),
    "t5": (("enc.blk.1.attn_rel_b.weight", "umt5"),),
    "t5encoder": (("enc.blk.1.attn_rel_b.weight", "umt5"),),
}
"""The families of an architecture besides, each by a key or a tensor that only its files have, with
! that only its files lack."""
GGUF_FAMILIES = tuple(
    sorted({*ARCHITECTURES.values(), *(kind for kinds in RELATIVES.values() for _, kind in kinds)})
)
"""The families that GGUF files are read of."""

BY_TRANSFORMERS = {
    "gemma3n_text": message("several vectors a token between layers, shared keys"),
    "gemma4_text": message("layers share keys and have token vectors of their own"),
    "zamba2": message("heads read the embeddings, too, and write into Mamba alone"),
}
"""Families of today without a file here, which transformers runs, and what stands in the way."""

TRAINED = {
    "table": "gpt2",
    "window": "gpt_neo",
    "rope": "gpt_neox",
    "alibi": "bloom",
    "both ways": "bert",
    "encoder": "mbart",
}
"""What a small model that is trained here is saved as, by how positions enter it and what its
queries see: a table of positions, the same with a window, rotations, biases by distance; queries
that see the tokens after them, too; an encoder and a decoder that looks at what it read."""


@cache
def family(model_type: str) -> Family | None:
    """The family of a `model_type`, from its file here or from a plugin; None where neither has it.
    Its `spec` names the `model_type` as the family of each Spec.

    Raises:
        UsageError: Where several packages add it.
        PluginError: Where its plugin cannot be imported, or is no family.
    """
    plugin = None
    if model_type not in FILES:  # a plugin's, or none
        plugin = plugin_named("families", model_type)
        if plugin is None:
            return None
        declared = plugin.load()
        if not isinstance(declared, Family):
            what = message("{target} is no family", target=plugin.target)
            plugin.refuse(what, "an object of attncli.models.family.Family")  # raises
    else:
        families: Mapping[str, Family] = import_module(
            f"attncli.models.families.{FILES[model_type]}"
        ).FAMILIES
        declared = families[model_type]

    @wraps(declared.spec)
    def spec(config: Config) -> Spec:
        """The Spec of a config by its family's reader, with `family` set to this model type."""
        # an exception of a plugin's own code is raised as a PluginError
        guard = nullcontext() if plugin is None else plugin.guard()
        with guard:
            whole = declared.spec(config)
        decoder = whole.decoder
        if decoder is not None:
            decoder = replace(decoder, family=model_type)
        return replace(whole, family=model_type, decoder=decoder)

    return replace(declared, spec=spec)
