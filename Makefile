# `make` alone prints this list.
.DEFAULT_GOAL := help
SHELL := bash
STEP := ./tools/step.sh
# Programs that tests run must not depend on what the caller's environment says about upstreams or traces.
unexport HTTP_PROXY HTTPS_PROXY http_proxy https_proxy OTEL_EXPORTER_OTLP_ENDPOINT
# go vet takes chunkenc.Iterator's Seek(int64) for a wrong io.Seeker.
VETFLAGS := -stdmethods=false
FUZZTIME ?= 3s
# Thousands of queries against a reference: they look for wrong answers, not for races, which the other tests of these roads look for.
PROOFS := ^(TestPromQLTest|TestExactFuzz|TestMonth)$$
# Alerts on real servers with compressed time: nothing else may want the processors meanwhile.
LIVE := ./alerts/live
# Pure functions in one goroutine, which the race detector only makes slow.
MIXIN := ./jsonnet ./alerts
# The longest first: it mostly waits, while the others work.
RACE = ./proxy/server $$(go list ./... | grep -vE '/(alerts/live|dashboards/live|grafana-plugin/pkg/live|alerts|jsonnet|proxy/server)$$')

help: ## print the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "%-12s %s\n", $$1, $$2}'

demo: ## embedded shards full of a simulated GPU cluster, the proxy in front (the first build takes minutes)
	@echo "building spillway; the first build takes minutes, later ones seconds"
	@go run ./cmd/spillway demo $(DEMOFLAGS)

dashboards: ## all dashboards in a browser page over the demo, drawn by Grafana's components (needs npm); PAGEFLAGS=--url=http://... asks a running proxy
	@./tools/page.sh serve $(PAGEFLAGS)

screenshots: ## a picture of each dashboard, light and dark, in dashboards/render/out (needs npm and chromium); ONLY= THEME= TROUBLE= URL= choose
	@ONLY='$(ONLY)' THEME='$(THEME)' TROUBLE='$(TROUBLE)' URL='$(URL)' PLUGIN='$(PLUGIN)' PAGE='$(PAGE)' VARS='$(VARS)' FROM='$(FROM)' PAGEFLAGS='$(PAGEFLAGS)' ./tools/page.sh screenshots

pictures: ## those of docs/dashboards.md: each dashboard, light and dark, quiet and with every trouble that can be staged beside others
	@OUT=docs/images/dashboards SCALE=0.6 ./tools/page.sh screenshots
	@OUT=docs/images/dashboards SCALE=0.6 TROUBLE=all ./tools/page.sh screenshots

build: ## the binary, into dist/
	go build -o dist/spillway ./cmd/spillway

plugin: ## the Grafana datasource, both halves, into grafana-plugin/dist (needs npm); PLATFORMS="linux/amd64 linux/arm64" chooses for what
	@./tools/plugin.sh build

generate: ## alerts/ (and dashboards) from jsonnet/
	go run ./cmd/spillway mixin render --out .
	go test ./jsonnet -run 'TestFormatted|TestAlertTable|TestDashboardsOfConfigurations|TestPluginDashboardsAreCommitted' -update

tools: ## real prometheus, promtool and thanos, pinned, into tools/bin
	./tools/build.sh

test: ## install what tests need, then lint, unit, race and real-server tests and short fuzzing
	@$(STEP) tools ./tools/build.sh
	@$(STEP) debian ./tools/debian.sh alertmanager chromium
	@$(STEP) gofumpt $(MAKE) --no-print-directory fmt-check
	@$(STEP) vet go vet $(VETFLAGS) ./...
	@$(STEP) staticcheck ./tools/bin/staticcheck ./...
	@$(STEP) test go test -race -timeout 25m -skip '$(PROOFS)' $(RACE)
	@$(STEP) mixin go test -timeout 20m $(MIXIN)
	@$(STEP) page ./tools/page.sh check
	@$(STEP) plugin ./tools/plugin.sh check
	@$(STEP) live go test -timeout 20m $(LIVE)
	@$(STEP) panels go test -timeout 20m ./dashboards/live
	@$(STEP) truth go test -timeout 20m ./grafana-plugin/pkg/live
	@$(STEP) proofs go test -timeout 20m -run '$(PROOFS)' ./proxy/server ./internal/cost
	@$(STEP) fuzz ./tools/fuzz.sh $(FUZZTIME)

test-full: ## make test, then the long proofs: three rounds of everything, all of promqltest over all layouts, 100,000 queries against a reference, a minute of each fuzz target
	@$(MAKE) --no-print-directory test
	@$(STEP) genuine-tools ./tools/build.sh kubernetes exporters iptables
	@$(STEP) genuine go test -timeout 90m ./internal/realkube $(LIVE) -run 'TestControlPlane|TestForward|TestGenuine' -genuine -v
	@$(STEP) live-all go test -timeout 120m $(LIVE) -run TestTroubles -live.all -v
	@$(STEP) panels-all go test -timeout 90m ./dashboards/live -run 'TestDashboards$$|TestDashboardsAfterDropRules' -live.all -v
	@$(STEP) live-relabel go test -timeout 60m $(LIVE) -run TestTroubles -live.relabel -v
	@$(STEP) plugin-page ./tools/page.sh plugin
	@$(STEP) walk go test -timeout 40m ./docs -run TestDropRulesWalk -walk -v
	@$(STEP) rounds go test -race -count=3 -timeout 90m -skip '$(PROOFS)' $(RACE)
	@$(STEP) exact go test ./proxy/server -run 'TestQueriesAreExact|TestMetadataIsComplete' -count=30 -timeout 30m
	@$(STEP) promqltest go test ./proxy/server -run 'TestPromQLTest$$' -promqltest.all -timeout 30m
	@$(STEP) everything go test ./proxy/server -run 'TestEverything$$|TestEveryDocument$$' -everything.requests 5000 -timeout 60m
	@$(STEP) cost go test ./internal/cost -run '^TestMonth$$' -cost.large -timeout 60m
	@$(STEP) fuzz-exact go test ./proxy/server -run TestExactFuzz -exact.queries 100000 -timeout 120m
	@$(STEP) presence go test ./proxy/plan -run Presence -presence.count 200000 -timeout 30m
	@$(STEP) fuzz-long ./tools/fuzz.sh 60s

bench: ## the figures of docs/performance.md
	@$(STEP) tools ./tools/build.sh prometheus misc
	@$(STEP) bench ./tools/bench.sh

fmt: tools/bin/gofumpt ## format everything
	./tools/bin/gofumpt -w $$(git ls-files '*.go')

fmt-check: tools/bin/gofumpt
	@out=$$(./tools/bin/gofumpt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "not formatted (make fmt):"; echo "$$out"; exit 1; }

tools/bin/gofumpt:
	./tools/build.sh misc

.PHONY: help demo dashboards screenshots pictures build plugin generate tools test test-full bench fmt fmt-check
