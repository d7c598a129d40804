"""The whole server beside a real GPU: `python3 tests/gpu/server.py OUT [--ssh]`, as root.

Where inferproof, torch, nvcc and ncu are. Two servers, each with a campaign of its own, one of them
with an sshd between itself and the machine (`--ssh`), contend for one GPU: build, check, profile,
promote, verify. Then six agents contend for 150 leases of it, and some of them are killed.
Prints one line for each claim and leaves all answers in OUT/server.json; ends with 1 if one does
not hold.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpu.overlay import laid_out
from inferproof_remote import cuda_nvml
from lease_contest import Contest, clean_up
from sshd import Sshd

KERNELS = Path(__file__).parent / "kernels"
HONEST, CHEAT, CONTRACT = "honest-decode-split-kv", "w2-decode-first-shares", "gqa_paged_decode"
LEASES, KILL_SHARE, USE_S = 150, 0.25, 0.05
USE = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
time.sleep(spec["use_s"])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """One server's campaign, asked on the command line."""

    folder: Path
    seconds: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])

    def ask(self, *words: str) -> dict[str, Any]:
        """Return a command's answer; it is timed."""
        began = time.monotonic()
        argv = [sys.executable, "-m", "inferproof.cli", *words, "--campaign", str(self.folder)]
        done = subprocess.run(
            [*argv, "--json"], capture_output=True, text=True, check=False, timeout=400
        )
        self.seconds.append((" ".join(words)[:60], round(time.monotonic() - began, 1)))
        try:
            return {"rc": done.returncode, **json.loads(done.stdout.splitlines()[-1])}
        except (ValueError, IndexError):
            return {"rc": done.returncode, "said": (done.stdout + done.stderr)[-2000:]}

    def call(self, tool: str, **arguments: object) -> dict[str, Any]:
        """Return a tool's answer."""
        return self.ask("call", tool, json.dumps(arguments))

    def submit(self, name: str) -> str:
        """Return the digest of a candidate of the zoo."""
        folder = laid_out(KERNELS / name, self.folder.parent / "laid out" / self.folder.name)
        return str(self.ask("submit", str(folder))["candidate"])


def desk(folder: Path, target: Mapping[str, object], accelerator: str) -> Desk:
    """Return a sealed campaign for one kernel on one machine."""
    found = Desk(folder=folder)
    found.ask("init", "--template", "kernel")
    found.ask("contracts", "add", CONTRACT)
    file = folder / "campaign.yaml"
    kept = [line for line in file.read_text().splitlines() if "{contract: " not in line]
    at = next(number for number, line in enumerate(kept) if line.startswith("components:"))
    kept[at : at + 1] = [f"accelerator: {accelerator}", "components:", f"  - contract: {CONTRACT}"]
    file.write_text("\n".join(kept) + "\n")
    (folder / "targets.yaml").write_text(json.dumps({"local": target}))
    found.ask("seal", "--demo-key")
    return found


def fact(answer: Mapping[str, Any], name: str) -> Any:
    """Return one of an answer's facts."""
    return next((each["value"] for each in answer.get("facts", ()) if each["name"] == name), None)


def play(desks: Mapping[str, Desk], gpu: str, answers: dict[str, Any]) -> dict[str, bool]:
    """Let both servers do a kernel's whole work; return what holds."""
    claims: dict[str, bool] = {}
    with ThreadPoolExecutor(len(desks)) as pool:
        checks = {name: pool.submit(judged, each) for name, each in desks.items()}
    for name, each in desks.items():
        said = answers[name] = checks[name].result()
        claims |= {
            f"{name}: an honest kernel is compiled": said["compile"]["code"] == "accepted",
            # Twice the baseline is a claim that a person looks at: no gate refused it.
            f"{name}: and passes, graded": said["honest"].get("code")
            in ("accepted", "large_claim"),
            f"{name}: it held the GPU": fact(said["honest"], "GPUs held") == gpu,
            f"{name}: a cheat is refused": said["cheat"].get("code") == "wrong_values",
            f"{name}: its bottleneck is named": said["profile"]["rc"] == 0,
            f"{name}: promoted by a person": said["promoted"].get("verdict") == "pass",
            f"{name}: the record verifies": said["verify"]["rc"] == 0,
        }
        answers[f"{name} seconds"] = each.seconds
    return claims


def judged(server: Desk) -> dict[str, Any]:
    """Return all that one server says of an honest kernel and of a cheat."""
    said: dict[str, Any] = {"doctor": server.ask("doctor", "--target", "local")}
    honest, cheat = server.submit(HONEST), server.submit(CHEAT)
    said["compile"] = server.call("compile_kernel", candidate=honest)
    said["honest"] = server.call("check_numerics", candidate=honest, purpose="graded")
    said["cheat"] = server.call("check_numerics", candidate=cheat, purpose="graded")
    said["profile"] = server.call("profile", candidate=honest)
    said["asked"] = server.call("promote", candidate=honest)
    approval = said["asked"].get("approval_id") or ""
    said["approved"] = server.ask("approve", approval)
    said["promoted"] = server.call("promote", candidate=honest)
    said["verify"] = server.ask("verify")
    return said


def contend(folder: Path, gpu: str, figures: dict[str, Any]) -> dict[str, bool]:
    """Let six agents of two servers contend for the GPU; return what holds."""
    folder.mkdir()
    contest = Contest(
        folder, leases=LEASES, kill_share=KILL_SHARE, use_s=USE_S, gpus=(gpu,), use=USE
    )
    began = time.monotonic()
    try:
        contest.play()
    finally:
        clean_up(folder)
    waits_s = [turn.lease.waited_s for turn in contest.turns if turn.lease.gpus]
    ended = {path.read_text().strip() for path in folder.glob("server-*/*/rc")}
    figures["contest"] = {
        "leases": contest.given,
        "killed": sum(turn.was_killed for turn in contest.turns),
        "longest wait over the mean": round(max(waits_s) / statistics.mean(waits_s), 2),
        "seconds": round(time.monotonic() - began, 1),
    }
    return {
        "nobody ever shared the GPU": contest.overlaps() == [],
        "whoever was not killed computed there": ended == {"0"},
        "nobody starved": max(waits_s) <= 3 * statistics.mean(waits_s),
        "nothing computes there afterwards": cuda_nvml.compute_processes(gpu) == (),
    }


def keep(file: Path, answers: Mapping[str, Any]) -> None:
    """Leave what was answered so far, however this ends."""
    file.write_text(json.dumps(answers, indent=1), encoding="utf-8")


def main() -> int:
    """Return 0 if every claim holds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--ssh", action="store_true")
    given = parser.parse_args()
    ask = ["nvidia-smi", "--query-gpu=uuid,name", "--format=csv,noheader"]
    listed = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
    gpu, name = listed.splitlines()[0].split(", ")
    answers: dict[str, Any] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="server-")))
        shared = {"gpus": [gpu], "lease_dir": str(folder / "leases"), "threads": 8}
        targets: dict[str, dict[str, object]] = {"local": {"host": "local", **shared}}
        if given.ssh:
            box = stack.enter_context(Sshd(folder / "sshd"))
            there = box.target(folder / "work", python=sys.executable, **shared)
            targets["ssh"] = there
        stack.callback(keep, given.out / "server.json", answers)
        desks = {each: desk(folder / each, targets[each], name) for each in targets}
        claims = play(desks, gpu, answers) | contend(folder / "contest", gpu, answers)
        answers["claims"] = claims
    for claim, holds in claims.items():
        print("holds " if holds else "BROKEN", claim)
    return 0 if all(claims.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
