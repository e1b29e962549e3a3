package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// writeLayout puts the image into a folder in the place of the image that is there, under its
// version as the name by which skopeo and podman find it.
func writeLayout(to string, index v1.ImageIndex, version string) error {
	if entries, err := os.ReadDir(to); err == nil && len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(to, "oci-layout")); err != nil {
			return fmt.Errorf("-out %s: the folder holds something else than an image; name an empty or a new one", to)
		}
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), ".image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // empty by then, or half an image
	path, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version}))
	}
	if err != nil {
		return fmt.Errorf("-out %s: %w", to, err)
	}
	if err := readable(dir); err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.Rename(dir, to)
}

// readable lets everybody read the folder, whatever made its files.
func readable(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	})
}
