package server

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/tree"
)

// Matchers on group labels and replica labels choose groups, in every operator and on every road;
// in a group without the label they are the shard's matter. The reference is one Prometheus that
// holds everything, with the groups' labels on it.
func TestGroupLabelsChooseGroups(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	list := func(sets ...labels.Labels) []storedSeries {
		var out []storedSeries
		for i, l := range sets {
			s := storedSeries{lbls: l}
			for at := now.Add(-10 * time.Minute); !at.After(now); at = at.Add(15 * time.Second) {
				s.points = append(s.points, point{t: at.UnixMilli(), f: float64(i + 1)})
			}
			out = append(out, s)
		}
		return out
	}
	jaguar := list(labels.FromStrings("__name__", "up", "node", "a"), labels.FromStrings("__name__", "up", "node", "b"),
		labels.FromStrings("__name__", "only_jaguar", "node", "a"))
	ibis := list(labels.FromStrings("__name__", "up", "node", "c"), labels.FromStrings("__name__", "only_ibis", "z", "1"))
	bare := list(labels.FromStrings("__name__", "up", "node", "d", "cluster", "stored"), labels.FromStrings("__name__", "up", "node", "e"),
		labels.FromStrings("__name__", "up", "node", "f", "replica", "stored"))
	all := slices.Clone(bare)
	for cluster, series := range map[string][]storedSeries{"jaguar": jaguar, "ibis": ibis} {
		all = append(all, cutSeries(series, time.UnixMilli(0), now.Add(time.Hour), cluster)...)
	}
	ref := promShard(t, labels.EmptyLabels(), all)
	a, b := promShard(t, labels.FromStrings("cluster", "jaguar", "replica", "x"), jaguar),
		promShard(t, labels.FromStrings("cluster", "ibis", "replica", "y"), ibis)
	c := promShard(t, labels.EmptyLabels(), bare)
	_, base := startProxy(t, t.Context(), fmt.Sprintf("groups:\n  - {name: jaguar, labels: {cluster: jaguar}, replica_labels: [replica], shards: [{replicas: [{url: %q}]}]}\n"+
		"  - {name: ibis, labels: {cluster: ibis}, replica_labels: [replica], shards: [{replicas: [{url: %q}]}]}\n  - {name: bare, shards: [{replicas: [{url: %q}]}]}\n", a.URL(), b.URL(), c.URL()))
	form := func(match string) url.Values {
		return url.Values{"match[]": {match}, "start": {stamp(now.Add(-5 * time.Minute))}, "end": {stamp(now)}}
	}
	for _, m := range []string{
		`cluster="jaguar"`, `cluster="ibis"`, `cluster="stored"`, `cluster="nowhere"`, `cluster=""`, `cluster!="jaguar"`, `cluster!=""`,
		`cluster!="nowhere"`, `cluster=~"jaguar|stored"`, `cluster=~".*"`,
		`cluster=~".+"`, `cluster=~""`, `cluster!~"j.*"`, `cluster!~".+"`, `cluster!~".*"`, `cluster=~"jag"`,
		`cluster=~"jaguar",cluster!="jaguar"`, `cluster="jaguar",node="a"`, `cluster!="ibis",node=~"a|d"`,
		`replica="x"`, `replica=""`, `replica!=""`, `replica="stored"`, `replica=~"x|stored"`, `replica!~"x"`,
		`replica=~".*",cluster="ibis"`, `node="a"`, `node=""`, ``,
	} {
		for _, name := range []string{"up", "only_jaguar", "only_ibis", ""} {
			sel := name + "{" + m + "}"
			if name == "" {
				if m == "" {
					continue
				}
				sel = `{__name__=~"up|only_.+",` + m + `}`
			}
			if got, want := sortedJSON(t, dataOf(t, base, "/api/v1/series", form(sel))),
				sortedJSON(t, dataOf(t, ref.URL(), "/api/v1/series", form(sel))); got != want {
				t.Errorf("series of %s:\n%s\nwant\n%s", sel, got, want)
			}
			for _, path := range []string{
				"/api/v1/labels", "/api/v1/label/cluster/values", "/api/v1/label/replica/values",
				"/api/v1/label/node/values", "/api/v1/label/__name__/values",
			} {
				if got, want := dataOf(t, base, path, form(sel)), dataOf(t, ref.URL(), path, form(sel)); got != want {
					t.Errorf("%s of %s: %s, want %s", path, sel, got, want)
				}
			}
			for _, expr := range []string{sel, "count by (cluster, replica) (" + sel + ")"} {
				q := url.Values{"query": {expr}, "time": {stamp(now)}}
				_, body := ask(t, base, "/api/v1/query", q)
				got, msg := fromJSON(t, body)
				_, body = ask(t, ref.URL(), "/api/v1/query", q)
				if want, _ := fromJSON(t, body); got == nil || compare(got, want, 0) != "" {
					t.Errorf("%s: %s %v, want %v", expr, msg, got, want)
				}
			}
			if got, want := federatedText(t, base, form(sel)), federatedText(t, ref.URL(), form(sel)); got != want {
				t.Errorf("federate %s:\n%s\nwant\n%s", sel, got, want)
			}
			expr, err := tree.Parser.ParseMetricSelector(sel)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := readText(t, base, now.Add(-time.Minute), now, expr...),
				readText(t, ref.URL(), now.Add(-time.Minute), now, expr...); got != want {
				t.Errorf("read %s:\n%s\nwant\n%s", sel, got, want)
			}
		}
	}
	// A selector that is emptied by taking them out is no 400.
	for _, path := range []string{"/api/v1/series", "/api/v1/labels", "/api/v1/label/node/values", "/api/v1/label/cluster/values"} {
		if got := dataOf(t, base, path, form(`{cluster="jaguar"}`)); got == "[]" || strings.Contains(got, "ibis") ||
			strings.Contains(got, "only_ibis") {
			t.Errorf("%s of {cluster=\"jaguar\"}: %s", path, got)
		}
	}
	// And one that Prometheus itself rejects is one.
	for _, sel := range []string{`{cluster=~".*"}`, `{replica=""}`, `{}`} {
		if code, body := ask(t, base, "/api/v1/series", url.Values{"match[]": {sel}}); code != 400 {
			t.Errorf("series of %s: %d %s", sel, code, body)
		}
	}
}
