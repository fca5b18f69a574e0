# make book | test | lab     each works on a fresh machine, without the others having run; lab works on a copy
# make tidy                  chapters that were run in place get back what is stored
# make site                  the pages of the book from the stored outputs, without running a chapter
# make outputs | paper       for authors: refresh the stored outputs; the papers' full experiments
# make real                  the tests that need the real corpora, and the chapters on them
# make study NAME=gradient   one of notebooks/studies, a timing or a table (a record is replaced); without NAME: the list
# make assignments | grade | hand | marks   for teachers: notebooks/assignments/README.md
# make teaching | wheelhouse for teachers: slides and summaries; wheels for a room without a network
# make clean                 remove build/ and caches (the environment stays); make distclean removes it too
#
# Variables: PYTHON=python3.12 (3.11 or later; found by itself), VENV=.venv, CHAPTERS="02 03", JOBS=2,
#            LAB="--no-browser --port 8890" (options for JupyterLab; in a container, as root: LAB=--allow-root)
#            OPTIONS="--repeats 3" (of a study)
#            SEED=7 SUBMITTED=folder BY=folder (of a release; of what students handed in: folders name them)
#            HAND=--anonymous (options of the page to mark by hand)

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help book site test real lab tidy outputs paper study assignments grade hand marks teaching wheelhouse clean distclean install

VENV ?= .venv
CHAPTERS ?=
LAB ?=
JOBS ?= 2
PY = $(VENV)/bin/python
STAMP = $(VENV)/.crfbook-installed
# Each notebook and each test file stays on one worker, so that what it compiles is compiled once.
PYTEST = $(PY) -m pytest -q -n $(JOBS) --dist loadscope
NBVAL = --nbval-lax --nbval-current-env --nbval-cell-timeout 120 --nbval-kernel-startup-timeout 120
# No corpus but the built-in twins: no mirror, and a cache folder that stays empty.
BUILTIN = env -u CRFBOOK_MIRROR CRFBOOK_DATA=$(CURDIR)/build/no-data CRFBOOK_SCALE=quick
NOTEBOOKS = $(if $(CHAPTERS),$(foreach c,$(CHAPTERS),$(wildcard notebooks/$(c)*.ipynb)),notebooks)
UNKNOWN = $(foreach c,$(CHAPTERS),$(if $(wildcard notebooks/$(c)*.ipynb),,$(c)))
$(if $(strip $(UNKNOWN)),$(error CHAPTERS: expected numbers of chapters such as 02, got $(strip $(UNKNOWN))))

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -n 15

install: $(STAMP)

# The stamp is younger than pyproject.toml: installed. Otherwise create what is missing, and install.
# The peers are optional: on a Python for which they offer no wheel the chapters run without them.
$(STAMP): pyproject.toml
	@if [ ! -x $(PY) ]; then \
	  python=""; \
	  for candidate in "$${PYTHON:-}" python3 python3.13 python3.12 python3.11 python3.14 python; do \
	    if [ -n "$$candidate" ] && "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	    then python="$$candidate"; break; fi; \
	  done; \
	  if [ -z "$$python" ]; then echo "Python 3.11 or later is needed and was not found: make PYTHON=/where/it/is" >&2; exit 1; fi; \
	  echo "creating $(VENV) with $$($$python --version)"; \
	  "$$python" -m venv $(VENV) || { rm -rf $(VENV); \
	    echo "python -m venv failed (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }; \
	fi
	@echo "installing crfbook with the extras book and test (one or two minutes)"
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable ".[book,test]"
	@$(PY) -m pip install --quiet --disable-pip-version-check --only-binary :all: --editable ".[peers]" \
	  || echo "note: no wheel of python-crfsuite for this Python; the comparisons with it will be left out"
	@$(PY) -m pip install --quiet --disable-pip-version-check --only-binary :all: --editable ".[distributed]" \
	  || echo "note: no wheels of Dask and pyarrow for this Python; chapter 15 will show its records alone"
	@touch $@

# Two processes compile ahead; what they leave out or fail at, the chapters compile when they come to it.
book: $(STAMP)
	@$(PY) -m crfbook.warm $(or $(CHAPTERS),$(notdir $(wildcard notebooks/*.ipynb))) || true
	@$(PY) -m tools.book $(CHAPTERS)

site: $(STAMP)
	@$(PY) -m tools.site

test: $(STAMP)
	@mkdir -p build/no-data
	@$(BUILTIN) $(PYTEST) $(NBVAL) tests $(NOTEBOOKS)

real: $(STAMP)
	@$(PYTEST) -m real_data tests || [ $$? -eq 5 ]
	@$(PYTEST) $(NBVAL) $(NOTEBOOKS)

lab: $(STAMP)
	@echo "to compile ahead while you read (once, some minutes): $(PY) -m crfbook.warm --all"
	@$(PY) -m tools.lab $(LAB)

# Chapters of the checkout that were only run, in place, get back what is stored.
tidy: $(STAMP)
	@$(PY) -m tools.lab tidy

outputs: $(STAMP)
	@$(PY) -m tools.outputs $(CHAPTERS)

teaching: $(STAMP)
	@$(PY) -m tools.teaching

wheelhouse: $(STAMP)
	@$(PY) -m tools.wheelhouse $(if $(PYTHON_VERSION),--python-version $(PYTHON_VERSION))

paper: $(STAMP)
	@$(PY) -m tools.paper $(CHAPTERS)

# In notebooks/, as the chapters run: the records are in results/.
study: $(STAMP)
	@cd notebooks && $(abspath $(PY)) -m studies $(NAME) $(OPTIONS)

# What students get goes to build/assignments/release, everything with solutions beside it.
assignments: $(STAMP)
	@$(PY) -m tools.grade release $(CHAPTERS) $(if $(SEED),--seed $(SEED))

grade: $(STAMP)
	@$(PY) -m tools.grade "$(or $(SUBMITTED),submitted)" $(if $(SEED),--seed $(SEED)) $(if $(BY),--by $(BY)) \
	  --csv marks/grades.csv --feedback build/feedback

# The questions that a person reads; then what all marks come to, and pages for students.
hand: $(STAMP)
	@$(PY) -m tools.grade hand $(CHAPTERS) $(HAND)

marks: $(STAMP)
	@$(PY) -m tools.grade export $(CHAPTERS) --csv marks/grades.csv --feedback build/feedback

clean:
	rm -rf build dist .pytest_cache .hypothesis .ruff_cache .mypy_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
