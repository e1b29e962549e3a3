package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// FuzzConfig: no bytes make Parse panic; what it takes is taken by the schema, has finite limits,
// and is written and printed as a file that means the same; what it refuses has problems with
// words.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte(secretive))
	f.Add([]byte(spelled))
	f.Add([]byte(special))
	for _, row := range slices.Concat(problemRows(), hashmodRows(), laneRows()) {
		f.Add([]byte(row.text))
	}
	for _, pattern := range []string{"testdata/*.yaml", "../../docs/examples/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := parseAt(data, ".", testNow)
		if err != nil {
			var problems Problems
			if !errors.As(err, &problems) || len(problems) == 0 {
				t.Fatalf("no problems in %v", err)
			}
			for _, p := range problems {
				if p.Message == "" || !utf8.ValidString(p.String()) || strings.ContainsAny(p.Path, "\n\r") {
					t.Fatalf("a problem that cannot be read: %#v", p)
				}
			}
			return
		}
		if why, ok := refuses(data); why != "" || !ok {
			t.Fatalf("the schema refuses it: %s", why)
		}
		for _, id := range endpointIDs {
			if l := cfg.LimitsFor(id); l.Timeout <= 0 || l.MaxSeries <= 0 || l.MaxSamples <= 0 || l.MaxResponseBytes <= 0 ||
				l.MetadataRange > l.MaxRange || l.MaxQueryBytes <= 0 {
				t.Fatalf("limits of %s: %+v", id, l)
			}
		}
		if l := cfg.LimitsFor(endpoint.Series); l.Timeout > cfg.Limits.Timeout {
			t.Fatalf("above the ceiling: %+v", l)
		}
		for _, g := range cfg.Groups {
			for _, s := range g.Shards {
				for _, r := range s.Replicas {
					if base, err := r.Base(); err != nil || base.Host == "" {
						t.Fatalf("base of %q: %v, %v", r.URL, base, err)
					}
				}
			}
		}
		out, err := encode(cfg, testNow)
		if err != nil {
			t.Fatalf("it cannot be written: %v", err)
		}
		read, err := parseAt(out, ".", testNow)
		if err != nil || !sameMeaning(cfg, read) {
			t.Fatalf("what is written means something else: %v\n%s", err, out)
		}
		if twice, err := encode(read, testNow); err != nil || string(twice) != string(out) {
			t.Fatalf("written\n%s\nthen\n%s\n%v", out, twice, err)
		}
		first := cfg.String()
		again, err := parseAt([]byte(first), ".", testNow)
		if err != nil {
			if strings.Contains(first, stars) { // a starred certificate or URL need not be one
				return
			}
			t.Fatalf("what it prints is refused: %v\n%s", err, first)
		}
		if second := again.String(); first != second {
			t.Fatalf("printed\n%s\nthen\n%s", first, second)
		}
	})
}
