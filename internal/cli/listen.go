package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

// CheckAddresses finds what is wrong with the addresses of the listeners as far as their text
// tells. An empty one of metrics is none.
func CheckAddresses(main, admin, metrics string) error {
	var errs []error
	taken := map[string]string{} // flags by address
	for _, a := range []struct{ flag, value string }{
		{"web.listen-address", main}, {"web.admin-listen-address", admin}, {"web.metrics-listen-address", metrics},
	} {
		if a.flag == "web.metrics-listen-address" && a.value == "" {
			continue
		}
		_, port, err := net.SplitHostPort(a.value)
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s=%s: write host:port, such as 127.0.0.1:9090", a.flag, a.value))
			continue
		}
		if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
			errs = append(errs, fmt.Errorf("--%s=%s: the port %q is no number from 0 (any free one) to 65535", a.flag, a.value, port))
		} else if other := taken[a.value]; other != "" && n != 0 {
			errs = append(errs, fmt.Errorf("--%s and --%s are both %s; give each its own port", other, a.flag, a.value))
		}
		taken[a.value] = a.flag
	}
	return errors.Join(errs...)
}

// mostConnections is more than any process has file descriptors for.
const mostConnections = 1_000_000

// checkConnections finds what is wrong with the caps on connections; 0 of one address is the
// default.
func checkConnections(most, each int) error {
	switch {
	case most < 1 || most > mostConnections:
		return fmt.Errorf("--web.max-connections=%d: write a number from 1 to %d", most, mostConnections)
	case each < 0 || each > most:
		return fmt.Errorf("--web.max-connections-per-address=%d: write a number from 1 to --web.max-connections, which is %d, or 0 for three quarters of that", each, most)
	}
	return nil
}

// checkDelay finds what is wrong with the delay of an end.
func checkDelay(d time.Duration) error {
	if d < 0 || d > time.Hour {
		return fmt.Errorf("--web.shutdown-delay=%s: write a time from 0s to 1h", d)
	}
	return nil
}

// checkReadyWait finds what is wrong with how long a start waits for servers.
func checkReadyWait(d time.Duration) error {
	if d < 0 || d > 24*time.Hour {
		return fmt.Errorf("--web.ready-wait=%s: write a time from 0s to 24h", d)
	}
	return nil
}

// AdviseOnListening adds to an error of a listener what can be done about it.
func AdviseOnListening(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w; another process listens there (a Prometheus?): stop it, or choose other ports with --web.listen-address and --web.admin-listen-address", err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%w; this machine does not have that address", err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w; ports below 1024 need privileges, others do not", err)
	}
	return err
}
