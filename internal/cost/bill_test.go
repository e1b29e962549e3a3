package cost

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/localprom"
)

var update = flag.Bool("update", false, "write the files of testdata anew")

// small is one hour and a half of two clusters, written by hand: what each pod held is in the
// comments. The second cluster has no data in the second hour.
const small = `load 1m
  up{job="kube-state-metrics",cluster="jaguar",instance="a"} 1x119
  up{job="kube-state-metrics",cluster="ibis",instance="a"} 1x59 _x60
  up{job="other",cluster="jaguar",instance="b"} 1x119

  # 8 GPUs for 90 minutes, twice as many containers as GPUs are counted once: 4 + 4
  kube_pod_status_phase{job="kube-state-metrics",cluster="jaguar",instance="a",namespace="research-vision",pod="w-0",uid="1",phase="Running"} 0x29 1x89
  kube_pod_container_resource_requests{job="kube-state-metrics",cluster="jaguar",instance="a",namespace="research-vision",pod="w-0",uid="1",container="x",node="n1",resource="nvidia_com_gpu"} _x30 4x88
  kube_pod_container_resource_requests{job="kube-state-metrics",cluster="jaguar",instance="a",namespace="research-vision",pod="w-0",uid="1",container="x",resource="nvidia_com_gpu"} 4x29 _x90
  kube_pod_container_resource_requests{job="kube-state-metrics",cluster="jaguar",instance="a",namespace="research-vision",pod="w-0",uid="1",container="y",node="n1",resource="nvidia_com_gpu"} _x30 4x88
  kube_pod_labels{job="kube-state-metrics",cluster="jaguar",instance="a",namespace="research-vision",pod="w-0",uid="1",label_experiment="=sum(A1)"} 1x119

  # the same name twice: 2 GPUs for 20 minutes, then 1 GPU for 40 minutes; never at once
  kube_pod_status_phase{job="kube-state-metrics",cluster="jaguar",instance="a",namespace="sandbox",pod="w-0",uid="2",phase="Running"} 1x19 _x100
  kube_pod_container_resource_requests{job="kube-state-metrics",cluster="jaguar",instance="a",namespace="sandbox",pod="w-0",uid="2",container="x",node="n2",resource="nvidia_com_gpu"} 2x19 _x100
  kube_pod_status_phase{job="kube-state-metrics",cluster="jaguar",instance="a",namespace="sandbox",pod="w-0",uid="3",phase="Running"} _x20 1x39 _x60
  kube_pod_container_resource_requests{job="kube-state-metrics",cluster="jaguar",instance="a",namespace="sandbox",pod="w-0",uid="3",container="x",node="n2",resource="nvidia_com_gpu"} _x20 1x39 _x60

  # waits all the time; asks for no GPU; is done
  kube_pod_status_phase{job="kube-state-metrics",cluster="jaguar",instance="a",namespace="sandbox",pod="p",uid="4",phase="Running"} 0x119
  kube_pod_container_resource_requests{job="kube-state-metrics",cluster="jaguar",instance="a",namespace="sandbox",pod="p",uid="4",container="x",resource="nvidia_com_gpu"} 64x119
  kube_pod_status_phase{job="kube-state-metrics",cluster="jaguar",instance="a",namespace="sandbox",pod="cpu",uid="5",phase="Running"} 1x119

  # 1 GPU in the other cluster, as long as it is seen
  kube_pod_status_phase{job="kube-state-metrics",cluster="ibis",instance="a",namespace="research-audio",pod="w-0",uid="1",phase="Running"} 1x59 _x60
  kube_pod_container_resource_requests{job="kube-state-metrics",cluster="ibis",instance="a",namespace="research-audio",pod="w-0",uid="1",container="x",node="n1",resource="nvidia_com_gpu"} 1x59 _x60

  kube_namespace_labels{job="kube-state-metrics",cluster="ibis",instance="a",namespace="research-audio",label_team="audio"} 1x59 _x60
  kube_namespace_labels{job="kube-state-metrics",cluster="jaguar",instance="a",namespace="sandbox"} 1x119
  kube_node_labels{job="kube-state-metrics",cluster="jaguar",instance="a",node="n1",label_nvidia_com_gpu_product="NVIDIA-H100-80GB-HBM3"} 1x119
  kube_node_labels{job="kube-state-metrics",cluster="jaguar",instance="a",node="n2",label_nvidia_com_gpu_product="NVIDIA-L4"} 1x119
  kube_node_status_capacity{job="kube-state-metrics",cluster="jaguar",instance="a",node="n1",resource="nvidia_com_gpu"} 8x119
  kube_node_status_allocatable{job="kube-state-metrics",cluster="jaguar",instance="a",node="n1",resource="nvidia_com_gpu"} 8x119
  kube_node_status_condition{job="kube-state-metrics",cluster="jaguar",instance="a",node="n1",condition="Ready",status="true"} 1x119
  # one GPU of four is unhealthy all the time, all of them in the second hour
  kube_node_status_capacity{job="kube-state-metrics",cluster="jaguar",instance="a",node="n2",resource="nvidia_com_gpu"} 4x119
  kube_node_status_allocatable{job="kube-state-metrics",cluster="jaguar",instance="a",node="n2",resource="nvidia_com_gpu"} 3x119
  kube_node_status_condition{job="kube-state-metrics",cluster="jaguar",instance="a",node="n2",condition="Ready",status="true"} 1x59 0x59

  # half of the GPUs of w-0 work; a blank of DCGM is no work
  DCGM_FI_PROF_GR_ENGINE_ACTIVE{cluster="jaguar",namespace="research-vision",pod="w-0",gpu="0"} 1x119
  DCGM_FI_PROF_GR_ENGINE_ACTIVE{cluster="jaguar",namespace="research-vision",pod="w-0",gpu="1"} 0x119
  DCGM_FI_PROF_GR_ENGINE_ACTIVE{cluster="jaguar",namespace="research-vision",pod="w-0",gpu="2"} 9223372036854775794x119
`

var smallFrom = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

func smallServer(t *testing.T) *localprom.Shard {
	t.Helper()
	return loaded(t, small)
}

// loaded is a server that holds what a text of promtool's test language says, from smallFrom on.
func loaded(t *testing.T, text string) *localprom.Shard {
	t.Helper()
	s, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.LoadAt(text, smallFrom); err != nil {
		t.Fatal(err)
	}
	return s
}

func smallOptions(t *testing.T, url string) Options {
	return Options{
		Client: testClient(t, url), Range: Range{smallFrom, smallFrom.Add(2 * time.Hour), time.UTC},
		By: []Dimension{Cluster, Team, Namespace, Experiment, Model},
		Directory: &Directory{
			Currency: "USD", Prices: map[string]float64{"*H100*": 2.5},
			Teams: []TeamEntry{{Name: "vision", Contact: "#vision", Namespaces: []string{"research-vision"}}},
		},
		Now: func() time.Time { return smallFrom.Add(48 * time.Hour) },
	}
}

// TestSmall: a bill small enough to be checked by head, in all three forms.
func TestSmall(t *testing.T) {
	o := smallOptions(t, smallServer(t).URL())
	b, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	hours := map[string]string{}
	for _, r := range b.Rows {
		hours[strings.Join(r.Keys, " ")] = r.GPUHours.String()
	}
	want := map[string]string{
		"jaguar vision research-vision =sum(A1) NVIDIA-H100-80GB-HBM3": "12.000", "jaguar unassigned sandbox - NVIDIA-L4": "1.333", "ibis audio research-audio - -": "1.000",
	}
	if fmt.Sprint(hours) != fmt.Sprint(want) {
		t.Errorf("billed %v, not %v", hours, want)
	}
	if b.Total.GPUHours != 14333 || b.Total.Cost == nil || *b.Total.Cost != 3000 || b.Total.Unpriced != 2333 {
		t.Errorf("the total is %+v", b.Total)
	}
	golden(t, "small.txt", b.WriteTable)
	golden(t, "small.csv", b.WriteCSV)
	golden(t, "small.json", b.WriteJSON)

	o.Daily, o.By, o.Range.Location = true, []Dimension{Team}, time.FixedZone("UTC-1", -3600) // the second hour is a day of its own
	if b, err = Make(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	golden(t, "daily.txt", b.WriteTable)
	golden(t, "daily.csv", b.WriteCSV)
}

// golden compares what is written with a file of testdata.
func golden(t *testing.T, name string, write func(io.Writer) error) {
	t.Helper()
	var got bytes.Buffer
	if err := write(&got); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name)
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(file, got.Bytes(), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("%s has changed (-update writes it anew):\n%s", file, got.String())
	}
	switch filepath.Ext(name) {
	case ".csv":
		if _, err := csv.NewReader(&got).ReadAll(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	case ".json":
		if !json.Valid(got.Bytes()) {
			t.Errorf("%s is no JSON", name)
		}
	}
}

// TestImbalance: where the servers' own count differs from what the rows have, there is no bill but
// the difference. A proxy between takes a pod out of one answer.
func TestImbalance(t *testing.T) {
	s := smallServer(t)
	for _, c := range []struct {
		name, of, without string
		want              string
	}{
		{"a pod is missing", "group_left", "", ""},
		{
			"a pod is missing", `> 0`, `{"metric":{"cluster":"ibis","instance":"a","namespace":"research-audio","pod":"w-0","uid":"1"}`,
			"the bill does not add up in ibis from 2026-11-01T00:00:00Z to 2026-11-01T01:00:00Z: its rows have 0.0000 GPU hours, allocated were 1.0000, a difference of -1.0000",
		},
		{
			"a cluster is missing", "group_left", `{"metric":{"cluster":"jaguar","instance":"a"}`,
			"the bill does not add up in jaguar from 2026-11-01T00:00:00Z to 2026-11-01T01:00:00Z: its rows have 5.3333 GPU hours, allocated were 0.0000, a difference of 5.3333",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = r.ParseForm()
				resp, err := http.PostForm(s.URL()+r.URL.Path, r.Form)
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				var a struct {
					Status string `json:"status"`
					Data   struct {
						ResultType string            `json:"resultType"`
						Result     []json.RawMessage `json:"result"`
					} `json:"data"`
				}
				if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
					t.Error(err)
				}
				left := []json.RawMessage{}
				for _, x := range a.Data.Result {
					if c.without == "" || !strings.Contains(r.FormValue("query"), c.of) || !strings.HasPrefix(string(x), c.without) {
						left = append(left, x)
					}
				}
				a.Data.Result = left
				_ = json.NewEncoder(w).Encode(a)
			}))
			defer srv.Close()
			defer http.DefaultClient.CloseIdleConnections()
			b, err := Make(t.Context(), smallOptions(t, srv.URL))
			if c.want == "" {
				if err != nil {
					t.Errorf("with all answers: %v", err)
				}
				return
			}
			var e *Imbalance
			if b != nil || !errors.As(err, &e) || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%v\nnot\n%s", err, c.want)
			}
		})
	}
}

// TestNoData: a range in which nothing was scraped has no bill, not one of zero; neither has a
// wrong selector.
func TestNoData(t *testing.T) {
	o := smallOptions(t, smallServer(t).URL())
	o.Names.Selector = `job="ksm"`
	if _, err := Make(t.Context(), o); err == nil || !strings.Contains(err.Error(), `no scrape of kube-state-metrics was found`) ||
		!strings.Contains(err.Error(), `up{job="ksm"}`) {
		t.Errorf("a wrong selector: %v", err)
	}
	o = smallOptions(t, o.Client.base.String())
	o.Range.From, o.Range.To = smallFrom.Add(5*time.Hour), smallFrom.Add(6*time.Hour)
	if _, err := Make(t.Context(), o); err == nil || !strings.Contains(err.Error(), `no scrape`) {
		t.Errorf("an hour without data: %v", err)
	}
}

// TestShards: where each kube-state-metrics shows a part of the pods the flag that says so must be
// given, and only there.
func TestShards(t *testing.T) {
	text := "load 1m\n"
	for i, shard := range []string{"0", "0", "1", "1"} { // two replicas of each of two shards
		at := fmt.Sprintf(`job="kube-state-metrics",instance="%d",shard="%s"`, i, shard)
		text += fmt.Sprintf("  up{%s} 1x119\n", at)
		for p := range 3 {
			of := fmt.Sprintf(`%s,namespace="a",pod="p",uid="%s-%d"`, at, shard, p)
			text += fmt.Sprintf("  kube_pod_status_phase{%s,phase=\"Running\"} 1x119\n  kube_pod_container_resource_requests{%s,container=\"x\",resource=\"nvidia_com_gpu\"} 1x119\n", of, of)
		}
	}
	s, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.LoadAt(text, smallFrom); err != nil {
		t.Fatal(err)
	}
	o := smallOptions(t, s.URL())
	for label, want := range map[string]string{
		"shard":    "",
		"":         "do not show the same pods",
		"instance": "is counted for longer than",
	} {
		o.Names.ShardLabel = label
		b, err := Make(t.Context(), o)
		switch {
		case want == "" && err != nil:
			t.Error(err)
		case want == "" && b.Total.GPUHours != 12000:
			t.Errorf("%s GPU hours, not 12", b.Total.GPUHours)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("--shard-label=%s: %v", label, err)
		}
	}
}

func TestOptionProblems(t *testing.T) {
	_, err := Make(t.Context(), Options{
		Range: Range{From: smallFrom, To: smallFrom}, By: []Dimension{"user", Team, Team}, MaxGap: time.Millisecond,
		Names: Names{Selector: "job=", ClusterLabel: "a-b", TeamLabels: []string{""}},
	})
	var option *OptionError
	if !errors.As(err, &option) {
		t.Fatal(err)
	}
	for _, want := range []string{
		`--by: "user" is none of cluster, team, person`, "--by: team is there twice", "--max-gap=1ms", "--kube-state-metrics.selector=job=",
		"--cluster-label=a-b is no label name",
		"--team-label= is no label name", "there is no client", "must be after --from",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %s:\n%v", want, err)
		}
	}
}
