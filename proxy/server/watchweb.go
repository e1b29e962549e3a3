package server

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"
)

// webLooks is how often the web configuration is looked at.
const webLooks = 10 * time.Second

var errNoTLS = errors.New("tls_server_config is gone, and the listeners were started with it; bring it back, or restart Spillway to have them without TLS")

// watchWebConfig looks at the web configuration, its certificate and its key each interval, until
// ctx ends, and says once what is wrong with them: exporter-toolkit, which reads them for each
// connection, lets all handshakes fail without a word. What is wrong for no longer than stillFor is
// being written.
func (s *Server) watchWebConfig(ctx context.Context, interval time.Duration) {
	began := s.web.encrypted()
	check := func() string {
		err := checkWebConfig(s.opts.WebConfigFile)
		if err == nil && began && !readWebConfig(s.opts.WebConfigFile).encrypts() {
			err = errNoTLS
		}
		if err != nil {
			return err.Error()
		}
		return ""
	}
	for said := ""; wait(ctx, interval); {
		wrong := check()
		if (wrong == "") == (said == "") { // of several faults each look may name another one
			continue
		}
		if wrong != "" {
			if !wait(ctx, min(stillFor, interval)) {
				return
			}
			if wrong = check(); wrong == "" { // half a file has a fault of its own
				continue
			}
			s.log.Error("the web configuration, its certificate or its key is broken: callers are refused, over TLS without an answer, until it is mended", "err", wrong)
		} else {
			s.log.Info("the web configuration is well again", "file", s.opts.WebConfigFile)
		}
		said = wrong
		s.webBroken.Store(wrong != "")
	}
}

// readWebConfig reads the file; one that is no YAML says nothing.
func readWebConfig(file string) *webConfig {
	c := &webConfig{}
	if yaml.Unmarshal(readWhole(file), c) != nil {
		return &webConfig{}
	}
	return c
}

// webConfigWell tells of the web configuration, where there is one.
type webConfigWell struct{ s *Server }

var descWebConfigWell = prometheus.NewDesc("spillway_web_config_last_reload_successful",
	"1 while --web.config.file, its certificate and its key can be used, else 0: callers are refused then. They are looked at every 10 s. Not there without --web.config.file.",
	nil, nil)

func (webConfigWell) Describe(ch chan<- *prometheus.Desc) { ch <- descWebConfigWell }

func (w webConfigWell) Collect(ch chan<- prometheus.Metric) {
	if w.s.opts.WebConfigFile == "" {
		return
	}
	well := 1.0
	if _, less := w.s.web.look(); less || w.s.webBroken.Load() {
		well = 0
	}
	ch <- prometheus.MustNewConstMetric(descWebConfigWell, prometheus.GaugeValue, well)
}
