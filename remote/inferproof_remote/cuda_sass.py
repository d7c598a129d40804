"""What a cubin's machine code is made of: which units it uses and how wide it moves data."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^\s,]+)", re.MULTILINE)
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][A-Za-z0-9_.]*)")
_TENSOR = re.compile(r"^(?:[HIQBDO]G?MMA|UTC[A-Z]*MMA)(?:\.|$)")
_WIDTH = re.compile(r"\.(64|128|256)(?:\.|$)")
_LOADS, _STORES = ("LDG", "LD"), ("STG", "ST")
_BULK = re.compile(r"^(?:UBLKCP|UTMALDG|UTMASTG|UTMAREDG|LDGSTS)")
_MOST_OPCODES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCode:
    """One kernel's instructions by kind, as they stand in the code, not as they run.

    `tensor` counts matrix instructions by full name, `loads` and `stores` accesses of global
    memory by their bits, `bulk` asynchronous copies, `local` accesses of spilled memory.
    """

    instructions: int
    opcodes: Mapping[str, int]
    tensor: Mapping[str, int]
    loads: Mapping[str, int]
    stores: Mapping[str, int]
    bulk: int
    local: int


def parse_sass(text: str) -> dict[str, MachineCode]:
    """Return the machine code in what `nvdisasm -c` printed, by kernel."""
    marks = list(_SECTION.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    return {mark[1]: _code(text[mark.end() : end]) for mark, end in zip(marks, ends, strict=False)}


def _code(text: str) -> MachineCode:
    found = [match[1] for match in _INSTRUCTION.finditer(text)]
    bases = Counter(name.partition(".")[0] for name in found)
    return MachineCode(
        instructions=len(found),
        opcodes=dict(bases.most_common(_MOST_OPCODES)),
        tensor=dict(Counter(name for name in found if _TENSOR.match(name))),
        loads=dict(Counter(_widths(found, _LOADS))),
        stores=dict(Counter(_widths(found, _STORES))),
        bulk=sum(1 for name in found if _BULK.match(name)),
        local=bases["LDL"] + bases["STL"],
    )


def _widths(found: list[str], kinds: tuple[str, ...]) -> Iterator[str]:
    """Yield the bits of each access; an access that names no width moves 32 or fewer."""
    for name in found:
        if name.partition(".")[0] in kinds:
            width = _WIDTH.search(name)
            yield width[1] if width else "32"
