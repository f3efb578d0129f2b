"""Seeded embeddings and seeds: fixed for ever, apart by text."""

import numpy as np

from attncli.arrays.numpy_backend import draw_seed, embedding, uniform


def test_golden_values_never_change():
    assert [float(x).hex() for x in embedding(7, ["我"], 3)[0]] == [
        "-0x1.53b1b20000000p-1",
        "0x1.6f5f640000000p+0",
        "0x1.00945a0000000p-1",
    ]


def test_embedding_depends_on_the_text_alone():
    found = embedding(0, ["it", "was", "it"], 11)
    assert found.shape == (3, 11)
    assert np.array_equal(found[0], found[2])
    assert not np.array_equal(found[0], found[1])
    assert np.array_equal(embedding(0, ["was"], 11)[0], found[1])
    assert np.array_equal(found[0], uniform(0, "embedding\0it", (11,)))


def test_embedding_of_nothing_and_of_lone_surrogates():
    assert embedding(0, [], 5).shape == (0, 5)
    assert np.isfinite(embedding(0, ["\ud800"], 5)).all()


def test_drawn_seeds_differ_and_fit():
    drawn = {draw_seed() for _ in range(20)}
    assert len(drawn) > 15
    assert all(0 <= seed < 2**32 for seed in drawn)
