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
	const first, last = 4 * time.Second, 32 * time.Second
	for delay := first; delayedEnd(t, delay, delay == last); delay *= 2 { // the test itself may be late
	}
}

// delayedEnd ends a proxy with a delay. It tells whether it has asked too late to see what is
// served, which is an error the last time.
func delayedEnd(t *testing.T, delay time.Duration, last bool) (late bool) {
	r := runAlone(t, 10*patience, func(o *Options) { o.ShutdownDelay = delay })
	r.client.CloseIdleConnections()
	r.eventually("nobody is connected", func() bool { return r.metric("spillway_connections", "listener=main") == 0 })
	began := time.Now()
	r.stop()
	r.eventually("readiness is 503", func() bool { return r.get(r.admin+"/-/ready").status == http.StatusServiceUnavailable })
	time.Sleep(time.Until(began.Add(time.Second)))
	served, ready := r.get(r.url+"/api/v1/query?query=up"), r.get(r.url+"/-/ready")
	asked := time.Since(began)
	well := served.status == 200 && served.err == nil && strings.Contains(string(served.body), "heron-0") &&
		ready.status == http.StatusServiceUnavailable
	if late = !well && asked > delay; !well && (!late || last) {
		t.Errorf("a new connection, after %s: %s; ready on the main listener: %s", asked, served, ready)
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
	return late && !last
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
