package systemd

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/realkube/realkubetest"
)

// machine is one with systemd and little else. Its network is that of the test.
type machine struct {
	t    *testing.T
	pid  string // of its systemd
	home string // its /home/user
}

// boot starts it, and waits until all has started.
func boot(t *testing.T) *machine {
	t.Helper()
	script, err := filepath.Abs("testdata/boot.sh")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, home: t.TempDir()}
	if err := os.Chmod(m.home, 0o755); err != nil {
		t.Fatal(err)
	}
	join := `while [ -n "$1" ]; do echo $$ >"$1/cgroup.procs" || exit; shift; done; shift; exec unshare -m -p -f -u -i -C --kill-child sh "$@"`
	args := []string{"-c", join, "sh"}
	for _, group := range realkubetest.Cgroups(t) {
		if !strings.Contains(group, "/cpuset/") { // an empty one takes nobody
			args = append(args, group)
		}
	}
	cmd := exec.Command("sh", append(args, "", script, t.TempDir(), m.home)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := m.tries("systemctl", "poweroff", "--force", "--force"); err != nil {
			t.Log(err, out) // it may be gone before it says so
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	m.becomes("the machine has started", func() (string, bool) {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", cmd.Process.Pid))
		if m.pid = strings.TrimSpace(string(children)); err != nil || m.pid == "" {
			return fmt.Sprint(said.String(), err), false
		}
		out, err := m.tries("systemctl", "is-system-running")
		return fmt.Sprint(said.String(), out, err), err == nil
	})
	return m
}

// tries runs a program on the machine, in the user's home.
func (m *machine) tries(args ...string) (string, error) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	enter := []string{"-t", m.pid, "-a", "-r", "env", "-C", "/home/user", "-i", "HOME=/home/user", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	out, err := exec.CommandContext(ctx, "nsenter", append(enter, args...)...).CombinedOutput()
	return string(out), err
}

// types types a command as it stands in a page, which must not fail.
func (m *machine) types(command string) string {
	m.t.Helper()
	out, err := m.tries("sh", "-ec", command)
	if err != nil {
		log, _ := m.tries("journalctl", "-n", "50", "--no-pager")
		m.t.Fatalf("%s: %v\n%s\n%s", command, err, out, log)
	}
	m.t.Logf("$ %s\n%s", command, out)
	return out
}

// saves writes a file of the user's.
func (m *machine) saves(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.home, name), []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// becomes waits until something is so.
func (m *machine) becomes(what string, so func() (string, bool)) {
	m.t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		said, ok := so()
		if ok {
			return
		}
		if time.Now().After(end) {
			m.t.Fatalf("waited in vain until %s: %s", what, said)
		}
	}
}

// ready waits until Spillway answers a query with what two servers hold.
func (m *machine) ready() {
	m.t.Helper()
	m.becomes("Spillway answers", func() (string, bool) {
		out, err := m.tries("curl", "-sS", "http://127.0.0.1:9090/api/v1/query?query=count(up)")
		return fmt.Sprint(out, err), err == nil && strings.Contains(out, `,"2"]`)
	})
}

// refused is whether a query is refused with a status.
func (m *machine) refused(query string) (string, bool) {
	m.t.Helper()
	out, err := m.tries("curl", "-sS", "-w", " %{http_code}", "http://127.0.0.1:9090"+query)
	return fmt.Sprint(out, err), err == nil && strings.HasSuffix(out, fmt.Sprint(" ", http.StatusUnprocessableEntity))
}
