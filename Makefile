# Two commands are enough: `make app` opens the course, `make test` checks it. Both make .venv where it is missing
# and re-use it while the requirements are unchanged.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8501

.PHONY: setup app test test-all bench lint clean

setup: $(VENV)/.runtime

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements.txt | $(VENV)/bin/python
	$(BIN)/pip install --disable-pip-version-check -q -r requirements.txt
	touch $@

$(VENV)/.dev: requirements.txt requirements-dev.txt | $(VENV)/bin/python
	$(BIN)/pip install --disable-pip-version-check -q -r requirements-dev.txt
	touch $(VENV)/.runtime $@

app: $(VENV)/.runtime
	$(BIN)/streamlit run app/main.py --server.port $(PORT)

test: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not long"

test-all: $(VENV)/.dev
	$(BIN)/python -m pytest

bench: $(VENV)/.runtime
	$(BIN)/python -m tests.bench_engine

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

clean:
	rm -rf $(VENV) .cache
