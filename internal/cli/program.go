package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	promslogflag "github.com/prometheus/common/promslog/flag"
	"github.com/prometheus/common/version"
)

// Program is a command line: its name, and its commands in rooms.
type Program struct {
	// Name is what it is called.
	Name string
	// Help is one sentence.
	Help string
	// Rooms are its commands.
	Rooms []Room
	// Moved are first words that another program takes now, with the sentence that says so.
	Moved map[string]string
}

// Room is a group of commands behind one word, or behind none where Name is empty.
type Room struct {
	Name, Help string
	// Hidden leaves the commands out of the help: they are for processes that the program starts.
	Hidden   bool
	Commands map[string]Command
}

// Command is one word of the command line: it declares its flags under the parent and returns what
// runs.
type Command func(e *Env, parent Clause) func() error

// Clause is what commands hang on: the application or a parent command.
type Clause interface {
	Command(name, help string) *kingpin.CmdClause
}

// hidden hangs commands on a parent that does not show them.
type hidden struct{ Clause }

// Command implements Clause.
func (h hidden) Command(name, help string) *kingpin.CmdClause {
	return h.Clause.Command(name, help).Hidden()
}

// Env is what a command runs in.
type Env struct {
	// Ctx ends the command in good order, Force at once.
	Ctx, Force     context.Context
	Stdout, Stderr io.Writer
	App            *kingpin.Application
	LogConfig      *promslog.Config
	// Args is the command line: the parser takes an argument "-" for an empty one.
	Args []string
	// LogLevelSet tells whether the caller has chosen how much is logged.
	LogLevelSet bool
	// Flags are those of the application and of the command, with the values in force.
	Flags map[string]string
}

// Logger is the process' log, on Stderr.
func (e *Env) Logger() *slog.Logger {
	c := *e.LogConfig
	c.Writer = e.Stderr
	return promslog.New(&c)
}

// errUsage is an error of the command line: exit code 2.
type errUsage struct{ error }

// Usage makes an error one of the command line, whose exit code is 2. Nil stays nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return errUsage{err}
}

// errUnchecked is a check that could not be made, which is neither passed nor failed: exit code 2.
type errUnchecked struct{ error }

// errQuiet is an exit code 1 whose reason was printed already.
var errQuiet = errors.New("")

// Main is Run for a whole process: the first SIGINT or SIGTERM ends the command in good order, the
// second at once. It returns the exit code.
func (p Program) Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	force, now := context.WithCancel(context.Background())
	defer now()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() { // ends with the process
		stop(named(<-signals))
		<-signals
		now()
	}()
	return p.Run(ctx, force, args, stdout, stderr)
}

// signalled is the cause of an end that a signal asked for: its name.
type signalled string

func (s signalled) Error() string { return string(s) }

// Is has it be a cancellation like any other.
func (signalled) Is(target error) bool { return target == context.Canceled }

func named(s os.Signal) signalled {
	if s == os.Interrupt {
		return "SIGINT"
	}
	return "SIGTERM"
}

// Run runs one command line and returns the exit code: 0, 1 for a failure, 2 for a wrong command
// line. The first context ends the command in good order, the second at once.
func (p Program) Run(ctx, force context.Context, args []string, stdout, stderr io.Writer) int {
	fail := func(code int, err error) int {
		fmt.Fprintf(stderr, "%s: %s\n", p.Name, err)
		return code
	}
	// The flags of what has moved are not declared here: its word is looked for before they are
	// parsed.
	if first := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") }); first >= 0 &&
		p.Moved[args[first]] != "" {
		return fail(2, errors.New(p.Moved[args[first]]))
	}
	e, runs := p.Declare(ctx, force, stdout, stderr)
	parsed, exit, err := parse(e.App, args)
	switch {
	case exit >= 0: // --help or --version
		return exit
	case err != nil:
		// The word is not the first without a dash where a flag before it has its value apart.
		quoted, _ := strings.CutPrefix(err.Error(), notServed)
		if word, _ := strconv.Unquote(quoted); p.Moved[word] != "" {
			return fail(2, errors.New(p.Moved[word]))
		}
		return fail(2, advise(e.App, args, err, p.served()))
	}
	e.Args = args
	e.LogLevelSet = slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--log.level") })
	e.Flags = flagValues(e.App, parsed)
	err = runs[parsed]()
	var usage errUsage
	var unchecked errUnchecked
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage), errors.As(err, &unchecked):
		return fail(2, err)
	case errors.Is(err, errQuiet):
		return 1
	}
	return fail(1, err)
}

// served are the commands that people may type, sorted.
func (p Program) served() (all []string) {
	for _, r := range p.Rooms {
		for name := range r.Commands {
			if !r.Hidden {
				all = append(all, strings.TrimSpace(r.Name+" "+name))
			}
		}
	}
	slices.Sort(all)
	return all
}

// Declare gives the application with all its commands, and by their full names what each of them
// runs.
func (p Program) Declare(ctx, force context.Context, stdout, stderr io.Writer) (*Env, map[string]func() error) {
	app := kingpin.New(p.Name, p.Help).UsageWriter(stdout).ErrorWriter(stderr)
	app.Version(version.Print(p.Name))
	app.HelpFlag.Short('h')
	e := &Env{Ctx: ctx, Force: force, Stdout: stdout, Stderr: stderr, App: app, LogConfig: &promslog.Config{}}
	promslogflag.AddFlags(app, e.LogConfig)
	runs := map[string]func() error{}
	for _, r := range p.Rooms {
		var parent Clause = app
		if r.Hidden {
			parent = hidden{parent}
		}
		if r.Name != "" {
			parent = parent.Command(r.Name, r.Help)
		}
		if r.Hidden {
			parent = hidden{parent}
		}
		for _, name := range slices.Sorted(maps.Keys(r.Commands)) {
			runs[strings.TrimSpace(r.Name+" "+name)] = r.Commands[name](e, parent)
		}
	}
	return e, runs
}
