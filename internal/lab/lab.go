package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/alecthomas/kingpin/v2"

	"github.com/spillwayproject/spillway/internal/cli"
)

// Laboratory is the laboratory's command line.
var Laboratory = cli.Program{
	Name: "spillway-lab", Help: "Spillway's laboratory: a demo over a simulated GPU cluster, and what queries do to real Prometheus servers.",
	Rooms: append([]cli.Room{
		{Commands: map[string]cli.Command{"demo": demoCommand}},
		{Name: "loadtest", Help: "Shows what queries do to real Prometheus servers.", Commands: map[string]cli.Command{
			"dashboards": dashboardsCommand, "mix": mixCommand, "oom": oomCommand, "plugin": loadPluginCommand,
			"relabel": loadRelabelCommand, "rules": rulesCommand, "storm": stormCommand, "usage": usageCommand,
		}},
	}, product()...),
}

// product are the product's commands, for the processes that load tests start.
func product() []cli.Room {
	rooms := slices.Clone(cli.Rooms)
	for i := range rooms {
		rooms[i].Hidden = true
	}
	return rooms
}

// spillwayFlag declares which spillway a load test starts as the proxy; where the flag is not given
// it is the one beside this program, and without one this program itself.
func spillwayFlag(c *kingpin.CmdClause) func() (string, error) {
	named := c.Flag("spillway", "The spillway that is started; by default the one beside this program, or this program itself.").PlaceHolder("FILE").String()
	return func() (string, error) {
		if *named != "" {
			return *named, nil
		}
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find the program, which is run as the proxy: %w", err)
		}
		beside := filepath.Join(filepath.Dir(self), "spillway")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return beside, nil
		}
		return self, nil
	}
}
