"""The tasks, one file each, by the name of the file."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from attncli.features.learn.tasks.task import Task

ORDER = ("induction", "lookup", "order", "previous", "translate", "sentence", "text")
"""How they are listed; a task that is not named here comes after them."""
FILES = {"text": "own_text", "order": "which_first", "sentence": "own_sentence"}
"""Where a task's file has another name than the task, which would say too little of a file."""


def task_names() -> tuple[str, ...]:
    """The names of all tasks, one for each file of this folder, in the order in which they are
    listed."""
    names_of_files = {file: name for name, file in FILES.items()}  # those that differ
    files = [module.name for module in iter_modules(__path__) if module.name != "task"]
    names = [names_of_files.get(file, file) for file in files]

    def order(name: str) -> tuple[int, str]:
        """Tasks of `ORDER` first, then the others by name."""
        if name in ORDER:
            return ORDER.index(name), name
        return len(ORDER), name

    return tuple(sorted(names, key=order))


def task_class(name: str) -> type[Task]:
    """The class of the task of this name, which is the one in its file that is called so. Raises
    KeyError where no task is."""
    if name not in task_names():
        raise KeyError(name)
    module = import_module(f"{__name__}.{FILES.get(name, name)}")
    for kind in vars(module).values():
        is_task = isinstance(kind, type) and issubclass(kind, Task)
        if is_task and getattr(kind, "name", "") == name:
            return kind
    raise KeyError(name)
