package mix

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"

	stdfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The picture: on the left how many times longer than directly each query takes, a dot for each
// path; on the right the processor time of 1,000 requests, proxy and servers. Lengths are in
// pixels, of which there are 96 in an inch.
const (
	px            = vg.Inch / 96
	pictureWidth  = 900 * px
	pictureHeight = 460 * px
	margin        = 20 * px
	leftShare     = 0.60
	highestRatio  = 16 // further dots lie on the edge
)

var (
	inkColor    = color.NRGBA{0x1f, 0x29, 0x33, 0xff}
	quietColor  = color.NRGBA{0x5f, 0x6b, 0x7a, 0xff}
	gridColor   = color.NRGBA{0xe3, 0xe7, 0xec, 0xff}
	serverColor = color.NRGBA{0x9d, 0xb8, 0xd1, 0xff}
	// pathColors tell paths apart, those who see red and green alike included; the direct one is
	// the line at 1.
	pathColors = map[string]color.Color{
		DirectShard: color.NRGBA{0xd8, 0xcf, 0xe6, 0xff}, Reverse: color.NRGBA{0x8a, 0x93, 0x9e, 0xff},
		ReverseShard: color.NRGBA{0xc4, 0xca, 0xd1, 0xff}, SpillwayOne: color.NRGBA{0xf2, 0xb8, 0x6b, 0xff},
		SpillwayLabeled: color.NRGBA{0xf7, 0xd9, 0xae, 0xff}, SpillwayFour: color.NRGBA{0xd5, 0x6a, 0x00, 0xff},
	}
	peerColors = []color.Color{
		color.NRGBA{0x1f, 0x6f, 0xb5, 0xff},
		color.NRGBA{0x6a, 0x4c, 0x93, 0xff},
		color.NRGBA{0x11, 0x8a, 0x7e, 0xff},
	}
)

func textStyle(size vg.Length, bold bool, c color.Color) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = stdfont.WeightBold
	}
	return text.Style{Color: c, Font: f, XAlign: text.XLeft, YAlign: text.YBottom, Handler: plot.DefaultTextHandler}
}

// WriteSVG writes the picture of the last load as SVG, 900 pixels wide on white.
func (r *Result) WriteSVG(w io.Writer) error {
	c := vgsvg.New(pictureWidth, pictureHeight)
	if err := r.draw(draw.New(c)); err != nil {
		return err
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	// It is laid out with the metrics of Liberation Sans; where that is missing, Arial and
	// Helvetica have the same.
	_, err := w.Write(bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")))
	return err
}

// WritePNG writes the same picture as PNG, with two dots for each pixel.
func (r *Result) WritePNG(w io.Writer) error {
	c := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(pictureWidth, pictureHeight), vgimg.UseDPI(192))}
	if err := r.draw(draw.New(c)); err != nil {
		return err
	}
	if _, err := c.WriteTo(w); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}

func (r *Result) draw(dc draw.Canvas) error {
	if len(r.Loads) == 0 {
		return fmt.Errorf("nothing was measured, so there is no picture")
	}
	l := r.Loads[len(r.Loads)-1]
	dc.SetColor(color.White)
	dc.Fill(dc.Rectangle.Path())
	dc = draw.Crop(dc, margin, -margin, margin/2, -margin/2)
	dc.FillText(textStyle(18*px, true, inkColor), vg.Point{X: dc.Min.X, Y: dc.Max.Y - 24*px}, fmt.Sprintf("A dashboard mix over %.1f million series, %d at a time", float64(r.Series)/1e6, l.Concurrency))
	l.legend(dc)
	dc.Max.Y -= 72 * px
	left, right := dc, dc
	left.Max.X = dc.Min.X + (dc.Max.X-dc.Min.X)*leftShare
	right.Min.X = left.Max.X + 14*px
	if err := l.drawRatios(left); err != nil {
		return err
	}
	return l.drawCPU(right)
}

// color of a path; black is none.
func (l *Load) color(name string) color.Color {
	if c, ok := pathColors[name]; ok {
		return c
	}
	peer := 0
	for _, p := range l.Paths {
		if p.Name == name {
			break
		}
		if _, ok := pathColors[p.Name]; !ok && p.Name != Direct {
			peer++
		}
	}
	return peerColors[peer%len(peerColors)]
}

func (l *Load) legend(dc draw.Canvas) {
	st := textStyle(12*px, false, quietColor)
	x, y := dc.Min.X, dc.Max.Y-46*px
	entry := func(name string, c color.Color) {
		if x+24*px+st.Width(name) > dc.Max.X {
			x, y = dc.Min.X, y-16*px
		}
		dc.SetColor(c)
		dc.Fill(vg.Rectangle{Min: vg.Point{X: x, Y: y}, Max: vg.Point{X: x + 10*px, Y: y + 10*px}}.Path())
		dc.FillText(st, vg.Point{X: x + 14*px, Y: y - 1*px}, name)
		x += 14*px + st.Width(name) + 16*px
	}
	for _, p := range l.Paths {
		if p.Name != Direct {
			entry(p.Name, l.color(p.Name))
		}
	}
	entry("the servers", serverColor)
}

// newPlot has the quiet axes that both halves share; rows are named from the top.
func newPlot(title string, rows []string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.Title.Text, p.Title.TextStyle = title, textStyle(13*px, true, inkColor)
	p.Title.TextStyle.XAlign = text.XCenter
	p.Title.Padding = 6 * px
	reversed := make([]string, len(rows))
	for i, row := range rows {
		reversed[len(rows)-1-i] = row
	}
	p.NominalY(reversed...)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Width, axis.Tick.LineStyle.Width = 0, 0
		align := axis.Tick.Label
		axis.Tick.Label = textStyle(11*px, false, quietColor)
		axis.Tick.Label.XAlign, axis.Tick.Label.YAlign = align.XAlign, align.YAlign
		align = axis.Label.TextStyle
		axis.Label.TextStyle = textStyle(11*px, false, quietColor)
		axis.Label.TextStyle.XAlign, axis.Label.TextStyle.YAlign = align.XAlign, align.YAlign
	}
	grid := plotter.NewGrid()
	grid.Vertical = draw.LineStyle{Color: gridColor, Width: 1 * px}
	grid.Horizontal = draw.LineStyle{Color: gridColor, Width: 0.5 * px}
	p.Add(grid)
	return p
}

func (l *Load) drawRatios(dc draw.Canvas) error {
	var rows []string
	for _, q := range l.Paths[0].Queries {
		rows = append(rows, q.Name)
	}
	p := newPlot("p50, times that of asking directly", rows)
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = plot.ConstantTicks{
		{Value: 0.5, Label: "0.5"},
		{Value: 1, Label: "1"},
		{Value: 2, Label: "2"},
		{Value: 4, Label: "4"},
		{Value: 8, Label: "8"},
		{Value: 16, Label: "16"},
	}
	for _, path := range l.Paths {
		if path.Name == Direct || path.Name == SpillwayLabeled { // the latter is all but the same as without
			continue
		}
		var at plotter.XYs
		for i, q := range path.Queries {
			if q.Ratio > 0 {
				at = append(at, plotter.XY{X: math.Min(q.Ratio, highestRatio), Y: float64(len(rows) - 1 - i)})
			}
		}
		if len(at) == 0 {
			continue
		}
		dots, err := plotter.NewScatter(at)
		if err != nil {
			return fmt.Errorf("draw %s: %w", path.Name, err)
		}
		dots.GlyphStyle = draw.GlyphStyle{Color: l.color(path.Name), Radius: 4 * px, Shape: draw.CircleGlyph{}}
		p.Add(dots)
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0.5, highestRatio, -0.5, float64(len(rows))-0.5
	p.Draw(dc)
	return nil
}

func (l *Load) drawCPU(dc draw.Canvas) error {
	rows := make([]string, len(l.Paths))
	rows[0] = Direct // the colours name the others
	p := newPlot("CPU seconds for 1,000 requests", rows)
	most := 0.0
	for i, path := range l.Paths {
		y := float64(len(rows) - 1 - i)
		bar := func(from, to float64, c color.Color) error {
			rect, err := plotter.NewPolygon(plotter.XYs{
				{X: from, Y: y - 0.3},
				{X: to, Y: y - 0.3},
				{X: to, Y: y + 0.3},
				{X: from, Y: y + 0.3},
			})
			if err != nil {
				return fmt.Errorf("draw %s: %w", path.Name, err)
			}
			rect.Color, rect.LineStyle.Width = c, 0
			p.Add(rect)
			return nil
		}
		all := path.ProxyCPU + path.ServersCPU
		most = math.Max(most, all)
		if err := bar(0, path.ServersCPU, serverColor); err != nil {
			return err
		}
		if path.ProxyCPU > 0 {
			if err := bar(path.ServersCPU, all, l.color(path.Name)); err != nil {
				return err
			}
		}
		label, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: all, Y: y}}, Labels: []string{fmt.Sprintf(" %.1f", all)}})
		if err != nil {
			return fmt.Errorf("draw %s: %w", path.Name, err)
		}
		label.TextStyle[0] = textStyle(12*px, true, inkColor)
		label.TextStyle[0].YAlign = text.YCenter
		p.Add(label)
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, math.Max(most*1.2, 0.1), -0.5, float64(len(rows))-0.5
	p.Draw(dc)
	return nil
}
