"""The SVG is well-formed, inert, standalone and deterministic, and its cells are the document's weights."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from render import documents

from attncli.errors import InputError
from attncli.render.palette import SEQUENTIAL
from attncli.render.svg import attention_svg

NS = "{http://www.w3.org/2000/svg}"
ATTRIBUTES = {
    "xmlns", "width", "height", "viewBox", "font-family", "font-size", "font-weight", "role", "fill", "x", "y", "transform", "style",
    "text-anchor", "shape-rendering",
}  # fmt: skip
HOSTILE = ["<script>alert(1)</script>", '"/><a href="http://x"/>', "\x1b[2J", "&amp;", "\u202e", "שלום", "]]>", "今天"]


def test_hostile_text_is_only_text() -> None:
    text = attention_svg(documents.run(HOSTILE))
    root = ET.fromstring(text)
    assert {element.tag for element in root.iter()} == {NS + tag for tag in ("svg", "rect", "g", "text", "title")}
    assert {name for element in root.iter() for name in element.attrib} <= ATTRIBUTES
    assert {element.get("style") for element in root.iter()} == {None, "unicode-bidi:isolate"}
    assert not set(text) & set("\x1b\u202e")
    said = {element.text for element in root.iter(NS + "text")}
    assert {"<script>alert(1…", "שלום", "今天", "\\u{202e}"} <= said


def test_cells_are_the_weights() -> None:
    document = documents.run(["a", "b", "c"])
    weights = document["layers"][0]["heads"][0]["weights"]
    rects = [
        rect for rect in ET.fromstring(attention_svg(document)).iter(NS + "rect") if rect.find(NS + "title") is not None
    ]
    high = max(map(max, weights))
    assert len(rects) == 9
    for rect in rects:
        query, key = int(rect.get("y")) // 14, int(rect.get("x")) // 14
        assert rect.get("fill") == SEQUENTIAL.colour(weights[query][key] / high)
        assert rect.find(NS + "title").text == f"{'abc'[query]} → {'abc'[key]} {weights[query][key]:.4f}"


def test_masked_cells_are_left_out() -> None:
    document = documents.run(["a", "b", "c"], causal=True)
    assert attention_svg(document).count("<title>") == 6


@pytest.mark.parametrize(
    "document", [documents.run(heads=8), documents.heads(), documents.run([f"w{at}" for at in range(53)], heads=2)]
)
def test_same_document_same_bytes_and_no_reference(document) -> None:
    text = attention_svg(document)
    assert text == attention_svg(document)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    ET.fromstring(text)


def test_large_documents_are_pooled_and_say_so() -> None:
    document = documents.run([str(at) for at in range(211)])
    text = attention_svg(document)
    assert "pooled 2×2, max" in text
    assert text.count("<rect") < 40_000
    assert "pooled" not in attention_svg(documents.run())


def test_rows_of_one_query_are_named_after_it() -> None:
    document = documents.run(["a", "b", "c"])
    document["queries"] = [2]
    head = document["layers"][0]["heads"][0]
    for name in ("scores", "weights", "output"):
        head[name] = np.array(head[name])[2:3]
    assert attention_svg(document).count("<title>c → ") == 3


def test_a_document_without_weights_is_refused() -> None:
    with pytest.raises(InputError, match="no weights to draw"):
        attention_svg({**documents.run(), "layers": []})


def test_the_mean_row_of_one_query_is_no_map() -> None:
    document = {**documents.run(["a", "b", "c"], heads=2), "average": np.ones(3) / 3}
    assert attention_svg(document) == attention_svg({key: value for key, value in document.items() if key != "average"})
