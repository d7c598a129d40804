"""Which tokens a generated text was, where the engine tells neither ids nor names.

A text can be split in more than one way, and a model does not always split as its tokenizer does.
So the text is walked with the reference: at each place it is the likeliest of the tokens that the
rest of the text may begin with, which is the engine's own token if the engine is greedy and right.
"""

from collections.abc import Sequence

from torch import Tensor

from inferproof_remote.serving.prompts import Ids
from inferproof_remote.serving.reference import Reference
from inferproof_remote.serving.vocabulary import Vocabulary

_BROKEN = "\ufffd"


def ids_of_text(
    text: str, count: int | None, prompt: Ids, truth: Reference, vocabulary: Vocabulary
) -> Ids:
    """Return the tokens of `text` after `prompt`, up to a character that was cut.

    Nothing is certain, and nothing returned, when the whole text is not `count` tokens.
    """
    readable = text.split(_BROKEN)[0]
    ids, settled, is_open = vocabulary.encode(readable), 0, True
    while is_open and ids:
        rows = truth.logprobs((*prompt, *ids))[len(prompt) - 1 :]
        ids, settled, is_open = _corrected(readable, ids, settled, rows, vocabulary)
    is_whole = readable == text and count is not None
    return () if is_whole and len(ids) != count else tuple(ids)


def _corrected(
    text: str, ids: Sequence[int], settled: int, rows: Tensor, vocabulary: Vocabulary
) -> tuple[list[int], int, bool]:
    """Return `ids` with the first token exchanged that is not the likeliest, and all after it.

    The number says how many are settled, the truth value whether there was such a token.
    """
    done = sum(len(vocabulary.text_of(each)) for each in ids[:settled])
    for at in range(settled, len(ids)):
        own, rest, row = vocabulary.text_of(ids[at]), text[done:], rows[at]
        if _BROKEN in own:
            return [*ids[:at]], at, False
        best = max(vocabulary.openings(rest), key=lambda each: float(row[each]), default=ids[at])
        if best != ids[at]:
            after = vocabulary.encode(rest[len(vocabulary.text_of(best)) :])
            return [*ids[:at], best, *after], at + 1, True
        done += len(own)
    return [*ids], len(ids), False
