"""The families that run natively, one file each, by the `model_type` of their `config.json`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from attncli.models.family import Family

DASHED = {"deberta_v2": "deberta-v2", "xlm_roberta": "xlm-roberta"}
"""The few that a config spells otherwise than a file can be named."""

MODEL_TYPES = tuple(sorted(DASHED.get(module.name, module.name) for module in iter_modules(__path__)))
"""Every `model_type` with a file here of that name."""


TRAINED = {"table": "gpt2", "window": "gpt_neo", "rope": "gpt_neox", "alibi": "bloom", "both ways": "bert"}
"""What a small model that is trained here is saved as, by how positions enter it and what its queries see: a table of
positions, the same with a window, rotations, biases by distance; queries that see the tokens after them, too."""


def family(model_type: str) -> Family | None:
    """The family of a `model_type`; None for one that has no file here."""
    if model_type not in MODEL_TYPES:
        return None
    definition: Family = import_module(f"attncli.models.families.{model_type.replace('-', '_')}").FAMILY
    return definition
