#!/usr/bin/env bash
# Runs every fuzz target of the module for a while each, one processor a target: tools/fuzz.sh [TIME, default 10s]. The seeds alone run with the unit tests.
set -euo pipefail
cd "$(dirname "$0")/.."
export time=${1:-10s}
cache=$(go env GOCACHE)/fuzz
work=$(mktemp -d)
export cache work
trap 'rm -rf "$work"' EXIT
once() { # binary, folder, target
  (cd "$2" && "$1" -test.run '^$' -test.fuzz "^$3\$" -test.fuzztime "$time" -test.parallel 1 -test.fuzzminimizetime 1x -test.fuzzcachedir "$cache/$2") >"$1.out" 2>&1
}
package() { # folder
  local dir=$1 binary target
  binary=$(mktemp -d -p "$work")/fuzz.test
  # Once for all its targets: linking takes longer than most of them run. Without what debuggers read, it is quicker.
  go test -c -fuzz . -ldflags=-s -o "$binary" "./$dir"
  grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go | sed 's/^func //' | sort -u | while read -r target; do
    echo "-- $dir $target ($time)"
    once "$binary" "$dir" "$target" && continue
    # A worker that is still at work when the time is up can make Go report that as a failure. It names no input then, and a finding always does.
    if grep -q 'context deadline exceeded' "$binary.out" && ! grep -q 'Failing input' "$binary.out"; then
      echo "   $dir $target: the time ran out inside a worker; once more"
      once "$binary" "$dir" "$target" && continue
    fi
    echo "-- $dir $target FAILED"
    cat "$binary.out"
    return 255 # xargs begins no other package then
  done
  rm -rf "${binary%/*}"
}
export -f once package
# As many packages at a time as there are processors, those with the most targets first. The whole tree is searched, so that no folder can be forgotten.
grep -rcE --include='*_test.go' --exclude-dir=node_modules --exclude-dir='.?*' '^func Fuzz[A-Z]' . |
  awk -F: '$2 > 0 { sub("^[.]/", "", $1); sub("/[^/]*$", "", $1); n[$1] += $2 } END { for (dir in n) print n[dir], dir }' | sort -k1,1rn -k2 | cut -d' ' -f2 |
  xargs -P "$(nproc)" -n 1 bash -c 'set -euo pipefail; package "$0"'
