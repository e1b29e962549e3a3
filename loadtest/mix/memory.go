package mix

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// memory reads a process's resident memory now and its high-water mark since the last resetPeak, in bytes.
func memory(pid int) (now, peak int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	for line := range bytes.Lines(text) {
		for key, to := range map[string]*int64{"VmRSS:": &now, "VmHWM:": &peak} {
			if rest, ok := bytes.CutPrefix(line, []byte(key)); ok {
				if f := bytes.Fields(rest); len(f) == 2 {
					kb, _ := strconv.ParseInt(string(f[0]), 10, 64) // 0 is refused below
					*to = kb << 10
				}
			}
		}
	}
	if now <= 0 || peak <= 0 {
		return 0, 0, fmt.Errorf("memory of process %d: it has ended", pid)
	}
	return now, peak, nil
}

// resetPeak sets the high-water mark to the memory of now.
func resetPeak(pid int) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("reset the peak of memory of process %d: %w", pid, err)
	}
	return nil
}
