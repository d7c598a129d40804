"""A model's vocabulary: which ids a text is, and which id an engine means by a token's text."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

from inferproof_remote.serving.client import TokenRef


class AddedToken(Protocol):
    """The part of an added token that is used here."""

    special: bool


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that is used here."""

    all_special_ids: list[int]
    added_tokens_decoder: Mapping[int, AddedToken]

    def __len__(self) -> int:
        """Return how many tokens there are."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of `text`."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids."""
        ...

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        """Return the vocabulary's own spelling of ids."""
        ...


class Vocabulary:
    """Reads token names; a text that several tokens share names none of them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.size = len(tokenizer)

    @cached_property
    def leading(self) -> tuple[int, ...]:
        """The ids that the tokenizer puts before every text, as a server does with a text."""
        return tuple(self._tokenizer.encode(""))

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The special tokens: an engine may take any of them for an end of text."""
        return tuple(self._tokenizer.all_special_ids)

    @cached_property
    def invisible(self) -> frozenset[int]:
        """The tokens that servers leave out of the text that they return."""
        added = self._tokenizer.added_tokens_decoder
        return frozenset({*self.ends, *(each for each, token in added.items() if token.special)})

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text` alone."""
        return self._tokenizer.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`."""
        return self._tokenizer.decode(ids)

    def id_of(self, ref: TokenRef | None) -> int | None:
        """Return the id that an engine means, or None where that is not certain."""
        if isinstance(ref, int):
            return ref if ref < self.size else None
        return None if ref is None else self._by_text.get(ref)

    def text_of(self, token: int) -> str:
        """Return the text of one token; a part of a character reads as U+FFFD."""
        return self._texts[token]

    def openings(self, text: str) -> list[int]:
        """Return the tokens that `text` may begin with."""
        starts = (text[:end] for end in range(1, min(len(text), self._longest) + 1))
        return [self._alone[start] for start in starts if start in self._alone]

    @cached_property
    def _texts(self) -> list[str]:
        return [self.decode([each]) for each in range(self.size)]

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._texts))

    @cached_property
    def _alone(self) -> dict[str, int]:
        shared = Counter(self._texts)
        return {text: each for each, text in enumerate(self._texts) if shared[text] == 1}

    @cached_property
    def _by_text(self) -> dict[str, int]:
        known = set(self._texts)
        spelt = self._tokenizer.convert_ids_to_tokens(range(self.size))
        own = {name: each for each, name in enumerate(spelt) if name and name not in known}
        return own | self._alone
