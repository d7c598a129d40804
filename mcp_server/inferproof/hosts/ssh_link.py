"""One SSH connection to a machine, that notices within seconds when the machine is gone."""

import contextlib
import logging
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import paramiko
from paramiko.ssh_exception import IncompatiblePeer

from inferproof.core.errors import InfrastructureError, Unreachable
from inferproof.hosts.ssh_keys import (
    Pinned,
    changed,
    known_keys,
    refuse_another,
    refuse_revoked,
)
from inferproof.hosts.ssh_route import Hop

CONNECT_S = 10.0
BEAT_S = 3.0
SILENCE_S = 6.0
_WINDOW_BYTES = 16 << 20
_UNANSWERED_MS = 10_000
_LOG = logging.getLogger("paramiko")
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False  # its traces of broken lines are for nobody; we say what broke


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Whom to believe: a fingerprint that a person said, and the file of those that they said.

    `keeps` says whether a key with that fingerprint is written to the file.
    """

    target: str
    pins: Path
    fingerprint: str | None = None
    keeps: bool = False


class Link:
    """A connection through all hops; closed by whoever first notices that it is dead."""

    def __init__(self, hops: Sequence[Hop], trust: Trust) -> None:
        self._clients: list[paramiko.SSHClient] = []
        with contextlib.ExitStack() as unless_whole:
            unless_whole.callback(self.close)
            for hop in hops:
                last = hop is hops[-1]
                asked = trust if last else Trust(target=trust.target, pins=trust.pins)
                self._clients.append(_connected(hop, self._way_to(hop), asked))
            unless_whole.pop_all()
        beat = threading.Thread(target=self._beat, name=f"beat {hops[-1]}", daemon=True)
        beat.start()

    @property
    def is_open(self) -> bool:
        """Whether nobody noticed yet that the connection is dead."""
        transport = self._clients[-1].get_transport()
        return transport is not None and transport.is_active()

    def channel(self, command: str) -> paramiko.Channel:
        """Return a channel to a command that was just started.

        Raises:
            Unreachable: the connection is dead.
            paramiko.ChannelException: the machine allows no further channel on it.
        """
        try:
            channel = self._transport.open_session(window_size=_WINDOW_BYTES, timeout=CONNECT_S)
            channel.settimeout(CONNECT_S)
            channel.exec_command(command)
        except paramiko.ChannelException:
            raise
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise Unreachable(f"the connection broke: {_said(error)}") from error
        return channel

    def close(self) -> None:
        """Close the connection and every channel on it."""
        for client in reversed(self._clients):
            client.close()

    @property
    def _transport(self) -> paramiko.Transport:
        transport = self._clients[-1].get_transport()
        if transport is None:
            raise Unreachable("the connection is closed")
        return transport

    def _way_to(self, hop: Hop) -> socket.socket | paramiko.Channel:
        if not self._clients:
            return _socket(hop)
        try:
            return self._transport.open_channel(
                "direct-tcpip", (hop.host, hop.port), ("127.0.0.1", 0), timeout=CONNECT_S
            )
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise Unreachable(f"no way on to {hop}: {_said(error)}") from error

    def _beat(self) -> None:
        """Ask the far end for a sign of life, and close the connection when none comes in time."""
        pause = threading.Event()
        with contextlib.suppress(Unreachable, paramiko.SSHException, OSError, EOFError):
            while self.is_open:
                silence = threading.Timer(SILENCE_S, self.close)
                silence.daemon = True
                silence.start()
                self._transport.global_request("keepalive@openssh.com", wait=True)
                silence.cancel()
                pause.wait(BEAT_S)


def _socket(hop: Hop) -> socket.socket:
    try:
        made = socket.create_connection((hop.host, hop.port), timeout=CONNECT_S)
    except OSError as error:
        hint = "is the machine up, and the address in targets.yaml right?"
        raise Unreachable(f"{hop} does not answer: {_said(error)}", hint=hint) from error
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNANSWERED_MS)
    return made


def _connected(hop: Hop, way: socket.socket | paramiko.Channel, trust: Trust) -> paramiko.SSHClient:
    client = paramiko.SSHClient()
    # A sealed fingerprint is the only one that counts.
    known = () if trust.fingerprint and not trust.keeps else known_keys(hop, trust.pins)
    for key in known:
        label = hop.name if hop.port == 22 else f"[{hop.name}]:{hop.port}"
        client.get_host_keys().add(label, key.get_name(), key)
    pins = trust.pins if trust.keeps else None
    client.set_missing_host_key_policy(Pinned(hop, trust.target, trust.fingerprint, pins))
    with contextlib.ExitStack() as unless_trusted:
        unless_trusted.callback(client.close)
        try:
            _log_in(client, hop, way)
        except paramiko.BadHostKeyException as error:
            refuse_revoked(hop, error.key)
            raise changed(hop, error.key, known) from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise _refused(hop, error) from error
        transport = client.get_transport()
        if transport is not None:
            refuse_another(hop, transport.get_remote_server_key(), trust.fingerprint)
        unless_trusted.pop_all()
    return client


def _log_in(client: paramiko.SSHClient, hop: Hop, way: socket.socket | paramiko.Channel) -> None:
    names = [name for name in hop.keys if Path(name).is_file()]
    client.connect(
        hop.name,
        hop.port,
        username=hop.user,
        key_filename=cast("str", names) if names else None,  # paramiko takes a list, too
        sock=way,
        allow_agent=hop.has_agent,
        look_for_keys=False,
        timeout=CONNECT_S,
        banner_timeout=CONNECT_S,
        auth_timeout=CONNECT_S,
        channel_timeout=CONNECT_S,
    )


def _refused(hop: Hop, error: Exception) -> InfrastructureError:
    if isinstance(error, paramiko.PasswordRequiredException):
        hint = "add it to your SSH agent: ssh-add KEY; a passphrase is never asked for here"
        return InfrastructureError(f"the key for {hop} is encrypted", hint=hint)
    if isinstance(error, paramiko.AuthenticationException):
        hint = f"try: ssh -p {hop.port} {hop.user}@{hop.host} true; name the key as `key`"
        return InfrastructureError(f"{hop} does not let us in: {_said(error)}", hint=hint)
    if isinstance(error, IncompatiblePeer):
        hint = "let its sshd offer aes128-ctr or aes128-gcm, and curve25519-sha256"
        return InfrastructureError(f"{hop} and we share no cipher: {_said(error)}", hint=hint)
    return Unreachable(f"no connection to {hop}: {_said(error)}")


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
