"""Answers of commands, told again from their documents."""

from __future__ import annotations

from asking import ask


def test_masks_together_are_told_beside_each() -> None:
    said = ask("mask", "causal", "window:3,3", "-n", "8", "--brief").out
    parts = ask("mask", "causal", "window:3,3", "-n", "8", "--json").json
    for part in parts["masks"]:
        assert f"{part['spec']} shows {part['pairs']} of 64 pairs, {part['share']:.1%}." in said
    both = parts["combined"]
    assert f"Together they show {both['pairs']} of 64 pairs, {both['share']:.1%}." in said
    assert "alone" not in said
    assert "That is what window:2 shows alone." in ask("mask", "causal", "window:2", "-n", "8", "--brief").out
    assert (
        "这正是 window:2 单独可见的那些。"
        in ask("mask", "causal", "window:2", "-n", "8", "--brief", "--lang", "zh").out
    )


def test_a_cost_has_n_squared_and_the_steps_of_a_recurrent_network() -> None:
    said = ask("cost", "-n", "1000", "--brief", width=200).out
    assert "Over n = 1,000 tokens full attention compares n² = 1,000,000 pairs in every head." in said
    assert "A recurrent network takes 1,000 steps, one after the other, attention 1." in said
    assert "1 step, attention 1" in ask("cost", "-n", "1", "--brief").out
    assert "循环网络要走 1,000 步" in ask("cost", "-n", "1000", "--brief", "--lang", "zh").out


def test_heads_of_several_layers_open_on_their_strongest_links() -> None:
    asked = ("heads", "it was too tired", "--model", "minilm")
    screen = ask(*asked, "--show", "grid", "--precision", "3", width=120).out
    assert screen.startswith("strongest link of each head")
    assert "entropy" not in screen
    for head in ask(*asked, "--json").json["heads"]:
        link = head["top_link"]
        assert link is None or f"{link['weight']:.3f}" in screen
    assert ask(*asked, "--show", "grid", "--sort", "entropy").out.startswith("entropy")
    assert ask(*asked, "--show", "grid", "--lang", "zh").out.startswith("每个头的最强连接")


def test_a_patch_shows_every_head_and_those_that_lead_away() -> None:
    asked = ("patch", "the cat sat on it", "the dog sat on it", "--model", "minilm")
    effects = ask(*asked, "--json").json["effects"]
    for width in (60, 80, 120):
        grid = ask(*asked, "--show", "grid", width=width).out
        shown = [int(number) for line in grid.splitlines() if line.startswith("    ") for number in line.split()]
        assert sorted(shown) == list(range(12))
    largest = sorted(effects, key=lambda row: -abs(row["recovered"]))[:10]
    listed = ask(*asked, "--show", "heads").out
    assert all(f"L{row['layer']} H{row['head']} " in listed for row in largest)
    assert f"{len(effects) - 10} more heads" in listed
