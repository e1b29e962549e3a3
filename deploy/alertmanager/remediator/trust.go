package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// trust is the way to a server whose certificate authority is in a file. The file is read for each
// request, since authorities are renewed like tokens are: when it has other bytes than before, new
// connections are made that believe in these alone. A file that is broken, or gone, is an error:
// whom it named before may be trusted no longer.
type trust struct {
	flag, file string // which flag names the file; no file: the system's authorities
	name       string // of the server, whatever address it is called by; empty: that of the URL

	mu  sync.Mutex
	pem []byte // what the file had when the way was made
	way *http.Transport
}

// newTrust makes a way, and says what is wrong with the file.
func newTrust(flag, file, name string) (*trust, error) {
	t := &trust{flag: flag, file: file, name: name}
	_, err := t.now()
	return t, err
}

// now is the way by what the file has now.
func (t *trust) now() (*http.Transport, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var pem []byte
	if t.file != "" {
		var err error
		if pem, err = os.ReadFile(t.file); err != nil {
			return nil, fmt.Errorf("%s: %w", t.flag, err)
		}
	}
	if t.way != nil && bytes.Equal(pem, t.pem) {
		return t.way, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.name}
	if t.file != "" {
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: %s holds no certificate", t.flag, t.file)
		}
	}
	if t.way != nil {
		t.way.CloseIdleConnections() // those under way are let go when they have been idle
	}
	t.pem, t.way = pem, &http.Transport{TLSClientConfig: conf, MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute}
	return t.way, nil
}

// RoundTrip sends one request.
func (t *trust) RoundTrip(r *http.Request) (*http.Response, error) {
	way, err := t.now()
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	return way.RoundTrip(r)
}

// CloseIdleConnections is http.Client's.
func (t *trust) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.way != nil {
		t.way.CloseIdleConnections()
	}
}

// bearerOf is the token in a file, which a flag names: it is read each time, since tokens are
// renewed.
func bearerOf(flag, file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%s: %s holds no token", flag, file)
	}
	return "Bearer " + token, nil
}
