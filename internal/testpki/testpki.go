// Package testpki signs certificates for tests of TLS, for 127.0.0.1 and a day. It holds its keys
// in memory and promises no more than that they work.
package testpki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// Authority signs certificates. It is used by one goroutine.
type Authority struct {
	// PEM is its own certificate.
	PEM string

	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	keys map[string]*ecdsa.PrivateKey // of Renew, by name
}

// New is an authority of that name. What fails ends the test.
func New(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t), keys: map[string]*ecdsa.PrivateKey{}}
	a.cert = template(name)
	a.cert.IsCA, a.cert.BasicConstraintsValid, a.cert.KeyUsage = true, true, x509.KeyUsageCertSign
	der := a.sign(a.cert, a.key)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.PEM = text("CERTIFICATE", der)
	return a
}

// Pool are those who trust this authority.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// Issue is a new certificate of that common name, for a server and a client, and its new key, both
// as PEM.
func (a *Authority) Issue(name string) (cert, key string) {
	a.t.Helper()
	return a.issue(name, newKey(a.t))
}

// Renew is Issue with the key that the name has had before.
func (a *Authority) Renew(name string) (cert, key string) {
	a.t.Helper()
	if a.keys[name] == nil {
		a.keys[name] = newKey(a.t)
	}
	return a.issue(name, a.keys[name])
}

func (a *Authority) issue(name string, k *ecdsa.PrivateKey) (cert, key string) {
	a.t.Helper()
	tmpl := template(name)
	tmpl.IPAddresses, tmpl.KeyUsage = []net.IP{net.IPv4(127, 0, 0, 1)}, x509.KeyUsageDigitalSignature
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return text("CERTIFICATE", a.sign(tmpl, k)), text("PRIVATE KEY", der)
}

func (a *Authority) sign(tmpl *x509.Certificate, k *ecdsa.PrivateKey) []byte {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &k.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func text(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}
