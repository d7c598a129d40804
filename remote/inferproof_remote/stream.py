"""Random numbers that anyone can draw again from the revealed bits.

A named stream is SHA-256 in counter mode, keyed by HMAC of the bits and the name (the expansion
step of HKDF), so that one draw never shifts another.
"""

import hashlib
import hmac
import math
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
_WORD = 1 << 64


class Stream:
    """An endless row of independent draws, fixed by `bits` and `name`."""

    def __init__(self, bits: bytes, name: str) -> None:
        self._key = hmac.new(bits, name.encode(), hashlib.sha256).digest()
        self._counter = 0

    def word(self) -> int:
        """Return 64 random bits."""
        block = hashlib.sha256(self._key + self._counter.to_bytes(8, "big")).digest()
        self._counter += 1
        return int.from_bytes(block[:8], "big")

    def below(self, limit: int) -> int:
        """Return an integer in [0, limit), each equally likely."""
        most = _WORD - _WORD % limit
        while True:
            word = self.word()
            if word < most:
                return word % limit

    def between(self, low: int, high: int) -> int:
        """Return an integer in [low, high], each equally likely."""
        return low + self.below(high - low + 1)

    def log_between(self, low: int, high: int) -> int:
        """Return an integer in [low, high]; each octave is about equally likely."""
        low_log, high_log = math.log(low), math.log(high + 1)
        drawn = math.exp(low_log + (high_log - low_log) * self.word() / _WORD)
        return min(high, max(low, int(drawn)))

    def choice(self, items: Sequence[T]) -> T:
        """Return one of `items`."""
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return `items` in random order."""
        left = list(items)
        for last in range(len(left) - 1, 0, -1):
            other = self.below(last + 1)
            left[last], left[other] = left[other], left[last]
        return left

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Return `count` of `items` (all, if there are fewer), without repetition."""
        return self.shuffled(items)[:count]
