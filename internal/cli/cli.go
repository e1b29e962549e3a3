package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// Spillway is the product's command line.
var Spillway = Program{
	Name: "spillway", Help: "Keeps Prometheus standing when people look at it.", Rooms: Rooms,
	Moved: map[string]string{
		"demo":     "the demo is in the laboratory now: spillway-lab demo (go run ./cmd/spillway-lab demo)",
		"loadtest": "load tests are in the laboratory now: spillway-lab loadtest (go run ./cmd/spillway-lab loadtest)",
	},
}

// Rooms are the product's commands.
var Rooms = []Room{
	{Commands: map[string]Command{
		"adopt": adoptCommand, "cost": costCommand, "explain": explainCommand, "proxy": proxyCommand, "usage": usageCommand,
		"version": versionCommand,
	}},
	{Name: "check", Help: "Checks files before they are used.", Commands: map[string]Command{"config": checkConfigCommand}},
	{Name: "mixin", Help: "Alerts, recording rules and dashboards.", Commands: map[string]Command{
		"canary": mixinCanaryCommand, "render": mixinRenderCommand,
	}},
	{Name: "relabel", Help: "Drop rules, made from what is looked at and proven harmless.", Commands: map[string]Command{
		"diff": relabelDiffCommand, "emit": relabelEmitCommand, "plan": relabelPlanCommand, "report": relabelReportCommand,
		"verify": relabelVerifyCommand,
	}},
	{Name: "rehearse", Help: "Tries a change before it is made.", Commands: map[string]Command{"upgrade": rehearseUpgradeCommand}},
}

// notServed is what kingpin says before a word that is no command, quoted.
const notServed = "expected command but got "

// printed is the exit code with which kingpin wants to end the process after --help or --version.
type printed int

// parse parses the command line. exit is the exit code where --help or --version was all that was
// wanted, else -1. kingpin believes that Terminate does not return, and prints its help a second
// time where it does; so it is left by a panic that goes no further than this function.
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

// advise says what is wrong with a command line that kingpin does not take, and what to write
// instead. kingpin's own sentences do not say which flag a value was for, nor which commands there
// are.
func advise(app *kingpin.Application, args []string, err error, served []string) error {
	// kingpin tells no kinds of errors apart, so the line is looked at once more. This parse sets
	// no values.
	c, _ := app.ParseContext(args)
	if c == nil {
		return fmt.Errorf("%w; see %s --help", err, app.Name)
	}
	help := app.Name + " --help"
	if c.SelectedCommand != nil {
		help = app.Name + " " + c.SelectedCommand.FullCommand() + " --help"
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
	if word, ok := strings.CutPrefix(err.Error(), notServed); ok {
		return fmt.Errorf("there is no command %s; there are: %s", word, strings.Join(served, ", "))
	}
	if parent, ok := strings.CutPrefix(err.Error(), "must select a subcommand of "); ok {
		parent = strings.Trim(parent, "'")
		return fmt.Errorf("%s takes one more word: %s", parent,
			strings.Join(slices.DeleteFunc(served, func(s string) bool { return !strings.HasPrefix(s, parent+" ") }), ", "))
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
