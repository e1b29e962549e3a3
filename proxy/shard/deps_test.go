package shard

import (
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// forbidden are imports that this package must never gain, each with the reason.
var forbidden = map[string]string{
	"spillway/proxy/merge":         "merge reads what shard hands on; the road goes forward only",
	"spillway/proxy/plan":          "plan chooses shards, not the other way round",
	"spillway/proxy/policy":        "what reaches a shard was judged already",
	"spillway/proxy/server":        "the server stands before everything",
	"spillway/internal/localprom":  "a product that embeds its test servers",
	"spillway/internal/fakeshard":  "a product that embeds its test servers",
	"prometheus/prometheus/promql": "shards evaluate, shard only asks",
	"prometheus/prometheus/tsdb":   "nothing is stored here",
	"net/http/httputil":            "requests are rebuilt, never forwarded",
}

func TestImports(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range parsed.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			for bad, why := range forbidden {
				if strings.HasSuffix(path, bad) || strings.Contains(path, bad+"/") {
					t.Errorf("%s imports %s: %s", f.Name(), path, why)
				}
			}
		}
	}
}
