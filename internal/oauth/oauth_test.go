package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonconfig "github.com/prometheus/common/config"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// issuer is a token endpoint.
type issuer struct {
	*httptest.Server
	fetched atomic.Int64
	mu      sync.Mutex
	secret  string
	lasts   int // seconds
	will    http.HandlerFunc
}

func newIssuer(t *testing.T) *issuer {
	is := &issuer{secret: "one", lasts: 3600}
	is.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		is.fetched.Add(1)
		is.mu.Lock()
		secret, lasts, will := is.secret, is.lasts, is.will
		is.mu.Unlock()
		if will != nil {
			will(w, r)
			return
		}
		if _, got, _ := r.BasicAuth(); got != secret {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "for-" + secret, "token_type": "Bearer", "expires_in": lasts})
	}))
	t.Cleanup(is.Close)
	return is
}

func (is *issuer) set(f func()) {
	is.mu.Lock()
	defer is.mu.Unlock()
	f()
}

// api tells whom it is asked by.
func api(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Authorization"))
	}))
	t.Cleanup(s.Close)
	return s
}

func roundTripper(t *testing.T, o *commonconfig.OAuth2) http.RoundTripper {
	t.Helper()
	rt, err := RoundTripper(commonconfig.HTTPClientConfig{OAuth2: o}, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.(interface{ CloseIdleConnections() }).CloseIdleConnections() })
	return rt
}

func ask(ctx context.Context, rt http.RoundTripper, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := rt.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if len(r.Header) > 0 {
		return "", errors.New("the caller's request was changed")
	}
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// TestTokens: one is fetched for all requests, again once it has expired, and at once with a new
// secret; a file that is gone for a moment takes nothing away.
func TestTokens(t *testing.T) {
	is, to := newIssuer(t), api(t)
	file := filepath.Join(t.TempDir(), "secret")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one\n")
	rt := roundTripper(t, &commonconfig.OAuth2{ClientID: "me", ClientSecretFile: file, TokenURL: is.URL})
	is1 := func(want string, fetched int64) {
		t.Helper()
		if got, err := ask(t.Context(), rt, to.URL); err != nil || got != want || is.fetched.Load() != fetched {
			t.Errorf("asked by %q, %v, after %d tokens, want %q after %d", got, err, is.fetched.Load(), want, fetched)
		}
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if got, err := ask(t.Context(), rt, to.URL); err != nil || got != "Bearer for-one" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	wg.Wait()
	is1("Bearer for-one", 1)
	is.set(func() { is.secret = "two" })
	is1("Bearer for-one", 1) // it is good still
	write("two")
	is1("Bearer for-two", 2)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	is1("Bearer for-two", 2)
	is.set(func() { is.secret, is.lasts = "three", 1 })
	write("three")
	is1("Bearer for-three", 3)
	is1("Bearer for-three", 4) // that one has expired
	write("wrong")
	if got, err := ask(t.Context(), rt, to.URL); err == nil {
		t.Errorf("with a wrong secret: %q", got)
	}
}

// TestEndpointRedirects: nobody but the endpoint hears the secret.
func TestEndpointRedirects(t *testing.T) {
	for _, code := range []int{301, 302, 303, 307, 308} {
		var heard atomic.Int64
		elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			heard.Add(1)
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"access_token":"stolen","token_type":"Bearer"}`)
		}))
		is, to := newIssuer(t), api(t)
		is.will = func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, code) }
		rt := roundTripper(t, &commonconfig.OAuth2{ClientID: "me", ClientSecret: "one", TokenURL: is.URL})
		if got, err := ask(t.Context(), rt, to.URL); err == nil || heard.Load() > 0 {
			t.Errorf("%d: %q, %v; the other server was asked %d times", code, got, err, heard.Load())
		}
		elsewhere.Close()
	}
}

// TestEndpointHangs: a request waits until its deadline, and another one is answered as soon as
// there is a token.
func TestEndpointHangs(t *testing.T) {
	is, to := newIssuer(t), api(t)
	hung := make(chan struct{})
	is.will = func(w http.ResponseWriter, _ *http.Request) {
		<-hung
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token":"late","token_type":"Bearer"}`)
	}
	rt := roundTripper(t, &commonconfig.OAuth2{ClientID: "me", ClientSecret: "one", TokenURL: is.URL})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got, err := ask(ctx, rt, to.URL); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%q, %v", got, err)
	}
	close(hung)
	if got, err := ask(t.Context(), rt, to.URL); err != nil || got != "Bearer late" {
		t.Errorf("%q, %v", got, err)
	}
	if n := is.fetched.Load(); n != 1 {
		t.Errorf("%d tokens were fetched", n)
	}
}

// TestFetchedMeanwhile: who saw no token, and comes to fetch one when another one has just done so,
// has that one.
func TestFetchedMeanwhile(t *testing.T) {
	is := newIssuer(t)
	rt := roundTripper(t, &commonconfig.OAuth2{ClientID: "me", ClientSecret: "one", TokenURL: is.URL}).(*transport)
	for range 2 {
		if token, err := rt.fetch("one"); err != nil || !token.Valid() {
			t.Errorf("%v, %v", token, err)
		}
	}
	if n := is.fetched.Load(); n != 1 {
		t.Errorf("%d tokens were fetched", n)
	}
}

// TestWithoutOAuth: it is the library's.
func TestWithoutOAuth(t *testing.T) {
	to := api(t)
	rt, err := RoundTripper(commonconfig.HTTPClientConfig{BearerToken: "b"}, "test", nil, commonconfig.WithKeepAlivesDisabled())
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := (&http.Client{Transport: rt}).Get(to.URL); err != nil {
		t.Error(err)
	} else {
		defer resp.Body.Close()
		if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "Bearer b" {
			t.Errorf("%q, %v", got, err)
		}
	}
}
