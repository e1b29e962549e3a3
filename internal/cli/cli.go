package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	promslogflag "github.com/prometheus/common/promslog/flag"
	"github.com/prometheus/common/version"
)

// env is what a command runs in.
type env struct {
	ctx, force     context.Context
	stdout, stderr io.Writer
	app            *kingpin.Application
	logConfig      *promslog.Config
	flags          map[string]string // values in force, for status/flags
	logLevelSet    bool
}

func (e *env) logger() *slog.Logger {
	c := *e.logConfig
	c.Writer = e.stderr
	return promslog.New(&c)
}

// command is one word of the command line: it declares its flags and returns what runs.
type command func(e *env, parent clause) func() error

// clause is what commands hang on: the application or a parent command.
type clause interface {
	Command(name, help string) *kingpin.CmdClause
}

// later are the commands that the project has a place for and this version does not serve.
var later = map[string]string{
	"explain": "shows the plan of a query",
	"relabel": "generates drop rules and proves them harmless",
	"mixin":   "renders alerts, rules and dashboards",
	"cost":    "tables of who costs what",
}

// errUsage is an error of the command line: exit code 2.
type errUsage struct{ error }

// errQuiet is an exit code 1 whose reason was printed already.
var errQuiet = errors.New("")

// Run runs one command line and returns the exit code: 0, 1 for a failure, 2 for a wrong command line. The first context ends the command in good order,
// the second at once.
func Run(ctx, force context.Context, args []string, stdout, stderr io.Writer) int {
	app := kingpin.New("spillway", "Keeps Prometheus standing when people look at it.").UsageWriter(stdout).ErrorWriter(stderr)
	exit := -1
	app.Terminate(func(code int) { exit = code })
	app.Version(version.Print("spillway"))
	app.HelpFlag.Short('h')
	e := &env{ctx: ctx, force: force, stdout: stdout, stderr: stderr, app: app, logConfig: &promslog.Config{}}
	promslogflag.AddFlags(app, e.logConfig)

	runs := map[string]func() error{}
	add := func(parent clause, prefix string, commands map[string]command) {
		for _, name := range slices.Sorted(maps.Keys(commands)) {
			runs[strings.TrimSpace(prefix+" "+name)] = commands[name](e, parent)
		}
	}
	add(app, "", map[string]command{"demo": demoCommand, "proxy": proxyCommand})
	check := app.Command("check", "Checks files before they are used.")
	add(check, "check", map[string]command{"config": checkConfigCommand})
	load := app.Command("loadtest", "Shows what queries do to real Prometheus servers.")
	add(load, "loadtest", map[string]command{"oom": oomCommand})
	for _, name := range slices.Sorted(maps.Keys(later)) {
		c := app.Command(name, later[name]+" (not in this version)").Hidden()
		c.Arg("args", "").Strings()
		runs[name] = func() error {
			return errUsage{fmt.Errorf("this version of spillway does not have the command %s yet (it %s)", name, later[name])}
		}
	}

	parsed, err := app.Parse(args)
	if exit >= 0 { // --help or --version
		return exit
	}
	if err != nil {
		fmt.Fprintf(stderr, "spillway: %s; see spillway --help\n", err)
		return 2
	}
	e.logLevelSet = slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--log.level") })
	e.flags = flagValues(app, parsed)
	err = runs[parsed]()
	var usage errUsage
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "spillway: %s\n", err)
		return 2
	case errors.Is(err, errQuiet):
		return 1
	}
	fmt.Fprintf(stderr, "spillway: %s\n", err)
	return 1
}

// flagValues are the flags of the application and of the chosen command with the values in force.
func flagValues(app *kingpin.Application, command string) map[string]string {
	out := map[string]string{}
	take := func(flags []*kingpin.FlagModel) {
		for _, f := range flags {
			if f.Hidden || f.Name == "help" || f.Name == "version" {
				continue
			}
			out[f.Name] = f.Value.String()
		}
	}
	m := app.Model()
	take(m.Flags)
	for _, c := range m.Commands {
		if c.Name == strings.Fields(command)[0] {
			take(c.Flags)
		}
	}
	return out
}
