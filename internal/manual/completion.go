package manual

import (
	"bytes"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// fish asks the program as kingpin's scripts for bash and zsh do. Where it knows nothing, a file is
// meant: -f alone would offer none.
const fish = `# Completions of NAME for fish, which the program itself answers.
function __NAME_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l found ($words[1] --completion-bash $words[2..-1] "$current" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path "$current"
    end
end
complete -c NAME -f -a '(__NAME_complete)'
`

// zsh is what kingpin's script lacks: zsh loads it at the first TAB, which then only defines the
// function, and completes nothing.
const zsh = `
if [[ "$funcstack[1]" == "_NAME" ]]; then
    _NAME "$@"
fi
`

// Completions are the scripts of an application by their paths: in folders by shell, each called as
// its shell looks for it. The writer of the application's usage is another one afterwards.
func Completions(app *kingpin.Application) (map[string][]byte, error) {
	out := map[string][]byte{"fish/" + app.Name + ".fish": []byte(strings.ReplaceAll(fish, "NAME", app.Name))}
	for path, template := range map[string]string{
		"bash/" + app.Name: kingpin.BashCompletionTemplate,
		"zsh/_" + app.Name: kingpin.ZshCompletionTemplate + strings.ReplaceAll(zsh, "NAME", app.Name),
	} {
		c, err := app.ParseContext(nil)
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		if err := app.UsageWriter(&b).UsageForContextWithTemplate(c, 0, template); err != nil {
			return nil, err
		}
		out[path] = append(bytes.TrimSpace(b.Bytes()), '\n')
	}
	return out, nil
}
