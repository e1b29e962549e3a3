package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"
	"golang.org/x/term"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/prove"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// lookedAt are the flags that say what is looked at.
type lookedAt struct {
	dashboards, grafana, rules, autoscalers, queries, usage, exclude *[]string
	keep, grafanaToken                                               *string
	window                                                           *string
	ignoreListings                                                   *bool
}

func lookedAtFlags(c *kingpin.CmdClause) *lookedAt {
	return &lookedAt{
		dashboards:   c.Flag("dashboards", "A folder or file of Grafana dashboards: JSON, or ConfigMaps and GrafanaDashboard objects; may be given several times.").PlaceHolder("DIR").Strings(),
		grafana:      c.Flag("grafana", "A Grafana whose dashboards are read through its API; may be given several times.").PlaceHolder("URL").Strings(),
		grafanaToken: c.Flag("grafana.token-file", "A file with the token of a service account that may read dashboards.").PlaceHolder("FILE").String(),
		rules:        c.Flag("rules", "A folder or file of rules: rule files or PrometheusRule objects; may be given several times.").PlaceHolder("DIR").Strings(),
		autoscalers:  c.Flag("autoscalers", "A folder or file of HPA, KEDA or prometheus-adapter YAML; may be given several times.").PlaceHolder("DIR").Strings(),
		queries:      c.Flag("queries", "A file of PromQL, one query each, that something else asks; may be given several times.").PlaceHolder("FILE").Strings(),
		usage:        c.Flag("usage", "The proxy's usage log; its rotated files beside it are read too; may be given several times.").PlaceHolder("usage.jsonl").Strings(),
		exclude: c.Flag("exclude", "Files and folders that are left out below the folders of --dashboards, --rules and --autoscalers, by name (values.yaml, *.tmpl.json) or by the end of the path (charts/*/templates): what is used in them counts as unused, and the plan says so; may be given several times.").
			PlaceHolder("PATTERN").Strings(),
		keep:           c.Flag("keep", "A file that says what is kept all the same, for whom, why and until when.").PlaceHolder("keep.yaml").String(),
		ignoreListings: c.Flag("ignore-listings", "Lists of series and of values of labels whose selector names no metric, such as label_values({job=\"x\"}, pod), keep nothing; they may lose values, and the plan says so.").Bool(),
		window:         c.Flag("window", "How far back logged queries count.").Default("90d").String(),
	}
}

// set reads all of it.
func (l *lookedAt) set(ctx context.Context, p *progress, now time.Time) (*uses.Set, time.Duration, error) {
	window, err := model.ParseDuration(*l.window)
	if err != nil {
		return nil, 0, errUsage{fmt.Errorf("--window=%s: %w; write 30d or 12h", *l.window, err)}
	}
	s := &uses.Set{IgnoreListings: *l.ignoreListings}
	if err := s.Exclude(*l.exclude...); err != nil {
		return nil, 0, errUsage{fmt.Errorf("--exclude: %w", err)}
	}
	var errs []error
	read := func(flag string, files []string, f func(string) error) {
		came := func() string { return fmt.Sprint(len(s.Uses), s.IgnoredListings()) }
		first := came()
		for i, file := range files {
			if ctx.Err() == nil {
				before := came()
				errs = append(errs, f(file))
				// What is named twice is read once, and of several logs one may be of a new pod.
				if came() == before && !slices.Contains(files[:i], file) && (flag != "usage" || i == len(files)-1 && came() == first) {
					s.Empty = append(s.Empty, "--"+flag+"="+file)
				}
				p.at("uses", int64(len(s.Uses)), 0)
			}
		}
	}
	read("dashboards", *l.dashboards, func(f string) error { return uses.Dashboards(s, f) })
	read("rules", *l.rules, func(f string) error { return uses.Rules(s, f) })
	read("autoscalers", *l.autoscalers, func(f string) error { return uses.Autoscalers(s, f) })
	read("queries", *l.queries, func(f string) error { return uses.File(s, f) })
	read("usage", *l.usage, func(f string) error {
		return uses.Log(ctx, s, f, uses.LogOptions{Window: time.Duration(window), Now: now})
	})
	if *l.keep != "" {
		errs = append(errs, uses.Keep(s, *l.keep, now))
	}
	if len(*l.grafana) > 0 {
		token, err := tokenIn(*l.grafanaToken)
		if err != nil {
			return nil, 0, err
		}
		read("grafana", *l.grafana, func(u string) error { return readGrafana(ctx, s, u, token) })
	}
	if err := errors.Join(append(errs, s.Unmade())...); err != nil {
		return nil, 0, err
	}
	if err := s.Excluded(); err != nil {
		return nil, 0, errUsage{fmt.Errorf("--exclude: %w", err)}
	}
	return s, time.Duration(window), context.Cause(ctx)
}

// readGrafana adds what a Grafana has that is named by its address. Its token goes nowhere else.
func readGrafana(ctx context.Context, s *uses.Set, server, token string) error {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	client := &http.Client{Timeout: time.Minute, Transport: transport}
	if token != "" {
		var err error
		if client, err = uses.Bearer(client, server, token); err != nil {
			return fmt.Errorf("--grafana: %w", err)
		}
	}
	return uses.Grafana(ctx, s, client, server)
}

// tokenIn is the token in a file; empty where no file is named.
func tokenIn(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--grafana.token-file: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// stored are the flags that say what is stored.
type stored struct {
	scrape, external *[]string
}

func storedFlags(c *kingpin.CmdClause) *stored {
	return &stored{
		scrape: c.Flag("scrape", "What is stored: a folder of scraped pages (JOB/INSTANCE.prom), a server's data folder or one block, JOB=URL of a page to scrape, or api+URL of Prometheus or Spillway; may be given several times.").
			PlaceHolder("DIR|URL").Strings(),
		external: c.Flag("external-label", "A label that is added after scraping, so that no stored series has it and no matcher on it excludes any; may be given several times.").
			Default("cluster", "prometheus", "prometheus_replica", "replica", "region", "tenant").Strings(),
	}
}

// source opens all of it; nil where nothing is named.
func (s *stored) source(ctx context.Context, client *http.Client) (inventory.Source, error) {
	var sources []inventory.Source
	for _, arg := range *s.scrape {
		src, err := inventory.Open(ctx, arg, inventory.OpenOptions{Client: client, External: *s.external})
		if err != nil {
			return nil, fmt.Errorf("--scrape=%s: %w", arg, err)
		}
		sources = append(sources, src)
	}
	switch len(sources) {
	case 0:
		return nil, nil
	case 1:
		return sources[0], nil
	}
	return inventory.Join(sources...), nil
}

func scrapeClient() *http.Client {
	return &http.Client{Timeout: 5 * time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
}

// relabelPlanCommand makes the plan.
func relabelPlanCommand(e *Env, parent Clause) func() error {
	c := parent.Command("plan", "Finds what is stored and not looked at, makes the rules that drop it, and proves them. Exit code 1, and no plan, where an input cannot be read.")
	looked, stored := lookedAtFlags(c), storedFlags(c)
	out := c.Flag("out", "Write the plan to this file and a summary to standard output; without it the plan goes to standard output.").Short('o').PlaceHolder("plan.json").String()
	risk := c.Flag("risk", "low: only metrics that nothing uses; medium: also series and buckets of used metrics, as long as no answer changes; high: also buckets that only histogram_quantile reads, within --quantile-error.").
		Default(string(propose.Medium)).Enum(string(propose.Low), string(propose.Medium), string(propose.High))
	saving := c.Flag("min-saving", "The smallest number of series that a rule must save.").Default("1").Int64()
	quantile := c.Flag("quantile-error", "With --risk=high: the largest ratio of a bucket's upper to its lower edge that thinning may make.").Default("2.5").Float64()
	dropLabels := c.Flag("labels", "With --risk=high: also take labels that change no answer and tell no two series of today apart. That saves no series, but memory, and the new series that a label with ever new values makes.").Bool()
	exempt := c.Flag("exempt-job", "A job that gets no rules; may be given several times.").PlaceHolder("JOB").Strings()
	owner := c.Flag("owner", "Who answers for the rules; named in the warnings of answers.").PlaceHolder("TEAM").String()
	noReplay := c.Flag("no-replay", "Leave out the last proof, which asks every query of a sample of the data before and after.").Bool()
	replay := c.Flag("replay-series", "How many series the sample has at most.").Default("200000").Int()
	at := c.Flag("now", "The time that counts as now, RFC 3339; for plans that shall be the same bytes again.").PlaceHolder("TIME").String()
	quiet := c.Flag("quiet", "Do not say how far it is.").Short('q').Bool()
	return func() error {
		now := time.Now().UTC().Truncate(time.Second)
		if *at != "" {
			var err error
			if now, err = time.Parse(time.RFC3339, *at); err != nil {
				return errUsage{fmt.Errorf("--now=%s is no RFC 3339 time such as 2026-11-21T06:00:00Z", *at)}
			}
		}
		switch {
		case len(*stored.scrape) == 0:
			return errUsage{errors.New("name at least one --scrape: what is stored decides what could go")}
		case *quantile <= 1:
			return errUsage{fmt.Errorf("--quantile-error=%g: a bucket's upper edge is more than its lower one, so this is more than 1", *quantile)}
		case *saving < 1:
			return errUsage{fmt.Errorf("--min-saving=%d: a rule that saves nothing is none", *saving)}
		case *replay < 1:
			return errUsage{fmt.Errorf("--replay-series=%d: a sample of no series shows nothing; --no-replay leaves the replay out", *replay)}
		}
		p := newProgress(e.Stderr, *quiet)
		defer p.end()
		client := scrapeClient()
		defer client.CloseIdleConnections()
		src, err := stored.source(e.Ctx, client)
		if err != nil {
			return err
		}
		set, window, err := looked.set(e.Ctx, p, now)
		if err != nil {
			return err
		}
		plan, err := relabel.Make(e.Ctx, relabel.Options{
			Source: src, Uses: set, External: *stored.external, Owner: *owner, Now: now,
			Propose: propose.Options{
				Risk: propose.Risk(*risk), MinSaving: *saving, QuantileError: *quantile, Window: window,
				Exempt: *exempt, KeepLabels: !*dropLabels,
			},
			Replay: !*noReplay, ReplayOptions: prove.ReplayOptions{MaxSeries: *replay}, Progress: p.at,
		})
		p.end()
		if err != nil {
			return err
		}
		if *out == "" {
			return plan.Write(e.Stdout)
		}
		if err := WriteWhole(*out, plan.Write); err != nil {
			return err
		}
		return summarise(e.Stdout, plan, *out)
	}
}

// summarise is the plan in a screenful.
func summarise(w io.Writer, p *relabel.Plan, file string) error {
	if err := attention(w, p.Alarms); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rates := fmt.Sprintf("%.0f of %.0f samples a second, about %.1f MiB of memory and %.1f MiB a day on disk", p.Dropped.SamplesPerSecond, p.Stored.SamplesPerSecond,
		mebi(p.Dropped.MemoryBytes), mebi(p.Dropped.BytesPerDay))
	if p.Stored.SamplesPerSecond == 0 { // pages have no interval, nor has an API that does not show its targets
		rates = fmt.Sprintf("about %.1f MiB of memory; how many samples that is a second is not known: nothing that was read tells how often it is scraped", mebi(p.Dropped.MemoryBytes))
	}
	fmt.Fprintf(t, "%d of %d series go (%s), %s.\n\n", p.Dropped.Series, p.Stored.Series, percent(p.Dropped.Series, p.Stored.Series), rates)
	fmt.Fprintln(t, "job\tmetrics\tseries\tgo\t")
	for _, j := range p.Jobs {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d (%s)\t\n", j.Job, j.Metrics, j.Stored.Series, j.Dropped.Series,
			percent(j.Dropped.Series, j.Stored.Series))
	}
	proven := "proven"
	if why := p.Unproven(); why != "" {
		proven = "held against every series; " + why
	}
	fmt.Fprintf(t, "\n%s, %s:\n", Count(len(p.Rules), "rule"), proven)
	for _, s := range p.Proof.Steps {
		fmt.Fprintf(t, "%s\t%d looked at\t%s\t\n", s.Name, s.Checked, s.Took.Round(time.Millisecond))
	}
	if r := p.Proof.Replay; r != nil {
		fmt.Fprintf(t, "\nReplay of %d series, %d after: %d queries; answers equal to the bit %d, equal but for the order of additions and ties %d, within a stated error %d, empty on both sides %d, failing on both %d, different %d.\n",
			r.Series, r.After, r.Queries, r.Equal, r.Rounded, r.Within, r.Empty, r.Failed, r.Different)
	}
	if len(p.Refused) > 0 {
		fmt.Fprintf(t, "\n%d more were thought of and refused; the reasons are in %s.\n", len(p.Refused), file)
	}
	for _, warning := range p.Warnings {
		fmt.Fprintf(t, "warning: %s\n", warning)
	}
	return t.Flush()
}

func mebi(b int64) float64 { return float64(b) / (1 << 20) }

// attention writes what has to be seen first.
func attention(w io.Writer, alarms []string) error {
	for _, alarm := range alarms {
		if _, err := fmt.Fprintln(w, red(w, "ATTENTION: "+alarm)); err != nil {
			return err
		}
	}
	return nil
}

// red is a text as it is, and in red on a terminal.
func red(w io.Writer, text string) string {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return "\x1b[1;31m" + text + "\x1b[0m"
	}
	return text
}

// percent does not write 100.0 where something is left.
func percent(part, of int64) string {
	switch {
	case of == 0:
		return "0 %"
	case part < of && 1000*part > 999*of:
		return "> 99.9 %"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(of))
}

// readPlan reads a plan.json.
func readPlan(file string) (*relabel.Plan, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := relabel.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
