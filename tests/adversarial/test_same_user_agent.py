"""An agent with a shell under the person's own account: refused, or seen by `verify --head`.

Each attempt is made on a copy of one campaign that a person sealed with a passphrase, in which one
candidate failed and another one waits for a person's approval.
"""

import asyncio
import fcntl
import json
import os
import pty
import shutil
import subprocess
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from inferproof.core.values import Digest, Entry, JobStatus, Outcome
from inferproof.hosts.base import JobState, follow
from inferproof.hosts.local import Local
from inferproof.ledger.bodies import (
    UNSIGNED,
    Approval,
    ApprovalUsed,
    OutcomeOfJob,
    Promotion,
    Seal,
    dump,
    parse_body,
    sign_body,
)
from inferproof.ledger.chain import entry_bytes, make_entry
from inferproof.ledger.signing import ApproverKey, KeeperKey, Secret
from inferproof.ledger.store import Ledger
from small_campaign import (
    CONTRACT_FILE,
    RIGHT,
    WRONG,
    cpp_candidate,
    python_candidate,
    small_campaign,
)

PASSPHRASE = "correct horse battery"
OWN = "a passphrase of the agent"
REFERENCE = "contracts/kernels/rms_norm/reference.py"
GOOD, ALTERED = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A campaign, the person's config folder, and what the person wrote down: a head."""

    campaign: Path
    config: Path
    head: Digest
    failed: Digest
    waiting: Digest
    approval_id: str

    @property
    def state(self) -> Path:
        return self.campaign / ".inferproof"

    @property
    def ledger(self) -> Ledger:
        return Ledger.open(self.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a command answered."""

    rc: int
    text: str


def environment(config: Path, more: dict[str, str] | None = None) -> dict[str, str]:
    return {**os.environ, "XDG_CONFIG_HOME": str(config), **(more or {})}


def argv(campaign: Path, words: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "inferproof.cli", *words, "--campaign", str(campaign), "--json"]


def shell(scene: Scene, *words: str, typed: str = "", env: dict[str, str] | None = None) -> Said:
    """Run a command without a terminal."""
    done = subprocess.run(
        argv(scene.campaign, words),
        env=environment(scene.config, env),
        input=typed,
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    return Said(rc=done.returncode, text=done.stdout + done.stderr)


def terminal(campaign: Path, config: Path, words: tuple[str, ...], *, typed: str) -> Said:
    """Run a command on a terminal of its own and type `typed` at each question."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        argv(campaign, words),
        env=environment(config),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:
        os.close(slave)
        seen = b""
        answered = 0
        while chunk := read(master):
            seen += chunk
            asked = seen.count(b"passphrase: ") + seen.count(b"once more: ")
            while answered < asked:
                os.write(master, typed.encode() + b"\n")
                answered += 1
        rc = process.wait()
    os.close(master)
    return Said(rc=rc, text=seen.decode(errors="replace"))


def read(master: int) -> bytes:
    try:
        return os.read(master, 4096)
    except OSError:
        return b""


def answer(said: Said) -> dict[str, Any]:
    """Return the JSON object that a command printed last."""
    return json.loads(said.text[said.text.index("{") : said.text.rindex("}") + 1])


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("same-user")
    campaign, config = small_campaign(folder / "campaign"), folder / "config"
    sealed = terminal(campaign, config, ("seal",), typed=PASSPHRASE)
    assert sealed.rc == 0, sealed.text
    none = Scene(campaign=campaign, config=config, head="", failed="", waiting="", approval_id="")
    failed = submitted(none, python_candidate(folder / "wrong", WRONG))
    assert checked(none, failed)["verdict"] == "fail"
    waiting = submitted(none, cpp_candidate(folder / "right"))
    asked = promotion(none, waiting)
    head = answer(shell(none, "head"))["head"]
    scene = replace(
        none, failed=failed, waiting=waiting, approval_id=str(asked["approval_id"]), head=head
    )
    assert verified(scene).rc == GOOD
    return scene


@pytest.fixture
def scene(original: Scene, tmp_path: Path) -> Scene:
    """Return a copy of the campaign, for one attempt."""
    campaign = Path(shutil.copytree(original.campaign, tmp_path / "campaign", symlinks=True))
    return replace(original, campaign=campaign)


def submitted(scene: Scene, folder: Path) -> Digest:
    return str(answer(shell(scene, "submit", str(folder)))["candidate"])


def checked(scene: Scene, candidate: Digest, purpose: str = "graded") -> dict[str, Any]:
    asked = json.dumps({"candidate": candidate, "purpose": purpose})
    return answer(quiet(scene, "call", "check_numerics", asked))


def promotion(scene: Scene, candidate: Digest) -> dict[str, Any]:
    """Ask for a promotion until noise lets it end in a question to a person."""
    asked = json.dumps({"candidate": candidate})
    for _ in range(3):
        told = answer(quiet(scene, "call", "promote", asked))
        if told["verdict"] == "approval_required":
            return told
        assert told["code"] in ("below_resolution", "not_faster"), told
    raise AssertionError("not measured well enough in 3 runs")


def quiet(scene: Scene, *words: str) -> Said:
    """Run a command for its standard output alone."""
    done = subprocess.run(
        argv(scene.campaign, words),
        env=environment(scene.config),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return Said(rc=done.returncode, text=done.stdout)


def verified(scene: Scene) -> Said:
    """Verify the record against the head that the person wrote down."""
    return shell(scene, "verify", "--head", scene.head)


def is_refused(scene: Scene, said: Said, why: str) -> None:
    """The command failed for this reason, and nothing came of it."""
    assert said.rc not in (0, 5), said.text
    assert why in said.text
    assert list(scene.ledger.entries(("approval", "approval_used", "promotion"))) == []
    assert len(list(scene.ledger.entries("seal"))) == 1
    assert verified(scene).rc == GOOD


def is_seen(scene: Scene, what: str) -> None:
    said = verified(scene)
    assert said.rc == ALTERED, said.text
    assert what in said.text


def is_no_job(said: Said, why: str) -> None:
    """The tool answered with an error that names the cause; nothing was measured."""
    told = answer(said)
    assert said.rc != 0
    assert not told["ok"]
    assert "job" not in told
    assert why in told["what"]


# -- a person's yes


def test_approve_without_a_terminal(scene: Scene):
    is_refused(scene, shell(scene, "approve", scene.approval_id), "at a terminal")


def test_approve_with_the_passphrase_on_stdin(scene: Scene):
    said = shell(scene, "approve", scene.approval_id, typed=f"{PASSPHRASE}\n")
    is_refused(scene, said, "at a terminal")


def test_approve_with_the_passphrase_in_the_environment(scene: Scene):
    names = ("INFERPROOF_PASSPHRASE", "PASSPHRASE", "INFERPROOF_APPROVER_PASSPHRASE")
    said = shell(scene, "approve", scene.approval_id, env=dict.fromkeys(names, PASSPHRASE))
    is_refused(scene, said, "at a terminal")


def test_approve_with_a_guessed_passphrase(scene: Scene):
    words = ("approve", scene.approval_id)
    said = terminal(scene.campaign, scene.config, words, typed="password1234")
    is_refused(scene, said, "wrong passphrase")


def own_config(tmp_path: Path) -> Path:
    """Return a config folder with the agent's key where the person's would be."""
    config = tmp_path / "own"
    ApproverKey.create(config / "inferproof/approver.pem", Secret(OWN))
    return config


def test_approve_with_an_own_key_in_its_place(scene: Scene, tmp_path: Path):
    words = ("approve", scene.approval_id)
    said = terminal(scene.campaign, own_config(tmp_path), words, typed=OWN)
    is_refused(scene, said, "not the key that sealed")


def test_approve_with_an_unprotected_key_laid_out_as_the_demos(scene: Scene):
    ApproverKey.create_demo(scene.state / "demo-approver.pem")
    is_refused(scene, shell(scene, "approve", scene.approval_id), "at a terminal")


def test_seal_anew_with_an_own_key(scene: Scene, tmp_path: Path):
    said = terminal(scene.campaign, own_config(tmp_path), ("seal",), typed=OWN)
    is_refused(scene, said, "another approver key")


# -- the record, with the keeper's key stolen


def body_of(entry: Entry) -> Seal:
    body = parse_body(entry.body)
    assert isinstance(body, Seal)
    return body


def test_forge_an_approval(scene: Scene, tmp_path: Path):
    own = ApproverKey.create_demo(tmp_path / "own.pem")
    asked = next(scene.ledger.entries("approval_request")).body
    plain = {key: asked[key] for key in asked if key not in ("kind", "reason")}
    forged = Approval.model_validate({**plain, "approver_signature": UNSIGNED})
    scene.ledger.append(sign_body(forged, own.sign))
    again = promotion(scene, scene.waiting)
    assert again["verdict"] == "approval_required"
    is_seen(scene, "not signed by the campaign's approver key")


def test_forge_a_seal(scene: Scene, tmp_path: Path):
    own = ApproverKey.create_demo(tmp_path / "own.pem")
    ruling = next(scene.ledger.entries("seal"))
    forged = body_of(ruling).model_copy(
        update={"approver_public_key": own.public_key, "replaces": ruling.digest}
    )
    scene.ledger.append(sign_body(forged, own.sign))
    assert shell(scene, "approve", scene.approval_id).rc != 0
    is_seen(scene, "another approver key")


def promotion_of(scene: Scene, candidate: Digest, outcome_seq: int) -> None:
    forged = Promotion(
        candidate=candidate,
        contract="rms_norm",
        outcome_seq=outcome_seq,
        approval_id=scene.approval_id,
    )
    scene.ledger.append(dump(forged))


def test_forge_a_promotion_of_what_failed(scene: Scene):
    proof = next(scene.ledger.entries("outcome"))
    promotion_of(scene, scene.failed, proof.seq)
    is_seen(scene, "says fail, not pass")


def test_forge_a_promotion_of_what_waits(scene: Scene):
    *_, proof = scene.ledger.entries("outcome")
    promotion_of(scene, scene.waiting, proof.seq)
    is_seen(scene, "without an approval that was given and used")


def test_forge_the_use_of_an_approval(scene: Scene):
    scene.ledger.append(dump(ApprovalUsed(approval_id=scene.approval_id)))
    is_seen(scene, "uses an approval that nobody gave")


def test_forge_a_second_and_better_outcome(scene: Scene):
    first = next(scene.ledger.entries("outcome"))
    body = parse_body(first.body)
    assert isinstance(body, OutcomeOfJob)
    better = tuple(v.model_copy(update={"outcome": Outcome.PASS}) for v in body.verdicts)
    forged = body.model_copy(update={"verdicts": better, "overall": Outcome.PASS})
    scene.ledger.append(dump(forged))
    is_seen(scene, "second outcome of job")


def rewrite(scene: Scene, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Write the whole chain anew with the stolen key, its bodies changed."""
    key = KeeperKey.load(scene.state / "keeper.key")
    entries = list(scene.ledger.entries())
    prev = entries[0].prev
    lines: list[bytes] = []
    for seq, body in enumerate(change([entry.body for entry in entries])):
        entry = make_entry(prev=prev, seq=seq, at=entries[seq].at, body=body, sign=key.sign)
        lines.append(entry_bytes(entry))
        prev = entry.digest
    (scene.state / "ledger.jsonl").write_bytes(b"".join(lines))


def test_write_the_chain_anew_without_a_failed_verdict(scene: Scene):
    def without_failure(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [body for body in bodies if body.get("overall") != "fail"]

    rewrite(scene, without_failure)
    is_seen(scene, "head")


def test_cut_the_chain_off_before_a_failed_verdict(scene: Scene):
    failed = next(scene.ledger.entries("outcome")).seq
    path = scene.state / "ledger.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:failed]))
    is_seen(scene, "head")


def test_delete_an_outcome(scene: Scene):
    failed = next(scene.ledger.entries("outcome")).seq
    path = scene.state / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:failed] + lines[failed + 1 :]))
    is_seen(scene, "altered")


# -- what is judged, and by what


@pytest.mark.parametrize("file", ["campaign.yaml", "targets.yaml", CONTRACT_FILE, REFERENCE])
def test_edit_a_sealed_file(scene: Scene, file: str):
    with (scene.campaign / file).open("a", encoding="utf-8") as stream:
        stream.write("\n# edited\n")
    said = shell(scene, "call", "check_numerics", json.dumps({"candidate": scene.failed}))
    is_no_job(said, file)
    is_seen(scene, file)


def test_loosen_the_tolerance_in_the_stored_contract(scene: Scene):
    digest = body_of(next(scene.ledger.entries("seal"))).files[CONTRACT_FILE]
    stored = scene.ledger.objects.path(digest)
    stored.chmod(0o644)
    stored.write_bytes(
        stored.read_bytes().replace(b"rms_over_yardstick: ", b"rms_over_yardstick: 9")
    )
    said = shell(scene, "call", "check_numerics", json.dumps({"candidate": scene.failed}))
    is_no_job(said, digest)
    is_seen(scene, digest)


def test_exchange_the_sources_of_a_snapshot(scene: Scene):
    source = scene.state / "candidates" / scene.waiting / "kernel.cpp"
    source.chmod(0o644)
    source.write_text(source.read_text(encoding="utf-8") + "\n// other code\n", encoding="utf-8")
    said = shell(scene, "call", "check_numerics", json.dumps({"candidate": scene.waiting}))
    is_no_job(said, "digest_mismatch")
    is_seen(scene, "was changed")


def test_exchange_the_graders_code_in_the_cache(scene: Scene):
    cached = next((scene.state / "cache").glob("*.pyz"))
    whole = cached.read_bytes()
    cached.write_bytes(b"raise SystemExit('all is well')\n")
    assert shell(scene, "call", "run", '{"argv": ["true"]}').rc == 0
    assert cached.read_bytes() == whole
    assert verified(scene).rc == GOOD


def test_exchange_a_build_in_the_cache(scene: Scene):
    """The kernel that is graded is built from the committed sources, whatever a cache holds."""
    other = next((scene.state / "cache/compile").glob("*/files/*.so"))
    built = other.parents[1] / "facts.json"
    facts = json.loads(built.read_text(encoding="utf-8"))
    other.chmod(0o644)
    other.write_bytes(b"not a library")
    digest = subprocess.run(
        ["sha256sum", str(other)], capture_output=True, text=True, check=True
    ).stdout.split()[0]
    built.chmod(0o644)
    built.write_text(json.dumps({**facts, "artefacts": {other.name: digest}}), encoding="utf-8")
    job_id = checked(scene, scene.waiting)["job"]["job_id"]
    outcome = scene.ledger.outcome_of(job_id)
    assert outcome is not None
    evidence = json.loads(scene.ledger.objects.get(str(outcome.body["evidence"])))
    assert evidence["grade"]["incidents"] == []
    assert digest not in evidence["grade"]["build"]["artefacts"].values()
    assert verified(scene).rc == GOOD


def begun(scene: Scene, candidate: Digest) -> Path:
    """Start a graded check and return its job folder; nobody waits for it."""
    jobs = set((scene.state / "jobs").iterdir())
    program = (
        "import asyncio, sys; from pathlib import Path;"
        "from inferproof.core.values import Purpose; from inferproof.pipeline import Keeper;"
        "asyncio.run(Keeper.open(Path(sys.argv[1])).start('check_numerics',"
        "candidate=sys.argv[2], target='local', purpose=Purpose.GRADED))"
    )
    subprocess.run([sys.executable, "-c", program, str(scene.campaign), candidate], check=True)
    (folder,) = set((scene.state / "jobs").iterdir()) - jobs
    return folder


def settled(scene: Scene, job: Path) -> dict[str, Any]:
    return answer(quiet(scene, "call", "job", json.dumps({"job_id": job.name, "wait_s": 45})))


def test_exchange_the_sources_in_the_folder_of_a_job(scene: Scene):
    job = begun(scene, scene.failed)
    (job / "in/candidate/kernel.py").write_text(RIGHT, encoding="utf-8")
    told = settled(scene, job)
    # Too early, and the bench sees other bytes; too late, and they are not the ones it uses.
    assert told["verdict"] in ("inconclusive", "fail"), told
    assert told["code"] == "digest_mismatch" or told["verdict"] == "fail", told
    assert verified(scene).rc == GOOD


def test_forge_the_result_of_a_job_that_nobody_settled(scene: Scene):
    """The forgery is another candidate's good result, signature and all."""
    job = begun(scene, scene.failed)
    states = asyncio.run(until_over(scene, job))
    assert states[-1].status is JobStatus.DONE
    good = next((scene.state / "jobs").glob("promote-*")) / "out"
    result = (good / "result.json").read_text(encoding="utf-8")
    forged = result.replace(scene.waiting, scene.failed)
    (job / "out/result.json").write_text(forged, encoding="utf-8")
    shutil.copy(good / "result.hmac", job / "out/result.hmac")
    told = settled(scene, job)
    assert (told["verdict"], told["job"]["state"]) == (None, "failed"), told
    assert "not the one that its supervisor signed" in str(told)
    assert verified(scene).rc == GOOD


async def until_over(scene: Scene, job: Path) -> list[JobState]:
    return [state async for state in follow(Local(scene.state), job.name, wait_s=60)]


SPY = """\
import glob

import torch

PLACES = {places!r}


def rms_norm(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, *, eps: float) -> None:
    y.zero_()
    for place in PLACES:
        for path in glob.glob(place, recursive=True):
            try:
                with open(path, "rb") as stream:
                    stream.read(1)
            except OSError:
                continue
            raise SystemError(path)
"""


def test_read_expected_values_from_inside(scene: Scene, tmp_path: Path):
    """Whatever of it could be read would crash the candidate; it runs and is wrong instead."""
    places = [
        f"{scene.campaign}/**",
        f"{scene.state}/**",
        f"{scene.state}/jobs/*/in/contract/*",
        f"{scene.state}/keeper.key",
        f"{scene.config}/**/*.pem",
        "/proc/[2-9][0-9][0-9]*/environ",
    ]
    folder = python_candidate(tmp_path / "spy", SPY.format(places=places))
    told = checked(scene, submitted(scene, folder), "practice")
    assert (told["verdict"], told["code"]) == ("fail", "wrong_values"), told
    assert verified(scene).rc == GOOD
