from collections.abc import Callable
from pathlib import Path

import pytest

from inferproof_remote.serving.balancer import config_text

GOLDEN = Path(__file__).parents[2] / "golden" / "serving"
SERVERS = {"x-r0": Path("/proc/77/fd/9"), "x-r1": Path("/proc/77/fd/12")}


def test_haproxys_configuration_is_the_reviewed_one(golden: Callable[[Path, str], None]):
    text = config_text(
        SERVERS, health="/v1/health?deep=1", check_s=2.5, listener_fd=5, connections=8192
    )
    golden(GOLDEN / "haproxy.cfg", text)


@pytest.mark.parametrize("health", ["/a b", "/it's", '/"', "/a#b", "/a\\b", "/$HOME", "/%[src]"])
def test_a_health_path_stays_one_word(health: str):
    line = next(
        line
        for line in config_text(
            {}, health=health, check_s=1, listener_fd=3, connections=9
        ).splitlines()
        if "http-check send" in line
    )
    before, _, rest = line.partition("uri '")
    assert before == "    http-check send meth GET "
    word, _, after = rest.rpartition("' ver HTTP/1.1")
    assert word.replace("'\\''", "'") == health
    assert after == " hdr Host replica"
