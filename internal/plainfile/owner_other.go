//go:build !unix

package plainfile

import (
	"io/fs"
	"os"
)

func own(*os.File, fs.FileInfo) {}

func mounted(error) bool { return false }
