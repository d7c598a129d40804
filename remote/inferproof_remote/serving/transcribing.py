"""Which tokens a generated text was, where the engine tells neither ids nor names.

A text can be split in more than one way, and a model does not always split as its tokenizer does.
It also hides tokens: an engine that was told to go on after an end of text may say such tokens,
which its text then does not show, or forbid them; and a character may be cut in its middle.

So the text is read with the reference, token by token: each must spell what comes next in the text,
or nothing if it is of those that texts hide, and lie within a tie of the reference's best. Such a
reading is what a right engine could have said, and only that. Where there is none, the likeliest
token that spells what comes next stands in, and its gap says what the engine did; after a few of
those there is no more to learn.
"""

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from inferproof_remote.serving.prompts import Ids
from inferproof_remote.serving.reference import Yardsticks
from inferproof_remote.serving.scoring import near_best

MOST_TOGETHER, MOST_LOOKS_BACK, MOST_STAND_INS = 3, 32, 8
_BROKEN = "\ufffd"


@dataclass(frozen=True, slots=True)
class Reading:
    """The tokens of a text, and what of the text no token spells."""

    ids: Ids
    rest: str


@dataclass(frozen=True, slots=True)
class _Place:
    """How far a reading has come: `done` characters are spelt, and `part` of the next one.

    The last `hidden` tokens show nothing.
    """

    ids: Ids = ()
    done: int = 0
    part: bytes = b""
    hidden: int = 0

    @property
    def touched(self) -> int:
        """How many characters are spelt or begun."""
        return self.done + bool(self.part)


def read_text(
    text: str, count: int | None, prompt: Ids, yardsticks: Yardsticks, tie_nats: float
) -> Reading:
    """Return the tokens of `text` after `prompt`; `count` is how many the engine says they are.

    The count tells only how many tokens are hidden: it proves nothing, and no token hangs on it
    that the model itself does not say.
    """
    reader = _Reader(text, prompt, yardsticks, tie_nats)
    found = reader.read(count)
    return Reading(found.ids, text[found.touched :])


@dataclass(slots=True)
class _Reader:
    text: str
    prompt: Ids
    yardsticks: Yardsticks
    tie_nats: float
    _guess: Ids = ()
    _rows: Sequence[Tensor] = field(default_factory=list[Tensor])

    def read(self, count: int | None) -> _Place:
        """Return where the first reading ends that fits everywhere, or what stands in for one."""
        place, others, looks_back, stand_ins = _Place(), list[_Place](), 0, 0
        furthest, whole = place, None
        while True:
            furthest = max(furthest, place, key=lambda each: (each.done, each.part))
            if self._is_whole(place):
                whole = whole or place
                if count in (None, len(place.ids)):
                    return place
            ways = self._ways(place, count)
            if not ways and others and looks_back < MOST_LOOKS_BACK:
                ways, looks_back = [others.pop()], looks_back + 1
            elif not ways:
                place, others, stand_ins = furthest, [], stand_ins + 1
                is_over = whole is not None or stand_ins > MOST_STAND_INS
                ways = [] if is_over else list(self._stand_in(place))
            if not ways:
                return whole or place
            place = ways[0]
            others += reversed(ways[1:])

    def _is_whole(self, place: _Place) -> bool:
        rest = self.text[place.done :]
        return not rest or (bool(place.part) and rest == _BROKEN)

    def _ways(self, place: _Place, count: int | None) -> list[_Place]:
        """Return where tokens lead that the model may say, the likeliest first, hidden ones last.

        Behind the text's end there are no more than `count` says.
        """
        if self._is_whole(place) and (count is None or len(place.ids) >= count):
            return []
        vocabulary, row = self.yardsticks.vocabulary, self._row(place)
        near = near_best(row, self.tie_nats, vocabulary.ends)
        found = [self._shown(place, token) for token in near]
        if place.hidden < MOST_TOGETHER:
            unseen = [each for each in near if each in vocabulary.invisible]
            found += [
                replace(place, ids=(*place.ids, each), hidden=place.hidden + 1) for each in unseen
            ]
        return [each for each in found if each]

    def _shown(self, place: _Place, token: int) -> _Place | None:
        """Return where `token` leads if it spells what comes next."""
        piece = self.yardsticks.vocabulary.bytes_of(token)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        spelt = decoder.decode(place.part + piece)
        part, done = decoder.getstate()[0], place.done + len(spelt)
        after = self.text[done : done + 1]
        begun = after in ("", _BROKEN) or after.encode().startswith(part)
        if not piece or not begun or not self.text.startswith(spelt, place.done):
            return None
        return _Place((*place.ids, token), done, part)

    def _stand_in(self, place: _Place) -> Iterator[_Place]:
        """Yield where the likeliest token leads that spells what comes next, if that is known."""
        rest = self.text[place.done :]
        if not rest.startswith(_BROKEN):
            row = self._row(place)
            openings = self.yardsticks.vocabulary.openings(rest.encode()[len(place.part) :])
            likeliest = sorted(openings, key=lambda each: -float(row[each]))
            yield from filter(None, (self._shown(place, each) for each in likeliest[:1]))

    def _row(self, place: _Place) -> Tensor:
        """Return what the reference says after `place`; one pass reads ahead as far as it holds."""
        ids = place.ids
        if not self._rows or self._guess[: len(ids)] != ids or len(ids) >= len(self._rows):
            rest = self.text[place.touched :].split(_BROKEN)[0]
            self._guess = (*ids, *self.yardsticks.vocabulary.encode(rest))
            whole = self.yardsticks.truth.logprobs((*self.prompt, *self._guess))
            self._rows = list(whole[len(self.prompt) - 1 :])
        return self._rows[len(ids)]
