# The book and its tests, from nothing: `make book`, `make test`, `make lab`, `make clean`.
# A second run does only what changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
PARAMETERS ?=
TESTS ?=

.PHONY: help book pdf test lab proof bench clean execute

help:
	@echo "make book    execute the notebooks and build the website in _build/html"
	@echo "make pdf     the book as one PDF, _build/dobrushin.pdf (needs Chromium)"
	@echo "make test    the same, then style, types and the whole test suite"
	@echo "make lab     open the notebooks in JupyterLab"
	@echo "make proof   check the formal proof (needs Coq and MathComp, installs them where apt-get is there)"
	@echo "make bench   time verdicts and measurements, and store the tables that the chapter on speed reads"
	@echo "make clean   remove everything that was built, the virtual environment included"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v < (3, 14) else "Python %d.%d is not supported; expected 3.11 to 3.13: make PYTHON=python3.11 ..." % v[:2])'
	@$(PYTHON) -m venv $(VENV) || { echo "the venv module is missing; on Debian and Ubuntu: apt-get install python3-venv"; rm -rf $(VENV); exit 1; }

# The pinned packages, checked by their hashes, then the package itself from this folder.
$(READY): $(BIN)/python requirements.lock pyproject.toml
	@echo "installing the pinned packages into $(VENV) (several minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

execute: $(READY)
	@$(BIN)/python tools/execute.py $(addprefix -p ,$(PARAMETERS))

book: execute
	@$(BIN)/jupyter-book build . -W -n --keep-going --quiet
	@echo "the book is at file://$(CURDIR)/_build/html/index.html"

pdf: execute
	@$(BIN)/python tools/pdf.py

test: book
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/nbstripout --verify --keep-id notebooks/*.ipynb
	$(BIN)/python -m pytest -n 2 $(TESTS)

lab: $(READY)
	$(BIN)/jupyter lab --notebook-dir=notebooks

proof:
	@$(MAKE) --no-print-directory -C book/proof

bench: $(READY)
	@$(BIN)/python tools/bench.py

clean:
	rm -rf _build $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find src tests tools notebooks -name __pycache__ -o -name .ipynb_checkpoints | xargs rm -rf
