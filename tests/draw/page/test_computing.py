"""The page that computes: its script draws the weights, cuts the text and runs the layers as the
command does; what cannot run there shows the command's numbers and says why."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest
from asking import ask
from browsing import Opened, opened
from processes import finish

import attncli
from attncli.arrays.numpy_backend import NumpyBackend, uniform
from attncli.draw.page.page_frame import join_modules, page_script, page_style, read_asset
from attncli.features.explain.page import SCRIPTS, SHEETS
from attncli.features.explain.page_model import PageModel, page_model
from attncli.inputs.tokenize import BUILTIN, tokenizer
from attncli.mechanism.mask import parse_mask
from attncli.models.model import Model
from attncli.models.one_layer import Settings, seeded_model

TEXT = "humpty dumpty sat on 我爱你 don't 3.14"
CLOSE = 1e-9
"""How near the page is to the command in double precision."""
SINGLE = 1e-6
"""And to the command in single precision, beside the largest number."""


def in_node(tmp_path: Path, body: str, given: Any) -> Any:
    """What a script says that has the page's modules without the page. Skips without node."""
    node = which("node")
    if node is None:
        pytest.skip("no node here (a Debian package)")
    modules = {name: read_asset(f"{name}.js") for name in ("streams", "cutting", "layers")}
    reads = 'const given = JSON.parse(require("fs").readFileSync(process.argv[2], "utf8"));\n'
    code = join_modules(modules).removesuffix("})();") + reads + body + "})();"
    script = tmp_path / "script.js"
    data = tmp_path / "given.json"
    script.write_text(code, "utf-8")
    data.write_text(json.dumps(given), "utf-8")
    done = finish([node, str(script), str(data)])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


RUN = """
const runs = given.map(({ facts, numbers, text, change }) => {
  const bytes = Buffer.from(numbers, "base64");
  const arrays = weightsOfModel(facts, bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
  const tokens = cut(text, facts.tokenizer);
  const rows = (matrix) => matrix.map((row) => [...row]);
  const layers = runModel(facts, arrays, tokens, { mask: null, ...change });
  return { tokens: tokens.map(({ text }) => text), layers: layers.map(({ heads, after }) => ({
    raw: heads.map(({ raw }) => rows(raw)), scaled: heads.map(({ scaled }) => rows(scaled)),
    weights: heads.map(({ weights }) => rows(weights)),
    mixed: heads.map(({ output }) => rows(output)), after: rows(after) })) };
});
console.log(JSON.stringify(runs));
"""


def asked(model: Model, text: str, **change: Any) -> dict[str, Any]:
    """What the script is given to run a model on a text."""
    made = page_model(model)
    assert isinstance(made, PageModel), made
    numbers = b64encode(made.numbers.tobytes()).decode()
    return {"facts": made.facts, "numbers": numbers, "text": text, "change": change}


def farthest(model: Model, text: str, run: dict[str, Any]) -> float:
    """The largest difference of a run from the model's own, beside the largest number of each
    kind."""
    assert run["tokens"] == [token.text for token in model.encode(text)]
    found = 0.0
    for trace, layer in zip(model.trace(text), run["layers"], strict=True):
        stages = {**{name: trace.stages[name] for name in layer if name != "after"}}
        for name, own in {**stages, "after": trace.after}.items():
            wanted = np.asarray(own, np.float64)
            size = max(np.abs(wanted).max(), 1.0)
            found = max(found, float(np.abs(wanted - np.asarray(layer[name])).max() / size))
    return found


SETTINGS = (
    Settings(),
    Settings(d_model=32, heads=4, mask=parse_mask("causal"), position="rope"),
    Settings(d_model=32, heads=4, position="alibi", residual=True, layer_norm=True, bias=True),
    Settings(d_model=24, heads=2, d_k=6, d_v=5, position="sinusoidal", softcap=2.0),
    Settings(d_model=16, position="learned", mask=parse_mask("window:2"), scale="none"),
)


def test_the_page_runs_seeded_weights_as_the_command_does(tmp_path: Path) -> None:
    models = [
        seeded_model(settings, 3, "seeded", tokenizer("word"), NumpyBackend(dtype))
        for settings in SETTINGS
        for dtype in ("float64", "float32")
    ]
    runs = in_node(tmp_path, RUN, [asked(model, TEXT) for model in models])
    for model, run in zip(models, runs, strict=True):
        limit = CLOSE if model.backend.dtype == "float64" else SINGLE
        assert farthest(model, TEXT, run) < limit
    other = seeded_model(Settings(), 4, "seeded", tokenizer("word"), NumpyBackend("float64"))
    assert farthest(other, TEXT, runs[0]) > 0.1, "the comparison sees another seed"


LETTERS = (
    "ab 1.,'’·3٣²①ⅷ_-\t\n\r\x1c\x85\u00a0\u200b\u200c\u200d\ufeffé\u0301ñ我爱あアｱﾞ한각ไทยำမြန်ាក្"
    "🇩🇪🇫🇷👨👩👧🏽❤️1️⃣→↔#עב״ה़हि𠀀𝟙𐀀܏؀"
)


def test_the_page_cuts_texts_as_the_command_does(tmp_path: Path) -> None:
    chance = random.Random(0)
    texts = [
        TEXT,
        "A\u200bB   c_d’e l’eau 1,000.5 f.",
        *("".join(chance.choices(LETTERS, k=chance.randint(1, 14))) for _ in range(300)),
    ]
    models = [
        seeded_model(Settings(d_model=4), 0, "seeded", tokenizer(kind), NumpyBackend("float64"))
        for kind in BUILTIN
    ]
    facts = [asked(model, "")["facts"]["tokenizer"] for model in models]
    body = (
        "const cuts = given.facts.map((facts) => given.texts.map((text) =>"
        " cut(text, facts).map(({ text, id }) => [text, id])));"
        " console.log(JSON.stringify(cuts));"
    )
    found = in_node(tmp_path, body, {"facts": facts, "texts": texts})
    for model, cut in zip(models, found, strict=True):
        for text, tokens in zip(texts, cut, strict=True):
            wanted = [[token.text, token.id] for token in model.tokenizer.encode(text)]
            assert tokens == wanted, repr(text)


def test_the_page_draws_the_streams_of_a_seed(tmp_path: Path) -> None:
    names = ["q.weight", "embedding\0我", "x" * 300, "y" * 131]
    body = (
        "console.log(JSON.stringify(given.map((name) => [...uniformNumbers(7, name, 80, 0.5)])));"
    )
    for name, numbers in zip(names, in_node(tmp_path, body, names), strict=True):
        assert numbers == uniform(7, name, (80,), 0.5).tolist()


LEARNED = {
    "gpt2": (["previous"], "f p e h f"),
    "rope": (["previous", "--position", "rope", "--mlp"], "f p e h"),
    "alibi": (["previous", "--position", "alibi"], "f p e unheard"),
    "window": (["previous", "--mask", "window:2", "--mlp"], "f p e h f"),
    "both": (
        ["sentence", "今天 我 的 计划 是 买菜", "--query", "计划", "--target", "买菜"],
        "今天 我 的 计划",
    ),
}


@pytest.mark.thorough
def test_the_page_runs_what_was_learned_as_the_command_does(tmp_path: Path) -> None:
    models = []
    for name, (words, _) in LEARNED.items():
        folder = tmp_path / name
        told = ask("learn", *words, "--steps", "3", "--save", str(folder))
        assert told.code == 0, told.err
        models.append(attncli.load(str(folder)))
    texts = [text for _, text in LEARNED.values()]
    given = [asked(model, text) for model, text in zip(models, texts, strict=True)]
    for model, text, run in zip(models, texts, in_node(tmp_path, RUN, given), strict=True):
        assert farthest(model, text, run) < SINGLE


def test_the_script_is_small_and_takes_no_text_for_html() -> None:
    code = page_script(*SCRIPTS)
    assert len(code.encode()) <= 60_000
    assert len(page_style(*SHEETS).encode()) <= 20_000
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", code)
    assert "https://" not in code


def test_what_does_not_run_in_the_page_says_why(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    given = ("explain", "humpty dumpty sat on", "--mask", "dilated:3,2", "--html", str(file))
    assert ask(*given).code == 0
    page = file.read_text("utf-8")
    assert "its mask is neither causal nor a window" in page
    assert 'id="text"' not in page
    assert "its mask is neither causal nor a window" in str(
        page_model(
            seeded_model(
                Settings(mask=parse_mask("dilated:3,2")),
                0,
                "seeded",
                tokenizer("word"),
                NumpyBackend("float64"),
            )
        )
    )


# In a browser.


@pytest.fixture(scope="module")
def window(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    file = tmp_path_factory.mktemp("computing") / "page.html"
    text = "humpty <b>dumpty</b> sat on"
    assert ask("explain", text, "--num-heads", "2", "--html", str(file)).code == 0
    found = ready(chromium, file)
    yield found
    found.page.context.close()


def ready(chromium: Any, file: Path) -> Opened:
    """The page, once it has computed."""
    return opened(chromium, file, drawn="() => document.documentElement.dataset.ready === ''")


def put(window: Opened, field: str, value: str) -> None:
    """Write into a field, and leave it."""
    window.value(
        "([id, value]) => { const one = document.getElementById(id); one.value = value;"
        " one.dispatchEvent(new Event('input')); one.dispatchEvent(new Event('change')); }",
        [field, value],
    )


def column(window: Opened, step: str, place: int) -> list[float]:
    """A column of numbers of a step, in full."""
    values = window.value(
        "([step, place]) => [...document.querySelectorAll(`#step-${step} tbody tr`)]"
        ".map((row) => row.children[place].dataset.value)",
        [step, place],
    )
    return [float(value.replace("Infinity", "inf")) for value in values]


def agree_with_the_command(window: Opened) -> None:
    """The page's numbers are those of the command that it names, to 1e-6 beside the largest."""
    words = shlex.split(window.value("() => document.querySelector('#command').textContent"))
    assert words[:2] == ["attn", "explain"]
    document = ask(*words[1:], "--json").json
    steps = {step["step"]: step for step in document["steps"]}
    columns = {
        ("similarity", -1): steps["similarity"]["raw"],
        ("scale", 2): steps["scores"]["scaled"],
        ("softmax", 4): steps["softmax"]["weights"],
        ("softmax", 3): steps["softmax"]["exponentials"],
    }
    last = window.value("() => document.querySelector('#step-similarity thead tr').children.length")
    for (step, place), wanted in columns.items():
        found = column(window, step, last - 1 if place < 0 else place)
        size = max(1.0, *map(abs, wanted))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=SINGLE * size)
    output = window.value(
        "() => [...document.querySelectorAll('#step-output tfoot td')].slice(1)"
        ".map((one) => Number(one.dataset.value))"
    )
    wanted = steps["output"]["output"][: len(output)]
    np.testing.assert_allclose(output, wanted, rtol=0, atol=SINGLE * max(1.0, *map(abs, wanted)))


@pytest.mark.thorough
def test_every_number_is_the_commands_whatever_is_changed(window: Opened) -> None:
    agree_with_the_command(window)
    changes = (
        ("text", "it's 我爱你 & it's"),
        ("mask", "causal"),
        ("seed", "12"),
        ("scale", "0.5"),
        ("heat", "2"),
        ("mask", "window"),
        ("window", "2"),
        ("head", "1"),
    )
    for field, value in changes:
        put(window, field, value)
        agree_with_the_command(window)
    window.page.click("#sentence button:nth-of-type(2)")
    agree_with_the_command(window)
    turn = float(window.value("() => document.querySelector('#step-effect span').dataset.value"))
    words = shlex.split(
        window.value("() => document.querySelector('#step-effect code').textContent")
    )
    effect = ask(*words[1:], "--json").json["effects"][0]["vector"]["cosine"]
    assert turn == pytest.approx(effect, abs=SINGLE)
    window.page.click("#again")
    agree_with_the_command(window)
    window.clean()


@pytest.mark.thorough
def test_a_lone_head_offers_no_other_to_press(chromium: Any, tmp_path: Path) -> None:
    words = "() => document.querySelector('#step-heads').innerText"
    for heads in ("1", "2"):
        file = tmp_path / f"{heads}.html"
        assert ask("explain", "a b c", "--num-heads", heads, "--html", str(file)).code == 0
        found = ready(chromium, file)
        assert ("Press one to go to it" in found.value(words)) == (heads == "2")
        found.clean()
        found.page.context.close()


@pytest.mark.thorough
def test_a_single_weight_can_be_changed_and_put_back(window: Opened) -> None:
    before = column(window, "softmax", 4)
    for field, value in (("matrix", "k"), ("row", "3"), ("column", "1"), ("value", "9.5")):
        put(window, field, value)
    assert column(window, "softmax", 4) != before
    assert "attn" not in window.value("() => document.querySelector('#command').textContent")
    window.value("() => document.querySelector('#back').click()")
    assert column(window, "softmax", 4) == before
    window.clean()


@pytest.mark.thorough
def test_arrows_go_from_step_to_step_and_markup_stays_text(window: Opened) -> None:
    window.page.keyboard.press("ArrowRight")
    window.page.keyboard.press("ArrowRight")
    now = "() => document.querySelector('.step[aria-current=step]').dataset.step"
    assert window.value(now) == "scale"
    window.page.keyboard.press("ArrowLeft")
    assert window.value(now) == "similarity"
    titles = window.value(
        "() => [...document.querySelectorAll('.step h2')].map((o) => o.innerText)"
    )
    assert [title[0] for title in titles[1:]] == list("1234567")
    assert not window.value("() => document.querySelectorAll('main b.x, #sentence b').length")
    put(window, "text", "")
    assert "no tokens" in window.value("() => document.querySelector('#trouble').textContent")
    window.page.click("#again")
    window.page.click("#language")
    assert "相似" in window.value("() => document.querySelector('#step-similarity h2').innerText")
    window.page.click("#language")
    window.clean()


@pytest.mark.thorough
def test_no_table_is_cut_and_formulas_stand_apart(window: Opened) -> None:
    """Tables have as many entries as fit beside the result, at any width of the window."""
    shown = "() => [...document.querySelectorAll('.parts .scroll')].map((one) => one.scrollWidth - one.clientWidth)"
    last = "() => document.querySelector('#step-similarity thead tr').lastChild.textContent"
    for wide in (1600, 1100, 800, 400):
        window.page.set_viewport_size({"width": wide, "height": 860})
        window.until(f"() => ({shown})().every((beyond) => beyond <= 0)", seconds=10)
        assert window.value(last) == "q·k"
        beyond = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert window.value(beyond) == 0
    formula = "() => document.querySelector('#step-projections code').innerText"
    assert "   K = X·W_K   " in window.value(formula)
    window.page.set_viewport_size({"width": 1280, "height": 860})
    window.clean()


@pytest.mark.thorough
def test_a_rotation_is_said_where_there_is_one(chromium: Any, tmp_path: Path) -> None:
    words = "() => document.querySelector('#step-projections').innerText"
    told = {}
    for position in ("rope", "sinusoidal"):
        file = tmp_path / f"{position}.html"
        assert ask("explain", "a b c", "--position", position, "--html", str(file)).code == 0
        found = ready(chromium, file)
        told[position] = "Shown after rotation by position (rope)" in found.value(words)
        found.clean()
        found.page.context.close()
    assert told == {"rope": True, "sinusoidal": False}


@pytest.mark.thorough
def test_a_class_of_other_widths_computes_in_the_page(chromium: Any, tmp_path: Path) -> None:
    """X is 15 wide, the heads together 6, the output projection leaves 20: every number of the page
    is the command's, and so is what it says without the head."""
    torch = pytest.importorskip("torch")
    from torch_classes import Projections

    torch.manual_seed(0)
    names = ("q", "k", "v", "o")
    weights, page = tmp_path / "mine.pt", tmp_path / "page.html"
    torch.save(Projections(15, 3, names, width=6, leaving=20).state_dict(), weights)
    words = ("humpty dumpty sat on", "--weights", str(weights), "--num-heads", "3")
    assert ask("explain", *words, "--query", "on", "--html", str(page)).code == 0
    here = Path.cwd()
    os.chdir(tmp_path)  # the page names the file, not its folder
    try:
        found = ready(chromium, page)
        for field, value in (("text", "a wall"), ("mask", "causal"), ("head", "2"), ("heat", "2")):
            agree_with_the_command(found)
            put(found, field, value)
        agree_with_the_command(found)
        turn = "() => document.querySelector('#step-effect span').dataset.value"
        command = "() => document.querySelector('#step-effect code').textContent"
        effect = ask(*shlex.split(found.value(command))[1:], "--json").json["effects"][0]
    finally:
        os.chdir(here)
    assert float(found.value(turn)) == pytest.approx(effect["vector"]["cosine"], abs=SINGLE)
    found.clean()
    found.page.context.close()
