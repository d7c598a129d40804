"""A task file as values: one JSON object a line, each read strictly."""

from collections import Counter

from pydantic import ValidationError

from inferproof.core.errors import FileFormatError
from inferproof.core.tasks import Task

LEAST, MOST = 8, 10_000
_HINT = "what a line of a task file holds says: inferproof docs formats"


def load_tasks(data: bytes, *, path: str) -> tuple[Task, ...]:
    """Return the tasks of a file.

    Raises:
        FileFormatError: a line is not as documented, an id comes twice, or there are too few.
    """
    tasks: list[Task] = []
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            tasks.append(Task.model_validate_json(line))
        except ValidationError as error:
            raise FileFormatError(_told(error), path=path, line=number, hint=_HINT) from error
    twice = [name for name, count in Counter(task.id for task in tasks).items() if count > 1]
    if twice:
        raise FileFormatError(f"id {twice[0]!r} comes twice", path=path, hint=_HINT)
    if not LEAST <= len(tasks) <= MOST:
        what = f"{len(tasks)} tasks, from {LEAST} to {MOST} are needed"
        raise FileFormatError(what, path=path, hint=_HINT)
    return tuple(tasks)


def _told(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(each) for each in first["loc"])
    return f"{field}: {first['msg']}" if field else str(first["msg"])
