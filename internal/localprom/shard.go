package localprom

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grafana/regexp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/notifier"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/compression"
	"github.com/prometheus/prometheus/util/features"
	"github.com/prometheus/prometheus/util/logging"
	"github.com/prometheus/prometheus/util/notifications"
	"github.com/prometheus/prometheus/web"

	"github.com/spillwayproject/spillway/internal/promfiles"
)

const (
	ruleForGracePeriod     = 10 * time.Minute
	ruleOutageTolerance    = time.Hour
	ruleResendDelay        = time.Minute
	ruleMaxConcurrentEvals = 4

	// targetSyncInterval is how soon new or changed targets are scraped; Prometheus waits up to 5
	// s, which a test should not.
	targetSyncInterval = 250 * time.Millisecond

	// stripeSize is the number of lock stripes of the head. Prometheus' 16,384 cost about 3 MiB for
	// each shard, used or not; 1,024 serve a million series.
	stripeSize = 1 << 10
)

// Shard is a running Prometheus. Its methods may be called from several goroutines.
type Shard struct {
	opts     Options
	settings settings
	dir      string
	temp     bool
	url      string
	reg      *prometheus.Registry
	parser   parser.Parser

	db       *localStorage
	fanout   storage.Storage
	remote   *remote.Storage
	engine   *promql.Engine
	scraper  *scrape.Manager
	ruler    *rules.Manager
	notifier *notifier.Manager
	scrapeSD *discovery.Manager
	notifySD *discovery.Manager
	handler  *web.Handler
	server   *server

	config          atomic.Pointer[config.Config]
	subqueryStep    atomic.Int64 // milliseconds; the step of subqueries that name none
	reloadOK        prometheus.Gauge
	reloadTimestamp prometheus.Gauge

	cleanup   []func() error // run in reverse order by Close
	closeOnce sync.Once
	closeErr  error
}

// Start opens the data directory, starts all parts of the shard and serves its API. The shard is
// ready when Start returns; targets are first scraped within their interval. ctx bounds Start
// itself, not the shard: that ends with Close, which must be called.
func Start(ctx context.Context, opts Options) (*Shard, error) {
	opts.setDefaults()
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("options of the shard: %w", err)
	}
	s := &Shard{opts: opts, settings: opts.settings()}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Shard) start(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("start the shard: %w", context.Cause(ctx))
	}
	conf, err := s.opts.load()
	if err != nil {
		return err
	}
	if err := s.openDir(); err != nil {
		return err
	}
	for _, dir := range s.opts.Blocks {
		if _, err := promfiles.LinkBlocks(ctx, dir, s.dir); err != nil {
			return err
		}
	}
	// The port is taken first, since status/flags and the external URL name it.
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.opts.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", s.opts.Listen, err)
	}
	served := false
	s.onClose(func() error {
		if served {
			return nil // the server closed it
		}
		return listener.Close()
	})
	external := &url.URL{Scheme: "http", Host: listener.Addr().String()}
	if s.opts.RoutePrefix != "/" {
		external.Path = s.opts.RoutePrefix
	}
	s.url = external.String()

	version := buildInfo()
	s.reg = newRegistry(version)
	s.reloadOK = prometheus.NewGauge(prometheus.GaugeOpts{Name: "prometheus_config_last_reload_successful", Help: "Whether the last configuration reload attempt was successful."})
	s.reloadTimestamp = prometheus.NewGauge(prometheus.GaugeOpts{Name: "prometheus_config_last_reload_success_timestamp_seconds", Help: "Timestamp of the last successful configuration reload."})
	s.reg.MustRegister(s.reloadOK, s.reloadTimestamp)
	s.parser = parser.NewParser(s.settings.parser)
	feat := features.NewRegistry()
	feat.Set(features.Prometheus, "agent_mode", false)
	feat.Set(features.Prometheus, "server_mode", true)
	feat.Set(features.Prometheus, "auto_reload_config", false)
	feat.Enable(features.Prometheus, labels.ImplementationName)
	template.RegisterFeatures(feat)

	if err := s.openStorage(conf, feat); err != nil {
		return err
	}
	if err := s.openEngine(feat); err != nil {
		return err
	}
	if err := s.newManagers(conf, external, feat); err != nil {
		return err
	}
	if err := s.serve(ctx, conf, listener, external, version, feat); err != nil {
		return err
	}
	served = true
	return nil
}

func (s *Shard) openDir() error {
	if s.opts.Dir == "" {
		dir, err := os.MkdirTemp("", "localprom-")
		if err != nil {
			return fmt.Errorf("make the data directory: %w", err)
		}
		s.dir, s.temp = dir, true
		s.onClose(func() error { return os.RemoveAll(dir) })
		return nil
	}
	dir, err := filepath.Abs(s.opts.Dir)
	if err != nil {
		return fmt.Errorf("data directory %s: %w", s.opts.Dir, err)
	}
	s.dir = dir
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	return nil
}

func (s *Shard) openStorage(conf *config.Config, feat features.Collector) error {
	tc := conf.StorageConfig.TSDBConfig
	o := tsdb.DefaultOptions()
	o.StripeSize = stripeSize
	o.HeadChunksWriteBufferSize = chunks.MinWriteBufferSize // 4 MiB by default, for each shard
	o.WALCompression = compression.Snappy
	if s.opts.DisableWAL {
		o.WALSegmentSize = -1
	}
	o.MinBlockDuration = s.opts.BlockDuration.Milliseconds()
	o.MaxBlockDuration = s.opts.maxBlockDuration(conf).Milliseconds()
	o.RetentionDuration = time.Duration(tc.Retention.Time).Milliseconds()
	o.MaxBytes = int64(tc.Retention.Size)
	o.MaxPercentage = tc.Retention.Percentage
	o.OutOfOrderTimeWindow = tc.OutOfOrderTimeWindow
	o.StaleSeriesCompactionThreshold = tc.StaleSeriesCompactionThreshold
	o.BlockReloadInterval = blockReloadInterval
	o.FeatureRegistry = feat
	o.EnableExemplarStorage = s.settings.exemplars
	if ec := conf.StorageConfig.ExemplarsConfig; ec != nil {
		o.MaxExemplars = ec.MaxExemplars
	}
	o.EnableMetadataWALRecords = s.settings.metadataWALRecords
	o.EnableDelayedCompaction = s.settings.delayedCompaction
	o.EnableMemorySnapshotOnShutdown = s.settings.memorySnapshotOnEnd

	stats := tsdb.NewDBStats()
	db, err := tsdb.Open(s.dir, s.log("tsdb"), s.reg, o, stats)
	if err != nil {
		return fmt.Errorf("open the TSDB in %s: %w", s.dir, err)
	}
	s.db = &localStorage{DB: db, stats: stats, read: s.opts.Read}
	lowest := func() float64 {
		if bb := db.Blocks(); len(bb) > 0 {
			return float64(bb[0].Meta().MinTime / 1000)
		}
		return float64(db.Head().MinTime() / 1000)
	}
	s.reg.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "prometheus_tsdb_lowest_timestamp_seconds",
			Help: "Lowest timestamp value stored in the database.",
		}, lowest),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "prometheus_tsdb_head_min_time_seconds",
			Help: "Minimum time bound of the head block.",
		},
			func() float64 { return float64(db.Head().MinTime() / 1000) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "prometheus_tsdb_head_max_time_seconds",
			Help: "Maximum timestamp of the head block.",
		},
			func() float64 { return float64(db.Head().MaxTime() / 1000) }),
	)
	s.remote = remote.NewStorage(s.log("remote"), s.reg, db.StartTime, s.dir, time.Minute, noScrapeManager{}, s.settings.typeAndUnitLabels)
	s.fanout = storage.NewFanout(s.opts.Logger, s.db, s.remote)
	s.onClose(s.fanout.Close) // closes the TSDB and the remote storage
	return nil
}

func (s *Shard) openEngine(feat features.Collector) error {
	tracker, err := promql.NewActiveQueryTracker(s.dir, s.opts.MaxConcurrency, s.log("activeQueryTracker"))
	if err != nil {
		return fmt.Errorf("open the active query log in %s: %w", s.dir, err)
	}
	s.engine = promql.NewEngine(promql.EngineOpts{
		Logger:                   s.log("query engine"),
		Reg:                      s.reg,
		MaxSamples:               s.opts.MaxSamples,
		Timeout:                  s.opts.Timeout,
		ActiveQueryTracker:       tracker,
		LookbackDelta:            s.opts.LookbackDelta,
		NoStepSubqueryIntervalFn: func(int64) int64 { return s.subqueryStep.Load() },
		EnableAtModifier:         true,
		EnableNegativeOffset:     true,
		EnablePerStepStats:       s.settings.perStepStats,
		EnableDelayedNameRemoval: s.settings.delayedNameRemoval,
		EnableTypeAndUnitLabels:  s.settings.typeAndUnitLabels,
		UseStartTimestamps:       s.settings.useStartTimestamps,
		FeatureRegistry:          feat,
		Parser:                   s.parser,
	})
	s.onClose(s.engine.Close)
	return nil
}

// newManagers makes and runs the discovery, scrape, notifier and rule managers. They do nothing
// until apply gives them a configuration.
func (s *Shard) newManagers(conf *config.Config, external *url.URL, feat features.Collector) error {
	sdMetrics, err := discovery.CreateAndRegisterSDMetrics(s.reg)
	if err != nil {
		return fmt.Errorf("register the metrics of service discovery: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	s.onClose(func() error { cancel(); wg.Wait(); return nil })

	newDiscovery := func(name string) (*discovery.Manager, error) {
		m := discovery.NewManager(ctx, s.log("discovery manager "+name), s.reg, sdMetrics, discovery.Name(name),
			discovery.FeatureRegistry(feat), discovery.Updatert(targetSyncInterval))
		if m == nil {
			return nil, fmt.Errorf("make the discovery manager %s: its log says why", name)
		}
		wg.Go(func() { _ = m.Run() }) // ends with ctx and its error
		return m, nil
	}
	if s.scrapeSD, err = newDiscovery("scrape"); err != nil {
		return err
	}
	if s.notifySD, err = newDiscovery("notify"); err != nil {
		return err
	}

	s.scraper, err = scrape.NewManager(&scrape.Options{
		DiscoveryReloadInterval:  model.Duration(targetSyncInterval),
		DiscoveryReloadOnStartup: true,
		EnableTypeAndUnitLabels:  s.settings.typeAndUnitLabels,
		EnableOpenMetrics2:       s.settings.openMetrics2,
		AppendMetadata:           s.settings.metadataWALRecords,
		FeatureRegistry:          feat,
	}, s.log("scrape manager"), logging.NewJSONFileLogger, nil, s.fanout, s.reg)
	if err != nil {
		return fmt.Errorf("make the scrape manager: %w", err)
	}
	wg.Go(func() { _ = s.scraper.Run(s.scrapeSD.SyncCh()) }) // always nil
	s.onClose(func() error { s.scraper.Stop(); return nil })

	s.notifier = notifier.NewManager(&notifier.Options{
		Registerer: s.reg, QueueCapacity: 10_000,
		MaxBatchSize: notifier.DefaultMaxBatchSize,
	}, conf.GlobalConfig.MetricNameValidationScheme, s.log("notifier"))
	wg.Go(func() { s.notifier.Run(s.notifySD.SyncCh()) })
	s.onClose(func() error { s.notifier.Stop(); return nil })

	ask := s.opts.RuleQuery
	if ask == nil {
		ask = rules.EngineQueryFunc(s.engine, s.fanout)
	}
	ruleCtx, cancelRules := context.WithCancel(context.Background())
	s.ruler = rules.NewManager(&rules.ManagerOptions{
		NameValidationScheme:   conf.GlobalConfig.MetricNameValidationScheme,
		Appendable:             s.fanout,
		Queryable:              s.db,
		QueryFunc:              ask,
		NotifyFunc:             rules.SendAlerts(s.notifier, external.String()),
		Context:                ruleCtx,
		ExternalURL:            external,
		Registerer:             s.reg,
		Logger:                 s.log("rule manager"),
		OutageTolerance:        ruleOutageTolerance,
		ForGracePeriod:         ruleForGracePeriod,
		ResendDelay:            ruleResendDelay,
		MaxConcurrentEvals:     ruleMaxConcurrentEvals,
		ConcurrentEvalsEnabled: s.settings.concurrentRuleEval,
		DefaultRuleQueryOffset: func() time.Duration { return time.Duration(s.config.Load().GlobalConfig.RuleQueryOffset) },
		FeatureRegistry:        feat,
		Parser:                 s.parser,
	})
	wg.Go(s.ruler.Run)
	// A rule that runs into the end of the shard is cut short: its result would have nowhere to go.
	s.onClose(func() error { cancelRules(); s.ruler.Stop(); return nil })
	return nil
}

func (s *Shard) serve(ctx context.Context, conf *config.Config, l net.Listener, external *url.URL, version *web.PrometheusVersion,
	feat features.Collector,
) error {
	notifs := notifications.NewNotifications(16, s.reg)
	retention := conf.StorageConfig.TSDBConfig.Retention
	o := &web.Options{
		Context:                    context.Background(),
		TSDBRetentionDuration:      retention.Time,
		TSDBDir:                    s.dir,
		TSDBMaxBytes:               retention.Size,
		TSDBMaxPercentage:          retention.Percentage,
		LocalStorage:               s.db,
		Storage:                    s.fanout,
		ExemplarStorage:            s.db,
		QueryEngine:                s.engine,
		LookbackDelta:              s.opts.LookbackDelta,
		ScrapeManager:              s.scraper,
		RuleManager:                s.ruler,
		Notifier:                   s.notifier,
		Version:                    version,
		NotificationsGetter:        notifs.Get,
		NotificationsSub:           notifs.Sub,
		Flags:                      s.opts.flags(s.dir, l.Addr().String(), conf),
		ListenAddresses:            []string{l.Addr().String()},
		CORSOrigin:                 regexp.MustCompile("^(?s:.*)$"),
		ReadTimeout:                webReadTimeout,
		MaxConnections:             maxConnections,
		ExternalURL:                external,
		RoutePrefix:                s.opts.RoutePrefix,
		EnableLifecycle:            s.opts.EnableLifecycle,
		EnableAdminAPI:             s.opts.EnableAdminAPI,
		EnableSearch:               s.settings.search,
		MaxSearchLimit:             10_000,
		PageTitle:                  "Prometheus Time Series Collection and Processing Server",
		RemoteReadSampleLimit:      remoteReadSampleLimit,
		RemoteReadConcurrencyLimit: s.opts.RemoteReadConcurrency,
		RemoteReadBytesInFrame:     remoteReadBytesInFrame,
		EnableTypeAndUnitLabels:    s.settings.typeAndUnitLabels,
		AppendMetadata:             s.settings.metadataWALRecords,
		AppName:                    "Prometheus Server",
		Gatherer:                   s.reg,
		Registerer:                 s.reg,
		FeatureRegistry:            feat,
		Parser:                     s.parser,
	}
	s.handler = web.New(s.log("web"), o)
	if err := s.apply(conf); err != nil {
		return err
	}
	s.handler.SetReady(web.Ready)
	routes, err := handlerOf(ctx, s.handler, s.db, o)
	if err != nil {
		return err
	}
	stopReload := s.serveReload()
	s.server = serve(l, routes, path.Join(s.opts.RoutePrefix, "/metrics"), s.reg, s.log("web"))
	s.onClose(func() error {
		s.handler.SetReady(web.Stopping)
		err := s.server.stop()
		stopReload() // after the last handler, which may be waiting for a reload
		return err
	})
	return nil
}

// serveReload answers /-/reload until the function it returns is called.
func (s *Shard) serveReload() (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case rc := <-s.handler.Reload():
				conf, err := s.opts.load()
				if err == nil {
					err = s.apply(conf)
				}
				rc <- err
			case <-done:
				return
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// apply gives a configuration to all parts, in the server's order: scrape and notifier before
// discovery, which sends them their targets.
func (s *Shard) apply(conf *config.Config) (err error) {
	defer func() {
		if err != nil {
			s.reloadOK.Set(0)
			return
		}
		s.reloadOK.Set(1)
		s.reloadTimestamp.SetToCurrentTime()
	}()
	scrapes, err := conf.GetScrapeConfigs()
	if err != nil {
		return fmt.Errorf("scrape configs: %w", err)
	}
	scrapeSD := map[string]discovery.Configs{}
	for _, sc := range scrapes {
		scrapeSD[sc.JobName] = sc.ServiceDiscoveryConfigs
	}
	notifySD := map[string]discovery.Configs{}
	for k, ac := range conf.AlertingConfig.AlertmanagerConfigs.ToMap() {
		notifySD[k] = ac.ServiceDiscoveryConfigs
	}
	var ruleFiles []string
	for _, pattern := range conf.RuleFiles {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("rule files %q: %w", pattern, err)
		}
		ruleFiles = append(ruleFiles, files...)
	}
	s.config.Store(conf)
	s.subqueryStep.Store(time.Duration(conf.GlobalConfig.EvaluationInterval).Milliseconds())
	for _, part := range []struct {
		name  string
		apply func() error
	}{
		{"TSDB", func() error { return s.db.ApplyConfig(conf) }},
		{"remote storage", func() error { return s.remote.ApplyConfig(conf) }},
		{"web handler", func() error { return s.handler.ApplyConfig(conf) }},
		{"scrape manager", func() error { return s.scraper.ApplyConfig(conf) }},
		{"scrape discovery", func() error { return s.scrapeSD.ApplyConfig(scrapeSD) }},
		{"notifier", func() error { return s.notifier.ApplyConfig(conf) }},
		{"alertmanager discovery", func() error { return s.notifySD.ApplyConfig(notifySD) }},
		{"rule manager", func() error {
			return s.ruler.Update(time.Duration(conf.GlobalConfig.EvaluationInterval), ruleFiles, conf.GlobalConfig.ExternalLabels, s.url,
				nil)
		}},
	} {
		if err := part.apply(); err != nil {
			return fmt.Errorf("apply the configuration to the %s: %w", part.name, err)
		}
	}
	return nil
}

func (s *Shard) log(component string) *slog.Logger { return s.opts.Logger.With("component", component) }

func (s *Shard) onClose(f func() error) { s.cleanup = append(s.cleanup, f) }

// Close ends the shard: requests are cancelled and their connections closed, scraping and rules
// stop, the data directory is closed and, if it is a temporary one, removed. It waits for all of
// that, and may be called more than once.
func (s *Shard) Close() error {
	s.closeOnce.Do(func() {
		var errs []error
		for i := len(s.cleanup) - 1; i >= 0; i-- {
			if err := s.cleanup[i](); err != nil {
				errs = append(errs, err)
			}
		}
		if err := errors.Join(errs...); err != nil {
			s.closeErr = fmt.Errorf("close the shard in %s: %w", s.dir, err)
		}
	})
	return s.closeErr
}

// URL is where the API is served, without a slash at the end: http://127.0.0.1:40123, with the
// route prefix if there is one.
func (s *Shard) URL() string { return s.url }

// Dir is the data directory.
func (s *Shard) Dir() string { return s.dir }

// DB is the shard's TSDB.
func (s *Shard) DB() *tsdb.DB { return s.db.DB }

// Storage is what queries read and scrapes write: the TSDB, and what remote_read adds.
func (s *Shard) Storage() storage.Storage { return s.fanout }

// Engine is the shard's PromQL engine, with its limits.
func (s *Shard) Engine() *promql.Engine { return s.engine }

// Registry holds the metrics of this shard, those of /metrics.
func (s *Shard) Registry() *prometheus.Registry { return s.reg }

// Config is the configuration in force, as status/config shows it. It must not be changed.
func (s *Shard) Config() *config.Config { return s.config.Load() }

// Append gives f an appender to the shard's head and commits it, or rolls it back if f fails.
// Samples must not be older than the head allows: an hour before its newest one, unless the
// configuration has an out-of-order window. DB().Snapshot(dir, true) writes what was appended as
// blocks, which other shards and real servers can be given.
func (s *Shard) Append(f func(storage.Appender) error) error {
	app := s.db.Appender(context.Background())
	if err := f(app); err != nil {
		return errors.Join(err, app.Rollback())
	}
	if err := app.Commit(); err != nil {
		return fmt.Errorf("commit samples: %w", err)
	}
	return nil
}
