"""English sentences with their words in French, adjectives behind their nouns: a decoder that looks at
what an encoder has read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from attncli.arrays.numpy_backend import integers
from attncli.features.learn.architecture import Architecture
from attncli.features.learn.tasks.task import Bools, Integers, Reference, Score, Task
from attncli.features.learn.training import NO_TARGET, Batch, SourceTexts
from attncli.language import message

ARTICLES = {"the": "le", "a": "un"}
ADJECTIVES = {"black": "noir", "white": "blanc", "red": "rouge", "green": "vert", "grey": "gris"}
NOUNS = {
    "cat": "chat",
    "dog": "chien",
    "horse": "cheval",
    "wolf": "loup",
    "fish": "poisson",
    "rabbit": "lapin",
}
VERBS = {"sees": "voit", "hears": "entend", "follows": "suit", "eats": "mange"}
PREPOSITIONS = {"with": "avec", "under": "sous", "before": "devant"}
END = "."
"""It ends the sentence in both languages."""
START = "<s>"
"""What the decoder reads before its first word."""
DICTIONARY = {**ARTICLES, **ADJECTIVES, **NOUNS, **VERBS, **PREPOSITIONS, END: END}

PHRASE = (ARTICLES, ADJECTIVES, NOUNS)
LONGEST = (*PHRASE, VERBS, *PHRASE, PREPOSITIONS, *PHRASE, {END: END})
"""The kinds of words of the longest sentence, in its order: the black cat sees a red dog with the
white horse."""
PHRASES = 3
"""Noun phrases of the longest sentence; others have fewer, from the first on."""
ADJECTIVE_SHARE = 3 / 4
"""How many of the nouns have an adjective."""
WORDS = (*dict.fromkeys((*DICTIONARY, *DICTIONARY.values())), START)
TRANSLATIONS = np.asarray([WORDS.index(DICTIONARY.get(word, word)) for word in WORDS])
"""Of each word's id the id of its translation."""
ADJECTIVE_IDS = [WORDS.index(word) for word in ADJECTIVES]


class Translate(Task):
    """Sentences such as `the black cat sees a dog .` with their translation `le chat noir voit un chien
    .`: each word has one translation, and an adjective stands behind its noun. Source: Bahdanau et
    al., Neural machine translation by jointly learning to align and translate, 2014, for what is
    shown.

    bottleneck: whether the decoder sees one vector of the encoder's alone, that of the first word.
    """

    name = "translate"
    summary = message("short English sentences, to be said in French: the black cat → le chat noir")
    lesson = message("a decoder looks at what an encoder read: the word that it translates")
    architecture = Architecture(layers=1, heads=1, encoder=True)
    steps = 300
    scores = (Score("aligned", 0.5, message("a head that looks at the word to translate")),)
    forms = ("aligned",)

    def __init__(self, *, bottleneck: bool = False) -> None:
        self.words = WORDS
        self.length = len(LONGEST)
        self.bottleneck = bottleneck

    @property
    def chance(self) -> float:
        """The loss of a guess among all French words, in nats."""
        return math.log(len(set(DICTIONARY.values())))

    def references(self) -> Sequence[Reference]:
        """The loss of the best guess that knows which French words may follow each other, and how
        often, but not what was read: the entropy of a sentence, by its words."""
        # the entropy of a noun phrase: its article, its noun, its adjective, and whether it has one
        share = ADJECTIVE_SHARE
        phrase = math.log(len(ARTICLES)) + math.log(len(NOUNS)) + share * math.log(len(ADJECTIVES))
        phrase -= share * math.log(share) + (1 - share) * math.log(1 - share)

        # how many of each a sentence has on average: 1 to `PHRASES` phrases, all as often; a verb from
        # two phrases on, a preposition with three
        phrases = (PHRASES + 1) / 2
        verbs = (PHRASES - 1) / PHRASES
        prepositions = (PHRASES - 2) / PHRASES

        # the entropy of how many phrases there are, and of all words
        entropy = math.log(PHRASES) + phrases * phrase
        entropy += verbs * math.log(len(VERBS)) + prepositions * math.log(len(PREPOSITIONS))
        words = phrases * (2 + share) + verbs + prepositions + 1  # 1: the end
        return (Reference(message("knowing French, not the sentence"), entropy / words),)

    def draw(self, seed: int, stream: str, size: int) -> Batch:
        """Sentences of one to three noun phrases, and their translations.

        Of each sentence a stream gives a number for each place of the longest sentence, one for each
        adjective's presence, and one for the number of phrases. The last noun is chosen so that the
        numbers of all words add up to a multiple of the nouns in the stream "test", and never else:
        no sentence that is tested is trained on.
        """
        places = len(LONGEST)
        numbers = integers(seed, f"translate\0{stream}", size * (places + PHRASES + 1))
        numbers = numbers.reshape(size, places + PHRASES + 1).astype(np.int64)
        choices = numbers[:, :places] % [len(kind) for kind in LONGEST]
        has_adjective = numbers[:, places:-1] % 4 != 0  # three in four, `ADJECTIVE_SHARE`
        phrases = 1 + numbers[:, -1] % PHRASES

        # which of the places of the longest sentence each has, [text, place]: all phrases have an
        # article, an adjective and a noun there, and between two of them stands a word
        has_place = np.ones((size, places), bool)
        step = len(PHRASE) + 1
        for phrase in range(PHRASES):
            article = phrase * step
            has_place[:, article + 1] = has_adjective[:, phrase]
            if phrase:
                # the word before the phrase, and its three words
                has_place[:, article - 1 : article + 3] &= (phrases > phrase)[:, None]

        # the last noun, the third word of the last phrase: the remainder of the sum of all words is 0
        # for a test text, 1 to 5 for others
        nouns = len(NOUNS)
        last = (phrases - 1) * step + 2
        texts = np.arange(size)
        rest = (choices * has_place).sum(1) - choices[texts, last]
        if stream == "test":
            remainder = np.zeros(size, np.int64)
        else:
            remainder = 1 + (numbers[texts, last] % (nouns - 1)).astype(np.int64)
        choices[texts, last] = (remainder - rest) % nouns

        # ids of the places that a sentence has, one after the other; after them the end again. The
        # words of a kind have ids that follow each other, from its first word's on
        first_ids = [WORDS.index(next(iter(kind))) for kind in LONGEST]
        ids = np.where(has_place, choices + first_ids, WORDS.index(END))
        ids = np.take_along_axis(ids, np.argsort(~has_place, 1, kind="stable"), 1)

        # the longest sentence comes first: it is the example
        lengths = has_place.sum(1)
        longest_first = np.argsort(-lengths, kind="stable")
        ids = ids[longest_first]
        lengths = lengths[longest_first]

        # what the decoder is to say, and what it has read by then: the word that it said before
        is_word = np.arange(places) < lengths[:, None]
        translated = TRANSLATIONS[np.take_along_axis(ids, source_places(ids), 1)]
        targets = np.where(is_word, translated, NO_TARGET)
        starts = np.full((size, 1), WORDS.index(START))
        read = np.concatenate([starts, translated[:, :-1]], 1)
        if self.bottleneck:
            visible = np.ones_like(lengths)
        else:
            visible = lengths
        return Batch(read, targets, SourceTexts(ids, lengths, visible))

    def pairs(self, batch: Batch) -> Mapping[str, Bools]:
        """The pairs of each word that is said with the word that it translates, as "aligned", [text,
        query, source token]."""
        assert batch.source is not None
        places = np.arange(batch.source.ids.shape[-1])
        aligned = source_places(batch.source.ids)[:, :, None] == places
        return {"aligned": aligned & (batch.targets != NO_TARGET)[:, :, None]}


def source_places(ids: Integers) -> Integers:
    """The place of the word that stands at each place of the translation, [text, token]: adjective
    and noun change places.

    ids: of the sentences, [text, token].
    """
    is_adjective = np.isin(ids, ADJECTIVE_IDS)
    is_noun_after = np.zeros_like(is_adjective)
    is_noun_after[:, 1:] = is_adjective[:, :-1]
    places: Integers = np.arange(ids.shape[-1]) + is_adjective - is_noun_after
    return places
