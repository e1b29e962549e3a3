package realprom

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// outputBytes is the most that a command's standard output or standard error may be.
const outputBytes = 64 << 20

// Promtool runs promtool to its end and returns what it wrote. The error, if any, quotes the end of
// standard error; both texts are returned then too. When ctx ends, promtool gets SIGTERM and, 5 s
// later, SIGKILL.
func Promtool(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	return command(ctx, "promtool", args)
}

// Thanos starts thanos with args (`query`, `--http-address=127.0.0.1:10902`, …), unless ctx has
// ended; ctx does not end it later. The caller waits for it with WaitReady and ends it with Stop.
// FreePort finds ports for it.
func Thanos(ctx context.Context, args ...string) (*Process, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("start thanos: %w", context.Cause(ctx))
	}
	bin, err := Find("thanos")
	if err != nil {
		return nil, err
	}
	return StartProcess(ProcessOptions{Path: bin, Args: args})
}

func command(ctx context.Context, name string, args []string) (string, string, error) {
	bin, err := Find(name)
	if err != nil {
		return "", "", err
	}
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.SysProcAttr = dieWithParent()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr capped
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// See StartProcess: the thread must outlive the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return stdout.String(), stderr.String(),
			fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, lastBytes(stderr.String(), 1000))
	}
	return stdout.String(), stderr.String(), nil
}

func lastBytes(s string, n int) string {
	return strings.TrimSpace(strings.ToValidUTF8(s[max(0, len(s)-n):], ""))
}

// capped is a buffer that fails when it would pass outputBytes, which ends the command with a
// broken pipe.
type capped struct{ bytes.Buffer }

func (c *capped) Write(b []byte) (int, error) {
	if c.Len()+len(b) > outputBytes {
		return 0, fmt.Errorf("more than %d bytes of output", outputBytes)
	}
	return c.Buffer.Write(b)
}
