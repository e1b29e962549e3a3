package realprom

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// script writes a program of sh.
func script(t *testing.T, text string) string {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no sh")
	}
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestStartOnPorts: a program that finds its port taken gets others, a few times; one that fails
// otherwise does not.
func TestStartOnPorts(t *testing.T) {
	for _, tc := range []struct {
		name, text, says string
		tries            int
	}{
		{"taken each time", "echo 'listen tcp: bind: address already in use' >&2; exit 1", "address already in use", portTries},
		{"fails otherwise", "echo 'no such flag' >&2; exit 1", "no such flag", 1},
		{"never ready", "exec sleep 60", "was not ready after 300ms", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seen := map[string]bool{}
			tries := 0
			_, _, err := StartOnPorts(t.Context(), PortOptions{
				Name: "program", Path: script(t, tc.text), Ports: 2,
				Timeout: map[bool]time.Duration{true: 300 * time.Millisecond}[tc.tries == 1 && tc.name == "never ready"],
				Args: func(addrs []string) []string {
					tries++
					for _, a := range addrs {
						if host, _, err := net.SplitHostPort(a); err != nil || host != "127.0.0.1" {
							t.Errorf("address %q", a)
						}
						seen[a] = true
					}
					return addrs
				},
			})
			if err == nil || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), "start program") {
				t.Errorf("got %v", err)
			}
			if tries != tc.tries || len(seen) < 2 {
				t.Errorf("%d tries on %d addresses", tries, len(seen))
			}
		})
	}
}
