#!/usr/bin/env bash
# Runs every fuzz target of the module for a while each: tools/fuzz.sh [TIME, default 10s]. The seeds alone run with the unit tests.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
out=$(mktemp)
trap 'rm -f "$out"' EXIT
once() { # folder, target
  go test "./$1" -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 1x >"$out" 2>&1
}
grep -rlE '^func Fuzz[A-Z]' --include='*_test.go' alerts cmd deploy internal jsonnet loadtest proxy relabel | xargs -n1 dirname | sort -u | while read -r dir; do
  grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go | sed 's/^func //' | sort -u | while read -r target; do
    echo "-- $dir $target ($time)"
    once "$dir" "$target" && continue
    # A worker that is still at work when the time is up can make Go report that as a failure. It names no input then, and a finding always does.
    if grep -q 'context deadline exceeded' "$out" && ! grep -q 'Failing input' "$out"; then
      echo "   the time ran out inside a worker; once more"
      once "$dir" "$target" && continue
    fi
    cat "$out"
    exit 1
  done
done
