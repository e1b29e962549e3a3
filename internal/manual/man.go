package manual

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

// page is one man page while it is written.
type page struct{ strings.Builder }

// line writes an instruction of roff, or text that was made safe.
func (p *page) line(format string, args ...any) { fmt.Fprintf(&p.Builder, format+"\n", args...) }

// text makes words safe: nothing in them is an instruction, and a hyphen can be copied into a
// shell.
func text(s string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(s, "\n") {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			b.WriteString(`\&`)
		}
		for _, r := range line {
			switch {
			case r == '\\':
				b.WriteString(`\e`)
			case r == '-':
				b.WriteString(`\-`)
			case r == '\'':
				b.WriteString(`\(aq`)
			case r == '`':
				b.WriteString(`\(ga`)
			case r == '^':
				b.WriteString(`\(ha`)
			case r == '~':
				b.WriteString(`\(ti`)
			case r > '~':
				fmt.Fprintf(&b, `\[u%04X]`, r)
			default:
				b.WriteRune(r)
			}
		}
	}
	return b.String()
}

// sentences puts each sentence on a line of its own, as roff wants it.
func sentences(s string) string { return text(strings.ReplaceAll(s, ". ", ".\n")) }

// lower is a help text as one phrase, which a list of pages shows beside the page's name.
func lower(help string) string {
	first, _, _ := strings.Cut(help, ". ")
	first, _, _ = strings.Cut(first, "; ")
	first = strings.TrimSuffix(first, ".")
	return strings.ToLower(first[:1]) + first[1:]
}

func shown(flags *kingpin.FlagGroupModel) []*kingpin.FlagModel {
	return slices.DeleteFunc(slices.Clone(flags.Flags), func(f *kingpin.FlagModel) bool { return f.Hidden })
}

func (p *page) flags(title string, flags []*kingpin.FlagModel) {
	if len(flags) == 0 {
		return
	}
	p.line(".SH %s", title)
	for _, f := range flags {
		p.line(".TP")
		short, name, value := "", "--"+f.Name, ""
		if f.Short != 0 {
			short = `\fB` + text("-"+string(f.Short)) + `\fR, `
		}
		if f.IsBoolFlag() {
			name = "--[no-]" + f.Name
		} else {
			value = `=\fI` + text(f.FormatPlaceHolder()) + `\fR`
		}
		if f.Name == "help" || f.Name == "version" {
			name = "--" + f.Name
		}
		p.line(`%s\fB%s\fR%s`, short, text(name), value)
		p.line("%s", sentences(f.HelpWithEnvar()))
	}
}

// Man are the man pages of an application by their file names: NAME.1, and NAME-ROOM-COMMAND.1 for
// each command. Version and day stand in their margins.
func Man(app *kingpin.Application, version string, day time.Time) map[string][]byte {
	m := app.Model()
	out := map[string][]byte{}
	commands := slices.DeleteFunc(m.FlattenedCommands(), func(c *kingpin.CmdModel) bool { return c.Hidden || c.Name == "help" })
	begin := func(name, help string) *page {
		p := &page{}
		p.line(`.TH "%s" 1 "%s" "%s %s" "%s"`, text(strings.ToUpper(name)), day.Format(time.DateOnly), m.Name, text(version), m.Name)
		p.line(".SH NAME\n%s \\- %s\n.SH SYNOPSIS", text(name), text(lower(help)))
		return p
	}
	p := begin(m.Name, m.Help)
	p.line(".B %s\n[\\fIflags\\fR]\n\\fIcommand\\fR\n[\\fIflags and arguments\\fR]", text(m.Name))
	p.line(".SH DESCRIPTION\n%s\nEach command has a page of its own.", sentences(m.Help))
	p.line(".SH COMMANDS")
	var pages []string
	for _, c := range commands {
		name := m.Name + "-" + strings.ReplaceAll(c.FullCommand, " ", "-")
		pages = append(pages, `\fB`+text(name)+`\fR(1)`)
		p.line(".TP\n\\fB%s\\fR\n%s", text(c.FullCommand), sentences(c.Help))
		out[name+".1"] = command(begin(name, c.Help), m, c)
	}
	p.flags("OPTIONS", shown(m.FlagGroupModel))
	p.end(pages)
	out[m.Name+".1"] = []byte(p.String())
	return out
}

// command fills the page of one command.
func command(p *page, m *kingpin.ApplicationModel, c *kingpin.CmdModel) []byte {
	p.line(".B %s", text(m.Name+" "+c.FullCommand))
	if len(shown(c.FlagGroupModel)) > 0 {
		p.line(`[\fIflags\fR]`)
	}
	var args []*kingpin.ArgModel
	for _, a := range c.Args {
		if a.Hidden {
			continue
		}
		args = append(args, a)
		if a.Required {
			p.line(`\fI%s\fR`, text(a.Name))
		} else {
			p.line(`[\fI%s\fR]`, text(a.Name))
		}
	}
	p.line(".SH DESCRIPTION\n%s", sentences(c.Help))
	if len(args) > 0 {
		p.line(".SH ARGUMENTS")
	}
	for _, a := range args {
		p.line(".TP\n\\fI%s\\fR\n%s", text(a.Name), sentences(a.HelpWithEnvar()))
	}
	p.flags("OPTIONS", shown(c.FlagGroupModel))
	p.end([]string{`\fB` + text(m.Name) + `\fR(1)`})
	return []byte(p.String())
}

// end writes what all pages end with: the exit codes, and the other pages.
func (p *page) end(others []string) {
	p.line(".SH EXIT STATUS\n0 where all went well, 1 for a failure, 2 for a wrong command line.")
	p.line(".SH SEE ALSO\n%s", strings.Join(others, ",\n"))
}
