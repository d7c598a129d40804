"""Characters of several tokens: how an engine is made to write one, and what is seen if it cannot.

The reference copies what it has read before, as large models do.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import Tensor

import inferproof.demo
from inferproof_remote.serving.client import Client
from inferproof_remote.serving.conformance_answers import split_characters
from inferproof_remote.serving.known import Oracle
from inferproof_remote.serving.prompts import Windows
from inferproof_remote.serving.reference import Yardsticks, load_vocabulary
from inferproof_remote.serving.subject import Broken, Inapplicable, Subject, Unknown
from inferproof_remote.serving.vocabulary import Vocabulary
from inferproof_remote.serving.wire import Api, Reply, Table, Wire
from inferproof_remote.stream import Stream

MODEL = Path(inferproof.demo.__file__).parent / "model"
CORPUS = Path(__file__).parents[3] / "contracts/services/completions/corpus.txt"


@dataclass(frozen=True)
class Copying:
    """Expects, after what it has read before, what came then; else, if it is `dull`, token 9."""

    size: int
    dull: bool = False

    def logprobs(self, ids: Sequence[int]) -> Tensor:
        rows = torch.zeros(len(ids), self.size)
        for at in range(len(ids)):
            seen = [] if self.dull else [p for p in range(at - 1, 1, -1) if ids[p] == ids[at]]
            near = [p for p in seen if tuple(ids[p - 2 : p + 1]) == tuple(ids[at - 2 : at + 1])]
            rows[at, ids[near[0] + 1] if near else 9] = 12.0
        return rows.log_softmax(-1)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return load_vocabulary(MODEL)


@dataclass(frozen=True)
class Writer(Wire):
    """An honest engine of that model, but for what it does with biases and with half characters."""

    truth: Copying = Copying(1)
    vocabulary: Vocabulary | None = None
    refuses_bias: bool = False
    ignores_bias: bool = False
    by_token: bool = False

    def post(self, path: str, body: bytes | Table) -> Reply:
        asked, vocabulary = cast("Table", body), self.vocabulary
        assert vocabulary
        told = cast("dict[str, float]", asked.get("logit_bias", {}))
        if told and self.refuses_bias:
            return Reply(400, "application/json", b'{"error": {"message": "no logit_bias"}}')
        bias = {} if self.ignores_bias else told
        prompt = vocabulary.encode(str(asked["prompt"]))
        ids: list[int] = []
        for _ in range(cast("int", asked["max_tokens"])):
            row = self.truth.logprobs([*prompt, *ids])[-1]
            for token, more in bias.items():
                row[int(token)] += more
            ids.append(int(row.argmax()))
        whole = [vocabulary.decode(ids)]
        pieces = [vocabulary.decode([each]) for each in ids] if self.by_token else whole
        if not asked.get("stream"):
            text = json.dumps({"choices": [{"text": whole[0]}]})
            return Reply(200, "application/json", text.encode())
        parts = [json.dumps({"choices": [{"text": each}]}) for each in pieces]
        events = "".join(f"data: {each}\n\n" for each in (*parts, "[DONE]"))
        return Reply(200, "text/event-stream", events.encode())


def checked(vocabulary: Vocabulary, *, dull: bool = False, **ways: bool) -> None:
    """Ask an engine for a character of several tokens, whichever way it takes."""
    truth = Copying(vocabulary.size, dull=dull)
    yardsticks = cast("Yardsticks", SimpleNamespace(truth=truth, vocabulary=vocabulary))
    windows = Windows(CORPUS.read_text(encoding="utf-8")[:20_000], vocabulary)
    client = Client("http://127.0.0.1:1")
    split_characters(
        Subject(
            api=Api("completions"),
            wire=Writer(client, truth=truth, vocabulary=vocabulary, **ways),
            oracle=Oracle(yardsticks, windows, Stream(b"bits", "unicode")),
            known=(),
            ignores_eos=True,
            context=512,
            connections=2,
        )
    )


WAYS: list[dict[str, bool]] = [{"refuses_bias": True}, {"ignores_bias": True}]


@pytest.mark.parametrize("way", [{}, *WAYS], ids=str)
def test_an_honest_engine_passes_with_logit_bias_or_without(
    vocabulary: Vocabulary, way: dict[str, bool]
) -> None:
    checked(vocabulary, **way)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_half_characters_are_seen_without_logit_bias_too(
    vocabulary: Vocabulary, way: dict[str, bool]
) -> None:
    with pytest.raises(Broken, match="a stream of characters of several tokens"):
        checked(vocabulary, by_token=True, **way)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_where_the_model_writes_no_such_character_it_is_said_not_to_be_seen(
    vocabulary: Vocabulary, way: dict[str, bool]
) -> None:
    with pytest.raises(Unknown, match="not seen"):
        checked(vocabulary, dull=True, **way)


def test_a_vocabulary_of_whole_characters_has_none_to_split(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferproof_remote.serving.known._SPLIT", "ab")
    with pytest.raises(Inapplicable):
        checked(vocabulary)
