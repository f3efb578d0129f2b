"""Real trained decoders from packages of the index: every head, the logits and sums of `why` as
transformers has them from the same file, dequantised by the `gguf` package."""

from __future__ import annotations

import gc
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.errors import AttnError
from attncli.inputs.vocabulary_tokenizer import PartTokenizer, from_tokenizers
from attncli.models.aliases import ALIASES, locate
from attncli.models.gguf import open_gguf

pytestmark = pytest.mark.thorough

PARITY = 1e-5
"""Largest difference in float64: transformers rounds norms, softmax and angles to float32."""
SENTENCES = {
    "smollm2": "The animal didn't cross the street because it was too tired",
    "gemma3": "Humpty Dumpty sat on a",
}
REMOVED = (5, 1)
"""Layer and head that is taken away."""
HARD = (
    *("", " ", "  two  blanks\n\nand\tlines ", "naïve caﬁé, 你好世界 😀", "x=f(y)+3.14; we'LL"),
    *(
        "我昨天去超市，买了牛奶和面包，今天发现面包过期了",
        "她吃苹果，他吃香蕉",
        "a" * 300,
        "\0\x01\x7f",
    ),
    *(
        "<|im_start|>user\nHi<|im_end|>\n",
        "<bos>a</s><unk>",
        "\n\n\n\n   \n",
        "👩‍👩‍👧‍👦 🇨🇭",
        "<0x41>",
    ),
    *("١٢٣٤٥ नमस्ते ʕ Աա ა 𝐀𝐁", "<html><b>bold</b></html>", "\t\tdef f(x):\n        return x**2"),
    *(
        "e\u0301 cafe\u0301 ▁▁ \u2581",
        "> ̸ combining <|im_end|≯",
        "1234567890 3,141.59",
        "Ωmega ﷽ ꙮ",
    ),
    *(
        "今天 我 的 计划 是 买菜",
        "我爱你",
        "日本語のテキスト、カタカナ",
        "한국어 문장입니다",
        "ไทยภาษา",
        "العربية",
    ),
    *(
        "שלום עולם",
        "Привет, мир!",
        "Ελληνικά",
        "Tiếng Việt",
        "ﬁ ﬂ ½ ² ™",
        "“curly” ‘quotes’ — dash",
    ),
    *(
        "\r\nwindows\r\n",
        "tab\tin\tbetween",
        "\u200b zero \u200d width",
        "\ufeffmark",
        "\u00a0no\u00a0break",
    ),
    *(
        "i.e., e.g. Mr. O'Neil's",
        "1,000,000.00 €",
        "0x1F 1e-9 -3",
        "C++ && || != <=",
        "a_b-c.d/e\\f",
        "{}[]()<>",
    ),
    *(
        "SELECT * FROM t;",
        "# title\n\n- item\n- item",
        "$\\frac{a}{b}$",
        "aAaA BBBB cCc",
        "supercalifragilistic",
    ),
    *(
        "the the the the",
        "?!?!...",
        "@user #tag",
        "😀😀😀",
        "🏳️‍🌈",
        "👍🏽",
        "a\u0300\u0301\u0302",
        "x" * 64 + " y",
    ),
    *(
        "ｆｕｌｌ　ｗｉｄｔｈ",
        "  leading",
        "trailing   ",
        "don't DON'T I'Ve",
        "https://a.b/c?d=e&f#g",
    ),
)


@pytest.fixture(scope="module", params=sorted(SENTENCES))
def name(request: pytest.FixtureRequest) -> str:
    package = ALIASES[request.param].package
    assert package is not None
    if package.places() is None:
        pytest.skip(f"the packages of {request.param} are not installed")
    return str(request.param)


@pytest.fixture(scope="module")
def file(name: str) -> Path:
    try:
        return locate(name).folder
    except AttnError as error:
        pytest.skip(f"{name} cannot be read here: {error}")


@pytest.fixture(scope="module")
def reference(name: str, file: Path) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Each layer's weights, [head, query, key], and the logits, [token, vocabulary], of the
    sentence, by transformers in float64; and the logits once more where a hook takes a head away.
    """
    import torch
    import transformers

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32, attn_implementation="eager"
    ).double()
    model.eval()
    ids = [token.id for token in attncli.load(name).encode(SENTENCES[name])]
    with torch.no_grad():
        answer = model(torch.tensor([ids]), output_attentions=True)
        layer, head = REMOVED
        attention = model.model.layers[layer].self_attn
        columns = slice(head * attention.head_dim, (head + 1) * attention.head_dim)

        def take_away(module: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            """What enters W_O with the head's part 0."""
            (mixed,) = inputs
            changed = mixed.clone()
            changed[..., columns] = 0
            return (changed,)

        hook = attention.o_proj.register_forward_pre_hook(take_away)
        without = model(torch.tensor([ids])).logits[0].double().numpy()
        hook.remove()
    weights = [layer[0].double().numpy() for layer in answer.attentions]
    logits = answer.logits[0].double().numpy()
    del model, answer
    gc.collect()
    return weights, logits, without


def test_every_heads_weights_and_the_logits_are_those_of_transformers(
    name: str, reference: tuple[list[np.ndarray], np.ndarray, np.ndarray]
) -> None:
    weights, logits, _ = reference
    model = attncli.load(name, dtype="float64", backend="numpy")
    traces = list(model.trace(SENTENCES[name], keep=("weights",)))
    assert len(traces) == len(weights)
    for trace, expected in zip(traces, weights, strict=True):
        assert np.abs(np.asarray(trace.stages["weights"]) - expected).max() < PARITY
    own_logits = np.asarray(model.logits(traces[-1].after))
    assert np.abs(own_logits - logits).max() < PARITY * np.abs(logits).max()
    # a control that must fail: the weights of another head
    assert np.abs(np.asarray(traces[0].stages["weights"])[0] - weights[0][1]).max() > 1e-3


def test_a_head_taken_away_changes_the_prediction_as_a_hook_does(
    name: str, reference: tuple[list[np.ndarray], np.ndarray, np.ndarray]
) -> None:
    _, logits, without = reference

    def log_probabilities(rows: np.ndarray) -> np.ndarray:
        last = rows[-1] - rows[-1].max()
        return last - np.log(np.exp(last).sum())

    target = int(logits[-1].argmax())
    expected = log_probabilities(without)[target] - log_probabilities(logits)[target]
    layer, head = REMOVED
    document = attncli.ablate(
        attncli.load(name, dtype="float64", backend="numpy"),
        SENTENCES[name],
        layers=[layer],
        heads=[head],
        measures=["logprob"],
        baseline="none",
    )
    (row,) = document.effects
    assert isinstance(row.logprob, float)
    assert abs(row.logprob - expected) < PARITY * max(1.0, abs(expected))
    assert abs(expected) > 1e-3


def test_every_tensor_is_what_the_gguf_package_makes_of_it(file: Path) -> None:
    import gguf

    checkpoint = open_gguf(file)
    stored = checkpoint.stored
    for tensor in gguf.GGUFReader(file).tensors:
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        place = stored[tensor.name]
        raw = np.fromfile(file, np.uint8, place.stop - place.start, offset=place.start)
        numbers = place.block.numbers(raw)
        assert np.array_equal(numbers, expected.reshape(-1)), tensor.name


def test_the_reasons_of_a_link_add_up_to_its_score(name: str) -> None:
    model = attncli.load(name, dtype="float64", backend="numpy")
    query = len(model.encode(SENTENCES[name])) - 1
    document = attncli.why(model, SENTENCES[name], f"#{query}", "#2", layers=[5], heads=[1])
    trace = next(iter(model.trace(SENTENCES[name], layers=[5], keep=("scaled",))))
    score = float(np.asarray(trace.stages["scaled"])[1, query, 2])
    assert abs(document.score - score) < 1e-9 * max(1.0, abs(score))
    assert abs(document.difference) < 1e-9 * max(1.0, abs(score))


def test_parts_of_a_vocabulary_cut_every_text_as_the_whole(name: str) -> None:
    parts = attncli.load(name).tokenizer
    assert isinstance(parts, PartTokenizer)
    whole = from_tokenizers(parts.vocabulary.whole(), parts.name)
    for text in HARD:
        assert parts.encode(text) == whole.encode(text), text
        for after, as_text in product((False, True), repeat=2):
            written = parts.encode_written(text, after=after, as_text=as_text)
            assert written == whole.encode_written(text, after=after, as_text=as_text), text
        ids = [token.id for token in whole.encode(text)]
        assert parts.text_of(ids) == whole.text_of(ids), text
