"""What targets.yaml may say of a machine: nothing in it is an option, a command or a way out."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferproof.campaign.parse import parse_bytes
from inferproof.core.campaign import Inventory, Target
from inferproof.core.errors import FileFormatError

BOX = {"host": "ssh", "address": "box", "work": "/srv/inferproof"}
PLAIN = "SHA256:" + "A" * 43
HOSTILE = (
    *("-oProxyCommand=touch x", "-", "--", "a;b", "a b", "a\nb", "$(id)", "`id`", "a|b", "a&b"),
    *(
        "..",
        "../x",
        "a/../b",
        "a\x00b",
        "a\x1b[2J",
        "a'b",
        'a"b',
        "a\\b",
        "",
        " ",
        "b\u2028c",
        "a>b",
    ),
)
# Inside a path these are names of one place, and never the beginning of an argument.
ODD_INSIDE = ("-oProxyCommand=touch x", "-", "--", "a b", " ")
TEXTS = ("address", "user", "host_key")
PATHS = ("work", "python", "key", "ssh_config", "aiperf", "haproxy")
TEXT_OF_ANY_KIND = st.text(st.characters(codec="utf-8"), max_size=40)


def parsed(**changes: object) -> Target:
    text = json.dumps({"gpu": {**BOX, **changes}})
    return parse_bytes(Inventory, text.encode(), path="targets.yaml").value.root["gpu"]


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_name_is_refused_where_it_is_read(field: str, value: str):
    with pytest.raises(FileFormatError, match=r"targets\.yaml:1: "):
        parsed(**{field: value})


@pytest.mark.parametrize("field", PATHS)
@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_path_is_refused_where_it_is_read(field: str, value: str):
    inside = () if value in ODD_INSIDE else (f"/srv/{value}/x",)
    for path in (value, *inside):
        with pytest.raises(FileFormatError):
            parsed(**{field: path})


@pytest.mark.parametrize("value", HOSTILE)
def test_the_path_of_a_model_is_as_strict(value: str):
    with pytest.raises(FileFormatError):
        parsed(models={"m": value})


@given(TEXT_OF_ANY_KIND)
def test_an_address_that_is_read_is_no_option_and_has_nothing_for_a_shell(address: str):
    try:
        read = parsed(address=address).address
    except FileFormatError:
        return
    assert read is not None
    assert read[0].isalnum()
    assert read.replace("-", "").replace(".", "").replace("_", "").isalnum()
    assert read.isascii()


@given(TEXT_OF_ANY_KIND)
def test_a_path_that_is_read_is_absolute_and_leads_nowhere_else(path: str):
    try:
        read = parsed(work=f"/{path}").work
    except FileFormatError:
        return
    assert read is not None
    assert {"..", "."} & set(read.split("/")) == set()
    assert not any(ord(letter) < 32 or letter in ";|&$`<>\"'\\" for letter in read)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ({"host": "ssh"}, "needs address and work"),
        ({"host": "ssh", "address": "box"}, "needs work"),
        ({"host": "local", "address": "box"}, "local has no address"),
        ({"host": "local", "work": "/srv/x"}, "local has no work"),
        ({"host": "local", "slurm": {"partition": "a"}}, "local has no slurm"),
        ({"host": "slurm", "work": "/srv/x"}, "slurm needs threads"),
        ({"host": "slurm", "work": "/w", "threads": 1, "port": 22}, "slurm has no port"),
        ({"host": "slurm", "work": "/w", "threads": 1, "slurm": {"gres": "gpu:0"}}, "gres"),
        ({"host": "slurm", "work": "/w", "threads": 1, "slurm": {"partition": "-x"}}, "partition"),
        ({"host": "telnet"}, "host"),
        ({**BOX, "port": 0}, "port"),
        ({**BOX, "port": 65536}, "port"),
        ({**BOX, "password": "x"}, "unknown key"),
    ],
)
def test_what_does_not_fit_together_says_what_is_wrong(target: Mapping[str, object], told: str):
    with pytest.raises(FileFormatError, match=told):
        parse_bytes(Inventory, json.dumps({"gpu": target}).encode(), path="targets.yaml")


def test_an_honest_machine_is_read():
    read = parsed(
        user="me", port=2222, host_key=PLAIN, key="/home/j örg/.ssh/id (1)", python="/p/y"
    )
    assert (read.user, read.port, read.host_key) == ("me", 2222, PLAIN)
