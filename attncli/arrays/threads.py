"""Several threads: for one large product where BLAS keeps to one, and for works of which each has its own memory.

Small products are faster on one thread, so the command line tells BLAS to use one; the large ones are cut here. A
thread takes some columns of the result, so that no number is summed in another order than alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from itertools import pairwise
from threading import Condition, Thread
from typing import Generic, TypeVar

Place = TypeVar("Place")
Result = TypeVar("Result")

MANY = 1024
"""More threads than there are cores."""
LARGE_PRODUCT = 50_000_000
"""Multiply-adds from which a product repays a second thread: about two milliseconds of one."""


def cores() -> int:
    """How many threads large products are cut for: the cores there are; 1 where BLAS has threads of its own."""
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_parts(count: int, work: Callable[[slice], None]) -> None:
    """Do `work` for slices that cover 0..count-1, one a core, at the same time. Raises what it raises."""
    parts = cores()
    ends = [count * part // parts for part in range(parts + 1)]
    at_once([partial(work, slice(*pair)) for pair in pairwise(ends)])


def at_once(works: Sequence[Callable[[], None]]) -> None:
    """Do these at the same time, the first of them here. Raises what one of them raises.

    A thread is started in a twentieth of a millisecond; a pool of them would first have to be imported.
    """
    errors: list[BaseException] = []

    def beside(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # raised where the others are waited for
            errors.append(error)

    # in the context of this thread, which holds what NumPy warns of
    others = [
        Thread(target=copy_context().run, args=(beside, work), name="attn-beside", daemon=True) for work in works[1:]
    ]
    for thread in others:
        thread.start()
    try:
        works[0]()
    finally:
        for thread in others:
            thread.join()
    if errors:
        raise errors[0]


def in_order(
    works: Sequence[Callable[[Place], Result]], take: Callable[[Result], None], places: Sequence[Place]
) -> None:
    """Do these at the same time, and `take` here what they give, in their order. Raises what one of them raises.

    places: what works write in; one is a work's own from its start until what it gave has been taken. There is one
    thread fewer than places, so that one can be taken from while every thread works; a single place makes one thread.
    """
    line = _Line(works, places)
    helpers = [Thread(target=line.help, name="attn-beside", daemon=True) for _ in places[2 : 1 + len(works)]]
    for helper in helpers:
        helper.start()
    try:
        line.take_all(take)
    finally:
        line.stop()
        for helper in helpers:
            helper.join()


class _Line(Generic[Place, Result]):
    """Works that are begun in their order, each by whichever thread is free."""

    def __init__(self, works: Sequence[Callable[[Place], Result]], places: Sequence[Place]) -> None:
        self._works, self._free_places = works, list(places)
        self._begun_count = 0
        self._results: dict[int, tuple[Place, Result]] = {}
        self._errors: list[BaseException] = []
        self._change = Condition()

    def help(self) -> None:
        """Do works until none is left to begin."""
        try:
            while (work := self._begin(lambda: self._begun_count >= len(self._works))) is not None:
                self._do(*work)
        except BaseException as error:  # raised where what the work gives is waited for
            with self._change:
                self._errors.append(error)
                self._change.notify_all()

    def take_all(self, take: Callable[[Result], None]) -> None:
        """Take what each work gives as soon as its turn has come; do works in between."""
        for due in range(len(self._works)):
            while (work := self._begin(partial(self._is_settled, due))) is not None:
                self._do(*work)
            if due not in self._results:
                raise self._errors[0]
            place, result = self._results.pop(due)
            take(result)
            with self._change:
                self._free_places.append(place)
                self._change.notify_all()

    def stop(self) -> None:
        """Begin no more works."""
        with self._change:
            self._begun_count = len(self._works)
            self._change.notify_all()

    def _is_settled(self, due: int) -> bool:
        return due in self._results or bool(self._errors)

    def _begin(self, enough: Callable[[], bool]) -> tuple[int, Place] | None:
        """Wait for a place for the next work, and begin it; None as soon as there is `enough`."""
        with self._change:
            self._change.wait_for(lambda: enough() or (self._free_places and self._begun_count < len(self._works)))
            if enough():
                return None
            self._begun_count += 1
            return self._begun_count - 1, self._free_places.pop()

    def _do(self, number: int, place: Place) -> None:
        result = self._works[number](place)
        with self._change:
            self._results[number] = place, result
            self._change.notify_all()
