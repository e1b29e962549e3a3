package main

import (
	"context"
	"crypto/subtle"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// decideTimeout bounds one webhook; Alertmanager itself gives up and comes again after
	// group_interval.
	decideTimeout = 50 * time.Second
	// stopGrace is how long webhooks under way may take when the program is to end.
	stopGrace = 15 * time.Second

	serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stderr, nil)
	stop()
	os.Exit(code)
}

// run is the program: exit code 2 for wrong flags, 1 for a failure, 0 for an end that was asked
// for. ready, if not nil, is told the address once it listens.
func run(ctx context.Context, args []string, stderr io.Writer, ready func(net.Addr)) int {
	f := flag.NewFlagSet("remediator", flag.ContinueOnError)
	f.SetOutput(stderr)
	listen := f.String("listen-address", "127.0.0.1:8080", "where Alertmanager's webhook, /metrics and /-/healthy are served")
	var s settings
	s.flags(f)
	alertmanager := f.String("alertmanager", "", "Alertmanager's URL, to ask whether a fleet alert fires, for silences, and whether what waits has ended")
	managerCA := f.String("alertmanager-ca-file", "", "file with Alertmanager's certificate authority, read again when it changes; empty for the system's")
	managerToken := f.String("alertmanager-token-file", "", "file with the token that Alertmanager is asked with (Authorization: Bearer), read each time; empty for none")
	token := f.String("token-file", "", "file with the token that webhooks must bring (Authorization: Bearer); needed with --act")
	kubeURL := f.String("kubernetes-url", inCluster(), "the API server; by default that of the cluster that this runs in")
	kubeToken := f.String("kubernetes-token-file", serviceAccount+"token", "file with the token for the API server; empty for none")
	kubeCA := f.String("kubernetes-ca-file", serviceAccount+"ca.crt", "file with the API server's certificate authority; empty for the system's")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	problems := check(s, *alertmanager, *managerCA, *token, f.Args())
	if len(problems) > 0 {
		for _, p := range problems {
			fmt.Fprintln(stderr, "remediator:", p)
		}
		return 2
	}
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	k, err := newKube(*kubeURL, *kubeToken, *kubeCA)
	if err != nil {
		fmt.Fprintln(stderr, "remediator:", err)
		return 2
	}
	reg := prometheus.NewRegistry()
	c := newController(s, k, *alertmanager, log, reg)
	if err := c.trusts(*managerCA, *managerToken); err != nil {
		fmt.Fprintln(stderr, "remediator:", err)
		return 2
	}
	defer k.client.CloseIdleConnections()
	defer c.client.CloseIdleConnections()

	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Error("cannot listen", "err", err)
		return 1
	}
	srv := &http.Server{
		Handler: handler(c, *token, reg), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 20 * time.Second,
		WriteTimeout: decideTimeout + 10*time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10,
	}
	log.Info("listening", "address", l.Addr().String(), "cluster", s.cluster, "act", s.act, "max_nodes", s.maxNodes, "window",
		s.window.String(), "max_cordoned", s.maxCordoned)
	beats, rest := context.WithCancel(ctx)
	var beat sync.WaitGroup
	beat.Go(func() { c.beat(beats) }) // waited for below
	defer func() { rest(); beat.Wait(); c.forget() }()
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }() // waited for below
	if ready != nil {
		ready(l.Addr())
	}
	select {
	case err := <-ended:
		log.Error("the listener ended", "err", err)
		return 1
	case <-ctx.Done():
	}
	log.Info("stopping")
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	err = srv.Shutdown(stopCtx)
	<-ended
	if err != nil {
		log.Error("a webhook was cut off", "err", err)
		return 1
	}
	return 0
}

// flags has them set by a command line.
func (s *settings) flags(f *flag.FlagSet) {
	f.StringVar(&s.cluster, "cluster", "", "the cluster whose alerts are acted on; its name is the alerts' label cluster")
	f.BoolVar(&s.act, "act", false, "cordon nodes; without it nothing is changed and the log says what would have been done")
	f.IntVar(&s.maxNodes, "max-nodes", 3, "how many nodes are cordoned within --window, at most")
	f.DurationVar(&s.window, "window", time.Hour, "the time that --max-nodes is for")
	f.Float64Var(&s.maxCordoned, "max-cordoned", 0.02, "share of all nodes that may be cordoned, by whomever, from 0 to 1; of few nodes one at least")
	f.Var(&s.maxOf, "max-of", "`LABEL=N`: of the nodes with one value of the label, such as a rack's, N may be cordoned; may be given several times")
	f.BoolVar(&s.markCordoned, "mark-cordoned", false, "mark nodes that somebody else has cordoned, too; without it planned work is left alone")
	s.leavingTaints = leavingTaints
	f.Var(&s.leavingTaints, "leaving-taints", "`keys` of taints, with commas between, of nodes that somebody takes away: they are left alone as long as they have one; empty: none")
	s.exclude = defaultSelectors()
	f.Var(&s.exclude, "exclude", "label `selector` of nodes that are left alone; may be given several times, one must match; empty: none")
	f.StringVar(&s.fleetAlerts, "fleet-alerts", "Fleet.+|LocationLost|KubeStateMetricsIncomplete",
		"names of alerts while which nothing is done, as a regular expression")
	f.StringVar(&s.watchdogScope, "watchdog-scope", "fleet",
		"its label scope where the rules about the fleet send it for the cluster: while Alertmanager does not know of that one, or has not heard of it for minutes, nothing is done; empty: not asked for")
	f.StringVar(&s.watchdog, "watchdog", "Watchdog", "an alert that fires always: while Alertmanager does not know of it nothing is done; empty: not asked for")
}

// check returns all that is wrong with the flags.
func check(s settings, alertmanager, managerCA, token string, rest []string) []string {
	var p []string
	if len(rest) > 0 {
		p = append(p, fmt.Sprintf("%q is no flag", rest[0]))
	}
	if !regexp.MustCompile(`^[A-Za-z0-9_.-]+$`).MatchString(s.cluster) {
		p = append(p, "--cluster is needed: the value of the label cluster of the alerts that are meant for this API server")
	}
	if !strings.HasPrefix(alertmanager, "http://") && !strings.HasPrefix(alertmanager, "https://") {
		p = append(p, "--alertmanager is needed, like http://alertmanager:9093: without it nobody can tell whether a fleet alert fires")
	}
	if managerCA != "" && strings.HasPrefix(alertmanager, "http://") {
		p = append(p, "--alertmanager-ca-file is for https://, and --alertmanager begins with http://")
	}
	if s.maxNodes < 1 {
		p = append(p, "--max-nodes must be 1 or more")
	}
	if s.window < time.Minute {
		p = append(p, "--window must be a minute or more")
	}
	if !(s.maxCordoned > 0 && s.maxCordoned <= 1) {
		p = append(p, "--max-cordoned must be above 0 and at most 1")
	}
	if _, err := regexp.Compile(s.fleetAlerts); err != nil || s.fleetAlerts == "" || strings.ContainsAny(s.fleetAlerts, "\"\\\n") {
		p = append(p, "--fleet-alerts must be a regular expression without quotes and backslashes")
	}
	if !regexp.MustCompile(`^[A-Za-z0-9_.:-]*$`).MatchString(s.watchdog) {
		p = append(p, "--watchdog must be an alert's name")
	}
	if !regexp.MustCompile(`^[A-Za-z0-9_.:-]*$`).MatchString(s.watchdogScope) {
		p = append(p, "--watchdog-scope must be the value of a label")
	}
	if s.act && token == "" {
		p = append(p, "--act needs --token-file: whoever could post here could cordon nodes")
	}
	return p
}

// inCluster is the API server's URL as pods are told it; empty elsewhere.
func inCluster() string {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return ""
	}
	return "https://" + net.JoinHostPort(host, port)
}

// handler serves the webhook, the metrics and the health page.
func handler(c *controller, tokenFile string, reg *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("POST /webhook", func(w http.ResponseWriter, r *http.Request) {
		if !authorized(r, tokenFile) {
			http.Error(w, "the bearer token is missing or wrong: see --token-file and the receiver's http_config.authorization", http.StatusUnauthorized)
			return
		}
		p, err := readPayload(http.MaxBytesReader(w, r.Body, maxPayload))
		if err != nil {
			// 4xx: Alertmanager does not send it again, which would not make it better.
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeoutCause(r.Context(), decideTimeout, fmt.Errorf("the webhook took longer than %s", decideTimeout))
		defer cancel()
		if err := c.decide(ctx, p); err != nil {
			// 5xx: Alertmanager sends it again.
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	return mux
}

// authorized compares the request's bearer token with the file's, which is read each time: secrets
// are renewed.
func authorized(r *http.Request, tokenFile string) bool {
	if tokenFile == "" {
		return true
	}
	want, err := os.ReadFile(tokenFile)
	if err != nil {
		return false
	}
	secret := strings.TrimSpace(string(want))
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && secret != "" && subtle.ConstantTimeCompare([]byte(got), []byte(secret)) == 1
}
