package adopt

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spillwayproject/spillway/internal/clip"
)

// record is what Undo needs to know.
type record struct {
	// Servers are the workloads that Spillway was put in front of, as "Kind namespace/name".
	Servers []string `json:"servers,omitempty"`
	// Made are the objects that were not there before.
	Made []Ref `json:"made"`
	// Changed are fields of objects that were there.
	Changed []changed `json:"changed"`
	// Running are the containers of Grafana that have read what Undo has put back before it did.
	Running []string `json:"running,omitempty"`
}

// changed is one field that was changed.
type changed struct {
	Ref
	// UID is the object's: another one of the same name is not it.
	UID string `json:"uid"`
	// Path is where the field is, Old and New what stood and stands there.
	Path []string `json:"path"`
	// AtStart tells whether Grafana reads it at its start only; nil is that nobody said.
	AtStart *bool `json:"at_start,omitempty"`
	// Restored tells whether Undo has put it back and waits for Grafana to be restarted.
	Restored bool   `json:"restored,omitempty"`
	Old      string `json:"old"`
	New      string `json:"new"`
	// Owners are the object's managedFields before.
	Owners any `json:"owners"`

	now string // what stands there as this run begins, where it changes that
}

// recordRef is the object in which the record is: a Secret, since data sources may have passwords.
func recordRef(ns string) Ref { return Ref{"v1", "Secret", ns, "spillway-adopt"} }

const recordKey = "record.json"

// poll is how often is looked whether Spillway is available.
const poll = 500 * time.Millisecond

// bindTries is how often a binding is applied whose Role the API server does not know yet.
const bindTries = 20

func (c *Client) readRecord(ctx context.Context, ns string) (*record, object, error) {
	o, err := c.read(ctx, recordRef(ns))
	if err != nil || o == nil {
		return nil, nil, err
	}
	b, err := base64.StdEncoding.DecodeString(o.text("data", recordKey))
	r := &record{}
	if err == nil {
		err = json.Unmarshal(b, r)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s has no record that can be read: %w", recordRef(ns), err)
	}
	return r, o, nil
}

// writeRecord writes it in place of held, which is what was read; nil is that there was none. Where
// somebody else has written it since, it is an error with code 409.
func (c *Client) writeRecord(ctx context.Context, ns string, held object, r *record) (out object, err error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	o := object{"apiVersion": "v1", "kind": "Secret", "type": "Opaque"}
	o.set(base64.StdEncoding.EncodeToString(b), "data", recordKey)
	o.set("spillway-adopt", "metadata", "name")
	o.set(ns, "metadata", "namespace")
	o.set(Manager, "metadata", "labels", managedBy)
	if held == nil {
		ref := recordRef(ns)
		all := strings.TrimSuffix(ref.path(), "/"+ref.Name)
		err = c.do(ctx, http.MethodPost, all, url.Values{"fieldManager": {Manager}}, "application/json", o, &out)
		return out, err
	}
	o.set(held.text("metadata", "resourceVersion"), "metadata", "resourceVersion")
	return c.replace(ctx, o)
}

// Apply puts Spillway in front of the plan's servers, and tells say of each step. It is not taken
// back where it fails: Undo knows what was done until then, and Apply may be tried again.
func (c *Client) Apply(ctx context.Context, p *Plan, r *Reach, s Settings, say func(string, ...any)) error {
	objects, err := p.objects(s)
	if err != nil {
		return err
	}
	old, held, err := c.readRecord(ctx, s.Namespace)
	if err != nil {
		return err
	}
	if old == nil {
		old = &record{}
	}
	if err := old.serve(p); err != nil {
		return err
	}
	if p.Found.blind != "" {
		return fmt.Errorf("whether a NetworkPolicy closes Spillway's own namespace cannot be seen, and nothing was changed: %s", p.Found.blind)
	}
	if err := c.try(ctx, objects, old); err != nil {
		return err
	}
	var changes []Change
	if s.Grafana {
		changes, _ = p.Grafana(s.Target())
	}
	for i := range changes {
		old.change(&changes[i])
	}
	if err := c.point(ctx, changes, old, true, say); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	mine, err := c.writeRecord(ctx, s.Namespace, held, old)
	if isStatus(err, http.StatusConflict) {
		return fmt.Errorf("somebody else runs adopt at this moment, and nothing was changed: wait for them, then run this again (%w)", err)
	} else if err != nil {
		return fmt.Errorf("write down what is about to be done: %w", err)
	}
	for _, o := range objects {
		if err := c.applyNow(ctx, o); err != nil {
			return fmt.Errorf("%s: %w", refOf(o), err)
		}
		say("applied %s", refOf(o))
	}
	made := old.Made
	if p.shut(s) { // who asks Spillway may be where nobody has looked this time
		made = slices.DeleteFunc(slices.Clone(made), func(r Ref) bool { return r.Name == fromGrafana })
	}
	if err := c.prune(ctx, made, objects, say); err != nil {
		return err
	}
	if err := c.await(ctx, s.Namespace, say); err != nil {
		return err
	}
	if err := c.inSight(ctx, p, r, s, say); err != nil && !s.Grafana && ctx.Err() == nil {
		say("Not seen: %s", err)
		return nil
	} else if err != nil {
		return err
	}
	if _, now, err := c.readRecord(ctx, s.Namespace); err != nil {
		return err
	} else if now.text("metadata", "resourceVersion") != mine.text("metadata", "resourceVersion") {
		return errors.New("somebody else has run adopt meanwhile, and Grafana was not touched: wait for them, then run this again")
	}
	return c.point(ctx, changes, old, false, say)
}

// try asks whether the objects would be taken, and writes down which of them are not there yet.
func (c *Client) try(ctx context.Context, objects []object, r *record) error {
	for _, o := range objects {
		ref := refOf(o)
		there, err := c.read(ctx, ref)
		switch {
		case err != nil:
			return err
		case there == nil && !slices.Contains(r.Made, ref):
			r.Made = append(r.Made, ref)
		// One that adopt has made from another namespace is somebody else's too.
		case there != nil && (there.text("metadata", "labels", managedBy) != Manager || !slices.Contains(r.Made, ref)):
			return fmt.Errorf("%s is there already, and was not made by adopt in this namespace: nothing was changed. Take another namespace (--namespace), or remove what is there", ref)
		}
		// A binding cannot be tried before its Role is there: how much it grants is not known.
		if _, err := c.apply(ctx, o, false, true); err != nil && !(ref.Kind == "RoleBinding" && isStatus(err, http.StatusNotFound)) {
			return fmt.Errorf("%s would not be taken, and nothing was changed: %w", ref, err)
		}
	}
	return nil
}

// point changes Grafana's data sources, or tries to.
func (c *Client) point(ctx context.Context, changes []Change, r *record, dry bool, say func(string, ...any)) error {
	for i := range changes {
		ref := changes[i].Source.Ref
		if slices.ContainsFunc(changes[:i], func(o Change) bool { return o.Source.Ref == ref }) {
			continue // all files of one object are changed at once
		}
		if _, err := c.apply(ctx, r.applied(&changes[i].Source), true, dry); err != nil {
			return fmt.Errorf("%s: %w", ref, stale(err))
		}
		if !dry {
			say("changed %s", ref)
		}
	}
	return nil
}

// stale says what a conflict at a data source's object means.
func stale(err error) error {
	if isStatus(err, http.StatusConflict) {
		return fmt.Errorf("it has changed since it was read: run this again (%w)", err)
	}
	return err
}

// prune deletes what a run before has made and this one does not want.
func (c *Client) prune(ctx context.Context, made []Ref, wanted []object, say func(string, ...any)) error {
	for _, ref := range made {
		if slices.ContainsFunc(wanted, func(o object) bool { return refOf(o) == ref }) {
			continue
		}
		left, err := c.unmake(ctx, ref, say)
		if err != nil {
			return err
		}
		if left != "" {
			say("left: %s", left)
		}
	}
	return nil
}

// unmake deletes an object that is still adopt's own; left says why it stays where it does.
func (c *Client) unmake(ctx context.Context, ref Ref, say func(string, ...any)) (left string, err error) {
	o, err := c.read(ctx, ref)
	switch {
	case err != nil || o == nil:
		return "", err
	case o.text("metadata", "labels", managedBy) != Manager:
		return ref.String() + " is not adopt's any more (its label " + managedBy + " says so), and stays", nil
	}
	if err := c.remove(ctx, ref, o.text("metadata", "uid")); err != nil && !isStatus(err, http.StatusNotFound) {
		return "", err
	}
	say("deleted %s", ref)
	return "", nil
}

// serve writes down the servers of the plan. Those of a run before must be among them: data sources
// that were pointed at Spillway then would lack them.
func (r *record) serve(p *Plan) error {
	var now []string
	for _, w := range p.workloads() {
		now = append(now, w.String())
	}
	for _, w := range r.Servers {
		if !slices.Contains(now, w) {
			return fmt.Errorf("%s was adopted before and is not among the servers now, so who asks Spillway would lack it; nothing was changed: name it too (--only), or take all of it back first (--undo)", w)
		}
	}
	r.Servers = now
	return nil
}

// applyNow applies one object. The API server may take a moment to know a Role that was just made,
// and has no place for a binding to it until then.
func (c *Client) applyNow(ctx context.Context, o object) error {
	for tries := 1; ; tries++ {
		_, err := c.apply(ctx, o, false, false)
		if err == nil || o.text("kind") != "RoleBinding" || !isStatus(err, http.StatusNotFound) || tries == bindTries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(poll):
		}
	}
}

// change writes down what a source was before. What stands there already, from a run before, is
// what it was at first.
func (r *record) change(c *Change) {
	path, before, after := c.raw()
	was := before
	i := slices.IndexFunc(r.Changed, func(o changed) bool { return o.Ref == c.Source.Ref && slices.Equal(o.Path, path) })
	uid := c.Source.object.text("metadata", "uid")
	if i >= 0 && r.Changed[i].UID == uid {
		if r.Changed[i].New == before { // it is being changed from what the run before made of it
			r.Changed[i].New, r.Changed[i].AtStart, r.Changed[i].Restored = after, new(!c.Source.Sidecar), false
			r.Changed[i].now = before
			return
		}
	}
	if i >= 0 { // somebody has written it since: their text, with the URLs of before
		was = r.Changed[i].encode(r.Changed[i].back(c.Source.Text, c.Target))
		r.Changed = slices.Delete(r.Changed, i, i+1)
	}
	var owners any = others(c.Source.object)
	if i = slices.IndexFunc(r.Changed, func(o changed) bool { return o.Ref == c.Source.Ref && o.UID == uid }); i >= 0 {
		owners = r.Changed[i].Owners // those before adopt was one of them
	}
	r.Changed = append(r.Changed, changed{
		Ref: c.Source.Ref, UID: uid, Path: path, AtStart: new(!c.Source.Sidecar), Old: was, New: after, Owners: owners, now: before,
	})
}

// back is a text of the field with the URLs of before, where data sources of the same names ask
// Spillway in it. Of two with one name nobody knows which it was.
func (ch *changed) back(text, target string) string {
	f := &Found{}
	s := &Source{Ref: ch.Ref, Text: text}
	old := ch.decode(ch.Old)
	if ch.Kind == "GrafanaDatasource" {
		if f.asks(text, target, s) {
			return old
		}
		return text
	}
	urls := map[string]string{}
	was, _, _ := entriesOf(old) // adopt could read it
	for _, e := range was {
		if u, twice := urls[e.Name]; f.asks(e.URL, target, s) || twice && u != e.URL {
			urls[e.Name] = ""
		} else {
			urls[e.Name] = e.URL
		}
	}
	now, _, _ := entriesOf(text) // what cannot be read stays
	for _, e := range slices.Backward(now) {
		if u := urls[e.Name]; u != "" && f.asks(e.URL, target, s) {
			if out, ok := replaceAt(text, e, u); ok {
				text = out
			}
		}
	}
	return text
}

// encode and decode are the field as the object has it, and its text.
func (ch *changed) encode(text string) string {
	if ch.Kind == "Secret" {
		return base64.StdEncoding.EncodeToString([]byte(text))
	}
	return text
}

func (ch *changed) decode(field string) string {
	if b, err := base64.StdEncoding.DecodeString(field); err == nil && ch.Kind == "Secret" {
		return string(b)
	}
	return field
}

// raw is the field that changes, as the object has it.
func (c *Change) raw() (path []string, before, after string) {
	before, after = c.Source.Text, c.After
	if c.Source.Key == "" {
		return []string{"spec", "datasource", "url"}, before, after
	}
	if c.Source.Kind == "Secret" {
		before, after = base64.StdEncoding.EncodeToString([]byte(before)), base64.StdEncoding.EncodeToString([]byte(after))
	}
	return []string{"data", c.Source.Key}, before, after
}

// applied is what is applied to a source's object, at the version that was read: the fields that
// change, and those that adopt has changed before and nobody else has since. A field that an apply
// leaves out is taken away where nobody else has it.
func (r *record) applied(s *Source) object {
	o := object{"apiVersion": s.APIVersion, "kind": s.Kind}
	o.set(s.Name, "metadata", "name")
	o.set(s.Namespace, "metadata", "namespace")
	o.set(s.object.text("metadata", "resourceVersion"), "metadata", "resourceVersion")
	for _, ch := range r.Changed {
		ours := ch.Ref == s.Ref && ch.UID == s.object.text("metadata", "uid")
		if now := s.object.text(ch.Path...); ours && now != "" && (now == ch.New || now == ch.Old || now == ch.now) {
			o.set(ch.New, ch.Path...)
		}
	}
	return o
}

// await waits until a pod of Spillway is available. Why none can be made, or starts, is told as
// soon as it is known, and waited for all the same: Kubernetes tries again, and somebody may mend
// it meanwhile.
func (c *Client) await(ctx context.Context, ns string, say func(string, ...any)) error {
	ref := Ref{"apps/v1", "Deployment", ns, "spillway"}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	why := "" // in brackets
	told := map[string]bool{}
	for {
		o, err := c.read(ctx, ref)
		if err != nil && ctx.Err() == nil {
			return err
		}
		reason, now := "", unmade(o)
		if now != "" {
			now = "no pod of it can be made, and Kubernetes will try again: " + now
		} else {
			reason, now = c.waiting(ctx, ns)
		}
		if now != "" {
			if !told[reason] { // once, though the next one may name another pod
				say("%s: %s", ref, now)
			}
			told[reason], why = true, " ("+now+")"
		}
		number := func(path ...string) float64 { n, _ := o.at(path...).(float64); return n }
		settled := number("status", "observedGeneration") >= number("metadata", "generation") &&
			number("status", "replicas") == number("status", "updatedReplicas") // none of an older one is left
		if settled && number("status", "availableReplicas") > 0 {
			say("%s is available", ref)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not available yet%s, and Grafana was not touched: see kubectl -n %s describe deployment,pods -l app.kubernetes.io/name=spillway; "+
				"then run this again, or take it back by --undo (%w)", ref, why, ns, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// waiting is why a container of Spillway's does not start, such as ImagePullBackOff, and a sentence
// of that; empty where none says so, or nobody can see it.
func (c *Client) waiting(ctx context.Context, ns string) (reason, sentence string) {
	pods, _ := list[corev1.Pod](ctx, c, "/api/v1/namespaces/"+ns+"/pods", labels.Set(ownLabels).String(), nil)
	for i := range pods {
		for _, s := range pods[i].Status.ContainerStatuses {
			w := s.State.Waiting
			if w == nil || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" || pods[i].DeletionTimestamp != nil {
				continue
			}
			return w.Reason, clip.Text(fmt.Sprintf("Pod %s/%s waits, %s: %s", ns, pods[i].Name, w.Reason, w.Message), 1000)
		}
	}
	return "", ""
}

// unmade is why no pod of a Deployment can be made; empty where nothing says so.
func unmade(o object) string {
	all, _ := o.at("status", "conditions").([]any)
	for _, c := range all {
		m, _ := c.(map[string]any)
		if m["type"] == "ReplicaFailure" && m["status"] == "True" {
			return clip.Text(object(m).text("message"), 1000)
		}
	}
	return ""
}
