"""Bodies: a closed set of kinds."""

import pytest

from inferproof.core.errors import LedgerError
from inferproof.ledger.bodies import Note, dump, parse_body


def test_a_body_reads_back_as_the_model_of_its_kind() -> None:
    note = Note(text="try wider tiles", author="person")
    assert parse_body(dump(note)) == note


def test_a_wrong_key_is_named() -> None:
    with pytest.raises(LedgerError, match=r"'note' is not a ledger entry: note\.colour"):
        parse_body({"kind": "note", "text": "a", "author": "person", "colour": "red"})
