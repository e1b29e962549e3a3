package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// Options say what is held against what.
type Options struct {
	// Prometheus are prometheus.yml files, or files of scrape_config_files; several are the shards
	// and replicas of one fleet, whose rules must be the same.
	Prometheus []string
	// Monitors are files with ServiceMonitors, PodMonitors, ScrapeConfigs and Probes.
	Monitors []string
	// Jobs is the label job of the series of monitors, by NAMESPACE/NAME. Series of monitors that
	// are missing here are those whose job is NAMESPACE/NAME or NAME.
	Jobs map[string]string
	// Skip are scrape jobs that are left out, by job_name: such as one that keeps nothing of its
	// page, since it is there for `up` alone. One that stands nowhere is not checked (Unchecked).
	Skip []string
	// Dashboards, Rules, Autoscalers, Usage, Keep and Files are what is used; see package uses.
	Dashboards, Rules, Autoscalers, Usage, Keep, Files []string
	// Uses are uses that were read already; nil where there are none. What the files above have is
	// added to it.
	Uses *uses.Set
	// Source are the stored series; nil where there are none.
	Source inventory.Source
	// External are labels that are added outside of the servers; nil is uses.External.
	External []string
	// Window is how far back Usage counts; 0 is all of it. Now is the time of the call.
	Window time.Duration
	Now    time.Time
	// Progress is called with the number of series that were looked at; nil where nobody waits.
	Progress func(series int64)
}

// Check holds the rules that the configuration has against what is used. An error means that
// nothing was checked; what could not be read is in the result.
func Check(ctx context.Context, o Options) (*Result, error) {
	if len(o.Prometheus)+len(o.Monitors) == 0 {
		return nil, errors.New("nothing to check: give a prometheus.yml or a file of monitors")
	}
	if o.External == nil {
		o.External = uses.External
	}
	r := &Result{Findings: []Finding{}}
	jobs := r.readJobs(o)
	set := r.readUses(ctx, o).Copy() // what is added from here on is of this check
	r.served(ctx, o, set)
	r.holes(set)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	facts, err := readFacts(ctx, o.Source)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Source, err)
	}
	r.Jobs, r.Uses = len(scrapedBy(jobs)), len(set.Uses)
	r.missing(set, facts)
	for _, j := range jobs {
		r.Rules += len(j.rules)
		r.judgeRules(j)
	}
	r.compareServers(jobs)
	r.judgeShards(jobs)
	index := set.Index(o.External, nil)
	if o.Source != nil {
		stored, err := r.judgeStored(ctx, o, jobs, set, facts)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.Source, err)
		}
		r.judgeNeeds(ctx, o, jobs, index, stored, set.Recorded())
	} else {
		r.judgeNeeds(ctx, o, jobs, index, nil, set.Recorded())
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	r.finish(set)
	return r, nil
}

// readUses reads all that is used. A file that cannot be read leaves a hole, which is told.
func (r *Result) readUses(ctx context.Context, o Options) *uses.Set {
	set := o.Uses
	if set == nil {
		set = new(uses.Set)
	}
	read := func(paths []string, f func(path string) error) {
		for i, p := range paths {
			before := len(set.Uses)
			if err := f(p); err != nil {
				r.unchecked(err)
			} else if len(set.Uses) == before && !slices.Contains(paths[:i], p) {
				set.Empty = append(set.Empty, p)
			}
		}
	}
	read(o.Dashboards, func(p string) error { return uses.Dashboards(set, p) })
	read(o.Rules, func(p string) error { return uses.Rules(set, p) })
	read(o.Autoscalers, func(p string) error { return uses.Autoscalers(set, p) })
	read(o.Usage, func(p string) error { return uses.Log(ctx, set, p, uses.LogOptions{Window: o.Window, Now: o.Now}) })
	read(o.Keep, func(p string) error { return uses.Keep(set, p, o.Now) })
	read(o.Files, func(p string) error { return uses.File(set, p) })
	if err := set.Unmade(); err != nil {
		r.unchecked(err)
	}
	if len(set.Uses) == 0 {
		r.Warnings = append(r.Warnings, "no use was given: the rules were looked at, and nothing that they take")
	}
	return set
}

// served adds the rules that the servers behind the source evaluate. One that does not show them
// gets a warning: not every API has rules. Where none are known otherwise, nothing was checked for
// rules.
func (r *Result) served(ctx context.Context, o Options, set *uses.Set) {
	var refused []string
	for _, s := range inventory.Servers(o.Source) {
		data, err := s.Rules(ctx)
		if err == nil {
			err = uses.Served(set, s.String(), data)
		}
		if err != nil {
			refused = append(refused, err.Error())
			r.Warnings = append(r.Warnings, err.Error()+"; what its rules use counts as unused, but for those that are given (--rules)")
		}
	}
	if !slices.ContainsFunc(set.Uses, func(u *uses.Use) bool { return u.Kind == uses.Rule && !u.Guessed }) {
		set.Refused = append(set.Refused, refused...)
	}
}

// holes tells what the set of uses does not have: a source that refused to show what it has was not
// checked, and what was not read or not logged is said first.
func (r *Result) holes(set *uses.Set) {
	for _, source := range set.Empty {
		const ask = "; is it the right file or folder, and the right --window?"
		if len(set.Uses) > 0 { // its files may be those that another source has
			r.Warnings = append(r.Warnings, source+": no use came of it that no other source has"+ask)
			continue
		}
		r.Unchecked = append(r.Unchecked, source+": no use came of it"+ask+" Else leave it out")
	}
	for _, why := range set.Refused {
		r.Unchecked = append(r.Unchecked, why+"; what only it uses was not looked at")
	}
	if len(set.Unrendered) > 0 {
		r.Alarms = append(r.Alarms, "Not rendered, and not read: "+strings.Join(set.Unrendered, "; ")+
			". What only these sources ask was not looked at. Give what is made of them, and leave them out (--exclude='*.libsonnet' --exclude='*.jsonnet', or --exclude='*.json.tpl').")
	}
	if set.Lost.Requests > 0 {
		r.Alarms = append(r.Alarms, fmt.Sprintf("The usage log lost requests: %s. What only these asked was not looked at. See why it lost them (spillway_usage_log_dropped_total), and "+
			"choose a --window that begins after it, once that is as long as the rarest use takes.", set.Lost))
	}
	r.partly = len(r.Alarms) > 0
}

// missing tells of used names that a rule records, of which none is known, and adds what such rules
// read in all likelihood.
func (r *Result) missing(set *uses.Set, facts *facts) {
	all := set.Unrecorded(facts.scraped.Has)
	if len(all) == 0 {
		return
	}
	for _, u := range all {
		r.Unrecorded = append(r.Unrecorded, u.Name)
		set.Guess(u)
	}
	r.Alarms = append(r.Alarms, "Rules are missing, so that not all was looked at: "+uses.MissingRules(all)+". What their rules read is not known and may be lost; of metrics that stand in these names that is told. "+
		"Give the rules (--rules, or the API of the server that evaluates them as one more --scrape=api+URL), or name in --keep what nothing records any more.")
}
