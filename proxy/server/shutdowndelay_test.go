package server

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// With a delay new connections are served after the end was asked for, though there was none then,
// and refused when it is over.
func TestShutdownDelay(t *testing.T) {
	t.Parallel()
	const delay = 4 * time.Second
	r := runAlone(t, 10*patience, func(o *Options) { o.ShutdownDelay = delay })
	r.client.CloseIdleConnections()
	r.eventually("nobody is connected", func() bool { return r.metric("spillway_connections", "listener=main") == 0 })
	began := time.Now()
	r.stop()
	r.eventually("readiness is 503", func() bool { return r.get(r.admin+"/-/ready").status == http.StatusServiceUnavailable })
	time.Sleep(time.Until(began.Add(time.Second)))
	if a := r.get(r.url + "/api/v1/query?query=up"); a.status != 200 || a.err != nil || !strings.Contains(string(a.body), "heron-0") {
		t.Errorf("a new connection after %s: %s", time.Since(began), a)
	}
	if a := r.get(r.url + "/-/ready"); a.status != http.StatusServiceUnavailable {
		t.Errorf("ready on the main listener: %s", a)
	}
	if err := r.end(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if d := time.Since(began); d < delay {
		t.Errorf("ended after %s", d)
	}
	if a := r.get(r.url + "/-/healthy"); a.err == nil {
		t.Errorf("served after the end: %s", a)
	}
}

// A second signal does not wait for the delay.
func TestShutdownDelayCut(t *testing.T) {
	t.Parallel()
	r := runAlone(t, 10*patience, func(o *Options) { o.ShutdownDelay = time.Hour })
	r.stop()
	r.eventually("readiness is 503", func() bool { return r.get(r.admin+"/-/ready").status == http.StatusServiceUnavailable })
	r.force()
	_ = r.end() // it may say that it was cut
}
