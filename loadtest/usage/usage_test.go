package usage

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"

	"github.com/spillwayproject/spillway/dashboards"
	log "github.com/spillwayproject/spillway/proxy/usage"
)

func options(t *testing.T) Options {
	t.Helper()
	o := Options{
		Cluster: "jaguar", Nodes: []string{"gpu-00001", "gpu-00002"}, Namespaces: []string{"research-nlp"}, Users: 5,
		End: time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC), Length: 2 * time.Hour, Seed: 1,
	}
	for _, name := range dashboards.Names() {
		d, err := dashboards.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		o.Dashboards = append(o.Dashboards, d)
	}
	o.Rules = []rulefmt.RuleGroup{{
		Name: "g", Interval: model.Duration(5 * time.Minute),
		Rules: []rulefmt.Rule{{Record: "job:up:sum", Expr: "sum by (job) (up)"}},
	}}
	return o
}

// TestWrite: every line is a record of the log's version, in order, of all kinds, and the same
// options write the same bytes.
func TestWrite(t *testing.T) {
	o := options(t)
	var out, again bytes.Buffer
	n, err := Write(&out, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Write(&again, o); err != nil || !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Errorf("not the same bytes again: %v", err)
	}
	var last time.Time
	seen := map[string]int{}
	lines := bytes.Split(bytes.TrimSuffix(out.Bytes(), []byte("\n")), []byte("\n"))
	if len(lines) != n || n < 1000 {
		t.Fatalf("%d lines, %d said", len(lines), n)
	}
	for _, line := range lines {
		var r log.Record
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if r.V != log.Version || r.Query == "" || strings.Contains(r.Query, "$") {
			t.Fatalf("%s", line)
		}
		if r.Time.Before(last.Truncate(time.Minute)) || r.Time.After(o.End) || r.Time.Before(o.End.Add(-o.Length)) {
			t.Fatalf("%s comes after %s", r.Time, last)
		}
		last = r.Time
		seen[r.Endpoint]++
		if r.Rule != "" {
			seen["rule"]++
		}
		if r.Dashboard == "" && r.Rule == "" {
			seen["explored"]++
		}
	}
	for _, kind := range []string{"query", "query_range", "series", "explored"} {
		if seen[kind] == 0 {
			t.Errorf("no line of kind %s: %v", kind, seen)
		}
	}
	if seen["rule"] != 24 {
		t.Errorf("a rule of five minutes was asked %d times in two hours", seen["rule"])
	}
}

func TestWriteRefuses(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"nobody would look":   func(o *Options) { o.Dashboards, o.Rules = nil, nil },
		"users: -1":           func(o *Options) { o.Users = -1 },
		"at least one":        func(o *Options) { o.Nodes = nil },
		"a minute to a year":  func(o *Options) { o.Length = time.Second },
		"rule broken":         func(o *Options) { o.Rules[0].Rules[0] = rulefmt.Rule{Alert: "broken", Expr: "sum("} },
		"nothing has no valu": func(o *Options) { o.Explored, o.Users = []string{"up{x=\"$nothing\"}"}, 2000 },
	} {
		o := options(t)
		change(&o)
		if _, err := Write(new(bytes.Buffer), o); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "$", ""), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
