"""Who may come in over HTTP, and how it is told whose program calls."""

import hashlib
import os
import socket
from itertools import pairwise
from pathlib import Path

import pytest

from inferproof.core.errors import UsageError
from inferproof.peers import is_apart, is_here, user_of
from inferproof.web import Door, listener, open_door, token_in

TOKEN = "t" * 43
DOOR = Door(
    token_digest=hashlib.sha256(TOKEN.encode()).hexdigest(),
    names=("127.0.0.1", "localhost", "[::1]", "gpu-box"),
)
GOOD = {"host": "localhost:8765", "authorization": f"Bearer {TOKEN}"}
OTHER_USER = 65534


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:8765", "GPU-box:80"])
def test_who_has_the_token_and_calls_us_by_name_comes_in(host: str):
    assert DOOR.refusal({**GOOD, "host": host}) is None
    assert DOOR.refusal({**GOOD, "host": host, "origin": "http://localhost:3000"}) is None


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"authorization": ""}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"authorization": f"Bearer {TOKEN}x"}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": TOKEN}, 401),
        ({"host": "evil.example"}, 421),
        ({"host": "localhost.evil.example:8765"}, 421),
        ({"host": ""}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_everybody_else_is_turned_away(change: dict[str, str], status: int):
    refusal = DOOR.refusal({**GOOD, **change})
    assert refusal is not None
    assert refusal[0] == status


def test_a_token_is_made_once_and_for_its_owner_alone(tmp_path: Path):
    path = tmp_path / "state" / "token"
    token = token_in(path)
    assert len(token) >= 43
    assert path.stat().st_mode & 0o777 == 0o600
    assert token_in(path) == token


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o666, 0o700])
def test_a_token_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int):
    token_in(tmp_path / "token")
    (tmp_path / "token").chmod(mode)
    with pytest.raises(UsageError, match="others may read or change"):
        token_in(tmp_path / "token")


def test_a_link_or_a_short_text_is_no_token(tmp_path: Path):
    (tmp_path / "short").write_text("secret\n")
    (tmp_path / "short").chmod(0o600)
    with pytest.raises(UsageError, match="holds no token"):
        token_in(tmp_path / "short")
    (tmp_path / "link").symlink_to(tmp_path / "short")
    with pytest.raises(UsageError):
        token_in(tmp_path / "link")


@pytest.mark.parametrize(
    "listen", ["8765", "localhost:8765", "127.0.0.1:", "127.0.0.1:99999", ":1"]
)
def test_what_is_no_address_is_refused(listen: str):
    with pytest.raises(UsageError, match="cannot listen"):
        listener(listen)


def test_the_door_knows_the_digest_of_the_token_and_every_name(tmp_path: Path):
    door, at = open_door("127.0.0.1:0", tmp_path / "token", ("GPU-Box",))
    with at:
        assert TOKEN not in repr(door)
        digest = hashlib.sha256(token_in(tmp_path / "token").encode()).hexdigest()
        assert door == Door(token_digest=digest, names=DOOR.names)


def test_the_user_of_a_local_caller_is_known(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as at:
        with socket.create_connection(at.getsockname()) as caller:
            peer = caller.getsockname()
            assert user_of(peer, at.getsockname()) == os.geteuid()
            assert not is_apart(peer, at.getsockname())
        assert user_of(("127.0.0.1", 9), at.getsockname()) is None
        assert not is_apart(("127.0.0.1", 9), at.getsockname())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_is_apart_and_root_never_is():
    with socket.create_server(("127.0.0.1", 0)) as at:
        own = at.getsockname()
        heard, told = os.pipe()
        child = os.fork()
        if child == 0:
            os.setuid(OTHER_USER)
            with socket.create_connection(own) as caller:
                os.write(told, b"%d" % caller.getsockname()[1])
                caller.recv(1)
            os._exit(0)
        peer = ("127.0.0.1", int(os.read(heard, 16)))
        assert user_of(peer, own) == OTHER_USER
        assert is_apart(peer, own)
        at.accept()[0].close()
        os.waitpid(child, 0)


def test_no_address_of_this_machine_is_another_machine():
    """Whichever address the server was called at, and whichever the caller called from."""
    table = Path("/proc/net/fib_trie").read_text(encoding="ascii").splitlines()
    own = {
        above.split()[1] for above, here in pairwise(table) if here.split()[1:] == ["host", "LOCAL"]
    }
    assert own
    for peer in (*own, "127.9.9.9", "::1", "::ffff:127.0.0.1"):
        assert is_here(peer)
        assert not is_apart((peer, 9), ("127.0.0.1" if ":" not in peer else "::1", 8765))


def test_another_machine_is_apart():
    assert is_apart(("203.0.113.7", 5), ("127.0.0.1", 8765))
    assert is_apart(("2001:db8::7", 5), ("::1", 8765))
    assert not is_apart(None, ("127.0.0.1", 8765))
