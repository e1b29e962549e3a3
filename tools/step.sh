#!/usr/bin/env bash
# Runs one step of a target and prints how long it took, and how much of the processors' time: tools/step.sh NAME COMMAND [ARG ...]
set -uo pipefail
name=$1
shift
start=$(date +%s)
echo "== $name"
"$@"
code=$?
# The second line of times is of what ran above, user and system: 1m2.345s 0m6.789s. (In a pipe it would be that of the pipe's own shell.)
spent=$(mktemp)
times >"$spent"
busy=$(awk -F'[ms ]+' 'NR == 2 { printf "%.0f", 60 * $1 + $2 + 60 * $3 + $4 }' "$spent")
rm -f "$spent"
echo "== $name: $(( $(date +%s) - start )) s, $busy s of processors$([ $code -eq 0 ] || echo ", FAILED ($code)")"
exit $code
