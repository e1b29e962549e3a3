package demo

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestStoppedWhileStarting ends demos at moments at which shards are still being written and
// started, and while history is filled in behind.
func TestStoppedWhileStarting(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	for _, after := range []time.Duration{0, 50 * time.Millisecond, 400 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		err := Run(ctx, t.Context(), Options{
			Groups: 2, Shards: 2, Replicas: 2, Nodes: 4, History: 2 * time.Hour, ListenAddress: "127.0.0.1:0",
			AdminListenAddress: "127.0.0.1:0",
			Registry:           prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler), Say: func(string, ...any) {},
		})
		cancel()
		if err != nil {
			t.Errorf("stopped after %s: %v", after, err)
		}
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Errorf("stopped after %s, left behind: %v %v", after, left, err)
		}
	}
}

// TestTakenPort tells about a taken port before anything is built.
func TestTakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = Run(t.Context(), t.Context(), Options{
		Groups: 1, Shards: 1, Replicas: 1, Nodes: 1, History: time.Hour, ListenAddress: "127.0.0.1:0",
		AdminListenAddress: l.Addr().String(),
		Say:                func(format string, _ ...any) { t.Errorf("it began: %s", format) },
	})
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("error %v, want one that names %s", err, l.Addr())
	}
}

// TestValidate names every wrong option at once.
func TestValidate(t *testing.T) {
	err := Options{Groups: 9, Shards: 17, Replicas: 5, Nodes: 0, History: time.Second}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, flag := range []string{"--groups is 9", "--shards is 17", "--replicas is 5", "--nodes is 0", "--history is 1s"} {
		if !strings.Contains(err.Error(), flag) {
			t.Errorf("%q is not in %q", flag, err)
		}
	}
	if err := (Options{Groups: 8, Shards: 16, Replicas: 4, Nodes: 2000, History: time.Hour}).Validate(); err != nil {
		t.Error(err)
	}
}
