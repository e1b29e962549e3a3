package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tree scans a document into what encoding/json would make of it, through every method of the
// scanner.
func tree(s *Scanner, depth int) (any, bool) {
	switch c := s.peek(); c {
	case '{':
		m := map[string]any{}
		if !s.Object() || !s.enter(depth) {
			return nil, false
		}
		for first := true; ; first = false {
			k, ok := s.Key(first)
			if !ok {
				return m, s.Err() == nil
			}
			key := string(k)
			if m[key], ok = tree(s, depth+1); !ok {
				return nil, false
			}
		}
	case '[':
		l := []any{}
		if !s.Array() || !s.enter(depth) {
			return nil, false
		}
		for first := true; s.More(first); first = false {
			v, ok := tree(s, depth+1)
			if !ok {
				return nil, false
			}
			l = append(l, v)
		}
		return l, s.Err() == nil
	case '"':
		b, ok := s.String()
		return string(b), ok
	case 't', 'f', 'n':
		ok := s.Skip()
		return map[byte]any{'t': true, 'f': false, 'n': nil}[c], ok
	default:
		b, ok := s.Number()
		return json.Number(b), ok
	}
}

func scanTree(r io.Reader) (any, error) {
	s := NewScanner(r, nil)
	defer s.Close()
	v, ok := tree(s, 1)
	if ok {
		s.End()
	}
	return v, s.Err()
}

func skipAll(r io.Reader) error {
	s := NewScanner(r, nil)
	defer s.Close()
	if s.Skip() {
		s.End()
	}
	return s.Err()
}

var scanSeeds = []string{
	`{}`, `[]`, `""`, `0`, `-0`, `-`, `01`, `1.`, `1.5e+7`, `1e`, `.5`, `true`, `tru`, `null`, `nul`, `false x`, ` [1 , 2]	`, `[1,]`,
	`[,1]`, `[1 2]`, `{"a":1,}`, `{"a" : [ ] , "b":{}}`,
	`{"a"}`, `{a:1}`, `{"a":1 "b":2}`, `"\u00e9\ud83d\ude00\ud800\udc"`, `"\ud800\u0041"`, `"\ud83d\ude00"`, `"\udc00"`, `"\x"`, `"\u12g4"`,
	`"a` + "\x01" + `"`, "\"\xff\xfe\"", "\"caf\xc3\xa9\"", "\"\xc3\"",
	`"` + strings.Repeat("x", 100) + `\n"`, `"abc`, `[[[[`, ``, ` `, "\xef\xbb\xbf{}", "\x00", "[\x00]",
	`{"status":"success","data":["a","b"]}`, `<html>login</html>`, `{"a":"\/\b\f\n\r\t\"\\"}`,
}

// checkAgainstJSON compares with encoding/json: same documents accepted, same values.
func checkAgainstJSON(t *testing.T, doc []byte) {
	t.Helper()
	var want any
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	wantErr := dec.Decode(&want)
	if wantErr == nil {
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			wantErr = errors.New("trailing data")
		}
	}
	for name, r := range map[string]io.Reader{
		"whole": bytes.NewReader(doc), "one byte": iotest.OneByteReader(bytes.NewReader(doc)),
		"data and error": iotest.DataErrReader(bytes.NewReader(doc)),
	} {
		got, err := scanTree(r)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%s: %q: error %v, encoding/json says %v", name, doc, err, wantErr)
		}
		if err != nil {
			var scan *ScanError
			if !errors.As(err, &scan) {
				t.Fatalf("%s: %q: untyped error %v", name, doc, err)
			}
			continue
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if !bytes.Equal(a, b) {
			t.Fatalf("%s: %q: got %s, want %s", name, doc, a, b)
		}
	}
	if err := skipAll(bytes.NewReader(doc)); (err == nil) != (wantErr == nil) {
		t.Fatalf("Skip of %q: error %v, encoding/json says %v", doc, err, wantErr)
	}
}

func FuzzScan(f *testing.F) {
	for _, s := range scanSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if bytes.Count(doc, []byte("["))+bytes.Count(doc, []byte("{")) > MaxDepth {
			t.Skip("may be nested beyond MaxDepth, which encoding/json allows")
		}
		checkAgainstJSON(t, doc)
	})
}

func TestScanKinds(t *testing.T) {
	long := strings.Repeat("x", MaxToken+1)
	for _, tc := range []struct {
		name, doc string
		want      ScanKind
	}{
		{"login page", "<html><body>please log in</body></html>", Garbage},
		{"binary", "\x1f\x8b\x08\x00", Garbage},
		{"trailing data", `{"a":1} {}`, Garbage},
		{"trailing garbage", `[1]]`, Garbage},
		{"empty", ``, Truncated},
		{"spaces", "  \n", Truncated},
		{"in a string", `{"a":"b`, Truncated},
		{"in an escape", `"\u00`, Truncated},
		{"in a key", `{"a`, Truncated},
		{"after a key", `{"a"`, Truncated},
		{"after a colon", `{"a":`, Truncated},
		{"after a value", `{"a":1`, Truncated},
		{"after a comma", `[1,`, Truncated},
		{"in a literal", `[tru`, Truncated},
		{"in a number", `[1.`, Truncated},
		{"in an array", `[1`, Truncated},
		{"deep", strings.Repeat("[", 200), OverBound},
		{"deep objects", strings.Repeat(`{"a":`, 200), OverBound},
		{"long string", `"` + long + `"`, OverBound},
		{"long key", `{"` + long + `":1}`, OverBound},
		{"long number", strings.Repeat("1", MaxToken+1), OverBound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(tc.doc), iotest.HalfReader(strings.NewReader(tc.doc))} {
				err := skipAll(r)
				var scan *ScanError
				if !errors.As(err, &scan) || scan.Kind != tc.want {
					t.Errorf("got %v, want it %s", err, tc.want)
				}
			}
		})
	}
}

func TestScanLongStringWithinBound(t *testing.T) {
	text := strings.Repeat("0123456789", MaxToken/10-10)
	s := NewScanner(strings.NewReader(`["a","`+text+`","b"]`), nil)
	defer s.Close()
	s.Array()
	var got []string
	for first := true; s.More(first); first = false {
		b, ok := s.String()
		if !ok {
			break
		}
		got = append(got, string(b))
	}
	if s.Err() != nil || len(got) != 3 || got[1] != text || got[2] != "b" {
		t.Errorf("%d strings, error %v", len(got), s.Err())
	}
}

func TestScanWrongShape(t *testing.T) {
	for name, read := range map[string]func(*Scanner) bool{
		"object": (*Scanner).Object,
		"array":  (*Scanner).Array,
		"string": func(s *Scanner) bool { _, ok := s.String(); return ok },
		"number": func(s *Scanner) bool { _, ok := s.Number(); return ok },
	} {
		s := NewScanner(strings.NewReader(`true`), nil)
		var scan *ScanError
		if read(s) || !errors.As(s.Err(), &scan) || scan.Kind != WrongShape {
			t.Errorf("%s of true: %v", name, s.Err())
		}
		s.Close()
	}
}

func TestScanReaderErrors(t *testing.T) {
	boom := errors.New("boom")
	if err := skipAll(io.MultiReader(strings.NewReader(`["a`), iotest.ErrReader(boom))); !errors.Is(err, boom) {
		t.Errorf("a reader's own error: %v", err)
	}
	var scan *ScanError
	if err := skipAll(io.MultiReader(strings.NewReader(`["a`), iotest.ErrReader(io.ErrUnexpectedEOF))); !errors.As(err, &scan) ||
		scan.Kind != Truncated {
		t.Errorf("a short body: %v", err)
	}
	if err := skipAll(stuck{}); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader without progress: %v", err)
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }
