package endpoint

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/endpoints.md anew")

const docsFile = "../../docs/endpoints.md"

// TestDocs keeps docs/endpoints.md equal to the table.
func TestDocs(t *testing.T) {
	want := docs()
	if *update {
		if err := os.WriteFile(docsFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s differs from the table; run go test ./proxy/endpoint -run TestDocs -update", docsFile)
	}
}

// docs writes the page.
func docs() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("<!-- Written by go test ./proxy/endpoint -run TestDocs -update from the table in proxy/endpoint/table.go. Do not edit. -->")
	line("# Endpoints")
	line("")
	line("What Spillway serves on its main listener. Every other path is 404, every other method 405; paths are not cleaned, decoded or redirected.")
	line("A shard gets a request that Spillway wrote itself from what it understood; nothing else of the client's request is passed on.")
	line("")
	line("Rules for all of them:")
	line("")
	line("- Parameters may be in the URL, in a form (`application/x-www-form-urlencoded`) or in both. A POST with everything in the URL and an empty body may have any")
	line("  content type or none. Other bodies that are not empty, and any body of a GET, are 400.")
	line("- A parameter that takes one value may be sent again with the same value; different values are 400. Those that take several keep their order, equal ones count once.")
	line("- An empty value counts as absent, except of a required parameter.")
	line("- At most %d parameters, %d selectors, %d KiB of form; remote read at most %d MiB compressed and %d MiB inflated.",
		MaxParameters, MaxMatches, DefaultMaxBodyBytes>>10, DefaultMaxReadBytes>>20, DefaultMaxReadDecodedBytes>>20)
	line("- Semicolons as separators, bad percent-encoding, NUL bytes and text that is not UTF-8 are 400.")
	line("- Unknown parameters are dropped and counted, or 400 with `strict_parameters: true`. Accepted and ignored in both cases: `%s`.", strings.Join(Ignored, "`, `"))
	line("- A time is Unix seconds, with a fraction if need be, or RFC 3339; a duration is seconds or units such as `5m`. Both are kept to the millisecond.")
	line("- Answers are compressed for clients that ask for it (`Accept-Encoding`): with gzip, or with zstd for those that prefer it or take no gzip. Errors, answers of less than")
	line("  1 KiB and remote read are not. It costs 4 ms of CPU for a megabyte of JSON, makes that a quarter of its size, and takes 832 KiB of `memory.budget` while the answer is")
	line("  written; where there is no room it is sent as it is. Over loopback it is not worth it: ask for `identity`. Sizes in metrics, logs and bounds are those before it.")
	line("- `query` and `query_range` explain themselves with the header `X-Spillway-Explain` ([explain.md](explain.md)).")
	line("")
	line("| endpoint | path | methods | class | merge |")
	line("|---|---|---|---|---|")
	for _, e := range Table {
		line("| [%s](#%s) | `%s` | %s | %s | %s |", e.ID, e.ID, e.Path, strings.Join(e.Methods, ", "), e.Class, e.Merge)
	}
	line("")
	line("Refused with a word of its own (404), by what the path begins with:")
	line("")
	line("| path | what the refusal says |")
	line("|---|---|")
	for _, p := range refusedPaths {
		line("| `%s` | %s |", p.prefix, p.advice)
	}
	for _, e := range Table {
		line("")
		line("## %s", e.ID)
		line("")
		line("`%s`", e.Path)
		line("")
		line("%s", e.Doc)
		if len(e.Params) == 0 {
			continue
		}
		line("")
		line("| parameter | value | | example | |")
		line("|---|---|---|---|---|")
		for _, p := range e.Params {
			var traits []string
			if p.Required {
				traits = append(traits, "required")
			}
			if p.Repeated {
				traits = append(traits, "repeated")
			}
			line("| `%s` | %s | %s | `%s` | %s |", p.Name, p.Kind, strings.Join(traits, ", "), strings.ReplaceAll(p.Example, "|", "\\|"),
				p.Doc)
		}
	}
	return b.String()
}

func TestTableIsWhole(t *testing.T) {
	ids, paths := map[ID]bool{}, map[string]bool{}
	for _, e := range Table {
		if ids[e.ID] || paths[e.Path] {
			t.Errorf("%s or its path stands twice", e.ID)
		}
		ids[e.ID], paths[e.Path] = true, true
		if Get(e.ID) == nil || Get(e.ID).Path != e.Path {
			t.Errorf("Get does not find %s", e.ID)
		}
		if e.Doc == "" || e.Class == "" || e.Decode == "" || e.Merge == "" || len(e.Methods) == 0 {
			t.Errorf("%s is incomplete", e.ID)
		}
		if (e.Class == ClassLocal) != (e.Decode == DecodeNone) || (e.Decode == DecodeNone) != (e.Merge == MergeNone) {
			t.Errorf("%s: class %s, decode %s, merge %s", e.ID, e.Class, e.Decode, e.Merge)
		}
		if e.Selects == "" || e.Span == "" || e.Selects != SelectsNothing && e.Span == SpanNone ||
			(e.Class == ClassMetadata) != (e.Selects == SelectsListed) {
			t.Errorf("%s: class %s, selects %s, span %s", e.ID, e.Class, e.Selects, e.Span)
		}
		if (e.Decode == DecodeQuery) != e.ID.Evaluates() || (e.Merge == MergePlan) != e.ID.Evaluates() ||
			e.ID.Evaluates() && !e.ID.HasQuery() {
			t.Errorf("%s: selects %s, decode %s, merge %s", e.ID, e.Selects, e.Decode, e.Merge)
		}
		names := map[string]bool{}
		for _, p := range e.Params {
			if names[p.Name] {
				t.Errorf("%s has %s twice", e.ID, p.Name)
			}
			names[p.Name] = true
		}
		if e.Blames != "" && !names[e.Blames] {
			t.Errorf("%s blames %s, which it does not take", e.ID, e.Blames)
		}
	}
	if Get("nonsense") != nil {
		t.Error("Get finds what is not there")
	}
}
