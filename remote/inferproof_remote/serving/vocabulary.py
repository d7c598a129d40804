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

    def ids_of_text(self, text: str, count: int | None) -> tuple[int, ...] | None:
        """Return the ids that `text` surely is: the tokenizer's own split, of the told length."""
        ids = self.encode(text)
        is_certain = len(ids) == count and self.decode(ids) == text
        return tuple(ids) if is_certain else None

    @cached_property
    def _by_text(self) -> dict[str, int]:
        texts = [self.decode([each]) for each in range(self.size)]
        shared = Counter(texts)
        spelt = self._tokenizer.convert_ids_to_tokens(range(self.size))
        own = {name: each for each, name in enumerate(spelt) if name is not None}
        alone = {text: each for each, text in enumerate(texts) if shared[text] == 1}
        return {**{name: each for name, each in own.items() if name not in shared}, **alone}
