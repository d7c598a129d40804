"""A contract made of a FlashInfer-Trace definition judges real candidates in real sandboxes."""

import asyncio
from pathlib import Path

import pytest

from inferproof.cli import main
from inferproof.core.reports import JobReport
from inferproof.core.values import JobStatus, Outcome, Purpose
from inferproof.ledger.signing import ApproverKey
from inferproof.pipeline import Keeper
from small_campaign import MANIFEST, RIGHT, WRONG, edit, python_candidate, small_campaign
from traced_definitions import EPS, RMS_NORM, Spec, trace, write

NAME = "rmsnorm_h256"
WAIT_S = 110.0
TIMED = ("speed", "physics")  # a busy machine may leave these inconclusive


@pytest.fixture
def keeper(tmp_path: Path) -> Keeper:
    """Return the keeper of a sealed campaign whose only contract is an imported one."""
    campaign = small_campaign(tmp_path / "campaign")
    edit(campaign / "campaign.yaml", {"contract: rms_norm": f"contract: {NAME}"})
    axes: Spec = {"rows": {"type": "var"}, "hidden": {"type": "const", "value": 256}}
    definition: Spec = {**RMS_NORM, "name": NAME, "axes": axes}
    traces = [trace(definition, EPS, rows=rows) for rows in (1, 60, 2000)]
    out = campaign / "contracts" / "kernels" / NAME
    arguments = ["contracts", "import", *write(tmp_path, definition, traces)]
    assert main([*arguments, "--out", str(out)]) == 0
    keeper = Keeper.open(campaign)
    keeper.seal(ApproverKey.create_demo(campaign / ".inferproof/demo-approver.pem"), "demo")
    return keeper


def verdicts(keeper: Keeper, folder: Path, source: str, purpose: Purpose) -> dict[str, Outcome]:
    """Return what each gate says of a Python candidate."""
    manifest = MANIFEST.replace("contract: rms_norm", f"contract: {NAME}")
    candidate = keeper.submit_candidate(python_candidate(folder, source, manifest=manifest)).digest
    report = asyncio.run(_report(keeper, candidate, purpose))
    assert report.status is JobStatus.DONE, report
    return {verdict.gate: verdict.outcome for verdict in report.verdicts}


async def _report(keeper: Keeper, candidate: str, purpose: Purpose) -> JobReport:
    started = await keeper.start(
        "check_numerics", candidate=candidate, target="local", purpose=purpose
    )
    return await keeper.follow(started.job_id, wait_s=WAIT_S)


@pytest.mark.zoo
def test_a_wrong_candidate_fails_and_an_honest_one_passes(keeper: Keeper, tmp_path: Path) -> None:
    wrong = verdicts(keeper, tmp_path / "wrong", WRONG, Purpose.PRACTICE)
    assert wrong["numerics"] is Outcome.FAIL
    right = verdicts(keeper, tmp_path / "right", RIGHT, Purpose.PRACTICE)
    untimed = {outcome for gate, outcome in right.items() if gate not in TIMED}
    assert (right["numerics"], untimed) == (Outcome.PASS, {Outcome.PASS})


@pytest.mark.zoo
def test_graded_the_gate_is_armed_by_the_generic_mutants(keeper: Keeper, tmp_path: Path) -> None:
    graded = verdicts(keeper, tmp_path / "graded", RIGHT, Purpose.GRADED)
    assert (graded["armed"], graded["numerics"]) == (Outcome.PASS, Outcome.PASS)
    assert {path.name for path in (keeper.root / "contracts" / "kernels" / NAME).iterdir()} == {
        *("contract.yaml", "reference.py", "definition.json", "not-mapped.md")
    }
