package propose

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
)

func TestRegexReadsWell(t *testing.T) {
	for _, test := range []struct {
		name   string
		values []string
		want   []string
	}{
		{"one", []string{"up_total"}, []string{`up_total`}},
		{"what is common is written once", []string{"apiserver_b_total", "apiserver_a_total"}, []string{`apiserver_(a|b)_total`}},
		{"words are not cut", []string{"http_requests", "http_responses"}, []string{`http_(requests|responses)`}},
		{"groups within groups", []string{"a_x_1", "a_x_2", "a_y", "b"}, []string{`a_(x_(1|2)|y)|b`}},
		{"one is the other's beginning", []string{"a_", "a_b", "a"}, []string{`a|a_(|b)`}},
		{"twice", []string{"a", "a"}, []string{`a`}},
		{"dots are dots", []string{"0.15", "0.9"}, []string{`0\.(15|9)`}},
		{"signs", []string{"a|b", "(x)", "^$"}, []string{`\(x\)|\^\$|a\|b`}},
		{"what cannot be printed", []string{"a\nb", "a\x00"}, []string{`a\x{0}|a\x{a}b`}},
		{"the empty value", []string{"", "b"}, []string{`|b`}},
		{"only the empty value", []string{""}, []string{``}},
		{"no UTF-8", []string{"\xff", "b"}, []string{`b`}},
		{"nothing", nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Regex(test.values); !slices.Equal(got, test.want) {
				t.Errorf("Regex(%q) = %q, want %q", test.values, got, test.want)
			}
		})
	}
}

func TestRegexKeepsItsBounds(t *testing.T) {
	var values []string
	for i := range 1000 {
		values = append(values, strings.Repeat(string(rune('a'+i%26)), 1+i%40)+"_"+strings.Repeat("x",
			i%7)+"_"+string(rune('a'+i/26%26))+string(rune('a'+i/676)))
	}
	slices.Sort(values)
	values = slices.Compact(values)
	regexes := Regex(values)
	if len(regexes) < len(values)/MaxAlternatives {
		t.Fatalf("%d expressions for %d values", len(regexes), len(values))
	}
	for _, regex := range regexes {
		if len(regex) > MaxRegexBytes {
			t.Errorf("an expression of %d bytes", len(regex))
		}
		if n := strings.Count(regex, "|") + 1; n > MaxAlternatives {
			t.Errorf("an expression of %d alternatives", n)
		}
	}
	matchesExactly(t, regexes, values, nil)
	if got := Regex([]string{strings.Repeat("long", 1000)}); len(got) != 1 {
		t.Errorf("one long value: %d expressions", len(got))
	}
}

func TestExact(t *testing.T) {
	for _, test := range []struct {
		regex          string
		want, universe []string
		err            string
	}{
		{`a|b`, []string{"a", "b"}, []string{"a", "b", "ab", ""}, ""},
		{`0.15`, []string{"0.15"}, []string{"0.15", "0515"}, `matches "0515" too`},
		{`a|b`, []string{"a", "b", "c"}, nil, `misses "c"`},
		{`(`, nil, nil, "missing closing"},
	} {
		err := Exact(test.regex, test.want, test.universe)
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("Exact(%q) = %v, want %q", test.regex, err, test.err)
		}
	}
}

// matchesExactly holds expressions, as Prometheus compiles them, against what they were made for
// and against everything that is nearly that.
func matchesExactly(t *testing.T, regexes, values, others []string) {
	t.Helper()
	compiled := make([]relabel.Regexp, len(regexes))
	for i, regex := range regexes {
		var err error
		if compiled[i], err = relabel.NewRegexp(regex); err != nil {
			t.Fatalf("%q of %q: %v", regex, values, err)
		}
	}
	planned := map[string]bool{}
	for _, value := range values {
		planned[value] = utf8.ValidString(value)
	}
	for _, value := range append(slices.Clone(values), others...) {
		for _, near := range neighbours(value) {
			if !utf8.ValidString(near) {
				continue
			}
			matches := slices.ContainsFunc(compiled, func(r relabel.Regexp) bool { return r.MatchString(near) })
			if matches != planned[near] {
				t.Fatalf("%q of %q: matches %q: %v", regexes, values, near, matches)
			}
		}
	}
}

// neighbours are a value and what is one slip away from it.
func neighbours(value string) []string {
	out := []string{
		value, value + "a", "a" + value, value + "\n", "\n" + value, value + value, strings.ToUpper(value),
		strings.ToLower(value), "",
	}
	for i, r := range value {
		size := utf8.RuneLen(r)
		if size < 0 || i+size > len(value) {
			continue
		}
		out = append(out, value[:i], value[:i]+value[i+size:], value[:i]+"x"+value[i+size:], value[:i]+"\n"+value[i+size:])
		if len(out) > 200 {
			break
		}
	}
	return out
}

func FuzzRegex(f *testing.F) {
	for _, seed := range []string{
		"", "a,b", "apiserver_a_total,apiserver_b_total,apiserver_total", "0.15,0.9,15,30.0,+Inf", "a\nb,a.b", `\Q,\E,(?i)x,[a-z],a{2}`, "日本_a,日本_b,日本", "a\x00,\u2028_b,\ufffd", "_,__,___,a__a,_a_",
		"{my.utf8},a:b:c,a-b/c.d", "$1,${1},^a$,a|b", ",_",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		values := strings.Split(text, ",")
		regexes := Regex(values)
		shuffled := slices.Clone(values)
		slices.Reverse(shuffled)
		if again := Regex(append(shuffled, values...)); !slices.Equal(regexes, again) {
			t.Fatalf("%q in another order: %q and %q", values, regexes, again)
		}
		matchesExactly(t, regexes, values[:min(len(values), 50)], strings.Split(text, "_"))
		for _, regex := range regexes {
			if len(regex) > MaxRegexBytes && strings.Contains(regex, "|") && !strings.Contains(quoteAll(values), regex) {
				t.Fatalf("an expression of %d bytes", len(regex))
			}
		}
	})
}

// quoteAll are the values, each as one literal: an expression may be long where it is one of these.
func quoteAll(values []string) string {
	quoted := make([]string, len(values))
	for i, value := range values {
		quoted[i] = Quote(value)
	}
	return strings.Join(quoted, "\n")
}

// FuzzConfigs runs whole rules through Prometheus' relabelling, over every planned and every nearly
// planned name and value.
func FuzzConfigs(f *testing.F) {
	for _, seed := range [][2]string{
		{"a_total,b_total", "500,404,"},
		{"a;b,a", "c,b;c"},
		{"a,b", "30.0,0.5,+Inf,1e+06"},
		{"a;,@#|!~", "x"},
		{"日本", "\n,;\n"},
		{"m.utf8", "$1,.*"},
	} {
		f.Add(seed[0], seed[1], false)
		f.Add(seed[0], seed[1], true)
	}
	f.Fuzz(func(t *testing.T, nameText, valueText string, buckets bool) {
		if len(nameText)+len(valueText) > 300 || !utf8.ValidString(nameText) || !utf8.ValidString(valueText) {
			return
		}
		names, values := strings.Split(nameText, ","), strings.Split(valueText, ",")
		kind := Slice
		if buckets {
			kind = Buckets
			for i := range values {
				values[i] = Edge(values[i])
			}
		}
		if slices.Contains(names, "") {
			return // no series is without a name
		}
		configs, err := Configs(kind, names, "l", values)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range near(names) {
			for _, value := range near(values) {
				if name == "" || !utf8.ValidString(name) || !utf8.ValidString(value) {
					continue
				}
				b := labels.NewBuilder(labels.EmptyLabels())
				b.Set(model.MetricNameLabel, name)
				b.Set("l", value)
				planned := slices.Contains(names, name) && slices.Contains(values, value)
				if buckets && slices.Contains(names, name) && slices.Contains(values, value+".0") {
					planned = true // the other spelling of the same edge
				}
				if kept := relabel.ProcessBuilder(b, configs...); kept == planned {
					t.Fatalf("%s %q with %q of %q, %q: kept %v\n%v", kind, name, value, names, values, kept, configs[0].Regex)
				}
			}
		}
	})
}

// near are the texts, what is one slip away from each, and what they become when they are cut
// elsewhere.
func near(texts []string) []string {
	out := slices.Clone(texts)
	for _, text := range texts[:min(len(texts), 4)] {
		n := neighbours(text)
		out = append(out, n[:min(len(n), 14)]...)
		for _, separator := range []string{";", ",", "@"} {
			for _, other := range texts[:min(len(texts), 4)] {
				out = append(out, text+separator+other)
			}
			if head, tail, ok := strings.Cut(text, separator); ok {
				out = append(out, head, tail)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func TestEdge(t *testing.T) {
	for le, want := range map[string]string{
		"30": "30.0", "30.0": "30.0", "0.50": "0.5", "+Inf": "+Inf", "1e6": "1e+06", "1000000": "1e+06",
		"-1": "-1.0", "x": "x", "": "",
	} {
		if got := Edge(le); got != want {
			t.Errorf("Edge(%q) = %q, want %q", le, got, want)
		}
	}
}
