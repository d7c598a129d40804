"""The reference at work in one job: what it asks, what it reads, what it makes of a load run."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

from inferproof_remote import job
from inferproof_remote.sent import CHECKED
from inferproof_remote.serving.audit import audit, completed, draws
from inferproof_remote.serving.client import Client
from inferproof_remote.serving.conformance import Asking, measure
from inferproof_remote.serving.deployment import Arm
from inferproof_remote.serving.features import Features
from inferproof_remote.serving.fidelity import Question, examine, probe_engine
from inferproof_remote.serving.known import Oracle
from inferproof_remote.serving.load import GivenUp, LoadOrder, OnProgress, run_load
from inferproof_remote.serving.mutants import mutant_scores
from inferproof_remote.serving.prompts import Rules, Windows
from inferproof_remote.serving.quality import Comparison, Sizes
from inferproof_remote.serving.quantised import Quantisation
from inferproof_remote.serving.reference import (
    context_tokens,
    load_yardsticks,
    model_digest,
)
from inferproof_remote.serving.sampling import Sampled, settings_of
from inferproof_remote.serving.tasks import Asker
from inferproof_remote.serving.tasks import load as load_tasks
from inferproof_remote.serving.tasks import run as run_tasks
from inferproof_remote.stream import Stream

if TYPE_CHECKING:
    from inferproof_remote.serving.serve import Facts, Order, Table


class Examiner:
    """Holds the reference model; everything it asks follows from `bits`."""

    def __init__(self, order: "Order", bits: bytes) -> None:
        self.bits = bits
        self.model_digest = model_digest(order.model)
        self._order = order
        self._comparisons: list[Comparison] = []
        self._sampled: list[Facts] = []
        fidelity = order.rules("fidelity")
        manifest = job.as_table(order.spec["manifest"], "manifest")
        corpus = order.job_dir / CHECKED / "contract" / str(fidelity["corpus"])
        self.quantisation: Quantisation = cast("Quantisation", manifest["quantisation"])
        self._question = Question(
            rules=_rules(fidelity, order.model),
            corpus=corpus.read_text(encoding="utf-8"),
            bits=bits,
        )
        self._yardsticks = load_yardsticks(
            order.model,
            self.quantisation,
            order.place("baseline").threads,
        )

    def features(self, client: Client) -> Features:
        """Return what the engine's answers show."""
        return probe_engine(client, self._question, self._yardsticks)

    def examine(self, client: Client, features: Features, arm: Arm, restart: int) -> "Facts":
        """Return how far the engine is from the reference, as `FidelityFacts`."""
        found = examine(client, features, self._question, self._yardsticks)
        return {"arm": arm, "restart": restart, **found.as_facts()}

    def sample(self, client: Client, features: Features) -> None:
        """See what the engine draws at each setting of the contract."""
        rules = self._order.rules("sampler")
        sampled = Sampled(
            engine=client,
            features=features,
            windows=Windows(self._question.corpus, self._yardsticks.vocabulary),
            yardsticks=self._yardsticks,
            stream=Stream(self.bits, "sampler"),
            tie_nats=self._question.rules.tie_nats,
        )
        tokens = int(job.as_number(rules["tokens"], "tokens"))
        for written, setting in settings_of(rules):
            self._sampled.append({"setting": written, **sampled.measure(setting, tokens)})

    def compare(self, client: Client, features: Features, arm: Arm, restart: int) -> None:
        """Ask an arm what the quality of its output is judged by."""
        self._comparison().add(arm, restart, client, features)

    def told(self) -> "Facts":
        """Return what was found beside fidelity, in the form of a part of `ServeFacts`."""
        baseline = job.as_table(self._order.contract["baseline"], "baseline")
        declared = {"candidate": self.quantisation, "baseline": baseline["quantisation"]}
        quality = [each.facts(declared) for each in self._comparisons]
        return {
            "quantisation": self.quantisation,
            "sampler": self._sampled,
            "quality": quality[0] if quality else None,
        }

    def _comparison(self) -> Comparison:
        """Return what both arms are compared by, made when the first is asked."""
        if not self._comparisons:
            original = self._yardsticks
            if self.quantisation != "none":
                threads = self._order.place("baseline").threads
                original = load_yardsticks(self._order.model, "none", threads)
            sizes = Sizes.of(self._order.rules("quality"))
            self._comparisons.append(Comparison(self._question, original, sizes))
        return self._comparisons[0]

    def conformance(self, client: Client, features: Features, arm: Arm, restart: int) -> "Facts":
        """Return how the engine speaks the API, as `ConformanceFacts`."""
        order, vocabulary = self._order, self._yardsticks.vocabulary
        limits = job.as_table(order.spec["limits"], "limits")
        oracle = Oracle(
            self._yardsticks,
            Windows(self._question.corpus, vocabulary),
            Stream(self.bits, f"conformance {arm} {restart}"),
        )
        asking = Asking(
            model=order.model,
            context=self._question.rules.context,
            connections=int(job.as_number(order.rules("conformance")["connections"], "count")),
            answer_s=job.as_number(limits["call_s"], "call_s"),
        )
        found = measure(client, features, oracle, asking)
        return {"arm": arm, "restart": restart, **found}

    def tasks(self, client: Client, features: Features, arm: Arm) -> "Facts":
        """Return how the engine answers the contract's tasks, the same for both arms."""
        order, vocabulary = self._order, self._yardsticks.vocabulary
        rules = order.rules("tasks")
        text = order.sealed(str(rules["file"])).read_text(encoding="utf-8")
        asked = load_tasks(text, Windows(self._question.corpus, vocabulary), vocabulary, self.bits)
        asker = Asker(client=client, features=features, vocabulary=vocabulary)
        at_once = int(job.as_number(rules["at_once"], "at_once"))
        return {"arm": arm, "restart": 0, **run_tasks(asker, asked, at_once=at_once)}

    def mutants(self) -> "list[Facts]":
        """Return the contract's mutants, examined like engines."""
        names = job.as_texts(self._order.rules("fidelity")["mutants"], "mutants")
        found = mutant_scores(
            names, self._order.model, self._question, self._yardsticks, self.quantisation
        )
        return [dict(each) for each in cast("list[Facts]", found)]

    def load(
        self,
        client: Client,
        features: Features,
        shape: "Table",
        *,
        arm: Arm,
        restart: int,
        on_progress: OnProgress,
        given_up: GivenUp,
    ) -> "Facts":
        """Return one load run as `LoadFacts`; both arms of a round get the same new prompts."""
        order, rules = self._order, self._order.rules("audit")
        run = run_load(
            LoadOrder(
                work=order.job_dir / "work" / f"load-{arm}-{restart}-{shape['name']}",
                endpoint=client.endpoint,
                model_name=client.model,
                tokenizer=order.model,
                aiperf=order.tool("aiperf"),
                arm=arm,
                restart=restart,
                shape=shape,
                corpus=self._question.corpus,
                bits=self.bits,
                on_progress=on_progress,
                given_up=given_up,
                completed=lambda response: completed(response, self._yardsticks, rules),
                leaves_out=client.leaves_out,
                sealed=order.job_dir / CHECKED / "contract",
            ),
            self._yardsticks.vocabulary,
        )
        name = f"{arm} {restart} {shape['name']}"
        drawn = Stream(self.bits, f"audit {name}")
        told = audit(run.responses, self._yardsticks, rules, drawn)
        if arm == "candidate" and not given_up():
            told |= draws(client, features, self._question, self._yardsticks, f"draws {name}")
        return {**run.facts, "audit": told}


def _rules(fidelity: "Table", model: Path) -> Rules:
    lengths = cast("list[int]", fidelity["lengths"])
    return Rules(
        tokens=int(job.as_number(fidelity["tokens"], "tokens")),
        lengths=tuple(lengths),
        decode_tokens=int(job.as_number(fidelity["decode_tokens"], "decode_tokens")),
        batch=int(job.as_number(fidelity["batch"], "batch")),
        top_logprobs=int(job.as_number(fidelity["top_logprobs"], "top_logprobs")),
        tie_nats=job.as_number(fidelity["tie_nats"], "tie_nats"),
        p99_over_floor=job.as_number(fidelity["p99_over_floor"], "p99_over_floor"),
        max_over_floor=job.as_number(fidelity["max_over_floor"], "max_over_floor"),
        context=context_tokens(model),
    )
