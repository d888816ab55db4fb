# Everything a new machine needs is Go, make and Python; the targets fetch the
# rest. `make` alone lists them.

.DEFAULT_GOAL := help
SHELL         := /bin/bash
.SHELLFLAGS   := -eu -o pipefail -c
.DELETE_ON_ERROR:

# Parameters of the long targets.
N        ?= 60     ## kill: how many processes are killed
DURATION ?= 3m     ## chaos: how long things are broken
SEEDS    ?= 2000   ## simulate: how many seeds
EXAMPLES ?= 50    ## requests: examples of each operation
FUZZTIME ?= 30s    ## fuzz: time for each target
PKG      ?= ./...  ## test-go, fuzz: which packages
ARCH     ?= arm64  ## functions: arm64 or amd64
DIST     ?= dist   ## functions: where the zips go
BENCH    ?=        ## bench: arguments for the driver
PROFILE  ?= idle   ## deploy: idle or warm
SETTINGS ?=        ## synth, deploy: JSON file of settings (docs/deploy.md)
TESTS    ?= .      ## localstack-test: pattern of the tests to run
HANDOVERS ?= 12    ## localstack-test: hand-overs of the run with short attempts
PORT     ?= 0      ## localstack, localstack-core: port on 127.0.0.1, 0 takes a free one
N        := $(strip $(N))
PORT     := $(strip $(PORT))
TESTS    := $(strip $(TESTS))
HANDOVERS := $(strip $(HANDOVERS))
DURATION := $(strip $(DURATION))
SEEDS    := $(strip $(SEEDS))
EXAMPLES := $(strip $(EXAMPLES))
FUZZTIME := $(strip $(FUZZTIME))
PKG      := $(strip $(PKG))
PROFILE  := $(strip $(PROFILE))
SETTINGS := $(strip $(SETTINGS))
ARCH     := $(strip $(ARCH))
DIST     := $(strip $(DIST))

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)

# One way of building for all that runs without the race detector, so that
# dependencies are compiled once.
export CGO_ENABLED := 0
export GOFLAGS     := -trimpath -buildvcs=false

TOOLS      := $(CURDIR)/.tools/bin
# One stamp per state of the pins and per toolchain, so that a change rebuilds.
TOOLS_HASH := $(shell cat tools/go.mod tools/go.sum | cksum | cut -d' ' -f1)-$(shell go env GOVERSION)
TOOLS_DONE := .tools/stamp-$(TOOLS_HASH)

# Start one PostgreSQL, one AWS for all packages of a go test run.
WITH_POSTGRES := .tools/bin/pgtest run --
WITH_AWS      := .tools/bin/rig run --

.PHONY: help
help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z][a-z-]*:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@awk '/^[A-Z]+ +\?=.*## / {name = $$1; value = $$3; if (value == "##") value = ""; sub(/.*## /, ""); printf "  %-16s %s\n", name "=" value, $$0}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/tranship
	go build -ldflags '$(LDFLAGS)' -o bin/tranship ./cmd/tranship

.PHONY: functions
functions: ## zips of the functions for AWS in dist/functions (ARCH=arm64, DIST=dist)
	go run ./internal/genfunctions -arch '$(ARCH)' -dist '$(DIST)' -version '$(VERSION)'

.PHONY: image
image: functions ## the image of the Fargate task in dist/image, without Docker
	go run -C infra ./cmd/tranship-image -worker '$(abspath $(DIST))/functions/worker.zip' -arch '$(ARCH)' -out '$(abspath $(DIST))/image'

.PHONY: demo
demo: build ## replicate a real data set between real PostgreSQL servers and into Parquet
	go run ./internal/demo

.PHONY: test
test: ## all that must hold: check, simulate, kill, chaos, memory, infra, localstack and every Go test
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory simulate
	@$(MAKE) --no-print-directory kill
	@$(MAKE) --no-print-directory chaos DURATION=25s
	@$(MAKE) --no-print-directory memory
	@$(MAKE) --no-print-directory infra-test
	@$(MAKE) --no-print-directory localstack-test
	@$(MAKE) --no-print-directory test-go

.PHONY: test-go
test-go: $(TOOLS_DONE) pgtest rig ## every Go test under the race detector, on one PostgreSQL server and one AWS
	CGO_ENABLED=1 $(WITH_POSTGRES) $(WITH_AWS) $(TOOLS)/gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg -- -race -timeout 25m $(PKG)

.PHONY: memory
memory: ## peaks of memory, which only hold without the race detector
	go test -count=1 -timeout 5m -run '^TestMemory$$' ./connectors/files

.PHONY: simulate
simulate: ## the engine under a deterministic scheduler with faults (SEEDS=n)
	TRANSHIP_SIM_SEEDS=$(SEEDS) go test -count=1 -timeout 120m -run '^TestSimulation$$' ./engine/enginetest/sim

.PHONY: kill
kill: build ## SIGKILL real runs at random moments and compare every row (N=n)
	go run ./internal/killtest -n $(N)

.PHONY: chaos
chaos: build ## two processes of serve under SIGKILL, cut connections and restarts (DURATION=3m)
	go run ./internal/chaos -duration $(DURATION)

.PHONY: serve
serve: build ## the control plane with a demo organization, pipeline and schedule
	go run ./internal/servedemo

.PHONY: localstack
localstack: rig ## a whole installation on emulated AWS, without Docker, in the background (PORT=n)
	.tools/bin/rig up -port $(PORT)

.PHONY: localstack-test
localstack-test: rig ## the black-box suite on a rig of its own (TESTS=pattern)
	TRANSHIP_HANDOVERS=$(HANDOVERS) scripts/localstack-test '$(TESTS)'

.PHONY: localstack-core
localstack-core: rig ## AWS alone on this machine, without Docker, in the background (PORT=n)
	.tools/bin/rig core -port $(PORT)

.PHONY: localstack-down
localstack-down: rig ## stop what localstack or localstack-core started
	.tools/bin/rig down

.PHONY: rig
rig:
	@go build -o .tools/bin/rig ./localstack/cmd/rig

# The CDK app is a module of its own, compiled once (minutes the first time).
CDK := infra/node_modules/.bin/cdk
# CDK's runtime warns, in the middle of its output, on Node 20 and on what it does
# not test.
export JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION    := 1
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION := 20
export CDK_DISABLE_CLI_TELEMETRY                     := 1

.PHONY: cdk
cdk: $(CDK)
	go build -C infra -o ../bin/ ./cmd/...

$(CDK): infra/package-lock.json
	npm ci --prefix infra --no-audit --no-fund
	@touch $@

.PHONY: synth
synth: cdk image ## write the stacks of both profiles to infra/cdk.out, without credentials
	scripts/synth '$(SETTINGS)'

.PHONY: deploy
deploy: cdk image ## deploy into the account of the credentials (PROFILE=idle|warm, SETTINGS=file)
	scripts/deploy '$(PROFILE)' '$(SETTINGS)'

.PHONY: infra-test
infra-test: $(TOOLS_DONE) ## the tests of the CDK app: templates, rights, rules of cdk-nag
	cd infra && go mod tidy -diff && go vet ./... && $(TOOLS)/golangci-lint run -c ../.golangci.yml ./...
	go run -C tools ./licences -module '$(CURDIR)/infra'
	go test -C infra -timeout 10m ./...

.PHONY: bench
bench: build ## measure against peers on this machine
	go run ./bench $(BENCH)

.PHONY: fuzz
fuzz: ## run every fuzz target for a while (FUZZTIME=30s)
	scripts/fuzz '$(FUZZTIME)' '$(PKG)'

.PHONY: requests
requests: pgtest ## random requests to every operation of the API, many of them (EXAMPLES=n)
	TRANSHIP_SCHEMATHESIS=$(EXAMPLES) $(WITH_POSTGRES) go test -count=1 -timeout 60m -run '^TestRandomRequests$$' ./internal/apitest

.PHONY: generate
generate: $(TOOLS_DONE) ## write the generated documents, schemas and code
	go run ./internal/gendocs
	$(TOOLS)/sqlc generate -f store/sqlc.yaml
	go run ./internal/genapi

.PHONY: fmt
fmt: $(TOOLS_DONE) ## format all Go code
	$(TOOLS)/golangci-lint fmt

.PHONY: check
check: check-fmt check-vet check-lint check-mod check-generated check-licences check-vulnerabilities ## format, vet, lint, modules, generated files, licences, vulnerabilities

.PHONY: check-fmt
check-fmt:
	@out=$$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 gofmt -l); \
	if [ -n "$$out" ]; then echo "not formatted (run make fmt):"; echo "$$out"; exit 1; fi

.PHONY: check-vet
check-vet:
	go vet ./...

.PHONY: check-lint
check-lint: $(TOOLS_DONE)
	$(TOOLS)/golangci-lint config verify
	$(TOOLS)/golangci-lint run ./...

.PHONY: check-mod
check-mod:
	go mod tidy -diff

.PHONY: check-generated
check-generated:
	scripts/check-generated

.PHONY: check-licences
check-licences:
	go run -C tools ./licences -module '$(CURDIR)'

.PHONY: check-vulnerabilities
check-vulnerabilities: $(TOOLS_DONE)
	scripts/check-vulnerabilities $(TOOLS)/govulncheck

.PHONY: tools
tools: $(TOOLS_DONE) ## install the pinned tools into .tools/bin

# Minutes the first time: the linter is built from source at its pinned version.
$(TOOLS_DONE):
	@echo "building the pinned tools (a few minutes, once)"
	GOBIN='$(TOOLS)' go install -C tools -trimpath tool
	@rm -f .tools/stamp-*
	@touch $@

.PHONY: pgtest
pgtest:
	@go build -o .tools/bin/pgtest ./internal/pgtest/cmd/pgtest

.PHONY: clean
clean: ## remove what was built (the tools stay: make clean-tools)
	rm -rf bin out dist

.PHONY: clean-tools
clean-tools:
	rm -rf .tools
