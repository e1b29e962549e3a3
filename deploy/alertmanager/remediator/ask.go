package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// fleetAlert is the name of a fleet alert that fires for the cluster, "" if none does. One that
// somebody silenced counts: a silence says that people know, not that it is over. What fires always
// is asked for first: an Alertmanager that nobody sends to knows of no alert at all. So is its age:
// one that has just been started hears of what fires always from the first server that sends again,
// and of the fleet alert from the last one, perhaps.
func (c *controller) fleetAlert(ctx context.Context) (string, error) {
	if err := c.grown(ctx); err != nil {
		return "", err
	}
	if c.watchdog != "" {
		always, err := c.firing(ctx, c.alertmanager, `alertname="`+c.watchdog+`"`)
		if err != nil {
			return "", err
		}
		if len(always) == 0 {
			return "", fmt.Errorf("alertmanager does not know of %s, which fires always: nobody sends to it (--watchdog)", c.watchdog)
		}
	}
	if c.watchdog != "" && c.watchdogScope != "" {
		if err := c.watched(ctx); err != nil {
			return "", err
		}
	}
	fleet, err := c.firing(ctx, c.alertmanager, `alertname=~"`+c.fleetAlerts+`"`, `cluster="`+c.cluster+`"`)
	if err != nil || len(fleet) == 0 {
		return "", err
	}
	return slices.MinFunc(fleet, func(a, b held) int { return strings.Compare(a.name(), b.name()) }).name(), nil
}

// sentWithin is how long ago the Watchdog of the fleet's rules may have been sent last. Rules send
// at the first evaluation more than --resend-delay, a minute, after the last time: those of its
// group, evaluated each 30 s, each 90 s; those of others, each minute, each two minutes.
// Alertmanager takes a fleet alert for over when it has heard nothing of it for four: who was heard
// of within this would have told of one too, and it is still there.
const sentWithin = 2 * time.Minute

// watched is an error unless the rules about the fleet are evaluated for the cluster.
func (c *controller) watched(ctx context.Context) error {
	all, err := c.firing(ctx, c.alertmanager, `alertname="`+c.watchdog+`"`, `cluster="`+c.cluster+`"`, `scope="`+c.watchdogScope+`"`)
	if err != nil {
		return err
	}
	filter := fmt.Sprintf("%s{cluster=%q, scope=%q}", c.watchdog, c.cluster, c.watchdogScope)
	if len(all) == 0 {
		return fmt.Errorf("alertmanager does not know of %s: the rules about the fleet are not evaluated, or not sent (--watchdog-scope)", filter)
	}
	last := slices.MaxFunc(all, func(a, b held) int { return a.UpdatedAt.Compare(b.UpdatedAt) }).UpdatedAt
	if c.now().Sub(last) > sentWithin {
		return fmt.Errorf("alertmanager has heard of %s at %s last, more than %s ago: the rules about the fleet fail, or are not sent", filter, last.Format(time.RFC3339), sentWithin)
	}
	return nil
}

// young is how old Alertmanager must be before it is believed that no fleet alert fires. What fires
// is sent again after a minute, after another one where that was lost, and Alertmanagers do not
// tell each other of alerts; who sends may first have to look its address up again.
const young = 5 * time.Minute

// grown is an error where Alertmanager was started a moment ago, or does not say when. Where its
// address stands for several of them one answers this and what is asked next: the connection is
// kept, unless that one ends in between.
func (c *controller) grown(ctx context.Context) error {
	var status struct{ Uptime time.Time } // when it was started, in spite of the name
	if err := c.get(ctx, "/api/v2/status", &status); err != nil {
		return err
	}
	if status.Uptime.IsZero() {
		return errors.New("alertmanager does not say when it was started (uptime in /api/v2/status)")
	}
	if c.now().Sub(status.Uptime) < young {
		return fmt.Errorf("alertmanager was started at %s, less than %s ago, and may not have heard of every alert yet", status.Uptime.Format(time.RFC3339), young)
	}
	return nil
}

// held is an alert that Alertmanager has.
type held struct {
	Labels    map[string]string
	UpdatedAt time.Time // when it was sent last
}

func (h held) name() string { return h.Labels["alertname"] }

// firing are the alerts that the Alertmanager of a URL has for some filters, whether or not they
// are silenced, inhibited or too new to have been looked at.
func (c *controller) firing(ctx context.Context, base string, filters ...string) ([]held, error) {
	v := url.Values{"filter": filters, "active": {"true"}, "silenced": {"true"}, "inhibited": {"true"}, "unprocessed": {"true"}}
	var list []held
	if err := c.getFrom(ctx, base, "/api/v2/alerts?"+v.Encode(), &list); err != nil {
		return nil, err
	}
	if list == nil {
		return nil, errors.New("alertmanager's answer makes no sense: null is no list of alerts")
	}
	return list, nil
}

// get reads one answer of Alertmanager's, to the end, so that the connection serves the next call.
func (c *controller) get(ctx context.Context, call string, into any) error {
	return c.getFrom(ctx, c.alertmanager, call, into)
}

// getFrom is that from one of several Alertmanagers, which is called by the name of all.
func (c *controller) getFrom(ctx context.Context, base, call string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+call, nil)
	if err != nil {
		return err
	}
	if u, err := url.Parse(c.alertmanager); err == nil {
		req.Host = u.Host
	}
	if c.tokenFile != "" {
		bearer, err := bearerOf("--alertmanager-token-file", c.tokenFile)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", bearer)
	}
	res, err := c.client.Do(req)
	if err != nil {
		return fmt.Errorf("ask Alertmanager: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, answerBytes))
	if err != nil {
		return fmt.Errorf("read Alertmanager's answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("alertmanager says %s: %s", res.Status, text[:min(len(text), 300)])
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("alertmanager's answer makes no sense: %w", err)
	}
	return nil
}
