package report

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"io"
	"math"
	"strings"
	"time"

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

// Lengths are in pixels of a README, of which there are 96 in an inch.
const (
	px = vg.Inch / 96

	pictureWidth  = 900 * px
	pictureHeight = 430 * px
	margin        = 22 * px
	titleHeight   = 40 * px
	maxPoints     = 400 // of one curve: more than one for each pixel would not be seen
)

// Few colours, told apart by those who see red and green alike; text and grid stay in the
// background.
var (
	inkColor    = color.NRGBA{0x1f, 0x29, 0x33, 0xff}
	quietColor  = color.NRGBA{0x5f, 0x6b, 0x7a, 0xff}
	gridColor   = color.NRGBA{0xe3, 0xe7, 0xec, 0xff}
	stormColor  = color.NRGBA{0xf3, 0xf5, 0xf8, 0xff}
	serverColor = color.NRGBA{0x1f, 0x6f, 0xb5, 0xff}
	proxyColor  = color.NRGBA{0xe0, 0x7b, 0x00, 0xff}
	limitColor  = color.NRGBA{0xb4, 0x23, 0x18, 0xff}
)

func (role Role) color() color.Color {
	if role == Proxy {
		return proxyColor
	}
	return serverColor
}

func textStyle(size vg.Length, bold bool, c color.Color) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = stdfont.WeightBold
	}
	return text.Style{Color: c, Font: f, XAlign: text.XLeft, YAlign: text.YBottom, Handler: plot.DefaultTextHandler}
}

// scale is what the panels share.
type scale struct {
	seconds, mib float64 // the ends of the axes
	xTicks       plot.ConstantTicks
	yTicks       plot.ConstantTicks
}

func (r *Report) scale() scale {
	var end time.Duration
	top := r.Limit
	for _, run := range r.Runs {
		end = max(end, run.Storm.End)
		for _, p := range run.Processes {
			end = max(end, p.RSS[len(p.RSS)-1].At, p.Died)
			for _, s := range p.RSS {
				top = max(top, s.Bytes)
			}
		}
	}
	s := scale{seconds: max(end.Seconds(), 1), mib: max(float64(top)/(1<<20), 1)}
	// Memory comes in powers of two, time in halves and tens.
	step := 1.0
	for s.mib/step > 6 {
		step *= 2
	}
	for v := 0.0; v <= s.mib*1.0001; v += step {
		s.yTicks = append(s.yTicks, plot.Tick{Value: v, Label: mib(int64(v) << 20)})
	}
	s.mib *= 1.06 // room for a curve at the top
	steps := []float64{0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600}
	step = steps[len(steps)-1]
	for _, v := range steps {
		if s.seconds/v <= 7 {
			step = v
			break
		}
	}
	for s.seconds/step > 7 {
		step *= 2
	}
	if next := math.Ceil(s.seconds/step) * step; next < s.seconds*1.03 {
		s.seconds = next // the last sample is seldom on the last tick
	}
	for i := 0; float64(i)*step <= s.seconds*1.0001; i++ {
		v := float64(i) * step
		s.xTicks = append(s.xTicks, plot.Tick{Value: v, Label: fmt.Sprintf("%g", math.Round(v*10)/10)})
	}
	return s
}

// thin reduces a curve to at most maxPoints, and keeps of those that share a place the highest, and
// always the first and the last.
func thin(all []Sample) plotter.XYs {
	point := func(s Sample) plotter.XY { return plotter.XY{X: s.At.Seconds(), Y: float64(s.Bytes) / (1 << 20)} }
	out := make(plotter.XYs, 0, min(len(all), maxPoints))
	if len(all) <= maxPoints {
		for _, s := range all {
			out = append(out, point(s))
		}
		return out
	}
	out = append(out, point(all[0]))
	inner := all[1 : len(all)-1]
	const places = maxPoints - 2
	for i := range places {
		highest := Sample{Bytes: -1}
		for _, s := range inner[i*len(inner)/places : (i+1)*len(inner)/places] {
			if s.Bytes > highest.Bytes {
				highest = s
			}
		}
		if highest.Bytes >= 0 {
			out = append(out, point(highest))
		}
	}
	return append(out, point(all[len(all)-1]))
}

// draw paints the picture as it stands alone: on white, with a margin and its title.
func (r *Report) draw(dc draw.Canvas) error {
	dc.SetColor(color.White)
	dc.Fill(dc.Rectangle.Path())
	dc = draw.Crop(dc, margin, -margin, margin/2, -margin/2)
	title := textStyle(19*px, true, inkColor)
	for title.Width(r.Title) > dc.Max.X-dc.Min.X && title.Font.Size > 11*px {
		title.Font.Size -= px / 2
	}
	dc.FillText(title, vg.Point{X: dc.Min.X, Y: dc.Max.Y - 25*px}, r.Title)
	dc.Max.Y -= titleHeight
	return r.drawRuns(dc)
}

// drawRuns paints the legend and a panel for each run.
func (r *Report) drawRuns(dc draw.Canvas) error {
	r.legend(dc, dc.Min.X, dc.Max.Y-12*px)
	sc := r.scale()
	n := vg.Length(len(r.Runs))
	const gap = 26 * px
	width := (dc.Max.X - dc.Min.X - (n-1)*gap) / n
	summary := textStyle(13*px, false, quietColor)
	summaries, most := make([][]string, len(r.Runs)), 0
	for i, run := range r.Runs {
		summaries[i] = wrap(run.Summary(), summary, width)
		most = max(most, len(summaries[i]))
	}
	for i, run := range r.Runs {
		left := dc.Min.X + vg.Length(i)*(width+gap)
		box := vg.Rectangle{Min: vg.Point{X: left, Y: dc.Min.Y}, Max: vg.Point{X: left + width, Y: dc.Max.Y - 31*px}}
		name := textStyle(15*px, true, inkColor)
		dc.FillText(name, vg.Point{X: left, Y: box.Max.Y - 15*px}, run.Name)
		for k, line := range summaries[i] {
			dc.FillText(summary, vg.Point{X: left, Y: box.Max.Y - vg.Length(34+17*k)*px}, line)
		}
		box.Max.Y -= vg.Length(34+17*most) * px // the same for all, so that the curves stand side by side
		if r.hasLatency() {
			below := box
			below.Max.Y = below.Min.Y + latencyHeight - 12*px
			box.Min.Y += latencyHeight
			if err := r.latencyPanel(draw.Canvas{Canvas: dc.Canvas, Rectangle: below}, run, sc); err != nil {
				return fmt.Errorf("draw the latency of %q: %w", run.Name, err)
			}
		}
		if err := r.panel(draw.Canvas{Canvas: dc.Canvas, Rectangle: box}, run, sc); err != nil {
			return fmt.Errorf("draw %q: %w", run.Name, err)
		}
	}
	return nil
}

// legend is one line under the title, outside of the panels.
func (r *Report) legend(dc draw.Canvas, x, y vg.Length) {
	st := textStyle(13*px, false, quietColor)
	entry := func(name string, c color.Color, dashes []vg.Length) {
		dc.StrokeLine2(draw.LineStyle{Color: c, Width: 2.2 * px, Dashes: dashes}, x, y+4.5*px, x+22*px, y+4.5*px)
		x += 28 * px
		dc.FillText(st, vg.Point{X: x, Y: y}, name)
		x += st.Width(name) + 22*px
	}
	var have [2]bool
	most, proxy, proxies := 0, "", "Spillway"
	for _, run := range r.Runs {
		servers := 0
		for _, p := range run.Processes {
			have[p.Role&1] = true
			switch {
			case p.Role == Server:
				servers++
			case proxy != "" && proxy != p.Name:
				proxies = "the proxy before them"
			default:
				proxy = p.Name
			}
		}
		most = max(most, servers)
	}
	if have[Server] {
		name := "Prometheus"
		if most > 1 {
			name = "Prometheus, one line for each server"
		}
		entry(name, serverColor, nil)
	}
	if have[Proxy] {
		entry(proxies, proxyColor, nil)
	}
	if r.Limit > 0 {
		entry(fmt.Sprintf("%s, %s MiB", r.limitName(), mib(r.Limit)), limitColor, dashes)
	}
	for _, run := range r.Runs {
		if run.Storm.End > run.Storm.Begin {
			dc.SetColor(stormColor)
			box := vg.Rectangle{Min: vg.Point{X: x, Y: y - 1*px}, Max: vg.Point{X: x + 22*px, Y: y + 11*px}}
			dc.Fill(box.Path())
			dc.SetLineStyle(draw.LineStyle{Color: gridColor, Width: 1 * px})
			dc.Stroke(box.Path())
			dc.FillText(st, vg.Point{X: x + 28*px, Y: y}, "callers asking")
			break
		}
	}
}

var dashes = []vg.Length{5 * px, 4 * px}

// panel draws the curves of one run.
func (r *Report) panel(dc draw.Canvas, run Run, sc scale) error {
	p := axes(sc, 0, sc.mib, sc.yTicks, "resident memory, MiB")
	if err := run.ground(p); err != nil {
		return err
	}
	if r.Limit > 0 {
		y := float64(r.Limit) / (1 << 20)
		limit, err := plotter.NewLine(plotter.XYs{{X: 0, Y: y}, {X: sc.seconds, Y: y}})
		if err != nil {
			return err
		}
		limit.LineStyle = draw.LineStyle{Color: limitColor, Width: 1.6 * px, Dashes: dashes}
		p.Add(limit)
	}
	for _, proc := range run.Processes {
		line, err := plotter.NewLine(thin(proc.RSS))
		if err != nil {
			return fmt.Errorf("%s: %w", proc.Name, err)
		}
		line.LineStyle = draw.LineStyle{Color: proc.Role.color(), Width: 2.2 * px}
		p.Add(line)
	}
	for _, proc := range run.Processes {
		if proc.Died != 0 {
			p.Add(death{at: proc.Died, of: proc.Death, bytes: proc.RSS[len(proc.RSS)-1].Bytes})
		}
	}
	p.Draw(dc)
	return nil
}

// death marks the end of a curve: a cross, and a word at its quieter side.
type death struct {
	at    time.Duration
	of    string
	bytes int64
}

// Plot implements plot.Plotter.
func (d death) Plot(dc draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&dc)
	x, y := tx(d.at.Seconds()), ty(float64(d.bytes)/(1<<20))
	const arm = 4.5 * px
	st := draw.LineStyle{Color: limitColor, Width: 2.4 * px}
	dc.StrokeLine2(st, x-arm, y-arm, x+arm, y+arm)
	dc.StrokeLine2(st, x-arm, y+arm, x+arm, y-arm)
	word := textStyle(13*px, true, limitColor)
	label := d.of
	if label == "" {
		label = "died"
	}
	if at := x + 9*px; at+word.Width(label) <= dc.Max.X {
		dc.FillText(word, vg.Point{X: at, Y: y - 18*px}, label)
	} else {
		dc.FillText(word, vg.Point{X: x - 9*px - word.Width(label), Y: y - 18*px}, label)
	}
}

// wrap breaks a text into lines of at most this width.
func wrap(s string, st text.Style, width vg.Length) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		longer := strings.TrimSpace(line + " " + word)
		if line != "" && st.Width(longer) > width {
			lines = append(lines, line)
			longer = word
		}
		line = longer
	}
	return append(lines, line)
}

// WriteSVG writes the picture as SVG, 900 pixels wide on white, with its text as text.
func (r *Report) WriteSVG(w io.Writer) error {
	b, err := r.svg(pictureWidth, r.height(), r.draw)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// svg writes what paint paints.
func (r *Report) svg(width, height vg.Length, paint func(draw.Canvas) error) ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	c := vgsvg.New(width, height)
	if err := paint(draw.New(c)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("write the picture: %w", err)
	}
	// The picture is laid out with the metrics of Liberation Sans; where that is missing, Arial and
	// Helvetica have the same.
	out := bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;"))
	// For those who cannot see it.
	label := r.Title
	for _, run := range r.Runs {
		label += ". " + run.Name + ": " + run.Summary()
	}
	return bytes.Replace(out, []byte("<svg "), []byte(`<svg role="img" aria-label="`+html.EscapeString(label)+`" `), 1), nil
}

// WritePNG writes the picture as PNG, 900 pixels wide times scale (2 for screens with fine pixels;
// 1 to 4).
func (r *Report) WritePNG(w io.Writer, scale int) error {
	if scale < 1 || scale > 4 {
		return fmt.Errorf("scale %d: the picture can be 1 to 4 times 900 pixels wide", scale)
	}
	if err := r.Validate(); err != nil {
		return err
	}
	c := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(pictureWidth, r.height()), vgimg.UseDPI(96*scale))}
	if err := r.draw(draw.New(c)); err != nil {
		return err
	}
	if _, err := c.WriteTo(w); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}
