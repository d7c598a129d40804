"""The few facts of one round of search: what each configuration did, good or not."""

import json
from collections.abc import Iterable
from statistics import fmean, median

from inferproof.core.search_facts import SearchFacts, TrialFacts
from inferproof.core.serving_facts import LoadFacts
from inferproof.tools.results import Fact, clip

_LOG_CHARACTERS = 400


def search_facts(search: SearchFacts) -> Iterable[Fact]:
    """Yield how each configuration started, how far it is from the reference, how it served."""
    yield Fact(name="separation", value=f"{search.separation} ({search.sandbox})")
    yield Fact(name="seconds measured", value=round(search.seconds, 1), unit="s")
    for trial in search.trials:
        yield from _trial_facts(trial)


def _trial_facts(trial: TrialFacts) -> Iterable[Fact]:
    settings = ", ".join(f"{name}={value}" for name, value in trial.options.items())
    where = f"trial {trial.number} ({settings})" if trial.number else "the contract's own options"
    for start in trial.deployments:
        if start.ready_s is None or start.incidents:
            codes = ", ".join(incident.code.value for incident in start.incidents) or "not ready"
            said = json.dumps(clip(start.log_tail[-_LOG_CHARACTERS:], _LOG_CHARACTERS))
            yield Fact(name=f"{where}, start {start.restart + 1}", value=f"{codes}; printed {said}")
    for fidelity in trial.fidelity:
        tables = [table for table in fidelity.scores if table.kl]
        for table in tables:
            told = f"{fmean(table.kl):.3g}, floor {fmean(table.floor_kl):.3g}"
            yield Fact(name=f"KL {table.path}, {where}", value=told, unit="nats, mean")
    for run in trial.loads:
        yield Fact(name=f"{run.traffic}, start {run.restart + 1}, {where}", value=_figures(run))


def _figures(run: LoadFacts) -> str:
    if not run.completed:
        return f"0 of {run.asked} requests completed"
    return (
        f"TTFT {median(run.ttft_ms):.4g} ms, TPOT {median(run.tpot_ms):.4g} ms, "
        f"{run.output_tokens_per_s or 0:.4g} tokens/s; {run.completed} of {run.asked} requests"
    )
