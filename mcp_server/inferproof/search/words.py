"""What a campaign's status says of search; pure."""

from collections.abc import Iterator

from inferproof.campaign.status import SearchStanding
from inferproof.core.service import Metric, ServiceContract
from inferproof.core.serving_facts import ServeFacts
from inferproof.gates.ratios import ratio_of
from inferproof.search.judging import Tried
from inferproof.search.standing import Standing


def told(contract: ServiceContract, found: Standing, run: ServeFacts | None) -> SearchStanding:
    """Return how the search of a contract stands, and where a candidate's run is below it."""
    done = found.phase == "done"
    below = tuple(_below(contract, found, run)) if done and run is not None else ()
    return SearchStanding(done=done, told=_words(found), below=below)


def settings_of(each: Tried) -> str:
    """Return what a configuration sets, as a reader writes it."""
    return ", ".join(f"{name}={value}" for name, value in each.settings.items()) or "nothing set"


def _words(found: Standing) -> str:
    if found.evidence is None:
        return "plain search has not run: the bar of graded runs is not known"
    tried = f"{found.counted} of {found.asked} configurations"
    if found.phase != "done":
        return f"plain search is not done: {tried} tried"
    if found.tuned is None:
        return f"plain search: {tried}, none better than the contract's own options"
    best = found.tuned
    gain = f"{best.score or 0:.3g}x default, {best.low:.3g} to {best.high:.3g}"
    return f"plain search: tuned {gain} ({settings_of(best)})"


def _below(contract: ServiceContract, found: Standing, run: ServeFacts) -> Iterator[str]:
    """Yield the metrics on which a run is worse than the tuned baseline, by all of its restarts.

    A run beside the contract's own options is held against what the tuned ones gained over these
    under the same traffic.
    """
    is_tuned = run.bar is not None and run.bar.search is not None
    gains = found.tuned.gains if found.tuned else ()
    gained = {(gain.traffic, gain.metric): gain.value for gain in gains}
    metrics: dict[Metric, None] = dict.fromkeys(aim.metric for aim in contract.objectives)
    for traffic in dict.fromkeys(load.traffic for load in run.loads):
        for metric in metrics:
            bar = 1.0 if is_tuned else gained.get((traffic, metric), 1.0)
            ratio = ratio_of(run, traffic, metric)
            most = ratio.high if ratio.restarts > 1 else ratio.value
            if ratio.value > 0 and most < bar:
                yield f"{metric} on {traffic} {ratio.value / bar:.3g}x"
