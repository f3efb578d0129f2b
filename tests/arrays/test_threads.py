"""Large products on several threads: the numbers of one, and the errors too."""

from __future__ import annotations

import platform
import sys
import threading
import time
from functools import partial
from itertools import chain

import numpy as np
import pytest
from processes import finish

from attncli.arrays import numpy_backend
from attncli.arrays.numpy_backend import NumpyBackend


@pytest.fixture
def three_cores(monkeypatch):
    monkeypatch.setattr(numpy_backend, "cores", lambda: 3)
    monkeypatch.setattr(numpy_backend, "LARGE_PRODUCT", 1)


@pytest.mark.parametrize("shape", [(1, 7), (5, 7), (5, 2), (2, 5, 7), (17, 301)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_product_in_parts_is_the_product(three_cores, shape, dtype):
    chance = np.random.default_rng(0)
    a = chance.standard_normal((*shape[:-1], 11)).astype(dtype)
    weight = chance.standard_normal((shape[-1], 11)).astype(dtype)
    found = NumpyBackend(dtype).matmul(a, weight.T)
    assert found.dtype == dtype
    wanted, off = np.einsum("...i,oi->...o", a, weight), 1e-5 if dtype == "float32" else 1e-12
    assert np.allclose(found, wanted, rtol=1e-12, atol=off)


def test_the_parts_cover_everything_once(three_cores):
    for count in (0, 1, 2, 3, 10):
        seen: list[int] = []
        numpy_backend.in_parts(
            count, lambda part, seen=seen: seen.extend(range(part.start, part.stop))
        )
        assert sorted(seen) == list(range(count))


def test_an_error_in_any_part_is_raised(three_cores):
    for bad in (0, 5, 9):

        def work(part: slice, bad: int = bad) -> None:
            if part.start <= bad < part.stop:
                raise MemoryError

        with pytest.raises(MemoryError):
            numpy_backend.in_parts(10, work)


def test_blas_with_threads_of_its_own_is_left_alone(monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert numpy_backend.cores() == 1
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    assert numpy_backend.cores() == 1
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    assert numpy_backend.cores() >= 1


@pytest.mark.parametrize("places", [1, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 20])
def test_what_works_give_is_taken_here_in_their_order_from_places_of_their_own(places, count):
    held, taken, together = set(), [], []
    full, guard = threading.Event(), threading.Lock()

    def work(number: int, place: int) -> tuple[int, int]:
        with guard:
            assert place not in held
            held.add(place)
            together.append(len(held))
        if together[-1] == places:
            full.set()
        if number == 0 and count == 20:
            assert full.wait(60)  # with every place in use, others are ahead of the first
        return number, place

    def take(found: tuple[int, int]) -> None:
        assert threading.current_thread() is threading.main_thread()
        taken.append(found[0])
        held.remove(found[1])

    before = threading.active_count()
    numpy_backend.take_in_order(
        [partial(work, number) for number in range(count)], take, list(range(places))
    )
    assert taken == list(range(count))
    assert count < 20 or max(together) == places
    assert threading.active_count() == before


@pytest.mark.parametrize("places", [1, 3, 5])
@pytest.mark.parametrize("bad", [0, 3, 9])
@pytest.mark.parametrize("where", ["work", "take"])
def test_what_a_work_or_taking_raises_is_raised_after_what_came_before(places, bad, where):
    taken: list[int] = []

    def work(number: int, place: int) -> int:
        if number == bad and where == "work":
            raise KeyboardInterrupt
        return number

    def take(found: int) -> None:
        if found == bad and where == "take":
            raise KeyboardInterrupt
        taken.append(found)

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        numpy_backend.take_in_order(
            [partial(work, number) for number in range(10)], take, list(range(places))
        )
    assert taken == list(range(len(taken)))
    assert len(taken) <= bad
    assert threading.active_count() == before


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_shared_work_comes_back_in_its_order(monkeypatch, threads):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setattr(numpy_backend.os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    seen = []

    def work(number):
        time.sleep(0.002 * (5 - number))
        seen.append(numpy_backend.cores())
        return number

    works = (partial(work, number) for number in range(5))
    assert numpy_backend.share_work(works, threads) == [0, 1, 2, 3, 4]
    assert seen == [1] * 5  # no product in them is cut again
    assert numpy_backend.cores() == 3


def test_shared_work_stops_at_an_error():
    begun = []

    def fail():
        begun.append("fail")
        raise ValueError("three")

    works = chain([fail], (partial(begun.append, number) for number in range(100)))
    with pytest.raises(ValueError, match="three"):
        numpy_backend.share_work(works, 1)
    assert begun == ["fail"]


@pytest.mark.thorough
def test_memory_is_kept_for_the_next_arrays_where_the_c_library_can():
    probe = (
        "import resource, numpy as np\n"
        "from attncli.arrays.numpy_backend import keep_freed_memory\n"
        "def faults():\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "def meet():\n"
        "    before = faults()\n"
        "    for _ in range(20):\n"
        "        parts = [np.ones(200_000) for _ in range(20)]\n"
        "        del parts\n"
        "    return faults() - before\n"
        "without = meet(); keep_freed_memory(); meet(); print(without, meet())"
    )
    words = [sys.executable, "-c", probe]
    without, kept = map(int, finish(words).stdout.split())
    if platform.libc_ver()[0] == "glibc":
        assert kept < without / 10, (without, kept)
