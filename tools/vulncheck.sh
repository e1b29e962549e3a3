#!/usr/bin/env bash
# Looks whether the program calls anything that is known to be vulnerable: govulncheck, pinned. It asks the Go project's database of vulnerabilities, so it needs a network.
#
#   tools/vulncheck.sh [govulncheck's flags]     exit code 0: nothing is known; 3: something is, and is called; 2: it could not be looked
set -uo pipefail
cd "$(dirname "$0")/.."
govulncheck=golang.org/x/vuln/cmd/govulncheck@v1.9.0

# Without go run, which makes every exit code 1 of its own.
bin=$(mktemp -d) || exit 2
trap 'rm -rf "$bin"' EXIT
if ! GOBIN=$bin GOFLAGS=-trimpath go install "$govulncheck"; then
  echo "vulncheck: $govulncheck could not be built: it is a Go module that has to be fetched first. Nothing was checked." >&2
  exit 2
fi
"$bin/govulncheck" "$@" ./cmd/... ./deploy/alertmanager/remediator/... ./grafana-plugin/pkg
code=$?
case $code in
  0 | 3) exit $code ;;
esac
echo "vulncheck: govulncheck did not come to an end; above is why. Without a network it cannot read the database of vulnerabilities. Nothing was checked." >&2
exit 2
