package adopt

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
)

// Source is one file or object in which Grafana finds data sources.
type Source struct {
	Ref
	// Key is the file's name in a ConfigMap or Secret; empty in a GrafanaDatasource.
	Key string
	// Text is the file, or the URL of a GrafanaDatasource.
	Text string
	// Entries are the data sources of type prometheus in it.
	Entries []Entry
	others  []Entry // those of other types
	unread  bool    // it is no file of data sources
	// Sidecar tells whether something has each Grafana that is seen to read it read a change; where
	// not, one does at its start.
	Sidecar bool

	object object // the whole object, as it was read
}

// Entry is one data source.
type Entry struct {
	Name, URL string
	// line and column are where the URL stands in the file, from 1.
	line, column int
	secrets      bool // it has credentials beside its URL
	own          bool // it asks with parameters, headers or the user's token, which a proxy may go by
}

// Change is what becomes of one source.
type Change struct {
	Source Source
	// After is its text after the change, and Target the URL that is new in it.
	After, Target string
	// Entries are the data sources that are pointed elsewhere.
	Entries []Entry
	// Owners are the other field managers that have the field now, and Appliers those of them that
	// have it by server-side apply: their next one would not leave it alone.
	Owners, Appliers []string
}

const (
	sidecarLabel = "grafana_datasource"
	provisioning = "/etc/grafana/provisioning/datasources"
)

// mounts remembers where a Grafana's data sources are mounted from.
func (f *Found) mounts(g *grafana, r *runs, k *corev1.Container) {
	pod := &r.Spec.Template.Spec
	for _, m := range k.VolumeMounts {
		if !strings.HasPrefix(strings.TrimSuffix(m.MountPath, "/"), provisioning) {
			continue
		}
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 {
			continue
		}
		ref := Ref{"v1", "ConfigMap", r.Namespace, ""}
		switch v := pod.Volumes[i]; {
		case v.ConfigMap != nil:
			ref.Name = v.ConfigMap.Name
		case v.Secret != nil:
			ref.Kind, ref.Name = "Secret", v.Secret.SecretName
		default:
			continue
		}
		g.mounts = append(g.mounts, ref)
		f.Sources = append(f.Sources, Source{Ref: ref})
	}
}

// readGrafana reads the files that were seen to be mounted, those that a sidecar looks for, and the
// objects of Grafana's operator.
func (c *Client) readGrafana(ctx context.Context, s Scope, f *Found) error {
	var refs []Source
	for _, m := range f.Sources { // one may be mounted in several places
		if !slices.ContainsFunc(refs, func(r Source) bool { return r.Ref == m.Ref }) {
			refs = append(refs, m)
		}
	}
	f.Sources = nil
	labelled, err := c.labelled(ctx, s, f)
	if err != nil {
		return err
	}
	for _, o := range labelled {
		refs = slices.DeleteFunc(refs, func(r Source) bool { return r.Ref == refOf(o) })
		one := Source{Ref: refOf(o), object: o}
		one.Sidecar = !slices.ContainsFunc(f.grafanas, func(g *grafana) bool { return g.readsAtStart(&one) })
		f.files(one)
	}
	for _, r := range refs {
		if r.object, err = c.read(ctx, r.Ref); err != nil {
			return err
		}
		if r.object == nil {
			f.Remarks = append(f.Remarks, r.String()+", which a Grafana mounts, is not there")
			continue
		}
		f.files(r)
	}
	const group = "grafana.integreatly.org/v1beta1"
	custom, err := everywhere[object](ctx, c, s, "/apis/"+group, "grafanadatasources", "", nil)
	if err != nil {
		return err
	}
	for _, o := range custom {
		o["apiVersion"], o["kind"] = group, "GrafanaDatasource"
		f.source(Source{Ref: refOf(o), Sidecar: true, object: o})
	}
	return nil
}

// source takes what an object has of data sources.
func (f *Found) source(s Source) {
	if s.Kind != "GrafanaDatasource" {
		f.files(s)
		return
	}
	o := s.object
	s.Text = o.text("spec", "datasource", "url")
	settings, _ := o.at("spec", "datasource", "jsonData").(map[string]any)
	e := Entry{
		Name: o.text("spec", "datasource", "name"), URL: s.Text,
		secrets: o.at("spec", "datasource", "basicAuth") == true || o.at("spec", "datasource", "secureJsonData") != nil,
		own:     asksItsOwnWay(settings),
	}
	if o.text("spec", "datasource", "type") == "prometheus" {
		s.Entries = []Entry{e}
	} else {
		s.others = []Entry{e}
	}
	f.Sources = append(f.Sources, s)
}

// files takes each file of a ConfigMap or Secret that has data sources.
func (f *Found) files(s Source) {
	data, _ := s.object["data"].(map[string]any)
	for _, key := range sorted(data) {
		one := s
		one.Key = key
		one.Text, _ = data[key].(string)
		if s.Kind == "Secret" {
			b, err := base64.StdEncoding.DecodeString(one.Text)
			if err != nil {
				continue
			}
			one.Text = string(b)
		}
		var err error
		if one.Entries, one.others, err = entriesOf(one.Text); err != nil {
			// Why is not said: what cannot be read may be a password.
			f.Remarks = append(f.Remarks, fmt.Sprintf("%s, file %s, cannot be read as data sources", s.Ref, key))
			one.unread = true
		}
		if one.unread || len(one.Entries)+len(one.others) > 0 {
			f.Sources = append(f.Sources, one)
		}
	}
}

// entriesOf are the data sources of a file of Grafana's provisioning: those of type prometheus, and
// the others that have a URL.
func entriesOf(text string) (all, others []Entry, err error) {
	var file struct {
		Datasources []struct {
			Name, Type     string
			URL            yaml.Node
			BasicAuth      bool           `yaml:"basicAuth"`
			JSONData       map[string]any `yaml:"jsonData"`
			SecureJSONData map[string]any `yaml:"secureJsonData"`
		}
	}
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		return nil, nil, err
	}
	for _, d := range file.Datasources {
		if d.URL.Kind != yaml.ScalarNode {
			continue
		}
		e := Entry{
			d.Name, d.URL.Value, d.URL.Line, d.URL.Column,
			d.BasicAuth || len(d.SecureJSONData) > 0, asksItsOwnWay(d.JSONData),
		}
		if d.Type == "prometheus" {
			all = append(all, e)
		} else {
			others = append(others, e)
		}
	}
	return all, others, nil
}

// asksItsOwnWay tells by a data source's jsonData whether it sends what a proxy before the servers
// may go by: parameters (prom-label-proxy's), headers, or the token of the user.
func asksItsOwnWay(settings map[string]any) bool {
	for key, v := range settings {
		switch {
		case key == "customQueryParameters" && v != "", key == "oauthPassThru" && v == true, strings.HasPrefix(key, "httpHeaderName"):
			return true
		}
	}
	return false
}

// Grafana is what is changed so that Grafana asks Spillway at target where it asks servers of the
// plan now, and what is not, each with the reason.
func (p *Plan) Grafana(target string) (changes []Change, remarks []string) {
	for _, s := range p.Found.Sources {
		change := Change{Source: s, After: s.Text, Target: target}
		for _, e := range slices.Backward(s.Entries) { // from the end, so that columns stay what they are
			name := fmt.Sprintf("data source %q of %s", e.Name, s.Ref)
			u, err := url.Parse(e.URL)
			switch {
			case p.Found.asks(e.URL, target, &s):
				remarks = append(remarks, name+" asks Spillway already")
			case err != nil || u.Host == "":
				remarks = append(remarks, name+": its URL cannot be read, and it stays")
			case len(p.served(u, s.Namespace)) == 0:
				remarks = append(remarks, fmt.Sprintf("%s asks %s, which is none of these servers, and stays", name, u.Host))
			case u.User != nil:
				remarks = append(remarks, name+" has credentials in its URL, and stays: change it by hand")
			case !p.whole(u, s.Namespace):
				remarks = append(remarks, fmt.Sprintf("%s asks %s, which is not all of these servers and nothing else, and stays: who asks it through Spillway sees the series of all; change it by hand where that is wanted", name, u.Host))
			case e.secrets || u.Scheme != "http":
				remarks = append(remarks, name+" has credentials or TLS, and stays: change it by hand")
			case e.own:
				remarks = append(remarks, name+" sends parameters, headers or tokens of its own, by which something before these servers may limit what it sees, and stays: change it by hand where that is wanted")
			case !p.enters(u, s.Namespace):
				remarks = append(remarks, fmt.Sprintf("%s asks port %d of %s, which is not that of these servers themselves, and stays: what answers there may limit what it sees; change it by hand where that is wanted", name, portOf(u), u.Hostname()))
			default:
				after, ok := target, true
				if s.Key != "" {
					after, ok = replaceAt(change.After, e, target)
				}
				if !ok {
					remarks = append(remarks, name+": its URL is written in a way that cannot be replaced, and stays: change it by hand")
					continue
				}
				change.After = after
				change.Entries = append(change.Entries, e)
			}
		}
		if len(change.Entries) > 0 {
			slices.Reverse(change.Entries)
			change.Owners, change.Appliers = s.owners()
			changes = append(changes, change)
		}
	}
	slices.Sort(remarks)
	return changes, remarks
}

// replaceAt writes target where the entry's URL stands, and nothing else.
func replaceAt(text string, e Entry, target string) (string, bool) {
	start := 0
	for range e.line - 1 {
		i := strings.IndexByte(text[start:], '\n')
		if i < 0 {
			return "", false
		}
		start += i + 1
	}
	end := len(text)
	if i := strings.IndexByte(text[start:], '\n'); i >= 0 {
		end = start + i
	}
	i := strings.Index(text[start:end], e.URL) // columns count characters, and a quote may stand before
	if from := start + e.column - 1; from < end {
		if j := strings.Index(text[from:end], e.URL); j >= 0 && j <= 1 {
			i = from + j - start
		}
	}
	if i < 0 {
		return "", false
	}
	out := text[:start+i] + target + text[start+i+len(e.URL):]
	entries, _, err := entriesOf(out)
	if err != nil {
		return "", false
	}
	at := slices.IndexFunc(entries, func(n Entry) bool { return n.line == e.line && n.Name == e.Name && n.URL == target })
	return out, at >= 0
}

// workloads are those of all groups.
func (p *Plan) workloads() (all []*Workload) {
	for _, g := range p.Groups {
		for _, w := range g.Workloads {
			if !slices.Contains(all, w) {
				all = append(all, w)
			}
		}
	}
	return all
}

// whole tells whether who asks a URL asks all servers of the plan and no others.
func (p *Plan) whole(u *url.URL, namespace string) bool {
	asked := p.served(u, namespace)
	if parts := strings.Split(serviceOf(u), "."); len(parts) == 3 { // one pod by its own name
		all := p.workloads()
		return len(all) == 1 && len(all[0].Pods) == 1 && all[0].Pods[0].Pod == parts[0]
	}
	service, in, ok := strings.Cut(serviceOf(u), ".")
	if !ok {
		in = namespace
	}
	return len(asked) == len(p.workloads()) && !slices.ContainsFunc(p.Found.others, func(w *Workload) bool {
		return w.Namespace == in && w.partly[service]
	})
}

// serviceOf is the name that a URL asks, without what stands for the cluster.
func serviceOf(u *url.URL) string {
	host := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), ".cluster.local")
	return strings.TrimSuffix(host, ".svc")
}

// asked is a data source's URL as Grafana takes it; nil where it is none.
func asked(address string) *url.URL {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil
	}
	return u
}

// asks tells whether a data source leads to the Service of target, however it is spelled: by its
// name alone where a Grafana that reads it is in its namespace, and with any name of the cluster.
func (f *Found) asks(address, target string, s *Source) bool {
	u := asked(address)
	if u == nil {
		return false
	}
	name, full := serviceOf(u), serviceOf(asked(target))
	service, home, _ := strings.Cut(full, ".")
	return name == full || strings.HasPrefix(name, full+".svc.") || name == service && (s.Namespace == home || f.readIn(home, s))
}

// served are the workloads in the plan that a URL asks, by a Service of theirs or by a pod. Grafana
// is in namespace, where names without one are looked up.
func (p *Plan) served(u *url.URL, namespace string) (asked []*Workload) {
	parts := strings.Split(serviceOf(u), ".")
	for _, w := range p.workloads() {
		if slices.ContainsFunc(append([]string{w.Service}, sorted(w.services)...), func(service string) bool {
			switch len(parts) {
			case 1:
				return parts[0] == service && namespace == w.Namespace
			case 2:
				return parts[0] == service && parts[1] == w.Namespace
			case 3: // one pod by its own name
				return parts[1] == service && parts[2] == w.Namespace
			}
			return false
		}) {
			asked = append(asked, w)
		}
	}
	return asked
}

// enters tells whether a URL leads to the port of the servers themselves in all workloads that it
// asks.
func (p *Plan) enters(u *url.URL, namespace string) bool {
	parts := strings.Split(serviceOf(u), ".")
	service := parts[max(0, len(parts)-2)]
	if len(parts) == 1 {
		service = parts[0]
	}
	return !slices.ContainsFunc(p.served(u, namespace), func(w *Workload) bool {
		return !slices.Contains(w.services[service], int32(portOf(u)))
	})
}

// portOf is the port that a URL of HTTP asks; 0 where it is none.
func portOf(u *url.URL) int {
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "80"), 10, 16)
	if err != nil {
		return 0
	}
	return int(port)
}

// owners are the other managers that have the field of the source, by its managedFields, and those
// of them that have applied it.
func (s *Source) owners() (all, appliers []string) {
	path := []string{"f:data", "f:" + s.Key}
	if s.Key == "" {
		path = []string{"f:spec", "f:datasource", "f:url"}
	}
	fields, _ := s.object.at("metadata", "managedFields").([]any)
	for _, f := range fields {
		m, _ := f.(map[string]any)
		entry := object(m)
		if name := entry.text("manager"); name != Manager && object(entry).at(append([]string{"fieldsV1"}, path...)...) != nil {
			all = append(all, name)
			if entry.text("operation") == "Apply" {
				appliers = append(appliers, name)
			}
		}
	}
	slices.Sort(all)
	slices.Sort(appliers)
	return slices.Compact(all), slices.Compact(appliers)
}

// urlLine is a line that has nothing but a URL.
var urlLine = regexp.MustCompile(`^\s*(- )?["']?url["']?\s*:\s*["']?[^\s"',{}]+["']?,?\s*(#.*)?$`)

// Diff is the change as a unified diff without the lines around, and of lines that have more than a
// URL only that: there may be a password in the rest.
func (c *Change) Diff() string {
	name := c.Source.String()
	if c.Source.Key == "" {
		return fmt.Sprintf("--- %s\n+++ %s\n@@ -1 +1 @@\n-%s\n+%s\n", name, name, c.Source.Text, c.After)
	}
	name += " " + c.Source.Key
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", name, name)
	old, after := strings.Split(c.Source.Text, "\n"), strings.Split(c.After, "\n")
	for i := range min(len(old), len(after)) {
		if old[i] == after[i] {
			continue
		}
		fmt.Fprintf(&b, "@@ -%d +%d @@\n", i+1, i+1)
		if urlLine.MatchString(old[i]) {
			fmt.Fprintf(&b, "-%s\n+%s\n", old[i], after[i])
			continue
		}
		for _, e := range c.Entries {
			if e.line == i+1 {
				fmt.Fprintf(&b, "-… %s …\n+… %s …\n", e.URL, c.Target)
			}
		}
	}
	return b.String()
}
