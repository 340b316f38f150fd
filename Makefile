# Two commands are enough: `make app` opens the course, `make test` checks it. Both make .venv where it is missing
# and re-use it while the requirements are unchanged. Everything runs as `python -m`, so the folder may be moved or
# have any name. pip's own variables (PIP_INDEX_URL, PIP_FIND_LINKS …) apply; PORT=8600 chooses the port of the app.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check

.PHONY: setup app test test-all bench gpu kernels-triton36 kernels-mutants lint clean
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

bench: $(VENV)/.dev
	$(PY) -m tests.bench_engine
	$(PY) -m tests.bench_board

# Everything that needs a GPU, in one go; without one a dry run on tiny shapes.
gpu: $(VENV)/.dev
	$(PY) -m tests.kernels.gpu

# Plants known bugs in the kernels one by one; for each a test must fail.
kernels-mutants: $(VENV)/.dev
	$(PY) -m tests.kernels.mutants

# The kernels on Triton 3.6.0, which torch 2.11 pins: a second environment that sees the packages of the first, and on
# top that Triton and a numpy its interpreter can work with (triton issue 9171).
TRITON36 := .venv-triton36

$(TRITON36)/.ready: $(VENV)/.dev Makefile
	$(PY) -m venv $(TRITON36)
	$(PY) -c 'import os, sys, sysconfig; own, below = (sysconfig.get_path("purelib", vars={"base": b, "platbase": b}) for b in map(os.path.abspath, sys.argv[1:])); open(os.path.join(own, "below.pth"), "w").write(os.path.relpath(below, own))' $(TRITON36) $(VENV)
	$(TRITON36)/bin/python -m pip --disable-pip-version-check install --no-deps triton==3.6.0 numpy==2.3.5
	@touch $@

kernels-triton36: $(TRITON36)/.ready
	TRITON_INTERPRET=1 $(TRITON36)/bin/python -m pytest -m "not long" tests/kernels
	$(TRITON36)/bin/python -m kernels report

lint: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright

clean:
	rm -rf $(VENV) $(TRITON36) .cache
