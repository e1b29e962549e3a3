package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Decisions, as the log and the metric call them.
const (
	cordoned = "cordoned" // done
	wouldDo  = "dry_run"  // would be done with --act
	already  = "already"  // was done before
	refused  = "refused"  // would be done, but for the budget, a fleet alert, a silence, others' planned work or --exclude
	ignored  = "ignored"  // nothing to do here
	failed   = "failed"   // the API server or Alertmanager did not answer as they should
)

// outcomes are what is counted from the start, with 0: of a series that begins with its first count
// no rate tells that count, and alerts would take a first cordon for none.
var outcomes = map[string][]string{
	cordoned: {"ok"},
	wouldDo:  {"act_not_set"},
	already:  {"same"},
	refused:  {byFleet, "max_nodes", "max_cordoned", maxLight, maxOf, outByOthers, leaving, silenced, excluded},
	ignored:  {"cluster", waited, queueFull, perhapsRebooted},
	failed:   {"api", "alertmanager"},
}

// settings are the flags that decisions depend on.
type settings struct {
	// cluster is the only one whose alerts are acted on: the API server is that of one cluster.
	cluster string
	// act must be set for anything to be changed.
	act bool
	// maxNodes is how many nodes are cordoned within window, at most.
	maxNodes int
	window   time.Duration
	// maxCordoned is the share of all nodes, from 0 to 1, that may be cordoned, by whomever, the
	// next one included; and, of nodes that others have cordoned, the share that may be marked.
	// One node may be, however few there are.
	maxCordoned float64
	// markCordoned says that nodes which others have cordoned are marked too.
	markCordoned bool
	// leavingTaints are the keys of taints of nodes that somebody takes away.
	leavingTaints taintKeys
	// maxOf bounds the nodes with one value of a label that are cordoned, likewise.
	maxOf perValue
	// exclude matches the labels of nodes that are left alone.
	exclude selectors
	// fleetAlerts is a regular expression, as Alertmanager's filters take it, for the names of
	// alerts while which nothing is done.
	fleetAlerts string
	// watchdog is the name of an alert that fires always; without it Alertmanager's answer that no
	// fleet alert fires is not believed. Empty: it is.
	watchdog string
	// watchdogScope is the label scope of that alert where the rules about the fleet send it for
	// the cluster. Without it nobody knows whether they are evaluated. Empty: it is not asked for.
	watchdogScope string
}

// controller decides, one node at a time: payloads that come together take turns.
type controller struct {
	settings
	kube         *kube
	alertmanager string
	tokenFile    string                                                   // Alertmanager's, read for each request; empty: none
	client       *http.Client                                             // for Alertmanager
	resolve      func(ctx context.Context, name string) ([]string, error) // the addresses of a name
	log          *slog.Logger
	now          func() time.Time

	turn    sync.Mutex      // held while one node is decided on, so that there is one budget
	planned map[string]plan // without act: what would have been cordoned; its budget
	done    done
	waiting waiting

	decisions *prometheus.CounterVec
	inWindow  prometheus.Gauge
	allNodes  *prometheus.GaugeVec
	last      prometheus.Gauge
	started   prometheus.Gauge
	waits     prometheus.GaugeFunc
}

func newController(s settings, k *kube, alertmanager string, log *slog.Logger, reg prometheus.Registerer) *controller {
	c := &controller{
		settings: s, kube: k, alertmanager: strings.TrimSuffix(alertmanager, "/"),
		resolve: net.DefaultResolver.LookupHost,
		client:  &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{IdleConnTimeout: time.Minute}},
		log:     log, now: time.Now, planned: map[string]plan{}, done: newDone(), waiting: waiting{by: map[string][]wish{}},
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "remediator_decisions_total", Help: "Alerts and nodes that were decided on, by what was decided and why.",
		}, []string{"decision", "reason"}),
		inWindow: prometheus.NewGauge(prometheus.GaugeOpts{Name: "remediator_nodes_in_window", Help: "Nodes cordoned within the window, as of the last decision."}),
		allNodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "remediator_nodes", Help: "Nodes of the cluster, as of the last decision: all, and those that are cordoned by whomever."}, []string{"state"}),
		last:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "remediator_last_webhook_timestamp_seconds", Help: "When the last webhook was taken, in seconds since 1970."}),
		started:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "remediator_start_time_seconds", Help: "When the program was started, in seconds since 1970; it knows of no node that waited before."}),
	}
	budget := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "remediator_budget", Help: "The budget: nodes within the window, and the share of all nodes that may be cordoned."}, []string{"bound"})
	budget.WithLabelValues("max_nodes").Set(float64(s.maxNodes))
	budget.WithLabelValues("max_cordoned").Set(s.maxCordoned)
	act := prometheus.NewGauge(prometheus.GaugeOpts{Name: "remediator_acts", Help: "1 with --act, 0 where nothing is changed."})
	if s.act {
		act.Set(1)
	}
	c.waits = prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "remediator_waiting_nodes", Help: "Nodes that were refused for an alert that does not last, and wait for their turn."},
		func() float64 { return float64(len(c.waiting.list())) })
	for decision, reasons := range outcomes {
		for _, reason := range reasons {
			c.decisions.WithLabelValues(decision, reason)
		}
	}
	reg.MustRegister(c.waits, c.decisions, c.inWindow, c.allNodes, c.last, c.started, budget, act)
	c.started.SetToCurrentTime()
	return c
}

// trusts has Alertmanager asked with the token of a file, and believed by the certificate authority
// of another; both are read again as they change. Empty: no token, and the system's authorities.
func (c *controller) trusts(caFile, tokenFile string) error {
	if tokenFile != "" {
		if _, err := bearerOf("--alertmanager-token-file", tokenFile); err != nil {
			return err
		}
	}
	u, err := url.Parse(c.alertmanager)
	if err != nil {
		return fmt.Errorf("--alertmanager: %w", err)
	}
	way, err := newTrust("--alertmanager-ca-file", caFile, u.Hostname())
	if err != nil {
		return err
	}
	c.tokenFile, c.client.Transport = tokenFile, way
	return nil
}

// wish is what the alerts of a payload ask for one node.
type wish struct {
	node   string
	action string
	alert  alert
	since  time.Time // when it was asked for first
	broke  time.Time // when the error was, at the earliest, that it was asked for last
	// lasting is the heaviest of its payload, for its node, that waits whatever it is refused for:
	// what goes before it may not, and may end before it.
	lasting *wish

	waits  bool          // it was refused before
	until  time.Time     // how long it waits
	held   time.Duration // how much of that is for fleet alerts
	boot   string        // with which start of the node; one that was started anew is another case
	before string        // the start that was known when it was asked for, where its own could not be read
	stuck  time.Time     // when it was refused or failed last for what is its node's own; zero: never
}

// decide handles one payload. An error means that something could not be asked or done, so that the
// payload should come again; what was decided until then stays decided.
func (c *controller) decide(ctx context.Context, p payload) error {
	c.last.Set(float64(c.now().Unix()))
	return c.round(ctx, c.wishes(p))
}

// round decides on what is asked for, and on what waits, the heaviest first. What one node was
// refused for, others are too, without the API server being asked about each of them: hundreds of
// nodes that fail at once would hold up those that fail next.
func (c *controller) round(ctx context.Context, asked []wish) error {
	var errs []error
	var no refusal
	silences := sync.OnceValues(func() ([]silence, error) { return c.silences(ctx) })
	list := slices.Concat(asked, c.due(asked))
	slices.SortStableFunc(list, heaviestFirst)
	for _, w := range list {
		decision, reason, err := c.inTurn(ctx, &w, &no, silences)
		if w.waits && again(decision, reason) {
			if asked == nil { // counted, so that a budget that is always used up is seen; not told
				c.decisions.WithLabelValues(decision, reason).Inc()
			}
		} else {
			c.note(decision, reason, w.node, w.action, w.alert, err)
		}
		c.settle(w, decision, reason)
		if err != nil && (!w.waits || asked == nil) { // the payload need not come again for what waits
			errs = append(errs, fmt.Errorf("node %s: %w", w.node, err))
		}
		if ctx.Err() != nil || err != nil && asked == nil && reason == "alertmanager" {
			break
		}
	}
	if ctx.Err() != nil && asked != nil { // whatever the time ran out on, not all of the payload was decided on
		errs = append(errs, context.Cause(ctx))
	}
	return errors.Join(errs...)
}

// wishes is one for each node, in the order of the payload, with the heaviest action asked for it.
// What asks for nothing is noted as ignored.
func (c *controller) wishes(p payload) []wish {
	out := []wish{}
	at, lasting := map[string]int{}, map[string]*wish{}
	for _, a := range p.Alerts {
		l := a.Labels
		action := l["action"]
		reason := ""
		switch {
		case a.Status != "firing":
			reason = "resolved" // the node stays as it is: what ends an alert is seldom what cures a node
			c.waiting.ended(a)
		case l["severity"] != "auto":
			reason = "severity"
		case l["cluster"] != c.cluster:
			reason = "cluster"
		case !nodeName.MatchString(l["node"]):
			reason = "node"
		case weight(action) < 0:
			reason = "action"
		case !actions[weight(action)].cordon:
			reason = "no_cordon"
		}
		if reason != "" {
			c.note(ignored, reason, l["node"], action, a, nil)
			continue
		}
		w := wish{node: l["node"], action: action, alert: a, since: c.now(), broke: a.earliest(c.now())}
		if passes, sure := passes(a); passes && sure && (lasting[w.node] == nil || weight(action) > weight(lasting[w.node].action)) {
			lasting[w.node] = &w
		}
		i, ok := at[w.node]
		if !ok {
			at[w.node] = len(out)
			out = append(out, w)
		} else if weight(action) > weight(out[i].action) {
			out[i] = w
		}
	}
	for i := range out {
		out[i].lasting = lasting[out[i].node]
	}
	return out
}

// refusal is what a node of a payload was refused for, and which other nodes that does not hold
// for: those that may be out already, or be counted otherwise.
type refusal struct {
	at     time.Time
	reason string
	but    map[string]bool
	looks  int // how many of the others were read all the same
}

// refusalFor is how long a refusal holds for the nodes behind it.
const refusalFor = 15 * time.Second

// noLook is how many nodes of a payload are read, at most, that are refused for what another one
// was: with which start they wait. Alertmanager posts each node by itself; of more that come
// together the next round looks at the others.
const noLook = 8

// inTurn decides on one node while nobody else decides.
func (c *controller) inTurn(ctx context.Context, w *wish, no *refusal, silences silencesOnce) (decision, reason string, err error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	if ctx.Err() != nil {
		return failed, "api", context.Cause(ctx)
	}
	holds := no.reason != maxLight || isLight(w.action)
	if _, planned := c.planned[w.node]; no.reason != "" && holds && time.Since(no.at) < refusalFor && !no.but[w.node] && !planned {
		c.readStart(ctx, w, no)
		return refused, no.reason, nil
	}
	decision, reason, err = c.one(ctx, w, silences)
	if !again(decision, reason) || isOwn(reason) {
		return decision, reason, err
	}
	*no = refusal{at: time.Now(), reason: reason, but: map[string]bool{}}
	others, err := c.kube.marked(ctx)
	if err == nil && (reason == "max_cordoned" || reason == maxLight) {
		var out []meta
		out, err = c.kube.cordoned(ctx)
		others = append(others, out...)
	}
	if err != nil { // it holds for this node
		*no = refusal{}
		return refused, reason, nil
	}
	for _, n := range others {
		no.but[n.Name] = true
	}
	return refused, reason, nil
}

// readStart reads with which start its node will wait: later it might seem to have been started
// since. It asks no more once the API server does not answer.
func (c *controller) readStart(ctx context.Context, w *wish, no *refusal) {
	if passes, _ := passes(w.alert); !passes || w.boot != "" || no.looks >= noLook {
		return
	}
	no.looks++
	switch n, err := c.kube.node(ctx, w.node); {
	case err == nil:
		w.boot = n.Status.NodeInfo.BootID
	case !errors.Is(err, errNoNode): // who decides on it notes that
		no.looks = noLook
	}
}

// plan is what would have been done to a node, and when.
type plan struct {
	at     time.Time
	light  bool
	labels map[string]string // of the node
}

// byFleet is the reason while a fleet alert fires.
const byFleet = "fleet_alert"

// rebooted is the reason why nobody takes out a node whose machine was started anew since.
const rebooted = "rebooted"

// perhapsRebooted is the reason where that is only likely: nobody could read with which start its
// node waited, and it has become ready since.
const perhapsRebooted = "perhaps_rebooted"

// outByOthers is the reason why a node that somebody else has cordoned, or deleted, is left alone:
// a mark would have it drained or rebooted in the middle of that work, and would still be there
// after it.
const outByOthers = "planned"

// leaving is the reason while an autoscaler means to take a node away. It waits: where the drain
// fails the autoscaler leaves it.
const leaving = "leaving"

// isOwn tells of a refusal that is the node's own, and says nothing of other nodes.
func isOwn(reason string) bool { return reason == maxOf || reason == leaving || reason == silenced }

// one decides on one node: cheap before dear, and everything that may say no before anything is
// changed.
func (c *controller) one(ctx context.Context, w *wish, silences silencesOnce) (decision, reason string, err error) {
	n, err := c.kube.node(ctx, w.node)
	if errors.Is(err, errNoNode) {
		return ignored, "gone", nil
	}
	if err != nil {
		return failed, "api", err
	}
	if w.waits && n.Status.NodeInfo.BootID != w.boot {
		return ignored, rebooted, nil
	}
	w.boot = n.Status.NodeInfo.BootID
	mark := n.Metadata.Labels[markLabel] == "true"
	if c.exclude.match(n.Metadata.Labels) {
		return refused, excluded, nil
	}
	left := n.leftTo(c.markCordoned, c.leavingTaints)
	if left == outByOthers {
		return refused, left, nil
	}
	for _, t := range n.Spec.Taints {
		// A node that waits for something heavier does not get something lighter instead.
		if t.Key == taintKey && n.Spec.Unschedulable && mark && weight(t.Value) >= weight(w.action) {
			return already, "same", nil
		}
	}
	p, ok := c.planned[w.node]
	if ok && p.at.After(c.now().Add(-c.window)) && (!p.light || isLight(w.action)) {
		return already, "same", nil
	}
	if decision, reason, err := c.says(ctx, w, left, silences); decision != "" {
		return decision, reason, err
	}
	// A node that was taken out here costs no budget a second time, unless jobs may still run there
	// and what reads the mark drains or reboots it: others cordoned it, or its mark is light.
	if !n.goesOn(w.action) {
		reason, err := c.overBudget(ctx, w, n)
		if err != nil {
			return failed, "api", err
		}
		if reason != "" {
			return refused, reason, nil
		}
	}
	if !c.act {
		c.planned[w.node] = plan{c.now(), isLight(w.action), n.Metadata.Labels}
		return wouldDo, "act_not_set", nil
	}
	at, err := c.kube.cordon(ctx, *w, c.now(), c.markCordoned, c.leavingTaints)
	switch {
	case errors.Is(err, errNoNode): // in between
		return ignored, "gone", nil
	case errors.Is(err, errOtherStart): // likewise
		return ignored, rebooted, nil
	case errors.Is(err, errOthers):
		return refused, outByOthers, nil
	case errors.Is(err, errLeaving):
		return refused, leaving, nil
	case err != nil:
		if at != "" && perhapsDone(err) { // the node tells, before there is a next one
			c.done.doubt(at, n, isLight(w.action))
		}
		return failed, "api", err
	}
	c.done.add(at, n, isLight(w.action))
	return cordoned, "ok", nil
}

// says is what Alertmanager says against an action, "" where it says nothing; left is what the node
// does.
func (c *controller) says(ctx context.Context, w *wish, left string, silences silencesOnce) (decision, reason string, err error) {
	firing, err := c.fleetAlert(ctx)
	if err != nil {
		return failed, "alertmanager", err
	}
	if firing != "" {
		return refused, byFleet, nil
	}
	if over, err := c.hasEnded(ctx, w); err != nil {
		return failed, "alertmanager", err
	} else if over {
		return ignored, ended, nil
	}
	if left != "" {
		return refused, left, nil
	}
	if quiet, err := silences.match(w); err != nil {
		return failed, "alertmanager", err
	} else if quiet {
		return refused, silenced, nil
	}
	return "", "", nil
}

// reasonOf is what stands on the node: short, and nothing that a label of an alert could break.
func reasonOf(a alert) string {
	text := a.Labels["alertname"]
	for _, l := range []string{"xid", "gpu", "UUID", "reason", "device"} {
		if v := a.Labels[l]; v != "" {
			text += " " + l + "=" + v
		}
	}
	return text[:min(len(text), 256)]
}

// maxLight is the reason why a light action is refused: its part of a bound is used up.
const maxLight = "max_light"

// part is how much of a bound light actions may use: one at least, or they never would.
func part(bound, of int) int { return max(1, bound/of) }

// overBudget says which bound the next node would break; "" if none. Of one that others have
// cordoned the share is that of the marks, since the cordons do not become more. Light actions may
// use a third of the window and half of the share.
func (c *controller) overBudget(ctx context.Context, w *wish, n node) (string, error) {
	marked, err := c.kube.marked(ctx)
	if err != nil {
		return "", err
	}
	if err := c.recall(ctx, marked, n.Metadata); err != nil {
		return "", err
	}
	within, lightWithin, marks := c.inTheWindow(marked, n)
	c.inWindow.Set(float64(within))
	if within >= c.maxNodes {
		return "max_nodes", nil
	}
	if isLight(w.action) && lightWithin >= part(c.maxNodes, 3) {
		return maxLight, nil
	}
	total, err := c.kube.total(ctx)
	if err != nil {
		return "", err
	}
	out, err := c.kube.cordoned(ctx)
	if err != nil {
		return "", err
	}
	c.allNodes.WithLabelValues("all").Set(float64(total))
	c.allNodes.WithLabelValues("cordoned").Set(float64(len(out)))
	taken, light := 0, 0
	beside := []map[string]string{}
	for _, m := range out {
		if m.Name == w.node { // it is counted as the next one
			continue
		}
		beside = append(beside, m.Labels)
		taken++
		if m.isLight() {
			light++
		}
	}
	if n.others() {
		taken = marks
	}
	for name, p := range c.planned {
		if name == w.node {
			continue
		}
		beside = append(beside, p.labels)
		taken++
		if p.light {
			light++
		}
	}
	most := max(1, int(math.Floor(c.maxCordoned*float64(total)+1e-9))) // of a small cluster the share is no whole node
	if taken+1 > most {
		return "max_cordoned", nil
	}
	if isLight(w.action) && light+1 > part(most, 2) {
		return maxLight, nil
	}
	if c.maxOf.full(n.Metadata.Labels, beside) {
		return maxOf, nil
	}
	return "", nil
}

// note writes the line of the audit log, and counts.
func (c *controller) note(decision, reason, node, action string, a alert, err error) {
	c.decisions.WithLabelValues(decision, reason).Inc()
	level := slog.LevelInfo
	switch {
	case decision == failed:
		level = slog.LevelError
	case reason == waited, reason == queueFull, reason == perhapsRebooted:
		level = slog.LevelWarn
	}
	attrs := []any{
		"decision", decision, "reason", reason, "node", node, "action", action, "act", c.act,
		"alert", a.Labels["alertname"], "cluster", a.Labels["cluster"],
		"gpu", a.Labels["gpu"], "xid", a.Labels["xid"], "fingerprint", a.Fingerprint,
	}
	if err != nil {
		attrs = append(attrs, "err", err)
	}
	c.log.Log(context.Background(), level, "decision", attrs...)
}
