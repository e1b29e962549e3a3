package ui

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
)

// The plot's measures in SVG units, which are pixels where the page is as wide.
const (
	width, height           = 920, 300
	left, right, top, under = 64, 24, 10, 28
	plotWidth, plotHeight   = width - left - right, height - top - under
)

// colours tell lines apart for people who see colours differently too: Okabe and Ito's, without
// yellow, which is hard to see on white.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"}

// dashes tell lines of one colour apart.
var dashes = []string{"", "6 3", "2 3"}

type drawing struct {
	Width, Height, Left, Right, Bottom int
	Label                              string
	Grid                               []tick
	Times                              []tick
	Lines                              []drawn
	More                               bool
}

type tick struct {
	At   string
	Text string
}

type drawn struct {
	Colour, Dash, Name string
	Paths              []string
	Dots               []dot
}

type dot struct{ X, Y string }

var plotTemplate = template.Must(template.New("plot").Parse(`<figure><svg viewBox="0 0 {{.Width}} {{.Height}}" width="100%" role="img" aria-label="{{.Label}}">
{{- range .Grid}}<line x1="{{$.Left}}" x2="{{$.Right}}" y1="{{.At}}" y2="{{.At}}" stroke="#e3e8ec"/><text x="{{$.Left}}" y="{{.At}}" dx="-8" dy="4" text-anchor="end">{{.Text}}</text>{{end}}
{{- range .Times}}<line x1="{{.At}}" x2="{{.At}}" y1="{{$.Bottom}}" y2="{{$.Bottom}}" stroke="#5b6b7a"/><text x="{{.At}}" y="{{$.Bottom}}" dy="18" text-anchor="middle">{{.Text}}</text>{{end}}
{{- range .Lines}}{{$l := .}}<g fill="none" stroke="{{.Colour}}" stroke-width="1.6" stroke-dasharray="{{.Dash}}"><title>{{.Name}}</title>
{{- range .Paths}}<polyline points="{{.}}"/>{{end}}{{range .Dots}}<circle cx="{{.X}}" cy="{{.Y}}" r="2" fill="{{$l.Colour}}"/>{{end}}</g>{{end -}}
</svg><figcaption>{{range .Lines}}<span><svg width="22" height="8"><line x1="0" x2="22" y1="4" y2="4" stroke="{{.Colour}}" stroke-width="2.4" stroke-dasharray="{{.Dash}}"/></svg> <code>{{.Name}}</code></span>
{{end}}{{if .More}}<span>and more, which are not drawn; aggregate, or add a matcher</span>{{end}}</figcaption></figure>`))

// Plot draws the first MaxLines of the lines from from to until; step is the time between two
// points of one line. Times are UTC.
func Plot(lines []Line, from, until time.Time, step time.Duration) template.HTML {
	shown := lines[:min(len(lines), MaxLines)]
	low, high := bounds(shown)
	ticks, places := niceTicks(low, high)
	low, high = min(low, ticks[0]), max(high, ticks[len(ticks)-1])
	x := func(t time.Time) float64 {
		return left + plotWidth*float64(t.Sub(from))/float64(max(until.Sub(from), 1))
	}
	y := func(v float64) float64 { return top + plotHeight*(high/2-v/2)/(high/2-low/2) }
	d := drawing{Width: width, Height: height, Left: left, Right: width - right, Bottom: height - under, More: len(lines) > len(shown)}
	d.Label = fmt.Sprintf("%d lines from %s to %s UTC, between %s and %s", len(shown), from.UTC().Format(time.DateTime),
		until.UTC().Format(time.DateTime), number(low), number(high))
	for _, v := range ticks {
		d.Grid = append(d.Grid, tick{fixed(y(v)), short(v, places)})
	}
	layout := "15:04"
	if until.Sub(from) > 24*time.Hour {
		layout = "01-02 15:04"
	}
	for i := range 6 {
		at := from.Add(until.Sub(from) * time.Duration(i) / 5)
		d.Times = append(d.Times, tick{fixed(x(at)), at.UTC().Format(layout)})
	}
	for i, l := range shown {
		one := drawn{Colour: colours[i%len(colours)], Dash: dashes[i/len(colours)%len(dashes)], Name: l.Name}
		one.Paths, one.Dots = stretches(l.Points, step, x, y)
		d.Lines = append(d.Lines, one)
	}
	var b strings.Builder
	if err := plotTemplate.Execute(&b, d); err != nil {
		return template.HTML(template.HTMLEscapeString(err.Error()))
	}
	return template.HTML(b.String())
}

// stretches are the parts of a line between its gaps; a point that stands alone is a dot.
func stretches(points []Point, step time.Duration, x func(time.Time) float64, y func(float64) float64) (paths []string, dots []dot) {
	var path []string
	var last time.Time
	end := func() {
		switch len(path) {
		case 0:
		case 1:
			cx, cy, _ := strings.Cut(path[0], ",")
			dots = append(dots, dot{cx, cy})
		default:
			paths = append(paths, strings.Join(path, " "))
		}
		path = nil
	}
	for _, p := range points[max(0, len(points)-MaxPoints):] {
		if !drawable(p.Value) || p.At.Sub(last) > step+step/2 {
			end()
		}
		if drawable(p.Value) {
			path = append(path, fixed(x(p.At))+","+fixed(y(p.Value)))
			last = p.At
		}
	}
	end()
	return paths, dots
}

func drawable(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// bounds are the least and the greatest value, apart from each other.
func bounds(lines []Line) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, l := range lines {
		for _, p := range l.Points {
			if drawable(p.Value) {
				low, high = min(low, p.Value), max(high, p.Value)
			}
		}
	}
	if low > high {
		return 0, 1
	}
	if low == high {
		if low == 0 {
			return 0, 1
		}
		pad := max(math.Abs(low)/10, 1e-300)
		low, high = max(low-pad, -math.MaxFloat64), min(high+pad, math.MaxFloat64)
	}
	return low, high
}

// niceTicks are four to nine round numbers that span low to high, and how many significant digits
// tell them apart.
func niceTicks(low, high float64) (ticks []float64, digits int) {
	unit := high/5 - low/5 // high - low may be more than a float64 holds
	scale := math.Pow(10, math.Floor(math.Log10(unit)))
	if scale == 0 || math.IsInf(scale, 0) || math.IsNaN(scale) {
		return []float64{low, high}, 6
	}
	step := scale * 10
	for _, m := range []float64{1, 2, 5} {
		if m*scale >= unit*(1-1e-9) { // 0.1 is not quite 0.1
			step = m * scale
			break
		}
	}
	first := math.Floor(low/step) * step
	for i := range 12 {
		v := first + float64(i)*step
		if math.IsInf(v, 0) || step == 0 {
			break
		}
		if ticks = append(ticks, v); v >= high {
			break
		}
	}
	if len(ticks) < 2 {
		return []float64{low, high}, 6
	}
	most := max(math.Abs(ticks[0]), math.Abs(ticks[len(ticks)-1]))
	return ticks, min(max(int(math.Ceil(math.Log10(most/step)))+1, 2), 15)
}

// short writes a number on the axis, with a unit prefix as Grafana has them.
func short(v float64, digits int) string {
	switch a := math.Abs(v); {
	case a < 1e-12: // what is left of zero after adding steps up
		return "0"
	case a >= 1e15 || a < 1e-3:
		return strconv.FormatFloat(v, 'g', min(digits, 4), 64)
	case a >= 1e12:
		return trim(v/1e12, digits) + "T"
	case a >= 1e9:
		return trim(v/1e9, digits) + "G"
	case a >= 1e6:
		return trim(v/1e6, digits) + "M"
	case a >= 1e4:
		return trim(v/1e3, digits) + "k"
	}
	return trim(v, digits)
}

func trim(v float64, digits int) string {
	f, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', digits, 64), 64)
	return strconv.FormatFloat(f, 'f', -1, 64)
}

func fixed(v float64) string {
	if !drawable(v) {
		return "0"
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}
