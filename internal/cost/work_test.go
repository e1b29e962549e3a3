package cost

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/localprom"
)

const workPrices = "cpu_price: 0.03\nmemory_price: 0.004\n"

// TestWork: builds has 4 cores and 8 GiB for two hours on a node without GPUs, 0.24 + 0.064; vision
// 2 cores for 45 minutes, 0.045. What pods request on nodes with GPUs, the kubelet's own, is paid
// for by these. Nothing else of the bill changes.
func TestWork(t *testing.T) {
	o := machinesOptions(t, machinesDirectory)
	without, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	d, err := ParseDirectory([]byte(machinesDirectory + workPrices))
	if err != nil {
		t.Fatal(err)
	}
	o.Directory = d
	b, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	wantMachines(t, b)
	total := b.Total
	if *total.CPUHours != 9500 || *total.MemoryHours != 16000 || *total.CPUCost != 35 {
		t.Errorf("%s core hours, %s GiB hours, cost %s", *total.CPUHours, *total.MemoryHours, *total.CPUCost)
	}
	if *b.Machines != *without.Machines || total.GPUHours != without.Total.GPUHours || *total.Cost != *without.Total.Cost {
		t.Errorf("the GPUs are %+v and %+v, without other work %+v and %+v", total, *b.Machines, without.Total, *without.Machines)
	}
	golden(t, "work.txt", b.WriteTable)
	golden(t, "work.csv", b.WriteCSV)
	golden(t, "work.json", b.WriteJSON)

	var cores Milli
	var cost Hundredths
	for _, r := range b.Rows {
		cores, cost = cores+*r.CPUHours, cost+*r.CPUCost
	}
	if cores != *total.CPUHours || cost != *total.CPUCost {
		t.Errorf("the rows have %s core hours and %s, the total %s and %s", cores, cost, *total.CPUHours, *total.CPUCost)
	}

	// One price alone bills that alone.
	o.Directory = &Directory{MemoryPrice: d.MemoryPrice}
	if b, err = Make(t.Context(), o); err != nil || *b.Total.CPUCost != 6 || *b.Total.CPUHours != 9500 {
		t.Errorf("by memory alone: %+v, %v", b.Total, err)
	}
}

// without is a server that answers queries with something in them as though there were nothing.
func without(t *testing.T, s *localprom.Shard, something string) *Client {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		if strings.Contains(r.FormValue("query"), something) {
			_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"matrix","result":[]}}`)
			return
		}
		resp, err := http.PostForm(s.URL()+r.URL.Path, r.Form)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		_, _ = io.Copy(w, resp.Body)
	}))
	t.Cleanup(func() {
		srv.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return testClient(t, srv.URL)
}

// TestWorkImbalance: work without GPUs is held against the servers' own count as GPUs are.
func TestWorkImbalance(t *testing.T) {
	o := machinesOptions(t, machinesDirectory+workPrices)
	s := loaded(t, machines())
	for something, want := range map[string]string{
		`resource="cpu"`:                   "the bill does not add up in jaguar from 2026-11-01T00:00:00Z to 2026-11-01T01:00:00Z: its rows have 26.0000 CPU core hours, allocated were 0.0000",
		`resource="mem`:                    "its rows have 9.0000 GiB hours of memory, allocated were 0.0000",
		`resource=~"cpu|memory",namespace`: "its rows have 0.0000 CPU core hours, allocated were 26.0000",
	} {
		o.Client = without(t, s, something)
		var e *Imbalance
		if _, err := Make(t.Context(), o); !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: %v\nnot\n%s", something, err, want)
		}
	}
}

// TestWorkOfReplicas: of two kube-state-metrics that show the same pods one counts.
func TestWorkOfReplicas(t *testing.T) {
	text := machines()
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "load 1m\n"), "\n") {
		text += strings.Replace(line, `instance="a"`, `instance="b"`, 1) + "\n"
	}
	o := machinesOptions(t, machinesDirectory+workPrices)
	o.Client = testClient(t, loaded(t, text).URL())
	b, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	wantMachines(t, b)
	want := Machines{Cost: 6000, Billed: 1250, Free: 4250, Unhealthy: 500, Reserved: 2000, Unpriced: 2000}
	if *b.Total.CPUHours != 9500 || *b.Total.CPUCost != 35 || *b.Machines != want {
		t.Errorf("billed %s core hours, %s; %+v", *b.Total.CPUHours, *b.Total.CPUCost, *b.Machines)
	}
	o.Range.To = smallFrom.Add(90 * time.Minute)
	if b, err = Make(t.Context(), o); err != nil || *b.Total.CPUHours != 7500 {
		t.Errorf("for 90 minutes: %+v, %v", b.Total, err)
	}
}

// TestHasGPUs: a node has GPUs by any sign of them, also where its device plugin is dead.
func TestHasGPUs(t *testing.T) {
	k := nodeKey{"jaguar", "n"}
	for name, f := range map[string]*facts{
		"offers none of them": {fleet: [4]map[at[nodeKey]]map[device]float64{{{k, 0}: {{"a", "nvidia_com_gpu"}: 0}}}},
		"a model":             {model: map[at[nodeKey]]string{{k, 0}: "NVIDIA-L4"}},
		"claims":              {claims: claims{nodes: map[nodeKey]bool{k: true}}},
		"cards":               {claims: claims{cards: map[at[nodeKey]]float64{{k, 0}: 8}}},
		"":                    {model: map[at[nodeKey]]string{{k, 0}: ""}},
	} {
		if got := (&page{f: f}).hasGPUs(k); got != (name != "") {
			t.Errorf("by %q it has GPUs: %v", name, got)
		}
	}
}
