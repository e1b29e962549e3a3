package server

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestBodiesAreHeld: what clients have sent of their bodies is held in memory.budget while they
// stall, and who finds no room in it is told so, at once. Those of another address do.
func TestBodiesAreHeld(t *testing.T) {
	t.Parallel()
	r := newRig(t, []rigGroup{{"heron", false, []int{1}}}, limits(ample)+"memory: {budget: 16MiB}\n", func(o *Options) {
		o.BodyTimeout = 10 * patience
	})
	const size, all, most = 1 << 20, 15, 12 // that have room in three quarters of 16 MiB
	type told struct {
		code int
		body string
	}
	answers := make(chan told, all)
	var wires []*wire
	for i := range all {
		w := r.wire()
		wires = append(wires, w)
		w.say(fmt.Sprintf("POST /api/v1/read HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size))
		go func() {
			w.say(strings.Repeat("x", size-1))
			code, _, body := w.hear("POST")
			answers <- told{code, body}
		}()
		if i < most {
			r.eventually("what was sent is held", func() bool { return r.s.poolNow().InUse() >= int64(i+1)*size })
			continue
		}
		if got := <-answers; got.code != 429 || !strings.Contains(got.body, `"bound":"memory.budget"`) ||
			!strings.Contains(got.body, "from this address") {
			t.Errorf("who finds no room: %d %.300s", got.code, got.body)
		}
	}
	long := `up{job!="` + strings.Repeat("x", 200<<10) + `"}` // which is held likewise, until it is refused for its length
	if got := r.askFrom("127.0.0.2", r.request(t.Context(), asking{path: "/api/v1/query", post: true}, "query", long)); got.status != 422 {
		t.Errorf("another address: %s", got)
	}
	if n := r.metric("spillway_requests_total", "endpoint=read", "outcome=overloaded"); n < all-most {
		t.Errorf("%v refusals are counted", n)
	}
	for _, w := range wires {
		_ = w.Close()
	}
	for range most {
		<-answers
	}
	r.idle()
}

// askFrom is ask by a client of another address of this machine.
func (r *rig) askFrom(address string, req *http.Request) *reply {
	r.t.Helper()
	if l, err := net.Listen("tcp", address+":0"); err != nil {
		r.t.Skipf("this machine has no second address on its loopback interface: %v", err)
	} else {
		_ = l.Close()
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	tr := &http.Transport{DialContext: d.DialContext, DisableCompression: true}
	defer tr.CloseIdleConnections()
	other := *r
	other.client = &http.Client{Transport: tr}
	return other.ask(req)
}
