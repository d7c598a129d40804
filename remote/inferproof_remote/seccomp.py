"""A list of system calls that no kernel needs, as a filter for bubblewrap's --seccomp.

Refused calls return EPERM. `clone3` returns ENOSYS so that the C library falls back to `clone`,
whose flags a filter can see.
"""

import errno
import platform
import struct

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_NAMESPACE_FLAGS = 0x7E020000
_OLD_ABI_BIT = 0x40000000
_CLONE3 = 435

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_OFFSET, _ARCH_OFFSET, _FIRST_ARGUMENT_OFFSET = 0, 4, 16

# ptrace process_vm_readv process_vm_writev kcmp perf_event_open bpf userfaultfd kexec_load
# kexec_file_load add_key request_key keyctl mount umount2 pivot_root unshare setns init_module
# finit_module delete_module open_by_handle_at name_to_handle_at swapon swapoff reboot chroot acct
_X86_64 = (
    *(101, 310, 311, 312, 298, 321, 323, 246, 320, 248, 249, 250, 165, 166, 155, 272, 308),
    *(175, 313, 176, 304, 303, 167, 168, 169, 161, 163),
)
_AARCH64 = (
    *(117, 270, 271, 272, 241, 280, 282, 104, 294, 217, 218, 219, 40, 39, 41, 97, 268),
    *(105, 273, 106, 265, 264, 224, 225, 142, 51, 89),
)
# io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig fsmount
# fspick pidfd_getfd mount_setattr: one number on every architecture
_EVERYWHERE = (425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442)

# timerfd_create timerfd_settime timer_create timer_settime sched_setaffinity
_X86_64_BOUND = (283, 286, 222, 223, 203)
_AARCH64_BOUND = (85, 86, 107, 110, 122)

_ARCHITECTURES = {
    "x86_64": (0xC000003E, 56, _X86_64, _X86_64_BOUND),
    "aarch64": (0xC00000B7, 220, _AARCH64, _AARCH64_BOUND),
}


def program(machine: str | None = None, *, bound: bool = False) -> bytes | None:
    """Return the filter for this architecture (default: the running one), or None if unknown.

    A `bound` process also gets no timers but its sleeps, and cannot choose its processors.
    """
    known = _ARCHITECTURES.get(machine or platform.machine())
    if known is None:
        return None
    audit_arch, clone, numbers, numbers_if_bound = known
    refuse = _instruction(_RETURN, 0, 0, _ERRNO | errno.EPERM)
    steps = [
        _instruction(_LOAD, 0, 0, _ARCH_OFFSET),
        _instruction(_EQUAL, 1, 0, audit_arch),
        refuse,
        _instruction(_LOAD, 0, 0, _NUMBER_OFFSET),
        _instruction(_AT_LEAST, 0, 1, _OLD_ABI_BIT),
        refuse,
        _instruction(_EQUAL, 0, 1, _CLONE3),
        _instruction(_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
    ]
    for number in (*numbers, *_EVERYWHERE, *(numbers_if_bound if bound else ())):
        steps += [_instruction(_EQUAL, 0, 1, number), refuse]
    steps += [
        _instruction(_EQUAL, 0, 3, clone),
        _instruction(_LOAD, 0, 0, _FIRST_ARGUMENT_OFFSET),
        _instruction(_ANY_BIT, 0, 1, _NAMESPACE_FLAGS),
        refuse,
        _instruction(_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(steps)


def _instruction(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
