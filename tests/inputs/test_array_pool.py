"""Memory handed from one large array to the next: never while anything still refers to it."""

import numpy as np

from attncli.inputs import checkpoint as module
from attncli.inputs.checkpoint import Pool

F32 = np.dtype("float32")
BIG = (2, module.LARGE)


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_an_array_has_its_shape_and_type_and_can_be_written() -> None:
    for shape in (BIG, (3, 5), (), (0, 7)):
        made = Pool().array(shape, F32)
        assert (made.shape, made.dtype) == (shape, F32)
        made[...] = 2
        assert (made == 2).all()


def test_memory_comes_back_when_the_last_view_is_gone() -> None:
    pool = Pool()
    first = pool.array(BIG, F32)
    place = address(first)
    view = first[1:, 5:].T.reshape(-1)[3:]
    del first
    second = pool.array(BIG, F32)
    assert address(second) != place  # the view still holds it
    del view
    third = pool.array(BIG[::-1], F32)
    assert address(third) == place


def test_smaller_arrays_take_larger_memory_and_what_is_too_small_is_given_up() -> None:
    pool = Pool()
    for _ in range(3):
        pool.array(BIG, F32)
    assert [len(memory) for memory in pool._free] == [8 * module.LARGE]
    smaller = pool.array((1, module.LARGE), F32)
    assert pool._free == []
    assert smaller.shape == (1, module.LARGE)
    del smaller
    larger = pool.array((3, module.LARGE), F32)
    assert pool._free == []
    del larger
    assert [len(memory) for memory in pool._free] == [12 * module.LARGE]


def test_small_arrays_are_ordinary() -> None:
    pool = Pool()
    pool.array((7,), F32)
    assert pool._free == []
