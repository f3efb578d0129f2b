"""What people look for in the guide is found on its page, and a command is told as it is typed."""

from __future__ import annotations

import re

import numpy as np
import pytest
from asking import ask
from telling import telling

from attncli.features.explain.softmax_topics import peakedness, softmax_document
from attncli.language.guide import page, word_entries
from attncli.language.guide.search import sections_with

softmax_document = telling(softmax_document)


def test_an_excerpt_keeps_the_bars_of_commands() -> None:
    (section, *_) = sections_with("jq .heads", "en")
    assert "| jq .heads" in section.line
    assert "| jq" in ask("guide", "--search", "jq .heads").out


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("gguf", "cookbook"),
        ("rag", "cookbook"),
        ("quantisation", "cookbook"),
        ("quantization", "cookbook"),
        ("jq", "json"),
        ("xarray", "cookbook"),
        ("pandas", "cookbook"),
        ("polars", "cookbook"),
        ("induction", "cookbook"),
        ("sink", "cookbook"),
        ("lora", "cookbook"),
        ("entropy", "cookbook"),
        ("notebook", "views"),
        ("ci", "cookbook"),
        ("coreference", "cookbook"),
        ("bertviz", "views"),
    ],
)
def test_a_word_that_people_look_for_finds_its_page(word: str, page: str) -> None:
    assert sections_with(word, "en")[0].name == page


@pytest.mark.parametrize(
    ("word", "lang"),
    [
        *((word, "en") for word in ("self-attention", "dot product", "quadratic", "RNN")),
        *((word, "en") for word in ("heatmap", "padding mask", "long-distance", "W_O")),
        *((word, "zh") for word in ("自注意力", "点积", "复杂度", "热力图", "填充掩码", "长距离")),
    ],
)
def test_a_word_of_teaching_texts_finds_its_entry(word: str, lang: str) -> None:
    assert "words" in [section.name for section in sections_with(word, lang)]


@pytest.mark.parametrize(
    ("word", "lang", "entry"),
    [
        *((word, "en", "gradient norm") for word in ("gradient norm", "Jacobian")),
        *((word, "zh", "梯度范数") for word in ("雅可比", "梯度范数", "gradient norm")),
        *((word, "en", "gradient ·") for word in ("gradient", "derivative", "chain rule")),
        *((word, "zh", "梯度 ·") for word in ("梯度", "导数", "链式法则", "chain rule")),
        *((word, "en", "number of layers") for word in ("how many layers", "many layers")),
        *((word, "zh", "层数") for word in ("几层", "很多层", "how many layers")),
        *(("桶", "zh", "哈希"), ("bucket", "en", "hash attention")),
        *(("sliding window", *entry) for entry in (("en", "window"), ("zh", "窗口"))),
        *(("hyperparameter", *entry) for entry in (("en", "hyperp"), ("zh", "超参数"))),
        *((word, "en", "mask") for word in ("minus infinity", "-inf", "infinity", "1e9")),
        *((word, "zh", "掩码") for word in ("负无穷", "1e9", "−inf", "遮罩", "遮挡")),
        *(("词嵌入", "zh", "嵌入"), ("自回归", "zh", "因果"), ("上下文向量", "zh", "定长向量")),
        *(("正弦", "zh", "位置编码"), ("相对位置", "zh", "旋转"), ("隐藏状态", "zh", "残差流")),
        *(("变长", "zh", "填充"), ("局部注意力", "zh", "窗口"), ("hidden state", "en", "residual")),
        ("rotary", "en", "rotary positions"),
        *(("alibi", lang, "ALiBi") for lang in ("en", "zh")),
        *((word, "en", "number of heads") for word in ("how many heads", "heads")),
        ("几个头", "zh", "头数"),
        *((word, "en", "training step") for word in ("training", "train", "backpropagation")),
        *((word, "en", "gradient descent") for word in ("descent", "optimizer", "AdamW")),
        *((word, "zh", "训练步") for word in ("训练", "反向传播")),
        *((word, "en", "seed") for word in ("seed", "seeded")),
        ("种子", "zh", "种子"),
        *(("tint", "en", "tint"), ("底色", "zh", "底色"), ("KV cache", "en", "cache")),
        *(("previous-token head", "en", "previous"), ("前一词元头", "zh", "前一词元")),
        *((word, "zh", "梯度下降") for word in ("梯度下降", "优化")),
        *(("learning rate", "en", "learning rate"), ("学习率", "zh", "学习率")),
        *(("dropout", lang, "dropout") for lang in ("en", "zh")),
        *(("消融", "zh", "去除"), ("词向量", "zh", "嵌入"), ("维度", "zh", "维度")),
        *(("多层", "zh", "层"), ("预训练", "zh", "预训练"), ("指代消解", "zh", "指代消解")),
    ],
)
def test_a_word_that_learners_ask_for_is_a_name_of_its_entry(
    word: str, lang: str, entry: str
) -> None:
    assert word_entries(lang)[word.lower()].startswith(f"# {entry}")


def test_the_entry_of_the_gradient_norm_has_the_numbers_of_the_screens() -> None:
    by_hand = softmax_document([2.0, 1.0, 0.1])["gradient"]
    shared = np.zeros((1, 10))
    shared[:, :2] = 0.5
    even = np.full((1, 10), 0.1)
    # the Jacobian as the entry writes it
    w = np.exp([2.0, 1.0, 0.1])
    w /= w.sum()
    assert np.linalg.norm(np.diag(w) - np.outer(w, w)) == pytest.approx(by_hand)
    for lang in ("en", "zh"):
        entry = word_entries(lang)["gradient norm"]
        assert f"{by_hand:.4f}" in entry
        for weights in (even, shared):
            assert f"{peakedness(weights)[0, 2]:.2f}" in entry


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_training_step_by_hand_falls_as_its_table_says(lang: str) -> None:
    scores = np.zeros(2)
    rows = re.findall(r"(?m)^\| \d \|.*0\.\d{4}.*$", page("learners", lang))
    assert len(rows) == 3
    for row in rows:
        weights = np.exp(scores) / np.exp(scores).sum()
        gradient = weights - np.array([1.0, 0.0])
        expected = [*scores, *weights, -np.log(weights[0]), *gradient]
        shown = [float(cell.replace("−", "-")) for cell in row.strip("| ").split("|")[1:]]
        assert shown == pytest.approx(expected, abs=6e-5)
        scores = scores - gradient


@pytest.mark.parametrize(
    ("word", "lang", "heading"),
    [
        ("根号", "zh", "为什么得分要除以 √d_k"),
        ("方差", "zh", "为什么得分要除以 √d_k"),
        ("square root of d_k", "en", "Why scores are divided by √d_k"),
        ("两个角色", "zh", "一句话里的两个角色"),
        ("two roles", "en", "Two roles in one sentence"),
        ("词序", "zh", "词序对注意力意味着什么"),
        ("残差连接", "zh", "残差流"),
        ("residual connection", "en", "residual stream"),
        ("因果掩码", "zh", "因果"),
        ("causal mask", "en", "causal"),
        *((word, "zh", "哈希注意力") for word in ("桶", "随机旋转")),
        *((word, "en", "hash attention") for word in ("bucket", "random rotation")),
    ],
)
def test_a_search_of_learners_begins_with_the_section_that_answers(
    word: str, lang: str, heading: str
) -> None:
    assert sections_with(word, lang)[0].heading.startswith(heading)


def test_a_word_that_only_screens_have_is_found_where_they_are() -> None:
    first = sections_with("keepdims", "en")[0]
    assert (first.name, "keepdims" in first.line) == ("learners", True)
    assert sections_with("keepdims", "zh")[0].name == "learners"


def test_marks_of_emphasis_are_not_shown() -> None:
    excerpts = [section.line for section in sections_with("above", "en")]
    assert any("learned: Then the weights are trained, above" in excerpt for excerpt in excerpts)
    assert not any("*Then" in excerpt or "*And" in excerpt for excerpt in excerpts)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_entries_of_words_keep_their_names_and_their_headings(lang: str) -> None:
    assert "[CLS], [SEP], <s>" in " ".join(ask("guide", "<s>", "--lang", lang).out.split())
    # a long heading takes two lines
    shown = " ".join(ask("guide", "words", "--lang", lang).out.split())
    headings = re.findall(r"(?m)^### (.*)$", page("words", lang))
    assert len(headings) > 20
    for heading in headings:
        assert heading.replace("\\<", "<").replace("`", "") in shown


@pytest.mark.parametrize(
    ("word", "longer"),
    [("quant", "quantis"), ("induct", "induction"), ("uantis", "quantis")],
)
def test_a_word_that_no_page_has_whole_is_found_within_longer_ones(word: str, longer: str) -> None:
    (section, *_) = sections_with(word, "en")
    assert longer in (section.heading + section.line).casefold()


def test_a_whole_word_is_preferred_to_longer_ones() -> None:
    sections = sections_with("mask", "en")
    pattern = re.compile(r"\bmasks?\b", re.IGNORECASE)
    assert all(pattern.search(section.heading + section.line) for section in sections)


@pytest.mark.parametrize(
    ("word", "first"),
    [
        ("fixed vector", "fixed vector"),
        ("how many layers", "number of layers"),
        ("hyperparameter", "hyperparameter"),
        ("chain rule", "gradient"),
        ("sliding window", "window"),
        ("滑动窗口", "窗口"),
        ("很多层", "层数"),
        ("链式法则", "梯度"),
        ("超参数", "超参数"),
    ],
)
def test_a_search_begins_with_the_entry(word: str, first: str) -> None:
    lines = ask("guide", "--search", word).out.splitlines()
    headings = [line.removeprefix("words").strip() for line in lines if line.startswith("words")]
    assert headings[0].startswith(first)
    if first != "层数":  # for many layers, the section of that name is as good
        assert lines[2].startswith("words")


@pytest.mark.parametrize("word", ["梯度", "多头注意力", "滑动窗口", "层"])
def test_a_chinese_word_is_answered_in_chinese(word: str) -> None:
    result = ask("guide", word)
    assert (result.code, result.err) == (0, "")
    assert result.out == ask("guide", word, "--lang", "zh").out


def test_a_search_answered_in_another_language_says_how_its_pages_open() -> None:
    assert "attn guide PAGE --lang zh shows" in ask("guide", "--search", "掩码").out.replace(
        "显示", "shows"
    )
    assert "--lang" not in ask("guide", "--search", "掩码", "--lang", "zh").out.splitlines()[-1]


def test_a_word_with_a_hyphen_in_front_stands_after_two() -> None:
    result = ask("guide", "-inf")
    assert (result.code, "no option -inf" in result.err) == (2, True)
    assert "attn guide -- -inf" in result.err
    assert ask("guide", "--", "-inf").out == ask("guide", "mask").out


def test_an_english_word_that_only_english_pages_have_is_answered_in_english() -> None:
    word = "carries the first through"
    shown = ask("guide", "--search", word, "--lang", "zh").out.replace(" --lang en shows", " shows")
    assert shown == ask("guide", "--search", word).out


def test_a_page_and_a_word_of_both_languages_stay_in_the_language_asked_for() -> None:
    assert "softmax" in ask("guide", "softmax").out
    for name in ("softmax", "learners", "chain rule"):
        assert ask("guide", name, "--lang", "zh").out != ask("guide", name).out


@pytest.mark.parametrize(
    ("name", "entry", "lang"),
    [
        ("scaled dot-product attention", "scale", "en"),
        ("attention score", "score", "en"),
        ("attention sink", "rest", "en"),
        ("cross-entropy", "loss", "en"),
        ("locality-sensitive hashing", "hash attention", "en"),
        ("upper triangle", "causal", "en"),
        ("vanishing gradient", "gradient norm", "en"),
        ("induction head", "induction", "en"),
        ("缩放点积注意力", "缩放", "zh"),
        ("注意力分数", "得分", "zh"),
        ("注意力沉没", "停歇", "zh"),
        ("注意力汇", "停歇", "zh"),
        ("交叉熵", "损失", "zh"),
        ("局部敏感哈希", "哈希注意力", "zh"),
        ("上三角", "因果", "zh"),
        ("梯度消失", "梯度范数", "zh"),
        ("归纳头", "归纳", "zh"),
    ],
)
def test_another_name_of_a_word_leads_to_its_entry(name: str, entry: str, lang: str) -> None:
    title = word_entries(lang)[name].partition("\n")[0]
    assert title.startswith(f"# {entry}")
    assert word_entries(lang)[entry] == word_entries(lang)[name]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_word_that_the_guide_lacks_gets_a_short_answer(lang: str) -> None:
    answer = ask("guide", "qqqqzzzz", "--lang", lang)
    assert answer.code == 2
    assert "learners, lessons" not in answer.err
    assert all(len(line) <= 80 for line in answer.err.splitlines())


@pytest.mark.parametrize(
    ("typed", "entry"),
    [
        ("Jensen-Shannon", "Jensen–Shannon"),
        ("jensen shannon", "Jensen–Shannon"),
        ("cross attention", "cross-attention"),
        ("log-probability", "log probability"),
        ("attention", "self-attention"),
    ],
)
def test_a_word_is_read_whatever_dash_or_blank_it_is_typed_with(typed: str, entry: str) -> None:
    """A keyboard has no en dash."""
    read = ask("guide", typed)
    assert (read.code, read.out.strip().startswith(entry)) == (0, True), read.err
    assert f"attn guide {typed}" in ask("explain", typed).err.replace("'", "")
