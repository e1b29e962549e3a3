package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"time"
)

// ended is the reason why one that waited is over: its alert comes again by itself while there is
// something to mend, and Alertmanager has it no more. It does not post the end of an alert that is
// inhibited or silenced when it ends, nor of one that it lost by a restart.
const ended = "ended"

// besideTimeout bounds what is asked of each other Alertmanager, once one of them has answered.
const besideTimeout = 2 * time.Second

// hasEnded tells whether one waits for such an alert that has ended: Alertmanager has none with all
// its labels, and was not started a moment ago, before it was asked or meanwhile. Where its name
// stands for several of them, none of those that answer has it. What does not wait was posted just
// now, and fires. One that fires all the same, as where its sender reaches none of them, is posted
// again.
func (c *controller) hasEnded(ctx context.Context, w *wish) (bool, error) {
	if !w.waits || !comesAgain(w.alert) {
		return false, nil
	}
	labels := w.alert.Labels
	var filters []string
	for _, name := range []string{"alertname", "cluster", "node"} {
		filters = append(filters, fmt.Sprintf("%s=%q", name, labels[name]))
	}
	is := func(h held) bool { return maps.Equal(h.Labels, labels) }
	list, err := c.firing(ctx, c.alertmanager, filters...)
	if err != nil || slices.ContainsFunc(list, is) {
		return false, err
	}
	if err := c.grown(ctx); err != nil { // another one may have answered than the one that was asked for its age before
		return false, err
	}
	for _, base := range c.several(ctx) {
		beside, cancel := context.WithTimeout(ctx, besideTimeout)
		list, err := c.firing(beside, base, filters...)
		cancel()
		if err == nil && slices.ContainsFunc(list, is) {
			return false, nil
		}
	}
	return ctx.Err() == nil, context.Cause(ctx)
}

// several are the URLs of the Alertmanagers that the name of the flag stands for, by their
// addresses; none where it stands for one.
func (c *controller) several(ctx context.Context) []string {
	u, err := url.Parse(c.alertmanager)
	if err != nil {
		return nil
	}
	list, err := c.resolve(ctx, u.Hostname())
	if err != nil || len(list) < 2 {
		return nil
	}
	var out []string
	for _, ip := range list {
		one := *u
		switch port := u.Port(); {
		case port != "":
			one.Host = net.JoinHostPort(ip, port)
		case u.Scheme == "https":
			one.Host = net.JoinHostPort(ip, "443")
		default:
			one.Host = net.JoinHostPort(ip, "80")
		}
		out = append(out, one.String())
	}
	return out
}
