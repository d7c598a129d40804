"""The mutants on live servers: `python tests/adversarial/mutants.py MODEL` measures them all.

One server holds a model and answers with the fault that a request names as its model. What is
asked and how it is judged is the shipped contract's, with bits that nobody knew before.
"""

import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import yaml
from pydantic import TypeAdapter

import inferproof.demo
from inferproof.campaign.contracts import load_contract
from inferproof.core.serving_facts import TokenScores
from inferproof.core.values import Value
from inferproof.gates.fidelity import Finding, find_faults
from inferproof_remote.serving.client import Client
from inferproof_remote.serving.faults import FAULTS, HARMLESS
from inferproof_remote.serving.fidelity import Question, examine, probe_engine
from inferproof_remote.serving.prompts import Rules
from inferproof_remote.serving.reference import Yardsticks, context_tokens, load_yardsticks

ROOT = Path(__file__).parents[2]
DENSE = Path(inferproof.demo.__file__).parent / "model"
SERVICE = ROOT / "contracts" / "services" / "completions"
FIDELITY = load_contract(SERVICE).service.fidelity
ENGINE = Path(__file__).parent / "engines" / "faulty_engine.py"
LIST = Path(__file__).parent / "engines" / "mutants.yaml"


class Listed(Value):
    """What is written down of one model before fresh prompts are drawn.

    `must_detect` names the faults that the gate has to refuse; `invisible` those that it need not,
    each with the evidence; `harmless` what is none and must pass.
    """

    must_detect: tuple[str, ...]
    invisible: Mapping[str, str]
    harmless: tuple[str, ...]


def load_list() -> Mapping[str, Listed]:
    """Return what is written down, by model: `dense` and `experts`."""
    table: object = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    return TypeAdapter(Mapping[str, Listed]).validate_python(table)


@dataclass(frozen=True, slots=True)
class Bench:
    """A live server of one model, and the reference that reads its answers."""

    model: Path
    client: Client
    yardsticks: Yardsticks

    def scores(self, name: str = "plain") -> list[TokenScores]:
        """Return what the server says on fresh prompts with the fault of that name."""
        client, question = replace(self.client, model=name), self._question()
        features = probe_engine(client, question, self.yardsticks)
        found = examine(client, features, question, self.yardsticks)
        return [TokenScores.model_validate(each) for each in found.scores()]

    def findings(self, name: str = "plain") -> list[Finding]:
        """Return what the gate says against it."""
        return find_faults(self.scores(name), FIDELITY)

    def _question(self) -> Question:
        rules = Rules(
            tokens=FIDELITY.tokens,
            lengths=FIDELITY.lengths,
            decode_tokens=FIDELITY.decode_tokens,
            batch=FIDELITY.batch,
            top_logprobs=FIDELITY.top_logprobs,
            tie_nats=FIDELITY.tie_nats,
            p99_over_floor=FIDELITY.p99_over_floor,
            max_over_floor=FIDELITY.max_over_floor,
            context=context_tokens(self.model),
        )
        corpus = (SERVICE / FIDELITY.corpus).read_text(encoding="utf-8")
        return Question(rules=rules, corpus=corpus, bits=os.urandom(32))


@contextmanager
def serving(model: Path, dtype: str = "float32") -> Generator[Bench]:
    """Yield a bench whose server is a process of its own."""
    command = [sys.executable, str(ENGINE), "--model", str(model), "--port", "0", "--dtype", dtype]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout
        try:
            port = process.stdout.readline().split()[1]
            yield Bench(
                model, Client(f"http://127.0.0.1:{port}"), load_yardsticks(model, "none", 1)
            )
        finally:
            process.kill()


def over_floor(scores: list[TokenScores]) -> str:
    """Return the largest mean KL of a path, in multiples of its floor, as a reader writes it."""
    ratios = {
        table.path: fmean(table.kl) / max(fmean(table.floor_kl), 1e-9)
        for table in scores
        if table.kl
    }
    path = max(ratios, key=ratios.__getitem__)
    return f"KL {ratios[path]:.2g} x floor on {path}"


def main() -> None:
    """Print one line for each fault: how far it is from the reference, and what is said of it."""
    phased = ("decode.second_best", "decode.kv_slot_each_block", "batch.kv_slot_each_block")
    names = [*FAULTS, *HARMLESS, *phased, "reuse.kv_slot_each_block", "decode.logits_scaled"]
    with serving(Path(sys.argv[1]).resolve()) as bench:
        for name in ("plain", *(sys.argv[2:] or names)):
            scores = bench.scores(name)
            found = find_faults(scores, FIDELITY)
            said = f"{found[0].code.value} on {found[0].where}" if found else "nothing"
            print(f"{name}: {over_floor(scores)}; {said}", flush=True)


if __name__ == "__main__":
    main()
