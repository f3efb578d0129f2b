"""Shards: the numbers are those of `attn heads`, whatever the batch; what is counted, and what is
left out.
"""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import oracles_metrics
import pyarrow.parquet as parquet
import pytest
from asking import ask
from scanning import loaded

import attncli
from attncli.errors import InputError
from attncli.features.heads.compute import HeadsRequest
from attncli.features.heads.compute import heads as compute_heads
from attncli.measure.labels import LABELS, LEAST_ROWS, STATES
from attncli.measure.metric import METRICS
from attncli.measure.rest import rest_keys
from attncli.measure.row_facts import token_facts
from attncli.scan import plan, report
from attncli.scan.intake import text_hash
from attncli.scan.shard_files import load_state
from attncli.scan.totals import METRIC_LABELS, bins_of, total
from attncli.scan.worker import LONGEST, MARGIN, TYPICAL, Worker, tokenize_beginning, truncate

DISTANCES = {"distance", "signed_distance"}
SPREADS = {"entropy", "effective_keys"}


def scanned(model: Path, corpus: Path, folder: Path, **wanted: Any) -> tuple[plan.ScanPlan, Worker]:
    wanted.setdefault("shard", 100)
    asked = plan.ScanRequest((str(corpus),), wanted.pop("metrics", tuple(METRICS)), **wanted)
    made = plan.write(
        plan.make_plan(asked, loaded(str(model)), str(model), folder, stdin=io.BytesIO()), folder
    )
    worker = Worker(made, folder, loaded(str(model)))
    for shard in range(len(made.shards)):
        worker.shard(shard)
    return made, worker


def labels_by_loops(model: attncli.Model, text: str) -> np.ndarray:
    """Whether each head earns each label on a text, [label, head], by loops: where it rests by its
    whole weight, what else it does by the weight beside the first token."""
    tokens = model.encode(text)
    facts = token_facts(tokens)
    columns = []
    for trace in model.trace(tokens, keep=("weights",)):
        block = model.spec.blocks[trace.layer]
        for head in np.asarray(trace.stages["weights"]):
            seen = np.ones(head.shape, bool)
            if block.attention.mask.spec() == "causal":
                seen = np.tril(seen)
            even = oracles_metrics.uniform(seen.tolist())
            column = []
            for label in METRIC_LABELS:
                if label.name in STATES:
                    scores = [
                        oracles_metrics.metrics(
                            rows, seen, tokens, facts.special, facts.punctuation
                        )
                        for rows in (head.tolist(), even)
                    ]
                    names = [label.score]
                else:
                    scores = [
                        oracles_metrics.beyond_first(rows, seen, facts.punctuation)
                        for rows in (head.tolist(), even)
                    ]
                    names = OF_LABELS.get(
                        label.name, list(map("offset{:+d}_beyond_first".format, range(-5, 6)))
                    )
                value, name = max(
                    (scores[0][name][0], name)
                    if scores[0][name][1] >= LEAST_ROWS and not np.isnan(scores[0][name][0])
                    else (-np.inf, name)
                    for name in names
                )
                least = label.threshold
                if label.name != "broad":
                    least = max(least, 1.5 * scores[1][name][0])
                column.append(value >= least)
            columns.append(column)
    return np.array(columns, int).T


OF_LABELS = {
    "previous-token": ["offset-1_beyond_first"],
    "next-token": ["offset+1_beyond_first"],
    "self": ["offset+0_beyond_first"],
    "punctuation": ["punctuation_beyond_first"],
    "broad": ["normalised_entropy_beyond_first"],
}


@pytest.mark.many
@pytest.mark.parametrize("which", ["encoder", "decoder"])
@pytest.mark.parametrize(
    "how", ["batches", "words", "rows", "excluded", "excluded words", "excluded rows"]
)
def test_numbers_are_those_of_heads(which, how, request, corpus, lines, tmp_path, monkeypatch):
    words = "words" in how
    exclude = ("first", "special", "self", "punctuation") if "excluded" in how else ()
    lines = lines[
        : 40 if how == "batches" else 5
    ]  # where each text goes alone, a few show as much as many
    corpus.write_text("".join(f"{line}\n" for line in lines))
    if "rows" in how:  # as texts that are too long for a batch
        monkeypatch.setattr("attncli.measure.batch_measure.LARGEST", 0)
        monkeypatch.setattr("attncli.scan.worker.rows_for", lambda spec, count: 3)
    folder = request.getfixturevalue(which)
    made, _ = scanned(folder, corpus, tmp_path / "out", rows=True, words=words, exclude=exclude)
    table = parquet.read_table(tmp_path / "out/shards/000/000000.rows.parquet").to_pydict()
    place = {
        key: at
        for at, key in enumerate(zip(table["line"], table["layer"], table["head"], strict=True))
    }
    exact = attncli.load(str(folder), backend="numpy", dtype="float64")
    labelled = np.zeros((len(METRIC_LABELS), len(made.heads)), int)
    for line in range(len(lines)):
        wanted = HeadsRequest(
            metrics=tuple(METRICS), maps=False, words=words, labels=True, exclude=exclude
        )
        document = compute_heads(
            exact, lines[line], request=wanted, tokens=exact.encode(lines[line])
        )
        for number, head in enumerate(document.heads):
            at = place[line, head.layer, head.head]
            for name, told in head.metrics.items():
                tolerance = 5e-5 if name in DISTANCES else 5e-6 if name in SPREADS else 1e-6
                found = table[name][at]
                if told.value is None:
                    assert found is None
                else:
                    assert abs(found - told.value) <= tolerance * 4, (name, line)
            earned = {label.name for label in head.label_scores}
            if words or exclude:  # merged, the states alone are of the whole weight in both
                labelled[:, number] += [label.name in earned for label in METRIC_LABELS]
        if not words and not exclude:
            labelled += labels_by_loops(exact, lines[line])
    found = total(made, tmp_path / "out").count_total("label_texts")
    if words:
        states = [label.name in STATES for label in METRIC_LABELS]
        found, labelled = found[states], labelled[states]
    # a score on its threshold may fall on either side in float32
    assert np.abs(found - labelled).sum() <= 1
    assert exclude or labelled.sum() > len(lines) / 2


def test_what_is_excluded_is_no_example_and_is_told(encoder, corpus, lines, tmp_path):
    corpus.write_text("".join(f"{line}\n" for line in lines[:4]))
    kinds = ("special", "self", "neighbours")
    made, _ = scanned(encoder, corpus, tmp_path / "out", metrics=("confidence",), exclude=kinds)
    assert made.measures.links == ()  # the even share of a link is that of whole rows
    document = report.scan_document(total(made, tmp_path / "out"), [])
    assert document.plan.exclude == list(kinds)
    tokens = [loaded(str(encoder)).encode(line) for line in lines[:4]]
    examples = [example for head in document.heads for example in head.top]
    assert examples
    for example in examples:
        if example.query is None:
            continue
        link = [tokens[example.line][place] for place in (example.query, example.key)]
        assert not any(token.special for token in link)
        assert abs(example.query - example.key) > 1
    plain, _ = scanned(encoder, corpus, tmp_path / "plain", metrics=("confidence",))
    assert plain.digest != made.digest
    assert '"exclude"' not in (tmp_path / "plain/plan.json").read_text()
    for folder, scan in (("out", made), ("plain", plain)):
        report.write(report.scan_document(total(scan, tmp_path / folder), []), tmp_path / folder)
    screen = ask("scan", "show", str(tmp_path / "out"), width=140).out
    assert "special tokens, the query itself" in screen
    assert "rows sum to less" in screen
    compared = report.scan_compare_document(tmp_path / "out", tmp_path / "plain")
    assert "the scans leave out different pairs" in str(compared.warnings[0])


def test_what_cannot_be_excluded_is_refused(encoder, corpus, tmp_path):
    def refused(*options: str) -> str:
        answer = ask("scan", str(encoder), str(corpus), "-o", str(tmp_path / "no"), *options)
        assert answer.code == 2
        assert not (tmp_path / "no").exists()
        return " ".join(answer.err.split())

    assert "--exclude 'sinks' is nothing to leave out" in refused("--exclude", "sinks")
    assert "--exclude names nothing" in refused("--exclude", ",")
    for option in (("--rules",), ("--why", "L0H0"), ("--find", "head=L0H0 weight>=0.5")):
        assert f"{option[0]} is about rows" in refused("--exclude", "first", *option)


def test_means_quantiles_and_counts(encoder, corpus, tmp_path):
    made, _ = scanned(
        encoder, corpus, tmp_path / "out", rows=True, metrics=("entropy", "sink"), labels=False
    )
    totals = total(made, tmp_path / "out")
    table = parquet.read_table(tmp_path / "out/shards/000/000000.rows.parquet").to_pydict()
    values = np.array(table["sink"], np.float64).reshape(60, -1)
    rows = np.array(table["rows"]).reshape(60, -1) - 1  # row 0 is no row of the sink metric
    texts = totals.float_total("texts")[1]
    assert (texts == 60).all()
    np.testing.assert_allclose(totals.float_total("value")[1] / texts, values.mean(0), atol=1e-6)
    np.testing.assert_allclose(
        totals.strata_square.sum(0)[1] / texts, (values**2).mean(0), rtol=1e-6
    )
    by_row = totals.row_value[1] / totals.float_total("row_norm")[1]
    np.testing.assert_allclose(by_row, (values * rows).sum(0) / rows.sum(0), atol=1e-6)
    assert totals.count_total("histogram")[:, bins_of(totals.columns)[1]].sum(-1).tolist() == [
        60
    ] * len(made.heads)
    assert totals.float_total("strata_texts")[:, 1].sum(0).tolist() == [60] * len(made.heads)
    assert totals.counts["texts"] == 60


def test_strongest_examples_are_the_largest_values(decoder, corpus, lines, tmp_path):
    made, _ = scanned(
        decoder,
        corpus,
        tmp_path / "out",
        rows=True,
        metrics=("entropy", "previous"),
        labels=False,
        top=7,
    )
    totals = total(made, tmp_path / "out")
    table = parquet.read_table(tmp_path / "out/shards/000/000000.rows.parquet").to_pydict()
    values = np.array(table["previous"], np.float64).reshape(60, -1)
    values = values[np.argsort(np.array(table["line"]).reshape(60, -1)[:, 0])]
    assert totals.examples["value"].shape == (2, len(made.heads), 7)
    for head in range(len(made.heads)):
        best = np.sort(values[:, head])[::-1][:7]
        np.testing.assert_allclose(totals.examples["value"][1, head] / 2**24, best, atol=1e-6)
        for place in range(7):
            line = int(totals.examples["line"][1, head, place])
            assert totals.texts[0, line] == lines[line]
            assert abs(values[line, head] - best[place]) < 1e-6
    exact = attncli.load(str(decoder), backend="numpy", dtype="float64")
    line, layer, head = int(totals.examples["line"][1, 5, 0]), *made.heads[5]
    (trace,) = exact.trace(lines[line], layers=[layer])
    weights = np.array(trace.stages["weights"])[head]
    weights[:, rest_keys(exact.encode(lines[line]))] = 0  # where heads rest
    if len(weights) > 2:  # of rows that see one other key that weight is all they have
        weights[:2] = 0
    strongest = divmod(int(weights.argmax()), weights.shape[1])
    assert (totals.examples["query"][1, 5, 0], totals.examples["key"][1, 5, 0]) == strongest


@pytest.mark.thorough
def test_shards_add_up_to_the_same_in_any_cut_and_order(encoder, corpus, tmp_path):
    one, _ = scanned(encoder, corpus, tmp_path / "one", metrics=("entropy", "previous"))
    many, _ = scanned(encoder, corpus, tmp_path / "many", metrics=("entropy", "previous"), shard=7)
    assert (len(one.shards), len(many.shards)) == (1, 9)
    whole, forwards = total(one, tmp_path / "one"), total(many, tmp_path / "many")
    backwards = total(many, tmp_path / "many", reversed(range(9)))
    assert forwards.digest() == backwards.digest()
    # another cut makes other batches; the numbers agree to rounding, the counts exactly
    assert (whole.count_total("texts") == forwards.count_total("texts")).all()
    np.testing.assert_allclose(whole.float_total("value"), forwards.float_total("value"), atol=1e-4)


def test_equal_texts_are_examples_in_one_order_whatever_comes_first(encoder, lines, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(lines[:4] * 5))
    made, _ = scanned(
        encoder, corpus, tmp_path / "out", metrics=("sink",), labels=False, top=6, shard=4
    )
    forwards, backwards = (
        total(made, tmp_path / "out", order) for order in (range(5), range(4, -1, -1))
    )
    assert (forwards.examples["line"] == backwards.examples["line"]).all()
    assert forwards.digest() == backwards.digest()


def test_rows_are_written_while_the_shard_is_computed(encoder, lines, tmp_path, monkeypatch):
    """A row group at a time: no more than one is held."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(lines))
    wanted = {"rows": True, "metrics": ("sink",), "labels": False}
    scanned(encoder, corpus, tmp_path / "whole", **wanted)
    monkeypatch.setattr("attncli.scan.shard_files.GROUP", 50)
    scanned(encoder, corpus, tmp_path / "parts", **wanted)
    whole, parts = (
        parquet.ParquetFile(tmp_path / name / "shards/000/000000.rows.parquet")
        for name in ("whole", "parts")
    )
    assert whole.num_row_groups == 1
    assert parts.num_row_groups > 3
    assert parts.read().equals(whole.read())


def test_rows_and_links_of_two_scans_join_by_their_texts(encoder, decoder, lines, tmp_path):
    """The same texts in other files, lines and shards, under another seed and of another model."""
    (tmp_path / "one.txt").write_text("\n".join(lines))
    (tmp_path / "folder").mkdir()
    for at, some in enumerate((lines[40:], lines[:40])):
        (tmp_path / "folder" / f"{at}.txt").write_text(
            "".join(f"  {line}\r\n" for line in reversed(some))
        )
    wanted = {"metrics": ("sink",), "labels": False, "rows": True, "find": ("from=w1 weight>=0.1",)}
    scanned(encoder, tmp_path / "one.txt", tmp_path / "a", **wanted)
    scanned(decoder, tmp_path / "folder", tmp_path / "b", seed=5, shard=7, **wanted)

    def tables(name: str, kind: str) -> list[dict[str, Any]]:
        paths = sorted((tmp_path / name).rglob(f"*.{kind}.parquet"))
        return [row for path in paths for row in parquet.read_table(path).to_pylist()]

    files = {"a": [lines], "b": [lines[40:][::-1], lines[:40][::-1]]}
    for kind in ("rows", "links"):
        said: dict[str, dict[int, set[str]]] = {}
        for name in ("a", "b"):
            found = said[name] = {}
            for row in tables(name, kind):
                found.setdefault(row["text"], set()).add(files[name][row["file"]][row["line"]])
        assert all(len(texts) == 1 for found in said.values() for texts in found.values())
        common = said["a"].keys() & said["b"].keys()
        assert all(said["a"][one] == said["b"][one] for one in common)
        assert len(common) == 60 if kind == "rows" else len(common) > 10
    rows = tables("a", "rows")
    assert list(rows[0]) == ["text", "file", "line", "layer", "head", "tokens", "rows", "sink"]
    assert {row["text"] for row in rows} == {text_hash(line) for line in lines}


def test_links_meet_their_condition(decoder, corpus, lines, tmp_path):
    scanned(
        decoder,
        corpus,
        tmp_path / "out",
        metrics=("entropy",),
        labels=False,
        find=("from=w1 weight>=0.25", "to=, head=L1H2", "from=w1 weight>=0.25 rest=yes"),
    )
    table = parquet.read_table(tmp_path / "out/shards/000/000000.links.parquet").to_pylist()
    exact = attncli.load(str(decoder), backend="numpy", dtype="float64")
    wanted = set()
    for line, text in enumerate(lines):
        tokens = exact.encode(text)
        for trace in exact.trace(tokens):
            for head, query, key in np.argwhere(np.asarray(trace.stages["weights"]) > 0).tolist():
                weight = trace.stages["weights"][head, query, key]
                if tokens[query].text == "w1" and weight >= 0.25:
                    wanted.add((2, line, trace.layer, head, query, key))
                    if key > 0:  # the first token, where heads rest, counts with rest=yes alone
                        wanted.add((0, line, trace.layer, head, query, key))
                if tokens[key].text == "," and key > 0 and (trace.layer, head) == (1, 2):
                    wanted.add((1, line, trace.layer, head, query, key))
    found = {
        tuple(row[name] for name in ("condition", "line", "layer", "head", "query", "key"))
        for row in table
    }
    assert len(wanted) > 50
    assert len(found ^ wanted) <= 2  # a weight on its bound, in two conditions
    assert {row["query_text"] for row in table if row["condition"] == 0} == {"w1"}


def test_what_is_no_text_is_counted(encoder, tmp_path):
    corpus = tmp_path / "odd.txt"
    corpus.write_bytes(b"w1 w2 w3\n\n  \n\xff\xfe\nw4 w5 w6\nw1 w2 w3\n" + b"w1 " * 80 + b"\nw7 w8")
    made, _ = scanned(encoder, corpus, tmp_path / "out", dedupe=True)
    counts = total(made, tmp_path / "out").counts
    assert {name: count for name, count in counts.items() if count} == {
        "texts": 3, "tokens": 14, "empty": 2, "undecodable": 1, "duplicate": 1, "long": 1,
    }  # fmt: skip
    made, _ = scanned(encoder, corpus, tmp_path / "cut", over="truncate", max_tokens=6)
    counts = total(made, tmp_path / "cut").counts
    assert (counts["texts"], counts["truncated"], counts["tokens"]) == (5, 1, 5 * 3 + 6 + 4)


def test_a_sample_does_not_depend_on_the_order(encoder, lines, tmp_path):
    drawn = []
    for at, order in enumerate((lines, lines[::-1])):
        corpus = tmp_path / f"{at}.txt"
        corpus.write_text("\n".join(order))
        scanned(
            encoder, corpus, tmp_path / f"out{at}", sample=11, seed=4, rows=True, metrics=("sink",)
        )
        table = parquet.read_table(tmp_path / f"out{at}/shards/000/000000.rows.parquet").to_pydict()
        drawn.append({order[line] for line in table["line"]})
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 11


def test_a_corpus_that_changes_is_named(encoder, corpus, tmp_path):
    _, worker = scanned(encoder, corpus, tmp_path / "out", metrics=("sink",))
    corpus.write_text(corpus.read_text().replace("w1", "w2"))
    with pytest.raises(InputError, match="changed since") as caught:
        worker.shard(0)
    assert caught.value.where == str(corpus)


def test_memory_is_looked_at_after_every_layer(encoder, corpus, tmp_path):
    made, _ = scanned(encoder, corpus, tmp_path / "out")
    model, looks, batches = loaded(str(encoder)), [], []
    worker = Worker(made, tmp_path / "out", model, between=lambda: looks.append(1))
    worker.compute(0, batches.append)
    assert batches.pop(0) == 0  # the first begins
    assert batches
    assert len(looks) == len(batches) * (len(model.spec.blocks) + 1)


def test_states_are_the_same_bytes(encoder, corpus, tmp_path):
    _, worker = scanned(encoder, corpus, tmp_path / "out")
    path = tmp_path / "out/shards/000/000000.state.npz"
    before = path.read_bytes()
    worker.shard(0)
    assert path.read_bytes() == before
    assert load_state(tmp_path / "out", 0).facts["counts"]["texts"] == 60
    assert not list((tmp_path / "out").rglob("*.tmp"))


def test_every_label_of_heads_is_counted_in_a_scan():
    told = {label.name for label in METRIC_LABELS} | {"duplicate-token", "induction"}
    assert told == set(LABELS)


class Counting:
    """A tokenizer that notes how long the texts are that it is given."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.lengths = tokenizer, []

    def encode(self, text: str) -> Any:
        self.lengths.append(len(text))
        return self.tokenizer.encode(text)


@pytest.mark.parametrize(
    "text",
    [
        "w1 w2 " * 400_000,
        "x" * 3_000_000,
        "w1" + " " * 3_000_000 + "w2",
        "w1 " * 70,
        "w1 " * 61,
        "w1 " * 60,
    ],
)
def test_no_more_of_a_text_is_cut_than_can_matter(text, encoder, tmp_path):
    tokenizer, limit = Counting(loaded(str(encoder)).tokenizer), 64
    piece, tokens = tokenize_beginning(text, tokenizer, limit)
    assert text.startswith(piece)
    assert sum(tokenizer.lengths) <= 2 * limit * LONGEST
    few = text[: 10 * limit * LONGEST]
    whole = loaded(str(encoder)).tokenizer.encode(few)
    assert [token.id for token in truncate(tokenizer.encode(piece), limit)] == [
        token.id for token in truncate(whole, limit)
    ]
    assert len(tokens) == len(whole) or len(tokens) > limit + MARGIN
    if len(text) < limit * TYPICAL:
        assert piece == text


def test_vast_texts_are_counted_and_not_kept_whole(encoder, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(f"w1 w2 w3\n{'x' * 2_000_000}\n{'w1 w2 ' * 300_000}\n")
    made, _ = scanned(encoder, corpus, tmp_path / "skip", metrics=("sink",), labels=False)
    counts = total(made, tmp_path / "skip").counts
    assert (counts["texts"], counts["long"]) == (1, 2)
    made, _ = scanned(
        encoder,
        corpus,
        tmp_path / "cut",
        metrics=("sink",),
        labels=False,
        over="truncate",
        max_tokens=20,
    )
    totals = total(made, tmp_path / "cut")
    assert (totals.counts["texts"], totals.counts["truncated"], totals.counts["tokens"]) == (
        3,
        2,
        5 + 3 + 20,
    )
    assert max(map(len, totals.texts.values())) <= 20 * LONGEST


@pytest.mark.parametrize("labels", [False, True])
def test_a_text_that_the_tokenizer_fails_on_is_left_out_and_counted(
    labels, encoder, corpus, tmp_path
):
    """A vocabulary of whole words without a token for others fails on them; the texts beside such a
    one count.
    """
    model = shutil.copytree(encoder, tmp_path / "model")
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokenizer["model"]["unk_token"] = "[NONE]"
    tokenizer["model"]["vocab"]["a"] = tokenizer["model"]["vocab"].pop("w49")
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    lines = corpus.read_text().replace("w49", "w48").splitlines()
    corpus.write_text(
        "".join(f"{line}\n" for line in [*lines[:7], "w1 unheard", *lines[7:], "w2 strange"])
    )
    made, _ = scanned(model, corpus, tmp_path / "out", labels=labels)
    totals = total(made, tmp_path / "out")
    assert (totals.counts["texts"], totals.counts["untokenized"]) == (len(lines), 2)
    report.write(report.scan_document(totals), tmp_path / "out")
    answer = ask("scan", "show", str(tmp_path / "out"), "--show", "header", width=120)
    assert "2 that the tokenizer fails on" in answer.out
    assert (
        "2 条分词器无法处理"
        in ask("scan", "show", str(tmp_path / "out"), "--show", "header", "--lang", "zh").out
    )
    corpus.write_text("".join(f"{line}\n" for line in lines))
    alone, _ = scanned(encoder, corpus, tmp_path / "alone", labels=labels)
    assert (
        total(alone, tmp_path / "alone").float_total("value").tolist()
        == totals.float_total("value").tolist()
    )
