"""The tool that tunes a contract's baseline by plain search."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from inferproof.tools.results import Fact, JobResult, clip, fitted, handle_of
from inferproof.tools.spec import Call, TargetName, Tool, Wait

if TYPE_CHECKING:  # it reads YAML, which the server does not need to start
    from inferproof.search.arm import SearchReport
    from inferproof.search.judging import Tried
    from inferproof.search.standing import Standing

_FAULTS = 12


async def search_config(
    call: Call,
    contract: Annotated[
        str,
        Field(
            pattern=r"^([a-z0-9][a-z0-9_.-]{0,63})?$",
            description="Name of a service contract with a section `search`. Empty (default): the "
            "campaign's only one.",
        ),
    ] = "",
    target: TargetName = "local",
    wait_s: Wait = 45.0,
) -> JobResult:
    """Tune the contract's baseline engine: plain search over its options finds the bar to beat.

    Optuna proposes configurations from the contract's space, jobs measure each beside the
    contract's own options on the same prompts, and the gates that judge candidates judge them: one
    that crashes, breaks the model or is not to be believed is never the best. Ratios over default
    with 95 % intervals. Call it again until it is done; it goes on from the record, whatever died.
    """
    report = await call.keeper.search.go_on(
        contract, target=target, wait_s=wait_s, on_progress=call.on_progress
    )
    return fitted(
        JobResult(
            summary=_summary(report),
            ok=report.job is None or not report.job.status.is_final,
            next_steps=_next_steps(report),
            facts=tuple(_facts(report.standing)),
            rows=tuple(_row(each) for each in (*report.standing.confirmed, *_best_first(report))),
            head=call.keeper.head(),
            job=None if report.job is None else handle_of(report.job),
            evidence=report.standing.evidence,
        )
    )


def _summary(report: "SearchReport") -> str:
    found, job = report.standing, report.job
    tried = (
        f"search of {found.contract}: {found.counted} of {found.asked} configurations tried, "
        f"{len(found.invalid)} of them invalid"
    )
    if job is not None and job.status.is_final:
        return f"{tried}; job {job.job_id} is {job.status.value}: {clip(job.failure, 300)}"
    if found.phase != "done":
        doing = "confirming the best" if found.phase == "confirm" else "exploring"
        return f"{tried}; {doing}"
    if found.tuned is None:
        return f"{tried}; done: none is proved better than the contract's own options"
    tuned = found.tuned
    return (
        f"{tried}; done: tuned is {tuned.score or 0:.3g}x default, 95 % interval {tuned.low:.3g} "
        f"to {tuned.high:.3g}: {_settings(tuned)}"
    )


def _next_steps(report: "SearchReport") -> tuple[str, ...]:
    job = report.job
    if job is not None and job.status.is_final:
        return (
            "call search_config again: what was measured stays, that job is not counted",
            "if it fails again: a person runs `inferproof doctor`",
        )
    if report.standing.phase != "done":
        return ("call search_config again until it is done",)
    return ("call run_aiperf with your candidate: the tuned baseline is the bar now",)


def _facts(found: "Standing") -> list[Fact]:
    facts = [
        Fact(name="seconds measured", value=round(found.seconds, 1), unit="s"),
        *(
            Fact(
                name=f"{gain.metric} {gain.traffic}",
                value=f"{gain.value:.4g}x ({gain.low:.4g} to {gain.high:.4g}); "
                f"{gain.figure:.4g} against {gain.default:.4g}",
                unit="tuned over default, 95 % interval, medians",
            )
            for gain in (found.tuned.gains if found.tuned else ())
        ),
    ]
    for each in found.invalid[:_FAULTS]:
        if each.fault is not None:
            said = clip(f"{each.fault.gate} {each.fault.code.value}: {each.fault.reason}", 200)
            facts.append(Fact(name=f"invalid {_settings(each)}", value=said))
    return facts


def _best_first(report: "SearchReport") -> "list[Tried]":
    return sorted(report.standing.explored, key=lambda each: -(each.score or 0.0))


def _row(each: "Tried") -> str:
    if each.fault is not None:
        return f"{each.stage} {_settings(each)}: {each.fault.code.value}"
    score = f"{each.stage} {_settings(each)}: {each.score or 0:.3g}x"
    is_interval = each.stage == "confirm"  # of one start there is none
    return f"{score} ({each.low:.3g} to {each.high:.3g})" if is_interval else score


def _settings(each: "Tried") -> str:
    return ", ".join(f"{name}={value}" for name, value in each.settings.items()) or "nothing set"


TOOL = Tool(
    function=search_config, title="Tune the baseline by search", read_only=False, idempotent=False
)
