package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// clone makes a small tree of git in a temporary folder, which is the current one until the test
// ends, and returns what runs git there.
func clone(t *testing.T, changelog string) func(args ...string) {
	t.Helper()
	t.Chdir(t.TempDir())
	run := func(args ...string) {
		t.Helper()
		args = append([]string{"-c", "user.name=t", "-c", "user.email=t@t.invalid", "-c", "init.defaultBranch=main"}, args...)
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	run("init", "-q")
	save(t, "CHANGELOG.md", changelog)
	if err := os.MkdirAll(filepath.Dir(chartFile), 0o755); err != nil {
		t.Fatal(err)
	}
	save(t, chartFile, "apiVersion: v2\nversion: 1.0.0\nappVersion: 1.0.0\nkubeVersion: \">=1.27\"\n")
	run("add", ".")
	run("commit", "-q", "-m", "first")
	return run
}

func save(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

const changelog = `# Changelog

For users.

## Unreleased

- [FEATURE] more: of it,
  in two lines.

## 1.0.0 / 2026-01-02

- [FEATURE] all: of it.
`

// TestRefused: what cannot be released is refused before anything is built, in words that say what
// to do.
func TestRefused(t *testing.T) {
	git := clone(t, changelog)
	git("tag", "v1.0.0")
	save(t, "more.md", "")
	git("add", ".")
	git("commit", "-q", "-m", "second")
	precious := t.TempDir()
	save(t, filepath.Join(precious, "precious"), "")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "which version? make release VERSION=1.2.3"},
		{[]string{"-version=1.2"}, `version "1.2": write a semantic version`},
		{[]string{"-version=01.2.3"}, `write a semantic version`},
		{[]string{"-version=1.2.3+x"}, `without build metadata`},
		{[]string{"-version=next"}, `write a semantic version`},
		{[]string{"-version=1.0.0"}, "version 1.0.0 is released: the tag v1.0.0 is at commit"},
		{[]string{"-version=v1.0.0", "-cut"}, "version 1.0.0 is released"},
		{[]string{"-version=1.1.0"}, "Chart.yaml has version 1.0.0, and 1.1.0 is released: make cut VERSION=1.1.0 changes it"},
		{[]string{"left"}, `unexpected argument "left"; the flags are:`},
	} {
		if err := run(t.Context(), tc.args, io.Discard); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v; want %q", tc.args, err, tc.want)
		}
	}
	var said strings.Builder
	err := run(t.Context(), []string{"-cut", "-version=v1.1.0"}, &said)
	if err != nil || !strings.Contains(said.String(), "make release VERSION=1.1.0") {
		t.Fatalf("%v: %s", err, said.String())
	}
	if err := run(t.Context(), []string{"-version=1.1.0"}, io.Discard); err == nil ||
		!strings.Contains(err.Error(), "the tree is not as it was committed: commit or remove 2 files, the first of which is M CHANGELOG.md") {
		t.Error(err)
	}
	if b, err := os.ReadFile(chartFile); err != nil || string(b) != "apiVersion: v2\nversion: 1.1.0\nappVersion: 1.1.0\nkubeVersion: \">=1.27\"\n" {
		t.Errorf("%v: the chart is %s", err, b)
	}
	git("commit", "-q", "-a", "-m", "third")
	git("tag", "v1.1.0") // this very commit may have it already
	for _, tc := range []struct {
		arg, want string
	}{
		{"-out=" + precious, "the folder holds something else than a release"},
		{"-platforms=windows/amd64", `platform "windows/amd64": archives are made for linux and darwin`},
		{"-platforms=linux", `platform "linux": archives`},
		{"-sign=" + filepath.Join(precious, "precious"), "there is no key in it"},
		{"-sign=none", "-sign: open none"},
	} {
		args := []string{"-version=1.1.0", "-out=" + filepath.Join(t.TempDir(), "r"), tc.arg}
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v; want %q", tc.arg, err, tc.want)
		}
	}
	if _, err := os.Stat(filepath.Join(precious, "precious")); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(".git"); err != nil {
		t.Fatal(err)
	}
	err = run(t.Context(), []string{"-version=1.1.0"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "a release is made of a clone") {
		t.Error(err)
	}
}

// TestCut: the unreleased lines become the version's, and are its notes; nothing else changes.
func TestCut(t *testing.T) {
	day := time.Unix(1700000000, 0).UTC()
	got, err := cut(changelog, "1.1.0", day)
	want := strings.Replace(changelog, "## Unreleased\n", "## Unreleased\n\n## 1.1.0 / 2023-11-14\n", 1)
	if err != nil || got != want {
		t.Fatalf("%v:\n%s", err, got)
	}
	const body = "- [FEATURE] more: of it,\n  in two lines.\n"
	if n, err := notes(got, "v1.1.0"); err != nil || string(n) != body {
		t.Errorf("%v: %q", err, n)
	}
	if n, err := notes(got, "1.0.0"); err != nil || string(n) != "- [FEATURE] all: of it.\n" {
		t.Errorf("%v: %q", err, n)
	}
	if _, err := notes(got, "1.2.0"); err == nil || !strings.Contains(err.Error(), "has no section 1.2.0: make cut VERSION=1.2.0") {
		t.Error(err)
	}
	for _, tc := range []struct{ text, version, want string }{
		{got, "1.2.0", "the section Unreleased of CHANGELOG.md is empty: there is nothing to release"},
		{got, "1.1.0", "has a section 1.1.0 already"},
		{"# Changelog\n", "1.0.0", "has no section Unreleased"},
		{"## Unreleased\n\nSoon.\n", "1.0.0", "is empty"},
	} {
		if _, err := cut(tc.text, tc.version, day); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, want %q", err, tc.want)
		}
	}
	got, err = cut("## Unreleased\n\n- [FEATURE] x\n", "0.1.0", day)
	if err != nil || got != "## Unreleased\n\n## 0.1.0 / 2023-11-14\n\n- [FEATURE] x\n" {
		t.Errorf("%v: %q", err, got)
	}
	// What stands there now can be cut, whenever that is.
	b, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := entries(string(b), unreleased); err != nil {
		t.Log("nothing to release now:", err)
	} else if next, err := cut(string(b), "1000.0.0", day); err != nil || len(next) != len(b)+len("\n## 1000.0.0 / 2023-11-14\n") {
		t.Errorf("%v: from %d bytes to %d", err, len(b), len(next))
	}
}

// onPage are the commands of docs/release.md, the indented lines, that begin with one of these.
func onPage(t *testing.T, page string, begin ...string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(line, "    ")
		if ok && slices.ContainsFunc(begin, func(b string) bool { return strings.HasPrefix(command, b) }) {
			lines = append(lines, command)
		}
	}
	if len(lines) != len(begin) {
		t.Fatalf("the page has %q, want one line for each of %q", lines, begin)
	}
	return strings.Join(lines, "")
}

// TestSignature signs with keys that are thrown away, as openssl makes them, and has openssl verify
// it by the page's commands: nothing but what was signed passes, by no other key.
func TestSignature(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not on this machine: nothing else than what has signed could verify")
	}
	const page = "../../docs/release.md"
	verify := onPage(t, page, "base64 -d ", "openssl dgst ")
	pair := onPage(t, page, "openssl ecparam ", "openssl ec ")
	t.Chdir(t.TempDir())
	shell := func(script string) error { return exec.Command("sh", "-ec", script).Run() }
	for name, pair := range map[string]string{
		"as the page makes it": pair,
		"with parameters":      strings.ReplaceAll(pair, " -noout", ""),
		"PKCS 8":               pair + "openssl pkcs8 -topk8 -nocrypt -in spillway.key -out k && mv k spillway.key",
	} {
		t.Run(name, func(t *testing.T) {
			if shell(pair) != nil {
				t.Fatal("no keys")
			}
			key, err := readKey("spillway.key")
			if err != nil {
				t.Fatal(err)
			}
			text := []byte("0123  spillway-1.2.3.linux-amd64.tar.gz\n")
			encoded, err := sign(key, text)
			if err != nil {
				t.Fatal(err)
			}
			put := func(text, signature []byte) {
				save(t, checksums, string(text))
				save(t, checksums+".sig", base64.StdEncoding.EncodeToString(signature)+"\n")
			}
			signature, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(encoded)))
			if put(text, signature); err != nil || shell(verify) != nil {
				t.Errorf("what was signed is not verified: %v", err)
			}
			flip := func(b []byte, i int) []byte {
				b = slices.Clone(b)
				b[i] ^= 1
				return b
			}
			for i := range text {
				if put(flip(text, i), signature); shell(verify) == nil {
					t.Errorf("byte %d is another one, and it is verified", i)
				}
			}
			if put(text, flip(signature, len(signature)-1)); shell(verify) == nil {
				t.Error("another signature is verified")
			}
			put(text, signature)
			if shell(pair) != nil { // another one
				t.Fatal("no keys")
			}
			if shell(verify) == nil {
				t.Error("another key verifies it")
			}
		})
	}
}

// TestKeys: a key that cannot sign here is refused, in words.
func TestKeys(t *testing.T) {
	t.Chdir(t.TempDir())
	large, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b, err := x509.MarshalPKCS8PrivateKey(large)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		block pem.Block
		want  string
	}{
		{pem.Block{Type: "PRIVATE KEY", Bytes: b}, "it is no ECDSA key on P-256"},
		{pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}, "asn1"},
		{pem.Block{Type: "ENCRYPTED SIGSTORE PRIVATE KEY", Bytes: b}, "the key is encrypted; leave -sign away"},
		{
			pem.Block{Type: "EC PRIVATE KEY", Headers: map[string]string{"DEK-Info": "x", "Proc-Type": "4,ENCRYPTED"}, Bytes: b},
			"the key is encrypted",
		},
		{pem.Block{Type: "PUBLIC KEY", Bytes: b}, "there is no key in it"},
	} {
		save(t, "key", string(pem.EncodeToMemory(&tc.block)))
		if _, err := readKey("key"); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v; want %q", tc.block.Type, err, tc.want)
		}
	}
}
