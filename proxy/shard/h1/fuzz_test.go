package h1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// FuzzAnswer: whatever a server says, a call ends with an answer or an error, and net/http reads
// the same.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(ok))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\n" + ok))
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok"))
	f.Add([]byte("HTTP/1.0 200 OK\r\n\r\nto the end"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		dial := func(context.Context, string, string) (net.Conn, error) {
			return &recorded{in: bytes.NewReader(answer), told: make(chan struct{})}, nil
		}
		read := func(rt http.RoundTripper) (string, error) {
			resp, err := rt.RoundTrip(request(t, t.Context(), http.MethodGet, ""))
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
			return fmt.Sprint(resp.StatusCode, len(resp.Header), string(b)), err
		}
		std := &http.Transport{DialContext: dial, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 8 << 10}
		ours, oursErr := read(&Transport{Addr: "server:80", Dial: dial, MaxHeaderBytes: 8 << 10, IdleTimeout: time.Minute})
		theirs, theirsErr := read(std)
		if oursErr == nil && (theirsErr != nil || ours != theirs) && !strings.HasPrefix(ours, "101 ") {
			t.Errorf("%q was read as %q, by net/http as %q, %v", answer, ours, theirs, theirsErr)
		}
		if theirsErr == nil && oursErr != nil && !errors.Is(oursErr, ErrHeaderTooLarge) {
			t.Errorf("%q: %v, by net/http %q", answer, oursErr, theirs)
		}
	})
}

// recorded is a connection that says what was recorded, whatever it is told.
type recorded struct {
	net.Conn
	in   *bytes.Reader
	told chan struct{}
	once sync.Once
}

func (r *recorded) Read(p []byte) (int, error) {
	<-r.told // net/http reads all the time, and would take what came before it asked for something unasked
	return r.in.Read(p)
}

func (r *recorded) Write(p []byte) (int, error) {
	r.once.Do(func() { close(r.told) })
	return len(p), nil
}

func (r *recorded) Close() error {
	r.once.Do(func() { close(r.told) })
	return nil
}

func (r *recorded) SetReadDeadline(time.Time) error  { return nil }
func (r *recorded) LocalAddr() net.Addr              { return nil }
func (r *recorded) RemoteAddr() net.Addr             { return nil }
func (r *recorded) SetDeadline(time.Time) error      { return nil }
func (r *recorded) SetWriteDeadline(time.Time) error { return nil }
