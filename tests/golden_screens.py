"""The screens of every command at four widths in every language, and the JSON of every example in
help: `python tests/golden_screens.py` writes them anew to tests/golden/, `… heads why` those alone.

Weights are seeded, words are split without a vocabulary, and all is computed in float64 and shown
rounded, so that screens are the same on every machine; of JSON all but the fractions is held. What
is trained is left out.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from asking import ask
from commands import commands
from small_gpt2 import small_gpt2

from attncli.models.aliases import local_folder

ROOT = Path(__file__).parents[1]
SCREENS = ROOT / "tests" / "golden" / "screens"
DIGESTS = ROOT / "tests" / "golden" / "json.tsv"
WIDTHS = (44, 56, 70, 100)
LANGUAGES = ("en", "zh")

HUMPTY = '"humpty dumpty sat on"'
INSTEAD = {
    "patch": f'attn patch {HUMPTY} "humpty dumpty sat down" --query on',
    "why": f"attn why {HUMPTY} --from on --to humpty",
    "view": f"attn run {HUMPTY} --json -o run.json && attn view run.json",
}
"""Lines for commands whose examples in help all need a model that was trained."""
ELSEWHERE = {
    "explore": "full screen: tests/golden/explore",
    "explain order": "compares what is equal but for rounding",
    "guide": "prose, whose examples tests/test_examples.py runs",
    "learn": "what is trained differs between instruction sets",
    "schema": "JSON alone, as wide as it is",
    "series": "needs checkpoints of a model",
    "logits": "needs a model with an output head",
    "next": "needs a model with an output head",
    "answer": "needs a model with an output head",
    "circuit": "needs a model with an output head",
    "pairs check": "needs a model with an output head",
    "scan start": "needs a model that was trained",
    "scan show": "needs a scan",
    "scan compare": "needs two scans",
    "scan verify": "needs a scan",
    "scan export": "writes a file of a scan",
    "models list": "lists what is installed",
    "models show": "needs a model that was trained",
    "models fetch": "needs a model that was trained",
    "models verify": "needs a model that was trained",
    "weights convert": "needs a file of torch's",
}
"""Commands without such screens, and why."""
CIRCUIT = "attn circuit --model tiny --pairs pairs.jsonl"
OF_DECODER = {
    "ablate-pairs": "attn ablate --model tiny --pairs pairs.jsonl --hold attention",
    "patch-pairs": "attn patch --model tiny --pairs pairs.jsonl",
    "logits-pairs": "attn logits --model tiny --pairs pairs.jsonl",
    "why-pairs": "attn why --model tiny --pairs pairs.jsonl --to it",
    "find-pairs": "attn find --model tiny --pairs pairs.jsonl --to it --effect",
    "next-word": 'attn next --model tiny "it was too the" --each --without L0H1 --weigh was=×4',
    "logits-words": 'attn logits --model tiny "it was too the" --by word',
    "circuit-pairs": f"{CIRCUIT} --holdout 20",
    "circuit-compare": f"{CIRCUIT} --size 9 --json -o a.json"
    f" && {CIRCUIT} --size 9 --seed 1 --json -o b.json && attn circuit compare a.json b.json",
}
"""Lines for a small decoder with an output head, written from seeded numbers, by the file of their
screens, with pairs of texts enough for intervals."""
DECODER_WIDTHS = (44, 60, 80, 120)
MARY_TEXT = '"After John and Mary went to the store, John gave a drink to"'
MARY = f"{MARY_TEXT} --target Mary"
ANIMAL = '"The animal didn\'t cross the street because it was too tired" --from it --to animal'
OF_TRAINED = {
    "smollm2-next": f"attn next --model smollm2 {MARY} --without L18H0 --each",
    "smollm2-ablate": f"attn ablate --model smollm2 {MARY} --versus John --hold attention"
    " --head L17H0,L18H0,L20H0,L23H3,L29H0,L29H1",
    "smollm2-ablate-pairs": "attn ablate --model smollm2 --pairs indirect-object --count 20"
    " --hold attention --head L18H0,L20H0,L23H3,L29H0",
    "smollm2-patch-pairs": "attn patch --model smollm2 --pairs indirect-object --count 20"
    " --head L18H0,L20H0,L23H3,L29H0",
    "smollm2-logits-pairs": "attn logits --model smollm2 --pairs greater-than --count 20",
    "smollm2-why": f"attn why --model smollm2 {ANIMAL} --layer 13 --head 8",
    "smollm2-find": f"attn find --model smollm2 {ANIMAL}",
    "smollm2-heads-roles": f"attn heads --model smollm2 {MARY_TEXT} --roles --layer 17-24 --top 12",
    "smollm2-next-weigh": f"attn next --model smollm2 {MARY} --weigh Mary=×4",
    "smollm2-logits-words": f"attn logits --model smollm2 {MARY} --versus John --by word",
}
"""Lines for trained decoders from packages, by the file of their screens. In float64 each would take
half a minute: they are computed in float32, and numbers may differ by `NEAR`."""
NEAR = 0.02
TRAINED_WIDTHS = (120,)
TRAINED = re.compile(
    r"--model|minilm|gpt2|\bDIR\b|--time|before|after|my-model|my_rules|run\.json|answers\.json"
)
"""What needs a model that was trained, files of one's own, or a clock."""


def seeded_lines() -> dict[str, list[str]]:
    """The examples in help that need no trained model, by command."""
    lines: dict[str, list[str]] = {}
    for path, command in commands():
        if path not in ELSEWHERE:
            examples = [line.strip() for line in (command.help or "").splitlines()]
            lines[path] = [
                line for line in examples if line.startswith("attn ") and not TRAINED.search(line)
            ]
            if path in INSTEAD:
                lines[path] = [INSTEAD[path]]
    return lines


def screen_names() -> list[str]:
    """Of the commands with screens, and of the lines for a decoder."""
    return [*seeded_lines(), *OF_DECODER]


def all_names() -> list[str]:
    """Of `screen_names`, and of the lines for trained decoders."""
    return [*screen_names(), *OF_TRAINED]


@contextmanager
def inside(folder: str) -> Iterator[None]:
    """Context manager: work in an empty folder beside the sample inputs."""
    here = Path.cwd()
    (Path(folder) / "sample_inputs").symlink_to(ROOT / "sample_inputs")
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)


def write_decoder() -> None:
    """Write the small decoder and its pairs into this folder."""
    small_gpt2(Path("tiny"))
    beginnings = [" ".join(("was", *words)) for words in product(("too", "was", "it"), repeat=3)]
    lines = [
        {
            "clean": f"{beginning} it",
            "corrupt": f"{beginning} the",
            "answer": " it",
            "versus": " the",
        }
        for beginning in beginnings
    ]
    Path("pairs.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def answer(line: str, *more: str, width: int = 80) -> str:
    """What the last command of a line prints."""
    with TemporaryDirectory() as folder, inside(folder):
        if "--model tiny" in line:
            write_decoder()
        *before, last = [shlex.split(part)[1:] for part in line.split(" && ")]
        if line not in OF_TRAINED.values():
            before = [in_float64(words) for words in before]
            last = in_float64(last)
        for words in before:
            assert ask(*words).code == 0
        answered = ask(*last, *more, width=width, COLUMNS=str(width))
    assert answered.code == 0, f"{line}: {answered.err}"
    return answered.out


def in_float64(words: list[str]) -> list[str]:
    """A command line that computes in float64, where the command has the option."""
    if words[:2] == ["circuit", "compare"]:  # of saved documents
        return words
    by_path = dict(commands())
    command = by_path.get(" ".join(words[:2])) or by_path[words[0]]
    has_option = any("--dtype" in parameter.opts for parameter in command.params)
    return [*words, "--dtype", "float64"] if has_option else words


def without_rounding(text: str) -> str:
    """A screen whose traces of rounding, such as a difference of 3e-16, are the same everywhere."""
    text = re.sub(r"(difference|相差) \d[\d.e-]*\d", r"\1 0", text)
    return re.sub(r"\d(?:\.\d+)?e-1[4-9]", "0", text)


NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*")
BAR = re.compile("[▏▎▍▌▋▊▉▇╌]")


def is_near(old: str, new: str) -> bool:
    """Whether two lines of screens differ by rounding alone."""
    shapes = [BAR.sub("▇", NUMBER.sub("0", line)) for line in (old, new)]
    if " ".join(shapes[0].split()) != " ".join(shapes[1].split()):
        return False
    numbers = [[float(n.replace(",", "")) for n in NUMBER.findall(line)] for line in (old, new)]
    return all(
        abs(a - b) <= max(NEAR, NEAR * abs(a)) for a, b in zip(numbers[0], numbers[1], strict=True)
    )


def without_fractions(text: str) -> str:
    """A document in which every number with a fraction or an exponent is the same."""
    return re.sub(r"-?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)", "0.5", text)


def line_of(path: str) -> tuple[str, tuple[int, ...]]:
    """What is typed for these screens, and how wide they are."""
    if path in OF_TRAINED:
        return OF_TRAINED[path], TRAINED_WIDTHS
    if path in OF_DECODER:
        return OF_DECODER[path], DECODER_WIDTHS
    return seeded_lines()[path][0], WIDTHS


def is_installed(path: str) -> bool:
    """Whether the trained decoder of these screens is on this machine."""
    return local_folder(path.split("-")[0]) is not None


def screens(path: str) -> str:
    """The screens of a command's first line, one below the other."""
    line, widths = line_of(path)
    blocks = [
        f"==== {width} {lang}\n{answer(line, '--lang', lang, width=width)}"
        for lang in LANGUAGES
        for width in widths
    ]
    return without_rounding(f"$ {line}\n" + "".join(blocks))


def file_of(path: str) -> Path:
    """Where the screens of a command are stored."""
    return SCREENS / f"{path.replace(' ', '-')}.txt"


def json_lines(path: str) -> list[str]:
    """A line for each example of a command: what is typed, and the digest of its JSON."""
    digests = []
    for line in seeded_lines()[path]:
        several = line.count("--mask") > 2  # more than two sides are no single document
        if not several:
            text = without_fractions(answer(line, "--json"))
            digests.append(f"{line}\t{sha256(text.encode()).hexdigest()[:16]}")
    return digests


def stored_digests() -> list[str]:
    return DIGESTS.read_text("utf-8").splitlines() if DIGESTS.exists() else []


def renew(paths: list[str]) -> None:
    """Write the screens and digests of these commands anew; not those of trained decoders that are
    not installed."""
    SCREENS.mkdir(exist_ok=True)
    digests = dict(line.split("\t") for line in stored_digests())
    for path in paths:
        if path in OF_TRAINED and not is_installed(path):
            continue
        file_of(path).write_text(screens(path), "utf-8")
        if path in OF_DECODER or path in OF_TRAINED:
            continue
        digests.update(line.split("\t") for line in json_lines(path))
    known = {line for lines in seeded_lines().values() for line in lines}
    lines = sorted(f"{line}\t{digest}\n" for line, digest in digests.items() if line in known)
    DIGESTS.write_text("".join(lines), "utf-8")
    for stale in set(SCREENS.glob("*.txt")) - {file_of(path) for path in all_names()}:
        stale.unlink()


if __name__ == "__main__":
    unknown = sorted(set(sys.argv[1:]) - {*all_names()})
    if unknown:
        sys.exit(f"no screens of {unknown}; a name is a command, such as 'explain metric'")
    renew(sys.argv[1:] or all_names())
