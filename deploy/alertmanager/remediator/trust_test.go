package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// authority signs certificates of servers on this machine.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	like := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, like, like, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// server is a certificate for 127.0.0.1.
func (a authority) server(t *testing.T) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	like := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, like, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// private is a server that shows one certificate after the other: is sets the next, and ends the
// connections that have seen the last one, as a server that is started anew does.
func private(t *testing.T, h http.Handler) (s *httptest.Server, is func(*tls.Certificate)) {
	t.Helper()
	var shown atomic.Pointer[tls.Certificate]
	s = httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*shown.Load()}}, nil
	}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // callers who do not trust it
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, func(c *tls.Certificate) { shown.Store(c); s.CloseClientConnections() }
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	// As the kubelet does: what reads it has the old one or the new one.
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// TestAuthorityIsRenewed: when a cluster gets another certificate authority the file in the pod is
// replaced, and the program goes on without being started anew. What the file does not have is not
// trusted, and a file that is broken is told, as the reason for which nothing was decided.
func TestAuthorityIsRenewed(t *testing.T) {
	s, is := private(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"metadata":{"name":"gpu-1"}}`)
	}))
	before, after := newAuthority(t, "before"), newAuthority(t, "after")
	file := filepath.Join(t.TempDir(), "ca.crt")
	write(t, file, before.pem)
	k, err := newKube(s.URL, "", file)
	if err != nil {
		t.Fatal(err)
	}
	defer k.client.CloseIdleConnections()
	asks := func(what, wrong string) {
		t.Helper()
		n, err := k.node(t.Context(), "gpu-1")
		switch {
		case wrong == "" && (err != nil || n.Metadata.Name != "gpu-1"):
			t.Errorf("%s: %v", what, err)
		case wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)):
			t.Errorf("%s: %v, want %q", what, err, wrong)
		}
	}
	is(before.server(t))
	asks("at first", "")
	is(after.server(t))
	asks("signed by another one", "x509")
	write(t, file, bytes.Join([][]byte{before.pem, after.pem}, nil))
	asks("with both in the file", "")
	write(t, file, after.pem)
	asks("with the new one alone", "")
	is(before.server(t))
	asks("signed by the one of before", "x509")
	is(after.server(t))
	write(t, file, []byte("nothing"))
	asks("with a broken file", "--kubernetes-ca-file: "+file+" holds no certificate")
	write(t, file, after.pem)
	asks("with the file mended", "")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	asks("without the file", "--kubernetes-ca-file: open")
	write(t, file, after.pem)
	asks("with the file again", "")
}

// TestAlertmanagerIsPrivate: an Alertmanager whose certificate is signed by an authority of its
// own, behind something that wants a token, is asked with what two files have, as they are renewed.
// What is wrong with them is said at the start, and later is why nothing was decided.
func TestAlertmanagerIsPrivate(t *testing.T) {
	api, m, ours := newFakeAPI(t, 100), newFakeManager(t), newAuthority(t, "ours")
	var token atomic.Value
	s, is := private(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token.Load().(string) {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		m.Config.Handler.ServeHTTP(w, r)
	}))
	is(ours.server(t))
	token.Store("first")
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	write(t, file("ca"), ours.pem)
	write(t, file("token"), []byte("first\n"))
	write(t, file("kube"), []byte("kube-token"))
	write(t, file("none"), []byte(" \n"))
	args := []string{
		"--listen-address=127.0.0.1:0", "--cluster=jaguar", "--watchdog=", "--alertmanager=" + s.URL, "--kubernetes-ca-file=",
		"--kubernetes-url=" + api.URL, "--kubernetes-token-file=" + file("kube"), "--max-cordoned=1", "--max-nodes=100",
	}
	base, _ := start(t, append(args, "--alertmanager-ca-file="+file("ca"), "--alertmanager-token-file="+file("token"))...)
	node := 0
	decides := func(what, wrong string) {
		t.Helper()
		node++
		b, err := json.Marshal(payload{Version: "4", Alerts: []alert{xid(node)}})
		if err != nil {
			t.Fatal(err)
		}
		want := 200
		if wrong != "" {
			want = 503
		}
		if code, text := send(t, "POST", base+"/webhook", "", string(b)); code != want || !strings.Contains(text, wrong) {
			t.Errorf("%s: %d %s, want %d %s", what, code, text, want, wrong)
		}
	}
	decides("at first", "")
	token.Store("second")
	decides("with the token of before", "alertmanager says 401 Unauthorized")
	write(t, file("token"), []byte("second"))
	decides("with the new one", "")
	write(t, file("token"), nil)
	decides("with an empty file", "--alertmanager-token-file: "+file("token")+" holds no token")
	write(t, file("token"), []byte("second"))
	theirs := newAuthority(t, "theirs")
	is(theirs.server(t))
	decides("signed by another one", "x509")
	write(t, file("ca"), theirs.pem)
	decides("with the new authority", "")
	write(t, file("ca"), []byte("nothing"))
	decides("with a broken file", "--alertmanager-ca-file: "+file("ca")+" holds no certificate")

	for _, c := range []struct{ flag, wrong string }{
		{"--alertmanager-ca-file=" + file("ca"), "--alertmanager-ca-file: " + file("ca") + " holds no certificate"},
		{"--alertmanager-ca-file=" + file("gone"), "--alertmanager-ca-file: open " + file("gone")},
		{"--alertmanager-token-file=" + file("gone"), "--alertmanager-token-file: open " + file("gone")},
		{"--alertmanager-token-file=" + file("none"), "--alertmanager-token-file: " + file("none") + " holds no token"},
	} {
		var out bytes.Buffer
		if code := run(t.Context(), append(args, c.flag), &out, nil); code != 2 || !strings.Contains(out.String(), "remediator: "+c.wrong) {
			t.Errorf("%s: exit code %d: %s", c.flag, code, out.String())
		}
	}
	var out bytes.Buffer
	plain := []string{"--cluster=jaguar", "--alertmanager=http://a", "--alertmanager-ca-file=" + file("kube")}
	if code := run(t.Context(), plain, &out, nil); code != 2 || !strings.Contains(out.String(), "--alertmanager-ca-file is for https://") {
		t.Errorf("without TLS: exit code %d: %s", code, out.String())
	}
}
