"""Two further ways through an engine: a long prompt amid others, and the same tokens both ways.

`mixed`: the longest prompt comes while others decode, so that an engine that cuts prompts into
chunks runs them beside decoding; all of them are scored.
`split`: what was decoded after `k` tokens is asked again as a prompt of `n`. The two readings of a
position are held against each other, without the reference; what they may differ by is the error
of two trusted readings.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from inferproof_remote.serving.prompts import Ids, Prompt, Rules, Step, Windows
from inferproof_remote.serving.scoring import Reading, Transcript
from inferproof_remote.stream import Stream

RUNNING = 2
MOST_SPLIT, SPLIT_PREFIXES = 2, 6


def mixed(bits: bytes, rules: Rules, windows: Windows, first_number: int) -> Step:
    """Return prompts that decode, and last the long one that comes while they do."""
    stream = Stream(bits, "mixed")
    lengths = [*(stream.choice(rules.lengths) for _ in range(RUNNING)), max(rules.lengths)]
    prompts = tuple(
        Prompt(
            number=first_number + place,
            ids=windows.draw(stream, max(2, length)),
            output_tokens=rules.decode_tokens,
        )
        for place, length in enumerate(lengths)
    )
    return Step(path="mixed", prompts=prompts)


def again_whole(told: Transcript) -> Prompt:
    """Return the prompt that has what was decoded in it."""
    return Prompt(number=told.number, ids=told.ids)


def again_in_prefixes(told: Transcript, bits: bytes) -> Iterator[Prompt]:
    """Yield prompts that end before one or another of the tokens that were decoded."""
    stream = Stream(bits, f"split {told.number}")
    for reading in stream.shuffled(told.readings)[:SPLIT_PREFIXES]:
        yield Prompt(number=told.number, ids=told.ids, at=reading.position, output_tokens=1)


def paired(again: Sequence[Reading], told: Transcript) -> tuple[Reading, ...]:
    """Return the readings of `again` at positions that `told` read too, each with the other."""
    lists = {each.position: each.listed for each in told.readings}
    return tuple(
        replace(each, against=lists[each.position], nll=None)
        for each in again
        if each.position in lists
    )


def as_split(told: Transcript, ids: Ids, readings: Sequence[Reading]) -> Transcript:
    """Return what an engine said when it was asked again, as a transcript of its own path."""
    return Transcript(path="split", number=told.number, ids=ids, readings=paired(readings, told))
