package realprom

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory is what any process of this machine has resident now (VmRSS), and the most that it had
// since its start or the last ResetPeak (VmHWM), both in bytes. Process has both of a program that
// was started here, after its end too.
func Memory(pid int) (now, peak int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err == nil {
		now, err = parseStatus(text, "VmRSS:")
	}
	if err == nil {
		peak, err = parseStatus(text, "VmHWM:")
	}
	if err != nil {
		return 0, 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	return now, peak, nil
}

// ResetPeak sets the peak of Memory to what the process has resident now. It is an error where the
// kernel does not let this user, or the process has ended.
func ResetPeak(pid int) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("reset the peak of memory of process %d: %w", pid, err)
	}
	return nil
}

func parseStatus(text []byte, key string) (int64, error) {
	for line := range bytes.Lines(text) {
		rest, ok := bytes.CutPrefix(line, []byte(key))
		if !ok {
			continue
		}
		f := bytes.Fields(rest)
		if len(f) != 2 || string(f[1]) != "kB" {
			break
		}
		kb, err := strconv.ParseInt(string(f[0]), 10, 64)
		if err != nil || kb < 0 || kb > 1<<50 {
			break
		}
		return kb << 10, nil
	}
	return 0, fmt.Errorf("no %s in kB in the process status: the process has ended or is a zombie", strings.TrimSuffix(key, ":"))
}
