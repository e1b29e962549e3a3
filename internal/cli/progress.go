package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cheggaaa/pb/v3"
	"golang.org/x/term"
)

// lineEvery is how often a long step says how far it is where there is no terminal to draw a bar
// on.
const lineEvery = 10 * time.Second

// progress tells how far a long command is: a bar for each step on a terminal, a line at its end
// and every lineEvery elsewhere.
type progress struct {
	w        io.Writer // nil is nobody
	terminal bool
	now      func() time.Time

	step        string
	began, said time.Time
	done        int64
	bar         *pb.ProgressBar
}

func newProgress(w io.Writer, quiet bool) *progress {
	p := &progress{w: w, now: time.Now}
	if quiet {
		p.w = nil
	}
	if f, ok := w.(*os.File); ok {
		p.terminal = term.IsTerminal(int(f.Fd())) // a descriptor always fits
	}
	return p
}

// at says that a step has done so much; total is 0 where nobody knows. Another step ends the one
// before.
func (p *progress) at(step string, done, total int64) {
	if p.w == nil {
		return
	}
	if step != p.step {
		p.end()
		p.step, p.began, p.said = step, p.now(), p.now()
		if p.terminal {
			template := `{{string . "prefix"}} {{counters . }} {{speed . }} {{etime . }}`
			if total > 0 {
				template = `{{string . "prefix"}} {{counters . }} {{bar . }} {{percent . }} {{speed . }} {{rtime . "%s left"}}`
			}
			p.bar = pb.New64(total).SetTemplateString(template).SetWriter(p.w).Set("prefix", step).Start()
		}
	}
	p.done = done
	switch {
	case p.bar != nil:
		p.bar.SetCurrent(done)
	case p.now().Sub(p.said) >= lineEvery:
		p.said = p.now()
		fmt.Fprintf(p.w, "%s: %s after %s\n", step, share(done, total), p.now().Sub(p.began).Round(time.Second))
	}
}

// end closes the step, if there is one.
func (p *progress) end() {
	if p.step == "" {
		return
	}
	if p.bar != nil {
		p.bar.Finish()
		p.bar = nil
	} else if p.done == 0 {
		fmt.Fprintf(p.w, "%s: %s\n", p.step, p.now().Sub(p.began).Round(10*time.Millisecond))
	} else {
		fmt.Fprintf(p.w, "%s: %d in %s\n", p.step, p.done, p.now().Sub(p.began).Round(10*time.Millisecond))
	}
	p.step = ""
}

func share(done, total int64) string {
	if total <= 0 {
		return fmt.Sprint(done)
	}
	return fmt.Sprintf("%d of %d (%d %%)", done, total, 100*done/total)
}
