"""Files that stand where tokenizer.json is missing: vocab.txt, vocab.json with merges.txt,
SentencePiece's models, Mistral's tekken.json; and what to do where none of them can be used.

Such a file holds pieces and not how a text is cut; that follows from the tokenizer class that
tokenizer_config.json or config.json names, else from the family. A class without an entry here is
not guessed: the hint is then the command that lets transformers write tokenizer.json.

Source: the classes of these names in transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Any

from msgspec import Struct

from attncli.inputs.files import guarded_path, is_there, read_object, read_regular
from attncli.language import Message, message

WORDS, PAIRED, MERGES, TEKKEN = "vocab.txt", "vocab.json", "merges.txt", "tekken.json"
SENTENCE_PIECES = (
    "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model", "sentencepiece.model",
    "source.spm",
)  # fmt: skip
NAMES = (TEKKEN, WORDS, PAIRED, *SENTENCE_PIECES)
"""The files that hold a vocabulary, without those that stand beside one."""
VOCABULARY_SUFFIXES = (*NAMES, MERGES, ".spm", ".model", ".tiktoken")
"""How the names of files end that hold a vocabulary and are no tokenizer.json."""
SETTINGS = ("config.json", "tokenizer_config.json", "special_tokens_map.json")
"""The files that say how a vocabulary is used; what a later one says counts."""
ROLES = (
    "unk_token", "bos_token", "eos_token", "sep_token", "cls_token", "pad_token", "mask_token",
)  # fmt: skip
"""Keys of settings that name one special token."""

BERT_WORDS = (
    "BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer", "ConvBertTokenizer",
    "SqueezeBertTokenizer", "LayoutLMTokenizer", "LxmertTokenizer",
)  # fmt: skip
BYTE_PAIRS = (
    "GPT2Tokenizer", "CodeGenTokenizer", "Qwen2Tokenizer", "RobertaTokenizer", "BartTokenizer",
    "LongformerTokenizer", "LEDTokenizer", "MvpTokenizer",
)  # fmt: skip
PIECES_ALONE = "SentencePiece"
"""Stands for the class of tokenizers where a SentencePiece file stands alone: as it cuts itself."""
SHIFTED = "sentencepiece.bpe.model"
"""The SentencePiece file of families whose ids are not those of its pieces."""
SCORED = ("LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "T5Tokenizer", PIECES_ALONE)
"""The classes that read a SentencePiece file."""
FILE_LIMIT = 256 * 2**20
CLASS_OF = {
    **dict.fromkeys(("bert", "distilbert", "electra", "mobilebert", "convbert", "squeezebert"), "BertTokenizer"),
    **dict.fromkeys(("nomic_bert", "new", "layoutlm", "lxmert", "megatron-bert", "dpr"), "BertTokenizer"),
    **dict.fromkeys(("gpt2", "gpt_neo", "gptj", "codegen"), "GPT2Tokenizer"),
    **dict.fromkeys(("roberta", "bart", "longformer", "led", "mvp"), "RobertaTokenizer"),
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"), "Qwen2Tokenizer"),
    **dict.fromkeys(("llama", "mistral", "mixtral", "phi3"), "LlamaTokenizer"),
    **dict.fromkeys(("gemma", "gemma2"), "GemmaTokenizer"),
    **dict.fromkeys(("t5", "mt5"), "T5Tokenizer"),
}  # fmt: skip
"""The class of tokenizers that a family has where its files name none."""
COMMAND = (
    'python -c "import sys; from transformers import AutoTokenizer as T;'
    ' T.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])" FOLDER'
)
"""What writes tokenizer.json where transformers has a rule for the files."""
IDS_COMMAND = (
    'python -c "import sys; from transformers import AutoTokenizer as T;'
    ' print(*T.from_pretrained(sys.argv[1])(sys.argv[2]).input_ids)" FOLDER TEXT'
)
"""What prints the ids of a text where no tokenizer.json can say how it is cut."""
UNWRITTEN = {
    "BartphoTokenizer": "bartpho", "BertGenerationTokenizer": "bert-generation",
    "BertJapaneseTokenizer": "bert-japanese", "BertweetTokenizer": "bertweet", "BioGptTokenizer": "biogpt",
    "BlenderbotSmallTokenizer": "blenderbot-small", "ByT5Tokenizer": "byt5", "CTRLTokenizer": "ctrl",
    "CanineTokenizer": "canine", "CpmTokenizer": "cpm", "CpmAntTokenizer": "cpmant", "EsmTokenizer": "esm",
    "FSMTTokenizer": "fsmt", "FlaubertTokenizer": "flaubert", "GPTNeoXJapaneseTokenizer": "gpt_neox_japanese",
    "GPTSw3Tokenizer": "gpt-sw3", "M2M100Tokenizer": "m2m_100", "MarianTokenizer": "marian", "MyT5Tokenizer": "myt5",
    "PLBartTokenizer": "plbart", "PerceiverTokenizer": "perceiver", "PhobertTokenizer": "phobert",
    "ProphetNetTokenizer": "prophetnet", "RagTokenizer": "rag", "RoCBertTokenizer": "roc_bert",
    "SiglipTokenizer": "siglip", "TapasTokenizer": "tapas", "XLMTokenizer": "xlm",
}  # fmt: skip
"""Classes of transformers' that are programs, which no tokenizer.json can hold, each with its
family. Source: those in its table of tokenizers that are no `TokenizersBackend`, version 5.24."""
UNTOLD = '--ids "5 3 8"'
"""What can be tried where nothing says how texts are cut."""


class VocabularyFolder(Struct, frozen=True):
    """A folder with a vocabulary, and how text is cut by it.

    folder: resolved.
    settings: what the files of `SETTINGS` say, in one dictionary.
    kind: the class of tokenizers that follows from these; "" where none does.
    """

    folder: Path
    settings: Mapping[str, Any]
    kind: str

    @classmethod
    def read(cls, folder: Path) -> VocabularyFolder:
        """Read the settings in a folder, and derive the class of its tokenizer: the one they name,
        else that of the family, else what the vocabulary's file names suggest. Raises InputError
        for a file that is no JSON object."""
        settings: dict[str, Any] = {}
        for name in SETTINGS:
            path = guarded_path(folder, name)
            if is_there(path):
                settings |= read_object(
                    path, what=message("settings of a tokenizer"), with_tags=True
                )
        stated = settings.get("tokenizer_class")
        if isinstance(stated, str) and stated:
            kind = stated.removesuffix("Fast")  # transformers' other program of the same rule
        elif settings.get("model_type"):
            kind = CLASS_OF.get(str(settings["model_type"]), "")
        else:
            kind = _kind_alone(folder)
        return cls(folder, settings, kind)

    @property
    def is_unnamed(self) -> bool:
        """Whether nothing says which class or family the files belong to."""
        return not (self.settings.get("tokenizer_class") or self.settings.get("model_type"))

    def has(self, *names: str) -> bool:
        """Whether all these files are there."""
        return all(is_there(guarded_path(self.folder, name)) for name in names)

    def has_own(self) -> bool:
        """Whether the folder has the vocabulary files that its class of tokenizers reads; any
        vocabulary file, for a class that is not listed here."""
        if self.kind in BERT_WORDS:
            return self.has(WORDS)
        if self.kind in BYTE_PAIRS:
            return self.has(PAIRED, MERGES)
        return any(self.has(name) for name in NAMES)

    def raw(self, name: str) -> bytes:
        """The content of a file. Raises LimitError above 256 MiB."""
        path = guarded_path(self.folder, name)
        return read_regular(path, what=message("a vocabulary"), limit=FILE_LIMIT)

    def where(self, name: str) -> str:
        """The path of a file, for errors."""
        return str(self.folder / name)

    def readable_file(self) -> str | None:
        """The vocabulary file that attn can read for this class of tokenizers; None where there is
        none.
        """
        if self.has(TEKKEN):
            return TEKKEN
        if self.kind in BERT_WORDS and self.has(WORDS):
            return WORDS
        if self.kind in BYTE_PAIRS and self.has(PAIRED, MERGES):
            return PAIRED
        if self.kind in SCORED:
            names = [name for name in SENTENCE_PIECES if self.has(name)]
            # without settings it is not known how its ids follow from the numbers of its pieces
            if self.kind == PIECES_ALONE and SHIFTED in names:
                names.remove(SHIFTED)
            if names:
                return names[0]
        return None

    def specials(self, usual: Mapping[str, str]) -> dict[str, str]:
        """The special tokens by their role.

        usual: those of the class, where the settings name no other.
        """
        tokens = dict(usual)
        for role in ROLES:
            token = self.settings.get(role)
            text = token
            if isinstance(token, dict):  # with its properties beside it
                text = token.get("content")
            if isinstance(text, str) and text:
                tokens[role] = text
        return tokens


def _kind_alone(folder: Path) -> str:
    """The class of tokenizers assumed for vocabulary files without settings that name one: BERT's
    for a list of words, GPT-2's for merges of bytes, else SentencePiece itself.
    """
    if is_there(guarded_path(folder, WORDS)):
        return "BertTokenizer"
    if is_there(guarded_path(folder, PAIRED)):
        return "GPT2Tokenizer"
    return PIECES_ALONE


def missing_tokenizer(folder: Path) -> tuple[Message, Message | str]:
    """What to try where a folder's texts cannot be cut here: the expectation and the command.

    Args:
        folder: A model's, without tokenizer.json.

    Returns:
        What is missing, and a command: one that writes tokenizer.json where a file of a vocabulary
        is there that transformers has a rule for, one that prints ids where its rule is a program,
        else `--ids`.

    Raises:
        InputError: For settings that are no JSON objects.
    """
    files = VocabularyFolder.read(folder)
    place = quote(str(folder))

    # a tokenizer that is a program of transformers: only that can give ids; `UNWRITTEN` has the
    # families of such tokenizers by their classes
    family = str(files.settings.get("model_type"))  # "None" where none is stated
    if files.kind:
        program = UNWRITTEN.get(files.kind)
    else:
        program = family
    if program in UNWRITTEN.values():
        return (
            message("token ids: a tokenizer of this kind is a program that no file holds"),
            IDS_COMMAND.replace("FOLDER", place),
        )

    # what lies in the folder: half of a vocabulary, a whole one, or none that can be used
    for name in NAMES:
        if files.has(name):
            files.raw(name)  # raises where a Git LFS pointer stands for the file
    if files.kind in BYTE_PAIRS and files.has(PAIRED) != files.has(MERGES):
        present = [name for name in (PAIRED, MERGES) if files.has(name)]
        missing = [name for name in (PAIRED, MERGES) if not files.has(name)]
        return (
            message("{missing} beside {present}", missing=missing[0], present=present[0]),
            message("{ids}, or the tokenizer.json from where the model came", ids=UNTOLD),
        )
    if not files.is_unnamed and files.has_own() and _library_reads(files.kind, family):
        return message("a tokenizer.json in the folder"), COMMAND.replace("FOLDER", place)
    return (
        message("a tokenizer.json in the folder, or a vocabulary whose rule is known"),
        message("{ids}, or the tokenizer.json from where the model came", ids=UNTOLD),
    )


def _library_reads(kind: str, family: str) -> bool:
    """Whether transformers has a tokenizer for a class or a family, by the text of its own table;
    where it is not installed, whether a class or a family is named at all.

    kind: the class; "" where none is named.
    family: the model_type; "None" where none is named.
    """
    library = find_spec("transformers")
    if library is None or library.origin is None:
        return bool(kind) or family != "None"
    table = Path(library.origin).parent / "models" / "auto" / "tokenization_auto.py"
    if not is_there(table):
        return True
    table_text = read_regular(table, what=message("a file")).decode("utf-8", "replace")
    return f'"{kind or family}"' in table_text
