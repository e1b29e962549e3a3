//go:build !linux

package realkube

import (
	"context"
	"errors"
)

// NodeIP is the address of a node, which only Linux can have.
const NodeIP = ""

func makeBridge(context.Context) error { return errors.New("a node needs Linux") }

func nodeArgs() []string { return nil }
