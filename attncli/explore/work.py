"""Work: what takes time, in a thread of its own, so that keys are heard; one piece at a time, and each can be
stopped."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

Post = Callable[[Callable[[], None]], None]
"""Has a function called in the thread of the screen."""


class WorkCancelled(BaseException):
    """The work is no longer wanted; no Exception, so that nothing on the way takes it for a failure."""


class Work:
    """One piece of work. job: is given a function to be told the share done, which raises `WorkCancelled` where it is
    to stop. on_error: is given what went wrong."""

    def __init__(
        self, post: Post, job: Callable[[Work], Callable[[], None]], *, name: str, on_error: Callable[[Exception], None]
    ) -> None:
        self.name, self.share = name, 0.0
        self._post, self._job, self._on_error = post, job, on_error
        self._stop = Event()
        # a daemon: who leaves does not wait for what cannot be interrupted, such as the reading of a large file
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Work:
        """Begin; returns itself."""
        self._thread.start()
        return self

    def cancel(self) -> None:
        """Stop it where it is next told of; nothing of it arrives any more."""
        self._stop.set()

    @property
    def is_cancelled(self) -> bool:
        """Whether it is to stop."""
        return self._stop.is_set()

    def report(self, share: float) -> None:
        """How much is done, 0 to 1. Raises WorkCancelled where no more is wanted."""
        if self.is_cancelled:
            raise WorkCancelled
        self.share = share

    def post(self, act: Callable[[], None]) -> None:
        """Have something done in the thread of the screen, unless this work is stopped by then."""
        self._post(lambda: None if self.is_cancelled else act())

    def wait(self, seconds: float) -> None:
        """Wait for its end, at most so long."""
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            finish = self._job(self)
        except WorkCancelled:
            return
        except Exception as error:
            failure = error
            self.post(lambda: self._on_error(failure))
        else:
            self.post(finish)
