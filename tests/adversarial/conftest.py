"""`--shard i/n` runs one part of the zoo, so that several machines can share it."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", default="1/1", metavar="I/N", help="run part I of N of the zoo")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part, _, parts = str(config.getoption("--shard", default="1/1")).partition("/")
    zoo = [item for item in items if item.get_closest_marker("zoo")]
    mine = set(zoo[int(part) - 1 :: int(parts)])
    others = [item for item in zoo if item not in mine]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]
