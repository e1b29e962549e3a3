package live

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

func testNodes(t *testing.T, s *stage) {
	type about struct {
		pods     int64
		held     float64
		ready    string
		cordoned bool
	}
	want, may := map[string]*about{}, map[string]bool{}
	for _, p := range s.of(spread) {
		low, high := marks(p.Scheduled, p.Removed, s.from, s.until)
		if p.Scheduled.IsZero() || high == 0 {
			continue
		}
		k := p.cluster + "|" + p.Node
		may[k] = true
		if low == 0 {
			continue
		}
		if want[k] == nil {
			want[k] = &about{ready: "ready"}
		}
		if p.phase(s.until) == "Running" {
			want[k].pods++
			want[k].held += float64(len(p.GPUs))
		}
	}
	want[big+"|"+s.faults[string(cluster.NodeNotReady)].Target].ready = "not ready"
	want[big+"|"+s.faults[string(cluster.NodeCordoned)].Target].cordoned = true
	got, must := map[string]bool{}, map[string]bool{}
	for k := range want {
		must[k] = true
	}
	for _, row := range s.rows(t, `{"queryType":"nodes","experiments":["`+spread+`"]}`) {
		k := id(row, "cluster", "node")
		got[k] = true
		w := want[k]
		if w == nil {
			continue
		}
		if row["state"] != w.ready || row["cordoned"] != w.cordoned || row["gpus"] != 8.0 || row["gpus_held"] != w.held ||
			row["pods"] != w.pods {
			t.Errorf("%v is in truth %+v", row, *w)
		}
		util, ok := row["util"].(float64)
		ofNode := slices.DeleteFunc(s.of(spread), func(p truePod) bool { return p.cluster != row["cluster"] || p.Node != row["node"] })
		if truth := s.use(t, ofNode, s.from.Add(every), 5*time.Minute); !ok || math.Abs(util-truth) > 5 {
			t.Errorf("the GPUs of %s were used to %v %%, and in truth to %v", k, row["util"], truth)
		}
	}
	between(t, "nodes", got, must, may)
}

// gpus are the readings of one metric of the GPUs of a node, by index, as its page has them at a
// moment.
func (s *stage) gpus(t *testing.T, name, node, metric string, at time.Time) map[int]float64 {
	t.Helper()
	out := map[int]float64{}
	for _, tg := range s.models[name].Targets() {
		if tg.Job != cluster.JobDCGM || tg.Labels.Get("node") != node {
			continue
		}
		err := s.models[name].Series(tg, at, func(l labels.Labels, v float64, _ metricType) {
			if l.Get("__name__") != metric || l.Get("pod") == "" {
				return
			}
			gpu, err := strconv.Atoi(l.Get("gpu"))
			if err != nil {
				t.Fatal(err)
			}
			out[gpu] = v
		})
		if err != nil {
			t.Logf("%s does not answer at %s: %v", node, at, err)
		}
	}
	return out
}

// use is the mean use of the GPUs that pods had while they ran, from a time to the window's end,
// looked at once a step.
func (s *stage) use(t *testing.T, pods []truePod, from time.Time, step time.Duration) float64 {
	t.Helper()
	sum, n := 0.0, 0.0
	for at := from; !at.After(s.until); at = at.Add(step) {
		for _, p := range pods {
			if p.phase(at) != "Running" {
				continue
			}
			for gpu, v := range s.gpus(t, p.cluster, p.Node, "DCGM_FI_DEV_GPU_UTIL", at) {
				if slices.Contains(p.GPUs, gpu) && v <= 100 {
					sum, n = sum+v, n+1
				}
			}
		}
	}
	return sum / n
}

// gpuTruth is what each metric is on DCGM's page: the field, the largest value that is a reading,
// and how far a point may be from them.
var gpuTruth = map[string]struct {
	field       string
	most, slack float64
}{
	"util":   {"DCGM_FI_DEV_GPU_UTIL", 100, 4},
	"tensor": {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 1, 0.04},
	"dram":   {"DCGM_FI_PROF_DRAM_ACTIVE", 1, 0.04},
	"mem":    {"DCGM_FI_DEV_FB_USED", 1e6, 1},
	"power":  {"DCGM_FI_DEV_POWER_USAGE", 1e4, 15},
	"temp":   {"DCGM_FI_DEV_GPU_TEMP", 150, 3},
}

func testGPUTimeSeries(t *testing.T, s *stage) {
	must, may := map[string]bool{}, map[string]bool{}
	for _, p := range s.of(spread) {
		if p.Started.IsZero() {
			continue
		}
		low, high := marks(p.Started, p.Ended, s.from, s.until)
		for _, g := range p.GPUs {
			k := fmt.Sprintf("%s|%s|%d", p.cluster, p.Node, g)
			must[k], may[k] = must[k] || low > 2, may[k] || high > 0
		}
	}
	maps.DeleteFunc(must, func(_ string, v bool) bool { return !v })
	for _, metric := range model.Metrics {
		t.Run(string(metric), func(t *testing.T) { s.gpuLines(t, string(metric), must, may) })
	}
	// One GPU was held hot by a trouble until after the window.
	hot := s.faults[string(cluster.GPUHot)].Target
	frames := s.frames(t, `{"queryType":"gpu_timeseries","metric":"temp","groupBy":["node","gpu"],"clusters":["`+big+`"],"rank":"top","k":1}`)
	if len(frames) != 1 {
		t.Fatalf("the hottest GPU is %d", len(frames))
	}
	l, last := frames[0].Fields[1].Labels, frames[0].Fields[1].Len()-1
	if v, _ := frames[0].Fields[1].FloatAt(last); l["node"]+"/"+l["gpu"] != hot || v != 92 {
		t.Errorf("the hottest GPU is %v with %v °C at the end, and in truth %s with 92", l, v, hot)
	}
}

// gpuLines compares the lines of one metric: of which GPUs there are some, and some of their
// points.
func (s *stage) gpuLines(t *testing.T, metric string, must, may map[string]bool) {
	truth, ok := gpuTruth[metric]
	if !ok {
		t.Fatal("it is not said what it is on DCGM's page: add it to gpuTruth")
	}
	got := map[string]bool{}
	compared := 0
	for _, f := range s.frames(t, `{"queryType":"gpu_timeseries","metric":"`+metric+`","groupBy":["cluster","node","gpu"],"experiments":["`+spread+`"]}`) {
		l := f.Fields[1].Labels
		k := l["cluster"] + "|" + l["node"] + "|" + l["gpu"]
		got[k] = true
		gpu, _ := strconv.Atoi(l["gpu"])
		for i := 0; i < f.Fields[0].Len(); i += 71 {
			at := f.Fields[0].At(i).(time.Time)
			if !s.quiet(at) {
				continue
			}
			v, _ := f.Fields[1].FloatAt(i)
			// The reading is up to a scrape and an evaluation older than the point; it moves a
			// little meanwhile.
			low, high := math.Inf(1), math.Inf(-1)
			for back := time.Duration(0); back <= every+late; back += 15 * time.Second {
				if w, ok := s.gpus(t, l["cluster"], l["node"], truth.field, at.Add(-back))[gpu]; ok && w <= truth.most {
					low, high = min(low, w), max(high, w)
				}
			}
			if v < low-truth.slack || v > high+truth.slack {
				t.Errorf("%s at %s: %v, and in truth between %v and %v", k, at.UTC(), v, low, high)
			}
			compared++
		}
	}
	between(t, "GPUs", got, must, may)
	if compared < 20 {
		t.Errorf("only %d points were compared", compared)
	}
}

func testGPUHealth(t *testing.T, s *stage) {
	holders := 0
	for _, name := range s.names() {
		got, must, may := map[string]bool{}, map[string]bool{}, map[string]bool{}
		// Who is named as the one that had the GPU, and who had it when such an Xid came.
		named, had := map[string]bool{}, map[string]bool{}
		for _, row := range s.rows(t, fmt.Sprintf(`{"queryType":"gpu_health","experiments":[%s]}`, quote(name))) {
			if strings.HasPrefix(row["fault"].(string), "Xid ") {
				k := id(row, "cluster", "node", "gpu", "fault")
				got[k] = true
				if pod := row["pod"].(string); pod != "" {
					named[k+"|"+pod] = true
				}
				if row["class"] == "" || row["action"] == "" || row["text"] == "" {
					t.Errorf("%v says not what it is or what to do", row)
				}
				gpu, _ := strconv.Atoi(row["gpu"].(string))
				if g, err := s.models[row["cluster"].(string)].GPU(row["node"].(string), gpu); err != nil || g.UUID != row["UUID"] ||
					g.Model != row["model"] {
					t.Errorf("%v is in truth %+v (%v)", row, g, err)
				}
			}
		}
		for _, p := range s.of(name) {
			if p.Started.IsZero() {
				continue
			}
			xids, err := s.models[p.cluster].Xids(p.Node, s.from.Add(-before), s.until)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range xids {
				held := slices.Contains(p.GPUs, x.GPU) && !x.At.Before(p.Started) && !x.At.After(p.Ended.Add(13*time.Minute))
				if !held {
					continue
				}
				k := fmt.Sprintf("%s|%s|%d|Xid %d", p.cluster, p.Node, x.GPU, x.Code)
				may[k], had[k+"|"+p.Name] = true, true
				// What happened at the edges may be in the next step; a pod that was never seen
				// with its GPU held nothing.
				low, _ := marks(p.Started, p.Ended, s.from, s.until)
				if !x.At.After(p.Ended) && low > 2 && x.At.After(s.from.Add(10*time.Minute)) && x.At.Before(s.until.Add(-10*time.Minute)) {
					must[k] = true
				}
			}
		}
		for k := range must {
			if !got[k] {
				t.Errorf("%.100q: %s is missing", name, k)
			}
		}
		for k := range got {
			if !may[k] {
				t.Errorf("%.100q: %s is too much", name, k)
			}
		}
		for k := range named {
			if !had[k] {
				t.Errorf("%.100q: %s had not the GPU then", name, k)
			}
		}
		holders += len(named)
		if name == spread {
			want := big + "|" + strings.Replace(s.faults[string(cluster.GPUXidFatal)].Target, "/", "|", 1) + "|Xid 95"
			if !must[want] || !got[want] {
				t.Errorf("the Xid that was staged, %s, is not there: %v", want, got)
			}
		}
	}
	if holders == 0 {
		t.Error("no pod is named that had a GPU with an Xid")
	}
	classes := map[string]float64{}
	for _, f := range s.frames(t, `{"queryType":"gpu_health","view":"count","experiments":["`+spread+`"]}`) {
		v, _ := f.Fields[0].FloatAt(0)
		classes[f.Fields[0].Labels["class"]] = v
	}
	if classes["hard"] < 1 || classes["thermal"] < 1 || len(classes) < 8 {
		t.Errorf("counts by class: %v; in truth there are an Xid 95 and a hot GPU", classes)
	}
}

func testStragglers(t *testing.T, s *stage) {
	// The gang of the small cluster holds its GPUs and does nothing: it is behind the median of the
	// run, of which it is the smaller part.
	got, must := map[string]bool{}, map[string]bool{}
	uuids := map[string]string{}
	for _, p := range s.of(spread) {
		if p.cluster == small && p.phase(s.until) == "Running" {
			for _, gpu := range p.GPUs {
				k := fmt.Sprintf("%s|%s|%d", p.cluster, p.Node, gpu)
				must[k] = true
				g, err := s.models[small].GPU(p.Node, gpu)
				if err != nil {
					t.Fatal(err)
				}
				uuids[k] = g.UUID
			}
		}
	}
	for _, row := range s.rows(t, `{"queryType":"stragglers","experiments":["`+spread+`"]}`) {
		k := id(row, "cluster", "node", "gpu")
		got[k] = true
		if row["UUID"] != uuids[k] || row["share"].(float64) > 0.2 ||
			!near(row["share"].(float64)*row["median"].(float64), row["value"].(float64), 1e-6) && row["value"] != 0.0 {
			t.Errorf("%v; in truth its UUID is %q and it does nothing", row, uuids[k])
		}
	}
	between(t, "stragglers", got, must, must)
}
