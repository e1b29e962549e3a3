package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	commonconfig "github.com/prometheus/common/config"
)

// exchangeTimeout is how long one exchange with a list's server or its token endpoint may take,
// where there is one.
const exchangeTimeout = 10 * time.Second

// listOptions are for the client that reads a list at a URL. prometheus/common fetches oauth2
// tokens by a client of its own, which follows redirects and waits without end: it reaches nobody
// but the two servers that are configured, and each connection has its time.
func listOptions(list string, c commonconfig.HTTPClientConfig) ([]commonconfig.HTTPClientOption, error) {
	if c.OAuth2 == nil {
		return nil, nil
	}
	if p := c.OAuth2.ProxyConfig; p.ProxyURL.URL != nil || p.ProxyFromEnvironment || c.ProxyFromEnvironment {
		return nil, errors.New("http_client.oauth2 of a list goes by no proxy, behind which a redirect could not be told; remove its proxy")
	}
	allowed := map[string]bool{}
	for _, text := range []string{list, c.OAuth2.TokenURL, proxyOf(c)} {
		if u, err := url.Parse(text); err == nil && u.Host != "" {
			allowed[hostPort(u)] = true
		}
	}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if !allowed[addr] {
			return nil, fmt.Errorf("a redirect to %s is not followed", addr)
		}
		conn, err := (&net.Dialer{Timeout: exchangeTimeout}).DialContext(ctx, network, addr)
		if err == nil {
			err = conn.SetDeadline(time.Now().Add(exchangeTimeout))
		}
		return conn, err
	}
	return []commonconfig.HTTPClientOption{commonconfig.WithDialContextFunc(dial), commonconfig.WithKeepAlivesDisabled()}, nil
}

func proxyOf(c commonconfig.HTTPClientConfig) string {
	if c.ProxyURL.URL == nil {
		return ""
	}
	return c.ProxyURL.String()
}

func hostPort(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}
