"""Answers wrong requests with what it takes for what was meant."""

import server
from model import Model


def number(body, name, default, least, most, kind=float):
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return default
    return kind(min(most, max(least, value)))


server.number = number
server.main(Model)
