"""`attn tokens`, `attn schema`, `attn tensors`."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import BytesIO, StringIO
from pathlib import Path

import numpy as np
import pytest
from asking import ask
from validity import validate

import attncli
from attncli.cli import main
from attncli.cli.environment import Environment
from attncli.documents import SCHEMAS
from attncli.inputs.tensors import tensor_file, write_tensors
from attncli.language.guide import PAGES, page, word_entries
from attncli.language.guide.search import sections_with


def test_tokens_of_every_script_are_aligned_with_the_text() -> None:
    text = "我爱你 it's שלום e\u0301a 👩‍👩‍👧"
    for name in ("word", "whitespace", "char", "byte"):
        document = ask("tokens", text, "--tokenizer", name, "--json").json
        validate(document, "attn.tokens/1")
        if name != "byte":
            assert all(
                text[token["start"] : token["end"]] == token["text"] for token in document["tokens"]
            )
    raw = [
        token["bytes"]
        for token in ask("tokens", text, "--tokenizer", "byte", "--json").json["tokens"]
    ]
    assert len(raw) == len(text.encode())


def test_tokens_as_tab_separated_lines() -> None:
    found = ask("tokens", "a b", "--plain").out.splitlines()
    assert found[0].split("\t")[:2] == ["index", "text"]
    assert found[2].split("\t")[:2] == ["1", "b"]


def test_schemas_are_listed_and_told_as_they_are() -> None:
    names = ask("schema").out.split()
    assert names == list(SCHEMAS)
    for name in names:
        assert ask("schema", name).json == SCHEMAS[name]
    found = ask("schema", "attn.rnu/1")
    assert (found.code, found.out) == (2, "")
    assert "attn.run/1" in found.err


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    q, k, v = (
        random.normal(size=shape).astype(np.float32)
        for shape in ((2, 6, 5, 7), (2, 3, 11, 7), (2, 3, 11, 2))
    )
    path = tmp_path / "captured.npz"
    np.savez(path, q=q, k=k, v=v)
    return path


def test_tensors_exposes_the_core(captured: Path) -> None:
    arrays = np.load(captured)
    expected = attncli.attention(
        arrays["q"],
        arrays["k"],
        arrays["v"],
        scale=0.3,
        softcap=2.0,
        causal=True,
        offset=3,
        key_lengths=np.array([9, 4]),
    )
    found = ask(
        "tensors",
        str(captured),
        "--json",
        "--scale",
        "0.3",
        "--softcap",
        "2",
        "--mask",
        "causal",
        "--offset",
        "3",
        "--key-lengths",
        "9,4",
    ).json
    validate(found, "attn.tensors/1")
    for entry in found["batch"]:
        for head in entry["heads"]:
            assert np.array_equal(
                np.float32(head["weights"]), expected.weights[entry["index"][0], head["head"]]
            )
            assert np.array_equal(
                np.float32(head["output"]), expected.mixed[entry["index"][0], head["head"]]
            )


def test_tensors_of_a_saved_run_give_the_run_again(tmp_path: Path) -> None:
    path = tmp_path / "saved.safetensors"
    run = ask("run", "one two three", "--num-heads", "2", "--json", "--save", str(path)).json
    again = ask("tensors", str(path), "--json").json
    for head in (0, 1):
        assert (
            again["batch"][0]["heads"][head]["weights"]
            == run["layers"][0]["heads"][head]["weights"]
        )
    assert again["warnings"] == []


def test_tensors_of_a_run_with_a_mask_of_its_own_are_said_to_differ(tmp_path: Path) -> None:
    path = str(tmp_path / "saved.safetensors")
    assert ask("run", "one two three", "--mask", "causal", "--save", path).code == 0
    (said,) = ask("tensors", path, "--json").json["warnings"]
    assert "another mask, scale, soft cap" in said
    assert "another mask, scale," in " ".join(ask("tensors", path).out.split())
    assert ask("tensors", path, "--mask", "causal", "--json").json["warnings"] == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"k": np.zeros((2, 4, 11, 7))}, "kv_heads"),
        ({"k": np.zeros((2, 3, 11, 8))}, "8"),
        ({"v": None}, "no tensor is called v"),
    ],
)
def test_tensors_that_do_not_fit(
    captured: Path, change: dict[str, np.ndarray | None], says: str
) -> None:
    arrays = {**np.load(captured), **change}
    np.savez(captured, **{name: array for name, array in arrays.items() if array is not None})
    found = ask("tensors", str(captured))
    assert (found.code, found.out) == (3, "")
    assert says in found.err


def test_each_of_several_texts_is_headed_by_its_number() -> None:
    brief = ask("run", "--lines", "--brief", stdin=b"a b\nc d\n").out
    assert [line for line in brief.splitlines() if line.startswith("text ")] == [
        "text 0  a b",
        "text 1  c d",
    ]
    whole = ask("run", "--lines", stdin=b"a b\nc d\n").out.splitlines()
    assert whole[:2] == ["text 0", "a b"]
    assert not ask("run", "a b").out.startswith("text 0")


def test_what_save_wrote_is_known_as_such(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    assert ask("run", "a b", "--num-heads", "2", "--save", str(path)).code == 0
    shown = ask("weights", "show", str(path)).out
    assert "stages of a run, as attn run --save wrote them" in shown
    assert "not read as an attention" not in shown
    row = next(line for line in shown.splitlines() if line.startswith("layers.0.weights"))
    assert row.split()[1] == "A"


def saved(tmp_path: Path, change: Callable[[dict[str, np.ndarray]], object]) -> str:
    """A saved run of three tokens and two heads whose tensors were changed."""
    path = tmp_path / "saved.safetensors"
    assert ask("run", "a b c", "--num-heads", "2", "--save", str(path)).code == 0
    held = tensor_file(path)
    tensors = held.tensors(allow_nonfinite=True)
    change(tensors)
    write_tensors(path, tensors, held.metadata)
    return str(path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.update({"layers.0.q": t["layers.0.q"][:, :1]}), "axis 'query'"),
        (
            lambda t: t.update({"layers.0.capped": np.zeros(0, np.float32)}),
            "stage capped has 1 axes",
        ),
        (lambda t: t.update({"layers.0.mixed": t["layers.0.mixed"][..., :5]}), "axis 'v_dim'"),
        (lambda t: t.update({"hidden.0": t["hidden.0"][:2]}), "hidden.0 is of 2 tokens"),
        (
            lambda t: t.update({f"layers.0.{name}": t["layers.0.q"][:0] for name in "kv"}),
            "cannot share 0",
        ),
        (
            lambda t: t.update({"layers.00.weights": t.pop("layers.0.weights")}),
            "no layer with weights",
        ),
    ],
)
def test_a_saved_run_whose_stages_contradict_each_other_is_bad_input(
    change: Callable[[dict[str, np.ndarray]], object], says: str, tmp_path: Path
) -> None:
    found = ask("view", saved(tmp_path, change))
    assert (found.code, found.out) == (3, ""), found.err
    assert says in found.err


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.pop("layers.0.v"), "layers.0.q without layers.0.v"),
        (lambda t: t.update({"layers.x.q": t["layers.0.q"]}), ""),
        (lambda t: (t.clear(), t.update(q=np.float32(1))), "no tensor is called k or v"),
        (
            lambda t: (t.clear(), t.update(dict.fromkeys("qkv", np.ones((2, 0), np.float32)))),
            "holds nothing",
        ),
    ],
)
@pytest.mark.parametrize("options", [(), ("--scale", "none")])
def test_arrays_of_odd_names_and_sizes(
    change: Callable[[dict[str, np.ndarray]], object],
    says: str,
    options: tuple[str, ...],
    tmp_path: Path,
) -> None:
    found = ask("tensors", saved(tmp_path, change), *options)
    assert found.code == (3 if says else 0), found.err
    assert says in found.err


def test_leading_axes_that_broadcast_are_shown_whole(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    q, k, v = (
        random.normal(size=size).astype(np.float32)
        for size in ((2, 3, 4), (3, 2, 5, 4), (1, 2, 5, 6))
    )
    np.savez(tmp_path / "a.npz", q=q, k=k, v=v)
    found = ask("tensors", str(tmp_path / "a.npz"), "--json").json
    assert len(found["batch"]) == 3
    for at in range(3):
        alone = attncli.attention(q, k[at], v[0])
        assert np.allclose(
            [head["output"] for head in found["batch"][at]["heads"]], alone.mixed, atol=1e-6
        )


def test_the_page_of_arrays_that_torch_computed(captured: Path, tmp_path: Path) -> None:
    found = ask("tensors", str(captured), "--backend", "torch", "--html", str(tmp_path / "p.html"))
    assert found.code == 0, found.err
    assert (tmp_path / "p.html").stat().st_size > 10_000


def test_the_guide_is_turned_screen_by_screen_at_a_terminal_and_whole_elsewhere() -> None:
    def turned(*keys: str, terminal: bool = True) -> str:
        out, pressed = BytesIO(), iter(keys)
        environment = Environment(
            stdin=BytesIO(), stdout=out, stderr=StringIO(),
            variables={"LANG": "C.UTF-8", "PAGER": "cat"}, stdin_is_terminal=True,
            stdout_is_terminal=terminal, width=80, height=24, keys=lambda: next(pressed),
        )  # fmt: skip
        assert main(["guide", "cost", "--color", "never"], environment) == 0
        return out.getvalue().decode()

    whole, first = turned(terminal=False), turned("q")
    assert "any key" not in whole
    shown, _, rest = first.partition("— any key for more, q ends —")
    assert whole.startswith(shown)
    assert 15 <= shown.count("\n") <= 23
    assert rest == "\r\x1b[2K"
    everything = turned(*" " * 50)
    assert everything.replace("— any key for more, q ends —\r\x1b[2K", "") == whole


def test_the_guide_is_searched_for_a_word() -> None:
    sections = sections_with("softmax", "en")
    assert sections[0].in_heading
    assert not sections[-1].in_heading
    # counted anew, by another way: sections in whose prose or commands the word stands
    assert {section.name for section in sections} <= {
        name for name in PAGES if "softmax" in page(name, "en").lower()
    }
    assert {section.name for section in sections} >= {"learners", "lessons", "words"}
    counts = [section.count for section in sections if not section.in_heading]
    assert counts == sorted(counts, reverse=True)
    # no part of another word, and either spelling; the plural is the same word
    assert all("paragraph" not in section.line for section in sections_with("rag", "en"))
    assert sections_with("quantisation", "en") == sections_with("Quantization", "en") != []
    assert sections_with("softmaxes", "en") == [] == sections_with(" ", "en")
    assert sections_with("注意力", "zh")
    # lines are broken anywhere, Chinese ones within words
    assert "long" in {section.name for section in sections_with("random sets of regions", "en")}
    text = re.sub(r"(?s)^```.*?^```$", "", page("long", "zh"), flags=re.MULTILINE)
    breaks = re.findall(r"[\u4e00-\u9fff]{2}\n[\u4e00-\u9fff]{2}", text)
    assert breaks
    for broken in breaks:
        assert "long" in {
            section.name for section in sections_with(broken.replace("\n", ""), "zh")
        }, broken
    shown = ask("guide", "--search", "softmax", "--color", "never")
    assert shown.code == 0
    assert "more sections that have it" in shown.out
    assert ask("guide", "--search", "no such word").code == 3


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("gguf", "models"), ("rag", "long"), ("quantisation", "models"), ("jq", "json"),
        ("xarray", "python"), ("pandas", "cookbook"), ("induction", "words"), ("lora", "models"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_what_people_look_for_is_found_by_its_name(word: str, name: str, lang: str) -> None:
    shown = ask("guide", word, "--lang", lang, "--color", "never")
    assert shown.code == 0
    if word not in word_entries(lang):
        assert name in shown.out.split()
        assert ask("guide", word, "--markdown").code == 2


def test_single_chinese_signs_are_called_characters() -> None:
    def said(text: str, *more: str) -> str:
        return ask("tokens", text, "--brief", *more).out.strip()

    assert said("我爱你") == "Each of the 3 characters is one token."
    assert said("我爱你", "--lang", "zh") == "3 个字各是一个词元。"
    assert said("我", "--lang", "zh") == "这个字是一个词元。"
    assert said("今天 我", "--tokenizer", "whitespace") == "2 tokens."
    assert said("a b c") == "Each of the 3 words is one token."
    assert "3 characters are cut into pieces" in said("我爱你", "--tokenizer", "byte")
    assert said("我 cat") == "Each of the 2 words is one token."


@pytest.mark.parametrize("words", [("learners",), ("--markdown",)])
def test_a_search_of_the_guide_is_of_all_pages(words: tuple[str, ...]) -> None:
    refused = ask("guide", *words, "--search", "softmax")
    assert (refused.code, refused.out) == (2, "")


def test_a_word_of_the_glossary_is_shown_by_any_of_its_names() -> None:
    sink = ask("guide", "sink")
    assert (sink.code, "rest · sink, attention sink" in sink.out) == (0, True)
    assert "nats" not in sink.out
    assert ask("guide", "REST").out == sink.out
    # one Chinese word for it; the others only lead to it
    entries = word_entries("zh")
    assert entries["sink"].startswith("# 停歇")
    assert all(entries[word] == entries["sink"] for word in ("汇", "汇点", "汇聚点"))
    # the last word of a group ends where the next group begins
    assert "What a head is called" not in ask("guide", "cache").out
    slip = ask("guide", "perplexitty")
    assert (slip.code, "try: attn guide perplexity" in slip.err) == (2, True)
    assert "attn guide sink" in ask("explain", "sink", "--brief").err
    # both languages explain the same words
    english, chinese = word_entries("en"), word_entries("zh")
    assert {*english} <= {*chinese}
    assert {"多头", "位置编码", "批", "形状", "整除"} <= {*chinese}
    assert {"multi-head", "positional encoding", "batch", "shape", "divisible"} <= {*english}


def test_captured_batches_are_named_and_what_hides_keys_is_told() -> None:
    file = str(Path(__file__).parents[2] / "sample_inputs" / "captured.npz")
    document = ask("tensors", file, "--json").json
    link = document["links"][0]
    said = " ".join(ask("tensors", file, "--brief").out.split())
    assert f"in batch {link['index'][0]} head {link['head']}." in said
    assert document["warnings"] == ["keys are also hidden by key_lengths 7, 4"]
    assert (
        "keys are also hidden by key_lengths 2, 3"
        in ask("tensors", file, "--key-lengths", "2 3").out
    )


def test_of_a_long_text_the_first_tokens_are_listed() -> None:
    text = " ".join(f"w{at}" for at in range(1203))
    shown = ask("tokens", text).out
    assert "first 200 of 1,203 tokens shown; --full shows all" in shown
    assert shown.endswith("\n\nEach of the 1,203 words is one token.\n")
    assert "w199 " in shown
    assert "w200 " not in shown.split("\n\n", 1)[1]
    assert "w1202 " in ask("tokens", text, "--full").out.split("\n\n", 1)[1]
    assert len(ask("tokens", text, "--json").json["tokens"]) == 1203
