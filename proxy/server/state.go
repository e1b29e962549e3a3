package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/deny"
	"github.com/spillwayproject/spillway/proxy/dropped"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/shard"
	"github.com/spillwayproject/spillway/proxy/tenant"
	"github.com/spillwayproject/spillway/proxy/usage"
	"github.com/spillwayproject/spillway/proxy/weigh"
)

// state is one loaded configuration with all that is built from it. It never changes; a request
// takes it once, at the door, and keeps it to its end.
type state struct {
	cfg     *config.Config
	top     *shard.Topology
	pool    *admit.Pool
	usage   *usage.Log
	tenants *tenant.Directory // nil where everybody may ask
	known   weigh.Known       // of what shards hold
	lanes   []config.Lane     // the last one is for whoever is in no other
	drops   *dropped.Set      // what drop rules take away; nil where no plan is given
	owns    map[string]bool   // label names of any group
	lacks   map[string]bool   // groups whose shards answers may go without, unless the request says otherwise
	shards  int
	loaded  time.Time

	// users counts the requests in it and the server's own hold; the last one out closes it.
	mu      sync.Mutex
	users   int
	retired bool
	close   func()
}

// owned tells whether a label belongs to some group rather than to what shards store.
func (st *state) owned(name string) bool { return st.owns[name] }

func (st *state) enter() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.retired && st.users == 0 {
		return false
	}
	st.users++
	return true
}

func (st *state) release() {
	st.mu.Lock()
	st.users--
	last := st.retired && st.users == 0
	st.mu.Unlock()
	if last {
		st.close()
	}
}

// retire closes the state after its last request.
func (st *state) retire() {
	st.mu.Lock()
	st.retired = true
	last := st.users == 0
	st.mu.Unlock()
	if last {
		st.close()
	}
}

// acquire takes the current state for one request.
func (s *Server) acquire() *state {
	for {
		st := s.state.Load()
		if st.enter() {
			return st
		}
	}
}

// build makes a state from a configuration and the plans that it names; what did not change is
// carried over from prev, nil at the start. ask is what it is for put.
func (s *Server) build(cfg *config.Config, drops *dropped.Set, prev *state, ask bool) (*state, error) {
	if err := cfg.CheckRegular(); err != nil {
		return nil, err
	}
	st := &state{cfg: cfg, drops: drops, lanes: cfg.LanesInForce(), owns: map[string]bool{}, lacks: map[string]bool{}, loaded: s.now()}
	var known *tenant.Directory
	if prev != nil {
		known = prev.tenants
	}
	var err error
	if st.tenants, err = tenant.New(cfg, known, s.log); err != nil {
		return nil, err
	}
	var prevTop *shard.Topology
	var sizes *weigh.Sizes
	st.known.Found = &weigh.Found{}
	if prev != nil {
		prevTop, sizes, st.known.Found = prev.top, prev.known.Sizes, prev.known.Found
	}
	if st.top, err = s.topology(cfg, st.lanes, prevTop, ask); err != nil {
		st.tenants.Close()
		return nil, err
	}
	for _, g := range cfg.Groups {
		if cmp.Or(g.PartialResponse, cfg.PartialResponse) == config.PartialWarn {
			st.lacks[g.Name] = true
		}
	}
	for _, g := range st.top.Groups {
		st.shards += len(g.Shards)
		for _, name := range plan.Owned(g) {
			st.owns[name] = true
		}
	}
	if prev != nil {
		st.pool = prev.pool // what requests hold of it goes on counting; a new limit is set when the configuration is in force
	} else {
		st.pool = admit.NewPool(int64(cfg.Memory.Budget))
	}
	done := func(context.Context) error { return nil }
	if cfg.UsageLog.Path != "" { // a nil one takes and discards
		st.usage, done, err = s.usageLogs.Open(usage.Options{
			Path: cfg.UsageLog.Path, MaxSize: int64(cfg.UsageLog.MaxSize), MaxFiles: cfg.UsageLog.MaxFiles, Logger: s.log,
			Metrics: s.usageMetrics,
		})
		if err != nil {
			st.top.Close()
			st.tenants.Close()
			return nil, err // which names the key
		}
	}
	for _, b := range cfg.Limits.Shadow { // at 0, so that the first one counts
		s.metrics.shadow.WithLabelValues(b)
	}
	st.known.Sizes, st.known.Learned = weigh.NewSizes(s.background, st.top, sizes, s.now, s.log), &s.learned
	st.close = func() {
		st.known.Sizes.Close()
		st.top.Close()
		st.tenants.Close()
		s.metrics.forget(st, s.state.Load())
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := done(ctx); err != nil {
			s.log.Warn("closing the usage log", "err", err)
		}
	}
	return st, nil
}

// topology makes the servers of a configuration. With ask it is an error if none answers of those
// that take the place of some in previous.
func (s *Server) topology(cfg *config.Config, lanes []config.Lane, previous *shard.Topology, ask bool) (*shard.Topology, error) {
	o := s.opts.shards
	o.Logger, o.Registerer, o.UserAgent, o.ID = s.log, s.opts.Registerer, "Spillway/"+s.opts.Version, s.id
	o.ReadSlots, o.MaxCalls = cmp.Or(o.ReadSlots, cfg.Limits.ReadSlots), cmp.Or(o.MaxCalls, cfg.Limits.ReplicaCalls)
	o.ProcessCalls = cfg.Limits.ProcessCalls
	o.Budget = max(cfg.Limits.ShardBudget, cfg.Limits.MaxShardBytes)
	for _, l := range lanes {
		if l.GoesOn() {
			o.NeverShed = append(o.NeverShed, l.Name)
		}
		lane := admit.Lane{
			Name: l.Name, Share: float64(l.Share), Keep: 1 - float64(l.Lend), Most: l.MaxConcurrent, MaxWait: l.MaxWait, First: l.First,
		}
		if l.Lend == 1 {
			lane.Keep = -1
		}
		o.Lanes = append(o.Lanes, lane)
	}
	top, err := shard.New(cfg.Groups, o, previous)
	if err == nil && ask {
		if err = top.CheckMoves(s.staying, previous); err != nil {
			top.Close()
		}
	}
	return top, err
}

// loadDrops reads the plans of drop rules.
func loadDrops(cfg *config.Config) (*dropped.Set, error) {
	drops, err := dropped.Load(cfg.DropRules.Plan)
	if err != nil {
		return nil, fmt.Errorf("drop_rules.plan: %w", err)
	}
	return drops, nil
}

// waitsForStart tells whether something of the configuration is taken up at a start alone.
func (s *Server) waitsForStart(cfg *config.Config) bool { return cfg.StateDir != s.stateDir }

// Reload is what SIGHUP asks for: it reads the configuration file again, and the plans that it
// names. On any problem the old configuration stays, and the error says all of them. Files whose
// content did not change are left alone.
func (s *Server) Reload() error { return s.reload(by{how: bySignal}) }

func (s *Server) reload(b by) error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	return s.load(b)
}

// load is reload for who holds s.reloading.
func (s *Server) load(b by) error {
	before := s.state.Load()
	if s.opts.ConfigFile == "" {
		return s.reloaded(b, before, errors.New("there is nothing to reload: Spillway was started without a configuration file"))
	}
	cfg, err := config.Load(s.opts.ConfigFile)
	if err == nil {
		err = cfg.CheckNewFiles(s.base)
	}
	if err == nil {
		err = s.keepable(cfg)
	}
	if err == nil {
		err = s.put(cfg, loadDrops, !b.force)
	}
	if err == nil && s.state.Load() != before { // as at the start
		for _, n := range cfg.Notes {
			s.log.Warn("configuration", "note", n.String())
		}
	}
	if b.how != byWatch {
		s.asked.Add(1)
	}
	unreached := errors.As(err, new(*shard.UnreachedError))
	told := b.again && unreached && s.unreached
	s.fileRefused, s.unreached = err != nil, unreached
	if told {
		return err
	}
	if unreached {
		err = fmt.Errorf("%w\nmend url, headers or http_client there, or start these servers%s; POST /-/reload?force=true takes the file as it is",
			err, s.looksAgain())
	}
	return s.reloaded(b, before, err)
}

// looksAgain says when a file is tried again that moves a group to servers that do not answer.
func (s *Server) looksAgain() string {
	if s.opts.ReloadInterval <= 0 {
		return ""
	}
	return fmt.Sprintf(" (the file is tried again every %s, and in force once one of them answers)", s.opts.ReloadInterval)
}

// rediscovered puts the shards that were found into force, under the configuration that is.
func (s *Server) rediscovered() {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	before := s.state.Load()
	keep := func(*config.Config) (*dropped.Set, error) { return before.drops, nil } // a plan that is away keeps no shard away
	_ = s.reloaded(by{how: byDiscovery}, before, s.put(s.base, keep, false))        // said there
}

// reloaded says how it went. Shards that were found under the old configuration do not make well
// that the file was refused.
func (s *Server) reloaded(b by, before *state, err error) error {
	well := err == nil && !s.fileRefused
	s.reloadedWell.Store(well)
	s.auditReload(b, before, err)
	if err != nil {
		s.log.Error("the configuration was not reloaded; the old one stays in force", "file", s.opts.ConfigFile, "err", err)
		s.metrics.reloadOK.Set(0)
		return err
	}
	if well {
		s.metrics.reloadOK.Set(1)
		s.metrics.reloadTime.Set(float64(s.now().Unix()))
	}
	return nil
}

// put puts a configuration into force, as the file has it, with what drops tells of its plans. On
// any problem the old one stays; with ask it is one that a group would be moved to servers of which
// none answers.
func (s *Server) put(base *config.Config, plans func(*config.Config) (*dropped.Set, error), ask bool) (err error) {
	defer func() {
		if err == nil {
			s.base = base
		}
		s.discovery.Retain(s.base)
	}()
	cfg, err := s.discovery.Fill(s.background, base)
	if err != nil {
		return err
	}
	old := s.state.Load()
	if err := s.keptTo.cutOff(old.cfg, cfg); err != nil {
		return err
	}
	drops, err := plans(cfg)
	if err != nil {
		return err
	}
	if cfg.Hash == old.cfg.Hash && drops.Hash() == old.drops.Hash() {
		return nil
	}
	st, err := s.build(cfg, drops, old, ask)
	if err != nil {
		return err
	}
	st.top.Start(s.background)
	wait, cancel := context.WithTimeout(s.background, 2*time.Second)
	_ = st.top.WaitFirstProbe(wait) // new replicas are known before requests come to them, if they answer soon
	cancel()
	var file *deny.FileError
	if err := s.deny.Configure(rulesOf(cfg)); errors.As(err, &file) {
		s.log.Error("the deny rules were not written to their file", "err", file)
	} else if err != nil {
		st.retire()
		return fmt.Errorf("deny: %w", err)
	}
	s.certified.took(cfg)
	s.state.Store(st)
	s.keptTo.took(cfg)
	s.limitMemory(cfg)
	s.metrics.configHash(cfg.Hash)
	old.retire()
	if s.waitsForStart(cfg) {
		s.log.Warn("state_dir has changed, which is taken up at the next start", "state_dir", cfg.StateDir, "in_force", s.stateDir)
	}
	s.log.Info("the configuration was reloaded", "file", s.opts.ConfigFile, "hash", cfg.Hash[:12])
	s.noteFound(cfg, base, old.cfg)
	return nil
}

// noteFound says what is remarkable about shards that were found. What the file alone gives, told
// by who reads it, and what was so before are not said again.
func (s *Server) noteFound(cfg *config.Config, known ...*config.Config) {
	for _, n := range cfg.Notes {
		if !slices.ContainsFunc(known, func(k *config.Config) bool { return slices.Contains(k.Notes, n) }) {
			s.log.Warn("configuration", "note", n.String())
		}
	}
}
