package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/testpki"
	"github.com/spillwayproject/spillway/proxy/config"
)

// authority signs certificates for a test, into files of a folder.
type authority struct {
	*testpki.Authority
	t   *testing.T
	dir string
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{testpki.New(t, name), t, t.TempDir()}
	a.write("ca.pem", a.PEM)
	return a
}

func (a *authority) write(name, text string) {
	writeText(a.t, filepath.Join(a.dir, name), text)
}

// issue signs a certificate for servers and clients on this machine.
func (a *authority) issue(name string) tls.Certificate {
	cert, key := a.Issue(name)
	a.write(name+".pem", cert)
	a.write(name+".key", key)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

// webConfig writes a web configuration; clients is a client_auth_type or empty.
func (a *authority) webConfig(clients string) string {
	text := fmt.Sprintf("tls_server_config:\n  cert_file: %s\n  key_file: %s\n", filepath.Join(a.dir, "server.pem"), filepath.Join(a.dir, "server.key"))
	if clients != "" {
		text += fmt.Sprintf("  client_auth_type: %s\n  client_ca_file: %s\n", clients, filepath.Join(a.dir, "ca.pem"))
	}
	path := filepath.Join(a.dir, "web-"+clients+".yml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// tlsClient trusts the authority and shows the certificates.
func (a *authority) client(certs ...tls.Certificate) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.Pool(), Certificates: certs, MinVersion: tls.VersionTLS12}}
	a.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// TestNoHTTP2: whoever would like HTTP/2 is answered in HTTP/1.1: its resets, windows and header
// tables are bounds of their own, and nobody of the field's clients needs it.
func TestNoHTTP2(t *testing.T) {
	ca := newAuthority(t, "ours")
	ca.issue("server")
	s := fakeshard.Start(t, fakeshard.Config{})
	_, base := startProxy(t, t.Context(), fmt.Sprintf("groups: [{name: g, shards: [{replicas: [{url: %q}]}]}]\n", s.URL()), func(o *Options) { o.WebConfigFile = ca.webConfig("") })
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get("https://" + strings.TrimPrefix(base, "http://") + "/api/v1/query?query=up")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || resp.ProtoMajor != 1 || resp.TLS.NegotiatedProtocol == "h2" {
		t.Errorf("status %d by %s, %q was negotiated", resp.StatusCode, resp.Proto, resp.TLS.NegotiatedProtocol)
	}
}

// --web.config.file puts TLS before both listeners, and client certificates where it wants them.
func TestTLSOnBothListeners(t *testing.T) {
	ca, other := newAuthority(t, "ours"), newAuthority(t, "another")
	ca.issue("server")
	good, bad := ca.issue("client"), other.issue("client")
	s := fakeshard.Start(t, fakeshard.Config{})
	for _, c := range []struct {
		clients string
		certs   []tls.Certificate
		works   bool
	}{
		{"", nil, true},
		{"RequireAndVerifyClientCert", []tls.Certificate{good}, true},
		{"RequireAndVerifyClientCert", []tls.Certificate{bad}, false},
		{"RequireAndVerifyClientCert", nil, false},
	} {
		t.Run(fmt.Sprintf("%s %v", c.clients, c.works), func(t *testing.T) {
			var admin string
			_, base := startProxy(t, t.Context(), fmt.Sprintf("groups: [{name: g, shards: [{replicas: [{url: %q}]}]}]\n", s.URL()), func(o *Options) {
				o.WebConfigFile = ca.webConfig(c.clients)
				o.Ready = func(_, a netAddr) { admin = a.String() }
			})
			main := strings.TrimPrefix(base, "http://")
			for _, target := range []string{
				"https://" + main + "/api/v1/query?query=up", "https://" + main + "/-/ready",
				"https://" + admin + "/metrics",
			} {
				resp, err := ca.client(c.certs...).Get(target)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				if works := err == nil && resp.StatusCode == 200; works != c.works {
					t.Errorf("%s: answered %v, want %v: %v", target, works, c.works, err)
				}
			}
			for _, target := range []string{"http://" + main + "/api/v1/query?query=up", "http://" + admin + "/metrics"} {
				resp, err := newClient(t).Get(target)
				if err == nil {
					resp.Body.Close()
					if resp.StatusCode == 200 {
						t.Errorf("%s is answered without TLS", target)
					}
				}
			}
		})
	}
}

// passwordTest is the bcrypt hash of the password "test", as a web configuration has it. Its cost
// is the least: the race detector makes a comparison of cost 12 one of four seconds.
const passwordTest = "$2a$04$E./xNSXUlLvI.pxk4YowHe2KCjDYU7uEIdJ.8KTZV1g75Pdlmo4zC"

// Beyond loopback the admin listener starts only where its callers are authenticated, or where
// somebody insists.
func TestAdminWantsAuthentication(t *testing.T) {
	ca := newAuthority(t, "ours")
	ca.issue("server")
	cert := ca.issue("client")
	s := fakeshard.Start(t, fakeshard.Config{})
	cfg, err := config.Parse(fmt.Appendf(nil, "groups: [{name: g, shards: [{replicas: [{url: %q}]}]}]\n", s.URL()), ".")
	if err != nil {
		t.Fatal(err)
	}
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "web.yml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name, web string
		insecure  bool
		starts    bool
		password  bool // else a certificate lets in
	}{
		{name: "nothing"},
		{name: "TLS alone", web: ca.webConfig("")},
		{name: "certificates that nobody checks", web: ca.webConfig("RequireAnyClientCert")},
		{name: "certificates where there are some", web: ca.webConfig("VerifyClientCertIfGiven")},
		{name: "passwords of nobody", web: file("basic_auth_users: {}\n")},
		{name: "a broken file", web: file("tls_server_config: [\n")},
		{name: "certificates", web: ca.webConfig("RequireAndVerifyClientCert"), starts: true},
		{name: "passwords", web: file("basic_auth_users: {ada: " + passwordTest + "}\n"), starts: true, password: true},
		{name: "insecure", insecure: true, starts: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ready := make(chan string, 1)
			srv, err := New(Options{
				Config: cfg, ListenAddress: "127.0.0.1:0", AdminListenAddress: "0.0.0.0:0", WebConfigFile: c.web, AdminInsecure: c.insecure,
				Ready: func(_, a netAddr) { ready <- a.String() },
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- srv.Run(ctx, context.Background()) }()
			select {
			case err := <-ended:
				if c.starts || err == nil {
					t.Errorf("ended with %v", err)
				}
				if !c.starts && c.name != "a broken file" && !strings.Contains(err.Error(), "--web.admin-insecure") {
					t.Errorf("the error does not say what to do: %v", err)
				}
			case addr := <-ready:
				if !c.starts {
					t.Error("it started")
				}
				_, port, err := net.SplitHostPort(addr)
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case c.password:
					for password, status := range map[string]int{"test": 200, "wrong": 401, "": 401} {
						req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+port+"/-/ready", nil)
						if err != nil {
							t.Fatal(err)
						}
						if password != "" {
							req.SetBasicAuth("ada", password)
						}
						resp, err := newClient(t).Do(req)
						if err != nil {
							t.Error(err)
							continue
						}
						resp.Body.Close()
						if resp.StatusCode != status {
							t.Errorf("with the password %q: %d, want %d", password, resp.StatusCode, status)
						}
					}
				case c.web != "":
					resp, err := ca.client(cert).Get("https://127.0.0.1:" + port + "/-/ready")
					if err != nil {
						t.Error(err)
					} else {
						resp.Body.Close()
					}
					if resp, err := ca.client().Get("https://127.0.0.1:" + port + "/-/ready"); err == nil {
						resp.Body.Close()
						t.Error("answered without a client certificate")
					}
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		})
	}
}
