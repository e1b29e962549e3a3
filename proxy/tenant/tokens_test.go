package tenant

import (
	"bytes"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/config"
)

// TestTokensRotate: who reads a new token shows it at once, and who has read the old one just
// before shows that; neither is refused, also over a reload. One that is taken away is nobody's.
func TestTokensRotate(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	put("a", "a0")
	put("b", "b0")
	cfg := &config.Config{Tenants: []config.Tenant{
		{Name: "a", BearerTokenFile: filepath.Join(dir, "a")}, {Name: "b", BearerTokenFile: filepath.Join(dir, "b")},
	}}
	load := func(prev *Directory) *Directory {
		t.Helper()
		d, err := New(cfg, prev, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := load(nil)
	is := func(word, want string) {
		t.Helper()
		got, err := d.Identify(request(t, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+word) }))
		if got == nil && want != "" || got != nil && got.Name != want {
			t.Errorf("%s is %v, want %q: %v", word, got, want, err)
		}
	}
	is("a0", "a")
	is("b0", "b")
	put("a", "a1")
	is("a1", "a")
	is("a0", "a")
	d = load(d)
	is("a0", "a")
	is("a1", "a")
	put("a", "a2")
	d = load(d)
	is("a2", "a")
	is("a1", "a")
	is("a0", "") // the last but one
	put("b", "a1")
	is("a1", "a") // nobody has looked: it is known already
	d.files.byPath[filepath.Join(dir, "b")].looked = time.Time{}
	is("a1", "b") // in force before what was
	put("a", "")
	d.files.byPath[filepath.Join(dir, "a")].looked = time.Time{}
	is("a2", "")
	is("", "")
	put("a", "a3")
	is("a3", "a")
	is("a2", "")
	put("b", "a3")
	d.files.byPath[filepath.Join(dir, "b")].looked = time.Time{}
	is("a3", "") // two tenants have it
}

// TestGuessedTokensAreCheap: files are read again for those who are nobody as often as is bearable,
// and no more.
func TestGuessedTokensAreCheap(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("word"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := directory(t, config.Tenant{Name: "a", BearerTokenFile: file})
	now := time.Now()
	looks := func(at time.Time, n int) (looked int) {
		for range n {
			before := d.files.byPath[file].looked
			at = at.Add(time.Nanosecond)
			if d.renewed([32]byte{1}, at) != nil {
				t.Fatal("somebody's")
			}
			if d.files.byPath[file].looked != before {
				looked++
			}
		}
		return looked
	}
	if n := looks(now, 3*maxReads); n != maxReads {
		t.Errorf("the file was read %d times for %d guesses at once, want %d", n, 3*maxReads, maxReads)
	}
	if n := looks(now.Add(100*time.Millisecond), 3*maxReads); n < maxReads/20 || n > maxReads/5 {
		t.Errorf("a tenth of a second later it was read %d times", n)
	}
}

// TestMissingTokenIsSaid: a token that cannot be read is said when the configuration is loaded, and
// not again at a reload that changes nothing about it.
func TestMissingTokenIsSaid(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	if err := os.WriteFile(good, []byte("token-of-good"), 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	c := &config.Config{Tenants: []config.Tenant{
		{Name: "good", BearerTokenFile: good},
		{Name: "lost", BearerTokenFile: filepath.Join(dir, "gone")},
	}}
	d, err := New(c, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(said.String(), "cannot be read") != 1 || !strings.Contains(said.String(), "tenant=lost") {
		t.Errorf("said: %s", said.String())
	}
	said.Reset()
	if _, err := New(c, d, log); err != nil || said.Len() > 0 {
		t.Errorf("%v: %s", err, said.String())
	}
}
