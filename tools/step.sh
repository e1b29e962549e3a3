#!/usr/bin/env bash
# Runs one step of a target and prints how long it took: tools/step.sh NAME COMMAND [ARG ...]
set -uo pipefail
name=$1
shift
start=$(date +%s)
echo "== $name"
"$@"
code=$?
echo "== $name: $(( $(date +%s) - start )) s$([ $code -eq 0 ] || echo ", FAILED ($code)")"
exit $code
