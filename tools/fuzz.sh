#!/usr/bin/env bash
# Runs every fuzz target of the module for a while each: tools/fuzz.sh [TIME, default 10s]. The seeds alone run with the unit tests.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cache=$(go env GOCACHE)/fuzz
once() { # folder, target
  (cd "$1" && "$work/fuzz.test" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$time" -test.fuzzminimizetime 1x -test.fuzzcachedir "$cache/$1") >"$work/out" 2>&1
}
grep -rlE '^func Fuzz[A-Z]' --include='*_test.go' alerts cmd deploy internal jsonnet loadtest proxy relabel | xargs -n1 dirname | sort -u | while read -r dir; do
  go test -c -fuzz . -o "$work/fuzz.test" "./$dir" # once for all its targets: linking takes longer than most of them run
  grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go | sed 's/^func //' | sort -u | while read -r target; do
    echo "-- $dir $target ($time)"
    once "$dir" "$target" && continue
    # A worker that is still at work when the time is up can make Go report that as a failure. It names no input then, and a finding always does.
    if grep -q 'context deadline exceeded' "$work/out" && ! grep -q 'Failing input' "$work/out"; then
      echo "   the time ran out inside a worker; once more"
      once "$dir" "$target" && continue
    fi
    cat "$work/out"
    exit 1
  done
done
