"""Answers of commands, told again from their documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from asking import ask
from scanning import inside
from small_gpt2 import small_gpt2

from attncli.features.answer.document import LITTLE


def test_masks_together_are_told_beside_each() -> None:
    said = ask("mask", "causal", "window:3,3", "-n", "8", "--brief").out
    parts = ask("mask", "causal", "window:3,3", "-n", "8", "--json").json
    for part in parts["masks"]:
        assert f"{part['spec']} shows {part['pairs']} of 64 pairs, {part['share']:.1%}." in said
    both = parts["combined"]
    assert f"Together they show {both['pairs']} of 64 pairs, {both['share']:.1%}." in said
    assert "alone" not in said
    assert (
        "That is what window:2 shows alone."
        in ask("mask", "causal", "window:2", "-n", "8", "--brief").out
    )
    assert (
        "这正是 window:2 单独可见的那些。"
        in ask("mask", "causal", "window:2", "-n", "8", "--brief", "--lang", "zh").out
    )


def test_a_cost_has_n_squared_and_the_steps_of_a_recurrent_network() -> None:
    said = ask("cost", "-n", "1000", "--brief", width=200).out
    assert (
        "Over n = 1,000 tokens full attention compares n² = 1,000,000 pairs in every head." in said
    )
    assert "A recurrent network takes 1,000 steps, one after the other, attention 1." in said
    assert "1 step, attention 1" in ask("cost", "-n", "1", "--brief").out
    assert "循环网络要走 1,000 步" in ask("cost", "-n", "1000", "--brief", "--lang", "zh").out


def test_heads_of_several_layers_open_on_their_strongest_links() -> None:
    asked = ("heads", "it was too tired", "--model", "minilm")
    screen = ask(*asked, "--show", "grid", "--precision", "3", width=120).out
    assert screen.startswith("strongest link of each head")
    assert "entropy" not in screen
    for head in ask(*asked, "--json").json["heads"]:
        link = head["top_link"]
        assert link is None or f"{link['weight']:.3f}" in screen
    assert ask(*asked, "--show", "grid", "--sort", "entropy").out.startswith("entropy")
    assert ask(*asked, "--show", "grid", "--lang", "zh").out.startswith("每个头的最强连接")


@pytest.mark.thorough
def test_a_patch_shows_every_head_and_those_that_lead_away() -> None:
    asked = ("patch", "the cat sat on it", "the dog sat on it", "--model", "minilm")
    effects = ask(*asked, "--json").json["effects"]
    for width in (60, 80, 120):
        grid = ask(*asked, "--show", "grid", width=width).out
        shown = [
            int(number)
            for line in grid.splitlines()
            if line.startswith("    ")
            for number in line.split()
        ]
        assert sorted(shown) == list(range(12))
    largest = sorted(effects, key=lambda row: -abs(row["recovered"]))[:10]
    shares = re.findall(
        r"^L\d+ H\d+ +(\S+)", ask(*asked, "--show", "heads", "--lang", "en").out, re.MULTILINE
    )
    assert len(shares) == 10
    assert {len(share.lstrip("-")) for share in shares} == {5}
    listed = ask(*asked, "--show", "heads").out
    assert all(f"L{row['layer']} H{row['head']} " in listed for row in largest)
    assert f"{len(effects) - 10} more heads" in listed


NUMBER = re.compile(r"(?<![A-Za-z0-9_.:#<])[-+<]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?%?")
"""A number as a sentence writes it; not one inside a name, such as `window:2`. `<0.1%` is a share
below that.
"""
SAID = "the cat sat on the mat"
RESIDUAL = ("--num-heads", "3", "--d-model", "24", "--residual")
ASKED = {
    "run": ("run", SAID),
    "run query": ("run", SAID, "--num-heads", "2", "--query", "cat"),
    "run causal": ("run", SAID, "--mask", "causal"),
    "run model": ("run", SAID, "--model", "minilm", "--query", "sat"),
    "heads": ("heads", SAID, "--num-heads", "4"),
    "heads model": ("heads", SAID, "--model", "minilm"),
    "find": ("find", SAID, "--from", "cat", "--to", "mat"),
    "find effect": ("find", SAID, "--from", "cat", "--to", "mat", "--model", "minilm", "--effect"),
    "compare texts": ("compare", SAID, "the dog sat on the mat", "--model", "minilm"),
    "compare masks": ("compare", SAID, "--mask", "none", "--mask", "window:2"),
    "compare scales": (
        "compare",
        SAID,
        "--scale",
        "none",
        "--scale",
        "sqrt-dk",
        "--num-heads",
        "2",
    ),
    "cross": ("cross", SAID, "a dog ran", "--num-heads", "2"),
    "tensors": ("tensors", "sample_inputs/captured.safetensors"),
    "mask": ("mask", "causal", "-n", "9"),
    "masks": ("mask", "causal", "window:3,3", "-n", "9"),
    "cost": ("cost", "-n", "300"),
    "ablate": ("ablate", SAID, "--model", "minilm", "--query", "sat"),
    "ablate link": ("ablate", SAID, "--from", "cat", "--to", "mat", "--query", "cat"),
    "cache": ("cache", SAID, "--mask", "causal", "--budget", "3"),
    "cache model": (
        "cache",
        SAID,
        "--model",
        "{tmp}/gpt2",
        "--region",
        "cat=/cat/",
        "--budget",
        "4,8",
    ),
    "patch": ("patch", SAID, "the dog sat on the mat", "--model", "minilm"),
    "tokens": ("tokens", "unbelievable cats", "--tokenizer", "sample_inputs/tokenizer.json"),
    "weights": ("weights", "show", "sample_inputs/mha.safetensors"),
    "model": ("models", "show", "minilm"),
    "models": ("models", "list"),
    "generate": ("run", SAID, "--model", "{tmp}/gpt2", "--generate", "3"),
    "logits": ("logits", SAID, "--model", "{tmp}/gpt2"),
    "scan": ("scan", "show", "{tmp}/scan"),
    "scan head": ("scan", "show", "{tmp}/scan", "--head", "L1H1"),
    "metric file": (
        "heads",
        SAID,
        "--num-heads",
        "2",
        "--metric-file",
        "{tmp}/own.py",
        "--metric",
        "own.thirds",
    ),
    "view": ("view", "{tmp}/run.json"),
    "ablate texts": ("ablate", "--file", "{tmp}/texts", "--lines", *RESIDUAL),
    "compare effects": ("compare", "{tmp}/effects-a.json", "{tmp}/effects-b.json"),
    "learn": ("learn", "order", "--steps", "40"),
    "learn seeds": ("learn", "previous", "--steps", "6", "--seeds", "2"),
    "learn sentence": (
        "learn",
        "sentence",
        SAID,
        "--query",
        "sat",
        "--target",
        "cat",
        "--steps",
        "20",
    ),
    "series": (
        "series",
        "{tmp}/m/step-0",
        "{tmp}/m/step-3",
        "{tmp}/m",
        "--text",
        "a b a b",
        "--metric",
        "previous,entropy",
    ),
    "why": ("why", SAID, "--model", "minilm", "--from", "sat", "--to", "cat"),
    "why than": (
        "why",
        SAID,
        "--model",
        "minilm",
        "--from",
        "sat",
        "--to",
        "cat",
        "--than",
        "mat",
        "--head",
        "L5H1",
    ),
    "why dimensions": (
        "why",
        SAID,
        "--num-heads",
        "2",
        "--from",
        "sat",
        "--to",
        "cat",
        "--by",
        "dimension",
    ),
    "why writes": (
        "why",
        SAID,
        "--model",
        "{tmp}/gpt2",
        "--from",
        "#9",
        "--to",
        "#2",
        "--writes",
        "--by",
        "token",
    ),
    "regions": (
        "ablate",
        SAID,
        "--model",
        "{tmp}/gpt2",
        "--region",
        "a=tokens:0-3",
        "--region",
        "b=tokens:5-9",
        "--each-region",
    ),
    "answer": (
        "answer",
        SAID,
        "--model",
        "{tmp}/gpt2",
        "--region",
        "a=tokens:0-3",
        "--tokens",
        "4",
    ),
    "answer dose": (
        *("answer", SAID, "--model", "{tmp}/gpt2", "--region", "a=tokens:0-3", "--tokens", "4"),
        *("--weigh", "×0.25", "--each-head"),
    ),
    "retrieval": (
        "heads",
        "--model",
        "{tmp}/gpt2",
        "--retrieval",
        "--needle",
        "{tmp}/needle",
        "--lengths",
        "24",
    ),
    "run regions": ("run", SAID, "--num-heads", "2", "--region", "a=tokens:0-2"),
    "heads regions": ("heads", SAID, "--num-heads", "2", "--region", "a=tokens:0-2"),
    "lens": ("logits", SAID, "--model", "{tmp}/gpt2", "--lens", "--by", "token"),
    "directions": ("heads", SAID, "--model", "{tmp}/gpt2", "--directions", "L1H0"),
    "across": (
        "heads",
        SAID,
        "--model",
        "{tmp}/gpt2",
        "--across",
        "rollout,flow,similarity,circuits",
    ),
    "scans": ("scan", "compare", "{tmp}/scan", "{tmp}/other"),
    "find regions": (
        "find",
        SAID,
        "--from",
        "sat",
        "--to",
        "cat",
        "--num-heads",
        "2",
        "--region",
        "a=tokens:0-2",
    ),
    "compare regions": (
        "compare",
        SAID,
        "the dog sat on the mat",
        "--num-heads",
        "2",
        "--region",
        "a=tokens:0-2",
    ),
    "logits by token": ("logits", SAID, "--model", "{tmp}/gpt2", "--by", "token"),
    "why frequency": (
        "why",
        SAID,
        *RESIDUAL,
        "--position",
        "rope",
        "--from",
        "sat",
        "--to",
        "cat",
        "--by",
        "frequency",
    ),
    "patch into": (
        "patch",
        SAID,
        "the dog sat on the mat",
        "--model",
        "minilm",
        "--into",
        "L1H2:k",
    ),
    "explain": ("explain", SAID),
    "explain model": ("explain", SAID, "--model", "minilm", "--query", "sat"),
    "explain softmax": ("explain", "softmax", "1", "2", "3"),
    "explain matrix-softmax": ("explain", "matrix-softmax", SAID),
    "explain scaling": ("explain", "scaling", "--samples", "60"),
    "explain order": ("explain", "order", SAID),
    "explain position": ("explain", "position", SAID),
    "explain mask": ("explain", "mask", SAID),
    "explain multihead": ("explain", "multihead", SAID),
    "explain residual": ("explain", "residual", SAID),
    "explain qkv": ("explain", "qkv", SAID),
    "explain training": ("explain", "training", SAID),
    "explain seq2seq": ("explain", "seq2seq", SAID, SAID),
    "explain metric": ("explain", "metric", "entropy"),
    "explain rule": ("explain", "rule", "bracket"),
    "check": ("check", "sample_inputs/answers.json"),
}
"""A question to every command that ends with an answer."""
EXACT = {"1e-06"}
"""The difference up to which weights are called the same."""


def numbers_of(value: Any) -> Iterator[float]:
    """Every number of a document but those of its matrices, which would hold any; how many entries
    its lists have.
    """
    match value:
        case bool() | None | str():
            return
        case int() | float():
            yield value
        case dict():
            for held in value.values():
                yield from numbers_of(held)
        case [[*_], *_]:
            return
        case list():
            yield len(value)
            for held in value:
                yield from numbers_of(held)


def derived(document: Any) -> Iterator[float]:
    """What answers compute from a document: means and sums over its heads, ratios, counts."""
    heads = document.get("heads")
    if isinstance(heads, list) and heads and isinstance(heads[0], dict):
        for name in ("kept", "output_error"):
            held = [head[name] for head in heads if head.get(name) is not None]
            yield from [sum(held) / len(held)] if held else []
        pairs = [head["pairs"] for head in heads if head.get("pairs")]
        a, b = (sum(pair[side] for pair in pairs) for side in "ab")
        yield from (a, b, b / a) if a else ()
        yield sum(head.get("rank") == 1 for head in heads)
        rests = [
            np.argmax(got)
            for head in heads
            if "weights" in head and "topic" not in document
            for got in [mean_of(head["weights"])]
            if got.max() > 0.5
        ]
        yield from (rests.count(key) for key in set(rests))
        if rests:
            special = list(special_positions(document))
            rows = [mean_of(head["weights"]) for head in heads if "weights" in head]
            yield sum(got[special].sum() > 0.5 for got in rows)
    if "variants" in document:
        yield from (
            row["multiply_adds"] / document["variants"][0]["multiply_adds"]
            for row in document["variants"]
        )
    if "masks" in document:
        yield document["n"] ** 2
    effects = document.get("effects")
    if effects and document["schema"] == "attn.ablate/1":
        sizes = [abs(row["vector"]["cosine"]) for row in effects]
        yield from (larger / smaller for larger, smaller in pairwise(sizes) if smaller)
    if "queries" not in document and "layers" in document and document["schema"] == "attn.run/1":
        yield from (1 / len(document["tokens"]), float(document["model"].get("seed") or 0))

    yield from explained(document)
    match document["schema"]:
        case "attn.run/1" if document.get("average"):
            # of the query's weight, what rests on special tokens
            yield sum(document["average"][at] or 0.0 for at in special_positions(document))
        case "attn.generate/1":
            yield np.mean(
                [head for step in document["steps"] for head in np.ravel(step["context"])]
            )
        case "attn.logits/1":
            kinds = {part["part"] for part in document["parts"]}
            sums = {
                kind: sum(part["value"] for part in document["parts"] if part["part"] == kind)
                for kind in kinds
            }
            rest = sum(value for kind, value in sums.items() if kind not in ("head", "mlp"))
            yield from (*sums.values(), rest)
        case "attn.models/1":
            yield sum(bool(alias["here"]) for alias in document["aliases"])
        case "attn.difference/1":
            ends = [
                (head["low"], head["high"]) for head in document["heads"] if head["low"] is not None
            ]
            yield from (sum(low > 0 or high < 0 for low, high in ends), 0.05 * len(ends))
            yield 0.95  # of the interval
        case "attn.effects/1":
            yield 0.95  # of the interval
        case "attn.learn/1":
            yield sum(run["learned"] for run in document["runs"])
            yield sum(run["formed"] for run in document["runs"])
        case "attn.series/1":
            yield 0.1  # from where a score has risen
            for name in document["metrics"]:
                for row in document["checkpoints"]:
                    yield np.mean([head["metrics"][name] or 0.0 for head in row["heads"]])
        case "attn.why/1":
            for part in document["parts"]:
                yield from (
                    abs(value - document["total"])
                    for side in SIDES
                    if (value := part[side]) is not None
                )
            for side in SIDES:
                yield from speaking(part[side] for part in document["parts"])
            yield from speaking(row["contribution"] for row in document.get("dimensions") or ())
        case "attn.heads/1" if "rollout" in document:
            for weights in (*document["rollout"].values(), document["flow"]["weights"]):
                yield from np.mean(weights, axis=0)
        case "attn.heads/1" if "region_shares" in document:
            for head in document["region_shares"]["heads"]:
                yield from (
                    share / even
                    for share, even in zip(head["share"], head["even"], strict=True)
                    if even
                )
        case "attn.regions/1":
            yield from (np.exp(row["logprob"]) for row in document["effects"])
            yield from (np.exp(document["logprob"]), 0.01)  # below which nothing is said to be lost
            yield sum(abs(row["change"]) <= 0.01 for row in document["effects"][1:])
        case "attn.scan_compare/1":
            yield 0.05  # of chance, at most
        case "attn.scan/1":
            yield sum(bool(head.get("labels")) for head in document["heads"])
            for part in (
                part
                for head in document["heads"]
                for part in (head.get("why") or {}).get("parts", ())
            ):
                yield from (part["query_share"] - 1, part["key_share"] - 1)
            yield 30  # the fewest texts that have intervals
            yield 10  # the commonest links that are looked at
        case _:
            return


def speaking(values: Iterable[float | None]) -> Iterator[float]:
    """Of what the parts of a score add: the sum of those that speak for the link, the share of the
    largest in it, and how many make half of it.
    """
    gains = sorted((value for value in values if value is not None and value > 0), reverse=True)
    if gains:
        total = sum(gains)
        reached = np.cumsum(gains) >= total / 2
        yield from (total, gains[0] / total, int(reached.argmax()) + 1)


def special_positions(document: Any) -> list[int]:
    """Which tokens are special, where heads rest."""
    return [at for at, token in enumerate(document["tokens"]) if token.get("special")]


def explained(document: Any) -> Iterator[float]:
    """What the answers of `attn explain` compute: the rows of their query, extremes, distances to
    them.
    """
    at = document.get("query")
    match document.get("topic"):
        case "attention":
            yield from document["matrices"]["weights"][at]
        case "softmax":
            least, most = sorted(document["weights"])[-2:]
            yield most / least
        case "position":
            rows = [way["weights"][at] for way in document["ways"]]
            yield from (np.abs(np.subtract(row, rows[0])).max() for row in rows)
        case "mask":
            yield 1 - document["hidden"]
        case "seq2seq":
            yield from (weight for row in document["weights"] for weight in row)
        case "multihead":
            yield from (weight for head in document["heads"] for weight in head["weights"])
            yield np.mean(document["entropies"])
            tops = [np.argmax(head["weights"]) for head in document["heads"]]
            yield sum(top != np.argmax(document["average"]) for top in tops)
        case _:
            return


def mean_of(weights: Any) -> Any:
    """The mean weight of every key."""
    return np.asarray([[0.0 if value is None else value for value in row] for row in weights]).mean(
        axis=0
    )


def as_written(text: str) -> tuple[float, float]:
    """The number that a sentence writes, and how far the one it stands for may be from it."""
    bare = text.rstrip("%").replace(",", "")
    digits = bare.partition("e")[0].partition(".")[2]
    unit = 0.01 if text.endswith("%") else 1.0
    return float(bare) * unit, 0.5000001 * unit * 10.0 ** -len(digits) + 1e-12


def unfounded(sentences: str, numbers: Sequence[float]) -> list[str]:
    """The numbers of sentences that no number of a document, rounded as they are, can be."""
    held = np.abs(np.asarray([number for number in numbers if np.isfinite(number)]))
    found = []
    for text in NUMBER.findall(sentences):
        if text.startswith("<"):
            found += [] if (held < as_written(text[1:])[0]).any() else [text]
            continue
        value, apart = as_written(text)
        if text not in EXACT and not (np.abs(held - abs(value)) <= apart).any():
            found.append(text)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small decoder, a scan of it and a saved run."""
    place = tmp_path_factory.mktemp("answers")
    model = small_gpt2(place / "gpt2")
    (place / "needle").write_text("the cat\tsat\n")
    learned = (
        "learn",
        "previous",
        "--steps",
        "3",
        "--save",
        str(place / "m"),
        "--snapshots",
        "2",
        "--brief",
    )
    assert ask(*learned).code == 0
    (place / "texts").write_text("".join(f"the cat sat on mat {number}\n" for number in range(12)))
    with inside():
        scanned = (
            "scan",
            str(model),
            str(place / "texts"),
            "-o",
            str(place / "scan"),
            "--why",
            "L1H1",
            "--quiet",
        )
        assert ask(*scanned).code == 0
        (place / "others").write_text(
            "".join(f"a dog ran off with my hat {number}\n" for number in range(12))
        )
        other = ("--metric", "entropy", "--no-labels", "--quiet")
        assert (
            ask("scan", str(model), str(place / "others"), "-o", str(place / "other"), *other).code
            == 0
        )
    (place / "own.py").write_text("def thirds(rows):\n    return rows.weights[..., ::3].sum(-1)\n")
    saved = ("run", SAID, "--num-heads", "2", "--json", "--output", str(place / "run.json"))
    assert ask(*saved).code == 0
    for side, seed in (("a", "0"), ("b", "1")):
        effects = ("ablate", "--file", str(place / "texts"), "--lines", *RESIDUAL, "--seed", seed)
        assert ask(*effects, "--json", "--output", str(place / f"effects-{side}.json")).code == 0
    return place


WITHOUT_NUMBERS = {"explain rule"}
"""Answers that say what something means."""


@pytest.mark.many
@pytest.mark.parametrize("lang", ["en", pytest.param("zh", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("name", ASKED)
def test_every_number_of_an_answer_is_in_its_document(name: str, lang: str, folder: Path) -> None:
    asked = [part.replace("{tmp}", str(folder)) for part in ASKED[name]]
    document = ask(*asked, "--json").json
    said = ask(*asked, "--brief", "--lang", lang, width=400)
    assert said.code == 0, said.err
    numbers = [*numbers_of(document), *derived(document)]
    if document["schema"] == "attn.heads/1":
        numbers += [fact.number for fact in neighbours(document)]
    if document["schema"] == "attn.answer/1":
        numbers.append(LITTLE)
        doses = document.get("doses", {}).get("doses", [])
        numbers += [np.exp(row["logprob"]) for row in (*doses, *document["effects"])]
        numbers.append(np.exp(document["answer"]["logprob"]))
    if "bottleneck" in document:
        numbers.append(1 / document["vocabulary"])  # of guessing
    if "query_matrix_gradient" in document:  # how many numbers of W_Q and W_K move
        matrices = (document[f"{side}_matrix_gradient"] for side in ("query", "key"))
        numbers.append(sum(np.size(matrix) for matrix in matrices))
    sentences = said.out.replace(str(folder), "")
    is_counted = name not in WITHOUT_NUMBERS
    assert bool(NUMBER.findall(sentences)) == is_counted, "it claims nothing without numbers"
    assert unfounded(sentences, numbers) == [], said.out
    assert misplaced(sentences, document) == [], said.out


def test_a_number_that_is_nowhere_is_noticed() -> None:
    assert unfounded("89% of its weight, 0.64 in layer 3", [0.6443, 3]) == ["89%"]
    assert unfounded("占其权重的 89%，权重 0.65，1,000 对", [0.894, 0.6449, 1000]) == ["0.65"]
    assert unfounded("window:2 of #7 is 36", [36]) == []


PLACE = re.compile(
    r"(?:layer|batch) (\d+) head (\d+)|(?:第 (\d+) 层|批 (\d+) )第 (\d+) 头", re.IGNORECASE
)
WORD = re.compile(r'"([^"]+)"|“([^”]+)”')


BESIDES = ("Besides its neighbour", "除相邻的")


class Fact(NamedTuple):
    """A number of one head, and the words that it is about."""

    place: tuple[int, int]
    words: frozenset[str]
    number: float


def neighbours(document: Any) -> Iterator[Fact]:
    """How much of its weight each head gives the previous word, the next and the word itself: the
    mean over the rows whose key there is no special token.
    """
    special = set(special_positions(document))
    for head in document["heads"]:
        weights = head.get("weights") or ()
        for offset in (-1, 1, 0):
            held = [
                row[at + offset] or 0.0
                for at, row in enumerate(weights)
                if 0 <= at + offset < len(row)
                and at + offset not in special
                and sum(weight is not None and weight > 0 for weight in row) > 1
            ]
            if held:
                yield Fact((head["layer"], head["head"]), frozenset(), float(np.mean(held)))


def facts(document: Any) -> Iterator[Fact]:
    """What a document holds of each head: every number of its records, and the weight of every
    link.
    """
    tokens = document.get("tokens") or (document.get("a") or {}).get("tokens", [])
    keys = (
        [token["text"] for token in document.get("keys", tokens) if isinstance(token, dict)]
        if tokens
        else []
    )
    rows = document.get("queries", range(len(keys)))
    for layer in document["layers"] if isinstance(document.get("layers"), list) else ():
        for head in layer.get("heads", ()):
            for row, weights in zip(rows, head.get("weights", ()), strict=False):
                query = row["text"] if isinstance(row, dict) else keys[row]
                for key, weight in zip(keys, weights, strict=False):
                    yield Fact(
                        (layer["layer"], head["head"]), frozenset((query, key)), weight or 0.0
                    )
    if document["schema"] == "attn.heads/1":
        yield from neighbours(document)
    if document["schema"] == "attn.compare/1":
        aligned = [keys[pair[0]] for pair in document["aligned"]]
        for head in document["heads"]:
            for side in ("weights_a", "weights_b"):
                for query, weights in zip(aligned, head[side], strict=True):
                    for key, weight in zip(aligned, weights, strict=True):
                        yield Fact(
                            (head["a"]["layer"], head["a"]["head"]),
                            frozenset((query, key)),
                            weight or 0.0,
                        )
    for row in (document.get("ablation") or {}).get("heads", ()):
        yield Fact((row["layer"], row["head"]), frozenset(), row["loss"])
    alike = document.get("similarity", {"tree": ()})
    for merge in alike["tree"][:1]:
        for row in (merge["a"], merge["b"]):
            yield Fact(
                (alike["heads"][row]["layer"], alike["heads"][row]["head"]),
                frozenset(),
                merge["height"],
            )
    for pair in document.get("circuits", {"compositions": ()})["compositions"][:1]:
        for end in ("from", "to"):
            yield Fact((pair[end]["layer"], pair[end]["head"]), frozenset(), pair["strength"])
    for checkpoint in document.get("checkpoints", ()):
        for head in checkpoint["heads"]:
            for number in numbers_of(head["metrics"]):
                yield Fact((head["layer"], head["head"]), frozenset(), number)
    if document["schema"] == "attn.why/1":
        link = document["link"]
        about = frozenset((tokens[link["query"]]["text"], tokens[link["key"]]["text"]))
        for number in (document["weight"], document["score"], document["total"]):
            yield Fact((link["layer"], link["head"]), about, number)
    ends = {keys[document[end]] for end in ("from", "to") if isinstance(document.get(end), int)}
    for name in ("heads", "effects", "parts", "links"):
        records = document.get(name)
        for record in (
            records if isinstance(records, list) and document["schema"] != "attn.why/1" else ()
        ):
            first = record.get("layer", record.get("index"))
            if isinstance(first, int) and isinstance(record.get("head"), int):
                about = {keys[record[end]] for end in ("query", "key") if end in record and keys}
                own = {
                    key: value
                    for key, value in record.items()
                    if key not in ("layer", "head", "index", "looks")
                }
                for number in numbers_of(own):
                    yield Fact((first, record["head"]), frozenset(ends | about), number)
                if looks := record.get("looks"):
                    yield Fact(
                        (first, record["head"]), frozenset((keys[looks["key"]],)), looks["weight"]
                    )
                for query, weights in zip(keys, record.get("weights", ()), strict=False):
                    for key, weight in zip(keys, weights, strict=True):
                        yield Fact((first, record["head"]), frozenset((query, key)), weight or 0.0)


SIDES = ("query_side", "key_side")
"""Of a part of a score: what it adds on each side."""
RECORDS = {"tokens", "keys", "layers", "heads", "effects", "parts", "links", "moved", "aligned", "a", "b", "steps",
           "generated", "overview", "matrices"}  # fmt: skip
"""What a document holds of single tokens, links and heads."""


def whole(document: Any) -> list[float]:
    """The numbers that are of no head or word alone: the document's own, and what answers compute
    from all.
    """
    apart = (
        RECORDS if document["schema"] != "attn.why/1" else set()
    )  # a sentence of a part names no head of its own
    rest = {name: value for name, value in document.items() if name not in apart}
    counts = [
        len(value)
        for name, value in document.items()
        if name in RECORDS and isinstance(value, list)
    ]
    sides = [document[side] for side in ("a", "b") if isinstance(document.get(side), dict)]
    of_sides = [
        number
        for side in sides
        for name in side
        if name not in RECORDS
        for number in numbers_of(side[name])
    ]
    # a head that looks at the same word is compared with the one that the answer is about
    looks = [row["looks"]["weight"] for row in document.get("effects", [])[:1] if row.get("looks")]
    return [*numbers_of(rest), *counts, *of_sides, *looks, *derived(document)]


class Clause(NamedTuple):
    """A part of a line that speaks of one head at most, its words with the first of the line, and
    its numbers.
    """

    place: tuple[int, int] | None
    words: frozenset[str]
    numbers: list[str]


def _numbers_beside_words(part: str) -> list[str]:
    """The numbers of a part of a line that are no quoted word: a model may say "7" next."""
    return NUMBER.findall(WORD.sub('""', part))


def clauses(line: str) -> Iterator[Clause]:
    """The parts of a line: each ends with its head where numbers stand before the first, else each
    begins with it.
    """
    found = list(PLACE.finditer(line))
    words = [a or b for a, b in WORD.findall(line)]
    if line.startswith(BESIDES):  # the neighbour is named before the word that the line is about
        words = words[1:]
    first = NUMBER.search(line)
    if not found:
        yield Clause(None, frozenset(words), _numbers_beside_words(line))
        return
    is_last = first is not None and first.start() < found[0].start()
    cuts = [0, *(match.end() for match in found[:-1]), len(line)] if is_last else [
        0, *(match.start() for match in found[1:]), len(line)
    ]  # fmt: skip
    for match, (start, stop) in zip(found, pairwise(cuts), strict=True):
        part = line[start : match.start()] + line[match.end() : stop]
        place = tuple(int(number) for number in match.groups() if number)
        about = frozenset([*words[:1], *(a or b for a, b in WORD.findall(part))])
        yield Clause((place[0], place[1]), about, _numbers_beside_words(part))


def misplaced(sentences: str, document: Any) -> list[str]:
    """The lines with a number that neither the head that is named beside it has of the words named
    beside it, nor the
    whole document: of lines that name a head or a word every number is looked up."""
    held, rest = list(facts(document)), whole(document)
    wrong = []
    for line in POSITION.sub("", sentences).splitlines():
        for clause in clauses(line):
            if not held or (clause.place is None and not clause.words):
                continue
            own = [
                fact.number
                for fact in held
                if clause.place in (None, fact.place)
                and (fact.words <= clause.words or clause.words <= fact.words)
            ]
            # what is told first beside a head is its own, whatever is equal to it in the whole
            # document
            numbers = sorted(clause.numbers, key=lambda text: text[0] not in "+-<")
            leading = unfounded(numbers[0], own) if clause.place is not None and numbers else []
            if (
                leading
                or unfounded(" ".join(numbers), [*own, *rest])
                or exchanged(line, clause, document)
            ):
                wrong.append(line)
                break
    return wrong


POSITION = re.compile(r'(?<=["”]) ?[(（]\d+[)）]')
"""Which of several equal words is meant."""
PARTNER = re.compile(r" ?[(（](?:in B|B 中|在 B 中)[^)）]*[)）]")


def exchanged(line: str, clause: Clause, document: Any) -> bool:
    """Whether a line of a comparison tells two weights of a link that are not A's and B's, in this
    order. What a word of A is in B stands in brackets behind it.
    """
    words = [a or b for a, b in WORD.findall(PARTNER.sub("", line))]
    if (
        document["schema"] != "attn.compare/1"
        or clause.place is None
        or len(words) != 2
        or len(clause.numbers) < 2
    ):
        return False
    texts = [document["a"]["tokens"][pair[0]]["text"] for pair in document["aligned"]]
    for head in document["heads"]:
        for i, j in np.argwhere(np.outer(np.equal(texts, words[0]), np.equal(texts, words[1]))):
            pair = [head["weights_a"][i][j], head["weights_b"][i][j]]
            is_there = (head["a"]["layer"], head["a"]["head"]) == clause.place
            if is_there and not any(
                map(unfounded, clause.numbers[:2], [[number] for number in pair])
            ):
                return False
    return True


def test_a_number_of_another_head_or_word_is_noticed() -> None:
    found = ask(*ASKED["find"], "--json").json
    said = '"cat" gives "mat" most in layer 0 head 5: 34% of its weight.'
    assert misplaced(said, found) == []
    assert misplaced(said.replace("head 5", "head 4"), found)
    assert misplaced(said.replace('"mat"', '"sat"'), found)
    run = ask(*ASKED["run query"], "--json").json
    said = "“cat”最关注“sat”（0.56，第 0 层第 0 头）。"
    assert misplaced(said, run) == []
    assert misplaced(said.replace("sat", "on"), run)
    assert misplaced(said.replace("第 0 头", "第 1 头"), run)


SECOND = {
    "run model": ("0.30, layer 1 head 2", "0.43, layer 1 head 2"),
    "compare texts": ("to 0.06 in B", "to 0.63 in B"),
    "ablate": ("there 0.89", "there 0.43"),
    "logits": ("+0.30 of 1.94", "+0.30 of 0.07"),
}
"""A number that is not the first of its line, and another of the same document that stands
elsewhere in it.
"""


@pytest.mark.many
@pytest.mark.parametrize("name", SECOND)
def test_every_number_of_a_line_is_bound_to_its_head_and_words(name: str, folder: Path) -> None:
    asked = [part.replace("{tmp}", str(folder)) for part in ASKED[name]]
    document, said = ask(*asked, "--json").json, ask(*asked, "--brief", width=400).out
    right, wrong = SECOND[name]
    assert right in said
    assert misplaced(said, document) == []
    assert (
        unfounded(wrong, [*numbers_of(document), *derived(document), 1, 2, 5]) == []
    )  # somewhere it is true
    assert misplaced(said.replace(right, wrong), document)
