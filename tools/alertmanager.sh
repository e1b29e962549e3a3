#!/usr/bin/env bash
# Installs Debian's prometheus-alertmanager, which brings the programs prometheus-alertmanager and amtool that the tests of deploy/alertmanager run, and stops the service
# that the package may start: the tests start their own on free ports. Does nothing where both programs are there already.
#
#   tools/alertmanager.sh
#
# The module github.com/prometheus/alertmanager cannot be built from its source alone (the files of its user interface are not in it), hence the package.
set -euo pipefail

missing=()
for program in prometheus-alertmanager amtool; do
  command -v "$program" >/dev/null || missing+=("$program")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "alertmanager: $(amtool --version 2>&1 | head -1); nothing to do"
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "alertmanager: ${missing[*]} not found, and this system has no apt-get: install Alertmanager 0.25 or later and put prometheus-alertmanager and amtool on the PATH" >&2
  exit 1
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "alertmanager: run this as root: apt-get install -y --no-install-recommends prometheus-alertmanager" >&2; exit 1; }
  sudo=(sudo)
fi
# A service that was there before and runs is somebody's: only one that this installation starts is stopped.
ran=no
if [ -d /run/systemd/system ] && systemctl is-active --quiet prometheus-alertmanager 2>/dev/null; then ran=yes; fi
install() {
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends prometheus-alertmanager
}
echo "alertmanager: ${missing[*]} not found; apt-get install prometheus-alertmanager"
if ! install; then
  echo "alertmanager: not in the package lists that are here; apt-get update, then again"
  "${sudo[@]}" apt-get update
  install
fi
if [ "$ran" = no ] && [ -d /run/systemd/system ]; then
  echo "alertmanager: stopping and disabling the service that the package starts"
  "${sudo[@]}" systemctl disable --now prometheus-alertmanager || echo "alertmanager: could not stop it; systemctl disable --now prometheus-alertmanager"
fi
for program in prometheus-alertmanager amtool; do
  command -v "$program" >/dev/null || { echo "alertmanager: the package came without $program: look at dpkg -L prometheus-alertmanager" >&2; exit 1; }
done
echo "alertmanager: $(amtool --version 2>&1 | head -1)"
