"""Two forms of one model: every number against loops, and against transformers; sides named as
arguments; what cannot be compared."""

import json
import math
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from small_gpt2 import small_gpt2
from validity import validate

import attncli
from attncli.errors import InputError
from attncli.features.compare.model_sides import named_models
from attncli.features.compare_models.compute import DIVERGENCES, LAYER_STEP, compare_cost
from attncli.features.compare_models.document import ChangedNumber
from attncli.features.compare_models.screen import _js_beside
from attncli.inputs.tensors import read_tensors, write_tensors

TEXT = "the cat sat on the mat"
LINES = (TEXT, "she ate an apple", "the")


def other_form(folder: Path, into: Path, *, noise: float = 0.1) -> Path:
    """A copy of a checkpoint whose numbers are drawn a little off."""
    shutil.copytree(folder, into)
    drawn = np.random.default_rng(9)
    tensors = {
        name: np.asarray(values, np.float32)
        + drawn.normal(0, noise, np.shape(values)).astype(np.float32)
        for name, values in read_tensors(folder / "model.safetensors").items()
    }
    write_tensors(into / "model.safetensors", tensors, {})
    return into


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small decoder, and another form of it."""
    place = tmp_path_factory.mktemp("forms")
    first = small_gpt2(place / "first")
    return first, other_form(first, place / "second")


def divergence(p: Sequence[float], q: Sequence[float]) -> float:
    """Jensen–Shannon divergence in nats, term by term."""
    total = 0.0
    for x, y in zip(p, q, strict=True):
        middle = (x + y) / 2
        if x:
            total += x * math.log(x / middle) / 2
        if y:
            total += y * math.log(y / middle) / 2
    return total


def expected_numbers(
    weights: Sequence[np.ndarray[Any, Any]], logits: Sequence[np.ndarray[Any, Any]], ids: list[int]
) -> tuple[dict[tuple[int, int], float], list[float], int]:
    """The divergence of each head, ln p of the text in either model, and the tokens after which
    both say the same, by loops. weights: of either model, [layer, head, query, key]. logits:
    [token, vocabulary]."""
    js = {}
    for layer in range(weights[0].shape[0]):
        for head in range(weights[0].shape[1]):
            rows = [
                divergence(p, q)
                for p, q in zip(
                    weights[0][layer, head].tolist(), weights[1][layer, head].tolist(), strict=True
                )
            ]
            js[layer, head] = sum(rows) / len(rows)
    sums = []
    for table in logits:
        total = 0.0
        for place, following in enumerate(ids[1:]):
            row = table[place].tolist()
            largest = max(row)
            total += row[following] - largest - math.log(sum(math.exp(x - largest) for x in row))
        sums.append(total)
    same = sum(int(a.argmax()) == int(b.argmax()) for a, b in zip(*logits, strict=True))
    return js, sums, same


def check_change(
    change: Any, js: dict[tuple[int, int], float], sums: Sequence[float], same: int, count: int
) -> None:
    """Every number of a document against the expected ones."""
    for head in change.heads:
        assert head.js.mean == pytest.approx(js[head.layer, head.head], abs=1e-5)
    for layer in change.layers:
        values = [value for (place, _), value in js.items() if place == layer.layer]
        assert layer.js.mean == pytest.approx(sum(values) / len(values), abs=1e-5)
        assert layer.moved == sum(value > change.beyond for value in values)
    assert change.moved == sum(value > change.beyond for value in js.values())
    assert change.logprob.a == pytest.approx(sums[0] / (count - 1), abs=1e-5)
    assert change.logprob.b == pytest.approx(sums[1] / (count - 1), abs=1e-5)
    assert change.logprob.difference.mean == pytest.approx(
        (sums[1] - sums[0]) / (count - 1), abs=1e-5
    )
    assert change.agreement.mean == pytest.approx(same / count)


def test_every_number_is_that_of_loops(folders: tuple[Path, Path]) -> None:
    models = [attncli.load(folder) for folder in folders]
    tokens = models[0].encode(TEXT)
    weights = []
    logits = []
    for model in models:
        layers = list(model.trace(tokens, idle=True))
        weights.append(np.stack([np.asarray(trace.stages["weights"]) for trace in layers]))
        logits.append(np.asarray(model.logits(layers[-1].after), np.float64))
    ids = [token.id or 0 for token in tokens]
    document = attncli.compare_models(*models, TEXT, beyond=0.004)
    check_change(document.change, *expected_numbers(weights, logits, ids), len(tokens))
    assert 0 < document.change.moved < len(document.change.heads)
    most = max(
        ((abs(b - a), b - a) for a, b in zip(*(w.ravel().tolist() for w in weights), strict=True))
    )
    assert max(document.change.heads, key=lambda head: abs(head.max_difference)).max_difference == (
        pytest.approx(most[1], abs=1e-6)
    )
    for row, told in zip(logits, (document.change.next.a, document.change.next.b), strict=True):
        order = np.argsort(-row[-1])
        assert [token.token.id for token in told] == order[:5].tolist()
        shares = np.exp(row[-1] - row[-1].max())
        assert told[0].probability == pytest.approx(shares.max() / shares.sum(), abs=1e-6)


@pytest.mark.thorough
def test_every_number_is_that_of_transformers(folders: tuple[Path, Path]) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    models = [attncli.load(folder) for folder in folders]
    ids = [token.id or 0 for token in models[0].encode(TEXT)]
    weights = []
    logits = []
    for folder in folders:
        reference = transformers.GPT2LMHeadModel.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float64
        ).eval()
        with torch.no_grad():
            result = reference(torch.tensor([ids]), output_attentions=True)
        weights.append(np.stack([layer[0].numpy() for layer in result.attentions]))
        logits.append(result.logits[0].numpy())
    document = attncli.compare_models(*models, TEXT)
    check_change(document.change, *expected_numbers(weights, logits, ids), len(ids))


def test_over_texts_numbers_are_means(folders: tuple[Path, Path], tmp_path: Path) -> None:
    models = [attncli.load(folder) for folder in folders]
    alone = [attncli.compare_models(*models, text) for text in LINES]
    together = attncli.compare_models(*models, LINES)
    assert (together.texts, together.tokens) == (3, sum(document.tokens for document in alone))
    by_place = [
        {(head.layer, head.head): head.js.mean for head in document.change.heads}
        for document in alone
    ]
    for head in together.change.heads:
        values = [places[head.layer, head.head] for places in by_place]
        assert head.js.mean == pytest.approx(sum(values) / 3)
    assert together.change.logprob is not None
    counts = [document.tokens - 1 for document in alone]
    sums = [
        document.change.logprob.a * count
        for document, count in zip(alone, counts, strict=True)
        if document.change.logprob is not None
    ]
    assert together.change.logprob.a == pytest.approx(sum(sums) / sum(counts))
    assert together.change.logprob.tokens == sum(counts)
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(LINES))
    command = ("compare", *map(str, folders), "--file", str(file), "--lines")
    document = ask(*command, "--json").json
    validate(document, "attn.compare_models/1")
    assert document["change"]["heads"][0]["js"]["mean"] == pytest.approx(
        together.change.heads[0].js.mean
    )
    assert document["change"]["heads"][0]["js"]["low"] is None
    screen = ask(*command)
    assert "heads moved by more than 0.01 on average" in " ".join(screen.out.split())
    assert "Below 20 texts there is no interval." in screen.out


def test_twenty_texts_have_intervals(folders: tuple[Path, Path]) -> None:
    models = [attncli.load(folder, hold=True) for folder in folders]
    words = TEXT.split()
    texts = [" ".join(words[place % 5 :] + words[: place % 7]) for place in range(20)]
    change = attncli.compare_models(*models, texts).change
    assert change.logprob is not None
    for number in (change.heads[0].js, change.layers[0].js, change.logprob.difference):
        assert number.low is not None
        assert number.high is not None
        assert number.low < number.mean < number.high


def test_one_text_holds_the_change_beside_the_links(folders: tuple[Path, Path]) -> None:
    document = ask("compare", *map(str, folders), TEXT, "--json").json
    validate(document, "attn.compare/1")
    change = document["models"]
    rows = {(head["a"]["layer"], head["a"]["head"]): head["js"] for head in document["heads"]}
    assert {(head["layer"], head["head"]): head["js"]["mean"] for head in change["heads"]} == (
        pytest.approx(rows, abs=1e-6)
    )
    screen = ask("compare", *map(str, folders), TEXT)
    said = " ".join(screen.out.split())
    assert f"{change['moved']} of 6 heads moved by more than 0.01" in said
    assert "what comes next" in screen.out
    by_option = ask(
        "compare", TEXT, "--model", str(folders[0]), "--model", str(folders[1]), "--json"
    )
    assert by_option.json["models"] == change


def test_a_model_and_itself_differ_in_nothing(folders: tuple[Path, Path]) -> None:
    said = ask("compare", str(folders[0]), str(folders[0]), TEXT, "--brief")
    assert said.code == 0, said.err
    again = ask("compare", str(folders[0]), f"{folders[0]}/", TEXT, "--brief")
    assert "None of the 6 heads moved." in again.out


def test_a_bound_is_a_verdict(folders: tuple[Path, Path], tmp_path: Path) -> None:
    command = ("compare", *map(str, folders), TEXT)
    assert ask(*command, "--fail-above", "js=0.69").code == 0
    failed = ask(*command, "--fail-above", "js=1e-6", "--brief")
    assert failed.code == 1
    # the bound is for the verdict: the answer counts heads as it does without one
    assert failed.out == ask(*command, "--brief").out
    assert "heads moved by more than 0.01" in " ".join(failed.out.split())
    assert "(Jensen–Shannon)" in failed.err
    (tmp_path / "lines").write_text("\n".join(LINES))
    lines = ("compare", *map(str, folders), "--file", str(tmp_path / "lines"), "--lines")
    assert ask(*lines, "--fail-above", "js=1e-6").code == 1
    assert ask(*lines, "--fail-above", "1").code == 0
    for wrong in ("js", "js=", "js=1", "=1", "kl=1", "nan", "js=-1", "x"):
        assert ask(*command, "--fail-above", wrong).code == 2, wrong


def test_what_cannot_be_compared_says_why(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = small_gpt2(tmp_path / "longer", layers=3)
    refused = ask("compare", str(folders[0]), str(longer), TEXT)
    assert refused.code == 3
    assert "has 2 layers with 6 heads in all" in refused.err
    assert "has 3 with 9" in refused.err
    assert "--layer and --head" in refused.err
    monkeypatch.setattr("small_gpt2.WIDTH", 12)
    wider = small_gpt2(tmp_path / "wider", layers=3)
    assert "--layer and --head" not in ask("compare", str(folders[0]), str(wider), TEXT).err
    other = tmp_path / "other"
    shutil.copytree(folders[0], other)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["a"], vocabulary["c"] = vocabulary["c"], vocabulary["a"]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(InputError, match=r"split the text differently: from token \d on"):
        attncli.compare_models(attncli.load(folders[0]), attncli.load(other), TEXT)
    noted = ask("compare", str(folders[0]), str(other), TEXT, "--json")
    assert noted.code == 0
    assert "split the text differently" in noted.err
    assert "models" not in noted.json
    lines = ask("compare", TEXT, "--lines", "--mask", "none", "--mask", "causal")
    assert lines.code == 2
    assert "two models" in lines.err
    query = ask("compare", *map(str, folders), TEXT, "--lines", "--query", "cat")
    assert (query.code, query.out) == (2, "")


def test_arguments_name_models(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    first, second = map(str, folders)
    (adapter := tmp_path / "adapter").mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    gguf = tmp_path / "a.gguf"
    gguf.write_bytes(b"GGUF")

    def bases(*arguments: str, has_text: bool = False) -> tuple[list[str], list[str]]:
        """What the models are read from, and the texts."""
        models, texts = named_models(arguments, has_text=has_text)
        return [model.base for model in models], texts

    assert bases(first, second, TEXT) == ([first, second], [TEXT])
    assert bases(TEXT, first, str(gguf)) == ([first, str(gguf)], [TEXT])
    loud = gguf.with_name("B.GGUF")
    loud.write_bytes(b"GGUF")
    assert bases(TEXT, first, str(loud)) == ([first, str(loud)], [TEXT])
    assert bases("minilm", "smollm2", TEXT) == (["minilm", "smollm2"], [TEXT])
    assert bases("Minilm", "smollm2@v1") == (["Minilm", "smollm2@v1"], [])
    assert bases("owner/name", "minilm", TEXT) == (["owner/name", "minilm"], [TEXT])
    assert bases("owner/name", "minilm", has_text=True) == (["owner/name", "minilm"], [])
    assert bases("minilm", str(gguf)) == (["minilm", str(gguf)], [])
    assert bases("and/or", "either/or") == ([], ["and/or", "either/or"])
    assert bases("bert", TEXT) == ([], ["bert", TEXT])
    assert bases(first, TEXT, "another text") == ([], [first, TEXT, "another text"])
    # a hub name is never asked for where it may be a text
    for texts in (("km/h", "he ran"), ("he ran", "km/h"), ("km/h", "he/she")):
        assert bases(first, *texts) == ([], [first, *texts])
    assert bases("km/h", first, "best") == ([], ["km/h", first, "best"])
    assert bases(first, "owner/name", has_text=True) == ([first, "owner/name"], [])
    assert bases("minilm", first, TEXT) == (["minilm", first], [TEXT])
    models, texts = named_models(("minilm", f"minilm+{adapter}:0.5", TEXT), has_text=False)
    assert [(model.base, model.adapters) for model in models] == [
        ("minilm", ()),
        ("minilm", (f"{adapter}:0.5",)),
    ]
    assert texts == [TEXT]
    for wrong in ("minlm", "none.gguf", f"minilm+{tmp_path}"):
        with pytest.raises(InputError):
            named_models(("minilm", wrong, TEXT), has_text=False)


def test_a_misspelt_model_is_no_text(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    first, second = map(str, folders)
    for arguments, close in (
        (("smolm2", first, TEXT), "did you mean smollm2?"),
        ((first, "minlm", "the"), "did you mean minilm?"),
        ((f"{first}+nope", second, "the"), f"did you mean {first}?"),
        (("minilm+nope", second, "the"), "did you mean minilm?"),
        ((str(folders[0].parent / "frist"), second, "the"), f"did you mean {first}?"),
        ((second, "the", f"{tmp_path}/nothing"), "attn models list"),
    ):
        with pytest.raises(InputError) as refused:
            named_models(arguments, has_text=False)
        assert refused.value.hint == close, arguments
    with pytest.raises(InputError, match="'thing' names no model"):
        named_models((first, "thing"), has_text=True)


def test_what_is_too_much_is_refused_with_what_to_do(
    tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    first, second = map(str, folders)
    for third in (first, second):
        three = ask("compare", first, second, third)
        assert three.code == 2
        assert "three models are given" in three.err
    assert ask("compare", "minilm", "gpt2", first).code == 2
    (tmp_path / "lines").write_text("the cat")
    file = ("--file", str(tmp_path / "lines"))
    for more in ((), ("--lines",)):
        twice = ask("compare", first, second, TEXT, *file, *more)
        assert (twice.code, "texts are given, and a file of them" in twice.err) == (2, True)
    changed = ask("compare", first, second, TEXT, "--with-adapter", "x")
    assert (changed.code, "--with-adapter compares one model" in changed.err) == (2, True)
    read = ask("compare", first, "km/h", "he/h", "--brief")
    assert "km/h is read as a text; for the model on the hub: --model km/h" in read.err
    same = ask("compare", first, first, *file, "--lines")
    assert (same.code, "both are the same" in same.err) == (2, True)


def test_one_file_by_two_names_has_the_same_weights(
    tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    first, second = map(str, folders)
    copy = shutil.copytree(first, tmp_path / "copy")
    link = tmp_path / "link"
    link.symlink_to(first)
    for other, differs in ((copy, []), (link, []), (second, ["weights"])):
        assert ask("compare", first, str(other), TEXT, "--json").json["differs"] == differs
    for number, folder in enumerate((first, copy)):
        saved = ask("run", TEXT, "--model", str(folder), "--json").out
        (tmp_path / f"{number}.json").write_text(saved)
    runs = [str(tmp_path / f"{number}.json") for number in (0, 1)]
    assert ask("compare", *runs, "--json").json["differs"] == []


def test_the_mask_is_told_and_the_line_of_an_error(
    tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("\n".join(LINES))
    command = ("compare", *map(str, folders), "--file", str(lines), "--lines")
    masked = ask(*command, "--mask", "window:2", "--json").json
    assert "window:2" in masked["a"]["attention"]["mask"]
    assert "window:2" in ask(*command, "--mask", "window:2").out
    assert "nats (" in " ".join(ask(*command, "--brief").out.split())
    lines.write_text(f"{TEXT}\n{'the cat ' * 300}")
    long = ask(*command)
    assert long.code
    assert f"{lines}:2" in "".join(long.err.split())


def test_a_query_and_the_bound_are_about_the_same_rows(folders: tuple[Path, Path]) -> None:
    command = ("compare", *map(str, folders), TEXT, "--query", "cat")
    document = ask(*command, "--json").json
    rows = [head["js"] for head in document["heads"]]
    assert document["models"]["heads"][0]["js"]["mean"] == pytest.approx(max(rows), abs=1e-6)
    failed = ask(*command, "--fail-above", "js=1e-6", "--brief")
    assert f"{max(rows):.2g}" in failed.out.split("In the rows compared")[1]
    assert f"{max(rows):.6g}"[:6] in failed.err
    whole = ask(*command[:-2], "--json").json["models"]["heads"][0]["js"]["mean"]
    assert whole != pytest.approx(max(rows), abs=1e-4)


def test_a_divergence_beside_its_bound_has_enough_digits() -> None:
    near = ChangedNumber(mean=0.010049, low=None, high=None)
    assert _js_beside(near, 0.01) == "0.01005"
    assert _js_beside(near, 0.02) == "0.01"


def test_small_changes_are_not_drawn_as_if_they_were_large(tmp_path: Path) -> None:
    first = small_gpt2(tmp_path / "first", layers=14)
    second = other_form(first, tmp_path / "second", noise=1e-3)
    screen = ask("compare", str(first), str(second), TEXT, "--show", "models").out
    assert "▇▇" not in screen
    assert "<0.0001" in screen
    assert "4 layers that moved less; --full shows all" in screen
    whole = ask("compare", str(first), str(second), TEXT, "--show", "models", "--full").out
    assert "moved less" not in whole


@pytest.fixture(scope="module")
def lines_of(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of the texts, one a line."""
    file = tmp_path_factory.mktemp("lines") / "lines.txt"
    file.write_text("\n".join(LINES))
    return file


def test_the_figure_and_the_page_show_every_head(
    folders: tuple[Path, Path], lines_of: Path, tmp_path: Path
) -> None:
    files = [tmp_path / name for name in ("a.svg", "a.html", "b.svg", "b.html", "a.json")]
    command = ("compare", *map(str, folders), "--file", str(lines_of), "--lines")
    answer = ask(*command, "--figure", str(files[0]), "--html", str(files[1]), "--json")
    assert answer.code == 0, answer.err
    files[4].write_text(answer.out)
    view = ("view", str(files[4]), "--figure", str(files[2]), "--html", str(files[3]))
    assert ask(*view).code == 0
    assert files[2].read_bytes() == files[0].read_bytes()
    texts = ["".join(text.itertext()) for text in ET.parse(files[0]).iter() if "text" in text.tag]
    change = answer.json["change"]
    rows = [text for text in texts if text.startswith("layer ")]
    assert rows == [f"layer {head['layer']} head {head['head']}" for head in change["heads"]]
    numbers = [f"{head['js']['mean']:.2g}" for head in change["heads"]]
    assert [text for text in texts if text in numbers] == numbers
    assert f"{change['moved']} of 6 heads moved by more than 0.01" in " ".join(texts)
    assert "line: 0.01, above which a head counts as moved" in texts
    for page in (files[1], files[3]):
        text = page.read_text("utf-8")
        assert "heads moved by more than 0.01 on average" in text
        assert "image/svg+xml" in text
        assert str(folders[0]) not in text


def test_what_it_takes_is_told_before(
    folders: tuple[Path, Path], lines_of: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("compare", *map(str, folders), "--file", str(lines_of), "--lines", "--brief")
    assert ask(*command).err == ""
    monkeypatch.setattr("attncli.features.compare.command.PATIENCE", 0.0)
    assert "3 texts of up to" in ask(*command).err
    models = [attncli.load(folder) for folder in folders]
    short, long = (compare_cost(*models, counts) for counts in ([4, 4], [4, 4, 30]))
    assert (short.branches, short.tokens, long.branches, long.tokens) == (2, 4, 3, 30)
    assert short.seconds < long.seconds
    # pairs of weights of 2 layers of 3 heads, and what each of 2 layers takes in either model
    more = long.seconds - short.seconds
    assert more > 6 * 30**2 / DIVERGENCES + 2 * 2 * LAYER_STEP
    assert ask(*command, "--max-memory", "1MB").code == 5


def test_a_name_on_the_hub_is_a_side(
    folders: tuple[Path, Path], lines_of: Path, tmp_path: Path
) -> None:
    repository = tmp_path / "models--owner--form"
    shutil.copytree(folders[1], repository / "snapshots" / ("0" * 40))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    variables = {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    command = ("--file", str(lines_of), "--lines", "--json")
    named = ask("compare", str(folders[0]), "owner/form", *command, **variables)
    assert named.code == 0, named.err
    by_folder = ask("compare", *map(str, folders), *command).json
    assert named.json["change"] == by_folder["change"]
    assert named.json["b"]["name"] == "owner/form"
