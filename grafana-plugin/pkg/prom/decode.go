package prom

import (
	"errors"
	"io"
	"math"
	"strconv"
	"strings"

	jsoniter "github.com/json-iterator/go"
)

const (
	bufferBytes = 32 << 10
	// maxMillis keeps times within what time.UnixMilli can show: the year is at most 275760, as in
	// browsers.
	maxMillis = 8.64e15
)

// body is what the API answers with, decoded. failed are the members of an error, which come with
// other HTTP statuses too.
type body struct {
	answer Answer
	data   bool // a result was there
	status string
	failed failed

	resultType string
}

type failed struct {
	errorType, message         string
	bound, value, seen, advice string
}

// decode reads one answer of query or query_range to its end. The shape of a result tells its type,
// so resultType may stand anywhere; members that are not known are skipped, as clients of the API
// do. The error says what is not as it should be; an error of r is in its chain.
func decode(r io.Reader) (body, error) { return decodeFirst(r, 0) }

// decodeFirst is decode that keeps the first most series and counts the others; 0 keeps all.
func decodeFirst(r io.Reader, most int) (body, error) {
	reads := &sticky{r: r}
	d := decoder{it: jsoniter.Parse(jsoniter.ConfigDefault, reads, bufferBytes), most: most}
	d.body()
	switch {
	case reads.err != nil && !errors.Is(reads.err, io.EOF):
		return body{}, reads.err
	case d.it.Error != nil && !errors.Is(d.it.Error, io.EOF):
		what, _, _ := strings.Cut(d.it.Error.Error(), ", error found in #") // behind it is an excerpt
		return body{}, &malformed{what}
	case !d.whole:
		return body{}, &malformed{"it ends too early"}
	}
	// What stands behind the object can only be white space.
	if next := d.it.WhatIsNext(); next != jsoniter.InvalidValue || !errors.Is(reads.err, io.EOF) {
		if reads.err != nil && !errors.Is(reads.err, io.EOF) {
			return body{}, reads.err
		}
		return body{}, &malformed{"something stands behind it"}
	}
	return d.out, nil
}

// malformed is an answer that is no JSON, or not what the API says.
type malformed struct{ what string }

func (m *malformed) Error() string {
	return "the answer breaks off, or is none of the Prometheus API (" + m.what + ")"
}

// sticky keeps the error that ended reading, which the iterator hides.
type sticky struct {
	r   io.Reader
	err error
}

func (s *sticky) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.r.Read(p)
	s.err = err
	return n, err
}

type decoder struct {
	it    *jsoniter.Iterator
	out   body
	whole bool // the closing brace was seen
	most  int  // series that are kept; 0: all
}

func (d *decoder) body() {
	if d.it.WhatIsNext() != jsoniter.ObjectValue {
		d.fail("it is no object")
		return
	}
	d.whole = d.object(func(key string) {
		switch key {
		case "status":
			d.out.status = d.text()
		case "errorType":
			d.out.failed.errorType = d.text()
		case "error":
			d.out.failed.message = d.text()
		case "warnings":
			d.out.answer.Warnings = d.texts()
		case "infos":
			d.out.answer.Infos = d.texts()
		case "spillway":
			d.spillway()
		case "data":
			d.data()
		default:
			d.it.Skip()
		}
	})
}

func (d *decoder) spillway() {
	d.object(func(key string) {
		f := &d.out.failed
		switch key {
		case "bound":
			f.bound = d.text()
		case "value":
			f.value = d.text()
		case "seen":
			f.seen = d.text()
		case "advice":
			f.advice = d.text()
		default:
			d.it.Skip()
		}
	})
}

func (d *decoder) data() {
	d.out.resultType = ""
	d.result(nil)
	d.object(func(key string) {
		switch key {
		case "resultType":
			d.out.resultType = d.text()
		case "result":
			d.result(&d.out.answer)
		default:
			d.it.Skip()
		}
	})
}

// result reads the series of a vector or a matrix, or the time and the value of a scalar, into a;
// nil forgets what was read.
func (d *decoder) result(a *Answer) {
	d.out.answer.Series, d.out.answer.Histograms, d.out.answer.Left, d.out.data = nil, 0, 0, a != nil
	if a == nil {
		return
	}
	n, scalar, at := 0, false, int64(0)
	d.array(func() {
		switch next := d.it.WhatIsNext(); {
		case next == jsoniter.ObjectValue && !scalar && d.most > 0 && len(a.Series) >= d.most:
			a.Left++
			d.it.Skip()
		case next == jsoniter.ObjectValue && !scalar:
			d.series()
		case next == jsoniter.NumberValue && n == 0:
			scalar, at = true, d.millis()
		case next == jsoniter.StringValue && scalar && n == 1 && d.out.resultType == "string":
			d.it.Skip()
		case next == jsoniter.StringValue && scalar && n == 1:
			a.Series = []Series{{Labels: map[string]string{}, Points: []Point{{at, d.number()}}}}
		default:
			d.fail("a result is neither series nor a number")
		}
		n++
	})
	if scalar && n != 2 {
		d.fail("a number is not a time and a value")
	}
}

// series reads one element of a vector or a matrix.
func (d *decoder) series() {
	s := Series{}
	histograms := false
	d.object(func(key string) {
		switch key {
		case "metric":
			s.Labels = map[string]string{}
			d.object(func(name string) { s.Labels[name] = d.text() })
		case "value":
			s.Points = []Point{d.point()}
		case "values":
			s.Points = nil
			d.array(func() { s.Points = append(s.Points, d.point()) })
		case "histogram", "histograms":
			histograms = true
			d.it.Skip()
		default:
			d.it.Skip()
		}
	})
	if histograms {
		d.out.answer.Histograms++
	}
	if len(s.Points) == 0 {
		return
	}
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	d.out.answer.Series = append(d.out.answer.Series, s)
}

// point reads [time, "value"].
func (d *decoder) point() Point {
	var p Point
	n := 0
	d.array(func() {
		switch n {
		case 0:
			p.T = d.millis()
		case 1:
			p.V = d.number()
		default:
			d.fail("a sample has more than a time and a value")
		}
		n++
	})
	if d.ok() && n < 2 {
		d.fail("a sample is not a time and a value")
	}
	return p
}

func (d *decoder) millis() int64 {
	t := math.Round(d.it.ReadFloat64() * 1000)
	if !(math.Abs(t) <= maxMillis) {
		d.fail("a time is outside what can be shown")
		return 0
	}
	return int64(t)
}

// number reads a value, which is text since JSON has no NaN.
func (d *decoder) number() float64 {
	if d.it.WhatIsNext() != jsoniter.StringValue {
		d.fail("a value is no text")
		return 0
	}
	v, err := strconv.ParseFloat(string(d.it.ReadStringAsSlice()), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // beyond the range it is infinite
		d.fail("a value is no number")
	}
	return v
}

// text reads text; null is none.
func (d *decoder) text() string { return d.it.ReadString() }

func (d *decoder) texts() []string {
	var list []string
	d.array(func() { list = append(list, d.text()) })
	return list
}

// object calls member for each member of an object, which must read or skip it, until one fails;
// null has none. It tells whether the end was seen.
func (d *decoder) object(member func(key string)) bool {
	return d.it.ReadMapCB(func(_ *jsoniter.Iterator, key string) bool {
		member(key)
		return d.ok()
	})
}

// array is object for arrays.
func (d *decoder) array(element func()) {
	d.it.ReadArrayCB(func(*jsoniter.Iterator) bool {
		element()
		return d.ok()
	})
}

func (d *decoder) ok() bool { return d.it.Error == nil || errors.Is(d.it.Error, io.EOF) }

// fail ends decoding; the first failure counts.
func (d *decoder) fail(what string) {
	if d.ok() {
		d.it.Error = errors.New(what)
	}
}
