package mix

import (
	"strings"
	"testing"
)

const matrix = `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"1","b":"2"},"values":[[1.5,"3"],[2.5,"NaN"]]},{"metric":{},"values":[[1.5,"+Inf"]]}]}}`

func TestDiffers(t *testing.T) {
	with := func(old, new string) string { return strings.Replace(matrix, old, new, 1) }
	for _, c := range []struct{ name, got, want string }{
		{"equal", matrix, ""},
		{"another order of series and labels", `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1.5,"Inf"]]},{"metric":{"b":"2","a":"1"},"values":[[1.5,"3.0"],[2.5,"NaN"]]}]}}`, ""},
		{"added up in another order", with(`"3"`, `"3.0000000000000004"`), ""},
		{"infos are no warnings", with(`"data"`, `"infos":["x"],"data"`), ""},
		{"another value", with(`"3"`, `"3.00000000001"`), `3.00000000001 at 1.5 instead of 3 at 1.5`},
		{"NaN became a number", with(`"NaN"`, `"0"`), "instead of NaN"},
		{"another time", with(`[2.5,`, `[2.6,`), "at 2.6 instead"},
		{"a point more", with(`[1.5,"3"]`, `[0.5,"3"],[1.5,"3"]`), "3 points instead of 2"},
		{"another label", with(`"a":"1"`, `"a":"2"`), "is missing"},
		{"a series more", with(`{"metric":{},`, `{"metric":{"c":"1"},"values":[[1,"1"]]},{"metric":{},`), "3 series instead of 2"},
		{"another type", with(`matrix`, `vector`), "a vector instead of a matrix"},
		{"a warning", with(`"data"`, `"warnings":["cut"],"data"`), "cut"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, err := parseResult([]byte(matrix), false)
			if err != nil {
				t.Fatal(err)
			}
			got, err := parseResult([]byte(c.got), false)
			if err != nil {
				t.Fatal(err)
			}
			err = differs(want, got)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestParseResult(t *testing.T) {
	vector := func(labels ...string) string {
		var series []string
		for _, l := range labels {
			series = append(series, `{"metric":{`+l+`},"value":[1,"2"]}`)
		}
		return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(series, ",") + `]}}`
	}
	for _, c := range []struct {
		name, body string
		labeled    bool
		want       string
	}{
		{"a vector", vector(`"a":"1"`, ""), false, ""},
		{"all have the group's label", vector(`"a":"1","cluster":"jaguar"`, `"cluster":"jaguar"`), true, ""},
		{"none has it", vector(`"a":"1"`, ""), true, ""},
		{"one lacks it", vector(`"a":"1","cluster":"jaguar"`, ""), true, "is not the group's label"},
		{"another value", vector(`"cluster":"ibis"`), true, "is not the group's label"},
		{"twice", vector(`"a":"1"`, `"a":"1"`), false, "twice"},
		{"an error", `{"status":"error","error":"too dear"}`, false, "too dear"},
		{"no JSON", `<html>`, false, "not a Prometheus answer"},
		{"no value", `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"x"]}]}}`, false, "is no point"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseResult([]byte(c.body), c.labeled)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func FuzzParseResult(f *testing.F) {
	f.Add([]byte(matrix), false)
	f.Add([]byte(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"cluster":"jaguar"},"value":[1,"2"]}]}}`), true)
	f.Add([]byte(`{"status":"success","data":{"resultType":"vector","result":[{"metric":null,"value":[]}]}}`), false)
	f.Fuzz(func(t *testing.T, body []byte, labeled bool) {
		r, err := parseResult(body, labeled)
		if err != nil {
			return
		}
		if err := differs(r, r); err != nil {
			t.Errorf("an answer differs from itself: %v", err)
		}
	})
}
