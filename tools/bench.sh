#!/usr/bin/env bash
# The figures of docs/performance.md, docs/loadtest.md and docs/storm.md, into bench.out/: tools/bench.sh [NAME ...] (passthrough, leaves, console, ejected, outages, clients, fanout, fleet, merge, policy, verdicts, mix, bare, mixed, rules, dashboards, plugin, relabel, oom, storm; default: all)
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bench.out
[ $# -gt 0 ] || set -- passthrough leaves console ejected outages clients fanout fleet merge policy verdicts mix bare mixed rules dashboards plugin relabel oom storm
bench() { # name, package, pattern, more flags
  local name=$1 pkg=$2 pattern=$3
  shift 3
  echo "-- $name"
  go test "$pkg" -run '^$' -bench "$pattern" "$@" | tee "bench.out/$name.txt" | grep -E '^Benchmark|^(FAIL|panic)' || { echo "failed; see bench.out/$name.txt" >&2; exit 1; }
}
for name in "$@"; do
  case $name in
    passthrough) bench passthrough ./proxy/server 'PassThrough$' -benchtime 10x ;;
    leaves)
      bench leaves ./proxy/server 'ClientLeaves' -benchtime 1x
      bench evicted ./proxy/server 'Evicted$' -benchtime 1x
      ;;
    console) bench console ./proxy/server 'Console$' -benchtime 100x ;;
    ejected) bench ejected ./proxy/server 'Ejected$' -benchtime 400x ;;
    fleet)
      bench fleet ./proxy/server 'GroupLabelValues$' -benchtime 20x
      bench fleet-judge ./proxy/shard 'Judge$' -benchtime 20x
      bench fleet-hung ./proxy/server 'HungGroups$' -benchtime 5x
      bench fleet-idle ./proxy/server 'Idle$' -benchtime 1x # minutes
      ;;
    outages) bench outages ./proofs/pair 'Outages$' -benchtime 1x ;;
    clients) bench clients ./proxy/server 'Storm$' -benchtime 1x ;;
    fanout) bench fanout ./proxy/server 'FanOut$' -benchtime 1x ;;
    merge) bench merge ./proxy/merge . -benchtime 1s ;;
    policy) bench policy ./proxy/policy . -benchtime 200ms ;;
    verdicts) bench verdicts ./proxy/server 'Verdicts$' -benchtime 1x ;;
    mix)
      echo "-- mix: a dashboard mix over a million series, on one real server and on four"
      go run ./cmd/spillway-lab loadtest mix --pprof --out bench.out/mix
      ;;
    bare)
      echo "-- bare: what estimates, weights, live queries and attribution cost: the mix by this build, and by one without them"
      go build -tags bare -o bench.out/spillway-bare ./cmd/spillway
      go run ./cmd/spillway-lab loadtest mix --beside bare=bench.out/spillway-bare --rounds 24 --bulk-runs 1 --out bench.out/bare
      ;;
    mixed)
      echo "-- mixed: a million requests of all kinds over shards of which a fifth of the answers goes wrong"
      go test ./proofs/operation -run TestMixedRequests -operation.requests 1000000 -timeout 120m -v | tee bench.out/mixed.txt | grep -E '^ +(mixed|main)_test|^(ok|FAIL|panic)'
      ;;
    rules)
      echo "-- rules: the mixin's global rules at 7,500 nodes, over four real servers"
      go run ./cmd/spillway-lab loadtest rules --out bench.out/rules.md
      ;;
    dashboards)
      echo "-- dashboards: every panel at 7,500 nodes, over four real servers"
      go run ./cmd/spillway-lab loadtest dashboards --out bench.out/dashboards.md
      ;;
    plugin)
      echo "-- plugin: every view of an experiment of 4,000 GPUs at 7,500 nodes, over four real servers"
      go run ./cmd/spillway-lab loadtest plugin --out bench.out/plugin.md
      ;;
    relabel)
      echo "-- relabel: a plan for up to ten million series"
      go run ./cmd/spillway-lab loadtest relabel --out bench.out/relabel.md
      ;;
    oom)
      echo "-- oom: four real servers of a million series each, eight callers"
      go run ./cmd/spillway-lab loadtest oom --series 1000000 --out bench.out/oom
      ;;
    storm)
      echo "-- storm: everything at once, twice, over two real servers of a million series each"
      go run ./cmd/spillway-lab loadtest storm --series 1000000 --enforce none --out bench.out/storm
      ;;
    *) echo "tools/bench.sh: no such benchmark: $name" >&2; exit 2 ;;
  esac
done
