package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/deny"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/heap"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/journal"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// What whoever runs Spillway has forbidden, and what was under way when it was killed.

const (
	// suspected is how long a request is refused that was under way when the process was killed,
	// and suspectedAgain where that was so once more meanwhile.
	suspected, suspectedAgain = 10 * time.Minute, time.Hour
	// suspectShare is the part of what the heaviest one held that makes another one suspect too.
	suspectShare = 8
	// maxSuspects is how many of them are, those that held most: a hundred dashboards that were
	// open then have done nothing wrong. Nor has, beside others, what held less than what is worth
	// ending for want of memory (heap.MinWeight).
	maxSuspects = 16
	// denyFor is how long a rule of the admin API holds where it does not say, maxDenyFor at most.
	denyFor, maxDenyFor = time.Hour, 30 * 24 * time.Hour
	// maxDenyBody is the largest such rule.
	maxDenyBody = 16 << 10
)

// keepable makes another state_dir than the one in force, which is taken up at the next start: what
// cannot be made would keep Spillway from starting, at a time when nobody looks.
func (s *Server) keepable(cfg *config.Config) error {
	if !s.waitsForStart(cfg) || cfg.StateDir == "" {
		return nil
	}
	return makeStateDir(cfg.StateDir)
}

func makeStateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state_dir: %w", err)
	}
	return nil
}

// keeps opens the files of state_dir, and suspects what was under way when they were last open.
func (s *Server) keeps(cfg *config.Config) error {
	if err := s.deny.Configure(rulesOf(cfg)); err != nil {
		return fmt.Errorf("deny: %w", err)
	}
	dir := cfg.StateDir
	s.stateDir = dir
	if dir == "" {
		return nil
	}
	if err := makeStateDir(dir); err != nil {
		return err
	}
	now := s.now()
	if err := s.deny.Open(filepath.Join(dir, "deny.json"), now); err != nil {
		s.log.Error("some deny rules of the admin API are not in force", "err", err)
	}
	const lost = "what is under way is not remembered; a request that gets Spillway killed will not be told next time"
	j, left, err := journal.Open(filepath.Join(dir, "running.journal"), func(err error) {
		if err == nil {
			s.log.Info("what is under way is remembered again")
			return
		}
		s.log.Error(lost+", unless the file can be written again before; it is tried", "err", err)
	})
	if err != nil {
		s.log.Error(lost, "err", err)
		return nil
	}
	s.journal = j
	seen, rules := map[string]bool{}, map[string]bool{} // of two that asked the same the one that held more comes first
	for _, l := range left {
		was, ok := rules[l.Digest]
		rules[l.Digest] = l.Rule && (was || !ok) // for nothing but rules
	}
	left = slices.DeleteFunc(left, func(l journal.Leftover) bool {
		was := seen[l.Digest]
		seen[l.Digest] = true
		return was
	})
	for i := range left {
		left[i].Rule = rules[left[i].Digest]
	}
	// Where nothing that was looked at held much, it may have been what was too young for that, or
	// what no request is charged with: the youngest are suspected, and nobody is refused for it
	// before it has happened twice.
	unsure := len(left) > 1 && left[0].Held < heap.MinWeight
	if unsure {
		slices.SortStableFunc(left, func(a, b journal.Leftover) int { return b.Began.Compare(a.Began) })
	}
	for i, l := range left {
		held := l.Held >= max(left[0].Held/suspectShare, heap.MinWeight)
		if i < maxSuspects && (held || unsure || len(left) == 1) {
			s.suspect(l, now, len(left), unsure)
		}
	}
	return nil
}

// suspect refuses for a while what was under way when the process was killed; where it is unsure,
// only if it was at another kill too.
func (s *Server) suspect(l journal.Leftover, now time.Time, of int, unsure bool) {
	r := deny.Rule{
		Name: "crash-" + l.Digest[:min(len(l.Digest), 12)], Endpoint: l.Endpoint, Digest: l.Digest, Until: now.Add(suspected).UTC(),
		Reason: fmt.Sprintf("it was under way, one of %d, when Spillway was killed: begun at %s, it held %s", of,
			l.Began.UTC().Format("15:04:05 UTC"), admit.FormatBytes(l.Held)),
	}
	again := s.deny.Remove(r.Name) == nil
	r.Shadow = (l.Rule || unsure) && !again || l.Rule && unsure
	r.SparesRules = !again || unsure // an alert that nobody hears is worse than another restart
	if again || r.Shadow {
		r.Until = now.Add(suspectedAgain).UTC()
	}
	err := s.deny.Add(r, deny.Crash, now)
	s.log.Warn("a request was under way when Spillway was killed, and is refused for a while, or counted (shadow) until it is at another kill", "rule", r.Name, "until", r.Until, "endpoint", l.Endpoint,
		"text", l.Text, "held", l.Held, "shadow", r.Shadow, "err", err)
}

func rulesOf(cfg *config.Config) []deny.Rule {
	var out []deny.Rule
	for _, d := range cfg.Deny {
		out = append(out, d.Rule())
	}
	return out
}

// words are the text of a request: its query, or the selectors of match[].
func words(req *endpoint.Request) string {
	if req.Query != "" {
		return req.Query
	}
	return strings.Join(req.Match, ", ")
}

// forbid refuses what a rule refuses, and writes down what goes on.
func (x *exchange) forbid() error {
	if x.exempt {
		return nil
	}
	s, now := x.s, x.s.now()
	if s.deny.Any() {
		if err := x.lookDenied(now); err != nil {
			return err
		}
	}
	if text := words(x.dec.Request); s.journal != nil && text != "" { // what has none is like any other of its kind
		x.noted = s.journal.Enter(journal.Leftover{
			Digest: deny.Digest(string(x.id), x.tenantName(), x.dec.Request.Label, text), Endpoint: string(x.id), Text: text,
			Rule: x.caller.ForRule(), Began: now.UTC(),
		}, x.held)
	}
	return nil
}

func (x *exchange) lookDenied(now time.Time) error {
	s := x.s
	f := x.denied(now, x.trial == nil)
	if x.trial != nil { // nobody has asked that
		if f.Rule == nil {
			return nil
		}
		return deniedBy(f, now)
	}
	if len(f.Shadows) > 0 {
		x.shadowRules = f.Shadows
		s.metrics.denied.WithLabelValues("shadow").Inc()
	}
	if f.Rule == nil {
		return nil
	}
	s.metrics.denied.WithLabelValues("refused").Inc()
	return deniedBy(f, now)
}

// denied are the rules that the request meets; asked says that somebody has asked it.
func (x *exchange) denied(now time.Time, asked bool) deny.Found {
	req, c := x.dec.Request, x.caller
	look := x.s.deny.Would
	if asked {
		look = x.s.deny.Look
	}
	subject := &deny.Subject{
		Endpoint: string(x.id), Tenant: c.Tenant, User: c.User, Dashboard: c.Dashboard, Panel: c.Panel, Rule: c.ForRule(),
		Digest: func() string { return deny.Digest(string(x.id), x.tenantName(), req.Label, words(req)) },
		Query: sync.OnceValue(func() string {
			if x.dec.Expr != nil {
				return tree.String(x.dec.Expr)
			}
			return deny.OfSelectors(req.Match, x.dec.Selectors)
		}),
		Selectors: x.dec.Selectors,
		Range:     time.Duration(min(x.dec.End-x.dec.Start, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond, Step: req.Step,
	}
	if x.dec.Expr == nil {
		subject.Written = func() string { return words(req) }
	}
	return look(subject, now)
}

// deniedBy is what the caller is told.
func deniedBy(f deny.Found, now time.Time) error {
	until := ""
	if !f.Rule.Until.IsZero() {
		until = " until " + f.Rule.Until.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	if f.Source == deny.Crash {
		e := qerr.New(qerr.Unavailable, "this request is refused%s, since %s", until, f.Rule.Reason)
		e.Bound, e.Value, e.RetryAfter = policy.BoundQuarantine, f.Rule.Name, f.Rule.Until.Sub(now)
		e.Advice = "ask for less: fewer series, a shorter range; whoever runs Spillway can let it pass: DELETE " + adminAPI + "deny/" + f.Rule.Name
		return e
	}
	return qerr.Refuse(policy.BoundDenyRule, f.Rule.Name, "", "ask whoever runs Spillway, by the rule's name",
		"this request is refused%s by the rule %s: %s", until, f.Rule.Name, f.Rule.Reason)
}

// adminDeny lists the rules.
func (s *Server) adminDeny(w http.ResponseWriter, _ *http.Request) {
	adminData(w, s.deny.List(s.now()))
}

// newRule is a rule of the admin API.
type newRule struct {
	deny.Rule
	For model.Duration `json:"for"`
}

// readRule reads the one rule that a request has.
func readRule(body io.Reader) (n newRule, err error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return n, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err = dec.Decode(&n)
	if _, more := dec.Token(); err == nil && more != io.EOF {
		err = errors.New("something follows it; one rule is added at a time")
	}
	// Of a duration that cannot be read the decoder does not tell the key.
	var keys map[string]json.RawMessage
	if err == nil || json.Unmarshal(text, &keys) != nil {
		return n, err
	}
	for _, key := range []string{"for", "range", "step"} {
		var d model.Duration
		if v, ok := keys[key]; ok && json.Unmarshal(v, &d) != nil {
			return n, fmt.Errorf("%s: %s is no duration; write it like \"30s\", \"90m\" or \"12h\"", key, clip.Text(string(v), 64))
		}
	}
	return n, err
}

// adminForbid adds a rule.
func (s *Server) adminForbid(w http.ResponseWriter, r *http.Request) {
	const path = adminAPI + "deny"
	n, err := readRule(io.LimitReader(r.Body, maxDenyBody))
	now := s.now()
	switch {
	case err != nil:
		err = fmt.Errorf("it is no rule in JSON, such as {\"dashboard\": \"abc\", \"reason\": \"ask team X\", \"for\": \"1h\"}: %w", err)
	case n.For < 0 || time.Duration(n.For) > maxDenyFor:
		err = fmt.Errorf("for: a duration up to %s; what is to last longer stands in the configuration", model.Duration(maxDenyFor))
	case !n.Until.IsZero() || n.Digest != "":
		err = errors.New("until, digest: say with for how long the rule is to hold")
	}
	if err == nil {
		st, done := s.peek()
		err = st.cfg.CheckDeny(n.Rule)
		done()
	}
	if err == nil {
		if n.Name == "" {
			n.Name = "rule-" + strings.ToLower(identity.NewID()[:8])
		}
		if n.For == 0 {
			n.For = model.Duration(denyFor)
		}
		n.Until = now.Add(time.Duration(n.For)).UTC().Round(time.Second)
		err = s.deny.Add(n.Rule, deny.API, now)
	}
	var file *deny.FileError
	if err != nil && !errors.As(err, &file) {
		s.audit("deny", s.requestedBy(r, path), resultRefused)
		qerr.New(qerr.BadData, "the rule was not taken: %s", err).WriteTo(w)
		return
	}
	s.audit("deny", s.requestedBy(r, path), resultBegun, "rule", n.Name, "until", n.Until, "shadow", n.Shadow)
	s.answerRule(w, n.Rule, file)
}

// adminAllow removes a rule.
func (s *Server) adminAllow(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	err := s.deny.Remove(name)
	var file *deny.FileError
	if err != nil && !errors.As(err, &file) {
		kind := qerr.NotFound
		if errors.Is(err, deny.ErrConfigured) {
			kind = qerr.BadData
		}
		qerr.New(kind, "%.64q: %s", name, err).WriteTo(w)
		return
	}
	s.audit("allow", s.requestedBy(r, adminAPI+"deny/"+name), resultEnded, "rule", name)
	s.answerRule(w, deny.Rule{Name: name}, file)
}

// answerRule says what was done with a rule, and what could not be.
func (s *Server) answerRule(w http.ResponseWriter, r deny.Rule, file *deny.FileError) {
	out := struct {
		deny.Rule
		// Kept tells whether the next start knows of it.
		Kept    bool   `json:"kept"`
		Warning string `json:"warning,omitempty"`
	}{Rule: r, Kept: s.stateDir != "" && file == nil}
	if file != nil {
		s.log.Error("the deny rules were not written to their file", "err", file)
		out.Warning = "it is in force, and not written to the file, so that the next start will not know of it; see the log"
	}
	adminData(w, out)
}
