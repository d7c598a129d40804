"""Responses of the scored run itself, read by the reference: is this what the model says?

The run asks for greedy tokens, so each must lie close to the reference's best at its place. One
check covers replay, garbage, truncation, another model, and speculation that nobody verified.
"""

import time
from collections.abc import Mapping, Sequence

from inferproof_remote import job
from inferproof_remote.serving.records import Response
from inferproof_remote.serving.reference import Yardsticks
from inferproof_remote.serving.scoring import tie_gap_nats
from inferproof_remote.stream import Stream


def audit(
    responses: Sequence[Response],
    yardsticks: Yardsticks,
    rules: Mapping[str, object],
    stream: Stream,
) -> dict[str, object]:
    """Return the gap of each greedy token of a drawn sample of `responses`, as `AuditFacts`."""
    began_s = time.monotonic()
    count = int(job.as_number(rules["responses"], "responses"))
    sample = stream.sample(responses, count)
    vocabulary = yardsticks.vocabulary
    prompts = [[*vocabulary.leading, *vocabulary.encode(each.prompt)] for each in sample]
    whole = [[*ids, *each.ids] for ids, each in zip(prompts, sample, strict=True)]
    gaps: list[float] = []
    for start, ids, rows in zip(
        map(len, prompts), whole, yardsticks.truth.many(whole), strict=True
    ):
        places = range(start, len(ids))
        gaps += [tie_gap_nats(rows[at - 1], ids[at], vocabulary.ends) for at in places]
    return {
        "responses": len(sample),
        "tie_gap_nats": gaps,
        "seconds": time.monotonic() - began_s,
    }
