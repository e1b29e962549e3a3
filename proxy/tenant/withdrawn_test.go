package tenant

import (
	"bytes"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/spillwayproject/spillway/proxy/config"
)

// withToken is a directory of one tenant with a token, and what says at a time of the file whose a
// word is.
func withToken(t *testing.T, said *bytes.Buffer) (file string, is func(word string, at time.Time) bool) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "token")
	cfg := &config.Config{Tenants: []config.Tenant{{Name: "a", BearerTokenFile: file}}}
	d, err := New(cfg, nil, slog.New(slog.NewTextHandler(said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return file, func(word string, at time.Time) bool { return d.holder(sha256.Sum256([]byte(word)), at, false) != nil }
}

func writeToken(t *testing.T, file, word string, at time.Time) {
	t.Helper()
	if err := os.WriteFile(file, []byte(word), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, at, at); err != nil {
		t.Fatal(err)
	}
}

// TestOldTokensEnd: the one that another has replaced is good for a while from then on, also where
// nobody has asked since, and so nobody has looked.
func TestOldTokensEnd(t *testing.T) {
	start := time.Now()
	file, is := withToken(t, &bytes.Buffer{})
	for _, tc := range []struct {
		what           string
		written, asked time.Duration // after the first look
		good           bool
	}{
		{"long ago", time.Minute, time.Hour, false},
		{"just before", time.Hour - time.Second, time.Hour, true},
		{"not quite as long ago", time.Hour - tokenOverlap + time.Second, time.Hour, true},
		{"a little longer ago", time.Hour - tokenOverlap - time.Second, time.Hour, false},
		{"in time to come, by a clock that is ahead", 2 * time.Hour, time.Hour, true},
		{"before it was seen, as a file that was made elsewhere and moved there", -time.Hour, 2 * time.Second, true},
	} {
		writeToken(t, file, "old", start)
		if at := start.Add(tokenAge); !is("old", at) {
			t.Fatal("the first one is nobody's")
		} else if writeToken(t, file, "new", at.Add(tc.written)); is("old", at.Add(tc.asked)) != tc.good || !is("new", at.Add(tc.asked)) {
			t.Errorf("%s: good is %v", tc.what, !tc.good)
		} else if is("old", at.Add(tc.asked+tokenOverlap)) {
			t.Errorf("%s: it is good for ever", tc.what)
		}
		start = start.Add(24 * time.Hour)
	}
}

// TestTokensOfLostFiles: a token whose file is away is good for a while, which is said once, and
// nobody's then, until it is back.
func TestTokensOfLostFiles(t *testing.T) {
	var said bytes.Buffer
	start := time.Now()
	file, is := withToken(t, &said)
	writeToken(t, file, "word", start)
	if !is("word", start.Add(tokenAge)) {
		t.Fatal("nobody's")
	}
	start = start.Add(tokenAge)
	said.Reset()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	for _, after := range []time.Duration{time.Minute, tokenGone / 2, tokenGone - time.Second} {
		if !is("word", start.Add(after)) {
			t.Errorf("after %s it is nobody's", after)
		}
	}
	if strings.Count(said.String(), "cannot be read any more") != 1 || !strings.Contains(said.String(), "tenant=a") {
		t.Errorf("said: %s", said.String())
	}
	said.Reset()
	for _, after := range []time.Duration{tokenGone, tokenGone + time.Hour} {
		if is("word", start.Add(after)) {
			t.Errorf("after %s it is somebody's", after)
		}
	}
	if strings.Count(said.String(), "level=") != 1 || !strings.Contains(said.String(), "nobody's from now on") {
		t.Errorf("said: %s", said.String())
	}
	writeToken(t, file, "word", start)
	if !is("word", start.Add(2*tokenGone+time.Hour)) {
		t.Error("once it is back it is nobody's")
	}
	// Where nobody has asked meanwhile, nobody knows how long it has been away: it is not believed.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if is("word", start.Add(20*time.Hour)) {
		t.Error("a file that went in the night is believed in the morning")
	}
}

// TestWithdrawnKeys: who comes first after a long time waits for the issuer's keys of now, by which
// a token may be nobody's any more. Where they cannot be had the last ones hold, and those who come
// next do not wait for them again.
func TestWithdrawnKeys(t *testing.T) {
	s := newKeyServer(t)
	s.answers(public(jwk(edKey(), "1")))
	d := issued(t, config.JWT{JWKSURL: s.URL})
	ring := d.issuer.keys
	token := signed(jose.EdDSA, edKey(), "1", claims(nil))
	pass := func(by time.Duration) {
		ring.mu.Lock()
		defer ring.mu.Unlock()
		ring.read, ring.looked = ring.read.Add(-by), ring.looked.Add(-by)
	}
	is := func(want string) {
		t.Helper()
		if got, err := shown(t, d, token); got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	is("research")
	s.will(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	pass(time.Hour)
	is("research")
	goOn := make(chan struct{})
	s.will(func(w http.ResponseWriter, _ *http.Request) { <-goOn; w.WriteHeader(http.StatusBadGateway) })
	pass(keysAgain)
	is("research")
	ring.mu.Lock()
	if ring.busy == nil {
		t.Error("an issuer that has failed just before was waited for")
	}
	busy := ring.busy
	ring.mu.Unlock()
	close(goOn)
	if busy != nil {
		<-busy
	}
	s.answers(public(jwk(otherKey(), "2")))
	pass(time.Hour)
	is("") // at once, and not from the next request on
}
