"""The scored run itself, read by the reference: is this what the model says?

The run asks for greedy tokens, so each must lie close to the reference's best at its place. One
check covers replay, garbage, truncation, another model, and speculation that nobody verified.
Then a few streams are asked for at temperature 1, of which the run has none.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from inferproof_remote import job
from inferproof_remote.serving.client import Answer, Client, Completion, Request
from inferproof_remote.serving.features import Features
from inferproof_remote.serving.fidelity import Question
from inferproof_remote.serving.prompts import Windows, text_of
from inferproof_remote.serving.records import Response
from inferproof_remote.serving.reference import Yardsticks
from inferproof_remote.serving.scoring import floor_loss_nats, tie_gap_nats
from inferproof_remote.serving.spelling import told_ids
from inferproof_remote.serving.transcribing import read_text
from inferproof_remote.serving.vocabulary import Vocabulary
from inferproof_remote.stream import Stream

if TYPE_CHECKING:
    from torch import Tensor

_DRAWS, _DRAW_PROMPT, _DRAW_TOKENS = 4, 24, 40
_SEEDS = 1 << 31
_HOTTER = 0.75


def audit(
    responses: Sequence[Response],
    yardsticks: Yardsticks,
    rules: Mapping[str, object],
    stream: Stream,
) -> dict[str, object]:
    """Return what each greedy token of a drawn sample of `responses` loses, as `AuditFacts`."""
    began_s = time.monotonic()
    sample = stream.sample(responses, int(job.as_number(rules["responses"], "responses")))
    vocabulary = yardsticks.vocabulary
    prompts = [[*vocabulary.leading, *vocabulary.encode(each.prompt)] for each in sample]
    whole = [[*prompt, *each.ids] for prompt, each in zip(prompts, sample, strict=True)]
    unseen = tuple(vocabulary.invisible)
    found: list[float] = []
    trusted: list[float] = []
    both = zip(yardsticks.truth.many(whole), yardsticks.floor.many(whole), strict=True)
    for prompt, ids, (truths, floors) in zip(prompts, whole, both, strict=True):
        start = len(prompt)
        rows = zip(truths[start - 1 :], floors[start - 1 :], ids[start:], strict=False)
        for truth, floor, token in rows:
            found.append(tie_gap_nats(truth, token, unseen))
            trusted.append(floor_loss_nats(truth, floor, token, unseen))
    return {
        "responses": len(sample),
        "tokens": [len(each.ids) for each in sample],
        "tie_gap_nats": found,
        "floor_loss_nats": trusted,
        "seconds": time.monotonic() - began_s,
    }


def completed(response: Response, yardsticks: Yardsticks, rules: Mapping[str, object]) -> Response:
    """Return `response` with the tokens that its text was, if its engine did not tell them."""
    if response.is_told:
        return response
    vocabulary, tie_nats = yardsticks.vocabulary, job.as_number(rules["tie_nats"], "tie_nats")
    prompt = (*vocabulary.leading, *vocabulary.encode(response.prompt))
    reading = read_text(response.text, None, prompt, yardsticks, tie_nats)
    return replace(response, ids=(*reading.ids, *vocabulary.encode(reading.rest)))


def draws(
    client: Client, features: Features, question: Question, yardsticks: Yardsticks, name: str
) -> dict[str, object]:
    """Return the drawn part of `AuditFacts`: what came at temperature 1, and what did not come."""
    stream, vocabulary = Stream(question.bits, name), yardsticks.vocabulary
    windows = Windows(question.corpus, vocabulary)
    best: list[int] = []
    chance: list[float] = []
    noise: list[float] = []
    failed = 0
    for _ in range(_DRAWS):
        prompt = windows.draw(stream, _DRAW_PROMPT)
        asked = Request(
            prompt=prompt if features.id_prompts else text_of(prompt, vocabulary),
            max_tokens=_DRAW_TOKENS,
            temperature=1.0,
            seed=stream.below(_SEEDS),
        )
        answer = client.stream(asked)
        told, output = _drawn(answer, vocabulary)
        failed += not output or (told and features.ignore_eos and len(output) < _DRAW_TOKENS)
        if not output:
            continue
        rows = yardsticks.truth.logprobs([*prompt, *output])[len(prompt) - 1 : -1]
        likeliest = rows.max(-1)
        best += [int(a == b) for a, b in zip(map(int, likeliest.indices), output, strict=True)]
        chance += [min(1.0, float(each)) for each in likeliest.values.exp()]
        noise += noise_nats(rows, output, vocabulary.ends) if told else []
    return {
        "drawn_best": best,
        "drawn_best_chance": chance,
        "drawn_noise_nats": noise,
        "drawn_failed": failed,
    }


def noise_nats(rows: "Tensor", tokens: Sequence[int], ends: Sequence[int]) -> list[float]:
    """Return how much likelier each token is in a hotter distribution than in the reference's.

    A ratio is 1 on average if its token was drawn, so the product of all is a fair bet on noise: it
    comes to `x` with a chance of 1 in `x` at most, whatever the rows are. Ends of text are left out
    of the rows and of the tokens: an engine that was told to go on after them may forbid them.
    """
    shown = rows.clone()
    shown[:, list(ends)] = -math.inf
    shown = shown.log_softmax(-1)
    tilts = (_HOTTER * shown).logsumexp(-1)
    own = ((float(shown[at, each]), at) for at, each in enumerate(tokens) if each not in ends)
    return [(_HOTTER - 1) * value - float(tilts[at]) for value, at in own]


def _drawn(answer: Answer, vocabulary: Vocabulary) -> tuple[bool, tuple[int, ...]]:
    """Return whether the engine told its tokens, and which they are; none without an answer."""
    if not isinstance(answer, Completion):
        return False, ()
    told = told_ids(answer.token_ids, answer.text, vocabulary)
    return told is not None, told or tuple(vocabulary.encode(answer.text))
