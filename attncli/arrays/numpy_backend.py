"""The NumPy backend: instant start, the reference the other one is held to, and seeded numbers.

Small products are faster on one thread, so the command line tells BLAS to use one; the large ones
are cut here. A thread takes some columns of the result, so that no number is summed in another
order than alone. Random numbers come from named streams of a seed and are the same on every
machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from functools import partial
from itertools import pairwise
from math import prod
from threading import Condition, Event, Lock, Thread, local
from typing import Any, Generic, TypeVar, cast

import numpy as np

from attncli.errors import UsageError

Floats = np.ndarray[Any, np.dtype[np.float32]]


def integers(seed: int, name: str, count: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """`count` pseudo-random uniform 32-bit integers, the same for the same seed and stream name.

    The stream is SHAKE-256 of "attn", the seed and the name: exact everywhere, and the
    numbers of one stream do not depend on how many were drawn from another.

    Source: FIPS 202 (SHA-3, extendable-output functions) for SHAKE-256.
    """
    from hashlib import shake_256  # loads OpenSSL, which runs of trained models do without

    digest = shake_256(f"attn\0{seed}\0{name}".encode("utf-8", "surrogatepass")).digest(4 * count)
    return np.frombuffer(digest, "<u4").astype(np.uint32)


def uniform(seed: int, name: str, shape: tuple[int, ...], scale: float = 1.0) -> Floats:
    """Pseudo-random numbers uniform in ±√3·scale (mean 0, standard deviation `scale`), float32 of
    this shape, the same for the same seed and stream name.

    Each 32-bit integer u of the stream becomes ((u + ½)/2³¹ − 1)·√3·scale in float64, rounded once
    to float32: only additions and multiplications take part, so every machine gives the same bits.
    A longer shape begins with the numbers of a shorter one; an axis of length 0 gives an empty
    array.
    """
    raw = integers(seed, name, int(np.prod(shape, dtype=np.int64)))
    wide = (raw.astype(np.float64) + 0.5) * 2.0**-31 - 1.0
    return (wide * (3.0**0.5 * scale)).astype(np.float32).reshape(shape)


def normal(seed: int, name: str, shape: tuple[int, ...]) -> Floats:
    """Pseudo-random standard normal numbers, float32 of this shape, the same for the same seed and
    stream name.

    Rounded to float32 from float64, so that the last bits of a machine's logarithm do not show.
    """
    count = int(np.prod(shape, dtype=np.int64))
    raw = integers(seed, name, 2 * count).astype(np.float64)
    # Box and Muller's method: a radius and an angle from two uniform numbers in (0, 1)
    radius = np.sqrt(-2.0 * np.log((raw[:count] + 0.5) * 2.0**-32))
    angle = 2.0 * np.pi * (raw[count:] + 0.5) * 2.0**-32
    return (radius * np.cos(angle)).astype(np.float32).reshape(shape)


# Seeded embeddings: a vector for every text, the same on every machine, backend and version; and
# seeds themselves.

SEED_BYTES = 4


def embedding(
    seed: int, texts: Sequence[str], d_model: int
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A random embedding vector per token text, the same for the same text and seed: float32
    [token, d_model], mean 0, variance 1.

    A vector depends on the seed, the token's text and d_model's length only: equal texts get equal
    rows, in every sentence. No tokens give [0, d_model].
    """
    rows = {text: uniform(seed, f"embedding\0{text}", (d_model,)) for text in dict.fromkeys(texts)}
    if rows:
        return np.stack([rows[text] for text in texts])
    return np.empty((0, d_model), np.float32)


def draw_seed() -> int:
    """A seed from the operating system's randomness, 0 ≤ seed < 2³²; the caller prints it, so that
    the run can be repeated."""
    return int.from_bytes(os.urandom(SEED_BYTES), "little")


Place = TypeVar("Place")
Result = TypeVar("Result")

MANY = 1024
"""More threads than there are cores."""
LARGE_PRODUCT = 50_000_000
"""Multiply-adds from which a product repays a second thread: about two milliseconds of one."""


MALLOC_OPTIONS = {-3: 2**25, -1: 2**28, -8: 1}
"""Options of glibc's `mallopt` by their numbers in malloc.h: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD,
M_ARENA_MAX."""


def keep_freed_memory() -> None:
    """Tell glibc to keep up to 256 MiB of freed array memory for the next arrays; does nothing with
    another C library. Only for a process of our own, since it holds for everything that runs there.

    The arrays of every layer are freed and asked for again, and by itself glibc hands them back to
    the system each time: taking each head of SmolLM2 away met 350,000 page faults, a tenth of its
    CPU seconds.
    """
    if sys.platform != "linux":
        return
    import ctypes  # NumPy has imported it

    change = getattr(ctypes.CDLL(None), "mallopt", None)
    if change is not None:
        for number, value in MALLOC_OPTIONS.items():
            change(number, value)


_side_by_side = local()
"""`busy` is set in a thread while it runs one of several works of `share_work`."""


def cores() -> int:
    """How many threads a large product is divided among: one for each core; 1 where BLAS has
    threads of its own, and inside parallel work, which keeps the cores busy itself.
    """
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1" or getattr(_side_by_side, "busy", False):
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # None where the system does not say


def in_parts(count: int, work: Callable[[slice], None]) -> None:
    """Call `work` for slices that together cover 0..count-1, one for each core, in threads at the
    same time. Raises what `work` raises."""
    parts = cores()
    ends = [count * part // parts for part in range(parts + 1)]
    at_once([partial(work, slice(*pair)) for pair in pairwise(ends)])


def at_once(works: Sequence[Callable[[], None]]) -> None:
    """Call these functions at the same time, the first in this thread and each of the others in a
    thread of its own. Raises the first exception that one of them raised.

    A thread is started in a twentieth of a millisecond; a pool of them would first have to be
    imported.
    """
    errors: list[BaseException] = []

    def run_in_thread(work: Callable[[], None]) -> None:
        """Run a function in a thread, and keep what it raises in `errors`."""
        try:
            work()
        except BaseException as error:  # raised below, once all threads have ended
            errors.append(error)

    # each runs in a copy of this thread's context, which holds the settings of `np.errstate`
    others = [
        Thread(
            target=copy_context().run, args=(run_in_thread, work), name="attn-beside", daemon=True
        )
        for work in works[1:]
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


def share_work(works: Iterator[Callable[[], Result]], threads: int) -> list[Result]:
    """Call the functions in `threads` threads and return their results in order. If one raises an
    exception, no more are started, and the exception is raised here.

    works: an iterator, from which each function is taken only when a thread is free. Matrix
        products within them are not divided among threads again.
    """
    results: dict[int, Result] = {}
    numbered = enumerate(works)
    taking = Lock()
    failed = Event()

    def take() -> tuple[int, Callable[[], Result]] | None:
        """The next function with its number; None where none is left, or one has failed."""
        with taking:
            if failed.is_set():
                return None
            return next(numbered, None)

    def run_all() -> None:
        """Run function after function until none is left."""
        _side_by_side.busy = True  # read by `cores`, which then gives products of this thread one
        try:
            while (numbered_work := take()) is not None:
                number, work = numbered_work
                results[number] = work()
        except BaseException:
            failed.set()
            raise
        finally:
            _side_by_side.busy = False

    at_once([run_all] * threads)
    return [results[number] for number in range(len(results))]


def take_in_order(
    works: Sequence[Callable[[Place], Result]],
    take: Callable[[Result], None],
    places: Sequence[Place],
) -> None:
    """Call these functions in threads at the same time, and call `take` in this thread with each
    result, in the order of the functions. Raises the exception of the first that fails.

    works: the functions; each is called with one of the places.
    places: memory that functions write in. A function has one to itself from its start until `take`
        has returned. There is one thread fewer than places, so that all threads can work while
        `take` reads one; this thread is one of them.
    """
    line = _Line(works, places)
    # two helpers fewer than places: one place is for what `take` reads, one for this thread; and no
    # more threads than functions
    helpers = [
        Thread(target=line.help, name="attn-beside", daemon=True)
        for _ in places[2 : 1 + len(works)]
    ]
    for helper in helpers:
        helper.start()
    try:
        line.take_all(take)
    finally:
        line.stop()
        for helper in helpers:
            helper.join()


class _Line(Generic[Place, Result]):
    """A queue of functions that are started in order by whichever thread is free, and whose results
    are taken in that order.

    works: the functions, each called with one of the places.
    places: memory that functions write in, one function at a time.
    """

    def __init__(self, works: Sequence[Callable[[Place], Result]], places: Sequence[Place]) -> None:
        self._works = works
        self._free_places = list(places)
        self._begun_count = 0
        # by the function's number: its result, and the place that the result may lie in
        self._results: dict[int, tuple[Place, Result]] = {}
        self._errors: list[BaseException] = []
        self._change = Condition()  # notified whenever one of these changes

    def help(self) -> None:
        """The work of a helping thread: run functions until none is left to start."""
        try:
            while (work := self._begin(lambda: self._begun_count >= len(self._works))) is not None:
                self._do(*work)
        except BaseException as error:  # `take_all` raises it in the caller's thread
            with self._change:
                self._errors.append(error)
                self._change.notify_all()

    def take_all(self, take: Callable[[Result], None]) -> None:
        """Call `take` with each result in order, as soon as it is there; while waiting, run further
        functions of the queue. Raises the first exception that a function raised.
        """
        for number in range(len(self._works)):
            while (work := self._begin(partial(self._is_settled, number))) is not None:
                self._do(*work)
            if number not in self._results:
                raise self._errors[0]
            place, result = self._results.pop(number)
            take(result)
            with self._change:
                self._free_places.append(place)
                self._change.notify_all()

    def stop(self) -> None:
        """Let no further function start, so that helping threads end after their current one."""
        with self._change:
            self._begun_count = len(self._works)
            self._change.notify_all()

    def _is_settled(self, number: int) -> bool:
        """Whether this function has a result, or any function has raised an error."""
        return number in self._results or bool(self._errors)

    def _begin(self, enough: Callable[[], bool]) -> tuple[int, Place] | None:
        """Wait for a free place (memory that a function writes in) and reserve it for the next
        function: its number and the place.

        enough: called whenever something has changed; as soon as it is true, the answer is None and
            nothing is reserved.
        """
        with self._change:
            self._change.wait_for(
                lambda: enough() or (self._free_places and self._begun_count < len(self._works))
            )
            if enough():
                return None
            self._begun_count += 1
            return self._begun_count - 1, self._free_places.pop()

    def _do(self, number: int, place: Place) -> None:
        """Run function number `number` with a place, and store its result."""
        result = self._works[number](place)
        with self._change:
            self._results[number] = place, result
            self._change.notify_all()


NDArray = np.ndarray[Any, Any]


def dtype_named(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a name; bfloat16 comes from ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def float_dtype(array: Any) -> str:
    """The name of a float array's dtype; integers count as float64, as NumPy promotes them."""
    name = str(np.asarray(array).dtype)
    if "float" in name:
        return name
    return "float64"


def _product(a: NDArray, b: NDArray) -> NDArray:
    """a·b of two arrays, by blocks of columns where that is faster."""
    block = block_rows(a, b)
    if block is None:
        return np.matmul(a, b)
    return product(a, b, block)


def _threaded_product(a: NDArray, b: NDArray) -> NDArray:
    """a·b of [..., rows, in] and [in, out], with the columns of b divided among threads."""
    product = np.empty((*a.shape[:-1], b.shape[1]), a.dtype)

    def columns(part: slice) -> None:
        """Compute some columns of the product."""
        product[..., part] = _product(a, b[:, part])

    in_parts(b.shape[1], columns)
    return product


class NumpyBackend:
    """`Backend` over NumPy arrays on the CPU.

    Low-precision products are accumulated in float32 and rounded once, as accelerators do.
    """

    name = "numpy"
    device = "cpu"

    def __init__(self, dtype: str = "float32") -> None:
        self.dtype = dtype

    def array(self, values: Any) -> NDArray:
        """Values as a NumPy array: floats in `dtype`, integers as int64, booleans as they are."""
        array = np.asarray(values)
        if array.dtype.kind == "b":
            return array
        if array.dtype.kind in "iu":
            return array.astype(np.int64, copy=False)
        return array.astype(dtype_named(self.dtype), copy=False)

    def array_as_is(self, values: Any) -> NDArray:
        """Values as a NumPy array in the data type they already have."""
        return np.asarray(values)

    def numpy(self, array: NDArray) -> NDArray:
        """The array itself; bfloat16 widened to float32."""
        if array.dtype.name == "bfloat16":
            return array.astype(np.float32)
        return array

    def dtype_of(self, array: NDArray) -> str:
        """The name of the array's data type, such as "float32"."""
        return array.dtype.name

    def cast(self, array: NDArray, dtype: str) -> NDArray:
        """The array in another data type; itself if it has that type already."""
        return array.astype(dtype_named(dtype), copy=False)

    def arange(self, start: int, stop: int) -> NDArray:
        """The integers start..stop-1 as int64."""
        return np.arange(start, stop, dtype=np.int64)

    def full(self, shape: Sequence[int], value: float, dtype: str) -> NDArray:
        """An array of one value."""
        return np.full(tuple(shape), value, dtype_named(dtype))

    def matmul(self, a: NDArray, b: NDArray, *, out: NDArray | None = None) -> NDArray:
        """a·b over the last two axes: large ones by threads, low precision in float32 and rounded
        once.

        out: not used.
        """
        if min(a.dtype.itemsize, b.dtype.itemsize) >= 4:  # float32 and wider
            if (
                b.ndim == 2
                and a.dtype == b.dtype
                and a.size * b.shape[1] >= LARGE_PRODUCT
                and cores() > 1
            ):
                return _threaded_product(a, b)
            return _product(a, b)
        # rounded to the narrower type of the two
        narrow = min(a.dtype, b.dtype, key=lambda dtype: dtype.itemsize)
        return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(narrow)

    def transpose(self, array: NDArray) -> NDArray:
        """A view with the last two axes swapped."""
        return np.swapaxes(array, -1, -2)

    def permute(self, array: NDArray, axes: Sequence[int]) -> NDArray:
        """A view with all axes reordered."""
        return np.transpose(array, tuple(axes))

    def concat(self, arrays: Sequence[NDArray], axis: int) -> NDArray:
        """Arrays joined along one axis, as a new one."""
        return np.concatenate(list(arrays), axis)

    def broadcast(self, array: NDArray, shape: Sequence[int]) -> NDArray:
        """A view of the array in a larger shape."""
        return np.broadcast_to(array, tuple(shape))

    def repeat(self, array: NDArray, times: int, axis: int) -> NDArray:
        """Every entry along an axis `times` times in a row."""
        return np.repeat(array, times, axis)

    def take(self, array: NDArray, indices: NDArray, axis: int) -> NDArray:
        """The entries at `indices` (one axis) along an axis."""
        return np.take(array, indices, axis)

    def where(self, condition: NDArray, a: NDArray | float, b: NDArray | float) -> NDArray:
        """a where the condition is true, else b, in the data type of those that are arrays."""
        # Python scalars adapt to NumPy's own types by themselves, but not to bfloat16.
        sides = [side.dtype for side in (a, b) if isinstance(side, np.ndarray)]
        result = np.where(condition, a, b)
        if sides:
            return result.astype(np.result_type(*sides), copy=False)
        return result

    def hide(self, array: NDArray, visible: NDArray) -> NDArray:
        """The array itself with −inf written where `visible`, which broadcasts to it, is false."""
        np.copyto(array, -np.inf, where=~visible)
        return array

    def at_least(self, array: NDArray, least: float) -> NDArray:
        """The array itself with every entry below `least` raised to it."""
        return np.maximum(array, array.dtype.type(least), out=array)

    def exp_over(self, array: NDArray) -> NDArray:
        """The array itself with every entry overwritten by its exponential."""
        return np.exp(array, out=array)

    def exp(self, array: NDArray, *, out: NDArray | None = None) -> NDArray:
        return np.exp(array, out=out)

    def log(self, array: NDArray) -> NDArray:
        return np.log(array)

    def sqrt(self, array: NDArray) -> NDArray:
        return np.sqrt(array)

    def tanh(self, array: NDArray) -> NDArray:
        return np.tanh(array)

    def isfinite(self, array: NDArray) -> NDArray:
        return np.isfinite(array)

    def erf(self, array: NDArray) -> NDArray:
        return erf(array)

    def max(self, array: NDArray, axis: int) -> NDArray:
        """Maximum along an axis, which stays with size 1. Raises UsageError for an axis without
        entries.
        """
        if array.shape[axis] == 0:
            raise UsageError("there are no keys to take a maximum over")
        return array.max(axis, keepdims=True)

    def sum(self, array: NDArray, axis: int) -> NDArray:
        """Sum along an axis, which stays with size 1; low precision is summed in float32 and
        rounded once.
        """
        if array.dtype.itemsize < 4 and array.dtype.kind != "b":
            return array.sum(axis, keepdims=True, dtype=np.float32).astype(array.dtype)
        return array.sum(axis, keepdims=True)

    def dot_over(self, a: NDArray, b: NDArray) -> NDArray:
        """Σ a·b along the last axis, which stays with size 1; a is overwritten."""
        a *= b
        return self.sum(a, -1)

    def any(self, array: NDArray, axis: int) -> NDArray:
        """Whether any entry along an axis is true; the axis stays with size 1."""
        return np.any(array, axis, keepdims=True)

    def affine(self, x: NDArray, weight: NDArray, bias: NDArray | None) -> NDArray:
        """x·Wᵀ + b, [row, out].

        x: [row, in].
        weight: [out, in].
        bias: [out].
        """
        product = self.matmul(x, weight.T)
        if bias is not None:
            product += bias
        return product

    def multiplier(self, weight: NDArray) -> None:
        """None: NumPy multiplies a weight as it is."""

    def layer_norm(
        self, x: NDArray, eps: float, weight: NDArray | None, bias: NDArray | None
    ) -> NDArray:
        """(x − mean) / √(variance + eps) · weight + bias over the last axis, as a new array."""
        result = x - self.sum(x, -1) / x.shape[-1]
        result /= np.sqrt(self.sum(result * result, -1) / x.shape[-1] + eps)
        if weight is not None:
            result *= weight
        if bias is not None:
            result += bias
        return result

    def activation(self, kind: str, array: NDArray) -> NDArray | None:
        """None: NumPy has no activation function in one step."""
        return None

    def shared_out(self, most: int) -> AbstractContextManager[int]:
        """Gives how many threads are worth having, at most `most`: as many as large products are
        cut for.
        """
        return nullcontext(min(cores(), most))

    def entropy(self, array: NDArray) -> NDArray:
        """−Σ x ln x over the last axis, which is dropped; an entry of 0 adds nothing."""
        # an entry of 0 meets ln 1: nothing is added, and 0·−inf never arises
        return -(array * np.log(np.where(array > 0, array, 1))).sum(-1)


# The error function, which NumPy lacks: to the last bits of float64, and faster where float32 is
# wanted.

# Cody's rational approximations of erf (|x| <= 0.46875) and erfc (up to 4, and beyond).
_ERF_P = (
    3.20937758913846947e3,
    3.77485237685302021e2,
    1.13864154151050156e2,
    3.16112374387056560,
    1.85777706184603153e-1,
)
_ERF_Q = (
    2.84423683343917062e3,
    1.28261652607737228e3,
    2.44024637934444173e2,
    2.36012909523441209e1,
    1.0,
)
_MID_P = (
    1.23033935479799725e3, 2.05107837782607147e3, 1.71204761263407058e3, 8.81952221241769090e2,
    2.98635138197400131e2, 6.61191906371416295e1, 8.88314979438837594, 5.64188496988670089e-1, 2.15311535474403846e-8,
)  # fmt: skip
_MID_Q = (
    1.23033935480374942e3, 3.43936767414372164e3, 4.36261909014324716e3, 3.29079923573345963e3,
    1.62138957456669019e3, 5.37181101862009858e2, 1.17693950891312499e2, 1.57449261107098347e1, 1.0,
)  # fmt: skip
_FAR_P = (
    6.58749161529837803e-4,
    1.60837851487422766e-2,
    1.25781726111229246e-1,
    3.60344899949804439e-1,
    3.05326634961232344e-1,
    1.63153871373020978e-2,
)
_FAR_Q = (
    2.33520497626869185e-3,
    6.05183413124413191e-2,
    5.27905102951428412e-1,
    1.87295284992346725,
    2.56852019228982242,
    1.0,
)
_INV_SQRT_PI = 0.56418958354775628695
# erf(x) = x·P(x²)/Q(x²) to 2e-8 of itself up to where it is 1 in float32: fitted here, at 400
# Chebyshev nodes, by least squares whose weights grow with what is left over.
_SINGLE_UP_TO = 3.92
_SINGLE_P = (
    1.12837914642684, 0.1903882543960155, 0.05274599411377431, 0.0037647528384342275, 0.00028484975535466456,
    2.0500487375848643e-6,
)  # fmt: skip
_SINGLE_Q = (
    1.0, 0.5020599429629077, 0.11410129574877768, 0.014967490122651179, 0.001162301047911292, 3.8089592161462755e-5,
)  # fmt: skip
_AT_ONCE = 2**13
"""Numbers whose dozen intermediate arrays stay in the processor's caches together."""


def erf(x: NDArray) -> NDArray:
    """The error function, entrywise: accurate to 2e-16 in float64; to 5e-8 in narrower types, three
    times as fast.

    Source: W. J. Cody, Rational Chebyshev approximation for the error function, 1969.
    """
    values = np.asarray(x)
    result = np.empty(values.shape, values.dtype)
    flat = values.reshape(-1)
    out = result.reshape(-1)
    if values.dtype == np.float64:
        compute = _erf_float64
    else:
        compute = _erf_float32
    for start in range(0, flat.size, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        out[part] = compute(flat[part].astype(np.float64))
    return result


def _erf_float64(wide: NDArray) -> NDArray:
    """The error function of float64 numbers, entrywise, by Cody's approximations: one of erf for
    small numbers, two of 1 − erf for middle and large ones."""
    size = np.minimum(np.abs(wide), 6.0)  # erf(6) is 1 to the last bit
    # the ranges of the three end at 0.46875 and 4, as Cody has them
    square = size * size
    near = wide * _polynomial_ratio(square, _ERF_P, _ERF_Q)
    complement = np.exp(-square)
    complement *= _polynomial_ratio(size, _MID_P, _MID_Q)
    is_far = size > 4
    if is_far.any():  # few are, and often none
        large = size[is_far]
        inverse = 1 / (large * large)
        complement[is_far] = (
            np.exp(-large * large)
            * (_INV_SQRT_PI - inverse * _polynomial_ratio(inverse, _FAR_P, _FAR_Q))
            / large
        )
    result: NDArray = np.where(size <= 0.46875, near, np.copysign(1 - complement, wide))
    return result


def _erf_float32(wide: NDArray) -> NDArray:
    """The error function to the precision of float32, entrywise, computed in float64, so that only
    the result is rounded. Overwrites its argument."""
    np.clip(wide, -_SINGLE_UP_TO, _SINGLE_UP_TO, out=wide)
    square = wide * wide
    wide *= _horner(square, _SINGLE_P)
    wide /= _horner(square, _SINGLE_Q)
    return wide


def _polynomial_ratio(x: NDArray, above: Sequence[float], below: Sequence[float]) -> NDArray:
    """The ratio of two polynomials with these coefficients, entrywise, as a new array."""
    return _horner(x, above) / _horner(x, below)


def _horner(x: NDArray, coefficients: Sequence[float]) -> NDArray:
    """The polynomial Σ c_k·x^k, entrywise, as a new array. `numpy.polynomial` would do, but
    importing it takes longer than a whole MiniLM run's activations."""
    value = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value *= x
        value += coefficient
    return value


# A few rows times a large matrix: the product of a short text with a weight.
#
# Such a product should take as long as reading the weight from memory. BLAS libraries repack the
# weight for it, which is made for many rows and takes several times as long; on blocks small enough
# for their small-matrix kernels they do not. Measured with OpenBLAS, [5, 4096] by [4096, 14336] in
# float32: 16 GB/s of weights in blocks and 4.4 whole on one core with AVX-512, 7.7 and 6.2 with
# AVX2.

FEW_ROWS = 16
"""Rows for which blocks win; of more, each weight is used often enough to repay repacking."""
LARGE_MATRIX = 2**22
"""Numbers from which a weight does not fit the processor's caches."""
SMALL_PRODUCT = 900_000
"""Multiply-adds of one block: OpenBLAS takes its small-matrix kernel up to a million."""
LEAST_BLOCK = 8
"""Columns of a block, at least; blocks double from here."""
FEW_CORES = 4
"""With more cores than this, BLAS's own threads win."""


def block_rows(a: NDArray, b: NDArray) -> int | None:
    """How many columns of b to take at a time in a·b so that it is faster than the whole product;
    None where it is not.

    a: [rows, in].
    b: [in, out], the transposed view of a weight [out, in] in row-major order.
    """
    # blocks win for a few rows and a weight beyond the caches; one row has another routine of BLAS
    if (
        a.ndim != 2
        or b.ndim != 2
        or not 1 < len(a) <= FEW_ROWS
        or b.size < LARGE_MATRIX
        or a.dtype != b.dtype
    ):
        return None
    # None where the system does not say how many cores it has: then as for one
    if not b.T.flags.c_contiguous or (os.cpu_count() or 1) > FEW_CORES:
        return None
    # the largest block that divides the columns
    block = block_of(a)
    while block is not None and b.shape[1] % block:
        if block > LEAST_BLOCK:
            block = block // 2
        else:
            block = None
    return block


def block_of(a: NDArray) -> int | None:
    """The most columns of b for which a·b, with a [rows, in], counts as a small product; None where
    even the fewest do not."""
    block = LEAST_BLOCK
    while 2 * block * a.size <= SMALL_PRODUCT:
        block *= 2
    if block * a.size <= SMALL_PRODUCT:
        return block
    return None


def product(a: NDArray, b: NDArray, block: int) -> NDArray:
    """a·b, [rows, out], computed by blocks of `block` columns, which must divide the columns of b."""
    weight = b.T
    # [block number, rows, column of the block], one small product for each block
    parts = np.matmul(a, weight.reshape(len(weight) // block, block, -1).swapaxes(1, 2))
    return parts.swapaxes(0, 1).reshape(len(a), len(weight))


def product_of_any(a: NDArray, b: NDArray, block: int) -> NDArray:
    """a·b, [rows, out], computed by blocks of `block` columns, and those that are left over at
    once."""
    whole = b.shape[1] // block * block
    if whole == b.shape[1]:
        return product(a, b, block)
    rest = np.matmul(a, b[:, whole:])
    if not whole:
        return rest
    return np.concatenate((product(a, b[:, :whole], block), rest), 1)


# Rows of large NumPy arrays in pieces that stay in the processor's cache, on all of its cores.
#
# A chain of operations on whole arrays reads and writes memory for each of them; on pieces it does
# so once.

PIECE = 2**16
"""Numbers in a piece: 256 kB of float32."""
LARGE_ARRAY = 2**19
"""Fewer numbers than this are done before a thread would have begun."""


AnyArray = TypeVar("AnyArray")
"""An array of NumPy or a tensor of torch."""


def by_rows(work: Callable[..., AnyArray], first: AnyArray, *others: AnyArray) -> AnyArray:
    """work(first, *others) computed in threads, pieces of rows at a time; each row of the result
    must depend on the same row of the arrays alone.

    All of them are [..., row, width], of one shape and type, and so is the result. Large ones are
    worked on piece by piece, [row, width].
    """
    # all at once: arrays of torch, small ones, and those below float32
    if not isinstance(first, np.ndarray) or first.size < LARGE_ARRAY or first.dtype.itemsize < 4:
        return work(first, *others)
    arrays = [np.asarray(array) for array in (first, *others)]
    if not all(array.flags.c_contiguous for array in arrays):
        return work(first, *others)
    count = prod(first.shape[:-1])
    width = first.shape[-1]
    flat = [array.reshape(count, width) for array in arrays]
    result = np.empty_like(flat[0])
    step = max(PIECE // width, 1)  # rows of a piece, at least one however wide they are
    starts = iter(range(0, count, step))

    def do_pieces() -> None:
        """Work on piece after piece until none is left."""
        for start in starts:  # a step of a range's iterator is one operation, whichever thread asks
            part = slice(start, start + step)
            result[part] = work(*(array[part] for array in flat))

    at_once([do_pieces] * cores())
    return cast("AnyArray", result.reshape(first.shape))
