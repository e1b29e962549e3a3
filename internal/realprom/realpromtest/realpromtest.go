// Package realpromtest runs the real programs of package realprom for the length of a test. A
// program that is not built fails the test with the advice to run `make tools`: a test that
// compares with the real thing must not pass by silence. It holds the program that Spillway builds
// and nothing else; package realprom says what the programs cost.
package realpromtest

import (
	"testing"

	"github.com/spillwayproject/spillway/internal/realprom"
)

// Start starts Prometheus; it is stopped when the test ends. The end of its log is printed if the
// test failed.
func Start(t testing.TB, opts realprom.Options) *realprom.Server {
	t.Helper()
	s, err := realprom.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := s.Stop()
		if t.Failed() {
			t.Logf("log of prometheus at %s:\n%s", s.URL(), s.Log())
		}
		if err != nil && !s.OutOfMemory() {
			t.Errorf("stop prometheus: %v", err)
		}
	})
	return s
}

// Thanos starts thanos, waits until readyURL answers 200, and stops it when the test ends.
func Thanos(t testing.TB, readyURL string, args ...string) *realprom.Process {
	t.Helper()
	p, err := realprom.Thanos(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := p.Stop()
		if t.Failed() {
			t.Logf("log of thanos:\n%s", p.Log())
		}
		if err != nil {
			t.Errorf("stop thanos: %v", err)
		}
	})
	if err := p.WaitReady(t.Context(), readyURL); err != nil {
		t.Fatal(err)
	}
	return p
}

// Sidecar starts a Thanos sidecar of a Prometheus that has external labels; it is stopped when the
// test ends.
func Sidecar(t testing.TB, prometheusURL string, args ...string) *realprom.ThanosServer {
	t.Helper()
	return thanos(t, "sidecar", func() (*realprom.ThanosServer, error) {
		return realprom.StartSidecar(t.Context(), prometheusURL, args...)
	})
}

// ThanosQuery starts a Thanos Query over the StoreAPIs at stores; it is stopped when the test ends.
// That it is ready does not say that it has found them.
func ThanosQuery(t testing.TB, stores []string, args ...string) *realprom.ThanosServer {
	t.Helper()
	return thanos(t, "query", func() (*realprom.ThanosServer, error) { return realprom.StartThanosQuery(t.Context(), stores, args...) })
}

func thanos(t testing.TB, what string, start func() (*realprom.ThanosServer, error)) *realprom.ThanosServer {
	t.Helper()
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := s.Stop()
		if t.Failed() {
			t.Logf("log of thanos %s at %s:\n%s", what, s.URL(), s.Log())
		}
		if err != nil {
			t.Errorf("stop thanos %s: %v", what, err)
		}
	})
	return s
}

// Promtool runs promtool and returns its standard output; an error fails the test.
func Promtool(t testing.TB, args ...string) string {
	t.Helper()
	stdout, _, err := realprom.Promtool(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return stdout
}
