"""What another machine costs: a question, a thousand small files, beside OpenSSH and rsync."""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from figures import Figures

from inferproof.core.campaign import Target
from inferproof.hosts.ssh import Ssh
from sshd import Sshd

QUESTIONS, COMMANDS, SYNCS = 200, 60, 7
FILES, FILE_BYTES = 1000, 2048
# Bash that is started by sshd reads ~/.bashrc, which can take long, unless it is a nested one.
BARE_SHELL = "SetEnv SHLVL=2\n"
TIMES_CONTROL_MASTER, TIMES_RSYNC, UNCHANGED_MS = 2.0, 1.5, 50.0


def main() -> None:
    """Measure all of it on one server, each round's arms one after the other."""
    figures = Figures()
    print(f"load before: {os.getloadavg()[0]:.2f}; figures count below 2.5", flush=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        Sshd(Path(folder) / "sshd", more=BARE_SHELL) as box,
    ):
        scene = Scene(Path(folder), box)
        scene.questions(figures)
        scene.files(figures)
        scene.close()
    figures.finish()


class Scene:
    """One machine, reached both by us and by OpenSSH's client with a shared connection."""

    def __init__(self, folder: Path, box: Sshd) -> None:
        self._folder, self._box = folder, box
        entry = json.dumps(box.target(folder / "work", python=sys.executable))
        self.host = Ssh("box", Target.model_validate_json(entry), folder / "state")
        self._ssh = [
            "ssh",
            *("-S", str(folder / "control"), "-o", "ControlMaster=auto"),
            *("-o", "ControlPersist=60", "-o", "BatchMode=yes"),
            *("-o", f"UserKnownHostsFile={folder / 'known'}"),
            *("-o", "StrictHostKeyChecking=accept-new", "-o", "LogLevel=ERROR"),
            *("-i", str(box.key), "-p", str(box.port)),
        ]
        self._run([*self._ssh, box.address, "true"])
        asyncio.run(self.host.reach())

    def close(self) -> None:
        self._run([*self._ssh, "-O", "exit", self._box.address])
        self.host.close()

    def questions(self, figures: Figures) -> None:
        ours: list[float] = []
        theirs: list[float] = []
        remote_true = [*self._ssh, self._box.address, "true"]

        async def asked() -> None:
            for number in range(QUESTIONS):
                start = time.perf_counter()
                await self.host.reach()
                ours.append(time.perf_counter() - start)
                if number % (QUESTIONS // COMMANDS) == 0:
                    theirs.append(_timed(lambda: self._run(remote_true)))

        asyncio.run(asked())
        figures.at_most(
            "a question on a warm line, over ControlMaster's `true`",
            statistics.median(ours) / statistics.median(theirs),
            TIMES_CONTROL_MASTER,
            "times",
            f"{_ms(ours)} against {_ms(theirs)}",
        )

    def files(self, figures: Figures) -> None:
        source = self._folder / "source"
        ours: list[float] = []
        theirs: list[float] = []
        unchanged: list[float] = []
        for number in range(SYNCS):
            contents = self._written(source, number)
            ours.append(_timed(lambda contents=contents: self.host.stage(contents)))
            unchanged.append(_timed(lambda contents=contents: self.host.stage(contents)))
            theirs.append(_timed(lambda number=number: self._rsync(source, number)))
        figures.at_most(
            f"{FILES} new files of {FILE_BYTES} bytes, over rsync's time",
            statistics.median(a / b for a, b in zip(ours, theirs, strict=True)),
            TIMES_RSYNC,
            "times",
            f"{_ms(ours)} against {_ms(theirs)}",
        )
        median_ms = statistics.median(unchanged) * 1000
        figures.at_most("the same files unchanged", median_ms, UNCHANGED_MS, "ms")

    def _written(self, source: Path, number: int) -> dict[str, bytes]:
        """Write files that were never seen before, and return them."""
        source.mkdir(exist_ok=True)
        contents: dict[str, bytes] = {}
        for index in range(FILES):
            data = f"{number} {index} ".encode().ljust(FILE_BYTES, b".")
            (source / f"f{index}").write_bytes(data)
            contents[f"f{index}"] = data
        return contents

    def _rsync(self, source: Path, number: int) -> None:
        there = f"{self._box.address}:{self._folder}/copy-{number}/"
        self._run(["rsync", "-a", "-e", " ".join(self._ssh), f"{source}/", there])

    def _run(self, argv: Sequence[str]) -> None:
        subprocess.run(argv, check=True, capture_output=True, timeout=60)


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _ms(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.2f} ms"


if __name__ == "__main__":
    main()
