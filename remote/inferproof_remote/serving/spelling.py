"""Whether a text is what its engine says that its tokens are: the one reading of ids as text.

Servers show special tokens or not, cut a last character that is not whole with all that its tokens
spell, add blanks, and take them away at either end and before punctuation. Nothing else may differ:
what ids spell and the text does not have was never said.
"""

import re
from collections.abc import Sequence

from inferproof_remote.serving.vocabulary import Vocabulary

_BROKEN = "\ufffd"
_MOST_CUT = 3
_BEFORE_PUNCTUATION = re.compile(r"\s+(?=[^\w\s])")


def told_ids(
    told: Sequence[object] | None, text: str, vocabulary: Vocabulary
) -> tuple[int, ...] | None:
    """Return the ids that an engine told of its whole text, if they are what the text says."""
    ids = tuple(each for each in told or () if type(each) is int and 0 <= each < vocabulary.size)
    if not told or len(ids) < len(told):
        return None
    return ids if spells(ids, text, vocabulary) else None


def spells(ids: Sequence[int], text: str, vocabulary: Vocabulary, *, is_all: bool = True) -> bool:
    """Return whether `text` is what `ids` spell; its beginning, unless these are all."""
    visible = [each for each in ids if each not in vocabulary.invisible]
    for each in vocabulary.invisible.intersection(ids):
        text = text.replace(vocabulary.decode([each]), "")
    is_cut = vocabulary.decode(visible).endswith(_BROKEN)
    cuts = range(min(_MOST_CUT, len(visible)) + 1 if is_cut else 1)
    spelt = (vocabulary.decode(visible[: len(visible) - cut]) for cut in cuts)
    return any(_is_said(each, text, is_all=is_all) for each in spelt)


def _is_said(spelt: str, text: str, *, is_all: bool) -> bool:
    said, letters = _letters(text), _letters(spelt)
    if said != letters and (is_all or not said.startswith(letters)):
        return False
    return _blanks(_BEFORE_PUNCTUATION.sub("", spelt.strip())) <= _blanks(text)


def _letters(text: str) -> str:
    return "".join(text.split()).replace(_BROKEN, "")


def _blanks(text: str) -> int:
    return sum(map(str.isspace, text))
