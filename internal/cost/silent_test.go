package cost

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// clusterOf is four hours of a cluster of eight pods with a GPU each on one node: what up is of its
// kube-state-metrics in each of them, "_" for no series, and which metric is dropped from which
// hour on.
func clusterOf(name, more string, up [4]string, dropped string, from int) string {
	at := fmt.Sprintf(`job="kube-state-metrics",cluster=%q,instance="%s:8080"%s`, name, name, more)
	text := ""
	line := func(metric, of, v string) {
		text += "  " + metric + "{" + at + of + "}"
		for h, u := range up {
			switch {
			case metric == "up":
				text += " " + u + "x120"
			case u != "1" || metric == dropped && h >= from:
				text += " _x120"
			default:
				text += " " + v + "x119"
			}
			if metric == "up" && u != "_" {
				text = strings.TrimSuffix(text, "x120") + "x119"
			}
		}
		text += "\n"
	}
	line("up", "", "")
	for p := range 8 {
		of := fmt.Sprintf(`,namespace="a",pod="p-%d",uid="%s%d"`, p, name, p)
		line("kube_pod_status_phase", of+`,phase="Running"`, "1")
		line("kube_pod_container_resource_requests", of+`,container="x",node="n",resource="nvidia_com_gpu"`, "1")
	}
	line("kube_node_status_capacity", `,node="n",resource="nvidia_com_gpu"`, "8")
	line("kube_node_status_allocatable", `,node="n",resource="nvidia_com_gpu"`, "8")
	line("kube_node_status_condition", `,node="n",condition="Ready",status="true"`, "1")
	return text
}

var always = [4]string{"1", "1", "1", "1"}

// fourHours are the options of a bill of clusterOf.
func fourHours(t *testing.T, text string) Options {
	t.Helper()
	o := smallOptions(t, loaded(t, "load 30s\n"+text).URL())
	o.By, o.Daily, o.Range.To = []Dimension{Cluster, Team}, true, smallFrom.Add(4*time.Hour)
	return o
}

// TestClusterThatNeverAnswered: a cluster whose kube-state-metrics was down all the time is not
// covered, and said to be: it is no cluster in which nothing was held.
func TestClusterThatNeverAnswered(t *testing.T) {
	never := [4]string{"0", "0", "0", "0"}
	o := fourHours(t, clusterOf("jaguar", "", always, "", 0)+clusterOf("ibis", "", never, "", 0))
	b, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if b.Total.GPUHours != 32000 || b.Total.Covered != 0.5 {
		t.Errorf("the total is %+v", b.Total)
	}
	if want := (Gap{"ibis", o.Range.From, o.Range.To}); len(b.Gaps) != 1 || b.Gaps[0] != want {
		t.Errorf("the gaps are %v", b.Gaps)
	}
	if len(b.Days) != 2 || b.Days[0] != (DayCoverage{"2026-11-01", "ibis", 4, 0}) || b.Days[1].CoveredHours != 4 {
		t.Errorf("the days are %v", b.Days)
	}
	if len(b.Hours) != 4 || b.Hours[0].Cluster != "ibis" {
		t.Errorf("the hours that are not covered: %v", b.Hours)
	}
	want := "The kube-state-metrics of ibis answered no scrape in this time: nothing that it would have told of is in this bill."
	if len(b.Notes) != 1 || b.Notes[0] != want {
		t.Errorf("the notes are %q", b.Notes)
	}
	var csv bytes.Buffer
	if err := b.WriteCSV(&csv); err != nil || !strings.Contains(csv.String(), "not_covered,2026-11-01,ibis,") {
		t.Errorf("%v\n%s", err, &csv)
	}
}

// TestShardThatNeverAnswered: where --shard-label tells shards apart and one was down all the time,
// its cluster is not covered, however well the others answered.
func TestShardThatNeverAnswered(t *testing.T) {
	never := [4]string{"0", "0", "0", "0"}
	o := fourHours(t, clusterOf("c", `,shard="0"`, always, "", 0)+
		strings.ReplaceAll(clusterOf("c", `,shard="1"`, never, "", 0), `"c:8080"`, `"d:8080"`))
	o.Names.ShardLabel = "shard"
	b, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Rows) != 1 || b.Rows[0].Covered != 0 || b.Total.Covered != 0 || len(b.Gaps) != 1 || b.Gaps[0].To != o.Range.To {
		t.Errorf("%+v, gaps %v", b.Rows, b.Gaps)
	}
	if len(b.Notes) != 1 || !strings.Contains(b.Notes[0], "The kube-state-metrics of c, shard 1, answered no scrape") {
		t.Errorf("the notes are %q", b.Notes)
	}
}

// TestServerThatNeverScraped: of several servers that scrape one kube-state-metrics one had no
// scrape that was answered.
func TestServerThatNeverScraped(t *testing.T) {
	text := sharded([4]int{3, 3, 3, 3}, nil)
	for _, instance := range []string{"10.0.1.1:8080", "10.0.1.2:8080"} {
		text += fmt.Sprintf("  up{job=\"kube-state-metrics\",cluster=\"c\",instance=%q,seen_by=\"3\"} 0x479\n", instance)
	}
	o := smallOptions(t, loaded(t, text).URL())
	o.Range.To = smallFrom.Add(4 * time.Hour)
	b, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := "The server seen_by=3 tried to scrape the kube-state-metrics of c in this time, and never could: unless others have all pods, some are missing."
	if len(b.Notes) != 1 || b.Notes[0] != want {
		t.Errorf("the notes are %q", b.Notes)
	}
	// A replica that is down all the time says nothing: another one has its pods.
	text = sharded([4]int{2, 2, 2, 2}, nil) + "  up{job=\"kube-state-metrics\",cluster=\"c\",instance=\"10.0.1.3:8080\",seen_by=\"0\"} 0x479\n"
	o.Client = testClient(t, loaded(t, text).URL())
	if b, err := Make(t.Context(), o); err != nil || len(b.Notes) != 0 || b.Total.Covered < 0.99 {
		t.Errorf("%+v, %v", b, err)
	}
}

// TestClusterThatIsGone: a cluster of which not even up is there, and was in the week before.
func TestClusterThatIsGone(t *testing.T) {
	o := fourHours(t, clusterOf("jaguar", "", always, "", 0)+clusterOf("ibis", "", [4]string{"1", "_", "_", "_"}, "", 0)+
		clusterOf("heron", "", [4]string{"0", "_", "_", "_"}, "", 0))
	o.Range.From = smallFrom.Add(2 * time.Hour)
	b, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := "There are no scrapes of the kube-state-metrics of ibis in this time, and there were in the week before: unless it was taken away, its pods are missing."
	if len(b.Notes) != 1 || b.Notes[0] != want || b.Total.Covered < 0.99 {
		t.Errorf("covered %v, the notes are %q", b.Total.Covered, b.Notes)
	}
	for daily, want := range map[bool]string{false: "not_covered,ibis,", true: "not_covered,2026-11-01,ibis,"} {
		var csv bytes.Buffer
		b.Daily = daily
		if err := b.WriteCSV(&csv); err != nil || strings.Count(csv.String(), want) != 1 || strings.Contains(csv.String(), "heron") {
			t.Errorf("daily %t: %v\n%s", daily, err, &csv)
		}
	}
}

// TestClusterWithoutRequests: whose requests are not exported, or no longer, is billed nothing of,
// and the pods of other clusters say nothing about it.
func TestClusterWithoutRequests(t *testing.T) {
	const requests = "kube_pod_container_resource_requests"
	for _, c := range []struct {
		name string
		text string
		note string
	}{
		{"never", clusterOf("ibis", "", always, requests, 0), "No pod of ibis requested nvidia_com_gpu on 2026-11-01, 2026-11-02: if some did,"},
		{"from the second day on", clusterOf("ibis", "", always, requests, 2), "No pod of ibis requested nvidia_com_gpu on 2026-11-02: if some did,"},
		{"not for an hour", clusterOf("ibis", "", always, requests, 3), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := fourHours(t, clusterOf("jaguar", "", always, "", 0)+c.text)
			o.Range.Location = time.FixedZone("UTC+22", 22*3600) // a day ends after two hours
			b, err := Make(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if c.note == "" && len(b.Notes) > 0 || c.note != "" && (len(b.Notes) != 1 || !strings.HasPrefix(b.Notes[0], c.note)) {
				t.Errorf("the notes are %q", b.Notes)
			}
		})
	}
}

// TestIdleDays: where pods request other resources a cluster's GPUs may just be idle, as at a
// weekend. A line says so of more days than that, up to the end.
func TestIdleDays(t *testing.T) {
	const (
		of  = `job="kube-state-metrics",cluster="ibis",instance="ibis:8080"`
		pod = of + `,namespace="a",pod="p",uid="1"`
	)
	for days, note := range map[string]string{
		"x..xxxxx": "",
		"xxxxxx..": "",
		"xxx.....": "No pod of ibis requested nvidia_com_gpu on 2026-11-04, 2026-11-05, 2026-11-06, 2026-11-07, 2026-11-08: if some did,",
	} {
		text := `load 5m
  up{` + of + `} 1x2303
  kube_pod_status_phase{` + pod + `,phase="Running"} 1x2303
  kube_pod_container_resource_requests{` + pod + `,container="x",node="n",resource="cpu"} 1x2303
  kube_node_status_capacity{` + of + `,node="n",resource="nvidia_com_gpu"} 1x2303
  kube_node_status_condition{` + of + `,node="n",condition="Ready",status="true"} 1x2303
  kube_pod_container_resource_requests{` + pod + `,container="x",node="n",resource="nvidia_com_gpu"}`
		for _, d := range days {
			text += map[rune]string{'x': " 1x287", '.': " _x288"}[d]
		}
		o := smallOptions(t, loaded(t, text+"\n").URL())
		o.By, o.Range.To = []Dimension{Cluster}, smallFrom.AddDate(0, 0, len(days))
		o.Now = func() time.Time { return o.Range.To }
		b, err := Make(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if note == "" && len(b.Notes) > 0 || note != "" && (len(b.Notes) != 1 || !strings.HasPrefix(b.Notes[0], note)) {
			t.Errorf("%s: the notes are %q", days, b.Notes)
		}
	}
}
