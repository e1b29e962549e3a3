package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/backend/grpcplugin"
	"github.com/grafana/grafana-plugin-sdk-go/genproto/pluginv2"
	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
)

// PluginID is the datasource's id, as src/plugin.json has it.
const PluginID = "spillway-experiments-datasource"

// Options say which plugin is run.
type Options struct {
	// Binary is the path of the plugin's program.
	Binary string
	// Log gets what the program writes to its standard error, a line of JSON for each message; nil
	// throws it away. It is written by one goroutine, which ends with Close.
	Log io.Writer
	// StartTimeout is how long the handshake may take; 0 means a minute.
	StartTimeout time.Duration
}

// Host is a plugin that runs. Its methods may be called at once.
type Host struct {
	client      *goplugin.Client
	pid         int
	data        grpcplugin.DataClient
	resource    grpcplugin.ResourceClient
	diagnostics grpcplugin.DiagnosticsClient
}

// Start runs the binary and shakes hands with it. The error says what the program did instead.
func Start(o Options) (*Host, error) {
	if _, err := os.Stat(o.Binary); err != nil {
		return nil, fmt.Errorf("the plugin's binary: %w; make plugin builds it", err)
	}
	client := goplugin.NewClient(&goplugin.ClientConfig{
		Cmd: exec.Command(o.Binary),
		HandshakeConfig: goplugin.HandshakeConfig{
			ProtocolVersion: grpcplugin.ProtocolVersion, MagicCookieKey: grpcplugin.MagicCookieKey,
			MagicCookieValue: grpcplugin.MagicCookieValue,
		},
		VersionedPlugins: map[int]goplugin.PluginSet{grpcplugin.ProtocolVersion: {
			"diagnostics": &grpcplugin.DiagnosticsGRPCPlugin{}, "resource": &grpcplugin.ResourceGRPCPlugin{},
			"data": &grpcplugin.DataGRPCPlugin{},
		}},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		SkipHostEnv:      true,
		StartTimeout:     cmp.Or(o.StartTimeout, time.Minute),
		Stderr:           o.Log,
		Logger:           hclog.NewNullLogger(), // it repeats what Log has
	})
	h := &Host{client: client}
	if err := h.connect(); err != nil {
		client.Kill()
		return nil, fmt.Errorf("start %s: %w", o.Binary, err)
	}
	return h, nil
}

func (h *Host) connect() error {
	conn, err := h.client.Client()
	if err != nil {
		return err
	}
	if h.pid, err = strconv.Atoi(h.client.ID()); err != nil {
		return fmt.Errorf("its process: %w", err)
	}
	for name, use := range map[string]func(any) bool{
		"data":        func(c any) (ok bool) { h.data, ok = c.(grpcplugin.DataClient); return ok },
		"resource":    func(c any) (ok bool) { h.resource, ok = c.(grpcplugin.ResourceClient); return ok },
		"diagnostics": func(c any) (ok bool) { h.diagnostics, ok = c.(grpcplugin.DiagnosticsClient); return ok },
	} {
		c, err := conn.Dispense(name)
		if err != nil {
			return fmt.Errorf("its service %s: %w", name, err)
		}
		if !use(c) {
			return fmt.Errorf("its service %s is a %T", name, c)
		}
	}
	return nil
}

// PID is the number of the plugin's process.
func (h *Host) PID() int { return h.pid }

// Exited tells whether the plugin's process has ended.
func (h *Host) Exited() bool { return h.client.Exited() }

// Close ends the plugin: it is asked to, and killed where it has not done so after two seconds. It
// may be called again.
func (h *Host) Close() { h.client.Kill() }

// failed makes an error say that the plugin is gone, where it is.
func (h *Host) failed(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case h.Exited():
		return fmt.Errorf("%s: the plugin's process has ended; its log says why: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Query is Grafana's QueryData. Errors of single queries stand in the answer; the error is that of
// the call.
func (h *Host) Query(ctx context.Context, req *backend.QueryDataRequest) (*backend.QueryDataResponse, error) {
	answer, err := h.data.QueryData(ctx, backend.ToProto().QueryDataRequest(req))
	if err != nil {
		return nil, h.failed("query", err)
	}
	resp, err := backend.FromProto().QueryDataResponse(answer)
	if err != nil {
		return nil, fmt.Errorf("the answer's frames: %w", err)
	}
	return resp, nil
}

// Health is Grafana's CheckHealth, what its button Save & test shows. headers are those of HTTP.
func (h *Host) Health(ctx context.Context, plugin backend.PluginContext, headers map[string]string) (*backend.CheckHealthResult, error) {
	req := &backend.CheckHealthRequest{}
	for k, v := range headers {
		req.SetHTTPHeader(k, v)
	}
	answer, err := h.diagnostics.CheckHealth(ctx,
		&pluginv2.CheckHealthRequest{PluginContext: backend.ToProto().PluginContext(plugin), Headers: req.Headers})
	if err != nil {
		return nil, h.failed("health check", err)
	}
	return &backend.CheckHealthResult{
		Status: backend.HealthStatus(answer.Status), Message: answer.Message,
		JSONDetails: answer.JsonDetails,
	}, nil
}

// Metrics are the plugin's own, in the text format of Prometheus.
func (h *Host) Metrics(ctx context.Context) ([]byte, error) {
	answer, err := h.diagnostics.CollectMetrics(ctx, &pluginv2.CollectMetricsRequest{})
	if err != nil {
		return nil, h.failed("metrics", err)
	}
	return answer.GetMetrics().GetPrometheus(), nil
}

// Call is Grafana's CallResource; an answer in parts is put together.
func (h *Host) Call(ctx context.Context, req *backend.CallResourceRequest) (*backend.CallResourceResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a stream that was not read to its end
	stream, err := h.resource.CallResource(ctx, backend.ToProto().CallResourceRequest(req))
	if err != nil {
		return nil, h.failed("resource "+req.Path, err)
	}
	var whole *backend.CallResourceResponse
	for {
		part, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && whole != nil:
			return whole, nil
		case err != nil:
			return nil, h.failed("resource "+req.Path, err)
		}
		answer := backend.FromProto().CallResourceResponse(part)
		if whole == nil {
			whole = answer
		} else {
			whole.Body = append(whole.Body, answer.Body...)
		}
	}
}
