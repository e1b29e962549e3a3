package uses

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Bearer is a client that sends a token to one server, and to no other that it is sent on to.
// client may be nil.
func Bearer(client *http.Client, server, token string) (*http.Client, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("the address %q cannot be read: %w", server, err)
	}
	out := &http.Client{}
	if client != nil {
		*out = *client
	}
	if out.Transport == nil {
		out.Transport = http.DefaultTransport
	}
	out.Transport = &bearer{next: out.Transport, scheme: u.Scheme, host: u.Host, token: token}
	out.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		switch {
		case r.URL.Scheme != u.Scheme || r.URL.Host != u.Host:
			return fmt.Errorf("it sends on to %s://%s, where the token does not go: name that address, if it is Grafana's", r.URL.Scheme, r.URL.Host)
		case len(via) >= 10:
			return errors.New("it sends on without end")
		}
		return nil
	}
	return out, nil
}

type bearer struct {
	next                http.RoundTripper
	scheme, host, token string
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == b.scheme && r.URL.Host == b.host {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.next.RoundTrip(r)
}

// The sizes of Grafana's pages, and how many are read before an answer without end is an error.
const (
	searchPage  = 1000
	elementPage = 100
	maxPages    = 1000
)

// Grafana adds the queries of all dashboards, library panels and alert rules that a Grafana server
// shows to the client; see Bearer. It reads /api/search page by page, each dashboard by its uid, in
// whichever of Grafana's APIs has it, /api/library-elements, and the alert rules; where some of
// these may not be read, a warning says so. Lines are 0: an answer has none that anybody could look
// up.
func Grafana(ctx context.Context, set *Set, client *http.Client, server string) error {
	g := grafana{client: client, server: strings.TrimRight(server, "/"), searchPage: searchPage, elementPage: elementPage}
	if g.client == nil {
		g.client = http.DefaultClient
	}
	if err := g.read(ctx, set); err != nil {
		return fmt.Errorf("grafana: %w", err)
	}
	return nil
}

type grafana struct {
	client                  *http.Client
	server                  string
	searchPage, elementPage int
}

func (g *grafana) read(ctx context.Context, set *Set) error {
	b := board{set: set, elements: map[string][]*element{}}
	if err := g.elements(ctx, &b); err != nil {
		return err
	}
	seen := map[string]bool{}
	for page := 1; ; page++ {
		if page > maxPages {
			return fmt.Errorf("%s: the list of dashboards has more than %d pages", g.server, maxPages)
		}
		list, err := g.get(ctx, fmt.Sprintf("/api/search?type=dash-db&limit=%d&page=%d", g.searchPage, page))
		if err != nil {
			return err
		}
		fresh := 0
		for _, item := range list.items {
			uid := item.text("uid")
			if uid == "" || seen[uid] {
				continue
			}
			seen[uid] = true
			fresh++
			if err := g.dashboard(ctx, &b, uid); err != nil {
				return err
			}
		}
		if fresh == 0 || len(list.items) < g.searchPage { // a server that does not know pages answers all of them with the first
			break
		}
	}
	if err := b.finish(); err != nil {
		return err
	}
	if len(seen) == 0 {
		set.Warnings = append(set.Warnings, g.server+": Grafana shows no dashboards to this token")
	}
	return g.alerts(ctx, set)
}

// dashboard adds one dashboard. Grafana 12 answers 406 for one that is stored in a schema which the
// old API does not know, and says where it is. One that it does not show is named, and the others
// are read.
func (g *grafana) dashboard(ctx context.Context, b *board, uid string) error {
	doc, err := g.get(ctx, "/api/dashboards/uid/"+url.PathEscape(uid))
	if place := newPlace(err, uid); place != "" {
		doc, err = g.get(ctx, place)
		if denied(err) {
			return g.notShown(b.set, uid, err)
		}
	}
	if notAcceptable(err) != nil {
		return g.notShown(b.set, uid, err)
	}
	if err != nil {
		return err
	}
	flatten(doc, 0)
	return b.document(g.server+"/d/"+url.PathEscape(uid), doc)
}

func (g *grafana) notShown(set *Set, uid string, err error) error {
	set.refused(fmt.Sprintf("%s: the dashboard %s cannot be read (%v)", g.server, uid, err), "; export it and give it with the dashboards")
	return nil
}

// useInstead is how Grafana says where a dashboard is instead. dashboardPlace is what such a place
// may be: nothing else is asked with the token because an answer says so.
var (
	useInstead     = regexp.MustCompile(`\buse (\S+) instead`)
	dashboardPlace = regexp.MustCompile(`^(/apis/dashboard\.grafana\.app/[A-Za-z0-9]+/namespaces/[A-Za-z0-9][A-Za-z0-9.-]*/dashboards/)([^/?#]+)$`)
)

// newPlace is the path of a dashboard in Grafana's newer API, if err is the answer that names it.
func newPlace(err error, uid string) string {
	e := notAcceptable(err)
	if e == nil {
		return ""
	}
	said := useInstead.FindStringSubmatch(e.text)
	if said == nil {
		return ""
	}
	place := dashboardPlace.FindStringSubmatch(said[1])
	if place == nil || place[2] != uid && place[2] != url.PathEscape(uid) {
		return ""
	}
	return place[1] + url.PathEscape(uid)
}

func (g *grafana) elements(ctx context.Context, b *board) error {
	read := 0
	for page := 1; page <= maxPages; page++ {
		doc, err := g.get(ctx, fmt.Sprintf("/api/library-elements?kind=1&perPage=%d&page=%d", g.elementPage, page))
		if denied(err) {
			b.set.refused(fmt.Sprintf("%s: the library panels cannot be read (%v)", g.server, err), "")
			return nil
		}
		if err != nil {
			return err
		}
		flatten(doc, 0)
		list := doc.list("result", "elements")
		for _, e := range list {
			b.element(g.server+"/library-panels/"+e.text("uid"), e.text("uid"), e.text("name"), e.get("model"))
		}
		b.found = 0
		read += len(list)
		if total, err := strconv.Atoi(doc.word("result", "totalCount")); len(list) == 0 || err == nil && read >= total {
			return nil
		}
	}
	return fmt.Errorf("%s: the list of library panels has more than %d pages", g.server, maxPages)
}

func (g *grafana) alerts(ctx context.Context, set *Set) error {
	list, err := g.get(ctx, "/api/v1/provisioning/alert-rules")
	if missing(err) {
		set.Warnings = append(set.Warnings, fmt.Sprintf("%s: it has no alert rules of its own there (%v): they are switched off, or it is older than 9.4 and has to be given as an export", g.server, err))
		return nil
	}
	if denied(err) {
		set.refused(fmt.Sprintf("%s: Grafana's own alert rules cannot be read (%v)", g.server, err), "; give the token the role Editor, or the permission alert.provisioning:read")
		return nil
	}
	if err != nil {
		return err
	}
	flatten(list, 0)
	for _, r := range list.items {
		if err := rule(set, g.server+"/alerting/grafana/"+url.PathEscape(r.text("uid"))+"/view", r.text("ruleGroup"), r); err != nil {
			return err
		}
	}
	return nil
}

// refused notes a source that did not show what it has, as a warning with an advice, and for those
// who have to know it first.
func (s *Set) refused(why, advice string) {
	s.Refused = append(s.Refused, why)
	s.Warnings = append(s.Warnings, why+advice)
}

// statusError is an answer that is not 200.
type statusError struct {
	path   string
	status int
	text   string
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("GET %s: %d %s", e.path, e.status, http.StatusText(e.status))
	if e.text != "" {
		text += ": " + e.text
	}
	if e.status == http.StatusUnauthorized {
		text += "; is the token right?"
	}
	return text
}

// missing tells whether the server has no such page.
func missing(err error) bool {
	var e *statusError
	return errors.As(err, &e) && e.status == http.StatusNotFound
}

// denied tells whether the server has this not, or not for us.
func denied(err error) bool {
	var e *statusError
	return errors.As(err, &e) && (e.status == http.StatusForbidden || e.status == http.StatusNotFound)
}

// notAcceptable is the error, if the server has this in no form that was asked for; else nil.
func notAcceptable(err error) *statusError {
	var e *statusError
	if errors.As(err, &e) && e.status == http.StatusNotAcceptable {
		return e
	}
	return nil
}

// get reads one answer of at most maxFile bytes.
func (g *grafana) get(ctx context.Context, path string) (*node, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.server+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := g.client.Do(req)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxFile+1))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}
	switch {
	case resp.StatusCode != http.StatusOK:
		return nil, &statusError{path, resp.StatusCode, strings.ToValidUTF8(strings.TrimSpace(string(text[:min(len(text), 400)])), "")}
	case len(text) > maxFile:
		return nil, fmt.Errorf("GET %s: the answer is larger than %d MiB", path, maxFile>>20)
	}
	n, err := parseJSON(text, 1)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}
	return n, nil
}
