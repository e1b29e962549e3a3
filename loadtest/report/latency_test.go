package report

import (
	"bytes"
	"image/png"
	"strings"
	"testing"
	"time"
)

// withLatency is the made-up test with people beside it, whose answers the first run loses.
func withLatency() *Report {
	r := storm()
	for i := range 200 {
		at := time.Duration(i) * 100 * time.Millisecond
		lost := at > r.Runs[0].Storm.End
		direct := Point{At: at, Took: time.Duration(5+i%7) * time.Millisecond, OK: !lost}
		if at > r.Runs[0].Storm.Begin {
			direct.Took *= 100
		}
		r.Runs[0].Latency = append(r.Runs[0].Latency, direct)
		r.Runs[1].Latency = append(r.Runs[1].Latency, Point{At: at, Took: time.Duration(5+i%7) * time.Millisecond, OK: true})
	}
	r.LatencyName = "on-call"
	r.Tables = []Table{{
		Name: "By <part>", Head: []string{"part", "asked"}, Right: []bool{false, true}, Rows: [][]string{{"wall & all", "12"}},
	}}
	return r
}

// TestLatency: latency has a panel of its own under each run, in the page too, and what was lost is
// marked.
func TestLatency(t *testing.T) {
	height := func(r *Report) int {
		var b bytes.Buffer
		if err := r.WritePNG(&b, 1); err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(&b)
		if err != nil {
			t.Fatal(err)
		}
		return img.Bounds().Dy()
	}
	if without, with := height(storm()), height(withLatency()); with < without+150 {
		t.Errorf("the picture has %d pixels with latency and %d without", with, without)
	}
	svg := func(r *Report) string {
		var b strings.Builder
		if err := r.WriteSVG(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	all := svg(withLatency())
	if strings.Count(all, ">on-call<") != 2 || !strings.Contains(all, ">0.001 s<") || !strings.Contains(all, ">10 s<") {
		t.Error("the axes of latency are not drawn")
	}
	r := withLatency()
	for i := range r.Runs[0].Latency {
		r.Runs[0].Latency[i].OK = true
	}
	if kept := svg(r); strings.Count(kept, "<path") >= strings.Count(all, "<path") {
		t.Error("requests without an answer are not marked")
	}
	r.Runs[0].Latency[3].At = 0
	if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "runs[0].latency[3]") {
		t.Errorf("points out of order: %v", err)
	}
}

// TestTables: further tables stand in the text and in the page, with what is hostile in them as
// text.
func TestTables(t *testing.T) {
	var text, page strings.Builder
	r := withLatency()
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "By <part>\npart        asked\nwall & all     12\n") {
		t.Errorf("%s", text.String())
	}
	if !strings.Contains(page.String(), "<h2>By &lt;part&gt;</h2>") ||
		!strings.Contains(page.String(), "<td>wall &amp; all</td><td class=\"n\">12</td>") {
		t.Error("the page lacks the table")
	}
	r.Tables[0].Rows[0] = r.Tables[0].Rows[0][:1]
	if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "tables[0]") {
		t.Errorf("a row that is too short: %v", err)
	}
}
