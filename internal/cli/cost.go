package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // the zones of --timezone, where no zoneinfo is, as in the image

	"github.com/alecthomas/kingpin/v2"
	promconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/version"

	"github.com/spillwayproject/spillway/internal/cost"
	"github.com/spillwayproject/spillway/internal/plainfile"
)

// costCommand makes the bill of a GPU cluster.
func costCommand(e *Env, parent Clause) func() error {
	c := parent.Command("cost", "Makes the bill of a range of time: GPU hours and money by team, namespace, experiment or GPU model, from kube-state-metrics through the proxy. Exit code 1, and no bill, where the rows do not add up to what was allocated.")
	from := c.Flag("from", "Begin of the range: 2026-11-01, 2026-11 (a month's begin), 2026-11-01T06:00, an RFC 3339 time, Unix seconds, yesterday, today, last-month, this-month or now.").Required().String()
	to := c.Flag("to", "Its end, exclusive, in the same forms.").Required().String()
	daily := c.Flag("daily", "Rows for each day.").Bool()
	by := c.Flag("by", "What rows are told apart by, with commas or several times: cluster, team, person, namespace, experiment, model, class (spot, on-demand, reserved).").Default("team").Strings()
	zone := c.Flag("timezone", "The time zone whose days and months are meant, such as Europe/Berlin.").Default("UTC").String()
	format := c.Flag("format", "table, csv or json.").Default("table").Enum("table", "csv", "json")
	out := c.Flag("out", "Write the bill to this file instead; {from} in its name becomes the day of --from. It appears there as a whole or not at all.").PlaceHolder("FILE").String()
	allKinds := c.Flag("all-kinds", "With --format=csv: lines of what nobody is billed for too (free, reserved_unused, unhealthy, beyond_capacity), in the column kind; the table and json have it anyway.").Bool()
	failOver := c.Flag("fail-over-budget", "Exit code 1, after the bill was written, where a team spent more than the budget that the directory gives it.").Bool()
	url := c.Flag("url", "The Prometheus HTTP API that is asked: the proxy, or one server that has everything.").Default("http://127.0.0.1:9090").String()
	httpConfig := c.Flag("http.config.file", "How to reach it: TLS, credentials and proxies, in Prometheus' http_config form.").PlaceHolder("FILE").String()
	directory := c.Flag("directory", "The file that says whose namespaces are and what GPUs cost.").PlaceHolder("FILE").String()
	prices := c.Flag("price", "Price of a GPU hour of a model, before those of the directory file; a model that there is not is an error; may be given several times.").PlaceHolder("MODEL=PRICE").Strings()
	currency := c.Flag("currency", "Currency of the prices; the directory file's by default.").String()
	noIdle := c.Flag("no-activity", "Do not ask how busy the GPUs were.").Bool()
	maxGap := c.Flag("max-gap", "Longest pause between two scrapes that still counts as covered.").Default(cost.DefaultMaxGap.String()).Duration()
	timeout := c.Flag("timeout", "How long all of it may take.").Default("1h").Duration()
	n := costNames(c)
	return func() error {
		o := cost.Options{Daily: *daily, Names: *n, MaxGap: *maxGap, NoIdle: *noIdle, By: dimensions(*by)}
		if *allKinds && *format != "csv" {
			return errUsage{fmt.Errorf("--all-kinds is for --format=csv: --format=%s has all of it anyway", *format)}
		}
		loc, err := time.LoadLocation(*zone)
		if err != nil {
			return errUsage{fmt.Errorf("--timezone=%s is no time zone: write UTC or a name such as Europe/Berlin", *zone)}
		}
		if o.Range, err = cost.ParseRange(*from, *to, loc, time.Now()); err != nil {
			return errUsage{err}
		}
		if o.Directory, o.Priced, err = costDirectory(*directory, *prices, *currency); err != nil {
			return err
		}
		if *failOver && !o.Directory.HasBudgets() {
			return errUsage{errors.New("--fail-over-budget: no team has a budget: --directory names a file with teams[].budget")}
		}
		hc, err := apiClient("--http.config.file", *httpConfig, "spillway-cost")
		if err != nil {
			return err
		}
		defer hc.CloseIdleConnections()
		if o.Client, err = cost.NewClient(*url, hc); err != nil {
			return errUsage{err}
		}
		log := e.Logger()
		o.Client.Log = func(format string, args ...any) { log.Info(fmt.Sprintf(format, args...)) }
		o.Progress = func(day string, done, of int) { log.Debug("a day was read", "day", day, "done", done, "of", of) }
		ctx, cancel := context.WithTimeoutCause(e.Ctx, max(*timeout, time.Second), errors.New("the time given with --timeout is over"))
		defer cancel()
		b, err := cost.Make(ctx, o)
		var option *cost.OptionError
		switch {
		case errors.As(err, &option):
			return errUsage{err}
		case err != nil && ctx.Err() != nil && e.Ctx.Err() == nil:
			return fmt.Errorf("the bill was not made within %s (--timeout): %w", *timeout, err)
		case err != nil:
			return err
		}
		write := map[string]func(io.Writer) error{"table": b.WriteTable, "csv": b.WriteCSV, "json": b.WriteJSON}[*format]
		if *allKinds {
			write = b.WriteCSVOfAll
		}
		if *format == "csv" {
			warnOfMissing(e.Stderr, b)
		}
		if *out == "" {
			err = write(e.Stdout)
		} else {
			err = WriteWhole(strings.ReplaceAll(*out, "{from}", o.Range.From.In(loc).Format(time.DateOnly)), write)
		}
		if over := b.OverBudget(); err == nil && *failOver && len(over) > 0 {
			return errors.New(strings.Join(over, "; "))
		}
		return err
	}
}

// warnOfMissing tells what is missing from a bill whose form, a sheet, has no place for sentences.
func warnOfMissing(w io.Writer, b *cost.Bill) {
	for _, said := range b.Missing() {
		fmt.Fprintf(w, "warning: %s\n", said)
	}
}

// costNames are the flags that name labels and metrics.
func costNames(c *kingpin.CmdClause) *cost.Names {
	n := &cost.Names{}
	c.Flag("kube-state-metrics.selector",
		"Matchers of the kube-state-metrics targets.").Default(`job="kube-state-metrics"`).StringVar(&n.Selector)
	c.Flag("cluster-label", "Label that tells clusters apart.").Default("cluster").StringVar(&n.ClusterLabel)
	c.Flag("replica-label", "Label that tells replicas of kube-state-metrics apart.").Default("instance").StringVar(&n.ReplicaLabel)
	c.Flag("shard-label", "Label that tells shards of a sharded kube-state-metrics apart; none by default: then all are replicas.").PlaceHolder("LABEL").StringVar(&n.ShardLabel)
	c.Flag("resource", "The resource that is billed, as kube-state-metrics writes it.").Default("nvidia_com_gpu").StringVar(&n.Resource)
	c.Flag("experiment-label", "Label of kube_pod_labels that names the experiment; may be given several times, the first that a pod has counts.").Default(cost.DefaultExperimentLabels...).StringsVar(&n.ExperimentLabels)
	c.Flag("team-label", "Label of kube_namespace_labels that names the team; may be given several times, the first that a namespace has counts.").Default(cost.DefaultTeamLabels...).StringsVar(&n.TeamLabels)
	c.Flag("model-label", "Label of kube_node_labels that names the GPU model.").Default("label_nvidia_com_gpu_product").StringVar(&n.ModelLabel)
	c.Flag("class-label", "Label of kube_node_labels that says how a node was bought (spot, on-demand, reserved); may be given several times, the first that a node has counts.").Default(cost.DefaultClassLabels...).StringsVar(&n.ClassLabels)
	c.Flag("cards-per-node", "Cards of a node with shared GPUs (time slicing, MIG), where --activity-metric does not tell.").Default("8").IntVar(&n.CardsPerNode)
	c.Flag("admin-namespaces", "Namespaces, as a regular expression, whose ResourceClaims only look on (adminAccess), as those of NVIDIA's exporter do. Default: gpu-operator, nvidia-gpu-operator and nvidia-dra-driver-gpu.").PlaceHolder("REGEX").StringVar(&n.AdminNamespaces)
	c.Flag("reservation-taint", "Key of the taint that keeps a node for the team that is its value.").Default("team").StringVar(&n.ReservationTaint)
	c.Flag("activity-metric", "Metric of how busy a GPU is, 0 to 1.").Default("DCGM_FI_PROF_GR_ENGINE_ACTIVE").StringVar(&n.Activity)
	return n
}

func dimensions(words []string) []cost.Dimension {
	var out []cost.Dimension
	for _, w := range words {
		for d := range strings.SplitSeq(w, ",") {
			out = append(out, cost.Dimension(strings.TrimSpace(d)))
		}
	}
	return out
}

// costDirectory is the directory file with the flags laid over it, and the models that the flags
// price.
func costDirectory(file string, prices []string, currency string) (*cost.Directory, []string, error) {
	d := &cost.Directory{}
	if file != "" {
		var err error
		if d, err = cost.LoadDirectory(file); err != nil {
			return nil, nil, err
		}
	}
	if currency != "" {
		d.Currency = currency
	}
	d.First = map[string]float64{} // the flags go before the file
	var priced []string
	for _, p := range prices {
		model, price, ok := strings.Cut(p, "=")
		v, err := strconv.ParseFloat(price, 64)
		if !ok || err != nil || model == "" {
			return nil, nil, errUsage{fmt.Errorf("--price=%s: it is written MODEL=PRICE, such as NVIDIA-H100-80GB-HBM3=2.50 or *H100*=2.50", p)}
		}
		for _, other := range priced {
			if cost.ModelName(other) == cost.ModelName(model) {
				return nil, nil, errUsage{fmt.Errorf("--price=%s: %s has a price already, by --price=%s=%v; spaces and dashes are the same", p, model, other, d.First[other])}
			}
		}
		d.First[model] = v
		priced = append(priced, model)
	}
	if err := d.Validate(); err != nil {
		return nil, nil, errUsage{err}
	}
	return d, priced, nil
}

// apiClient is a client of a Prometheus API, by the name of who asks, as the file that a flag names
// says. Every request has two minutes.
func apiClient(flag, file, name string) (*http.Client, error) {
	cfg := &promconfig.HTTPClientConfig{}
	*cfg = promconfig.DefaultHTTPClientConfig
	if file != "" {
		var err error
		if cfg, _, err = promconfig.LoadHTTPConfigFile(file); err != nil {
			return nil, fmt.Errorf("%s=%s: %w", flag, file, err)
		}
	}
	hc, err := promconfig.NewClientFromConfig(*cfg, name, promconfig.WithUserAgent(name+"/"+cmp.Or(version.Version, "unknown")))
	if err != nil {
		return nil, fmt.Errorf("%s=%s: %w", flag, file, err)
	}
	hc.Timeout = 2 * time.Minute
	return hc, nil
}

// WriteWhole writes a file that everybody may read: whole, or not at all.
func WriteWhole(file string, write func(io.Writer) error) error {
	return plainfile.Write(file, 0o644, write)
}
