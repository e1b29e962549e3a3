// Package systemd has the unit file for a machine without Kubernetes, and the test that follows the
// pages about such a machine: docs/install.md, upgrade.md and uninstall.md.
//
// Its machine is a genuine one but for the kernel: systemd is the first process of namespaces of
// its own, over the files of the machine that tests, of which it changes none. It needs root, and
// Debian's systemd; a test that cannot have them is skipped with the reason. It holds 100 MB of
// memory, and what is written to its files.
package systemd
