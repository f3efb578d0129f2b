"""What each head does over the whole distribution: samples, deciles, frequent links; against loops
over all texts.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from asking import ask
from msgspec import UNSET, to_builtins
from msgspec.structs import replace
from scanning import Inside, loaded, planned

import attncli
from attncli.draw.safe import cells
from attncli.draw.view import View
from attncli.features.heads.compute import HeadsRequest
from attncli.features.heads.compute import heads as compute_heads
from attncli.measure.labels import LABELS
from attncli.measure.rest import rest_keys
from attncli.scan import frequent_links, report
from attncli.scan.document import ScanCompareDocument, ScanDifference, ScanDocument, ScanLabel
from attncli.scan.engines import ScanPart, run
from attncli.scan.frequent_links import LinkCounts, TotalLinks
from attncli.scan.intake import text_hash
from attncli.scan.plan import SCHEMA, ScanPlan
from attncli.scan.screen import _label_phrase, scan_compare_screen
from attncli.scan.text_sample import TextSample, head_hashes
from attncli.scan.totals import Totals, total

MASK = (1 << 64) - 1


def mixed(number: int) -> int:
    """splitmix64's last steps, in whole numbers."""
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & MASK
    return number ^ (number >> 31)


def scanned(
    model: Path, corpus: Path, folder: Path, **wanted: Any
) -> tuple[ScanPlan, Totals, ScanDocument]:
    made = planned(model, corpus, folder, **wanted)
    run(made, folder, str(model), Inside())
    totals = total(made, folder)
    return made, totals, report.scan_document(totals)


def rows_of(model: Path, line: str) -> Any:
    """Every head's weights of a text in float64, with its tokens."""
    exact = attncli.load(str(model), backend="numpy", dtype="float64")
    tokens = exact.encode(line)
    return tokens, [
        np.asarray(trace.stages["weights"]) for trace in exact.trace(tokens, keep=("weights",))
    ]


def test_head_hashes_are_those_of_whole_numbers() -> None:
    hashes = np.array([0, 5, 2**63 - 1, 12345678901234567], np.int64)
    expected = [
        [mixed(int(each) ^ (head * 0x9E3779B97F4A7C15 & MASK)) >> 1 for head in (1, 2, 3)]
        for each in hashes
    ]
    assert head_hashes(hashes, 3).tolist() == expected


@pytest.mark.many
@pytest.mark.parametrize("which", ["encoder", "decoder"])
def test_samples_and_deciles_are_those_of_loops(
    which: str,
    request: pytest.FixtureRequest,
    corpus: Path,
    lines: list[str],
    tmp_path: Path,
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr("attncli.scan.totals.DRAWN", 4)
    monkeypatch.setattr("attncli.scan.worker.DRAWN", 4)
    folder = request.getfixturevalue(which)
    _, _, document = scanned(folder, corpus, tmp_path / "out", examples=3)
    exact = attncli.load(str(folder), backend="numpy", dtype="float64")
    numbers: dict[tuple[int, int, str], list[float | None]] = defaultdict(list)
    for line in lines:
        told = compute_heads(
            exact,
            line,
            request=HeadsRequest(metrics=("entropy", "sink"), maps=False),
            tokens=exact.encode(line),
        )
        for head in told.heads:
            for name, value in head.metrics.items():
                numbers[head.layer, head.head, name].append(value.value)
    assert document.texts
    for place, head in enumerate(document.heads):
        number = (place + 1) * 0x9E3779B97F4A7C15 & MASK
        hashes = [mixed((text_hash(line) & (2**63 - 1)) ^ number) >> 1 for line in lines]
        order = sorted(range(len(lines)), key=lambda at, hashes=hashes: (hashes[at], at))[:12]
        assert head.sample
        for name in ("entropy", "sink"):
            examples = [example for example in head.sample if example.metric == name]
            drawn = [
                document.texts[example.text].line for example in examples if example.decile is None
            ]
            assert (
                drawn
                == [at for at in order if numbers[head.layer, head.head, name][at] is not None][:3]
            )
            values = numbers[head.layer, head.head, name]
            for example in examples:
                at = document.texts[example.text].line
                assert at in order
                assert document.texts[example.text].text == lines[at]
                assert example.value == pytest.approx(values[at], abs=2e-5)
                if example.decile is None:
                    continue
                ranks = sorted(value for value in values if value is not None)
                middle = np.mean([value < example.value for value in ranks])
                assert abs(middle * 10 - (example.decile - 0.5)) < 1.2, (
                    "its rank is in the decile, but for ties"
                )
        deciles = Counter(example.decile for example in head.sample if example.metric == "sink")
        assert max(deciles.values()) <= 3


@pytest.mark.many
@pytest.mark.parametrize("which", ["encoder", "decoder"])
def test_frequent_links_are_those_of_loops(
    which: str, request: pytest.FixtureRequest, corpus: Path, lines: list[str], tmp_path: Path
) -> None:
    folder = request.getfixturevalue(which)
    _, totals, document = scanned(folder, corpus, tmp_path / "out")
    counts: dict[tuple[int, int], Counter[tuple[int, int]]] = defaultdict(Counter)
    texts: dict[tuple[int, int], Counter[tuple[int, int]]] = defaultdict(Counter)
    by_text: dict[tuple[int, int], list[Counter[tuple[int, int]]]] = defaultdict(list)
    asking: Counter[int] = Counter()
    even: Counter[int] = Counter()
    rows = 0
    for line in lines:
        tokens, layers = rows_of(folder, line)
        ids = [token.id for token in tokens]
        awake = [j for j, rests in enumerate(rest_keys(tokens)) if not rests]
        seen_by = [[j for j in awake if which == "encoder" or j <= i] for i in range(len(ids))]
        choosing = [i for i, seen in enumerate(seen_by) if len(seen) >= 2]
        rows += len(choosing)
        asking.update(ids[i] for i in choosing)
        for i in choosing:
            for j in seen_by[i]:
                even[ids[j]] += 1 / len(seen_by[i])
        for layer, weights in enumerate(layers):
            for head, table in enumerate(weights):
                pairs = [
                    (ids[i], ids[max(seen_by[i], key=lambda j: table[i, j])]) for i in choosing
                ]
                counts[layer, head].update(pairs)
                texts[layer, head].update(set(pairs))
                by_text[layer, head].append(Counter(pairs))
    assert document.link_rows == rows
    for head in document.heads:
        place = (head.layer, head.head)
        assert head.links
        expected = sorted(counts[place].items(), key=lambda item: (-item[1], item[0]))[
            : report.FREQUENT
        ]
        assert [((link.query.id, link.key.id), link.links) for link in head.links] == expected
        for link in head.links:
            pair = (link.query.id, link.key.id)
            assert (link.most, link.texts) == (link.links, texts[place][pair])
            chance = asking[pair[0]] * even[pair[1]] / rows
            assert link.chance == pytest.approx(chance, abs=1e-5)
            assert link.lift == pytest.approx(link.links / chance, rel=1e-5)
            numbers = np.array([text[pair] for text in by_text[place]])
            if link.texts < 10 or ((numbers - numbers.mean()) ** 2).sum() < 5:
                assert link.lift_ci95 is None
            else:
                width = 2.001 * numbers.std(ddof=1) * len(lines) ** 0.5 / numbers.sum()
                ends = [np.log(link.lift) - width, np.log(link.lift) + width]
                assert np.log(link.lift_ci95) == pytest.approx(ends, abs=2e-4)
            low, high = link.share_ci95 or (0, 0)
            assert low < link.texts / len(lines) < high or link.texts == len(lines)
            assert link.query.text in {"[CLS]", "[SEP]", *" ".join(lines).split()}
    assert totals.digest()


def test_counts_of_pairs_that_were_let_go_of_are_bounded() -> None:
    """Shards that keep three pairs of each head: what is told of a pair holds what was counted."""
    drawn = np.random.default_rng(4)
    exact: Counter[int] = Counter()
    links = TotalLinks()
    for _ in range(9):
        codes = (drawn.integers(0, 9, 60) ** 2 // 6).astype(np.int64)
        exact.update(codes.tolist())
        head = LinkCounts()
        pairs_of_shard, counts = np.unique(codes, return_counts=True)
        head.add(pairs_of_shard, np.stack([counts] * 3))
        lost = head.prune(3)
        pairs = np.full((1, 3), -1, np.int64)
        pairs[0, : head.codes.size] = head.codes
        numbers = np.array([range(20), [60] + [1] * 19, [1] * 20], np.int64)
        links.add_shard(
            {
                "link_pairs": pairs,
                "link_counts": head.counts[:1],
                "link_texts": head.counts[1:2],
                "link_squares": head.counts[2:],
                "link_lost": np.array([[0], [lost]]),
                "link_tokens": numbers,
            },
            [],
        )
    found = links.most_frequent(0, 0, 20)
    assert any(pair.most > pair.links for pair in found)
    for pair in found:
        assert pair.links <= exact[pair.key] <= pair.most


def test_pruned_pairs_are_bounded_within_a_shard(
    encoder: Path, corpus: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    _, _, whole = scanned(encoder, corpus, tmp_path / "whole", shard=60)
    monkeypatch.setattr(frequent_links, "PENDING", 40)
    monkeypatch.setattr(frequent_links, "DISTINCT", 6)
    _, _, pruned = scanned(encoder, corpus, tmp_path / "pruned", shard=60)
    uncertain = 0
    for exact, bounded in zip(whole.heads, pruned.heads, strict=True):
        assert exact.links
        assert bounded.links
        known = {(link.query.id, link.key.id): link.links for link in exact.links}
        for link in bounded.links:
            uncertain += link.most > link.links
            count = known.get((link.query.id, link.key.id))
            assert count is None or link.links <= count <= link.most
    assert uncertain


@pytest.mark.thorough
def test_one_digest_over_shards_parts_and_orders(
    encoder: Path, corpus: Path, lines: list[str], tmp_path: Path
) -> None:
    """Sizes of shards change the plan, so samples and links are compared; parts and orders are one
    plan's.
    """
    documents = []
    for shard in (7, 13, 60):
        made, _, document = scanned(encoder, corpus, tmp_path / f"shards{shard}", shard=shard)
        assert made.texts == len(lines)
        assert document.texts
        samples = [
            [
                (example.metric, example.decile, document.texts[example.text].line)
                for example in head.sample or ()
            ]
            for head in document.heads
        ]
        documents.append((samples, to_builtins([head.links for head in document.heads])))
    assert documents[0] == documents[1] == documents[2]
    assert documents[0][0][0]
    made = planned(encoder, corpus, tmp_path / "parts", shard=7)
    for part in (2, 1):
        run(made, tmp_path / "parts", str(encoder), Inside(), part=ScanPart(part, 2))
    assert total(made, tmp_path / "parts").digest() == total(made, tmp_path / "shards7").digest()


@pytest.mark.parametrize("array", ["link_pairs", "link_tokens", "sample_line", "link_counts"])
def test_a_shard_whose_links_do_not_fit_is_not_taken(
    array: str, encoder: Path, corpus: Path, tmp_path: Path
) -> None:
    made, _, _ = scanned(encoder, corpus, tmp_path / "out", shard=60)
    file = tmp_path / "out/shards/000/000000.state.npz"
    with np.load(file, allow_pickle=False) as old:
        arrays = dict(old)
    changed = arrays[array].copy()
    changed.flat[0] = {
        "link_pairs": (7 << 40) + 1,
        "link_tokens": 999,
        "sample_line": 54321,
        "link_counts": -3,
    }[array]
    arrays[array] = changed.astype(np.int64)
    with file.open("wb") as stream:
        np.savez(stream, **arrays)
    assert total(made, tmp_path / "out").broken


def test_memory_of_samples_and_pairs_is_bounded_and_told(
    encoder: Path, corpus: Path, tmp_path: Path
) -> None:
    made, _, document = scanned(encoder, corpus, tmp_path / "out")
    heads = len(made.heads)
    worker = frequent_links.ShardLinks(loaded(str(encoder)).spec, np.cumsum([0, *made.model.heads]))
    least = sum(
        array.nbytes for array in (worker._links, *TextSample(2, heads, 96).arrays.values())
    )
    told = document.plan.sample_memory
    assert told
    assert told > least
    assert told == 8 * (2**21 + heads * 2**16 * 4) + 16 * 7 * heads * 96
    report.write(document, tmp_path / "out")
    shown = ask("scan", "show", str(tmp_path / "out"), "--show", "header", width=60)
    assert f"at most {-(-told // 2**20)} MiB of a worker" in " ".join(shown.out.split())
    # a model of many heads has no more than 336 MiB
    assert all(frequent_links.pairs_memory(heads) <= 336 * 2**20 for heads in (160, 1024, 10_000))
    assert frequent_links.distinct_pairs(144) == frequent_links.DISTINCT


def test_examples_and_links_may_be_left_out(encoder: Path, corpus: Path, tmp_path: Path) -> None:
    _, _, document = scanned(encoder, corpus, tmp_path / "out", examples=0, links=False)
    assert [document.heads[0].links, document.heads[0].sample, document.link_rows] == [UNSET] * 3


@pytest.mark.thorough
def test_what_is_borderline_is_true_or_false_and_no_text(
    encoder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where what a label takes is a NumPy number: MARGIN times an even head's."""
    _, totals, _ = scanned(encoder, corpus, tmp_path / "out", labels=True)
    monkeypatch.setattr(report, "MARGIN", 1e6)
    monkeypatch.setattr(report, "_known_interval", lambda ends: [0.0, 1e9])
    labels = [label for head in report.scan_document(totals).heads for label in head.labels]
    assert any(label.borderline for label in labels)
    assert all(type(label.borderline) is bool for label in labels)


@pytest.mark.parametrize(
    ("score", "earned_in", "is_undecided"),
    [(1.0, 3, False), (0.6, 3, False), (0.6, 2, True), (0.1, 1, True), (0.1, 0, None)],
)
def test_a_label_that_every_text_earns_is_settled(
    score: float, earned_in: int, is_undecided: bool | None
) -> None:
    """Three texts of three are too few for an interval above a half, and nothing speaks against
    them; two of three are undecided, none of three earns no label."""
    label = LABELS["self"]
    column = report.column_of_label(label)
    counts = np.zeros((len(report.METRIC_LABELS), 1), int)
    counts[report.METRIC_LABELS.index(label)] = earned_in
    totals = SimpleNamespace(
        columns=[column],
        counts={"label_texts": counts},
        texts=np.array([[3]]),
        units=np.array([[3.0]]),
        mean=np.array([[score]]),
        baseline=np.array([[0.05]]),
        interval=np.full((2, 1, 1), np.nan),
        _share_beyond=lambda place: 0.9,
    )
    row = report._Heads._metric_label(totals, label, 0)
    assert (None if row is None else row.borderline) == is_undecided
    if row is not None:  # a sentence says it as the table does
        assert _label_phrase(row, View()).endswith(", undecided)") == is_undecided


def test_the_passport_of_a_head_fits_and_tells_its_links_and_deciles(
    encoder: Path, corpus: Path, tmp_path: Path
) -> None:
    _, _, document = scanned(encoder, corpus, tmp_path / "out")
    report.write(document, tmp_path / "out")
    head = document.heads[1]
    assert head.links
    asked = ("scan", "show", str(tmp_path / "out"), "--head", f"L{head.layer}H{head.head}")
    for width in (60, 80, 120):
        for lang in ("en", "zh"):
            said = ask(*asked, "--deciles", "--lang", lang, width=width)
            assert said.code == 0, said.err
            assert max(map(cells, said.out.splitlines())) <= width
            for link in head.links[:10]:
                assert f"{link.query.text} → {link.key.text}" in said.out
                assert f"{link.lift:,.1f}" in said.out
    commonest = [link for link in head.links[:10] if link.links > 1]
    best = max(commonest, key=lambda link: link.lift or 0)
    answer = ask(*asked, "--brief", width=200).out
    assert (
        f"None of its {len(commonest)} commonest links is further above chance than "
        f'"{best.query.text}" → "{best.key.text}": {best.links} link' in answer
    )
    shown = ask(*asked, "--show", "deciles", "--full", "--metric", "sink", width=120).out
    texts = document.texts or ()
    for example in head.sample or ():
        if example.metric == "sink":
            assert f" {corpus.name}:{texts[example.text].line + 1} " in shown
    shaded = ask(
        *asked, "--metric", "sink", "--shade", "--show", "examples", "--color", "never", width=60
    ).out
    strongest = next(example for example in head.top if example.metric == "sink")
    model = attncli.load(str(encoder), backend="numpy")
    tokens = model.encode(strongest.text)
    (trace,) = model.trace(tokens, layers=[head.layer], keep=("weights",))
    weights = np.asarray(trace.stages["weights"])[head.head]
    query = np.where(rest_keys(tokens), -1, weights).max(-1).argmax()
    assert f"value {strongest.value:.3f} · {corpus.name}:{strongest.line + 1}" in shaded
    assert f"[{tokens[query].text}]" in re.sub("[░▒▓█]", "", shaded).split("\n\n")[1]
    label = ScanLabel(
        name="self", detail=None, score=0.5, threshold=0.3, texts=0.25, texts_ci95=[0.1, 0.45], ci95=[0.44, 0.56],
        earned=True, borderline=False,
    )  # fmt: skip
    labelled = replace(
        document, plan=replace(document.plan, labels=True), heads=[replace(head, labels=[label])]
    )
    report.write(labelled, tmp_path / "out")
    (row,) = [row for row in ask(*asked, width=80).out.splitlines() if " self   0.5" in row]
    assert row.split()[2:] == ["self", "0.500", "0.440", "–", "0.560", "25%", "(10–45)"]
    for option, told in (
        ("--deciles", "--deciles shows the texts of one head"),
        ("--shade", "--shade is about one head"),
    ):
        refused = ask("scan", "show", str(tmp_path / "out"), option)
        assert (refused.code, told in refused.err) == (2, True)


def test_a_folder_of_another_version_is_refused(
    encoder: Path, corpus: Path, tmp_path: Path
) -> None:
    scanned(encoder, corpus, tmp_path / "out")
    plan = tmp_path / "out/plan.json"
    plan.write_text(plan.read_text().replace(SCHEMA, "attn.scan.plan/4"))
    answer = ask("scan", "show", str(tmp_path / "out"))
    assert (answer.code, "another version of attn made this scan" in answer.err) == (3, True), (
        answer.err
    )


@pytest.mark.thorough
def test_columns_that_few_texts_say_nothing_in_are_not_drawn(
    encoder: Path, corpus: Path, tmp_path: Path
) -> None:
    """Without intervals there is no column of dashes, no mention of intervals, and no claim on how
    many differences are more than chance makes; and all that --full shows is all there is."""
    for name in ("a", "b"):
        _, _, document = scanned(encoder, corpus, tmp_path / name, labels=True)
        report.write(document, tmp_path / name)
    few = replace(
        document,
        heads=[
            replace(
                head,
                labels=[replace(label, ci95=None) for label in head.labels],
                metrics={name: replace(one, ci95=None) for name, one in head.metrics.items()},
            )
            for head in document.heads
        ],
    )
    report.write(few, tmp_path / "a")
    head = few.heads[1]
    asked = ("scan", "show", str(tmp_path / "a"))
    for line in ((*asked, "--show", "labels"), (*asked, "--head", f"L{head.layer}H{head.head}")):
        shown = ask(*line, width=100).out
        assert "95% interval" not in shown.partition("which tokens")[0]
    told = [
        label for head in few.heads for label in head.labels if label.earned or label.borderline
    ]
    whole = ask(*asked, "--show", "labels", "--full", width=100).out
    rows = [line for line in whole.splitlines() if re.match(r"L\d+ H\d+  ", line)]
    assert len(rows) == len(told)
    cut = ask(*asked, "--show", "labels", "--top", "1", width=100).out
    assert len(told) < 2 or f"1 of {len(told)} shown; --full shows all" in cut


def test_of_chance_nothing_is_said_where_nothing_is_known(
    encoder: Path, corpus: Path, tmp_path: Path
) -> None:
    """Differences without a q are no "0 of them": whether they are more than chance is not known,
    and no column of dashes says so."""
    _, _, document = scanned(encoder, corpus, tmp_path / "out")
    row = ScanDifference(
        layer=0,
        head=0,
        metric="entropy",
        a=1.5,
        b=1.0,
        difference=0.5,
        ci95=None,
        cohens_d=1.0,
        cliffs_delta=0.5,
        cliffs_error=None,
        z=None,
        p=None,
        q=None,
    )
    for q in (None, 0.01):
        compared = ScanCompareDocument(
            version="0",
            a=document.plan,
            b=document.plan,
            texts=[3, 3],
            paired=False,
            strata=[None],
            differences=[replace(row, q=q)],
            warnings=[],
        )
        narrow = scan_compare_screen(compared, View(width=56)).plain
        assert re.search(r"a wider terminal also shows: .*Cohen's d", narrow.replace("\n", " "))
        shown = scan_compare_screen(compared, View(width=100)).plain
        assert "wider" not in shown
        assert ("is not known" in shown) == (q is None)
        assert ("more than chance makes (q < 0.05)" in shown) == (q is not None)
        assert bool(re.search(r"  q$", shown, re.M)) == (q is not None)
