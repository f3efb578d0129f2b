"""What can be known of Windows without it: names of files, paths that it wrote, line ends as it
writes them.
"""

from __future__ import annotations

import gzip
import subprocess
from io import BytesIO
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from asking import ask

from attncli.draw.safe import last_part, path_of
from attncli.scan.corpus_page import tails
from attncli.scan.intake import ShardSizes, parse_format, records, take_in
from attncli.scan.site import DEVICES, _file_names

ROOT = Path(__file__).parents[2]


def test_every_file_has_a_name_that_every_system_takes():
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False
    ).stdout.decode()
    names = tracked.split("\0")[:-1] or [
        str(path.relative_to(ROOT)) for path in (ROOT / "attncli").rglob("*")
    ]
    assert len(names) > 300
    for name in names:
        for part in PurePosixPath(name).parts:
            assert part.partition(".")[0].lower() not in DEVICES, name
            assert not set(part) & set('<>:"\\|?*'), name
            assert part == part.rstrip(". "), name
        assert len(name) < 120, name  # with a folder before it, below 260
    assert len({name.lower() for name in names}) == len(names)


def test_devices_are_no_pages():
    names = ["con", "Aux", "NUL", "com1", "lpt9", "index", "all", "console"]
    files = _file_names(names)
    assert files == ["con-2", "aux-2", "nul-2", "com1-2", "lpt9-2", "index-2", "all-2", "console"]
    assert not {file.lower() for file in files} & set(DEVICES)


@pytest.mark.parametrize(
    ("text", "last"),
    [
        (r"C:\Users\me\texts\a.txt", "a.txt"),
        (r"\\server\share\texts\a.txt", "a.txt"),
        ("C:/Users/me/a.txt", "a.txt"),
        ("/home/me/texts/a.txt", "a.txt"),
        ("texts/a.txt", "texts/a.txt"),
        ("sentence-transformers/all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"),
        ("causal", "causal"),
        ("L5H11: it", "L5H11: it"),
    ],
)
def test_a_page_tells_of_no_place_on_any_machine(text, last):
    assert last_part(text) == last
    assert path_of(text).name == last.rpartition("/")[2]


def test_what_tells_files_apart_that_another_system_wrote():
    folder = PureWindowsPath(r"C:\Users\me")
    assert tails([str(folder / "b" / "c.txt"), str(folder / "d" / "c.txt")]) == [
        "b/c.txt",
        "d/c.txt",
    ]
    assert tails([str(folder / "c.txt"), r"D:\e.txt"]) == ["c.txt", "e.txt"]
    assert tails([str(folder / "c.txt"), "/home/me/e.txt"]) == ["c.txt", "e.txt"]
    assert tails([str(folder / "c.txt")]) == ["c.txt"]


TEXTS = {
    "lines.txt": "the cat sat\na dog ran\n",
    "mask.csv": "1,0,0\n1,1,0\n1,1,1\n",
    "regions.json": '{\n  "first": "tokens:0-1"\n}\n',
    "config.toml": 'lang = "zh"\nprecision = 2\n',
    "chat.json": '[\n  {"role": "user", "content": "the cat sat"}\n]\n',
    "records.jsonl": '{"text": "the cat sat"}\n{"text": "a dog ran"}\n',
}
ASKED = {
    "lines.txt": [
        ("tokens", "--file", "FILE", "--lines", "--plain"),
        ("run", "--file", "FILE", "--lines", "--plain"),
    ],
    "mask.csv": [("mask", "FILE", "--plain"), ("run", "the cat sat", "--mask", "FILE", "--plain")],
    "regions.json": [("run", "the cat sat", "--query", "sat", "--regions", "FILE", "--plain")],
    "config.toml": [("heads", "the cat sat")],
}


@pytest.mark.parametrize("name", ASKED)
def test_line_ends_of_either_kind_say_the_same(name, tmp_path):
    answers = []
    for kind, ends in (("unix", "\n"), ("windows", "\r\n")):
        file = tmp_path / kind / name
        file.parent.mkdir()
        file.write_bytes(TEXTS[name].replace("\n", ends).encode())
        told = {"ATTN_CONFIG": str(file)} if name == "config.toml" else {}
        found = [
            ask(*(str(file) if word == "FILE" else word for word in words), **told)
            for words in ASKED[name]
        ]
        assert all(answer.code == 0 for answer in found), [answer.err for answer in found]
        answers.append([answer.out.replace(str(file), name) for answer in found])
    assert answers[0] == answers[1]


@pytest.mark.parametrize(("name", "kind"), [("lines.txt", None), ("records.jsonl", "jsonl:text")])
def test_a_corpus_with_windows_line_ends_has_the_same_texts(name, kind, tmp_path):
    texts = []
    for ends in ("\n", "\r\n"):
        file = tmp_path / name
        file.write_bytes(TEXTS[name].replace("\n", ends).encode())
        chosen = None if kind is None else parse_format(kind)
        files, shards = take_in(
            [str(file)], chosen, tmp_path / "copies", sizes=ShardSizes((), 8), stdin=BytesIO()
        )
        texts.append(
            [record.text for shard in shards for record in records(files, shard, tmp_path, "")]
        )
    assert texts[0] == texts[1] == ["the cat sat", "a dog ran"]


def test_a_scan_names_its_copies_alike_on_every_system(tmp_path):
    packed = tmp_path / "lines.txt.gz"
    packed.write_bytes(gzip.compress(TEXTS["lines.txt"].encode()))
    (copy,), _ = take_in([str(packed)], None, tmp_path, sizes=ShardSizes((), 8), stdin=BytesIO())
    assert copy.path == PurePosixPath(copy.path).as_posix()
    assert "\\" not in copy.path
    assert (tmp_path / copy.path).is_file()
    assert not PureWindowsPath(copy.path).is_absolute()


def test_a_chat_may_end_its_lines_so():
    from attncli.inputs.chat import parse_chat

    one, other = (
        parse_chat(TEXTS["chat.json"].replace("\n", ends).encode(), "chat.json")
        for ends in ("\n", "\r\n")
    )
    assert one.messages == other.messages == [{"role": "user", "content": "the cat sat"}]
