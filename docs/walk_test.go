package docs_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
)

var walk = flag.Bool("walk", false, "runs the six commands of drop-rules.md")

var consoleBlock = regexp.MustCompile("(?s)```console\n(.*?)```")

// TestDropRulesWalk runs the six commands of drop-rules.md as they stand there, but for the ports:
// from an untouched cluster to less than half of its series, with nothing lost.
func TestDropRulesWalk(t *testing.T) {
	if !*walk {
		t.Skip("five minutes on two cores: run with -walk, as make test-full does")
	}
	text, err := os.ReadFile("drop-rules.md")
	if err != nil {
		t.Fatal(err)
	}
	m := consoleBlock.FindSubmatch(text)
	if m == nil {
		t.Fatal("drop-rules.md has no console block")
	}
	var commands [][]string
	for line := range strings.Lines(string(m[1])) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "$" || words[1] != "spillway" && words[1] != "spillway-lab" {
			t.Fatalf("this line of the walk is no command of ours: %s", line)
		}
		commands = append(commands, words[1:])
	}
	if len(commands) != 6 || commands[0][1] != "demo" {
		t.Fatalf("%d commands, the first of which is %q; want six, beginning with the demo", len(commands), commands[0])
	}
	bin := map[string]string{"spillway": realpromtest.Spillway(t), "spillway-lab": realpromtest.Laboratory(t)}
	dir := t.TempDir()
	for _, folder := range []string{"dashboards", "alerts", "relabel", "docs"} {
		root, err := filepath.Abs(filepath.Join("..", folder))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(root, filepath.Join(dir, folder)); err != nil {
			t.Fatal(err)
		}
	}
	address := demo(t, bin[commands[0][0]], dir, commands[0][1:])
	for _, args := range commands[1:] {
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "127.0.0.1:9090", address)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Minute, errors.New("it did not end"))
		cmd := exec.CommandContext(ctx, bin[args[0]], args[1:]...)
		cmd.Dir = dir
		began := time.Now()
		out, err := cmd.CombinedOutput()
		cancel()
		t.Logf("%s: %s\n%.3000s", strings.Join(args[:2], " "), time.Since(began).Round(time.Millisecond), out)
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	var plan struct{ Stored, Dropped struct{ Series int64 } }
	text, err = os.ReadFile(filepath.Join(dir, "plan.json"))
	if err == nil {
		err = json.Unmarshal(text, &plan)
	}
	if err != nil {
		t.Fatal(err)
	}
	if plan.Stored.Series == 0 || 2*plan.Dropped.Series <= plan.Stored.Series {
		t.Errorf("%d of %d series go, not more than half", plan.Dropped.Series, plan.Stored.Series)
	}
	for file, want := range map[string]string{"report.html": "<html", "prometheus.yml": "# spillway: begin"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s does not have %q: %v", file, want, err)
		}
	}
}

// demo runs the first command, on free ports, until the test ends, and returns where it serves once
// its rules are recorded.
func demo(t *testing.T, bin, dir string, args []string) string {
	t.Helper()
	var addresses [2]string
	for i := range addresses {
		port, err := realprom.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		addresses[i] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	cmd := exec.Command(bin, append(args, "--web.listen-address="+addresses[0], "--web.admin-listen-address="+addresses[1])...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		lines, open := bufio.NewScanner(out), true
		for lines.Scan() {
			if open && strings.Contains(lines.Text(), "recorded series and alerts are there") {
				open = false
				close(ready)
			}
		}
		_ = cmd.Wait() // by a signal
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		<-ended
	})
	select {
	case <-ready:
	case <-ended:
		t.Fatal("the demo ended by itself")
	case <-time.After(5 * time.Minute):
		t.Fatal("the demo did not get ready")
	}
	return addresses[0]
}
