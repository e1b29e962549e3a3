// Package quota tells how much processor time the container of this process allows.
//
// Go's GOMAXPROCS is a number of threads, two at least, and rounded up: under a limit of one
// processor it is 2, so that a process which is throttled all the time seems to use half of what it
// may. The container's own limit is the true measure. It is read from the control groups (version 1
// and 2), each time that it is asked for, since a container's limit can change while it runs.
package quota

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Processors are how many processors' time this process may use: GOMAXPROCS, or the container's
// limit where that is less.
func Processors() float64 {
	most := float64(runtime.GOMAXPROCS(0))
	if limit, ok := Limit("/"); ok {
		return min(most, limit)
	}
	return most
}

// Limit is the container's limit in processors, the least of its own group and those above it;
// false where there is none, or no control groups. Files are looked for below root.
func Limit(root string) (float64, bool) {
	dir, top, v2, ok := group(root)
	if !ok {
		return 0, false
	}
	least, found := 0.0, false
	for {
		read := limit1
		if v2 {
			read = limit2
		}
		if l, ok := read(dir); ok && (!found || l < least) {
			least, found = l, true
		}
		if dir == top || len(dir) <= len(top) {
			return least, found
		}
		dir = filepath.Dir(dir)
	}
}

// group is the folder of the process' group that limits processors, and that of the uppermost group
// that can be seen.
func group(root string) (dir, top string, v2, ok bool) {
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return "", "", false, false
	}
	mounts, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return "", "", false, false
	}
	var path string
	for line := range bytes.Lines(groups) { // id:controllers:path
		parts := strings.SplitN(strings.TrimSpace(string(line)), ":", 3)
		if len(parts) != 3 {
			continue
		}
		if slices.Contains(strings.Split(parts[1], ","), "cpu") {
			path, v2, ok = parts[2], false, true
			break
		}
		if parts[0] == "0" && parts[1] == "" {
			path, v2, ok = parts[2], true, true
		}
	}
	if !ok {
		return "", "", false, false
	}
	for line := range bytes.Lines(mounts) { // … root mount-point … - type source options
		before, after, _ := strings.Cut(string(line), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if len(left) < 5 || len(right) < 3 {
			continue
		}
		if v2 && right[0] != "cgroup2" || !v2 && (right[0] != "cgroup" || !slices.Contains(strings.Split(right[2], ","), "cpu")) {
			continue
		}
		top = filepath.Join(root, left[4])
		// Within a container the mount may begin at the process' own group, whose path is then that
		// of the host.
		if below, err := filepath.Rel(left[3], path); err == nil && filepath.IsLocal(below) {
			return filepath.Join(top, below), top, v2, true
		}
		return top, top, v2, true
	}
	return "", "", false, false
}

// limit2 reads cpu.max: "max 100000", or microseconds of processor time and of the period that they
// are for.
func limit2(dir string) (float64, bool) {
	text, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
	if err != nil {
		return 0, false
	}
	parts := strings.Fields(string(text))
	if len(parts) != 2 {
		return 0, false
	}
	return share(parts[0], parts[1])
}

// limit1 reads the same of version 1, where -1 is no limit.
func limit1(dir string) (float64, bool) {
	quota, err := os.ReadFile(filepath.Join(dir, "cpu.cfs_quota_us"))
	if err != nil {
		return 0, false
	}
	period, err := os.ReadFile(filepath.Join(dir, "cpu.cfs_period_us"))
	if err != nil {
		return 0, false
	}
	return share(strings.TrimSpace(string(quota)), strings.TrimSpace(string(period)))
}

func share(quota, period string) (float64, bool) {
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return 0, false
	}
	return q / p, true
}
