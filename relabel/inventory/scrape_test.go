package inventory

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

func serve(t testing.TB, f http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

// TestScrapeFetchesOnce: a page that changes is still read the same each time.
func TestScrapeFetchesOnce(t *testing.T) {
	var asked atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		if user, password, _ := r.BasicAuth(); user != "u" || password != "p" {
			t.Errorf("user %s, password %s", user, password)
		}
		accept := r.Header.Get("Accept")
		if !strings.HasPrefix(accept, "application/vnd.google.protobuf;") || !strings.Contains(accept, "escaping=allow-utf-8") ||
			!strings.Contains(accept, "text/plain;version=0.0.4;q=") {
			t.Errorf("Accept: %s", accept)
		}
		w.Header().Set("Content-Type", "text/plain")
		body := io.Writer(w)
		if r.Header.Get("Accept-Encoding") == "gzip" {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close()
			body = z
		}
		fmt.Fprintf(body, "asked{n=\"%d\"} %d\n", n, n)
	})
	url = strings.Replace(url, "http://", "http://u:p@", 1)
	src, err := Scrape(client, []Target{{
		URL: url + "/metrics", Job: "j", Instance: "i",
		Labels: map[string]string{"zone": "a", "empty": ""},
	}, {URL: url + "/metrics", Job: "j", Instance: "h"}})
	if err != nil {
		t.Fatal(err)
	}
	first := read(t, src)
	if len(first) != 2 || asked.Load() != 2 || !strings.Contains(first[1], `instance="i", job="j", n="`) ||
		!strings.Contains(first[1], `zone="a"`) || strings.Contains(first[1], "empty") {
		t.Errorf("%q after %d requests", first, asked.Load())
	}
	sameLines(t, read(t, src), first)
	n := 0
	before := time.Now().Add(-time.Minute).UnixMilli()
	err = src.(Sampled).Samples(t.Context(), time.Hour, func(ls labels.Labels) bool { return ls.Get("instance") == "h" },
		func(s *Series, floats []promql.FPoint, _ []promql.HPoint) error {
			n++
			if len(floats) != 1 || fmt.Sprint(floats[0].F) != s.Labels.Get("n") || floats[0].T < before {
				t.Errorf("%s: %v", s.Labels, floats)
			}
			return nil
		})
	if err != nil || n != 1 || asked.Load() != 2 {
		t.Errorf("%d series, %d requests, %v", n, asked.Load(), err)
	}
	if name := src.String(); strings.Contains(name, "u:p") || !strings.Contains(name, "j=http://") {
		t.Errorf("it is called %s", name)
	}
}

func TestScrapeRefuses(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/bad":
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprint(w, "a 1\nb\n")
		case "/short":
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "a 1\n")
		case "/slow":
			<-r.Context().Done()
		default:
			http.Error(w, "no", http.StatusForbidden)
		}
	})
	for path, says := range map[string]string{"/bad": "/bad:2: ", "/short": "cut short", "/none": "403 Forbidden"} {
		src, err := Scrape(client, []Target{{URL: strings.Replace(url, "://", "://me:secret@", 1) + path, Job: "j"}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = Collect(t.Context(), src, nil)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v", path, err)
		}
	}
	var all []Target
	for i := range 15 {
		all = append(all, Target{URL: fmt.Sprintf("%s/none/%d", url, i), Job: "j", Instance: fmt.Sprintf("i%02d", i)})
	}
	src, err := Scrape(client, all)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = Collect(t.Context(), src, nil); err == nil || strings.Count(err.Error(), "403 Forbidden") != 10 ||
		!strings.Contains(err.Error(), "and 5 more") {
		t.Errorf("got %v", err)
	}
	gone := errors.New("gone away")
	ctx, cancel := context.WithCancelCause(t.Context())
	src, err = Scrape(client, []Target{{URL: url + "/slow", Job: "j"}})
	if err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(50*time.Millisecond, func() { cancel(gone) })
	defer timer.Stop()
	if _, err := Collect(ctx, src, nil); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	for _, bad := range [][]Target{
		nil,
		{{URL: "ftp://x/", Job: "j"}},
		{{URL: "http://u:secret@x:y:z/", Job: "j"}},
		{{URL: url}},
		{{URL: url, Job: "j"}, {URL: url + "/other", Job: "j"}},
		{{URL: url, Job: "j", Labels: map[string]string{"\xff": "x"}}},
	} {
		if _, err := Scrape(nil, bad); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: got %v", bad, err)
		}
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	pagesDir, file := dir+"/pages", write(t, dir, "pages/j/i.prom", "a 1\n")
	write(t, dir, "data/wal/0", "")
	if err := os.Mkdir(dir+"/empty", 0o777); err != nil {
		t.Fatal(err)
	}
	for arg, want := range map[string]string{
		pagesDir: "*inventory.pages", "j=http://127.0.0.1:1/metrics": "*inventory.scraped", "api+http://127.0.0.1:1": "*inventory.api",
		"http://127.0.0.1:1": "*inventory.api", "http://127.0.0.1:1/": "*inventory.api",
		dir + "/data": "has a head but no block", dir + "/empty": "holds no pages", file: "is a file", "": "is empty",
		dir + "/none":                         "there is no such folder",
		"http://u:secret@127.0.0.1:1/metrics": "JOB=URL, or the API", "api+nonsense": "must be http://",
		"=http://127.0.0.1:1/metrics": "has no job",
	} {
		src, err := Open(t.Context(), arg, OpenOptions{})
		got := fmt.Sprintf("%T", src)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || strings.Contains(got, "secret") {
			t.Errorf("%s: got %s, want %s", arg, got, want)
		}
	}
}
