package endpointtest

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestLoad(t *testing.T) {
	const good = "# client: c\n# note: n: m\n# status: 400\n# endpoint: query\n# label: l\n# param: a=b=c\n# dropped: x y\n" +
		"POST / HTTP/1.1\nHost: h\n\nbody\n\nmore\n"
	for _, tc := range []struct{ name, text, raw string }{
		{"all keys", good, "POST / HTTP/1.1\r\nHost: h\r\n\r\nbody\n\nmore"},
		{"no body", "# client: c\nGET / HTTP/1.1\nHost: h\n\n", "GET / HTTP/1.1\r\nHost: h\r\n\r\n"},
		{"base64", "# client: c\n# body: base64\nPOST / HTTP/1.1\n\nAAEC\n", "POST / HTTP/1.1\r\n\r\n\x00\x01\x02"},
		{"broken base64", "# client: c\n# body: base64\nPOST / HTTP/1.1\n\n?\n", ""},
		{"no client", "GET / HTTP/1.1\n\n", ""},
		{"no end of the head", "# client: c\nGET / HTTP/1.1\n", ""},
		{"unknown key", "# client: c\n# who: me\nGET / HTTP/1.1\n\n", ""},
		{"no key", "# hello\nGET / HTTP/1.1\n\n", ""},
		{"no number", "# client: c\n# status: ok\nGET / HTTP/1.1\n\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "a.http"), []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := Load(dir)
			if tc.raw == "" {
				if err == nil {
					t.Errorf("loaded as %+v", got)
				}
				return
			}
			if err != nil || len(got) != 1 || string(got[0].Raw) != tc.raw || got[0].Name != "a" || got[0].Client != "c" {
				t.Fatalf("%+v %v", got, err)
			}
			if tc.text == good {
				c := got[0]
				if c.Note != "n: m" || c.Status != 400 || c.Endpoint != "query" || c.Label != "l" || c.Params.Get("a") != "b=c" ||
					!reflect.DeepEqual(c.Dropped, []string{"x", "y"}) {
					t.Errorf("%+v", c)
				}
			}
		})
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("an empty folder is loaded")
	}
}
