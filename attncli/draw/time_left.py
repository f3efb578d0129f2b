"""The time that is left, for a progress bar."""

from __future__ import annotations

from rich.progress import ProgressColumn, Task
from rich.text import Text


class TimeLeftColumn(ProgressColumn):
    """The time left, such as `0:02:10`, from the first report on. Rich's own column waits for a
    second one, which of a text of half an hour comes late."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        """Hours, minutes and seconds left. The task's field `all_seconds` is what the work takes in
        all, by its last report."""
        seconds = task.fields.get("all_seconds")
        if seconds is None or task.elapsed is None:
            return Text("-:--:--", style="progress.remaining")
        left = int(max(seconds - task.elapsed, 0.0))
        minutes, second = divmod(left, 60)
        hour, minute = divmod(minutes, 60)
        return Text(f"{hour}:{minute:02d}:{second:02d}", style="progress.remaining")
