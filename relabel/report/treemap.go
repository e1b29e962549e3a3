package report

import (
	"cmp"
	"slices"

	"github.com/spillwayproject/spillway/relabel"
)

// The size that the map of what is stored is laid out for. It is drawn in shares of what room there
// is, so that its texts keep their size on a small screen.
const (
	mapWidth  = 960.0
	mapHeight = 420.0
	// narrowWidth is that of a telephone.
	narrowWidth = 340.0
	letter      = 6.1 // pixels that a letter of the map takes on average
	mapJobs     = 14  // that have a place of their own
)

// box is a place on the map, in its pixels.
type box struct{ x, y, w, h float64 }

// cell is one metric's place on the map.
type cell struct {
	X, Y, W, H string // in shares of the map
	Gone       string // the width of what goes, in shares of the cell
	GoneX      string // where it begins
	Job, Name  string // as far as there is room; empty where there is none
	Small      bool   // there is room for Job on a telephone
	Title      string
}

// weighed is something with an area.
type weighed struct {
	name            string
	series, dropped int64
	uses            int
	inner           []weighed
}

// worst is how far from a square the rectangles of one row are that is laid along a side.
func worst(row []float64, sum, side float64) float64 {
	bad := 0.0
	for _, a := range row {
		length := sum / side // of the row, across
		w := a / length
		bad = max(bad, length/w, w/length)
	}
	return bad
}

// squarify divides a box among areas in proportion, the largest first, so that the parts are as
// near to squares as may be (Bruls, Huizing and van Wijk, 2000). The areas are sorted, the largest
// first, and positive.
func squarify(areas []float64, in box) []box {
	total := 0.0
	for _, a := range areas {
		total += a
	}
	out := make([]box, 0, len(areas))
	if total <= 0 {
		return out
	}
	scale := in.w * in.h / total
	for len(out) < len(areas) {
		side := min(in.w, in.h)
		var row []float64
		sum := 0.0
		for _, a := range areas[len(out):] {
			a *= scale
			if len(row) > 0 && worst(append(row, a), sum+a, side) > worst(row, sum, side) {
				break
			}
			row, sum = append(row, a), sum+a
		}
		across := sum / side
		at := 0.0
		for _, a := range row {
			along := a / across
			if in.w >= in.h {
				out = append(out, box{in.x, in.y + at, across, along})
			} else {
				out = append(out, box{in.x + at, in.y, along, across})
			}
			at += along
		}
		if in.w >= in.h {
			in.x, in.w = in.x+across, max(in.w-across, 0)
		} else {
			in.y, in.h = in.y+across, max(in.h-across, 0)
		}
		if in.w*in.h <= 0 && len(out) < len(areas) {
			for range areas[len(out):] { // only by rounding: there is nothing left to see
				out = append(out, box{in.x, in.y, 0, 0})
			}
		}
	}
	return out
}

// stored are the jobs of a plan with their metrics, the largest first, what is small put together.
func stored(p *relabel.Plan) []weighed {
	var jobs []weighed
	for _, j := range p.Jobs {
		w := weighed{name: j.Job, series: j.Stored.Series, dropped: j.Dropped.Series}
		rest := w
		for _, m := range j.Top {
			w.inner = append(w.inner, weighed{name: m.Name, series: m.Series, dropped: m.Dropped, uses: m.Uses})
			rest.series, rest.dropped = rest.series-m.Series, rest.dropped-m.Dropped
		}
		if rest.series > 0 {
			rest.name = plural(int64(max(j.Metrics-len(j.Top), 1)), "other metric", "other metrics")
			rest.dropped = min(max(rest.dropped, 0), rest.series)
			rest.inner = nil
			rest.uses = -1
			w.inner = append(w.inner, rest)
		}
		if w.series > 0 {
			jobs = append(jobs, w)
		}
	}
	largest := func(a, b weighed) int { return cmp.Or(cmp.Compare(b.series, a.series), cmp.Compare(a.name, b.name)) }
	slices.SortFunc(jobs, largest)
	if len(jobs) > mapJobs+1 {
		rest := weighed{name: plural(int64(len(jobs)-mapJobs), "other job", "other jobs"), uses: -1}
		for _, j := range jobs[mapJobs:] {
			rest.series, rest.dropped = rest.series+j.series, rest.dropped+j.dropped
			rest.inner = append(rest.inner, weighed{name: j.name, series: j.series, dropped: j.dropped, uses: -1})
		}
		jobs = append(jobs[:mapJobs], rest)
		slices.SortFunc(jobs, largest)
	}
	for i := range jobs {
		slices.SortFunc(jobs[i].inner, largest)
	}
	return jobs
}

// room is how much of a text fits a width.
func room(s string, width float64) string {
	letters := int((width - 12) / letter)
	if letters < 5 {
		return ""
	}
	return clip(s, letters)
}

// treemap lays out what is stored: a block for each job, in it a cell for each of its largest
// metrics, their areas in proportion to their series.
func treemap(p *relabel.Plan) []cell {
	jobs := stored(p)
	areas := func(ws []weighed) []float64 {
		out := make([]float64, len(ws))
		for i, w := range ws {
			out[i] = float64(w.series)
		}
		return out
	}
	var cells []cell
	for i, block := range squarify(areas(jobs), box{0, 0, mapWidth, mapHeight}) {
		job := jobs[i]
		inner := box{block.x + 1.5, block.y + 1.5, max(block.w-3, 0), max(block.h-3, 0)} // the blocks stand apart
		for k, b := range squarify(areas(job.inner), inner) {
			m := job.inner[k]
			if b.w < 1 || b.h < 1 {
				continue // less than a dot
			}
			c := cell{
				X: percent(b.x, mapWidth), Y: percent(b.y, mapHeight), W: percent(b.w, mapWidth), H: percent(b.h, mapHeight),
				Gone: percent(float64(m.dropped), float64(m.series)), GoneX: percent(float64(m.series-m.dropped), float64(m.series)),
			}
			c.Title = visible(job.name) + ": " + visible(m.name) + "\n" + plural(m.series, "series", "series")
			if m.dropped > 0 {
				c.Title += ", " + count(m.dropped) + " go (" + share(float64(m.dropped), float64(m.series)) + ")"
			}
			if m.uses >= 0 {
				c.Title += "\n" + usedBy(m.uses)
			}
			if k == 0 && b.h >= 20 {
				c.Job = room(visible(job.name), b.w)
				c.Small = c.Job != "" && (b.w-12)/mapWidth*narrowWidth > letter*float64(len([]rune(c.Job)))
			}
			if need := 20.0; b.h >= need && (c.Job == "" || b.h >= need+16) {
				c.Name = room(visible(m.name), b.w)
			}
			cells = append(cells, c)
		}
	}
	return cells
}

// usedBy says by how many a metric is used.
func usedBy(n int) string {
	if n == 0 {
		return "used by nothing"
	}
	return "used by " + count(int64(n))
}
