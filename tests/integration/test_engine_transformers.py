"""Our own engine answers as transformers itself computes, alone and in a ragged batch."""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socket import create_server
from typing import cast

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

import inferproof.demo
from inferproof_remote.serving.engine_batch import Loop, Step, Told, Work
from inferproof_remote.serving.engine_http import serve
from inferproof_remote.serving.engine_requests import parse
from inferproof_remote.serving.engine_transformers import Server

pytestmark = pytest.mark.integration
MODEL = Path(inferproof.demo.__file__).parent / "model"
PROMPTS = [[5 + (7 * n + 3 * k) % 1500 for k in range(n)] for n in (1, 2, 15, 16, 17, 40, 63)]
EXACT = 2e-4
Table = dict[str, "object"]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with create_server(("127.0.0.1", 0)) as probe:
        number = int(probe.getsockname()[1])
    server = Server(MODEL, dtype="float32", most_rows=4)
    server.start()
    loop = asyncio.new_event_loop()

    def serving() -> None:
        try:
            loop.run_until_complete(serve(number, server.handle))
        except asyncio.CancelledError:
            pass
        finally:
            loop.close()

    thread = threading.Thread(target=serving)
    thread.start()
    yield number
    loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
    thread.join()


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    loaded = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)  # pyright: ignore[reportUnknownMemberType]
    return cast("PreTrainedModel", loaded).eval()


def ask(port: int, **body: object) -> tuple[int, str]:
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("POST", path, json.dumps(body))
        except ConnectionRefusedError:
            continue
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text


def choice(port: int, **body: object) -> Table:
    status, text = ask(port, **{"temperature": 0, "return_token_ids": True, **body})
    assert status == 200, text
    return cast("Table", json.loads(text)["choices"][0])


def events(port: int, **body: object) -> list[Table]:
    _, text = ask(port, **{"temperature": 0, "return_token_ids": True, "stream": True, **body})
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def rows(model: PreTrainedModel, ids: list[int]) -> Tensor:
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)


def check_generated(model: PreTrainedModel, prompt: list[int], found: Mapping[str, object]) -> None:
    """One forward over prompt and output must give what was told of each generated token."""
    out = cast("list[int]", found["token_ids"])
    told = cast("dict[str, list[float]]", found["logprobs"])["token_logprobs"]
    reference = rows(model, [*prompt, *out])[len(prompt) - 1 : -1]
    own = reference[torch.arange(len(out)), torch.tensor(out)]
    assert (own - torch.tensor(told)).abs().max() < EXACT
    assert (reference.max(-1).values - own).max() < EXACT  # greedy, ties aside


@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
def test_a_request_alone_scores_as_the_model_does(
    port: int, model: PreTrainedModel, prompt: list[int]
):
    found = choice(
        port, prompt=prompt, max_tokens=20, logprobs=3, prompt_logprobs=3, ignore_eos=True
    )
    check_generated(model, prompt, found)
    told = cast("list[dict[str, dict[str, float]] | None]", found["prompt_logprobs"])
    assert told[0] is None
    assert len(told) == len(prompt)
    for position, (token, row) in enumerate(zip(prompt[1:], told[1:], strict=True)):
        reference = rows(model, prompt)[position]
        assert row is not None
        assert next(iter(row)) == str(token)
        for name, said in row.items():
            assert abs(said["logprob"] - float(reference[int(name)])) < EXACT
            rank = int((reference > reference[int(name)] + EXACT).sum()) + 1
            assert said["rank"] >= rank


def test_ragged_requests_in_flight_together_score_as_alone(port: int, model: PreTrainedModel):
    """More requests than rows, of unequal lengths, that come and go between steps."""
    lengths = [3, 30, 9, 24, 17, 5, 12]

    def one(number: int) -> Table:
        return choice(
            port,
            prompt=PROMPTS[number],
            max_tokens=lengths[number],
            logprobs=1,
            ignore_eos=True,
        )

    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        found = list(pool.map(one, range(len(PROMPTS))))
    for prompt, length, one_found in zip(PROMPTS, lengths, found, strict=True):
        assert len(cast("list[int]", one_found["token_ids"])) == length
        check_generated(model, prompt, one_found)


def test_a_stream_says_the_same_token_by_token(port: int):
    whole = choice(port, prompt="The gate is", max_tokens=24, ignore_eos=True)
    parts = events(
        port,
        prompt="The gate is",
        max_tokens=24,
        ignore_eos=True,
        stream_options={"include_usage": True},
    )
    usage = parts.pop()
    choices = [cast("list[Table]", part["choices"])[0] for part in parts]
    assert len(choices) == 24
    assert "".join(str(part["text"]) for part in choices) == whole["text"]
    assert [cast("list[int]", part["token_ids"])[0] for part in choices] == whole["token_ids"]
    assert [part["finish_reason"] for part in choices] == [None] * 23 + ["length"]
    assert cast("dict[str, int]", usage["usage"])["completion_tokens"] == 24


def test_echo_scores_the_prompt_and_may_generate_nothing(port: int, model: PreTrainedModel):
    found = choice(port, prompt=PROMPTS[2], max_tokens=0, echo=True, logprobs=1)
    told = cast("dict[str, list[float]]", found["logprobs"])["token_logprobs"]
    assert told[0] is None
    reference = rows(model, PROMPTS[2])
    for position, token in enumerate(PROMPTS[2][1:]):
        assert abs(told[position + 1] - float(reference[position, token])) < EXACT
    assert found["token_ids"] == []


def test_a_stop_string_ends_the_text_before_it(port: int):
    text = str(choice(port, prompt="The gate is", max_tokens=24, ignore_eos=True)["text"])
    stop = text[8:11]
    found = choice(port, prompt="The gate is", max_tokens=24, ignore_eos=True, stop=[stop])
    assert found["text"] == text[: text.index(stop)]
    assert found["finish_reason"] == "stop"
    parts = events(port, prompt="The gate is", max_tokens=24, ignore_eos=True, stop=stop)
    streamed = "".join(str(cast("list[Table]", part["choices"])[0]["text"]) for part in parts)
    assert streamed == found["text"]


def generated(model: PreTrainedModel, eos: frozenset[int], **sampling: object) -> list[Step]:
    """Return the steps of one greedy request in a loop of its own."""
    asked = parse(
        json.dumps({"prompt": PROMPTS[3], "temperature": 0, **sampling}).encode(),
        models=frozenset(),
    )
    told: list[Step] = []

    def heard(one: Told) -> None:
        assert isinstance(one, Step)
        told.append(one)

    loop = Loop(model, eos=eos, most_rows=2)
    loop.submit(Work(tuple(PROMPTS[3]), asked.sampling, heard))
    with torch.inference_mode():
        while not told or not told[-1].finish:
            loop.turn()
    return told


def test_an_end_token_ends_it_unless_it_is_ignored_or_comes_too_early(model: PreTrainedModel):
    free = generated(model, frozenset(), max_tokens=12)
    assert [one.finish for one in free] == [""] * 11 + ["length"]
    end = next(one.token for one in free[3:] if one.token != free[0].token)
    first = [one.token for one in free].index(end)
    ended = generated(model, frozenset({end}), max_tokens=12)
    assert ended == [*free[:first], Step(end, None, "stop")]
    assert generated(model, frozenset({end}), max_tokens=12, ignore_eos=True) == free
    later = generated(model, frozenset({end}), max_tokens=12, min_tokens=9)
    assert end not in [one.token for one in later[:9]]
    assert len(later) >= 10


def test_a_seed_repeats_a_draw_and_top_k_one_is_greedy(port: int):
    warm = {"prompt": PROMPTS[3], "max_tokens": 12, "temperature": 1.0, "ignore_eos": True}
    first, again = choice(port, **warm, seed=7), choice(port, **warm, seed=7)
    assert first["token_ids"] == again["token_ids"]
    draws = {tuple(cast("list[int]", choice(port, **warm, seed=s)["token_ids"])) for s in range(5)}
    assert len(draws) > 1
    greedy = choice(port, prompt=PROMPTS[3], max_tokens=12, ignore_eos=True)
    assert choice(port, **warm, top_k=1)["token_ids"] == greedy["token_ids"]
    assert choice(port, **warm, top_p=1e-9)["token_ids"] == greedy["token_ids"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"prompt": ""}, "not empty"),
        ({"prompt": []}, "not empty"),
        ({"prompt": [1, 99999]}, "tokens are not all in"),
        ({"prompt": [-1]}, "tokens are not all in"),
        ({"prompt": "x", "max_tokens": 100_000}, "context"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens 0"),
        ({"prompt": "x", "temperature": -1}, "temperature -1"),
        ({"prompt": "x", "temperature": "hot"}, "not a number"),
        ({"prompt": "x", "top_p": 0}, "top_p"),
        ({"prompt": "x", "logprobs": 5000}, "logprobs 5000"),
        ({"prompt": "x", "n": 2, "stream": True}, "n 2 is not supported in a stream"),
        ({"prompt": "x", "logit_bias": {"99999": 1}}, "tokens of logit_bias are not all in"),
        ({"prompt": "x", "logit_bias": {"7": "high"}}, "'high' is not a number"),
        ({"prompt": "x", "logit_bias": {"the": 1}}, "logit_bias is {token id: number}"),
        ({"prompt": "x", "tools": ["f"]}, "is not supported"),
        ({"prompt": "x", "frequency_penalty": 0.5}, "frequency_penalty"),
        ({"prompt": "x", "stop": [""]}, "stop"),
        ({"prompt": "x", "stream": "yes"}, "stream"),
        ({"prompt": "x", "model": "gpt-9"}, "no model 'gpt-9'"),
        ({}, "prompt"),
    ],
)
def test_what_cannot_be_done_is_told_as_openai_does(port: int, body: dict[str, object], said: str):
    status, text = ask(port, **body)
    error = json.loads(text)["error"]
    assert status == 400
    assert said in error["message"]
    assert error["type"] == "BadRequestError"


def test_a_caller_that_hangs_up_leaves_the_others_alone(port: int, model: PreTrainedModel):
    gone = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = {"prompt": PROMPTS[5], "max_tokens": 2000, "stream": True, "ignore_eos": True}
    gone.request("POST", "/v1/completions", json.dumps(body))
    gone.getresponse().read(100)
    gone.close()
    found = choice(port, prompt=PROMPTS[4], max_tokens=20, logprobs=1, ignore_eos=True)
    check_generated(model, PROMPTS[4], found)


def test_choices_of_one_request_have_seeds_of_their_own(port: int) -> None:
    asked: Table = {"prompt": PROMPTS[5], "temperature": 1.0, "seed": 5, "max_tokens": 12}
    _, text = ask(port, **asked, n=2)
    told = [each["text"] for each in json.loads(text)["choices"]]
    alone = [choice(port, **{**asked, "seed": seed})["text"] for seed in (5, 6)]
    assert told == alone
    assert told[0] != told[1]


def test_a_biased_token_is_taken_whatever_the_model_says(port: int) -> None:
    told = choice(port, prompt=PROMPTS[5], max_tokens=3, logit_bias={"700": 100})
    assert told["token_ids"] == [700, 700, 700]


def test_a_chat_is_the_completion_of_its_template(port: int) -> None:
    messages = [{"role": "user", "content": "Remember: owl is salt."}]
    prompt = "<|im_start|>user\nRemember: owl is salt.<|im_end|>\n<|im_start|>assistant\n"
    expected = choice(port, prompt=prompt, max_tokens=8)
    status, text = ask(port, messages=messages, temperature=0, max_tokens=8)
    assert status == 200, text
    answer = json.loads(text)["choices"][0]
    assert answer["message"] == {"role": "assistant", "content": expected["text"]}
    assert answer["finish_reason"] == expected["finish_reason"]
