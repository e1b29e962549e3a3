package shard

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// BenchmarkDo is what this package adds to a call: the same small answer through Shard.Do and
// through a bare http.Transport.
func BenchmarkDo(b *testing.B) {
	body := []byte(`{"status":"success","data":[{"__name__":"up","instance":"node-0:9100","job":"node"}]}`)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	}))
	defer srv.Close()
	buf := make([]byte, 32<<10)
	b.Run("shard", func(b *testing.B) {
		s := build(b, Options{}, false, group(srv.URL)).Groups[0].Shards[0]
		b.ReportAllocs()
		for b.Loop() {
			ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
			resp, err := s.Do(ctx, seriesRequest, CallOptions{Plain: true})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.CopyBuffer(io.Discard, onlyReader{resp.Body}, buf); err != nil {
				b.Fatal(err)
			}
			resp.Body.Close()
			cancel()
		}
	})
	b.Run("bare", func(b *testing.B) {
		t := &http.Transport{DisableCompression: true}
		defer t.CloseIdleConnections()
		b.ReportAllocs()
		for b.Loop() {
			ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/api/v1/series?limit=10&match%5B%5D=up", nil)
			if err != nil {
				b.Fatal(err)
			}
			resp, err := t.RoundTrip(req)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.CopyBuffer(io.Discard, onlyReader{resp.Body}, buf); err != nil {
				b.Fatal(err)
			}
			resp.Body.Close()
			cancel()
		}
	})
}

// BenchmarkEnter is what the places of a call take where nobody waits: that of its shard and that
// of the process, taken and given back.
func BenchmarkEnter(b *testing.B) {
	s := build(b, Options{}, false, group("http://10.0.0.1:9090")).Groups[0].Shards[0]
	ctx := from(b.Context(), "192.0.2.1")
	b.ReportAllocs()
	for b.Loop() {
		leave, err := s.Enter(ctx, 0)
		if err != nil {
			b.Fatal(err)
		}
		leave()
	}
}

type onlyReader struct{ io.Reader }
