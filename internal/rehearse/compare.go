package rehearse

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spillwayproject/spillway/internal/clip"
)

// Kind is what of an answer changes.
type Kind string

// The kinds, the gravest first.
const (
	// Refused: one server answers and the other one refuses or fails, or for another reason.
	Refused Kind = "refusal"
	// Answer: series, samples or values differ.
	Answer Kind = "answer"
	// Notes: warnings and infos differ.
	Notes Kind = "warnings"
	// Cost: it takes more samples, or another plan.
	Cost Kind = "cost"
)

// Change is what would change.
type Change struct {
	Kind     Kind     `json:"kind"`
	Question Question `json:"question"`
	// Before and After are what the first difference is at either server: a sample with its series
	// and time, an error, a warning, a number of samples.
	Before string `json:"before"`
	After  string `json:"after"`
}

// compare is the gravest difference between two answers to a question; false where there is none.
func (o *Options) compare(before, after *answer) (kind Kind, was, is string, differ bool) {
	if before.kind != after.kind || (before.error == "") != (after.error == "") {
		return Refused, before.say(), after.say(), true
	}
	if before.error != "" {
		if before.error != after.error {
			return Refused, before.say(), after.say(), true
		}
		return "", "", "", false
	}
	if was, is, differ := o.rows(before.data, after.data); differ {
		return Answer, was, is, true
	}
	if !slices.Equal(before.notes, after.notes) {
		was, is := without(before.notes, after.notes), without(after.notes, before.notes)
		return Notes, cmp.Or(was, "no such warning"), cmp.Or(is, "no such warning"), true
	}
	if !o.costs {
		return "", "", "", false
	}
	if before.mode != "" && after.mode != "" && before.mode != after.mode {
		return Cost, "plan " + before.mode, "plan " + after.mode, true
	}
	if before.cost >= 0 && after.cost >= 0 && o.dearer(before.cost, after.cost) {
		return Cost, fmt.Sprintf("%d samples", before.cost), fmt.Sprintf("%d samples", after.cost), true
	}
	return "", "", "", false
}

// fewSamples is a number of samples about which nobody asks.
const fewSamples = 1000

// dearer tells whether the numbers of samples differ by more than is passed over.
func (o *Options) dearer(before, after int64) bool {
	least, most := min(before, after), max(before, after)
	return most-least > fewSamples && float64(most) > float64(least)*(1+o.CostChange)
}

func (a *answer) say() string {
	if a.error == "" {
		return fmt.Sprintf("an answer of %d series", len(a.data))
	}
	return clip.Text(a.kind+": "+a.error, 500)
}

// rows are the first row or point in which two answers differ, as texts; false where they do not.
// The texts are cut, and may be equal where the rows are not.
func (o *Options) rows(a, b []row) (was, is string, differ bool) {
	for i, j := 0, 0; i < len(a) || j < len(b); i, j = i+1, j+1 {
		switch {
		case j == len(b) || i < len(a) && a[i].key < b[j].key:
			return "series " + clip.Text(a[i].key, 300), fmt.Sprintf("no such series (%d in all, before %d)", len(b), len(a)), true
		case i == len(a) || b[j].key < a[i].key:
			return fmt.Sprintf("no such series (%d in all, after %d)", len(a), len(b)), "series " + clip.Text(b[j].key, 300), true
		}
		if was, is, differ := o.points(&a[i], &b[j]); differ {
			return was, is, true
		}
	}
	return "", "", false
}

// points are the first point in which two rows differ, as rows says it.
func (o *Options) points(a, b *row) (was, is string, differ bool) {
	say := func(r *row, i int) string { return pointText(r, i, valueText(r.points[i].value)) }
	for i := 0; i < len(a.points) || i < len(b.points); i++ {
		if i == len(a.points) {
			return "no such sample", say(b, i), true
		}
		if i == len(b.points) {
			return say(a, i), "no such sample", true
		}
		switch compareNumbers(a.points[i].at, b.points[i].at) {
		case -1:
			return say(a, i), "no such sample", true
		case 1:
			return "no such sample", say(b, i), true
		}
		if x, y := a.points[i].value, b.points[i].value; !o.same(x, y) {
			was, is := say(a, i), say(b, i)
			if was == is { // they differ behind the cut
				was, is = o.apart(x, y)
				was, is = pointText(a, i, was), pointText(b, i, is)
			}
			return was, is, true
		}
	}
	return "", "", false
}

// pointText is a text about one point of a row.
func pointText(r *row, i int, text string) string {
	return fmt.Sprintf("%s at %s: %s", clip.Text(r.key, 300), r.points[i].at, clip.Text(text, 200))
}

// apart are the first parts in which two values differ, with the fields that lead there.
func (o *Options) apart(a, b any) (was, is string) {
	switch x := a.(type) {
	case []any:
		if y, ok := b.([]any); ok && len(x) == len(y) {
			for i := range x {
				if !o.same(x[i], y[i]) {
					was, is = o.apart(x[i], y[i])
					return fmt.Sprintf("[%d] %s", i, was), fmt.Sprintf("[%d] %s", i, is)
				}
			}
		}
	case map[string]any:
		if y, ok := b.(map[string]any); ok && len(x) == len(y) {
			for _, name := range slices.Sorted(maps.Keys(x)) {
				if z, ok := y[name]; ok && !o.same(x[name], z) {
					was, is = o.apart(x[name], z)
					return name + " " + was, name + " " + is
				}
			}
		}
	}
	return valueText(a), valueText(b)
}

// same compares values, numbers within the tolerance: texts of numbers, and objects and lists of
// them.
func (o *Options) same(a, b any) bool {
	switch x := a.(type) {
	case string:
		y, ok := b.(string)
		if !ok || x == y {
			return ok
		}
		f, err := strconv.ParseFloat(x, 64)
		g, gerr := strconv.ParseFloat(y, 64)
		return err == nil && gerr == nil && o.near(f, g)
	case float64:
		y, ok := b.(float64)
		return ok && o.near(x, y)
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, o.same)
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && maps.EqualFunc(x, y, o.same)
	default:
		return reflect.DeepEqual(a, b)
	}
}

func (o *Options) near(a, b float64) bool {
	if a == b || math.IsNaN(a) && math.IsNaN(b) {
		return true
	}
	return !math.IsInf(a, 0) && !math.IsInf(b, 0) && math.Abs(a-b) <= o.Tolerance*max(math.Abs(a), math.Abs(b))
}

// without are the notes of a that b does not have, as one text.
func without(a, b []string) string {
	var out []string
	for _, n := range a {
		if !slices.Contains(b, n) {
			out = append(out, n)
		}
	}
	return clip.Text(strings.Join(out, "; "), 500)
}

// labelText is a label set as text, in the order of the names, without some of them.
func labelText(set map[string]string, ignore []string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if !slices.Contains(ignore, name) {
			out = append(out, name+"="+strconv.Quote(set[name]))
		}
	}
	return "{" + strings.Join(out, ", ") + "}"
}

// valueText is a value as it is written in an answer, without the quotes of a number.
func valueText(v any) string {
	if text, ok := v.(string); ok {
		return text
	}
	text, _ := json.Marshal(v) // it came as JSON
	return string(text)
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func compareNumbers(a, b string) int {
	x, _ := strconv.ParseFloat(a, 64) // both were printed by number
	y, _ := strconv.ParseFloat(b, 64)
	return cmp.Compare(x, y)
}
