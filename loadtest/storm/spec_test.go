package storm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestBuiltin: the committed storm is whole, and has every kind of caller.
func TestBuiltin(t *testing.T) {
	s := Builtin()
	var names []string
	for _, p := range s.Parts {
		names = append(names, p.Name)
	}
	for _, want := range []string{
		"metrics browser", "wall of 40 dashboards", "30 days by regex", "count everything",
		"federate everything", "remote read of everything",
		"slow readers", "leavers", "retry storm", "right-sizer", "5x overload",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("there is no part %q among %q", want, names)
		}
	}
	if got := s.Tenants(); !slices.Equal(got, []string{"oncall", "grafana", "batch"}) {
		t.Errorf("tenants %q", got)
	}
	for _, p := range s.Parts {
		if p.Tenant == s.OnCall.Tenant {
			t.Errorf("%s asks as on-call people do", p.Name)
		}
	}
}

const least = `name: a
on_call: {tenant: o, rate: 1, requests: [{name: q, path: /x}]}
parts:
  - name: p
    tenant: t
    rate: 2
    requests:
      - {name: q, path: /y}
`

// TestDefaults: what a file does not say is filled in.
func TestDefaults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(file, []byte(least), 0o666); err != nil {
		t.Fatal(err)
	}
	s, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	p := s.Parts[0]
	if p.Burst != 1 || p.Until != 1 || time.Duration(p.Patience) != 30*time.Second || p.Requests[0].Method != "GET" ||
		s.OnCall.Name != "on-call" {
		t.Errorf("%+v", s)
	}
}

// TestProblems: what is wrong with a file is named with its line, all of it at once.
func TestProblems(t *testing.T) {
	edit := func(old, text string) string {
		if !strings.Contains(least, old) {
			t.Fatalf("%q is not in the file", old)
		}
		return strings.Replace(least, old, text, 1)
	}
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"unknown key", edit("    rate: 2", "    rat: 2"), []string{"line 6: field rat not found"}},
		{"not YAML", "name: [", []string{"s.yaml: "}},
		{"two documents", least + "---\nname: b\n", []string{"s.yaml: there is a second document"}},
		{"nothing", "", []string{"s.yaml: "}},
		{"no name", edit("name: a", "about: x"), []string{"s.yaml:1: name: must not be empty"}},
		{"no rate", edit("    rate: 2\n", ""), []string{"s.yaml:4: parts[0].rate: 0: either it or times_goodput must be above 0"}},
		{"both rates", edit("    rate: 2", "    rate: 2\n    times_goodput: 5"), []string{"s.yaml:6: parts[0].rate: 2: either it or times_goodput"}},
		{"too fast", edit("    rate: 2", "    rate: 2\n    burst: 9999"), []string{"s.yaml:6: parts[0].rate: 2 times a burst of 9999 is more than 5000"}},
		{"negative burst", edit("    rate: 2", "    rate: 2\n    burst: -1"), []string{"s.yaml:7: parts[0].burst: -1 must be above 0"}},
		{"much more", edit("    rate: 2", "    times_goodput: 21"), []string{"s.yaml:6: parts[0].times_goodput: 21 is more than 20"}},
		{"no tenant", edit("    tenant: t\n", ""), []string{"s.yaml:4: parts[0].tenant: must not be empty"}},
		{"no time", edit("    rate: 2", "    from: 0.6\n    until: 0.5\n    rate: 2"), []string{"s.yaml:6: parts[0].from: from 0.6 until"}},
		{"again", edit("    rate: 2", "    rate: 2\n    again: 101"), []string{"s.yaml:7: parts[0].again: 101 is outside 0 to 100"}},
		{"reads", edit("    rate: 2", "    rate: 2\n    read_bytes_per_second: -1"), []string{"s.yaml:7: parts[0].read_bytes_per_second"}},
		{"header", edit("    rate: 2", "    rate: 2\n    headers: {A: '${x}'}"), []string{"s.yaml:7: parts[0].headers.A: ${x}: the variables are"}},
		{"no requests", edit("    requests:\n      - {name: q, path: /y}", "    requests: []"), []string{"s.yaml:7: parts[0].requests: there must be one at least"}},
		{"no path", edit("path: /y", "path: y"), []string{`s.yaml:8: parts[0].requests[0].path: "y" does not begin`}},
		{"method", edit("path: /y", "path: /y, method: PUT"), []string{`s.yaml:8: parts[0].requests[0].method: "PUT" is neither`}},
		{"query", edit("path: /y", "path: /y, params: {query: 'sum('}"), []string{"s.yaml:8: parts[0].requests[0].params.query: "}},
		{"variable", edit("path: /y", "path: /y, params: {a: '${now-x}'}"), []string{"s.yaml:8: parts[0].requests[0].params.a: ${now-x}"}},
		{"open variable", edit("path: /y", "path: /y, params: {a: '${now'}"), []string{"s.yaml:8: parts[0].requests[0].params.a: "}},
		{"range of a path", edit("path: /y", "path: /y, range: 1h"), []string{"s.yaml:8: parts[0].requests[0].range: only remote_read"}},
		{"read without a range", edit("path: /y", "remote_read: up"), []string{"s.yaml:8: parts[0].requests[0].range: remote_read needs"}},
		{"read with a path", edit("path: /y", "path: /y, remote_read: up, range: 1h"), []string{"s.yaml:8: parts[0].requests[0].path: remote_read has neither"}},
		{"read of no selector", edit("path: /y", "remote_read: 'sum(up)', range: 1h"), []string{"parts[0].requests[0].remote_read"}},
		{"on-call leaves", edit("rate: 1,", "rate: 1, leave_after: 1s,"), []string{"s.yaml:2: on_call.leave_after: on-call people"}},
		{"lane", least + "lanes: [{tenant: t, share: 0.6}, {tenant: u, share: 0.6}, {share: 0.1, max_concurrent: -1, lend: 1.1}]\n", []string{
			"s.yaml:9: lanes[1].share: 0.6 must be", "s.yaml:9: lanes[2].lend: 1.1 is outside",
			"lanes[2].tenant: must not be empty", "lanes[2].max_concurrent: must not",
		}},
		{"twice", least + "  - {name: p, tenant: t, rate: 1, requests: [{path: /}]}\n", []string{
			`s.yaml:9: parts[1].name: "p" is empty or there already`, "s.yaml:9: parts[1].requests[0].name: must not be empty",
		}},
		{"none", "name: a\non_call: {tenant: o, rate: 1, requests: [{name: q, path: /x}]}\n", []string{"s.yaml:1: parts: there must be one at least"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse("s.yaml", []byte(tc.text))
			if err == nil {
				t.Fatal("nothing is wrong with it")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %q", err, want)
				}
			}
		})
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there was read")
	}
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, []byte(strings.Repeat("#", maxFile+1)), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(large); err == nil || !strings.Contains(err.Error(), "larger than 1 MiB") {
		t.Errorf("a large file: %v", err)
	}
}

func TestExpand(t *testing.T) {
	v := vars{now: time.Unix(1000, 0), n: 43, cluster: `cluster="a",`, pods: []string{"p", "q"}}
	for template, want := range map[string]string{
		"":                        "",
		"plain {} $n":             "plain {} $n",
		"${now} ${now-15m}":       "1000 100",
		"${n} ${n%40}":            "43 3",
		`x{${cluster}a="${pod}"}`: `x{cluster="a",a="q"}`,
	} {
		if got, err := expand(template, v); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", template, got, err, want)
		}
	}
	if got, err := expand("${pod}", vars{}); err != nil || got != "none" {
		t.Errorf("without pods: %q, %v", got, err)
	}
	for _, bad := range []string{"${", "${}", "${n%0}", "${n%x}", "${now-}", "${Now}"} {
		if got, err := expand(bad, v); err == nil {
			t.Errorf("%q: %q", bad, got)
		}
	}
}

func TestOnly(t *testing.T) {
	s, err := Builtin().Only("leavers", "right-sizer")
	if err != nil || len(s.Parts) != 2 || s.Parts[1].Name != "right-sizer" {
		t.Errorf("%v, %v", s.Parts, err)
	}
	if s, err := Builtin().Only(); err != nil || len(s.Parts) != len(Builtin().Parts) {
		t.Errorf("no name: %d parts, %v", len(s.Parts), err)
	}
	if _, err := Builtin().Only("none"); err == nil {
		t.Error("a part that is not there was chosen")
	}
}
