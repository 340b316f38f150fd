# Two commands are enough: `make app` opens the course, `make test` checks it. Both make .venv where it is missing
# and re-use it while the requirements are unchanged. Everything runs as `python -m`, so the folder may be moved or
# have any name. pip's own variables (PIP_INDEX_URL, PIP_FIND_LINKS …) apply; PORT=8600 chooses the port of the app.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check

.PHONY: setup app test test-all bench lint clean
.DELETE_ON_ERROR:

setup: $(VENV)/.runtime

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, for example: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements.txt | $(PY)
	$(PIP) install -r requirements.txt
	@touch $@

$(VENV)/.dev: requirements.txt requirements-dev.txt | $(PY)
	$(PIP) install -r requirements-dev.txt
	@touch $(VENV)/.runtime $@

app: $(VENV)/.runtime
	$(PY) -m streamlit run app/main.py $(if $(PORT),--server.port $(PORT))

# Kernel tests need TRITON_INTERPRET before Triton is imported, hence a process of their own.
test: $(VENV)/.dev
	$(PY) -m pytest -m "not long" --ignore=tests/kernels
	@if [ -d tests/kernels ]; then set -x; TRITON_INTERPRET=1 $(PY) -m pytest -m "not long" tests/kernels; fi

test-all: $(VENV)/.dev
	$(PY) -m pytest --ignore=tests/kernels
	@if [ -d tests/kernels ]; then set -x; TRITON_INTERPRET=1 $(PY) -m pytest tests/kernels; fi

bench: $(VENV)/.runtime
	$(PY) -m tests.bench_engine

lint: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright

clean:
	rm -rf $(VENV) .cache
