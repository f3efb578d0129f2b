"""The page's script: typed, small, joined without a change of meaning; the page: closed, and read
by Firefox too.
"""

from __future__ import annotations

import re
import time
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import which
from threading import Thread
from typing import Any

import pytest
from pictures import png
from processes import finish

import attncli.draw.page
from attncli.arrays.numpy_backend import NumpyBackend
from attncli.draw.page import (
    COMPARING,
    EFFECTS,
    MODULES,
    REGIONS,
    WHY,
    Page,
    document_page,
    page_bytes,
    steps_page,
)
from attncli.draw.page.page_frame import join_modules, page_script, page_style
from attncli.draw.page.page_words import PAGE_WORDS, words_by_language
from attncli.features.answer import page as answer_page
from attncli.features.circuit import page as circuit_page
from attncli.features.explain import page as explain_page
from attncli.inputs.tokenize import tokenizer
from attncli.measure.run_record import run_record
from attncli.models.one_layer import Settings, seeded_model
from attncli.scan import corpus_page

FOLDER = Path(attncli.draw.page.__file__).parent


def page() -> str:
    model = seeded_model(
        Settings(d_model=16, heads=2), 0, "seeded", tokenizer("word"), NumpyBackend("float32")
    )
    record = run_record(model, "humpty dumpty sat on", model.encode("humpty dumpty sat on"))
    return b"".join(page_bytes(Page("humpty </title><script>", [record]))).decode()


def test_the_types_hold() -> None:
    checker = which("tsc")
    if checker is None:
        pytest.skip("no tsc here (the npm package typescript)")
    told = [
        "--allowJs",
        "--checkJs",
        "--noEmit",
        "--strict",
        "--target",
        "es2022",
        "--module",
        "es2022",
    ]
    told += [
        "--lib",
        "es2022,dom,dom.iterable",
        "--moduleResolution",
        "bundler",
        "--noUnusedLocals",
    ]
    files = [
        str(FOLDER / f"{name}.js")
        for name in (*MODULES, "types", "table", "document", "circuit", "answer")
    ]
    done = finish([checker, *told, *files])
    assert done.returncode == 0, done.stdout


def test_every_module_is_in_the_script() -> None:
    assert {path.stem for path in FOLDER.glob("*.js")} - {
        "answer",
        "circuit",
        "corpus",
        "cutting",
        "explain",
        "layers",
        "scatter",
        "steps",
        "streams",
        "document",
        "table",
    } == {
        *MODULES,
        "types",
    }


@pytest.mark.parametrize(
    ("unused", "limit"),
    [
        ((*COMPARING, *EFFECTS, *REGIONS), 100_000),
        ((*COMPARING, *WHY), 100_000),
        ((*EFFECTS, *WHY, *REGIONS), 100_000),
    ],
    ids=["why", "effects", "compare"],
)
def test_script_and_style_are_small(unused: tuple[str, ...], limit: int) -> None:
    sheets = ["stacked"] if "stacked" not in unused else []
    modules = [name for name in MODULES if name not in unused]
    assert len(page_script(*modules).encode()) + len(page_style(*sheets).encode()) <= limit


SOURCE = r"""
const found = { found: 1, other: { name: "a b" } }; // said
let { found: first, other: { name }, none = 7 } = found;
const inside = (text, { deep = 2, ...rest } = {}, ...more) => [text, deep, Object.keys(rest).length, more.length];
export function told(value) {
  const line = `a ${[1, 2].map((one) => `${one} }${value}`)} // b`;
  return { line, first, name, none, both: [...inside("x", { deep: 3, extra: 1 }, 4)] };
}
const pattern = /[/"]\//.test("x/") ? + +1 / 2 : - -3;
for (const [key, value] of Object.entries({ pattern, done: (() => ({ pattern }))().pattern }))
  first += key.length + value;
"""
USER = r"""
import { told } from "./one.js";
window.told = JSON.stringify([told("v"), first, typeof pattern]);
"""


@pytest.mark.thorough
def test_modules_are_joined_and_nothing_else(chromium: Any) -> None:
    """The joined script does what the modules do, and leaves no name behind."""
    window = chromium.new_page()
    window.evaluate(join_modules({"one": SOURCE, "two": USER}))
    found = window.evaluate("told")
    assert window.evaluate("typeof pattern") == "undefined"
    window.evaluate(
        "(() => {"
        + SOURCE.replace("export ", "")
        + USER.partition("\n")[2].partition("\n")[2]
        + "})()"
    )
    assert found == window.evaluate("window.told")
    assert '"line":"a 1 }v,2 }v // b"' in found
    window.close()


DECLARED = re.compile(
    r"^(?:async )?(?:function\*?|const|let|class) (\w+|[\[{][^\]}]*[\]}])", re.MULTILINE
)


@pytest.mark.parametrize(
    "code",
    [
        page_script(*MODULES),
        *(
            page_script(*page.SCRIPTS)
            for page in (
                answer_page,
                circuit_page,
                corpus_page,
                document_page,
                explain_page,
                steps_page,
            )
        ),
    ],
)
def test_no_name_is_declared_twice(code: str) -> None:
    """The modules of a page share one scope."""
    names = re.findall(r"\w+", " ".join(DECLARED.findall(code)))
    assert len(names) > 20
    assert sorted(names) == sorted(set(names))


class Closed(HTMLParser):
    """Notes the policy, scripts and styles of a page, and everything that could lead out of it."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = self.open = ""
        self.inline: list[str] = []
        self.out: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""
        self.open = tag if tag in ("script", "style") and "type" not in given else ""
        self.inline += [""] if self.open else []
        self.out += [
            name
            for name in given
            if name in ("src", "href", "style", "action") or name.startswith("on")
        ]

    def handle_endtag(self, tag: str) -> None:
        self.open = ""

    def handle_data(self, data: str) -> None:
        if self.open:
            self.inline[-1] += data


def test_the_page_is_closed() -> None:
    found = Closed()
    found.feed(page())
    assert found.out == []
    hashes = [
        "'sha256-" + b64encode(sha256(text.encode()).digest()).decode() + "'"
        for text in found.inline
    ]
    assert len(hashes) == 2
    assert found.policy == (
        f"default-src 'none'; script-src {hashes[1]}; style-src {hashes[0]}; worker-src blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|https?://",
        page_script(*MODULES),
    )


def test_the_overview_comes_before_the_data() -> None:
    text = page()
    order = [
        text.index(mark) for mark in ("<main>", 'id="meta"', 'id="t0"', "<script>(", 'id="q0-0-0"')
    ]
    assert order == sorted(order)
    assert text == page()


def test_the_script_asks_for_words_that_there_are() -> None:
    asked = set(
        re.findall(
            r'say\("([a-z.]+)"',
            "".join((FOLDER / f"{name}.js").read_text("utf-8") for name in MODULES),
        )
    )
    assert asked <= PAGE_WORDS.keys()
    words = words_by_language(PAGE_WORDS)
    assert list(words) == ["en", "zh"]
    assert words["zh"]["language"] == "中文"
    assert words["zh"]["looks"] == "“{query}”看向哪里"


class Late(BaseHTTPRequestHandler):
    """Gives the page, and an image that comes `seconds` later: until then Firefox takes no picture."""

    seconds = 2.0

    def do_GET(self) -> None:
        if self.path == "/late":
            time.sleep(self.seconds)
        self.send_response(200)
        self.end_headers()
        late = '<img src="/late" alt=""></body>'
        body = (
            page()
            .replace("default-src 'none'", "default-src 'none'; img-src *")
            .replace("</body>", late)
        )
        self.wfile.write(b"" if self.path == "/late" else body.encode())

    def log_message(self, format: str, *arguments: object) -> None:
        del format, arguments


@pytest.mark.thorough
def test_firefox_draws_it(tmp_path: Path) -> None:
    firefox = which("firefox-esr") or which("firefox")
    if firefox is None:
        pytest.skip("no firefox-esr here (a Debian package)")
    picture = tmp_path / "picture.png"
    server = ThreadingHTTPServer(("127.0.0.1", 0), Late)
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/"
    told = ["--headless", "--profile", str(tmp_path), "--screenshot", str(picture)]
    for Late.seconds in (2.0, 10.0, 40.0):  # a busy machine draws late, too
        finish([firefox, *told, address], {"HOME": str(tmp_path)})
        pixels = png(picture.read_bytes()).astype(int)
        shades = len({tuple(one) for one in pixels[(pixels[..., 2] > pixels[..., 0] + 40)]})
        if shades > 20:
            break
    server.shutdown()
    server.server_close()
    assert shades > 20
