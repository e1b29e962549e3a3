package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Source is what a program is built from. Fields that are empty are filled in by Fill.
type Source struct {
	Version  string    // a semantic version without a v, or what git describe says
	Revision string    // of the commit
	Created  time.Time // the commit's time, UTC
	Modified bool      // what is built is not what was committed
}

// Fill asks git for what was not given.
func (s *Source) Fill(ctx context.Context) error {
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); s.Created.IsZero() && epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH is %q, which is no number of seconds", epoch)
		}
		s.Created = time.Unix(seconds, 0).UTC()
	}
	asked := s.Version == "" || s.Revision == "" || s.Created.IsZero()
	if asked {
		if err := s.askGit(ctx); err != nil {
			return err
		}
	}
	s.Version = strings.TrimPrefix(s.Version, "v")
	return nil
}

func (s *Source) askGit(ctx context.Context) error {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-c", "safe.directory=*"}, args...)...).Output()
		if err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
			}
			return "", fmt.Errorf("git %s: %w; without git give -version, -revision and -created", args[0], err)
		}
		return strings.TrimSpace(string(out)), nil
	}
	head, err := git("log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	hash, seconds, _ := strings.Cut(head, " ")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("git log says %q, which is no commit and its time", head)
	}
	described, err := git("describe", "--tags", "--always", "--dirty")
	if err != nil {
		return err
	}
	if s.Version == "" {
		s.Version = described
	}
	if s.Revision == "" {
		s.Revision = hash
		s.Modified = strings.HasSuffix(described, "-dirty")
	}
	if s.Created.IsZero() {
		s.Created = time.Unix(at, 0).UTC()
	}
	return nil
}
