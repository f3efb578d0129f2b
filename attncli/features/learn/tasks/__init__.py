"""The tasks, one file each, by the name of the file."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from attncli.features.learn.tasks.task import Task

ORDER = ("induction", "lookup", "order", "previous", "sentence", "text")
"""How they are listed; a task that is not named here comes after them."""
FILES = {"text": "own_text", "order": "which_first", "sentence": "own_sentence"}
"""Where a task's file has another name than the task, which would say too little of a file."""


def task_names() -> tuple[str, ...]:
    """The names of all tasks, in the order in which they are listed."""
    files = {file: name for name, file in FILES.items()}
    names = [
        files.get(module.name, module.name)
        for module in iter_modules(__path__)
        if module.name != "task"
    ]
    return tuple(
        sorted(names, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
    )


def task_class(name: str) -> type[Task]:
    """The class of a task. Raises KeyError for a name that is none."""
    if name not in task_names():
        raise KeyError(name)
    module = import_module(f"{__name__}.{FILES.get(name, name)}")
    return next(
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Task) and getattr(kind, "name", "") == name
    )
