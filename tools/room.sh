#!/usr/bin/env bash
# Says so where the disk may be too small for make test, which otherwise fails after 20 minutes with "no space left on device" in tests of anything: tools/room.sh [GIGABYTES]
set -uo pipefail
want=${1:-10}
for of in "TMPDIR ${TMPDIR:-/tmp}" "GOCACHE $(go env GOCACHE)"; do
  name=${of%% *} folder=${of#* }
  mkdir -p "$folder" 2>/dev/null
  free=$(df -Pk "$folder" 2>/dev/null | awk 'NR == 2 { print int($4 / 1000 / 1000) }')
  if [ -n "$free" ] && [ "$free" -lt "$want" ]; then
    echo "only $free GB are free in $folder ($name): make test takes up to $want. go clean -cache gives back what builds of before left there." >&2
  fi
done
