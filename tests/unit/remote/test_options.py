"""Of several ways to go on, the likeliest is chosen by whatever an engine tells of scores."""

from dataclasses import dataclass

import pytest

from inferproof_remote.serving.client import Answer, BadAnswer, Completion, NoAnswer, Request, Row
from inferproof_remote.serving.features import Features
from inferproof_remote.serving.options import chosen
from unit.remote.test_audit import VOCABULARY

LIKED = "b"
WHOLE = Features(id_prompts=True, prompt_logprobs=True, logprobs=True, listed=2)
FIRST = Features(id_prompts=True, logprobs=True, listed=2)
NONE = Features(id_prompts=True)


@dataclass
class Scoring:
    """Finds letter `liked` likelier than any other; `fails` in place of answers."""

    liked: str = LIKED
    fails: "Answer | None" = None

    def complete(self, request: Request) -> Answer:
        if self.fails is not None:
            return self.fails
        assert not isinstance(request.prompt, str)
        rows = tuple(self._row(token) for token in request.prompt)
        first = Row(None, None, {token: self._score(token) for token in VOCABULARY.encode("abc")})
        return Completion(
            text="x",
            finish_reason="length",
            rows=(first,),
            prompt_rows=(None, *rows[1:]) if request.prompt_scores else None,
        )

    def _row(self, token: int) -> Row:
        return Row(token, self._score(token), {token: self._score(token)})

    def _score(self, token: int) -> float:
        return -0.1 if token == VOCABULARY.encode(self.liked)[0] else -2.0


@pytest.mark.parametrize("features", [WHOLE, FIRST], ids=["whole", "first token"])
@pytest.mark.parametrize(("liked", "index"), [("a", 0), ("b", 1), ("c", 2)])
def test_the_likeliest_option_is_chosen(features: Features, liked: str, index: int) -> None:
    assert chosen(Scoring(liked), features, VOCABULARY, "ca", ["a", "b", "c"]) == index


def test_a_whole_option_is_scored_where_the_engine_can() -> None:
    options = ["ba", "bb"]
    assert chosen(Scoring("b"), WHOLE, VOCABULARY, "ca", options) == 1


def test_an_engine_without_scores_chooses_nothing() -> None:
    assert chosen(Scoring(), NONE, VOCABULARY, "ca", ["a", "b"]) is None
    broken = Scoring(fails=BadAnswer("no completion"))
    assert chosen(broken, WHOLE, VOCABULARY, "ca", ["a", "b"]) is None


def test_no_answer_is_not_taken_for_a_choice() -> None:
    with pytest.raises(NoAnswer):
        chosen(Scoring(fails=NoAnswer("gone")), WHOLE, VOCABULARY, "ca", ["a", "b"])
