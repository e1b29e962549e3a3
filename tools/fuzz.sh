#!/usr/bin/env bash
# Runs every fuzz target of the module for a while each: tools/fuzz.sh [TIME, default 10s]. The seeds alone run with the unit tests.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
grep -rlE '^func Fuzz[A-Z]' --include='*_test.go' cmd internal loadtest proxy | xargs -n1 dirname | sort -u | while read -r dir; do
  grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go | sed 's/^func //' | sort -u | while read -r target; do
    echo "-- $dir $target ($time)"
    go test "./$dir" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x | grep -vE '^fuzz: elapsed|^(PASS|ok)' || { [ "${PIPESTATUS[0]}" -eq 0 ] || exit 1; }
  done
done
