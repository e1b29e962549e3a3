package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/server"
)

// explainCommand shows how a query is answered, without a proxy that runs.
func explainCommand(e *Env, parent Clause) func() error {
	c := parent.Command("explain", "Shows how a query is answered: what runs on which server, and why; exit code 1 where it is refused.")
	file := c.Flag("config.file", "The configuration file.").Default("spillway.yaml").String()
	at := c.Flag("time", "The instant of the query, as Unix seconds or RFC 3339; now by default.").String()
	start := c.Flag("start", "The begin of a range query; needs --end and --step.").String()
	end := c.Flag("end", "The end of a range query.").String()
	step := c.Flag("step", "The step of a range query, such as 30s.").String()
	analyze := c.Flag("analyze", "Also runs the query, and shows what each server answered with and how long it took.").Bool()
	format := c.Flag("format", "text or json, which is what the admin API answers with.").Default("text").Enum("text", "json")
	timeout := c.Flag("timeout", "How long all of it may take.").Default("60s").Duration()
	query := c.Arg("query", "The query, in PromQL.").Required().String()
	return func() error {
		if given := *start != "" || *end != "" || *step != ""; given && (*start == "" || *end == "" || *step == "" || *at != "") {
			return errUsage{errors.New("--start, --end and --step go together, for a range query; an instant query has a --time, or none for now")}
		}
		if !e.LogLevelSet {
			_ = e.LogConfig.Level.Set("warn") // what becomes of each server is in the plan
		}
		cfg, err := loadConfig(*file)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w, which prints a line to copy; it is written: spillway explain --config.file=FILE '%s'", err, oneLine(*query))
		}
		if err != nil {
			return err
		}
		cfg.UsageLog.Path, cfg.StateDir = "", "" // those of a proxy which may be running
		log := e.Logger()
		memory := readMemory(true, log)
		s, err := server.New(server.Options{
			Config: cfg, Version: BuildVersion(), Logger: log, LimitMemory: memory.limit(), MemoryCeiling: memory.ceiling(),
			MoreMemory: memory.more,
		})
		if err != nil {
			return err
		}
		defer s.Close()
		ctx, cancel := context.WithTimeout(e.Ctx, max(*timeout, time.Second))
		defer cancel()
		x, err := s.ExplainQuery(ctx, server.Question{Query: *query, Time: *at, Start: *start, End: *end, Step: *step, Analyze: *analyze})
		if err != nil {
			if ctx.Err() != nil && e.Ctx.Err() == nil {
				return fmt.Errorf("the query could not be explained within %s (--timeout)", max(*timeout, time.Second))
			}
			return tellFailure(e.Stdout, err, *format == "json")
		}
		if *format == "json" {
			b, err := json.MarshalIndent(x, "", "  ")
			if err != nil {
				return err
			}
			fmt.Fprintf(e.Stdout, "%s\n", b)
		} else {
			writeExplanation(e.Stdout, x, *analyze)
		}
		if x.Verdict != plan.Exact {
			return errQuiet
		}
		return nil
	}
}

// tellFailure writes what a bound says of a run that it refused, which has no plan: what was seen,
// and the verdict with what to ask in its place; as JSON, what the admin API answers with. Other
// errors are returned, with their advice.
func tellFailure(w io.Writer, err error, asJSON bool) error {
	qe := qerr.From(err)
	advised := qe.Advice != "" && !strings.Contains(qe.Message, qe.Advice)
	switch {
	case qe.Bound == "" && advised:
		return fmt.Errorf("%w; %s", err, qe.Advice)
	case qe.Bound == "":
		return err
	case asJSON:
		var b bytes.Buffer
		if err := json.Indent(&b, qe.JSON(), "", "  "); err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\n", bytes.TrimSpace(b.Bytes()))
		return errQuiet
	}
	if qe.Seen != "" {
		fmt.Fprintln(w, oneLine(fmt.Sprintf("seen: %s, where %s is %s", qe.Seen, qe.Bound, qe.Value)))
	}
	reason := qe.Message
	if advised {
		reason += "; " + qe.Advice
	}
	fmt.Fprintln(w, oneLine("verdict: "+plan.Refused+": "+reason))
	return errQuiet
}

// writeExplanation writes the plan as text: a line for each node, which begins with its mode and is
// indented as deep as the node stands; under it the reason and the servers, with what they answered
// where the query was run; at the end what was not looked at, which bounds in shadow it passes, who
// was slow, and the verdict.
func writeExplanation(w io.Writer, x *plan.Explanation, ran bool) {
	if x.Plan != nil {
		writeNode(w, x.Plan, "", ran)
	}
	verdict := x.Verdict
	if x.Reason != "" {
		verdict += ": " + x.Reason
	}
	if x.Verdict == plan.Exact && !ran && asks(x.Plan) {
		fmt.Fprintln(w, notRun)
	}
	if len(x.Shadow) > 0 {
		fmt.Fprintln(w, oneLine("in shadow: if enforced, "+strings.Join(x.Shadow, ", ")+" would refuse or narrow it"))
	}
	if x.Slow != "" {
		fmt.Fprintln(w, oneLine("slow: "+x.Slow))
	}
	fmt.Fprintln(w, oneLine("verdict: "+verdict))
}

// notRun is what "exact" leaves open where nothing was run.
const notRun = "not run: --analyze tells whether the bounds that only a run meets, such as max_series, allow it"

// asks tells whether any server is asked.
func asks(n *plan.Node) bool {
	return n != nil && (len(n.Calls) > 0 || slices.ContainsFunc(n.Children, asks))
}

func writeNode(w io.Writer, n *plan.Node, indent string, ran bool) {
	fmt.Fprintln(w, oneLine(fmt.Sprintf("%s%-6s  %s", indent, n.Mode, n.Expr)))
	below := indent + strings.Repeat(" ", 8)
	if n.Why != "" {
		fmt.Fprintln(w, oneLine(below+"why: "+n.Why))
	}
	for _, c := range n.Calls {
		at := c.Shard
		if c.Replica != "" {
			at += " at " + c.Replica
		}
		fmt.Fprintln(w, oneLine(fmt.Sprintf("%sask %s: %s", below, at, c.Query)))
		for _, s := range c.Segments {
			from := ""
			if s.Copy != c.Replica {
				from = " from " + s.Copy
			}
			fmt.Fprintln(w, oneLine(fmt.Sprintf("%s    %s to %s%s", below, stampOf(s.From), stampOf(s.Until), from)))
		}
		if ran {
			fmt.Fprintf(w, "%s    answered with %s, %s and %s in %.3f s\n", below, seriesOf(c.Series), Count(int(c.Samples), "sample"),
				admit.FormatBytes(c.Bytes), c.Seconds)
		}
	}
	for _, child := range n.Children {
		writeNode(w, child, indent+"  ", ran)
	}
}

// seriesOf is a number of series, whose singular and plural are the same.
func seriesOf(n int64) string { return strconv.FormatInt(n, 10) + " series" }

// stampOf is a time in milliseconds to be read; the ends of time have no year.
func stampOf(ms int64) string {
	t := time.UnixMilli(ms).UTC()
	if y := t.Year(); y < 1 || y > 9999 {
		return "the " + map[bool]string{true: "beginning", false: "end"}[ms < 0]
	}
	return t.Format("2006-01-02T15:04:05.000Z")
}

// oneLine keeps what others wrote from breaking the lines of the output, or from steering a
// terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
}
