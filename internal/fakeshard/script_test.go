package fakeshard

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		text string
		want Script
	}{
		{"", nil},
		{" ; \n;", nil},
		{"# nothing but a comment", nil},
		{"stall", Script{{Op: "stall"}}},
		{"delay 2s; status 503", Script{{"delay", []string{"2s"}}, {"status", []string{"503"}}}},
		{"delay 2s # slow\nstatus 503", Script{{"delay", []string{"2s"}}, {"status", []string{"503"}}}},
		{`send '{"status":"success","data":['; stall`, Script{{"send", []string{`{"status":"success","data":[`}}, {Op: "stall"}}},
		{`send "a\r\n\x00;"`, Script{{"send", []string{"a\r\n\x00;"}}}},
		{"send `it's \"both\"`", Script{{"send", []string{`it's "both"`}}}},
		{"send ''", Script{{"send", []string{""}}}},
		{"header Retry-After 3", Script{{"header", []string{"Retry-After", "3"}}}},
		{"limit 1KiB reset; generate 10GiB", Script{{"limit", []string{"1KiB", "reset"}}, {"generate", []string{"10GiB"}}}},
		{"generate 1MiB matrix", Script{{"generate", []string{"1MiB", "matrix"}}}},
		{"gzip bomb 1GiB", Script{{"gzip", []string{"bomb", "1GiB"}}}},
		{"redirect http://a/b?c=d 307", Script{{"redirect", []string{"http://a/b?c=d", "307"}}}},
		{"drip 1B/10ms; answer", Script{{"drip", []string{"1B/10ms"}}, {Op: "answer"}}},
		{"error 422 execution 'too many samples'", Script{{"error", []string{"422", "execution", "too many samples"}}}},
		{"skew -1h", Script{{"skew", []string{"-1h"}}}},
	} {
		got, err := Parse(tc.text)
		if err != nil {
			t.Errorf("Parse(%q): %v", tc.text, err)
			continue
		}
		if len(got) != len(tc.want) || len(got) > 0 && got.String() != tc.want.String() {
			t.Errorf("Parse(%q) = %v, want %v", tc.text, got, tc.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, sentence := range map[string]string{
		"dely 2s":                   `step 1: there is no step "dely"`,
		"status 200; delay":         `step 2: delay has 0 arguments; write it as "delay <duration>"`,
		"delay soon":                `step 1: delay: "soon" is not a duration`,
		"delay -1s":                 "is not a duration",
		"status 99":                 "is not a final status",
		"status ok":                 "is not a final status",
		"send 'a":                   "the quote ' is never closed",
		"send `a":                   "the quote ` is never closed",
		`send "a`:                   `the quote " is never closed`,
		`send "\q"`:                 `has an escape`,
		"send a b":                  "send has 2 arguments",
		"reset; close":              "nothing can follow reset, but close does",
		"drip 1B":                   "is not a rate",
		"drip 0B/1s":                "would never end",
		"drip xB/1s":                "is not a size",
		"limit 1KiB explode":        `not "explode"`,
		"limit many stall":          "is not a size",
		"generate 1XB":              "is not a size",
		"generate 99999999999TiB":   "is not a size",
		"generate 1MiB cake":        `there is no kind "cake"; known are alertmanagers, alerts, chunks`,
		"garbage cake":              `there is no kind "cake"`,
		"gzip cake":                 `there is no kind "cake"`,
		"gzip on 1MiB":              "only bomb has",
		"gzip bomb big":             "is not a size",
		"header a:b c":              "is not a header's name",
		`header A "b\r\nC: d"`:      "a value of several lines",
		"redirect http://a 200":     "is not a redirect's status",
		"redirect 'http://a/%zz' ":  "is not a URL",
		"length -1":                 "is not a size",
		"error 42 execution broken": "is not a final status",
	} {
		_, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), sentence) {
			t.Errorf("Parse(%q): error %v, want one with %q", text, err, sentence)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for sentence, cfg := range map[string]Config{
		"default script":              {Default: "dely"},
		"routes[1]: script":           {Routes: []Route{{Script: "stall"}, {Script: "dely"}}},
		"routes[0]: path":             {Routes: []Route{{Path: "/[", Script: "stall"}}},
		"routes[0]: nth 3 to 2":       {Routes: []Route{{Nth: 3, To: 2, Script: "stall"}}},
		"accept[0]: script":           {Accept: []AcceptRoute{{Script: "status 200"}}},
		"before one was read":         {Accept: []AcceptRoute{{Script: "answer"}}},
		"accept[0]: script \"\": nth": {Accept: []AcceptRoute{{Nth: -1}}},
		"prefix \"a/\"":               {Prefix: "a/"},
		"series[0] has no __name__":   {Series: []map[string]string{{"job": "a"}}},
	} {
		s, err := New(cfg)
		if err == nil || !strings.Contains(err.Error(), sentence) {
			t.Errorf("New(%+v): error %v, want one with %q", cfg, err, sentence)
		}
		if s != nil {
			s.Close()
		}
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "100": 100, "100B": 100, "64KiB": 65536, "1MiB": 1 << 20, "10GiB": 10 << 30,
		"1TiB": 1 << 40, "1kB": 1000, "2MB": 2e6, "3GB": 3e9, "1TB": 1e12,
	} {
		if got, err := argSize(text); err != nil || got != want {
			t.Errorf("argSize(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
}

// Every step has its words for a reader, and no step is known twice.
func TestSteps(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range Steps() {
		if o.Name == "" || o.Does == "" || seen[o.Name] || (o.max > 0) != (o.Usage != "") {
			t.Errorf("step %+v is not described well, or twice", o.Name)
		}
		seen[o.Name] = true
	}
}

// FuzzParse: no text makes the parser panic, and what it accepts is written back so that it reads
// the same.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "stall", "delay 2s; status 503; header Retry-After 3; answer", `send '{"status":'; stall`, `send "a\x00\"b;"; reset`, "send `a'b`", "drip 1B/10ms; limit 3 close; answer",
		"gzip bomb 1GiB", "generate 10GiB chunks # endless", "redirect http://127.0.0.1:1/ 308", "error 422 execution 'a; b' c",
		"raw \"HTTP/1.1 200\\r\\n\"; close", "send \"\xff\"", "send a#b", "send #b",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(s.String())
		if err != nil {
			t.Fatalf("Parse(%q) = %v, but its text %q is refused: %v", text, s, s.String(), err)
		}
		if !reflect.DeepEqual(norm(s), norm(again)) {
			t.Fatalf("Parse(%q) = %#v, but its text %q reads as %#v", text, s, s.String(), again)
		}
	})
}

// norm makes empty arguments comparable.
func norm(s Script) Script {
	for i := range s {
		s[i].Args = append([]string{}, s[i].Args...)
	}
	return s
}
