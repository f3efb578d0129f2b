"""Adapters: the same weights as PEFT's own merge, and errors for what does not belong to the model."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gguf_files
import numpy as np
import pytest
import tokenizers
from asking import ask
from safetensors.numpy import load_file, save_file
from scanning import inside
from tiny_checkpoints import CASES, make

import attncli
from attncli.errors import InputError, UnsupportedError, UsageError
from attncli.inputs import bounded_process
from attncli.inputs.adapter import merge_adapters, parse_adapter
from attncli.models.load import open_checkpoint

LIMIT = 1e-6
LLAMA = "llama 3.1"


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(lambda name: make(CASES[name], tmp_path_factory.mktemp("base")))


def train(base: Path, folder: Path, seed: int = 1, **settings: Any) -> Path:
    """An adapter of these settings with random numbers, as PEFT saves it."""
    import peft
    import torch
    import transformers

    transformers.logging.disable_progress_bar()
    torch.manual_seed(seed)
    model = peft.get_peft_model(
        transformers.AutoModelForCausalLM.from_pretrained(base), peft.LoraConfig(**settings)
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "magnitude" in name:
                weight.mul_(1 + 0.3 * torch.rand(weight.shape))
            elif "lora_" in name or "modules_to_save" in name or "trainable_tokens" in name:
                weight.copy_(0.3 * torch.randn(weight.shape))
    model.save_pretrained(folder)
    return folder


def merged(base: Path, *folders: Path) -> dict[str, np.ndarray]:
    """PEFT's own merge of adapters, one after the other."""
    import peft
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    for folder in folders:
        model = peft.PeftModel.from_pretrained(model, folder).merge_and_unload()
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "lora": (LLAMA, {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "v_proj"]}),
    "every matrix": (LLAMA, {"r": 2, "lora_alpha": 3, "target_modules": "all-linear"}),
    "rank stabilised": (LLAMA, {"r": 4, "lora_alpha": 5, "use_rslora": True, "target_modules": ["q_proj", "k_proj"]}),
    "dora": (LLAMA, {"r": 3, "lora_alpha": 5, "use_dora": True, "target_modules": ["q_proj", "o_proj", "down_proj"]}),
    "patterns": (
        LLAMA,
        {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "k_proj"], "rank_pattern": {"k_proj": 2},
         "alpha_pattern": {"k_proj": 7, "layers.1.self_attn.q_proj": 2}},
    ),
    "expressions": (
        LLAMA,
        {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "k_proj"], "rank_pattern": {r"[jk]_proj": 2},
         "alpha_pattern": {r".*\.layers\.[12]\..*(q_proj|k_proj)": 12, "k_proj": 2, r"^model\.layers\.0\..*q_\w+": 9}},
    ),
    "token rows": (
        LLAMA, {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj"], "trainable_token_indices": [3, 7, 50]},
    ),
    "token rows by table": (
        "qwen3",
        {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [1, 2]}},
    ),
    "in-out": (
        "gpt2 with head",
        {"r": 3, "lora_alpha": 5, "target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True},
    ),
    "in-out dora": (
        "gpt2 with head",
        {"r": 3, "lora_alpha": 5, "use_dora": True, "target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True},
    ),
    "table": (LLAMA, {"r": 3, "lora_alpha": 5, "target_modules": ["embed_tokens", "q_proj"]}),
    "saved modules": (LLAMA, {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj"], "modules_to_save": ["norm"]}),
    "bias": ("qwen3", {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj"], "lora_bias": True}),
}  # fmt: skip


def worst(base: Path, expected: dict[str, np.ndarray], *specifications: str) -> float:
    """The largest difference of any tensor from PEFT's."""
    checkpoint = merge_adapters(
        open_checkpoint(base), [parse_adapter(text) for text in specifications]
    )
    differences = []
    for name in checkpoint.names():
        stored = (
            name
            if name in expected
            else f"model.{name}"
            if f"model.{name}" in expected
            else f"transformer.{name}"
        )
        differences.append(np.abs(checkpoint.read(name, "float32") - expected[stored]).max())
    return float(max(differences))


@pytest.mark.many
@pytest.mark.parametrize("name", SETTINGS)
def test_a_merge_is_pefts(name: str, bases: Callable[[str], Path], tmp_path: Path):
    case, settings = SETTINGS[name]
    base = bases(case)
    adapter = train(base, tmp_path / "adapter", **settings)
    expected = merged(base, adapter)
    assert worst(base, expected, str(adapter)) < LIMIT
    assert worst(base, expected) > 0.1, "the adapter changes something"
    if "dora" not in name:
        assert worst(base, expected, f"{adapter}:0.9") > 1e-3, "a negative control"


def test_rows_are_those_of_the_whole(bases: Callable[[str], Path], tmp_path: Path):
    adapter = train(
        bases(LLAMA), tmp_path / "a", r=2, lora_alpha=3, target_modules=["embed_tokens", "q_proj"]
    )
    checkpoint = merge_adapters(open_checkpoint(bases(LLAMA)), [parse_adapter(str(adapter))])
    for name in checkpoint.recipes:
        assert np.array_equal(
            checkpoint.read_rows(name, [5, 1, 5]), checkpoint.read(name)[[5, 1, 5]]
        )


def test_several_are_merged_in_turn_and_by_weight(bases: Callable[[str], Path], tmp_path: Path):
    base = bases(LLAMA)
    one = train(base, tmp_path / "one", 1, r=3, lora_alpha=5, target_modules=["q_proj", "k_proj"])
    two = train(
        base, tmp_path / "two", 2, r=2, lora_alpha=5, use_dora=True, target_modules=["q_proj"]
    )
    assert worst(base, merged(base, one, two), str(one), str(two)) < LIMIT
    assert worst(base, merged(base, one, two), str(two), str(one)) > 1e-3
    config = json.loads((one / "adapter_config.json").read_text())
    half = shutil.copytree(one, tmp_path / "half")
    (half / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 2.5}))
    assert worst(base, merged(base, half), f"{one}:0.5") < LIMIT


def test_a_run_says_which_adapter(bases: Callable[[str], Path], tmp_path: Path):
    adapter = train(bases(LLAMA), tmp_path / "a", r=2, lora_alpha=30, target_modules=["q_proj"])
    plain, changed = (
        attncli.load(bases(LLAMA), note=None, adapters=given) for given in ((), (str(adapter),))
    )
    assert changed.identity.adapters == (str(adapter),)
    tokens = plain.tokenizer.ids_to_tokens([5, 3, 8, 9])
    before, after = (
        np.stack([trace.stages["weights"] for trace in model.trace(tokens)])
        for model in (plain, changed)
    )
    assert np.abs(before - after).max() > 0.01


@pytest.mark.parametrize("tied", [False, True])
def test_a_larger_vocabulary_is_merged_with_its_tables(
    tied: bool, bases: Callable[[str], Path], tmp_path: Path
):
    import peft
    import transformers

    config = json.loads((bases(LLAMA) / "config.json").read_text())
    torch_config = transformers.LlamaConfig(**{**config, "tie_word_embeddings": tied})
    base = tmp_path / "base"
    transformers.LlamaForCausalLM(torch_config).save_pretrained(base)
    larger = transformers.AutoModelForCausalLM.from_pretrained(base)
    larger.resize_token_embeddings(config["vocab_size"] + 5)
    own = {} if tied else {"modules_to_save": ["embed_tokens", "lm_head"]}
    model = peft.get_peft_model(larger, peft.LoraConfig(target_modules=["q_proj"], **own))
    model.save_pretrained(tmp_path / "a")
    shutil.copy(base / "config.json", tmp_path / "a" / "tokenizer.json")  # only its place is told
    checkpoint = merge_adapters(open_checkpoint(base), [parse_adapter(str(tmp_path / "a"))])
    expected = model.merge_and_unload().state_dict()
    for name in checkpoint.names():
        difference = np.abs(checkpoint.read(name, "float32") - expected[name].detach().numpy())
        assert difference.max() < LIMIT, name
    assert checkpoint.config["vocab_size"] == config["vocab_size"] + 5
    assert checkpoint.tokenizer_path == (tmp_path / "a" / "tokenizer.json").resolve()
    stored = load_file(tmp_path / "a" / "adapter_model.safetensors")
    arrays = {name: array for name, array in stored.items() if ".original_module." not in name}
    table = next(name for name in arrays if "embed_tokens" in name)
    head = next((name for name in arrays if "lm_head" in name), None)
    short = {name: array for name, array in arrays.items() if "embed_tokens" not in name}
    if head is None:
        head, short = table.replace("model.embed_tokens", "lm_head"), arrays
    save_file({**short, head: arrays[table] + 1}, tmp_path / "a" / "adapter_model.safetensors")
    with pytest.raises(UnsupportedError, match="output table" if tied else "smaller vocabulary"):
        merge_adapters(open_checkpoint(base), [parse_adapter(str(tmp_path / "a"))])


def test_what_does_not_belong_is_refused(
    bases: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bounded_process, "SECONDS", 1.0)
    base = bases(LLAMA)
    adapter = train(base, tmp_path / "a", r=2, lora_alpha=3, target_modules=["q_proj"])

    def changed(
        name: str,
        config: dict[str, Any] | None = None,
        tensors: dict[str, np.ndarray] | None = None,
    ) -> str:
        folder = shutil.copytree(adapter, tmp_path / name)
        if config is not None:
            own = json.loads((folder / "adapter_config.json").read_text())
            (folder / "adapter_config.json").write_text(json.dumps({**own, **config}))
        if tensors is not None:
            save_file(tensors, folder / "adapter_model.safetensors")
        return str(folder)

    arrays = load_file(adapter / "adapter_model.safetensors")
    first = next(name for name in arrays if "lora_A" in name)
    (tmp_path / "empty").mkdir()
    for text, message in (
        (str(tmp_path / "empty"), "holds no adapter"),
        (str(tmp_path / "nothing"), "no such folder"),
        (changed("kind", {"peft_type": "IA3"}), "kind 'IA3'"),
        (changed("alpha", {"lora_alpha": "much"}), "lora_alpha to 'much'"),
        (changed("pattern", {"alpha_pattern": {"(q_proj": 3}}), "alpha_pattern to '(q_proj'"),
        (changed("endless", {"alpha_pattern": {r"([\w.]+)+!": 3}}), "alpha_pattern"),
        (changed("no rank", {"rank_pattern": {"q_proj(": 2}}), "rank_pattern to 'q_proj('"),
        (changed("ranks", {"rank_pattern": {"q_proj": 3}}), "rank_pattern to {'q_proj': 3}"),
        (changed("list", {"rank_pattern": ["q_proj"]}), "rank_pattern to"),
        (changed("null", {"alpha_pattern": {"q_proj": None}}), "alpha_pattern to {'q_proj': None}"),
        (changed("true", {"rank_pattern": {"q_proj": True}, "r": 1}), "rank_pattern to {'q_proj'"),
        (changed("vast", {"alpha_pattern": {"q_proj": 1e300}}), "alpha_pattern to {'q_proj'"),
        (changed("number", {"target_modules": 5}), "sets target_modules to 5"),
        (changed("names", {"exclude_modules": {"v_proj": 1}}), "sets exclude_modules to {'v_proj'"),
        (changed("targets", {"target_modules": ".*(q_proj"}), "target_modules to '.*(q_proj'"),
        (changed("elsewhere", {"target_modules": ["v_proj"]}), "target_modules to"),
        (changed("but", {"exclude_modules": "v_proj|.*q_proj"}), "exclude_modules to"),
        (changed("other", {"use_qalora": True}), "use_qalora"),
        (changed("share", {"use_dora": True}) + ":0.5", "share of 0.5"),
        (changed("dora", {"use_dora": True}), "use_dora to True"),
        (changed("rank", {"r": 8}), "sets r to 8"),
        (changed("left out", {"layers_to_transform": [1]}), "layers_to_transform"),
        (changed("mlx", {"peft_type": None, "fine_tune_type": "lora"}), "format of mlx-lm"),
        (changed("nameless", {"peft_type": None}), "does not say of which kind"),
        (
            changed("shape", tensors={**arrays, first: arrays[first][:, :7]}),
            "the adapter changes it by",
        ),
        (
            changed(
                "half", tensors={name: array for name, array in arrays.items() if name != first}
            ),
            "has no 'a'",
        ),
        (
            changed("alien", tensors={first.replace("layers.0", "layers.77"): arrays[first]}),
            "no tensor",
        ),
    ):
        with pytest.raises((InputError, UnsupportedError), match=re.escape(message)):
            attncli.load(base, note=None, adapters=[text])
    file = gguf_files.write(base, tmp_path / "x.gguf", "llama")
    with pytest.raises(UnsupportedError, match="this is a GGUF file") as refusal:
        attncli.load(file, note=None, adapters=[str(adapter)])
    assert refusal.value.where == str(file)
    with pytest.raises(UsageError):
        parse_adapter("x:1e9")
    with pytest.raises(UsageError):
        attncli.load(seed=0, adapters=[str(adapter)])


def test_an_expression_that_is_none_is_told_with_its_fault(
    bases: Callable[[str], Path], tmp_path: Path
) -> None:
    base = bases(LLAMA)
    adapter = train(base, tmp_path / "a", r=2, lora_alpha=3, target_modules=["q_proj"])
    config = json.loads((adapter / "adapter_config.json").read_text())
    for key in ("rank_pattern", "alpha_pattern"):
        stated = json.dumps({**config, key: {"q_proj(": 2}})
        (adapter / "adapter_config.json").write_text(stated)
        with pytest.raises(InputError) as refusal:
            attncli.load(base, note=None, adapters=[str(adapter)])
        assert refusal.value.exit_code == 3
        assert refusal.value.expected == (
            "a regular expression, as Python has them: missing ), unterminated subpattern"
        )


def base_and_adapter(model: Path, place: Path) -> tuple[Path, Path]:
    """A copy of a model that reads five words, and an adapter of its queries."""
    base = shutil.copytree(model, place / "base")
    words = {word: index for index, word in enumerate(["[UNK]", "the", "cat", "sat", "on"])}
    vocabulary = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    vocabulary.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    vocabulary.save(str(base / "tokenizer.json"))
    return base, train(model, place / "a", r=2, lora_alpha=30, target_modules=["q_proj"])


def test_compare_shows_what_an_adapter_changes(bases: Callable[[str], Path], tmp_path: Path):
    base, adapter = base_and_adapter(bases(LLAMA), tmp_path)
    how = ("the cat sat on the", "--model", str(base))
    plain, changed = (
        json.loads(ask("run", *how, *more, "--json").out)
        for more in ((), ("--adapter", str(adapter)))
    )
    assert "adapters" not in plain["model"]
    assert changed["model"]["adapters"] == [str(adapter)]
    answered = ask("compare", *how, "--with-adapter", str(adapter), "--json")
    assert answered.code == 0, answered.err
    compared = answered.json
    assert compared["differs"] == ["weights"]
    assert compared["b"]["model"]["adapters"] == [str(adapter)]
    largest = max(
        np.abs(np.array(a["weights"]) - np.array(b["weights"])).max()
        for one, other in zip(plain["layers"], changed["layers"], strict=True)
        for a, b in zip(one["heads"], other["heads"], strict=True)
    )
    assert abs(abs(compared["summary"]["max_difference"]) - largest) < 1e-6
    assert f"adapter {adapter}" in " ".join(ask("run", *how, "--adapter", str(adapter)).out.split())
    assert ask("compare", "a", "--with-adapter", str(adapter)).code == 2
    assert ask("compare", "a", "b", "--model", str(base), "--with-adapter", str(adapter)).code == 2


@pytest.mark.thorough
def test_scans_tell_what_an_adapter_changes_over_a_corpus(
    bases: Callable[[str], Path], tmp_path: Path
):
    base, adapter = base_and_adapter(bases(LLAMA), tmp_path)
    texts = ["the cat sat on the", "on the cat the sat", "sat sat on the cat", "cat on cat on the"]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    scan = (
        "scan",
        str(base),
        str(tmp_path / "texts.txt"),
        "--metric",
        "entropy",
        "--no-links",
        "--no-labels",
    )
    scan = (*scan, "--examples", "0", "--workers", "1", "-o")
    plain, changed = str(tmp_path / "plain"), str(tmp_path / "changed")
    with inside():
        assert ask(*scan, plain).code == 0
    answer = ask(*scan, changed, "--adapter", f"{adapter}:0.5", "--json")
    assert answer.json["plan"]["adapters"] == [f"{adapter}:0.5"]
    assert "adapters" not in json.loads((Path(plain) / "plan.json").read_text())["model"]
    compared = ask("scan", "compare", plain, changed, "--json").json
    assert compared["paired"]
    for row in compared["differences"][:5]:
        means = []
        for adapters in ((), (f"{adapter}:0.5",)):
            model = attncli.load(base, note=None, adapters=adapters)
            weights = [
                model.trace(text, layers=[row["layer"]]).weights[0, row["head"]] for text in texts
            ]
            means.append(
                np.mean([-(w * np.log(np.where(w > 0, w, 1))).sum(-1).mean() for w in weights])
            )
        assert (row["a"], row["b"]) == pytest.approx(means, abs=1e-5)
        assert abs(row["difference"]) > 1e-3
    assert "+ a:0.5" in ask("scan", "compare", plain, changed, width=400).out
    assert ask(*scan, changed, "--adapter", str(adapter)).code == 2, (
        "another weight is another scan"
    )
    assert ask("scan", "verify", changed).code == 0
    arrays = load_file(adapter / "adapter_model.safetensors")
    save_file(
        {name: array * 2 for name, array in arrays.items()}, adapter / "adapter_model.safetensors"
    )
    assert ask("scan", "verify", changed).code == 3, "another adapter is there now"
