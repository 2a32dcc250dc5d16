# make demo    train a small model and show what happens      make test   lint, types and the tests of every day
# make test-all   lint, types and all tests but those below   make slow   the long statistical tests
# make lint    style and types alone
# make torch   the tests of the import from PyTorch, which it installs      make notebooks   runs the tutorials
# make others   the same with models of transformers and torch_geometric, which it installs
# make docs    the documentation as a site in build/site
# make wheel   a wheel in dist/ that needs no compiler      make wheel-test   installs and runs it
# make sdist   the source in dist/, for pip to build        make sdist-test   has pip build it, and runs it
# make wheel-notebooks   runs the tutorials from the wheel, and writes down how long they take
# make wheel-aarch64     builds a wheel for another processor, and runs it emulated
# make hardware   circuits for every board, placed and routed; their size and speed against those committed
# make boards     the largest circuit for every board; takes hours, goes on where it was
# make clean   remove the environment and everything built    make sanitize   the C++ data plane's memory and threads
# Needs python3 (>= 3.11) and g++ (or CXX), which builds the C++ data plane. Without a compiler,
# AMPHW_NO_NATIVE=1 make ... installs the numpy data plane alone. Another interpreter: make PYTHON=python3.12 demo

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint pytest pytest-all all-main all-opencl all-rtl browser torch others slow hardware boards \
        sanitize sanitize-address sanitize-thread notebooks docs pytorch wheel wheel-test wheel-aarch64 \
        wheel-notebooks sdist sdist-test clean

help:
	@sed -n '/^# /!q; s/^# //p' Makefile

# One stamp stands for the whole environment: it is rebuilt when pyproject.toml, where the versions are, changes,
# and when the C++ data plane does.
$(READY): pyproject.toml CMakeLists.txt $(wildcard amphw/*/native/* amphw/engine/native/*/* amphw/ir/primitives/*.py amphw/ir/optimizers.py amphw/engine/numbering.py amphw/engine/tiles/*.py)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "amphw needs Python 3.11 or newer, which $(PYTHON) is not."; \
	    echo "Name another interpreter: make PYTHON=python3.12 ..."; exit 1; }
	@echo "[1/2] creating the environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { \
	    echo "$(PYTHON) cannot create environments (on Debian: apt install python3-venv)."; exit 1; }
	@echo "[2/2] building and installing amphw and its development tools (a minute or two)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev,opencl,rtl,board,mpi,elastic,notebook]'
	@touch $@

demo: $(READY)
	@$(BIN)/amphw demo

test: lint pytest

test-all: lint pytest-all

lint: $(READY)
	@echo "ruff check";          $(BIN)/ruff check --quiet .
	@echo "ruff format --check"; $(BIN)/ruff format --check --quiet . || { \
	    echo "Some files are not formatted; run: $(BIN)/ruff format ."; exit 1; }
	@echo "mdformat --check";    $(BIN)/mdformat --check *.md docs boards website >/dev/null 2>&1 || { \
	    echo "Some pages are not formatted; run: $(BIN)/mdformat *.md docs boards website"; exit 1; }
	@echo "mypy amphw";          $(BIN)/mypy amphw benchmarks/peers

# The tests of OpenCL and of the hardware, most of whose time goes into compiling on one core, run beside the others,
# and give way to them: training learns less well where its workers are interrupted.
OPENCL := tests/opencl tests/conformance/test_opencl.py tests/conformance/test_mixed_opencl.py
RTL    := tests/rtl/driver tests/rtl/formal tests/rtl/sim tests/rtl/toolchain tests/rtl/verilated \
          tests/conformance/test_rtl.py tests/conformance/test_mixed_rtl.py tests/conformance/test_protocol_slow.py
BESIDE := $(OPENCL) $(RTL)
ALL    := -m "not slow and not hardware and not wheel"

# The tests of HTML pages look at them in Chromium.
browser:
	@.ci/browser

pytest-all: WHICH := $(ALL)
pytest pytest-all: $(READY) browser
	@mkdir -p build; nice -n 19 $(BIN)/python -m pytest $(WHICH) $(BESIDE) >build/beside-tests.log 2>&1 & beside=$$!; \
	$(BIN)/python -m pytest $(WHICH) $(addprefix --ignore=,$(BESIDE)); status=$$?; \
	echo "the tests of OpenCL and of the hardware:"; \
	wait $$beside || { cat build/beside-tests.log; exit 1; }; \
	tail -n 1 build/beside-tests.log; exit $$status

# The parts of `make test-all`, for a check that arranges them otherwise.
all-main: $(READY) browser
	@$(BIN)/python -m pytest $(ALL) $(addprefix --ignore=,$(BESIDE))
all-opencl: $(READY)
	@$(BIN)/python -m pytest $(ALL) $(OPENCL)
all-rtl: $(READY)
	@$(BIN)/python -m pytest $(ALL) $(RTL)

pytorch: $(READY)
	@$(BIN)/python -c 'import torch' 2>/dev/null || { echo "installing PyTorch"; \
	    $(BIN)/python -m pip install -qq --disable-pip-version-check "$$($(BIN)/python -c \
	    'import importlib.metadata as m; print(next(r.split(";")[0] for r in m.requires("amphw") if r.startswith("torch=")))')"; }

torch: pytorch
	@$(BIN)/python -m pytest tests/frontend/test_torch_*.py tests/frontend/test_graphs.py \
	    tests/gradients/test_record.py

others: pytorch
	@$(BIN)/python -c 'import transformers, torch_geometric' 2>/dev/null || { \
	    echo "installing transformers and torch_geometric"; $(BIN)/python -m pip install -qq \
	    --disable-pip-version-check $$($(BIN)/python -c \
	    'import importlib.metadata as m; print(*(r.split(";")[0] for r in m.requires("amphw") if r.endswith("\"others\"")))'); }
	@$(BIN)/python -m pytest tests/others

# For the processor and the interpreter that are here; MACHINE=aarch64 for another one's.
wheel: $(READY)
	@.ci/wheel $(BIN)/python $(MACHINE)

wheel-test: wheel
	@$(BIN)/python -m pytest -m wheel tests/wheel/test_wheel.py

wheel-aarch64: $(READY)
	@.ci/wheel $(BIN)/python aarch64
	@.ci/emulated $(BIN)/python

wheel-notebooks: wheel
	@$(BIN)/python benchmarks/wheel_notebooks.py

sdist: $(READY)
	@$(BIN)/python -c 'import scikit_build_core.build as b; print("dist/" + b.build_sdist("dist"))'

sdist-test: sdist
	@$(BIN)/python -m pytest -m wheel tests/wheel/test_sdist.py

notebooks: pytorch
	@$(BIN)/python -m pytest -m "" tests/docs/test_notebooks.py

docs: $(READY)
	@$(BIN)/python -c 'import sphinx, myst_parser, furo, sphinx_copybutton' 2>/dev/null || { \
	    echo "installing Sphinx"; $(BIN)/python -m pip install -qq --disable-pip-version-check $$($(BIN)/python -c \
	    'import importlib.metadata as m; print(*(r.split(";")[0] for r in m.requires("amphw") if r.endswith("\"docs\"")))'); }
	@$(BIN)/python website/build.py

slow: $(READY)
	@$(BIN)/python -m pytest -m slow

hardware: $(READY)
	@$(BIN)/python -m pytest -m hardware -o timeout=3600

boards: $(READY)
	@$(BIN)/python benchmarks/rtl_boards.py

sanitize: sanitize-address sanitize-thread

sanitize-address sanitize-thread: sanitize-%: $(READY)
	@.ci/sanitize $(BIN)/python $*

clean:
	rm -rf $(VENV) build dist amphw.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find amphw tests -name __pycache__ -type d -prune -exec rm -rf {} +
