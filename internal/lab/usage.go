package lab

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/dashboards"
	"github.com/spillwayproject/spillway/internal/cli"
	"github.com/spillwayproject/spillway/loadtest/usage"
)

// usageCommand writes a usage log of people who do not exist.
func usageCommand(e *cli.Env, parent cli.Clause) func() error {
	c := parent.Command("usage", "Writes a usage log as the proxy would after some time of people with dashboards open and queries typed into Explore: for trying drop rules without waiting for it.")
	out := c.Flag("out", "The file to write.").Short('o').Required().PlaceHolder("usage.jsonl").String()
	folder := c.Flag("dashboards", "A folder of dashboards in the form of this project's; its own by default.").PlaceHolder("DIR").String()
	cluster := c.Flag("cluster", "The cluster that is looked at.").Default("jaguar").String()
	nodes := c.Flag("nodes", "How many nodes it has: gpu-00000 and so on.").Default("80").Int()
	namespaces := c.Flag("namespace", "A namespace that is looked at; may be given several times.").Default("research-nlp", "research-vision").Strings()
	users := c.Flag("users", "How many people there are.").Default("25").Int()
	length := c.Flag("length", "Over how long.").Default("24h").Duration()
	end := c.Flag("end", "When it ends, RFC 3339; now by default.").PlaceHolder("TIME").String()
	seed := c.Flag("seed", "Chooses who looks when.").Default("1").Uint64()
	return func() error {
		o := usage.Options{Cluster: *cluster, Namespaces: *namespaces, Users: *users, End: time.Now(), Length: *length, Seed: *seed}
		var err error
		if *end != "" {
			if o.End, err = time.Parse(time.RFC3339, *end); err != nil {
				return cli.Usage(fmt.Errorf("--end=%s is no RFC 3339 time such as 2026-11-21T06:00:00Z", *end))
			}
		}
		if *nodes < 1 || *nodes > 100_000 {
			return cli.Usage(fmt.Errorf("--nodes=%d is outside 1 to 100,000", *nodes))
		}
		for i := range *nodes {
			o.Nodes = append(o.Nodes, fmt.Sprintf("gpu-%05d", i))
		}
		if o.Dashboards, err = dashboardsOf(*folder); err != nil {
			return err
		}
		lines := 0
		if err := cli.WriteWhole(*out, func(w io.Writer) (err error) {
			lines, err = usage.Write(w, o)
			return err
		}); err != nil {
			return err
		}
		fmt.Fprintf(e.Stdout, "%s in %s\n", cli.Count(lines, "line"), *out)
		return nil
	}
}

// dashboardsOf are the dashboards of a folder, or the project's own.
func dashboardsOf(folder string) (all []*dashboards.Dashboard, err error) {
	if folder == "" {
		for _, name := range dashboards.Names() {
			d, err := dashboards.Load(name)
			if err != nil {
				return nil, err
			}
			all = append(all, d)
		}
		return all, nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("--dashboards: %w", err)
	}
	for _, f := range slices.DeleteFunc(entries, func(f os.DirEntry) bool { return !strings.HasSuffix(f.Name(), ".json") }) {
		text, err := os.ReadFile(filepath.Join(folder, f.Name()))
		if err != nil {
			return nil, err
		}
		d, err := dashboards.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(folder, f.Name()), err)
		}
		all = append(all, d)
	}
	return all, nil
}
