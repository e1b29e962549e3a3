package realprom

import (
	"context"
	"io"
)

// StartProxy starts the spillway program at path as a proxy with a configuration file, as
// StartOnPorts does. log gets what it writes; nil is nobody. api and admin are the URLs of its two
// listeners, without a slash at their ends.
func StartProxy(ctx context.Context, path, file string, log io.Writer) (p *Process, api, admin string, err error) {
	p, at, err := StartOnPorts(ctx, PortOptions{Path: path, Log: log, Ports: 2, Args: func(at []string) []string {
		return []string{"proxy", "--config.file=" + file, "--web.listen-address=" + at[0], "--web.admin-listen-address=" + at[1]}
	}})
	if err != nil {
		return nil, "", "", err
	}
	return p, "http://" + at[0], "http://" + at[1], nil
}
