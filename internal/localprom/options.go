package localprom

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/spillwayproject/spillway/internal/promfiles"

	// Static and file targets are what a shard of a demo or a test needs; both register themselves.
	_ "github.com/prometheus/prometheus/discovery/file"
)

// Version is the Prometheus version that shards report: the one whose code they run (module version
// v0.315.0). A test compares it with go.mod.
const Version = "3.15.0"

// Options says what a shard is. The zero value is a shard with an empty temporary data directory,
// Prometheus' own defaults and no targets.
type Options struct {
	// Dir is the data directory. Empty means a temporary one, which Close removes.
	Dir string
	// Blocks names directories whose TSDB blocks are put into the data directory before it is
	// opened: hard links where possible, copies elsewhere.
	Blocks []string
	// DisableWAL leaves the write-ahead log out: less disk and processor time, and what is in the
	// head is gone after Close. Ask for it where Dir is temporary.
	DisableWAL bool
	// Read, if set, is what queries, remote reads and lists read instead of the data directory's
	// TSDB: a test can give a running shard one storage after another. Scrapes, rules and Append
	// still write to the TSDB, and status/tsdb and exemplars are still of it. It must outlive the
	// shard; the shard does not close it.
	Read storage.SampleAndChunkQueryable
	// RuleQuery, if set, answers the queries of rules in the place of the shard's own engine: so a
	// shard is the ruler of other servers. What rules write still goes to the shard.
	RuleQuery rules.QueryFunc

	// Config is the text of a prometheus.yml: global, scrape_configs, rule_files, alerting,
	// remote_read, storage. remote_write is refused.
	Config string
	// ExternalLabels replace those of Config if there are any.
	ExternalLabels labels.Labels
	// ScrapeConfigs are added to those of Config. They are validated against Config's global
	// section, which fills in their defaults.
	ScrapeConfigs []*config.ScrapeConfig
	// Retention replaces the retention time of Config. Zero leaves Config's, which is 15 days where
	// it says nothing. It is counted from the newest block, not from now.
	Retention time.Duration

	// Listen is the address of the HTTP API, by default 127.0.0.1:0 (a free port).
	Listen string
	// RoutePrefix is put before every route, as --web.route-prefix does: "/prometheus".
	RoutePrefix string
	// EnableLifecycle serves /-/reload (which applies Config again) and /-/quit (which answers;
	// nobody acts on it). Off, both are 403 as in Prometheus.
	EnableLifecycle bool
	// EnableAdminAPI serves /api/v1/admin/tsdb.
	EnableAdminAPI bool
	// Features are names of --enable-feature; see knownFeatures for those that can be had.
	Features []string

	// LookbackDelta is the engine's and federation's staleness window, by default 5m.
	LookbackDelta time.Duration
	// Timeout is the engine's bound for one query, by default 2m. As in Prometheus it reaches query
	// and query_range only.
	Timeout time.Duration
	// MaxSamples is the most samples that one query may hold, by default 50,000,000.
	MaxSamples int
	// MaxConcurrency is the number of queries that run at once, by default 20; the others wait.
	MaxConcurrency int
	// RemoteReadConcurrency is the number of remote reads that run at once, by default 10; the
	// others wait.
	RemoteReadConcurrency int
	// BlockDuration is the span of a freshly cut block, by default 2h. A longer one keeps long
	// loads of test data in the head.
	BlockDuration time.Duration

	// Logger takes the shard's log; nil drops it.
	Logger *slog.Logger
}

// defaultRetention is the server's.
const defaultRetention = 15 * 24 * time.Hour

// blockReloadInterval is how soon blocks put into the data directory are seen. Prometheus' default
// of a minute is too long for AddBlocks.
const blockReloadInterval = 2 * time.Second

func (o *Options) setDefaults() {
	setDefault(&o.Listen, "127.0.0.1:0")
	setDefault(&o.LookbackDelta, 5*time.Minute)
	setDefault(&o.Timeout, 2*time.Minute)
	setDefault(&o.MaxSamples, 50_000_000)
	setDefault(&o.MaxConcurrency, 20)
	setDefault(&o.RemoteReadConcurrency, 10)
	setDefault(&o.BlockDuration, time.Duration(tsdb.DefaultBlockDuration)*time.Millisecond)
	if o.Logger == nil {
		o.Logger = promslog.NewNopLogger()
	}
	o.RoutePrefix = "/" + strings.Trim(o.RoutePrefix, "/")
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

func (o *Options) validate() error {
	var errs []error
	for name, v := range map[string]time.Duration{
		"LookbackDelta": o.LookbackDelta, "Timeout": o.Timeout, "BlockDuration": o.BlockDuration,
		"Retention": o.Retention,
	} {
		if v < 0 {
			errs = append(errs, fmt.Errorf("%s is %s: it must not be negative", name, v))
		}
	}
	for name, v := range map[string]int{
		"MaxSamples": o.MaxSamples, "MaxConcurrency": o.MaxConcurrency,
		"RemoteReadConcurrency": o.RemoteReadConcurrency,
	} {
		if v < 0 {
			errs = append(errs, fmt.Errorf("%s is %d: it must not be negative", name, v))
		}
	}
	for _, f := range o.Features {
		if _, ok := knownFeatures[f]; !ok {
			errs = append(errs, fmt.Errorf("feature %q cannot be had in an embedded shard: use one of %s", f, strings.Join(slices.Sorted(maps.Keys(knownFeatures)), ", ")))
		}
	}
	return errors.Join(errs...)
}

// settings is what feature flags switch on.
type settings struct {
	parser              parser.Options
	exemplars           bool
	perStepStats        bool
	delayedNameRemoval  bool
	typeAndUnitLabels   bool
	concurrentRuleEval  bool
	search              bool
	useStartTimestamps  bool
	openMetrics2        bool
	metadataWALRecords  bool
	delayedCompaction   bool
	memorySnapshotOnEnd bool
}

// knownFeatures are the values of --enable-feature that a shard can have: those that change this
// shard alone.
var knownFeatures = map[string]func(*settings){
	"exemplar-storage":                func(s *settings) { s.exemplars = true },
	"promql-per-step-stats":           func(s *settings) { s.perStepStats = true },
	"promql-experimental-functions":   func(s *settings) { s.parser.EnableExperimentalFunctions = true },
	"promql-extended-range-selectors": func(s *settings) { s.parser.EnableExtendedRangeSelectors = true },
	"promql-binop-fill-modifiers":     func(s *settings) { s.parser.EnableBinopFillModifiers = true },
	"promql-delayed-name-removal":     func(s *settings) { s.delayedNameRemoval = true },
	"type-and-unit-labels":            func(s *settings) { s.typeAndUnitLabels = true },
	"concurrent-rule-eval":            func(s *settings) { s.concurrentRuleEval = true },
	"search-api":                      func(s *settings) { s.search = true },
	"use-start-timestamps":            func(s *settings) { s.useStartTimestamps = true },
	"openmetrics2":                    func(s *settings) { s.openMetrics2 = true },
	"metadata-wal-records":            func(s *settings) { s.metadataWALRecords = true },
	"delayed-compaction":              func(s *settings) { s.delayedCompaction = true },
	"memory-snapshot-on-shutdown":     func(s *settings) { s.memorySnapshotOnEnd = true },
}

func (o *Options) settings() settings {
	s := settings{parser: parser.Options{ExperimentalDurationExpr: true}} // always on in the server since 3.14
	for _, f := range o.Features {
		knownFeatures[f](&s)
	}
	return s
}

// load parses Config and lays the other options over it. Every call gives a fresh value, since
// scrape configs are changed by validation.
func (o *Options) load() (*config.Config, error) {
	text, err := promfiles.WithExternalLabels(o.Config, o.ExternalLabels)
	if err != nil {
		return nil, fmt.Errorf("the shard's prometheus.yml: %w", err)
	}
	c, err := config.Load(text, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("the shard's prometheus.yml: %w", err)
	}
	if len(c.RemoteWriteConfigs) > 0 {
		return nil, errors.New("the shard's prometheus.yml: remote_write cannot be had in an embedded shard: remove it, or run a real server")
	}
	jobs := map[string]bool{}
	for _, s := range c.ScrapeConfigs {
		jobs[s.JobName] = true
	}
	for _, given := range o.ScrapeConfigs {
		s := *given
		if jobs[s.JobName] {
			return nil, fmt.Errorf("two scrape configs have the job name %q: job names must be unique", s.JobName)
		}
		jobs[s.JobName] = true
		if err := s.Validate(c.GlobalConfig); err != nil {
			return nil, fmt.Errorf("scrape config %q: %w", s.JobName, err)
		}
		c.ScrapeConfigs = append(c.ScrapeConfigs, &s)
	}
	switch r := &c.StorageConfig.TSDBConfig.Retention; {
	case o.Retention > 0:
		*r = &config.TSDBRetentionConfig{Time: model.Duration(o.Retention)}
	case *r == nil || **r == config.TSDBRetentionConfig{}:
		// The server sets this default in a variable of package config before it loads; one shard
		// must not do that to the others.
		*r = &config.TSDBRetentionConfig{Time: model.Duration(defaultRetention)}
	}
	if o.settings().exemplars && c.StorageConfig.ExemplarsConfig == nil {
		c.StorageConfig.ExemplarsConfig = &config.DefaultExemplarsConfig
	}
	return c, nil
}

// flags is what status/flags answers: the flags of the server that a shard has an equivalent of,
// with the values in force.
func (o *Options) flags(dir, addr string, c *config.Config) map[string]string {
	d := func(v time.Duration) string { return model.Duration(v).String() }
	return map[string]string{
		"enable-feature":                         strings.Join(o.Features, ","),
		"query.lookback-delta":                   d(o.LookbackDelta),
		"query.max-concurrency":                  strconv.Itoa(o.MaxConcurrency),
		"query.max-samples":                      strconv.Itoa(o.MaxSamples),
		"query.timeout":                          d(o.Timeout),
		"rules.alert.for-grace-period":           d(ruleForGracePeriod),
		"rules.alert.for-outage-tolerance":       d(ruleOutageTolerance),
		"rules.alert.resend-delay":               d(ruleResendDelay),
		"rules.max-concurrent-evals":             strconv.Itoa(ruleMaxConcurrentEvals),
		"storage.remote.read-concurrent-limit":   strconv.Itoa(o.RemoteReadConcurrency),
		"storage.remote.read-max-bytes-in-frame": strconv.Itoa(remoteReadBytesInFrame),
		"storage.remote.read-sample-limit":       strconv.Itoa(remoteReadSampleLimit),
		"storage.tsdb.block-reload-interval":     d(blockReloadInterval),
		"storage.tsdb.max-block-duration":        d(o.maxBlockDuration(c)),
		"storage.tsdb.min-block-duration":        d(o.BlockDuration),
		"storage.tsdb.path":                      dir,
		"storage.tsdb.retention.time":            c.StorageConfig.TSDBConfig.Retention.Time.String(),
		"web.enable-admin-api":                   strconv.FormatBool(o.EnableAdminAPI),
		"web.enable-lifecycle":                   strconv.FormatBool(o.EnableLifecycle),
		"web.enable-otlp-receiver":               "false",
		"web.enable-remote-write-receiver":       "false",
		"web.listen-address":                     addr,
		"web.max-connections":                    strconv.Itoa(maxConnections),
		"web.read-timeout":                       d(webReadTimeout),
		"web.route-prefix":                       o.RoutePrefix,
	}
}

// maxBlockDuration is the server's rule: a tenth of the retention, at most 31 days, and never less
// than a fresh block.
func (o *Options) maxBlockDuration(c *config.Config) time.Duration {
	m := 31 * 24 * time.Hour
	if r := c.StorageConfig.TSDBConfig.Retention; r != nil && r.Time != 0 {
		m = min(m, time.Duration(r.Time)/10)
	}
	return max(m, o.BlockDuration)
}
