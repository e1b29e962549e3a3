package main

import (
	"context"
	"maps"
	"time"
)

// cordon is one that was done here: of which node, and when, as its annotation says.
type cordon struct{ node, at string }

// within tells whether it was done after a time. A time that cannot be read counts as now.
func (d cordon) within(since time.Time) bool {
	at, err := time.Parse(time.RFC3339, d.at)
	return err != nil || at.After(since)
}

// done are the cordons within the window, whether or not the node still bears the mark: who repairs
// it takes the mark off or makes the node anew, and the place that it had is used all the same.
type done struct {
	by       map[cordon]bool // whether for a light action
	recalled bool            // what was done before this program was started is in it
}

// add remembers a cordon of a node as it was before.
func (d *done) add(at string, before node, light bool) {
	if before.waitsLightly() { // the node is one, and takes one place
		delete(d.by, cordon{before.Metadata.Name, before.Metadata.Annotations[markTime]})
	}
	d.by[cordon{before.Metadata.Name, at}] = light
}

// recall reads once from all nodes which were cordoned here before. Of one node the last time is
// known, and of those that are gone nothing.
func (c *controller) recall(ctx context.Context) error {
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
// it is counted as the next one. What is of before the window is forgotten.
func (c *controller) inTheWindow(marked []meta, next node) (within, light, marks int) {
	name, since := next.Metadata.Name, c.now().Add(-c.window)
	maps.DeleteFunc(c.done.by, func(d cordon, _ bool) bool { return !d.within(since) })
	all := maps.Clone(c.done.by)
	for _, m := range marked {
		if m.Name != name {
			marks++
		}
		if d := (cordon{m.Name, m.Annotations[markTime]}); d.within(since) {
			all[d] = m.isLight()
		}
	}
	if next.waitsLightly() {
		delete(all, cordon{name, next.Metadata.Annotations[markTime]})
	}
	for _, isLight := range all {
		within++
		if isLight {
			light++
		}
	}
	for n, p := range c.planned {
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
