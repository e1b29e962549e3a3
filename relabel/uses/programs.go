package uses

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spillwayproject/spillway/internal/plainfile"
)

// forPeople are the extensions of texts for people, which show calls that nobody makes.
var forPeople = []string{".md", ".mdx", ".rst", ".adoc", ".html", ".txt", ".csv", ".svg", ".ipynb", ".prom"}

// sources are the extensions of programs' sources: they quote rules and queries, and all that they
// name would be nearly all that there is.
var sources = []string{
	".go", ".ts", ".tsx", ".js", ".jsx", ".mjs", ".java", ".kt", ".scala", ".rs", ".c", ".cc", ".cpp", ".h", ".cs", ".swift",
	".jsonnet", ".libsonnet",
}

// templates are the extensions of what other programs make dashboards and rules of.
var templates = []string{
	".tpl", ".tftpl", ".tmpl", ".gotmpl", ".j2", ".jinja", ".jinja2", ".erb", ".mustache", ".hbs",
	".cue", ".hcl", ".tf", ".tfvars", ".bicep", ".toml", ".json5", ".jsonc",
}

// asksInTemplate finds what rules and dashboards have, on whichever line.
var asksInTemplate = regexp.MustCompile(`\bexpr["']?\s*[:=]|"panels"\s*:|"targets"\s*:\s*\[?\s*[^\s\["']`)

// seemsToAsk finds what rules have, and, in other languages than YAML, other queries.
var seemsToAsk = regexp.MustCompile(`(?m)^\s*(- )?expr:\s|\bexpr"?\s*=|"expr"\s*:|["']match\[\]["']|\b(?i:promql)"?\s*[=:]`)

// queryInCode finds a text behind expr in a program's source: Target(expr='…') of grafanalib,
// .expr("…") of the builders of Grafana's foundation SDK.
var queryInCode = regexp.MustCompile("\\b[eE]xpr\"?\\s*[=:(]+\\s*[rRfF]?[\"'`]+([^\"'`\\n]+)")

// hasQueries tells whether a source has a query behind expr.
func hasQueries(text []byte) bool {
	return slices.ContainsFunc(queryInCode.FindAllSubmatch(text, maxFlags),
		func(m [][]byte) bool { return isQuery(templated(string(m[1]))) })
}

// The sizes up to which files with other extensions are looked at, and scripts are read.
const (
	largestProgram = 1 << 20
	largestScript  = 64 << 10
)

// programs reads the files below a path that are left out by their extension, and are scripts, for
// the calls of Prometheus' API in them. It returns sources of programs and large scripts that have
// such calls, which are not read, other files that seem to have queries, sources that have some as
// dashboards in code do, and templates of dashboards and rules.
func (s *Set) programs(path string, read []string) (asking, seeming, coded, templated []string) {
	files, err := s.files(path)
	if err != nil {
		return nil, nil, nil, nil
	}
	known := map[string]bool{}
	for _, file := range read {
		known[file] = true
	}
	for _, file := range files {
		extension := strings.ToLower(filepath.Ext(file))
		if known[file] || slices.Contains(ruleFiles, extension) || slices.Contains(forPeople, extension) ||
			strings.HasSuffix(strings.TrimSuffix(file, filepath.Ext(file)), "_test") {
			continue
		}
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() || info.Size() > largestProgram {
			continue
		}
		text, err := plainfile.Read(file)
		if err != nil || !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
			continue
		}
		made := strings.ToLower(filepath.Ext(strings.TrimSuffix(file, filepath.Ext(file)))) // README.md.gotmpl makes README.md
		template := slices.Contains(templates, extension)
		if template && !slices.Contains(forPeople, made) && (asksInTemplate.Match(text) || asksBehind(text)) {
			templated = append(templated, file)
		}
		source := slices.Contains(sources, extension)
		asked, all := calls(string(text))
		asks := len(asked) > 0 || !all || resourceOf.Match(text)
		switch {
		case asks && (source || len(text) > largestScript):
			asking = append(asking, file)
		case asks:
			s.script(file, string(text), asked, all)
		case !source && extension != ".py" && (seemsToAsk.Match(text) || !template && asksBehind(text)):
			seeming = append(seeming, file)
		case (source || extension == ".py") && hasQueries(text):
			coded = append(coded, file)
		}
	}
	return asking, seeming, coded, templated
}

// script adds what a script asks Prometheus' API.
func (s *Set) script(file, text string, asked []string, all bool) {
	n := &node{line: 1, scalar: text}
	if !s.once(Object, file, n) {
		return // another flag has named its folder
	}
	a := asker{set: s, file: file}
	where := "script " + filepath.Base(file)
	a.called(n, where, text, asked, all)
	a.lines(n, where, text)
	for _, err := range a.errs {
		s.Warnings = append(s.Warnings, err.Error()+"; what it asks counts as unused")
	}
}

// archive finds the names of files with others in them, and of documents that are packed in a way
// that is not read.
var archive = regexp.MustCompile(`(?i)\.(?:zip|tar|tgz|7z)$|\.tar\.\w+$|\.(?:json|ya?ml|rules)\.(?:bz2|xz|zst|lz4)$`)

// archives warns of such files below a path.
func (s *Set) archives(path string, warn func(files []string, before, behind string)) {
	files, err := s.files(path)
	if err != nil {
		return // whoever reads them says why
	}
	files = slices.DeleteFunc(files, func(file string) bool { return !archive.MatchString(file) })
	warn(files, "packed files are there:", "unpack them, and give the dashboards and rules in them")
}

// unread reads scripts below a path, and warns of files that are left out by their extension and
// ask, or seem to have rules or queries. Templates of dashboards and rules it notes beside: what
// comes of them is what is used. Those larger than 1 MiB are not looked at.
func (s *Set) unread(path string, read []string) {
	warn := func(files []string, before, behind string) {
		if len(files) == 0 {
			return
		}
		warning := fmt.Sprintf("%s %s (%s), and are not read: %s", before, strings.Join(files[:min(3, len(files))], ", "),
			number(int64(len(files)), "file", "files"), behind)
		if !slices.Contains(s.Warnings, warning) {
			s.Warnings = append(s.Warnings, warning)
		}
	}
	s.archives(path, warn)
	asking, seeming, coded, templated := s.programs(path, read)
	warn(asking, "programs that ask Prometheus' API are in", "list their queries in a file for --queries")
	warn(coded, "queries, as of dashboards or rules in code, seem to be in", "give what these programs write, or list their queries in a file for --queries")
	if len(templated) > 0 {
		s.notRendered(fmt.Sprintf("%s: templates of dashboards or rules are in it (%s, such as %s): give what is made of them", path,
			number(int64(len(templated)), "file", "files"), strings.Join(templated[:min(3, len(templated))], ", ")))
	}
	warn(seeming, "rules seem to be in", "the names of files of rules end in "+strings.Join(ruleFiles, ", "))
}
