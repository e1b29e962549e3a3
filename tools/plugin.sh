#!/usr/bin/env bash
# The Grafana datasource in grafana-plugin: front end and back end, into grafana-plugin/dist, which is the folder that Grafana loads.
#
#   tools/plugin.sh install    what package-lock.json names, where that is not there yet
#   tools/plugin.sh build      install, and build both halves where their source is newer. From the environment:
#       PLATFORMS="linux/amd64 linux/arm64 darwin/arm64 windows/amd64"   for these (default: this machine)
#   tools/plugin.sh check      build, then lint, typecheck, unit tests, and what Grafana's catalog asks of a plugin; the back end's tests are Go tests like others
#   tools/plugin.sh zip        build for all platforms, and dist/spillway-experiments-datasource-VERSION.zip with its sha256
set -euo pipefail
cd "$(dirname "$0")/.."
plugin=grafana-plugin
id=spillway-experiments-datasource
platforms="linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64"

install() {
  command -v npm >/dev/null || { echo "npm is missing: install Node.js 20 or later (Debian: apt-get install nodejs npm)" >&2; exit 1; }
  if [ "$plugin/node_modules/.package-lock.json" -nt "$plugin/package-lock.json" ]; then
    return
  fi
  echo "installing what the plugin's front end is built with (about 800 MB, some minutes)"
  npm --prefix "$plugin" ci --no-audit --no-fund --loglevel=error
  touch "$plugin/node_modules/.package-lock.json"
}

frontend() {
  install
  if [ -e "$plugin/dist/module.js" ] && [ -z "$(find "$plugin/src" "$plugin"/*.md "$plugin"/*.json "$plugin/webpack.config.mjs" -newer "$plugin/dist/module.js" -print -quit)" ]; then
    return
  fi
  npm --prefix "$plugin" run --silent build
  touch "$plugin/dist/module.js" # which is not written where it would be the same
}

# backend builds for each OS/ARCH that it is given, and lists the Go files that it was built from, as the catalog wants it.
backend() {
  local platform os arch version
  version=$(sed -n 's/^  "version": "\(.*\)",$/\1/p' "$plugin/package.json")
  mkdir -p "$plugin/dist"
  for platform in "$@"; do
    os=${platform%/*} arch=${platform#*/}
    CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath \
      -ldflags "-s -w -X 'github.com/grafana/grafana-plugin-sdk-go/build/buildinfo.buildInfoJSON={\"pluginID\":\"$id\",\"version\":\"$version\"}'" \
      -o "$plugin/dist/gpx_spillway_experiments_${os}_$arch$([ "$os" = windows ] && echo .exe)" "./$plugin/pkg"
  done
  (cd "$plugin" && find pkg -name '*.go' -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sed -E 's/^([0-9a-f]{64})  (.*)$/\1:\2/') >"$plugin/dist/go_plugin_build_manifest"
}

case ${1:-} in
  install) install ;;
  build)
    frontend
    # shellcheck disable=SC2086
    backend ${PLATFORMS:-$(go env GOOS)/$(go env GOARCH)}
    ;;
  check)
    frontend
    backend "$(go env GOOS)/$(go env GOARCH)"
    npm --prefix "$plugin" run --silent lint
    npm --prefix "$plugin" run --silent typecheck
    npm --prefix "$plugin" run --silent test -- --ci
    node --test --test-reporter=spec "$plugin"/test/*.test.mjs
    ;;
  zip)
    command -v zip >/dev/null || { echo "zip is missing (Debian: apt-get install zip)" >&2; exit 1; }
    rm -rf "$plugin/dist"
    frontend
    # shellcheck disable=SC2086
    backend $platforms
    version=$(sed -n 's/^  "version": "\(.*\)",$/\1/p' "$plugin/package.json")
    archive=$PWD/dist/$id-$version.zip
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cp -R "$plugin/dist" "$work/$id"
    chmod 0755 "$work/$id"/gpx_*
    mkdir -p dist
    rm -f "$archive"
    (cd "$work" && zip -q -r -X "$archive" "$id")
    (cd dist && sha256sum "$id-$version.zip" | tee "$id-$version.zip.sha256")
    ;;
  *)
    sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//' >&2
    exit 2
    ;;
esac
