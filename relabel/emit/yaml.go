package emit

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"
)

// spelling is how the fields of a rule are called: Prometheus' own file has them in snake_case, the
// operator's objects in camelCase.
type spelling struct{ sourceLabels, targetLabel string }

var (
	prometheusSpelling = spelling{"source_labels", "target_label"}
	operatorSpelling   = spelling{"sourceLabels", "targetLabel"}
)

var (
	bareWord = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)
	// reserved are the words that some YAML reader takes for a truth value or nothing.
	reserved = map[string]bool{
		"y": true, "n": true, "yes": true, "no": true, "on": true, "off": true, "true": true, "false": true,
		"null": true,
	}
)

// scalar writes s so that every reader of YAML 1.1 and 1.2 reads s. Plain where that is safe, in
// single quotes where all can be seen (a regex is readable there), else in double quotes with
// escapes.
func scalar(s string) (string, error) {
	switch {
	case !utf8.ValidString(s):
		return "", fmt.Errorf("%q is not UTF-8, which YAML cannot hold", s)
	case bareWord.MatchString(s) && !reserved[strings.ToLower(s)]:
		return s, nil
	case visible(s):
		return "'" + strings.ReplaceAll(s, "'", "''") + "'", nil
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xff:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte('"')
	return b.String(), nil
}

// visible says that all characters are printable: none ends a line, turns the writing direction or
// is a byte order mark.
func visible(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// comment makes text safe behind a #: a name with a line end in it must not end the comment.
func comment(s string) string {
	if utf8.ValidString(s) && visible(s) {
		return s
	}
	return strconv.Quote(s)
}

// configLines writes one rule as the lines of an element of a YAML list, without indentation.
// Fields that have Prometheus' default are left out.
func configLines(c *relabel.Config, names spelling) ([]string, error) {
	if err := valid(c); err != nil {
		return nil, err
	}
	var lines []string
	var failed error
	add := func(key, value string) {
		text, err := scalar(value)
		if err != nil && failed == nil {
			failed = fmt.Errorf("%s: %w", key, err)
		}
		lines = append(lines, key+": "+text)
	}
	if len(c.SourceLabels) > 0 {
		list := make([]string, len(c.SourceLabels))
		for i, l := range c.SourceLabels {
			text, err := scalar(string(l))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", names.sourceLabels, err)
			}
			list[i] = text
		}
		lines = append(lines, names.sourceLabels+": ["+strings.Join(list, ", ")+"]")
	}
	if c.Separator != relabel.DefaultRelabelConfig.Separator {
		add("separator", c.Separator)
	}
	if p := pattern(c); p != relabel.DefaultRelabelConfig.Regex.String() {
		add("regex", p)
	}
	if c.Modulus != 0 {
		lines = append(lines, "modulus: "+strconv.FormatUint(c.Modulus, 10))
	}
	if c.TargetLabel != "" {
		add(names.targetLabel, c.TargetLabel)
	}
	if c.Replacement != relabel.DefaultRelabelConfig.Replacement {
		add("replacement", c.Replacement)
	}
	add("action", string(c.Action))
	if failed != nil {
		return nil, failed
	}
	for i := range lines {
		if i == 0 {
			lines[i] = "- " + lines[i]
		} else {
			lines[i] = "  " + lines[i]
		}
	}
	return lines, nil
}

// valid asks Prometheus' own validation, of a copy: it fills in a field.
func valid(c *relabel.Config) error {
	if c == nil {
		return fmt.Errorf("the rule is empty")
	}
	switch c.Action {
	case relabel.KeepEqual, relabel.DropEqual, relabel.HashMod, relabel.Lowercase, relabel.Uppercase: // look at no regex
	default:
		if c.Regex.Regexp == nil {
			return fmt.Errorf("%s has no regex", c.Action)
		}
	}
	copied := *c
	if err := copied.Validate(model.UTF8Validation); err != nil {
		return fmt.Errorf("Prometheus does not accept it: %w", err)
	}
	return nil
}

// pattern is the regex as it is written. `null` and `~` go into a group: Prometheus' YAML reader
// takes them for nothing at all, in quotes too, and then writes them over its default regex, the
// one of every rule that has none.
func pattern(c *relabel.Config) string {
	if c.Regex.Regexp == nil {
		return relabel.DefaultRelabelConfig.Regex.String()
	}
	p := c.Regex.String()
	if p == "null" || p == "~" {
		return "(?:" + p + ")"
	}
	return p
}

// readBack is the proof that lines say what configs mean: they are read as Prometheus reads them
// and compared.
func readBack(lines []string, configs []*relabel.Config) error {
	var got []*relabel.Config
	if err := yaml.Unmarshal([]byte(strings.Join(lines, "\n")+"\n"), &got); err != nil {
		return fmt.Errorf("what was written cannot be read back: %w", err)
	}
	if !equalConfigs(got, configs) {
		return fmt.Errorf("what was written reads differently")
	}
	return nil
}

func equalConfigs(a, b []*relabel.Config) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !equalConfig(a[i], b[i]) {
			return false
		}
	}
	return true
}

func equalConfig(a, b *relabel.Config) bool {
	if a == nil || b == nil {
		return a == b
	}
	if len(a.SourceLabels) != len(b.SourceLabels) {
		return false
	}
	for i := range a.SourceLabels {
		if a.SourceLabels[i] != b.SourceLabels[i] {
			return false
		}
	}
	return a.Separator == b.Separator && pattern(a) == pattern(b) && a.Modulus == b.Modulus && a.TargetLabel == b.TargetLabel &&
		a.Replacement == b.Replacement &&
		strings.EqualFold(string(a.Action), string(b.Action))
}
