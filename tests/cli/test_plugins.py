"""Plugins by entry points: a package's metric, rule, family and command are used by name, and one
that fails is told by its name and package, without a traceback, while the rest goes on."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from asking import ask
from plugin_package import ENTRY_POINTS, install
from processes import finish
from scan.conftest import with_tokenizer
from scanning import inside
from tiny_checkpoints import CASES, make

from attncli.inputs import plugins
from attncli.measure.metric import FILE_METRICS
from attncli.models.families import family

TEXT = "one two three four five six"
HEADS = ("heads", TEXT, "--num-heads", "2", "--seed", "1")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder on the path for packages; all that is learned of them is forgotten afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = dict(FILE_METRICS)
    yield folder
    FILE_METRICS.clear()
    FILE_METRICS.update(before)
    family.cache_clear()
    sys.modules.pop("attn_example", None)


def test_a_metric_is_named_like_any_other(site):
    install(site)
    document = ask(*HEADS, "--metric", "every_third,entropy", "--json").json
    run = ask("run", TEXT, "--num-heads", "2", "--seed", "1", "--json").json
    for head, row in zip(run["layers"][0]["heads"], document["heads"], strict=True):
        expected = np.array(head["weights"])[:, ::3].sum(-1).mean()
        assert row["metrics"]["every_third"]["value"] == pytest.approx(expected, abs=1e-6)


def test_a_rule_is_named_where_a_file_would_be(site):
    install(site)
    answer = ask("explain", "rule", "vowels", "--rule-file", "vowels")
    assert answer.code == 0, answer.err
    assert "begin with a vowel" in answer.out
    assert ask("explain", "rule", "vowels", "--rule-file", "vowel").code == 3  # no such file


def test_a_family_opens_checkpoints_of_its_type(site, tmp_path):
    install(site)
    own = with_tokenizer(make(CASES["bert"], tmp_path / "own"), special=True)
    other = tmp_path / "other"
    shutil.copytree(own, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "model_type": "example_bert"}))
    texts = ("heads", "w1 w2 w3", "--json", "--model")
    a, b = (ask(*texts, str(folder)).json for folder in (own, other))
    assert b["model"]["family"] == "example_bert"
    assert a["heads"] == b["heads"]


def test_a_command_is_a_subcommand(site):
    install(site)
    answer = ask("shout", "hello")
    assert (answer.code, answer.out, answer.err) == (0, "HELLO\n", "")
    assert "What is said." in ask("shout", "--help").out
    assert ask("shout").code == 2
    assert "shout" not in ask("--help").out


@pytest.mark.parametrize(
    ("kind", "name", "target", "command"),
    [
        ("metrics", "lost", "attn_example:failing_metric", (*HEADS, "--metric", "lost")),
        ("metrics", "lost", "attn_example:number", (*HEADS, "--metric", "lost")),
        ("metrics", "lost", "no_such_module:number", (*HEADS, "--metric", "lost")),
        ("rules", "lost", "attn_example:failing_rule", ("explain", "rule", "lost", "--rule-file", "lost")),
        ("rules", "lost", "attn_example:missing", ("explain", "rule", "lost", "--rule-file", "lost")),
        ("commands", "lost", "attn_example:failing_command", ("lost",)),
        ("commands", "lost", "attn_example:number", ("lost",)),
        ("commands", "lost", "no_such_module", ("lost",)),
    ],
)  # fmt: skip
def test_what_fails_is_told_by_its_name_and_package(site, kind, name, target, command):
    install(site, {**ENTRY_POINTS, kind: {**ENTRY_POINTS[kind], name: target}})
    answer = ask(*command)
    assert (answer.code, answer.out) == (1, "")
    assert "plugin lost of attn-example 1.2" in " ".join(answer.err.split())
    assert "Traceback" not in answer.err
    assert len(answer.err.splitlines()) <= 6
    assert ask("shout", "still here").out == "STILL HERE\n"  # the rest goes on
    rows = ask("models", "list", "--plugins", "--json").json["plugins"]
    states = {(row["kind"], row["name"]): row["state"] for row in rows}
    runs_only = target.endswith("failing_command")  # what fails while it runs can be imported
    assert states.pop((kind, "lost")) == ("usable" if runs_only else "fails")
    assert set(states.values()) == {"usable"}


def test_a_family_that_fails_is_told(site, tmp_path):
    install(site, {"families": {"lost_bert": "attn_example:number"}})
    folder = with_tokenizer(make(CASES["bert"], tmp_path / "own"), special=True)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "lost_bert"}))
    answer = ask("heads", "w1 w2 w3", "--model", str(folder))
    assert answer.code == 1
    assert "plugin lost_bert of attn-example 1.2" in " ".join(answer.err.split())


def test_two_packages_with_one_name_are_refused_and_named(site):
    install(site)
    install(site, {"metrics": ENTRY_POINTS["metrics"]}, "attn-other", "0.1")
    answer = ask(*HEADS, "--metric", "every_third")
    assert answer.code == 2
    assert "attn-example 1.2, attn-other 0.1" in " ".join(answer.err.split())
    rows = ask("models", "list", "--plugins", "--json").json["plugins"]
    assert [row["state"] for row in rows if row["kind"] == "metrics"] == ["twice", "twice"]
    assert ask("shout", "a").code == 0


def test_what_attn_has_itself_is_never_replaced(site):
    shadows = {"metrics": {"entropy": "attn_example:every_third"}}
    install(site, {**shadows, "commands": {"run": "attn_example:shout"}})
    plain = ask(*HEADS, "--metric", "entropy", "--json").json
    assert plain["heads"][0]["metrics"]["entropy"]["value"] > 1  # no share
    assert ask("run", TEXT).out.upper() != ask("run", TEXT).out
    shown = " ".join(ask("models", "list", "--plugins").out.split())
    assert "2 plugins of installed packages" in shown
    assert shown.count("attn has its own") == 2


def test_a_scan_measures_with_a_plugin_and_knows_its_version(site, tmp_path):
    install(site)
    model = with_tokenizer(make(CASES["bert"], tmp_path / "model"), special=True)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("w1 w2 w3 w4\nw5 w6 w7\n")
    command = ("scan", str(model), str(corpus), "-o", str(tmp_path / "out"), "--no-labels")
    with inside():
        answer = ask(*command, "--metric", "every_third", "--json")
        assert answer.code == 0, answer.err
        assert 0 < answer.json["heads"][0]["metrics"]["every_third"]["mean_texts"] < 1
        shutil.rmtree(site / "attn_example-1.2.dist-info")
        install(site, version="1.3")
        FILE_METRICS.clear()
        again = ask(*command, "--metric", "every_third", "--json")
    assert again.code == 2  # another version is another metric
    with inside():
        refused = ask(*command[:-1], "--rules", "--rule-file", "vowels")
    assert refused.code == 4
    assert "a plugin's" in refused.err


def test_entry_points_are_read_only_for_names_that_attn_does_not_have(site, monkeypatch):
    install(site)
    read = []
    monkeypatch.setattr(plugins, "installed_plugins", lambda: read.append(1) or [])
    ask(*HEADS, "--metric", "entropy,sink,induction")
    ask("models", "list", "--brief")
    ask("explain", "metric", "entropy")
    assert read == []
    ask(*HEADS, "--metric", "entrpy")
    assert read


def test_no_plugin_is_a_sentence(monkeypatch):
    monkeypatch.setattr("attncli.cli.plugin_list.installed_plugins", list)
    assert "No installed package adds" in ask("models", "list", "--plugins").out


def test_a_start_reads_no_metadata_of_packages():
    code = (
        "import sys; from attncli.cli import main; main(['run', 'a b', '--quiet']);"
        " print(sorted({'importlib.metadata', 'attncli.inputs.plugins'} & set(sys.modules)))"
    )
    done = finish([sys.executable, "-c", code])
    assert done.stdout.strip().splitlines()[-1] == "[]", done.stderr
