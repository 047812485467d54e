# Every target sets up .venv by itself and is safe to repeat.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
# bf16 products crash on some CPUs unless oneDNN is held to the plain AVX-512 instructions.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16
export HF_HUB_DISABLE_TELEMETRY = 1
export TOKENIZERS_PARALLELISM = false
# Where it is set, each of the many processes that the tests start would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install study docs test test-all check style clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

install: $(VENV)/.installed ## Create .venv with the package and its development tools

study: install ## The study `quick` on built-in text, to an HTML report
	$(BIN)/sharedqkv study quick

docs: install ## The documentation as a site, in build/site
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	$(BIN)/python -m mkdocs build --strict --quiet
	@echo "The site lies in build/site/index.html"

# One thread a worker: the tests are many and tiny, and threads would only fight.
test: install ## The test suite, under 15 minutes on 2 cores
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) -m 'not slow'

test-all: install ## The test suite with its slow part
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

check: install ## Lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

style: install ## Format the code and mend what lint can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove .venv, caches and runs
	rm -rf $(VENV) runs build .pytest_cache .mypy_cache .ruff_cache src/*.egg-info
