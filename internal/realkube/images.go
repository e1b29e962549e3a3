package realkube

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// PauseImage is the name of the image that holds the namespaces of a pod, for which the caller has
// the program internal/realkube/pause imported.
const PauseImage = "example.org/pause:1"

// Image is the image of one static program, as somebody else would have made it.
type Image struct {
	// Name is what pods call it.
	Name string
	// Program is the file of the program; it stands under /bin with its own name.
	Program string
	// Files are other files, by their paths in the image: static, small.
	Files map[string]string
	// User is whom it runs as, such as "65534"; root when empty.
	User string
}

// Write writes the image as an archive that Node.Import takes.
func (i Image) Write(archive string) error {
	program, err := os.ReadFile(i.Program)
	if err != nil {
		return err
	}
	path := "bin/" + i.Program[strings.LastIndexByte(i.Program, '/')+1:]
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name string, mode int64, content []byte) {
		if err == nil {
			err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))})
		}
		if err == nil {
			_, err = w.Write(content)
		}
	}
	add(path, 0o755, program)
	add("etc/passwd", 0o644, []byte("root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"))
	for name, text := range i.Files {
		add(name, 0o644, []byte(text))
	}
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		return err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	c, err := img.ConfigFile()
	if err != nil {
		return err
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Config = "linux", runtime.GOARCH, v1.Config{Entrypoint: []string{"/" + path}, User: i.User}
	if img, err = mutate.ConfigFile(img, c); err != nil {
		return err
	}
	tag, err := name.NewTag(i.Name)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(archive, tag, img)
}
