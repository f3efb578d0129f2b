"""`attn ablate`, `attn logits`, `attn patch` and `attn find --effect` as a person and a program
meet them.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from asking import ask
from msgspec.structs import replace
from small_gpt2 import small_gpt2
from tiny_checkpoints import CASES, make

import attncli
from attncli.cli import pair_answer
from attncli.mechanism.context import Replace

SAMPLES = Path(__file__).parents[3] / "sample_inputs"
TEXT = "The animal didn't cross the street because it was too tired"
MINILM = ("--model", "minilm")


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small checkpoint with an output head and the sample tokenizer."""
    case = CASES["gpt2 with head"]
    folder = make(
        replace(case, config={**case.config, "vocab_size": 320}), tmp_path_factory.mktemp("gpt2")
    )
    shutil.copy(SAMPLES / "tokenizer.json", folder / "tokenizer.json")
    return str(folder)


def test_the_answer_comes_last_in_both_languages() -> None:
    told = ask("ablate", TEXT, *MINILM, "--query", "it", "--baseline", "none", "--top", "3").out
    last = " ".join(told.split("\n\n")[-1].split())
    assert (
        'Taking away layer 5 head 11 changes "it" most: 0.105 (1 − cosine), 4 times the next head.'
        in last
    )
    assert (
        'Layer 3 head 1 looks at "animal" about as much (0.64; there 0.65) and hardly matters here (0.0054).'
        in last
    )
    assert last.endswith("these numbers do not add up.")
    assert max(map(len, told.splitlines())) <= 80
    chinese = ask(
        "ablate", TEXT, *MINILM, "--query", "it", "--baseline", "none", "--brief", "--lang", "zh"
    ).out
    assert "去掉第 5 层第 11 头" in chinese
    assert "不能相加" in chinese


def test_json_plain_and_view(tmp_path: Path) -> None:
    whole = ask("ablate", TEXT, *MINILM, "--from", "it", "--to", "animal", "--top", "2", "--json")
    document = whole.json
    assert document["schema"] == "attn.ablate/1"
    assert (document["by"], document["at"], document["link"]) == (
        "knockout",
        {"token": 10},
        {"query": 10, "key": 2},
    )
    first = document["effects"][0]
    assert (first["layer"], first["head"], first["attention"]) == (5, 11, "self")
    assert first["vector"]["cosine"] == pytest.approx(0.11394, abs=5e-5)
    assert first["weight"] == pytest.approx(0.65, abs=0.005)
    assert [row["random"] is not None for row in document["effects"][:3]] == [True, True, False]
    assert document["together"]["vector"]["cosine"] == pytest.approx(0.17509, abs=5e-5)
    file = tmp_path / "effects.json"
    file.write_text(whole.out)
    assert "layer 5 head 11" in ask("view", str(file), "--brief").out
    lines = ask("ablate", "a b c", "--num-heads", "2", "--residual", "--plain").out.splitlines()
    assert lines[0].split("\t")[:4] == ["attention", "layer", "head", "cosine"]
    assert [line.split("\t")[0] for line in lines[1:]] == ["self", "self", "together"]


def test_heads_named_with_their_layers() -> None:
    told = ("ablate", "it was tired", *MINILM, "--baseline", "none", "--json")
    found = ask(*told, "--head", "L5H11,l3h1").json["effects"]
    assert {(row["layer"], row["head"]) for row in found} == {(5, 11), (3, 1)}
    every = {(row["layer"], row["head"]): row for row in ask(*told).json["effects"]}
    for row in found:
        assert row["vector"]["cosine"] == pytest.approx(
            every[row["layer"], row["head"]]["vector"]["cosine"], rel=1e-4
        )
    patched = ask(
        "patch", "it was tired", "he was tired", *MINILM, "--head", "L5H11", "--json"
    ).json["effects"]
    assert [(row["layer"], row["head"]) for row in patched] == [(5, 11)]


@pytest.mark.thorough
def test_a_mean_of_other_texts(tmp_path: Path) -> None:
    """`--reference` is one text, `--reference-file` one a line: what heads mix, the mean over all
    tokens of all.
    """
    told = (
        "ablate",
        "it was tired",
        *MINILM,
        "--by",
        "mean",
        "--baseline",
        "none",
        "--head",
        "L5H11,L3H1",
        "--json",
    )
    texts = ("the cat sat", "a long street, and it was empty")
    file = tmp_path / "texts"
    model = attncli.load("minilm")
    file.write_text("\n".join(texts))
    for row in ask(*told, "--reference-file", str(file)).json["effects"]:
        layer, head = row["layer"], row["head"]
        mixed = [
            trace.stages["mixed"][head]
            for text in texts
            for trace in model.trace(text, layers=[layer])
        ]
        mean = np.concatenate(mixed).mean(0, dtype=np.float64)
        vectors = []
        for changes in (
            {},
            {(layer, "self"): (Replace((head,), np.broadcast_to(mean, (1, 5, 32))),)},
        ):
            *_, last = model.trace("it was tired", interventions=changes)
            vectors.append(np.asarray(model.finish(last.after), np.float64).mean(0))
        x, y = (vector / np.linalg.norm(vector) for vector in vectors)
        assert row["vector"]["cosine"] == pytest.approx(((x - y) ** 2).sum() / 2, rel=1e-4)
    one = ask(*told, "--reference", texts[0]).json
    file.write_text(texts[0])
    assert one == ask(*told, "--reference-file", str(file)).json
    assert one != ask(*told).json
    file.write_text("")
    assert ask(*told, "--reference-file", str(file)).code == 3
    assert ask(*told, "--reference-file", str(file), "--reference", "a").code == 2


def test_predictions(decoder: str) -> None:
    told = ("a b c", "--model", decoder, "--baseline", "none", "--json")
    document = ask("ablate", *told, "--measure", "logprob,kl,vector").json
    assert document["target"]["id"] >= 0
    assert document["position"] == document["at"]["token"] == len(document["tokens"]) - 1
    assert all(row["kl"] >= 0 for row in document["effects"])
    sizes = [abs(row["logprob"]) for row in document["effects"]]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 0
    every = ask("ablate", *told, "--measure", "logprob", "--every").json
    assert every["every"]
    assert every["target"] is None


def test_logits_add_up(decoder: str) -> None:
    document = ask("logits", "a b c", "--model", decoder, "--dtype", "float64", "--json").json
    assert document["sum"] == pytest.approx(document["logit"], abs=1e-9)
    assert sum(part["value"] for part in document["parts"]) == pytest.approx(
        document["logit"], abs=1e-9
    )
    shown = ask("logits", "a b c", "--model", decoder).out
    assert "the model's own logit" in " ".join(shown.split())
    heads = [part for part in document["parts"] if part["part"] == "head"]
    rows = ask(
        "run", "a b c", "--model", decoder, "--dtype", "float64", "--show", "weights", "--json"
    ).json["layers"]
    for part in heads:
        row = rows[part["layer"]]["heads"][part["head"]]["weights"][document["at"]]
        assert part["looks"] == {
            "key": row.index(max(row)),
            "weight": pytest.approx(max(row), abs=1e-9),
        }
    most = max(heads, key=lambda part: part["value"])
    place = f"layer {most['layer']} head {most['head']}"
    assert f"tint: the word looked at most in {place}; where heads rest is left out\n" in shown
    said = shown.split("\n\n")[-1].splitlines()[0]
    seen = document["tokens"][most["looks_beyond_rest"]["key"]]["text"]
    assert re.findall("[░▒▓█](.+?)[░▒▓█]", said) == [seen]
    between = ask(
        "logits", "a b c", "--model", decoder, "--target", "id:5", "--versus", "id:7", "--json"
    ).json
    assert between["versus"]["id"] == 7


def test_patch(decoder: str) -> None:
    told = ("patch", "a b c", "b b c", "--model", decoder)
    document = ask(*told, "--target", "id:5", "--versus", "id:7", "--json").json
    assert document["measure"] == "logit difference"
    assert document["effects"][0]["recovered"] >= document["effects"][-1]["recovered"]
    shown = ask(*told).out.split("\n\n")[-1].splitlines()
    assert shown[:3] == [
        "[CLS] ▓a▓ b c [[SEP]]",
        "[CLS] ▓b▓ b c [[SEP]]",
        "tint: words that differ",
    ]
    assert "Of single heads" in " ".join(
        ask(*told, "--target", "id:5", "--versus", "id:7").out.split()
    )


def test_find_with_effects() -> None:
    document = ask(
        "find", TEXT, *MINILM, "--from", "it", "--to", "animal", "--effect", "--json"
    ).json
    by_head = {(head["layer"], head["head"]): head["effect"] for head in document["heads"]}
    assert by_head[5, 11] == pytest.approx(0.11394, abs=5e-5)
    assert by_head[3, 1] == pytest.approx(0.00377, abs=5e-5)
    assert document["effect_together"] == pytest.approx(0.17509, abs=5e-5)
    assert (
        "effect"
        not in ask("find", TEXT, *MINILM, "--from", "it", "--to", "animal", "--json").json["heads"][
            0
        ]
    )


def test_heads_taken_away_at_once_are_answered_for() -> None:
    said = " ".join(
        ask("ablate", "a b c", "--head", "0,1", "--together", "--query", "b").out.split()
    )
    together = ask("ablate", "a b c", "--head", "0,1", "--together", "--query", "b", "--json").json[
        "together"
    ]
    assert (
        f'Taking away the chosen heads, all at once, changes "b" by {together["vector"]["cosine"]:.3f} (1 − cosine).'
        in said
    )
    whole = " ".join(
        ask("ablate", "a b c", "--together", "--query", "b").out.split()
    )  # nothing is left of a layer
    assert 'Without any of these heads "b" is 0 and has no direction.' in whole
    cut = " ".join(ask("ablate", "a b c", "--from", "b", "--to", "a", "--together").out.split())
    assert 'Cutting this link in all of the chosen heads at once changes "b" by' in cut


def test_texts_are_told_as_what_was_done_to_them() -> None:
    link = " ".join(
        ask("ablate", "--lines", "--from", "a", "--to", "b", stdin=b"a b c\nb a").out.split()
    )
    assert "a no longer sees b, in one head at a time: what changes in" in link
    assert "The link cut in the 8 heads together" in link
    line = ("ablate", "--lines", "--from", "a", "--to", "b", "--num-heads", "1")
    one_head = " ".join(ask(*line, stdin=b"a b c\nb a").out.split())
    assert "together" not in one_head  # of one head it is the same
    one = " ".join(ask("ablate", "--lines", stdin=b"a b c").out.split())
    assert "In the one text there is" in one
    assert "1 texts" not in one
    assert "(-)" not in one
    mean = " ".join(
        ask("ablate", "--lines", "--by", "mean", "--query", "a", stdin=b"a b c\nb a").out.split()
    )
    assert 'what changes in "a" when one head passes on a mean, mean over texts' in mean


def test_small_effects_of_all_heads_are_told_apart_without_colour() -> None:
    lines = ask(
        "ablate", TEXT, *MINILM, "--query", "it", "--baseline", "none", "--show", "grid"
    ).out.splitlines()
    assert lines[1].split() == [str(head) for head in range(12)]
    assert [len(line.split()) for line in lines[2:8]] == [13] * 6
    assert lines[7].split()[-1] == ".105*"
    assert len({cell.strip("*") for line in lines[2:7] for cell in line.split()[1:]}) > 4


def test_chance_is_told_where_it_is_less_than_one_head(tmp_path: Path) -> None:
    for name in ("a", "b"):
        given = f"a b\nb {name} c\n".encode()
        ask("ablate", "--lines", "--json", "--output", str(tmp_path / f"{name}.json"), stdin=given)
    assert (
        "About 0.4 would by chance alone."
        in ask("compare", *(str(tmp_path / f"{name}.json") for name in "ab")).out
    )


def test_patch_reads_standard_input() -> None:
    given = ask("patch", "-", "a c", "--json", stdin=b"a b").json

    assert given == ask("patch", "a b", "a c", "--json").json


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("ablate", TEXT, "--from", "it"), 2, "a link has two ends"),
        (("ablate", TEXT, "--by", "half"), 2, "zero, mean, resample"),
        (("ablate", TEXT, "--by", "resample"), 2, "--reference"),
        (("ablate", TEXT, "--measure", "luck"), 2, "vector, logprob, kl"),
        (
            ("ablate", TEXT, "--by", "resample", "--reference", "a b"),
            3,
            "11 tokens, the reference has 2",
        ),
        (("ablate", TEXT, "--query", "cat"), 3, "cat"),
        (("ablate", TEXT, *MINILM, "--measure", "logprob"), 4, "--measure vector"),
        (("ablate", TEXT, *MINILM, "--max-memory", "1MB"), 5, "--max-memory"),
        (("ablate", TEXT, *MINILM, "--head", "L5H12"), 3, "there is no head 12"),
        (("ablate", TEXT, *MINILM, "--head", "L6H1"), 3, "there is no layer 6"),
        (("ablate", TEXT, *MINILM, "--head", "L5H11,3"), 2, "L5H11,L3H1"),
        (("ablate", TEXT, *MINILM, "--head", "L5H11", "--layer", "5"), 2, "one or the other"),
        (("logits", TEXT, *MINILM), 4, "no linear output head"),
        (("patch", "a b c", "a b"), 3, "3 tokens"),
        (("patch", "a b c", "a b d", "--target", "x"), 4, "predicts no next token"),
        (("patch", "a b c", "a b c"), 3, "the same"),
    ],
)
def test_refusals(arguments: tuple[str, ...], code: int, said: str) -> None:
    answer = ask(*arguments)
    assert answer.code == code, answer.err
    assert said in " ".join(answer.err.split())
    assert answer.out == ""
    assert json.loads(ask(*arguments, "--json").err.splitlines()[-1])["error"]["code"] == code


def test_the_guide_tells_what_is_measured() -> None:
    """The numbers of the page about importance are those of the known values; both languages have
    the same ones.
    """
    import re

    pages = [
        (SAMPLES.parent / f"attncli/language/guide/{lang}/importance.md").read_text("utf-8")
        for lang in ("en", "zh")
    ]
    numbers = [sorted(re.findall(r"\b0\.\d+\b", page)) for page in pages]
    assert numbers[0] == numbers[1]
    document = ask("ablate", TEXT, *MINILM, "--query", "it", "--json").json
    first = document["effects"][0]
    for value in (first["vector"]["cosine"], first["random"]["vector"]["cosine"]):
        assert f"{value:.3f}" in numbers[0]
    assert sum(row["layer"] >= 3 for row in document["effects"][:10]) == 9


def test_long_work_is_foretold(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("ablate", "it was tired", *MINILM, "--brief", "--baseline", "none")
    assert ask(*asked).err == ""
    monkeypatch.setattr(pair_answer, "PATIENCE", 0.0)
    assert "72 heads, 5 tokens: about" in ask(*asked).err


@pytest.mark.parametrize(
    "line",
    [
        ("ablate", "a b c"),
        ("ablate", "a b c", "--measure", "logprob"),
        ("logits", "a b c"),
        ("patch", "a b c", "a c c"),
        ("find", "a b c", "--from", "c", "--to", "a", "--effect"),
    ],
)
def test_numbers_that_leave_their_type_are_told(line: tuple[str, ...], small: str) -> None:
    found = ask(*line, "--model", small, "--scale", "1e308")
    assert (found.code, found.out) == (3, "")
    assert "--scale" in found.err or "--dtype" in found.err


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(small_gpt2(tmp_path_factory.mktemp("small")))


def test_what_all_tokens_look_at_on_average_is_tinted() -> None:
    asked = ("a b c d", "--num-heads", "2")
    first = ask("ablate", *asked, "--json").json["effects"][0]
    head = ask("run", *asked, "--json").json["layers"][0]["heads"][first["head"]]
    mean = np.mean(head["weights"], axis=0)
    assert first["looks"] == {
        "key": int(mean.argmax()),
        "weight": pytest.approx(float(mean.max()), abs=1e-6),
    }
    shown = ask("ablate", *asked, "--brief").out.splitlines()
    assert re.findall("[░▒▓█](.)[░▒▓█]", shown[0]) == ["abcd"[int(mean.argmax())]]


def test_a_head_that_looks_most_at_a_learned_key_looks_at_no_token(tmp_path: Path) -> None:
    drawn, width = np.random.default_rng(0), 16
    shapes = {
        "in_proj_weight": (48, width),
        "in_proj_bias": (48,),
        "out_proj.weight": (width, width),
    }
    arrays = {name: drawn.standard_normal(shape) for name, shape in shapes.items()}
    arrays |= {name: 20 * drawn.standard_normal((1, 1, width)) for name in ("bias_k", "bias_v")}
    file = tmp_path / "learned.npz"
    np.savez(
        file,
        **{name: array.astype(np.float32) for name, array in arrays.items()},
        **{"out_proj.bias": np.zeros(16, np.float32)},
    )
    for more in ((), ("--query", "a")):
        found = ask(
            "ablate", "a b c d", "--weights", str(file), "--num-heads", "4", *more, "--json"
        )
        assert found.code == 0, found.err
        looks = [row["looks"] for row in found.json["effects"]]
        assert None in looks
        assert all(one is None or one["key"] < 4 for one in looks)
        assert ask("ablate", "a b c d", "--weights", str(file), "--num-heads", "4", *more).code == 0


@pytest.mark.many
@pytest.mark.parametrize("command", [("run",), ("ablate",), ("patch", "the dog sat")])
def test_a_token_counted_from_the_end_is_named(command: tuple[str, ...]) -> None:
    answer = ask(*command, "the cat sat", "--model", "minilm", "--query", "#-1")
    assert answer.code == 0
    assert "'#-1' is token 4, '[SEP]'" in answer.err
    assert (
        "是词元 #4"
        in ask(*command, "the cat sat", "--model", "minilm", "--query", "#-1", "--lang", "zh").err
    )
    assert "is token" not in ask(*command, "the cat sat", "--model", "minilm", "--query", "cat").err


def test_a_target_that_the_model_does_not_know_is_refused(tmp_path: Path) -> None:
    """Every word that is no entry has one and the same id: its logit is not that of the word."""
    words = {"[UNK]": 0, "the": 1, "cat": 2, "sat": 3}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"},
    }
    folder = small_gpt2(tmp_path / "model")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    asked = ("the cat sat", "--model", str(folder))
    for command in (
        ("logits", "--target"),
        ("logits", "--target", "cat", "--versus"),
        ("ablate", "--measure", "logprob", "--target"),
    ):
        answer = ask(command[0], *asked, *command[1:], "nope")
        assert (answer.code, answer.out) == (3, ""), answer.err
        assert "'nope' is unknown to this model" in answer.err
        assert ask(command[0], *asked, *command[1:], "sat").code == 0
