"""Twelve documents, of which one decides: does `attn answer` name it, and none where none does?

    python tests/benchmarks/answers.py MODEL [QUESTION…]    what is named, with CPU seconds
    python tests/benchmarks/answers.py MODEL --speed        1,000 tokens, six regions

MODEL needs a chat template of its own, or takes that of the sample inputs.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from asking import ask  # noqa: E402

DOCUMENTS = (
    "The Harbour Hotel has forty rooms and a view of the sea.",
    "Parking in the old town costs two euros an hour.",
    "The museum of glass is closed on Mondays.",
    "The ferry to the island leaves at nine and at four.",
    "The password of the guest network is bluefish.",
    "Breakfast is served from seven to ten in the garden.",
    "The lighthouse was built by Anna Berg in 1871.",
    "Dogs are allowed on the northern beach only.",
    "The library lends bicycles to its readers.",
    "The market sells fish on Thursdays.",
    "Room keys are returned at the front desk.",
    "The bakery opens at six and sells rye bread.",
)
QUESTIONS = {
    "password": ("What is the password of the guest network?", "doc5", "bluefish"),
    "lighthouse": ("Who built the lighthouse?", "doc7", "Anna Berg"),
    "museum": ("On which day is the museum of glass closed?", "doc3", "Monday"),
    "beach": ("On which beach are dogs allowed?", "doc8", "northern"),
    "bakery": ("When does the bakery open?", "doc12", "six"),
    "france": ("What is the capital of France?", None, "Paris"),
}
"""By name: the question, the document that decides, and a word of a right answer."""
TEMPLATE = ROOT / "sample_inputs" / "chatml.jinja"
FILLER = "The quay was quiet in the morning, and the boats lay still beside the wall. "


def regions(count: int) -> list[str]:
    """The options that name so many documents."""
    return [
        word
        for number in range(1, count + 1)
        for word in ("--region", f"doc{number}=[[doc{number}]]…[[/doc{number}]]")
    ]


def prompt(folder: Path, documents: tuple[str, ...], question: str) -> str:
    """Write a chat with these documents and this question; its file and the template."""
    lines = [f"[[doc{n}]] {text} [[/doc{n}]]" for n, text in enumerate(documents, 1)]
    content = "\n".join(
        ["Answer the question from the documents.", *lines, f"Question: {question}"]
    )
    path = folder / "chat.json"
    path.write_text(json.dumps([{"role": "user", "content": content}]))
    return f"{path}@{TEMPLATE}"


def measure(
    model: str, documents: tuple[str, ...], question: str, *more: str
) -> tuple[dict, float]:
    """The document of a question, and CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        chat = prompt(Path(folder), documents, question)
        began = time.process_time()
        answer = ask(
            *("answer", "--model", model, "--chat", chat, *regions(len(documents)), *more),
            *("--json", "--quiet"),
            XDG_CACHE_HOME=folder,
        )
    if answer.code:
        raise SystemExit(answer.err)
    return answer.json, time.process_time() - began


def named_regions(document: dict) -> list[tuple[str, float]]:
    """The regions that an answer is said to rest on, with the change of each."""
    return [
        (document["regions"][row["region"]]["name"], round(row["change"], 2))
        for row in document["effects"]
        if row["matters"]
    ]


def main(model: str, *names: str) -> None:
    """Ask, and print what is named."""
    if names == ("--speed",):
        documents = tuple(f"{text} {FILLER * 8}" for text in DOCUMENTS[2:8])
        document, seconds = measure(model, documents, QUESTIONS["password"][0])
        print(f"{len(document['tokens'])} tokens, 6 regions: {seconds:.1f} CPU s")
        names = ("password",)
    for name in names or QUESTIONS:
        question, decides, word = QUESTIONS[name]
        document, seconds = measure(model, DOCUMENTS, question, "--tokens", "24")
        used = named_regions(document)
        named = [region for region, _ in used]
        text = document["answer"]["text"]
        right = word.lower() in text.lower()
        sound = named[:1] == ([] if decides is None else [decides])
        print(
            f"{name}: {text!r} right={right} decides={decides} named={used} sound={sound}"
            f" {seconds:.1f} CPU s",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
