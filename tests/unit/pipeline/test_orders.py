"""Which evidence a tool's jobs produce, and how an engine is measured at each tier."""

from dataclasses import replace
from pathlib import Path

import pytest

from inferproof.campaign.contracts import load_contract
from inferproof.campaign.files import CampaignFiles, open_campaign
from inferproof.campaign.templates import init
from inferproof.core.candidate import Candidate, EngineManifest
from inferproof.core.errors import NotFound, UsageError
from inferproof.core.reports import ToolName
from inferproof.core.service import LmEval, Tasks
from inferproof.core.values import Purpose
from inferproof.engine_orders import measures_of, model_path, needed, plans_of
from inferproof.orders import Order, kind_of

LIBRARY = Path(__file__).parents[3] / "contracts"


@pytest.fixture
def files(tmp_path: Path) -> CampaignFiles:
    init(tmp_path / "small", "engine-tiny")
    return open_campaign(tmp_path / "small")


def order(files: CampaignFiles, tool: ToolName, purpose: Purpose) -> Order:
    manifest = EngineManifest(contract="completions", engine="transformers")
    return Order(
        job_id="job",
        tool=tool,
        files=files,
        seal_files={},
        candidate=Candidate(digest="1" * 64, manifest=manifest, files={}),
        contract=files.contracts["completions"],
        target_name="local",
        purpose=purpose,
        argv=(),
    )


def without(given: Order, *sections: str, **sealed: object) -> Order:
    """Return an order whose contract lacks these sections, or has others in their place."""
    assert given.contract is not None
    changes = {**dict.fromkeys(sections), **sealed}
    service = given.contract.service.model_copy(update=changes)
    contract = given.contract.model_copy(update={"contract": service})
    return replace(given, contract=contract)


def test_the_same_tool_measures_kernels_and_engines_each_its_way() -> None:
    kernel = load_contract(LIBRARY / "kernels" / "rms_norm")
    service = load_contract(LIBRARY / "services" / "completions")
    assert kind_of("check_numerics", kernel) == "grade"
    assert kind_of("check_numerics", service) == "serve"


def test_a_tool_that_is_not_for_engines_says_which_are() -> None:
    service = load_contract(LIBRARY / "services" / "completions")
    with pytest.raises(NotFound, match=r"compile_kernel is not for engines.*run_aiperf"):
        kind_of("compile_kernel", service)


def test_a_check_is_one_start_with_a_baseline_only_for_tasks(files: CampaignFiles) -> None:
    checked = order(files, "check_numerics", Purpose.GRADED)
    measures = measures_of(checked)
    assert measures.stages == ("fidelity", "conformance", "tasks")
    assert (measures.restarts, measures.replicas) == (1, 1)
    assert plans_of(checked).keys() == {"candidate", "baseline"}
    alone = without(checked, "tasks", "conformance")
    assert measures_of(alone).stages == ("fidelity",)
    assert plans_of(alone).keys() == {"candidate"}


def test_what_is_promoted_was_checked_in_the_same_job(files: CampaignFiles) -> None:
    graded = measures_of(order(files, "run_aiperf", Purpose.GRADED))
    assert graded.stages == ("fidelity", "conformance", "tasks", "load")
    assert measures_of(order(files, "run_aiperf", Purpose.PRACTICE)).stages == ("fidelity", "load")


def test_lm_eval_is_practice_alone(files: CampaignFiles) -> None:
    asked = Tasks(file="tasks.jsonl", margin=0.1, lm_eval=LmEval(tasks=("arc_easy",)))
    for purpose, more in ((Purpose.PRACTICE, ("lm_eval",)), (Purpose.GRADED, ())):
        given = without(order(files, "check_numerics", purpose), "tasks", tasks=asked)
        assert measures_of(given).stages == ("fidelity", "conformance", "tasks", *more)


def test_only_graded_load_has_the_sealed_traffic_replicas_and_restarts(
    files: CampaignFiles,
) -> None:
    contract = files.contracts["completions"].service
    practice = measures_of(order(files, "run_aiperf", Purpose.PRACTICE))
    graded = measures_of(order(files, "run_aiperf", Purpose.GRADED))
    assert (practice.traffic, practice.restarts, practice.replicas) == (contract.practice, 1, 1)
    assert graded.traffic == contract.graded
    assert (graded.restarts, graded.replicas) == (contract.restarts, contract.replicas)


def test_a_promotion_measures_what_a_graded_load_run_does(files: CampaignFiles) -> None:
    promoted = order(files, "promote", Purpose.GRADED)
    assert measures_of(promoted) == measures_of(order(files, "run_aiperf", Purpose.GRADED))
    assert plans_of(promoted).keys() == {"candidate", "baseline"}


def test_a_model_that_no_target_has_is_asked_for(files: CampaignFiles) -> None:
    local = files.targets["local"].model_copy(update={"models": {}})
    without = files.model_copy(update={"targets": {"local": local}})
    with pytest.raises(UsageError, match="does not say where model 'tiny-qwen3' lies"):
        model_path(order(without, "deploy", Purpose.PRACTICE))


def test_an_engine_is_measured_only_if_it_was_submitted(files: CampaignFiles) -> None:
    bare = order(files, "run_aiperf", Purpose.PRACTICE)
    nameless = Order(
        job_id=bare.job_id,
        tool=bare.tool,
        files=files,
        seal_files={},
        candidate=None,
        contract=None,
        target_name="local",
        purpose=bare.purpose,
        argv=(),
    )
    with pytest.raises(UsageError, match="call submit_candidate first"):
        needed(nameless)
