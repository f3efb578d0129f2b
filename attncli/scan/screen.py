"""The screens of a scan: a metric of every head, labels, examples; two scans compared; one verified."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from attncli.draw.lines import Lines, clip_lines, heading, remark, sentences, stack, stack_spaced
from attncli.draw.safe import cells, safe
from attncli.draw.shaded_matrix import draw_grid, head_grid
from attncli.draw.tables import GAP, table
from attncli.draw.view import Parts, ScreenPart, View, draw_parts
from attncli.language import contextual, message, plural, say, say_each
from attncli.scan.document import (
    KINDS,
    LEAST_TEXTS,
    SKIP_NOTES,
    AlikeHeads,
    ScanCompareDocument,
    ScanDocument,
    ScanEffect,
    ScanHead,
    ScanLabel,
    ScanVerifyDocument,
)
from attncli.scan.head_screen import (
    SPACED,
    Shading,
    changes_of_head,
    frequent_links,
    furthest_link,
    heads_like,
    interval_text,
    kinds_of_head,
    label_text,
    metrics_of_head,
    number,
    share_text,
    strongest_examples,
    texts_of_deciles,
    turn,
    why_parts,
    why_sentences,
)

EFFECT_NOTES = {
    "zero": message("1 − cos of the vector at the end, mean over texts; the head passes on nothing"),
    "mean": message("1 − cos of the vector at the end, mean over texts; the head passes on its mean over the text"),
}
"""What the effect of a head is, by what it passes on instead."""
RESTING = ("special-token", "first-token sink")
"""Labels of heads that rest where there is nothing to say."""


def scan_screen(
    document: ScanDocument,
    view: View,
    *,
    metric: str | None = None,
    head: tuple[int, int] | None = None,
    deciles: bool = False,
    alike: AlikeHeads | None = None,
    comparison: ScanCompareDocument | None = None,
    shades: Shading | None = None,
) -> Lines:
    """The whole screen. metric: of the grid and the examples, None for the first. head: one to show closely; deciles:
    with texts of its whole distribution; alike: the heads most like it; comparison: with another scan, of which the
    head's differences are shown; shades: where the head looks in these texts."""
    metric_shown = metric or next(iter(document.heads[0].metrics), "") if document.heads else ""
    chosen_head = next((scan_head for scan_head in document.heads if (scan_head.layer, scan_head.head) == head), None)
    shown = ScanShown(document, metric_shown, chosen_head, head is not None, deciles, alike, comparison, shades)
    return draw_parts(SCAN_PARTS, shown, view)


@dataclass(frozen=True)
class ScanShown:
    """A scan as it is shown. metric: of the grid and the examples. head: the one that is shown closely; is_close:
    whether one was asked for; deciles: with texts of its whole distribution in place of the strongest; alike: the heads
    most like it; comparison: with another scan."""

    document: ScanDocument
    metric: str
    head: ScanHead | None
    is_close: bool
    deciles: bool
    alike: AlikeHeads | None = None
    comparison: ScanCompareDocument | None = None
    shades: Shading | None = None


def _shows_all_heads(shown: ScanShown, view: View) -> bool:
    """Whether the screen is about all heads, not one alone."""
    return not shown.is_close


def _close(shown: ScanShown, view: View) -> bool:
    """The part is about one head."""
    return shown.is_close


def _header_part(shown: ScanShown, view: View) -> Lines:
    return _header(shown.document, view)


def _grid_part(shown: ScanShown, view: View) -> Lines:
    heads = shown.document.heads
    return _grid(shown.document, shown.metric, view) if heads and shown.metric in heads[0].metrics else Lines()


def _labels_part(shown: ScanShown, view: View) -> Lines:
    heads = shown.document.heads if not shown.is_close else [shown.head] if shown.head else []
    labelled = [
        (head, scan_label) for head in heads for scan_label in head.labels if scan_label.earned or _between(scan_label)
    ]
    if not heads or not shown.document.plan.labels or (shown.is_close and not labelled):
        return Lines()
    return _labels(labelled, view)


def _effects_part(shown: ScanShown, view: View) -> Lines:
    if not shown.document.plan.effects or (shown.head is not None and not shown.head.effect):
        return Lines()
    return _effects(shown.document, shown.document.heads if shown.head is None else [shown.head], view)


def _why_part(shown: ScanShown, view: View) -> Lines:
    heads = shown.document.heads if shown.head is None else [shown.head]
    return stack_spaced(*(why_parts(head, view) for head in heads if head.why))


def _metrics_part(shown: ScanShown, view: View) -> Lines:
    return Lines() if shown.head is None else metrics_of_head(shown.head, view)


def _kinds_part(shown: ScanShown, view: View) -> Lines:
    if shown.head is None or not KINDS.keys() & shown.head.metrics.keys():
        return Lines()
    return kinds_of_head(shown.head, view)


def _examples_part(shown: ScanShown, view: View) -> Lines:
    return (
        Lines()
        if shown.head is None
        else strongest_examples(shown.head, shown.document, shown.metric, view, shown.shades)
    )


def _deciles_shown(shown: ScanShown, view: View) -> bool:
    """Texts of the whole distribution are asked for."""
    return shown.is_close and shown.deciles


def _examples_shown(shown: ScanShown, view: View) -> bool:
    """The strongest texts are not left out for those of the whole distribution."""
    return shown.is_close and not shown.deciles


def _links_part(shown: ScanShown, view: View) -> Lines:
    return frequent_links(shown.head, shown.document, view) if shown.head is not None and shown.head.links else Lines()


def _deciles_part(shown: ScanShown, view: View) -> Lines:
    if shown.head is None or not shown.head.sample:
        return Lines()
    return texts_of_deciles(shown.head, shown.document, shown.metric, view, shown.shades)


def _alike_part(shown: ScanShown, view: View) -> Lines:
    return Lines() if shown.head is None or shown.alike is None else heads_like(shown.head, shown.alike, view)


def _changes_part(shown: ScanShown, view: View) -> Lines:
    if shown.head is None or shown.comparison is None:
        return Lines()
    return changes_of_head(shown.head, shown.comparison, view)


def _answer_part(shown: ScanShown, view: View) -> Lines:
    return _answer(shown.document, view) if shown.head is None else _answer_of(shown.head, shown.document, view)


def _layers_part(shown: ScanShown, view: View) -> Lines:
    return _layers(shown.document, view) if shown.document.layers else Lines()


SCAN_PARTS: Parts[ScanShown] = (
    ScreenPart("header", _header_part),
    ScreenPart("grid", _grid_part, _shows_all_heads),
    ScreenPart("labels", _labels_part),
    ScreenPart("layers", _layers_part, _shows_all_heads),
    ScreenPart("effects", _effects_part),
    ScreenPart("why", _why_part),
    ScreenPart("kinds", _kinds_part, _close),
    ScreenPart("metrics", _metrics_part, _close),
    ScreenPart("changes", _changes_part, _close),
    ScreenPart("links", _links_part, _close),
    ScreenPart("alike", _alike_part, _close),
    ScreenPart("examples", _examples_part, _examples_shown),
    ScreenPart("deciles", _deciles_part, _deciles_shown),
    ScreenPart("answer", _answer_part),
)


def scan_page(document: ScanDocument, lang: str) -> bytes:
    """The page of a scan whose model is not at hand: its sentences are not shaded, and the page says so."""
    from attncli.draw.page import corpus_page

    return corpus_page.scan_page([corpus_page.PageScan(document, {}, {})], lang=lang)


def scan_rows(document: ScanDocument) -> Iterator[Sequence[object]]:
    """Every metric of every head, for `--plain`."""
    yield ("layer", "head", "metric", "texts", "rows", "mean_texts", "mean_rows", "sd", "low", "high", "baseline")
    for head in document.heads:
        for name, metric in head.metrics.items():
            low, high = metric.ci95 or (None, None)
            yield (
                head.layer, head.head, name, metric.texts, metric.rows, metric.mean_texts, metric.mean_rows,
                metric.sd, low, high, metric.baseline,
            )  # fmt: skip


def _header(document: ScanDocument, view: View) -> Lines:
    progress = document.done
    skip_notes = [
        say(view, SKIP_NOTES[reason], count=f"{count:,}") for reason, count in progress.skipped.items() if count
    ]
    if progress.truncated:
        skip_notes.append(say(view, "{count} cut to the model's length", count=f"{progress.truncated:,}"))
    corpus = document.plan.corpus
    done_count, total = progress.shards
    names = ", ".join(safe(name) for name in corpus[:3]) + (f" … ({len(corpus)})" if len(corpus) > 3 else "")
    rows = [
        [say(view, "model"), f"{safe(document.plan.model_with_adapters(document.plan.model))} · {document.plan.dtype}"],
        [say(view, "corpus"), names],
        [
            say(view, "done"),
            say(
                view,
                "{done} of {total} shards · {texts} · {tokens}",
                done=done_count,
                total=total,
                texts=_text_count(document, view),
                tokens=say(view, plural("{count:,} token", "{count:,} tokens", count=progress.tokens)),
            ),
        ],
    ]
    if skip_notes:
        rows.append([say(view, "left out"), " · ".join(skip_notes)])
    rows += [[say(view, "failed"), f"{shard.shard}: {safe(shard.reason)}"] for shard in progress.failed[:5]]
    if document.plan.sample_memory:
        size = f"{math.ceil(document.plan.sample_memory / 2**20):,}"
        memory = say(view, "samples and pairs: at most {size} MiB of a worker", size=size)
        rows.append([say(view, "memory"), memory])
    if document.digest is not None:
        rows.append([say(view, contextual("scan", "digest")), document.digest[:16]])
    warnings = [remark(warning_text, view) for warning_text in document.warnings]
    return stack(
        table(
            ["", ""],
            rows,
            view,
            title=say(view, plural("scan of {count:,} text", "scan of {count:,} texts", count=progress.texts)),
            faint=(0,),
        ),
        *warnings,
    )


def _grid(document: ScanDocument, name: str, view: View) -> Lines:
    grid = head_grid((head.layer, head.head, head.metrics[name].mean_texts) for head in document.heads)
    return draw_grid(
        grid,
        view,
        title=name,
        note=say(view, "mean over texts; rows: layers, columns: heads; --metric NAME shows another"),
    )


def _labels(labels: Sequence[tuple[ScanHead, ScanLabel]], view: View) -> Lines:
    """Labels that heads earn or may earn, with intervals and the share of texts that earn them."""
    if not labels:
        return heading(say(view, "labels"), say(view, "no head earns a label over this corpus"), view)
    labels_shown = labels if view.full else sorted(labels, key=lambda pair: -_strength(pair[1]))[: view.top]
    rows = [
        [
            f"L{head.layer} H{head.head}",
            label_text(scan_label, view),
            number(scan_label.score, view),
            interval_text(scan_label.ci95, view),
            say(view, "on random repeats")
            if scan_label.texts is None
            else share_text(scan_label.texts, scan_label.texts_ci95, view),
            "" if not scan_label.borderline else say(view, "borderline" if _between(scan_label) else "undecided"),
        ]
        for head, scan_label in sorted(labels_shown, key=lambda pair: (pair[0].layer, pair[0].head))
    ]
    interval = message("95% interval") if view.width >= SPACED else message("interval")
    names = [*say_each(view, "head", "label", "score", interval, "texts"), ""]
    if not any(row[-1] for row in rows):
        names, rows = names[:-1], [row[:-1] for row in rows]
    body = table(
        names,
        rows,
        view,
        align=["left", "left", "right", "left", "right", "left"],
        title=say(view, "labels"),
        note=say(view, ("score: mean over texts with its 95% interval; texts: share that earns the label alone")),
    )
    if len(labels_shown) == len(labels):
        return body
    return stack(
        body,
        remark(
            say(view, "{count} of {total} shown; --full shows all", count=len(labels_shown), total=len(labels)),
            view,
        ),
    )


def _effects(document: ScanDocument, heads: Sequence[ScanHead], view: View) -> Lines:
    effects = [(head, head.effect) for head in heads if isinstance(head.effect, ScanEffect)]
    rows = [
        [
            f"L{head.layer} H{head.head}",
            turn(effect.mean, view),
            interval_text(effect.ci95, view, turn),
            turn(effect.sd, view),
            turn(effect.quantiles.get("50"), view),
        ]
        for head, effect in sorted(effects, key=lambda pair: -(pair[1].mean or 0.0))
    ]
    return table(
        say_each(view, "head", "mean", "95% interval", "sd", "median"),
        rows,
        view,
        align=["left", "right", "left", "right", "right"],
        title=say(view, "what taking a head away changes"),
        note=say(view, EFFECT_NOTES[document.plan.effects[0]]),
    )


def _layers(document: ScanDocument, view: View) -> Lines:
    """How many massive activations leave each layer."""
    rows = [
        [
            f"L{layer.layer}",
            number(layer.massive.mean_texts, view),
            interval_text(layer.massive.ci95, view),
            "-" if layer.share is None else share_text(layer.share, layer.share_ci95, view),
        ]
        for layer in document.layers or ()
    ]
    return table(
        say_each(view, "layer", "mean", "95% interval", "texts"),
        rows,
        view,
        align=["left", "right", "left", "right"],
        title=say(view, "massive activations"),
        note=say(
            view, "numbers above 100 and 1,000 times the median among those that leave the layer; texts: share with one"
        ),
    )


def _strength(scan_label: ScanLabel) -> float:
    return (scan_label.score or 0.0) / scan_label.threshold


def _answer(document: ScanDocument, view: View) -> Lines:
    done_count, total = document.done.shards
    answer_sentences = []
    if document.heads:
        labelled_count = sum(any(scan_label.earned for scan_label in head.labels) for head in document.heads)
        between = sum(any(map(_between, head.labels)) for head in document.heads)
        few = _few(document, view)

        borderline_phrase = (
            say(view, "whether they keep it over other texts is not known")
            if few
            else say(view, plural("{count} is borderline", "{count} are borderline", count=between))
            if between
            else say(view, "none is borderline")
        )
        counts = {"heads": len(document.heads), "texts": _text_count(document, view)}
        answer_sentences.append(
            say(
                view,
                plural(
                    "{count} of {heads} heads earns a label over {texts}; {borderline}.",
                    "{count} of {heads} heads earn a label over {texts}; {borderline}.",
                    count=labelled_count,
                    borderline=borderline_phrase,
                    **counts,
                )
                if labelled_count
                else message(
                    "None of the {heads} heads earns a label over {texts}; {borderline}.",
                    borderline=borderline_phrase,
                    **counts,
                ),
            )
            if document.plan.labels
            else say(view, "{heads} heads are measured over {texts}; labels were not asked for.", **counts)
        )
        answer_sentences += [*few, *_even(document.heads, document, view)]
        resting = sum(
            any(scan_label.earned and scan_label.name in RESTING for scan_label in head.labels)
            for head in document.heads
        )
        if resting:
            answer_sentences.append(
                say(
                    view,
                    plural(
                        "{count} head rests: its label is special-token or first-token sink.",
                        "{count} heads rest: their label is special-token or first-token sink.",
                        count=resting,
                    ),
                )
            )
    answer_sentences += why_sentences(document.heads, view)
    if done_count < total:
        answer_sentences.append(
            say(
                view,
                "This scan is not finished: {done} of {total} shards are done. The same command again goes on.",
                done=done_count,
                total=total,
            )
        )
    return sentences(answer_sentences, view)


def _between(scan_label: ScanLabel) -> bool:
    """Whether a label's interval holds what it takes."""
    return scan_label.borderline and scan_label.ci95 is not None


def _few(document: ScanDocument, view: View) -> list[str]:
    """That the texts are too few for intervals, where no number has one."""
    if any(metric.ci95 for head in document.heads for metric in head.metrics.values()):
        return []
    return [
        say(
            view,
            plural(
                "{count} text is too few for intervals, which take {least}.",
                "{count} texts are too few for intervals, which take {least}.",
                count=document.done.texts,
                least=LEAST_TEXTS,
            ),
        )
    ]


def _even(heads: Sequence[ScanHead], document: ScanDocument, view: View) -> list[str]:
    """How many means have no interval, of texts that are enough for some."""
    missing = sum(
        metric.ci95 is None and metric.texts >= LEAST_TEXTS for head in heads for metric in head.metrics.values()
    )
    return (
        [
            say(
                view,
                plural(
                    "{count} mean has no interval: too few texts differ there.",
                    "{count} means have no interval: too few texts differ there.",
                    count=missing,
                ),
            )
        ]
        if missing and not _few(document, view)
        else []
    )


def _text_count(document: ScanDocument, view: View) -> str:
    """Such as `1,200 texts`: how many the scan has read."""
    return say(view, plural("{count:,} text", "{count:,} texts", count=document.done.texts))


def _answer_of(head: ScanHead, document: ScanDocument, view: View) -> Lines:
    earned_labels = [
        f"{label_text(scan_label, view)} ({number(scan_label.score, view)})"
        for scan_label in head.labels
        if scan_label.earned
    ]
    places = {"layer": head.layer, "head": head.head, "texts": _text_count(document, view)}
    labels_sentence = say(
        view,
        plural(
            "Over {texts}, layer {layer} head {head} earns the label {labels}.",
            "Over {texts}, layer {layer} head {head} earns the labels {labels}.",
            count=len(earned_labels),
            labels=say(view, contextual("between", ", ")).join(earned_labels),
            **places,
        )
        if earned_labels
        else message("Layer {layer} head {head} earns no label over {texts}.", **places),
    )
    return sentences(
        [
            labels_sentence,
            *why_sentences([head], view),
            *furthest_link(head, document, view),
            *_few(document, view),
            *_even([head], document, view),
        ],
        view,
    )


# The screen of `attn.scan_compare/1`: where two scans differ most.

FALSE_RATE = 0.05
"""The share of false discoveries that is borne."""


COMPARED = {
    "head": message("head"),
    "metric": message("metric"),
    "difference": contextual("column", "difference"),
    "delta": message("Cliff's δ"),
    "d": message("Cohen's d"),
}
"""The columns of a comparison that have words."""


def scan_compare_screen(document: ScanCompareDocument, view: View) -> Lines:
    """The whole screen: the largest effects, and how many are news."""
    if view.brief:
        return clip_lines(_comparison_answer(document, view), view.width, ascii=view.ascii)
    differences = document.differences if view.full else document.differences[: view.top]
    columns = {
        "head": [f"L{difference.layer} H{difference.head}" for difference in differences],
        "metric": [difference.metric for difference in differences],
        "a": [number(difference.a, view) for difference in differences],
        "b": [number(difference.b, view) for difference in differences],
        "difference": [number(difference.difference, view) for difference in differences],
        "delta": [number(difference.cliffs_delta, view) for difference in differences],
        "d": [number(difference.cohens_d, view) for difference in differences],
        "q": ["-" if difference.q is None else f"{difference.q:.2g}" for difference in differences],
    }
    names = {name: say(view, COMPARED[name]) if name in COMPARED else name for name in columns}
    hidden_columns = _columns_left_out(names, columns, view.width)
    columns_shown = [name for name in columns if name not in hidden_columns]
    body = table(
        [names[name] for name in columns_shown],
        list(zip(*(columns[name] for name in columns_shown), strict=True)),
        view,
        align=["left", "left", *["right"] * (len(columns_shown) - 2)],
        title=say(
            view,
            "{a} against {b}",
            a=safe(document.a.model_with_adapters(document.a.model)),
            b=safe(document.b.model_with_adapters(document.b.model)),
        ),
        note=say(view, "mean a − mean b within common strata of length; largest effect first"),
    )
    notes = [remark(warning_text, view) for warning_text in document.warnings]
    if hidden_columns:
        comma = say(view, contextual("between", ", "))
        notes.append(
            remark(
                say(
                    view,
                    "a wider window, --plain or --json also shows: {columns}",
                    columns=comma.join(names[name] for name in hidden_columns),
                ),
                view,
            )
        )
    total = len(document.differences)
    if len(differences) < total:
        notes.append(
            remark(
                say(
                    view,
                    "{count} of {total} shown; --top {top} shows all",
                    count=f"{len(differences):,}",
                    total=f"{total:,}",
                    top=total,
                ),
                view,
            )
        )
    return clip_lines(stack_spaced(body, *notes, _comparison_answer(document, view)), view.width, ascii=view.ascii)


def _columns_left_out(names: Mapping[str, str], columns: Mapping[str, Sequence[str]], width: int) -> list[str]:
    """The columns that are left out so that the others fit; none where not even that would do."""
    wide = {name: max(map(cells, [names[name], *column])) + GAP for name, column in columns.items()}
    for hidden_columns in ([], ["d"], ["a", "b", "d"]):
        if sum(column_width for name, column_width in wide.items() if name not in hidden_columns) - GAP <= width:
            return hidden_columns
    return hidden_columns


def scan_compare_rows(document: ScanCompareDocument) -> Iterator[Sequence[object]]:
    """Every difference, for `--plain`."""
    yield ("layer", "head", "metric", "a", "b", "difference", "low", "high", "cohens_d", "cliffs_delta", "z", "p", "q")
    for difference in document.differences:
        low, high = difference.ci95 or (None, None)
        yield (
            difference.layer, difference.head, difference.metric, difference.a, difference.b, difference.difference,
            low, high, difference.cohens_d, difference.cliffs_delta, difference.z, difference.p, difference.q,
        )  # fmt: skip


def _comparison_answer(document: ScanCompareDocument, view: View) -> Lines:
    news = sum(difference.q is not None and difference.q < FALSE_RATE for difference in document.differences)
    answer_sentences = [
        say(
            view,
            plural(
                "{count:,} of {total} differences is more than chance makes (q < 0.05).",
                "{count:,} of {total} differences are more than chance makes (q < 0.05).",
                count=news,
                total=f"{len(document.differences):,}",
            ),
        )
    ]
    first = document.differences[0] if document.differences else None
    if first is not None and not any(
        difference.difference or difference.cliffs_delta for difference in document.differences
    ):
        return remark(say(view, "The two scans are the same in every metric of every head."), view, style="")
    if first is not None:
        answer_sentences.append(
            say(
                view,
                "The largest effect: {head} {metric}, {a} against {b}, Cliff's δ {delta}.",
                head=f"L{first.layer} H{first.head}",
                metric=first.metric,
                a=number(first.a, view),
                b=number(first.b, view),
                delta=number(first.cliffs_delta, view),
            )
        )
    return sentences(answer_sentences, view)


# The screen of `attn.scan_verify/1`: shards computed again beside their files.


def scan_verify_screen(document: ScanVerifyDocument, view: View) -> Lines:
    """The whole screen, its verdict last."""
    verdict = remark(
        say(
            view,
            "The scan's files hold what its plan gives."
            if document.passed
            else ("The scan's files do not hold what its plan gives: run attn scan again after removing them."),
        ),
        view,
        style="",
    )
    if view.brief:
        return clip_lines(verdict, view.width, ascii=view.ascii)
    rows = [
        [str(shard.shard), say(view, "the same" if shard.same_bits else "differ"), f"{shard.difference:.1e}"]
        for shard in document.shards
    ]
    names = say_each(view, "shard", "bits", contextual("column", "difference"))
    body = table(names, rows, view, align=["right", "left", "right"], title=say(view, "shards computed again"))
    warnings = [remark(warning_text, view) for warning_text in document.warnings]
    return clip_lines(stack_spaced(body, *warnings, verdict), view.width, ascii=view.ascii)


def scan_verify_rows(document: ScanVerifyDocument) -> Iterator[Sequence[object]]:
    """Every shard, for `--plain`."""
    yield ("shard", "same_bits", "difference", "counts_equal")
    for shard in document.shards:
        yield (shard.shard, shard.same_bits, shard.difference, shard.counts_equal)
