"""A model's vocabulary: which ids a text is, and which id an engine means by a token's text."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

from inferproof_remote.serving.rows import TokenRef

_BROKEN = "\ufffd"
_AS_THEMSELVES = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = tuple(each for each in range(0x100) if each not in _AS_THEMSELVES)
_BYTE_LETTERS: Mapping[str, int] = {
    **{chr(each): each for each in _AS_THEMSELVES},
    **{chr(0x100 + place): each for place, each in enumerate(_OTHERS)},
}


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

    def bytes_of(self, token: int) -> bytes:
        """Return what one token spells in UTF-8; nothing where that is not known."""
        return self._bytes[token]

    def openings(self, text: bytes) -> list[int]:
        """Return the tokens that `text` may begin with."""
        starts = (text[:end] for end in range(1, min(len(text), self._longest) + 1))
        return [each for start in starts for each in self._by_bytes.get(start, ())]

    @cached_property
    def _texts(self) -> list[str]:
        return [self.decode([each]) for each in range(self.size)]

    @cached_property
    def _bytes(self) -> list[bytes]:
        spelt = self._tokenizer.convert_ids_to_tokens(range(self.size))
        return [
            _bytes_of_part(name or "") if _BROKEN in text else text.encode()
            for text, name in zip(self._texts, spelt, strict=True)
        ]

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._bytes))

    @cached_property
    def _by_bytes(self) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for token, piece in enumerate(self._bytes):
            found.setdefault(piece, []).append(token)
        return found

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


def _bytes_of_part(name: str) -> bytes:
    """Return the bytes of a token that is not of whole characters, from its name.

    `<0xE2>` is one byte. Byte-level vocabularies spell each byte as a letter.
    """
    if re.fullmatch("<0x[0-9A-F]{2}>", name):
        return bytes.fromhex(name[3:5])
    letters = [_BYTE_LETTERS.get(each) for each in name]
    return bytes(each for each in letters if each is not None) if None not in letters else b""
