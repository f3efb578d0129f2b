"""What caches that forget keep, change and save: against a decoder in loops over heads and queries,
in float64.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from oracles_cache import forgetting_online, sinks_and_recent, voting_window
from small_gpt2 import HEADS, LAYERS, WIDTH, small_gpt2

from attncli.inputs.tensors import read_tensors

TEXT = "the cat sat on the mat"
DIM = WIDTH // HEADS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_gpt2(tmp_path_factory.mktemp("cache") / "gpt2")


@pytest.fixture(scope="module")
def weights(folder: Path) -> dict[str, Any]:
    tensors = read_tensors(folder / "model.safetensors")
    return {
        name.removeprefix("transformer."): np.asarray(array, np.float64)
        for name, array in tensors.items()
    }


def norm(x: Any, weights: dict[str, Any], name: str) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return (
        centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weights[f"{name}.weight"]
        + weights[f"{name}.bias"]
    )


def rows_seen(policy: str, q: Any, k: Any) -> list[list[set[int]]]:
    """What each query of each head sees under a policy, by loops."""
    kind, _, rest = policy.partition(":")
    numbers = [int(part) for part in rest.split(",")]
    scale = DIM**-0.5
    if kind == "snapkv":
        return voting_window(q, k, scale, *numbers)
    if kind == "sinks":
        return sinks_and_recent(len(k), len(k[0]), *numbers)
    if kind == "random":
        return forgetting_online(kind, q, k, scale, numbers[0], seed=numbers[1])
    return forgetting_online(
        kind, q, k, scale, numbers[0], recent=numbers[1] if kind == "h2o" else 1
    )


def decoder(
    ids: list[int], weights: dict[str, Any], prompt: int, policy: str | None
) -> tuple[list[Any], list[Any], Any]:
    """The last prompt token's vector after each layer, each layer's queries, keys and row of
    weights, logits.
    """
    x = weights["wte.weight"][ids] + weights["wpe.weight"][: len(ids)]
    vectors, looks = [], []
    for layer in range(LAYERS):
        at = f"h.{layer}."
        joined = (
            norm(x, weights, f"{at}ln_1") @ weights[f"{at}attn.c_attn.weight"]
            + weights[f"{at}attn.c_attn.bias"]
        )
        q, k, v = (
            part.reshape(len(ids), HEADS, DIM).transpose(1, 0, 2)
            for part in np.split(joined, 3, -1)
        )
        sight = None if policy is None else rows_seen(policy, q[:, :prompt], k[:, :prompt])
        mixed, last = np.zeros((len(ids), WIDTH)), []
        for head in range(HEADS):
            for i in range(len(ids)):
                keys = set(range(i + 1))
                if sight is not None:
                    keys = (
                        sight[head][i]
                        if i < prompt
                        else sight[head][prompt - 1] | set(range(prompt, i + 1))
                    )
                scores = {j: float(q[head, i] @ k[head, j]) / math.sqrt(DIM) for j in keys}
                total = sum(math.exp(score) for score in scores.values())
                row = {j: math.exp(score) / total for j, score in scores.items()}
                mixed[i, head * DIM : (head + 1) * DIM] = sum(row[j] * v[head, j] for j in keys)
                if i == prompt - 1:
                    last.append(row)
        x = x + mixed @ weights[f"{at}attn.c_proj.weight"] + weights[f"{at}attn.c_proj.bias"]
        inner = (
            norm(x, weights, f"{at}ln_2") @ weights[f"{at}mlp.c_fc.weight"]
            + weights[f"{at}mlp.c_fc.bias"]
        )
        inner = 0.5 * inner * (1 + np.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
        x = x + inner @ weights[f"{at}mlp.c_proj.weight"] + weights[f"{at}mlp.c_proj.bias"]
        vectors.append(x[prompt - 1])
        looks.append((q[:, :prompt], k[:, :prompt], last))
    return vectors, looks, norm(x, weights, "ln_f") @ weights["wte.weight"].T


def logprob(logits: Any, prompt: int, answer: list[int]) -> float:
    rows = logits[prompt - 1 :]
    rows = rows - np.log(np.exp(rows).sum(-1, keepdims=True))
    return sum(float(rows[place, number]) for place, number in enumerate(answer))


RULES = ("--region", "cat=/cat/", "--region", "end=/the mat/")


@pytest.mark.parametrize("target", [None, "the cat"])
def test_every_number_is_that_of_loops(
    target: str | None, folder: Path, weights: dict[str, Any]
) -> None:
    line = ("cache", TEXT, "--model", str(folder), *RULES, "--policy", "h2o", "--policy", "snapkv:9,3,3", "--policy",
            "tova", "--policy", "sinks:2,5", "--policy", "random", "--budget", "7", "--json")  # fmt: skip
    answer = ask(*line, *(() if target is None else ("--target", target)))
    assert answer.code == 0, answer.err
    document = answer.json
    ids, after = ([token["id"] for token in document[name]] for name in ("tokens", "target"))
    assert (len(after) > 1) == (target is not None)
    count, following = len(ids), ids + after[:-1]
    own, looks, logits = decoder(following, weights, count, None)
    if target is None:
        assert after == [int(logits[-1].argmax())]
    whole = logprob(logits, count, after)
    assert document["logprob"] == pytest.approx(whole, abs=1e-5)
    assert document["bytes"] == LAYERS * HEADS * count * 2 * DIM * 4
    specs = [row["policy"] for row in document["policies"]]
    assert specs == ["h2o:7,3", "snapkv:7,3,3", "snapkv:9,3,3", "tova:7", "sinks:2,5", "random:7,0"]
    regions = [set(row["tokens"]) for row in document["regions"]]
    every = [(head, row) for _, _, last in looks for head, row in enumerate(last)]
    for share, keys in zip(document["shares"], regions, strict=True):
        assert share == pytest.approx(
            sum(row[j] for _, row in every for j in keys) / len(every), abs=1e-6
        )
    for part in document["policies"]:
        kept, cached = [], []
        for q, k, last in looks:
            sight = rows_seen(part["policy"], q, k)
            for head, row in enumerate(last):
                cached.append(sight[head][-1])
                kept.append(sum(row[j] for j in cached[-1]))
        assert [head["kept"] for head in part["heads"]] == pytest.approx(kept, abs=1e-6)
        assert part["kept"] == pytest.approx(sum(kept) / len(kept), abs=1e-6)
        assert part["bytes"] == LAYERS * HEADS * part["budget"] * 2 * DIM * 4
        assert part["saved"] == pytest.approx(1 - part["budget"] / count)
        for region, keys in zip(part["regions"], regions, strict=True):
            left = sum(
                row[j] for (_, row), there in zip(every, cached, strict=True) for j in keys & there
            )
            assert region["kept"] == pytest.approx(
                left / sum(row[j] for _, row in every for j in keys), abs=1e-6
            )
            share = sum(len(keys & there) / len(keys) for there in cached) / len(cached)
            assert region["keys"] == pytest.approx(share)
        changed, _, logits = decoder(following, weights, count, part["policy"])
        errors = [
            float(np.linalg.norm(b - a) / np.linalg.norm(a))
            for a, b in zip(own, changed, strict=True)
        ]
        assert part["errors"] == pytest.approx(errors, abs=1e-5)
        assert part["logprob"] == pytest.approx(logprob(logits, count, after), abs=1e-5)
        assert part["change"] == pytest.approx(logprob(logits, count, after) - whole, abs=2e-5)


def test_a_cache_that_holds_all_changes_nothing(folder: Path) -> None:
    count = len(ask("tokens", TEXT, "--model", str(folder), "--json").json["tokens"])
    document = ask("cache", TEXT, "--model", str(folder), "--budget", str(count), "--json").json
    assert len(document["policies"]) == 5
    for part in document["policies"]:
        assert part["kept"] == pytest.approx(1)
        assert (part["saved"], part["bytes"]) == (0, document["bytes"])
        assert part["errors"] == pytest.approx([0] * LAYERS, abs=1e-6)
        assert part["change"] == pytest.approx(0, abs=1e-6)


def test_a_policy_without_a_budget_keeps_a_quarter() -> None:
    document = ask(
        "cache", " ".join("abcdefgh" * 2), "--mask", "causal", "--num-heads", "2", "--json"
    ).json
    assert [part["policy"] for part in document["policies"]] == [
        "h2o:4,2", "snapkv:4,2,5", "tova:4", "sinks:2,2", "random:4,0",
    ]  # fmt: skip
    assert (document["target"], document["logprob"]) == ([], None)
    assert all(part["logprob"] is part["change"] is None for part in document["policies"])


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        (("--policy", "causal"), 2, "'causal' is no cache that forgets"),
        (("--policy", "snapvk"), 2, "--policy snapkv"),
        (("--policy", "h2o:x"), 2, "does not have the form h2o:BUDGET"),
        (("--policy", "h2o:4,9"), 2, "more recent keys than it has room for"),
        (("--policy", "sinks:4,2", "--budget", "4"), 2, "'sinks:4,0' has a 0"),
        (("--budget", "0"), 2, "h2o:0"),
        (("--budget", "x"), 2, "--budget is 'x'"),
        (("--budget", "4,999"), 3, "keeps 999 keys, and the text has 19"),
        (("--policy", "sinks:4,252"), 3, "sinks:4,252 keeps 256 keys, and the text has 19"),
        (("--target", "id:999999"), 3, "there is no entry"),
        (("--region", "x=/dog/"), 3, "nothing in the text is in region 'x'"),
    ],
)
def test_what_is_no_cache_is_refused(
    line: tuple[str, ...], code: int, says: str, folder: Path
) -> None:
    answer = ask("cache", TEXT, "--model", str(folder), *line)
    assert (answer.code, answer.out) == (code, ""), answer.err
    assert says in answer.err


def test_what_reads_both_ways_has_no_cache() -> None:
    seeded = ask("cache", "a b c d")
    assert (seeded.code, seeded.out) == (2, "")
    assert "--mask causal as well" in seeded.err
    encoder = ask("cache", "a b c d", "--model", "minilm")
    assert (encoder.code, encoder.out) == (4, "")
    assert "reads in both directions" in encoder.err
    without = ask("cache", "a b c d", "--mask", "causal", "--target", "a")
    assert without.code == 4


def test_what_was_measured_before_an_interruption_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attncli.features.cache import compute

    line = ("cache", TEXT, "--model", str(folder), "--budget", "5", "--json")
    whole = ask(*line, XDG_CACHE_HOME=str(folder / "one")).out
    run, runs = compute._policy_run, []

    def interrupted(*arguments: Any) -> Any:
        runs.append(arguments)
        if len(runs) == 3:
            raise KeyboardInterrupt
        return run(*arguments)

    monkeypatch.setattr(compute, "_policy_run", interrupted)
    answer = ask(*line, XDG_CACHE_HOME=str(folder / "two"))
    assert (answer.code, answer.out) == (130, "")
    assert "3 of 6 runs are done and kept" in answer.err
    assert ask(*line, XDG_CACHE_HOME=str(folder / "two")).out == whole
    assert len(runs) == 3 + 3
    runs.clear()
    shown = ask(*line[:-1], XDG_CACHE_HOME=str(folder / "two")).out
    assert "interrupted: 3 of 6 runs are told of" in shown
    assert "snapkv:5" in shown
    assert "random:5" not in shown
    monkeypatch.setattr(compute, "_policy_run", run)
    assert ask(*line, XDG_CACHE_HOME=str(folder / "two")).out == whole
    assert not list((folder / "two" / "attn" / "caches").iterdir())


@pytest.mark.thorough
def test_screens_and_tables(folder: Path, tmp_path: Path) -> None:
    line = (
        "cache",
        TEXT,
        "--model",
        str(folder),
        *RULES,
        "--budget",
        "4,8",
        "--policy",
        "h2o",
        "--policy",
        "tova",
    )
    plain = ask(*line, "--plain").out.splitlines()
    assert plain[0].split("\t") == [
        "policy", "budget", "kept", "least", "error", "logprob", "change", "bytes", "saved",
    ]  # fmt: skip
    assert [row.split("\t")[0] for row in plain[1:]] == ["h2o:4,2", "h2o:8,4", "tova:4", "tova:8"]
    saved = tmp_path / "cache.json"
    saved.write_text(ask(*line, "--json").out)
    for lang, says in (("en", "a cache of 8 keys keeps most with"), ("zh", "8 个键")):
        for width in (60, 80, 120):
            shown = ask(*line, "--lang", lang, width=width)
            assert "".join(says.split()) in "".join(shown.out.split())
            assert max(map(len, shown.out.splitlines())) <= width
            assert ask("view", str(saved), "--lang", lang, width=width).out == shown.out
    assert json.loads(saved.read_text())["schema"] == "attn.cache/1"
    figure = tmp_path / "cache.svg"
    assert ask(*line, "--figure", str(figure)).code == 0
    assert "tova:8" in figure.read_text("utf-8")
