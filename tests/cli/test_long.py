"""Long prompts on the command line: chats, wherever a text is taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from asking import ask
from small_gpt2 import small_gpt2

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
    "explain matrix-softmax": ("explain", "matrix-softmax"),
    "explain order": ("explain", "order"),
    "find": ("find", "--from", "cat", "--to", "brief"),
    "ablate": ("ablate", "--num-heads", "2"),
    "logits": ("logits", "--model", "{tmp}/gpt2"),
    "why": ("why", "--from", "cat", "--to", "brief"),
    "tokens": ("tokens",),
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


@pytest.mark.parametrize("command", COMMANDS)
def test_a_chat_stands_wherever_a_text_does(command: str, folder: Path) -> None:
    line = [part.replace("{tmp}", str(folder)) for part in COMMANDS[command]]
    template = () if "--model" in line else ("--chat-template", str(folder / "template"))
    answer = ask(*line, "--chat", str(folder / "chat.json"), *template, "--json")
    assert answer.code == 0, answer.err
    assert answer.json["text"] == "Be brief. a cat now"
    piped = ask(*line, "--chat", "-", *template, "--json", "--no-generation-prompt", stdin=json.dumps(TALK).encode())
    assert piped.code == 0, piped.err
    assert piped.json["text"] == "Be brief. a cat "


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        (("run", "a b", "--chat", "{tmp}/chat.json"), 2, "TEXT and --chat"),
        (("run", "--ids", "1", "--chat", "{tmp}/chat.json"), 2, "--ids and --chat"),
        (("run", "--lines", "--chat", "{tmp}/chat.json"), 2, "--lines takes texts apart"),
        (("run", "a b", "--chat-template", "{tmp}/template"), 2, "--chat-template is about a chat"),
        (("run", "a b", "--no-generation-prompt"), 2, "--generation-prompt is about a chat"),
        (("run", "--chat", "{tmp}/chat.json"), 3, "this model has no chat template"),
        (("run", "--chat", "{tmp}/template", "--chat-template", "{tmp}/template"), 3, "this chat is no JSON"),
        (("run", "--chat", "{tmp}/none.json"), 3, "none.json"),
        (("run", "--chat", "{tmp}/chat.json", "--chat-template", "{tmp}/chat.json"), 0, ""),
    ],
)
def test_what_contradicts_a_chat_is_refused(line: tuple[str, ...], code: int, says: str, folder: Path) -> None:
    answer = ask(*(part.replace("{tmp}", str(folder)) for part in line))
    assert (answer.code, bool(answer.out)) == (code, code == 0), answer.err
    assert says in answer.err
