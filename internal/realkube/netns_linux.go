package realkube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spillwayproject/spillway/internal/realprom"
)

// NetNS is a network namespace of its own, in which firewall rules and neighbours can be made that
// concern nobody else. It needs root and iproute2.
type NetNS struct {
	name string
	file *os.File
}

// NewNetNS makes one, with its loopback up.
func NewNetNS(ctx context.Context, name string) (*NetNS, error) {
	n := &NetNS{name: name}
	if err := command(ctx, "ip", "netns", "add", name); err != nil {
		return nil, err
	}
	f, err := os.Open("/var/run/netns/" + name)
	if err == nil {
		n.file = f
		err = n.Run(ctx, "ip", "link", "set", "lo", "up")
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Close removes the namespace; programs in it have ended before.
func (n *NetNS) Close() error {
	if n.file != nil {
		_ = n.file.Close()
	}
	return command(context.Background(), "ip", "netns", "del", n.name)
}

// Run runs a program in the namespace to its end.
func (n *NetNS) Run(ctx context.Context, args ...string) error {
	return command(ctx, append([]string{"ip", "netns", "exec", n.name}, args...)...)
}

// Start starts a program in the namespace.
func (n *NetNS) Start(log io.Writer, path string, args ...string) (*realprom.Process, error) {
	ip, err := exec.LookPath("ip")
	if err != nil {
		return nil, err
	}
	return realprom.StartProcess(realprom.ProcessOptions{
		Path: ip, Args: append([]string{"netns", "exec", n.name, path}, args...),
		Log: log,
	})
}

func command(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// dial connects to an address of the namespace: a socket belongs to the namespace of the thread
// that makes it.
func (n *NetNS) dial(addr *unix.SockaddrInet4) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine, in whatever namespace it is
		if err = unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("enter the namespace %s: %w", n.name, err)
			return
		}
		var fd int
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return
		}
		if err = unix.Connect(fd, addr); err != nil {
			_ = unix.Close(fd)
			return
		}
		f := os.NewFile(uintptr(fd), "netns")
		conn, err = net.FileConn(f)
		_ = f.Close()
	}()
	<-done
	return conn, err
}

// Forward makes a port of 127.0.0.1 in the namespace reachable at the address that it returns,
// until close is called.
func (n *NetNS) Forward(port int) (addr string, closeAll func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex // guards both
	open, closed := map[net.Conn]bool{}, false
	wg.Go(func() {
		for {
			outer, err := ln.Accept()
			if err != nil {
				return
			}
			inner, err := n.dial(&unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
			if err != nil {
				_ = outer.Close()
				continue
			}
			mu.Lock()
			if closed { // while it was dialled
				mu.Unlock()
				_ = outer.Close()
				_ = inner.Close()
				return
			}
			open[outer], open[inner] = true, true
			mu.Unlock()
			pipe := func(to, from net.Conn) {
				_, _ = io.Copy(to, from) // either end may leave
				_ = to.Close()
				_ = from.Close()
				mu.Lock()
				delete(open, to)
				mu.Unlock()
			}
			wg.Go(func() { pipe(inner, outer) })
			wg.Go(func() { pipe(outer, inner) })
		}
	})
	return ln.Addr().String(), func() {
		_ = ln.Close()
		mu.Lock()
		closed = true
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	}, nil
}

// OverflowNeighbours fills the kernel's neighbour table in the namespace until it is full, as too
// many nodes in one network do, and empties it again. The table is one for the whole machine: it
// takes a second or two.
func (n *NetNS) OverflowNeighbours(ctx context.Context, during func()) (err error) {
	if err := n.Run(ctx, "ip", "link", "add", "tv0", "type", "veth", "peer", "name", "tv1"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Run(context.WithoutCancel(ctx), "ip", "link", "del", "tv0")) }()
	for _, args := range [][]string{
		{"addr", "add", "10.123.0.1/16", "dev", "tv0"},
		{"link", "set", "tv0", "up"},
		{"link", "set", "tv1", "up"},
	} {
		if err := n.Run(ctx, append([]string{"ip"}, args...)...); err != nil {
			return err
		}
	}
	var batch strings.Builder
	for i := range 1300 {
		fmt.Fprintf(&batch, "neigh replace 10.123.%d.%d lladdr 02:00:00:00:%02x:%02x dev tv0 nud stale\n", 1+i/250, 1+i%250, i>>8, i&0xff)
	}
	cmd := exec.CommandContext(ctx, "ip", "netns", "exec", n.name, "ip", "-force", "-batch", "-")
	cmd.Stdin = strings.NewReader(batch.String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	_, _ = cmd.CombinedOutput() // the ones for which there is no room are refused: that is the point
	during()
	return nil
}
