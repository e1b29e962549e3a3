// Command gpx_spillway_experiments is the back end of the Grafana datasource
// spillway-experiments-datasource. Grafana starts it.
package main

import (
	"context"
	"os"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/backend/datasource"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/parent"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/plugin"
)

func main() {
	// A Grafana that stops ends its plugins; one that was killed leaves them. The goroutine ends
	// with the process.
	go func() {
		if parent.Wait(context.Background(), parent.Every, os.Getppid) {
			os.Exit(0)
		}
	}()
	if err := datasource.Manage(plugin.ID, plugin.New, datasource.ManageOpts{}); err != nil {
		backend.Logger.Error("the plugin has ended", "error", err)
		os.Exit(1)
	}
}
