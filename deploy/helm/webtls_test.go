package helm

import (
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
