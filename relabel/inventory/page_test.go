package inventory

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

var target = labels.FromStrings("job", "j", "instance", "i")

func lines(t testing.TB, contentType, body string) ([]string, error) {
	t.Helper()
	p := &page{where: "page", body: []byte(body), contentType: contentType, target: target}
	var out []string
	err := p.each(t.Context(), func(s *sample) error { out = append(out, describe(&s.Series)); return nil })
	return out, err
}

func TestPage(t *testing.T) {
	for _, tc := range []struct {
		name, contentType, body string
		want                    []string
	}{
		{"le and quantile are normalised", textType, `# TYPE h histogram
h_bucket{le="30"} 1
h_bucket{le="0.5"} 1
h_bucket{le="+Inf"} 1
h_sum 1
h_count 1
# TYPE s summary
s{quantile="1"} 1
s_sum 1
# TYPE c counter
c_total{le="30"} 1
`, []string{
			`{__name__="h_bucket", instance="i", job="j", le="30.0"} histogram`,
			`{__name__="h_bucket", instance="i", job="j", le="0.5"} histogram`,
			`{__name__="h_bucket", instance="i", job="j", le="+Inf"} histogram`,
			`{__name__="h_sum", instance="i", job="j"} histogram`,
			`{__name__="h_count", instance="i", job="j"} histogram`,
			`{__name__="s", instance="i", job="j", quantile="1.0"} summary`,
			`{__name__="s_sum", instance="i", job="j"} summary`,
			`{__name__="c_total", instance="i", job="j", le="30"} counter`, // no bucket: stays as it is
		}},
		{"labels of the page that clash with the target's", textType, `a{job="x",instance="y",exported_job="z"} 1
a{job=""} 1
`, []string{
			`{__name__="a", exported_exported_job="x", exported_instance="y", exported_job="z", instance="i", job="j"} unknown`,
			`{__name__="a", instance="i", job="j"} unknown`,
		}},
		{"a series that stands there twice is stored once", textType, "a{b=\"1\",c=\"2\"} 1\na{c=\"2\",b=\"1\"} 2\n", []string{`{__name__="a", b="1", c="2", instance="i", job="j"} unknown`}},
		{"names of any kind", textType, "{\"a.b\",\"c d\"=\"é\"} 1\n", []string{`{__name__="a.b", "c d"="é", instance="i", job="j"} unknown`}},
		{"OpenMetrics", openMetricsType, `# TYPE c counter
c_total 1 # {trace_id="x"} 1
c_created 1
# TYPE v info
v_info{version="1"} 1
# EOF
`, []string{
			`{__name__="c_total", instance="i", job="j"} counter`,
			`{__name__="c_created", instance="i", job="j"} unknown`,
			`{__name__="v_info", instance="i", job="j", version="1"} info`,
		}},
		{"a type is that of its own family", textType, "# TYPE x summary\nx_count 1\n# TYPE x_bucket gauge\nx_bucket 1\ny_bucket 1\n", []string{
			`{__name__="x_count", instance="i", job="j"} summary`,
			`{__name__="x_bucket", instance="i", job="j"} gauge`,
			`{__name__="y_bucket", instance="i", job="j"} unknown`,
		}},
		{"no series at all", textType, "# HELP a b\n", nil},
		{"no content type", "", "a 1\n", []string{`{__name__="a", instance="i", job="j"} unknown`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := lines(t, tc.contentType, tc.body)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

func TestBadPageIsNamedWithItsLine(t *testing.T) {
	long := strings.Repeat("a{b=\"c\"} 1\n", 1000)
	for _, tc := range []struct{ name, contentType, body, says, alsoSays string }{
		{"no value", textType, "a 1\nb\nc 1\n", "page:2: ", ""},
		{"far down", textType, long + "x{ 1\n" + long, "page:1001: ", ""},
		{"first line", textType, "<html>\n<body>\n", "page:1: ", "looks like HTML"},
		{"cut short", textType, long + `a{b="`, "page:1001: ", ""},
		{"no name", textType, "a 1\n\n# c\n{b=\"c\"} 1\n", "page:4: ", ""},
		{"an exemplar in text", textType, "a 1\na_bucket{le=\"1\"} 1 # {trace_id=\"x\"} 1\n", "page:2: ", "extension .om"},
		{"OpenMetrics without its end", openMetricsType, "# TYPE a gauge\na 1\n", "page:2: ", "was cut short"},
		{"OpenMetrics with a blank line", openMetricsType, "a 1\n\nb 1\n# EOF\n", "page:2: ", ""},
		{"not UTF-8", textType, "a 1\nb{c=\"\xff\"} 1\n", "page:2: ", ""},
		{"not protobuf", protobufType, "a 1\n", "page: ", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := lines(t, tc.contentType, tc.body)
			if err == nil || !strings.HasPrefix(err.Error(), tc.says) || !strings.Contains(err.Error(), tc.alsoSays) {
				t.Errorf("got %v and %d series, want an error that begins with %q and says %q", err, len(got), tc.says, tc.alsoSays)
			}
		})
	}
}

func TestPageStops(t *testing.T) {
	p := &page{where: "page", body: []byte(strings.Repeat("a 1\n", 10)), contentType: textType, target: target}
	enough := errors.New("enough")
	if err := p.each(t.Context(), func(*sample) error { return enough }); !errors.Is(err, enough) || err.Error() != "enough" {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	if err := p.each(ctx, func(*sample) error { return nil }); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
}

// FuzzPage: whatever a page holds, reading it ends, each series has a name and the target's labels
// and comes once, and what is wrong with it is on one of its lines.
func FuzzPage(f *testing.F) {
	for _, body := range []string{
		"a 1\n", "# TYPE h histogram\nh_bucket{le=\"1\"} 1 # {a=\"b\"} 1 2\nh_sum 1\n# EOF\n", "a{job=\"x\",exported_job=\"y\"} NaN 123\n",
		"{\"a b\",c=\"\\n\"} 1\n", "a\x00{ 1\r\n",
		"# TYPE s summary\ns{quantile=\"0.5\"} 1\ns_created 1\n# UNIT s x\n# EOF", "\n\n<html>",
	} {
		for kind := range uint8(3) {
			f.Add([]byte(body), kind)
		}
	}
	f.Add([]byte("\x0f\n\x01a\x18\x01\"\b\x12\x06\n\x04\x00\x00\x00"), uint8(2))
	f.Fuzz(func(t *testing.T, body []byte, kind uint8) {
		p := &page{where: "page", body: body, contentType: []string{textType, openMetricsType, protobufType}[kind%3], target: target}
		seen := map[string]bool{}
		n := 0
		err := p.each(t.Context(), func(s *sample) error {
			n++
			ls := s.Labels
			if ls.Get(model.MetricNameLabel) == "" || ls.Get("job") != "j" || ls.Get("instance") != "i" ||
				!ls.IsValid(model.UTF8Validation) {
				t.Errorf("labels %s", ls)
			}
			if seen[ls.String()] {
				t.Errorf("%s comes twice", ls)
			}
			seen[ls.String()] = true
			if s.Native != (s.h != nil) {
				t.Errorf("%s: native %v, histogram %v", ls, s.Native, s.h)
			}
			return nil
		})
		if err != nil && !strings.HasPrefix(err.Error(), "page") {
			t.Errorf("the error does not name the page: %v", err)
		}
	})
}
