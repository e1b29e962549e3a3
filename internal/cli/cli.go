package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/spillwayproject/spillway/internal/nearest"
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
	if flag, ok := strings.CutPrefix(err.Error(), "unknown long flag '--"); ok {
		if meant := flagMeant(app, c.SelectedCommand, strings.TrimSuffix(flag, "'")); meant != "" {
			return fmt.Errorf("%w; did you mean --%s? See %s", err, meant, help)
		}
	}
	return fmt.Errorf("%w; see %s", err, help)
}

// flagMeant is the flag, of the application or of the chosen command, that an unknown one was
// perhaps meant to be: one that is spelled nearly so, or the one that begins so. It is empty where
// there is none.
func flagMeant(app *kingpin.Application, chosen *kingpin.CmdClause, flag string) string {
	flags := app.Model().Flags
	if chosen != nil {
		flags = append(flags, chosen.Model().Flags...)
	}
	var names, begin []string
	for _, f := range flags {
		if f.Hidden {
			continue
		}
		names = append(names, f.Name)
		if strings.HasPrefix(f.Name, flag) {
			begin = append(begin, f.Name)
		}
	}
	near := nearest.Of(strings.TrimPrefix(flag, "no-"), names, max(1, min(3, len(flag)/3)))
	if near == "" && len(begin) == 1 {
		return begin[0]
	}
	return near
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
