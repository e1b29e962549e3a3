//go:build !linux

package main

import (
	"errors"
	"os"
)

func lock(*os.File) (busy bool) { return false }

func exchange(*os.File, string, string) error { return errors.ErrUnsupported }
