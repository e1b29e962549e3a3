package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	versioncollector "github.com/prometheus/client_golang/prometheus/collectors/version"
	"github.com/prometheus/common/version"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/contrib/propagators/autoprop"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/server"
)

// proxyCommand serves the proxy.
func proxyCommand(e *Env, parent Clause) func() error {
	c := parent.Command("proxy", "Serves the query proxy.")
	file := c.Flag("config.file", "The configuration file.").Default("spillway.yaml").String()
	address := c.Flag("web.listen-address", "Where the Prometheus API is served.").Default("127.0.0.1:9090").String()
	admin := c.Flag("web.admin-listen-address", "Where metrics, reload, profiles and the console are served.").Default("127.0.0.1:9091").String()
	metrics := c.Flag("web.metrics-listen-address", "Where /metrics and health are served alone, without the rest of the admin listener, which can then stay on loopback. Empty is nowhere else.").PlaceHolder("0.0.0.0:9092").String()
	insecure := c.Flag("web.admin-insecure", "Serves the admin listener beyond loopback without passwords or client certificates. Anybody who reaches it can reload and profile.").Bool()
	most := c.Flag("web.max-connections", "How many client connections the main listener has at once.").Default(strconv.Itoa(server.DefaultMaxConnections)).Int()
	each := c.Flag("web.max-connections-per-address", "How many of them may come from one address, or from one /64 of IPv6. 0 is three quarters of them; where all clients come through one load balancer, write as many as --web.max-connections.").
		Default("0").Int()
	webConfig := c.Flag("web.config.file", "TLS (tls_server_config) and passwords (basic_auth_users) of all listeners, in the form of Prometheus' web configuration file.").PlaceHolder("web.yml").String()
	external := c.Flag("web.external-url", "Where users reach Spillway, for links.").String()
	cors := c.Flag("web.cors.origin", "Regular expression, anchored, of the origins whose pages may read answers in a browser, as in Prometheus: 'https?://(domain1|domain2)\\.com'. Empty is none.").Default(".*").String()
	graph := c.Flag("web.graph-url", "Where the page behind every alert's link draws a query: Grafana Explore, say. {expr} or, inside JSON, {expr_json} stands for the query, {from} and {until} for Unix milliseconds.").String()
	console := c.Flag("web.console-url", "Where users reach the admin listener in a browser: each refusal ends with a link to its page there, which says why. Empty is no link.").PlaceHolder("https://spillway-admin.example.com").String()
	setLimit := c.Flag("auto-gomemlimit", "Sets GOMEMLIMIT, where it is not set, to nine tenths of the container's memory or the machine's, or to what memory.budget needs where that is less.").Default("true").Bool()
	every := c.Flag("config.auto-reload-interval", "How often the configuration file is looked at; one that has changed is reloaded. 0s is never.").
		Default("30s").Duration()
	delay := c.Flag("web.shutdown-delay", "How long new connections are still served after SIGTERM, when /-/ready is 503 already: as long as a load balancer or Kubernetes may go on sending them. Requests then have 15s more.").
		Default("0s").Duration()
	wait := c.Flag("web.ready-wait", "How long /-/ready may be 503 after a start because no server has answered yet, so that a roll-out does not replace those that reach servers by those that do not. Queries are served meanwhile. 0s is not at all.").
		Default("0s").Duration()
	prefix := c.Flag("web.route-prefix", "Stands before every path of the API; by default the path of --web.external-url.").String()
	return func() error {
		if err := CheckAddresses(*address, *admin, *metrics); err != nil {
			return errUsage{err}
		}
		if err := errors.Join(checkConnections(*most, *each), checkDelay(*delay), checkReadyWait(*wait)); err != nil {
			return errUsage{err}
		}
		IgnoreBrokenPipe()
		log := e.Logger()
		cfg, err := loadConfig(*file)
		if err != nil {
			return err
		}
		reg := NewRegistry()
		stopTraces, err := startTraces(e.Ctx, log)
		if err != nil {
			return err
		}
		defer stopTraces()
		memory := readMemory(*setLimit, log)
		defer memory.relax()()
		s, err := server.New(server.Options{
			Config: cfg, ConfigFile: *file, ReloadInterval: *every, ListenAddress: *address, AdminListenAddress: *admin,
			MetricsListenAddress: *metrics, AdminInsecure: *insecure, MaxConnections: *most, MaxPerAddress: *each,
			WebConfigFile: *webConfig, ShutdownDelay: *delay, ReadyWait: *wait,
			ExternalURL: *external, GraphURL: *graph, ConsoleURL: *console, CORSOrigin: *cors, RoutePrefix: *prefix,
			Flags: e.Flags, Version: BuildVersion(),
			Registerer: reg, Gatherer: reg, Logger: log,
			LimitMemory: memory.limit(), MemoryCeiling: memory.ceiling(), MoreMemory: memory.more,
		})
		if err != nil {
			return err
		}
		for _, n := range cfg.Notes {
			log.Warn("configuration", "note", n.String())
		}
		log.Info("starting spillway", "version", BuildVersion(), "config", *file, "groups", len(cfg.Groups))
		ctx, cancel := context.WithCancel(e.Ctx)
		done := reloadOnSignal(ctx, s)
		err = s.Run(ctx, e.Force)
		cancel()
		<-done
		return AdviseOnListening(err)
	}
}

// reloadOnSignal reloads at each SIGHUP until ctx ends; done is closed then.
func reloadOnSignal(ctx context.Context, s *server.Server) (done chan struct{}) {
	reload, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(reload, syscall.SIGHUP)
	go func() {
		defer close(done)
		defer signal.Stop(reload)
		for {
			select {
			case <-reload:
				_ = s.Reload() // logged and counted there
			case <-ctx.Done():
				return
			}
		}
	}()
	return done
}

// IgnoreBrokenPipe keeps a server alive when whoever reads its log goes away: a logger's restart, a
// closed terminal. Go ends a process that writes to a broken pipe on standard output or error; the
// write fails alone where the signal is ignored. Commands whose output is their purpose do not call
// it.
func IgnoreBrokenPipe() { signal.Ignore(syscall.SIGPIPE) }

// loadConfig reads the file; what is wrong with it is listed one a line.
func loadConfig(file string) (*config.Config, error) {
	cfg, err := config.Load(file)
	var problems config.Problems
	switch {
	case errors.As(err, &problems):
		return nil, fmt.Errorf("%s has problems:\n%w", file, err)
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%w; name it with --config.file, or try: spillway-lab demo", err)
	}
	return cfg, err
}

// init gives a build without version flags the version that its build information has, for
// --version and the metric spillway_build_info.
func init() {
	if version.Version != "" {
		return
	}
	info, _ := debug.ReadBuildInfo() // nil where there is none
	version.Version = versionOf(info)
}

// versionOf is the module's version, else the revision that it was built of, else unknown: as when
// it was built with -buildvcs=false, or outside of its repository.
func versionOf(info *debug.BuildInfo) string {
	if info == nil {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return strings.TrimPrefix(v, "v")
	}
	revision, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+dirty"
		}
	}
	if revision == "" {
		return "unknown"
	}
	return "0.0.0-" + revision + changed
}

// versionCommand writes what --version does, for those who look for a command.
func versionCommand(e *Env, parent Clause) func() error {
	parent.Command("version", "Writes the version of this program.")
	return func() error {
		_, err := fmt.Fprintln(e.Stdout, version.Print("spillway"))
		return err
	}
}

// BuildVersion is the version that the build was given, or what versionOf finds.
func BuildVersion() string { return version.Version }

func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		versioncollector.NewCollector("spillway"))
	return reg
}

// startTraces sends traces where the standard OTEL_ variables say. Without any of them nothing is
// collected.
func startTraces(ctx context.Context, log *slog.Logger) (stop func(), err error) {
	otel.SetTextMapPropagator(autoprop.NewTextMapPropagator())
	wanted := false
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		wanted = wanted || value != "" &&
			(name == "OTEL_TRACES_EXPORTER" || name == "OTEL_EXPORTER_OTLP_ENDPOINT" || name == "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	}
	if !wanted || os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return func() {}, nil
	}
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces (OTEL_ variables): %w", err)
	}
	res, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "spillway"),
		attribute.String("service.version", BuildVersion())),
		resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		log.Warn("traces: some of OTEL_RESOURCE_ATTRIBUTES could not be read", "err", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	otel.SetTracerProvider(provider)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces", "err", err) }))
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("the last traces were not sent", "err", err)
		}
	}, nil
}
