"""`inferproof deployment` with real replicas: as the target's own processes, and as containers."""

import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docker_daemon import BASE_IMAGE, import_base, running_daemon
from inferproof.campaign.templates import init
from inferproof.cli import main
from inferproof.ledger.signing import ApproverKey
from inferproof.pipeline import Keeper

pytestmark = [pytest.mark.zoo, pytest.mark.timeout(400)]
ENGINE = Path(__file__).parent / "engines" / "contained"
MANIFEST = 'contract: completions\nengine: command\nstart: ["{python}", "serve.py", "{port}"]\n'


class Desk:
    """A sealed campaign with one test place, at the console."""

    def __init__(self, root: Path, place: dict[str, object], capsys: pytest.CaptureFixture[str]):
        init(root, "engine-tiny")
        inventory = yaml.safe_load((root / "targets.yaml").read_text(encoding="utf-8"))
        inventory["local"] |= {"places": {"try": {**place, "is_test": True}}, "threads": 1}
        (root / "targets.yaml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
        (root / ".inferproof").mkdir(mode=0o700)
        self._root, self._capsys = root, capsys
        self.keeper = Keeper.open(root)
        key = ApproverKey.create_demo(root / ".inferproof/demo-approver.pem")
        self.keeper.seal(key, "demo")

    def engine(self, version: str) -> str:
        folder = self._root.parent / version
        shutil.copytree(ENGINE, folder, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "candidate.yaml").write_text(MANIFEST, encoding="utf-8")
        source = (folder / "serve.py").read_text(encoding="utf-8")
        (folder / "serve.py").write_text(source.replace('"one"', repr(version)), encoding="utf-8")
        return self.keeper.submit_candidate(folder).digest

    def ask(self, action: str, *more: str) -> dict[str, Any]:
        argv = ["deployment", action, "qwen", "--campaign", str(self._root), "--place", "try"]
        assert main([*argv, "--json", *more]) == 0, self._capsys.readouterr()
        return json.loads(self._capsys.readouterr().out)

    def version(self) -> str:
        url = self.ask("endpoint")["url"]
        with urllib.request.urlopen(url, data=b"1 0", timeout=20) as answer:
            return answer.headers["X-Version"]


@pytest.fixture(params=["process", "docker"])
def desk(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Desk]:
    if request.param == "process":
        yield Desk(tmp_path / "campaign", {"kind": "process"}, capsys)
        return
    with running_daemon() as url:
        import_base(url)
        place: dict[str, object] = {"kind": "docker", "url": url, "base_image": BASE_IMAGE}
        yield Desk(tmp_path / "campaign", place, capsys)


def test_an_engine_is_deployed_scaled_rolled_rolled_back_and_deleted(desk: Desk):
    one, two = desk.engine("one"), desk.engine("two")
    try:
        status = desk.ask("deploy", "--candidate", one, "--replicas", "1")
        assert (status["phase"], status["candidate"]) == ("ready", one)
        assert desk.version() == "one"
        assert desk.ask("scale", "--replicas", "2")["ready"] == 2
        rolled = desk.ask("deploy", "--candidate", two, "--replicas", "2")
        assert (rolled["ready"], rolled["previous"]) == (2, status["version"])
        assert desk.version() == "two"
        assert desk.ask("rollback")["candidate"] == one
        assert desk.version() == "one"
    finally:
        assert desk.ask("delete")["phase"] == "absent"
    assert desk.keeper.verify(desk.keeper.head()).ok
