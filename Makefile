# The front door. Every target checks what is there, says what it does, and installs what is missing.

# Build output is kept outside of the clone: it survives `git clean`, and several clones share it.
BERTH_CACHE ?= $(HOME)/.cache/berth
CARGO_TARGET_DIR ?= $(BERTH_CACHE)/target
export BERTH_CACHE CARGO_TARGET_DIR
# A Rust that was installed a moment ago is not on the caller's path yet.
export PATH := $(PATH):$(HOME)/.cargo/bin:$(BERTH_CACHE)/tools/bin

BERTH = $(CARGO_TARGET_DIR)/quick/berth

.DEFAULT_GOAL := help
.PHONY: help run story test check soak mutants bench bench-kube dist fmt kube-up kube-down

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Options of `berth up`: `make run UP="--change --nodes 1xdgxh100"` tries another machine.
UP ?= --nodes 2xdgx1 --project team-a=4 --project team-b=2 --project team-c=2 --project team-d=8

run: ## build Berth and start it: two declared DGX-1 and the four teams of the report; Ctrl-C ends it
	@.ci/build-quick
	@exec .ci/start $(UP)

story: ## play the report's scenario in the simulator; a picture goes to target/tr4858.svg
	@.ci/ensure rust
	BERTH_DASHBOARD=folder cargo build --profile quick --locked -p berth-cli
	@mkdir -p target
	$(BERTH) sim run scenarios/tr4858.berth --svg target/tr4858.svg

test: ## every test: properties, scenarios, transcripts, processes and containers, the dashboard in a browser, house rules
	@.ci/ensure rust ui containers shells mpi jax jupyter schemathesis browser oidc kube
	@echo "berth: running every test (BERTH_CASES and BERTH_SEED change the property tests, see CONTRIBUTING.md)"
	cargo run --quiet --locked -p xtask -- test

check: ## formatting, lints, house rules, licences and known holes of dependencies
	@.ci/ensure rust ui lints
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo run --quiet --locked -p xtask -- tidy
	@.ci/test-ui check
	@.ci/ensure deny
	@.ci/check-dependencies

# The variable is the caller's when it is set, so `BERTH_CASES=5000000 make soak` runs for a night.
soak: export BERTH_CASES := $(or $(BERTH_CASES),200000)
soak: export BERTH_KILLS := $(or $(BERTH_KILLS),300)
soak: ## the property tests with many more cases, many more kills of the store and the agent, crowds, a page that is open for long
	@.ci/ensure rust kube ui browser schemathesis
	@echo "berth: $(if $(BERTH_SEED),the case of seed $(BERTH_SEED),$(BERTH_CASES) cases) per property"
	cargo test --locked -p berth-engine --test properties
	@echo "berth: every set of victims and moves in small worlds, and 20,000 worlds that come to rest"
	cargo test --locked -p berth-engine --test small_worlds -- --nocapture
	@echo "berth: a case of these takes far longer, so there are fewer"
	BERTH_CASES=$$((BERTH_CASES / 40)) cargo test --locked -p berth-engine --test explain --test fuzz --test victims
	BERTH_CASES=$$((BERTH_CASES / 40)) cargo test --locked -p berth-sim --test same_decisions
	@echo "berth: $(BERTH_KILLS) kills of the store; a case of its property crashes several times, so there are fewer"
	cargo test --locked -p berth-store --test kill
	@echo "berth: $(BERTH_KILLS) kills of the server under submissions, and of the agent under starts"
	cargo test --locked -p berth-cli --test kill -- --nocapture
	cargo test --locked -p berth-agent --test kill -- --nocapture
	BERTH_CASES=$$((BERTH_CASES / 40)) cargo test --locked -p berth-server every_history
	BERTH_CASES=$$((BERTH_CASES / 40)) cargo test --locked -p berth-server every_figure
	BERTH_CASES=$$((BERTH_CASES / 40)) cargo test --locked -p berth-store --test properties
	@echo "berth: $(BERTH_KILLS) kills of the operator while it binds gangs on a real API server"
	cargo test --locked -p berth-kube --test faults -- --nocapture
	@echo "berth: 200 shells and 200 sockets for five minutes, and 100 made-up requests for each operation of the API"
	BERTH_CROWD_SECS=$(or $(BERTH_CROWD_SECS),300) cargo test --locked -p berth-cli --test crowd -- --nocapture
	BERTH_EXAMPLES=$(or $(BERTH_EXAMPLES),100) cargo test --locked -p berth-server --test contract -- --nocapture
	@echo "berth: 500 stories on a real API server, each step as in the simulator"
	BERTH_STORIES=500 cargo test --locked -p berth-kube --test random -- --nocapture
	@echo "berth: a page with 10,000 workloads, 1,000 of them running, and half an hour of updates to it (BERTH_UI_SOAK_SECS changes it)"
	@.ci/test-ui soak

mutants: ## breaks one rule of the engine at a time and asks whether a test notices
	@.ci/ensure rust
	@.ci/mutants

bench: ## how fast the engine decides and the store writes; numbers go to target/bench/summary.json
	@.ci/ensure rust
	@echo "berth: measuring on one thread; a target that is missed is said and is no failure"
	cargo build --release --locked -p berth-cli -p berth-bench
	$(CARGO_TARGET_DIR)/release/berth-bench all

dist: ## one optimised program for every Linux with glibc 2.31 or later, in a tarball with install.sh; takes a quarter of an hour
	@.ci/ensure rust ui zig
	@.ci/dist

# A smaller one for a quick look: `make bench-kube BENCH_KUBE="--nodes 100 --runs 1"`.
BENCH_KUBE ?=

bench-kube: ## how fast Pods are placed on a real API server with 1,000 simulated nodes; takes an hour
	@.ci/ensure rust kube
	cargo build --release --locked -p berth-kube --example bench --bin berth-operator
	$(CARGO_TARGET_DIR)/release/examples/bench $(BENCH_KUBE)

fmt: ## format every file
	@.ci/ensure rust lints
	cargo fmt --all

# Simulated machines: `make kube-up NODES=1000xdgx1`; DRA=1 publishes GPUs that can be shared, SCHEDULER=1 runs the stock scheduler.
# NODE=real adds a real node that says it has REAL_GPUS GPUs, and an image of Berth on it.
NODES ?= 2xdgx1
REAL_GPUS ?= 2
REAL = $(filter real,$(NODE))
TESTBED = $(CARGO_TARGET_DIR)/debug/berth-testbed

kube-up: ## start a real Kubernetes control plane with simulated nodes in the background (NODES=2xdgx1 DRA=1 SCHEDULER=1 NODE=real)
	@.ci/ensure rust kube $(if $(REAL),containers)
	cargo build --quiet --locked -p berth-testbed
	$(if $(REAL),BERTH_DASHBOARD=folder cargo build --profile quick --locked -p berth-cli)
	@$(TESTBED) up --nodes $(NODES) $(if $(DRA),--dra) $(if $(SCHEDULER),--scheduler) \
		$(if $(REAL),--real-node --real-gpus $(REAL_GPUS) --program $(BERTH))

kube-down: ## end it
	@.ci/ensure rust
	cargo build --quiet --locked -p berth-testbed
	@$(TESTBED) down
