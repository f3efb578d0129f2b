"""The screen and the table of any topic of `attn.explain/1` besides the attention of a text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from attncli.analysis.documents.explain import (
    MatrixSoftmaxTopic,
    MetricTopic,
    OrderTopic,
    ScalingTopic,
    SoftmaxTopic,
    TaughtTopic,
)
from attncli.analysis.documents.layer_topics import MaskTopic, MultiheadTopic, PositionTopic, ResidualTopic
from attncli.render.lines import Lines
from attncli.render.screens.mask_topic import mask_topic_blocks, mask_topic_rows
from attncli.render.screens.metric_topic import metric_blocks, metric_rows
from attncli.render.screens.multihead_topic import multihead_blocks, multihead_rows
from attncli.render.screens.position_topic import position_blocks, position_rows
from attncli.render.screens.residual_topic import residual_blocks, residual_rows
from attncli.render.screens.topics import (
    matrix_rows,
    matrix_softmax_blocks,
    order_blocks,
    order_rows,
    scaling_blocks,
    scaling_rows,
    softmax_blocks,
    softmax_rows,
)
from attncli.render.view import View


def topic_blocks(document: TaughtTopic, view: View) -> Sequence[Lines]:
    """The parts of a topic's screen, in order."""
    match document:
        case SoftmaxTopic():
            return softmax_blocks(document, view)
        case ScalingTopic():
            return scaling_blocks(document, view)
        case MatrixSoftmaxTopic():
            return matrix_softmax_blocks(document, view)
        case OrderTopic():
            return order_blocks(document, view)
        case MetricTopic():
            return metric_blocks(document, view)
        case PositionTopic():
            return position_blocks(document, view)
        case MaskTopic():
            return mask_topic_blocks(document, view)
        case MultiheadTopic():
            return multihead_blocks(document, view)
        case ResidualTopic():
            return residual_blocks(document, view)
        case _:
            assert_never(document)


def topic_rows(document: TaughtTopic) -> Iterable[list[object]]:
    """A topic's numbers as a table with a header line, for `--plain`."""
    match document:
        case SoftmaxTopic():
            return softmax_rows(document)
        case ScalingTopic():
            return scaling_rows(document)
        case MatrixSoftmaxTopic():
            return matrix_rows(document)
        case OrderTopic():
            return order_rows(document)
        case MetricTopic():
            return metric_rows(document)
        case PositionTopic():
            return position_rows(document)
        case MaskTopic():
            return mask_topic_rows(document)
        case MultiheadTopic():
            return multihead_rows(document)
        case ResidualTopic():
            return residual_rows(document)
        case _:
            assert_never(document)
