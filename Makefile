# Commands for developers. `make test` installs missing Debian packages that tests need, and runs all
# tests.

GO         ?= go
DOCKER     ?= docker
GOLANGCI   := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
DEADCODE   := golang.org/x/tools/cmd/deadcode@v0.52.0
BENCHSTAT  := golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT     ?= $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS    := -s -w -X adbuffer/internal/app/app.Version=$(VERSION) -X adbuffer/internal/app/app.Commit=$(COMMIT)
PACKAGES   := nginx-light nghttp2-server nghttp2-client curl prometheus chromium buildah busybox-static ca-certificates systemd systemd-container redis-server openssl jq nodejs perl python3 python3-venv python3-httpx python3-h2 zstd nghttp2-proxy h2o qemu-user-static haproxy util-linux

# Packages tested at once: one more than there are processors, since many tests wait.
AT_ONCE     = $(shell expr $$(nproc) + 1)

# Packages that run without the race detector: those that try the finished binary, the image and the units from
# outside, and those without goroutines. Of the end-to-end packages, drain, forwarding and reload run with it, and so
# does their binary: their tests send most requests, reload and hand over.
OUTSIDE     = $(addprefix ./internal/test/e2e/,admin deploy endpoints failing limits openrtb tls) ./deploy/...
SEQUENTIAL  = $(addprefix ./internal/,machine/capacity operate/advice setup/config wire/fairqueue wire/http2codec wire/openrtb wire/syntax wire/tcf test/archtest)
RACED       = $(filter-out $(shell $(GO) list $(OUTSIDE) $(SEQUENTIAL)),$(shell $(GO) list ./...))

# Modules of their own: tests with libraries that the product does not use. They run without the race
# detector, which would compile these libraries a second time.
MODULES     = $(patsubst %/go.mod,%,$(shell git ls-files '*/go.mod'))

# Packages with benchmarks.
BENCHMARKS  = $(addprefix ./,$(sort $(dir $(shell git grep -l '^func Benchmark' -- '*_test.go'))))

# Programs that are tested, not shipped, do without cmd/adbuffer/default.pgo, for which go compiles every
# package of the program a second time, and without the tables of a debugger, a fifth of what compilation
# costs.
test bench-once promises lint: export GOFLAGS := -pgo=off -gcflags=all=-dwarf=false
test bench-once promises lint: export CGO_ENABLED := 0

.PHONY: all picture profile build image release release-test demo test prebid deps lint bench bench-once bench-cores promises compare fuzz clean

all: build

build: ## the binary, in bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "$(LDFLAGS)" -o bin/adbuffer ./cmd/adbuffer

image: ## the container image
	$(DOCKER) build --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) --tag adbuffer:$(VERSION) .

release: ## binaries, packages, image, bills of materials and sums, in dist/: make release VERSION=0.1.0
	@test -z "$$(git status --porcelain)" || { echo "make release: commit your changes first: a release is made of a commit" >&2; exit 1; }
	cd deploy/release && $(GO) run . -version "$(VERSION)" -commit "$(COMMIT)" -time "$$(git log -1 --format=%ct)"
	@ls -l dist

release-test: ## makes a release twice, compares, and tries it under systemd, in an emulator and as an image
	scripts/release-test "$(VERSION)"

demo: ## see it work
	$(GO) run ./cmd/adbuffer demo

picture: ## the picture of the admin page in README.md: three minutes of the demo
	cd internal/test/e2e/browser && ADBUFFER_PICTURE=$(CURDIR)/internal/operate/admin/page.png $(GO) test -count=1 -run TestAPictureOfTheDemosPage .

profile: ## the CPU profile with which the compiler optimizes the binary, anew: in five minutes
	$(GO) run ./loadtest peers --only adbuffer --rounds 1 --rate 0 --idle 0 --profile cmd/adbuffer/default.pgo

test: deps ## all tests: with the race detector, without it where it distorts, costs much or sees nothing, and some on 64-bit ARM
	CGO_ENABLED=1 scripts/gotest "$(RACED)" -race -shuffle=on -vet=off -timeout 14m -p $(AT_ONCE) -ldflags=-w
	scripts/test-without-race $(AT_ONCE) $(OUTSIDE) $(SEQUENTIAL)
	scripts/test-arm64
	printf '%s\n' $(MODULES) | xargs -P 2 -I {} sh -c 'cd {} && $(CURDIR)/scripts/gotest ./... -shuffle=on -vet=off -timeout 10m'

prebid: ## Prebid Server before and behind adbuffer: compiles it, which takes minutes
	ADBUFFER_PREBID=1 $(GO) test -count=1 -v -run PrebidServer ./internal/test/e2e/openrtb

deps: ## Debian packages that tests run against
	@scripts/install $(PACKAGES)

lint: ## gofmt, golangci-lint, which runs vet, dead functions, and vet of the modules of tests
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) run $(GOLANGCI) run ./...
	scripts/deadcode $(DEADCODE)
	cd deploy/release && $(GO) run $(GOLANGCI) run ./...
	for m in $(MODULES); do (cd $$m && $(GO) vet ./...) || exit 1; done

bench: ## the benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./internal/...

bench-once: ## every benchmark once, to see that it still works
	$(GO) test -vet=off -run '^$$' -bench . -benchtime 1x $(BENCHMARKS)

bench-cores: ## how more cores slow acquire and release, counters and the in-flight limit
	$(GO) test -run '^$$' -bench 'Cores' -cpu 1,2,4,8 -benchtime 200ms ./internal/ssp/pool ./internal/machine/metrics ./internal/ssp/ssp

promises: ## chaos for two minutes, and a soak of 50 000 requests each way: nothing else may run meanwhile
	$(GO) run ./loadtest chaos --for 2m
	$(GO) run ./loadtest soak --requests 50000

compare: ## benchmarks of this tree against main: make compare PKG=./internal/ssp/http2
	scripts/compare "$(PKG)" "$(BENCHSTAT)"

fuzz: ## each fuzz target for a while: make fuzz FUZZTIME=1m
	scripts/fuzz "$${FUZZTIME:-10s}"

clean:
	rm -rf bin dist
