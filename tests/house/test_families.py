"""A family has a file, a checkpoint compared with transformers, and a knob that must not be turned
unnoticed.
"""

from __future__ import annotations

from importlib import import_module

from tiny_checkpoints import CASES
from turned_knobs import TURNED

from attncli.models.families import FILES, LINEAGES, MODEL_TYPES, family


def test_every_family_has_a_case():
    cases = {case.model_type for case in CASES.values()}
    without = sorted(set(MODEL_TYPES) ^ cases)
    assert not without, f"CASES of tests/tiny_checkpoints.py has a checkpoint of each: {without}"


def test_every_family_has_a_negative_control():
    controls = {CASES[name].model_type for name, _, _ in TURNED}
    without = sorted(set(MODEL_TYPES) ^ controls)
    assert not without, f"TURNED of tests/turned_knobs.py has a knob of each: {without}"


def test_a_family_says_whose_it_is():
    for name in MODEL_TYPES:
        definition = family(name)
        assert definition is not None
        module = definition.spec.__module__.rpartition(".")[2]
        assert module == FILES[name], f"{name} takes the Spec of {module}"


def test_a_file_holds_the_families_that_are_listed_for_it():
    for file in {*FILES.values(), *LINEAGES}:
        held = import_module(f"attncli.models.families.{file}").FAMILIES
        assert sorted(held) == sorted(name for name in FILES if FILES[name] == file), file
