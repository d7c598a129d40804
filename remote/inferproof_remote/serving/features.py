"""Which features an engine really has, found by reading its answers, never its status codes.

Engines answer 200 to fields that they ignore, so a feature counts only when its content is there.
What an engine answers 4xx to is not asked of it again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inferproof_remote.serving.client import (
    Answer,
    Client,
    Completion,
    Engine,
    Refused,
    Request,
    Row,
)

_OUTPUT_TOKENS = 6
_USEFUL_LISTED = 2
_OPTIONAL = frozenset({"ignore_eos", "return_token_ids"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What the answers showed.

    `id_prompts`: prompts of token ids are read as such. `prompt_logprobs` and `echo` are two ways
    to score a prompt. `logprobs`: generated tokens come with a list of alternatives, `listed` of
    them. `token_ids`: the ids of generated tokens are told.
    """

    id_prompts: bool = False
    prompt_logprobs: bool = False
    echo: bool = False
    logprobs: bool = False
    token_ids: bool = False
    ignore_eos: bool = False
    stream: bool = False
    listed: int = 0

    @property
    def prompt_scores(self) -> str:
        """The field that asks for a prompt's scores; empty when there is none that works."""
        if self.prompt_logprobs:
            return "prompt_logprobs"
        return "echo" if self.echo else ""

    def as_facts(self) -> dict[str, bool]:
        """Return the yes-or-no part, for the record."""
        return {
            "prompt_logprobs": self.prompt_logprobs or self.echo,
            "logprobs": self.logprobs,
            "token_ids": self.token_ids,
            "id_prompts": self.id_prompts,
            "stream": self.stream,
            "ignore_eos": self.ignore_eos,
        }


def suited(client: Client) -> Client:
    """Return `client`, leaving out the optional fields that its engine refuses, each by itself."""
    plain = Request(prompt="def", max_tokens=1)
    if not isinstance(client.complete(plain), Refused):
        return client

    def is_refused(name: str) -> bool:
        alone = replace(client, leaves_out=_OPTIONAL - {name})
        return isinstance(alone.complete(plain), Refused)

    return replace(client, leaves_out=frozenset(filter(is_refused, _OPTIONAL)))


def probe(engine: Engine, ids: Sequence[int], text: str, *, logprobs: int) -> Features:
    """Return what `engine` shows on one prompt, given as token ids and as text."""
    plain = Request(prompt=tuple(ids), max_tokens=_OUTPUT_TOKENS)
    as_ids = engine.complete(plain)
    id_prompts = _took_ids(as_ids, engine.complete(replace(plain, prompt=text)), len(ids))
    asked = replace(plain, prompt=tuple(ids) if id_prompts else text, logprobs=logprobs)
    told = engine.complete(asked)
    listed = _listed(told)
    if isinstance(told, Refused):
        asked = replace(asked, logprobs=None)
        told = engine.complete(asked)
    scored = replace(asked, prompt_scores="prompt_logprobs")
    echoed = replace(asked, prompt_scores="echo", max_tokens=1)
    return Features(
        id_prompts=id_prompts,
        prompt_logprobs=_scores_prompt(engine.complete(scored), ids),
        echo=_scores_prompt(engine.complete(echoed), ids),
        logprobs=listed >= _USEFUL_LISTED,
        token_ids=_tells_ids(told),
        ignore_eos=_runs_on(told),
        stream=isinstance(engine, Client) and _streams(engine.stream(asked)),
        listed=listed,
    )


def goes_on(engine: Engine, ended: Sequence[int] | str) -> bool:
    """Return whether `engine` goes on after a prompt at which the model ends its text."""
    prompt = ended if isinstance(ended, str) else tuple(ended)
    return _runs_on(engine.complete(Request(prompt=prompt, max_tokens=_OUTPUT_TOKENS)))


def _took_ids(as_ids: Answer, as_text: Answer, count: int) -> bool:
    if not isinstance(as_ids, Completion):
        return False
    if as_ids.prompt_tokens is not None:
        return as_ids.prompt_tokens == count
    return isinstance(as_text, Completion) and as_ids.text == as_text.text


def _listed(answer: Answer) -> int:
    """Return how many alternatives every generated token came with."""
    if not isinstance(answer, Completion) or not answer.rows:
        return 0
    if answer.completion_tokens not in (None, len(answer.rows)):
        return 0
    return min(len(row.listed) for row in answer.rows)


def _scores_prompt(answer: Answer, ids: Sequence[int]) -> bool:
    rows = answer.prompt_rows if isinstance(answer, Completion) else None
    if rows is None or len(rows) != len(ids):
        return False
    return all(_is_scored(row) for row in rows[1:])


def _is_scored(row: Row | None) -> bool:
    return row is not None and len(row.listed) >= _USEFUL_LISTED


def _tells_ids(answer: Answer) -> bool:
    if not isinstance(answer, Completion) or not answer.token_ids:
        return False
    return answer.completion_tokens in (None, len(answer.token_ids))


def _runs_on(answer: Answer) -> bool:
    return isinstance(answer, Completion) and answer.completion_tokens == _OUTPUT_TOKENS


def _streams(answer: Answer) -> bool:
    return isinstance(answer, Completion) and answer.chunks > 1
