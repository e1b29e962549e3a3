package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

func TestListener(t *testing.T) {
	s := httptest.NewServer(nil)
	defer s.Close()
	if pid, err := listener(s.URL); err != nil || pid != os.Getpid() {
		t.Errorf("%s: process %d, %v; this is %d", s.URL, pid, err, os.Getpid())
	}
	for _, url := range []string{"http://example.org:80", "http://127.0.0.1", "http://127.0.0.1:1"} {
		if pid, err := listener(url); err == nil {
			t.Errorf("%s: process %d", url, pid)
		}
	}
	table := []byte("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:1F90 0100007F:A0D2 01 00000000:00000000 00:00000000 00000000     0        0 111 1\n" +
		"   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 222 1\n")
	if got := listening(table, 8080); got != "222" {
		t.Errorf("inode %q", got)
	}
}

// TestPeers: what is wrong with a peer is told with its name.
func TestPeers(t *testing.T) {
	if _, err := ParsePeers([]string{"promxy"}); err == nil || !strings.Contains(err.Error(), "NAME=URL") {
		t.Errorf("a peer without a URL: %v", err)
	}
	all, err := ParsePeers([]string{"promxy=http://127.0.0.1:8082/", "a=ftp://x", "promxy=https://x", "=http://x", "direct=http://x?a=b"})
	if err != nil || all[0] != (Peer{Name: "promxy", URL: "http://127.0.0.1:8082"}) {
		t.Fatalf("%v: %v", all, err)
	}
	var p Problems
	p.CheckPeers(all, "direct")
	p.CheckPorts(1000, 2)
	p.CheckPorts(65534, 3)
	p.CheckPorts(65534, 2)
	p.CheckPorts(0, 3)
	for _, want := range []string{
		`peer a: "ftp://x"`, `peer "promxy": its name is`, `peer "": its name is`, `peer "direct": its name is`, `"http://x?a=b"`,
		"port: 1000 to 1001", "port: 65534 to 65536",
	} {
		if !strings.Contains(p.Err().Error(), want) {
			t.Errorf("%v\nlacks %q", p.Err(), want)
		}
	}
	if len(p) != 7 {
		t.Errorf("%d problems: %v", len(p), p.Err())
	}
}

// TestPeerWait: a peer is asked until it answers, and an end of that says what it said last.
func TestPeerWait(t *testing.T) {
	s := httptest.NewServer(nil)
	defer s.Close()
	asked, said := 0, ""
	say := func(format string, args ...any) { said += fmt.Sprintf(format, args...) + "\n" }
	notYet := errors.New("not yet")
	pid, err := Peer{Name: "promxy", URL: s.URL}.Wait(t.Context(), say, func(context.Context) error {
		if asked++; asked < 2 {
			return notYet
		}
		return nil
	})
	if err != nil || pid != os.Getpid() || asked != 2 || !strings.Contains(said, "waiting for promxy at "+s.URL) {
		t.Errorf("process %d, asked %d times, said %q: %v", pid, asked, said, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	left := errors.New("ctrl-c")
	_, err = Peer{Name: "promxy", URL: s.URL}.Wait(ctx, say, func(context.Context) error { cancel(left); return notYet })
	if !errors.Is(err, left) || !errors.Is(err, notYet) || !strings.Contains(err.Error(), "promxy") {
		t.Errorf("ended: %v", err)
	}
	pid, err = Peer{Name: "far", URL: "http://example.org:80"}.Wait(t.Context(), say, func(context.Context) error { return nil })
	if err != nil || pid != 0 || !strings.Contains(said, "far: processor time and memory are not measured") {
		t.Errorf("elsewhere: process %d, said %q: %v", pid, said, err)
	}
}
