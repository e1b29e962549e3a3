package server

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/crypto/bcrypt"

	"github.com/spillwayproject/spillway/internal/plainfile"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/tenant"
)

// webConfig is what of a web configuration tells who may come in.
type webConfig struct {
	TLS struct {
		ClientAuth string `yaml:"client_auth_type"`
		CertFile   string `yaml:"cert_file"`
		Cert       string `yaml:"cert"`
	} `yaml:"tls_server_config"`
	HTTP struct {
		Headers map[string]string `yaml:"headers"`
	} `yaml:"http_server_config"`
	Users map[string]string `yaml:"basic_auth_users"`
}

// passwords tells whether it lets in nobody without a password.
func (c *webConfig) passwords() bool { return len(c.Users) > 0 }

// encrypts tells whether its listeners speak TLS.
func (c *webConfig) encrypts() bool { return c.TLS.CertFile != "" || c.TLS.Cert != "" }

// certificates tells whether it lets in nobody without a certificate that is verified.
func (c *webConfig) certificates() bool {
	return c.encrypts() && c.TLS.ClientAuth == "RequireAndVerifyClientCert"
}

// ways is how many of the two it asks for.
func (c *webConfig) ways() (n int) {
	for _, asks := range []bool{c.passwords(), c.certificates()} {
		if asks {
			n++
		}
	}
	return n
}

// webGuard asks callers for what the web configuration wants of them, before exporter-toolkit,
// which does that too. That one reads the file for each request, and lets everybody pass where it
// has no users in that moment: while the file is written anew in place, or once it is cut off. So
// what passes is compared with the file as it is read here, once for each request, and a file that
// asks for less than it did since the start opens nothing.
//
// It compares passwords behind one lock, for which everybody waits without an end, and remembers
// wrong ones in the place of right ones. So it is only asked about those that are right.
//
// It holds the file's text, and what tenant.Passwords does.
type webGuard struct {
	file string // empty is none, and everybody may come
	log  *slog.Logger

	mu   sync.Mutex
	text []byte
	now  *webConfig // what text says
	most int        // the most ways that it has asked for at once
	less bool       // it asks for fewer now, which was said
	tls  bool       // it has asked for TLS

	compare func(hash, password []byte) error // bcrypt's
}

// nobodysHash is compared with where a name is nobody's, so that it takes as long. Nothing fits it.
const nobodysHash = "$2a$10$....................................................."

func newWebGuard(file string, log *slog.Logger) *webGuard {
	return &webGuard{file: file, log: log, now: &webConfig{}, compare: bcrypt.CompareHashAndPassword}
}

// look reads the file, and tells what it asks for, and whether that is less than it was. One that
// cannot be read asks for nothing. It is compared whole, since neither its time nor its size tells
// one that was written twice in a moment from what it was between.
func (g *webGuard) look() (c *webConfig, less bool) {
	if g.file == "" {
		return g.now, false
	}
	text := readWhole(g.file)
	g.mu.Lock()
	defer g.mu.Unlock()
	if !bytes.Equal(text, g.text) {
		g.text, g.now = text, &webConfig{}
		if yaml.Unmarshal(text, g.now) != nil {
			g.now = &webConfig{}
		}
	}
	g.most, g.tls = max(g.most, g.now.ways()), g.tls || g.now.encrypts()
	less = g.now.ways() < g.most
	switch {
	case less && !g.less:
		g.log.Error("the web configuration asks callers for less than it did, as one that is cut off or being written; nobody is answered until it is whole again; to open the listeners restart Spillway",
			"file", g.file)
	case g.less && !less:
		g.log.Info("the web configuration is whole again", "file", g.file)
	}
	g.less = less
	return g.now, less
}

// encrypted tells whether the file has asked for TLS since the start.
func (g *webGuard) encrypted() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tls
}

// readWhole is what a file has; nothing where it cannot be read.
func readWhole(file string) []byte {
	f, err := plainfile.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return nil
	}
	return text
}

var errLess = func() *qerr.Error {
	e := qerr.New(qerr.Unavailable, "--web.config.file does not ask callers any more for all that it did (basic_auth_users, client_auth_type: RequireAndVerifyClientCert), as where it is cut off or being written; nobody is answered until it is whole again, or Spillway is restarted")
	e.RetryAfter = time.Second
	return e
}()

// refuses answers whoever has not what the web configuration asks for; true where it did. words
// compares the passwords, and health tells that whoever asks for health needs none.
func (g *webGuard) refuses(w http.ResponseWriter, r *http.Request, words *tenant.Passwords, health bool) bool {
	if g.file == "" {
		return false
	}
	health = health && isHealth(r)
	c, less := g.look()
	for name, value := range c.HTTP.Headers {
		w.Header().Set(name, value)
	}
	switch {
	case less && !health:
		refuse(w, errLess)
	case c.certificates() && !verified(r.TLS):
		w.Header().Set("Connection", "close") // else a client keeps what can never be good again
		refuse(w, qerr.New(qerr.Forbidden, "this connection has no client certificate, which --web.config.file asks for since it was made; connect again with one"))
	case c.passwords():
		err := g.known(c, r, words, health)
		if err == nil {
			return false
		}
		if err.Kind == qerr.Unauthorized {
			w.Header().Set("WWW-Authenticate", "Basic")
		}
		refuse(w, err)
	default:
		return false
	}
	return true
}

var errNobody = qerr.New(qerr.Unauthorized, "nobody in basic_auth_users of --web.config.file has this name and password")

// known says why a request does not come from a user; nil where it does. health tells that it need
// not.
func (g *webGuard) known(c *webConfig, r *http.Request, words *tenant.Passwords, health bool) *qerr.Error {
	user, password, given := r.BasicAuth()
	if !given {
		if health {
			return nil
		}
		return errNobody
	}
	if strings.IndexByte(password, 0) >= 0 { // to bcrypt what stands behind the end of one is that one again
		return errNobody
	}
	hash, somebody := c.Users[user]
	if !somebody {
		hash = nobodysHash
	}
	right, err := words.Right(r, user, somebody, hash, password, func() bool {
		return g.compare([]byte(hash), []byte(password)) == nil && somebody
	})
	switch {
	case err != nil:
		return qerr.From(err)
	case !right:
		return errNobody
	}
	return nil
}
