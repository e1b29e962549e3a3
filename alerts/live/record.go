package live

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Notification is one alert of one message that Alertmanager sent.
type Notification struct {
	// Receiver is the one of Alertmanager's configuration.
	Receiver string
	// Status is firing or resolved.
	Status      string
	Labels      map[string]string
	Annotations map[string]string
	StartsAt    time.Time
	// At is when it was received.
	At time.Time
}

// Name is the alert's name.
func (n Notification) Name() string { return n.Labels["alertname"] }

// Severity is auto, info, warning, critical, or none for the Watchdog.
func (n Notification) Severity() string { return n.Labels["severity"] }

// String is the alert in one line: receiver, status, name and the other labels in order.
func (n Notification) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", n.Receiver, n.Status, n.Name())
	for _, k := range slices.Sorted(maps.Keys(n.Labels)) {
		if k != "alertname" {
			fmt.Fprintf(&b, " %s=%q", k, n.Labels[k])
		}
	}
	return b.String()
}

// key tells alerts apart as Alertmanager does, for one receiver.
func (n Notification) key() string {
	n.Status = ""
	return n.String()
}

// Record is Alertmanager's receiver: a webhook that writes down what comes. Its methods may be
// called from several goroutines.
type Record struct {
	mu   sync.Mutex
	all  []Notification
	more chan struct{} // closed at each message
}

// messageBytes is the most that one message may be.
const messageBytes = 16 << 20

// NewRecord returns an empty record.
func NewRecord() *Record { return &Record{more: make(chan struct{})} }

// ServeHTTP takes a message in the form of Alertmanager's webhook, version 4.
func (r *Record) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var msg struct {
		Receiver string
		Alerts   []struct {
			Status              string
			Labels, Annotations map[string]string
			StartsAt            time.Time
		}
	}
	if err := json.NewDecoder(io.LimitReader(req.Body, messageBytes)).Decode(&msg); err != nil {
		http.Error(w, "this is no message of Alertmanager's webhook: "+err.Error(), http.StatusBadRequest)
		return
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range msg.Alerts {
		r.all = append(r.all, Notification{
			Receiver: msg.Receiver, Status: a.Status, Labels: a.Labels, Annotations: a.Annotations,
			StartsAt: a.StartsAt, At: now,
		})
	}
	close(r.more)
	r.more = make(chan struct{})
}

// All is everything that was received, in the order of arrival.
func (r *Record) All() []Notification {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// Since is each alert that was received as firing at or after t, once, by its first arrival.
func (r *Record) Since(t time.Time) []Notification {
	seen := map[string]bool{}
	var out []Notification
	for _, n := range r.All() {
		if n.Status == "firing" && !n.At.Before(t) && !seen[n.key()] {
			seen[n.key()] = true
			out = append(out, n)
		}
	}
	return out
}

// Firing is each alert whose last message said firing, by receiver, name and labels.
func (r *Record) Firing() []Notification {
	last := map[string]Notification{}
	for _, n := range r.All() {
		last[n.key()] = n
	}
	var out []Notification
	for _, n := range last {
		if n.Status == "firing" {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b Notification) int { return cmp.Compare(a.key(), b.key()) })
	return out
}

// changed is closed when the next message has come.
func (r *Record) changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.more
}
