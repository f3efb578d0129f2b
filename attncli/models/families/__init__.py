"""The families that run natively, by the `model_type` of their `config.json`."""

from __future__ import annotations

from importlib import import_module

from attncli.models.family import Family

MODEL_TYPES = (
    "bert", "roberta", "xlm-roberta", "camembert", "mpnet", "distilbert", "electra", "modernbert",
    "gpt2", "gpt_neo", "gptj", "gpt_neox", "opt", "bloom",
    "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "phi", "phi3",
    "olmo", "olmo2", "olmo3", "cohere", "cohere2", "stablelm", "smollm3", "falcon", "granite", "granitemoe",
    "glm", "glm4", "starcoder2", "ministral", "exaone4", "nemotron", "qwen2_moe", "ernie4_5", "seed_oss",
    "t5", "mt5", "bart", "marian",
)  # fmt: skip
"""Every `model_type` with a file here of that name: encoders, decoders, encoder-decoders."""


def family(model_type: str) -> Family | None:
    """The family of a `model_type`; None for one that has no file here."""
    if model_type not in MODEL_TYPES:
        return None
    found: Family = import_module(f"attncli.models.families.{model_type.replace('-', '_')}").FAMILY
    return found
