"""Heads that carry a region and doses on it: against transformers with masks, slopes against finite
differences, and how they are told."""

from __future__ import annotations

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
from attncli.features.answer.compute import _AnswerWork, largest_losses
from attncli.features.answer.cut_runs import Cut, CutRun, CutRuns, HeadLinks
from attncli.features.answer.head_estimates import HeadEstimate, head_estimates
from attncli.features.effects.weighing import Weighing
from attncli.mechanism.context import KnockOut, Replace
from attncli.mechanism.trace import head_outputs
from attncli.models.verify import reference_model

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13, 2, 8)
ANSWER = (4, 9, 1)
REGION = (4, 5, 6)
TEXT = "the cat sat and the dog sat"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(CASES["llama"], tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(small_gpt2(tmp_path_factory.mktemp("carriers") / "gpt2"))


def cut_runs(folder: Path | str, dtype: str) -> CutRuns:
    model = attncli.load(folder, dtype=dtype)
    tokens = model.tokenizer.ids_to_tokens([*IDS, *ANSWER[:-1]])
    placed = tuple(replace(token, index=place) for place, token in enumerate(tokens))
    return CutRuns(model, placed, ANSWER)


def heads_of(runs: CutRuns) -> list[tuple[int, int]]:
    spec = runs.model.spec
    return [
        (layer, head)
        for layer in spec.attending()
        for head in range(spec.blocks[layer].attention.heads)
    ]


def reference(
    folder: Path, masks: dict[str, dict[tuple[int, int] | None, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Log probabilities of the answer in transformers. masks: by run what is added to the scores of a
    head, (layer, head), or of all, [query, key], beside the causal mask."""
    import torch
    from safetensors.torch import load_file

    head = load_file(folder / "model.safetensors")["lm_head.weight"].double()
    ids = [*IDS, *ANSWER[:-1]]
    count = len(ids)
    causal = torch.triu(torch.full((count, count), -1e300, dtype=torch.float64), 1)
    result = {}
    with reference_model(folder, both=False) as model:
        heads = model.config.num_attention_heads
        for name, added in masks.items():
            hooks = []
            for layer, part in enumerate(model.layers):
                mask = causal.expand(heads, count, count).clone()
                for place, matrix in added.items():
                    if place is None:
                        mask += torch.tensor(matrix)
                    elif place[0] == layer:
                        mask[place[1]] += torch.tensor(matrix)

                def put(
                    module: Any, arguments: Any, options: Any, mask: Any = mask
                ) -> tuple[Any, Any]:
                    return arguments, {**options, "attention_mask": mask[None]}

                hooks.append(part.self_attn.register_forward_pre_hook(put, with_kwargs=True))
            states = model(torch.tensor([ids])).last_hidden_state[0]
            for hook in hooks:
                hook.remove()
            logs = torch.log_softmax(states[-len(ANSWER) :] @ head.T, -1)
            result[name] = logs[range(len(ANSWER)), list(ANSWER)].detach().numpy()
    return result


def hidden_from_answer() -> np.ndarray:
    """What hides the region from the answer's queries, [query, key]."""
    count = len(IDS) + len(ANSWER) - 1
    matrix = np.zeros((count, count))
    matrix[len(IDS) - 1 :, list(REGION)] = -1e300
    return matrix


@pytest.mark.thorough
def test_heads_and_doses_are_what_masks_in_transformers_do(llama: Path) -> None:
    runs = cut_runs(llama, "float64")
    heads = heads_of(runs)
    cuts = [Cut(str(place), change=HeadLinks(REGION, (place,))) for place in heads]
    cuts.append(Cut("every", change=HeadLinks(REGION, tuple(heads))))
    masks = {str(place): {place: hidden_from_answer()} for place in heads}
    masks["own"] = {}
    masks["every"] = {None: hidden_from_answer()}
    count = len(IDS) + len(ANSWER) - 1
    for factor in (0.0, 0.5, 4.0):
        added = np.zeros((count, count))
        added[:, list(REGION)] = np.log(factor) if factor else -1e300
        masks[f"dose {factor}"] = {None: added}
        cuts.append(Cut(f"dose {factor}", change=Weighing("region", REGION, factor)))
    chosen = {heads[1]: np.zeros((count, count))}
    chosen[heads[1]][:, list(REGION)] = np.log(3.0)
    masks["dose in a head"] = chosen
    cuts.append(Cut("dose in a head", change=Weighing("region", REGION, 3.0, (heads[1],))))
    oracle = reference(llama, masks)
    for dtype, limit in (("float64", 1e-9), ("float32", 1e-4)):
        runs = cut_runs(llama, dtype)
        keys, own = runs.own_run()
        assert np.abs(own.logprobs - oracle["own"]).max() < limit
        found = {run.cut.key: run.logprobs for run in runs.run(cuts, own=keys)}
        assert found.keys() | {"own"} == oracle.keys()
        for name, logprobs in found.items():
            assert np.abs(logprobs - oracle[name]).max() < limit, (name, dtype)
    least = min(np.abs(oracle[name] - oracle["own"]).max() for name in oracle if name != "own")
    assert least > 1e-4, "each cut is there to be measured"


def test_a_run_from_scratch_is_the_same(gpt2: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queries of the prompt go on seeing the region where the answer's do not."""
    runs = cut_runs(gpt2, "float64")
    cuts = [
        Cut("head", change=HeadLinks(REGION, ((0, 1),))),
        Cut("every", change=HeadLinks(REGION, tuple(heads_of(runs)))),
        Cut("dose", change=Weighing("region", REGION, 0.5)),
    ]
    keys, _ = runs.own_run()
    found = {run.cut.key: run.logprobs for run in runs.run(cuts, own=keys)}
    monkeypatch.setattr(cut_runs_module, "keeps_past", lambda spec, before, after: False)
    for run in runs.run(cuts):
        assert np.abs(run.logprobs - found[run.cut.key]).max() < 1e-10, run.cut.key


@pytest.mark.parametrize("family", ["gpt2", pytest.param("llama", marks=pytest.mark.thorough)])
def test_an_estimate_is_the_slope_of_the_cut(
    family: str, gpt2: str, request: pytest.FixtureRequest
) -> None:
    """A head that passes on a hundredth of the way to what it passes on without the region: the
    answer changes by a hundredth of the estimate."""
    runs = cut_runs(gpt2 if family == "gpt2" else request.getfixturevalue("llama"), "float64")
    keys, _ = runs.own_run()
    found = head_estimates(runs, keys, REGION)
    assert [(row.layer, row.head) for row in found] == heads_of(runs)
    first = runs.first_query
    asking = tuple(range(first, len(runs.tokens)))
    every = {
        layer: tuple(range(runs.model.spec.blocks[layer].attention.heads))
        for layer in runs.model.spec.attending()
    }
    for layer in runs.model.spec.attending():
        cut = {(layer, "self"): [KnockOut(every[layer], asking, REGION)]}
        mixed, without = (
            next(iter(runs.model.trace(runs.tokens, layers=[layer], interventions=changes)))
            for changes in ({}, cut)
        )
        before, after = (np.asarray(head_outputs(trace.stages)) for trace in (mixed, without))
        shares = np.asarray(mixed.stages["weights"])[:, first:, list(REGION)].sum(-1).mean(-1)
        for row in (row for row in found if row.layer == layer):
            ends = []
            for step in (0.01, -0.01):
                moved = before[row.head] + step * (after[row.head] - before[row.head])
                put = {(layer, "self"): [Replace((row.head,), moved[None])]}
                last = len(runs.model.spec.blocks) - 1
                (trace,) = runs.model.trace(runs.tokens, layers=[last], interventions=put)
                ends.append(runs._logprobs(trace.after[first:]).mean())
            assert row.change == pytest.approx((ends[0] - ends[1]) / 0.02, rel=1e-3, abs=1e-7)
            assert row.attention == pytest.approx(shares[row.head])
    assert max(abs(row.change) for row in found) > 1e-3


LINE = ("--region", "cat=/the cat sat/", "--region", "dog=/the dog sat/", "--target", "the cat")


@pytest.fixture
def matters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of a random model rests on the first region."""
    monkeypatch.setattr(
        _AnswerWork, "matters", lambda self, results, place: True if place == 0 else None
    )


@pytest.mark.usefixtures("matters")
def test_heads_are_told_by_exact_runs(gpt2: str) -> None:
    line = ("answer", TEXT, "--model", gpt2, *LINE, "--each-head")
    document = ask(*line, "--json").json
    part = document["carriers"]
    model = attncli.load(gpt2)
    assert part["count"] == sum(block.attention.heads for block in model.spec.blocks)
    assert [row["change"] for row in part["heads"]] == sorted(
        row["change"] for row in part["heads"]
    )
    region = document["regions"][part["region"]]
    assert region["name"] == "cat"
    # each head again, in the whole text run by itself
    ids = [row["token"]["id"] for row in document["answer"]["tokens"]]
    tokens = model.encode(TEXT)
    first = len(tokens) - 1
    new = model.tokenizer.ids_to_tokens([token.id for token in tokens] + ids[:-1])
    placed = [replace(token, index=place) for place, token in enumerate(new)]
    asking = tuple(place for place in range(first, len(placed)) if place not in region["tokens"])
    last = len(model.spec.blocks) - 1
    runs = CutRuns(model, tuple(placed), tuple(ids))
    for row in part["heads"]:
        cut = KnockOut((row["head"],), asking, tuple(region["tokens"]))
        (trace,) = model.trace(placed, layers=[last], interventions={(row["layer"], "self"): [cut]})
        logprob = runs._logprobs(trace.after[first:]).mean()
        change = logprob - document["answer"]["logprob"]
        assert row["change"] == pytest.approx(change, abs=1e-6)
    screen = ask(*line).out
    assert "the answer's queries cut off from" in screen
    assert "puts first, its mean log probability changes by" in " ".join(screen.split())
    plain = ask(*line, "--plain").out.splitlines()
    assert len([row for row in plain if row.split("\t")[-4].isdigit()]) == len(part["heads"])


def test_no_heads_are_told_where_no_region_matters(
    gpt2: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_AnswerWork, "matters", lambda self, results, place: False)
    document = ask("answer", TEXT, "--model", gpt2, *LINE, "--each-head", "--json").json
    assert "carriers" not in document
    assert any("rests on no region" in warning for warning in document["warnings"])


def test_an_interruption_does_not_say_that_no_region_matters(
    gpt2: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the regions that are measured do not matter, others still may."""
    monkeypatch.setattr(_AnswerWork, "matters", lambda self, results, place: False)
    keep = _AnswerWork._keep

    def interrupted(self: _AnswerWork, run: CutRun, done: Any) -> None:
        keep(self, run, done)
        if len(done.results.logprobs) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(_AnswerWork, "_keep", interrupted)
    told = ask("answer", TEXT, "--model", gpt2, *LINE, "--each-head")
    assert told.code == 130
    words = " ".join(f"{told.out} {told.err}".split())
    assert "interrupted" in words
    assert "--each-head has none" not in words


def test_heads_are_told_of_a_region_without_random_spans(
    gpt2: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_AnswerWork, "matters", lambda self, results, place: None)
    document = ask("answer", TEXT, "--model", gpt2, *LINE, "--each-head", "--json").json
    first = next(row for row in document["effects"] if row["is_source"])
    assert document["carriers"]["region"] == first["region"]


def test_a_dose_is_that_of_the_next_word(gpt2: str) -> None:
    """Of an answer of one token a dose is what `attn next --weigh` says."""
    line = ("--model", gpt2, *LINE[:4], "--weigh", "cat=×3")
    told = ask("answer", TEXT, *line, "--target", "id:7", "--json").json
    other = ask("next", TEXT, *line, "--target", "id:7", "--json").json
    assert told["doses"]["weighed"] == other["weighed"]
    theirs = {dose["factor"]: dose["probability"] for dose in other["doses"]}
    for dose in told["doses"]["doses"]:
        assert np.exp(dose["logprob"]) == pytest.approx(theirs[dose["factor"]], rel=1e-5)
        assert dose["change"] == pytest.approx(dose["logprob"] - told["answer"]["logprob"])
    assert [dose["factor"] for dose in told["doses"]["doses"]] == [0, 0.5, 1, 2, 3, 4]
    heads = ask("answer", TEXT, *line, "--heads", "L0H1", "--target", "id:7", "--json").json[
        "doses"
    ]
    assert heads["weighed"]["heads"] == [{"layer": 0, "head": 1}]
    assert heads["doses"][0]["change"] != pytest.approx(told["doses"]["doses"][0]["change"])


def test_a_factor_alone_weighs_what_the_answer_loses_most_without(gpt2: str) -> None:
    document = ask("answer", TEXT, "--model", gpt2, *LINE, "--weigh", "0.5", "--json").json
    first = next(row for row in document["effects"] if row["is_source"])
    name = document["regions"][first["region"]]["name"]
    weighed = document["doses"]["weighed"]
    assert (weighed["name"], weighed["factor"]) == (name, 0.5)
    assert weighed["keys"] == document["regions"][first["region"]]["tokens"]
    screen = " ".join(ask("answer", TEXT, "--model", gpt2, *LINE, "--weigh", "×0").out.split())
    assert f'With no attention on "{name}" (×0)' in screen


@pytest.mark.parametrize(
    ("more", "code", "word"),
    [
        (("--weigh", "-1"), 2, "--weigh is '-1'"),
        (("--weigh", "1/0"), 2, "--weigh is '1/0'"),
        (("--weigh", "cat=-1"), 2, "NAME=×FACTOR"),
        (("--weigh", "101"), 2, "from 0 to 100"),
        (("--weigh", "bird=2"), 3, "bird"),
        (("--weigh", "2", "--heads", "L9H1"), 3, "no layer 9"),
        (("--weigh", "2", "--heads", "fast"), 2, "no layer and head"),
        (("--heads", "L0H1"), 2, "--heads"),
        (("--tokens", "3"), 2, "--target is an answer that is given"),
    ],
)
def test_what_cannot_be_weighed_is_an_error(
    more: tuple[str, ...], code: int, word: str, gpt2: str
) -> None:
    answer = ask("answer", TEXT, "--model", gpt2, *LINE, *more)
    assert (answer.code, word in answer.err) == (code, True), answer.err


def test_the_heads_of_the_largest_estimated_loss_are_run() -> None:
    losses = (0.5, -2.0, -0.1, *(-0.01 * number for number in range(10)))
    rows = [HeadEstimate(0, head, change, 0.1) for head, change in enumerate(losses)]
    assert [row.head for row in largest_losses(rows)] == [1, 2, 12, 11, 10, 9, 8, 7, 6, 5]
