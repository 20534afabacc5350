# The two commands of the README are `make run` and `make test`; each does all its own set-up.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PIP    := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip --quiet

.DEFAULT_GOAL := help
.PHONY: help run test check lint types layers unit mutants campaign soak abuse peers screenshots console-bench bench workq clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/' | expand -t 16

# Set-up, redone when what it depends on changed. The compiled modules are built when there is a C compiler.
COMPILED := src/lamina/log/_crc32c.h src/lamina/log/reserve.py $(wildcard src/lamina/*/*.pyx src/lamina/*/*.pxd src/lamina/*/*/*.pyx src/lamina/*/*/*.pxd) \
  $(addprefix src/lamina/engines/,loops.py journal.py logged.py) $(addprefix src/lamina/engines/jobs/,codec.py job.py core.py checkpoint.py engine.py) \
  $(addprefix src/lamina/engines/queues/,message.py codec.py state.py memory.py engine.py deliveries.py) \
  $(addprefix src/lamina/engines/topics/,ids.py ranges.py state.py tail.py contents.py topic.py topics.py) \
  $(addprefix src/lamina/engines/topics/,finding.py sorted_map.py group_codec.py group_state.py group_claims.py groups.py group_views.py) $(addprefix src/lamina/server/,turns.py client.py) \
  $(addprefix src/lamina/server/workq/,parse.py replies.py answers.py door.py) \
  $(addprefix src/lamina/server/resp/,replies.py session.py dispatch.py runs.py stream_adding.py stream_reading.py group_pending.py group_reading.py queue_commands.py answers.py waiting.py door.py)

$(READY): pyproject.toml setup.py constraints.txt $(COMPILED)
	@echo "setting up $(VENV) (about a minute the first time) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install -c constraints.txt setuptools wheel cython
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[cli,server,dev,spark]'
	@$(BIN)/python -c "from lamina.log import kernel; print('log kernel:', kernel.NAME)"
	@touch $@

run: $(READY)  ## see lamina at work: lamina demo
	@$(BIN)/lamina demo

test: check unit  ## lint, types, layers and all tests
	@echo "make test: lint, types, layers and tests passed"

check: lint types layers  ## lint, types and layers only

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .

types: $(READY)
	@$(BIN)/mypy

layers: $(READY)
	@$(BIN)/lint-imports --no-cache | tail -n 4

unit: $(READY)
	@$(BIN)/python -m pytest -n auto --dist loadgroup

mutants: $(READY)  ## plant each known mistake and see the suite catch it
	@LAMINA_CAMPAIGN=1 $(BIN)/python -m pytest -n auto tests/crash/test_mutants.py tests/crash/test_jobs_mutants.py tests/crash/test_store_mutants.py

campaign: $(READY)  ## ten times the crash exploration of make test
	@mkdir -p .bench && rm -f .bench/trials
	@LAMINA_CAMPAIGN=10 LAMINA_TRIALS=.bench/trials $(BIN)/python -m pytest -n auto tests/crash tests/property tests/differential $(wildcard tests/integration/test_topics_*.py) tests/spark/test_exactly_once.py
	@PYTHONPATH=tests:. $(BIN)/python -m trials_lab counts .bench/trials

workq:  ## build the real workq server from its Go module into .workq, which some tests open our folders with
	GOBIN=$(CURDIR)/.workq go install github.com/iamduo/workq/cmd/workq-server@latest

peers:  ## install Redis and beanstalkd (Debian), which some tests and benchmarks compare with
	apt-get install -y -q redis-server redis-tools beanstalkd
	-service redis-server stop; service beanstalkd stop

soak: $(READY)  ## ten minutes of mixed load, and kill -9 every twenty seconds
	@$(BIN)/python -m bench.soak --minutes 10 --kill-every 20

abuse: $(READY)  ## what others feel while one client misbehaves, 16 ways
	@$(BIN)/python -m bench.abuse

screenshots: $(READY)  ## pictures of every screen of the console, in .screenshots
	@PYTHONPATH=tests:. $(BIN)/python -m browser.screenshots .screenshots

console-bench: $(READY)  ## what the console costs a busy server, and how long its pages take on a full one
	@$(BIN)/python -m bench.console_cost
	@$(BIN)/python -m bench.console_size

bench: $(READY)  ## all benchmarks, as ratios to the raw machine
	@$(BIN)/python -m bench

clean:  ## remove everything that was built
	rm -rf $(VENV) build dist .bench .hypothesis src/*.egg-info src/lamina/log/_speed.c src/lamina/log/_speed*.so
