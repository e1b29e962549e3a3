package plainfile

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// MaxFile is how much Read reads of a file at most: no dashboard, rule file or configuration is
// larger.
const MaxFile = 64 << 20

// Read is os.ReadFile of at most MaxFile bytes, of whatever a path leads to: a person's command may
// name a pipe, and /dev/zero by mistake. The errors name the path.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(text) > MaxFile {
		return nil, fmt.Errorf("%s: it is larger than %d MiB", path, MaxFile>>20)
	}
	return text, nil
}
