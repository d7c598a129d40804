"""How far an engine is from the reference model, over every path that its users take.

The engine is asked first, in a drawn order; the reference reads everything afterwards. An answer
that lacks what the probe saw is counted, never skipped in silence: an engine must not be able to
drop its bad rows.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from inferproof_remote.serving.client import (
    Answer,
    Completion,
    Engine,
    NoAnswer,
    Request,
)
from inferproof_remote.serving.features import Features, goes_on, probe
from inferproof_remote.serving.paths import (
    MOST_SPLIT,
    again_in_prefixes,
    again_whole,
    as_split,
    mixed,
)
from inferproof_remote.serving.prompts import (
    Ids,
    Plan,
    Prompt,
    Rules,
    ScoredPath,
    Step,
    Windows,
    make_plan,
    text_of,
)
from inferproof_remote.serving.reference import Yardsticks
from inferproof_remote.serving.rows import Row, TokenRef
from inferproof_remote.serving.scoring import (
    Json,
    PathTable,
    Reading,
    Transcript,
    score,
    tie_gap_nats,
)
from inferproof_remote.serving.second_look import look_again
from inferproof_remote.serving.spelling import spells
from inferproof_remote.serving.transcribing import read_text
from inferproof_remote.serving.vocabulary import Vocabulary
from inferproof_remote.stream import Stream

_PROBE_TOKENS = 12
_END_WINDOWS, _END_TOKENS, _SURE = 12, 128, 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of every engine of one job: the rules, the corpus, the bits."""

    rules: Rules
    corpus: str
    bits: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """The outcome: sequence lengths, one table for each path, and how long it took."""

    lengths: list[int]
    tables: tuple[PathTable, ...]
    transcripts: tuple[Transcript, ...]
    seconds: float

    @classmethod
    def of(
        cls,
        plan: Plan,
        tables: Mapping[ScoredPath, PathTable],
        transcripts: Sequence[Transcript],
        yardsticks: Yardsticks,
        *,
        began_s: float,
        looks_again: Rules | None = None,
    ) -> "Examination":
        """Return what was answered, read by the reference; twice where that is asked."""
        scored = score(tables, transcripts, yardsticks)
        if looks_again:
            look_again(scored, looks_again, yardsticks)
        return cls(
            lengths=plan.lengths,
            tables=tuple(tables.values()),
            transcripts=tuple(transcripts),
            seconds=time.monotonic() - began_s,
        )

    def as_facts(self) -> dict[str, object]:
        """Return what is recorded, but for whose it is."""
        return {"lengths": self.lengths, "scores": self.scores(), "seconds": self.seconds}

    def scores(self) -> list[Json]:
        """Return the tables as they are recorded."""
        return [table.as_facts() for table in self.tables]


def probe_engine(engine: Engine, question: Question, yardsticks: Yardsticks) -> Features:
    """Return what `engine` shows on a drawn window; it is asked no more than a few tokens."""
    windows = Windows(question.corpus, yardsticks.vocabulary)
    ids = windows.draw(Stream(question.bits, "probe"), _PROBE_TOKENS)
    text = text_of(ids, yardsticks.vocabulary)
    found = probe(engine, ids, text, logprobs=question.rules.top_logprobs)
    at_end = _that_ends(windows, Stream(question.bits, "probe of ends"), yardsticks)
    if at_end is None or not found.ignore_eos:
        return found
    asked = at_end if found.id_prompts else text_of(at_end, yardsticks.vocabulary)
    return replace(found, ignore_eos=goes_on(engine, asked))


def _that_ends(windows: Windows, stream: Stream, yardsticks: Yardsticks) -> Ids | None:
    """Return a prompt after which the model ends its text at once; None where none is found."""
    ends = list(yardsticks.vocabulary.ends)
    for _ in range(_END_WINDOWS if ends else 0):
        ids = windows.draw(stream, min(_END_TOKENS, windows.longest))
        chances = yardsticks.truth.logprobs(ids)[:, ends].exp().sum(-1)
        prompts = (ids[:at] for at, each in enumerate(chances, 1) if float(each) > _SURE)
        found = next(filter(windows.are_readable, prompts), None)
        if found is not None:
            return found
    return None


def examine(
    engine: Engine, features: Features, question: Question, yardsticks: Yardsticks
) -> Examination:
    """Return how far `engine` is from the reference on what the bits ask."""
    began_s = time.monotonic()
    windows = Windows(question.corpus, yardsticks.vocabulary)
    scores_prompts = bool(features.prompt_scores)
    plan = make_plan(question.bits, question.rules, windows, scores_prompts=scores_prompts)
    amid = mixed(question.bits, question.rules, windows, first_number=len(plan.lengths))
    plan = Plan(steps=(*plan.steps, amid))
    asking = Asker(engine, features, question.rules, yardsticks)
    tables, transcripts = ask_all(asking, plan)
    transcripts += _ask_again(asking, question.bits, tables, transcripts)
    rules = question.rules
    return Examination.of(plan, tables, transcripts, yardsticks, began_s=began_s, looks_again=rules)


def ask_all(asking: "Asker", plan: Plan) -> tuple[dict[ScoredPath, PathTable], list[Transcript]]:
    """Return the tables of every path, with what is missing counted, and what was said."""
    tables: dict[ScoredPath, PathTable] = {}
    transcripts: list[Transcript] = []
    for step in plan.steps:
        table = tables.setdefault(step.path, PathTable(step.path))
        for prompt, answer in asking.answers(step):
            transcripts += asking.read(step.path, prompt, answer, table)
    return tables, transcripts


def _ask_again(
    asking: "Asker",
    bits: bytes,
    tables: dict[ScoredPath, PathTable],
    transcripts: Sequence[Transcript],
) -> Iterator[Transcript]:
    """Yield what the engine says of decoded tokens that it gets as a prompt, where it takes ids."""
    decoded = [each for each in transcripts if each.path == "decode" and each.readings]
    if not asking.features.id_prompts:
        return
    for told in decoded[:MOST_SPLIT]:
        table = tables.setdefault("split", PathTable("split"))
        if asking.features.prompt_scores and asking.features.logprobs:
            yield from asking.again(told, [again_whole(told)], table)
        else:
            yield from asking.again(told, again_in_prefixes(told, bits), table)


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks one engine, and reads what it says of each token."""

    engine: Engine
    features: Features
    rules: Rules
    yardsticks: Yardsticks

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's vocabulary."""
        return self.yardsticks.vocabulary

    def answers(self, step: Step) -> Iterator[tuple[Prompt, Answer]]:
        """Yield the scored prompts of `step` with their answers."""
        requests = [self._request(step.path, each) for each in step.prompts]
        if step.path == "mixed":
            answers = self.engine.complete_amid(requests[:-1], requests[-1])
        elif step.path in ("batch", "beyond"):
            answers = self.engine.complete_together(requests)
        else:
            answers = [self.engine.complete(each) for each in requests]
        unscored = len(step.prompts) - len(step.scored)
        yield from zip(step.scored, answers[unscored:], strict=True)

    def read(
        self, path: ScoredPath, prompt: Prompt, answer: Answer, table: PathTable
    ) -> list[Transcript]:
        """Return what `answer` says of its tokens; `table` counts what it does not say."""
        expected = len(prompt.ids) - 1 if path == "prompt" else prompt.output_tokens
        table.asked += expected
        if isinstance(answer, NoAnswer):
            table.unanswered += expected
            return []
        if not isinstance(answer, Completion):
            table.unreadable += expected
            return []
        if path == "prompt":
            ids, readings = prompt.ids, self._given(prompt.ids, answer, table)
        else:
            ids, readings = self._chosen(prompt, answer, table)
        return [Transcript(path=path, number=prompt.number, ids=ids, readings=tuple(readings))]

    def again(
        self, told: Transcript, prompts: Iterable[Prompt], table: PathTable
    ) -> Iterator[Transcript]:
        """Yield what the engine says of positions of `told` when they are asked in `prompts`."""
        for prompt in prompts:
            path: ScoredPath = "prefix" if prompt.output_tokens else "prompt"
            seen = PathTable("split")
            answer = self.engine.complete(self._request(path, prompt))
            for found in self.read(path, prompt, answer, seen):
                split = as_split(told, found.ids, found.readings)
                table.asked += len(split.readings)
                yield split
            table.unreadable += seen.unreadable
            table.unanswered += seen.unanswered

    def _request(self, path: ScoredPath, prompt: Prompt) -> Request:
        sent = prompt.sent
        as_ids = self.features.id_prompts
        return Request(
            prompt=sent if as_ids else text_of(sent, self.vocabulary),
            max_tokens=prompt.output_tokens or 1,
            logprobs=self.rules.top_logprobs if self._lists else None,
            prompt_scores=self.features.prompt_scores if path == "prompt" else "",
            ignore_eos=not prompt.may_end,
        )

    @property
    def _lists(self) -> bool:
        return self.features.logprobs or bool(self.features.prompt_scores)

    def _given(self, ids: Ids, answer: Completion, table: PathTable) -> Iterator[Reading]:
        """Yield readings of the prompt's own tokens."""
        rows: Sequence[Row | None] = answer.prompt_rows or ()
        for position in range(1, len(ids)):
            row = rows[position] if position < len(rows) else None
            listed = self._resolved(row.listed) if row else {}
            own = row.logprob if row and row.logprob is not None else listed.get(ids[position])
            if row is None or own is None or not self._is_whole(row):
                table.unreadable += 1
            else:
                lost = len(row.listed) - len(listed)
                listed[ids[position]] = own
                yield Reading(position=position, listed=listed, chosen=False, nll=-own, lost=lost)

    def _chosen(
        self, prompt: Prompt, answer: Completion, table: PathTable
    ) -> tuple[Ids, list[Reading]]:
        """Return the sequence with the engine's tokens, and readings of those."""
        start = len(prompt.sent)
        output = self._output_ids(prompt.sent, answer)[: prompt.output_tokens]
        readings: list[Reading] = []
        if not self._is_told_truly(answer) or not self._ends_truly(prompt, output, answer):
            table.unreadable += prompt.output_tokens
            return (*prompt.sent, *output), readings
        if self._may_end(prompt) and answer.finish_reason == "stop":
            table.asked -= prompt.output_tokens - len(output)
        for index, token in enumerate(output):
            if not self.features.logprobs:
                readings.append(Reading(position=start + index, listed=None, chosen=True))
                continue
            row = answer.rows[index] if answer.rows and index < len(answer.rows) else None
            listed = self._resolved(row.listed) if row else {}
            if row is None or row.logprob is None or not self._is_whole(row):
                table.unreadable += 1
            else:
                lost = len(row.listed) - len(listed)
                listed[token] = row.logprob
                at = start + index
                readings.append(Reading(position=at, listed=listed, chosen=True, lost=lost))
        return (*prompt.sent, *output), readings

    def _output_ids(self, sent: Ids, answer: Completion) -> Ids:
        """Return the ids that the engine generated: as told, or read where that is not certain."""
        certain, is_all = self._told(answer)
        if certain and is_all:
            return certain
        count, tie_nats = answer.completion_tokens, self.rules.tie_nats
        read = read_text(answer.text, count, sent, self.yardsticks, tie_nats).ids
        return read if read[: len(certain)] == certain else certain

    def _told(self, answer: Completion) -> tuple[Ids, bool]:
        """Return the ids that the engine told, up to the first that is not certain; if it's all."""
        told: Sequence[TokenRef | None] = answer.token_ids or ()
        if not told and answer.rows:
            told = [row.token for row in answer.rows]
        ids = [self.vocabulary.id_of(each) for each in told]
        certain = ids[: ids.index(None)] if None in ids else ids
        return tuple(each for each in certain if each is not None), len(certain) == len(ids)

    def _is_told_truly(self, answer: Completion) -> bool:
        """Return whether the text is what the told tokens spell: users read the text."""
        ids, is_all = self._told(answer)
        return not ids or spells(ids, answer.text, self.vocabulary, is_all=is_all)

    def _ends_truly(self, prompt: Prompt, output: Ids, answer: Completion) -> bool:
        """Return whether the engine says why its text is over, and the model ends it there too."""
        ends, reason = tuple(self.vocabulary.invisible), answer.finish_reason
        is_end = bool(output) and output[-1] in ends
        if len(output) >= prompt.output_tokens:
            return reason == "length" or (reason == "stop" and is_end)
        if not self._may_end(prompt) or reason != "stop" or is_end:
            return True
        row = self.yardsticks.truth.logprobs((*prompt.sent, *output))[-1]
        return any(tie_gap_nats(row, each, ends) <= self.rules.tie_nats for each in ends)

    def _may_end(self, prompt: Prompt) -> bool:
        """Return whether a text may end where the model ends it: as asked, or for want of a way."""
        return prompt.may_end or not self.features.ignore_eos

    def _resolved(self, listed: Mapping[TokenRef, float]) -> dict[int, float]:
        """Return the list by ids; a token that is not certain falls into the rest."""
        named = ((self.vocabulary.id_of(ref), value) for ref, value in listed.items())
        return {each: value for each, value in named if each is not None}

    def _is_whole(self, row: Row) -> bool:
        """Return whether the engine lists about as many tokens as the probe saw.

        In a list by text, tokens that share a text are one.
        """
        return 2 * len(row.listed) >= max(2, self.features.listed)
