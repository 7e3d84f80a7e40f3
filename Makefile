# `make demo` and `make test` set up .venv by themselves; nothing but Python, make and git needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Debian packages that real-edge tests drive: firewall rules, namespaces, ssh, Slurm.
LAB_PACKAGES := iproute2 nftables util-linux openssh-server slurm-wlm munge stress-ng e2fsprogs \
	strace etcd-server

# Tests start thousands of interpreters: where this is set, each compiles all of holdfast again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test quick coverage proof versions torchrun-tests knowledge lab lint docs bench clean

$(READY): pyproject.toml requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements-dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $@

demo: $(READY)  ## a training of four ranks, broken on purpose: noticed, named, restarted, resumed
	@sh examples/demo.sh $(BIN)/holdfast

test: $(READY) lint  ## what CI runs: lint, types, and every test with seeded samples
	$(BIN)/python -m pytest -q -n 4 --dist loadgroup -m "not long" -r R

quick: $(READY) lint  ## lint, types and the pure tests: under two minutes on two cores
	$(BIN)/python -m pytest -q -n 2 -m "not long and not real"

coverage: $(READY)  ## the same in one process, measured: takes twice as long
	$(BIN)/python -m pytest --cov --cov-report=term -q -m "not long"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

proof: $(READY)  ## the full counts; writes dated results into proof/
	$(BIN)/python -m tools.prove
	$(BIN)/python -m pytest -q -m long
	$(BIN)/python -m tools.fault_table
	$(BIN)/python -m tools.quiet_table
	$(BIN)/python -m tools.bit_identical 50 --out proof/bit-identical-$$(date -u +%F).md
	$(BIN)/python -m tools.kill_saves 1000 --out proof/kill-saves-$$(date -u +%F).md
	$(BIN)/python -m tools.inject_errors --out proof/inject-errors-$$(date -u +%F).md
	$(BIN)/python -m tools.launches 200 --out proof
	$(BIN)/python -m tools.stuck_groups 5000 --out proof/stuck-groups-$$(date -u +%F).md
	$(BIN)/python -m bench.detect_nodes
	$(BIN)/python -m tools.fence_table
	$(BIN)/python -m tools.pauses_table
	$(BIN)/python -m tools.hold_drills
	$(BIN)/python -m tools.resume_table --out proof/resume-$$(date -u +%F).md

versions: $(READY)  ## the tests of run and rank with torch 2.8, 2.10, 2.13, 2.15; 20 GB of cache
	$(BIN)/python -m tools.versions --out proof

torchrun-tests: $(READY)  ## PyTorch's own launcher tests: make torchrun-tests PYTORCH=checkout
	$(BIN)/python -m pip install --quiet expecttest
	$(BIN)/python -m tools.torchrun_tests $(PYTORCH) --out proof

knowledge: $(READY)  ## do the tables agree with torch and NCCL, here and on the package index?
	$(BIN)/python -m tools.knowledge $(KNOWLEDGE)

docs: $(READY)  ## one page per fault, the table of faces, the screens of lint and env: from the code
	$(BIN)/python -m tools.write_examples
	$(BIN)/python -m tools.write_docs
	$(BIN)/python -m tools.write_drills
	$(BIN)/python -m tools.write_house
	$(BIN)/python -m tools.write_journal
	$(BIN)/python -m tools.write_screens

bench: $(READY)  ## side-by-side figures, printed as ratios
	$(BIN)/python -m bench.startup
	$(BIN)/python -m bench.overhead
	$(BIN)/python -m bench.detect
	$(BIN)/python -m bench.checkpoint
	$(BIN)/python -m bench.explain_speed --mb 1024
	$(BIN)/python -m bench.explain_dumps
	$(BIN)/python -m bench.explain_hostile
	$(BIN)/python -m bench.lint_speed
	$(BIN)/python -m bench.nodes_channel
	$(BIN)/python -m bench.check_nodes

lab:  ## Debian packages that real-edge tests need; nothing is started or configured
	@missing=$$(for p in $(LAB_PACKAGES); do dpkg-query -W -f '$${Status}' $$p 2>/dev/null \
		| grep -q 'ok installed' || echo $$p; done); \
	if [ -z "$$missing" ]; then echo "lab: everything is installed"; else \
		echo "lab: installing" $$missing; \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
			--no-install-recommends $$missing; fi

clean:
	rm -rf $(VENV) build src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
