// Command serve shows the dashboards in a browser, over the demo or over a running proxy. `make
// dashboards` and `make screenshots` run it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	versioncollector "github.com/prometheus/client_golang/prometheus/collectors/version"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/dashboards"
	"github.com/spillwayproject/spillway/dashboards/page"
	"github.com/spillwayproject/spillway/internal/demo"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run serves until ctx ends, and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	app := kingpin.New("serve", "Shows Spillway's dashboards in a browser, drawn by Grafana's components, without a Grafana. Ctrl-C ends it.").UsageWriter(stdout).ErrorWriter(stderr)
	app.Terminate(nil)
	app.HelpFlag.Short('h')
	address := app.Flag("web.listen-address", "Where the page is served; loopback.").Default("127.0.0.1:3300").String()
	api := app.Flag("url", "A running proxy or Prometheus that is asked, such as http://127.0.0.1:9090; a demo is started without it.").String()
	bundle := app.Flag("bundle", "The bundled page.").Default("dashboards/render/dist").String()
	files := app.Flag("dashboards", "A folder of dashboards to show instead of those that are built in.").PlaceHolder("FOLDER").String()
	built := app.Flag("plugin", "The built Grafana plugin, such as grafana-plugin/dist: it is run, and its dashboards and editors (/edit/query, /edit/config) are shown too.").PlaceHolder("FOLDER").String()
	nodes := app.Flag("nodes", "Nodes of each cluster of the demo.").Default("40").Int()
	groups := app.Flag("groups", "Clusters of the demo.").Default("2").Int()
	shards := app.Flag("shards", "Shards of each.").Default("2").Int()
	replicas := app.Flag("replicas", "Replicas of each shard.").Default("1").Int()
	history := app.Flag("history", "How much past the demo holds.").Default("1h").String()
	troubles := app.Flag("trouble", "Stage this trouble in the demo's first cluster: a kind that loadtest/cluster knows, or `all`. May be given several times, or with commas.").PlaceHolder("KIND").Strings()
	called := app.Flag("called", "A JSON list of names, which some of the demo's experiments get, and their teams too: to see what odd names do.").PlaceHolder("FILE").String()
	list := app.Flag("list-troubles", "Print the kinds of trouble and end.").Bool()
	if _, err := app.Parse(args); err != nil {
		fmt.Fprintf(stderr, "serve: %v\n", err)
		return 2
	}
	if *list {
		fmt.Fprintln(stdout, strings.Join(page.TroubleKinds(), "\n"))
		return 0
	}
	err := func() error {
		past, err := model.ParseDuration(*history)
		if err != nil {
			return fmt.Errorf("--history=%s: write a duration such as 1h, 90m or 2d", *history)
		}
		staged, err := page.Stage(*troubles)
		if err != nil {
			return err
		}
		if *api != "" && len(*troubles) > 0 {
			return errors.New("--trouble is staged in the demo; it cannot be in what --url names")
		}
		var names func(*cluster.Model, time.Time) (map[string]cluster.Called, error)
		if *called != "" {
			if names, err = page.Names(*called, *groups); err != nil {
				return fmt.Errorf("--called: %w", err)
			}
			if *api != "" {
				return errors.New("--called names experiments of the demo; it cannot name those of what --url names")
			}
		}
		o := page.Options{Bundle: os.DirFS(*bundle), Dashboards: dashboards.FS()}
		if *files != "" {
			o.Dashboards = os.DirFS(*files)
		}
		var p *plugin
		if *built != "" {
			if p, err = openPlugin(*built); err != nil {
				return err
			}
			o.Dashboards = union{o.Dashboards, p.dashboards()}
		}
		if *api != "" {
			if o.API, err = url.Parse(*api); err != nil {
				return fmt.Errorf("--url: %w", err)
			}
			return serve(ctx, o, p, *address, stdout)
		}
		return withDemo(ctx, o, p, *address, stdout, demo.Options{
			Groups: *groups, Shards: *shards, Replicas: *replicas, Nodes: *nodes, History: time.Duration(past), Seed: 1, Troubles: staged,
			Called:        names,
			ListenAddress: "127.0.0.1:0", AdminListenAddress: "127.0.0.1:0", Version: "dashboards", Registry: registry(),
			Logger: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
			Say:    func(format string, args ...any) { fmt.Fprintf(stdout, format+"\n", args...) },
		})
	}()
	if err != nil {
		fmt.Fprintf(stderr, "serve: %v\n", err)
		return 1
	}
	return 0
}

// registry has what every Spillway shows of its process and build: the dashboards ask for it.
func registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		versioncollector.NewCollector("spillway"))
	return r
}

// serve shows the page until ctx ends, with the plugin where there is one.
func serve(ctx context.Context, o page.Options, p *plugin, address string, stdout io.Writer) error {
	if p != nil {
		h, s, err := p.start(o.API, io.Discard)
		if err != nil {
			return err
		}
		defer h.Close()
		o.Plugin = s
	}
	s, err := page.New(o)
	if err != nil {
		return err
	}
	return s.Run(ctx, address, func(a net.Addr) { fmt.Fprintf(stdout, "\n  dashboards       http://%s\n\n", a) })
}

// withDemo runs a demo and the page over it; the end of one ends the other.
func withDemo(ctx context.Context, o page.Options, p *plugin, address string, stdout io.Writer, d demo.Options) error {
	if err := d.Validate(); err != nil {
		return err
	}
	if err := page.Check(o); err != nil {
		return err // before half a minute is spent on the demo
	}
	group, ctx := errgroup.WithContext(ctx)
	ready := make(chan net.Addr, 1)
	d.Ready = func(main, _ net.Addr) { ready <- main }
	group.Go(func() error {
		defer close(ready)
		if err := demo.Run(ctx, context.WithoutCancel(ctx), d); err != nil {
			return err
		}
		return context.Canceled // the demo ended: so does the page
	})
	group.Go(func() error {
		a, ok := <-ready
		if !ok {
			return nil
		}
		o.API = &url.URL{Scheme: "http", Host: a.String()}
		return serve(ctx, o, p, address, stdout)
	})
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
