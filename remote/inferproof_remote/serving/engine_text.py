"""From tokens to text as it is generated: whole characters only, nothing of a stop string."""

from collections.abc import Callable, Sequence

_UNFINISHED = "�"
_CONTEXT = 6


class Writer:
    """Turns one request's tokens into text, piece by piece."""

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        *,
        prompt: Sequence[int],
        stop: Sequence[str],
    ) -> None:
        self._decode = decode
        # A few tokens before: some tokenizers write a word's blank only if something precedes it.
        self._ids = list(prompt[-_CONTEXT:])
        self._from, self._read = 0, len(self._ids)
        self._stop = stop
        self._held = max((len(text) for text in stop), default=1) - 1
        self._text = ""
        self._shown = 0
        self.stopped = False

    def add(self, token: int, *, last: bool) -> str:
        """Return what may be shown now that `token` is there; `stopped` if that was all."""
        self._ids.append(token)
        before = len(self._text)
        self._text += self._fresh(last=last)
        for text in self._stop:
            at = self._text.find(text, max(0, before - self._held))
            if at >= 0:
                self._text, self.stopped = self._text[:at], True
        end = len(self._text) if last or self.stopped else max(self._shown, self._safe())
        shown, self._shown = self._text[self._shown : end], max(self._shown, end)
        return shown

    def _safe(self) -> int:
        return len(self._text) - self._held

    def _fresh(self, *, last: bool) -> str:
        known = self._decode(self._ids[self._from : self._read])
        text = self._decode(self._ids[self._from :])
        if text.endswith(_UNFINISHED) and not last:
            return ""
        self._from, self._read = self._read, len(self._ids)
        return text[len(known) :]
