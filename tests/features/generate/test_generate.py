"""Continuing a text: the tokens are transformers', the rows those of one dense run, the shares add
up.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import oracles
import pytest
from asking import ask
from msgspec.structs import replace
from safetensors.numpy import load_file, save_file
from small_gpt2 import small_gpt2
from telling import telling
from tiny_checkpoints import CASES, make
from tiny_sizes import Case
from tiny_two_sided import TWO_SIDED
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from validity import validate

import attncli
from attncli.draw.encoding import json_bytes
from attncli.errors import LimitError, UnsupportedError
from attncli.features.generate.compute import continuation_text, generate
from attncli.inputs.regions import Region
from attncli.inputs.token import Token
from attncli.inputs.tokenize import ByteTokenizer
from attncli.mechanism.attend import span

generate = telling(generate)

IDS = [7, 3, 50, 11, 28]
PHI = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "original_max_position_embeddings": 6,
    "pad_token_id": 0,
}
LONG = {
    "type": "longrope",
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [2.0, 3.0, 4.0, 5.0],
}
NTK = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
CAUSAL = frozenset(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - {"bert", "xlnet", "roberta", "whisper"}
DECODERS = {
    **{
        name: replace(case, saved_by="AutoModelForCausalLM") if case.model_type in CAUSAL else case
        for name, case in CASES.items()
        if case.model_type not in TWO_SIDED
    },
    "phi3, its factors change": Case("phi3", {**PHI, "rope_scaling": LONG}, "AutoModelForCausalLM"),
    "llama, its base grows": Case(
        "llama",
        {**PHI, "max_position_embeddings": 6, "rope_scaling": NTK},
        "AutoModelForCausalLM",
    ),
}
"""The cases of one side, with heads that predict where there is one, and rotations that change with
the length of the text.
"""


@pytest.fixture(scope="module", params=["gpt2 with head", "llama"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(CASES[request.param], tmp_path_factory.mktemp("decoder"))


def test_greedy_tokens_are_those_of_transformers(folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    expected = reference.generate(
        torch.tensor([IDS]), max_new_tokens=7, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    model = attncli.load(folder, dtype="float64")
    document = generate(model, "", 7, rows=False, tokens=model.tokenizer.ids_to_tokens(IDS))
    assert [token["id"] for token in document["generated"]] == expected[0, len(IDS) :].tolist()


def test_rows_are_those_of_one_dense_run_and_shares_add_up(folder: Path) -> None:
    model = attncli.load(folder, dtype="float64")
    prompt = model.tokenizer.ids_to_tokens(IDS)
    regions = (
        Region("some", (0, 2)),
        Region("rest", tuple(place for place in range(len(IDS)) if place not in (0, 2))),
    )
    document = generate(model, "", 4, rows=True, regions=regions, tokens=prompt)
    validate(json.loads(json_bytes(document)), "attn.generate/1")
    ids = [*IDS, *(token["id"] for token in document["generated"])]
    dense = {
        trace.layer: trace.stages["weights"]
        for trace in model.trace(model.tokenizer.ids_to_tokens(ids))
    }
    for step in document["steps"]:
        for head in step["heads"]:
            row = dense[head["layer"]][head["head"], step["token"], : step["token"] + 1]
            assert np.allclose(head["weights"], row, atol=1e-12)
            assert head["context"] == pytest.approx(row[: len(IDS)].sum(), abs=1e-12)
            assert head["context"] + head["generated"] == pytest.approx(1)
            means = row[: len(IDS)].mean(), row[len(IDS) :].mean()
            assert head["lookback_per_key"] == pytest.approx(means[0] / sum(means))
            assert head["regions"][0] == pytest.approx(row[0] + row[2])
        assert step["lookback"] == pytest.approx(
            np.mean([head["context"] for head in step["heads"]])
        )
        assert step["even"] == pytest.approx(
            [len(region.tokens) / (step["token"] + 1) for region in regions]
        )


def continues(spec):
    """Whether a model of this Spec can continue texts by itself."""
    causal = all(span(block.attention.mask, 0, 0, 2) == (0, 1) for block in spec.blocks)
    return causal and spec.head is not None and not any(block.cross for block in spec.blocks)


@pytest.mark.many
@pytest.mark.parametrize("name", DECODERS)
def test_a_continuation_has_the_numbers_of_the_whole_text(name: str, tmp_path: Path) -> None:
    model = attncli.load(make(DECODERS[name], tmp_path), dtype="float64")
    if not continues(model.spec):
        pytest.skip("a model that does not continue texts")
    ids = [code % model.spec.vocabulary for code in (7, 3, 5)]
    tokens = model.tokenizer.ids_to_tokens(ids)
    count = min(10, (model.spec.max_positions or 99) - len(ids))
    document = attncli.generate(model, "", count, tokens=tokens)
    new = [token.id for token in document.generated]
    whole = model.tokenizer.ids_to_tokens([*ids, *new])
    last = len(model.spec.blocks) - 1
    for number, step in enumerate(document.steps):
        if number not in (3, 4, len(document.steps) - 1):
            continue
        text = whole[: len(ids) + number]
        traces = list(model.trace(text, idle=True))
        logits = model.logits(traces[-1].after[-1:])[-1]
        shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        assert traces[-1].layer == last
        assert np.isclose(shares[new[number]], step.probability, rtol=1e-6, atol=1e-9), number
        assert shares[new[number]] >= shares.max() - 1e-9, number
    rows = {(head.layer, head.head): head.weights for head in document.steps[-1].heads}
    for trace in model.trace(whole):
        for head, weights in enumerate(trace.stages["weights"]):
            assert np.allclose(weights[-1], rows[trace.layer, head], atol=1e-7), (trace.layer, head)


@pytest.mark.thorough
def test_draws_depend_on_the_seed_alone(folder: Path) -> None:
    model = attncli.load(folder)
    prompt = model.tokenizer.ids_to_tokens(IDS)

    def drawn(seed: int) -> list[int]:
        document = generate(model, "", 9, temperature=3.0, seed=seed, rows=False, tokens=prompt)
        return [token["id"] for token in document["generated"]]

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(4)}) > 1


@pytest.mark.parametrize("temperature", [0.0, 2.0, 1e-4])
def test_probabilities_are_those_of_the_logits(temperature: float, folder: Path) -> None:
    model = attncli.load(folder, dtype="float64")
    prompt = model.tokenizer.ids_to_tokens(IDS)
    document = generate(model, "", 1, temperature=temperature, rows=False, tokens=prompt)
    *_, last = model.trace(prompt, keep=())
    scaled = [float(logit) / (temperature or 1.0) for logit in model.logits(last.after[-1:])[0]]
    shares = oracles.softmax(scaled, [True] * len(scaled))
    (step,), (token,) = document["steps"], document["generated"]
    assert step["probability"] == pytest.approx(shares[token["id"]], rel=1e-9)


def test_a_draw_past_what_rounding_left_of_the_shares_takes_the_last_token(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = attncli.load(folder)
    prompt = model.tokenizer.ids_to_tokens(IDS)

    def drawn(number: int) -> int:
        monkeypatch.setattr("attncli.features.generate.compute.integers", lambda *asked: [number])
        (token,) = generate(model, "", 1, temperature=1.0, rows=False, tokens=prompt)["generated"]
        return int(token["id"])

    vocabulary = model.logits(np.zeros((1, model.spec.d_model), np.float32)).shape[-1]
    assert (drawn(0), drawn(2**40)) == (0, vocabulary - 1)


def test_what_cannot_be_continued_is_refused(folder: Path) -> None:
    model = attncli.load(folder)
    if model.spec.max_positions is not None:  # rotary positions have no end
        with pytest.raises(LimitError, match="positions"):
            generate(model, "", 100, rows=False, tokens=model.tokenizer.ids_to_tokens(IDS))
    minilm = attncli.load("minilm")
    with pytest.raises(UnsupportedError, match="later"):
        generate(minilm, "it", 1, rows=False, tokens=minilm.encode("it"))


def test_from_the_command_line(folder: Path) -> None:
    asked = ("run", "--model", str(folder), "--ids", " ".join(map(str, IDS)), "--generate", "3")
    screen = ask(*asked, width=60)
    assert screen.code == 0
    assert "lookback" in screen.out
    assert max(map(len, screen.out.splitlines())) <= 60
    document = ask(*asked, "--json", "--layer", "1").json
    validate(document, "attn.generate/1")
    assert {head["layer"] for head in document["steps"][0]["heads"]} == {1}
    assert len(ask(*asked, "--plain").out.splitlines()) == 1 + 3 * 3 * len(
        {head["head"] for head in document["steps"][0]["heads"]}
    )


def test_what_is_added_is_said_as_the_tokenizer_says_it(tmp_path: Path) -> None:
    """Blanks and characters of several bytes; the text with what was added is cut where the tokens
    lie.
    """
    import tokenizers

    asked = ("run", "爱 it", "--model", str(small_gpt2(tmp_path / "model")), "--generate", "20")
    document = ask(*asked, "--temperature", "40", "--sample-seed", "3", "--json").json
    assert (
        "按温度 40 抽取，种子 3\n"
        in ask(*asked, "--temperature", "40", "--sample-seed", "3", "--lang", "zh").out
    )
    (tmp_path / "forged.json").write_text(json.dumps({**document, "sample_seed": None}))
    assert "draws without a seed" in ask("view", str(tmp_path / "forged.json")).err
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "model" / "tokenizer.json"))
    prompt, new = ([token["id"] for token in document[name]] for name in ("tokens", "generated"))
    whole = theirs.decode([*prompt, *new])
    assert theirs.decode(prompt) + document["continuation"] == whole
    assert " " in document["continuation"]
    assert "\ufffd" in whole
    said = document["text"] + document["continuation"]
    for token in document["generated"]:
        if token["start"] is not None and not token["text"].startswith("<0x"):
            assert said[token["start"] : token["end"]].strip() == token["text"].strip()
    ends = [token["end"] for token in document["generated"] if token["end"] is not None]
    assert ends == sorted(ends)
    assert ends[-1] == len(said)
    shown = ask(*asked, "--brief").out
    assert "tint: what the new tokens, in brackets, look at most in any head" in shown
    assert shown.count("[") - shown.count("[CLS]") - shown.count("[SEP]") == 1


def test_a_character_of_several_bytes_is_said_when_its_last_byte_has_come() -> None:
    prompt = ByteTokenizer().encode("a")
    new = [Token(at, "", byte, None, None) for at, byte in enumerate("é b爱".encode(), 1)]
    model = SimpleNamespace(tokenizer=ByteTokenizer())
    assert continuation_text(model, prompt, new) == (
        "é b爱",
        [(0, 1), (0, 1), (1, 2), (2, 3), (3, 4), (3, 4), (3, 4)],
    )
    assert continuation_text(model, prompt, new[:1]) == ("\ufffd", [(0, 1)])


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (("--generate", "0"), 2),
        (("--generate", "2", "--query", "it"), 2),
        (("--temperature", "1"), 2),
        (("--generate", "2", "--temperature", "-1"), 2),
        (("--generate", "2", "--sample-seed", "3"), 2),
        (("--generate", "2"), 4),
    ],
)
def test_bad_questions(more: tuple[str, ...], code: int) -> None:
    found = ask("run", "it was", "--model", "minilm", *more)
    assert (found.code, found.out) == (code, "")
    assert len(found.err.splitlines()) <= 4


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        (None, None, 7),
        (None, "third", 3),
        ("third", None, 3),
        ("several", "second", 3),
        ({}, "second", 2),
        ({"eos_token_id": None}, ["x", None, True], 7),
    ],
)
def test_the_text_ends_where_the_checkpoint_says(
    generation: object, config: object, expected: int, folder: Path, tmp_path: Path
) -> None:
    """generation_config.json counts first, then config.json; one id or several."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)

    def write(name: str, **values: object) -> None:
        told = json.loads((tmp_path / name).read_text()) if (tmp_path / name).exists() else {}
        (tmp_path / name).write_text(json.dumps({**told, **values}))

    (tmp_path / "generation_config.json").unlink(missing_ok=True)
    write("config.json", eos_token_id=None)
    free = attncli.load(tmp_path, dtype="float64")
    prompt = free.tokenizer.ids_to_tokens(IDS)
    ids = [token["id"] for token in generate(free, "", 7, rows=False, tokens=prompt)["generated"]]
    assert len(ids) == 7
    named = {"second": ids[1], "third": ids[2], "several": [60, ids[2]]}
    first = {token: place for place, token in reversed(list(enumerate(ids, 1)))}
    if config is not None:
        write(
            "config.json",
            eos_token_id=named.get(config, config) if isinstance(config, str) else config,
        )
    if generation is not None:
        told = {"eos_token_id": named[generation]} if isinstance(generation, str) else generation
        write("generation_config.json", **told)
    document = generate(attncli.load(tmp_path, dtype="float64"), "", 7, rows=False, tokens=prompt)
    length = 7 if expected == 7 else first[ids[expected - 1]]
    assert [token["id"] for token in document["generated"]] == ids[:length]
    assert document["ended"] == (expected != 7)


@pytest.mark.parametrize("name", ["t5", "mt5", "bart", "opt post-norm"])
def test_models_whose_head_is_reached_another_way(name: str, tmp_path: Path) -> None:
    """Encoder-decoders continue their target; OPT's narrow models project before the head."""
    import torch
    import transformers

    made = make(CASES[name], tmp_path)
    told = json.loads((made / "config.json").read_text())
    for path in (made / "config.json", made / "generation_config.json"):
        path.write_text(json.dumps({**told, "eos_token_id": None}))
    model = attncli.load(made, dtype="float64")
    prompt = [2, 17, 33]
    if name.startswith("opt"):
        theirs = transformers.AutoModelForCausalLM.from_pretrained(made, dtype=torch.float64)

        def step(ids: list[int]) -> int:
            return int(theirs(input_ids=torch.tensor([ids])).logits[0, -1].argmax())
    else:
        theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(made, dtype=torch.float64)
        model = model.decoder(model.tokenizer.ids_to_tokens(IDS))

        def step(ids: list[int]) -> int:
            given = {"input_ids": torch.tensor([IDS]), "decoder_input_ids": torch.tensor([ids])}
            return int(theirs(**given).logits[0, -1].argmax())

    theirs.eval()
    expected = list(prompt)
    with torch.no_grad():
        for _ in range(5):
            expected.append(step(expected))
    document = generate(model, "", 5, rows=False, tokens=model.tokenizer.ids_to_tokens(prompt))
    assert [token["id"] for token in document["generated"]] == expected[3:]


def test_a_new_token_that_stands_for_unknown_words_is_marked(tmp_path: Path) -> None:
    """A vocabulary of words, of which a model that always says the unknown one makes the most."""
    vocabulary = {"<unk>": 0} | {
        word: at + 1 for at, word in enumerate(["the", "cat", "sat", "on", "a", "mat"])
    }
    folder = small_gpt2(tmp_path / "model", len(vocabulary))
    tokenizer = Tokenizer(models.WordLevel(vocabulary, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    weights = load_file(folder / "model.safetensors")
    weights["transformer.ln_f.weight"] *= 0
    weights["transformer.ln_f.bias"] = weights["transformer.wte.weight"][0] * 9
    save_file(weights, folder / "model.safetensors")
    asked = ("run", "the cat", "--model", str(folder), "--generate", "2")
    assert [token.get("unknown") for token in ask(*asked, "--json").json["generated"]] == [
        True,
        True,
    ]
    assert "<unk>?" in ask(*asked, "--show", "lookback").out


def test_weights_are_kept_between_tokens_where_memory_allows(folder: Path) -> None:
    asked = ("run", "--model", str(folder), "--ids", "1 5 7", "--generate", "6", "--verbose")
    kept = ask(*asked)
    again = ask(*asked, "--max-memory", str(size_of(folder) * 3 // 2))
    assert (kept.code, again.code) == (0, 0)
    assert "weights are kept for the next pass" in kept.err
    assert "weights are read in each pass" in again.err
    assert kept.out == again.out
    # once for the prompt and seven times for the tokens, the embeddings' rows aside
    assert bytes_read(again.err) > 4 * bytes_read(kept.err)


def size_of(folder: Path) -> int:
    return (folder / "model.safetensors").stat().st_size


def bytes_read(said: str) -> float:
    """What the effort, which --verbose says, calls bytes of weights read."""
    match = re.search(r"([\d.]+) (B|kB|MB) of weights read", said)
    assert match is not None
    return float(match[1]) * {"B": 1, "kB": 1e3, "MB": 1e6}[match[2]]
