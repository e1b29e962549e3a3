package adopt

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Undo takes back what Apply did by way of the namespace that is the scope's Home, and tells say of
// each step. What it left, since somebody else has changed it meanwhile, is told by left. While a
// data source in the scope asks Spillway, that stays, unless evenIfAsked.
func (c *Client) Undo(ctx context.Context, s Scope, evenIfAsked bool, say func(string, ...any)) (left []string, err error) {
	r, held, err := c.readRecord(ctx, s.Home)
	if err == nil && r == nil {
		err = c.unrecorded(ctx, s.Home)
	}
	if err != nil {
		return nil, err
	}
	fresh := make([]bool, len(r.Changed)) // is read at a start only, and put back by this run
	if !evenIfAsked {
		if fresh, err = c.pledge(ctx, s, r, held); err != nil {
			return nil, err
		}
	}
	var errs []error
	done := make([]bool, len(r.Changed)) // is put back by this run, or was by somebody else
	for i, ch := range r.Changed {
		why, did, err := c.restore(ctx, s.Home, ch, say)
		done[i] = did
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", ch.Ref, err))
		case why != "":
			left = append(left, ch.String()+" "+why)
		default:
			say("%s is as it was", ch.Ref)
		}
	}
	if err := c.letDown(ctx, s, r, fresh, done, evenIfAsked, say); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return left, errors.Join(errs...)
	}
	for _, ref := range slices.Backward(r.Made) {
		stays, err := c.unmake(ctx, ref, say)
		if err != nil {
			errs = append(errs, err)
		}
		if stays != "" {
			left = append(left, stays)
		}
	}
	if len(errs) > 0 {
		return left, errors.Join(errs...)
	}
	return left, c.remove(ctx, recordRef(s.Home), held.text("metadata", "uid"))
}

// letDown returns when nobody asks Spillway any more, as far as that can be seen, and what is in
// the way where somebody does. done are those of the record's changes that were just put back,
// fresh those of them that are read at a start only.
func (c *Client) letDown(ctx context.Context, s Scope, r *record, fresh, done []bool, evenIfAsked bool,
	say func(string, ...any),
) error {
	f, err := c.sources(ctx, s, r)
	var asking []string
	if err == nil {
		asking, err = c.asking(ctx, s, f)
	}
	if evenIfAsked {
		if err != nil {
			say("Not looked at: %s", err)
		}
		for _, a := range asking {
			say("Not waited for: %s", a)
		}
		return nil
	}
	var errs []error
	if err != nil {
		errs = append(errs, fmt.Errorf("whether a data source still asks Spillway cannot be seen, and it stays: %w; --look-in=NAMESPACE looks in that one only, --even-if-asked nowhere", err))
	}
	for _, a := range asking {
		errs = append(errs, errors.New(a))
	}
	restart, err := c.restarts(ctx, f, r, fresh)
	if err != nil {
		errs = append(errs, err)
	}
	for _, a := range restart {
		errs = append(errs, errors.New(a))
	}
	if len(errs) > 0 {
		errs = append(errs, errors.New("nothing of Spillway was deleted; --even-if-asked deletes it all the same, and who asks it gets no answers then"))
		return errors.Join(errs...)
	}
	if !slices.Contains(done, true) {
		return nil
	}
	wait := c.letGo
	for _, g := range f.grafanas {
		for _, one := range g.sidecars {
			wait = max(wait, c.letGo+one.every)
		}
	}
	say("waiting %s for Grafana to be told", wait)
	select {
	case <-ctx.Done():
		return fmt.Errorf("nothing of Spillway was deleted: run this again (%w)", context.Cause(ctx))
	case <-time.After(wait):
		return nil
	}
}

// unrecorded says what it means that there is no record.
func (c *Client) unrecorded(ctx context.Context, ns string) error {
	here, err := c.read(ctx, Ref{"apps/v1", "Deployment", ns, "spillway"})
	if err != nil {
		return err
	}
	if here.text("metadata", "labels", managedBy) == Manager {
		return fmt.Errorf("%s, by which adopt knows what it did, is gone: nothing was changed. Put the URLs of Grafana's data sources back by hand, then delete what has the label %s=%s (kubectl get "+
			"deployments,services,secrets,serviceaccounts,roles,rolebindings,networkpolicies,poddisruptionbudgets -A -l …)", recordRef(ns), managedBy, Manager)
	}
	return fmt.Errorf("adopt has changed nothing by way of namespace %s: there is no %s; --namespace names another one", ns, recordRef(ns))
}

// sources are the data sources that Read would find, and those in what Apply has changed, whoever
// reads that now; nil with an error.
func (c *Client) sources(ctx context.Context, s Scope, r *record) (*Found, error) {
	f := &Found{}
	if err := c.readPlain(ctx, s, f); err != nil { // what Grafana mounts
		return nil, err
	}
	if err := c.readGrafana(ctx, s, f); err != nil {
		return nil, err
	}
	if f.unlisted != nil {
		return nil, f.unlisted
	}
	for _, ch := range r.Changed {
		if slices.ContainsFunc(f.Sources, func(s Source) bool { return s.Ref == ch.Ref }) {
			continue
		}
		if o, err := c.read(ctx, ch.Ref); err != nil {
			return nil, err
		} else if o != nil {
			f.source(Source{Ref: ch.Ref, Sidecar: true, object: o}) // as far as anybody knows
		}
	}
	return f, nil
}

// asking are the data sources that ask Spillway, as sentences that say what to do.
func (c *Client) asking(ctx context.Context, s Scope, f *Found) (out []string, err error) {
	service, err := c.read(ctx, Ref{"v1", "Service", s.Home, "spillway"})
	if err != nil {
		return nil, err
	}
	target := (&Settings{Namespace: s.Home}).Target()
	address := service.text("spec", "clusterIP")
	for i := range f.Sources {
		one := &f.Sources[i]
		if one.unread && hostIn(target).MatchString(one.Text) {
			out = append(out, fmt.Sprintf("%s, file %s, cannot be read as data sources, and names Spillway, which therefore stays: mend the file or take it away, and run this again", one.Ref, one.Key))
		}
		for _, e := range slices.Concat(one.Entries, one.others) {
			if u := asked(e.URL); !f.asks(e.URL, target, one) && (u == nil || address == "" || u.Hostname() != address) {
				continue
			}
			out = append(out, fmt.Sprintf("data source %q of %s still asks Spillway, which therefore stays: write the URL of what it shall ask "+
				"into it, or into that which it comes from (Helm, GitOps), and run this again", e.Name, one.Ref))
		}
	}
	return out, nil
}

// hostIn finds the host of a URL in a text.
func hostIn(target string) *regexp.Regexp {
	return regexp.MustCompile(regexp.QuoteMeta(serviceOf(asked(target))) + `($|[^a-z0-9-])`)
}

// sourceField tells whether that is a field that Apply changes: others are not written, whatever
// the record says.
func sourceField(ch changed) bool {
	switch ch.Kind {
	case "ConfigMap", "Secret":
		return len(ch.Path) == 2 && ch.Path[0] == "data"
	case "GrafanaDatasource":
		return slices.Equal(ch.Path, []string{"spec", "datasource", "url"})
	}
	return false
}

// restore gives a field its old value, and the object its old owners. It says why it does not,
// where somebody else has changed the field or the object since, and whether Grafana may have read
// the field as Apply left it.
func (c *Client) restore(ctx context.Context, home string, ch changed, say func(string, ...any)) (why string, did bool, err error) {
	if !sourceField(ch) {
		return "", false, fmt.Errorf("%s is no field of a data source: somebody else has written the record of what adopt did", strings.Join(ch.Path, "."))
	}
	o, err := c.read(ctx, ch.Ref)
	switch {
	case err != nil:
		return "", false, err
	case o == nil:
		return "is gone", false, nil
	case o.text("metadata", "uid") != ch.UID:
		return "is another object of that name now, and stays", false, nil
	case ch.settled(o):
		return "", false, nil // Apply did not come to it, or somebody was here before
	}
	now := o.text(ch.Path...)
	value := ch.Old
	if now != ch.Old && now != ch.New {
		text := ch.decode(now)
		if back := ch.back(text, (&Settings{Namespace: home}).Target()); back == text {
			return fmt.Sprintf("has been changed by somebody else since (%s), and stays: look whether it still asks Spillway", strings.Join(ch.Path, ".")), true, nil
		} else {
			value = ch.encode(back)
		}
		why = fmt.Sprintf("has been changed by somebody else since (%s): that stays, and what asked Spillway in it asks what it asked before", strings.Join(ch.Path, "."))
	}
	others := foreign(o)
	o.set(value, ch.Path...)
	if o, err = c.replace(ctx, o); err != nil {
		return "", false, err
	}
	before := object{}
	before.set(ch.Owners, "metadata", "managedFields")
	if !sameOwners(foreign(before), others) {
		say("%s: somebody has written it meanwhile, so who owned its fields before is not given back: they are as they are in its managedFields", ch.Ref)
		return why, true, nil
	}
	owners := entries(before, false)
	o.set(append(owners, entries(o, true)...), "metadata", "managedFields")
	_, err = c.replace(ctx, o) // a write that changes no field takes the owners as they are given
	return why, true, err
}

// managed tells whether adopt has fields of the object.
func managed(o object) bool {
	all, _ := o.at("metadata", "managedFields").([]any)
	return slices.ContainsFunc(all, func(f any) bool {
		m, _ := f.(map[string]any)
		return m["manager"] == Manager
	})
}

// others are the entries of an object's managedFields but for adopt's.
func others(o object) []any {
	all, _ := o.at("metadata", "managedFields").([]any)
	return slices.DeleteFunc(slices.Clone(all), func(f any) bool {
		m, _ := f.(map[string]any)
		return m["manager"] == Manager
	})
}

// entries are those of an object's managedFields that are about its status and other subresources,
// or those about itself.
func entries(o object, sub bool) (out []any) {
	all, _ := o.at("metadata", "managedFields").([]any)
	for _, f := range all {
		if m, _ := f.(map[string]any); (object(m).text("subresource") != "") == sub {
			out = append(out, f)
		}
	}
	return out
}

// foreign are the other managers of an object itself, each with the time of its last write: an
// operator writes the status of its objects all the time.
func foreign(o object) map[string]bool {
	out := map[string]bool{}
	for _, f := range entries(o, false) {
		m, _ := f.(map[string]any)
		if e := object(m); e.text("manager") != Manager {
			out[e.text("manager")+" "+e.text("operation")+" "+e.text("time")] = true
		}
	}
	return out
}

// sameOwners tells whether nobody else has written the object since: then its old owners are the
// right ones. A manager that had nothing but the field is gone from those of now.
func sameOwners(before, now map[string]bool) bool {
	for name := range now {
		if !before[name] {
			return false
		}
	}
	return true
}
