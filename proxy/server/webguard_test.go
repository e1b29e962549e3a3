package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
	"golang.org/x/crypto/bcrypt"

	"github.com/spillwayproject/spillway/proxy/tenant"
)

// guardedProxy is a proxy of which each listener, the admin one beyond loopback, has the web
// configuration, and where they are on this machine, without a scheme.
func guardedProxy(t *testing.T, web string) (r *rig, listeners map[string]string) {
	t.Helper()
	var admin string
	r = newRig(t, manyShards(1), limits(ample), func(o *Options) {
		o.AdminListenAddress, o.MetricsListenAddress, o.WebConfigFile = "0.0.0.0:0", "127.0.0.1:0", web
		o.Ready = func(_, a netAddr) { admin = a.String() }
	})
	_, port, err := net.SplitHostPort(admin)
	if err != nil {
		t.Fatal(err)
	}
	listeners = map[string]string{
		"main": strings.TrimPrefix(r.url, "http://") + "/api/v1/query?query=up", "admin": "127.0.0.1:" + port + "/metrics",
		"metrics": r.s.metricsAddr.String() + "/metrics",
	}
	for _, target := range listeners { // each reads the file once more as it begins, which its first answer says
		address, _, _ := strings.Cut(target, "/")
		_, _, _ = spoken(t, address, "GET /-/healthy")
	}
	return r, listeners
}

// inPlace writes a file as an editor does that keeps it: it is empty for a moment.
func inPlace(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPasswordsAreComparedHere: exporter-toolkit reads the file for itself, and where that was in
// the moment in which the file was empty it lets everybody pass. What passes is compared with what
// is read here.
func TestPasswordsAreComparedHere(t *testing.T) {
	web := filepath.Join(t.TempDir(), "web.yml")
	inPlace(t, web, "basic_auth_users: {ada: "+passwordTest+"}\n")
	r, _ := guardedProxy(t, web)
	for name, h := range map[string]http.Handler{"main": r.s.mainHandler(), "admin": r.s.adminHandler(), "metrics": r.s.metricsHandler()} {
		path := map[string]string{"main": "/api/v1/status/buildinfo"}[name]
		if path == "" {
			path = "/metrics"
		}
		guarded := r.s.behindGuard(h, h, name != "admin")
		for _, tc := range []struct {
			user, password string
			want           int
		}{
			{"ada", "test", 200},
			{"ada", "test", 200}, // remembered
			{"ada", "tesT", 401},
			{"ada", strings.Repeat("test\x00", 20), 401}, // which bcrypt takes for the right one
			{"eve", "test", 401},
			{"", "test", 401},
			{"", "", 401},
		} {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			if tc.password != "" {
				req.SetBasicAuth(tc.user, tc.password)
			}
			w := httptest.NewRecorder()
			guarded.ServeHTTP(w, req)
			if w.Code != tc.want || tc.want == 401 && w.Header().Get("WWW-Authenticate") != "Basic" {
				t.Errorf("%s, %s:%s: %d %q, want %d", name, tc.user, tc.password, w.Code, w.Header().Get("WWW-Authenticate"), tc.want)
			}
		}
	}
}

// TestWrongPasswordsStayOutside: exporter-toolkit compares passwords behind one lock, for which
// everybody waits without an end, so that a wrong one is refused before, on each listener, with the
// headers that the file asks for.
func TestWrongPasswordsStayOutside(t *testing.T) {
	web := filepath.Join(t.TempDir(), "web.yml")
	inPlace(t, web, "http_server_config: {headers: {X-Frame-Options: deny}}\nbasic_auth_users: {ada: "+passwordTest+"}\n")
	r, listeners := guardedProxy(t, web)
	for name, target := range listeners {
		for _, password := range []string{"", "wrong", "test"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+target, nil)
			if err != nil {
				t.Fatal(err)
			}
			if password != "" {
				req.SetBasicAuth("ada", password)
			}
			resp, err := r.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			if resp.Header.Get("X-Frame-Options") != "deny" {
				t.Errorf("%s, %q: without the headers of the file: %v", name, password, resp.Header)
			}
			if password == "test" {
				if resp.StatusCode != 200 {
					t.Errorf("%s: the right one: %d %.200s", name, resp.StatusCode, body)
				}
				continue
			}
			said := strings.Contains(string(body), "nobody in basic_auth_users")
			if resp.StatusCode != 401 || resp.Header.Get("WWW-Authenticate") != "Basic" || !said {
				t.Errorf("%s, %q: %d %v %.200s", name, password, resp.StatusCode, resp.Header, body)
			}
		}
	}
}

func adas(t *testing.T, password string) *http.Request {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	req.SetBasicAuth("ada", password)
	return req
}

// TestGuessersAtTheDoor: passwords are compared one after the other, in turn for each address. Who
// leaves waits no more, who waits too long is told to come again, who is known waits for nobody.
func TestGuessersAtTheDoor(t *testing.T) {
	web := filepath.Join(t.TempDir(), "web.yml")
	inPlace(t, web, "basic_auth_users: {ada: x}\n")
	synctest.Test(t, func(t *testing.T) {
		g, words := newWebGuard(web, slog.New(slog.DiscardHandler)), tenant.NewPasswords()
		takes := 60 * time.Millisecond
		g.compare = func(_, password []byte) error {
			time.Sleep(takes)
			if string(password) != "right" {
				return bcrypt.ErrMismatchedHashAndPassword
			}
			return nil
		}
		ask := func(ctx context.Context, from, password string) int {
			req := adas(t, password).WithContext(ctx)
			req.RemoteAddr = from + ":1"
			w := httptest.NewRecorder()
			if g.refuses(w, req, words, false) {
				return w.Code
			}
			return 200
		}
		codes, mu := map[int]int{}, sync.Mutex{}
		left, leave := context.WithCancel(t.Context())
		var guessers, gone sync.WaitGroup
		for i := range 200 {
			guessers.Go(func() {
				code := ask(t.Context(), "192.0.2.1", fmt.Sprint(i))
				mu.Lock()
				defer mu.Unlock()
				codes[code]++
			})
			gone.Go(func() { ask(left, "192.0.2.1", fmt.Sprint("gone ", i)) })
		}
		synctest.Wait()
		began := time.Now()
		if code := ask(t.Context(), "192.0.2.2", "right"); code != 200 || time.Since(began) > 3*takes {
			t.Errorf("the right one, from elsewhere: %d after %s", code, time.Since(began))
		}
		began = time.Now()
		if g.refuses(httptest.NewRecorder(), adas(t, "right"), tenant.NewPasswords(), false) || time.Since(began) != takes {
			t.Errorf("on another listener somebody waited for %s", time.Since(began))
		}
		began = time.Now()
		leave()
		gone.Wait()
		if took := time.Since(began); took > takes {
			t.Errorf("who left was here for another %s", took)
		}
		if code := ask(t.Context(), "192.0.2.1", "right"); code != 200 || time.Since(began) > takes {
			t.Errorf("who is known: %d after %s", code, time.Since(began))
		}
		guessers.Wait()
		if codes[401] == 0 || codes[429] < 150 || codes[401]+codes[429] != 200 {
			t.Errorf("the guesses came to %v", codes)
		}
	})
}

// TestWebConfigCutOff: wherever the file ends that once asked for passwords, no listener answers
// whoever has none; what is left of the users is let in, and health is told.
func TestWebConfigCutOff(t *testing.T) {
	web := filepath.Join(t.TempDir(), "web.yml")
	whole := "# of the lab\nhttp_server_config:\n  headers:\n    X-Frame-Options: deny\nbasic_auth_users:\n  ada: " + passwordTest + "\n  bob: " + passwordTest + "\n"
	inPlace(t, web, whole)
	r, listeners := guardedProxy(t, web)
	ask := func(target, user string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+target, nil)
		if err != nil {
			t.Fatal(err)
		}
		if user != "" {
			req.SetBasicAuth(user, "test")
		}
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	lines := strings.SplitAfter(whole, "\n")
	for n := range lines {
		text := strings.Join(lines[:n], "")
		inPlace(t, web, text)
		for name, target := range listeners {
			for _, user := range []string{"", "eve", "ada"} {
				want := http.StatusServiceUnavailable
				switch has := strings.Contains(text, "  ada"); {
				case has && user == "ada":
					want = 200
				case has:
					want = 401
				}
				if code := ask(target, user); code != want {
					t.Errorf("%s, %q, of\n%s%d, want %d", name, user, text, code, want)
				}
			}
			health, _, _ := strings.Cut(target, "/")
			if code := ask(health+"/-/healthy", ""); name != "admin" && code != 200 {
				t.Errorf("health of %s: %d", name, code)
			}
			ready := map[bool]int{true: 200, false: 503}[strings.Contains(text, "  ada")]
			if code := ask(health+"/-/ready", ""); name == "main" && code != ready {
				t.Errorf("readiness, of\n%s%d, want %d", text, code, ready)
			}
		}
	}
	told := 0
	for _, line := range r.log.atLeast(slog.LevelError) {
		if strings.Contains(line, "web configuration") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times: %q", told, r.log.atLeast(slog.LevelError))
	}
	inPlace(t, web, whole)
	for name, target := range listeners {
		if in, out := ask(target, "bob"), ask(target, ""); in != 200 || out != 401 {
			t.Errorf("%s, once it is whole: %d, and %d to a stranger", name, in, out)
		}
	}
}

// TestListenerThatBeginsWhileTheFileIsEmpty: it would be one without TLS until the next start, so
// nobody is accepted there.
func TestListenerThatBeginsWhileTheFileIsEmpty(t *testing.T) {
	ca := newAuthority(t, "ours")
	ca.issue("server")
	whole, err := os.ReadFile(ca.webConfig(""))
	if err != nil {
		t.Fatal(err)
	}
	plain := "http_server_config: {http2: false}\n"
	for _, tc := range []struct {
		start, begin string
		ends         bool
	}{
		{string(whole), "", true},
		{string(whole), string(whole), false},
		{plain, "", false},
	} {
		file := filepath.Join(ca.dir, "begins.yml")
		inPlace(t, file, tc.start)
		s := &Server{web: newWebGuard(file, slog.New(slog.DiscardHandler))}
		s.web.look() // as Run does at the start
		inPlace(t, file, tc.begin)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		hs := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: patience}
		served := make(chan error, 1)
		accepts := make(chan struct{}, 1)
		go func() {
			flags := &web.FlagConfig{WebListenAddresses: &[]string{""}, WebSystemdSocket: new(bool), WebConfigFile: &file}
			guarded := s.guard(hs, &askedListener{l, accepts}, true)
			served <- web.ServeMultiple([]net.Listener{guarded}, hs, flags, slog.New(slog.DiscardHandler))
		}()
		select {
		case err = <-served:
		case <-accepts:
			err = nil
		}
		if (err != nil) != tc.ends || err != nil && !errors.Is(err, errBareListener) {
			t.Errorf("%.20q, and %.20q as it begins: %v", tc.start, tc.begin, err)
		}
		_ = hs.Close()
		_ = l.Close()
	}
}

// askedListener is a listener that says when it is asked for a connection.
type askedListener struct {
	net.Listener
	accepts chan struct{}
}

// Accept implements net.Listener.
func (l *askedListener) Accept() (net.Conn, error) {
	select {
	case l.accepts <- struct{}{}:
	default:
	}
	return l.Listener.Accept()
}

// TestCertificatesStayAskedFor: where the file asks for certificates no more, nobody is answered,
// over whatever connection; who has come without one meanwhile is nobody afterwards either.
func TestCertificatesStayAskedFor(t *testing.T) {
	ca := newAuthority(t, "ours")
	ca.issue("server")
	known, unknown := ca.client(ca.issue("client")), ca.client()
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	web := filepath.Join(t.TempDir(), "web.yml")
	whole, open := read(ca.webConfig("RequireAndVerifyClientCert")), read(ca.webConfig(""))
	users := "basic_auth_users: {ada: " + passwordTest + "}\n"
	for name, tc := range map[string]struct {
		whole, less string
		after       int // without a certificate, over a connection from in between
	}{
		"certificates":            {whole, open, 403},
		"and passwords":           {whole + users, whole, 0},
		"passwords, which remain": {whole + users, open + users, 403},
	} {
		t.Run(name, func(t *testing.T) {
			inPlace(t, web, tc.whole)
			known.CloseIdleConnections()
			unknown.CloseIdleConnections()
			_, listeners := guardedProxy(t, web)
			for listener, target := range listeners {
				ask := func(c *http.Client) int {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+target, nil)
					if err != nil {
						t.Fatal(err)
					}
					req.SetBasicAuth("ada", "test")
					resp, err := c.Do(req)
					if err != nil {
						return 0
					}
					_, _ = io.Copy(io.Discard, resp.Body) // so that the connection stays
					resp.Body.Close()
					return resp.StatusCode
				}
				if code := ask(known); code != 200 {
					t.Fatalf("%s: who has a certificate: %d", listener, code)
				}
				inPlace(t, web, tc.less)
				refused := fmt.Sprint(ask(known), ask(unknown))
				if refused != "503 503" && refused != "503 0" {
					t.Errorf("%s: while it asks for less: %s", listener, refused)
				}
				inPlace(t, web, tc.whole)
				if with, without := ask(known), ask(unknown); with != 200 || without != tc.after {
					t.Errorf("%s, once it is back: %d, and %d without one", listener, with, without)
				}
				if again := ask(unknown); again != 0 {
					t.Errorf("%s: a connection that was made without a certificate is kept: %d", listener, again)
				}
			}
		})
	}
}
