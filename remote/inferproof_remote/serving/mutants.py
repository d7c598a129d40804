"""The reference model with one known fault, examined like an engine: what arms the gate."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inferproof_remote.serving.client import Answer, Completion, Request, Row
from inferproof_remote.serving.faults import FAULTS, Switches, When
from inferproof_remote.serving.features import Features
from inferproof_remote.serving.fidelity import Question, examine
from inferproof_remote.serving.plain_model import PlainEngine, PlainModel
from inferproof_remote.serving.quantised import Quantisation
from inferproof_remote.serving.reference import Yardsticks
from inferproof_remote.serving.scoring import Json, top
from inferproof_remote.serving.vocabulary import Vocabulary

PHASES: tuple[When, ...] = ("always", "prefill", "decode", "batch", "reuse")


class UnknownMutant(Exception):
    """The contract names a mutant that nobody defines."""


@dataclass(frozen=True, slots=True)
class InProcess:
    """A plain model that answers without HTTP."""

    engine: PlainEngine
    vocabulary: Vocabulary

    def complete(self, request: Request) -> Answer:
        """Return the answer to one request."""
        return self._answer(request, in_flight=1)

    def complete_together(self, requests: Sequence[Request]) -> list[Answer]:
        """Return the answers of requests in flight together."""
        return [self._answer(each, in_flight=len(requests)) for each in requests]

    def complete_amid(self, running: Sequence[Request], late: Request) -> list[Answer]:
        """Return the answers of all; a model in this process has no prompts in chunks."""
        return self.complete_together([*running, late])

    def _answer(self, request: Request, in_flight: int) -> Answer:
        if isinstance(request.prompt, str):
            raise TypeError("a model in this process takes token ids")
        made = self.engine.generate(request.prompt, request.max_tokens, in_flight=in_flight)
        count = request.logprobs or 1
        rows = [
            Row(token, float(row[token]), {**top(row, count)})
            for token, row in zip(made.ids, made.logprobs, strict=True)
        ]
        given = zip(request.prompt[1:], made.prompt_logprobs, strict=True)
        prompt_rows = (
            Row(token, float(row[token]), {**top(row, count)})
            for token, row in given
            if request.prompt_scores
        )
        return Completion(
            text=self.vocabulary.decode(made.ids),
            finish_reason="length",
            token_ids=made.ids,
            rows=tuple(rows),
            prompt_rows=(None, *prompt_rows),
            prompt_tokens=len(request.prompt),
            completion_tokens=len(made.ids),
        )


def mutant_scores(
    names: Sequence[str],
    model_dir: Path,
    question: Question,
    yardsticks: Yardsticks,
    quantisation: Quantisation,
) -> list[Json]:
    """Return what was measured of each named mutant, of the weights that the yardsticks have.

    Raises:
        UnknownMutant: a name is of no known fault.
        UnknownModel: the model is of no kind that can be broken here.
    """
    model = PlainModel(model_dir, way=quantisation)
    features = Features(
        id_prompts=True,
        prompt_logprobs=True,
        logprobs=True,
        token_ids=True,
        listed=question.rules.top_logprobs,
    )
    found: list[Json] = []
    for name in names:
        switches, when = named_fault(name)
        engine = InProcess(PlainEngine(model, switches, when), yardsticks.vocabulary)
        scores = examine(engine, features, question, yardsticks).scores()
        found.append({"name": name, "scores": scores})
    return found


def named_fault(name: str) -> tuple[Switches, When]:
    """Return the fault `leak_one`, or `decode.leak_one` for one that shows in that phase only.

    Raises:
        UnknownMutant: there is no such fault or phase.
    """
    phase, _, fault = name.rpartition(".")
    for when in PHASES:
        if when == (phase or "always") and fault in FAULTS:
            return FAULTS[fault], when
    raise UnknownMutant(f"{name}; there are: {', '.join(FAULTS)}, each also as PHASE.NAME")
