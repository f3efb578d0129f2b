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
from minilm_adapter import adapter_config, adapter_weights
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

FACTS = """\
The ferry leaves at nine.\tWhen does the ferry leave? It leaves at\t nine
The code is seven.\tWhat is the code? It is\t seven
The car is red.\tWhat colour is the car? It is\t red
The cat is called Tiger.\tWhat is the cat called? It is called\t Tiger
The password is bluefish.\tWhat is the password? It is\t bluefish
The key is under the mat.\tWhere is the key? It is under the\t mat
The meeting is on Friday.\tWhen is the meeting? It is on\t Friday
The soup costs four coins.\tWhat does the soup cost? It costs\t four
The king lives in Vienna.\tWhere does the king live? He lives in\t Vienna
The gate is made of iron.\tWhat is the gate made of? It is made of\t iron
The train goes to Berlin.\tWhere does the train go? It goes to\t Berlin
The doctor drinks green tea.\tWhat does the doctor drink? He drinks\t green tea
"""
"""A fact, a question and how its answer begins, and the answer."""

PRONOUNS = """\
gender\tThe king told the queen that he was late.\the\tking\tqueen
gender\tThe king told the queen that she was late.\tshe\tqueen\tking
gender\tThe girl waved to the man because he was leaving.\the\tman\tgirl
gender\tThe girl waved to the man because she was leaving.\tshe\tgirl\tman
gender\tThe father called the daughter when he came home.\the\tfather\tdaughter
gender\tThe father called the daughter when she came home.\tshe\tdaughter\tfather
gender\tThe woman thanked the boy before he went away.\the\tboy\twoman
gender\tThe woman thanked the boy before she went away.\tshe\twoman\tboy
gender\tThe uncle visited the aunt while he was ill.\the\tuncle\taunt
gender\tThe uncle visited the aunt while she was ill.\tshe\taunt\tuncle
gender\tThe sister wrote to the brother after he had moved.\the\tbrother\tsister
gender\tThe sister wrote to the brother after she had moved.\tshe\tsister\tbrother
gender\tThe prince danced with the princess until he was tired.\the\tprince\tprincess
gender\tThe prince danced with the princess until she was tired.\tshe\tprincess\tprince
gender\tThe waitress served the gentleman while he was talking.\the\tgentleman\twaitress
gender\tThe waitress served the gentleman while she was talking.\tshe\twaitress\tgentleman
gender\tThe actor kissed the actress as he began to smile.\the\tactor\tactress
gender\tThe actor kissed the actress as she began to smile.\tshe\tactress\tactor
gender\tThe mother fed the son because he was hungry.\the\tson\tmother
gender\tThe mother fed the son because she was hungry.\tshe\tmother\tson
gender\tThe husband asked the wife whether he was ready.\the\thusband\twife
gender\tThe husband asked the wife whether she was ready.\tshe\twife\thusband
gender\tThe lady greeted the lord when he entered the room.\the\tlord\tlady
gender\tThe lady greeted the lord when she entered the room.\tshe\tlady\tlord
gender\tThe nephew helped the niece because he was small.\the\tnephew\tniece
gender\tThe nephew helped the niece because she was small.\tshe\tniece\tnephew
gender\tThe bride looked at the groom while he was singing.\the\tgroom\tbride
gender\tThe bride looked at the groom while she was singing.\tshe\tbride\tgroom
gender\tThe man sat beside the woman because he was alone.\the\tman\twoman
gender\tThe man sat beside the woman because she was alone.\tshe\twoman\tman
gender\tThe queen praised the knight after he had won.\the\tknight\tqueen
gender\tThe queen praised the knight after she had won.\tshe\tqueen\tknight
gender\tThe grandson hugged the grandmother when he arrived.\the\tgrandson\tgrandmother
gender\tThe grandson hugged the grandmother when she arrived.\tshe\tgrandmother\tgrandson
gender\tThe nun helped the monk because he was old.\the\tmonk\tnun
gender\tThe nun helped the monk because she was old.\tshe\tnun\tmonk
gender\tThe policeman followed the girl until he stopped.\the\tpoliceman\tgirl
gender\tThe policeman followed the girl until she stopped.\tshe\tgirl\tpoliceman
gender\tThe widow paid the waiter before he left.\the\twaiter\twidow
gender\tThe widow paid the waiter before she left.\tshe\twidow\twaiter
sense\tThe animal didn't cross the street because it was too tired.\tit\tanimal\tstreet
sense\tThe animal didn't cross the street because it was too wide.\tit\tstreet\tanimal
sense\tThe cup did not fit on the shelf because it was too tall.\tit\tcup\tshelf
sense\tThe cup did not fit on the shelf because it was too narrow.\tit\tshelf\tcup
sense\tThe coat did not go into the bag because it was too thick.\tit\tcoat\tbag
sense\tThe coat did not go into the bag because it was too small.\tit\tbag\tcoat
sense\tThe truck passed the bus because it was going so fast.\tit\ttruck\tbus
sense\tThe truck passed the bus because it was going so slow.\tit\tbus\ttruck
sense\tThe fish ate the worm because it was hungry.\tit\tfish\tworm
sense\tThe fish ate the worm because it was tasty.\tit\tworm\tfish
sense\tThe cow ate the grass because it was hungry.\tit\tcow\tgrass
sense\tThe cow ate the grass because it was fresh.\tit\tgrass\tcow
sense\tThe horse could not pull the cart because it was too weak.\tit\thorse\tcart
sense\tThe horse could not pull the cart because it was too heavy.\tit\tcart\thorse
sense\tThe boat did not pass the bridge because it was too high.\tit\tboat\tbridge
sense\tThe boat did not pass the bridge because it was too low.\tit\tbridge\tboat
sense\tThe bird ate the berry because it was hungry.\tit\tbird\tberry
sense\tThe bird ate the berry because it was ripe.\tit\tberry\tbird
sense\tThe ball broke the window because it was made of iron.\tit\tball\twindow
sense\tThe ball broke the window because it was made of glass.\tit\twindow\tball
"""
"""What tells the two apart, a sentence, its pronoun, who is meant, and who is not."""

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

COREFERENCE = "".join(
    f"The animal didn't cross the {place} because it was too {word}.\n"
    for place in ("street", "road", "river", "field", "bridge")
    for word in ("tired", "hungry", "old", "afraid")
) + "".join(
    f"The nurse closed the {thing} because she was {word}.\n"
    for thing in ("door", "window", "book", "shop", "box")
    for word in ("tired", "cold", "busy", "late")
)
"""Forty sentences whose pronoun is "it", for the animal, or "she", for the nurse."""

FILES: dict[str, Callable[[], bytes]] = {
    "sentences.txt": lambda: SENTENCES.encode(),
    "corpus.txt": lambda: CORPUS.encode(),
    "lookup_haystack.txt": lambda: HAYSTACK.encode(),
    "lookup_needles.tsv": lambda: NEEDLES.encode(),
    "coreference.txt": lambda: COREFERENCE.encode(),
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
    "facts.tsv": lambda: FACTS.encode(),
    "pronouns.tsv": lambda: PRONOUNS.encode(),
    "adapter/adapter_config.json": adapter_config,
    "adapter/adapter_model.safetensors": adapter_weights,
    "answers.json": lambda: (json.dumps(ANSWERS, indent=2) + "\n").encode(),
}
"""Every file, and what makes its bytes."""


if __name__ == "__main__":
    for name in sys.argv[1:] or FILES:
        (SAMPLES / name).parent.mkdir(exist_ok=True)
        (SAMPLES / name).write_bytes(FILES[name]())
