"""The model that the demo brings is the one that was trained, and knows what it was taught."""

import hashlib
import json
from pathlib import Path
from typing import Protocol, TypedDict, cast

import torch
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from tools.tiny_model import END_OF_TURN, VOCABULARY, encode, load, logits

FOLDER = Path(__file__).parents[2] / "mcp_server" / "inferproof" / "demo" / "model"
LIMIT_BYTES = 4_000_000
NOT_MEASURED = {"README.md", "train_report.json"}


class Report(TypedDict):
    """The parts of `train_report.json` that are read here."""

    sha256: dict[str, str]
    unigram_entropy_nats: float
    held_out_loss_nats: float
    top_1_probability: dict[str, float]
    kl_nats_of_faults: dict[str, dict[str, float]]
    distinct_of_64_greedy_tokens: list[int]


class ReadTokenizer(Protocol):
    """What an engine asks of the tokenizer that transformers reads."""

    eos_token: str

    def encode(self, text: str) -> list[int]: ...
    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> str: ...
    def __len__(self) -> int: ...


REPORT = cast("Report", json.loads((FOLDER / "train_report.json").read_text()))
TEXT = (FOLDER / "eval.txt").read_text(encoding="utf-8")
TOKENIZER = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


def read_tokenizer() -> ReadTokenizer:
    found: object = AutoTokenizer.from_pretrained(FOLDER)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return cast("ReadTokenizer", found)


def test_every_file_is_the_one_that_the_training_measured() -> None:
    found = {path.name: path for path in FOLDER.iterdir() if path.name not in NOT_MEASURED}
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()}
    assert digests == REPORT["sha256"]


def test_the_folder_is_small_enough_to_be_shipped() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= LIMIT_BYTES
    assert len(TEXT.encode()) <= 100_000


def test_held_out_text_is_known_far_better_than_by_token_frequency() -> None:
    ids = encode(TOKENIZER, TEXT)[: 4 * 512].view(4, 512)
    with torch.no_grad():
        found = logits(load(FOLDER), ids)[:, :-1]
    loss = torch.nn.functional.cross_entropy(found.flatten(0, 1), ids[:, 1:].flatten()).item()
    assert loss < 0.8 * REPORT["unigram_entropy_nats"]


def test_the_model_is_one_in_which_faults_of_an_engine_show() -> None:
    assert REPORT["held_out_loss_nats"] < 0.5 * REPORT["unigram_entropy_nats"]
    assert 0.1 < REPORT["top_1_probability"]["p50"] < 0.9
    assert REPORT["kl_nats_of_faults"]["context cut to 128 tokens"]["mean"] > 0.2
    assert min(REPORT["distinct_of_64_greedy_tokens"]) > 8


def test_transformers_reads_the_same_tokens_as_the_tokenizer_file() -> None:
    ours = read_tokenizer()
    assert ours.encode(TEXT[:5000]) == TOKENIZER.encode(TEXT[:5000]).ids
    assert len(ours) == VOCABULARY


def test_a_chat_ends_where_the_answer_begins() -> None:
    ours = read_tokenizer()
    turn = {"role": "user", "content": "What is fox?"}
    text = ours.apply_chat_template([turn], tokenize=False, add_generation_prompt=True)
    assert text == f"<|im_start|>user\nWhat is fox?{END_OF_TURN}\n<|im_start|>assistant\n"
    assert ours.eos_token == END_OF_TURN
