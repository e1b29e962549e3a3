package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// places looks at where Spillway would write. What can be written on no machine like this one is a
// problem; the folder of the usage log, which is not made, is a note where it is not here: a file
// may be checked on another machine than the one it is for. Nothing is written, so whether the user
// that will run Spillway may is not known.
func (c *Config) places() (problems, notes Problems) {
	const usageLog = "usage_log.path"
	if file := c.UsageLog.Path; file != "" {
		folder := filepath.Dir(file)
		if at := notFolder(folder); at != "" {
			problems = append(problems, Problem{Path: usageLog, Message: "cannot be written: " + at + " is no folder"})
		} else if is, err := os.Stat(file); err == nil && is.IsDir() {
			problems = append(problems, Problem{Path: usageLog, Message: "cannot be written: " + file + " is a folder; name a file in it"})
		} else if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
			const missing = " does not exist here, and Spillway does not start without that folder"
			notes = append(notes, Problem{Path: usageLog, Message: folder + missing})
		}
	}
	if at := notFolder(c.StateDir); at != "" {
		problems = append(problems, Problem{Path: "state_dir", Message: "cannot be made: " + at + " is no folder"})
	}
	return problems, notes
}

// notFolder is the innermost part of the path that is there, where it is something else than a
// folder; else, and of no path, it is empty.
func notFolder(path string) string {
	for path != "" {
		if is, err := os.Stat(path); err == nil {
			if is.IsDir() {
				return ""
			}
			return path
		}
		up := filepath.Dir(path)
		if up == path {
			break
		}
		path = up
	}
	return ""
}
