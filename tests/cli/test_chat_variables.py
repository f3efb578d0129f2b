"""Chat templates where formats keep them, by name, and with variables of a user's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from asking import ask
from tiny_checkpoints import CASES, make

PLAIN = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
THINKING = "{{ messages[0].content }}{% if thinking is false %} off{% endif %} {{ level }}"
WORDS = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "hi": 1}, "unk_token": "<unk>"},
}  # fmt: skip


def checkpoint(folder: Path, **settings: object) -> Path:
    """A folder of a tokenizer with these settings, and a chat."""
    (folder / "tokenizer.json").write_text(json.dumps(WORDS))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    messages = [{"role": "user", "content": "hi"}]
    (folder / "chat.json").write_text(json.dumps({"messages": messages, "thinking": False}))
    (folder / "plain.json").write_text(json.dumps(messages))
    return folder


def text_of(folder: Path, *arguments: str, chat: str = "plain.json") -> str:
    """The text that the folder's template makes of its chat."""
    told = ask("tokens", "--tokenizer", str(folder / "tokenizer.json"), "--chat",
               str(folder / chat), "--json", *arguments)  # fmt: skip
    return told.json["text"] if told.code == 0 else told.err


def test_variables_come_from_the_chat_and_from_the_line(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, chat_template=THINKING)
    assert text_of(folder) == "hi "
    assert text_of(folder, chat="chat.json") == "hi off "
    assert text_of(folder, "--chat-var", "thinking=true", chat="chat.json") == "hi "
    assert text_of(folder, "--chat-var", "level=high") == "hi high"
    assert text_of(folder, "--chat-var", "level=3") == "hi 3"
    template = folder / "documents.jinja"
    template.write_text("{{ documents[0] }}")
    given = ("--chat-template", str(template), "--chat-var", 'documents=["hi"]')
    assert text_of(folder, *given) == "hi"


def test_variables_of_servers_are_those_of_the_file(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, chat_template=THINKING)
    said = {"messages": [{"role": "user", "content": "hi"}]}

    def answer(*arguments: str, **more: object) -> str:
        (folder / "served.json").write_text(json.dumps({**said, **more}))
        return text_of(folder, *arguments, chat="served.json")

    assert answer(chat_template_kwargs={"thinking": False, "level": 3}) == "hi off 3"
    assert answer(chat_template_kwargs={"thinking": False}, thinking=False) == "hi off "
    assert answer("--chat-var", "thinking=true", chat_template_kwargs={"thinking": False}) == "hi "
    assert answer(chat_template_kwargs=None) == "hi "
    told = answer(chat_template_kwargs={"thinking": False}, thinking=True)
    assert "'thinking' is true beside the messages and false in chat_template_kwargs" in told
    for wrong in ({"messages": []}, {"a b": 1}, {"_x": 1}, [1], 5):
        assert "chat_template_kwargs" in answer(chat_template_kwargs=wrong)


def test_python_spellings_and_tools_are_values(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, chat_template=THINKING)
    assert text_of(folder, "--chat-var", "thinking=False") == "hi off "
    assert text_of(folder, "--chat-var", "thinking=True") == "hi "
    named = "{{ messages[0].content }}{% for tool in tools %} {{ tool.name }}{% endfor %}"
    (tmp_path / "tools.jinja").write_text(named)
    given = ("--chat-template", str(tmp_path / "tools.jinja"), "--chat-var", 'tools=[{"name":"f"}]')
    assert text_of(folder, *given) == "hi f"
    told = ask("tokens", "--tokenizer", str(folder / "tokenizer.json"), "--chat",
               str(folder / "plain.json"), "--chat-var", 'tools=[{"name":"f"}]')  # fmt: skip
    assert "does not read the variable 'tools'" in told.err


def test_a_variable_that_the_template_does_not_read_is_told(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, chat_template=PLAIN)
    told = ask("tokens", "--tokenizer", str(folder / "tokenizer.json"), "--chat",
               str(folder / "chat.json"))  # fmt: skip
    assert "does not read the variable 'thinking'" in told.err


@pytest.mark.parametrize("value", ["thinking", "=1", "_x=1", "messages=[]", "a b=1", "tools=1"])
def test_what_is_no_variable_is_refused(value: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, chat_template=PLAIN)
    told = ask("tokens", "--tokenizer", str(folder / "tokenizer.json"), "--chat",
               str(folder / "plain.json"), "--chat-var", value)  # fmt: skip
    assert told.code == 2
    assert "--chat-var" in told.err
    assert ask("tokens", "hi", "--chat-var", "a=1").code == 2


def test_templates_with_names(tmp_path: Path) -> None:
    named = [{"name": "rag", "template": PLAIN}]
    folder = checkpoint(tmp_path, chat_template=named)
    told = text_of(folder)
    assert "'rag'" in told
    assert "--chat FILE@rag" in told
    assert text_of(folder, "--chat-template", "rag") == "hi "
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "short.jinja").write_text("{{ messages[0].content }}")
    assert text_of(folder, "--chat-template", "short") == "hi"


def test_the_filter_format(tmp_path: Path) -> None:
    template = "{{ '%s: %d' | format(messages[0].role, 3) }}"
    assert text_of(checkpoint(tmp_path, chat_template=template)) == "user: 3"
    centred = "[{{ 'a' | center(3) }}]"
    assert text_of(checkpoint(tmp_path, chat_template=centred)) == "[ a ]"
    wide = "{{ '%999999999d' | format(3) }}"
    assert "user" not in text_of(checkpoint(tmp_path, chat_template=wide))


def test_a_gguf_file_has_its_own_template_and_is_no_folder(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(str(path), "gpt2")
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["h", "i", "hi", "<|e|>", "Ġ"])
    writer.add_token_types([1, 1, 1, 3, 1])
    writer.add_token_merges(["h i"])
    writer.add_eos_token_id(3)
    writer.add_chat_template("{{ messages[0].content }}{{ eos_token }}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "hi"}]')
    loud = path.with_name("M.GGUF")
    loud.symlink_to(path)
    for file in (path, loud):
        told = ask("tokens", "--model", str(file), "--chat", str(tmp_path / "chat.json"), "--json")
        assert [token["id"] for token in told.json["tokens"]] == [2, 3]


def test_a_folder_is_still_called_one(tmp_path: Path) -> None:
    folder = make(CASES["gpt2"], tmp_path / "gpt2")
    assert "a folder" in ask("models", "show", str(folder)).out
