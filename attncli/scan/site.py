"""A static folder of scans that any web server serves: an index, a page for each scan, their
numbers as JSON beside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from attncli.draw.page.page_frame import page_head, page_style
from attncli.draw.safe import last_part, safe_html
from attncli.errors import UsageError
from attncli.inputs.files import atomic_writer, is_folder, is_there, open_regular
from attncli.language import message, plural
from attncli.scan.corpus_page import PageScan, scan_names, scan_page, tails
from attncli.scan.document import ScanDocument

INDEX, TOGETHER = "index.html", "all.html"
"""The page that lists the scans, and the page of all of them."""
DEVICES = (
    "con",
    "prn",
    "aux",
    "nul",
    *(f"{port}{number}" for port in ("com", "lpt") for number in range(10)),
)
"""What no file may be called on Windows, whatever its ending."""
GENERATOR = b'<meta name="generator" content="attn '
"""What tells a page that attn wrote."""
HEAD_BYTES = 1 << 16
"""Bytes of a page in which its generator stands, at most."""
LONGEST_NAME = 60
"""Characters of a file's name, without its ending and its number."""
SKELETON = """\
<body>
<header><h1>attn scan</h1><p id="line">{line}</p></header>
<main class="plain">
<section class="reading">
<table class="figures"><thead><tr>{names}</tr></thead>
<tbody>
{rows}
</tbody></table>
<p>{together}</p>
</section>
</main>
<footer><ul id="notes"></ul><span>attn {version}</span></footer>
</body>
</html>
"""


def check_site(folder: Path) -> None:
    """Raise UsageError where the folder of a site is a file, or holds an index.html that attn did
    not write and would replace."""
    if is_there(folder) and not is_folder(folder):
        raise UsageError(
            "--site is a file", where=str(folder), expected="a folder, or a new one's name"
        )
    index = folder / INDEX
    if not is_there(index):
        return
    stream, _ = open_regular(index, what=message("a page"), may_be_empty=True)
    with stream:
        if GENERATOR not in stream.read(HEAD_BYTES):
            what = message("this folder has an index.html that attn did not write")
            raise UsageError(
                what, where=str(index), expected="an empty folder, or one that attn wrote"
            )


def write_site(
    scans: Sequence[ScanDocument],
    folder: Path,
    shade: Callable[[ScanDocument, int], PageScan],
    *,
    lang: str,
) -> list[Path]:
    """Write a site of scans (an index, a page and a JSON file of each, and for several a page of
    all) to a folder, and return its files.

    shade: called once for each document with how many examples its page has, an index in
        `DENSITIES`; returns what the page needs, shaded by the scan's model.
    lang: the language of the index, and the one that pages open in.

    Raises UsageError where the folder's index is not this program's.
    """
    from attncli.scan.corpus_page import density_of

    check_site(folder)
    folder.mkdir(parents=True, exist_ok=True)
    names = scan_names([scan.plan for scan in scans])
    files = _file_names(names)
    files_written = []

    def write(name: str, data: bytes) -> None:
        """Write one file of the site."""
        with atomic_writer(folder / name) as stream:
            stream.write(data)
        files_written.append(folder / name)

    density = density_of(scans)
    page_scans = [shade(document, density) for document in scans]
    for page_scan, name in zip(page_scans, files, strict=True):
        write(f"{name}.html", scan_page([page_scan], lang=lang))
        write(f"{name}.json", msgspec.json.encode(without_paths(page_scan.document), enc_hook=str))
    if len(scans) > 1:
        write(TOGETHER, scan_page(page_scans, lang=lang, density=density))
    write(INDEX, _index_page(scans, names, files, lang))
    return files_written


def without_paths(document: ScanDocument) -> ScanDocument:
    """A scan's document whose model, corpus and adapters are named without the folders they lie in."""
    plan = document.plan
    plan = msgspec.structs.replace(
        plan,
        model=last_part(plan.model),
        corpus=tails(plan.corpus),
        adapters=tails(plan.adapters or []) or msgspec.UNSET,
    )
    return msgspec.structs.replace(document, plan=plan)


def _file_names(names: Sequence[str]) -> list[str]:
    """A file name, without its ending, for each of these scans: lower-case letters, digits and
    hyphens, such as "my-model" for "My model"; none twice, and none that the site itself or Windows
    uses."""
    used = {Path(INDEX).stem, Path(TOGETHER).stem, *DEVICES}
    files = []
    for name in names:
        # a name without a letter or digit leaves nothing
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:LONGEST_NAME] or "scan"
        number = 1
        file = plain
        while file in used:
            number += 1
            file = f"{plain}-{number}"
        used.add(file)
        files.append(file)
    return files


def _index_page(
    scans: Sequence[ScanDocument], names: Sequence[str], files: Sequence[str], lang: str
) -> bytes:
    """The HTML page that lists the scans of a site, as UTF-8.

    names: what the scans are called.
    files: the names of their files, without endings.
    """
    from attncli.version import __version__

    columns = (
        message("scan"),
        message("texts"),
        message("heads"),
        message("with a label"),
        message("numbers"),
    )
    rows = []
    for document, name, file in zip(scans, names, files, strict=True):
        labelled = sum(any(label.earned for label in head.labels) for head in document.heads)
        cells = [
            f"{document.done.texts:,}",
            f"{len(document.heads):,}",
            f"{labelled:,}" if document.plan.labels else "–",
        ]
        rows.append(
            f'<tr><th scope="row"><a href="{file}.html">{safe_html(name)}</a></th>'
            + "".join(f"<td>{cell}</td>" for cell in cells)
            + f'<td><a href="{file}.json">JSON</a></td></tr>'
        )
    line = plural(
        "{count} scan: what every head does over a corpus",
        "{count} scans: what every head does over a corpus",
        count=len(scans),
    )
    if len(scans) > 1:
        link_text = safe_html(message("all on one page").translation(lang))
        link = f'<a href="{TOGETHER}">{link_text}</a>'
    else:
        link = ""
    sheet = page_style("site")
    column_cells = [
        f'<th scope="col">{safe_html(column.translation(lang))}</th>' for column in columns
    ]
    body = SKELETON.format(
        line=safe_html(line.translation(lang)),
        rows="\n".join(rows),
        together=link,
        version=__version__,
        names="".join(column_cells),
    )
    return (page_head(lang, "attn scan", "", sheet) + body).encode()
