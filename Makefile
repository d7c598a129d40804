# setup demo test bench check fix golden wheel: each works on a clean checkout, setup runs by itself.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: setup demo test bench check fix golden wheel

BIN := .venv/bin
READY := .venv/.ready
PINNED := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=$(CURDIR)/constraints.txt
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -q

setup: $(READY)

$(READY): pyproject.toml constraints.txt .ci/system
	.ci/system
	test -x $(BIN)/python || python3 -m venv .venv
	$(PINNED) $(BIN)/python -m pip install -q -e '.[local,dev]'
	touch $@

demo: setup
	$(BIN)/inferproof demo

# What measures time runs alone, after everything else.
test: setup
	$(PYTEST) -n 2 -m "not integration and not zoo"
	$(PYTEST) -m "integration and not zoo"

bench: setup
	for script in tests/bench/*.py; do $(BIN)/python "$$script"; done

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(PYTEST) tests/unit/test_packaging.py tests/unit/test_layers.py
	$(BIN)/inferproof render --check
	lines=$$(wc -l < README.md); test "$$lines" -le 150 || { echo "README.md has $$lines lines, 150 is the limit"; exit 1; }

fix: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

golden: setup
	$(PYTEST) -m "not integration and not zoo" --renew-golden tests/golden tests/unit
	git diff --stat -- tests/golden

# A wheel installed in a venv of its own has all that the checkout has.
wheel: setup
	rm -rf build dist
	$(PINNED) $(BIN)/python -m pip wheel -q --no-deps -w dist .
	rm -rf build
	python3 -m venv dist/venv
	$(PINNED) dist/venv/bin/python -m pip install -q dist/inferproof-*.whl
	dist/venv/bin/python -I .ci/check_wheel.py $(CURDIR)
