# `make` alone prints this list.
.DEFAULT_GOAL := help
SHELL := bash
# A step that loads what is needed goes by the caller's environment.
LOAD := ./tools/step.sh
# Programs that tests run must not depend on what the caller's environment says about upstreams or traces.
STEP := env -u HTTP_PROXY -u HTTPS_PROXY -u http_proxy -u https_proxy -u OTEL_EXPORTER_OTLP_ENDPOINT ./tools/step.sh
# go vet takes chunkenc.Iterator's Seek(int64) for a wrong io.Seeker.
VETFLAGS := -stdmethods=false
FUZZTIME ?= 10s
# How long each of 45 cases lasts for which real Thanos is struck in make test-full.
THANOSWATCH ?= 1m
# Alerts on real servers with compressed time: nothing else may want the processors meanwhile.
LIVE := ./alerts/live
# make test has the race detector, which makes everything five to ten times slower, where goroutines of the product share memory: these packages, without ALONE. make test-full has it for ALL.
# The longest first: it mostly waits, while the others work. (host and live run the plugin as a process, hostile the whole program.)
RACE = $$(go list ./proxy/server ./proxy/... ./grafana-plugin/pkg/... ./relabel/inventory ./deploy/alertmanager/remediator | grep -vE '/(host|hosttest|live|hostile)$$')
# Tests of these packages that ask one thing after another and look for wrong answers or for memory that is held; others go the same roads, many at once.
ALONE := TestQueriesAreExact|TestMetadataIsComplete|TestEverything|TestEveryDocument|TestPromQLTestSeesDifferences|TestEpochsAreExact|TestExactFound|TestExactByName|TestWholeReplicasPass
ALONE := $(ALONE)|TestUndeclaredExternalLabels|TestGroupLabelsChooseGroups|TestEngineSettingsOfShards|TestClientsGetWhatTheyNeed|TestRealClients|TestEndlessAnswers|TestTenantsProperty|TestSpellingsNeverReachShards|TestParametersOfEveryRow
ALONE := $(ALONE)|TestEndlessBodies|TestEndlessTables|TestDecodeTableRandom|TestParseFloat|TestFoldLikePrometheus|TestFoldOrder|TestPresenceAgainstTheEngine|TestRewriteKeepsTheExpression|TestScale
ALONE := $(ALONE)|TestWideHaveTheirTurn|TestInventedIdentities|TestPushedOutIsForgotten|TestHundredRefused
ALONE := $(ALONE)|TestNewcomersOfAFullAddress|TestNewAddresses|TestWideBesideNewcomers|TestLongWideCalls|TestHeldIsWhatTheEngineHolds|TestEmptyIsNotTried|TestFrameIsKept|TestStretchesAreWoven|TestWhatIsTheSameAtAllSteps
ALONE := $(ALONE)|TestErrorsReadAloud|TestTenantsSeeOnlyTheirs|TestVerdictsTakeBoundedEffort|TestMadeOfWhatIsRead|TestFewSeriesMadeAtStepsPass|TestSeriesMadeAtStepsAreBounded|TestSeriesMadeByJoinsAreBounded
ALONE := $(ALONE)|TestExactByNameTyped|TestExactByNameStarts|TestWhatLacksIsSaid|TestRewritesLeakNothing|TestStormOfOneCaller|TestNobodyWaitsForASilentOne
ALONE := $(ALONE)|TestFederationIsHeld|TestFederatedBytes|TestWhoReadsNoPage|TestSlowCallersLeave|TestEndlessAnswersAtOnce|TestGrafanaAllOfAQuery|TestExactByNameWithNames|TestExactByNameSharded
# Thousands of queries against a reference: too many for the race detector in make test-full too.
PROOFS := TestPromQLTest|TestExactFuzz|TestMonth
# Without what is on real servers with compressed time, and without pure functions in one goroutine.
ALL = ./proxy/server $$(go list ./... | grep -vE '/(live|alerts|soak|jsonnet)$$')
# What RACE does not have.
PLAIN = ./loadtest/scenario ./internal/demo ./jsonnet ./alerts $$(go list ./... | grep -v /live$$ | grep -vxFf <(printf '%s\n' $(RACE)))

help: ## print the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "%-12s %s\n", $$1, $$2}'

demo: ## embedded shards full of a simulated GPU cluster, the proxy in front (the first build takes minutes)
	@echo "building spillway-lab; the first build takes minutes, later ones seconds"
	@go run ./cmd/spillway-lab demo $(DEMOFLAGS)

dashboards: ## all dashboards in a browser page over the demo, drawn by Grafana's components (needs npm); PAGEFLAGS=--url=http://... asks a running proxy
	@./tools/page.sh serve $(PAGEFLAGS)

screenshots: ## a picture of each dashboard, light and dark, in dashboards/render/out (needs npm and chromium); ONLY= THEME= TROUBLE= URL= choose
	@ONLY='$(ONLY)' THEME='$(THEME)' TROUBLE='$(TROUBLE)' URL='$(URL)' PLUGIN='$(PLUGIN)' PAGE='$(PAGE)' VARS='$(VARS)' FROM='$(FROM)' PAGEFLAGS='$(PAGEFLAGS)' ./tools/page.sh screenshots

pictures: ## those of docs/dashboards.md: each dashboard, light and dark, quiet and with every trouble that can be staged beside others
	@OUT=docs/images/dashboards SCALE=0.6 ./tools/page.sh screenshots
	@OUT=docs/images/dashboards SCALE=0.6 TROUBLE=all ./tools/page.sh screenshots

build: ## the binary, and the laboratory's, into dist/
	go build -o dist/spillway ./cmd/spillway
	go build -o dist/spillway-lab ./cmd/spillway-lab

image: ## the proxy's container image into dist/image, without a container engine; IMAGEFLAGS="-push HOST/NAME:TAG" sends it to a registry
	@go run ./deploy/image $(IMAGEFLAGS)

image-plugin: ## the same, and beside it the image that puts the Grafana plugin into Grafana's pod, into dist/image-grafana-plugin (needs npm and zip)
	@./tools/plugin.sh zip
	@go run ./deploy/image -plugin "$$(ls -t dist/spillway-experiments-datasource-*.zip | head -1)" $(IMAGEFLAGS)

cut: ## give the unreleased lines of CHANGELOG.md to VERSION=1.2.3
	@go run ./deploy/release -cut -version='$(VERSION)'

release: ## archives of VERSION=1.2.3 into dist/release, with lists of what is in them, notes and checksums; RELEASEFLAGS="-sign FILE" signs these
	@go run ./deploy/release -version='$(VERSION)' $(RELEASEFLAGS)

completions: ## man pages, and completions for bash, zsh and fish, into dist/share
	@go run ./deploy/release -pages dist/share

vulncheck: ## whether anything that is called is known to be vulnerable (needs a network)
	@./tools/vulncheck.sh

plugin: ## the Grafana datasource, both halves, into grafana-plugin/dist (needs npm); PLATFORMS="linux/amd64 linux/arm64" chooses for what
	@./tools/plugin.sh build

generate: ## all that is committed and comes from other files: alerts/ and dashboards/ from jsonnet/, their pages in docs/, the plugin's queries for relabel, the chart's schema and deploy/kubernetes
	go run ./cmd/spillway mixin render --out .
	go test ./jsonnet -run '^(TestFormatted|TestAlertTable|TestDashboardsOfConfigurations|TestPluginDashboardsAreCommitted)$$' -update
	go test ./dashboards -run '^TestDocs$$' -update
	go test ./dashboards/live -run '^TestTable$$' -update
	go test ./alerts/live -run '^TestAlertsByTroublePage$$' -update
	go test ./grafana-plugin/pkg/experiments -run '^(TestQueriesForRelabel|TestColumns)$$' -update
	go test ./proxy/config ./proxy/endpoint -run '^TestDocs$$' -update
	go test ./deploy/helm -run '^(TestSchema|TestReadme)$$' -update
	go test ./deploy/helm -run '^(TestGolden|TestKubernetes)$$' -update

tools: ## real prometheus, promtool and thanos, pinned, into tools/bin
	./tools/build.sh

# Programs that are built for tests need no commit in them: git refuses to tell it in a clone that belongs to somebody else, and then go refuses to build.
UNSTAMPED := $(strip $(shell go env GOFLAGS 2>/dev/null) -buildvcs=false)
test test-full fuzz vet staticcheck panels page-check plugin-check race proofs plain: export GOFLAGS := $(UNSTAMPED)

# One commit, one verdict: its random tests have a seed of its own, the same wherever it is tested. Without git it is 1. (docs/decisions/0017)
test: export SPILLWAY_SEED ?= $(shell hash=$$(git -c safe.directory='*' rev-parse HEAD 2>/dev/null) && printf '%d' "0x$${hash:0:10}" || echo 1)
test: ## install what tests need, then lint, unit, race and real-server tests
	@./tools/room.sh
	@$(LOAD) debian ./tools/debian.sh gcc node alertmanager chromium
	@$(LOAD) tools ./tools/build.sh
	@$(LOAD) modules go list -deps -test -f '{{""}}' ./...
	@$(STEP) gofumpt $(MAKE) --no-print-directory fmt-check
	@$(MAKE) --no-print-directory -j3 npm vet staticcheck panels
	@$(MAKE) --no-print-directory -j2 race plain
	@$(MAKE) --no-print-directory -j2 page-check plugin-check
	@$(STEP) live go test -vet=off -timeout 20m $(LIVE)

# What panels has waits for scrapes and for Alertmanager much of its time. Lint only computes, and leaves the processors to it (nice).
npm:
	@$(LOAD) page-npm nice ./tools/page.sh install
	@$(LOAD) plugin-npm nice ./tools/plugin.sh install

vet:
	@$(STEP) vet go vet $(VETFLAGS) ./...

# After vet, which compiles what all of them need.
staticcheck: vet
	@$(STEP) staticcheck nice ./tools/bin/staticcheck ./...

panels: vet
	@$(STEP) panels go test -vet=off -p 2 -timeout 20m ./dashboards/live ./grafana-plugin/pkg/live

# Browsers and real servers, which wait for each other much of the time.
page-check:
	@$(STEP) page ./tools/page.sh check

plugin-check:
	@$(STEP) plugin ./tools/plugin.sh check

# Race beside proofs and all that it does not have: its longest package keeps one processor busy for minutes. Who measures times is race; the others give way to it.
race:
	@$(STEP) race go test -race -vet=off -timeout 80m -skip '^($(PROOFS)|$(ALONE))$$' $(RACE)

proofs:
	@$(STEP) proofs nice -n 5 go test -vet=off -p 1 -timeout 60m -run '^($(PROOFS)|$(ALONE))$$' ./proxy/server ./proxy/merge ./proxy/plan ./proxy/plan/raw ./proxy/admit ./proxy/rewrite ./proxy/cost ./proxy/policy ./proxy/shard ./grafana-plugin/pkg/experiments

plain: proofs
	@$(STEP) test nice -n 5 go test -vet=off -p 3 -timeout 60m $(PLAIN)

fuzz: ## every fuzz target for a while each; FUZZTIME=2m chooses
	@$(STEP) fuzz ./tools/fuzz.sh $(FUZZTIME)

test-full: ## make test, then the long proofs: three rounds of everything, all of promqltest over all layouts, 100,000 queries against a reference, 20,000 hostile ones, two minutes of each fuzz target
	@$(MAKE) --no-print-directory test
	@$(LOAD) genuine-tools ./tools/build.sh kubernetes coredns operator helm exporters iptables old-prometheus
	@$(LOAD) node-tools ./tools/debian.sh containerd machine
	@$(STEP) genuine go test -timeout 90m ./internal/realkube/... $(LIVE) -run 'TestControlPlane|TestForward|TestGenuine' -genuine -v
	@$(STEP) live-all go test -timeout 120m $(LIVE) -run TestTroubles -live.all -v
	@$(STEP) live-gone go test -timeout 60m $(LIVE) -run TestScrapeJobsGone -live.gone -v
	@$(STEP) promtool go test -timeout 40m ./alerts -run '^TestPromtool$$' -alerts.whole
	@$(STEP) soak go test -timeout 300m ./alerts/soak -run 'TestSoak$$' -soak.days 30 -soak.nodes 100 -v
	@$(STEP) panels-all go test -timeout 90m ./dashboards/live -run 'TestDashboards$$|TestDashboardsAfterDropRules' -live.all -v
	@$(STEP) live-relabel go test -timeout 120m $(LIVE) -run TestTroubles -live.all -live.relabel -v
	@$(STEP) plugin-page ./tools/page.sh plugin
	@$(STEP) walk go test -timeout 40m ./docs -run TestDropRulesWalk -walk -v
	@$(STEP) rounds go test -race -count=3 -timeout 90m -skip '^($(PROOFS))$$' $(ALL)
	@$(STEP) exact go test ./proxy/server -run 'TestQueriesAreExact|TestMetadataIsComplete' -count=30 -timeout 30m
	@$(STEP) promqltest go test ./proxy/server -run 'TestPromQLTest$$' -promqltest.all -timeout 30m
	@$(STEP) everything go test ./proxy/server -run 'TestEverything$$|TestEveryDocument$$' -everything.requests 5000 -timeout 60m
	@$(STEP) cost go test ./internal/cost -run '^TestMonth$$' -cost.large -timeout 60m
	@$(STEP) fuzz-exact go test ./proxy/server -run TestExactFuzz -exact.queries 100000 -timeout 120m
	@$(STEP) thanos go test ./proofs/thanos -parallel 4 -thanos.all -thanos.watch $(THANOSWATCH) -timeout 900m -v
	@$(STEP) fidelity go test ./proofs/fidelity -fidelity.seeds 10 -fidelity.served 3 -timeout 90m -v
	@$(STEP) operation go test ./proofs/operation -run 'TestReloadsUnderLoad|TestShardsComeAndGo|TestGenuineSlices' -genuine -operation.reloads 1000 -operation.changes 1000 -timeout 120m -v
	@$(STEP) rehearse go test ./internal/rehearse -run 'TestPlantedChanges|TestGenuine' -rehearse.queries 5000 -genuine -timeout 30m -v
	@$(STEP) image go test ./deploy/image -run TestCold -image.cold -timeout 60m -v
	@$(STEP) release go test ./deploy/release -run 'TestCold|TestPlatforms|TestPlainBuilds|TestGoreleaser|TestCosign' -release.cold -timeout 60m -v
	@$(LOAD) shells ./tools/debian.sh shells
	@$(STEP) manual go test ./internal/manual -run 'TestCompletions|TestMan' -v
	@$(STEP) chart go test ./deploy/helm ./deploy/systemd -run TestGenuine -genuine -timeout 30m -v
	@$(STEP) adopt go test ./internal/adopt -run TestGenuine -genuine -timeout 30m -v
	@$(STEP) pair go test ./proofs/pair -pair.kills 6 -pair.away 30s -pair.every 5s -timeout 40m -v
	@$(STEP) killers go test ./internal/cli -run 'UnderAMemoryLimit$$' -killers.rounds 8 -killers.timeout 25s -timeout 60m -v
	@$(STEP) hostile go test ./proxy/hostile -hostile.texts 20000 -hostile.strict -timeout 360m -v
	@$(STEP) presence go test ./proxy/plan -run Presence -presence.count 200000 -timeout 30m
	@$(MAKE) --no-print-directory fuzz FUZZTIME=2m

bench: ## the figures of docs/performance.md
	@$(LOAD) tools ./tools/build.sh prometheus misc
	@$(STEP) bench ./tools/bench.sh

fmt: tools/bin/gofumpt ## format everything
	./tools/bin/gofumpt -w $$(git ls-files '*.go')

fmt-check: tools/bin/gofumpt
	@files=$$(git ls-files '*.go') && [ -n "$$files" ] || { echo "git names no files here: this needs a clone that git takes for yours (git config --global --add safe.directory $(CURDIR))"; exit 1; }; \
	out=$$(./tools/bin/gofumpt -l $$files) || exit 1; [ -z "$$out" ] || { echo "not formatted (make fmt):"; echo "$$out"; exit 1; }

tools/bin/gofumpt:
	./tools/build.sh misc

.PHONY: help demo dashboards screenshots pictures build image cut release completions vulncheck plugin generate tools test npm vet staticcheck panels page-check plugin-check race proofs plain fuzz test-full bench fmt fmt-check
