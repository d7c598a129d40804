"""The system-call filter, run on an interpreter of the instructions it uses."""

import errno
import struct

import pytest

from inferproof_remote import seccomp

ALLOW = 0x7FFF0000
REFUSE = 0x00050000 | errno.EPERM
MISSING = 0x00050000 | errno.ENOSYS
X86_64, AARCH64, I386 = 0xC000003E, 0xC00000B7, 0x40000003


def judge(machine: str, *, arch: int, number: int, flags: int = 0, bound: bool = False) -> int:
    program = seccomp.program(machine, bound=bound)
    assert program is not None
    data = struct.pack("=iIQ6Q", number, arch, 0, flags, 0, 0, 0, 0, 0)
    steps = list(struct.iter_unpack("=HBBI", program))
    at, held = 0, 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        match code:
            case 0x20:
                (held,) = struct.unpack_from("=I", data, value)
            case 0x06:
                return int(value)
            case 0x15:
                at += if_true if held == value else if_false
            case 0x35:
                at += if_true if held >= value else if_false
            case 0x45:
                at += if_true if held & value else if_false
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


@pytest.mark.parametrize(
    ("machine", "arch", "ptrace", "read", "clone"),
    [("x86_64", X86_64, 101, 0, 56), ("aarch64", AARCH64, 117, 63, 220)],
)
def test_filter_refuses_and_allows(
    machine: str, arch: int, ptrace: int, read: int, clone: int
) -> None:
    assert judge(machine, arch=arch, number=ptrace) == REFUSE
    assert judge(machine, arch=arch, number=425) == REFUSE, "io_uring_setup"
    assert judge(machine, arch=arch, number=435) == MISSING, "clone3 must fall back to clone"
    assert judge(machine, arch=arch, number=read) == ALLOW
    assert judge(machine, arch=arch, number=clone, flags=0x003D0F00) == ALLOW, "a thread"
    assert judge(machine, arch=arch, number=clone, flags=17) == ALLOW, "a fork"
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x40000000):
        assert judge(machine, arch=arch, number=clone, flags=17 | flag) == REFUSE


@pytest.mark.parametrize(
    ("machine", "arch", "numbers", "epoll_create1"),
    [
        ("x86_64", X86_64, (283, 286, 222, 223, 203), 291),
        ("aarch64", AARCH64, (85, 86, 107, 110, 122), 20),
    ],
)
def test_timers_and_a_choice_of_processors_are_refused_to_what_is_timed_alone(
    machine: str, arch: int, numbers: tuple[int, ...], epoll_create1: int
) -> None:
    for number in numbers:
        assert judge(machine, arch=arch, number=number, bound=True) == REFUSE
        assert judge(machine, arch=arch, number=number) == ALLOW
    assert judge(machine, arch=arch, number=epoll_create1, bound=True) == ALLOW


def test_other_call_conventions_are_refused() -> None:
    assert judge("x86_64", arch=I386, number=0) == REFUSE
    assert judge("x86_64", arch=X86_64, number=0x40000000) == REFUSE
    assert judge("x86_64", arch=X86_64, number=0x40000000 + 521) == REFUSE


def test_unknown_machine_has_no_filter() -> None:
    assert seccomp.program("riscv64") is None
