package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"
)

// maxPayload bounds a payload's bytes: an alert has about 1 KiB, so this is more than one for each
// of 7,500 nodes.
const maxPayload = 8 << 20

// payload is what Alertmanager posts, in its version 4, as far as it is read here.
type payload struct {
	Version string  `json:"version"`
	Alerts  []alert `json:"alerts"`
}

// alert is one alert of a payload.
type alert struct {
	Status      string            `json:"status"` // firing, resolved
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    string            `json:"startsAt"`
	Fingerprint string            `json:"fingerprint"`
}

// errorWithin is how long ago the error may be that an alert is about which fires now and passes:
// its window, and the time until somebody is told.
const errorWithin = 6 * time.Minute

// earliest is when what it is about may have happened, at the earliest: Alertmanager posts again
// what it could not deliver, and what has gone on firing may be about another error since.
func (a alert) earliest(now time.Time) time.Time {
	at, err := time.Parse(time.RFC3339, a.StartsAt)
	if err != nil || at.After(now) {
		return now
	}
	if most := now.Add(-errorWithin); at.Before(most) {
		return most
	}
	return at
}

// readPayload reads one payload and nothing after it.
func readPayload(r io.Reader) (payload, error) {
	var p payload
	d := json.NewDecoder(r)
	if err := d.Decode(&p); err != nil {
		return p, fmt.Errorf("the body is no webhook of Alertmanager: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return p, errors.New("the body goes on after the webhook's end")
	}
	if p.Version != "4" {
		return p, fmt.Errorf("version %q of the webhook is not known here, only 4", p.Version)
	}
	return p, nil
}

// nodeName is what Kubernetes allows as one (DNS-1123), so that it can stand in a path.
var nodeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

// actions are the values of the alerts' label `action` (jsonnet/lib/xid.libsonnet has those of
// Xids), with the lightest first: of several alerts about a node the heaviest decides. cordon is
// false for what is not cured by keeping jobs away; light is true for what can wait and comes by
// the hundred, and may use a part of the budget only.
var actions = []struct {
	name          string
	cordon, light bool
}{
	{"raise-gc-thresh", false, false},
	{"cordon", true, true},
	{"reset-when-idle", true, true},
	{"drain", true, false},
	{"drain-reset", true, false},
	{"cordon-reboot", true, false},
	{"drain-reboot", true, false},
	{"recovery-action", true, false}, // what the driver itself advises goes before what the table knows
	{"replace", true, false},
}

// isLight tells whether an action is one of those that leave room for others.
func isLight(action string) bool {
	i := weight(action)
	return i >= 0 && actions[i].light
}

// weight is an action's place in actions, -1 where it is not known.
func weight(action string) int {
	for i, a := range actions {
		if a.name == action {
			return i
		}
	}
	return -1
}
