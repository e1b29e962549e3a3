#!/usr/bin/env bash
# Builds the pinned tools of tools/*/go.mod into tools/bin, once for each content of their go.mod and go.sum.
#
#   tools/build.sh [misc|prometheus|thanos|old-prometheus|kubernetes|coredns|operator|helm|exporters|iptables ...]     (default: the first three; the others are for make test-full)
#
# tools/bin/NAME is a link into tools/bin/.SET-HASH; a changed go.mod or go.sum is a new hash, so a stale program is never run.
set -euo pipefail
cd "$(dirname "$0")"

build() { # set, packages and flags
  local set=$1 hash dir
  shift
  hash=$( { cat "$set"/go.{mod,sum} $(find "$set" -name "*.go"); go version; echo "$*"; } | sha256sum | cut -c1-16)
  dir=bin/.$set-$hash
  if [ ! -f "$dir/.done" ]; then
    echo "building tools/$set (minutes when the Go build cache is cold)"
    mkdir -p "$dir"
    local out
    out=$(cd "$dir" && pwd)
    for old in bin/."$set"-*; do [ "$old" = "$dir" ] || rm -rf "$old"; done
    (cd "$set" && CGO_ENABLED=0 GOFLAGS=-mod=readonly go build -trimpath -o "$out/" "$@")
    [ ! -f "$dir/server" ] || mv "$dir/server" "$dir/etcd" # go names it by the last element of its path
    [ "$set" != old-prometheus ] || mv "$dir/prometheus" "$dir/prometheus-3.9"
    touch "$dir/.done"
  fi
  for f in "$dir"/*; do ln -sfn ".$set-$hash/$(basename "$f")" "bin/$(basename "$f")"; done
}

version=github.com/prometheus/common/version.Version
kube=k8s.io/component-base/version
[ $# -gt 0 ] || set -- misc prometheus thanos
for set in "$@"; do
  start=$SECONDS
  case $set in
    # Without its version a server would call itself "", which clients that ask for it do not understand.
    prometheus) build prometheus -ldflags "-s -w -X $version=3.15.0" -tags netgo,remove_all_sd github.com/prometheus/prometheus/cmd/prometheus github.com/prometheus/prometheus/cmd/promtool ;;
    # The one before, to rehearse the upgrade from.
    old-prometheus) build old-prometheus -ldflags "-s -w -X $version=3.9.1" -tags netgo github.com/prometheus/prometheus/cmd/prometheus ;;
    thanos) build thanos -ldflags "-s -w -X $version=0.42.4" -tags slicelabels,netgo github.com/thanos-io/thanos/cmd/thanos ;;
    # Without its version kube-apiserver calls itself v0.0.0-master, and what is older than it is not taken for a node.
    kubernetes) build kubernetes -ldflags "-s -w -X $kube.gitVersion=v1.34.4 -X $kube.gitMajor=1 -X $kube.gitMinor=34" k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kube-proxy,kubelet,kubectl} k8s.io/kube-state-metrics/v2 go.etcd.io/etcd/server/v3 ;;
    # Without its version the operator is of none that its Prometheus' version could be held to.
    operator) build operator -ldflags "-s -w -X $version=0.85.0" github.com/prometheus-operator/prometheus-operator/cmd/operator github.com/prometheus-operator/prometheus-operator/cmd/prometheus-config-reloader ;;
    coredns) build coredns -ldflags "-s -w" . ;;
    helm) build helm -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=v3.22.0" helm.sh/helm/v3/cmd/helm ;;
    # Without its version nobody believes what it says of read-only file systems (NodeExporterTooOld).
    exporters) build exporters -ldflags "-s -w -X $version=1.12.1" github.com/prometheus/node_exporter ;;
    iptables) build iptables -ldflags "-s -w" github.com/retailnext/iptables_exporter ;;
    misc) build misc mvdan.cc/gofumpt honnef.co/go/tools/cmd/staticcheck golang.org/x/perf/cmd/benchstat ;;
    *) echo "tools/build.sh: no such set: $set (misc, prometheus, thanos, old-prometheus, kubernetes, coredns, operator, helm, exporters, iptables)" >&2; exit 2 ;;
  esac
  echo "tools/$set ready ($((SECONDS - start)) s)"
done
