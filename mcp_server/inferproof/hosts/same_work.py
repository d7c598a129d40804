"""A line to a work folder that notices when another folder has taken its place.

A disk that is not mounted leaves an empty folder behind. That no job is found there says nothing
of the jobs; whoever took it for an answer would record running jobs as lost.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from inferproof.core.canonical import Json
from inferproof.core.errors import NotFound, Unreachable
from inferproof.hosts.folders import Answer, Clock, Line, parsed

_QUESTION_S = 30.0


class SameWork:
    """Asks `line`; `known` is the file that remembers which folder the first answer came from."""

    def __init__(self, line: Line, known: Path, *, work: str) -> None:
        self._line = line
        self._known = known
        self._work = work

    def ask(
        self, asked: str, fields: Mapping[str, Json], payload: bytes = b"", *, timeout_s: float
    ) -> Answer:
        """Return the answer of the work folder.

        Raises:
            NotFound: it is the same folder, and what was asked for is not in it.
            Unreachable: another folder is in its place.
        """
        try:
            answer = self._line.ask(asked, fields, payload, timeout_s=timeout_s)
        except NotFound:
            self._check(self._line.ask("ping", {}, timeout_s=_QUESTION_S))
            raise
        if asked == "ping":
            self._check(answer)
        return answer

    def close(self) -> None:
        """Let go of the line."""
        self._line.close()

    def _check(self, ping: Answer) -> None:
        found = parsed(Clock, ping).work_id
        if self._known.is_file():
            if self._known.read_text(encoding="ascii", errors="replace") == found:
                return
            raise Unreachable(
                f"{self._work} is not the work folder that it was; its jobs cannot be seen",
                hint="mount it there and ask again; if it was emptied for good, a person removes "
                f"{self._known}",
            )
        self._known.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._known.with_name(f".{self._known.name}.{os.getpid()}")
        draft.write_text(found, encoding="ascii")
        draft.replace(self._known)
