"""A metric that is declared is also told, asked for and measured, and its loops stand beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import attncli.metrics
from attncli.language import translate
from attncli.measure import metric as metric_module
from attncli.measure.metric import METRICS, Metric

ROOT = Path(__file__).parents[2]


def test_a_metric_is_called_like_the_variable_that_holds_it():
    for name, value in vars(metric_module).items():
        if isinstance(value, Metric):
            assert value.name == name, f"attncli/measure/metric.py: {name} is called {value.name!r}"


def test_every_metric_can_be_imported():
    for name in METRICS:
        assert name in attncli.metrics.__all__, (
            f"attncli/metrics.py: import {name} there, and add it to __all__"
        )


def test_every_metric_has_loops():
    known = (ROOT / "tests" / "oracles_metrics.py").read_text("utf-8")
    for name in METRICS:
        assert f'"{name}"' in known, f"tests/oracles_metrics.py: compute {name!r} by loops there"


@pytest.mark.thorough
def test_every_metric_is_told_in_chinese():
    for metric in METRICS.values():
        for said in filter(None, (metric.says, metric.rows, metric.note)):
            chinese = translate(said, "zh")
            assert not re.search(r"\b[a-z]{3,} [a-z]{3,}\b", chinese), (
                f"attncli/language/zh.po: {metric.name}: {said!r} is {chinese!r}"
            )
