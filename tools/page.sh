#!/usr/bin/env bash
# The page that draws the dashboards with Grafana's own components, in dashboards/render.
#
#   tools/page.sh install      what package-lock.json names, where that is not there yet
#   tools/page.sh bundle       install, and bundle the page where its source is newer
#   tools/page.sh serve        bundle, and serve it over the demo until Ctrl-C; flags of dashboards/page/serve are passed on (--url=... asks a running proxy)
#   tools/page.sh screenshots  bundle, and render dashboards to dashboards/render/out/NAME-THEME.png. From the environment:
#       ONLY=fleet,apiserver   these dashboards; all without it
#       THEME=dark             light, dark or both (default: both)
#       TROUBLE=GPUHot,NodeDown  stage these in the demo's first cluster (`all`: every kind that can be staged so); pictures are NAME-THEME-trouble.png
#       URL=http://...         ask this proxy instead of starting a demo
#       PAGE=http://...        a page that is being served already
#       FROM=now-6h            the range begins there (default: now-1h, what the demo holds; now-3m of its proxy); FROM=own: what each dashboard opens with
#       TO=1790000000000       and ends there (default: now)
#       OUT=FOLDER SCALE=0.6   where pictures go, and their size
#       WIDTH=1280             pixels of the window (default: 1600; an editor's is always 1400)
#       VARS=var-cluster=jaguar   added to each address; scrape=1m says how often series are scraped (default: 15s)
#       PLUGIN=grafana-plugin/dist   the built Grafana plugin, whose dashboards and editors are shown too
#       EDITORS=query,variable,annotation,config   pictures of these editors of the plugin instead; QUERY='{"queryType":"pods"}' is what the first one begins with
#   tools/page.sh check        bundle, lint, typecheck, and render three pages and a broken one
#   tools/page.sh plugin       the same for the Grafana plugin: its editors, typed into, and its dashboards; the plugin is built before, unless PLUGIN names one
set -euo pipefail
cd "$(dirname "$0")/.."
render=dashboards/render

install() {
  command -v npm >/dev/null || { echo "npm is missing: install Node.js 20 or later (Debian: apt-get install nodejs npm)" >&2; exit 1; }
  if [ "$render/node_modules/.package-lock.json" -nt "$render/package-lock.json" ]; then
    return
  fi
  echo "installing what the page needs (about 500 MB, a minute)"
  npm --prefix "$render" ci --no-audit --no-fund --loglevel=error
  touch "$render/node_modules/.package-lock.json"
}

bundle() {
  install
  if [ -e "$render/dist/index.html" ] && [ -z "$(find "$render/src" "$render/bundle.mjs" "$render/package-lock.json" -newer "$render/dist/index.html" -type f -print -quit)" ]; then
    return
  fi
  npm --prefix "$render" run --silent bundle
}

chromium() {
  for c in ${CHROMIUM:-} /usr/bin/chromium /usr/bin/chromium-browser /usr/bin/google-chrome; do
    [ -x "$c" ] && { echo "$c"; return; }
  done
  echo "no Chromium: tools/debian.sh chromium installs it, CHROMIUM= names another" >&2
  exit 1
}

# started runs the page in the background on a free port and sets $page; it ends with this script.
started() {
  log=$(mktemp)
  go build -o dist/spillway-page ./dashboards/page/serve
  ./dist/spillway-page --web.listen-address=127.0.0.1:0 "$@" >"$log" 2>&1 &
  server=$!
  trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -f "$log"' EXIT
  for _ in $(seq 600); do
    page=$(sed -n 's|^ *dashboards  *\(http://[^ ]*\)$|\1|p' "$log")
    # The rules have recorded the demo's past only a while after it is ready.
    if [ -n "$page" ] && { [ -n "${URL:-}" ] || grep -q '^recorded series and alerts are there' "$log"; }; then
      return
    fi
    kill -0 "$server" 2>/dev/null || break
    sleep 0.5
  done
  echo "the page did not start:" >&2
  cat "$log" >&2
  exit 1
}

case ${1:-} in
  install) install ;;
  bundle) bundle ;;
  serve)
    shift
    bundle
    mkdir -p dist
    go build -o dist/spillway-page ./dashboards/page/serve
    exec ./dist/spillway-page "$@"
    ;;
  screenshots)
    browser=$(chromium)
    bundle
    mkdir -p dist
    page=${PAGE:-}
    if [ -z "$page" ]; then
      args=()
      [ -n "${URL:-}" ] && args+=("--url=$URL")
      [ -n "${TROUBLE:-}" ] && args+=("--trouble=$TROUBLE")
      [ -n "${PLUGIN:-}" ] && args+=("--plugin=$PLUGIN")
      started "${args[@]}" ${PAGEFLAGS:-}
    fi
    from=${FROM:-now-1h}
    [ "$from" = own ] && from=
    node "$render/screenshots.mjs" --page="$page" --from="$from" --to="${TO:-now}" --only="${ONLY:-}" --theme="${THEME:-light,dark}" --vars="${VARS:-}" --suffix="${TROUBLE:+trouble}" --out="${OUT:-$render/out}" --scale="${SCALE:-1}" --width="${WIDTH:-1600}" --editors="${EDITORS:-}" --query="${QUERY:-}" --chromium="$browser"
    ;;
  check)
    browser=$(chromium)
    bundle
    npm --prefix "$render" run --silent lint
    npm --prefix "$render" run --silent typecheck
    mkdir -p dist
    go build -o dist/spillway-page ./dashboards/page/serve
    CHROMIUM=$browser SPILLWAY_PAGE=$PWD/dist/spillway-page node --test --test-reporter=spec "$render"/test/{units,plugin-units,pages}.test.mjs
    ;;
  plugin)
    browser=$(chromium)
    bundle
    [ -n "${PLUGIN:-}" ] || ./tools/plugin.sh build
    plugin=${PLUGIN:-$PWD/grafana-plugin/dist}
    mkdir -p dist
    go build -o dist/spillway-page ./dashboards/page/serve
    CHROMIUM=$browser SPILLWAY_PAGE=$PWD/dist/spillway-page SPILLWAY_PLUGIN=$plugin node --test --test-reporter=spec "$render"/test/plugin.test.mjs
    ;;
  *)
    sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//' >&2
    exit 2
    ;;
esac
