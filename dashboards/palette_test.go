package dashboards

import (
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rgb is a colour of light, as much of each part as a screen sends out.
type rgb [3]float64

func light(t *testing.T, hex string) rgb {
	t.Helper()
	var out rgb
	for i := range out {
		n, err := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatalf("colour %q: %v", hex, err)
		}
		out[i] = float64(n) / 255
		if out[i] <= 0.04045 {
			out[i] /= 12.92
		} else {
			out[i] = math.Pow((out[i]+0.055)/1.055, 2.4)
		}
	}
	return out
}

// seen is the colour as eyes see it that lack one sort of cones, by the matrix of Machado, Oliveira
// and Fernandes (2009) for it.
func (c rgb) seen(m [3]rgb) rgb {
	var out rgb
	for i, row := range m {
		out[i] = min(1, max(0, row[0]*c[0]+row[1]*c[1]+row[2]*c[2]))
	}
	return out
}

var eyes = []struct {
	name string
	see  [3]rgb
}{
	{"that lack nothing", [3]rgb{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}},
	{"that see no red", [3]rgb{{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}}},
	{"that see no green", [3]rgb{{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}}},
	{"that see no blue", [3]rgb{{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}}},
}

// lab is the colour in Oklab, where equal distances look equal: 0.02 can just be told apart side by
// side, 0.1 at a glance.
func (c rgb) lab() rgb {
	l := math.Cbrt(0.4122214708*c[0] + 0.5363325363*c[1] + 0.0514459929*c[2])
	m := math.Cbrt(0.2119034982*c[0] + 0.6806995451*c[1] + 0.1073969566*c[2])
	s := math.Cbrt(0.0883024619*c[0] + 0.2817188376*c[1] + 0.6299787005*c[2])
	return rgb{
		0.2104542553*l + 0.7936177850*m - 0.0040720468*s,
		1.9779984951*l - 2.4285922050*m + 0.4505937099*s,
		0.0259040371*l + 0.7827717662*m - 0.8086757660*s,
	}
}

func apart(a, b rgb) float64 {
	a, b = a.lab(), b.lab()
	return math.Sqrt((a[0]-b[0])*(a[0]-b[0]) + (a[1]-b[1])*(a[1]-b[1]) + (a[2]-b[2])*(a[2]-b[2]))
}

// contrast of two colours as WCAG 2 has it, from 1 to 21.
func contrast(a, b rgb) float64 {
	luminance := func(c rgb) float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] }
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// TestPalette: the first eight colours of series can be told apart by everybody, all sixteen by
// most, from what is judged too, and each stands out from the panels of both themes.
func TestPalette(t *testing.T) {
	grounds := map[string]string{"dark": "#181b1f", "light": "#ffffff"}
	all := slices.Concat(series, tones)
	for i, a := range all {
		for theme, ground := range grounds {
			if c := contrast(light(t, a), light(t, ground)); c < 1.95 {
				t.Errorf("%s on a panel of the %s theme has a contrast of %.2f", a, theme, c)
			}
		}
		for _, j := range judged {
			if d := apart(light(t, a), light(t, j)); d < 0.085 {
				t.Errorf("%s could be taken for %s, which judges: %.3f apart", a, j, d)
			}
		}
		for k, b := range all[:i] {
			for n, e := range eyes {
				far := 0.085
				switch first := i < len(series) && k < len(series); {
				case n > 0 && !first:
					continue
				case n > 0:
					far = 0.07
				case first:
					far = 0.1
				}
				if d := apart(light(t, a).seen(e.see), light(t, b).seen(e.see)); d < far {
					t.Errorf("%s and %s are %.3f apart for eyes %s, which is less than %.3f", a, b, d, e.name, far)
				}
			}
		}
	}
	used := map[string]bool{}
	for _, name := range Names() {
		for _, p := range load(t, name).Panels {
			for _, l := range looks(t, &p) {
				used[l.colour] = true
			}
		}
	}
	for _, c := range all {
		if !used[c] {
			t.Errorf("no series can have the colour %s: is it the one of jsonnet/lib/palette.libsonnet?", c)
		}
	}
}

// look is what a panel does with the series whose names match.
type look struct {
	match         func(name string) bool
	colour, style string
}

// looks are those of a panel that go by expressions as jsonnet/lib/field.libsonnet makes them: one
// that Go has, or what must not match before it.
func looks(t *testing.T, p *Panel) []look {
	t.Helper()
	var out []look
	for _, o := range p.FieldConfig.Overrides {
		expr, ok := o.Matcher.Options.(string)
		if !ok || !strings.HasPrefix(expr, "/^") || !strings.HasSuffix(expr, "/i") {
			continue
		}
		parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(expr, "/^"), "/i"), "(?!")
		var is, not []*regexp.Regexp
		is = append(is, regexp.MustCompile("(?i)^"+parts[0]))
		for _, part := range parts[1:] {
			not = append(not, regexp.MustCompile("(?i)^"+strings.TrimSuffix(part, ")")))
		}
		l := look{match: func(name string) bool {
			matches := func(re *regexp.Regexp) bool { return re.MatchString(name) }
			return is[0].MatchString(name) && !slices.ContainsFunc(not, matches)
		}}
		for _, prop := range o.Properties {
			var v struct{ FixedColor, Fill string }
			if err := json.Unmarshal(prop.Value, &v); err != nil {
				t.Fatalf("panel %q: %s: %v", p.Title, prop.Value, err)
			}
			l.colour, l.style = l.colour+v.FixedColor, l.style+v.Fill
		}
		out = append(out, l)
	}
	return out
}

// named is how a series looks: of overrides the last one counts.
func named(all []look, name string) (colour, style string) {
	for _, l := range all {
		if !l.match(name) {
			continue
		}
		if l.colour != "" {
			colour = l.colour
		}
		if l.style != "" {
			style = l.style
		}
	}
	return colour, style
}

// TestNamesLookDifferent: of names that stand together on a panel, those of up to eight differ in
// colour and those of more in colour or line.
func TestNamesLookDifferent(t *testing.T) {
	var all []look
	for _, p := range load(t, "gpu-node").Panels {
		if p.Title == "Graphics engine active" {
			all = looks(t, &p)
		}
	}
	if len(all) != 17 {
		t.Fatalf("there are %d looks, and sixteen colours and dashes were meant", len(all))
	}
	for what, names := range map[string]string{
		"GPUs":       "GPU 0,GPU 1,GPU 2,GPU 3,GPU 4,GPU 5,GPU 6,GPU 7",
		"clusters":   "ibis,jaguar",
		"regions":    "eu-1,eu-2,us-1,us-2,ap-1",
		"teams":      "audio,evals,interpretability,pretraining,robotics,unassigned,vision",
		"resources":  "configmaps,endpointslices,events,jobs,leases,nodes,pods,secrets",
		"endpoints":  "query,query_range,series,labels,label_values,metadata",
		"outcomes":   "success,canceled,bad_data,too_expensive,overloaded,timeout,shard_failed,internal",
		"plans":      "pass,splice,push,mixed,raw",
		"calls":      "/api/v1/query,/api/v1/query_range,/api/v1/series,/api/v1/labels,/api/v1/label/:name/values,/metrics",
		"modes":      "iowait,irq,nice,softirq,steal,system,user",
		"kernels":    "Ext4Error,FilesystemIsReadOnly,GPUXid,GPUXidApplication,IOError,XfsHasShutdown",
		"racks":      "ibis r000,ibis r001,ibis r002,jaguar r000,jaguar r001,jaguar r002",
		"shards":     "ibis 0,ibis 1,jaguar 0,jaguar 1,rules 0",
		"models":     "NVIDIA A100-SXM4-80GB,NVIDIA H100 80GB HBM3,NVIDIA H200,NVIDIA B200",
		"namespaces": "research-audio,research-evals,research-interpretability,research-pretraining,research-robotics,research-vision,research-vision-dev,sandbox,default",
		"jobs": "node-exporter,dcgm-exporter,kubelet,cadvisor,kube-apiserver,kube-state-metrics,etcd,etcd-events,iptables-exporter,node-problem-detector,prometheus,spillway,coredns," +
			"cluster-autoscaler,kube-scheduler,kube-controller-manager,node-mesh,apiserver-slis",
		"members": "etcd 10.0.0.10:2381 ibis,etcd 10.0.0.11:2381 ibis,etcd 10.0.0.12:2381 ibis,etcd-events 10.0.0.10:2382 ibis,etcd-events 10.0.0.11:2382 ibis,etcd-events 10.0.0.12:2382 ibis," +
			"etcd 10.0.0.10:2381 jaguar,etcd 10.0.0.11:2381 jaguar,etcd 10.0.0.12:2381 jaguar,etcd-events 10.0.0.10:2382 jaguar,etcd-events 10.0.0.11:2382 jaguar,etcd-events 10.0.0.12:2382 jaguar",
	} {
		group := strings.Split(names, ",")
		seen := map[string]string{}
		for _, name := range group {
			colour, style := named(all, name)
			if !slices.Contains(series, colour) && !slices.Contains(tones, colour) {
				t.Errorf("%s: %q has the colour %q", what, name, colour)
			}
			if len(group) > len(series) {
				colour += " " + style
			}
			if other := seen[colour]; other != "" {
				t.Errorf("%s: %q looks like %q: %s", what, name, other, colour)
			}
			seen[colour] = name
			if what == "GPUs" && !slices.Contains(series, colour) {
				t.Errorf("%q has a second tone, and the first eight stay apart for everybody", name)
			}
		}
	}
}
