package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// waitMost is how many wishes wait, at most; the lightest go when there are more.
	waitMost = 1000
	// waitFor is how long one waits while no fleet alert fires: after that somebody has looked at
	// the node, or nobody minds.
	waitFor = 6 * time.Hour
	// heldMost is how much longer a fleet alert may make that, in all: a week, since a rack that is
	// lost on a Friday is a ticket for Monday.
	heldMost = 7 * 24 * time.Hour
	// waitEvery is how often those that wait are decided on where no webhook comes.
	waitEvery = 30 * time.Second
	// waitLook is how many of them one round looks at, and fewLook how many with a webhook, which
	// is answered after that: each may be some calls of the API server.
	waitLook, fewLook = 50, 2
	// mostUnread is how many nodes that cannot be read end the looking of a round.
	mostUnread = 2
)

// Reasons why a node is given up that nobody else tells of.
const (
	waited    = "waited"     // for too long
	queueFull = "queue_full" // too many wait, and it is the lightest
)

// waiting are wishes that were refused and that Alertmanager will not repeat: an alert about an Xid
// ends with the window of the exporter, five minutes after the error, and not with the repair. It
// is in memory: a restart forgets it.
type waiting struct {
	mu   sync.Mutex
	by   map[string][]wish // by node, and of one node the heaviest first, each of before the next one
	held bool              // a fleet alert fires, as far as is known: the time does not count
	at   time.Time         // until when it is counted
}

// passes tells of an alert that ends with a window of time and not with the repair, so that
// Alertmanager does not repeat it for as long as the node is broken. sure is false of those that
// are about what rises, which a counter may seem to do when exporters come back, or about links,
// which may be another node's: while a fleet alert fires they are not believed.
func passes(a alert) (passes, sure bool) {
	switch name := a.Labels["alertname"]; {
	case ofLinks(a):
		return true, false
	case strings.HasPrefix(name, "GPUXid"):
		return true, true
	case name == "GPUUncorrectableECC", name == "GPUNVLinkErrors", name == "NodeDiskError":
		return true, false
	}
	return false, false
}

// ofLinks tells of Xids of NVLinks, which GPUs say of each other's links too: by the time that more
// of a domain have said so the alert has ended, and whose fault it is was not known before.
func ofLinks(a alert) bool {
	return strings.HasPrefix(a.Labels["alertname"], "GPUXid") && a.Labels["class"] == "link"
}

// comesAgain tells of one that comes again by itself while there is something to mend: a disk is
// read again, a link used again. Where it has ended, nobody waits for it. The others stand for what
// happened once, and wants a reset whether or not it is seen again.
func comesAgain(a alert) bool {
	if ofLinks(a) {
		return true
	}
	switch a.Labels["alertname"] {
	case "NodeDiskError":
		return true
	case "GPUNVLinkErrors":
		return a.Labels["error"] != "link-down" // a link that is down counts no further errors
	}
	return false
}

// heaviestFirst is the order in which wishes are decided on, of one weight who has waited longest.
func heaviestFirst(a, b wish) int {
	return cmp.Or(weight(b.action)-weight(a.action), a.since.Compare(b.since))
}

// inOrder is that, and by the nodes' names.
func inOrder(a, b wish) int { return cmp.Or(heaviestFirst(a, b), strings.Compare(a.node, b.node)) }

// pass counts the time until now, unless a fleet alert fires meanwhile: the wait is for a place in
// the budget, and for somebody to look.
func (q *waiting) pass(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	since := now.Sub(q.at)
	q.at = now
	if !q.held || since <= 0 {
		return
	}
	for _, of := range q.by {
		for i := range of {
			of[i].hold(since)
		}
	}
}

// hold has it wait so much longer, up to the most in all.
func (w *wish) hold(more time.Duration) {
	more = min(more, heldMost-w.held)
	w.held, w.until = w.held+more, w.until.Add(more)
}

// otherStart tells of two wishes that are known to be of two starts of their node.
func (w *wish) otherStart(o wish) bool { return w.boot != "" && o.boot != "" && w.boot != o.boot }

// hold says whether a fleet alert fires from now on.
func (q *waiting) hold(held bool, now time.Time) {
	q.pass(now)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = held
}

// keep has a wish wait. It takes place and turn of what is as heavy, or lighter: the error has come
// again. What is of another start of the node is over. Behind what is heavier it waits where that
// may be of another start: one of each weight, so that they are few. It answers with those that go
// for it, if too many wait.
func (q *waiting) keep(w wish, now time.Time) []wish {
	q.pass(now)
	q.mu.Lock()
	defer q.mu.Unlock()
	w.waits, w.until, w.held = true, now.Add(waitFor), 0
	var stay []wish
	covered, first := false, true
	for _, old := range q.by[w.node] {
		if w.boot == "" {
			w.before = cmp.Or(old.boot, old.before, w.before)
		}
		switch {
		case old.otherStart(w):
		case weight(old.action) > weight(w.action):
			covered = covered || old.boot != "" && old.boot == w.boot
			stay = append(stay, old)
		case covered:
			stay = append(stay, old)
		default:
			if first {
				w.since, first = old.since, false
			}
			if weight(old.action) == weight(w.action) && comesAgain(w.alert) && !comesAgain(old.alert) {
				w.alert = old.alert // whatever else ends, it waits for this one
			}
		}
	}
	if !covered {
		stay = append(stay, w)
	}
	q.by[w.node] = stay
	if len(q.by) <= waitMost {
		return nil
	}
	last := stay[0]
	for _, o := range q.by {
		if heaviestFirst(o[0], last) > 0 {
			last = o[0]
		}
	}
	gone := q.by[last.node]
	delete(q.by, last.node)
	return gone
}

// without ends the wait of some that wait for a node.
func (q *waiting) without(node string, these func(wish) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.by[node] = slices.DeleteFunc(q.by[node], these); len(q.by[node]) == 0 {
		delete(q.by, node)
	}
}

// drop ends the wait for one that was decided on, and for what is no heavier.
func (q *waiting) drop(w wish) {
	q.without(w.node, func(o wish) bool { return weight(o.action) <= weight(w.action) })
}

// over ends the wait of one that waits, for its own sake: what waits behind it goes on, and so does
// another one that came meanwhile.
func (q *waiting) over(w wish) {
	q.without(w.node, func(o wish) bool { return o.action == w.action && o.broke.Equal(w.broke) })
}

// ended ends the wait for an alert that has ended and comes again by itself.
func (q *waiting) ended(a alert) {
	q.without(a.Labels["node"], func(o wish) bool { return comesAgain(o.alert) && maps.Equal(o.alert.Labels, a.Labels) })
}

// list are those that wait, of each node the heaviest, in their order.
func (q *waiting) list() []wish {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := make([]wish, 0, len(q.by))
	for _, of := range q.by {
		out = append(out, of[0])
	}
	slices.SortFunc(out, inOrder)
	return out
}

// all are all that wait, of each node also what waits behind the heaviest.
func (q *waiting) all() []wish {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := slices.Concat(slices.Collect(maps.Values(q.by))...)
	slices.SortFunc(out, inOrder)
	return out
}

// booted says with which start of a node a wish waits.
func (q *waiting) booted(node, boot string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if of := q.by[node]; len(of) > 0 && of[0].boot == "" {
		of[0].boot = boot
	}
}

// tried says that a wish was refused, or failed, for what is its node's own.
func (q *waiting) tried(node string, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if of := q.by[node]; len(of) > 0 {
		of[0].stuck = now
	}
}

// due are those that may be decided on again: it is known with which start of their node they wait,
// and no payload asks for as much right now. There may be more of them than one round looks at.
// What the first ones are refused for all are, unless it is for what is the node's own, as its
// rack. Those that were take half of the places, or what the others leave, by turns: they starve
// nobody, and are not starved.
func (c *controller) due(asked []wish) []wish {
	var out, stuck []wish
	most := fewLook
	if asked == nil {
		most = waitLook
	}
	for _, w := range c.waiting.list() {
		fresh := slices.ContainsFunc(asked, func(a wish) bool { return a.node == w.node && weight(a.action) >= weight(w.action) })
		switch {
		case fresh, w.boot == "", !w.until.After(c.now()):
		case w.stuck.IsZero():
			out = append(out, w)
		default:
			stuck = append(stuck, w)
		}
	}
	slices.SortStableFunc(stuck, func(a, b wish) int { return a.stuck.Compare(b.stuck) })
	out = out[:min(len(out), max(most/2, most-len(stuck)))]
	return append(out, stuck[:min(len(stuck), most-len(out))]...)
}

// settle has a wish wait, or ends its wait, by what was decided.
func (c *controller) settle(w wish, decision, reason string) {
	switch {
	case reason == byFleet, decision == failed && reason == "alertmanager": // that nobody can tell is as good as a fleet alert
		c.waiting.hold(true, c.now())
	case decision == cordoned, decision == wouldDo, reason == ended, again(decision, reason): // none fired
		c.waiting.hold(false, c.now())
	}
	switch {
	case w.waits && (decision == failed && reason == "api" || isOwn(reason)):
		c.waiting.tried(w.node, c.now())
	case w.waits && (decision == failed || again(decision, reason)):
	case decision == failed, again(decision, reason): // what failed comes again, but perhaps not for long
		k, ok := w.toKeep(again(decision, reason) && reason != byFleet)
		if !ok {
			return
		}
		for _, o := range c.waiting.keep(k, c.now()) {
			c.note(ignored, queueFull, o.node, o.action, o.alert, nil)
		}
	case w.waits && (reason == rebooted || reason == ended):
		c.waiting.over(w)
	default:
		c.waiting.drop(w)
	}
}

// toKeep is which wish is to wait where one was refused: itself, if its alert may be believed, or
// one of its payload that may be and is as heavy, or is all that is left.
func (w wish) toKeep(believed bool) (wish, bool) {
	passes, sure := passes(w.alert)
	keep := passes && (sure || believed)
	if l := w.lasting; l != nil && (!keep || weight(l.action) == weight(w.action)) {
		k := *l
		k.boot = w.boot
		return k, true
	}
	return w, keep
}

// again tells of a refusal that may be another one later: for the budget, a fleet alert, a silence
// or an autoscaler.
func again(decision, reason string) bool {
	return decision == refused && reason != outByOthers && reason != excluded
}

// beat decides on what waits, time and again until the context ends.
func (c *controller) beat(ctx context.Context) {
	t := time.NewTicker(waitEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		round, cancel := context.WithTimeoutCause(ctx, decideTimeout, fmt.Errorf("the round took longer than %s", decideTimeout))
		c.wait(round)
		cancel()
	}
}

// wait looks after those that wait: which have waited too long, whose nodes others have taken out
// meanwhile, with which start of its node each waits; and decides on them.
func (c *controller) wait(ctx context.Context) {
	c.waiting.pass(c.now())
	list := c.waiting.list()
	if len(list) == 0 {
		return
	}
	out, err := c.outByOthers(ctx)
	if err != nil {
		c.note(failed, "api", list[0].node, list[0].action, list[0].alert, err)
		return
	}
	var unclear []wish
	for _, w := range list {
		switch {
		case !w.until.After(c.now()):
			c.waiting.over(w)
			c.note(ignored, waited, w.node, w.action, w.alert, nil)
		case w.boot == "", out[w.node] && !c.markCordoned:
			unclear = append(unclear, w)
		}
	}
	slices.SortStableFunc(unclear, func(a, b wish) int { return a.stuck.Compare(b.stuck) })
	unread := 0
	for _, w := range unclear[:min(len(unclear), waitLook)] {
		if !c.look(ctx, w) {
			if unread++; unread == mostUnread {
				break // the API server does not answer
			}
		}
	}
	_ = c.round(ctx, nil) // what failed is noted
}

// look finds out with which start of its node one waits, and whether others have taken that out: an
// autoscaler, which may have cordoned it too, may yet leave it. One that has become ready since the
// error was started anew, as far as anybody knows, and one that has become not ready may be about
// to, unless its start is the one of before. It answers false where the API server does not.
func (c *controller) look(ctx context.Context, w wish) bool {
	n, err := c.kube.node(ctx, w.node)
	boot, left := n.Status.NodeInfo.BootID, n.leftTo(c.markCordoned, c.leavingTaints)
	switch {
	case errors.Is(err, errNoNode):
		c.waiting.drop(w)
		c.note(ignored, "gone", w.node, w.action, w.alert, nil)
	case err != nil:
		c.waiting.tried(w.node, c.now()) // others have their turn
		c.note(failed, "api", w.node, w.action, w.alert, err)
		return false
	case w.boot == "" && boot != w.before && n.readySince(w.broke):
		c.waiting.over(w)
		c.note(ignored, perhapsRebooted, w.node, w.action, w.alert, nil)
	case left == outByOthers:
		c.waiting.drop(w)
		c.note(refused, outByOthers, w.node, w.action, w.alert, nil)
	case w.boot == "" && boot != w.before && n.startingSince(w.broke):
		c.waiting.tried(w.node, c.now()) // it is looked at again
	default:
		c.waiting.booted(w.node, boot)
		if left != "" {
			c.waiting.tried(w.node, c.now())
		}
	}
	return true
}

// forget tells of all that wait when the program ends: nobody else knows of them.
func (c *controller) forget() {
	for _, w := range c.waiting.all() {
		c.log.Warn("forgotten", "node", w.node, "action", w.action, "alert", w.alert.Labels["alertname"], "cluster", c.cluster,
			"gpu", w.alert.Labels["gpu"], "xid", w.alert.Labels["xid"], "since", w.since)
	}
	if n := len(c.waiting.list()); n > 0 {
		c.log.Warn("the program ends while nodes wait, and knows nothing of them when it is started again", "nodes", n)
	}
}

// outByOthers are the nodes that somebody else has cordoned, as far as lists of metadata tell: one
// that bears the label is seen to be somebody else's when it is looked at.
func (c *controller) outByOthers(ctx context.Context) (map[string]bool, error) {
	all, err := c.kube.cordoned(ctx)
	out := map[string]bool{}
	for _, m := range all {
		out[m.Name] = m.Labels[markLabel] != "true"
	}
	return out, err
}
