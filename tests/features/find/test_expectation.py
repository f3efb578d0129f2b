"""`attn find --expect`: a check for scripts, on the strongest head."""

from pathlib import Path

import pytest
from asking import ask

TEXT = "the cat sat on the mat"
LINK = ("--from", "sat", "--to", "cat")


@pytest.fixture(scope="module")
def largest() -> float:
    """The largest weight of the link in the seeded model."""
    heads = ask("find", TEXT, *LINK, "--json").json["heads"]
    return float(max(head["weight"] for head in heads))


@pytest.mark.parametrize("sign", [">", ">=", "<", "<="])
def test_a_check_holds_or_ends_with_1(sign: str, largest: float) -> None:
    low, high = (round(largest + by, 4) for by in (-0.01, 0.01))
    for bound in (low, high):
        answer = ask("find", TEXT, "--expect", f"weight(sat,cat){sign}{bound}", "--brief")
        holds = (bound == low) == (sign[0] == ">")
        assert answer.code == (0 if holds else 1), answer.err
        assert "sat" in answer.out  # the answer is written either way
    assert f"expected: {sign} " in answer.err or sign[0] == "<"
    assert ask("find", TEXT, *LINK, "--expect", f"weight {sign} {low}").code == int(sign[0] == "<")


def test_one_of_the_heads_is_chosen() -> None:
    heads = ask("find", TEXT, *LINK, "--json").json["heads"]
    last = heads[-1]
    bound = (heads[0]["weight"] + last["weight"]) / 2
    check = ("--expect", f"weight(sat,cat)>{bound:.6f}")
    assert ask("find", TEXT, *check).code == 0
    failed = ask("find", TEXT, *check, "--head", str(last["head"]))
    assert failed.code == 1
    assert f"layer 0 head {last['head']}" in failed.err


def test_every_line_is_checked(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text(f"{TEXT}\nsat a cat\n")
    lines = ("find", "--file", str(tmp_path / "lines"), "--lines", "--expect")
    assert ask(*lines, "weight(sat,cat)<=1").code == 0
    answer = ask(*lines, "weight(sat,cat)>0.999", "--ndjson")
    assert answer.code == 1
    assert len(answer.out.splitlines()) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("weight(sat,cat)=0.5",), ("weight(sat)>0.5",), ("weight(sat,cat)>2",), ("weight(sat,cat)>1.2.3",),
        ("weight(sat,cat)>",), ("",), ("weight>0.5",), ("weight(sat,cat)>0", "--from", "sat", "--to", "mat"),
        ("weight(sat,cat)>0", "--from", "sat"),
    ],
)  # fmt: skip
def test_what_is_no_check_is_refused(arguments: tuple[str, ...]) -> None:
    answer = ask("find", TEXT, "--expect", *arguments)
    assert (answer.code, answer.out) == (2, "")
    pairs = ask("find", "--pairs", "agreement", "--expect", "weight>0.5")
    assert pairs.code == 2
