package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/realprom"
)

// unpack writes an image's files into a folder, as a container engine would.
func unpack(t *testing.T, img v1.Image) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	files := mutate.Extract(img)
	defer files.Close()
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return root
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.ModTime.Unix() != 1700000000 {
			t.Errorf("%s is of %s", h.Name, h.ModTime)
		}
		path := filepath.Join(root, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			var b bytes.Buffer
			if _, err = io.Copy(&b, r); err == nil {
				err = os.WriteFile(path, b.Bytes(), h.FileInfo().Mode())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// inside is a command that sees the image's files and nothing else, as the image's user where this
// user may have that.
func inside(root string, args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Path, cmd.Dir, cmd.Env = args[0], "/", []string{"PATH=/"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		return cmd
	}
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	return cmd
}

// starts runs the program with nothing but the image's files around it: it tells its version, and
// is ready in front of a server, with the arguments of the image.
func starts(t *testing.T, root string, c v1.Config) {
	shard := fakeshard.Start(t, fakeshard.Config{})
	file := fmt.Sprintf("groups: [{name: a, labels: {cluster: a}, shards: [{replicas: [{url: %q}]}]}]\n", shard.URL())
	if err := os.WriteFile(filepath.Join(root, "etc/spillway/spillway.yaml"), []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := inside(root, c.Entrypoint[0], "--version").CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("this user may neither change its root nor make a user namespace: ", err)
	}
	if err != nil || !strings.Contains(string(out), "version 1.2.3") || !strings.Contains(string(out), "0123456789abcdef") {
		t.Errorf("%v: %s", err, out)
	}
	ports, err := realprom.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	args := append(append([]string{}, c.Entrypoint...), c.Cmd...)
	if args[1] != "proxy" || args[len(args)-1] != "--web.listen-address=:9090" {
		t.Errorf("the image runs %q", args)
	}
	args[len(args)-1] = fmt.Sprintf("--web.listen-address=127.0.0.1:%d", ports[0])
	cmd := inside(root, append(args, fmt.Sprintf("--web.admin-listen-address=127.0.0.1:%d", ports[1]))...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ready := false
	for end := time.Now().Add(time.Minute); !ready && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/-/ready", ports[0]))
		if err == nil {
			ready = resp.StatusCode == http.StatusOK
			_ = resp.Body.Close()
		}
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // gone already is what Wait tells
	if err := <-ended; err != nil || !ready {
		t.Errorf("ready %t, ended with %v:\n%s", ready, err, log.String())
	}
}
