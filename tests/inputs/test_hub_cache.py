"""Where the hub's cache is, who forbids the network, and which names can be models on the hub."""

from pathlib import Path

import pytest

from attncli.inputs.hub import HubId, cache_folder, is_offline


def test_where_the_cache_is() -> None:
    assert cache_folder({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}) == Path("/a")
    assert cache_folder({"HF_HOME": "/b", "XDG_CACHE_HOME": "/c"}) == Path("/b/hub")
    assert cache_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/huggingface/hub")
    assert cache_folder({}) == Path.home() / ".cache/huggingface/hub"
    assert cache_folder({"HF_HUB_CACHE": "~/a"}) == Path.home() / "a"
    assert cache_folder({"HF_HOME": "$HOME/b"}) == Path.home() / "b/hub"
    assert cache_folder({"HF_HOME": "~no-such-user/b"}) == Path("~no-such-user/b/hub")


def test_who_forbids_the_network() -> None:
    assert is_offline({"HF_HUB_OFFLINE": "yes"})
    assert is_offline({"TRANSFORMERS_OFFLINE": "1"})
    assert not is_offline({"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "1"})
    assert not is_offline({})


@pytest.mark.parametrize(
    "text", ["gpt2", "openai-community/gpt2", "a/b@main", "a/b@refs/pr/1", "Qwen/Qwen3-0.6B", "_x"]
)
def test_ids_that_can_be(text: str) -> None:
    found = HubId.parse(text)
    assert found is not None
    assert str(found) == text.removesuffix("@main")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "a/",
        "/a",
        "a//b",
        "a/b@",
        "a/b@..",
        "a..b",
        "a--b",
        "a/b.",
        "-a",
        "a/\x1b",
        "a/b\n",
        "a/b@x\n",
    ],
)
def test_ids_that_cannot(text: str) -> None:
    assert HubId.parse(text) is None
