"""Tokens that no text shows: an engine that streams text alone has them too, and counts them.

An engine that was told to go on after an end of text may say such tokens or forbid them.
"""

from collections.abc import Sequence

from torch import Tensor

from inferproof_remote.serving.reference import Yardsticks
from inferproof_remote.serving.scoring import tie_gap_nats
from inferproof_remote.serving.vocabulary import Vocabulary

MOST_PLACES, MOST_TOGETHER = 4, 3


def gaps(rows: Tensor, ids: Sequence[int], start: int, vocabulary: Vocabulary) -> list[float]:
    """Return how far each token from `start` on is from the best."""
    unseen = tuple(vocabulary.invisible)
    return [tie_gap_nats(rows[at - 1], ids[at], unseen) for at in range(start, len(ids))]


def with_unseen(
    prompt: Sequence[int], output: Sequence[int], yardsticks: Yardsticks, tie_nats: float
) -> tuple[int, ...]:
    """Return `output` with the few tokens that its text hides, where the model itself says them.

    They go only before a token that does not fit without them and does with them.
    """
    whole, at = [*prompt, *output], len(prompt)
    for _ in range(MOST_PLACES):
        rows = yardsticks.truth.logprobs(whole)
        found = enumerate(gaps(rows, whole, at, yardsticks.vocabulary), at)
        misfit = next((place for place, gap in found if gap > tie_nats), None)
        if misfit is None:
            break
        hidden = _hidden(whole[:misfit], whole[misfit], yardsticks, tie_nats)
        whole[misfit:misfit] = hidden
        at = misfit + len(hidden) + 1
    return tuple(whole[len(prompt) :])


def _hidden(
    before: Sequence[int], token: int, yardsticks: Yardsticks, tie_nats: float
) -> list[int]:
    """Return the unseen tokens that the model says after `before` if `token` then follows."""
    vocabulary, whole = yardsticks.vocabulary, [*before]
    for _ in range(MOST_TOGETHER):
        best = int(yardsticks.truth.logprobs(whole)[-1].argmax())
        if best not in vocabulary.invisible:
            break
        whole.append(best)
        rows = yardsticks.truth.logprobs(whole)
        if tie_gap_nats(rows[-1], token, tuple(vocabulary.invisible)) <= tie_nats:
            return whole[len(before) :]
    return []
