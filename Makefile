# The two main commands are `make run` and `make test`; the scripts that they name do the work. Variables given here
# (DIR=, ARGS=, RUN=, ROUNDS=, SECONDS_EACH=) reach the scripts through the environment. Everything is built in
# CARGO_TARGET_DIR (default ./target); nothing is installed outside it but packages of the distribution.
.POSIX:
.SUFFIXES:
.PHONY: help run test check lab bench fuzz clean

help: ## this list
	@awk -F':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' Makefile

run: ## build the release and serve DIR=path (default: a generated ./demo); ARGS='--listen :8080' adds options
	@sh scripts/run.sh

test: ## everything that CI runs: set-up, format, lints, links in the docs, licences, tidy, all tests
	@sh scripts/test.sh

check: ## the quick loop: format, lints, tidy, unit tests, the simulator's tables
	@sh scripts/check.sh

lab: ## list the lab's experiments; RUN=name [ROUNDS=n] runs one beside its peers
	@sh scripts/lab.sh

bench: ## the table of ratios beside nginx and lighttpd; ARGS='--quick' for a short look
	@RUN=bench sh scripts/lab.sh

fuzz: ## coverage-guided fuzzing, SECONDS_EACH=600 for every target
	@sh scripts/fuzz.sh

clean: ## remove what was built and generated (./target, ./demo)
	@sh scripts/clean.sh
