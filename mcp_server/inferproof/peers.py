"""Whose program is at the other end of a connection, as the kernel tells it."""

import errno
import os
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

_TABLES = {4: Path("/proc/net/tcp"), 6: Path("/proc/net/tcp6")}
_WORD_BYTES = 4


def is_apart(peer: tuple[str, int] | None, own: tuple[str, int] | None) -> bool:
    """Whether whoever calls can neither read nor change what this process's user owns.

    That is so for another machine, and for another user of this one but root.
    """
    if peer is None or own is None:
        return False
    if not is_here(peer[0]):
        return True
    user = user_of(peer, own)
    return user is not None and user not in (0, os.geteuid())


def is_here(host: str) -> bool:
    """Whether an address is one of this machine's, whichever: the kernel lends out no other."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, 0, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST
    )[0]
    with socket.socket(family, kind, protocol) as tried:
        try:
            tried.bind(address)
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL  # whoever cannot be told apart is not
    return True


def user_of(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """Return the user of a local program that is connected to us; None if it is not found."""
    version = ip_address(peer[0]).version
    wanted = [_in_table(*peer), _in_table(*own)]
    with _TABLES[version].open(encoding="ascii") as table:
        for line in table:
            fields = line.split()
            if fields[1:3] == wanted:
                return int(fields[7])
    return None


def _in_table(host: str, port: int) -> str:
    """Return an address as the kernel's table writes it: words in the machine's byte order."""
    address: IPv4Address | IPv6Address = ip_address(host)
    packed = address.packed
    words = [packed[at : at + _WORD_BYTES] for at in range(0, len(packed), _WORD_BYTES)]
    return "".join(f"{socket.htonl(int.from_bytes(word)):08X}" for word in words) + f":{port:04X}"
