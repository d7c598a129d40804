"""Texts for load that nobody can have answers ready for: made of drawn pieces, after the commit.

A window of the sealed corpus could be looked up by who knows the corpus. Here no run of it is
longer than a few tokens, pieces follow each other in a drawn order, and some are random tokens.
"""

import re
from collections.abc import Callable, Mapping

from inferproof_remote.serving.prompts import CorpusTooSmall, Windows
from inferproof_remote.serving.vocabulary import Vocabulary
from inferproof_remote.stream import Stream

_LEAST_PIECE, _GREATEST_PIECE = 2, 24
_PIECES = 3  # at least so many in one text
_RANDOM_OF = 4  # one piece in so many is random tokens
_KEYS, _STATES, _NUMBERS = 4, 6, 10_000
_TRIES = 400
_BROKEN = "\ufffd"


class Texts:
    """Draws texts of a given kind and length; each reads the same as text and as token ids."""

    def __init__(self, corpus: str, vocabulary: Vocabulary, stream: Stream) -> None:
        self._vocabulary, self._stream = vocabulary, stream
        self._windows = Windows(corpus, vocabulary)
        self._corpus = vocabulary.encode(corpus)
        self._words = sorted(set(re.findall(r"[^\W\d_]{2,12}", corpus))) or ["value"]
        self._pieces: Mapping[str, Callable[[int], str]] = {
            "mixed": self._mixed,
            "prose": self._prose,
            "structured": self._record,
            "tokens": self._random,
        }
        self._keys = [stream.choice(self._words) for _ in range(_KEYS)]
        self._states = [stream.choice(self._words) for _ in range(_STATES)]

    def draw(self, content: str, tokens: int, prefix: str = "") -> str:
        """Return a text of `tokens` tokens that begins with `prefix`, the tokenizer's own included.

        Raises:
            CorpusTooSmall: no such text was found.
        """
        leading = self._vocabulary.leading
        wanted = tokens - len(leading)
        for _ in range(_TRIES if wanted > 0 else 0):
            ids = tuple(self._vocabulary.encode(self._joined(content, wanted, prefix))[:wanted])
            text = self._vocabulary.decode(ids)
            if text.startswith(prefix) and self._windows.are_readable((*leading, *ids)):
                return text
        raise CorpusTooSmall(f"no text of {tokens} tokens after one of {len(prefix)} characters")

    def _joined(self, content: str, wanted: int, prefix: str) -> str:
        """Return pieces after `prefix` that are at least `wanted` tokens together."""
        piece, text = self._pieces[content], prefix
        longest = max(_LEAST_PIECE, min(_GREATEST_PIECE, wanted // _PIECES))
        while (missing := wanted - len(self._vocabulary.encode(text))) > 0:
            for _ in range(1 + missing // longest):
                text += piece(self._stream.between(_LEAST_PIECE, longest))
        return text

    def _mixed(self, tokens: int) -> str:
        make = self._prose if self._stream.below(_RANDOM_OF) else self._random
        return make(tokens)

    def _prose(self, tokens: int) -> str:
        starts = len(self._corpus) - tokens + 1
        if starts <= 0:
            raise CorpusTooSmall(f"no piece of {tokens} tokens in a corpus of {len(self._corpus)}")
        at = self._stream.below(starts)
        return self._clean(self._vocabulary.decode(self._corpus[at : at + tokens]))

    def _random(self, tokens: int) -> str:
        ids = [self._stream.below(self._vocabulary.size) for _ in range(tokens)]
        shown = [each for each in ids if each not in self._vocabulary.invisible]
        return self._clean(self._vocabulary.decode(shown))

    def _record(self, _: int) -> str:
        """Return one line in the form that all records of the run share."""
        fields = ", ".join(f'"{key}": "{self._stream.choice(self._states)}"' for key in self._keys)
        return f'{{"id": {self._stream.below(_NUMBERS)}, {fields}}}\n'

    def _clean(self, text: str) -> str:
        """Return `text` without characters that were cut, and never nothing."""
        return text.replace(_BROKEN, "") or self._stream.choice(self._words)
