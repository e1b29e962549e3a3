package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// cordon is one that was done here: of which node, and when, as its annotation says.
type cordon struct{ node, at string }

// maxAhead is how far ahead of the clock a time may be that is believed: clocks differ by less.
const maxAhead = 5 * time.Minute

// within tells whether a cordon was done after a time. A time that cannot be read counts as now,
// and one further ahead than maxAhead, of a clock that was wrong, as when it was first met: it
// would fill the window until then, and left out it would be a place that nobody has used.
func (c *controller) within(d cordon, since time.Time) bool {
	at, err := time.Parse(time.RFC3339, d.at)
	if err != nil {
		return true
	}
	now := c.now()
	met, ahead := c.done.ahead[d]
	if !ahead && !at.After(now.Add(maxAhead)) {
		return at.After(since)
	}
	if !ahead {
		c.log.Warn("a cordon bears a time that is yet to come, and counts as done now: was the clock of this machine wrong, or is it?",
			"node", d.node, "at", d.at)
	}
	if !ahead || met.After(now) { // the clock was wrong then, too
		met = now
		c.done.ahead[d] = now
	}
	return met.After(since)
}

// done are the cordons within the window, whether or not the node still bears the mark: who repairs
// it takes the mark off or makes the node anew, and the place that it had is used all the same.
type done struct {
	by       map[cordon]bool // whether for a light action
	recalled bool            // what was done before this program was started is in it
	unsure   map[string]doubt
	ahead    map[cordon]time.Time // when those were first met whose time was yet to come then
}

// doubt is a cordon that may have been done or not.
type doubt struct {
	at     string
	before node
	light  bool
}

func newDone() done {
	return done{by: map[cordon]bool{}, unsure: map[string]doubt{}, ahead: map[cordon]time.Time{}}
}

// add remembers a cordon of a node as it was before.
func (d *done) add(at string, before node, light bool) {
	d.replace(before)
	d.by[cordon{before.Metadata.Name, at}] = light
}

// replace forgets the light action that a node waits for: it is one, and takes one place.
func (d *done) replace(before node) {
	if before.waitsLightly() {
		delete(d.by, cordon{before.Metadata.Name, before.Metadata.Annotations[markTime]})
	}
}

// doubt remembers one that may have been done or not.
func (d *done) doubt(at string, before node, light bool) {
	d.replace(before)
	d.unsure[before.Metadata.Name] = doubt{at, before, light}
}

// tells ends a doubt by what stands on the node.
func (d *done) tells(m meta) {
	u, ok := d.unsure[m.Name]
	if _, err := time.Parse(time.RFC3339, m.Annotations[markTime]); ok && err == nil {
		d.add(m.Annotations[markTime], u.before, isLight(m.Annotations[markAction]))
	}
	delete(d.unsure, m.Name)
}

// ask reads the nodes of which that is in doubt. One that is gone may have been cordoned. Those
// that cannot be read stay in doubt, and after two such nobody asks further: where each patch fails
// the API server is ill.
func (c *controller) ask(ctx context.Context, known []meta) {
	for _, m := range known {
		c.done.tells(m)
	}
	unread := 0
	for name, u := range c.done.unsure {
		m, err := c.kube.metadata(ctx, name)
		switch {
		case err == nil:
			c.done.tells(m)
		case errors.Is(err, errNoNode):
			c.done.add(u.at, u.before, u.light)
			delete(c.done.unsure, name)
		default:
			unread++
		}
		if unread == 2 {
			return
		}
	}
}

// recall reads once from all nodes which were cordoned here before. Of one node the last time is
// known, and of those that are gone nothing. Later it reads only those of which it is in doubt;
// others have just been read.
func (c *controller) recall(ctx context.Context, marked []meta, next meta) error {
	c.ask(ctx, append(slices.Clip(marked), next))
	if c.done.recalled {
		return nil
	}
	all, err := c.kube.onceMarked(ctx)
	if err != nil {
		return err
	}
	for _, m := range all {
		if _, err := time.Parse(time.RFC3339, m.Annotations[markTime]); err == nil {
			c.done.by[cordon{m.Name, m.Annotations[markTime]}] = isLight(m.Annotations[markAction])
		}
	}
	c.done.recalled = true
	return nil
}

// inTheWindow counts what was taken out within the window, how much of it for light actions, and
// all marks but that of the node in question. If it waits for a light action, that is none besides:
// it is counted as the next one. What is of before the window is forgotten, and what is in doubt
// counts.
func (c *controller) inTheWindow(marked []meta, next node) (within, light, marks int) {
	name, since := next.Metadata.Name, c.now().Add(-c.window)
	maps.DeleteFunc(c.done.by, func(d cordon, _ bool) bool { return !c.within(d, since) })
	all, bears := maps.Clone(c.done.by), map[cordon]bool{}
	for _, m := range marked {
		if m.Name != name {
			marks++
		}
		d := cordon{m.Name, m.Annotations[markTime]}
		bears[d] = true
		if c.within(d, since) {
			all[d] = m.isLight()
		}
	}
	maps.DeleteFunc(c.done.ahead, func(d cordon, _ time.Time) bool {
		_, counts := c.done.by[d]
		return !counts && !bears[d] && d.node != name
	})
	if next.waitsLightly() {
		delete(all, cordon{name, next.Metadata.Annotations[markTime]})
	}
	for _, isLight := range all {
		within++
		if isLight {
			light++
		}
	}
	for _, u := range c.done.unsure {
		within++
		if u.light {
			light++
		}
	}
	for n, p := range c.planned {
		if p.at.After(c.now().Add(maxAhead)) {
			p.at = c.now()
			c.planned[n] = p
		}
		if !p.at.After(since) {
			delete(c.planned, n)
		} else if n != name {
			within++
			if p.light {
				light++
			}
		}
	}
	return within, light, marks
}
