//go:build unix

package server

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/plainfile"
)

// endsByItself is the error of what ends by itself; where it does not, the pipe is opened by a
// writer, who wakes whoever waits for one.
func endsByItself(t *testing.T, pipe string, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Errorf("it waits for somebody who writes into %s", pipe)
		w, err := os.OpenFile(pipe, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		return <-done
	}
}

// Where a named pipe lies in place of the configuration or of what it names, a reload says so at
// once, and the next one reads the file that is there again.
func TestReloadFromAPipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "spillway.yml"), filepath.Join(dir, "pipe")
	r := newRig(t, []rigGroup{{"heron", false, []int{1}}}, "", func(o *Options) { o.ConfigFile = file })
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		_ = os.Remove(file) // it is not there the first time
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(where string) {
		t.Helper()
		if err := endsByItself(t, pipe, r.s.Reload); err == nil || !strings.Contains(err.Error(), plainfile.ErrIrregular.Error()) ||
			!strings.Contains(err.Error(), where) {
			t.Errorf("a reload says %v", err)
		}
	}
	if err := os.Symlink(pipe, file); err != nil {
		t.Fatal(err)
	}
	refused(file)
	write(r.config + "drop_rules: {plan: [pipe]}\n")
	refused("drop_rules.plan")
	write(strings.Replace(r.config, "- {url: ", "- {http_client: {tls_config: {ca_file: pipe}}, url: ", 1))
	refused("groups[0].shards[0].replicas[0].http_client.tls_config.ca_file")
	write(strings.Replace(r.config, "- {url: ", "- {http_client: {basic_auth: {username: u, password_file: pipe}}, url: ", 1))
	refused("groups[0].shards[0].replicas[0].http_client.basic_auth.password_file")
	write(r.config + "limits: {max_series: 7}\n")
	if err := r.s.Reload(); err != nil || r.s.state.Load().cfg.Limits.MaxSeries != 7 {
		t.Errorf("the file itself: %v", err)
	}
}

// A web configuration is read for each connection: one that is no file is refused before there are
// any.
func TestWebConfigFromAPipe(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "web.yml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, []rigGroup{{"heron", false, []int{1}}}, "")
	s, err := New(Options{
		Config: r.s.state.Load().cfg, ListenAddress: "127.0.0.1:0", AdminListenAddress: "127.0.0.1:0",
		WebConfigFile: pipe,
	})
	if err != nil {
		t.Fatal(err)
	}
	err = endsByItself(t, pipe, func() error { return s.Run(t.Context(), context.Background()) })
	if err == nil || !strings.Contains(err.Error(), "--web.config.file: open "+pipe+": "+plainfile.ErrIrregular.Error()) {
		t.Errorf("it says %v", err)
	}
}
