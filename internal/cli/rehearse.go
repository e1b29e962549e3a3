package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/internal/rehearse"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// rehearseUpgradeCommand asks two servers the same questions.
func rehearseUpgradeCommand(e *Env, parent Clause) func() error {
	c := parent.Command("upgrade", "Asks two servers what was really asked, and all rules, and lists each query whose answer, warnings, refusal or cost would change. Exit code 1 where one would, or could not be compared.")
	from := c.Flag("from", "The server of now: a Prometheus API, such as Spillway.").Required().PlaceHolder("URL").String()
	to := c.Flag("to", "The server of after, over the same data.").Required().PlaceHolder("URL").String()
	fromConfig := c.Flag("from.http.config.file", "How to reach it: TLS, credentials and proxies, in Prometheus' http_config form.").PlaceHolder("FILE").String()
	toConfig := c.Flag("to.http.config.file", "How to reach the other one.").PlaceHolder("FILE").String()
	logs := c.Flag("usage", "The proxy's usage log; its rotated files beside it are read too; may be given several times.").PlaceHolder("usage.jsonl").Strings()
	rules := c.Flag("rules", "A folder or file of rules: rule files or PrometheusRule objects; may be given several times.").PlaceHolder("DIR").Strings()
	window := c.Flag("window", "How far back logged queries count.").Default("30d").String()
	at := c.Flag("time", "The time that all queries look at, RFC 3339 or Unix seconds; five minutes ago by default.").String()
	most := c.Flag("max", "How many different queries are asked, those first that were asked most.").Default("5000").Int()
	parallel := c.Flag("parallel", "How many are under way at a time, each at both servers.").Default("4").Int()
	cost := c.Flag("cost-change", "By how much, of itself, the number of samples may change.").Default("0.1").Float64()
	ignore := c.Flag("ignore-label", "A label that only one of the two sets, such as cluster by Spillway's groups; may be given several times.").PlaceHolder("NAME").Strings()
	format := c.Flag("format", "text or json.").Default("text").Enum("text", "json")
	quiet := c.Flag("quiet", "Say nothing about progress.").Bool()
	return func() error {
		back, err := model.ParseDuration(*window)
		if err != nil {
			return errUsage{fmt.Errorf("--window=%s: %w; write 30d or 12h", *window, err)}
		}
		if len(*logs)+len(*rules) == 0 {
			return errUsage{errors.New("nothing to ask: give --usage, --rules or both")}
		}
		if *most < 1 || *most > rehearse.MaxQuestions || *parallel < 1 || *parallel > 64 || !(*cost >= 0) {
			return errUsage{fmt.Errorf("--max is 1 to %d, --parallel 1 to 64, --cost-change 0 or more", rehearse.MaxQuestions)}
		}
		o := rehearse.Options{Most: *most, Parallel: *parallel, CostChange: max(*cost, 1e-9), IgnoreLabels: *ignore}
		if o.At, err = moment(*at); err != nil {
			return errUsage{err}
		}
		questions, err := rehearsed(e, *logs, *rules, time.Now().Add(-time.Duration(back)))
		if err != nil {
			return err
		}
		for _, side := range []struct {
			into            **rehearse.Side
			name, url, file string
		}{{&o.From, "from", *from, *fromConfig}, {&o.To, "to", *to, *toConfig}} {
			var hc *http.Client
			if hc, err = apiClient("--"+side.name+".http.config.file", side.file, "spillway-rehearse"); err != nil {
				return err
			}
			defer hc.CloseIdleConnections()
			*side.into = &rehearse.Side{URL: side.url, Client: hc}
		}
		p := newProgress(e.Stderr, *quiet)
		o.Progress = func(asked, of int) { p.at("queries", int64(asked), int64(of)) }
		r, err := rehearse.Run(e.Ctx, questions, o)
		p.end()
		if r == nil {
			return err
		}
		write := r.Write
		if *format == "json" {
			write = func(w io.Writer) error { return writeReport(w, r) }
		}
		if werr := write(e.Stdout); err != nil || werr != nil {
			return errors.Join(err, werr)
		}
		switch nothing := r.ShowsNothing(); {
		case len(r.Changes)+len(r.Failures) > 0:
			return errQuiet
		case r.Asked == 0:
			return fmt.Errorf("nothing was asked: neither the usage log, as far back as --window=%s, nor --rules has a query that can be asked", *window)
		case nothing != "":
			return errors.New(nothing)
		}
		return nil
	}
}

// writeReport writes a report as one object.
func writeReport(w io.Writer, r *rehearse.Report) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", text)
	}
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// rehearsed are the questions of logs and rules.
func rehearsed(e *Env, logs, rules []string, since time.Time) (*rehearse.Questions, error) {
	questions := rehearse.NewQuestions()
	var errs []error
	for _, log := range logs {
		errs = append(errs, questions.Log(e.Ctx, log, since))
	}
	set := new(uses.Set)
	for _, path := range rules {
		errs = append(errs, uses.Rules(set, path))
	}
	for _, w := range set.Warnings {
		w, _ = strings.CutSuffix(w, "; all series that it selects are kept") // which is about drop rules
		fmt.Fprintf(e.Stderr, "warning: %s\n", w)
	}
	for _, u := range set.Uses {
		switch {
		case u.Query == "":
		case u.Kind == uses.Rule:
			questions.Rule(u.Query, u.Where)
		default:
			questions.Beside() // of a dashboard in the folder, say: its variables stand in it
		}
	}
	return questions, errors.Join(errs...)
}

// moment is a time of a flag; the zero time where it is empty.
func moment(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	seconds, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(seconds > 0 && seconds < 1e11) {
		return time.Time{}, fmt.Errorf("--time=%s: write 2026-11-26T03:00:00Z, or seconds since 1970", text)
	}
	return time.UnixMilli(int64(seconds * 1000)), nil
}
