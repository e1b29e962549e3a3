package cli

import (
	"bufio"
	"errors"
	"io"
	"os"

	"github.com/spillwayproject/spillway/proxy/usage"
)

// usageCommand prints a usage log: an image without a shell has no other program for it.
func usageCommand(e *Env, parent Clause) func() error {
	c := parent.Command("usage", "Prints a usage log, of all its files the oldest first, as whole lines, while a proxy may go on writing it.")
	file := c.Arg("file", "The log, as usage_log.path of the configuration has it.").Required().String()
	return func() error {
		parts, err := usage.OpenParts(*file)
		if err != nil {
			return err
		}
		for _, p := range parts {
			if err == nil {
				err = e.Ctx.Err()
			}
			if err == nil {
				err = wholeLines(e.Stdout, p.ReadCloser)
			}
			err = errors.Join(err, p.Close())
		}
		return err
	}
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
