package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
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

// errUsage is an error of the command line: exit code 2.
type errUsage struct{ error }

// errUnchecked is a check that could not be made, which is neither passed nor failed: exit code 2.
type errUnchecked struct{ error }

// errQuiet is an exit code 1 whose reason was printed already.
var errQuiet = errors.New("")

// Run runs one command line and returns the exit code: 0, 1 for a failure, 2 for a wrong command line. The first context ends the command in good order,
// the second at once.
func Run(ctx, force context.Context, args []string, stdout, stderr io.Writer) int {
	e, runs := declare(ctx, force, stdout, stderr)
	app := e.app
	served := slices.Sorted(maps.Keys(runs))

	parsed, exit, err := parse(app, args)
	switch {
	case exit >= 0: // --help or --version
		return exit
	case err != nil:
		err = advise(app, args, err, served)
	}
	if err != nil {
		fmt.Fprintf(stderr, "spillway: %s\n", err)
		return 2
	}
	e.logLevelSet = slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--log.level") })
	e.flags = flagValues(app, parsed)
	err = runs[parsed]()
	var usage errUsage
	var unchecked errUnchecked
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage), errors.As(err, &unchecked):
		fmt.Fprintf(stderr, "spillway: %s\n", err)
		return 2
	case errors.Is(err, errQuiet):
		return 1
	}
	fmt.Fprintf(stderr, "spillway: %s\n", err)
	return 1
}

// declare gives the application with all its commands, and what each of them runs.
func declare(ctx, force context.Context, stdout, stderr io.Writer) (*env, map[string]func() error) {
	app := kingpin.New("spillway", "Keeps Prometheus standing when people look at it.").UsageWriter(stdout).ErrorWriter(stderr)
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
	add(app, "", map[string]command{"cost": costCommand, "demo": demoCommand, "explain": explainCommand, "proxy": proxyCommand, "version": versionCommand})
	check := app.Command("check", "Checks files before they are used.")
	add(check, "check", map[string]command{"config": checkConfigCommand})
	load := app.Command("loadtest", "Shows what queries do to real Prometheus servers.")
	add(load, "loadtest", map[string]command{"dashboards": dashboardsCommand, "mix": mixCommand, "oom": oomCommand, "plugin": loadPluginCommand, "relabel": loadRelabelCommand, "rules": rulesCommand, "usage": usageCommand})
	mix := app.Command("mixin", "Alerts, recording rules and dashboards.")
	add(mix, "mixin", map[string]command{"render": mixinRenderCommand})
	drop := app.Command("relabel", "Drop rules, made from what is looked at and proven harmless.")
	add(drop, "relabel", map[string]command{
		"diff": relabelDiffCommand, "emit": relabelEmitCommand, "plan": relabelPlanCommand, "report": relabelReportCommand, "verify": relabelVerifyCommand,
	})
	return e, runs
}

// printed is the exit code with which kingpin wants to end the process after --help or --version.
type printed int

// parse parses the command line. exit is the exit code where --help or --version was all that was wanted, else -1. kingpin believes that Terminate does
// not return, and prints its help a second time where it does; so it is left by a panic that goes no further than this function.
func parse(app *kingpin.Application, args []string) (command string, exit int, err error) {
	defer func() {
		if p := recover(); p != nil {
			code, ok := p.(printed)
			if !ok {
				panic(p)
			}
			exit = int(code)
		}
	}()
	app.Terminate(func(code int) { panic(printed(code)) })
	command, err = app.Parse(args)
	return command, -1, err
}

// advise says what is wrong with a command line that kingpin does not take, and what to write instead. kingpin's own sentences do not say which flag a
// value was for, nor which commands there are.
func advise(app *kingpin.Application, args []string, err error, served []string) error {
	// kingpin tells no kinds of errors apart, so the line is looked at once more. This parse sets no values.
	c, _ := app.ParseContext(args)
	if c == nil {
		return fmt.Errorf("%w; see spillway --help", err)
	}
	help := "spillway --help"
	if c.SelectedCommand != nil {
		help = "spillway " + c.SelectedCommand.FullCommand() + " --help"
	}
	for _, el := range c.Elements {
		f, ok := el.Clause.(*kingpin.FlagClause)
		if !ok || el.Value == nil {
			continue
		}
		m := f.Model()
		bad := m.Value.Set(*el.Value)
		if bad == nil {
			continue
		}
		var number *strconv.NumError
		if errors.As(bad, &number) {
			bad = errors.New("it takes a number")
		} else if _, list, ok := strings.Cut(m.Help, "One of: ["); ok {
			bad = errors.New("it takes one of " + strings.TrimSuffix(list, "]"))
		}
		return fmt.Errorf("--%s=%s: %w; see %s", m.Name, *el.Value, bad, help)
	}
	if word, ok := strings.CutPrefix(err.Error(), "expected command but got "); ok {
		return fmt.Errorf("there is no command %s; there are: %s", word, strings.Join(served, ", "))
	}
	if parent, ok := strings.CutPrefix(err.Error(), "must select a subcommand of "); ok {
		parent = strings.Trim(parent, "'")
		return fmt.Errorf("%s takes one more word: %s", parent, strings.Join(slices.DeleteFunc(served, func(s string) bool { return !strings.HasPrefix(s, parent+" ") }), ", "))
	}
	return fmt.Errorf("%w; see %s", err, help)
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
