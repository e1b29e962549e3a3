package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
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
