package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/thanos"
)

// What a Thanos Query is and how it lies is in proxy/thanos; here it is asked.

// Type is what kind of server it is: config.TypePrometheus or config.TypeThanos.
func (r *Replica) Type() string { return r.up.kind }

// Thanos tells whether the server is a Thanos Query.
func (r *Replica) Thanos() bool { return r.up.kind == config.TypeThanos }

// Thanos tells whether the shard is served by Thanos Query: finished answers, and no series to
// compute with. All replicas of a shard are of one type.
func (s *Shard) Thanos() bool { return s.Replicas[0].Thanos() }

// ErrNoRaw is the refusal of a request that would need the series of a shard that serves none (see
// Shard.Thanos): 422, bound thanos_raw. Where an engine of its group differs everything would, and
// another query is of no use.
func ErrNoRaw(s *Shard) error {
	advice, why := "ask within the time and the group of that shard alone, or aggregate with sum, count, min, max, group or avg", ""
	for _, sick := range s.Group.Sick() {
		if sick.Kind == SickEngine {
			why = ", since a server of its group is not as the others (" + sick.Replica + ": " + sick.Text + ")"
			advice = "give all servers the same engine (docs/trust.md); until then this group answers nothing of that kind, however it is asked"
			break
		}
	}
	e := qerr.Refuse("thanos_raw", "finished answers", "series", advice,
		"shard %s is a Thanos Query, which serves finished answers and no series, and part of this request has to be computed in Spillway from series%s",
		s.Name(), why)
	e.Shards = []string{s.Replicas[0].Name()}
	return e
}

// Serves tells whether the shard's servers have the endpoint at all. A Thanos Query lacks remote
// read, federation and some others; it is not asked for them.
func (s *Shard) Serves(id endpoint.ID) bool { return !s.Thanos() || thanos.Serves(id) }

// errNotServed is the refusal of a request for what the server does not have.
func (r *Replica) errNotServed(id endpoint.ID) *qerr.Error {
	if id.Selects() == endpoint.SelectsStored {
		return qerr.From(ErrNoRaw(r.Shard))
	}
	e := qerr.New(qerr.ShardFailed, "%s is a Thanos Query, which does not serve %s", r.Name(), id)
	e.Shards = []string{r.Name()}
	return e
}

// writer is the package's writer for this server, for the prober's questions; calls pass send,
// which does the same.
func (r *Replica) writer(req *endpoint.Request) builder {
	if !r.Thanos() {
		return writer(req)
	}
	return r.thanosBuilder(req.ID, r.named(req, writer(req)), thanos.Instructions{Without: r.leftOut()})
}

// named writes the label whose values are asked for as a Thanos Query reads it.
func (r *Replica) named(req *endpoint.Request, build builder) builder {
	if !thanos.NamesLabel(req.ID) {
		return build
	}
	return func(ctx context.Context, base *url.URL, timeout time.Duration) (*http.Request, error) {
		path, ok := thanos.LabelPath(req.Label)
		if !ok {
			return nil, r.errLabel(req)
		}
		out, err := build(ctx, base, timeout)
		if err != nil {
			return nil, err
		}
		out.URL.RawPath = strings.TrimRight(base.EscapedPath(), "/") + path
		out.URL.Path, err = url.PathUnescape(out.URL.RawPath)
		return out, err
	}
}

// errLabel is the refusal of a question for the values of a label that a Thanos Query cannot be
// asked for; nil where it can.
func (r *Replica) errLabel(req *endpoint.Request) error {
	if !thanos.NamesLabel(req.ID) {
		return nil
	}
	if _, ok := thanos.LabelPath(req.Label); ok {
		return nil
	}
	e := qerr.New(qerr.ShardFailed, "%s is a Thanos Query, which cannot be asked for the values of the label %s: its name does not go into a path as it is", r.Name(), strconv.Quote(cleaned(req.Label)))
	e.Shards = []string{r.Name()}
	return e
}

// thanosBuilder adds to a request what a Thanos Query is to be told, and takes out what a client
// may have said of it.
func (r *Replica) thanosBuilder(id endpoint.ID, build builder, told thanos.Instructions) builder {
	if !thanos.Told(id) {
		return build
	}
	return edited(build, func(req *http.Request) error {
		if req.GetBody != nil { // a form; Thanos reads it before the URL, so what it says of these must go
			if err := cleanForm(req); err != nil {
				return err
			}
		}
		q := req.URL.Query()
		told.ReplicaLabels = r.thanosReplicaLabels()
		told.Write(id, q)
		req.URL.RawQuery = q.Encode()
		return nil
	})
}

// asStored asks a Thanos Query for series as its stores have them, each copy by itself.
func (r *Replica) asStored(req *endpoint.Request) builder {
	// What stores that are away have is not needed.
	told := r.thanosBuilder(req.ID, writer(req), thanos.Instructions{Partial: true, Without: r.leftOut()})
	return edited(told, parameters(thanos.AsStored))
}

// edited changes the requests of a builder.
func edited(build builder, edit func(*http.Request) error) builder {
	return func(ctx context.Context, base *url.URL, timeout time.Duration) (*http.Request, error) {
		req, err := build(ctx, base, timeout)
		if err == nil {
			err = edit(req)
		}
		return req, err
	}
}

// parameters changes those of the URL.
func parameters(change func(url.Values)) func(*http.Request) error {
	return func(req *http.Request) error {
		q := req.URL.Query()
		change(q)
		req.URL.RawQuery = q.Encode()
		return nil
	}
}

// cleanForm takes out of a form what only Spillway says to a Thanos Query.
func cleanForm(req *http.Request) error {
	body, err := req.GetBody()
	if err != nil {
		return err
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	form, err := url.ParseQuery(string(raw))
	if err != nil || !thanos.CleanForm(form) {
		return err
	}
	text := form.Encode()
	req.Body, req.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
	return nil
}

// thanosReplicaLabels are the labels by which the server is to tell copies apart: the group's and,
// since naming any replaces the flag, those of its flag query.replica-label. Without any of the
// group's none are named, and the flag holds.
func (r *Replica) thanosReplicaLabels() []string {
	own := r.Shard.Group.ReplicaLabels
	if len(own) == 0 {
		return nil
	}
	all := slices.Concat(own, r.thanosFlags().ReplicaLabels)
	slices.Sort(all)
	return slices.Compact(all)
}

// thanosFlags are those of a Thanos Query.
func (r *Replica) thanosFlags() thanos.Flags {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return r.up.health.thanos
}

// errLate is the private cause of an answer that came too late to be believed.
var errLate = errors.New("an answer at the end of its time")

// judgeThanos looks whether the answer whose header has come is one: in time, and of all the
// server's stores. It sets Response.Partial where it is not whole and the request allows that.
func (c *call) judgeThanos(resp *Response, given time.Duration, o try) *qerr.Error {
	if thanos.OfItself(c.id) {
		return nil
	}
	name, took := c.r.Name(), c.header.Sub(c.started)
	var cause error
	missing, err := c.r.look(c.ctx, time.Now(), c.started)
	if err == nil && missing == "" {
		missing = c.r.missingBeside(o.without)
	}
	if err != nil {
		if c.ctx.Err() != nil {
			return c.explain(err, nil)
		}
		if dl, ok := c.ctx.Deadline(); ok && qerr.From(err).Kind == qerr.Timeout && time.Until(dl) < time.Second {
			return c.r.timeout(err) // the question has its own margin before the same deadline
		}
		e := qerr.Wrap(qerr.ShardFailed, err, "%s answered, but its list of stores (/api/v1/stores) cannot be read, without which nobody can tell whether the answer is whole", name)
		e.Shards = []string{name}
		return e
	}
	if limit := c.r.thanosFlags().Limit(given); limit > 0 && took >= limit*9/10 {
		empty, err := resp.Body.(*body).startsEmpty()
		if err != nil {
			return qerr.From(err)
		}
		if took >= limit || empty {
			e := qerr.Wrap(qerr.Timeout, errLate, "%s answered when its time (%s) was over, and a Thanos Query may leave out what it had not read by then; ask for less, or look at the load of its stores",
				name, limit.Round(time.Millisecond))
			e.Shards = []string{name}
			return e
		}
	}
	switch {
	case missing != "":
		resp.Partial = c.r.answersWithout(missing)
	case !c.r.followed(c.started):
		cause = errUnseen
		resp.Partial = name + " answered, and its list of stores was not read often enough meanwhile to tell whether it had all of them"
	case (thanos.Evaluates(c.id) || !thanos.Told(c.id)) && strings.Contains(resp.Header.Get("Cache-Control"), "no-store"):
		// It forbids caches to keep an answer that has warnings other than PromQL's own; their text
		// stands behind the data.
		if thanos.Warns(c.id) {
			good, err := c.madeGoodWarned(resp.Body.(*body), o.asked, o.Hold)
			if err != nil {
				return qerr.From(err)
			}
			if good {
				return nil
			}
			cause = errWarned
		}
		resp.Partial = name + " could not read all of its stores"
		if note := c.r.storesNote(); note != "" {
			resp.Partial += " (as far as is known, " + note + ")"
		}
	}
	if resp.Partial != "" && !o.Partial {
		return c.r.partial(cause, resp.Partial)
	}
	return nil
}

// answersWithout says what an answer lacks.
func (r *Replica) answersWithout(missing string) string {
	return r.Name() + " answers without some of its stores: " + missing
}

// partial is the refusal of an answer that is not whole, for a request that takes none such.
func (r *Replica) partial(cause error, what string) *qerr.Error {
	e := qerr.Wrap(qerr.ShardFailed, &lackingError{cause}, "%s, so series may be missing", what)
	e.Advice = "bring the stores back, or start Thanos Query with --endpoint-strict so that it waits for them"
	e.Shards = []string{r.Name()}
	return e
}

// lackingError is the private cause of a refusal of an answer that is not whole.
type lackingError struct{ cause error }

// Error implements error.
func (e *lackingError) Error() string {
	if e.cause != nil {
		return "stores are missing: " + e.cause.Error()
	}
	return "stores are missing"
}

// Unwrap implements the protocol of package errors.
func (e *lackingError) Unwrap() error { return e.cause }

// LacksStores tells whether the failure is that of an answer without some stores, which a request
// that takes partial answers would have got.
func LacksStores(err error) bool {
	var e *lackingError
	return errors.As(err, &e)
}

// startsEmpty tells whether the body is a success without any data. What it reads is read again by
// Read.
func (b *body) startsEmpty() (bool, error) {
	var head []byte
	for len(head) < 256 {
		piece := make([]byte, 256-len(head))
		n, err := b.Read(piece)
		head = append(head, piece[:n]...)
		if empty := thanos.Empty(head); empty || err == io.EOF {
			b.again = head
			return empty, nil
		}
		if err != nil {
			return false, err
		}
	}
	b.again = head
	return false, nil
}

// thanosStatus tells which of a Thanos Query's errors are failures of its stores: it sends these as
// 422 too. nil where the status means what it means with a Prometheus.
func (c *call) thanosStatus(st *StatusError, text string) *qerr.Error {
	name, code := c.r.Name(), st.Code
	switch {
	case code == http.StatusUnprocessableEntity && thanos.StoreTrouble(text):
		said := cleaned(text)
		if note := c.r.storesNote(); note != "" {
			said += "; as far as is known, " + note
		}
		e := qerr.Wrap(qerr.ShardFailed, &storesError{code, text}, "%s could not read its stores: %s", name, said)
		e.Shards = []string{name}
		return e
	case code == http.StatusBadRequest && thanos.RefusedLabel(c.id, text):
		e := qerr.Wrap(qerr.ShardFailed, st, "%s, a Thanos Query, does not take the name of that label: %s", name, cleaned(text))
		e.Advice = "one before 0.40 knows names of letters, digits and underscores alone; run 0.40 or later"
		e.Shards = []string{name}
		return e
	case code == http.StatusBadRequest && thanos.Evaluates(c.id):
		e := qerr.New(qerr.TooExpensive, "%s, a Thanos Query, does not understand the query: %s", name, cleaned(text))
		e.Advice = "leave out what this version of Thanos does not know, or ask for the time and the groups of other shards"
		e.Shards = []string{name}
		return e
	default:
		return nil
	}
}

// LabelsAgree tells whether it is known that no series of the server has a value of one of its
// group's labels other than the group's own.
func (r *Replica) LabelsAgree() bool {
	g := r.Shard.Group
	if g.Labels.IsEmpty() {
		return true
	}
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	agree := true
	g.Labels.Range(func(l labels.Label) {
		agree = agree && r.up.health.agrees[l]
	})
	return agree
}

// StoresGroupLabels tells whether every series of the server is known to have all of its group's
// labels, with the group's values: then the text of a query means there what it means over the
// whole group, group labels in groupings included. It holds for a Thanos Query all of whose stores
// announce these labels, since a store's own labels are on every series it serves, whatever the
// series itself has.
func (r *Replica) StoresGroupLabels() bool {
	if !r.Thanos() || !r.LabelsAgree() {
		return false
	}
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	_, _, lacks := r.up.stores.Without(r.Shard.Group.Labels)
	return r.up.stores.Listed && !lacks
}

// thanosMisconfigured lists what keeps a Thanos Query from being asked.
func (r *Replica) thanosMisconfigured() []string {
	g := r.Shard.Group
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	if r.up.stores.absent {
		return []string{"it does not serve /api/v1/stores, by which alone it can be seen that a Thanos Query answers without some of its stores; give the url of Thanos Query itself, not of a query frontend, " +
			"or leave out type: thanos"}
	}
	var why []string
	for _, s := range r.up.stores.List {
		for _, set := range s.LabelSets {
			g.Labels.Range(func(l labels.Label) {
				if v, has := set[l.Name]; has && v != l.Value && len(why) < 5 {
					why = append(why, fmt.Sprintf("its store %s has series with %s=%q and the labels of group %s say %q; take that store out of this Thanos Query (--selector.relabel-config), or %s out of the group's labels",
						s.Name, l.Name, cleaned(v), g.Name, l.Value, l.Name))
				}
			})
		}
	}
	return why
}
