"""What all tests share: golden files, and integration tests that may not vanish quietly."""

import os
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

GoldenCheck = Callable[[Path, str], None]
TESTS = Path(__file__).parent
# What is decided here depends on measured times: nothing else may run beside it.
ALONE = frozenset(
    {"test_engine_zoo", "test_grade", "test_serve_faults", "test_session", "test_zoo"}
)
SKIPPED_HERE = "skipped here but needed under CI"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew-golden", action="store_true", help="rewrite golden files")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts real processes, by its folder, so that nobody can forget to."""
    for item in items:
        if {"integration", "adversarial"} & set(item.path.relative_to(TESTS).parts):
            item.add_marker("integration")
            if item.path.stem in ALONE:
                item.add_marker("alone")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> GoldenCheck:
    """Return a check that a text equals a stored file; `make golden` rewrites the file instead."""

    def check(path: Path, actual: str) -> None:
        if request.config.getoption("--renew-golden"):
            path.write_text(actual, encoding="utf-8")
        assert path.read_text(encoding="utf-8") == actual, f"renew {path.name} with: make golden"

    return check


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure under CI: what did not run there has not passed."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: {SKIPPED_HERE}: {report.longrepr}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests did not run, and why."""
    skipped: list[pytest.TestReport] = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.section(f"{len(skipped)} not run")
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        terminalreporter.line(f"{report.nodeid}: {reason}")
