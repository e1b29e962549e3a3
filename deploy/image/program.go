package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	// program is the package that the image runs.
	program = "github.com/spillwayproject/spillway/cmd/spillway"
	// stamped is the package whose variables tell a program's version.
	stamped = "github.com/prometheus/common/version"
)

// platform is the parsed form of linux/amd64 or linux/arm/v7.
func platform(text string) (*v1.Platform, error) {
	p, err := v1.ParsePlatform(strings.TrimSpace(text))
	if err != nil || p.OS != "linux" || p.Architecture == "" || p.OSVersion != "" {
		return nil, fmt.Errorf("platform %q: it is written linux/ARCHITECTURE, such as linux/arm64; the image has nothing but Linux programs", text)
	}
	return p, nil
}

// compile builds the program for a platform into its file: statically, without paths of this
// machine, and without anything that another build of the same commit would not have.
func compile(ctx context.Context, s source, b built) error {
	p := b.platform
	flags := []string{
		"-s", "-w", "-buildid=",
		"-X", stamped + ".Version=" + s.version,
		"-X", stamped + ".Revision=" + s.revision,
		"-X", stamped + ".BuildDate=" + s.created.Format("20060102-15:04:05"),
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=" + strings.Join(flags, " "), "-o", b.path, program}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOOS="+p.OS, "GOARCH="+p.Architecture, "GOEXPERIMENT=")
	switch p.Architecture {
	case "arm":
		cmd.Env = append(cmd.Env, "GOARM="+strings.TrimPrefix(p.Variant, "v"))
	case "amd64":
		cmd.Env = append(cmd.Env, "GOAMD64=v1")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building for %s: %w\n%s", p, err, out)
	}
	return nil
}
