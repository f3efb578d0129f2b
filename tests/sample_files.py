"""How every file in sample_inputs/ is made: `python tests/sample_files.py` writes them anew.

Seeded, small, and checked by tests/test_sample_inputs.py, which makes them again and compares.
"""

import io
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_classes as classes
from safetensors.numpy import save

SAMPLES = Path(__file__).parent.parent / "sample_inputs"

SENTENCES = """\
The animal didn't cross the street because it was too tired
The animal didn't cross the street because it was too wide
humpty dumpty sat on
"""

CHAT = r"""[
  {"role": "system", "content": "Answer from the documents alone."},
  {"role": "user", "content": "[[doc1]] The cat sat on the mat. [[/doc1]]\n\
[[doc2]] The dog dug under the wall. [[/doc2]]\nWho sat on the mat?"}
]
""".replace("\\\n", "")

CHATML = """{% for message in messages %}
<|im_start|>{{ message.role }}
{{ message.content | trim }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
"""

HAYSTACK = "".join(
    f"{key} {value}\n"
    for key, value in zip("abcdefgh" * 3, "482631576248537115738624", strict=True)
)
"""What the lookup task of `attn learn` reads: letters, each with its number, three times over."""

NEEDLES = "".join(f"{key}\t{value}\n" for key, value in zip("abcdefgh", "37152846", strict=True))
"""Letters and numbers that stand nowhere in the haystack together."""

CORPUS = """\
The animal didn't cross the street because it was too tired.
The animal didn't cross the street because it was too wide.
She put the book on the table and sat down beside it.
When the rain stopped, the children ran out into the garden.
He asked the teacher a question, but she did not hear him.
The cat watched the bird until it flew away over the roof.
If you open the window, the cold air will come in.
They walked along the river, and they talked about the old house.
The baker sold all of his bread before the sun came up.
Nobody knew where the letter had come from or who had written it.
The machine stops when the red light goes on.
After dinner we played a game that my grandfather had taught us.
The train was late again, so we missed the beginning of the film.
A tall man in a grey coat stood at the corner and waited.
The river rises every spring, and every spring it floods the lower fields.
Her brother plays the violin, and her sister plays the piano.
The small boat carried three people, two dogs and a great deal of luggage.
I would have called you, but I had left my telephone at home.
The doctor told the patient that he should rest for a week.
What you hear in the morning is the sound of the mill.
The city that we visited last year has the oldest bridge in the country.
Because the road was closed, the driver turned and went back the way he came.
The painter mixed blue and yellow until the green looked right to her.
On the shelf there are four cups, three plates and one broken glass.
The dog that bit the postman belongs to the woman next door.
It was cold, it was dark, and it was a long way home.
The students who finished early were allowed to leave the room.
My neighbour grows apples, pears and plums behind his house.
The bird built its nest in the tree that the storm had broken.
Once the bread has cooled, cut it into slices and serve it with butter.
The captain looked at the map, then at the sky, then at the map again.
Every evening the old woman feeds the birds in the park.
The key that opens this door is the one with the round head.
We bought milk and bread yesterday, and today the bread is already stale.
The judge listened to both sides before she gave her answer.
You can take the bus, or you can walk through the forest.
The farmer counted his sheep, and one of them was missing.
The light in the kitchen has been on since this morning.
He wrote the first chapter in a week and the last one in a year.
The glass fell from the table and broke into a hundred pieces.
"""

CHINESE = """\
今天 我 的 计划 是 买菜
我昨天去超市，买了牛奶和面包，今天发现面包过期了
她吃苹果，他吃香蕉
我爱你
你爱我
"""

# an escape sequence, markup, a bidi override, joined emoji, marks that combine, a word without end
EDGES = [
    "\x1b[31mred\x1b[0m [bold]not bold[/bold] \u202egnp.exe\u202c",
    "👩\u200d👩\u200d👧 🇩🇪 1\ufe0f\u20e3 👍🏽",
    "cafe\u0301 naïve Å ﬁ",
    "שלום عالم नमस्ते ไทย",
    "tab\there \u200bzero\u200dwidth",
    "x" * 300,
    "it",
]

WORDS = 4
WIDTH = 16
HEADS = 4
PAIRS = [
    {"clean": text, "corrupt": text.replace("animal", "street"), "answer": " it", "versus": " the"}
    for text in (
        "The animal was too tired because",
        "The animal didn't cross because",
        "The animal was tired, so",
    )
]
VISIBLE = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
"""A band under the diagonal; the last query sees nothing."""


def state(module: torch.nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """The class's parameters in float32, as torch.save stores them."""
    return dict(classes.filled(module, seed).float().state_dict())


def torch_file(tensors: Mapping[str, torch.Tensor]) -> bytes:
    stream = io.BytesIO()
    torch.save(dict(tensors), stream)
    return stream.getvalue()


def arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in tensors.items()}


def npz(tensors: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **tensors)
    return stream.getvalue()


def npy(array: np.ndarray[Any, Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def embeddings() -> np.ndarray[Any, Any]:
    """[4, 16], one row per word of `humpty dumpty sat on`; three digits, so that the CSV holds them
    exactly.
    """
    return np.round(np.random.default_rng(1).normal(size=(WORDS, WIDTH)), 3)


def csv(rows: Any) -> bytes:
    return "".join(",".join(str(value) for value in row) + "\n" for row in rows).encode()


def captured() -> dict[str, np.ndarray[Any, Any]]:
    """Queries of 6 heads on 3 kv heads, 5 queries on 7 keys, a batch of two texts of 7 and 4 keys."""
    random = np.random.default_rng(2)
    shapes = {"q": (2, 6, 5, 8), "k": (2, 3, 7, 8), "v": (2, 3, 7, 11)}
    return {
        name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()
    } | {"key_lengths": np.array([7, 4])}


def one_text() -> dict[str, np.ndarray[Any, Any]]:
    return {
        name: np.ascontiguousarray(array[0]) for name, array in captured().items() if name in "qkv"
    }


def with_embeddings() -> bytes:
    """Canonical weights with the embeddings of their tokens."""
    tensors = arrays(
        state(
            torch.nn.ModuleDict(
                {name: torch.nn.Linear(WIDTH, WIDTH, bias=name == "o") for name in "qkvo"}
            ),
            9,
        )
    )
    words = ["humpty", "dumpty", "sat", "on", "a", "wall"]
    tensors["embedding.weight"] = (
        np.random.default_rng(3).normal(size=(len(words), WIDTH)).astype(np.float32)
    )
    return save(tensors, {"tokens": json.dumps(words), "num_heads": str(HEADS)})


def tokenizer() -> bytes:
    """A byte-level BPE of 320 pieces, learned from the sentences above."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["[CLS]", "[SEP]"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([*SENTENCES.splitlines(), *CHINESE.splitlines()], trainer)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
    )
    return made.to_str().encode()


DOCUMENTS = (
    "The museum of glass is closed on Mondays.",
    "The ferry to the island leaves at nine and at four.",
    "The password of the guest network is bluefish.",
    "The lighthouse was built by Anna Berg in 1871.",
    "The bakery opens at six and sells rye bread.",
)
"""What the prompt of `documents.json` holds, of which the third decides its answer."""


def documents() -> str:
    """A chat of one message: documents between marks, and a question."""
    marked = [f"[[doc{n}]] {text} [[/doc{n}]]" for n, text in enumerate(DOCUMENTS, 1)]
    content = "\n".join([*marked, "What is the password of the guest network?"])
    return f"[\n  {json.dumps({'role': 'user', 'content': content})}\n]\n"


def document_regions() -> str:
    """The regions of `documents.json`: a document each."""
    regions = {f"doc{n}": f"[[doc{n}]]…[[/doc{n}]]" for n in range(1, len(DOCUMENTS) + 1)}
    return json.dumps(regions, indent=2, ensure_ascii=False) + "\n"


ANSWERS = {
    "1": 0.66,
    "2": 2.72,
    "3": "66%",
    "4": 64,
    "5": "humpty",
    "6": 64,
    "7": 500500,
    "8": "no",
}
"""Answers to the worksheet of the lessons, all of them right."""

FILES: dict[str, Callable[[], bytes]] = {
    "sentences.txt": lambda: SENTENCES.encode(),
    "corpus.txt": lambda: CORPUS.encode(),
    "lookup_haystack.txt": lambda: HAYSTACK.encode(),
    "lookup_needles.tsv": lambda: NEEDLES.encode(),
    "chinese.txt": lambda: CHINESE.encode(),
    "edge_cases.txt": lambda: ("\r\n".join(EDGES) + "\r\n").encode(),
    "chat.json": lambda: CHAT.encode(),
    "documents.json": lambda: documents().encode(),
    "documents.regions.json": lambda: document_regions().encode(),
    "pairs.jsonl": lambda: "".join(f"{json.dumps(pair)}\n" for pair in PAIRS).encode(),
    "chatml.jinja": lambda: CHATML.encode(),
    "mask.json": lambda: json.dumps(VISIBLE).encode() + b"\n",
    "mask.csv": lambda: csv(VISIBLE),
    "mask.npy": lambda: npy(np.array(VISIBLE, bool)),
    "embeddings.csv": lambda: csv(embeddings().tolist()),
    "embeddings.npy": lambda: npy(embeddings()),
    "single_head.pt": lambda: torch_file(state(classes.SingleHead(WIDTH, 8, 8), 4)),
    "list_of_heads.safetensors": lambda: save(
        arrays(state(classes.ListOfHeads(WIDTH, HEADS, 4), 5))
    ),
    "shared_maps.pt": lambda: torch_file(state(classes.SharedMaps(WIDTH, HEADS), 6)),
    "mha.safetensors": lambda: save(
        arrays(state(torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True), 7))
    ),
    "matrices.npz": lambda: npz(arrays(state(classes.Matrices(WIDTH, 8, 5), 8))),
    "humpty.safetensors": with_embeddings,
    "tokenizer.json": tokenizer,
    "captured.npz": lambda: npz(captured()),
    "captured.safetensors": lambda: save(one_text()),
    "answers.json": lambda: (json.dumps(ANSWERS, indent=2) + "\n").encode(),
}
"""Every file, and what makes its bytes."""


if __name__ == "__main__":
    for name in sys.argv[1:] or FILES:
        (SAMPLES / name).write_bytes(FILES[name]())
