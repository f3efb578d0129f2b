"""A scan's own texts run once more: for the heads most like a head, and for the rows of weights
that shade them.

Heads are alike by what they do over these texts, and by what they read and write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import numpy as np

from attncli.arrays.backend import EVERY
from attncli.errors import UnsupportedError
from attncli.features.heads.across_heads import HeadMatrices, basis, head_matrices, kernel_chance
from attncli.inputs.token import Token
from attncli.measure.labels import jensen_shannon
from attncli.measure.rest import rest_keys
from attncli.measure.row_facts import Floats
from attncli.models.load import hold_weights
from attncli.models.model import Model
from attncli.scan.document import LEAST_TEXTS, AlikeHead, AlikeHeads, ScanDocument, ScanHead
from attncli.scan.frequent_links import choosing_rows
from attncli.scan.plan import ScanPlan
from attncli.scan.statistics import reach
from attncli.scan.worker import truncate

Place = tuple[int, int]
"""(layer, head), or (file, line) of a text."""
NEAREST = 5
"""Heads that are told of a head."""
LONGEST_COMPARED = 256
"""Tokens of a text that heads are compared over, at most."""
STEPS = 3 * 10**8
"""Numbers that are compared, at most, a matter of ten seconds; beyond, fewer texts are looked at.
"""


def sampled_texts(document: ScanDocument, head: ScanHead) -> list[str]:
    """The texts of a head's random sample that the document holds, each once; the head's strongest
    examples where it has no sample."""
    texts = document.texts or ()
    sample = [texts[example.text] for example in head.sample or ()]
    by_place = {(text.file, text.line): text.text for text in sample}
    if not by_place:
        by_place = {(example.file, example.line): example.text for example in head.top}
    return list(by_place.values())


def alike_heads(
    plan: ScanPlan,
    model: Model,
    places: Sequence[Place],
    texts: Sequence[str],
    *,
    progress: Callable[[float], None] = lambda share: None,
) -> Mapping[Place, AlikeHeads]:
    """The heads most like each of `places` (layer, head): by their attention weights over texts,
    and by the subspaces that their value and output matrices share; by place.

    texts: those that heads are compared over; runs the model on each.
    progress: called with the share of texts that are done, 0 to 1.

    Source of the kernel: Yamagiwa, Takase and Shimodaira, Measuring affinity between attention-head
    weight subspaces via the projection kernel, 2026; of the distance: Lin, Divergence measures
    based on the Shannon entropy, 1991.
    """
    held_model = hold_weights(model)
    all_heads = plan.heads
    chosen = [all_heads.index(place) for place in places]
    divergences = _divergences(plan, held_model, chosen, texts, progress)
    kernels, chance = _shared_subspaces(held_model, all_heads, chosen)
    alike_by_place = {}
    for row, place in enumerate(places):
        head_divergences = divergences[:, row]  # [text, head]
        # the smaller the mean divergence, the more alike
        by_doing = []
        for index in _most_alike(all_heads, place, -_finite_mean(head_divergences)):
            by_doing.append(_alike_head(all_heads[index], head_divergences[:, index]))
        by_weights = []
        if kernels is not None:
            for index in _most_alike(all_heads, place, kernels[row]):
                layer, head = all_heads[index]
                kernel = float(kernels[row, index])
                by_weights.append(AlikeHead(layer=layer, head=head, value=kernel, ci95=None))
        alike_by_place[place] = AlikeHeads(
            texts=len(divergences), by_doing=by_doing, by_weights=by_weights, chance=chance
        )
    progress(1.0)
    return alike_by_place


def _divergences(
    plan: ScanPlan,
    model: Model,
    chosen: Sequence[int],
    texts: Sequence[str],
    progress: Callable[[float], None],
) -> Floats:
    """The Jensen–Shannon divergence between the attention weights of each chosen head and those of
    every head, [text, chosen, head], in nats. Texts that are too short or too long are left out,
    and the last ones where heads and texts are so many that comparing would take long.

    chosen: the indices of these heads among all heads of the model.
    progress: called with the share of texts that are done.
    """
    # 0 and None mean no limit
    limit = min(plan.choice.max_tokens or 2**31, model.spec.max_positions or 2**31)
    rows = []
    steps = 0
    for number, text in enumerate(texts):
        progress(number / len(texts))
        tokens = truncate(model.tokenizer.encode(text), limit)
        if not 2 <= len(tokens) <= LONGEST_COMPARED:  # one token has no other to look at
            continue
        steps += len(chosen) * len(plan.heads) * len(tokens) ** 2
        if steps > STEPS:
            break
        # of each layer [head, query, key], without a learned key behind those of the tokens
        layers = [
            np.asarray(model.backend.numpy(trace.stages["weights"]), np.float64)[..., : len(tokens)]
            for trace in model.trace(tokens, keep=("weights",))
        ]
        weights = np.concatenate(layers)
        rows.append(np.stack([jensen_shannon(weights[index][None], weights) for index in chosen]))
    if rows:
        return np.stack(rows)
    return np.zeros((0, len(chosen), len(plan.heads)))


def _finite_mean(values: Floats) -> Floats:
    """The mean of the finite values over texts, [text, head] to [head]; infinite for a head without
    any.
    """
    is_finite = np.isfinite(values)
    sums = np.where(is_finite, values, 0.0).sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(is_finite.any(0), sums / is_finite.sum(0), np.inf)


def _most_alike(every: Sequence[Place], place: Place, likeness: Floats) -> list[int]:
    """The indices of the `NEAREST` heads with the highest likeness to the one at `place`, itself
    left out, highest first.

    every: (layer, head) of all heads.
    likeness: of every head to that one, [head]; not finite where it is unknown.
    """
    order = np.argsort(-np.nan_to_num(likeness, nan=-np.inf), kind="stable").tolist()
    candidates = [
        index for index in order if every[index] != place and np.isfinite(likeness[index])
    ]
    return candidates[:NEAREST]


def _alike_head(place: Place, values: Floats) -> AlikeHead:
    """The document's entry on a head that is like another: their mean distance over texts, 0 to 1,
    and its interval, None where texts are few.

    values: their Jensen–Shannon divergence in each text, [text], in nats; not all unknown.
    """
    finite = values[np.isfinite(values)]
    mean = float(finite.mean())
    ends = None
    if finite.size >= LEAST_TEXTS:
        standard_error = float(finite.std(ddof=1)) / finite.size**0.5
        half = reach(finite.size - 1) * standard_error
        ends = [_as_distance(mean - half), _as_distance(mean + half)]
    layer, head = place
    return AlikeHead(layer=layer, head=head, value=_as_distance(mean), ci95=ends)


def _as_distance(divergence: float) -> float:
    """The distance, 0 to 1, that a Jensen–Shannon divergence in nats stands for: √(divergence / ln
    2).
    """
    return float(np.sqrt(min(max(divergence, 0.0) / np.log(2), 1.0)))


def _shared_subspaces(
    model: Model, every: Sequence[Place], chosen: Sequence[int]
) -> tuple[Floats | None, float | None]:
    """How far the subspaces of each chosen head's value and output matrices coincide with those of
    every head, 0 to 1, [chosen, head], and what random subspaces would have; None for both where
    single heads' matrices are not known, or there are too many to compare in a matter of minutes.

    chosen: the indices of these heads in `every`.
    """
    matrices: list[HeadMatrices] = []
    if not model.own_layers:  # its matrices are not known by their role
        return None, None
    with suppress(UnsupportedError):  # no output projection
        for layer in model.spec.attending():
            matrices += head_matrices(model, layer, EVERY)
    shapes = {(head.w_v.shape, head.w_o.shape) for head in matrices}
    # only matrices of all heads, and all of one shape, are compared
    if len(matrices) != len(every) or len(shapes) > 1:
        return None, None
    width, rank = matrices[0].w_v.shape
    if len(chosen) * len(every) * width * rank * rank > 100 * STEPS:
        return None, None
    # the mean of two kernels: of what values read, and of what heads write
    shares = np.zeros((len(chosen), len(every)))
    value_bases = [basis(head.w_v) for head in matrices]
    output_bases = [basis(head.w_o.T) for head in matrices]
    for bases in (value_bases, output_bases):
        for row, index in enumerate(chosen):
            first = bases[index]
            for column, second in enumerate(bases):
                common_rank = min(first.shape[1], second.shape[1])
                if common_rank == 0:  # a matrix of zeros has no subspace
                    shares[row, column] = np.nan
                else:
                    shares[row, column] += np.square(first.T @ second).sum() / common_rank / 2
    return shares, kernel_chance(width, rank).mean


# Where heads look in the texts that are shown of them.

LONGEST_SHADED = 1024
"""Tokens of a text that is shaded, at most."""
Shading = tuple[dict[Place, Sequence[Token]], dict[tuple[int, int, int, int], tuple[int, Floats]]]


def shading(
    plan: ScanPlan,
    model: Model,
    texts_by_head: Mapping[Place, Mapping[Place, str]],
    *,
    progress: Callable[[float], None] = lambda share: None,
) -> Shading:
    """The tokens of each text by (file, line); and by (file, line, layer, head) the query position
    of the head's strongest link in the text, with that query's weights [key].

    Texts of more than `LONGEST_SHADED` tokens are left out. Runs the model once for each text.

    texts_by_head: by (layer, head), the texts to shade by that head, by (file, line).
    progress: called with the share of texts that are done.
    """
    # each text once, with all heads that it is shaded by
    held_model = hold_weights(model)
    texts: dict[Place, str] = {}
    heads: dict[Place, set[Place]] = {}
    for place, head_texts in texts_by_head.items():
        texts |= head_texts
        for text in head_texts:
            heads.setdefault(text, set()).add(place)
    # 0 and None mean no limit
    limit = min(plan.choice.max_tokens or 2**31, model.spec.max_positions or 2**31)
    tokens: dict[Place, Sequence[Token]] = {}
    looks: dict[tuple[int, int, int, int], tuple[int, Floats]] = {}
    for number, (text, head_places) in enumerate(heads.items()):
        progress(number / len(heads))
        text_tokens = truncate(model.tokenizer.encode(texts[text]), limit)
        if not text_tokens or len(text_tokens) > LONGEST_SHADED:
            continue
        tokens[text] = text_tokens
        layers = sorted({layer for layer, _ in head_places})
        for trace in held_model.trace(text_tokens, layers=layers, keep=("weights",)):
            every = np.asarray(model.backend.numpy(trace.stages["weights"]), np.float64)
            weights = every[..., : len(text_tokens)]  # without a learned key
            # as in `strongest_links`: keys where heads rest, and rows without a choice, are left
            # out unless there are no others; −1 is below every weight
            rest = rest_keys(text_tokens)
            choosing = choosing_rows(
                model.spec.blocks[trace.layer].attention.mask, len(text_tokens), rest.tobytes()
            )
            for layer, head in head_places:
                if layer == trace.layer:
                    peaks = np.where(rest & ~rest.all(), -1.0, weights[head]).max(-1)
                    if choosing.any():
                        peaks = np.where(choosing, peaks, -1.0)
                    query = int(peaks.argmax())
                    looks[*text, layer, head] = (query, weights[head, query])
    progress(1.0)
    return tokens, looks


def texts_of_metric(document: ScanDocument, place: Place, metric: str | None) -> dict[Place, str]:
    """The texts that a head's screen shows for a metric, strongest and sampled ones, by (file,
    line).

    place: the head's (layer, head), which the document has.
    metric: its name, None for the head's first.
    """
    head = next(head for head in document.heads if (head.layer, head.head) == place)
    name = metric or next(iter(head.metrics), "")
    shown = {
        (example.file, example.line): example.text for example in head.top if example.metric == name
    }
    texts = document.texts or []
    for example in head.sample or ():
        if example.metric == name:
            text = texts[example.text]
            shown[text.file, text.line] = text.text
    return shown
