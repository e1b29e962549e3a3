package program

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

const (
	// Remediator is the package of the program that cordons nodes by alerts (docs/remediation.md).
	Remediator = "github.com/spillwayproject/spillway/deploy/alertmanager/remediator"
	// PluginCopy is the package of the program that copies the Grafana plugin to where Grafana
	// looks for plugins (docs/grafana-plugin.md).
	PluginCopy = "github.com/spillwayproject/spillway/deploy/grafana/plugincopy"
	// command is the package of the program.
	command = "github.com/spillwayproject/spillway/cmd/spillway"
	// stamped is the package whose variables tell a program's version.
	stamped = "github.com/prometheus/common/version"
)

// Platform is what a program runs on, in Go's words: GOOS and GOARCH, and for arm GOARM after a v.
type Platform struct{ OS, Arch, Variant string }

// String is the form linux/amd64 or linux/arm/v7.
func (p Platform) String() string {
	return strings.TrimSuffix(p.OS+"/"+p.Arch+"/"+p.Variant, "/")
}

// Build is BuildPackage of the product's program, cmd/spillway.
func Build(ctx context.Context, s Source, p Platform, path string) error {
	return BuildPackage(ctx, s, p, command, path)
}

// BuildPackage builds the program of a package of this module for a platform into a file:
// statically, without paths of this machine, and without anything that another build of the same
// commit would not have. It runs in a folder of this module.
func BuildPackage(ctx context.Context, s Source, p Platform, pkg, path string) error {
	flags := []string{
		"-s", "-w", "-buildid=",
		"-X", stamped + ".Version=" + s.Version,
		"-X", stamped + ".Revision=" + s.Revision,
		"-X", stamped + ".BuildDate=" + s.Created.Format("20060102-15:04:05"),
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=" + strings.Join(flags, " "), "-o", path, pkg}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOOS="+p.OS, "GOARCH="+p.Arch, "GOEXPERIMENT=")
	switch p.Arch {
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
