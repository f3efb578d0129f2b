"""Where one is in a long text: positions at the axes, words beyond the edge of the links, regions
as bands, and a rollout that is made in the background."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from browsing import Opened, opened

WRITTEN = """() => {
  window.written = [];
  const write = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    written.push(text);
    write.call(this, text, ...rest);
  };
}"""
"""From now on, what is written on canvases is kept."""
WORDS = 160


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("long") / "page.html"
    text = " ".join(f"w{at % 53}" for at in range(WORDS))
    options = (
        "--region",
        "beginning=tokens:0-40",
        "--region",
        "middle=tokens:60-90",
        "--num-heads",
        "2",
    )
    answer = ask("run", text, *options, "--html", str(made))
    assert answer.code == 0, answer.err
    return made


@pytest.fixture(scope="module")
def window(chromium: Any, file: Path) -> Iterator[Opened]:
    found = opened(chromium, file)
    found.until("() => document.querySelector('#view canvas.matrix')?.width > 300")
    found.value(WRITTEN)
    yield found
    found.page.context.close()


@pytest.mark.thorough
def test_axes_without_room_for_all_words_have_some_with_their_positions(window: Opened) -> None:
    window.value("() => { written.length = 0; attn.choose({head: 1 - attn.state.head}); }")
    written = set(window.until("() => written.includes('140 w34') && written"))
    assert {"0 w0", "60 w7", "140 w34"} <= written
    assert {"beginning", "middle"} <= written
    assert "w7" not in written
    assert [band[1:] for band in window.value("attn.meta.bands")][:3] == [
        [0, 41],
        [41, 60],
        [60, 91],
    ]
    window.clean()


def test_what_is_chosen_stays_in_sight(window: Opened) -> None:
    window.value("() => { written.length = 0; attn.choose({query: 150, key: 5, view: 'links'}); }")
    line = "() => written.find((text) => text.startsWith('↑'))"
    assert window.until(line)  # what the word looks at stands above what is in sight
    inside = window.until("""() => {
      const box = document.querySelector('#words').getBoundingClientRect();
      const word = document.querySelector('.w.chosen')?.getBoundingClientRect();
      return word && word.top >= box.top - 2 && word.bottom <= box.bottom + 2;
    }""")
    assert inside
    window.value("() => attn.choose({view: 'matrix', query: 0, key: 0})")
    window.until("() => document.querySelector('#view canvas.matrix:not(.waiting)')?.width > 300")
    for _ in range(3):
        window.page.keyboard.press("+")
    window.until("() => document.querySelector('.plot .asks b')?.textContent === 'w0'")
    window.page.keyboard.press("0")
    window.clean()


def test_the_share_of_each_region_follows_the_chosen_word(window: Opened) -> None:
    window.value("() => attn.choose({view: 'matrix', out: true})")
    for query, rests in ((150, []), (3, []), (150, [0, 2])):  # which keys heads rest on
        window.value(f"() => {{ attn.meta.runs[0].rests = {rests}; attn.choose({{query: 7}}); }}")
        row = window.value(
            f"async () => {{ attn.choose({{query: {query}}});"
            f" return [...(await attn.weights(0, attn.state.head)).row({query})]; }}"
        )
        members = {"beginning": range(41), "middle": range(60, 91)}
        members["elsewhere"] = [
            place for place in range(WORDS) if not any(place in part for part in members.values())
        ]  # type: ignore[assignment]
        sums = {
            name: sum(max(row[place], 0) for place in places if place not in rests)
            for name, places in members.items()
        }
        left = sum(sums.values())
        said = [
            f"{name} {100 * sums[name] / left:.1f}%"
            for name in sorted(sums, key=lambda name: -sums[name])
        ]
        if rests:
            said.append(f"rest, of all its weight {100 * (1 - left):.1f}%")
        window.until(
            "() => JSON.stringify([...document.querySelectorAll('#regions span')].map((one) => one.innerText))"
            f" === '{json.dumps(said, separators=(',', ':'))}'"
        )
    window.value("() => attn.choose({out: false})")
    window.until("() => !document.querySelector('#regions').innerText.trim()")
    window.value("() => attn.choose({out: true})")
    window.clean()


@pytest.mark.thorough
def test_a_chat_of_4096_tokens_is_small_and_follows_the_pointer(
    chromium: Any, tmp_path: Path
) -> None:
    """Processor time of the page's tasks, the median of many moves: other work on the machine only
    adds to it.
    """
    words = ["the", "cat", "sat", "on", "a", "mat", "while", "rain", "fell", "over", "hills"]
    documents = [
        f"[[doc{k}]] {' '.join(words[(at * at + k) % 11] for at in range(330))} [[/doc{k}]]"
        for k in (1, 2, 3)
    ]
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "\n".join(documents)},
    ]
    (tmp_path / "chat.json").write_text(json.dumps([*chat, {"role": "user", "content": "what?"}]))
    (tmp_path / "template").write_text("{% for m in messages %}{{ m.content }}\n{% endfor %}")
    rules = [part for k in (1, 2, 3) for part in ("--region", f"doc{k}=[[doc{k}]]…[[/doc{k}]]")]
    line = (
        "run",
        "--chat",
        str(tmp_path / "chat.json"),
        "--chat-template",
        str(tmp_path / "template"),
        *rules,
    )
    file = tmp_path / "page.html"
    options = (
        "--tokenizer",
        "char",
        "--num-heads",
        "8",
        "--mask",
        "causal",
        "--html",
        str(file),
        "--json",
    )
    made = ask(*line, *options)
    assert made.code == 0, made.err
    assert len(made.json["tokens"]) >= 4096
    assert len(made.json["regions"]) >= 6
    assert file.stat().st_size < 16e6
    window = opened(chromium, file)
    window.until("() => document.querySelector('#view canvas.matrix:not(.waiting)')?.width > 300")
    window.page.locator("#view canvas.matrix").scroll_into_view_if_needed()
    box = window.page.locator("#view canvas.matrix").bounding_box()
    session = window.page.context.new_cdp_session(window.page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def worked() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(row["value"] for row in metrics if row["name"] == "TaskDuration")

    moves = []
    for at in range(20):
        before = worked()
        window.page.mouse.move(box["x"] + 150 + 9 * at, box["y"] + 120 + 11 * at)
        window.value("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        moves.append(worked() - before)
    assert sorted(moves[1:])[9] < 0.05
    assert "user" in window.value("document.querySelector('#regions').innerText")
    window.clean()
    window.page.context.close()


def test_the_values_of_a_long_text_add_up(window: Opened) -> None:
    window.value("() => attn.choose({view: 'derivation', query: 100, head: 1})")
    cells = "[...row.children].slice(1).map((cell) => Number(cell.textContent.replace('−', '-')))"
    table = "document.querySelectorAll('#view > .terms :is(tbody, tfoot) tr')"
    *rows, total = window.until(f"() => {table}.length && [...{table}].map((row) => {cells})")
    text = " ".join(f"w{at % 53}" for at in range(WORDS))
    (layer,) = ask("run", text, "--num-heads", "2", "--json", "--stages", "all").json["layers"]
    concat = layer["stages"]["concat"][100]
    assert total == pytest.approx([1, *concat[len(concat) // 2 :][:3]], abs=6e-3)
    assert np.sum(rows, 0) == pytest.approx(total, abs=0.03)
    window.clean()


def test_the_rollout_is_made_in_the_background(window: Opened) -> None:
    window.value("""() => {
      window.bars = [];
      new MutationObserver(() => document.querySelector('#view progress') && bars.push(1)).observe(
        document.querySelector('#view'), {childList: true});
      attn.choose({view: 'rollout', query: 100});
    }""")
    rows = window.until("() => document.querySelector('#view .found .number')?.textContent")
    assert window.value("bars.length")
    heads = []
    for place in (0, 1):
        weights = window.value(
            f"async () => {{ const found = await attn.weights(0, {place});"
            f" return [...Array({WORDS}).keys()].map((row) => [...found.row(row)]); }}"
        )
        heads.append(np.array(weights, float))
    mean = np.mean(heads, axis=0) + np.eye(WORDS)
    row = (mean / mean.sum(-1, keepdims=True))[100]
    assert float(rows) == pytest.approx(row.max(), abs=6e-4)
    window.clean()
