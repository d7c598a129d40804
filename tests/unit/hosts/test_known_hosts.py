"""known_hosts files mean here what they mean to OpenSSH."""

import base64
import hashlib
import hmac
from pathlib import Path

import paramiko
import pytest

from inferproof.hosts.known_hosts import entries, names
from inferproof.hosts.ssh_keys import HostKeyRefused, known_keys, refuse_another, refuse_revoked
from inferproof.hosts.ssh_route import Hop

KEY = paramiko.ECDSAKey.generate()
OTHER = paramiko.ECDSAKey.generate()
SALT = b"0123456789abcdefghij"


def line(key: paramiko.PKey, names: str, marker: str = "") -> str:
    return f"{marker} {names} {key.get_name()} {key.get_base64()} a comment".strip()


def hop(*files: Path) -> Hop:
    return Hop(
        name="box",
        host="box",
        port=2222,
        user="me",
        keys=(),
        has_agent=False,
        known_hosts=tuple(map(str, files)),
    )


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def hashed(label: str) -> str:
    made = hmac.digest(SALT, label.encode(), hashlib.sha1)
    return f"|1|{base64.b64encode(SALT).decode()}|{base64.b64encode(made).decode()}"


@pytest.mark.parametrize(
    ("patterns", "means"),
    [
        ("[box]:2222", True),
        ("box", False),
        ("[BOX]:2222", True),
        ("other,[box]:2222", True),
        ("[*]:2222", True),
        ("*", True),
        ("[b?x]:*", True),
        ("*,![box]:2222", False),
        ("![other]:2222", False),
        ("[box]:22221", False),
        ("[box", False),
        (hashed("[box]:2222"), True),
        (hashed("box"), False),
        ("|1|", False),
        ("|1|!|?", False),
    ],
)
def test_a_pattern_means_who_it_means_to_openssh(patterns: str, means: bool):
    assert names(patterns, "[box]:2222") is means


def test_lines_that_are_no_entries_are_passed_over(tmp_path: Path):
    good = line(KEY, "[box]:2222")
    path = written(
        tmp_path / "known",
        *("", "# [box]:2222 ssh-rsa AAAA", "[box]:2222", "[box]:2222 ssh-rsa !!!", "\x00\xff"),
        *("[box]:2222 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAA2FiYw==", "@odd", "@revoked"),
        *("@revoked * ssh-rsa", "[box]:2222 sk-unknown@openssh.com AAAA", good),
    )
    assert [found.key for found in entries(path, "[box]:2222")] == [KEY]
    assert list(entries(tmp_path / "absent", "[box]:2222")) == []


def test_a_key_that_signs_for_others_is_no_host_key(tmp_path: Path):
    path = written(tmp_path / "known", line(OTHER, "*", "@cert-authority"))
    assert known_keys(hop(path), tmp_path / "pins") == ()
    written(path, line(OTHER, "*", "@cert-authority"), line(KEY, "[box]:2222"))
    assert known_keys(hop(path), tmp_path / "pins") == (KEY,)


def test_a_revoked_key_is_no_known_one_wherever_else_it_stands(tmp_path: Path):
    pins = written(tmp_path / "pins", line(KEY, "[box]:2222"))
    known = written(tmp_path / "known", line(KEY, "[box]:2222"))
    revoked = written(tmp_path / "revoked", line(KEY, "*", "@revoked"))
    assert known_keys(hop(known), pins) == (KEY,)
    assert known_keys(hop(known, revoked), pins) == ()
    with pytest.raises(HostKeyRefused, match=f"is revoked in {revoked}"):
        refuse_revoked(hop(known, revoked), KEY)


def test_what_is_revoked_for_others_or_not_at_all_is_not_refused(tmp_path: Path):
    path = written(
        tmp_path / "known", line(KEY, "elsewhere", "@revoked"), line(OTHER, "*", "@revoked")
    )
    refuse_revoked(hop(path), KEY)


def test_another_key_than_a_person_said_is_refused_with_both():
    said = "SHA256:" + "A" * 43
    with pytest.raises(HostKeyRefused, match=f"showed the host key SHA256:.*, not {said}"):
        refuse_another(hop(), KEY, said)
    refuse_another(hop(), KEY, None)
