package cli

import (
	"fmt"

	mixin "github.com/spillwayproject/spillway/jsonnet"
)

// mixinRenderCommand writes the alerts, rules and dashboards as files.
func mixinRenderCommand(e *Env, parent Clause) func() error {
	c := parent.Command("render", "Writes alerts, recording rules and dashboards as files, with your values in place of the defaults.")
	out := c.Flag("out", "The folder to write into; it is made where it is missing. Generated files that are no longer rendered are removed from it.").Required().PlaceHolder("DIR").String()
	file := c.Flag("config", "A JSON, YAML or jsonnet file with values that stand in place of those of jsonnet/config.libsonnet.").PlaceHolder("FILE").String()
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
