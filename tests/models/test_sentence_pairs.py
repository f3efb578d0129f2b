"""Texts of two segments: tokens, types and weights are those of transformers."""

import json

import numpy as np
import pytest
from asking import ask
from msgspec.structs import replace
from tiny_checkpoints import CASES, Case, make
from tiny_sizes import BERT
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import attncli
from attncli.inputs.token import Text, encode_pair
from attncli.models.verify import run_short_text_whole, runs_by_blocks, whole_weights

FIRST, SECOND = "a cat sat", "the cat ran off"


def checkpoint(case, place, second=1):
    """A tiny checkpoint with a tokenizer that gives a second segment a type."""
    path = make(case, place)
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "sat", "the", "ran", "off"]
    hf = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    hf.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    hf.add_special_tokens(names[:4])
    hf.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair=f"[CLS] $A [SEP] $B:{second} [SEP]:{second}",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    hf.save(str(path / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return checkpoint(CASES["bert"], tmp_path_factory.mktemp("bert"))


def test_the_weights_of_a_pair_are_those_of_transformers(folder):
    torch = pytest.importorskip("torch", reason="no torch here (a Python package)")
    transformers = pytest.importorskip("transformers", reason="no transformers here")
    reader = transformers.AutoTokenizer.from_pretrained(folder)
    given = reader(FIRST, SECOND, return_tensors="pt", return_token_type_ids=True)
    reference = transformers.AutoModel.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager"
    )
    with torch.no_grad():
        expected = reference(**given, output_attentions=True).attentions
    text = Text(FIRST, "argument").with_pair(SECOND)
    model = attncli.load(folder, dtype="float64")
    tokens = encode_pair(model.tokenizer, text.text, text.second)
    assert [token.id for token in tokens] == given["input_ids"][0].tolist()
    assert [token.segment for token in tokens] == given["token_type_ids"][0].tolist()
    assert {token.segment for token in tokens} == {0, 1}
    assert all(text.text[t.start : t.end] == t.text for t in tokens if not t.special)
    alone = model.trace([*model.tokenizer.ids_to_tokens([token.id for token in tokens])])
    for trace, plain, weights in zip(model.trace(tokens), alone, expected, strict=True):
        assert np.allclose(trace.stages["weights"], weights[0].numpy(), atol=1e-9)
        assert not np.allclose(plain.stages["weights"], weights[0].numpy(), atol=1e-4)


@pytest.mark.parametrize("typed", [True, False], ids=["two types", "equal types"])
@pytest.mark.parametrize("name", ["big_bird", "big_bird, longer blocks", "big_bird, whole"])
def test_a_big_bird_reads_a_pair_as_transformers_does(name, typed, tmp_path):
    """Where blocks are drawn, transformers tells of a first-block key one of the 1 + drawn weights
    that it has in the softmax: its rows sum to less than 1, up to 0.66 apart from the attention
    that made its vectors, so these are compared as well.
    """
    torch = pytest.importorskip("torch", reason="no torch here (a Python package)")
    transformers = pytest.importorskip("transformers", reason="no transformers here")
    place = checkpoint(CASES[name], tmp_path / "pair")
    first, second = f"{FIRST} {FIRST}", f"{SECOND} {SECOND} a"
    reader = transformers.AutoTokenizer.from_pretrained(place)
    given = reader(first, second, return_tensors="pt", return_token_type_ids=True)
    given["token_type_ids"] *= int(typed)
    reference = transformers.AutoModel.from_pretrained(
        place, dtype=torch.float64, attn_implementation="eager"
    )
    run_short_text_whole(reference, given["input_ids"].shape[1])
    with torch.no_grad():
        expected = reference(**given, output_attentions=True)
    model = attncli.load(place, dtype="float64")
    text = Text(first, "argument").with_pair(second)
    tokens = encode_pair(model.tokenizer, text.text, text.second)
    assert [token.id for token in tokens] == given["input_ids"][0].tolist()
    if not typed:
        tokens = [replace(token, segment=0) for token in tokens]
    assert [token.segment for token in tokens] == given["token_type_ids"][0].tolist()
    traces = list(model.trace(tokens))
    assert np.allclose(traces[-1].after, expected.last_hidden_state[0].numpy(), atol=1e-9)
    for trace, weights in zip(traces, expected.attentions, strict=True):
        told = weights[0].numpy()
        if runs_by_blocks(reference):
            assert told.sum(-1).min() < 0.9
            told = whole_weights(reference, told, len(tokens))
        assert np.allclose(told.sum(-1), 1)
        assert np.allclose(trace.stages["weights"], told, atol=1e-9)


def test_a_family_that_transformers_runs_reads_a_pair_as_it_does_there(tmp_path):
    torch = pytest.importorskip("torch", reason="no torch here (a Python package)")
    transformers = pytest.importorskip("transformers", reason="no transformers here")
    place = checkpoint(Case("ernie", BERT), tmp_path / "ernie")
    given = transformers.AutoTokenizer.from_pretrained(place)(
        FIRST, SECOND, return_tensors="pt", return_token_type_ids=True
    )
    reference = transformers.AutoModel.from_pretrained(
        place, dtype=torch.float64, attn_implementation="eager"
    )
    with torch.no_grad():
        expected = reference(**given, output_attentions=True).attentions
    model = attncli.load(place, dtype="float64")
    assert model.spec.embedding.types == 2
    tokens = encode_pair(model.tokenizer, f"{FIRST}\n{SECOND}", len(FIRST) + 1)
    alone = model.trace([replace(token, segment=0) for token in tokens])
    for trace, plain, weights in zip(model.trace(tokens), alone, expected, strict=True):
        assert np.allclose(trace.stages["weights"], weights[0].numpy(), atol=1e-6)
        assert not np.allclose(plain.stages["weights"], weights[0].numpy(), atol=1e-3)


def test_a_type_that_the_table_lacks_is_refused_with_both(tmp_path):
    place = checkpoint(CASES["bert"], tmp_path / "bert", second=2)
    refused = ask("run", FIRST, "--pair", SECOND, "--model", str(place))
    assert refused.code == 3
    told = " ".join(refused.err.split())
    assert "gives 'the' the type 2, and this model has the types 0 to 1" in told
    assert ask("run", FIRST, "--model", str(place)).code == 0


def test_a_type_of_a_model_of_one_is_told(tmp_path):
    place = checkpoint(Case("bert", {**BERT, "type_vocab_size": 1}), tmp_path / "one")
    asked = ("run", FIRST, "--model", str(place), "--json")
    told = ask(*asked, "--pair", SECOND).json["warnings"]
    assert any("'the' the type 1, and this model has the type 0 alone" in note for note in told)
    assert not any("the type 0 alone" in note for note in ask(*asked).json["warnings"])


def test_words_of_either_segment_are_named(folder):
    found = ask(
        *("find", FIRST, "--pair", SECOND, "--model", str(folder), "--from", "off", "--to", "sat"),
        "--json",
    ).json
    assert found["text"] == f"{FIRST}\n{SECOND}"
    assert [token.get("segment", 0) for token in found["tokens"]] == [0] * 5 + [1] * 5
    typed = ask("run", f"{FIRST} [SEP] {SECOND}", "--model", str(folder), "--json").json
    assert any("--pair TEXT gives it a second" in warning for warning in typed["warnings"])


def test_a_model_without_types_of_segments_says_so(folder, tmp_path):
    told = ask("run", FIRST, "--pair", SECOND, "--brief").err
    assert "this model has no segments: it reads both texts as one" in " ".join(told.split())
    assert "no segments" not in ask("run", FIRST, "--pair", SECOND, "--model", str(folder)).err
    between = make(CASES["roberta"], tmp_path / "between")
    (between / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    told = ask("run", FIRST, "--pair", SECOND, "--model", str(between), "--brief").err
    assert "tells the two texts apart by '[SEP]' between them alone" in " ".join(told.split())


@pytest.mark.parametrize("more", [("--ids", "4 5", "--pair", "a"), ("a cat", "--pair", " ")])
def test_a_pair_of_no_text_is_refused(more, folder):
    assert ask("run", *more, "--model", str(folder)).code in (2, 3)


def test_scores_by_segment_are_said_to_be_left_out(folder, tmp_path):
    """XLNet's published template makes a segment of <cls> alone."""
    place = make(CASES["xlnet"], tmp_path / "xlnet")
    reader = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for template, is_told in (("$A [SEP] [CLS]:2", True), ("$A [SEP] [CLS]", False)):
        reader.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
        reader.save(str(place / "tokenizer.json"))
        document = ask("run", FIRST, "--model", str(place), "--json").json
        told = [note for note in document["warnings"] if "another segment" in note]
        assert bool(told) == is_told
        assert all("'[CLS]' is of another" in note for note in told)
    refused = ask("run", FIRST, "--pair", SECOND, "--model", str(place))
    assert refused.code == 4
    assert "another segment" in refused.err
