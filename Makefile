# Every task of the project, from a fresh clone. `make help` lists them.
#
# Needs: Python 3.11 or newer (with venv), make; a Java 17 JDK or newer and Maven for the tests against a real broker;
# Chromium for those of pages.
# Everything is kept inside this folder: .venv (packages), .cache (compiled kernels, broker jars and data).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.ready-bench
DEMO_READY := $(VENV)/.ready-demo
SUITE ?= forky
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input -c constraints.txt
# Tests that need no broker are shared out to so many processes; those with brokers have the machine to themselves.
SPREAD = -n $(or $(JOBS),2) --dist worksteal

export NUMBA_CACHE_DIR := $(CURDIR)/.cache/numba
# Byte code is kept: tests start hundreds of processes, and each would compile the package and the tests again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-fast lint types kafka jars chromium proxies promtool browser pictures pythons newer-python dist spark registry bench faults disturbances withstand image soak long audit mutants processors fuzz-formats docs site release-files format clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 12

setup: $(READY)  ## virtual environment with everything, in .venv (PYTHON=python3.12 selects another Python)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no python3 found: install Python 3.11 or newer, or say PYTHON=/path/to/python" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11: say PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments: on Debian, apt-get install python3-venv" >&2; exit 1; }
	@echo "making $(VENV)"
	@"$(PYTHON)" -m venv $(VENV)

$(READY): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing sketchstream and what it needs into $(VENV)"
	@$(PIP) -e '.[all,dev]'
	@touch $@ $(DEMO_READY)

$(DEMO_READY): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing sketchstream and what the demo needs into $(VENV)"
	@$(PIP) --no-compile -e '.[demo,serve]'  # what the demo imports is compiled then, the rest never
	@touch $@

$(BENCH_READY): $(READY)
	@$(PIP) -e '.[all,dev,bench]'
	@touch $@

demo: $(DEMO_READY)  ## the main job on real data: 336,776 flights, no broker, results in demo-output/
	@$(BIN)/sketchstream demo

test: setup jars chromium proxies promtool lint types  ## everything CI runs: lint, types, contracts, the whole suite with a real broker
	@trap 'exit 130' INT; alone=passed brokers=passed; \
	$(BIN)/python -m pytest $(SPREAD) -m 'not slow and not kafka' || alone=FAILED; \
	$(BIN)/python -m pytest -m 'kafka and not slow' || brokers=FAILED; \
	echo "tests without a broker: $$alone; tests with brokers: $$brokers"; \
	[ "$$alone $$brokers" = 'passed passed' ]

test-fast: setup  ## the quick tests only: no broker, none that takes long (JOBS=1 for one process, 2 unless told)
	@$(BIN)/python -m pytest -q $(SPREAD) -m 'not slow and not statistics and not kafka and not browser and not long'

long: setup  ## time the tests without brokers, statistics or pages, and write down which ones take long
	@$(BIN)/python -m pytest -q $(SPREAD) --junitxml=.cache/times.xml -m 'not slow and not statistics and not kafka and not browser'
	@PYTHONPATH=tests $(BIN)/python -m helpers.long_tests .cache/times.xml

lint: setup  ## ruff (rules and format) and the import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --exclude '*.md' .
	@$(BIN)/lint-imports --no-logo

types: setup  ## mypy, strict
	@$(BIN)/mypy

jars: setup  ## Apache Kafka's own jars, through Maven, into .cache/kafka
	@command -v javac >/dev/null || { echo "javac not found: the broker and its tests need a JDK, 17 or newer (Debian: apt-get install default-jdk-headless)" >&2; exit 1; }
	@$(BIN)/python tests/helpers/kafka/devbroker.py --fetch

kafka: setup jars  ## a broker for development on a free loopback port (NODES=3 for a cluster); Ctrl-C ends it
	@$(BIN)/python tests/helpers/kafka/devbroker.py --nodes $(or $(NODES),1)

chromium:  ## Chromium for the tests of pages, with apt where it is missing
	@command -v chromium chromium-browser google-chrome >/dev/null || { \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; } || { echo "chromium not found: install it (Debian: apt-get install chromium) and run this again" >&2; exit 1; }; \
	  echo "installing chromium"; apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; }

proxies:  ## nginx, Caddy and openssl for the tests of the recipes in docker/proxy, with apt where they are missing
	@missing=; for program in nginx caddy openssl; do PATH="$$PATH:/usr/sbin" command -v $$program >/dev/null || missing="$$missing $$program"; done; [ -z "$$missing" ] || { \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; } || { echo "not found:$$missing: install them (Debian: apt-get install$$missing) and run this again" >&2; exit 1; }; \
	  echo "installing$$missing"; apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; }

promtool:  ## promtool for the tests of alerts and dashboard, with apt where it is missing
	@command -v promtool >/dev/null || { \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; } || { echo "promtool not found: install it (Debian: apt-get install prometheus) and run this again" >&2; exit 1; }; \
	  echo "installing promtool"; apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus >/dev/null; }

pictures: setup chromium  ## the screenshots of the documents, made anew by the test that holds them to the page
	@SKETCHSTREAM_PICTURES=docs/images $(BIN)/python -m pytest -q -m browser tests/serve/test_browser_page.py -k pictures_of_the_documents

pythons: dist  ## wheel and sdist under other Pythons: install, life cycle, quick tests (PYTHONS="python3.12 python3.13")
	@for python in $(or $(PYTHONS),python3.12 python3.13 python3.14); do \
	  "$$python" -c 'import venv' 2>/dev/null || { echo "$$python: not found, not tried"; continue; }; \
	  sh tests/other_pythons.sh "$$python" "$$PWD/.cache/pythons/$$(basename "$$python")" "$$PWD/.cache/dist" || exit 1; done

newer-python: dist  ## the same under the Python of a newer Debian, in a folder of its own (as root, 3 GB; SUITE=forky)
	@[ "$$(id -u)" = 0 ] || { echo "expected root, which debootstrap and chroot need" >&2; exit 1; }
	@command -v debootstrap >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
	@root=.cache/$(SUITE); scripts=/usr/share/debootstrap/scripts; [ -x "$$root/usr/bin/python3" ] || \
	  debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates $(SUITE) "$$root" "" "$$scripts/sid"
	@root=.cache/$(SUITE); rm -rf "$$root/dist"; cp -r .cache/dist "$$root/dist"; cp tests/other_pythons.sh "$$root/"; \
	  cp -L /etc/ssl/certs/ca-certificates.crt "$$root/etc/ssl/certs/"; cp -L /etc/resolv.conf "$$root/etc/"; \
	  chroot "$$root" python3 --version; chroot "$$root" sh /other_pythons.sh python3 /tests /dist

dist: setup
	@$(PIP) build && rm -rf .cache/dist && $(BIN)/python -m build --quiet --outdir .cache/dist .

browser: setup chromium  ## reports and the service's page in a real Chromium (part of `make test`)
	@$(BIN)/python -m pytest -q -m browser tests/cli/test_browser.py tests/serve/test_browser_page.py

spark: setup  ## backfill on a real Spark in local mode (installs 470 MB; not part of `make test`)
	@$(PIP) -e '.[spark]'
	@$(BIN)/python -m pytest -q -m spark tests/connectors/lake

registry: setup  ## schemas in a real registry, Apicurio's (fetches 140 MB through Maven; not part of `make test`)
	@$(BIN)/python -m pytest -q -m registry tests/connectors/schema_registry

bench: $(BENCH_READY) jars  ## every benchmark, each with named peers in the same run (QUICK=1 for short ones)
	@for script in $$(grep -l -e --quick bench/*.py); do echo "== $$script"; $(BIN)/python $$script $(if $(QUICK),--quick); done

faults: setup jars  ## long fault schedules on real brokers (not part of `make test`)
	@$(BIN)/python -m pytest -m 'slow and not spark and not registry' tests/connectors tests/stream tests/serve

disturbances: setup jars  ## what goes wrong around a worker, on a real broker: how soon it shows and what was lost (root, to fill a disk; an hour)
	@$(BIN)/python -m pytest -q -m 'slow or not slow' tests/connectors/kafka/test_disturbances.py

withstand: setup  ## the service and hostile clients, bodies and disks, at full size (root, to mount a small disk; 30 minutes)
	@$(BIN)/python -m pytest -q -s -m slow tests/serve/test_endurance.py tests/serve/test_access.py tests/serve/test_kill.py tests/wire/test_hostile_bodies.py

image: setup  ## the commands of the Dockerfile in a root of their own: nobody's rights, nothing written, below 400 MB (root, apt)
	@command -v debootstrap >/dev/null || { \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; } || { echo "debootstrap not found: install it (Debian: apt-get install debootstrap) and run this again" >&2; exit 1; }; \
	  echo "installing debootstrap"; apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null; }
	@$(BIN)/python -m pytest -q -m slow tests/docker/test_image.py

soak: setup jars  ## an hour at 100,000 records/s with quotas that come and go, on a real broker
	@SKETCHSTREAM_SOAK_RATE=100000 $(BIN)/python -m pytest -q -s -m slow tests/connectors/kafka/test_soak.py

audit: setup  ## the privacy audit with a million samples, and the slow statistics (not part of `make test`)
	@$(BIN)/sketchstream verify
	@$(BIN)/python -m pytest -m slow --ignore=tests/connectors --ignore=tests/stream --ignore=tests/serve tests

mutants: setup  ## broken builds, by hand and mechanical, against verify and the suite; writes docs/theory/mutants.md (hours)
	@$(BIN)/python -m pytest -q -m 'slow or not slow' tests/audit/test_verify.py tests/audit/test_verify_mutants.py
	@PYTHONPATH=tests $(BIN)/python -m mutation.run --watch --seconds 0
	@jobs=$(or $(JOBS),2); for part in $$(seq $$jobs); do \
	  PYTHONPATH=tests $(BIN)/python -m mutation.run --part $$part --parts $$jobs $(if $(NUMBER),--sample $(NUMBER)) & done; wait

processors: setup  ## the numeric tests as five other processors compute them (not part of `make test`)
	@$(BIN)/python tests/other_processors.py

fuzz-formats: setup  ## random and damaged records of Avro and Protobuf against strict readers (RECORDS=1000000, SEED=0)
	@$(BIN)/python tests/fuzz_formats.py --records $(or $(RECORDS),1000000) --seed $(or $(SEED),0)

docs: setup  ## write docs/cli.md from the commands themselves
	@$(BIN)/python docs/write_cli.py
	@$(BIN)/python docs/write_schemas.py

site: setup  ## the documents as a site, in .cache/site
	@$(BIN)/sphinx-build -q -W -b html docs .cache/site
	@echo "open .cache/site/index.html"

release-files: setup  ## wheel, sdist, hashes of what they need, and a bill of materials (CycloneDX), in dist/
	@$(PIP) -e '.[all,dev,release]'
	@rm -rf dist && $(BIN)/python -m build --quiet --outdir dist .
	@$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --no-emit-options --no-header --no-annotate \
	  --extra all --constraint constraints.txt --output-file dist/requirements.txt pyproject.toml
	@$(BIN)/cyclonedx-py requirements dist/requirements.txt --output-reproducible --output-format JSON --output-file dist/sbom.json
	@cd dist && sha256sum *.whl *.tar.gz requirements.txt sbom.json > SHA256SUMS && cat SHA256SUMS

format: setup  ## let ruff put the code into shape
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format --exclude '*.md' .

clean:  ## remove what was built: environment, caches, demo output
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo-output
