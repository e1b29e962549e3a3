package tenant

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	commonconfig "github.com/prometheus/common/config"

	"github.com/spillwayproject/spillway/internal/oauth"
	"github.com/spillwayproject/spillway/internal/plainfile"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// maxKeySet is the largest set of keys that is read, and maxKeys how many may be in it.
	maxKeySet = 1 << 20
	maxKeys   = 100
	// maxVerified is how many tokens are remembered for each set of keys.
	maxVerified = 4096
	// An RSA key of less can be broken; verifying with one of more costs a processor.
	minRSABits, maxRSABits = 2048, 8192
	// keysAge is after how long a URL is asked again, keysAgain how often at most: after a failure,
	// and for keys that nobody knows.
	keysAge, keysAgain = 5 * time.Minute, 30 * time.Second
	// keysStale is how old keys are when a request waits for those of now, as where nobody has come
	// for long: the issuer may have withdrawn one since.
	keysStale = 2 * keysAge
	// keysTimeout is how long the URL has to answer, and keysPatience how long a request waits for
	// that.
	keysTimeout, keysPatience = 5 * time.Second, 2 * time.Second
)

// keySet is the keys of an issuer at one time, and the tokens that were verified with them. It
// changes in what it remembers only.
type keySet struct {
	sum  [sha256.Size]byte // of what was read
	keys []*jose.JSONWebKey

	mu       sync.Mutex
	verified map[[sha256.Size]byte]verdict
}

// verdict is whose a token is, until it expires.
type verdict struct {
	tenant *Tenant
	until  time.Time
}

// keyring is an issuer's keys, as they were read last with success.
type keyring struct {
	cfg    config.JWT
	log    *slog.Logger
	client *http.Client // nil where they are in a file
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	pause  time.Duration // keysAgain, shorter in tests
	age    time.Duration // keysAge, likewise
	stale  time.Duration // keysStale, likewise

	mu     sync.Mutex
	set    *keySet // nil until they were read once
	read   time.Time
	looked time.Time     // when they were last asked for
	failed error         // how that went
	busy   chan struct{} // closed when they were read; nil while they are not being
	wanted bool          // what is being read is waited for, also by who has keys
}

// newKeyring holds what last has, where it has the same keys.
func newKeyring(cfg config.JWT, last *keyring, log *slog.Logger) (*keyring, error) {
	k := &keyring{cfg: cfg, log: log, pause: keysAgain, age: keysAge, stale: keysStale}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	if cfg.JWKSURL != "" {
		rt, err := oauth.RoundTripper(cfg.Client(), "jwt", nil, commonconfig.WithKeepAlivesDisabled())
		if err != nil {
			return nil, fmt.Errorf("jwt.http_client: %w", err)
		}
		k.client = &http.Client{
			Transport: rt, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	if last != nil && last.cfg.JWKSFile == cfg.JWKSFile && last.cfg.JWKSURL == cfg.JWKSURL &&
		reflect.DeepEqual(last.cfg.HTTPClient, cfg.HTTPClient) {
		last.mu.Lock()
		defer last.mu.Unlock()
		k.read, k.looked, k.failed = last.read, last.looked, last.failed
		if last.busy != nil { // what it is waiting for ends with it
			k.looked = time.Time{}
		}
		if last.set != nil { // what was verified is the other configuration's
			k.set = &keySet{sum: last.set.sum, keys: last.set.keys}
		}
	}
	return k, nil
}

// close ends what is under way.
func (k *keyring) close() {
	k.cancel()
	k.work.Wait()
}

// current is the keys. A file is looked at again after tokenAge; a URL after keysAge, and nobody
// waits for that who has keys that are not stale. An issuer that was asked lately and in vain is
// not waited for again: a while of that each time would be as good as none for all tenants.
func (k *keyring) current(ctx context.Context) (*keySet, error) {
	k.mu.Lock()
	if k.client == nil {
		defer k.mu.Unlock()
		if now := time.Now(); now.Sub(k.looked) >= tokenAge {
			k.looked = now
			k.take(readKeyFile(k.cfg.JWKSFile))
		}
		return k.held()
	}
	due := k.age
	if k.failed != nil || k.set == nil {
		due = k.pause
	}
	busy := k.busy
	if busy == nil && time.Since(k.looked) >= due {
		k.wanted = time.Since(k.read) >= k.stale && (k.failed == nil || time.Since(k.looked) >= k.stale)
		busy = k.begin()
	}
	if k.set != nil && !k.wanted || busy == nil {
		defer k.mu.Unlock()
		return k.held()
	}
	k.mu.Unlock()
	return k.wait(ctx, busy)
}

// again is the keys after a look for one that old does not have: once in keysAgain. A file was
// looked at a moment ago.
func (k *keyring) again(ctx context.Context, old *keySet) (*keySet, error) {
	k.mu.Lock()
	busy := k.busy
	if k.client == nil || k.set != old || busy == nil && time.Since(k.looked) < k.pause {
		defer k.mu.Unlock()
		return k.held()
	}
	if busy == nil {
		busy = k.begin()
	}
	k.mu.Unlock()
	return k.wait(ctx, busy)
}

// held is what there is. It is called with mu held.
func (k *keyring) held() (*keySet, error) {
	if k.set == nil {
		e := qerr.Wrap(qerr.Unavailable, k.failed, "the keys by which tokens are known cannot be read now; come again in a moment")
		e.RetryAfter = 5 * time.Second
		return nil, e
	}
	return k.set, nil
}

// wait waits until the keys were read, for keysPatience at most.
func (k *keyring) wait(ctx context.Context, busy chan struct{}) (*keySet, error) {
	timer := time.NewTimer(keysPatience)
	defer timer.Stop()
	select {
	case <-busy:
	case <-timer.C:
	case <-ctx.Done():
		return nil, qerr.FromContext(ctx, context.Cause(ctx))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held()
}

// begin asks the URL, one at a time. It is called with mu held.
func (k *keyring) begin() chan struct{} {
	busy := make(chan struct{})
	k.busy, k.looked = busy, time.Now()
	k.work.Go(func() {
		data, err := k.fetch()
		k.mu.Lock()
		defer k.mu.Unlock()
		k.take(data, err)
		k.busy, k.wanted = nil, false
		close(busy)
	})
	return busy
}

// take learns what was read. What cannot be used changes nothing. It is called with mu held.
func (k *keyring) take(data []byte, err error) {
	sum := sha256.Sum256(data)
	if err == nil && (k.set == nil || k.set.sum != sum) {
		var keys []*jose.JSONWebKey
		if keys, err = parseKeys(data); err == nil {
			k.set = &keySet{sum: sum, keys: keys}
			k.log.Info("the keys of tenants' tokens were read", "keys", len(keys), "issuer", k.cfg.Issuer)
		}
	}
	switch {
	case err == nil:
		k.read = time.Now()
	case k.failed == nil && k.ctx.Err() == nil: // once, until it succeeds again
		k.log.Warn("the keys of tenants' tokens cannot be read; those that were read last go on holding", "issuer", k.cfg.Issuer, "err", err)
	}
	k.failed = err
}

// fetch is what the URL answers.
func (k *keyring) fetch() ([]byte, error) {
	ctx, cancel := context.WithTimeout(k.ctx, keysTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, k.cfg.JWKSURL, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := k.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %d, and redirects are not followed", r.URL.Host, resp.StatusCode)
	}
	return readKeys(resp.Body)
}

func readKeyFile(file string) ([]byte, error) {
	f, err := plainfile.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readKeys(f)
}

func readKeys(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxKeySet+1))
	if err == nil && len(data) > maxKeySet {
		err = errors.New("the keys are more than 1 MiB")
	}
	return data, err
}

// parseKeys are the keys of a JSON Web Key Set with which signatures can be verified. Others, for
// encrypting or of a kind that is not known, are left out, as the standard has it. A set in which a
// key is secret, or in which two have one name, is refused, as is one in which none can be used.
func parseKeys(data []byte) ([]*jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(bytes.TrimSpace(data), &set); err != nil {
		return nil, fmt.Errorf("no JSON Web Key Set: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%d keys are more than are looked at (%d)", len(set.Keys), maxKeys)
	}
	var out []*jose.JSONWebKey
	for _, raw := range set.Keys {
		key := &jose.JSONWebKey{}
		if err := key.UnmarshalJSON(raw); err != nil || key.Use != "" && key.Use != "sig" {
			continue
		}
		switch k := key.Key.(type) {
		case *rsa.PrivateKey, *ecdsa.PrivateKey, ed25519.PrivateKey:
			return nil, errors.New("a key is there with its private half, so that whoever reads it can sign")
		case *rsa.PublicKey:
			if bits := k.N.BitLen(); bits < minRSABits || bits > maxRSABits {
				continue
			}
		}
		if !slices.ContainsFunc(algorithms, func(alg jose.SignatureAlgorithm) bool { return fits(key, alg) }) {
			continue
		}
		if slices.ContainsFunc(out, func(other *jose.JSONWebKey) bool { return other.KeyID == key.KeyID }) {
			return nil, errors.New("two keys have the same kid, or none")
		}
		out = append(out, key)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("of %d keys none is a public one of RSA (%d to %d bits), ECDSA or Ed25519 for signatures", len(set.Keys), minRSABits, maxRSABits)
	}
	return out, nil
}

// find is the key of that name; where there is one only, a token need not name it.
func (s *keySet) find(kid string) (*jose.JSONWebKey, error) {
	if kid == "" {
		if len(s.keys) > 1 {
			return nil, errNoKid
		}
		return s.keys[0], nil
	}
	for _, key := range s.keys {
		if key.KeyID == kid {
			return key, nil
		}
	}
	return nil, errKey
}

// known is whose a token is that was verified; nil where it was not, or has expired since.
func (s *keySet) known(sum [sha256.Size]byte, now time.Time) *Tenant {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.verified[sum]
	if !ok || !now.Before(v.until) {
		delete(s.verified, sum)
		return nil
	}
	return v.tenant
}

func (s *keySet) learn(sum [sha256.Size]byte, t *Tenant, until, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.verified) >= maxVerified {
		for other, v := range s.verified {
			if !now.Before(v.until) {
				delete(s.verified, other)
			}
		}
	}
	if s.verified == nil || len(s.verified) >= maxVerified {
		s.verified = map[[sha256.Size]byte]verdict{}
	}
	s.verified[sum] = verdict{t, until}
}
