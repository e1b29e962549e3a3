package tenant

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"golang.org/x/crypto/bcrypt"

	"github.com/spillwayproject/spillway/internal/plainfile"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// maxKnown is how many passwords are remembered, right and wrong ones apart.
	maxKnown = 1024
	// maxName is the longest user name that is looked at. Of passwords 72 bytes are, as bcrypt
	// does.
	maxName = 4096
	// patience is how long one waits for the passwords of others to be checked.
	patience = 2 * time.Second
)

// Tenant is one that may ask. It is immutable.
type Tenant struct {
	config.Tenant
	matchers []*labels.Matcher
}

// Directory is all tenants of a configuration. A nil one is none: everybody may ask everything.
type Directory struct {
	all    []*Tenant
	byName map[string]*Tenant // by username
	byCN   map[string]*Tenant
	tokens []token
	files  *files // of tokens
	cost   int    // of the dearest hash
	words  *Passwords
	issuer *issuer // nil where there is none
}

// New is the directory of a configuration's tenants; nil where it has none. What prev has learned
// of passwords and keys is kept. Close it. The error is one of the configuration's.
func New(c *config.Config, prev *Directory, log *slog.Logger) (*Directory, error) {
	if len(c.Tenants) == 0 {
		return nil, nil
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d := &Directory{byName: map[string]*Tenant{}, byCN: map[string]*Tenant{}, cost: bcrypt.DefaultCost, files: newFiles(prev)}
	if prev != nil {
		d.words = prev.words
	} else {
		d.words = NewPasswords()
	}
	if c.JWT.Set() {
		var last *issuer
		if prev != nil {
			last = prev.issuer
		}
		var err error
		if d.issuer, err = newIssuer(c.JWT, last, log); err != nil {
			return nil, err
		}
	}
	for i := range c.Tenants {
		t := &Tenant{Tenant: c.Tenants[i]}
		for _, text := range t.Matchers {
			ms, err := parser.NewParser(parser.Options{}).ParseMetricSelector(text)
			if err != nil {
				return nil, fmt.Errorf("tenant %s: %w", t.Name, err)
			}
			t.matchers = append(t.matchers, ms...)
		}
		d.all = append(d.all, t)
		switch {
		case t.BasicAuth.Username != "":
			d.byName[t.BasicAuth.Username] = t
			if cost, err := bcrypt.Cost([]byte(t.BasicAuth.PasswordBcrypt)); err == nil {
				d.cost = max(d.cost, cost)
			}
		case t.ClientCertCN != "":
			d.byCN[t.ClientCertCN] = t
		case len(t.JWTValues) > 0 && d.issuer != nil:
			for _, value := range t.JWTValues {
				d.issuer.tenants[value] = t
			}
		default:
			d.tokens = append(d.tokens, token{t, d.files.of(t.BearerTokenFile, log.With("tenant", t.Name))})
			if d.files.last[t.BearerTokenFile] == nil { // of one that is known the last token is good for a while
				d.tellMissing(t, log)
			}
		}
	}
	return d, nil
}

// tellMissing says that a tenant's token cannot be read: whoever has it is nobody until it can.
// That is no error of the configuration, since the file may come, and is looked at when it is
// needed.
func (*Directory) tellMissing(t *Tenant, log *slog.Logger) {
	f, err := plainfile.Open(t.BearerTokenFile)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		log.Error("the token of a tenant cannot be read, so that all its requests are refused until it can", "tenant", t.Name, "err", err)
	}
}

// Close ends what the directory asks others for. A nil one is closed.
func (d *Directory) Close() {
	if d != nil && d.issuer != nil {
		d.issuer.keys.close()
	}
}

// KeysRead is when the keys of signed tokens were last read with success; zero where there are
// none, or where that was never.
func (d *Directory) KeysRead() time.Time {
	if d == nil || d.issuer == nil {
		return time.Time{}
	}
	d.issuer.keys.mu.Lock()
	defer d.issuer.keys.mu.Unlock()
	return d.issuer.keys.read
}

// Challenge is what a client that is not known, for the reason of err, is told to send, for
// WWW-Authenticate.
func (d *Directory) Challenge(err error) []string {
	var out []string
	if len(d.tokens) > 0 || d.issuer != nil {
		bearer := `Bearer realm="Spillway"`
		if errors.Is(err, errInvalid) {
			bearer += `, error="invalid_token", error_description="` + qerr.From(err).Message + `"`
		}
		out = append(out, bearer)
	}
	if len(d.byName) > 0 {
		out = append(out, `Basic realm="Spillway", charset="UTF-8"`)
	}
	return out
}

// Certified is whose client certificate was verified on a connection; nil where it is no tenant's,
// and where there is none.
func (d *Directory) Certified(c *tls.ConnectionState) *Tenant {
	if d == nil || c == nil || len(c.VerifiedChains) == 0 {
		return nil
	}
	return d.byCN[c.VerifiedChains[0][0].Subject.CommonName] // no tenant has an empty one
}

// Identify tells which tenant sends a request; nil where there are no tenants. The error is a
// *qerr.Error: Unauthorized, Overloaded while too many passwords are being checked, or Unavailable
// while the keys of signed tokens have never been read.
func (d *Directory) Identify(r *http.Request) (*Tenant, error) {
	if d == nil {
		return nil, nil
	}
	given := r.Header.Values("Authorization")
	verified, certified := r.TLS != nil && len(r.TLS.VerifiedChains) > 0, d.Certified(r.TLS)
	switch {
	case len(given) > 1:
		return nil, qerr.New(qerr.Unauthorized, "the request has %d Authorization headers; send one", len(given))
	case len(given) == 1 && certified != nil:
		return nil, errTwoWays
	case len(given) == 1:
		return d.authorized(r, given[0])
	case certified != nil:
		return certified, nil
	case verified:
		return nil, qerr.New(qerr.Unauthorized, "no tenant has the common name of this client certificate; a tenant's client_cert_cn has to have it")
	}
	return nil, qerr.New(qerr.Unauthorized, "this Spillway answers tenants only, and the request does not say who asks; send an Authorization header or a client certificate")
}

func (d *Directory) authorized(r *http.Request, header string) (*Tenant, error) {
	if user, password, ok := r.BasicAuth(); ok {
		return d.password(r, user, password)
	}
	scheme, word, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, qerr.New(qerr.Unauthorized, "the Authorization header is neither Bearer nor Basic")
	}
	switch word = strings.TrimSpace(word); {
	case word == "":
		return nil, errToken
	case len(word) > maxToken:
		return d.signed(r.Context(), word)
	}
	sum, now := sha256.Sum256([]byte(word)), time.Now()
	if found := d.holder(sum, now, false); found != nil {
		return found, nil
	}
	found, err := d.signed(r.Context(), word)
	if err != nil {
		if renewed := d.renewed(sum, now); renewed != nil {
			return renewed, nil
		}
	}
	return found, err
}

// signed is whose token it is that stands in no file.
func (d *Directory) signed(ctx context.Context, word string) (*Tenant, error) {
	if d.issuer == nil {
		return nil, errToken
	}
	return d.issuer.tenant(ctx, word)
}

var (
	errPassword = qerr.New(qerr.Unauthorized, "no tenant has this name and password")
	errTwoWays  = qerr.New(qerr.Unauthorized, "the request has a tenant's client certificate and an Authorization header; send one of them, so that it is clear who asks")
)

// password looks at what is remembered, and else asks bcrypt. A name that is nobody's takes as long
// as one that is somebody's.
func (d *Directory) password(r *http.Request, user, password string) (*Tenant, error) {
	if len(user) > maxName || len(password) > 72 {
		return nil, errPassword
	}
	t := d.byName[user]
	hash := d.nobody()
	if t != nil {
		hash = string(t.BasicAuth.PasswordBcrypt)
	}
	right, err := d.words.Right(r, user, t != nil, hash, password, func() bool {
		return bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil && t != nil
	})
	if err != nil {
		return nil, err
	}
	if !right {
		return nil, errPassword
	}
	return t, nil
}

// nobody is a hash of as much work as that of the dearest password, which nothing fits.
func (d *Directory) nobody() string {
	return fmt.Sprintf("$2a$%02d$%s", d.cost, strings.Repeat(".", 53))
}

// Bound is the limits, lowered to the tenant's own.
func (t *Tenant) Bound(l config.Limits) config.Limits {
	if t == nil {
		return l
	}
	return t.Tenant.Bound(l)
}

// Source is what a request comes from: one of config.Sources, told from what Caller has left.
// Where there are no tenants nobody is believed, and it is an API's like any other; so it is of a
// tenant that may say nothing, whose User-Agent is not believed either.
func (t *Tenant) Source(c identity.Caller) string {
	switch {
	case t == nil || len(t.MaySet) == 0:
		return config.SourceAPI
	case c.ForRule():
		return config.SourceAlerting
	case c.Inventory || c.Agent != "":
		return config.SourceBatch
	case c.Dashboard != "":
		return config.SourceDashboard
	case c.User != "":
		return config.SourceExplore
	default:
		return config.SourceAPI
	}
}

// Caller is who asks, as far as the tenant may say so.
func (t *Tenant) Caller(c identity.Caller) identity.Caller {
	if t == nil {
		return c
	}
	out := identity.Caller{Tenant: t.Name, Inventory: c.Inventory, Agent: c.Agent}
	for _, name := range t.MaySet {
		switch name {
		case identity.HeaderUser:
			out.User = c.User
		case identity.HeaderDashboard:
			out.Dashboard = c.Dashboard
		case identity.HeaderPanel:
			out.Panel = c.Panel
		case identity.HeaderRule:
			out.Rule = c.Rule
		case identity.HeaderFromAlert:
			out.Alert, out.Ruler = c.Alert, c.Ruler
		}
	}
	return out
}
