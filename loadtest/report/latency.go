package report

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	// latencyHeight is what the panels of latency add to a picture.
	latencyHeight = 190 * px
	// shortest is where their axis begins: what took less is drawn there.
	shortest = time.Millisecond
)

// height is that of the picture: more where there is latency to be drawn.
func (r *Report) height() vg.Length {
	if r.hasLatency() {
		return pictureHeight + latencyHeight
	}
	return pictureHeight
}

func (r *Report) hasLatency() bool {
	return slices.ContainsFunc(r.Runs, func(run Run) bool { return len(run.Latency) > 0 })
}

// axes is an empty panel.
func axes(sc scale, yMin, yMax float64, yTicks plot.ConstantTicks, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, sc.seconds, yMin, yMax
	p.X.Tick.Marker, p.Y.Tick.Marker = sc.xTicks, yTicks
	p.X.Padding, p.Y.Padding = 0, 4*px
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Width, axis.Tick.LineStyle.Width = 0, 0
		align := axis.Tick.Label
		axis.Tick.Label = textStyle(12*px, false, quietColor)
		axis.Tick.Label.XAlign, axis.Tick.Label.YAlign = align.XAlign, align.YAlign
		align = axis.Label.TextStyle
		axis.Label.TextStyle = textStyle(12*px, false, quietColor)
		axis.Label.TextStyle.XAlign, axis.Label.TextStyle.YAlign = align.XAlign, align.YAlign
		axis.Label.TextStyle.Rotation = align.Rotation
		axis.Label.Padding = 2 * px
	}
	p.X.Label.Text, p.Y.Label.Text = "seconds", y
	p.X.LineStyle = draw.LineStyle{Color: quietColor, Width: 1 * px}
	p.X.Tick.LineStyle, p.X.Tick.Length = p.X.LineStyle, 5*px
	return p
}

// ground paints the stretch of the storm, and lines to read values by.
func (run Run) ground(p *plot.Plot) error {
	if run.Storm.End > run.Storm.Begin {
		from, to := run.Storm.Begin.Seconds(), min(run.Storm.End.Seconds(), p.X.Max)
		low, high := p.Y.Min, p.Y.Max
		storm, err := plotter.NewPolygon(plotter.XYs{{X: from, Y: low}, {X: to, Y: low}, {X: to, Y: high}, {X: from, Y: high}})
		if err != nil {
			return err
		}
		storm.Color, storm.LineStyle.Width = stormColor, 0
		p.Add(storm)
	}
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal = draw.LineStyle{Color: gridColor, Width: 1 * px}
	p.Add(grid)
	return nil
}

// latencyPanel draws how long requests beside the storm took: for each second the longest answer as
// a line, on an axis by powers of ten, and a cross for each second in which one had no answer.
func (r *Report) latencyPanel(dc draw.Canvas, run Run, sc scale) error {
	var longest time.Duration
	for _, run := range r.Runs {
		for _, p := range run.Latency {
			longest = max(longest, p.Took)
		}
	}
	log := func(d time.Duration) float64 { return math.Log10(max(d, shortest).Seconds()) }
	top := math.Ceil(log(max(longest, 10*shortest)) - 1e-9)
	var ticks plot.ConstantTicks
	for v := log(shortest); v <= top+1e-9; v++ {
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%g s", math.Pow(10, math.Round(v)))})
	}
	p := axes(sc, log(shortest), top, ticks, r.latencyName())
	if err := run.ground(p); err != nil {
		return err
	}
	var answered, lost plotter.XYs
	for i := 0; i < len(run.Latency); {
		second := run.Latency[i].At / time.Second
		var took, none time.Duration = -1, -1
		for ; i < len(run.Latency) && run.Latency[i].At/time.Second == second; i++ {
			if q := run.Latency[i]; q.OK {
				took = max(took, q.Took)
			} else {
				none = max(none, q.Took)
			}
		}
		x := float64(second) + 0.5
		if took >= 0 {
			answered = append(answered, plotter.XY{X: x, Y: log(took)})
		}
		if none >= 0 {
			lost = append(lost, plotter.XY{X: x, Y: log(none)})
		}
	}
	if len(answered) > 0 {
		line, err := plotter.NewLine(answered)
		if err != nil {
			return err
		}
		line.LineStyle = draw.LineStyle{Color: color.NRGBA{0x2f, 0x7d, 0x4f, 0xff}, Width: 1.8 * px}
		p.Add(line)
	}
	for _, at := range lost {
		p.Add(cross(at))
	}
	p.Draw(dc)
	return nil
}

// cross marks a second in which somebody had no answer.
type cross plotter.XY

// Plot implements plot.Plotter.
func (c cross) Plot(dc draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&dc)
	x, y := tx(c.X), ty(c.Y)
	const arm = 2.5 * px
	st := draw.LineStyle{Color: limitColor, Width: 1.4 * px}
	dc.StrokeLine2(st, x-arm, y-arm, x+arm, y+arm)
	dc.StrokeLine2(st, x-arm, y+arm, x+arm, y-arm)
}

func (r *Report) latencyName() string {
	if r.LatencyName == "" {
		return "latency"
	}
	return r.LatencyName
}
