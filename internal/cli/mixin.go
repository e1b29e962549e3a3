package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spillwayproject/spillway/internal/canary"
	mixin "github.com/spillwayproject/spillway/jsonnet"
	"github.com/spillwayproject/spillway/relabel/uses"
)

const mixinConfigHelp = "A JSON, YAML or jsonnet file with values that stand in place of those of jsonnet/config.libsonnet."

// mixinRenderCommand writes the alerts, rules and dashboards as files.
func mixinRenderCommand(e *Env, parent Clause) func() error {
	c := parent.Command("render", "Writes alerts, recording rules and dashboards as files, with your values in place of the defaults.")
	out := c.Flag("out", "The folder to write into; it is made where it is missing. Generated files that are no longer rendered are removed from it.").Required().PlaceHolder("DIR").String()
	file := c.Flag("config", mixinConfigHelp).PlaceHolder("FILE").String()
	format := c.Flag("format", "files: rule files and dashboards; k8s: PrometheusRule, ConfigMap and GrafanaDashboard objects. One of: [files, k8s]").
		Default(string(mixin.FormatFiles)).Enum(string(mixin.FormatFiles), string(mixin.FormatK8s))
	return func() error {
		files, err := mixin.Render(mixin.Options{Config: *file, Format: mixin.Format(*format)})
		if err != nil {
			return err
		}
		if err := files.Write(*out); err != nil {
			return err
		}
		fmt.Fprintf(e.Stdout, "%s in %s\n", Count(len(files), "file"), *out)
		return nil
	}
}

// mixinCanaryCommand asks for what alerts, rules and dashboards look at.
func mixinCanaryCommand(e *Env, parent Clause) func() error {
	c := parent.Command("canary", "Asks for everything that alerts, recording rules and dashboards look at, and says what is no longer there: an alert whose series are gone is quiet, and looks well. Exit code 1 where something is gone or could not be asked.")
	url := c.Flag("url", "The Prometheus HTTP API that is asked: the proxy, or one server that has everything.").Default("http://127.0.0.1:9090").String()
	httpConfig := c.Flag("http.config.file", "How to reach it: TLS, credentials and proxies, in Prometheus' http_config form.").PlaceHolder("FILE").String()
	rules := c.Flag("rules", "Rule files, or a folder of them, in place of the mixin's; may be given several times.").PlaceHolder("PATH").Strings()
	dashboards := c.Flag("dashboards", "Dashboards, or a folder of them, in place of the mixin's; may be given several times.").PlaceHolder("PATH").Strings()
	file := c.Flag("config", mixinConfigHelp+" Without --rules and --dashboards.").PlaceHolder("FILE").String()
	clusterLabel := c.Flag("cluster-label", "Label that tells clusters apart, each of which is looked at by itself; empty for one cluster.").Default("cluster").String()
	all := c.Flag("all", "Also list what was never there, and what is there at times.").Bool()
	format := c.Flag("format", "text or json.").Default("text").Enum("text", "json")
	textfile := c.Flag("textfile", "Also write metrics for node_exporter's textfile collector to this file.").PlaceHolder("FILE").String()
	timeout := c.Flag("timeout", "How long all of it may take.").Default("15m").Duration()
	return func() error {
		if *file != "" && len(*rules)+len(*dashboards) > 0 {
			return errUsage{errors.New("--config is about the mixin, which is not asked for where --rules or --dashboards are given")}
		}
		if *timeout < time.Second {
			return errUsage{fmt.Errorf("--timeout=%s is no time to ask anything: give a second or more", *timeout)}
		}
		if *textfile != "" { // before hundreds of questions
			if err := writable(*textfile); err != nil {
				return fmt.Errorf("--textfile=%s cannot be written: %w", *textfile, err)
			}
		}
		set, err := canaryUses(*file, *rules, *dashboards)
		if err != nil {
			return err
		}
		for _, w := range set.Warnings {
			fmt.Fprintf(e.Stderr, "warning: %s\n", w)
		}
		hc, err := apiClient("--http.config.file", *httpConfig, "spillway-canary")
		if err != nil {
			return err
		}
		defer hc.CloseIdleConnections()
		o := canary.Options{Uses: set, Now: time.Now(), ClusterLabel: *clusterLabel, Within: *timeout}
		if o.API, err = canary.NewAPI(*url, hc); err != nil {
			return errUsage{err}
		}
		r, err := canary.Run(e.Ctx, o)
		if err != nil {
			return err
		}
		if *format == "json" {
			err = r.WriteJSON(e.Stdout)
		} else {
			err = r.WriteText(e.Stdout, *all)
		}
		if *textfile != "" && r.Blind() == "" {
			err = errors.Join(err, WriteWhole(*textfile, r.WriteMetrics))
		}
		return errors.Join(err, r.Err())
	}
}

// writable says why WriteWhole could not write the file.
func writable(file string) error {
	if st, err := os.Stat(file); err == nil && st.IsDir() {
		return errors.New("it is a folder")
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".spillway-*")
	if err != nil {
		var why *fs.PathError
		if errors.As(err, &why) { // the name of the file that was tried says nothing
			return fmt.Errorf("%s: %w", filepath.Dir(file), why.Err)
		}
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// canaryUses are what the files look at; without any, what the mixin does.
func canaryUses(config string, rules, dashboards []string) (*uses.Set, error) {
	set := new(uses.Set)
	if len(rules)+len(dashboards) == 0 {
		files, err := mixin.Render(mixin.Options{Config: config})
		if err != nil {
			return nil, err
		}
		dir, err := os.MkdirTemp("", "spillway-canary-")
		if err != nil {
			return nil, fmt.Errorf("what the mixin looks at is written to a temporary directory first: %w; set TMPDIR to one that can be written", err)
		}
		defer os.RemoveAll(dir)
		if err := files.Write(dir); err != nil {
			return nil, err
		}
		rules, dashboards = []string{filepath.Join(dir, "alerts")}, []string{filepath.Join(dir, "dashboards")}
	}
	var errs []error
	for _, path := range rules {
		errs = append(errs, uses.Rules(set, path))
	}
	for _, path := range dashboards {
		errs = append(errs, uses.Dashboards(set, path))
	}
	return set, errors.Join(errs...)
}
