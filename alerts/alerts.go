package alerts

import (
	"embed"
	"io/fs"
)

//go:embed global/*.yaml shard/*.yaml
var files embed.FS

// Global are the rule files for a ruler that asks the proxy, such as apiserver.yaml and
// apiserver-rules.yaml.
func Global() fs.FS { return sub("global") }

// Shard are the rule files for each Prometheus.
func Shard() fs.FS { return sub("shard") }

func sub(dir string) fs.FS {
	f, err := fs.Sub(files, dir)
	if err != nil {
		panic(err) // dir is one of two words above
	}
	return f
}
