"""Every screen speaks Chinese where it is asked to: no sentence of ours is left in English."""

import re
from pathlib import Path

import numpy as np
import pytest
from asking import ask
from catalogues import read

from attncli import language
from attncli.documents.parts import LABEL_NAMES, label_name
from attncli.draw import lines
from attncli.draw.lines import note_line
from attncli.draw.view import View
from attncli.language import listing, message, plural, translate
from attncli.measure.labels import LABELS

TEXT = "the cat sat"
COMMANDS = [
    ("run", TEXT, "--show", "all"),
    ("run", TEXT, "--num-heads", "2", "--query", "cat", "--show", "all"),
    ("run", TEXT, "--mask", "causal", "--softcap", "3", "--position", "alibi", "--residual", "--layer-norm"),
    ("run", " ".join(f"w{at}" for at in range(40)), "--scale-colors", "row"),
    ("heads", TEXT),
    ("heads", TEXT, "--show", "all", "--sort", "entropy"),
    ("heads", TEXT, "--across", "rollout,flow,similarity,circuits", "--moved", "--exclude", "self"),
    ("find", TEXT, "--from", "cat", "--to", "sat", "--show", "all"),
    ("find", TEXT, "--from", "the", "--to", "sat", "--mask", "causal"),
    ("compare", TEXT, "the dog sat", "--show", "all"),
    ("compare", TEXT, "--mask", "none", "--mask", "causal"),
    ("cross", TEXT, "a dog", "--show", "all"),
    ("tensors", "sample_inputs/captured.npz"),
    ("mask",), ("mask", "window:1,1", "causal", "--show", "all"), ("cost", "--show", "all"),
    ("explain", TEXT), ("explain", "softmax"), ("explain", "scaling", "--samples", "99"),
    ("explain", "matrix-softmax", TEXT),
    ("explain", "order", TEXT), ("explain", "metric", "entropy"),
    ("tokens", TEXT), ("weights", "show", "sample_inputs/mha.safetensors"),
    ("models", "list"), ("models", "show", "minilm"), ("weights", "show", "sample_inputs/captured.npz"),
]  # fmt: skip
MEANT = re.compile(r"((the|cat|dog|sat|a|w\d+)\s*)+|.*[a-z]+:[A-Z]+.*|(attn|\$ pip) .*")
"""What stays as it is in every language: texts of the user, signs, and commands."""
NOT_YET = frozenset({"nats", "share", "rows i > 0", "mean −Σ A ln A"})


def sentences(text: str) -> bool:
    """Whether a text has two English words in a row, and so something to say."""
    return bool(re.search(r"\b[a-z]{2,} [a-z]{2,}\b", text)) and not MEANT.fullmatch(text)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command)[:50])
def test_no_sentence_is_left_in_english(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    missed: set[str] = set()

    def listening(text: str, lang: str) -> str:
        said = translate(text, lang)
        if said == text and sentences(text) and not re.search("[\u4e00-\u9fff]", text):
            missed.add(text)
        return said

    monkeypatch.setattr(language, "translate", listening)
    monkeypatch.setattr(lines, "translate", listening)
    answer = ask(*command, "--lang", "zh")
    assert answer.code == 0, answer.err
    assert not missed - NOT_YET
    assert re.search("[\u4e00-\u9fff]", answer.out)


def test_english_stays_english_and_json_does_not_depend_on_the_language() -> None:
    assert translate("strongest links", "en") == "strongest links"
    assert ask("run", TEXT, "--json", "--lang", "zh").out == ask("run", TEXT, "--json").out


def test_the_variable_chooses_the_language_and_the_option_overrides_it() -> None:
    chinese = ask("run", TEXT, ATTN_LANG="zh").out
    assert chinese == ask("run", TEXT, "--lang", "zh").out
    assert ask("run", TEXT, "--lang", "en", ATTN_LANG="zh").out == ask("run", TEXT).out
    assert ask("run", TEXT, ATTN_LANG="fr").code == 2


def test_places_are_filled_with_what_stood_there() -> None:
    assert translate(plural("{count} head", "{count} heads", count=12), "zh") == "12 个头"
    assert (
        translate(message("layer {layer} head {head}", layer=3, head=1), "zh") == "第 3 层第 1 头"
    )
    assert translate("layer 3 head 1", "zh") == "layer 3 head 1", (
        "no sentence is recognised from its English"
    )
    unknown = "a sentence that nobody has translated"
    assert translate(unknown, "zh") == unknown


def test_help_is_told_in_chinese_plain_and_drawn() -> None:
    for page in (
        (),
        ("--help",),
        ("run", "--help-all"),
        ("explain", "mask", "--help"),
        ("models", "--help"),
    ):
        for options in ({}, {"terminal": True}):
            shown = re.sub(
                r"\x1b\[[0-9;]*m", "", ask(*page, ATTN_LANG="zh", width=100, **options).out
            )
            left = [
                line
                for line in shown.splitlines()
                if re.search(r"\b[a-z]{3,} [a-z]{2,} [a-z]{2,}\b", line)
            ]
            assert all(
                "attn " in line or "--" in line or line.strip()[0] > "\u2e7f" for line in left
            ), left
            assert re.search("[\u4e00-\u9fff]", shown)
    assert ask("run", "--help").out == ask("run", "--help", "--lang", "en").out


ERRORS = [
    (("run", TEXT, "--query", "dog"), "错误：文本中没有词元“dog”"),
    (("run", TEXT, "--query", "#9"), "错误：没有词元 #9"),
    (("run", TEXT, "--query", "cat:2"), "需要：cat:1：它只出现一次"),
    (("run", TEXT, "--layer", "3"), "错误：没有第 3 层"),
    (("run", TEXT, "--mask", "nothing"), "错误：未知的掩码“nothing”"),
    (("run", TEXT, "--nonsense"), "错误：attn run 没有选项 --nonsense"),
    (("run", TEXT, "--num-heads", "7"), "错误：d_model 64 不能被 7 个头整除"),
    (("find", TEXT), "错误：attn find 需要两个词元"),
]
"""What people run into first, and what it says."""


@pytest.mark.parametrize(("command", "said"), ERRORS, ids=lambda value: " ".join(value)[:40])
def test_errors_are_told_in_chinese(command: tuple[str, ...], said: str) -> None:
    answer = ask(*command, "--lang", "zh")
    assert said in answer.err
    assert "error:" not in answer.err
    assert ask(*command).err.startswith("error: ")
    assert '"message"' in ask(*command, "--lang", "zh", "--json").err
    assert not re.search("[\u4e00-\u9fff]", ask(*command, "--lang", "zh", "--json").err)


def test_a_note_is_broken_at_blanks_and_a_path_stays_whole() -> None:
    said = "no text given; using the sample: The animal didn't cross the street because it was too tired"
    rows = note_line(said, View(width=40)).plain.splitlines()
    assert " ".join(rows) == said
    assert len(rows) == 3
    path = f"wrote {'/folder' * 12}"
    assert note_line(path, View(width=40)).plain == path


def test_every_label_of_a_head_has_its_chinese_and_keeps_its_offset() -> None:
    assert set(LABEL_NAMES) == set(LABELS)
    assert not any(
        re.search("[A-Za-z]", said)
        for said in (name.translation("zh") for name in LABEL_NAMES.values())
    )
    assert label_name("positional -2", "zh") == "固定偏移 -2"
    assert label_name("first-token sink", "zh") == "首词元停歇"
    assert label_name("positional -2", "en") == "positional -2"
    shown = ask(
        "heads", "a b c d e f", "--position", "alibi", "--labels", "--lang", "zh", "--seed", "3"
    ).out
    assert not any(name in shown for name in LABELS if "-" in name)


def test_lists_are_told_in_chinese_and_formulas_stay() -> None:
    formula = "X = E + P; W_Q[i, 0]"
    assert translate(formula, "zh") == formula
    names = message(
        "no tensor is called {missing}; found {names}", missing=listing("qkv", " or "), names="a b"
    )
    assert names == "no tensor is called q or k or v; found a b"
    assert "q 或 k 或 v" in message("{names}", names=listing("qkv", " or ")).translation("zh")
    assert translate(listing(["float32", "float64"]), "zh") == "float32、float64"


def test_a_page_of_help_has_each_heading_once_and_its_foot_in_chinese() -> None:
    for name in ("run", "scan", "mask"):
        page = ask(name, "--help", "--lang", "zh").out
        headings = re.findall(r"^(\S+)：$", page, re.MULTILINE)
        assert len(headings) == len(set(headings))
        assert headings[0] == "参数"
        assert "also lists" not in page


def test_the_layout_of_a_weight_file_is_told_in_chinese(tmp_path: Path) -> None:
    """Its names are the file's, and what they are is a sentence."""
    file = tmp_path / "mine.npz"
    np.savez(file, **{name: np.eye(2) for name in ("W_Q", "W_K", "W_V")})
    for words in (("weights", "show", str(file)), ("run", "a b", "--weights", str(file))):
        shown = ask(*words, "--lang", "zh", width=120).out
        assert "X·W 的矩阵 W_Q W_K W_V" in shown, words


def test_chinese_names_axes_kinds_of_attention_and_what_is_not_there() -> None:
    shapes = ask("run", "a b", "--show", "shapes", "--lang", "zh").out
    assert "头 × 查询 × 键" in shapes
    assert not re.search(
        r"\b(token|head|query|key|dim|v_dim|width|concat) ×|× (dim|width|key)\b", shapes
    )
    cost = ask("cost", "-n", "100", "--lang", "zh").out
    table = cost[cost.index("配对数与运算量") :].rpartition("\n\n")[0]
    assert not re.search(r"(?m)^(full|causal|lsh|rnn)\b", table)
    assert {"全注意力", "因果", "循环网络"} <= {line.split(" ")[0] for line in table.splitlines()}
    tokens = ask("tokens", "--model", "minilm", "a b", "--lang", "zh").out
    assert "[CLS]（特殊）" in tokens
    assert "special" not in tokens
    header = ask("run", "a b", "--lang", "zh").out
    assert "无掩码 · 无位置编码" in header
    assert "因果掩码" in ask("run", "a b", "--mask", "causal", "--lang", "zh").out
    order = ask("explain", "order", "a b", "--lang", "zh").out
    assert "有了 sinusoidal、learned、rope、因果掩码，就看得到顺序" in order
    assert "causal" not in order
    absent = ask("run", "a b", "--model", "no/where", "--lang", "zh", HF_HUB_OFFLINE="1").err
    assert "本地缓存中没有 no/where，而 HF_HUB_OFFLINE 不允许下载" in absent
    assert "取消设置 HF_HUB_OFFLINE，或用 --model FOLDER" in absent


def test_chinese_says_of_sums_that_they_are_sums_and_of_what_is_taken_away_that_it_is() -> None:
    alone = re.compile(r"这些和|其和|它们的和|的和[，。：]")
    said = {str(entry.string) for entry in read("zh") if entry.id}
    assert [text for text in said if alone.search(text)] == []
    assert [text for text in said if "退出" in text and "去掉" in text] == []
