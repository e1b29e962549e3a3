package server

import (
	"log/slog"
	"net"
	"syscall"
	"testing"

	"github.com/spillwayproject/spillway/internal/timers"
)

// TestVanishedClients: whoever goes away without a word, by a cut cable or a lost tunnel, is found
// out within 45 s where nothing is sent to it. What is sent to it has writePatience
// (TestWhoReadsNothingIsEnded).
func TestVanishedClients(t *testing.T) {
	l, err := listen("127.0.0.1:0", caps{1, 1, 0}, "main", newMetricsForTest(), new(timers.Set), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*cappedConn).Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	err = raw.Control(func(fd uintptr) {
		for name, o := range map[string][2]int{
			"on": {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE}, "idle": {syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE},
			"interval": {syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL}, "count": {syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT},
		} {
			v, err := syscall.GetsockoptInt(int(fd), o[0], o[1])
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			got[name] = v
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := got["idle"] + got["interval"]*got["count"]; got["on"] == 0 || s > 45 {
		t.Errorf("a client that has vanished is found out after %d s: %v", s, got)
	}
}
