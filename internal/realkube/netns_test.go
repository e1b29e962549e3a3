//go:build linux

package realkube

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/realprom"
)

// namespace is one for the test, which is skipped where it cannot be had.
func namespace(t *testing.T, name string) *NetNS {
	t.Helper()
	if !*genuine {
		t.Skip("a network namespace and real exporters: make test-full runs it, by -genuine")
	}
	if os.Getuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("there is no ip; apt-get install iproute2")
	}
	n, err := NewNetNS(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// TestForward: a port of the namespace is reached from outside, and only through the forwarding.
func TestForward(t *testing.T) {
	n := namespace(t, fmt.Sprintf("spillway-%d", os.Getpid()))
	path, err := realprom.Find("iptables_exporter")
	if err != nil {
		t.Fatalf("%v (./tools/build.sh iptables makes it)", err)
	}
	if _, err := exec.LookPath("iptables-save"); err != nil {
		t.Skip("there is no iptables; apt-get install iptables")
	}
	if err := n.Run(t.Context(), "iptables", "-A", "OUTPUT", "-d", "10.0.0.0/8", "-m", "comment", "--comment", "traffic=internal-out", "-j",
		"ACCEPT"); err != nil {
		t.Fatal(err)
	}
	p, err := n.Start(nil, path, "--web.listen-address=127.0.0.1:9455")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop() }() // it has no end of its own but the signal's
	addr, stop, err := n.Forward(9455)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.WaitReady(ctx, "http://"+addr+"/metrics"); err != nil {
		t.Fatal(err)
	}
	page := read(t, "http://"+addr+"/metrics")
	if !strings.Contains(page, `iptables_rule_bytes_total{chain="OUTPUT"`) || !strings.Contains(page, "traffic=internal-out") {
		t.Errorf("the rule is not on the page:\n%.2000s", page)
	}
	if c, err := net.Dial("tcp", "127.0.0.1:9455"); err == nil {
		_ = c.Close()
		t.Error("the port of the namespace is open outside")
	}
}
