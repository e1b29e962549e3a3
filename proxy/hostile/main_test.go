package hostile

import (
	"fmt"
	"os"
	"testing"

	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(shardsEnv) != "" {
		if err := serveShards(); err != nil {
			fmt.Fprintln(os.Stderr, "the shards:", err)
			os.Exit(1)
		}
		return
	}
	realpromtest.Main(m)
}
