package cli

import (
	"runtime/debug"
	"testing"
)

// A build has the version of its module, else of its revision, and is unknown only where its build
// information knows nothing.
func TestVersionOfABuild(t *testing.T) {
	built := func(version string, settings ...string) *debug.BuildInfo {
		info := &debug.BuildInfo{Main: debug.Module{Version: version}}
		for i := 0; i < len(settings); i += 2 {
			info.Settings = append(info.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
		}
		return info
	}
	const revision = "0123456789abcdef0123456789abcdef01234567"
	for _, c := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{nil, "unknown"},
		{built(""), "unknown"},
		{built("(devel)"), "unknown"},
		{built("v1.2.3"), "1.2.3"},
		{built("v1.2.3", "vcs.revision", revision), "1.2.3"},
		{built("(devel)", "vcs.revision", revision, "vcs.modified", "false"), "0.0.0-0123456789ab"},
		{built("(devel)", "vcs.modified", "true", "vcs.revision", revision), "0.0.0-0123456789ab+dirty"},
		{built("(devel)", "vcs.modified", "true"), "unknown"},
	} {
		if got := versionOf(c.info); got != c.want {
			t.Errorf("%+v: %s, want %s", c.info, got, c.want)
		}
	}
	if BuildVersion() == "" || BuildVersion() == "dev" {
		t.Errorf("this build's version is %q", BuildVersion())
	}
}
