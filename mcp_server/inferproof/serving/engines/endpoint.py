"""An engine that runs already, somewhere: measured, not supervised, never promoted."""

import re

from inferproof.core.candidate import EngineManifest
from inferproof.core.errors import UsageError
from inferproof.serving.engines.base import HEALTH, Engine, Options, Plan, Wish, health_path

_URL = re.compile(r"^https?://[^\s\x00/]{1,300}[^\s\x00]{0,200}$")
_ANSWERS_S = 30.0


def plan(wish: Wish) -> Plan:
    """Return where it answers. A baseline says it as options: `url`, `health`."""
    options = Options(wish)
    if isinstance(wish, EngineManifest):
        url, health = wish.url or "", wish.health
    else:
        url, health = options.get("url", ""), health_path(options.get("health", HEALTH))
    options.done()
    if not _URL.fullmatch(url):
        raise UsageError(f"url {url!r} is no address", hint="such as http://127.0.0.1:8000")
    return Plan(
        engine="endpoint",
        supervised=False,
        argv=(),
        health=health,
        url=url,
        start_s=_ANSWERS_S,
    )


ENGINE = Engine(name="endpoint", plan=plan)
