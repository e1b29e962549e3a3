package policy

import (
	"testing"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

func TestClass(t *testing.T) {
	for _, tc := range []struct {
		selector string
		want     Class
	}{
		{`up`, Named},
		{`{__name__="up"}`, Named},
		{`{"up"}`, Named},
		{`{__name__=~"a|b"}`, Named},
		{`{__name__=~"(a|b)"}`, Named},
		{`{__name__=~"node_(cpu|memory)_total"}`, Named},
		{`{__name__=~"up|"}`, Named},
		{`{__name__=~"node_.*"}`, Other},
		{`{__name__=~".*foo.*"}`, Other},
		{`{__name__=~"[ab].*"}`, Other},
		{`{job="a"}`, Other},
		{`{job=~"a|b"}`, Other},
		{`{job=~"a.*"}`, Other},
		{`{rank=~"\\d+"}`, Other},
		{`{job="a", le!=""}`, Other},
		{`{le!=""}`, Unselective},
		{`{__name__!=""}`, Unselective},
		{`{__name__=~".+"}`, Unselective},
		{`{__name__=~".*", le!=""}`, Unselective},
		{`{__name__!~"go_.*", job=~".+"}`, Unselective},
		{`{job=~"(.+)"}`, Unselective},
		{`{job=~"..*"}`, Unselective},
		{`{job=~".{1,}"}`, Unselective},
		{`{job=~"^.+$"}`, Unselective},
		{`{job=~"(?s).+"}`, Unselective},
		{`{job=~"a?.+"}`, Unselective},
		{`{job=~"foo|.+"}`, Unselective},
		{`{job=~"\\w+"}`, Unselective},
		{`{job=~"[^/]+"}`, Unselective},
		{`{__name__=~"[a-zA-Z_:].*"}`, Unselective},
		{`{job=~"a|", le!=""}`, Unselective},
		{`{job="", le!=""}`, Unselective},
		{`{__name__="", le!=""}`, Unselective},
		{`{cluster="a"}`, Unselective},
		{`{cluster="a", prometheus_replica=~"x", le!=""}`, Unselective},
		{`{cluster="a", job="b"}`, Other},
		{`up{cluster="a"}`, Named},
		{`{}`, Unselective},
	} {
		matchers, err := tree.Parser.ParseMetricSelector(tc.selector)
		if err != nil {
			t.Fatal(tc.selector, err)
		}
		if got := classOf(matchers, testGroup, endpoint.Series); got != tc.want {
			t.Errorf("%s is %s, want %s", tc.selector, got, tc.want)
		}
	}
}

func TestEmptiedSelector(t *testing.T) {
	matchers, err := tree.Parser.ParseMetricSelector(`{cluster=~"a|b", prometheus_replica!=""}`)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[endpoint.ID]Class{
		endpoint.Labels: Other, endpoint.LabelValues: Other, endpoint.Series: Unselective, endpoint.Federate: Unselective,
		endpoint.Query: Unselective,
	} {
		if got := classOf(matchers, testGroup, id); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
}
