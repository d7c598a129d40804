"""How long to wait for an answer: as long as the engine's own pace asks for.

A slow engine on a slow machine is no silent one. What many requests at once may take follows from
what one of them took alone; an engine that answers one at its pace and many never is found out as
soon as its pace says, or at the latest after `MOST_S`.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from inferproof_remote.serving.client import Client, Completion, Request

MOST_S = 600.0
_TIMES = 3.0  # as long as requests one after another would take
_TOKENS, _AT_ONCE = 16, 32


def patience_s(alone_s: float, *, at_once: int, least_s: float) -> float:
    """Return how long to wait for `at_once` requests of which one alone took `alone_s`."""
    return max(least_s, min(MOST_S, _TIMES * at_once * alone_s))


def paced(client: Client, clock: Callable[[], float] = time.monotonic) -> Client:
    """Return `client` with the patience that its engine's pace on one short request asks for."""
    began_s = clock()
    answer = client.complete(Request(prompt="def", max_tokens=_TOKENS))
    if not isinstance(answer, Completion):
        return client
    least_s = client.timeout_s
    return replace(
        client, timeout_s=patience_s(clock() - began_s, at_once=_AT_ONCE, least_s=least_s)
    )
