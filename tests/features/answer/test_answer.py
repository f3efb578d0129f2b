"""What an answer loses without a region, against transformers with masks, and how it is told."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from msgspec.structs import replace
from small_gpt2 import small_gpt2
from tiny_checkpoints import CASES, make

import attncli
import attncli.features.answer.cut_runs as cut_runs_module
from attncli.draw.view import View
from attncli.features.answer.answer_words import share_text
from attncli.features.answer.compute import SENTENCE, _AnswerWork, _sentences
from attncli.features.answer.cut_runs import Cut, CutRuns, CutWay
from attncli.features.answer.screen import answer_sentences
from attncli.inputs.regions import Region, leaf_regions
from attncli.mechanism.context import KnockOut
from attncli.models.verify import reference_model

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13, 2, 8)
ANSWER = (4, 9, 1)
REGIONS = ((1, 2, 3), (4, 6), (7, 8, 9), (10, 11))
CUTS = [
    Cut("own"),
    *(
        Cut(str(members), tuple(REGIONS[place] for place in members))
        for size in (1, 4)
        for members in combinations(range(4), size)
    ),
]
TEXT = "the cat sat and the dog sat"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(CASES["llama"], tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(small_gpt2(tmp_path_factory.mktemp("answers") / "gpt2"))


def cut_runs(folder: Path, way: CutWay, dtype: str) -> CutRuns:
    model = attncli.load(folder, dtype=dtype)
    tokens = model.tokenizer.ids_to_tokens([*IDS, *ANSWER[:-1]])
    placed = tuple(replace(token, index=place) for place, token in enumerate(tokens))
    return CutRuns(model, placed, ANSWER, way)


def expected(folder: Path, way: CutWay) -> dict[str, np.ndarray]:
    """Log probabilities of the answer in transformers, each run by itself: with a mask of all pairs,
    or with the text left out."""
    import torch
    from safetensors.torch import load_file

    head = load_file(folder / "model.safetensors")["lm_head.weight"].double()
    ids = [*IDS, *ANSWER[:-1]]
    result = {}
    with reference_model(folder, both=False) as model:
        for cut in CUTS:
            keep = list(range(len(ids)))
            if way == "text":
                keep = [place for place in keep if not any(place in r for r in cut.regions)]
            hidden = torch.zeros(len(keep), len(keep), dtype=torch.float64)
            for row, query in enumerate(keep):
                for column, key in enumerate(keep):
                    unseen = any(key in r and query not in r for r in cut.regions)
                    if key > query or (way == "links" and unseen):
                        hidden[row, column] = torch.finfo(torch.float64).min
            states = model(
                torch.tensor([[ids[place] for place in keep]]), attention_mask=hidden[None, None]
            ).last_hidden_state[0]
            logs = torch.log_softmax(states[-len(ANSWER) :] @ head.T, -1)
            result[cut.key] = logs[range(len(ANSWER)), list(ANSWER)].numpy()
    return result


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["links", "text"])
def test_cuts_are_what_masks_in_transformers_do(way: CutWay, llama: Path) -> None:
    oracle = expected(llama, way)
    for dtype, limit in (("float64", 1e-9), ("float32", 1e-4)):
        runs = cut_runs(llama, way, dtype)
        found = {run.cut.key: run for run in runs.run(CUTS)}
        assert found.keys() == oracle.keys()
        for key, run in found.items():
            assert np.abs(run.logprobs - oracle[key]).max() < limit, (key, dtype)
        shares = found["own"].shares
        assert shares is not None
        assert shares.sum(1) == pytest.approx(1.0)
        assert all(found[cut.key].shares is None for cut in CUTS[1:])
    # every effect is there to be measured, and a wrong cut is seen
    assert min(np.abs(oracle[cut.key] - oracle["own"]).max() for cut in CUTS[1:]) > 1e-3


@pytest.mark.parametrize("way", ["links", "text"])
def test_what_runs_have_in_common_is_computed_once(
    way: CutWay, gpt2: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = cut_runs(Path(gpt2), way, "float64")
    count = len(IDS) + len(ANSWER) - 1
    told: list[int] = []
    shared = {run.cut.key: run for run in runs.run(CUTS, told.append)}
    assert len(shared) == len(CUTS)
    assert sum(told) == runs.planned_tokens(CUTS) < 0.8 * count * len(CUTS)
    # each run by itself, as for keys that a longer text turns otherwise
    monkeypatch.setattr(cut_runs_module, "keeps_past", lambda spec, before, after: False)
    assert runs.planned_tokens(CUTS) == count * len(CUTS)
    for run in runs.run(CUTS):
        assert np.abs(run.logprobs - shared[run.cut.key].logprobs).max() < 1e-10
        if run.shares is not None:
            assert run.shares == pytest.approx(shared["own"].shares, abs=1e-10)


@pytest.mark.parametrize("way", ["links", "text"])
def test_runs_that_begin_with_the_own_keys_are_those_from_scratch(
    way: CutWay, gpt2: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = cut_runs(Path(gpt2), way, "float64")
    told: list[int] = []
    # a region at the very end, behind which only the answer comes
    cuts = [*CUTS, Cut("last", ((len(IDS) - 1,),)), Cut("answer", ((len(IDS),),))]
    past: dict[Any, Any] = {}
    list(runs.model.trace(list(runs.tokens), past=past, keep=()))
    for known in (None, past):
        keys, own = runs.own_run(known)
        found = {run.cut.key: run for run in runs.run(cuts[1:], told.append, keys)}
        found["own"] = own
        if known is None:
            planned = runs.planned_tokens(cuts[1:], after_own=True)
            assert sum(told) == planned < runs.planned_tokens(cuts)
        with monkeypatch.context() as patch:
            patch.setattr(cut_runs_module, "keeps_past", lambda spec, before, after: False)
            scratch = {run.cut.key: run for run in runs.run(cuts)}
        assert found.keys() == scratch.keys()
        for key, run in found.items():
            assert np.abs(run.logprobs - scratch[key].logprobs).max() < 1e-10, key
        assert own.shares == pytest.approx(scratch["own"].shares, abs=1e-10)


def test_runs_part_where_their_cuts_do(gpt2: str) -> None:
    runs = cut_runs(Path(gpt2), "links", "float32")
    # the own run is looked at from where the answer begins, and a region reads itself as before
    assert runs.planned_tokens([CUTS[0], Cut("last", ((10, 11),))]) == 11 + 3 + 3
    assert runs.planned_tokens([Cut("a", ((4, 5),)), Cut("b", ((4, 5),))]) == 14


def test_leaves_are_regions_without_those_inside() -> None:
    regions = [
        Region("user", tuple(range(2, 12))),
        Region("doc1", (3, 4, 5)),
        Region("name", (4,)),
        Region("same", (3, 4, 5)),
        Region("across", (11, 12)),
        Region("filled", (7, 8)),
        Region("left", (7,)),
        Region("right", (8,)),
    ]
    leaves = {leaf.name: leaf for leaf in leaf_regions(regions)}
    assert set(leaves) == {"user", "name", "same", "across", "left", "right"}
    assert leaves["user"].tokens == (2, 6, 9, 10, 11)
    assert leaves["same"].tokens == (3, 5)  # of two with the same tokens the later one is kept
    assert leaves["user"].without == ("doc1", "name", "same", "filled", "left", "right")
    assert leaves["across"].without == ()


LINE = ("--region", "cat=/the cat sat/", "--region", "dog=/the dog sat/")


def answered(gpt2: str, *more: str) -> dict[str, Any]:
    answer = ask("answer", TEXT, "--model", gpt2, *LINE, *more, "--json")
    assert answer.code == 0, answer.err
    return answer.json


def test_the_document_tells_the_whole_answer(gpt2: str) -> None:
    document = answered(gpt2, "--tokens", "6")
    answer = document["answer"]
    written = ask("run", TEXT, "--model", gpt2, "--generate", "6", "--json").json
    ids = [token["id"] for token in written["generated"]]
    assert [row["token"]["id"] for row in answer["tokens"]] == ids
    assert answer["text"] == written["continuation"]
    mean = np.mean([np.log(step["probability"]) for step in written["steps"]])
    assert answer["logprob"] == pytest.approx(mean, abs=1e-5)
    names = [row["name"] for row in document["regions"]]
    assert names == ["cat", "dog", "rest"]
    assert [row["change"] for row in document["effects"]] == sorted(
        row["change"] for row in document["effects"]
    )
    for row in document["effects"]:
        spans = [(part["first"], part["stop"]) for part in answer["sentences"]]
        weights = [stop - first for first, stop in spans]
        assert np.average(row["by_sentence"], weights=weights) == pytest.approx(row["change"])
        assert row["is_source"] == (names[row["region"]] != "rest")
    assert sum(row["attention"] for row in document["effects"]) < 1


def test_the_share_of_work_that_is_told_never_passes_one(tmp_path: Path) -> None:
    """A written answer leaves the prompt's keys behind: its tokens are neither planned nor run again."""
    model = attncli.load(small_gpt2(tmp_path / "gpt2"))
    regions = [Region("cat", (0, 1, 2)), Region("dog", (4, 5, 6))]
    shares: list[float] = []
    attncli.answer(model, TEXT, regions, length=4, progress=shares.append)
    assert len(set(shares)) > 2
    assert min(shares) > 0
    assert max(shares) == shares[-1] == 1


def test_a_target_is_measured_as_each_region_does(gpt2: str) -> None:
    document = answered(gpt2, "--target", "the cat")
    other = ask(
        *("ablate", TEXT, "--model", gpt2, *LINE, "--each-region", "--target", "the cat"),
        "--json",
    ).json
    count = len(document["answer"]["tokens"])
    changes = {row["region"]: row["change"] for row in other["effects"]}
    assert document["answer"]["logprob"] * count == pytest.approx(other["logprob"], abs=1e-5)
    for row in document["effects"]:
        assert row["change"] * count == pytest.approx(changes[row["region"]], abs=1e-5)


def test_text_left_out_is_the_text_without_it(gpt2: str) -> None:
    document = answered(gpt2, "--target", "the cat", "--cut", "text")
    (row,) = (row for row in document["effects"] if row["region"] == 1)
    left = set(document["regions"][1]["tokens"])
    ids = " ".join(str(token["id"]) for token in document["tokens"] if token["index"] not in left)
    target = " ".join(f"id:{part['token']['id']}" for part in document["answer"]["tokens"][:1])
    first = ask("next", "--ids", ids, "--model", gpt2, "--target", target, "--json").json
    changes = {part["region"]: part for part in document["effects"]}
    assert document["cut"] == "text"
    assert row == changes[1]
    logs = np.log(first["target"]["probability"])
    if len(document["answer"]["tokens"]) == 1:
        assert row["logprob"] == pytest.approx(logs, abs=1e-5)
    else:
        assert np.isfinite(logs)


@pytest.mark.parametrize("way", ["links", "text"])
def test_the_other_answer_is_what_is_written_without_the_region(way: CutWay, gpt2: str) -> None:
    """Against a whole run for every token, with its own knock-outs or without the text."""
    model = attncli.load(gpt2, dtype="float64")
    prompt = list(model.encode(TEXT))
    closed = tuple(range(10))
    if way == "text":
        prompt = [token for token in prompt if token.index not in closed]
    ids: list[int] = []
    ended = False
    while len(ids) < 6 and not ended:
        whole = [token.id for token in prompt] + ids
        tokens = [
            replace(token, index=place)
            for place, token in enumerate(model.tokenizer.ids_to_tokens(whole))
        ]
        asking = tuple(place for place in range(len(tokens)) if place not in closed)
        heads = range(model.n_heads)
        changes: Any = {}
        if way == "links":
            changes = {
                (layer, "self"): [KnockOut(tuple(heads), asking, closed)]
                for layer in range(model.n_layers)
            }
        *_, last = model.trace(tokens, keep=(), interventions=changes)
        number = int(np.asarray(model.logits(last.after))[-1].argmax())
        ended = number in model.ends
        ids += [number] * (not ended)
    runs = CutRuns(model, tuple(model.encode(TEXT)), (0,), way)
    assert runs.write(Cut("a", (closed,)), 6) == (ids, ended)
    assert runs.write(Cut("own"), 6) != (ids, ended)


def test_regions_that_matter_have_another_answer(
    gpt2: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_AnswerWork, "matters", lambda work, results, place: place == 1)
    effects = {row["region"]: row for row in answered(gpt2, "--tokens", "6")["effects"]}
    assert [place for place, row in effects.items() if row["other_answer"]] == [1]
    assert len(effects[1]["other_answer"]["tokens"]) == 6 or effects[1]["other_answer"]["ended"]
    given = answered(gpt2, "--target", "the cat")["effects"]
    assert all(row["other_answer"] is None for row in given)


def test_python_compares_the_same_regions_as_the_command(tmp_path: Path) -> None:
    """Neither messages nor the rest, unless nothing else has tokens of its own; the order in which
    regions are named is of no account."""
    gpt2 = small_gpt2(tmp_path / "gpt2", longest=96)
    template = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}"
    (tmp_path / "template.jinja").write_text(template)
    messages = [{"role": "system", "content": "the cat"}, {"role": "user", "content": TEXT}]
    (tmp_path / "chat.json").write_text(json.dumps(messages))
    spec = {"cat": "/the cat sat/", "dog": "/the dog sat/"}
    model = attncli.load(gpt2)
    for regions in (spec, {}):
        options = [f"--region={name}={places}" for name, places in regions.items()]
        told = ask(
            *("answer", "--model", str(gpt2), "--chat", str(tmp_path / "chat.json")),
            *("--chat-template", str(tmp_path / "template.jinja"), *options),
            *("--target", "the cat", "--json"),
        )
        assert told.code == 0, told.err
        prompt = model.chat(messages, regions=regions, template=tmp_path / "template.jinja")
        whole = (model, prompt.text, prompt.regions)
        given: dict[str, Any] = {"tokens": prompt.tokens, "target": "the cat"}
        document = attncli.answer(*whole, **given)
        judged = [(row.region, row.is_source, row.matters) for row in document.effects]
        of_command = [
            (row["region"], row["is_source"], row["matters"]) for row in told.json["effects"]
        ]
        assert judged == of_command
        compared = [document.regions[row.region].name for row in document.effects if row.is_source]
        assert set(compared) == set(regions or ("system", "user"))
        again = attncli.answer(*whole, **given, sources=compared[::-1])
        assert [(row.region, row.is_source, row.matters) for row in again.effects] == judged


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("It is 3.5 m. She left! Why?", ["It is 3.5 m. ", "She left! ", "Why?"]),
        ("他走了。“真的！”她说。", ["他走了。", "“真的！”", "她说。"]),
        ("one\ntwo", ["one\n", "two"]),
        ("no end", ["no end"]),
    ],
)
def test_sentences_end_where_they_do(text: str, sentences: list[str]) -> None:
    assert [match.group() for match in SENTENCE.finditer(text) if match.group()] == sentences


def test_what_cannot_be_answered_is_an_error(gpt2: str) -> None:
    for line, code, word in (
        ((), 3, "no regions to cut off"),
        (("--region", "cat=/cat/", "--cut", "heads"), 2, "--cut"),
        (("--region", "cat=/cat/", "--tokens", "0"), 2, "--tokens"),
    ):
        answer = ask("answer", TEXT, "--model", gpt2, *line)
        assert (answer.code, word in answer.err) == (code, True), answer.err
    model = attncli.load(gpt2)
    with pytest.raises(attncli.AttnError, match="no region 'bird'"):
        attncli.answer(model, TEXT, [attncli.Region("cat", (1,))], target="the", sources=["bird"])


def test_an_interruption_keeps_what_is_known(
    gpt2: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ("answer", TEXT, "--model", gpt2, *LINE, "--tokens", "4", "--json")
    whole = ask(*line, XDG_CACHE_HOME=str(tmp_path / "other")).out
    run, count = CutRuns._run, []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        count.append(1)
        if len(count) == 5:
            raise KeyboardInterrupt
        return run(*arguments, **options)

    monkeypatch.setattr(CutRuns, "_run", interrupted)
    answer = ask(*line, XDG_CACHE_HOME=str(tmp_path))
    assert (answer.code, answer.out) == (130, "")
    assert "are done and kept" in answer.err
    assert ask(*line, XDG_CACHE_HOME=str(tmp_path)).out == whole
    assert not list((tmp_path / "attn" / "answers").iterdir())


def test_each_region_tells_parents_without_what_is_inside(gpt2: str) -> None:
    line = ("--region", "all=tokens:0-9", "--region", "cat=/the cat/", "--target", "the")
    document = ask("ablate", TEXT, "--model", gpt2, *line, "--each-region", "--json").json
    members = {row["name"]: row["tokens"] for row in document["regions"]}
    assert not set(members["all"]) & set(members["cat"])
    (parent,) = (row for row in document["effects"] if "without" in row)
    assert (document["regions"][parent["region"]]["name"], parent["without"]) == ("all", ["cat"])
    answer = ask("ablate", TEXT, "--model", gpt2, *line, "--each-region")
    assert "all (other)" in answer.out
    assert "share tokens" not in answer.err


def test_a_loss_below_twice_what_random_spans_change_is_not_clear(gpt2: str) -> None:
    """A loss that could be chance is neither a reason nor proof that there is none."""
    regions = [Region("a", (0, 1)), Region("b", (2, 3))]
    document = attncli.answer(attncli.load(gpt2), TEXT, regions=regions, length=2)
    effects = []
    for effect in document.effects:
        loss = -0.35 if effect.is_source else 0.0
        effects.append(
            replace(
                effect, change=loss, random=[0.28, -0.1], matters=False, attention=0.1, even=0.2
            )
        )
    document = replace(document, effects=effects)
    said = "\n".join(answer_sentences(document, View()))
    assert "It is not clear whether the answer rests on one of these regions." in said
    assert "rises or falls by up to 0.28" in said
    assert "rests on none" not in said
    small = [replace(effect, change=0.0) for effect in effects]
    said = "\n".join(answer_sentences(replace(document, effects=small), View()))
    assert "The answer rests on none of these regions." in said
    used = [replace(effect, matters=effect.is_source) for effect in effects]
    said = "\n".join(answer_sentences(replace(document, effects=used), View()))
    assert "gets most attention for its length, but less than an even share" in said


def test_small_probabilities_are_told_apart() -> None:
    assert [share_text(logprob) for logprob in (-0.3, -5.0, -8.0, -11.0)] == [
        "74%",
        "0.7%",
        "0.03%",
        "0.002%",
    ]


def test_many_regions_need_no_deep_stack(gpt2: str) -> None:
    runs = cut_runs(Path(gpt2), "links", "float32")
    long = CutRuns(runs.model, runs.tokens * 300, (1,))
    cuts = [Cut("own"), *(Cut(str(place), ((place,),)) for place in range(1500))]
    ends = [cut.key for part in long.stretches(cuts) for cut in part.ends]
    assert sorted(ends) == sorted(cut.key for cut in cuts)


def test_a_region_is_judged_by_its_own_random_spans(
    gpt2: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A region that fails against spans of its size says nothing of a smaller one."""
    losses = {"region 0": -0.5, "region 1": -0.3, "region 2": -0.01}

    def change(self: object, results: object, key: str) -> np.ndarray:
        return np.array([losses.get(key, -0.4 if key.startswith("random 0") else 0.0)])

    monkeypatch.setattr(_AnswerWork, "changes", change)
    model = attncli.load(gpt2)
    regions = [Region("a", (0, 1)), Region("b", (2,)), Region("c", (3,))]
    told = attncli.answer(model, TEXT, regions, target="the")
    assert {
        told.regions[row.region].name: row.matters for row in told.effects if row.is_source
    } == {
        "a": False,
        "b": True,
        "c": False,
    }


def test_what_leaves_nothing_or_stands_twice_is_told(gpt2: str) -> None:
    begin = ("answer", TEXT, "--model", gpt2, "--tokens", "2")
    model = attncli.load(gpt2)
    whole = Region("a", tuple(range(len(model.encode(TEXT)))))
    with pytest.raises(attncli.AttnError, match="no token of the prompt is left"):
        attncli.answer(model, TEXT, [whole], length=2, cut="text")
    twice = ask(*begin, "--region", "a=/cat/", "--region", "b=/cat/")
    assert twice.code == 0, twice.err
    few = (
        "--region",
        "a=/cat/",
        "--region",
        "b=/sat/",
        "--region",
        "c=/dog/",
        "--region",
        "d=/and/",
    )
    refused = ask(*begin, *few, "--subsets", "1")
    assert (refused.code, "too few to fit to" in refused.err) == (3, True)


def test_blanks_at_the_beginning_are_no_sentence() -> None:
    text = "\n\nOne. Two."
    spans = [(0, 2), (2, 6), (6, 11)]
    told = [(sentence.text, sentence.first) for sentence in _sentences(text, spans)]
    assert told == [("One.", 0), ("Two.", 2)]
