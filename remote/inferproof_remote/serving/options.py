"""Multiple choice: which of several ways to go on does an engine find likeliest?"""

from collections.abc import Sequence
from typing import Protocol

from inferproof_remote.serving.client import Answer, Completion, NoAnswer, Request, Row
from inferproof_remote.serving.features import Features
from inferproof_remote.serving.vocabulary import Vocabulary


class Scorer(Protocol):
    """Whatever completes prompts."""

    def complete(self, request: Request) -> Answer:
        """Return the answer, or the error in its place."""
        ...


def chosen(
    client: Scorer, features: Features, vocabulary: Vocabulary, prompt: str, options: Sequence[str]
) -> int | None:
    """Return the index of the likeliest option, None if the engine gives nothing to tell by.

    An engine that scores prompts scores each option whole; of any other, the options' first tokens
    are looked up among the alternatives that it lists.

    Raises:
        NoAnswer: a request was not answered at all.
    """
    if features.prompt_scores:
        scores = [_whole(client, features, vocabulary, prompt, each) for each in options]
    elif features.logprobs:
        scores = _first_tokens(client, features, vocabulary, prompt, options)
    else:
        return None
    known = [(score, -index) for index, score in enumerate(scores) if score is not None]
    return -max(known)[1] if known else None


def _whole(
    client: Scorer, features: Features, vocabulary: Vocabulary, prompt: str, option: str
) -> float | None:
    """Return the log-probability of an option after the prompt."""
    ids = (*vocabulary.leading, *vocabulary.encode(prompt + option))
    start = _shared((*vocabulary.leading, *vocabulary.encode(prompt)), ids)
    asked = Request(
        prompt=ids if features.id_prompts else prompt + option,
        max_tokens=1,
        logprobs=max(1, features.listed),
        prompt_scores=features.prompt_scores,
    )
    answer = _answered(client, asked)
    rows = answer.prompt_rows if answer else None
    if rows is None or len(rows) != len(ids) or start == len(ids):
        return None
    places = range(max(1, start), len(ids))
    told = [_score(rows[at], ids[at], vocabulary) for at in places]
    return None if None in told else sum(each for each in told if each is not None)


def _first_tokens(
    client: Scorer,
    features: Features,
    vocabulary: Vocabulary,
    prompt: str,
    options: Sequence[str],
) -> list[float | None]:
    before = (*vocabulary.leading, *vocabulary.encode(prompt))
    whole = [(*vocabulary.leading, *vocabulary.encode(prompt + each)) for each in options]
    asked = Request(
        prompt=before if features.id_prompts else prompt, max_tokens=1, logprobs=features.listed
    )
    answer = _answered(client, asked)
    row = answer.rows[0] if answer and answer.rows else None
    firsts = [ids[len(before)] if ids[: len(before)] == before else None for ids in whole]
    return [None if each is None else _score(row, each, vocabulary) for each in firsts]


def _answered(client: Scorer, asked: Request) -> Completion | None:
    answer = client.complete(asked)
    if isinstance(answer, NoAnswer):
        raise answer
    return answer if isinstance(answer, Completion) else None


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two texts share at their start."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _score(row: Row | None, token: int, vocabulary: Vocabulary) -> float | None:
    if row is None:
        return None
    listed = {vocabulary.id_of(ref): value for ref, value in row.listed.items()}
    if token in listed:
        return listed[token]
    return row.logprob if vocabulary.id_of(row.token) == token else None
