package discovery

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/version"
)

// TestListsFollowNoRedirect: neither the server of a list nor its token endpoint can send on what
// they are sent; and an oauth2 list is read where nobody does that.
func TestListsFollowNoRedirect(t *testing.T) {
	var heard atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		heard.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token":"stolen","token_type":"Bearer"}`)
	}))
	defer elsewhere.Close()
	redirect := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}))
	defer redirect.Close()
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token":"good","token_type":"Bearer"}`)
	}))
	defer issuer.Close()
	list := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.UserAgent(); got != "Spillway/"+version.Version {
			t.Errorf("the list was asked for by %q", got)
		}
		if r.Header.Get("Authorization") != "Bearer good" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `[{"targets":["10.0.0.1:9090"],"labels":{"__spillway_shard__":"s"}}]`)
	}))
	defer list.Close()
	oauth := func(token string) string {
		return fmt.Sprintf("{oauth2: {client_id: me, client_secret: secret, token_url: %q}}", token)
	}
	proxied := strings.Replace(oauth(issuer.URL), "}}", ", proxy_url: 'http://127.0.0.1:1'}}", 1)
	for _, c := range []struct{ name, url, client, want string }{
		{"a list that redirects", redirect.URL, "{basic_auth: {username: u, password: secret}}", "no servers yet"},
		{"a token endpoint that redirects", list.URL, oauth(redirect.URL), "no servers yet"},
		{"both", redirect.URL, oauth(issuer.URL), "no servers yet"},
		{"a token endpoint behind a proxy", list.URL, proxied, "goes by no proxy"},
		{"neither", list.URL, oauth(issuer.URL), ""},
	} {
		w := New(t.Context(), Options{Patience: 500 * time.Millisecond})
		if c.want == "" {
			w.o.Patience = patience
		}
		_, err := w.Fill(t.Context(), parse(t, fmt.Sprintf("{http_sd: %q, refresh_interval: 50ms, http_client: %s}", c.url, c.client)))
		w.Close()
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if n := heard.Load(); n > 0 {
		t.Errorf("the other server was asked %d times", n)
	}
}
