"""From one vector to a soft search: topic "seq2seq" of `attn.explain/1`."""

from __future__ import annotations

from math import ceil

import numpy as np
from msgspec import UNSET, UnsetType

from attncli.arrays.backend import EVERY, Selection
from attncli.arrays.numpy_backend import integers, uniform
from attncli.documents.header import token_rows
from attncli.features.cross.compute import SHIFTED, cross, cross_texts
from attncli.features.cross.document import CrossDocument, CrossHead
from attncli.features.explain.document import Bottleneck, Seq2seqTopic
from attncli.features.explain.softmax_topics import row_softmax
from attncli.inputs.token import Text
from attncli.language import message
from attncli.measure.row_facts import Floats
from attncli.measure.run_record import CrossTexts
from attncli.mechanism.checked_arguments import checked
from attncli.models.model import Model
from attncli.version import __version__

LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Words of the sentences that are read back."""
VOCABULARY = 256
"""Words among which each is looked for."""
READS = 256
"""Words of each length that are asked for, at least; a sentence of 128 has as many itself."""
SEED = 0
"""The seed of the random words and places."""
SAID = message(
    "each row is named by the token that is said there; the decoder has read those before it"
)
"""A warning in place of `SHIFTED`, which is about rows that are named by the token read there."""


@checked
def seq2seq_document(
    model: Model,
    query_text: str,
    key_text: str,
    *,
    layers: Selection = EVERY,
    heads: Selection = EVERY,
    texts: CrossTexts | None = None,
) -> Seq2seqTopic:
    """Build the document of topic "seq2seq": a decoder's search over an encoder's annotations, and
    how much one vector of the same width gives back of sentences of growing length.

    Args:
        model: As `attncli.load` returns it: seeded weights, or an encoder-decoder.
        query_text: What the decoder says.
        key_text: What the encoder has read.
        layers: Which layers the head may be in: a number, several, or a text such as "0,2-5"; see `HeadSelection`.
        heads: Which heads of each: 11, [0, 3], "2-5"; or heads with their layers, "L5H11" or
            (5, 11); see `HeadSelection`.
        texts: The texts as tokens, as `cross_texts` returns them; None to let the model's tokenizer
            find them.

    Returns:
        What `attn explain seq2seq --json` writes, of the head whose rows are sharpest: the largest
        mean of each row's largest weight.

    Raises:
        UnsupportedError: For a checkpoint without cross-attention.
    """
    if texts is None:
        texts = cross_texts(model, Text(query_text, "argument"), Text(key_text, "argument"))
    between = cross(model, query_text, key_text, layers=layers, heads=heads, top=1, texts=texts)
    layer, head = sharpest_head(between)
    # each row is named by the word that is said there, where the decoder has read those before it;
    # (`said` is None for one that does not read its text one token late, such as seeded weights)
    queries = between.queries
    warnings = between.warnings
    if texts.said is not None:
        queries = token_rows(texts.said)
        warnings = [SAID if text is SHIFTED else text for text in warnings]
    width = model.spec.d_model
    return Seq2seqTopic(
        version=__version__,
        topic="seq2seq",
        query_text=between.query_text,
        key_text=between.key_text,
        queries=queries,
        keys=between.keys,
        model=between.model,
        attention=between.attention,
        layer=layer,
        head=head.head,
        weights=head.weights,
        cosine=_mean_cosine(np.asarray(head.output, np.float64)),
        width=width,
        vocabulary=VOCABULARY,
        seed=SEED,
        bottleneck=[measure_read_back(words, width) for words in LENGTHS],
        warnings=warnings,
    )


def sharpest_head(document: CrossDocument) -> tuple[int, CrossHead]:
    """The layer and the head between two texts with the largest mean of each row's largest
    weight."""
    heads = [(layer.layer, head) for layer in document.layers for head in layer.heads]

    def sharpness(place: tuple[int, CrossHead]) -> float:
        """The mean of each row's largest weight."""
        _, head = place
        return float(np.asarray(head.weights).max(axis=-1).mean())

    return max(heads, key=sharpness)


def measure_read_back(words: int, width: int) -> Bottleneck:
    """Measure how many words of random sentences can be read back from one vector, and by a soft
    search.

    Each word has a random vector x and each place another one, p. The one vector is the sum of all
    x times the signs of their p: times the signs again it gives back the word at a place, and the
    others as noise. The search asks with p: softmax(p·Pᵀ / √width)·X. What either gives is taken
    for the nearest word of the vocabulary, by dot product.

    words: in each sentence.
    width: of the vectors.
    """
    # random vectors of all words and places, and random sentences of enough words in all; each kind
    # of number has a random stream of its own, by name
    sentences = ceil(READS / words)
    table = uniform(SEED, "seq2seq\0words", (VOCABULARY, width)).astype(np.float64)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    places = uniform(SEED, "seq2seq\0places", (words, width)).astype(np.float64)
    signs = np.sign(places)
    drawn_ids = integers(SEED, f"seq2seq\0{words}\0ids", sentences * words) % VOCABULARY
    ids = drawn_ids.reshape(sentences, words)

    # the word at every place of every sentence, read back in both ways
    weights = row_softmax(places @ places.T / np.sqrt(width))
    by_vector = 0
    by_search = 0
    for sentence in ids:
        annotations = table[sentence]
        one_vector = (signs * annotations).sum(axis=0)
        by_vector += int((nearest(signs * one_vector, table) == sentence).sum())
        by_search += int((nearest(weights @ annotations, table) == sentence).sum())
    return Bottleneck(
        words=words,
        reads=ids.size,
        vector=by_vector / ids.size,
        search=by_search / ids.size,
    )


def nearest(vectors: Floats, table: Floats) -> Floats:
    """For each vector, [vector, dim], the index of the table's row, [row, dim], with the largest dot
    product with it: [vector]."""
    rows: Floats = (vectors @ table.T).argmax(axis=1)
    return rows


def _mean_cosine(outputs: Floats) -> float | UnsetType:
    """The mean cosine between the outputs of different queries, [query, dim]; outputs that are 0 do
    not count. UNSET for fewer than two."""
    lengths = np.linalg.norm(outputs, axis=1)
    rows = outputs[lengths > 0] / lengths[lengths > 0, None]
    count = len(rows)
    if count < 2:
        return UNSET
    # all pairs but those of a row with itself
    cosines = rows @ rows.T
    return float((cosines.sum() - np.trace(cosines)) / (count * (count - 1)))
