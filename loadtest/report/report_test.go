package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// storm is a made-up test with every kind of thing in it: an idle stretch, a server that dies, a
// proxy, refusals, a limit, notes.
func storm() *Report {
	const mb = 1 << 20
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	// A server at rest breathes: allocation and collection.
	rest := func(i, base int) int64 {
		return int64(float64(base*mb) + 9*mb*math.Sin(float64(i)/7) + 5*mb*math.Sin(float64(i)/2.3))
	}
	direct, through := Run{Name: "Asked directly", Storm: Span{ms(8000), ms(11600)}},
		Run{Name: "Through Spillway", Storm: Span{ms(8000), ms(20000)}}
	var server, other, behind, behind2, proxy []Sample
	for i := range 300 {
		at := ms(i * 100)
		other = append(other, Sample{at, rest(i+40, 1310)})
		behind = append(behind, Sample{at, rest(i, 1445)})
		behind2 = append(behind2, Sample{at, rest(i+40, 1310)})
		p := int64(44 * mb)
		if i > 80 {
			p += int64(38 * mb * (1 - math.Exp(-float64(i-80)/12)))
			behind[i].Bytes += 21 * mb
		}
		proxy = append(proxy, Sample{at, p})
		if i <= 116 {
			s := rest(i, 1445)
			if i > 80 {
				x := float64(i-80) / 36
				s += int64(1560 * mb * (0.25*x + 0.75*x*x))
			}
			server = append(server, Sample{at, s})
		}
	}
	direct.Processes = []Process{
		{Name: "prometheus-0", RSS: server, Died: ms(11600), Death: "out of memory"},
		{Name: "prometheus-1", RSS: other},
	}
	through.Processes = []Process{
		{Name: "prometheus-0", RSS: behind},
		{Name: "prometheus-1", RSS: behind2},
		{Name: "spillway", Role: Proxy, RSS: proxy},
	}
	for i := range 8 {
		direct.Requests = append(direct.Requests, Request{Began: ms(8000), Took: ms(3600 + i), Outcome: "connection reset"})
	}
	for i := range 400 {
		q := Request{Began: ms(8000 + 30*i), Took: ms(90 + i%37*9), Outcome: "200", OK: true, Bytes: 187_342}
		if i%50 == 49 {
			q.Outcome, q.OK, q.Bytes, q.Took = "429", false, 412, ms(700)
		}
		through.Requests = append(through.Requests, q)
	}
	return &Report{
		Title: "The killer query, asked by eight callers at once",
		Lead:  `Eight callers ask /api/v1/series?match[]={le!=""} of Prometheus servers with 1,000,000 series each. Each server may use 3 GiB.`,
		Runs:  []Run{direct, through},
		Limit: 3 << 30, LimitName: "limit of each server",
		Notes: []string{"Prometheus 3.15.0, 2 cores. Repeat it with: spillway-lab loadtest oom --series 1000000 --callers 8", "<script>alert(1)</script> & other texts stay texts."},
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what it was; if it is meant to change, look at it in a browser and run the test with -update", path)
	}
}

// The outputs are those that were looked at, byte by byte, and are the same each time.
func TestGolden(t *testing.T) {
	for name, write := range map[string]func(*Report, io.Writer) error{
		"storm.txt":  (*Report).WriteText,
		"storm.html": (*Report).WriteHTML,
		"storm.svg":  (*Report).WriteSVG,
	} {
		var first, second bytes.Buffer
		if err := errors.Join(write(storm(), &first), write(storm(), &second)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("%s: the same report has given different bytes", name)
		}
		golden(t, name, first.Bytes())
	}
}

// The legend names a proxy that stands in all runs, and no one of several.
func TestLegendOfPeers(t *testing.T) {
	r := storm()
	var one, several bytes.Buffer
	peer := r.Runs[1]
	peer.Name, peer.Processes = "Through promxy", slices.Clone(peer.Processes)
	peer.Processes[2].Name = "promxy"
	err := r.WriteSVG(&one)
	r.Runs = append(r.Runs, peer)
	if err = errors.Join(err, r.WriteSVG(&several)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		svg        string
		want, lack string
	}{{one.String(), ">Spillway<", "proxy before them"}, {several.String(), ">the proxy before them<", ">Spillway<"}} {
		if !strings.Contains(tc.svg, tc.want) || strings.Contains(tc.svg, tc.lack) {
			t.Errorf("a picture lacks %q or has %q", tc.want, tc.lack)
		}
	}
}

func TestValidate(t *testing.T) {
	for sentence, spoil := range map[string]func(*Report){
		"title: must not be empty":                                     func(r *Report) { r.Title = "" },
		"runs: there must be one at least":                             func(r *Report) { r.Runs = nil },
		"limit: -1 bytes":                                              func(r *Report) { r.Limit = -1 },
		"runs[1].name: must not be empty":                              func(r *Report) { r.Runs[1].Name = "" },
		"runs[0].storm: from 8s to 1s":                                 func(r *Report) { r.Runs[0].Storm.End = time.Second },
		"runs[0].processes: there must be one":                         func(r *Report) { r.Runs[0].Processes = nil },
		"runs[0].processes[1].name":                                    func(r *Report) { r.Runs[0].Processes[1].Name = "" },
		"runs[0].processes[1].rss: there must be one sample":           func(r *Report) { r.Runs[0].Processes[1].RSS = nil },
		"runs[0].processes[1].rss[7]":                                  func(r *Report) { r.Runs[0].Processes[1].RSS[7].At = 0 },
		"runs[0].processes[0].died: it died at 1s, but has a sample":   func(r *Report) { r.Runs[0].Processes[0].Died = time.Second },
		"runs[1].requests[3]: began, took and bytes must not be negat": func(r *Report) { r.Runs[1].Requests[3].Outcome = "" },
	} {
		r := storm()
		spoil(r)
		var b bytes.Buffer
		for what, err := range map[string]error{
			"Validate": r.Validate(), "WriteText": r.WriteText(&b), "WriteHTML": r.WriteHTML(&b),
			"WriteSVG": r.WriteSVG(&b), "WritePNG": r.WritePNG(&b, 1),
		} {
			if err == nil || !strings.Contains(err.Error(), sentence) || b.Len() > 0 {
				t.Errorf("%s: error %v, want one with %q and nothing written", what, err, sentence)
			}
		}
	}
	all := (&Report{Limit: -1, Runs: []Run{{}}}).Validate()
	if n := strings.Count(all.Error(), "\n") + 1; n != 4 {
		t.Errorf("%d problems at once, want 4: %v", n, all)
	}
}

// The page is one file: it names nothing outside itself, runs nothing, and its picture is
// well-formed.
func TestSelfContained(t *testing.T) {
	var page, picture bytes.Buffer
	if err := errors.Join(storm().WriteHTML(&page), storm().WriteSVG(&picture)); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"<script", "<link", "<img", "src=", "@import", "url("} {
		if strings.Contains(page.String(), word) {
			t.Errorf("the page has %q in it", word)
		}
	}
	d := xml.NewDecoder(&picture)
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the picture is not XML: %v", err)
		}
	}
}

func TestPNG(t *testing.T) {
	for _, scale := range []int{1, 2} {
		var b bytes.Buffer
		if err := storm().WritePNG(&b, scale); err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(&b)
		if err != nil {
			t.Fatal(err)
		}
		if s := img.Bounds().Size(); s.X != 900*scale || s.Y != int(math.Round(float64(pictureHeight/px)))*scale {
			t.Errorf("scale %d: %v", scale, s)
		}
	}
	if err := storm().WritePNG(io.Discard, 0); err == nil {
		t.Error("a picture of no size was written")
	}
}

func TestSave(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.txt", "a.html", "a.svg", "a.png"} {
		if err := storm().Save(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Size() < 1000 {
			t.Errorf("%v, %v", st, err)
		}
	}
	if err := storm().Save(filepath.Join(dir, "a.gif")); err == nil || !strings.Contains(err.Error(), "must end in") {
		t.Errorf("a.gif: %v", err)
	}
	if err := storm().Save(filepath.Join(dir, "no", "a.txt")); err == nil {
		t.Error("saved into a folder that is not there")
	}
	if err := (&Report{}).Save(filepath.Join(dir, "b.txt")); err == nil {
		t.Error("saved an empty report")
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 4 {
		t.Errorf("left behind: %v, %v", files, err)
	}
}

func TestAnswers(t *testing.T) {
	var run Run
	if a := run.Answers(); a.Asked != 0 || a.Outcomes != nil {
		t.Errorf("nothing asked: %+v", a)
	}
	for i := range 100 {
		run.Requests = append(run.Requests,
			Request{Took: time.Duration(100-i) * time.Second, Outcome: []string{"b", "a", "a", "c"}[i%4], OK: i%4 == 1, Bytes: int64(i)})
	}
	a := run.Answers()
	if a.Asked != 100 || a.OK != 25 || a.P50 != 50*time.Second || a.P99 != 99*time.Second || a.Max != 100*time.Second || a.Bytes != 99 ||
		fmt.Sprint(a.Outcomes) != "[{a 50} {b 25} {c 25}]" {
		t.Errorf("%+v", a)
	}
	run.Requests = run.Requests[:1]
	if a := run.Answers(); a.P50 != 100*time.Second || a.P99 != 100*time.Second {
		t.Errorf("one request: %+v", a)
	}
}

func TestMemory(t *testing.T) {
	run := Run{Storm: Span{10 * time.Second, 20 * time.Second}}
	s := func(pairs ...int64) (out []Sample) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, Sample{time.Duration(pairs[i]) * time.Second, pairs[i+1]})
		}
		return out
	}
	for _, tc := range []struct {
		rss  []Sample
		want Memory
	}{
		{nil, Memory{}},
		{s(0, 5, 5, 7, 9, 6, 10, 9, 15, 20, 25, 8), Memory{7, 20, 8}},
		{s(10, 5, 12, 9), Memory{5, 9, 9}}, // watched from the storm on
		{s(0, 5, 5, 4), Memory{5, 4, 4}},   // ended before it
		{s(0, 9, 12, 7), Memory{9, 7, 7}},  // shrank
	} {
		if got := run.Memory(Process{RSS: tc.rss}); got != tc.want {
			t.Errorf("%v: %+v, want %+v", tc.rss, got, tc.want)
		}
	}
}

func TestSummary(t *testing.T) {
	r := storm()
	for i, want := range []string{
		"1 of 2 servers dead, the first after 3.60 s; 0 of 8 requests answered",
		"server memory +23 MiB; 392 of 400 requests answered, slowest 0.41 s",
	} {
		if got := r.Runs[i].Summary(); got != want {
			t.Errorf("summary %q, want %q", got, want)
		}
	}
	if got := (Run{Processes: r.Runs[0].Processes[:1], Storm: r.Runs[0].Storm}).Summary(); got != "server dead after 3.60 s" {
		t.Errorf("summary %q", got)
	}
	if got := (Run{Processes: r.Runs[1].Processes[2:]}).Summary(); got != "" {
		t.Errorf("summary %q", got)
	}
}

// A curve is thinned without losing its ends or its peak.
func TestThin(t *testing.T) {
	for _, n := range []int{1, 2, maxPoints, maxPoints + 1, 12_345} {
		all := make([]Sample, n)
		for i := range all {
			all[i] = Sample{time.Duration(i) * time.Second, 1 << 20}
		}
		all[n/2].Bytes = 99 << 20
		got := thin(all)
		peak := 0.0
		for i, p := range got {
			peak = max(peak, p.Y)
			if i > 0 && p.X <= got[i-1].X {
				t.Errorf("%d samples: point %d is not after the one before", n, i)
			}
		}
		if len(got) > maxPoints || peak != 99 || got[0].X != 0 || got[len(got)-1].X != float64(n-1) {
			t.Errorf("%d samples: %d points from %v to %v, peak %v", n, len(got), got[0], got[len(got)-1], peak)
		}
	}
}

// The axes have a handful of round ticks, from a tenth of a second to days and from a mebibyte to
// tebibytes.
func TestScale(t *testing.T) {
	for _, end := range []time.Duration{0, time.Second, 7 * time.Second, 33 * time.Second, 5 * time.Minute, 3 * time.Hour, 90 * time.Hour} {
		for _, top := range []int64{0, 1, 70 << 20, 3 << 30, 5 << 40} {
			r := &Report{Runs: []Run{{Processes: []Process{{RSS: []Sample{{end, top}}}}}}}
			s := r.scale()
			for name, n := range map[string]int{"x": len(s.xTicks), "y": len(s.yTicks)} {
				if n < 2 || n > 8 {
					t.Errorf("%s, %d bytes: %d ticks on %s", end, top, n, name)
				}
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		mib(0): "0", mib(1 << 19): "1", mib(999 << 20): "999", mib(1445 << 20): "1,445", mib(1234567 << 20): "1,234,567",
		mib(-1445 << 20): "-1,445", mib(-5 << 20): "-5",
		growth(1120 << 20): "+1,120 MiB", growth(-7 << 20): "-7 MiB",
		seconds(40 * time.Millisecond): "0.04 s", seconds(12345 * time.Millisecond): "12.3 s", seconds(3 * time.Minute): "180 s",
		size(17): "17 B", size(1536): "1.5 KiB", size(3 << 20): "3.0 MiB",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
