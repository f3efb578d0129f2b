"""Long prompts on the command line: chats, wherever a text is taken."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from processes import attn, finish, start
from small_gpt2 import small_gpt2

from attncli.errors import LimitError
from attncli.inputs.regions import _json_starts, _json_values

TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a cat"}]
TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}{% if add_generation_prompt %}now{% endif %}"
SAMPLES = Path(__file__).parents[2] / "sample_inputs"
COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("run", "--num-heads", "2"),
    "heads": ("heads",),
    "explain": ("explain",),
    "explain position": ("explain", "position"),
    "explain mask": ("explain", "mask"),
    "explain multihead": ("explain", "multihead"),
    "explain residual": ("explain", "residual"),
    "explain training": ("explain", "training"),
    "explain qkv": ("explain", "qkv"),
    "explain matrix-softmax": ("explain", "matrix-softmax"),
    "explain order": ("explain", "order"),
    "find": ("find", "--from", "cat", "--to", "brief"),
    "ablate": ("ablate", "--num-heads", "2"),
    "logits": ("logits", "--model", "{tmp}/gpt2"),
    "why": ("why", "--from", "cat", "--to", "brief"),
    "tokens": ("tokens",),
    "cache": ("cache", "--mask", "causal", "--budget", "2"),
    "run --generate": ("run", "--model", "{tmp}/gpt2", "--generate", "1"),
}
"""A line of every command that takes a text; `explore` fills a screen, `scan` takes a corpus."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small decoder with a chat template, a chat, and a template."""
    made = tmp_path_factory.mktemp("long")
    small_gpt2(made / "gpt2")
    (made / "gpt2" / "chat_template.jinja").write_text(TEMPLATE)
    (made / "chat.json").write_text(json.dumps(TALK))
    (made / "template").write_text(TEMPLATE)
    assert (SAMPLES / "chatml.jinja").exists()
    return made


@pytest.mark.many
@pytest.mark.parametrize("command", COMMANDS)
def test_a_chat_stands_wherever_a_text_does(command: str, folder: Path) -> None:
    line = [part.replace("{tmp}", str(folder)) for part in COMMANDS[command]]
    template = () if "--model" in line else ("--chat-template", str(folder / "template"))
    answer = ask(*line, "--chat", str(folder / "chat.json"), *template, "--json")
    assert answer.code == 0, answer.err
    assert answer.json["text"] == "Be brief. a cat now"
    piped = ask(
        *line,
        "--chat",
        "-",
        *template,
        "--json",
        "--no-generation-prompt",
        stdin=json.dumps(TALK).encode(),
    )
    assert piped.code == 0, piped.err
    assert piped.json["text"] == "Be brief. a cat "


OTHER = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a dog"}]
TWO = ("--chat", "{tmp}/chat.json", "--chat", "{tmp}/other.json")


@pytest.mark.many
@pytest.mark.parametrize(
    ("line", "members"),
    [
        (("compare", *TWO), ("a.text", "b.text")),
        (("compare", "Be brief. a cat now", *TWO[2:]), ("a.text", "b.text")),
        (("compare", *TWO[:2], "--mask", "none", "--mask", "causal"), ("a.text",)),
        (("patch", *TWO, "--query", "now"), ("clean", "corrupt")),
        (("cross", *TWO), ("query_text", "key_text")),
        (("cross", "Be brief. a cat now", *TWO[2:]), ("query_text", "key_text")),
    ],
)
def test_chats_stand_where_two_texts_do(
    line: tuple[str, ...], members: tuple[str, ...], folder: Path
) -> None:
    (folder / "other.json").write_text(json.dumps(OTHER))
    arguments = [part.replace("{tmp}", str(folder)) for part in line]
    template = ("--chat-template", str(folder / "template"))
    answer = ask(*arguments, *template, "--json")
    assert answer.code == 0, answer.err
    for member, text in zip(members, ("Be brief. a cat now", "Be brief. a dog now"), strict=False):
        value = answer.json
        for name in member.split("."):
            value = value[name]
        assert value == text
    if line[0] == "compare":
        names = {row["name"] for row in answer.json.get("region_changes", ())}
        assert names == (set() if "Be brief. a cat now" in line else {"system", "user", "rest"})
    shown = ask(*arguments, *template, "--html", str(folder / "page.html"))
    assert shown.code == 0, shown.err
    without = ask(*arguments, "--json")
    assert (without.code, without.out) == (3, "")
    assert "no chat template" in without.err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (("compare", "a", *TWO), "3 texts are given"),
        (("compare", "a", "b", "--no-generation-prompt"), "--generation-prompt is about a chat"),
        (("compare", "{tmp}/a.json", "{tmp}/b.json", *TWO[:2]), "saved documents hold what ran"),
        (("patch", *TWO[:2]), "attn patch takes two texts, and 1 are given"),
        (("patch", "a b"), "attn patch takes two texts, and 1 are given"),
        (
            ("patch", "a", "b", "--chat-template", "{tmp}/template"),
            "--chat-template is about a chat",
        ),
        (("cross", "a", *TWO), "attn cross takes two texts, and 3 are given"),
        (("cross",), "attn cross takes two texts, and 0 are given"),
        (("cross", *TWO[:2]), "nothing is looked at"),
    ],
)
def test_what_are_no_two_texts_is_refused(line: tuple[str, ...], says: str, folder: Path) -> None:
    (folder / "other.json").write_text(json.dumps(OTHER))
    for name in "ab":
        (folder / f"{name}.json").write_text(ask("run", "a b", "--json").out)
    answer = ask(*(part.replace("{tmp}", str(folder)) for part in line))
    assert (answer.code, answer.out) == (2, ""), answer.err
    assert says in answer.err


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        (("run", "a b", "--chat", "{tmp}/chat.json"), 2, "TEXT and --chat"),
        (("run", "--ids", "1", "--chat", "{tmp}/chat.json"), 2, "--ids and --chat"),
        (("run", "--lines", "--chat", "{tmp}/chat.json"), 2, "--lines takes texts apart"),
        (("run", "a b", "--chat-template", "{tmp}/template"), 2, "--chat-template is about a chat"),
        (("run", "a b", "--no-generation-prompt"), 2, "--generation-prompt is about a chat"),
        (("run", "--chat", "{tmp}/chat.json"), 3, "this model has no chat template"),
        (
            ("run", "--chat", "{tmp}/template", "--chat-template", "{tmp}/template"),
            3,
            "this chat is no JSON",
        ),
        (("run", "--chat", "{tmp}/none.json"), 3, "none.json"),
        (("run", "--chat", "{tmp}/chat.json", "--chat-template", "{tmp}/chat.json"), 0, ""),
    ],
)
def test_what_contradicts_a_chat_is_refused(
    line: tuple[str, ...], code: int, says: str, folder: Path
) -> None:
    answer = ask(*(part.replace("{tmp}", str(folder)) for part in line))
    assert (answer.code, bool(answer.out)) == (code, code == 0), answer.err
    assert says in answer.err


REGIONS = ("--region", "cat=/cat/", "--region", "mat=the…sat")


def test_regions_are_sums_of_the_weights(folder: Path) -> None:
    text = "the cat sat on the mat"
    line = ("run", text, "--model", str(folder / "gpt2"), "--json")
    whole = ask(*line).json
    for query in ((), ("--query", "#3")):
        answer = ask(*line, *REGIONS, *query)
        assert answer.code == 0, answer.err
        document = answer.json
        names = {region["name"]: region["tokens"] for region in document["regions"]}
        assert list(names) == ["cat", "mat", "rest"]
        assert sorted(index for tokens in names.values() for index in set(tokens)) != []
        part = document["region_shares"]
        at = part["query"]
        assert at == (3 if query else len(document["tokens"]) - 1)
        for place, tokens in enumerate(names.values()):
            shares, even, pairs = [], [], []
            for layer in whole["layers"]:
                for head in layer["heads"]:
                    shares.append(sum(head["weights"][at][key] for key in tokens))
                    even.append(sum(key <= at for key in tokens) / (at + 1))
                    pairs += [
                        sum(head["weights"][row][key] for key in tokens) for row in names["rest"]
                    ]
            assert part["share"][place] == pytest.approx(sum(shares) / len(shares), abs=1e-5)
            assert part["even"][place] == pytest.approx(sum(even) / len(even), abs=1e-6)
            assert part["between"][2][place] == pytest.approx(sum(pairs) / len(pairs), abs=1e-5)
            assert [head["share"][place] for head in part["heads"]] == pytest.approx(
                shares, abs=1e-5
            )
    assert "regions share tokens, cat and mat" in ask(*line, *REGIONS).err


def beyond_rest(part: dict[str, Any]) -> list[float]:
    """The shares of regions as parts of the weight that does not rest."""
    return [share / (1 - part["rest"]) for share in part["share_beyond_rest"]]


def test_a_figure_of_regions(folder: Path) -> None:
    figure = folder / "regions.svg"
    line = ("--model", str(folder / "gpt2"), "--figure", str(figure), "--quiet", "--lang")
    for lang, rest in (("en", "elsewhere"), ("zh", "其余")):
        assert ask("run", "the cat sat on the mat", *REGIONS, *line, lang).code == 0
        drawn = figure.read_text("utf-8")
        document = ask("run", "the cat sat on the mat", *REGIONS, *line[:2], "--json").json
        shares = beyond_rest(document["region_shares"])
        assert all(
            f">{text}</text>" in drawn
            for text in ("cat", "mat", rest, *(f"{share:.1%}" for share in shares))
        )
    compared = (
        "compare",
        "the cat sat",
        "the dog sat",
        "--region",
        "who=tokens:0-1",
        "--num-heads",
        "2",
    )
    (row, *_) = ask(*compared, "--json").json["region_changes"]
    assert ask(*compared, "--figure", str(figure), "--quiet").code == 0
    assert f"{row['difference']:+.3f}".replace("-", "−") in figure.read_text("utf-8")


def test_a_figure_of_heads_has_their_regions(folder: Path) -> None:
    figure = folder / "heads.svg"
    line = ("heads", "the cat sat on the mat", "--model", str(folder / "gpt2"), *REGIONS)
    assert ask(*line, "--figure", str(figure), "--quiet").code == 0
    drawn = figure.read_text("utf-8")
    shares = beyond_rest(ask(*line, "--json").json["region_shares"])
    assert all(
        f">{text}</text>" in drawn
        for text in ("cat", "mat", "elsewhere", *(f"{share:.1%}" for share in shares))
    )
    assert "regions by layer" in drawn


def test_heads_tell_of_regions_what_their_weights_say(folder: Path) -> None:
    text = "the cat sat on the mat"
    model = ("--model", str(folder / "gpt2"), "--json")
    rules = ("--region", "start=tokens:0-4", "--region", "cat=/cat/", "--region", "end=/the mat/")
    weights = {
        (layer["layer"], head["head"]): head["weights"]
        for layer in ask("run", text, *model).json["layers"]
        for head in layer["heads"]
    }
    of_run, of_heads = (
        ask("run", text, *model, *rules).json,
        ask("heads", text, *model, *rules).json,
    )
    members = {row["name"]: row["tokens"] for row in of_heads["regions"]}
    names = list(members)
    part = of_heads["region_shares"]
    assert part["heads"] == of_run["region_shares"]["heads"]
    assert part["links"] == of_run["region_shares"]["links"]
    last = len(of_run["tokens"]) - 1
    for head in part["heads"]:
        row = weights[head["layer"], head["head"]][last]
        assert head["share"] == pytest.approx(
            [sum(row[key] for key in keys) for keys in members.values()], abs=1e-5
        )
        assert head["even"] == pytest.approx([len(keys) / (last + 1) for keys in members.values()])
    expected = {}
    for place, rows in weights.items():
        for a, queries in members.items():
            for b, keys in members.items():
                if "rest" in (a, b) or {*queries} & {*keys}:
                    continue
                # links to the first token, where heads rest, are none between regions
                others = [key for key in keys if key > 0]
                total = sum(rows[query][key] for query in queries for key in others)
                evens = sum(sum(key <= query for key in others) / (query + 1) for query in queries)
                if total > 0:
                    expected[(*place, names.index(a), names.index(b))] = (
                        total / len(queries),
                        evens / len(queries),
                    )
    links = {
        (link["layer"], link["head"], link["query"], link["key"]): link for link in part["links"]
    }
    ranked = sorted(expected, key=lambda key: (-expected[key][0], *key))[:10]
    assert list(links) == ranked
    for key, link in links.items():
        assert (link["weight"], link["even"]) == pytest.approx(expected[key], abs=1e-5)
    pieces = (
        "Straße?",
        "--tokenizer",
        "byte",
        "--region",
        "e=/ra/",
        "--words",
    )  # two bytes within the first of two words
    of_words = ask("heads", *pieces, "--json").json
    assert {row["name"]: row["tokens"] for row in of_words["regions"]} == {"e": [0], "rest": [1]}
    assert of_words["region_shares"]["even"] == pytest.approx([1 / 2, 1 / 2])
    for lang, says in (("en", "looks most at"), ("zh", "与均匀注意力相比")):
        for width in (60, 80, 120):
            shown = ask(
                "heads",
                text,
                *model[:2],
                *rules,
                "--lang",
                lang,
                "--show",
                "regions,answer",
                width=width,
            ).out
            assert says.replace(" ", "") in "".join(shown.split())


@pytest.mark.many
@pytest.mark.parametrize("query", [None, "sat"])
def test_regions_of_two_texts_are_compared(query: str | None, tmp_path: Path) -> None:
    texts = ("the cat sat on the mat", "a dog sat under the mat and slept")
    options = ("--num-heads", "2", "--mask", "causal")
    rules = ("--region", "who=tokens:0-1", "--region", "where=/the mat/")
    asked = () if query is None else ("--query", query)
    compared = ask("compare", *texts, *options, *rules, *asked, "--json")
    assert compared.code == 0, compared.err
    runs = [ask("run", text, *options, "--json").json for text in texts]
    shares = []
    for run in runs:
        words = [token["text"] for token in run["tokens"]]
        at = words.index(query) if query else len(words) - 1
        mat = words.index("mat")
        members = {"who": [0, 1], "where": [mat - 1, mat]}
        members["rest"] = [
            place for place in range(len(words)) if place not in (0, 1, mat - 1, mat)
        ]
        heads = [head["weights"][at] for head in run["layers"][0]["heads"]]
        shares.append(
            {
                name: [sum(row[key] for key in keys) for row in heads]
                for name, keys in members.items()
            }
        )
    found = {region["name"]: region for region in compared.json["region_changes"]}
    assert found.keys() == shares[0].keys()
    for name, region in found.items():
        a, b = (side[name] for side in shares)
        assert (region["a"], region["b"]) == pytest.approx((sum(a) / 2, sum(b) / 2), abs=1e-6)
        assert region["difference"] == pytest.approx(region["b"] - region["a"])
        changes = [after - before for before, after in zip(a, b, strict=True)]
        most = max(range(2), key=lambda head: abs(changes[head]))
        assert region["most"]["a"]["head"] == most
        assert region["most"]["difference"] == pytest.approx(changes[most], abs=1e-6)
    saved = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, run in zip(saved, runs, strict=True):
        path.write_text(json.dumps(run))
    again = ask("compare", *map(str, saved), *rules, *asked, "--json")
    for ours, theirs in zip(
        again.json["region_changes"], compared.json["region_changes"], strict=True
    ):
        assert (ours["name"], ours["tokens_b"]) == (theirs["name"], theirs["tokens_b"])
        assert ours["difference"] == pytest.approx(theirs["difference"], abs=1e-6)
    for lang, says in (("en", "The region whose share changed most"), ("zh", "份额变化最大的区域")):
        for width in (60, 80, 120):
            shown = ask(
                "compare", *texts, *options, *rules, *asked, "--lang", lang, width=width
            ).out
            assert says.replace(" ", "") in "".join(shown.split())
    nowhere = ask("compare", *texts, *options, "--region", "x=/dog/")
    assert (nowhere.code, nowhere.out) == (3, "")


@pytest.mark.thorough
def test_each_new_token_tells_which_region_it_looks_at(folder: Path, tmp_path: Path) -> None:
    line = (
        "run",
        "--chat",
        str(folder / "chat.json"),
        "--model",
        str(folder / "gpt2"),
        "--generate",
        "3",
    )
    rule = ("--region", "cat=/cat/")
    document = ask(*line, *rule, "--json").json
    members = {row["name"]: row["tokens"] for row in document["regions"]}
    assert list(members) == ["system", "user", "cat", "rest"]
    assert len(document["steps"]) == 3
    for step in document["steps"]:
        for head in step["heads"]:
            expected = [sum(head["weights"][key] for key in keys) for keys in members.values()]
            assert head["regions"] == pytest.approx(expected, abs=1e-6)
        means = [
            sum(head["regions"][place] for head in step["heads"]) / len(step["heads"])
            for place in range(4)
        ]
        assert step["regions"] == pytest.approx(means, abs=1e-6)
    plain = ask(*line, *rule, "--plain").out.splitlines()
    assert plain[0].endswith("\tregion system\tregion user\tregion cat\tregion rest")
    assert len({row.count("\t") for row in plain}) == 1
    page, saved = tmp_path / "page.html", tmp_path / "saved.json"
    saved.write_text(json.dumps(document))
    for lang, says in (("en", "Of the weight that does not rest"), ("zh", "未停歇的权重中")):
        for width in (60, 80, 120):
            shown = ask(*line, *rule, "--html", str(page), "--lang", lang, width=width)
            assert shown.code == 0, shown.err
            assert "".join(says.split()) in "".join(shown.out.split())
            assert ask("view", str(saved), "--lang", lang, width=width).out == shown.out
    (meta,) = re.findall(r'id="meta">(.*?)</script>', page.read_text("utf-8"))
    told, count = json.loads(meta), len(document["tokens"])
    assert told["bands"][-1] == [{"en": "new tokens", "zh": "新词元"}, count, count + 3]
    assert told["start"]["query"] == str(count)
    without = ask("run", "a cat", "--model", str(folder / "gpt2"), "--generate", "1", "--json").json
    assert "regions" not in without
    assert ask(*line, "--lines").code == 2


@pytest.mark.parametrize("mask", ["none", "window:2", "dilated:6,2", "prefix:2"])
def test_even_attention_is_over_what_a_query_sees(mask: str) -> None:
    document = ask("run", "a b c d e f", "--mask", mask, "--region", "x=tokens:1-3", "--json").json
    shows = ask("mask", mask, "-n", "6", "--json")
    assert shows.code == 0
    whole = ask("run", "a b c d e f", "--mask", mask, "--json").json["layers"][0]["heads"][0]
    visible = [key for key, score in enumerate(whole["scores"][5]) if score is not None]
    expected = sum(key in (1, 2, 3) for key in visible) / len(visible)
    assert document["region_shares"]["even"][0] == pytest.approx(expected)
    assert document["region_shares"]["share"][0] == pytest.approx(
        sum(whole["weights"][5][1:4]), abs=1e-6
    )


def test_messages_of_a_chat_are_regions(folder: Path) -> None:
    line = ("run", "--chat", str(folder / "chat.json"), "--model", str(folder / "gpt2"))
    document = ask(*line, "--json").json
    assert [region["name"] for region in document["regions"]] == ["system", "user", "rest"]
    for lang, says in (("en", "is in “user”"), ("zh", "在“user”中")):
        shown = ask(*line, "--lang", lang)
        assert shown.code == 0, shown.err
        assert says.replace("“", '"').replace("”", '"') in shown.out.replace(
            "\n", " "
        ) or says in shown.out.replace("\n", "")
    plain = ask(*line, "--plain").out.splitlines()
    assert plain[0] == "region\ttokens\tshare\teven"
    assert len(plain) == 4
    # weights that are asked for by name are there
    assert ask(*line, "--head", "L0H0", "--show", "weights").code == 0


@pytest.mark.parametrize(
    ("rule", "code", "says"),
    [
        ("x", 2, "is no NAME=SPEC"),
        ("=a…b", 2, "is no NAME=SPEC"),
        ("a b=c…d", 2, "is no NAME=SPEC"),
        ("rest=/cat/", 2, "what is in no region"),
        ("x=cat", 2, "of no form that attn knows"),
        ("x=/(/", 2, "no regular expression"),
        ("x=lines:0-1", 2, "has no range"),
        ("x=tokens:3-1", 2, "has no range"),
        ("x=chars:a", 2, "has no range"),
        ("x=/dog/", 3, "nothing in the text is in region 'x'"),
        ("x=/cta/", 3, "something in the text matches; 'cat' is nearest to cta"),
        ("x=//", 2, "of no form that attn knows"),
        ("x=[[doc]]…[[/doc]]", 3, "nothing in the text is in region 'x'"),
        ("x=thee…sat", 3, "'the' is nearest to thee"),
        ("x=tokens:90-99", 3, "tokens up to 4"),
        ("x=lines:7", 3, "lines up to 1"),
        ("x=chars:900", 3, "chars up to 14"),
        ("x=/ /", 3, "what it matches has none"),
        ("x=cat… ", 3, "START…END is what stands between them"),
        ("x=cat…sat", 3, "/START.*?END/ takes both as well"),
        ("x=the cat", 2, 'words as they stand in the text: "x=/the cat/"'),
        ("x=a+b", 2, "tokens:A-B, json:$.KEY[0]"),
        ("x=json:docs", 2, "has no path 'json:docs'"),
        ("x=json:$..a", 2, "has no path"),
        ("x=json:$.a", 3, "a text with JSON in it"),
    ],
)
def test_a_region_that_is_none_is_refused(rule: str, code: int, says: str) -> None:
    answer = ask("run", "the cat sat on!", "--region", rule)
    assert (answer.code, answer.out) == (code, ""), answer.err
    assert says in answer.err


HELD = 'Here [[x]] is {"docs": [{"title": "a \\\\ cat", "n": 3}, {"title": ""}], "odd key": [7, []]} and [1]'


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("$.docs[0].title", ["a \\\\ cat"]),
        ("$.docs[*].n", ["3"]),
        ('$["odd key"][1]', ["[]"]),
        ("$['odd key'][*]", ["7", "[]"]),
        ("$[0]", ["1"]),
        ("$.docs[0]", ['{"title": "a \\\\ cat", "n": 3}']),
        ("$.docs[2]", "such as $.docs[1]"),
        ("$.docs[1].title", "a value with text in it"),
        ("$.odd[0]", "such as $.odd key[0]"),
    ],
)
def test_a_region_is_what_a_path_leads_to(path: str, says: list[str] | str) -> None:
    answer = ask("run", HELD, "--region", f"x=json:{path}", "--tokenizer", "char", "--json")
    if isinstance(says, str):
        assert (answer.code, answer.out) == (3, "")
        assert says in answer.err
        return
    places = []
    for part in says:
        start = HELD.index(
            part, places[-1] + 1 if places else HELD.index("odd key") if "odd" in path else 0
        )
        places += range(start, start + len(part))
    assert answer.json["regions"][0]["tokens"] == places


def test_text_that_only_looks_like_json_takes_no_time() -> None:
    began = time.process_time()
    for text in ("[" * 20_000, '{"a":' * 20_000):
        with suppress(LimitError):  # what is read behind brackets in vain has a bound
            assert not [*_json_starts(text)]
    text = '[{"a": ' * 400 + "1" + "}]" * 400
    (place,) = _json_starts(text)
    assert len([*_json_values(text, place, (), 5)]) == 6
    assert (
        time.process_time() - began < 5
    )  # Python 3.13 goes far deeper than 3.11 before it gives up: ten times longer


def test_regions_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "regions.json"
    path.write_text('{"cat": "/cat/", "end": "tokens:2-3"}')
    document = ask("run", "the cat sat on", "--regions", str(path), "--json").json
    assert [(row["name"], row["tokens"]) for row in document["regions"]] == [
        ("cat", [1]), ("end", [2, 3]), ("rest", [0]),
    ]  # fmt: skip
    for wrong in ("[]", "{}", '{"x": 3}', '{"a b": "/cat/"}', "{"):
        path.write_text(wrong)
        answer = ask("run", "the cat sat on", "--regions", str(path))
        assert (answer.code, answer.out) == (3, ""), answer.err
    twice = ask("run", "the cat sat on", "--region", "x=/cat/", "--region", "x=/sat/")
    assert twice.code == 3
    beside = ask("run", "the cat sat on", "--region", "x=/cat/", "--words")
    assert beside.code == 2


EACH = ("--region", "cat=/cat/", "--region", "end=/the mat/", "--each-region")


@pytest.fixture
def reference(folder: Path) -> Any:
    """The same decoder in transformers."""
    transformers = pytest.importorskip("transformers")
    return (
        transformers.GPT2LMHeadModel.from_pretrained(folder / "gpt2", attn_implementation="eager")
        .double()
        .eval()
    )


@pytest.mark.parametrize("target", [None, "the cat", "id:7"])
def test_each_region_is_what_a_mask_in_transformers_does(
    target: str | None, folder: Path, reference: Any
) -> None:
    torch = pytest.importorskip("torch")
    line = ("ablate", "the cat sat on the mat", "--model", str(folder / "gpt2"), *EACH, "--json")
    answer = ask(
        *line,
        *(() if target is None else ("--target", target)),
        XDG_CACHE_HOME=str(folder / "cache"),
    )
    assert answer.code == 0, answer.err
    document = answer.json
    ids = [token["id"] for token in document["tokens"]]
    after = [token["id"] for token in document["target"]]
    assert len(after) > 1 if target == "the cat" else len(after) == 1
    count = len(ids) + len(after) - 1
    last = [row["tokens"] for row in document["regions"]]
    expected = []
    for inside in [[], *last]:
        hidden = torch.full((count, count), 0.0, dtype=torch.float64)
        for query in range(count):
            for key in range(count):
                if key > query or (key in inside and query not in inside):
                    hidden[query, key] = torch.finfo(torch.float64).min
        with torch.no_grad():
            logits = reference(
                torch.tensor([ids + after[:-1]]), attention_mask=hidden[None, None]
            ).logits[0]
        rows = torch.log_softmax(logits[len(ids) - 1 :], -1)
        expected.append(sum(float(rows[place, number]) for place, number in enumerate(after)))
    if target is None:
        assert after == [int(logits_of(reference, ids)[-1].argmax())]
    assert document["logprob"] == pytest.approx(expected[0], abs=1e-5)
    changes = {row["region"]: row for row in document["effects"]}
    for place, value in enumerate(expected[1:]):
        assert changes[place]["logprob"] == pytest.approx(value, abs=1e-5)
        assert changes[place]["change"] == pytest.approx(value - expected[0], abs=1e-5)
    assert [row["change"] for row in document["effects"]] == sorted(
        row["change"] for row in document["effects"]
    )


def logits_of(reference: Any, ids: list[int]) -> Any:
    import torch

    with torch.no_grad():
        return reference(torch.tensor([ids])).logits[0]


def test_what_was_measured_before_an_interruption_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attncli.features.regions import compute

    line = ("ablate", "the cat sat on the mat", "--model", str(folder / "gpt2"), *EACH, "--json")
    cache = folder / "kept"
    whole = ask(*line, XDG_CACHE_HOME=str(folder / "other")).out
    run, runs = compute._last_logits, []

    def interrupted(*arguments: Any) -> Any:
        runs.append(arguments)
        if len(runs) == 3:
            raise KeyboardInterrupt
        return run(*arguments)

    monkeypatch.setattr(compute, "_last_logits", interrupted)
    answer = ask(*line, XDG_CACHE_HOME=str(cache))
    assert (answer.code, answer.out) == (130, "")
    assert "2 of 4 runs are done and kept" in answer.err
    assert len(list((cache / "attn" / "regions").iterdir())) == 1
    again = ask(*line, XDG_CACHE_HOME=str(cache))
    assert again.out == whole
    assert len(runs) == 3 + 2  # two regions were left
    assert not list((cache / "attn" / "regions").iterdir())
    # a person is shown what is known
    runs.clear()
    shown = ask(*line[:-1], XDG_CACHE_HOME=str(cache))
    assert shown.code == 130
    assert "interrupted: 2 of 4 runs are told of" in shown.out
    assert "It draws most on" in shown.out or "No region lowers" in shown.out
    assert len(list((cache / "attn" / "regions").iterdir())) == 1
    (first,) = [
        json.loads(path.read_text().partition("\n")[2])
        for path in (cache / "attn" / "regions").iterdir()
    ]
    assert len(first["answer"]) == len(first["regions"]) == 1
    # what is kept is that of this text alone, and a file that is no use is not used
    (cache / "attn" / "regions" / "x.json").write_text("{")


@pytest.mark.thorough
def test_ctrl_c_on_22_layers_and_the_same_command(tmp_path: Path) -> None:
    small_gpt2(tmp_path / "gpt2", layers=22, longest=240)
    (tmp_path / "text").write_text("the cat sat on the mat " * 12)
    rules = [
        part
        for number in range(5)
        for part in ("--region", f"r{number}=tokens:{30 * number}-{30 * number + 29}")
    ]
    line = attn(
        "ablate",
        "--file",
        str(tmp_path / "text"),
        "--model",
        str(tmp_path / "gpt2"),
        *rules,
        "--each-region",
    )
    kept, whole = (
        tmp_path / "kept" / "attn" / "regions",
        finish([*line, "--json"], {"XDG_CACHE_HOME": str(tmp_path)}),
    )
    process = start(line, {"XDG_CACHE_HOME": str(tmp_path / "kept")}, stdout=subprocess.PIPE)
    until = time.monotonic() + 60
    while process.poll() is None and not any(
        '"regions":{"' in path.read_text() for path in kept.glob("*.json")
    ):
        assert time.monotonic() < until
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    (told,) = re.findall(r"(\d) of 7 runs are done and kept", err.decode()) or [err.decode()]
    (results,) = [json.loads(path.read_text().partition("\n")[2]) for path in kept.iterdir()]
    assert len(results["regions"]) + 1 == int(told) > 1
    assert f"interrupted: {told} of 7 runs are told of" in out.decode()
    again = finish([*line, "--json"], {"XDG_CACHE_HOME": str(tmp_path / "kept")})
    assert again.stdout == whole.stdout != ""
    assert not any(kept.iterdir())


def test_a_first_choice_without_a_token_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attncli.features.regions import compute

    small_gpt2(tmp_path / "gpt2")
    run, runs = compute._last_logits, []

    def padded(*arguments: Any) -> Any:
        runs.append(arguments)
        scores = run(*arguments)
        return np.concatenate([scores, scores.max(-1, keepdims=True) + 1], -1)

    monkeypatch.setattr(compute, "_last_logits", padded)
    answer = ask("ablate", "the cat sat on the mat", "--model", str(tmp_path / "gpt2"), *EACH)
    assert (answer.code, answer.out, len(runs)) == (3, "", 1)
    assert "entry 320, which its tokenizer does not have" in answer.err


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        (("--each-region",), 3, "no regions to cut off"),
        (("--region", "x=/cat/"), 2, "names tokens, and none is asked for"),
        ((*EACH, "--head", "L0H1"), 2, "--head does not go with --each-region"),
        ((*EACH, "--from", "cat", "--to", "the"), 2, "--from --to do not go with --each-region"),
        ((*EACH, "--target", "id:999999"), 3, "there is no entry"),
        ((*EACH, "--lines"), 2, "--lines does not go with --each-region"),
    ],
)
def test_what_contradicts_cutting_regions_off_is_refused(
    line: tuple[str, ...], code: int, says: str, folder: Path
) -> None:
    answer = ask("ablate", "the cat sat on the mat", "--model", str(folder / "gpt2"), *line)
    assert (answer.code, answer.out) == (code, ""), answer.err
    assert says in answer.err


def test_a_model_without_an_answer_is_refused() -> None:
    answer = ask("ablate", "the cat sat", *EACH[:2], "--each-region")
    assert answer.code == 4
    assert "predicts no next token" in answer.err


def test_the_screen_of_regions_cut_off(folder: Path) -> None:
    line = ("ablate", "the cat sat on the mat", "--model", str(folder / "gpt2"), *EACH)
    plain = ask(*line, "--plain").out.splitlines()
    assert plain[0] == "region\ttokens\tlogprob\tchange"
    for lang, says in (("en", "It draws most on"), ("zh", "最依赖")):
        for width in (60, 80, 120):
            shown = ask(*line, "--lang", lang, width=width).out
            assert says.replace(" ", "") in "".join(shown.split())


def test_a_saved_run_with_regions_is_viewed_again(folder: Path) -> None:
    line = ("run", "the cat sat on the mat", "--model", str(folder / "gpt2"), *REGIONS)
    (folder / "saved.json").write_text(ask(*line, "--json").out)
    assert ask("view", str(folder / "saved.json"), "--brief").out == ask(*line, "--brief").out


@pytest.mark.parametrize("command", ["find", "ablate", "find --effect"])
def test_a_region_stands_for_its_tokens(command: str, folder: Path) -> None:
    line = (*command.split(), "the cat sat on the mat", "--model", str(folder / "gpt2"))
    rules = ("--region", "cat=/cat/", "--region", "end=/the mat/")
    named = ask(*line, *rules, "--from", "end", "--to", "cat", "--json")
    assert named.code == 0, named.err
    assert '"end" is a region of ' in named.err
    tokens = {
        row["name"]: row["tokens"]
        for row in ask("run", line[-3], *line[-2:], *rules, "--json").json["regions"]
    }
    spans = [f"#{tokens[name][0]}-{tokens[name][-1]}" for name in ("end", "cat")]
    document = named.json
    ends = document.pop("regions", None)
    assert document == ask(*line, "--from", spans[0], "--to", spans[1], "--json").json
    if line[0] == "find":  # what is read of a long region is its name
        assert ends == [
            {"name": "end", "tokens": [document["from"]]},
            {"name": "cat", "tokens": [document["to"]]},
        ]
        figure = folder / "found.svg"
        shown = ask(*line, *rules, "--from", "end", "--to", "cat", "--figure", str(figure)).out
        assert '"end" gives "cat" most in' in " ".join(shown.split())
        assert "end  →  cat" in figure.read_text("utf-8")
        (folder / "found.json").write_text(named.out)
        assert ask("view", str(folder / "found.json"), "--brief").out in shown


def test_a_link_between_regions_is_measured_where_the_answer_comes(folder: Path) -> None:
    line = (
        "ablate",
        "the cat sat on the mat",
        "--model",
        str(folder / "gpt2"),
        "--measure",
        "logprob",
        "--json",
    )
    rules = (
        "--region",
        "a=/the cat/",
        "--region",
        "q=/sat/",
        "--from",
        "q",
        "--to",
        "a",
        "--target",
        "the",
    )
    answer = ask(*line, *rules)
    assert answer.code == 0, answer.err
    both = ask(*line[:-2], "vector,logprob", "--json", *rules).json
    assert [row["logprob"] for row in both["effects"]] != []
    ours, theirs = (
        {(row["layer"], row["head"]): row["logprob"] for row in found["effects"]}
        for found in (answer.json, both)
    )
    assert ours == pytest.approx(theirs)


def test_a_region_with_gaps_is_no_token_to_find(folder: Path) -> None:
    line = (
        "find",
        "the cat sat on the mat",
        "--region",
        "the=/the/",
        "--from",
        "mat",
        "--to",
        "the",
    )
    answer = ask(*line)
    assert (answer.code, answer.out) == (3, "")
    assert "do not stand in a row" in answer.err
    page = folder / "found.html"
    rules = ("--region", "cat=/cat/", "--region", "end=/the mat/")
    found = ask(
        "find",
        "the cat sat on the mat",
        *rules,
        "--from",
        "end",
        "--to",
        "cat",
        "--html",
        str(page),
    )
    assert found.code == 0, found.err
    assert page.exists()
    line = ("find", "the cat sat", *rules[:2], "--from", "sat", "--to", "cat", "--json")
    assert ask(*line, "--words").json["heads"] == ask(*line).json["heads"]
