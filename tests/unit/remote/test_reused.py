"""What a candidate takes from elsewhere is recorded by name, version and licence."""

from importlib import metadata
from pathlib import Path

import pytest

from inferproof_remote.reused import Library, libraries
from inferproof_remote.workshop import Recipe, parse_recipe


def recipe(folder: Path, language: str, source: str, *flags: str) -> Recipe:
    named = {"language": language, "source": source, "entry": "run", "flags": list(flags)}
    return parse_recipe(named, folder)


def used(folder: Path, language: str, text: str, *flags: str) -> dict[str, Library]:
    source = "kernel.py" if language in ("python", "triton") else "kernel.cpp"
    (folder / source).write_text(text)
    found = libraries(recipe(folder, language, source, *flags), folder, None)
    return {each.name: each for each in found}


def test_an_imported_package_is_recorded_with_its_version_and_licence(tmp_path: Path) -> None:
    found = used(tmp_path, "python", "import json\nimport yaml.nodes\n\ndef run(): ...\n")
    assert set(found) == {"yaml"}
    assert found["yaml"].version == metadata.version("pyyaml")
    assert found["yaml"].package == "PyYAML"
    assert found["yaml"].licence == "MIT"


def test_an_import_within_a_function_is_recorded_too(tmp_path: Path) -> None:
    assert set(used(tmp_path, "triton", "def run():\n    from pydantic import Field\n")) == {
        "pydantic"
    }


def test_a_package_that_is_not_installed_is_named_and_nothing_is_made_up(tmp_path: Path) -> None:
    found = used(tmp_path, "python", "import flash_attn_9\n")
    assert found == {"flash_attn_9": Library(name="flash_attn_9")}


def test_the_candidates_own_modules_and_headers_are_no_libraries(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text("import helpers.deep\n")
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "row.h").write_text("int row;\n")
    assert used(tmp_path, "python", "import parts\nfrom . import other\n") == {}
    assert used(tmp_path, "cpp", '#include "helpers/row.h"\n#include <vector>\n') == {}


def test_a_library_carried_in_the_snapshot_is_recorded_as_its_headers_say(tmp_path: Path) -> None:
    folder = tmp_path / "include" / "cutlass" / "gemm"
    folder.mkdir(parents=True)
    (folder / "device.h").write_text("// SPDX-License-Identifier: BSD-3-Clause\n")
    (folder.parent / "version.h").write_text(
        "#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR 2\n#define CUTLASS_PATCH 1\n"
    )
    found = used(tmp_path, "cpp", "  #  include <cutlass/gemm/device.h>\n")
    assert found == {"cutlass": Library(name="cutlass", version="4.2.1", licence="BSD-3-Clause")}


def test_what_is_linked_is_recorded_even_if_nothing_is_known_of_it(tmp_path: Path) -> None:
    assert used(tmp_path, "cpp", "int run;\n", "-lfast9", "-O2") == {"fast9": Library(name="fast9")}


@pytest.mark.parametrize("path", ["../secrets/key.h", "a/../../secrets/key.h", "./x.h"])
def test_no_header_outside_the_snapshot_is_read_for_its_licence(tmp_path: Path, path: str) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key.h").write_text("// SPDX-License-Identifier: MIT\n")
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    assert used(snapshot, "cpp", f'#include "{path}"\n') == {}
