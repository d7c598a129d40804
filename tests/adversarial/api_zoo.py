"""Start an engine of a folder by itself, over TCP, and ask it what its contract says of its API.

The reference is loaded once for all of them. What differs from a job on a target is the sandbox.
"""

import http.client
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import yaml
from pydantic import TypeAdapter

import inferproof.demo
from inferproof.campaign.contracts import load_contract
from inferproof.core.service import Conformance
from inferproof.core.values import Value
from inferproof.gates.base import ServiceCase
from inferproof_remote.serving.client import Client
from inferproof_remote.serving.conformance import Asking, measure
from inferproof_remote.serving.features import Features, probe, suited
from inferproof_remote.serving.known import Oracle
from inferproof_remote.serving.prompts import Windows, text_of
from inferproof_remote.serving.reference import context_tokens, load_yardsticks
from inferproof_remote.serving.tasks import Asker, load, run
from inferproof_remote.stream import Stream
from unit.gates.serving_cases import case

HERE = Path(__file__).parent / "engines"
FOLDERS, TWINS = HERE / "api", HERE / "twins"
DEMO = Path(inferproof.demo.__file__).parent
HONEST, MODEL = DEMO / "engines" / "static_cache", DEMO / "model"
CONTRACT = Path(__file__).parents[2] / "contracts" / "services" / "completions"
Facts = dict[str, object]
_LOOK_S = 0.05


class WrongServer(Value):
    """One row of api.yaml."""

    folder: str
    gate: Literal["conformance", "tasks"]
    names: str


def load_rows() -> tuple[WrongServer, ...]:
    """Return the rows of api.yaml."""
    table: object = yaml.safe_load((HERE / "api.yaml").read_text(encoding="utf-8"))
    return TypeAdapter(tuple[WrongServer, ...]).validate_python(table)


class ApiBench:
    """Asks engines, one after another, with prompts of their own each."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self.contract = load_contract(CONTRACT).service
        self._yardsticks = load_yardsticks(MODEL, "none", 1)
        corpus = (CONTRACT / self.contract.fidelity.corpus).read_text(encoding="utf-8")
        self._windows = Windows(corpus, self._yardsticks.vocabulary)

    def overlaid(self, overlay: Path) -> list[str]:
        """Return the command of the honest engine with the files of `overlay` over it."""
        folder = self._work / f"{overlay.name}-{secrets.token_hex(4)}"
        shutil.copytree(HONEST, folder, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(overlay, folder, dirs_exist_ok=True)
        return [sys.executable, str(folder / "engine.py")]

    @contextmanager
    def serving(self, command: Sequence[str]) -> Generator[Client]:
        """Yield a client of a running engine."""
        with socket.create_server(("127.0.0.1", 0)) as probed:
            port = int(probed.getsockname()[1])
        argv = [*command, "--model", str(MODEL), "--port", str(port), "--threads", "1"]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        quiet = subprocess.DEVNULL
        with subprocess.Popen(argv, stdout=quiet, stderr=quiet, env=env) as engine:
            try:
                while not _is_healthy(port):
                    with suppress(subprocess.TimeoutExpired):
                        code = engine.wait(_LOOK_S)
                        raise AssertionError(f"{argv} ended with {code}")
                yield suited(Client(f"http://127.0.0.1:{port}").first_model())
            finally:
                engine.kill()

    def conformance(self, client: Client, bits: bytes) -> ServiceCase:
        """Return how an engine speaks the API, and the rule to judge it by."""
        oracle = Oracle(self._yardsticks, self._windows, Stream(bits, "conformance"))
        rules = self.contract.conformance or Conformance()
        asking = Asking(
            model=MODEL,
            context=context_tokens(MODEL),
            connections=rules.connections,
            answer_s=20.0,
        )
        found = measure(client, self._features(client, bits), oracle, asking)
        return self._case(conformance=[{"arm": "candidate", "restart": 0, **found}])

    def answers(self, client: Client, bits: bytes, arm: str) -> Facts:
        """Return what an engine answers to the shipped tasks."""
        rules = self.contract.tasks
        assert rules is not None
        vocabulary = self._yardsticks.vocabulary
        text = (CONTRACT / rules.file).read_text(encoding="utf-8")
        asker = Asker(client=client, features=self._features(client, bits), vocabulary=vocabulary)
        tasks = load(text, self._windows, vocabulary, bits)
        return {"arm": arm, "restart": 0, **run(asker, tasks, at_once=rules.at_once)}

    def tasks(self, *answers: Facts) -> ServiceCase:
        """Return the answers of both arms, and the rule to judge them by."""
        return self._case(tasks=list(answers))

    def _features(self, client: Client, bits: bytes) -> Features:
        ids = self._windows.draw(Stream(bits, "probe"), 12)
        text = text_of(ids, self._yardsticks.vocabulary)
        return probe(client, ids, text, logprobs=self.contract.fidelity.top_logprobs)

    def _case(self, **measured: object) -> ServiceCase:
        body = case([]).model_dump(mode="json")
        body["contract"] = self.contract.model_dump(mode="json")
        body["evidence"]["serve"] |= measured
        return ServiceCase.model_validate(body)


def _is_healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()
