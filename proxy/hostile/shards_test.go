package hostile

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// shardsEnv makes the test's program two shards and nothing else.
const shardsEnv = "SPILLWAY_HOSTILE_SHARDS"

// serveShards is two shards that hold wide between them, and whose engines differ in their
// lookback. It prints their addresses, one a line, and ends with its input.
func serveShards() error {
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, 5); err != nil { // others' shards are other machines
		return err
	}
	for i := range 2 {
		held := []map[string]string{{"__name__": "up", "instance": fmt.Sprint(i)}}
		for j := i; j < wideSeries; j += 2 {
			held = append(held, map[string]string{
				"__name__": "wide", "pod": fmt.Sprintf("pod-%d", j),
				"node": fmt.Sprintf("node-%d", j%100), "x": "research-training-7f8d9c",
			})
		}
		s, err := fakeshard.New(fakeshard.Config{Series: held, Flags: map[string]string{"query.lookback-delta": fmt.Sprintf("%dm", 5+i)}})
		if err != nil {
			return err
		}
		defer s.Close()
		fmt.Println(s.URL())
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// startShards runs serveShards as a process of its own, on one processor: what shards take to write
// twenty thousand series sixty times over must hold up neither the one who looks at the clock nor
// the proxy. It returns the shards' addresses.
func startShards(t *testing.T) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), shardsEnv+"=1", "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // it ends with its input
		if err := cmd.Wait(); err != nil {
			t.Errorf("the shards: %v", err)
		}
	})
	var urls []string
	for lines := bufio.NewReader(out); len(urls) < 2; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the shards do not start: %v", err)
		}
		urls = append(urls, strings.TrimSpace(line))
	}
	return urls
}
