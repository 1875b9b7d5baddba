# Two commands do everything: `make audit` (the main job) and `make test`. Both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: audit test lint types mypy pyright docs clean

audit: $(VENV)/.stamp-run
	$(BIN)/neartie audit $(ARGS)

# Files in the order of tests/support/slow_first.py, not those of most tests first.
test: $(VENV)/.stamp-dev
	$(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(VENV)/.stamp-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Each keeps to one core, a minute or two of it: together they take as long as the slower one.
types: $(VENV)/.stamp-dev
	$(MAKE) --no-print-directory --keep-going --jobs 2 mypy pyright

mypy: $(VENV)/.stamp-dev
	$(BIN)/mypy

pyright: $(VENV)/.stamp-dev
	$(BIN)/pyright --pythonpath $(BIN)/python

docs: $(VENV)/.stamp-dev
	$(BIN)/zensical build --strict -f mkdocs.yml

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.stamp-run: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.stamp-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@ $(VENV)/.stamp-run

clean:
	rm -rf $(VENV) build dist src/neartie.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
