"""Checks of what comes back: streams, counts, ends, draws, scores, characters."""

import math
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from inferproof_remote.serving.known import Known
from inferproof_remote.serving.subject import (
    Absent,
    Broken,
    Inapplicable,
    Subject,
    Unknown,
    joined,
    same,
)
from inferproof_remote.serving.wire import Table, choices_of, listed, piece_of, table

_BROKEN = "\ufffd"
_AT_ONCE, _SEEDS = 4, 1 << 31
_DRAWN_PROMPT, _DRAWN_TOKENS, _DRAWN_TRIES, _SAME_TRIES, _OTHER_SEEDS = 24, 32, 4, 5, 3
_ONE_IN_A_MILLION_NATS = 14.0
_LISTED = 3
_CERTAIN, _NEAR_NATS = 1.001, 0.5


def stream(subject: Subject) -> None:
    """Raise if a stream is not parts of one completion, in its form, that make up the answer."""
    known = subject.first()
    parts = subject.parts(known, max_tokens=known.whole)
    heads = {(part.get("id"), part.get("object"), part.get("model")) for part in parts}
    if len(heads) != 1 or any(not isinstance(each, str) or not each for each in next(iter(heads))):
        raise Broken("the parts of a stream do not share one id, object and model")
    if next(iter(heads))[1] != subject.api.objects[1]:
        raise Broken(f"a part that is no {subject.api.objects[1]}")
    if not all(isinstance(part.get("created"), int) for part in parts):
        raise Broken("a part without the time when it was created")
    same(joined(parts), known.texts[-1], "a stream")
    shown = [part for part in parts if piece_of(part)]
    if len(shown) < 2:
        raise Broken(f"{known.whole} tokens in {len(shown)} part of a stream")
    _ends_once(parts)
    roles = [table(choice.get("delta")).get("role") for choice in choices_of(parts[0])]
    if subject.api.name == "chat" and roles != ["assistant"]:
        raise Broken("the first part of a chat does not say role assistant")


def _ends_once(parts: Sequence[Table]) -> None:
    ends = [
        (at, choice.get("finish_reason"))
        for at, part in enumerate(parts)
        for choice in choices_of(part)
        if choice.get("finish_reason") is not None
    ]
    last = max((at for at, part in enumerate(parts) if piece_of(part)), default=0)
    if len(ends) != 1 or ends[0][0] < last:
        raise Broken(f"{len(ends)} finish reasons in a stream, which has one, at its end")
    if ends[0][1] != "length":
        raise Broken("a stream cut at max_tokens that does not say finish_reason length")


def usage(subject: Subject) -> None:
    """Raise if the tokens that went in and came out are counted wrong, in a stream too."""
    known = subject.first()
    expected = {
        "prompt_tokens": known.prompt_tokens,
        "completion_tokens": known.whole,
        "total_tokens": known.prompt_tokens + known.whole,
    }
    _counted(subject.answer(known, max_tokens=known.whole), expected, "an answer")
    options = {"include_usage": True}
    parts = subject.parts(known, max_tokens=known.whole, stream_options=options)
    counted = [part for part in parts if part.get("usage")]
    if not counted or counted[-1] is not parts[-1]:
        raise Broken("a stream with include_usage does not end with the usage")
    _counted(counted[-1], expected, "a stream")


def _counted(answer: Table, expected: dict[str, int], where: str) -> None:
    told = table(answer.get("usage"))
    for name, count in expected.items():
        if told.get(name) != count:
            raise Broken(f"{where} counts {name} wrong: it is {count}", str(told.get(name)))


def max_tokens(subject: Subject) -> None:
    """Raise if an answer is not cut at exactly the asked number of tokens."""
    known = subject.first()
    for count in dict.fromkeys([known.lengths[0], *known.lengths[1:4:2], known.lengths[-1]]):
        answer = subject.answer(known, max_tokens=count)
        choice = choices_of(answer)[0]
        text = subject.api.text(choice) or ""
        same(text, known.texts[count], f"max_tokens {count}")
        if choice.get("finish_reason") != "length":
            raise Broken(f"max_tokens {count} does not end with finish_reason length")
        told = table(answer.get("usage")).get("completion_tokens")
        if told != count:
            raise Broken(f"max_tokens {count} counts another number of tokens", str(told))


def stop(subject: Subject) -> None:
    """Raise if a text does not end before a stop text that two tokens share."""
    known = subject.first()
    text, stranger = known.texts[-1], "\u2016never\u2016"
    end = _across_tokens(known)
    cut = text[: text.index(end)]
    for asked in (end, [stranger, end]):
        answer = subject.answer(known, max_tokens=known.whole, stop=asked)
        choice = choices_of(answer)[0]
        same(subject.api.text(choice) or "", cut, "a text with a stop across two tokens")
        if choice.get("finish_reason") != "stop":
            raise Broken("a text that met its stop does not say finish_reason stop")
    parts = subject.parts(known, max_tokens=known.whole, stop=[end])
    same(joined(parts), cut, "a stream with a stop across two tokens")
    same(subject.text(known, max_tokens=known.whole, stop=[stranger]), text, "a stop not met")


def _across_tokens(known: Known) -> str:
    """Return a text that the answer has, whose first letter is of one token, the last of another.

    The one that comes last is taken, so that much comes before it.
    """
    text = known.texts[-1]
    found = [
        (text.index(end), end)
        for at in known.lengths[:-1]
        if 0 < (edge := len(known.texts[at])) < len(text)
        for end in [text[edge - 1 : edge + 1]]
        if end in text
    ]
    if not found:
        raise Unknown("no two tokens whose texts meet")
    return max(found)[1]


def temperature_0(subject: Subject) -> None:
    """Raise if greedy answers differ, asked together, whatever else is said of sampling."""
    known = subject.first()
    ways: list[dict[str, object]] = [{}, {"seed": 1}, {"seed": 2, "top_p": 0.9}, {"top_p": 0.5}]

    def one(way: dict[str, object]) -> str:
        return subject.text(known, max_tokens=known.whole, **way)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for text in pool.map(one, ways):
            same(text, known.texts[-1], "temperature 0")


def seed(subject: Subject) -> None:
    """Raise if one seed does not give one text, or if all seeds give the same."""
    drawn = subject.oracle.stream
    for _ in range(_DRAWN_TRIES):
        ids, prompt = subject.oracle.prose(_DRAWN_PROMPT)

        def text(number: int, prompt: str = prompt) -> str:
            return _drawn(subject, prompt, number)

        one = drawn.below(_SEEDS)
        texts = [text(one), text(one)]
        while max(Counter(texts).values()) < 2 and len(texts) < _SAME_TRIES:
            texts.append(text(one))
        again, times = Counter(texts).most_common(1)[0]
        if times < 2:
            raise Broken(f"{len(texts)} answers with one seed are all different")
        if subject.oracle.chance_nats(ids, again) < _ONE_IN_A_MILLION_NATS:
            continue  # a text that often comes by chance proves nothing
        others = [text(drawn.below(_SEEDS)) for _ in range(_OTHER_SEEDS)]
        if set(others) == {again}:
            raise Broken(f"{_OTHER_SEEDS + 1} seeds give one text")
        return
    raise Unknown("no prompt was found after which texts differ")


def _drawn(subject: Subject, prompt: str, number: int) -> str:
    fields: dict[str, object] = {"temperature": 1.0, "top_p": 1.0, "seed": number}
    if subject.ignores_eos:
        fields["ignore_eos"] = True
    known = Known(prompt=prompt, prompt_tokens=0, ids=(), logprobs=(), texts=(), bias={})
    return subject.text(known, max_tokens=_DRAWN_TOKENS, **fields)


def n(subject: Subject) -> None:
    """Raise if two answers are asked for and others than two come."""
    known = subject.first()
    choices = choices_of(subject.answer(known, max_tokens=known.whole, n=2))
    if len(choices) == 1:
        raise Absent("n 2 gives one choice")
    if sorted(str(choice.get("index")) for choice in choices) != ["0", "1"]:
        raise Broken(f"n 2 gives {len(choices)} choices, or not with index 0 and 1")
    for choice in choices:
        same(subject.api.text(choice) or "", known.texts[-1], "a choice of two")


def logprobs(subject: Subject) -> None:
    """Raise if the scores of generated tokens are no scores of these tokens."""
    known = subject.first()
    if subject.api.name == "completions":
        choice = choices_of(subject.answer(known, max_tokens=known.whole, logprobs=_LISTED))[0]
    else:
        wanted = {"logprobs": True, "top_logprobs": _LISTED}
        choice = choices_of(subject.answer(known, max_tokens=known.whole, **wanted))[0]
    rows = _scored(table(choice.get("logprobs")))
    if rows is None:
        raise Absent("logprobs are not told")
    if len(rows) != known.whole:
        raise Broken(f"{len(rows)} scored tokens of {known.whole}")
    for at, ((own, top), expected) in enumerate(zip(rows, known.logprobs, strict=True)):
        if any(not -math.inf < each <= 1e-3 for each in (own, *top)):
            raise Broken(f"token {at} has a score that is no log-probability")
        if len(top) < _LISTED or own < max(top) - 1e-3 or sum(map(math.exp, top)) > _CERTAIN:
            raise Broken(f"token {at}, the greedy one, is not the best of {_LISTED} listed")
        if abs(own - expected) > _NEAR_NATS:
            raise Broken(f"token {at} scores {own:.2f}, for the model it is {expected:.2f}")


def _scored(told: Table) -> list[tuple[float, list[float]]] | None:
    """Return each token's own score and those listed; in the older columns or the newer rows."""
    if isinstance(told.get("content"), list):
        rows = [table(each) for each in listed(told["content"])]
        return [
            (
                _number(row.get("logprob")),
                [_number(table(each).get("logprob")) for each in listed(row.get("top_logprobs"))],
            )
            for row in rows
        ]
    own, top = listed(told.get("token_logprobs")), listed(told.get("top_logprobs"))
    if not own or len(own) != len(top):
        return None
    return [
        (_number(score), [_number(each) for each in table(best).values()])
        for score, best in zip(own, top, strict=True)
    ]


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return float(value)


def echo(subject: Subject) -> None:
    """Raise if a prompt that is to be echoed comes back otherwise."""
    known = subject.first()
    count = known.lengths[0]
    text = subject.text(known, max_tokens=count, echo=True)
    if text == known.texts[count]:
        raise Absent("echo is left out")
    same(text, known.prompt + known.texts[count], "echo")


def split_characters(subject: Subject) -> None:
    """Raise if a character of several tokens does not come whole, at once or in a stream.

    The model is made to write one by logit_bias, or, where the engine has none, by a prompt that it
    copies.
    """
    oracle = subject.oracle
    if not oracle.split:
        raise Inapplicable("no character that takes several tokens")
    biased = oracle.split_character()
    known = biased if biased and _has_bias(subject, biased) else oracle.copied_character()
    if known is None:
        raise Unknown(
            "not seen: without logit_bias, this model writes no character of several tokens"
        )
    whole = "characters of several tokens"
    same(subject.text(known, max_tokens=known.whole), known.texts[-1], f"a text of {whole}")
    parts = subject.parts(known, max_tokens=known.whole)
    same(joined(parts), known.texts[-1], f"a stream of {whole}")


def _has_bias(subject: Subject, known: Known) -> bool:
    """Return whether a biased request is taken and answered as if it was."""
    try:
        text = subject.text(known, max_tokens=known.whole)
    except Absent:
        return False
    return bool(set(text) & set(known.texts[-1])) or _BROKEN in text
