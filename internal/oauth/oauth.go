package oauth

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	commonconfig "github.com/prometheus/common/config"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"golang.org/x/sync/singleflight"
)

// fetchTimeout is how long a token endpoint has to answer.
const fetchTimeout = 10 * time.Second

// grantJWT is the grant type of RFC 7523; any other is that of a client's secret.
const grantJWT = "urn:ietf:params:oauth:grant-type:jwt-bearer"

// RoundTripper is that of prometheus/common for the configuration, which dials by this function, or
// as net.Dialer does for nil. It speaks HTTP/1.1. The function and the options hold for the token
// endpoint too.
func RoundTripper(
	cfg commonconfig.HTTPClientConfig, name string, dial commonconfig.DialContextFunc, opts ...commonconfig.HTTPClientOption,
) (http.RoundTripper, error) {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	opts = append(opts[:len(opts):len(opts)], commonconfig.WithHTTP2Disabled(), commonconfig.WithDialContextFunc(boundedDial(dial)))
	o := cfg.OAuth2
	cfg.OAuth2 = nil
	inner, err := commonconfig.NewRoundTripperFromConfig(cfg, name, opts...)
	if err != nil {
		return nil, err
	}
	rt := Bounded{inner}
	if o == nil {
		return rt, nil
	}
	endpoint := commonconfig.HTTPClientConfig{TLSConfig: o.TLSConfig, ProxyConfig: o.ProxyConfig}
	opts = append(opts, commonconfig.WithKeepAlivesDisabled())
	to, err := commonconfig.NewRoundTripperFromConfig(endpoint, name, opts...)
	if err != nil {
		return nil, fmt.Errorf("oauth2: %w", err)
	}
	client := &http.Client{
		Transport: Bounded{to}, Timeout: fetchTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &transport{next: rt, client: client, o: o}, nil
}

// transport sets a token on each request.
type transport struct {
	next   http.RoundTripper
	client *http.Client // for the token endpoint
	o      *commonconfig.OAuth2

	fetching singleflight.Group

	mu     sync.Mutex
	secret string // by which the token was fetched
	token  *oauth2.Token
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := t.current(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // nobody reads it
		}
		return nil, fmt.Errorf("oauth2: %w", err)
	}
	r = r.Clone(r.Context())
	token.SetAuthHeader(r)
	return t.next.RoundTrip(r)
}

// CloseIdleConnections closes the connections that no request uses.
func (t *transport) CloseIdleConnections() {
	for _, rt := range []http.RoundTripper{t.next, t.client.Transport} {
		if c, ok := rt.(interface{ CloseIdleConnections() }); ok {
			c.CloseIdleConnections()
		}
	}
}

// current is a token that is valid now.
func (t *transport) current(ctx context.Context) (*oauth2.Token, error) {
	secret, err := t.readSecret()
	t.mu.Lock()
	token, same := t.token, err != nil || secret == t.secret
	t.mu.Unlock()
	if token.Valid() && same {
		return token, nil
	}
	if err != nil {
		return nil, err
	}
	select {
	case got := <-t.fetching.DoChan(secret, func() (any, error) { return t.fetch(secret) }):
		if got.Err != nil {
			return nil, got.Err
		}
		return got.Val.(*oauth2.Token), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// readSecret is the client's secret, or the key by which it signs.
func (t *transport) readSecret() (string, error) {
	inline, file := t.o.ClientSecret, t.o.ClientSecretFile
	if t.o.GrantType == grantJWT {
		inline, file = t.o.ClientCertificateKey, t.o.ClientCertificateKeyFile
	}
	if inline != "" || file == "" {
		return string(inline), nil
	}
	text, err := os.ReadFile(file)
	return strings.TrimSpace(string(text)), err
}

// fetch asks the endpoint, for all requests that wait, unless another one has just been answered.
func (t *transport) fetch(secret string) (*oauth2.Token, error) {
	t.mu.Lock()
	token, same := t.token, secret == t.secret
	t.mu.Unlock()
	if token.Valid() && same {
		return token, nil
	}
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), oauth2.HTTPClient, t.client), fetchTimeout)
	defer cancel()
	token, err := t.ask(ctx, secret)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.secret, t.token = secret, token
	return token, nil
}

func (t *transport) ask(ctx context.Context, secret string) (*oauth2.Token, error) {
	o, more := t.o, url.Values{}
	for name, value := range o.EndpointParams {
		more.Set(name, value)
	}
	if o.GrantType != grantJWT {
		c := clientcredentials.Config{
			ClientID: o.ClientID, ClientSecret: secret, Scopes: o.Scopes, TokenURL: o.TokenURL, EndpointParams: more,
		}
		return c.Token(ctx)
	}
	by := map[string]*jwt.SigningMethodRSA{"RS384": jwt.SigningMethodRS384, "RS512": jwt.SigningMethodRS512}[o.SignatureAlgorithm]
	if by == nil {
		by = jwt.SigningMethodRS256
	}
	c := commonconfig.JwtGrantTypeConfig{
		PrivateKey: []byte(secret), PrivateKeyID: o.ClientCertificateKeyID, Scopes: o.Scopes, TokenURL: o.TokenURL, SigningAlgorithm: by,
		Iss: o.Iss, Subject: o.ClientID, Audience: o.Audience, PrivateClaims: o.Claims, EndpointParams: more,
	}
	if c.Iss == "" {
		c.Iss = o.ClientID
	}
	return c.TokenSource(ctx).Token()
}
