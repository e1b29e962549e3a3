package server

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
)

// maxNotes is how many warnings, and how many infos, an answer of Prometheus has; of more it says
// the number only.
const maxNotes = 10

// exactNotes are what an answer says beside its data.
type exactNotes struct{ warnings, infos []string }

// readNotes reads them from a successful answer.
func readNotes(body []byte) (exactNotes, error) {
	var env struct{ Warnings, Infos []string }
	err := json.Unmarshal(body, &env)
	return exactNotes{env.Warnings, env.Infos}, err
}

// notePlace is what a note says of the place and the extent, which follow from where an expression
// is evaluated.
var notePlace = regexp.MustCompile(`, from buckets .*| \(\d+:\d+\)$`)

// plainNotes are the texts without that, each once.
func plainNotes(notes []string) []string {
	var out []string
	for _, n := range notes {
		out = append(out, notePlace.ReplaceAllString(n, ""))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// differ says where one class of notes is not the same; empty where they are. Of more than maxNotes
// the engine itself chooses by chance, so only that there are some is compared then.
func (n exactNotes) differ(want exactNotes) string {
	for _, c := range []struct {
		class     string
		got, want []string
	}{{"warnings", n.warnings, want.warnings}, {"infos", n.infos, want.infos}} {
		same := slices.Equal(plainNotes(c.got), plainNotes(c.want))
		if len(c.got) > maxNotes || len(c.want) > maxNotes {
			same = len(c.got) > 0 && len(c.want) > 0
		}
		if !same {
			return fmt.Sprintf("it has the %s %q, but ought to have %q", c.class, c.got, c.want)
		}
	}
	return ""
}
