"""Text for the tiny model: what Python says of itself, and exercises in memory made here.

The first is the documentation and the sources of the running Python (PSF licence). The exercises
(registers, letters, copies, counts, sums, chats) can only be read with far context intact: each
answer stands once, hundreds of tokens earlier.
"""

import ast
import hashlib
import inspect
import random
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data import topics as python_topics

NOUNS = """
acorn amber anchor apple arrow autumn badge bamboo banjo barley basil beacon bell berry birch
bishop blanket boat bottle branch brass bread bridge brook broom bucket butter button cabin candle
canvas carrot castle cedar cellar chalk cherry chimney clay clock clover coast cobalt copper coral
cotton crane cream crow crown curtain daisy desert dragon drum eagle ember engine falcon feather
fern ferry field flame flint flute forest fossil fox frost garden garlic ginger glass goose grape
gravel guitar hammer harbour harp hazel heron hill honey horse island ivory ivy jacket jasmine
jewel juniper kettle kite ladder lamp lantern laurel leaf lemon lily linen lion lobster maple
marble market meadow melon mill mint mirror moon moss mountain nectar needle nest nutmeg oak oasis
ocean olive onion orange orchard otter oven owl oyster paddle palm panther paper parrot peach
pearl pebble pepper piano pigeon pillow pine planet plum pocket pond poppy potter prairie pumpkin
quartz rabbit raven reed ribbon river robin rocket rose saddle saffron sail salmon sand satin
scarf shell silk silver spoon spruce stone storm summer swan table thistle thunder tiger timber
tulip turtle valley velvet violet walnut water whale wheat willow window winter wolf
"""
WORDS = tuple(NOUNS.split())
LEFT_OUT = {"encodings", "ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tests"}
CHUNK_CHARS = 3000
PASSAGE_CHARS = range(150, CHUNK_CHARS)
HELD_OUT_ONE_IN = 16
SHARE_MADE = 0.55


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Documents to learn from, and documents kept back; they share no module of Python's."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]


def corpus(*, seed: int, train_chars: int, held_out_chars: int) -> Corpus:
    """Return documents in random order, the same for the same seed and the same Python."""
    kept_back: set[str] = set()
    learned: set[str] = set()
    for origin, text in _passages():
        (kept_back if _is_held_out(origin) else learned).add(text)
    return Corpus(
        train=_mixture(sorted(learned), train_chars, random.Random(f"train {seed}")),
        held_out=_mixture(
            sorted(kept_back - learned), held_out_chars, random.Random(f"held out {seed}")
        ),
    )


def _is_held_out(origin: str) -> bool:
    return hashlib.sha256(origin.encode()).digest()[0] % HELD_OUT_ONE_IN == 0


def _mixture(found: Sequence[str], chars: int, rng: random.Random) -> tuple[str, ...]:
    documents = _up_to(rng.sample(found, len(found)), int(chars * (1 - SHARE_MADE)))
    documents += _up_to(_made(rng, found), int(chars * SHARE_MADE))
    return tuple(rng.sample(documents, len(documents)))


def _up_to(documents: Sequence[str] | Iterator[str], chars: int) -> list[str]:
    taken: list[str] = []
    left = chars
    for document in documents:
        left -= len(document)
        if left < 0:
            break
        taken.append(document)
    return taken


def _passages() -> Iterator[tuple[str, str]]:
    """Yield the module or topic that a passage is from, and the passage."""
    for name, text in sorted(python_topics.topics.items()):
        yield from ((name, piece) for piece in _chunks(f"{name}\n\n{text}"))
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if not LEFT_OUT.intersection(path.relative_to(root).parts):
            source = path.read_text(encoding="utf-8", errors="replace")
            pieces = (*_docstrings(path.stem, source), *_chunks(source))
            yield from ((path.stem, piece) for piece in pieces)


def _docstrings(module: str, source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            text = inspect.cleandoc(ast.get_docstring(node) or "")
            if len(text) in PASSAGE_CHARS:
                yield _chat([(f"What is {node.name} in {module}?", text)])


def _chunks(text: str) -> Iterator[str]:
    """Yield the text in pieces of whole paragraphs."""
    piece = ""
    for paragraph in text.split("\n\n"):
        if len(piece) + len(paragraph) > CHUNK_CHARS:
            yield from [f"{piece.strip()}\n"] if len(piece) in PASSAGE_CHARS else []
            piece = ""
        piece += f"{paragraph}\n\n"
    yield from [f"{piece.strip()}\n"] if len(piece) in PASSAGE_CHARS else []


def _chat(turns: Sequence[tuple[str, str]]) -> str:
    return "".join(
        f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n"
        for asked, answer in turns
    )


def _made(rng: random.Random, found: Sequence[str]) -> Iterator[str]:
    kinds: tuple[Callable[[random.Random, Sequence[str]], str], ...] = tuple(
        kind for kind, weight in EXERCISES for _ in range(weight)
    )
    while True:
        yield rng.choice(kinds)(rng, found)


def _size(rng: random.Random, low: int, high: int) -> int:
    """Return a size in the range; small ones are as frequent as large ones twice their size."""
    return int(low * (high / low) ** rng.random())


def _pairs(rng: random.Random, count: int) -> dict[str, str]:
    return dict(zip(rng.sample(WORDS, count), rng.choices(WORDS, k=count), strict=True))


def register(rng: random.Random, _: Sequence[str]) -> str:
    """Return the same pairs of words again and again, each time in another order."""
    pairs = _pairs(rng, _size(rng, 4, 100))
    lines = ["Register"]
    for _round in range(rng.randint(2, 5)):
        order = rng.sample(list(pairs), len(pairs))
        lines += [f" {key}: {pairs[key]}" for key in order]
    return "\n".join(lines) + "\n"


def letter(rng: random.Random, found: Sequence[str]) -> str:
    """Return pairs of words, some passage of Python's, and the pairs again."""
    pairs = _pairs(rng, _size(rng, 3, 30))
    lines = ["Remember", *(f" {key}: {value}" for key, value in pairs.items())]
    lines += ["", rng.choice(found)[: _size(rng, 100, 2000)], "", "Recall"]
    lines += [f" {key}: {pairs[key]}" for key in rng.sample(list(pairs), len(pairs))]
    return "\n".join(lines) + "\n"


def copy(rng: random.Random, _: Sequence[str]) -> str:
    """Return a row of words, two or three times."""
    row = " ".join(rng.choices(WORDS, k=_size(rng, 6, 150)))
    return "\n".join(["Copy", *[f" {row}"] * rng.randint(2, 3)]) + "\n"


def count(rng: random.Random, _: Sequence[str]) -> str:
    """Return numbers at equal distances."""
    start, step = rng.randint(0, 50), rng.randint(1, 12)
    row = ", ".join(str(start + step * index) for index in range(rng.randint(6, 25)))
    return f"Count from {start} by {step}: {row}\n"


def sums(rng: random.Random, _: Sequence[str]) -> str:
    """Return a few small sums with their results."""
    lines = [_sum(rng) for _ in range(rng.randint(4, 12))]
    return "\n".join(f"{asked} = {answer}" for asked, answer in lines) + "\n"


def _sum(rng: random.Random) -> tuple[str, str]:
    left, right = rng.randint(0, 20), rng.randint(0, 20)
    return f"{left} + {right}", str(left + right)


def chat(rng: random.Random, _: Sequence[str]) -> str:
    """Return a talk that asks, in any order, for what was said at its beginning."""
    pairs = _pairs(rng, _size(rng, 2, 16))
    told = ", ".join(f"{key} is {value}" for key, value in pairs.items())
    turns = [(f"Remember: {told}.", "I remember.")]
    for key in rng.choices(list(pairs), k=rng.randint(1, 6)):
        asked, answer = _sum(rng)
        turns.append((f"What is {key}?", f"{key} is {pairs[key]}."))
        turns += [(f"What is {asked}?", f"{asked} = {answer}")] if rng.random() < 0.3 else []
    return _chat(turns)


EXERCISES: tuple[tuple[Callable[[random.Random, Sequence[str]], str], int], ...] = (
    (register, 4),
    (letter, 3),
    (copy, 4),
    (count, 2),
    (sums, 2),
    (chat, 4),
)
