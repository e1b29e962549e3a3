package realprom

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/promfiles"
)

const (
	// startTimeout bounds Start where ctx has no earlier end: the replay of a large write-ahead log
	// takes minutes.
	startTimeout = 5 * time.Minute
	// portTries is how many ports are tried before the machine is believed to have none.
	portTries = 10
)

// Options says what Prometheus to start. The zero value is an empty server.
type Options struct {
	// Program is the server's in tools/bin, where it is another version than the one that all use:
	// "prometheus-3.9". Empty means prometheus.
	Program string
	// Dir is the data directory. Empty means a temporary one, which Stop removes.
	Dir string
	// Blocks names directories whose TSDB blocks are put into the data directory first (hard links
	// where possible).
	Blocks []string
	// Config is the text of prometheus.yml.
	Config string
	// ExternalLabels replace global.external_labels of Config if there are any.
	ExternalLabels labels.Labels
	// Flags are added to the command line: "--query.max-samples=1000". Listen address,
	// configuration and data directory are not among them.
	Flags []string
	// Env is added to the environment: "GOMEMLIMIT=3GiB".
	Env []string
	// MaxRSS is the resident memory in bytes at which the server is killed; see ProcessOptions.
	// Zero is no limit.
	MaxRSS int64
	// Log, if not nil, gets the server's log as it comes.
	Log io.Writer

	freePort func() (int, error) // FreePort, unless a test has its own
}

// Server is a running Prometheus.
type Server struct {
	*Process
	url  string
	dir  string
	temp string // folder to remove at the end: configuration, and data where Dir was empty
}

// Start starts Prometheus on a free port of 127.0.0.1 and returns when it is ready. ctx bounds the
// start, not the server: that ends with Stop, which must be called.
func Start(ctx context.Context, opts Options) (_ *Server, err error) {
	bin, err := Find(cmp.Or(opts.Program, "prometheus"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("prometheus was not ready after %s", startTimeout))
	defer cancel()
	temp, err := os.MkdirTemp("", "realprom-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for prometheus: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp))
		}
	}()
	dir := filepath.Join(temp, "data")
	if opts.Dir != "" {
		if dir, err = filepath.Abs(opts.Dir); err != nil {
			return nil, fmt.Errorf("data directory %s: %w", opts.Dir, err)
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	for _, blocks := range opts.Blocks {
		if _, err := promfiles.LinkBlocks(ctx, blocks, dir); err != nil {
			return nil, err
		}
	}
	conf, err := promfiles.WithExternalLabels(opts.Config, opts.ExternalLabels)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(temp, "prometheus.yml")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	freePort := opts.freePort
	if freePort == nil {
		freePort = FreePort
	}
	for try := 1; ; try++ {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		s := &Server{url: fmt.Sprintf("http://127.0.0.1:%d", port), dir: dir, temp: temp}
		s.Process, err = StartProcess(ProcessOptions{
			Path: bin,
			Args: append([]string{
				"--config.file=" + file, "--storage.tsdb.path=" + dir, fmt.Sprintf("--web.listen-address=127.0.0.1:%d", port),
			}, opts.Flags...),
			Env: opts.Env, MaxRSS: opts.MaxRSS, Log: opts.Log,
		})
		if err != nil {
			return nil, err
		}
		err = s.WaitReady(ctx, s.url+"/-/ready")
		if err == nil {
			err = s.isOurs(ctx)
		}
		if err == nil {
			return s, nil
		}
		taken := strings.Contains(s.Log(), "address already in use") || errors.Is(err, errOtherServer)
		stopErr := s.Process.Stop()
		if !taken || try == portTries {
			if errors.Is(err, ErrOutOfMemory) || stopErr == nil {
				return nil, err
			}
			return nil, errors.Join(err, stopErr)
		}
	}
}

var errOtherServer = errors.New("another server answers on the port")

// isOurs makes sure that the server that said ready is the one that was started: between finding a
// free port and binding it, another Prometheus may have taken it.
func (s *Server) isOurs(ctx context.Context) error {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/v1/status/flags", nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask %s for its flags: %w", s.url, err)
	}
	defer res.Body.Close()
	var answer struct{ Data map[string]string }
	if err := json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&answer); err != nil || answer.Data["storage.tsdb.path"] != s.dir {
		return fmt.Errorf("%s: %w", s.url, errOtherServer)
	}
	return nil
}

// URL is where the API is served, without a slash at the end.
func (s *Server) URL() string { return s.url }

// Dir is the data directory.
func (s *Server) Dir() string { return s.dir }

// Stop ends the server as Process.Stop does, and removes what was temporary.
func (s *Server) Stop() error { return errors.Join(s.Process.Stop(), os.RemoveAll(s.temp)) }

// FreePort returns a TCP port of 127.0.0.1 that was free a moment ago. Another process may take it
// before it is used: whoever starts a server on it must be ready to try again.
func FreePort() (int, error) {
	ports, err := FreePorts(1)
	if err != nil {
		return 0, err
	}
	return ports[0], nil
}

// Ports that are given out are below those that systems take for connections (32768 and up on
// Linux): a server that is stopped and started again finds its own still free.
const firstPort, portCount = 15000, 16000

// given are the ports that this process gave out; none is given twice.
var given struct {
	mu    sync.Mutex
	ports map[int]bool
}

// FreePorts returns n ports of 127.0.0.1 that nobody listens on, all of them different, and none
// that it returned before: chosen at random, so that two processes hardly ever come to the same
// one.
func FreePorts(n int) (ports []int, err error) {
	given.mu.Lock()
	defer given.mu.Unlock()
	if given.ports == nil {
		given.ports = map[int]bool{}
	}
	for tries := 0; len(ports) < n; tries++ {
		if tries == portCount {
			return nil, errors.New("find a free port: nearly all are taken")
		}
		port := firstPort + rand.IntN(portCount)
		if given.ports[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		given.ports[port] = true
		ports = append(ports, port)
	}
	return ports, nil
}
