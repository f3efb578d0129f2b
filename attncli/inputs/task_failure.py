"""The error of a task in a bounded process: the same class in that process and in the one that
asked for it, so it imports nothing."""


class TaskError(Exception):
    """A task in a bounded process failed.

    kind: "time" or "memory" where it takes too much of it; else a kind that the task itself names,
        such as "syntax".
    reason: why, in the task's words; "" for none.
    place: the line of the template, or the number of the pattern; None where it is not known.
    """

    def __init__(self, kind: str, reason: str = "", place: int | None = None) -> None:
        super().__init__(reason)
        self.kind = kind
        self.place = place
