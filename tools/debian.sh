#!/usr/bin/env bash
# Installs what tests run of Debian's packages, and does nothing where it is there already:
#
#   tools/debian.sh alertmanager   prometheus-alertmanager and amtool. The module github.com/prometheus/alertmanager cannot be built from its source alone (the files of its
#                                  user interface are not in it), hence the package. And wget, which is in its image. The service that it may start is stopped: the tests start their own on free ports.
#   tools/debian.sh chromium       the browser that draws dashboards, with a font
#   tools/debian.sh containerd     containerd and runc, the plugins by which pods get their network, iptables and iproute2: a genuine node for make test-full. A service that the package may start is stopped.
#   tools/debian.sh gcc            the C compiler that Go's race detector is linked with
#   tools/debian.sh node           Node.js 20 or later, and npm
#   tools/debian.sh machine        systemd, and what the page about a bare machine types: make test-full boots one in namespaces of its own
#   tools/debian.sh shells         zsh, fish and mandoc, which read completions and man pages
set -euo pipefail

install() { # package ...
  if ! command -v apt-get >/dev/null; then
    echo "$1 is not here, and this system has no apt-get: install it (Alertmanager 0.25, Chromium 120, Node.js 20 or later; any gcc) and put its programs on the PATH" >&2
    exit 1
  fi
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "run this as root: apt-get install -y --no-install-recommends $*" >&2; exit 1; }
    sudo=(sudo)
  fi
  echo "apt-get install $*"
  if ! "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; then
    echo "not in the package lists that are here; apt-get update, then again"
    "${sudo[@]}" apt-get update
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
  fi
}

have() { # program ...
  local program
  for program in "$@"; do
    command -v "$program" >/dev/null || return 1
  done
}

# A service that was there before and runs is somebody's: only one that this installation starts is stopped.
install_stopped() { # service, package ...
  local service=$1 ran=no
  shift
  if [ -d /run/systemd/system ] && systemctl is-active --quiet "$service" 2>/dev/null; then ran=yes; fi
  install "$@"
  if [ "$ran" = no ] && [ -d /run/systemd/system ]; then
    echo "stopping and disabling the service that the package starts"
    local stop=(systemctl disable --now "$service")
    [ "$(id -u)" -eq 0 ] || stop=(sudo "${stop[@]}")
    "${stop[@]}" || echo "could not stop it; systemctl disable --now $service"
  fi
}

alertmanager() {
  have wget || install wget
  if ! have prometheus-alertmanager amtool; then
    install_stopped prometheus-alertmanager prometheus-alertmanager
    have prometheus-alertmanager amtool || { echo "the package came without prometheus-alertmanager or amtool: look at dpkg -L prometheus-alertmanager" >&2; exit 1; }
  fi
  amtool --version 2>&1 | head -1
}

containers() {
  if ! have containerd runc iptables ip || [ ! -x /usr/lib/cni/bridge ]; then
    install_stopped containerd containerd runc containernetworking-plugins iptables iproute2
    have containerd runc || { echo "the packages came without containerd or runc: look at dpkg -L containerd runc" >&2; exit 1; }
  fi
  containerd --version
}

chromium() {
  local c
  for c in "${CHROMIUM:-}" /usr/bin/chromium /usr/bin/chromium-browser /usr/bin/google-chrome; do
    if [ -x "$c" ]; then
      echo "$c"
      return
    fi
  done
  install chromium fonts-dejavu-core
  [ -x /usr/bin/chromium ] || { echo "the package came without /usr/bin/chromium: look at dpkg -L chromium" >&2; exit 1; }
}

compiler() {
  local cc
  cc=$(go env CC)
  have "${cc%% *}" || install gcc libc6-dev
  "${cc%% *}" --version 2>&1 | head -1
}

node_and_npm() {
  have node npm || install nodejs npm
  local version
  version=$(node --version)
  if ! [[ $version =~ ^v([0-9]+)[.] ]] || [ "${BASH_REMATCH[1]}" -lt 20 ]; then
    echo "Node.js $version is here, 20 or later is needed: put a newer one first on the PATH (Debian 13 has 20)" >&2
    exit 1
  fi
  echo "Node.js $version, npm $(npm --version)"
}

machine() {
  { have adduser curl jq && [ -x /lib/systemd/systemd ]; } || install systemd adduser curl jq
  /lib/systemd/systemd --version | head -1
}

shells() {
  have zsh fish mandoc groff || install zsh fish mandoc groff
  zsh --version
  fish --version
}

[ $# -gt 0 ] || { sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//' >&2; exit 2; }
for what in "$@"; do
  case $what in
    alertmanager) alertmanager ;;
    chromium) chromium ;;
    containerd) containers ;;
    gcc) compiler ;;
    machine) machine ;;
    node) node_and_npm ;;
    shells) shells ;;
    *) echo "tools/debian.sh: no such package here: $what" >&2; exit 2 ;;
  esac
done
