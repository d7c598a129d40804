import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from inferproof.core.evidence import BuildFacts
from inferproof_remote import build, build_cpp, build_cuda

pytestmark = pytest.mark.integration
LIMITS = {"memory_mib": 1024, "tmp_mib": 64, "processes": 32}
GOOD_CPP = """\
#include <cstdint>
extern "C" void f(const float* x, float* y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = 2 * x[i];
}
"""
GOOD_CUDA = """\
extern "C" __global__ void f(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
"""


def built(
    tmp_path: Path, language: str, files: Mapping[str, str], **manifest: object
) -> BuildFacts:
    source_dir = tmp_path / "snapshot"
    for name, text in files.items():
        (source_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (source_dir / name).write_text(text)
    facts = build.build(
        manifest={"language": language, "source": next(iter(files)), "entry": "f", **manifest},
        source_dir=source_dir,
        out_dir=tmp_path / "out",
        limits=LIMITS,
    )
    left = sorted(path.name for path in (tmp_path / "out").iterdir())
    value = BuildFacts.model_validate_json(json.dumps(facts))
    assert left == sorted(value.artefacts)
    return value


def test_good_cpp_gives_a_library(tmp_path: Path):
    facts = built(tmp_path, "cpp", {"k.cpp": GOOD_CPP})
    assert facts.ok
    assert list(facts.artefacts) == ["candidate.so"]
    assert "-march=native" in facts.command[0]


def test_cpp_headers_of_the_snapshot_are_found_and_blamed(tmp_path: Path):
    files = {"k.cpp": '#include "sub/h.h"\n' + GOOD_CPP, "sub/h.h": "int g() { return nope; }\n"}
    facts = built(tmp_path, "cpp", files)
    assert not facts.ok
    assert facts.code == "compile_failed"
    assert (facts.diagnostics[0].file, facts.diagnostics[0].line) == ("sub/h.h", 1)


def test_an_undefined_symbol_fails_the_build(tmp_path: Path):
    text = 'extern "C" int g();\nextern "C" int f() { return g(); }\n'
    facts = built(tmp_path, "cpp", {"k.cpp": text})
    assert not facts.ok
    assert "undefined reference to `g'" in facts.diagnostics[0].message


@pytest.mark.parametrize(
    "secret", ["/etc/shadow", "/etc/passwd", str(Path(__file__)), "/proc/self/environ"]
)
def test_cpp_cannot_include_files_of_the_host(tmp_path: Path, secret: str):
    marker = "INFERPROOF_JOB" if secret.startswith("/proc") else "root:"
    facts = built(tmp_path, "cpp", {"k.cpp": f'#include "{secret}"\n{GOOD_CPP}'})
    assert marker not in facts.model_dump_json()
    if not secret.startswith("/proc"):
        assert "No such file or directory" in facts.diagnostics[0].message


def test_cpp_cannot_embed_files_of_the_host(tmp_path: Path):
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret of the host")
    text = GOOD_CPP + f'asm(".incbin \\"{secret}\\"");\n'
    facts = built(tmp_path, "cpp", {"k.cpp": text})
    assert not facts.ok
    assert facts.artefacts == {}


@pytest.mark.parametrize("source", ["/etc/passwd", "../k.cpp", "a/../../k.cpp", "link.cpp", ".k"])
def test_sources_outside_the_snapshot_are_refused(tmp_path: Path, source: str):
    (tmp_path / "k.cpp").write_text(GOOD_CPP)
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "link.cpp").symlink_to(tmp_path / "k.cpp")
    facts = built(tmp_path, "cpp", {"other.cpp": GOOD_CPP}, source=source)
    assert not facts.ok
    assert "snapshot" in facts.diagnostics[0].message
    assert facts.command == ()


BOMBS = {
    "templates": "template <int N> struct T { static const int v = T<N + 1>::v; };\n"
    "int x = T<0>::v;\n",
    "self_include": '#include "k.cpp"\n',
    "incbin_zero": 'asm(".incbin \\"/dev/zero\\"");\n',
    "output": "char a[1L << 33] = {1};\n",
    "memory": "#define A(x) x,x,x,x,x,x,x,x\n#define B(x) A(A(A(A(x))))\nint a[] = {B(B(1))};\n",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_compile_bombs_end_in_a_clear_result(
    tmp_path: Path, bomb: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("inferproof_remote.workshop.COMPILE_S", 5.0)
    facts = built(tmp_path, "cpp", {"k.cpp": BOMBS[bomb]})
    assert not facts.ok
    assert facts.diagnostics[0].severity == "error"
    assert facts.diagnostics[0].message
    assert facts.seconds < 30


def test_a_compiler_that_takes_too_long_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("inferproof_remote.workshop.COMPILE_S", 0.01)
    facts = built(tmp_path, "cpp", {"k.cpp": "#include <regex>\n#include <iostream>\n" + GOOD_CPP})
    assert facts.code == "timed_out"
    assert "g++" in facts.diagnostics[0].message


def test_a_missing_compiler_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build_cpp, "find_compiler", lambda: None)
    monkeypatch.setattr(build_cuda, "find_compiler", lambda: None)
    cpp = built(tmp_path / "a", "cpp", {"k.cpp": GOOD_CPP})
    cuda = built(tmp_path / "b", "cuda", {"k.cu": GOOD_CUDA})
    assert (cpp.code, cuda.code) == ("compiler_missing", "compiler_missing")
    assert "apt-get install g++" in cpp.help
    assert "pip install nvidia-cuda-nvcc" in cuda.help


needs_nvcc = pytest.mark.skipif(build_cuda.find_compiler() is None, reason="nvcc is not installed")


@needs_nvcc
def test_cuda_gives_cubin_ptx_and_resources_for_each_arch(tmp_path: Path):
    facts = built(tmp_path, "cuda", {"k.cu": GOOD_CUDA}, archs=["sm_90a", "sm_120a"])
    assert facts.ok
    assert sorted(facts.artefacts) == ["sm_120a.cubin", "sm_120a.ptx", "sm_90a.cubin", "sm_90a.ptx"]
    assert [(kernel.arch, kernel.kernel) for kernel in facts.resources] == [
        ("sm_90a", "f"),
        ("sm_120a", "f"),
    ]
    assert all(kernel.registers and kernel.spill_store_bytes == 0 for kernel in facts.resources)


@needs_nvcc
def test_an_arch_that_nvcc_does_not_know_is_a_diagnostic(tmp_path: Path):
    facts = built(tmp_path, "cuda", {"k.cu": GOOD_CUDA}, archs=["sm_77", "sm_90a"])
    assert facts.code == "compile_failed"
    assert "sm_77" in facts.diagnostics[0].message
    assert sorted(facts.artefacts) == ["sm_90a.cubin", "sm_90a.ptx"]


GOOD_PYTHON = "import torch\n\ndef f(x, y):\n    y.copy_(x)\n"


def test_good_python_imports_torch(tmp_path: Path):
    facts = built(tmp_path, "python", {"k.py": GOOD_PYTHON})
    assert facts.diagnostics == ()
    assert facts.ok


@pytest.mark.parametrize(
    ("text", "code", "line", "message"),
    [
        ("def f(:\n", "compile_failed", 1, "SyntaxError"),
        ("def g(x): pass\n", "compile_failed", None, "no function 'f'"),
        ("\nimport no_such_module\ndef f(x): pass\n", "import_failed", 2, "no_such_module"),
        ("f = 3\n", "import_failed", None, "'f' of k.py is not callable"),
        ("def f(x): pass\nopen('/etc/passwd')\n", "import_failed", 2, "No such file"),
        ("def f(x): pass\nimport os; os._exit(0)\n", "import_failed", None, "did not finish"),
        ("f = " + "(" * 5000 + ")" * 5000, "compile_failed", None, ""),
        ("def f(x): pass\n\0", "compile_failed", None, "null bytes"),
    ],
    ids=["syntax", "absent", "import", "value", "read", "exit", "nesting", "null"],
)
def test_bad_python_is_explained(
    tmp_path: Path, text: str, code: str, line: int | None, message: str
):
    facts = built(tmp_path, "python", {"k.py": text})
    assert facts.code == code
    assert facts.diagnostics[0].file == "k.py"
    assert line is None or facts.diagnostics[0].line == line
    assert message in facts.diagnostics[0].message


def test_python_that_hangs_on_import_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("inferproof_remote.workshop.COMPILE_S", 1.0)
    facts = built(tmp_path, "python", {"k.py": "def f(x): pass\nwhile True: pass\n"})
    assert facts.code == "timed_out"


def test_the_cache_key_covers_sources_flags_and_entry(tmp_path: Path):
    variants: list[tuple[str, dict[str, object]]] = [
        ("def f(x): pass\n", {}),
        ("def f(x): pass\n", {"note": "does not matter"}),
        ("def f(x): return\n", {}),
        ("def f(x): pass\n", {"flags": ["-O1"]}),
        ("def f(x): pass\ndef p(): pass\n", {"prepare": "p"}),
    ]
    keys = [
        built(tmp_path / str(index), "python", {"k.py": text}, **manifest).cache_key
        for index, (text, manifest) in enumerate(variants)
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4


def test_the_python_of_the_build_is_the_running_one(tmp_path: Path):
    facts = built(tmp_path, "python", {"k.py": "def f(x): pass\n"})
    assert facts.command[0][0] == sys.executable
