package cost

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// sharded is four hours of eight pods with a GPU each, and a node, as servers of
// deploy/exporters/prometheus.yml have them: each reads the whole page, keeps its own lines, and
// says so on up alone. shards is how many there are in each of the hours; silent has no scrapes of
// them in its hour.
func sharded(shards [4]int, silent map[int]int) string {
	text := "load 30s\n"
	line := func(series, v string, in func(hour int) bool) {
		text += "  " + series
		for h := range shards {
			if in(h) {
				text += fmt.Sprintf(" %sx119", v)
			} else {
				text += " _x120"
			}
		}
		text += "\n"
	}
	for _, instance := range []string{"10.0.1.1:8080", "10.0.1.2:8080"} {
		at := fmt.Sprintf(`job="kube-state-metrics",cluster="c",instance=%q`, instance)
		for s := range 4 {
			alive := func(h int) bool { n, ok := silent[h]; return s < shards[h] && (!ok || n != s) }
			line(fmt.Sprintf(`up{%s,seen_by="%d"}`, at, s), "1", alive)
		}
		for p := range 8 {
			of := fmt.Sprintf(`%s,namespace="a",pod="p-%d",uid="%d"`, at, p, p)
			seen := func(h int) bool { n, ok := silent[h]; return !ok || n != p%shards[h] }
			line(fmt.Sprintf(`kube_pod_status_phase{%s,phase="Running"}`, of), "1", seen)
			line(fmt.Sprintf(`kube_pod_container_resource_requests{%s,container="x",node="n",resource="nvidia_com_gpu"}`, of), "1", seen)
		}
		always := func(h int) bool { return true }
		line(fmt.Sprintf(`kube_node_status_capacity{%s,node="n",resource="nvidia_com_gpu"}`, at), "8", always)
		line(fmt.Sprintf(`kube_node_status_allocatable{%s,node="n",resource="nvidia_com_gpu"}`, at), "8", always)
		line(fmt.Sprintf(`kube_node_status_condition{%s,node="n",condition="Ready",status="true"}`, at), "1", always)
	}
	return text
}

// TestServersOfOneReplica: where several servers scrape one kube-state-metrics, each keeping a part
// of its pods, the bill is the same however many they are, and when their number changes.
func TestServersOfOneReplica(t *testing.T) {
	for _, c := range []struct {
		name    string
		shards  [4]int
		silent  map[int]int
		billed  Milli
		covered float64
		note    string
	}{
		{"one", [4]int{1, 1, 1, 1}, nil, 32000, 1, ""},
		{"two", [4]int{2, 2, 2, 2}, nil, 32000, 1, ""},
		{"four", [4]int{4, 4, 4, 4}, nil, 32000, 1, ""},
		{"two, then four", [4]int{2, 2, 4, 4}, nil, 32000, 1, "seen_by=3 scraped the kube-state-metrics of c from 2026-11-01T02:00:00Z on only"},
		{"four, then two", [4]int{4, 4, 4, 2}, nil, 32000, 1, "seen_by=2 scraped the kube-state-metrics of c until 2026-11-01T02:59:30Z only"},
		{"one is silent for an hour", [4]int{4, 4, 4, 4}, map[int]int{1: 2}, 30000, 0.75, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := smallOptions(t, loaded(t, sharded(c.shards, c.silent)).URL())
			o.Range.To = smallFrom.Add(4 * time.Hour)
			b, err := Make(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if d := b.Total.GPUHours - c.billed; d < -20 || d > 20 {
				t.Errorf("%s GPU hours are billed, not %s", b.Total.GPUHours, c.billed)
			}
			if d := b.Total.Covered - c.covered; d < -0.01 || d > 0.01 {
				t.Errorf("%v is covered, not %v", b.Total.Covered, c.covered)
			}
			if (len(b.Gaps) > 0) != (c.covered < 1) {
				t.Errorf("the gaps are %v", b.Gaps)
			}
			if len(b.Fleet) != 1 || b.Fleet[0].Capacity < 31900 || b.Fleet[0].Capacity > 32100 {
				t.Errorf("the fleet is %+v", b.Fleet)
			}
			notes := strings.Join(b.Notes, "\n")
			if !strings.Contains(notes, c.note) || c.note == "" && strings.Contains(notes, "seen_by") {
				t.Errorf("the notes are %q", notes)
			}
			if c.shards[0] == 1 {
				return
			}
			o.Names.ShardLabel = "seen_by"
			if _, err := Make(t.Context(), o); err == nil || !strings.Contains(err.Error(), "leave the flag out") {
				t.Errorf("--shard-label=seen_by: %v", err)
			}
		})
	}
}

// TestPairOfServers: two servers that both have all pods put their label on the pods' series too,
// and no pod is billed twice.
func TestPairOfServers(t *testing.T) {
	text := "load 15s\n"
	for r, v := range map[string]string{"a": strings.Repeat(" 1 _", 240), "b": strings.Repeat(" _ 1", 240)} {
		at := fmt.Sprintf(`job="kube-state-metrics",instance="10.0.1.1:8080",prometheus=%q`, r)
		of := at + `,namespace="a",pod="p",uid="1"`
		text += fmt.Sprintf("  up{%s}%s\n  kube_pod_status_phase{%s,phase=\"Running\"}%s\n", at, v, of, v) +
			fmt.Sprintf("  kube_pod_container_resource_requests{%s,container=\"x\",resource=\"nvidia_com_gpu\"}%s\n", of, v)
	}
	o := smallOptions(t, loaded(t, text).URL())
	if b, err := Make(t.Context(), o); err != nil || b.Total.GPUHours != 2000 {
		t.Errorf("%+v, %v", b, err)
	}
}

// TestPartsWithTheirServersLabel: where each pod's series have the label of the one server that has
// it, as an API shows that adds external labels, no pod is billed a part of its time.
func TestPartsWithTheirServersLabel(t *testing.T) {
	text := "load 15s\n"
	for r, v := range map[string]string{"a": strings.Repeat(" 1 _", 240), "b": strings.Repeat(" _ 1", 240)} {
		at := fmt.Sprintf(`job="kube-state-metrics",instance="10.0.1.1:8080",prometheus_shard=%q`, r)
		of := at + fmt.Sprintf(`,namespace="a",pod="p-%s",uid="%s"`, r, r)
		text += fmt.Sprintf("  up{%s}%s\n  kube_pod_status_phase{%s,phase=\"Running\"}%s\n", at, v, of, v) +
			fmt.Sprintf("  kube_pod_container_resource_requests{%s,container=\"x\",resource=\"nvidia_com_gpu\"}%s\n", of, v)
	}
	o := smallOptions(t, loaded(t, text).URL())
	if b, err := Make(t.Context(), o); err != nil || b.Total.GPUHours < 3980 || b.Total.GPUHours > 4020 {
		t.Errorf("%+v, %v", b, err)
	}
}
