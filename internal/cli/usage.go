package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spillwayproject/spillway/proxy/usage"
)

// usageCommand prints a usage log: an image without a shell has no other program for it.
func usageCommand(e *Env, parent Clause) func() error {
	c := parent.Command("usage", "Prints a usage log, of all its files the oldest first, as whole lines, while a proxy may go on writing it.")
	file := c.Arg("file", "The log, as usage_log.path of the configuration has it.").Required().String()
	return func() error {
		parts, err := openUsage(*file)
		if err != nil {
			return err
		}
		for _, p := range parts {
			if err == nil {
				err = e.Ctx.Err()
			}
			if err == nil {
				err = wholeLines(e.Stdout, p)
			}
			err = errors.Join(err, p.Close())
		}
		return err
	}
}

// openUsage opens all files of a log at once, the oldest first: what is open stays what it is when
// the log is rotated. Where that happens meanwhile, it begins anew.
func openUsage(path string) ([]io.ReadCloser, error) {
	for range 5 {
		before, _ := os.Stat(path) // moved away by others is no reason to keep the older ones back
		names, err := usage.Parts(path)
		if err != nil {
			return nil, err
		}
		var out []io.ReadCloser
		for _, name := range names {
			p, openErr := usage.OpenPart(name)
			if openErr != nil {
				err = errors.Join(err, openErr)
				continue
			}
			out = append(out, p)
		}
		after, _ := os.Stat(path)
		if err == nil && (before == nil && after == nil || before != nil && after != nil && os.SameFile(before, after)) {
			return out, nil
		}
		for _, p := range out {
			err = errors.Join(err, p.Close())
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s is rotated faster than its files can be opened; make usage_log.max_size larger", path)
}

// wholeLines copies the lines that are there now: one that is being written is left out.
func wholeLines(to io.Writer, from io.Reader) error {
	if f, ok := from.(*os.File); ok {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		from = io.LimitReader(f, info.Size())
	}
	r := bufio.NewReaderSize(from, 1<<18)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := to.Write(line); err != nil {
			return err
		}
	}
}
