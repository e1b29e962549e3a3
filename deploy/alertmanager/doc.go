// Package alertmanager holds the Alertmanager configuration that Spillway's alerts are written for
// (alertmanager.yml, embedded as Config), and a way to rehearse it: the same routes and inhibitions
// with every receiver a webhook of the caller's, in a real Alertmanager on a free port.
// docs/alertmanager.md has the reasons for each route.
//
// What it promises. Rehearsal changes receivers and waits, nothing else: which receiver gets an
// alert, how alerts are grouped and what is silenced stays as in the file. A server that Start
// started listens on 127.0.0.1 only, gossips with nobody, and ends with Stop or with this process.
//
// What it refuses. It installs nothing: a missing program is an error that says to run
// tools/debian.sh alertmanager. It sends nothing to the receivers of the file.
//
// What it holds: the configuration, and the last 256 KiB of the server's log.
//
//	conf, err := alertmanager.Rehearsal(alertmanager.Config, "http://127.0.0.1:8080", 30)
//	srv, err := alertmanager.Start(ctx, conf)
//	if err != nil { … }
//	defer srv.Stop()
//	// alerts go to srv.URL(); notifications come to http://127.0.0.1:8080/critical and so on
package alertmanager
