"""A metric that is declared is also told, asked for and measured, and its loops stand beside it."""

from __future__ import annotations

import re

import attncli.metrics
from attncli.language import translate
from attncli.measure import metric as metric_module
from attncli.measure.metric import METRICS, Metric


def test_every_metric_is_listed():
    declared = {
        name: metric for name, metric in vars(metric_module).items() if isinstance(metric, Metric)
    }
    assert {metric.name: metric for metric in declared.values()} == METRICS
    assert all(name == metric.name for name, metric in declared.items())


def test_every_metric_can_be_imported():
    assert set(METRICS) <= set(attncli.metrics.__all__)


def test_every_metric_is_told_in_chinese():
    for metric in METRICS.values():
        for said in filter(None, (metric.says, metric.rows, metric.note)):
            chinese = translate(said, "zh")
            assert not re.search(r"\b[a-z]{3,} [a-z]{3,}\b", chinese), (
                f"{metric.name}: {said!r} is {chinese!r}"
            )
