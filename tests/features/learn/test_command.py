"""`attn learn` as it is typed: what it answers, what it keeps, and what transformers makes of that;
what it refuses.
"""

from __future__ import annotations

import base64
import json
import os
import re
import select
import signal
import sys
import time
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from asking import ask
from hooked_transformers import mixing, projections
from jsonschema import Draft202012Validator

import attncli
from attncli.documents import SCHEMAS
from attncli.draw.view import View
from attncli.features.learn.document import BestHead, HeadScore
from attncli.features.learn.screen import _label_sentences, _seeds_sentence
from attncli.language import say

STEPS = "200"
SENTENCE = ("sentence", "the cat sat on the mat", "--query", "sat", "--target", "cat")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A model that has learned induction, in a folder, and the document of its training."""
    folder = tmp_path_factory.mktemp("learned") / "model"
    answer = ask(
        "learn", "induction", "--steps", STEPS, "--save", str(folder), "--snapshots", "4", "--json"
    )
    assert answer.code == 0, answer.err
    return folder, answer.json


def opened(folder: Path) -> Any:
    """The checkpoint as transformers opens it, in float64."""
    from transformers import AutoModel, AutoModelForCausalLM

    encoder = json.loads((folder / "config.json").read_text())["architectures"] == ["BertModel"]
    kind = AutoModel if encoder else AutoModelForCausalLM
    model, info = kind.from_pretrained(
        folder, attn_implementation="eager", output_loading_info=True
    )
    lost = [
        key for name in ("missing_keys", "unexpected_keys", "mismatched_keys") for key in info[name]
    ]
    assert all(key.startswith("pooler.") for key in lost), (
        lost
    )  # of an encoder, after its last layer
    return model.double().eval()


def in_transformers(folder: Path, text: str) -> tuple[Any, np.ndarray, list[np.ndarray]]:
    """transformers' model, its ids of a text, and the weights of each layer."""
    from transformers import AutoTokenizer

    model, ids = (
        opened(folder),
        AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")["input_ids"],
    )
    with torch.no_grad():
        output = model(input_ids=ids, output_attentions=True)
    return model, ids, [layer[0].numpy() for layer in output.attentions]


CYCLE = "k f b m e c k f b m e c"


@pytest.mark.thorough
def test_why_explains_the_induction_head_by_the_head_before_it(kept) -> None:
    """The later f looks at what stood after the earlier one: because a head had brought that f
    there.
    """
    folder, document = kept
    best = {row["score"]: row for row in document["runs"][0]["best"]}
    previous, induction = (
        (best[name]["layer"], best[name]["head"]) for name in ("previous", "induction")
    )
    head = "L{}H{}".format(*induction)
    line = (
        "why",
        CYCLE,
        "--model",
        str(folder),
        "--from",
        "#7",
        "--to",
        "#2",
        "--than",
        "#3",
        "--head",
        head,
    )
    found = ask(*line, "--json").json
    key_side = {
        (part["kind"], part["layer"], part["head"]): part["key_side"] for part in found["parts"]
    }
    largest, second = sorted(key_side, key=lambda part: -key_side[part])[:2]
    assert largest == ("head", *previous)
    assert key_side[largest] > 0.6 * found["total"]
    assert key_side[largest] > 3 * key_side[second]
    (part,) = [
        part
        for part in found["parts"]
        if (part["layer"], part["head"], part["kind"]) == (*previous, "head")
    ]
    assert part["weight_without"]["key"] < 0.5 * found["weight"]
    asks = max(found["parts"], key=lambda part: part["query_side"])
    assert asks["kind"] == "token"
    told = " ".join(ask(*line).out.split())
    reason = f'What answers is above all what layer {previous[0]} head {previous[1]} brought to "b"'
    assert reason in told
    assert 'What asks is above all the word "f" (7) itself' in told
    assert f'{reason} (2) from "f" (1)' in " ".join(ask(*line, "--by", "token").out.split())


def test_the_document_says_what_formed(kept) -> None:
    _, document = kept
    Draft202012Validator(SCHEMAS["attn.learn/1"]).validate(document)
    assert document["learned"]
    assert document["formed"]
    assert document["loss"] < 0.05 < 2.7 < document["chance"]
    assert document["goal"] == pytest.approx(document["chance"] / 10)
    assert [point["step"] for point in document["curve"]][:6] == [0, 1, 2, 4, 5, 8]
    best = {row["score"]: row for row in document["runs"][0]["best"]}
    assert best["previous"]["layer"] == 0
    assert best["induction"]["layer"] == 1
    assert best["induction"]["value"] > 0.8
    for head in document["heads"]:
        for score in head["scores"].values():
            assert len(score["values"]) == len(document["curve"])
            assert score["first"] == score["values"][0]
            assert score["last"] == score["values"][-1]


def predictable(ids: list[int]) -> list[int]:
    """Places of a text from whose symbol on it repeats itself, by loops: what comes after them is
    known.
    """
    return [place for place, symbol in enumerate(ids[:-1]) if symbol in ids[:place]]


def test_transformers_opens_it_with_the_same_attention_and_loss(kept) -> None:
    folder, document = kept
    text = document["example"]["text"]
    model, ids, weights = in_transformers(folder, text)
    shown = np.asarray(document["maps"][-1]["weights"])
    for layer, expected in enumerate(weights):
        assert np.abs(shown[layer] - expected).max() < 1e-6
    for trace in attncli.load(folder).trace(text):
        assert np.abs(np.asarray(trace.stages["weights"]) - weights[trace.layer]).max() < 1e-6
    with torch.no_grad():
        log_p = torch.log_softmax(model(input_ids=ids).logits[0], -1).numpy()
    row = ids[0].tolist()
    loss = -np.mean([log_p[place, row[place + 1]] for place in predictable(row)])
    assert loss < 0.05


def test_taking_the_previous_token_head_away_raises_the_loss_tenfold(kept) -> None:
    """As the command says, and as hooks in transformers find on the texts that it measured on."""
    from attncli.features.learn.tasks import task_class

    folder, document = kept
    ablation = document["ablation"]
    previous = next(row for row in document["runs"][0]["best"] if row["score"] == "previous")
    without = next(row["loss"] for row in ablation["heads"]
                   if (row["layer"], row["head"]) == (previous["layer"], previous["head"]))  # fmt: skip
    assert without > 10 * ablation["loss"]
    model = opened(folder)
    batch = task_class("induction")().draw(0, "test", 64)
    ids = torch.tensor(batch.ids)
    places = projections(model, lambda: model(input_ids=ids[:1]))

    def taken(mixed: np.ndarray) -> np.ndarray:
        mixed[previous["head"]] = 0
        return mixed

    def mean_loss(*, cut: bool) -> float:
        found = []
        for text, targets in zip(ids, batch.targets, strict=True):
            with torch.no_grad():
                if cut:
                    with mixing(places[previous["layer"], "self"], taken, 2):
                        scores = model(input_ids=text[None]).logits[0]
                else:
                    scores = model(input_ids=text[None]).logits[0]
            log_p = torch.log_softmax(scores, -1).numpy()
            found += [-log_p[place, said] for place, said in enumerate(targets) if said >= 0]
        return float(np.mean(found))

    assert mean_loss(cut=False) == pytest.approx(ablation["loss"], rel=1e-3)
    assert mean_loss(cut=True) == pytest.approx(without, rel=1e-3)


def test_scores_are_those_of_transformers_by_loops(kept) -> None:
    """The weight on the token before, and on those after an earlier one of the same kind, over all
    test texts.
    """
    from attncli.features.learn.tasks import task_class

    folder, document = kept
    ids = task_class("induction")().draw(0, "test", 64).ids
    with torch.no_grad():
        layers = opened(folder)(input_ids=torch.tensor(ids), output_attentions=True).attentions
    for head in document["heads"]:
        weights = layers[head["layer"]][:, head["head"]].numpy()
        previous, induction = [], []
        for text, row in enumerate(ids.tolist()):
            for query, symbol in enumerate(row):
                previous += [weights[text, query, query - 1]] if query else []
                keys = [key + 1 for key in range(query) if row[key] == symbol]
                induction += [weights[text, query, keys].sum()] if keys else []
        assert head["scores"]["previous"]["last"] == pytest.approx(np.mean(previous), abs=1e-5)
        assert head["scores"]["induction"]["last"] == pytest.approx(np.mean(induction), abs=1e-5)


def test_snapshots_are_checkpoints_of_their_steps(kept) -> None:
    folder, document = kept
    assert document["saved"] == str(folder)
    assert [Path(path).name for path in document["snapshots"]] == [
        "step-0",
        "step-6",
        "step-34",
        "step-200",
    ]
    first, last = (Path(document["snapshots"][place]) for place in (0, -1))
    assert (last / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    text = document["example"]["text"]
    before = np.stack(
        [np.asarray(trace.stages["weights"]) for trace in attncli.load(first).trace(text)]
    )
    assert np.abs(before - np.asarray(document["maps"][0]["weights"])).max() < 1e-6
    assert sorted(path.name for path in folder.parent.iterdir()) == [
        "model"
    ]  # nothing is left beside it


LAYOUTS = [
    ("--position", "rope"), ("--position", "alibi"), ("--mask", "window:3"), ("--scale", "none"),
]  # fmt: skip
MORE_LAYOUTS = [
    ("--position", "sinusoidal", "--mlp"), ("--position", "none", "--scale", "2.5"), ("--position", "rope", "--mlp"),
    ("--position", "alibi", "--scale", "none"), ("--mask", "window:40,40", "--num-heads", "4"),
    ("--mask", "window:3", "--scale", "sqrt-dmodel"), ("--layers", "3", "--d-model", "24", "--num-heads", "3"),
]  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [*LAYOUTS, *(pytest.param(each, marks=pytest.mark.thorough) for each in MORE_LAYOUTS)],
    ids=" ".join,
)
def test_every_layout_that_is_saved_is_what_was_trained(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    answer = ask(
        "learn", "previous", "--steps", "12", *options, "--save", str(tmp_path / "m"), "--json"
    )
    if "window:40,40" in options:  # no window of a family looks both ways
        assert answer.code == 2, answer
        assert not (tmp_path / "m").exists()
        return
    document = answer.json
    _, _, weights = in_transformers(tmp_path / "m", document["example"]["text"])
    shown = np.asarray(document["maps"][-1]["weights"])
    assert (
        max(np.abs(shown[layer] - expected).max() for layer, expected in enumerate(weights)) < 1e-6
    )
    for trace in attncli.load(tmp_path / "m").trace(document["example"]["text"]):
        assert np.abs(np.asarray(trace.stages["weights"]) - weights[trace.layer]).max() < 1e-6


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A model that has learned to translate, in a folder, and the document of its training."""
    folder = tmp_path_factory.mktemp("translator") / "model"
    answer = ask("learn", "translate", "--save", str(folder), "--snapshots", "3", "--json")
    assert answer.code == 0, answer.err
    return folder, answer.json


def translated(folder: Path, said: str, source: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """The logits [token, vocabulary] and the weights of each layer's cross-attention of transformers,
    whose decoder reads the text one token late."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model, info = AutoModelForSeq2SeqLM.from_pretrained(
        folder, attn_implementation="eager", output_loading_info=True
    )
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    model = model.double().eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids, keys = (tokenizer(text, return_tensors="pt")["input_ids"] for text in (said, source))
    start = torch.tensor([[model.config.decoder_start_token_id]])
    with torch.no_grad():
        output = model(
            input_ids=keys,
            decoder_input_ids=torch.cat([start, ids[:, :-1]], 1),
            output_attentions=True,
        )
    return output.logits[0].numpy(), [layer[0].numpy() for layer in output.cross_attentions]


TRANSLATORS = [
    (), ("--position", "sinusoidal", "--mlp"), ("--position", "none", "--scale", "2.5"),
    ("--layers", "2", "--num-heads", "2", "--d-model", "24"), ("--scale", "none", "--num-heads", "4"),
]  # fmt: skip


@pytest.mark.parametrize("options", TRANSLATORS, ids=" ".join)
def test_transformers_opens_a_translator_with_the_same_attention(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    """The weights of every head and the logits, also of texts of different lengths."""
    folder = tmp_path / "m"
    line = ("learn", "translate", "--steps", "20", *options, "--save", str(folder), "--json")
    example = ask(*line).json
    shown = np.asarray(example["maps"][-1]["weights"])
    source = example["example"]["source"]
    said = " ".join(example["example"]["targets"])
    _, layers = translated(folder, said, source)
    for layer, expected in enumerate(layers):  # trained in float32
        assert np.abs(shown[layer] - expected).max() < 1e-5
    model = attncli.load(folder)
    for said, source in (("le chat noir", "the black cat sees a dog ."), ("le chat", "the cat .")):
        expected, layers = translated(folder, said, source)
        decoder = model.decoder(source)
        for trace in decoder.trace(said):
            weights = np.asarray(trace.cross.stages["weights"])
            assert weights.shape[1:] == (len(said.split()), len(source.split()))
            assert np.abs(weights - layers[trace.layer]).max() < 1e-6
        found = np.asarray(decoder.logits(trace.after))
        assert np.abs(found - expected).max() < 1e-5


def test_the_alignment_is_that_of_transformers_by_loops(translator) -> None:
    """How often the largest weight is on the word that is translated, the mean weight there, and the
    loss of each length, over the test texts."""
    from attncli.features.learn.tasks import task_class

    folder, document = translator
    task = task_class("translate")()
    batch = task.draw(0, "test", 64)
    hits, weights_there, chances, losses = [], [], [], {}
    for ids, targets, count in zip(
        batch.source.ids, batch.targets, batch.source.lengths, strict=True
    ):
        source = [task.words[number] for number in ids[:count]]
        said = [task.words[number] for number in targets[:count]]
        scores, (layer,) = translated(folder, " ".join(said), " ".join(source))
        for query, row in enumerate(layer[0]):
            place = query  # of the word that is translated: an adjective and its noun change places
            if source[query] in ("black", "white", "red", "green", "grey"):
                place = query + 1
            elif query and source[query - 1] in ("black", "white", "red", "green", "grey"):
                place = query - 1
            hits.append(row.argmax() == place)
            weights_there.append(row[place])
            chances.append(1 / count)
            log_p = torch.log_softmax(torch.tensor(scores[query]), -1)
            losses.setdefault(count, []).append(-float(log_p[targets[query]]))
    found = document["alignment"]
    assert found["rows"] == len(hits)
    assert found["share"] == pytest.approx(np.mean(hits), abs=2 / len(hits))
    assert found["share"] > 0.9
    assert found["chance"] == pytest.approx(np.mean(chances))
    (head,) = document["heads"]
    assert head["scores"]["aligned"]["last"] == pytest.approx(np.mean(weights_there), abs=1e-5)
    assert document["loss"] == pytest.approx(np.mean(np.concatenate([*losses.values()])), rel=1e-3)
    assert [row["tokens"] for row in document["by_length"]] == sorted(losses)
    for row in document["by_length"]:
        assert row["loss"] == pytest.approx(np.mean(losses[row["tokens"]]), rel=1e-3)


def test_the_decoder_of_a_saved_translator_looks_at_the_readers_text(translator) -> None:
    """Of a sentence of one's own: each word that is said looks at the one it translates."""
    folder, document = translator
    assert len(document["snapshots"]) == 3
    found = ask(
        "cross", "--model", str(folder), "un loup gris suit le", "a grey wolf follows the dog .", "--json"
    ).json  # fmt: skip
    assert [row["key"] for row in found["alignment"]] == [0, 2, 1, 3, 4]


def test_one_vector_holds_short_sentences_and_not_long_ones() -> None:
    narrow = ask("learn", "translate", "--bottleneck", "--json").json
    assert narrow["bottleneck"]
    assert "alignment" not in narrow
    shortest, longest = (narrow["by_length"][place]["loss"] for place in (0, -1))
    assert longest > 5 * shortest
    assert longest > 0.3
    said = " ".join(ask("learn", "translate", "--bottleneck", "--steps", "20").out.split())
    assert "the decoder sees the encoder's vector of the first word alone" in said
    assert "With the task's own settings" in said


def test_a_sentence_is_an_encoder_without_its_head(tmp_path: Path) -> None:
    answer = ask("learn", *SENTENCE, "--save", str(tmp_path / "m"), "--json")
    document = answer.json
    assert document["learned"]
    _, ids, weights = in_transformers(tmp_path / "m", "the cat sat on the mat")
    assert ids.shape == (1, 6)
    assert np.abs(np.asarray(document["maps"][-1]["weights"])[0] - weights[0]).max() < 1e-6


@pytest.mark.parametrize(("last", "is_told"), [(0.3, 1), (0.24, 0), (0.4, 0), (0.9, 0)])
def test_a_head_that_heads_would_not_label_is_told_with_both_thresholds(
    last: float, is_told: int
) -> None:
    score = HeadScore(
        first=0.1, last=last, chance=0.1, threshold=0.25, rose_at=3, values=[0.1, last]
    )
    row = BestHead(score="previous", layer=0, head=0, value=last)
    texts = _label_sentences(row, score)
    assert len(texts) == is_told
    assert all(
        "from 0.25 on; attn heads labels one from 0.40 on." in say(View(), text) for text in texts
    )


@pytest.mark.thorough
def test_seeds_may_solve_it_while_looking_elsewhere() -> None:
    words = ("sentence", "今天 我 的 计划 是 买菜", "--query", "计划", "--target", "买菜")
    document = ask("learn", *words, "--seeds", "5", "--json").json
    assert all(run["learned"] for run in document["runs"])
    looks = [run["best"][0]["value"] for run in document["runs"]]
    assert max(looks) > 0.9
    assert min(looks) < 0.1


def test_the_screen_says_which_loss_counts_as_learned(tmp_path: Path) -> None:
    """A tenth of ln 2, of two answers alike; of a file the loss of counting pairs."""
    told = " ".join(ask("learn", "order", "--steps", "2", "--brief").out.split())
    assert "has not learned it" in told
    assert "It counts as learned below 0.0693, a tenth of the loss by chance (0.69)." in told
    (tmp_path / "t.txt").write_text("to be or not to be " * 30)
    line = ("learn", "text", str(tmp_path / "t.txt"), "--steps", "2")
    found = ask(*line, "--json").json
    losses = {row["name"]: row["loss"] for row in found["references"]}
    pairs = losses["counting pairs of characters"]
    assert found["goal"] == pairs
    assert found["learned"] == (found["loss"] < pairs)
    told = " ".join(ask(*line, "--brief").out.split())
    assert f"below {pairs:.2f}, the loss of counting pairs of characters; chance is" in told


@pytest.mark.thorough
def test_without_positions_the_order_is_not_known() -> None:
    learned, blind = (
        ask("learn", "order", "--steps", "120", "--position", name, "--json").json
        for name in ("learned", "none")
    )
    assert learned["learned"]
    assert blind["loss"] > 0.95 * blind["chance"]


@pytest.mark.thorough
@pytest.mark.parametrize("position", ["sinusoidal", "rope"])
def test_other_positions_know_the_order(position: str) -> None:
    assert ask("learn", "order", "--position", position, "--json").json["learned"]


@pytest.mark.thorough
def test_of_several_seeds_the_answer_names_the_one_that_is_shown() -> None:
    words = ("learn", "previous", "--steps", "2", "--seed", "7", "--brief", "--quiet")
    several = " ".join(ask(*words, "--seeds", "2").out.split())
    assert "Seed 7 has not learned it: a loss of" in several
    assert "Of 2 seeds none learned it, and in none of them is there a previous" in several
    alone = " ".join(ask(*words).out.split())
    assert "The model has not learned it: a loss of" in alone
    # directly behind the loss, so that no score of a head is meant
    assert re.search(r"chance is [\d.]+\. A loss of [\d.]+ is no better than chance\.", alone)


@pytest.mark.parametrize(
    ("learned", "values", "end"),
    [
        ((True, False), (0.0, 0.0), "1 learned it, and in none of them is there"),
        ((True, False), (1.0, 0.0), "1 learned it, and in 1 there is"),
        ((False, False), (0.0, 1.0), "0 learned it, and in 1 there is"),
    ],
)
def test_a_head_of_no_seed_is_said_to_be_none(
    learned: tuple[bool, ...], values: tuple[float, ...], end: str
) -> None:
    runs = [
        SimpleNamespace(
            learned=run,
            # the task asks for a head of "value", whatever comes behind it
            best=[
                BestHead(score="value", layer=0, head=0, value=value),
                BestHead(score="key", layer=0, head=0, value=1 - value),
            ],
        )
        for run, value in zip(learned, values, strict=True)
    ]
    scores = {"value": SimpleNamespace(threshold=0.5), "key": SimpleNamespace(threshold=0.5)}
    head = SimpleNamespace(scores=scores)
    document: Any = SimpleNamespace(task="lookup", runs=runs, heads=[head], forms=["value"])
    said = str(_seeds_sentence(document))
    assert f"Of 2 seeds {end} a head that looks up the value" in said
    assert ("it was learned without one" in said) == (any(learned) and not any(values))


def test_the_circuit_forms_in_four_of_five_seeds() -> None:
    """At the default settings, with the bands of the scores; other instruction sets round
    otherwise.
    """
    document = ask("learn", "induction", "--seeds", "5", "--json").json
    good = [run for run in document["runs"] if run["learned"] and run["formed"]]
    assert len(good) >= 4
    for run in good:
        best = {row["score"]: row["value"] for row in run["best"]}
        assert 0.28 < best["previous"] < 0.6
        assert 0.85 < best["induction"] <= 1


@pytest.mark.thorough
def test_one_layer_has_no_circuit() -> None:
    document = ask("learn", "induction", "--layers", "1", "--json").json
    assert not document["learned"]
    assert document["loss"] > 1


@pytest.mark.thorough
def test_scores_that_are_not_scaled_learn_worse() -> None:
    """What a missing √d_k does: of three seeds fewer look values up in the same number of steps (of
    five 1 for 4).
    """
    scaled, bare = (
        ask("learn", "lookup", "--scale", scale, "--seeds", "3", "--json").json["runs"]
        for scale in ("sqrt-dk", "none")
    )
    assert sum(run["learned"] for run in scaled) >= 2
    assert sum(run["learned"] for run in bare) < sum(run["learned"] for run in scaled)


def test_the_screen_the_page_and_the_figure(tmp_path: Path) -> None:
    options = (
        "learn",
        "order",
        "--steps",
        "40",
        "--html",
        str(tmp_path / "p.html"),
        "--figure",
        str(tmp_path / "f.svg"),
    )
    answer = ask(*options, width=60)
    assert answer.code == 0, answer.err
    assert max(map(len, answer.out.splitlines())) <= 60
    page = (tmp_path / "p.html").read_text()
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert (tmp_path / "f.svg").read_text().startswith("<svg")
    chinese = ask("learn", "order", "--steps", "40", "--lang", "zh")
    assert "随机" in chinese.out
    plain = ask("learn", "order", "--steps", "40", "--plain").out.splitlines()
    assert plain[0].split("\t")[:2] == ["step", "loss"]
    assert len({line.count("\t") for line in plain}) == 1


def test_a_saved_document_is_shown_again(tmp_path: Path) -> None:
    whole = ask("learn", "order", "--steps", "20", "--json").out
    (tmp_path / "d.json").write_text(whole)
    again = ask("view", str(tmp_path / "d.json"))
    assert again.code == 0, again.err
    assert again.out == ask("learn", "order", "--steps", "20").out


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [60, 200])
def test_without_a_task_it_lists_them(lang: str, width: int) -> None:
    """By the names that are typed, which are the same in every language."""
    answer = ask("learn", "--lang", lang, width=width)
    assert answer.code == 0
    first = {line.split(" ")[0] for line in answer.out.splitlines()}
    assert {
        "induction", "lookup", "order", "previous", "sentence", "text", "translate"
    } <= first  # fmt: skip
    Draft202012Validator(SCHEMAS["attn.tasks/1"]).validate(ask("learn", "--json").json)


REFUSED = {
    "a task that is none": (("inductoin",), 2, "attn learn induction"),
    "a sentence without its words": (("sentence", "the cat sat"), 2, "--query"),
    "a word that is not there": (
        ("sentence", "the cat sat", "--query", "sat", "--target", "dog"),
        3,
        "dog",
    ),
    "one word twice": (
        ("sentence", "the cat sat", "--query", "sat", "--target", "sat"),
        3,
        "same word",
    ),
    "a sentence of one word": (
        ("sentence", "今天我的计划是买菜", "--query", "计划", "--target", "买菜"),
        3,
        "blanks",
    ),
    "sizes that do not divide": (
        ("previous", "--d-model", "30", "--num-heads", "4"),
        2,
        "--num-heads",
    ),
    "an odd rope": (
        ("previous", "--d-model", "9", "--num-heads", "3", "--position", "rope"),
        2,
        "even d_k",
    ),
    "positions that are none": (("previous", "--position", "roap"), 2, "sinusoidal"),
    "a scale that is none": (("previous", "--scale", "big"), 2, "sqrt-dk"),
    "a text for a task of its own": (("previous", "hello"), 2, "its own texts"),
    "rotations beside an encoder": (("translate", "--position", "rope"), 2, "sinusoidal"),
    "a mask beside an encoder": (("translate", "--mask", "window:3"), 2, "no --mask"),
    "one vector without an encoder": (("previous", "--bottleneck"), 2, "translate"),
    "one vector in a folder": (("translate", "--bottleneck", "--save", "new"), 2, "--bottleneck"),
    "a text for the translator": (("translate", "the cat"), 2, "its own texts"),
    "a text without its file": (("text",), 2, "FILE"),
    "a file that is not there": (("text", "nowhere.txt"), 3, "nowhere.txt"),
    "words for another task": (("previous", "--query", "a"), 2, "sentence"),
    "force without a folder": (("previous", "--force"), 2, "--save"),
    "snapshots without a folder": (("previous", "--snapshots", "3"), 2, "--save"),
    "a page that is none": (("previous", "--html", "p.txt"), 2, ".html"),
    "a folder without a task": (("--save", "new"), 2, "no task is named"),
    "a page without a task": (("--html", "p.html"), 2, "no task is named"),
    "no steps": (("previous", "--steps", "0"), 2, "--steps"),
    "a rate of nothing": (("previous", "--learning-rate", "0"), 2, "--learning-rate"),
    "too large": (
        ("previous", "--d-model", "1024", "--layers", "24", "--batch", "4096"),
        5,
        "--batch",
    ),
    "a mask that no format has": (
        ("previous", "--mask", "dilated:4,2", "--save", "new"),
        2,
        "--mask causal",
    ),
    "a loss that is no number": (
        ("previous", "--learning-rate", "1000", "--steps", "60"),
        1,
        "--learning-rate",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, code, said = REFUSED[name]
    answer = ask("learn", *arguments)
    assert answer.code == code, answer
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert said in answer.err, answer.err
    assert answer.err.count("\n") <= 5
    assert list(tmp_path.iterdir()) == []


def test_a_text_shorter_than_its_window_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("too short")
    answer = ask("learn", "text", str(tmp_path / "short.txt"))
    assert answer.code == 3
    assert "9 characters" in answer.err


@pytest.mark.thorough
def test_a_text_is_learned_against_counting(tmp_path: Path) -> None:
    (tmp_path / "verse.txt").write_text("the cat sat on the mat. " * 60)
    document = ask("learn", "text", str(tmp_path / "verse.txt"), "--steps", "60", "--json").json
    assert [row["name"] for row in document["references"]] == [
        "counting characters",
        "counting pairs of characters",
    ]
    assert document["learned"]
    assert document["loss"] < document["references"][-1]["loss"]
    hostile = tmp_path / "hostile.txt"
    hostile.write_text("\x1b[31mred \u202e\x07 <script> " * 20)
    assert "\x1b" not in ask("learn", "text", str(hostile), "--steps", "2").out


def test_a_folder_that_exists_is_refused_unless_forced(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "mine.txt").write_text("precious")
    answer = ask("learn", "previous", "--steps", "2", "--save", str(folder))
    assert (answer.code, "--force" in answer.err) == (2, True), answer
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]
    assert ask("learn", "previous", "--steps", "2", "--save", str(folder), "--force").code == 0
    assert (folder / "mine.txt").read_text() == "precious"
    assert (folder / "model.safetensors").exists()
    assert (
        ask("learn", "previous", "--steps", "2", "--save", str(folder / "mine.txt"), "--force").code
        == 2
    )


def test_nothing_is_left_of_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answer = ask("learn", "previous", "--steps", "2", "--save", str(tmp_path / "file" / "m"))
    assert answer.code in (1, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


@pytest.mark.parametrize(
    ("each", "steps", "foretold"),
    [(0.01, 200, []), (0.02, 300, ["6 s"]), (5.0, 100, ["8 min 20 s"])],
)
def test_what_takes_long_is_foretold(
    each: float, steps: int, foretold: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first steps, the slow start not among them: none takes 9 seconds, as the first does."""
    from types import SimpleNamespace

    from attncli.draw.view import View
    from attncli.features.learn import live_screen

    clock, notes = SimpleNamespace(now=0.0), []
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(live_screen, "time", clock)
    request: Any = SimpleNamespace(steps=steps, seeds=(0,))
    environment: Any = SimpleNamespace(note=notes.append)
    training = live_screen.Training(environment, View(), request)
    for step in range(steps):
        clock.now += 9.0 if step == 0 else each
        assert not training.is_over()
    assert [note.partition(";")[0] for note in notes] == [
        f"{steps} steps: about {time}" for time in foretold
    ]


def trained(steps: int, seeds: int = 1, **sizes: int) -> Any:
    """A request of the task induction."""
    from msgspec.structs import replace

    from attncli.features.learn.compute import LearnRequest
    from attncli.features.learn.tasks import task_class

    kind = task_class("induction")
    return LearnRequest(
        kind(),
        replace(kind.architecture, **sizes),
        tuple(range(seeds)),
        steps,
        kind.batch,
        kind.rate,
    )


def test_the_cost_is_told_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    from attncli.features.learn import compute
    from attncli.features.learn.compute import training_cost

    small, wide, deep = (
        training_cost(trained(300)),
        trained(1, d_model=1024, layers=24),
        trained(300, layers=8),
    )
    assert 1 < small.all < 5  # 2 s on two idle cores
    assert training_cost(wide).all > 20  # of which one step is the least
    assert 3 < training_cost(deep).step / small.step < 5
    assert training_cost(trained(300, seeds=4)).all == pytest.approx(4 * small.all, rel=0.2)

    def never(*arguments: Any, **named: Any) -> Any:
        raise AssertionError("it began")

    monkeypatch.setattr(compute, "learn", never)
    answer = ask("learn", "induction", "--layers", "24", "--d-model", "1024", "--steps", "9")
    assert answer.err.startswith("9 steps: about ")
    assert "fewer --steps" in answer.err


def test_what_nobody_waits_for_is_refused() -> None:
    for options, way_out in (
        (("--steps", "1000000", "--seeds", "1000"), "try: --steps"),
        (
            ("--seeds", "1000", "--d-model", "1024", "--layers", "24", "--batch", "1"),
            "try: --d-model 32",
        ),
    ):
        answer = ask("learn", "induction", *options)
        assert (answer.code, answer.out) == (5, "")
        assert " steps would take about " in answer.err
        assert "7 days at most" in answer.err
        assert way_out in answer.err


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (59.2, "59 s"),
        (59.7, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3599.4, "59 min 59 s"),
        (3599.7, "1 h 0 min"),
        (18600, "5 h 10 min"),
        (2 * 86400 - 40, "47 h 59 min"),
        (2 * 86400 - 20, "2 days"),
        (1e6, "12 days"),
        (6565932687, "208 years"),
    ],
)
def test_how_long_something_takes_is_told_in_units_of_its_size(seconds: float, words: str) -> None:
    from attncli.models.estimate import duration_words

    assert duration_words(seconds) == words


@pytest.mark.parametrize("there_before", [False, True])
def test_ctrl_c_while_it_is_saved_leaves_nothing(
    there_before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four files two were written: none of them takes its place, and what was there stays."""
    from attncli.models import checkpoint_writing

    folder, write, written = tmp_path / "m", checkpoint_writing._write_json, []
    if there_before:
        folder.mkdir()
        (folder / "config.json").write_text("{}")

    def interrupted(path: Path, values: dict[str, object]) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(path)
        write(path, values)

    monkeypatch.setattr(checkpoint_writing, "_write_json", interrupted)
    answer = ask(
        "learn", "previous", "--steps", "2", "--save", str(folder), "--snapshots", "2", "--force"
    )
    assert answer.code == 130
    assert written
    assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == [
        "{}"
    ] * there_before
    assert folder.exists() == there_before


def test_of_the_only_text_it_is_not_said_that_it_was_kept_apart(tmp_path: Path) -> None:
    for arguments, apart in ((SENTENCE, False), (("previous",), True)):
        line = ("learn", *arguments, "--steps", "3", "--show", "curve")
        assert ("not trained on" in ask(*line, "--figure", str(tmp_path / "f.svg")).out) == apart
        assert ("not trained on" in (tmp_path / "f.svg").read_text()) == apart


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (
            ("previous", "--steps", "3"),
            "With the task's own settings most seeds learn it: attn learn previous",
        ),
        (("order", "--position", "none", "--steps", "3"), "most seeds learn it: attn learn order"),
        (
            ("order", "--position", "none", "--steps", "3"),
            "This run had --position none in place of learned, --steps 3 in place of 300. With",
        ),
        (
            ("induction", "--layers", "1", "--num-heads", "4", "--scale", "none", "--steps", "2"),
            "had --layers 1 in place of 2, --num-heads 4 in place of 2, --steps 2 in place of 300,"
            " --scale 1 in place of 0.354. With",
        ),
        (("previous", "--num-heads", "2", "--d-model", "16"), "--d-model 16 in place of 32"),
        ((*SENTENCE, "--d-model", "16", "--steps", "2"), "--d-model 16 in place of 32"),
        (("previous",), "Another seed may: attn learn previous --seed 1"),
        (SENTENCE, "Another seed may: attn learn sentence … --seed 1"),
    ],
)
def test_what_was_not_learned_has_advice(
    arguments: tuple[str, ...], advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attncli.features.learn.tasks import task_class

    if "--steps" not in arguments:  # nothing is learned in three steps, were they the task's own
        monkeypatch.setattr(task_class(arguments[0]), "steps", 3)
    assert advice in " ".join(ask("learn", *arguments, "--brief").out.split())


def test_the_word_that_is_looked_at_in_place_of_the_target_is_named() -> None:
    line = ("learn", "sentence", "今天 我 的 计划 是 买菜", "--query", "计划", "--target", "买菜")
    line += ("--seed", "1", "--steps", "60")
    document = ask(*line, "--json").json
    weights = document["maps"][-1]["weights"][0][0][3]
    key = max(range(6), key=weights.__getitem__)
    words = ["今天", "我", "的", "计划", "是", "买菜"]
    screen = " ".join(ask(*line, "--brief").out.split())
    assert (words[key] == "买菜") != ('At "计划" layer 0 head 0 looks most at' in screen)
    assert words[key] == "买菜" or f'looks most at "{words[key]}": ' in screen
    looking = ask(*line[:-4], "--brief").out  # with seed 0, which looks at the target
    assert "looks at the target: 1.00" in looking
    assert "looks most at" not in looking


def play(keys: bytes, after: float, *arguments: str) -> tuple[int, str]:
    """Run `attn learn` at a terminal of its own, press keys after some seconds; its exit code and
    what it wrote.
    """
    import pty

    child, terminal = pty.fork()
    if child == 0:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "30", "LANG": "C.UTF-8"}
        os.execv(sys.executable, [sys.executable, "-m", "attncli", "learn", *arguments])
    written, begun, pressed = b"", time.monotonic(), False
    try:
        while time.monotonic() - begun < 60:
            if select.select([terminal], [], [], 0.1)[0]:
                try:
                    piece = os.read(terminal, 65536)
                except OSError:  # Linux tells the end of a terminal so
                    piece = b""
                if not piece:
                    # a process that is ending would be hung up on where the terminal closed first
                    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                    return code, written.decode("utf-8", "replace")
                written += piece
            if not pressed and b"loss" in written and time.monotonic() - begun > after:
                os.write(terminal, keys)
                pressed = True
    finally:
        os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), written.decode("utf-8", "replace")


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="a terminal of one's own is POSIX's")
def test_at_a_terminal_it_is_watched_and_q_keeps_what_there_is(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    code, written = play(b"q", 0.5, "induction", "--steps", "100000", "--save", str(folder))
    assert code == 0, written[-2000:]
    assert "q stops and keeps what there is" in written
    assert "previous L" in written
    assert "\x1b[?25h" in written  # the cursor is back
    assert "It was stopped before" in written or "It is saved" in written
    assert (folder / "model.safetensors").exists()


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="a terminal of one's own is POSIX's")
def test_ctrl_c_ends_with_what_is_known(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    code, written = play(b"\x03", 0.5, "induction", "--steps", "100000", "--save", str(folder))
    assert code == 130
    assert "a loss of" in written
    assert "Traceback" not in written
    assert not folder.exists()


@pytest.mark.thorough
def test_from_a_cold_start_it_is_over_in_six_seconds_and_imports_nothing_heavy() -> None:
    """No torch, no transformers, no tokenizers. On an idle processor it takes as long as it
    computes.
    """
    from processes import finish

    program = (
        "import sys, resource; from attncli.cli import main; code = main(['learn', 'induction', '--brief', '-q']);"
        "used = resource.getrusage(resource.RUSAGE_SELF); heavy = {'torch', 'transformers', 'tokenizers', 'scipy',"
        "'huggingface_hub', 'matplotlib', 'pandas'} & set(sys.modules);"
        "print(code, used.ru_utime + used.ru_stime, heavy)"
    )
    code, seconds, heavy = (
        finish([sys.executable, "-c", program]).stdout.splitlines()[-1].split(" ", 2)
    )
    assert (code, heavy) == ("0", "set()")
    assert float(seconds) < 6


BOUND = ("lsh:4", "lsh:8,2", "h2o:3", "h2o:3,2", "tova:2", "snapkv:4")


@pytest.mark.parametrize("task", ["previous", "induction", "sentence"])
@pytest.mark.parametrize("mask", [*BOUND, *(f"causal & {mask}" for mask in BOUND)])
def test_a_mask_that_queries_and_keys_decide_is_refused_by_name(task: str, mask: str) -> None:
    text = ("a b c", "--query", "a", "--target", "c") if task == "sentence" else ()
    answer = ask("learn", task, *text, "--steps", "2", "--mask", mask)
    name = mask.split(" & ")[-1].partition(":")[0]
    assert (answer.code, answer.out) == (2, ""), answer.err
    assert f"the mask '{name}:" in answer.err


def test_a_loss_of_nothing_has_no_sign() -> None:
    """−0.0, the negative logarithm of a token that is sure, is printed as 0."""
    answer = ask(
        *("learn", "sentence", "今天 我 的 计划 是 买菜", "--query", "计划", "--target", "买菜"),
        *("--learning-rate", "0.1", "--steps", "20", "--brief"),
    )
    assert "a loss of 0.0000" in answer.out
    assert "-0.0000" not in answer.out


def test_the_page_of_a_translator_has_rows_that_are_said_and_columns_that_were_read(
    tmp_path: Path,
) -> None:
    file = tmp_path / "p.html"
    line = ("learn", "translate", "--steps", "8", "--num-heads", "2", "--html", str(file), "--json")
    example = ask(*line).json["example"]
    page = file.read_text()
    meta = json.loads(
        re.search(r'<script type="application/json" id="meta">(.*?)</script>', page)[1]
    )
    assert meta["tokens"] == example["targets"]
    assert meta["keys"] == example["source_tokens"]
    packed = re.search(r'id="maps"[^>]*>([^<]*)<', page)[1]
    maps = zlib.decompress(base64.b64decode(packed), wbits=-15)
    assert len(maps) == len(meta["maps"]) * 2 * len(meta["tokens"]) * len(meta["keys"])


def test_a_training_is_drawn_only_where_a_picture_can_be_drawn_over() -> None:
    """A cell of a notebook has a terminal, where every picture would stay below the last one."""
    words = ("learn", "previous", "--steps", "3", "--brief")
    assert "learning previous" in ask(*words, terminal=True, TERM="xterm").out
    assert "learning previous" not in ask(*words, "--quiet", terminal=True, TERM="xterm").out
    assert "learning" not in ask(*words, terminal=True, TERM="xterm", JPY_PARENT_PID="7").out
