"""Models of text and images, of which the text model is what reads text: its config and its tensors by themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attncli.errors import AttnError
from attncli.inputs.checkpoint import Checkpoint
from attncli.models import transformers_library as library
from attncli.models.families import MODEL_TYPES

UNDER = ("model.language_model.", "language_model.model.", "language_model.", "model.text_model.")
"""Where the text model's tensors stand, the longest first; its output head may stand outside."""
OTHERS = ("visual.", "model.visual.")
"""Where, in models that keep the text model's tensors at the top, those of another part stand."""
HEAD = "lm_head."
NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
"""What a config of a text model must say to be read without the library that wrote it."""


def text_model(checkpoint: Checkpoint) -> Checkpoint:
    """The text model of a checkpoint that holds one among other parts; the checkpoint itself where it does not.

    Its tensors go by the names that they have in the text model alone. `notes` say what was left out. Nothing is read.
    """
    kind = checkpoint.config.get("model_type")
    if kind in MODEL_TYPES or "vision_config" not in checkpoint.config:
        return checkpoint
    every = checkpoint.names()
    inside, beside = any(name.startswith(UNDER) for name in every), any(name.startswith(OTHERS) for name in every)
    names = {name: short for name in every if (short := _short(name, inside=inside, beside=beside)) is not None}
    config = text_config(checkpoint.config) if names else None
    if config is None:
        return checkpoint
    part = checkpoint.part({short: name for name, short in names.items()}, config)
    unused_count = len(every) - len(names)
    part.notes = (
        *checkpoint.notes,
        f"this is the text model ({config['model_type']}) of a {kind}; {unused_count:,} tensors of other parts "
        "are not used",
    )
    return part


def text_config(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The text model's part of a config, with what it leaves to the library's defaults filled in; None without one."""
    inner = config.get("text_config")
    inner_config = dict(inner) if isinstance(inner, dict) else {}
    if inner_config.get("model_type") in MODEL_TYPES and all(key in inner_config for key in NEEDED):
        return _tie_embeddings(config, inner_config)
    kind = config.get("model_type")
    if not isinstance(kind, str) or not library.knows_family(kind):
        return None
    transformers = library.import_transformers()
    try:
        settings = transformers.CONFIG_MAPPING[kind].from_dict(dict(config)).get_text_config()
        whole: dict[str, Any] = json.loads(settings.to_json_string(use_diff=False))
    except (AttnError, MemoryError):
        raise
    except Exception:  # its Python raises anything on a config that it did not expect: told when the model is built
        return None
    return _tie_embeddings(config, whole) if isinstance(whole.get("model_type"), str) else None


def _tie_embeddings(config: Mapping[str, Any], text: dict[str, Any]) -> dict[str, Any]:
    """The text model's config, its head tied if either config says so: one that the file holds counts all the same."""
    flags = [part["tie_word_embeddings"] for part in (config, text) if "tie_word_embeddings" in part]
    return {**text, "tie_word_embeddings": any(flags)} if flags else text


def _short(name: str, *, inside: bool, beside: bool) -> str | None:
    """A tensor's name in the text model alone; None for one of another part.

    inside: whether any tensors stand under the text model's name. beside: whether any stand under another's.
    """
    under = next((prefix for prefix in UNDER if name.startswith(prefix)), None)
    if under is not None:
        return name.removeprefix(under)
    if name.startswith(HEAD):
        return name
    return None if inside or not beside or name.startswith(OTHERS) else name.removeprefix("model.")
