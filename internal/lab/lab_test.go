package lab

import (
	"net"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"spillway-lab": func() { os.Exit(Laboratory.Main(os.Args[1:], os.Stdout, os.Stderr)) }})
}

// TestScripts runs the scripts of testdata/script against the program. $TAKEN is an address on
// which somebody listens.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			e.Defer(func() { _ = l.Close() })
			e.Setenv("TAKEN", l.Addr().String())
			return nil
		},
	})
}
