package credentials

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/testpki"
	"github.com/spillwayproject/spillway/proxy/server"
	"github.com/spillwayproject/spillway/proxy/server/servertest"
)

// listeners is Spillway behind TLS on both of its listeners, for tenants.
type listeners struct {
	t           *testing.T
	dir         string
	main, admin string
}

// listen begins with a certificate that by has signed; clients are verified against those that
// trusted has signed, in the way that auth says.
func listen(t *testing.T, by, trusted *testpki.Authority, auth string) *listeners {
	t.Helper()
	l := &listeners{t: t, dir: t.TempDir()}
	l.shows(by)
	l.trusts(trusted)
	web := write(t, l.dir, "web.yml", fmt.Sprintf("tls_server_config: {cert_file: cert, key_file: key, client_ca_file: ca, client_auth_type: %s}\n", auth))
	var series []map[string]string
	for _, job := range []string{"a", "b"} {
		series = append(series, map[string]string{"__name__": "up", "job": job})
	}
	shard := fakeshard.Start(t, fakeshard.Config{Series: series})
	text := fmt.Sprintf("groups: [{name: heron, shards: [{replicas: [{url: %q}]}]}]\ntenants:\n  - {name: a, client_cert_cn: one, matchers: ['{job=\"a\"}']}\n  - {name: b, client_cert_cn: two, matchers: ['{job=\"b\"}']}\n  - {name: c, bearer_token_file: %q}\n",
		shard.URL(), write(t, l.dir, "token", "word"))
	base, _ := servertest.Start(t, text, func(o *server.Options) {
		o.WebConfigFile = web
		ready := o.Ready
		o.Ready = func(main, admin net.Addr) { l.admin = "https://" + admin.String(); ready(main, admin) }
	})
	l.main = "https://" + strings.TrimPrefix(base, "http://")
	return l
}

func (l *listeners) shows(by *testpki.Authority) {
	cert, key := by.Issue("spillway")
	write(l.t, l.dir, "cert", cert)
	write(l.t, l.dir, "key", key)
}

func (l *listeners) trusts(ca *testpki.Authority) { write(l.t, l.dir, "ca", ca.PEM) }

// caller is a client that trusts an authority and shows a certificate of that name; none where by
// is nil.
func caller(t *testing.T, trusts, by *testpki.Authority, name string) *http.Client {
	t.Helper()
	cfg := &tls.Config{RootCAs: trusts.Pool(), MinVersion: tls.VersionTLS12}
	if by != nil {
		cert, key := by.Issue(name)
		pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil } // whoever is asked for
	}
	return newClient(t, cfg)
}

// TestTenantsByCertificate: over a real listener a tenant is who its certificate says, of those
// that the web configuration trusts, and nobody else.
func TestTenantsByCertificate(t *testing.T) {
	ours, others := testpki.New(t, "ours"), testpki.New(t, "others")
	const none = -1 // no connection
	for _, c := range []struct {
		name, auth, cn, bearer string
		by                     *testpki.Authority
		want                   int
		jobs                   string
	}{
		{"a tenant", "RequireAndVerifyClientCert", "one", "", ours, 200, "a"},
		{"another one", "RequireAndVerifyClientCert", "two", "", ours, 200, "b"},
		{"nobody", "RequireAndVerifyClientCert", "three", "", ours, 401, ""},
		{"a tenant's name, signed by somebody", "RequireAndVerifyClientCert", "one", "", others, none, ""},
		{"no certificate", "RequireAndVerifyClientCert", "", "word", nil, none, ""},
		{"a certificate that is nobody's, and a token", "RequireAndVerifyClientCert", "three", "word", ours, 200, "ab"},
		{"both", "RequireAndVerifyClientCert", "one", "word", ours, 401, ""},
		{"a tenant, where others have tokens", "VerifyClientCertIfGiven", "two", "", ours, 200, "b"},
		{"a token there", "VerifyClientCertIfGiven", "", "word", nil, 200, "ab"},
		{"neither", "VerifyClientCertIfGiven", "", "", nil, 401, ""},
		{"signed by somebody there", "VerifyClientCertIfGiven", "one", "", others, none, ""},
		{"not verified", "RequestClientCert", "one", "", others, 401, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := listen(t, ours, ours, c.auth)
			status, body, err := get(caller(t, ours, c.by, c.cn), l.main+"/api/v1/query?query=up", c.bearer)
			if c.want == none {
				if err == nil {
					t.Errorf("answered: %d %s", status, body)
				}
				return
			}
			if err != nil || status != c.want {
				t.Errorf("%d %v %.300s, want %d", status, err, body, c.want)
			}
			for _, job := range []string{"a", "b"} {
				if got := strings.Contains(body, fmt.Sprintf(`"job":%q`, job)); got != strings.Contains(c.jobs, job) {
					t.Errorf("job %s is there %v: %.300s", job, got, body)
				}
			}
		})
	}
}

// TestListenersReadAgain: a certificate that was replaced is shown on both listeners to whoever
// connects then, and those whom the web configuration trusts are those of now. Who is connected
// stays so.
func TestListenersReadAgain(t *testing.T) {
	first, second := testpki.New(t, "first"), testpki.New(t, "second")
	l := listen(t, first, first, "RequireAndVerifyClientCert")
	works := func(c *http.Client) error {
		for _, target := range []string{l.main + "/api/v1/query?query=up", l.admin + "/metrics"} {
			if status, body, err := get(c, target, ""); err != nil || status != http.StatusOK {
				return fmt.Errorf("%s: %d %w %.200s", target, status, err, body)
			}
		}
		return nil
	}
	old := caller(t, first, first, "one")
	if err := works(old); err != nil {
		t.Fatal(err)
	}
	serial := func(address string) string {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(address, "https://"), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	was := [2]string{serial(l.main), serial(l.admin)}
	l.shows(first)
	if is := [2]string{serial(l.main), serial(l.admin)}; is[0] == was[0] || is[1] == was[1] || is[0] != is[1] {
		t.Errorf("certificates %v after %v", is, was)
	}
	l.shows(second)
	if err := works(old); err != nil {
		t.Errorf("a connection that was there: %v", err)
	}
	old.CloseIdleConnections()
	if err := works(old); !isUnknown(err) {
		t.Errorf("who trusts the first authority alone: %v", err)
	}
	between := caller(t, second, first, "one")
	if err := works(between); err != nil {
		t.Errorf("who trusts the second one: %v", err)
	}
	l.trusts(second)
	if err := works(caller(t, second, first, "one")); err == nil {
		t.Error("who is signed by the first authority is let in")
	}
	if err := works(caller(t, second, second, "one")); err != nil {
		t.Errorf("who is signed by the second: %v", err)
	}
	// What cannot be used is not: nobody is let in by what was there before.
	write(t, l.dir, "ca", "")
	for _, by := range []*testpki.Authority{first, second} {
		if err := works(caller(t, second, by, "one")); err == nil {
			t.Error("somebody is let in by an empty file of authorities")
		}
	}
}

// isUnknown tells that a certificate was not trusted.
func isUnknown(err error) bool {
	return err != nil && strings.Contains(err.Error(), x509.UnknownAuthorityError{}.Error())
}
