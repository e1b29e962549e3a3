package main

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// TestCosign has cosign itself verify what readKey and sign made, and sign and verify an image in a
// registry, by the commands of docs/release.md and docs/image.md: with no network but the registry,
// and nothing passes that is not what was signed.
func TestCosign(t *testing.T) {
	if !*cold {
		t.Skip("builds cosign, two minutes: run with -release.cold, as make test-full does")
	}
	bin := t.TempDir()
	install := exec.Command("go", "install", "github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3")
	install.Env = append(os.Environ(), "GOBIN="+bin, "GOFLAGS=-trimpath", "CGO_ENABLED=0")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("cosign could not be built: %v: %s", err, out)
	}
	pair := onPage(t, "../../docs/release.md", "openssl ecparam ", "openssl ec ")
	blob := onPage(t, "../../docs/release.md", "cosign verify-blob ")
	signs := onPage(t, "../../docs/image.md", "cosign import-key-pair ", "cosign sign ")
	verifies := onPage(t, "../../docs/image.md", "cosign verify ")

	// TUF_ROOT is empty and no proxy is reached: keys of the public service are nowhere to be had.
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("COSIGN_PASSWORD", "")
	t.Setenv("TUF_ROOT", t.TempDir())
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	t.Chdir(t.TempDir())
	shell := func(script string) error {
		out, err := exec.Command("sh", "-ec", script).CombinedOutput()
		t.Logf("%s%s(%v)", script, out, err)
		return err
	}
	if shell(pair) != nil {
		t.Fatal("no keys")
	}
	key, err := readKey("spillway.key")
	if err != nil {
		t.Fatal(err)
	}
	text := "0123  spillway-1.2.3.linux-amd64.tar.gz\n"
	signature, err := sign(key, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	save(t, checksums, text)
	save(t, checksums+".sig", string(signature))
	if shell(blob) != nil {
		t.Error("cosign does not verify what was signed")
	}

	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	push := func(tag string) string {
		index, err := random.Index(100, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.ParseReference(host + "/team/spillway:" + tag)
		if err == nil {
			err = remote.WriteIndex(ref, index)
		}
		digest, derr := index.Digest()
		if err != nil || derr != nil {
			t.Fatal(err, derr)
		}
		return digest.String()
	}
	at := func(script, digest string) error {
		return shell("DIGEST=" + digest + "\n" + strings.ReplaceAll(script, "registry.example", host))
	}
	signed, other := push("1.2.3"), push("1.2.4")
	if at(signs, signed) != nil || at(verifies, signed) != nil {
		t.Error("an image that was signed is not verified")
	}
	if at(verifies, other) == nil {
		t.Error("an image that nobody signed is verified")
	}

	save(t, checksums, strings.Replace(text, "amd64", "arm64", 1))
	if shell(blob) == nil {
		t.Error("another text is verified")
	}
	save(t, checksums, text)
	if err := os.Rename("spillway.pub", filepath.Join(bin, "spillway.pub")); err != nil || shell(pair) != nil {
		t.Fatal("no other keys")
	}
	if shell(blob) == nil || at(verifies, signed) == nil {
		t.Error("another key verifies it")
	}
}
