package helm

import (
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// withWeb are values with a web configuration of the user's own.
func withWeb(t *testing.T, web obj) map[string]any {
	t.Helper()
	values := valuesOf(t, ciFiles(t)["minimal"])
	values["web"] = web
	return values
}

// TestBrokenCertificateKillsNoPod: where certificate and key do not fit each other all handshakes
// fail. A restart mends nothing, so that only readiness asks over TLS.
func TestBrokenCertificateKillsNoPod(t *testing.T) {
	for _, c := range []struct {
		what         string
		web          obj
		lives, ready string // the scheme; none is that a connection is opened
	}{
		{"no TLS", obj{}, "HTTP", "HTTP"},
		{"passwords alone", obj{"existingSecret": "web"}, "HTTP", "HTTP"},
		{"TLS", obj{"existingSecret": "web", "tls": true}, "", "HTTPS"},
		{"client certificates", obj{"existingSecret": "web", "tls": true, "clientCertificates": true}, "", ""},
	} {
		objects, err := render(withWeb(t, c.web))
		if err != nil {
			t.Fatal(c.what, err)
		}
		pod := find[*appsv1.Deployment](t, objects, "spillway").Spec.Template.Spec.Containers[0]
		for name, p := range map[string]struct {
			probe *corev1.Probe
			want  string
		}{"startup": {pod.StartupProbe, c.lives}, "liveness": {pod.LivenessProbe, c.lives}, "readiness": {pod.ReadinessProbe, c.ready}} {
			scheme := ""
			if get := p.probe.HTTPGet; get != nil {
				scheme = string(get.Scheme)
			}
			if scheme != p.want || (p.probe.TCPSocket != nil) != (p.want == "") {
				t.Errorf("%s: %s asks by %q, want %q", c.what, name, scheme, p.want)
			}
		}
	}
}

// TestNotesAskAsListenersWant: the check that the notes print gets past the certificate, which is
// for another name than 127.0.0.1, and past the passwords.
func TestNotesAskAsListenersWant(t *testing.T) {
	for _, c := range []struct {
		what, curl string
		web        obj
		explained  []string
	}{
		{"neither", "curl 'http://127", obj{}, nil},
		{"passwords", "curl -u USER 'http://127", obj{"existingSecret": "web"}, []string{"\n\nUSER is one of basic_auth_users"}},
		{"TLS", "curl -k -u USER 'https://127", obj{"existingSecret": "web", "tls": true}, []string{"\n\n-k is there", "USER is"}},
		{
			"certificates", "curl -k -u USER 'https://127",
			obj{"existingSecret": "web", "tls": true, "clientCertificates": true},
			[]string{"--cert and --key"},
		},
	} {
		notes := notesOf(t, withWeb(t, c.web))
		if !strings.Contains(notes, "\n  "+c.curl) {
			t.Errorf("%s: no %q in\n%s", c.what, c.curl, notes)
		}
		for _, want := range c.explained {
			if !strings.Contains(notes, want) {
				t.Errorf("%s: no %q in\n%s", c.what, want, notes)
			}
		}
		if c.explained == nil && (strings.Contains(notes, "USER") || strings.Contains(notes, "-k")) {
			t.Errorf("%s: the notes tell of what is not there:\n%s", c.what, notes)
		}
	}
}

// TestDrainIsTold: a node with a pod that has an emptyDir is drained by a flag alone, so the
// chart's page says so.
func TestDrainIsTold(t *testing.T) {
	objects, err := render(withWeb(t, obj{}))
	if err != nil {
		t.Fatal(err)
	}
	local := slices.ContainsFunc(find[*appsv1.Deployment](t, objects, "spillway").Spec.Template.Spec.Volumes,
		func(v corev1.Volume) bool { return v.EmptyDir != nil })
	readme, err := os.ReadFile("spillway/README.md")
	if err != nil {
		t.Fatal(err)
	}
	if told := strings.Contains(string(readme), "`kubectl drain NODE --ignore-daemonsets --delete-emptydir-data`"); local != told {
		t.Errorf("by default a pod has an emptyDir: %t; the page has the flag: %t", local, told)
	}
}
