package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/backend/httpclient"
	"github.com/grafana/grafana-plugin-sdk-go/backend/instancemgmt"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// ID is the datasource's type in Grafana, as src/plugin.json has it.
const ID = "spillway-experiments-datasource"

// Datasource is one instance.
type Datasource struct {
	settings model.Settings
	client   *prom.Client
	asker    prom.Asker
	// broken is what is wrong with the settings; nothing is asked then.
	broken error
	// passOn are the headers of a request that go on to the proxy beside those that say who asks.
	passOn []string
	// timeout is that of one request to the proxy.
	timeout time.Duration
	now     func() time.Time
	// mostPoints is maxPoints where it is 0.
	mostPoints int64
}

var (
	_ backend.QueryDataHandler      = (*Datasource)(nil)
	_ backend.CheckHealthHandler    = (*Datasource)(nil)
	_ backend.CallResourceHandler   = (*Datasource)(nil)
	_ instancemgmt.InstanceDisposer = (*Datasource)(nil)
)

// New makes an instance of settings. Its error is always nil: settings that cannot be used are told
// by the health check and by each query.
func New(ctx context.Context, settings backend.DataSourceInstanceSettings) (instancemgmt.Instance, error) {
	d := &Datasource{now: time.Now}
	d.broken = d.open(ctx, settings)
	return d, nil
}

func (d *Datasource) open(ctx context.Context, settings backend.DataSourceInstanceSettings) error {
	if len(settings.JSONData) == 0 {
		settings.JSONData = json.RawMessage("{}") // the SDK takes nothing for an error
	}
	var err error
	if d.settings, err = model.ParseSettings(settings.JSONData); err != nil {
		return fmt.Errorf("the datasource's settings: %w", err)
	}
	var pass struct {
		OAuth   bool     `json:"oauthPassThru"`
		Cookies []string `json:"keepCookies"`
	}
	if err := json.Unmarshal(settings.JSONData, &pass); err != nil {
		return fmt.Errorf("the datasource's settings: %w", err)
	}
	if pass.OAuth {
		d.passOn = append(d.passOn, backend.OAuthIdentityTokenHeaderName, backend.OAuthIdentityIDTokenHeaderName,
			backend.GrafanaUserSignInTokenHeaderName)
	}
	if len(pass.Cookies) > 0 {
		d.passOn = append(d.passOn, backend.CookiesHeaderName)
	}
	client, err := httpClient(ctx, settings)
	if err != nil {
		return fmt.Errorf("the datasource's settings: %w", err)
	}
	if d.client, err = prom.New(settings.URL, client, d.settings.PartialResponse); err != nil {
		client.CloseIdleConnections()
		return err
	}
	d.asker, d.timeout = newGate(d.client), client.Timeout
	return nil
}

// httpClient is one with the TLS, credentials, headers and timeout of the settings.
func httpClient(ctx context.Context, settings backend.DataSourceInstanceSettings) (client *http.Client, err error) {
	// The SDK takes some settings for text without looking.
	defer func() {
		if p := recover(); p != nil {
			client, err = nil, fmt.Errorf("a setting of HTTP is of the wrong type: %v", p)
		}
	}()
	opts, err := settings.HTTPClientOptions(ctx)
	if err != nil {
		return nil, err
	}
	if opts.Timeouts.Timeout <= 0 {
		opts.Timeouts.Timeout = httpclient.DefaultTimeoutOptions.Timeout
	}
	var base *http.Transport
	opts.ConfigureTransport = func(_ httpclient.Options, t *http.Transport) {
		t.Proxy = nil // it would be the environment's
		base = t
	}
	if client, err = httpclient.New(opts); err == nil {
		client.Transport = closing{client.Transport, base}
	}
	return client, err
}

// closing makes idle connections of base, which the SDK's middlewares hide, close where http.Client
// looks for it.
type closing struct {
	http.RoundTripper
	base *http.Transport
}

func (c closing) CloseIdleConnections() { c.base.CloseIdleConnections() }

// Dispose implements instancemgmt.InstanceDisposer.
func (d *Datasource) Dispose() {
	if d.client != nil {
		d.client.Close()
	}
}
