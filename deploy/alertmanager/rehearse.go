package alertmanager

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/internal/realprom"
)

// Config is alertmanager.yml.
//
//go:embed alertmanager.yml
var Config []byte

const (
	// minWait is the shortest group_interval and repeat_interval of a rehearsal: Alertmanager
	// refuses zero.
	minWait = 50 * time.Millisecond
	// startTimeout bounds the start where ctx has no earlier end.
	startTimeout = 30 * time.Second
)

// Rehearsal returns the configuration conf with every receiver replaced by one webhook of the same
// name at base + "/" + name, which is told of resolved alerts too, and with every wait
// (resolve_timeout, group_wait, group_interval, repeat_interval) divided by timeScale, which must
// be 1 or more. Waits do not get shorter than 50 ms, but for a group_wait, which may be 0. base
// must be an http URL without a slash at the end.
func Rehearsal(conf []byte, base string, timeScale float64) ([]byte, error) {
	if !(timeScale >= 1) { // NaN too
		return nil, fmt.Errorf("time scale %v: must be 1 or more", timeScale)
	}
	if u, err := url.Parse(base); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.HasSuffix(base, "/") {
		return nil, fmt.Errorf("base %q: must be a URL like http://127.0.0.1:8080, without a slash at the end", base)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(conf, &doc); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	receivers, ok := doc["receivers"].([]any)
	if !ok {
		return nil, errors.New("the configuration has no list of receivers")
	}
	for i, r := range receivers {
		m, _ := r.(map[string]any)
		name, _ := m["name"].(string)
		if name == "" {
			return nil, fmt.Errorf("receivers[%d] has no name", i)
		}
		receivers[i] = map[string]any{
			"name":            name,
			"webhook_configs": []any{map[string]any{"url": base + "/" + url.PathEscape(name), "send_resolved": true}},
		}
	}
	if err := scaleWaits(doc, timeScale); err != nil {
		return nil, err
	}
	return yaml.Marshal(doc)
}

// scaleWaits divides the waits of a configuration and of all its routes.
func scaleWaits(node any, by float64) error {
	switch n := node.(type) {
	case []any:
		for _, v := range n {
			if err := scaleWaits(v, by); err != nil {
				return err
			}
		}
	case map[string]any:
		for k, v := range n {
			switch k {
			case "group_wait", "group_interval", "repeat_interval", "resolve_timeout":
				text := fmt.Sprint(v)
				d, err := model.ParseDuration(text)
				if err != nil {
					return fmt.Errorf("%s: %w", k, err)
				}
				scaled := time.Duration(float64(d) / by)
				if k != "group_wait" {
					scaled = max(scaled, minWait)
				}
				n[k] = model.Duration(scaled.Truncate(time.Millisecond)).String()
			default:
				if err := scaleWaits(v, by); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Find returns the path of a program of the package prometheus-alertmanager: amtool, or
// prometheus-alertmanager, which upstream calls alertmanager. The error says how to install it.
func Find(names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not on the PATH: run tools/debian.sh alertmanager, or put Alertmanager 0.25 or later there", names[0])
}

// Server is a running Alertmanager.
type Server struct {
	*realprom.Process
	url  string
	temp string
}

// URL is where the API is served, without a slash at the end.
func (s *Server) URL() string { return s.url }

// Stop ends it, and removes its configuration and data. It may be called more than once.
func (s *Server) Stop() error { return errors.Join(s.Process.Stop(), os.RemoveAll(s.temp)) }

// Start starts a real Alertmanager with the configuration conf on a free port of 127.0.0.1 and
// returns when it is ready. ctx bounds the start, not the server: that ends with Stop, which must
// be called. args are added to its command line.
func Start(ctx context.Context, conf []byte, args ...string) (_ *Server, err error) {
	bin, err := Find("prometheus-alertmanager", "alertmanager")
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "alertmanager-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for alertmanager: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp))
		}
	}()
	file := filepath.Join(temp, "alertmanager.yml")
	if err := os.WriteFile(file, conf, 0o600); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	proc, at, err := realprom.StartOnPorts(ctx,
		realprom.PortOptions{Name: "alertmanager", Path: bin, Ports: 1, Timeout: startTimeout, Args: func(at []string) []string {
			return append([]string{
				"--config.file=" + file, "--storage.path=" + filepath.Join(temp, "data"), "--cluster.listen-address=",
				"--web.listen-address=" + at[0],
			}, args...)
		}})
	if err != nil {
		return nil, err
	}
	return &Server{Process: proc, url: "http://" + at[0], temp: temp}, nil
}

// Check runs amtool check-config over conf; the error has what it says.
func Check(ctx context.Context, conf []byte) error {
	bin, err := Find("amtool")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "amtool-")
	if err != nil {
		return fmt.Errorf("make a folder for amtool: %w", err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "alertmanager.yml")
	if err := os.WriteFile(file, conf, 0o600); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	if out, err := exec.CommandContext(ctx, bin, "check-config", file).CombinedOutput(); err != nil {
		return fmt.Errorf("amtool check-config: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
