"""Makes the guide's gallery of heads: `python gallery.py FOLDER`, a static site in FOLDER/site that
any web server serves, and the guide's picture of its page.

MiniLM over the sample corpus, and a model that `attn learn` trains to continue repeated letters:
before its training, on the way, and when its induction heads have formed, over 300 texts of letters
that come twice.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from browsing import browser

from attncli.language.guide import FOLDER
from attncli.scan.corpus_scan import USUAL

ROOT = Path(__file__).parents[2]
METRICS = ",".join((*USUAL, "induction_pattern", "duplicate_pattern"))
"""What every scan has, and what tells the circuit that is learned."""
LETTERS = "abcdefghijklmnop"


def attn(*arguments: str) -> None:
    """Run the program in the project's folder."""
    subprocess.run([sys.executable, "-m", "attncli", *arguments], cwd=ROOT, check=True)


def repeats(path: Path) -> None:
    """300 texts of 8 to 12 letters, twice over."""
    drawn = random.Random(7)
    texts = [drawn.sample(LETTERS, drawn.randint(8, 12)) for _ in range(300)]
    path.write_text("".join(f"{' '.join(text * 2)}\n" for text in texts), "utf-8")


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    repeats(folder / "repeats.txt")
    attn(
        "learn",
        "induction",
        "--save",
        str(folder / "learned"),
        "--snapshots",
        "20",
        "--quiet",
        "--brief",
    )
    steps = sorted(
        (folder / "learned").glob("step-*"), key=lambda path: int(path.name.rpartition("-")[2])
    )
    last = int(steps[-1].name.rpartition("-")[2])
    on_the_way = min(steps, key=lambda path: abs(int(path.name.rpartition("-")[2]) - last / 4))
    stages = {"before": steps[0], "on-the-way": on_the_way, "trained": folder / "learned"}
    scans = [folder / "minilm"]
    attn("scan", "minilm", "sample_inputs/corpus.txt", "-o", str(scans[0]), "--quiet", "--brief")
    for name, checkpoint in stages.items():
        (folder / "models").mkdir(exist_ok=True)
        link = folder / "models" / f"induction-{name}"
        if not link.exists():
            link.symlink_to(checkpoint, target_is_directory=True)
        scans.append(folder / name)
        attn(
            "scan", str(link), str(folder / "repeats.txt"), "-o", str(scans[-1]), "--metric", METRICS, "--quiet",
            "--brief",
        )  # fmt: skip
    attn("scan", "show", *map(str, scans), "--site", str(folder / "site"))
    attn("scan", "show", *map(str, scans[1:]), "--html", str(folder / "induction.html"), "--quiet")
    with browser() as chromium:
        window = chromium.new_page(viewport={"width": 1280, "height": 900})
        window.goto(
            (folder / "induction.html").as_uri()
            + "#scan=2&head=1.0&metric=induction_pattern&x=previous&y=induction_pattern"
        )
        (FOLDER / "pictures" / "atlas.png").write_bytes(window.screenshot())
    sys.stdout.write(f"{folder / 'site'}\n")


if __name__ == "__main__":
    main()
