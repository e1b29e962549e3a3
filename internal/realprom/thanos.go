package realprom

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// thanosTimeout bounds the start of a Thanos component where ctx has no earlier end.
const thanosTimeout = time.Minute

// ThanosServer is a running Thanos component.
type ThanosServer struct {
	*Process
	url  string
	grpc string
	temp string // its data directory; empty where it has none
}

// URL is where it serves HTTP, without a slash at the end.
func (s *ThanosServer) URL() string { return s.url }

// GRPC is the host:port of its StoreAPI.
func (s *ThanosServer) GRPC() string { return s.grpc }

// Stop ends it as Process.Stop does, and removes what was temporary.
func (s *ThanosServer) Stop() error {
	err := s.Process.Stop()
	if s.temp != "" {
		err = errors.Join(err, os.RemoveAll(s.temp))
	}
	return err
}

// StartSidecar starts a Thanos sidecar of the Prometheus at prometheusURL, which must have external
// labels, and returns when it is ready. ctx bounds the start, not the sidecar: that ends with Stop,
// which must be called. args are added to the command line.
func StartSidecar(ctx context.Context, prometheusURL string, args ...string) (*ThanosServer, error) {
	temp, err := os.MkdirTemp("", "realprom-sidecar-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the sidecar: %w", err)
	}
	s, err := startThanos(ctx, append([]string{
		"sidecar", "--prometheus.url=" + prometheusURL, "--tsdb.path=" + temp,
		"--prometheus.ready_timeout=30s",
	}, args...))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(temp))
	}
	s.temp = temp
	return s, nil
}

// StartThanosQuery starts a Thanos Query over the StoreAPIs at the given host:port, and returns
// when it is ready, which is not yet when it has found them: its page /api/v1/stores tells. ctx
// bounds the start; the server ends with Stop, which must be called. args are added to the command
// line.
func StartThanosQuery(ctx context.Context, stores []string, args ...string) (*ThanosServer, error) {
	all := []string{"query"}
	for _, s := range stores {
		all = append(all, "--endpoint="+s)
	}
	return startThanos(ctx, append(all, args...))
}

// startThanos starts a component with two free ports.
func startThanos(ctx context.Context, args []string) (*ThanosServer, error) {
	path, err := Find("thanos")
	if err != nil {
		return nil, err
	}
	p, at, err := StartOnPorts(ctx,
		PortOptions{Name: "thanos " + args[0], Path: path, Ports: 2, Timeout: thanosTimeout, Args: func(at []string) []string {
			return append(args[:len(args):len(args)], "--http-address="+at[0], "--grpc-address="+at[1])
		}})
	if err != nil {
		return nil, err
	}
	return &ThanosServer{Process: p, url: "http://" + at[0], grpc: at[1]}, nil
}
