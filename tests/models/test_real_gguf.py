"""Real trained decoders from packages of the index: every head, the logits and sums of `why` as
transformers has them from the same file, dequantised by the `gguf` package."""

from __future__ import annotations

import gc
import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import finish

import attncli
from attncli.errors import AttnError
from attncli.inputs.chat import (
    control_tokens,
    encode_chat,
    parse_chat,
    read_template,
    render,
)
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
SHORT = "The capital of France is"
"""A text short enough for one run without each head."""
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

UNLIKE = {
    ("smollm2", "ﬁ ﬂ ½ ² ™"): (
        "the file names the rule smollm, which sets every number apart; transformers reads GPT-2's"
        " rule in its place, which takes a blank and a number together"
    ),
    ("gemma3", "e\u0301 cafe\u0301 ▁▁ \u2581"): (
        "the file stores the pieces for runs of blanks as blanks, so that ▁▁ itself is no piece;"
        " transformers takes it for one"
    ),
}
"""Texts that transformers cuts otherwise than the file says, by model, and why."""
TALKS = {
    "a question": [{"role": "user", "content": "What is an animal?"}],
    "several turns": [
        {"role": "system", "content": "You are brief."},
        {"role": "user", "content": "Hi, you there\n"},
        {"role": "assistant", "content": "  Hello."},
        {"role": "user", "content": "你好"},
    ],
}


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
    sentence, by transformers in float64; and the change of the log-probability of what comes after
    the short text where a hook takes a head away, [layer, head].
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
        effects = effects_by_hooks(name, model)
    weights = [layer[0].double().numpy() for layer in answer.attentions]
    logits = answer.logits[0].double().numpy()
    del model, answer
    gc.collect()
    return weights, logits, effects


def effects_by_hooks(name: str, model: Any) -> np.ndarray:
    """How much the log-probability of the likeliest next token changes without each head of a model
    of transformers, [layer, head]: one run a layer, of as many texts as it has heads."""
    import torch

    ids = torch.tensor([[token.id for token in attncli.load(name).encode(SHORT)]])
    own = model(ids, logits_to_keep=1).logits[0, -1].log_softmax(-1)
    effects = []
    for block in model.model.layers:
        width = block.self_attn.head_dim
        heads = block.self_attn.o_proj.in_features // width

        def take_away(
            module: Any,
            inputs: tuple[torch.Tensor, ...],
            heads: int = heads,
            width: int = width,
        ) -> tuple[torch.Tensor, ...]:
            """What enters W_O with the part of head n 0 in text n."""
            changed = inputs[0].clone()
            for head in range(heads):
                changed[head, :, head * width : (head + 1) * width] = 0
            return (changed,)

        hook = block.self_attn.o_proj.register_forward_pre_hook(take_away)
        logits = model(ids.expand(heads, -1), logits_to_keep=1).logits[:, -1]
        hook.remove()
        effects.append((logits.log_softmax(-1) - own)[:, own.argmax()].numpy())
    return np.stack(effects)


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


def test_each_head_taken_away_changes_the_prediction_as_a_hook_does(
    name: str, reference: tuple[list[np.ndarray], np.ndarray, np.ndarray]
) -> None:
    *_, expected = reference
    model = attncli.load(name, dtype="float64", backend="numpy", hold=True)
    document = attncli.ablate(model, SHORT, measures=["logprob"], baseline="none")
    effects = np.full_like(expected, np.nan)
    for row in document.effects:
        effects[row.layer, row.head] = row.logprob
    assert np.abs(effects - expected).max() < PARITY * max(1.0, np.abs(expected).max())
    # a control that must fail: the effects of other heads
    assert np.abs(np.roll(effects, 1, axis=1) - expected).max() > 1e-2


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


@pytest.fixture(scope="module")
def theirs(file: Path) -> Any:
    """The tokenizer that transformers makes of the file."""
    import transformers

    return transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)


def test_hard_texts_are_cut_as_transformers_cuts_them(name: str, theirs: Any) -> None:
    ours = attncli.load(name).tokenizer
    unlike = [
        text for text in HARD if [t.id for t in ours.encode(text)] != theirs(text)["input_ids"]
    ]
    assert len(HARD) >= 60
    assert unlike == [text for model, text in UNLIKE if model == name]


@pytest.mark.parametrize("talk", TALKS)
@pytest.mark.parametrize("prompt", [True, False], ids=["prompt", "none"])
def test_a_chat_is_written_and_cut_as_transformers_does(
    name: str, theirs: Any, talk: str, prompt: bool
) -> None:
    ours = attncli.load(name).tokenizer
    if theirs.chat_template is None:
        with pytest.raises(AttnError, match="template"):
            read_template(ours, tools=False)
        return
    written = render(
        read_template(ours, tools=False),
        parse_chat(json.dumps(TALKS[talk]).encode(), ""),
        control_tokens(ours),
        generation_prompt=prompt,
    )
    options = {"add_generation_prompt": prompt}
    assert written.text == theirs.apply_chat_template(TALKS[talk], tokenize=False, **options)
    expected = theirs.apply_chat_template(TALKS[talk], return_dict=False, **options)
    assert [token.id for token in encode_chat(ours, written)] == expected


def test_a_short_text_takes_few_of_the_merges(name: str) -> None:
    """Of Gemma's 514,847 merges a sentence needs some hundred, and no more are built."""
    tokenizer = attncli.load(name).tokenizer
    assert isinstance(tokenizer, PartTokenizer)
    tokenizer.encode(SENTENCES[name])
    (built,) = tokenizer.vocabulary._built.values()
    merges = json.loads(built.to_str())["model"]["merges"]
    assert 0 < len(merges) < 1000
    assert "hf" not in vars(tokenizer)


def test_single_precision_is_as_near_as_transformers_own(
    name: str, file: Path, reference: tuple[list[np.ndarray], np.ndarray, np.ndarray]
) -> None:
    """The default promises what it keeps: weights at most twice as far from float64 as those of
    transformers in float32."""
    import torch
    import transformers

    exact, *_ = reference
    theirs: Any = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32, attn_implementation="eager"
    )
    theirs.eval()
    model = attncli.load(name, backend="torch", dtype="float32")
    tokens = model.encode(SENTENCES[name])
    with torch.no_grad():
        answer = theirs(torch.tensor([[token.id for token in tokens]]), output_attentions=True)
    far = max(
        float(np.abs(layer[0].double().numpy() - expected).max())
        for layer, expected in zip(answer.attentions, exact, strict=True)
    )
    own = max(
        float(np.abs(np.asarray(trace.stages["weights"], np.float64) - expected).max())
        for trace, expected in zip(model.trace(tokens, keep=("weights",)), exact, strict=True)
    )
    assert 0 < own <= 2 * far
    assert far < 1e-3


def test_the_parts_of_a_logit_take_little_more_memory_than_a_run(name: str) -> None:
    """The output head is multiplied tile by tile: no matrix of the whole vocabulary is in memory."""
    peaks = [peak_of(command, name) for command in ("run", "logits")]
    assert peaks[1] < 1.35 * peaks[0]
    assert peaks[1] < 450


def peak_of(command: str, name: str) -> float:
    """The most memory of a process that answers by a command, in MB."""
    code = (
        "import sys\n"
        "from attncli.cli import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])\n"
    )
    words = [command, SENTENCES[name], "--model", name, "--brief", "--quiet"]
    answer = finish([sys.executable, "-c", code, *words])
    assert answer.returncode == 0, answer.stderr
    return int(answer.stdout.split()[-1]) / 1000
