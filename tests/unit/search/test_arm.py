"""Plain search from its first job to the bar, whatever dies on the way."""

from types import SimpleNamespace

import pytest
from pydantic import TypeAdapter, ValidationError

from inferproof.campaign.files import CampaignFiles
from inferproof.campaign.status import SearchStanding
from inferproof.core.errors import InfrastructureError, NotFound, UsageError
from inferproof.core.values import Reason
from inferproof.docket import own_key
from inferproof.tools.spec import RequestKey
from unit.gates.serving_cases import case, load_facts
from unit.search.bench import Bench, Settings, contract, hill


def fast_and_broken(settings: Settings) -> float | str:
    """Whatever is faster than default is broken."""
    return "unfaithful" if settings.get("max_batch") == 16 else 0.9


def test_a_search_finds_the_best_configuration_and_confirms_it():
    report = Bench(contract(trials=14)).searched()
    found = report.standing
    assert (report.job, found.phase, found.counted) == (None, "done", 14)
    assert found.tuned is not None
    assert found.tuned.settings["max_batch"] == 16
    assert found.tuned.settings["dtype"] != "broken"
    assert found.tuned.low > 1.8
    assert {each.stage for each in found.confirmed} == {"confirm"}


def test_what_crashes_or_breaks_the_model_is_recorded_with_its_reason_and_never_the_best():
    found = Bench(contract(trials=14)).searched().standing
    faults = {each.fault.code for each in found.invalid if each.fault}
    assert faults == {Reason.CRASHED, Reason.UNFAITHFUL}
    broken = [each for each in found.explored if each.settings.get("dtype") == "broken"]
    assert len(broken) == 5
    assert all(each.score is None and each.fault for each in broken)


@pytest.mark.parametrize("fate", ["crashed", "never_healthy", "unfaithful"])
def test_a_search_in_which_all_is_invalid_leaves_the_contracts_own_options(fate: str):
    bench = Bench(contract(), landscape=lambda _: fate)
    found = bench.searched().standing
    assert (found.phase, found.tuned, found.counted) == ("done", None, 8)
    assert [each.fault.code.value for each in found.invalid if each.fault] == 8 * [
        {"never_healthy": "not_serving"}.get(fate, fate)
    ]
    bar = bench.arm().bar(bench.sealed, "local")
    assert bar is not None
    assert bar.options == bench.sealed.service.baseline.options
    assert bar.search == found.evidence


def test_a_search_on_a_machine_that_is_too_busy_finds_nothing_and_is_not_done():
    bench = Bench(contract(), landscape=lambda _: "client_saturated")
    with pytest.raises(InfrastructureError, match="measured nothing"):
        bench.searched()
    bar = bench.arm().bar(bench.sealed, "local")
    assert bar is not None
    assert bar.search is None


def test_the_fastest_that_is_broken_loses_to_default():
    found = Bench(contract(trials=14), landscape=fast_and_broken).searched().standing
    assert (found.phase, found.tuned) == ("done", None)


def test_a_configuration_that_fails_when_it_is_confirmed_is_no_bar():
    starts = iter(range(99))

    def later_broken(settings: Settings) -> float | str:
        is_late = next(starts) >= 14
        return ("unfaithful" if is_late else 3.0) if settings.get("max_batch") == 16 else 1.0

    found = Bench(contract(trials=14, finalists=1), landscape=later_broken).searched().standing
    assert (found.phase, found.tuned) == ("done", None)


class Spoilt:
    """One of the two best is spoilt by a busy machine in the first `jobs` that confirm it."""

    def __init__(self, jobs: int) -> None:
        self._left, self._is_explored = jobs, False

    def __call__(self, settings: Settings) -> float | str:
        if settings != {"max_batch": 16, "dtype": "float32"}:
            return hill(settings) if settings.get("max_batch") != 16 else 1.5
        if self._is_explored and self._left:
            self._left -= 1
            return "client_saturated"
        self._is_explored = True
        return 2.0


def test_a_finalist_that_noise_spoilt_is_confirmed_again_alone_before_the_bar_is_known():
    bench = Bench(contract(trials=14), landscape=Spoilt(1))
    found = bench.searched().standing
    assert found.tuned is not None
    assert found.tuned.settings == {"max_batch": 16, "dtype": "float32"}
    confirming = [each for each in bench.rounds if each.stage == "confirm"]
    assert [len(each.proposals) for each in confirming] == [2, 1]
    assert [each.counts for each in found.confirmed] == [True, True]


def test_while_a_finalist_cannot_be_measured_a_search_is_not_done_and_the_bar_not_tuned():
    bench = Bench(contract(trials=14), landscape=Spoilt(99))
    with pytest.raises(InfrastructureError, match="measured nothing"):
        bench.searched()
    found = bench.arm().standing(bench.sealed, "local")
    assert (found.phase, found.tuned) == ("confirm", None)
    bar = bench.arm().bar(bench.sealed, "local")
    assert bar is not None
    assert bar.search is None


def test_noise_that_widens_the_interval_of_the_best_leaves_no_weaker_bar():
    """Better when explored and again when confirmed; by how much, three starts cannot tell."""
    bench = Bench(contract(trials=14), landscape=hill)
    bench.swing = lambda restart: (0.4, 2.0, 1.0)[restart]
    found = bench.searched().standing
    assert found.tuned is not None
    assert found.tuned.low < 1 < found.tuned.high
    bar = bench.arm().bar(bench.sealed, "local")
    assert bar is not None
    assert bar.options["max_batch"] == 16


def test_the_bar_has_the_tuned_options_and_names_their_evidence():
    bench = Bench(contract(trials=14))
    before = bench.arm().bar(bench.sealed, "local")
    assert before is not None
    assert before.search is None
    found = bench.searched().standing
    bar = bench.arm().bar(bench.sealed, "local")
    assert bar is not None
    assert bar.options["max_batch"] == 16
    assert bar.search == found.evidence


def test_no_configuration_is_tried_twice_and_the_trials_are_kept_to():
    bench = Bench(contract(trials=11))
    bench.searched()
    tried = [str(sorted(each.items())) for each in bench.tried()]
    assert len(tried) == len(set(tried)) == 11


def test_a_small_space_is_tried_whole_and_then_left():
    bench = Bench(contract(trials=500))
    assert bench.searched().standing.counted == 14
    assert len(bench.tried()) == 14


def test_a_new_server_goes_on_where_the_record_ends():
    whole, killed = Bench(contract(trials=14)), Bench(contract(trials=14), hangs=frozenset({2}))
    whole.searched()
    report = killed.searched()
    assert report.job is not None
    assert not report.job.status.is_final
    again = killed.searched()  # another process: the job that runs is followed, none is started
    assert again.job is not None
    assert again.job.job_id == report.job.job_id == "2"
    killed.hangs = frozenset()
    assert killed.searched().standing.phase == "done"
    assert killed.tried() == whole.tried()


def test_a_job_that_died_is_not_counted_and_its_configurations_are_tried_again():
    bench = Bench(contract(trials=14), dies=frozenset({1}))
    report = bench.searched()
    assert report.job is not None
    assert report.job.status.is_final
    assert report.standing.counted == 3
    found = bench.searched().standing
    assert (found.phase, found.counted) == ("done", 14)
    lost = bench.rounds[1].proposals
    assert all(each.settings in [dict(s) for s in bench.tried()] for each in lost)


def test_the_benchs_own_failures_are_not_counted_and_stop_the_search_until_it_is_mended():
    bench = Bench(contract(wall_s=25.0), landscape=lambda _: "infrastructure")
    with pytest.raises(InfrastructureError, match="measured nothing: c4 on the candidate"):
        bench.searched()
    assert len(bench.rounds) == 3
    found = bench.arm().standing(bench.sealed, "local")
    assert (found.phase, found.counted, found.seconds) == ("explore", 0, 0)
    bench.landscape = hill
    found = bench.searched().standing
    assert found.phase == "done"
    assert found.counted > 0


def test_when_its_time_is_up_a_search_confirms_what_it_has():
    bench = Bench(contract(trials=500, wall_s=25.0))
    found = bench.searched().standing
    explored = [each for each in bench.rounds if each.stage == "explore"]
    assert found.phase == "done"
    assert len(explored) == 3
    assert [each.until_s for each in explored] == [25.0, 15.0, 5.0]


def test_where_all_that_may_be_tried_can_be_finalists_they_are_measured_at_once():
    bench = Bench(contract(trials=2, finalists=2))
    found = bench.searched().standing
    assert found.phase == "done"
    assert [(each.stage, len(each.proposals), each.restarts) for each in bench.rounds] == [
        ("confirm", 2, 3)
    ]


def test_another_campaigns_seal_starts_a_search_anew():
    bench = Bench(contract())
    bench.searched()
    other = bench.sealed.model_copy(update={"digest": "d" * 64})
    assert bench.arm().standing(other, "local").counted == 0
    assert bench.arm().standing(bench.sealed, "elsewhere").counted == 0


def test_a_contract_without_a_search_has_no_bar_and_is_named():
    sealed = contract()
    plain = sealed.service.model_copy(update={"search": None})
    bench = Bench(sealed.model_copy(update={"contract": plain}))
    assert bench.arm().bar(bench.sealed, "local") is None
    with pytest.raises(NotFound, match="say which contract"):
        bench.searched()
    with pytest.raises(UsageError, match="no section `search`"):
        bench.arm().standing(bench.sealed, "local")


def test_the_status_says_how_search_stands_and_where_a_candidate_is_below_it():
    bench = Bench(contract(trials=14))
    files = CampaignFiles.model_construct(
        campaign=SimpleNamespace(target="local"), contracts={"completions": bench.sealed}
    )

    def says(evidence: str | None) -> SearchStanding:
        found = bench.arm().told(files)("completions", evidence)
        assert found is not None
        return found

    assert not says(None).done
    assert "has not run" in says(None).told
    bench.searched()
    assert says(None).done
    assert "tuned 2" in says(None).told
    bench.ended |= {
        "faster": case(asked=1.0).evidence,
        "slower": case([load_facts("baseline", 0), load_facts("candidate", 0, speed=1.5)]).evidence,
    }
    assert says("faster").below == ()
    assert [each.partition(" ")[0] for each in says("slower").below] == ["output_tokens_per_s"]
    assert bench.arm().told(files)("rms_norm", None) is None


def test_no_tool_takes_a_request_key_that_the_search_itself_uses():
    bench = Bench(contract(trials=2, finalists=2))
    bench.searched()
    given = TypeAdapter(RequestKey)
    assert given.validate_python("search.completions-local_3") == "search.completions-local_3"
    for key in [*bench.keys, own_key("search"), own_key()]:
        with pytest.raises(ValidationError):
            given.validate_python(key)


def test_two_servers_that_go_on_at_the_same_time_start_one_job():
    bench = Bench(contract(trials=14), hangs=frozenset({0}))
    first = bench.searched()
    bench.hides = True  # the other server read the record before the first wrote to it
    second = bench.searched()
    assert first.job is not None
    assert second.job is not None
    assert first.job.job_id == second.job.job_id
    assert len(bench.rounds) == 1
