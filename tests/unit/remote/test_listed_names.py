"""Lists by name: what names no token counts against an engine, where true names would."""

from dataclasses import dataclass, replace

import pytest

from inferproof_remote.serving.client import Answer, Completion, Request, Row
from inferproof_remote.serving.fidelity import Question, examine
from inferproof_remote.serving.rows import TokenRef
from inferproof_remote.serving.scoring import PathTable
from unit.remote.test_audit import VOCABULARY, YARDSTICKS
from unit.remote.test_fidelity import CORPUS, RULES
from unit.remote.test_paths import LISTS, Lister


@dataclass(frozen=True)
class Namer(Lister):
    """An engine that lists tokens by name, one row in five by `false_names` that nothing has."""

    false_names: int = 0

    def complete(self, request: Request) -> Answer:
        answer = super().complete(request)
        assert isinstance(answer, Completion)
        assert answer.rows
        rows = [self._named(row, place % 5 == 4) for place, row in enumerate(answer.rows)]
        return replace(answer, rows=tuple(rows))

    def _named(self, row: Row, is_false: bool) -> Row:
        named: dict[TokenRef, float] = {}
        for place, (token, value) in enumerate(row.listed.items()):
            is_true = not is_false or place >= self.false_names
            name = VOCABULARY.decode([int(token)]) if is_true else f"nothing {place}"
            named[name] = value
        return replace(row, listed=named)


@dataclass(frozen=True)
class Mumbler(Lister):
    """An engine that tells no ids, and of the token at one place no name either."""

    silent_at: int = 0

    def complete(self, request: Request) -> Answer:
        answer = super().complete(request)
        assert isinstance(answer, Completion)
        rows = [
            replace(row, token=None if place == self.silent_at else row.token)
            for place, row in enumerate(answer.rows or ())
        ]
        return replace(answer, rows=tuple(rows), token_ids=None)


def tables(engine: Lister) -> list[PathTable]:
    question = Question(rules=RULES, corpus=CORPUS, bits=b"bits")
    return list(examine(engine, LISTS, question, YARDSTICKS).tables)


@pytest.mark.parametrize("false_names", [0, 2])
def test_every_row_is_scored_where_most_of_its_list_is_named(false_names: int) -> None:
    for table in tables(Namer(false_names=false_names)):
        assert table.unreadable == 0
        assert len(table.kl) == table.asked, table.path


def test_a_row_whose_list_names_no_token_is_not_lost_in_silence() -> None:
    found = {table.path: table for table in tables(Namer(false_names=5))}
    for path in ("decode", "batch", "reuse", "mixed"):
        table = found[path]
        assert table.unreadable == table.asked - len(table.position) > 0, path


@pytest.mark.parametrize("silent_at", [0, 6])
def test_what_follows_a_token_without_a_name_is_read_from_the_text(silent_at: int) -> None:
    for table in tables(Mumbler(silent_at=silent_at)):
        assert len(table.position) + table.unreadable == table.asked, table.path
