package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Forty clients ask one thing after another over connections that they keep, as fast as they can,
// while the proxy is told to stop: no request is cut, and each client reads in an answer that it
// was the last one there.
func TestDrainCutsNoKeepAliveClient(t *testing.T) {
	t.Parallel()
	r := runAlone(t, 10*patience, func(o *Options) { o.lame = patience }) // a client may be kept from the processor for a while
	var asked atomic.Int64
	var clients sync.WaitGroup
	stopped := make(chan struct{})
	for i := range 40 {
		clients.Go(func() {
			c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(2 * patience))
			in := bufio.NewReader(c)
			for n := 0; ; n++ {
				path := "/api/v1/query?query=1%2B1&time=4"
				if (i+n)%2 == 0 {
					path = "/api/v1/query?query=up"
				}
				if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: proxy\r\n\r\n", path); err != nil {
					t.Errorf("client %d, request %d: %v", i, n, err)
					return
				}
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Errorf("client %d, request %d: %v", i, n, err)
					return
				}
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != 200 {
					t.Errorf("client %d, request %d: status %d, %v", i, n, resp.StatusCode, err)
					return
				}
				asked.Add(1)
				if resp.Close {
					select {
					case <-stopped:
					default:
						t.Errorf("client %d was sent away before the end", i)
					}
					return
				}
			}
		})
	}
	r.eventually("the load is under way", func() bool { return asked.Load() > 400 })
	close(stopped)
	r.stop()
	clients.Wait()
	if err := r.end(); err != nil {
		t.Errorf("Run: %v", err)
	}
}
