package inventory

import (
	"bytes"
	"compress/gzip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

func zip(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPages(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "node/10.0.0.1:9100.prom", "a 1\n")
	write(t, dir, "node/http%3A%2F%2Fx%2F%25.prom.gz", zip(t, "a 2\n"))
	write(t, dir, "app%2Fb/i.om", "# TYPE c counter\nc_total 1\n# EOF\n")
	write(t, dir, "app%2Fb/j.txt", "c_total 1\n")
	write(t, dir, "one%20page.prom", "a 1\n")
	write(t, dir, "README.md", "what this is")
	write(t, dir, "node/.hidden", "nothing")
	src, err := Pages(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{__name__="a", instance="10.0.0.1:9100", job="node"} unknown`,
		`{__name__="a", instance="http://x/%", job="node"} unknown`,
		`{__name__="a", instance="one page", job="one page"} unknown`,
		`{__name__="c_total", instance="i", job="app/b"} counter`,
		`{__name__="c_total", instance="j", job="app/b"} unknown`,
	}
	for range 2 { // it may be read again
		sameLines(t, read(t, src), want)
	}
	if src.String() != dir {
		t.Errorf("it is called %s", src)
	}

	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, name := range []string{
		"node/10.0.0.1:9100.prom", "node/http%3A%2F%2Fx%2F%25.prom.gz", "app%2Fb/i.om", "app%2Fb/j.txt",
		"one%20page.prom",
	} {
		if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
			t.Fatal(err)
		}
		at = at.Add(-time.Minute)
	}
	var values []float64
	err = src.(Sampled).Samples(t.Context(), time.Hour, func(ls labels.Labels) bool { return ls.Get("job") == "node" },
		func(s *Series, floats []promql.FPoint, histograms []promql.HPoint) error {
			if len(floats) != 1 || len(histograms) != 0 || floats[0].T != at.Add(5*time.Minute).UnixMilli() {
				t.Errorf("%s: %v %v", s.Labels, floats, histograms)
			}
			values = append(values, floats[0].F)
			return nil
		})
	if err != nil || len(values) != 2 || values[0] != 1 || values[1] != 2 {
		t.Errorf("got %v and %v", values, err)
	}
}

func TestPagesRefuses(t *testing.T) {
	for _, tc := range []struct {
		name  string
		files map[string]string
		says  string
	}{
		{"nothing", nil, "holds no pages; they are"},
		{"what is no page beside the jobs", map[string]string{"a.yaml": "a: 1\n"}, "pages end in .prom"},
		{"no job", map[string]string{".prom/x.prom": "", "j/x.prom.gz.gz": ""}, "pages end in .prom"},
		{"what is no page", map[string]string{"j/a.json": "{}"}, "pages end in .prom"},
		{"a folder too deep", map[string]string{"j/k/a.prom": "a 1\n"}, "is a folder"},
		{"one target twice", map[string]string{"j/a.prom": "a 1\n", "j/a.om.gz": ""}, "are pages of the same target"},
		{"a bad percent sign", map[string]string{"j/a%zz.prom": "a 1\n"}, "%25"},
		{"no instance", map[string]string{"j/.gz/.prom": ""}, "holds no pages"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range tc.files {
				write(t, dir, name, text)
			}
			if _, err := Pages(dir); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
	for _, tc := range []struct{ name, file, text, says string }{
		{"a bad line", "j/a.prom", "a 1\nb\n", "a.prom:2: "},
		{"an empty page", "j/a.prom", "", "is empty"},
		{"not zipped", "j/a.prom.gz", "a 1\n", "a.prom.gz: unzip"},
		{"cut short", "j/a.prom.gz", zip(t, strings.Repeat("a 1\n", 1000))[:20], "a.prom.gz: the page was cut short"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, tc.file, tc.text)
			src, err := Pages(dir)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Collect(t.Context(), src, nil); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}

// FuzzPageName: whatever a page is called, it is a page of a target with a job and an instance, or
// an error.
func FuzzPageName(f *testing.F) {
	for _, s := range []string{
		"j/10.0.0.1:9100.prom", "a%2Fb/%.om.gz", "/.txt", "/a.pb", "%/x.prom", "j/\xff.prom", "j/%ff.prom",
		"j/.gz",
	} {
		job, name, _ := strings.Cut(s, "/")
		f.Add(job, name)
	}
	f.Fuzz(func(t *testing.T, job, name string) {
		got, err := newPageFile("no such file", job, name)
		if err != nil {
			return
		}
		j, i := got.target.Get("job"), got.target.Get("instance")
		if j == "" || i == "" || !got.target.IsValid(model.UTF8Validation) || got.contentType == "" {
			t.Errorf("%q/%q is %+v", job, name, got)
		}
		again, err := newPageFile("no such file", url.PathEscape(j), url.PathEscape(i)+".prom")
		if err != nil || !labels.Equal(again.target, got.target) {
			t.Errorf("%s, written again, is %s, %v", got.target, again.target, err)
		}
	})
}
