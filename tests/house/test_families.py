"""A family is one file, a checkpoint compared with transformers, and a knob that must not be turned unnoticed."""

from __future__ import annotations

from tiny_checkpoints import CASES
from turned_knobs import TURNED

from attncli.models.families import MODEL_TYPES, family


def test_every_family_has_a_case():
    assert {case.model_type for case in CASES.values()} == set(MODEL_TYPES)


def test_every_family_has_a_negative_control():
    assert {CASES[name].model_type for name, _, _ in TURNED} == set(MODEL_TYPES)


def test_a_family_says_whose_it_is():
    for name in MODEL_TYPES:
        found = family(name)
        assert found is not None
        module = found.spec.__module__.rpartition(".")[2]
        assert module == name.replace("-", "_"), f"{name} takes the Spec of {module}"
